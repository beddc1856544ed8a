"""The protocol of every table: five folds stratified on the label, one row of results per fit.

Violations here are exact numbers on public test folds, for research; they are not private.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import TargetEncoder
from tqdm.auto import tqdm

from bench.experiments.methods import estimated_seconds, make, recipe
from bench.experiments.runner import Cell
from justitia.datasets import Dataset, load
from justitia.datasets.dataset import Index
from justitia.metrics.exact import violation

#: A method makes a fresh, unfitted estimator from the public group names, the notion and a seed.
Method = Callable[[tuple[str, ...], str, int], Any]

#: What :func:`measure` returns for a cell.
MEASURES = ("accuracy", "violation", "epsilon_spent", "epsilon_claimed", "seconds")
FOLDS = 5
INNER_FOLDS = 4


def evaluate(data: Dataset, notion: str, make: Method, *, fold: int, train: Any, test: Any) -> dict[str, Any]:
    """Fit on the training rows, measure accuracy and violation on the test rows."""
    model = make(data.groups, notion, fold)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(data.X.iloc[train], data.y.iloc[train], sensitive_features=data.sensitive.iloc[train])
    seconds = time.perf_counter() - start
    predicted, truth = model.predict(data.X.iloc[test]), data.y.iloc[test].to_numpy()
    measured = violation(
        truth, predicted, sensitive_features=data.sensitive.iloc[test], notion=notion, groups=data.groups
    )
    spent = model.certificate_.epsilon if hasattr(model, "certificate_") else np.nan
    return {
        "accuracy": float(np.mean(predicted == truth)),
        "violation": measured,
        "epsilon": spent,
        "seconds": seconds,
        "model": model,
    }


@cache
def dataset(name: str) -> Dataset:
    """A dataset, read once per process."""
    return load(name, progress=False)


def rows_of(cell: Cell, data: Dataset) -> tuple[Index, Index]:
    """Training and test rows of a cell; an inner split stays within the training rows of fold 0."""
    if cell.split == "inner":
        outer, _ = next(iter(data.folds(FOLDS)))
        splitter: Any = StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=cell.seed)
        parts = list(splitter.split(np.zeros(len(outer)), data.y.iloc[outer].to_numpy()))
        train, test = parts[cell.fold]
        return outer[train], outer[test]
    return list(data.folds(FOLDS, seed=cell.seed))[cell.fold]


def paper_features(data: Dataset, train: Index) -> Dataset:
    """One number per feature, as the paper counts them (Bank 15): a category becomes the mean label of training rows.

    Each training row's own label is kept out of its number (cross-fitting); test rows get the means of all training
    rows. Income comes with the paper's 50 features already.
    """
    words = [name for name in data.X if not pd.api.types.is_numeric_dtype(data.X[name])]
    if not words:
        return data
    encoder = TargetEncoder(cv=StratifiedKFold(FOLDS, shuffle=True, random_state=0))
    seen = encoder.fit_transform(data.X[words].iloc[train], data.y.iloc[train])
    numbers = encoder.transform(data.X[words])
    numbers[train] = seen
    return replace(data, X=data.X.assign(**dict(zip(words, numbers.T, strict=True))))


@lru_cache(maxsize=FOLDS)
def _prepared(name: str, split: str, seed: int, fold: int) -> tuple[Dataset, Index, Index]:
    data = dataset(name)
    train, test = rows_of(Cell("", name, "", "", fold, seed, split=split), data)
    return paper_features(data, train), train, test


def prepared(cell: Cell) -> tuple[Dataset, Index, Index]:
    """The dataset of a cell with the paper's features, its training rows and its test rows."""
    return _prepared(cell.dataset, cell.split, cell.seed, cell.fold)


def with_missing(data: Dataset, train: Index, share: float, seed: int) -> Dataset:
    """The dataset with a share of the training rows' attributes "not given", completely at random."""
    if not share:
        return data
    hidden = np.random.default_rng(seed).permutation(train)[: round(share * len(train))]
    sensitive = data.sensitive.copy()
    sensitive.iloc[hidden] = None
    return replace(data, sensitive=sensitive)


def with_shuffled(data: Dataset, seed: int) -> Dataset:
    """The dataset with everybody's attribute given to somebody else: no model treats such groups differently."""
    order = np.random.default_rng(seed).permutation(len(data.sensitive))
    mixed = data.sensitive.iloc[order].set_axis(data.sensitive.index)
    return replace(data, sensitive=mixed)


def fitted(cell: Cell) -> tuple[Dataset, Index, dict[str, Any]]:
    """The dataset of a cell, its training rows, and what :func:`evaluate` found, the fitted model included."""
    data, train, test = prepared(cell)
    data = with_missing(data, train, float(cell.settings.get("missing", 0)), seed=5 * cell.seed + cell.fold)
    data = with_shuffled(data, seed=5 * cell.seed + cell.fold) if cell.settings.get("shuffled") else data
    found = evaluate(
        data, cell.notion, lambda groups, _notion, _seed: make(cell, groups), fold=cell.fold, train=train, test=test
    )
    return data, train, found


def measure(cell: Cell) -> dict[str, float]:
    """Fit one cell; the work of the runner."""
    return measures(fitted(cell)[2])


def measures(found: Mapping[str, Any]) -> dict[str, float]:
    """The columns :data:`MEASURES` of what :func:`evaluate` found.

    ``epsilon_spent`` is what the ledger recorded, the honest statement; ``epsilon_claimed`` is what a printed analysis
    says where it does not establish the guarantee.
    """
    claim = getattr(getattr(found["model"], "certificate_", None), "claim", None)
    return {
        "accuracy": found["accuracy"],
        "violation": found["violation"],
        "epsilon_spent": found["epsilon"],
        "epsilon_claimed": np.nan if claim is None else claim["epsilon"],
        "seconds": round(found["seconds"], 2),
    }


def with_recipes(cells: Sequence[Cell]) -> list[Cell]:
    """Cells whose keys know every parameter of their estimators, long ones first."""
    complete = [replace(cell, recipe=recipe(cell)) for cell in cells]
    return sorted(complete, key=estimated_seconds, reverse=True)


def run(cells: Mapping[tuple[str, str], Mapping[str, Method]], *, folds: int = FOLDS) -> pd.DataFrame:
    """Every method on every fold of every (dataset, notion), models included; one row per fit."""
    rows = []
    total = folds * sum(len(methods) for methods in cells.values())
    with tqdm(total=total, unit="fit") as bar:
        for (name, notion), methods in cells.items():
            data = load(name)
            for fold, (train, test) in enumerate(data.folds(folds)):
                for method, make_model in methods.items():
                    bar.set_description(f"{name}, {method}")
                    result = evaluate(data, notion, make_model, fold=fold, train=train, test=test)
                    rows.append({"dataset": name, "notion": notion, "method": method, "fold": fold, **result})
                    bar.update()
    return pd.DataFrame(rows)


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over folds, as text."""
    groups = results.groupby(["dataset", "notion", "method"], sort=False)
    table = groups[["accuracy", "violation"]].agg(mean_and_spread)
    table["epsilon"] = groups["epsilon"].max().map(lambda e: "not asked" if np.isnan(e) else f"{e:.3g}")
    table["seconds"] = groups["seconds"].mean().map("{:.1f}".format)
    return table.reset_index()


def mean_and_spread(values: pd.Series) -> str:
    """Mean (standard deviation over the folds), with the three digits of the paper's table."""
    return f"{values.mean():.3f} ({values.std(ddof=0):.3f})"
