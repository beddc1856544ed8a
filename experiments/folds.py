"""The protocol of every table: five folds stratified on the label, one row of results per fit.

Violations here are exact numbers on public test folds, for research; they are not private.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from justitia.datasets import Dataset, load
from justitia.metrics import violation

#: A method makes a fresh, unfitted estimator from the public group names, the notion and a seed.
Method = Callable[[tuple[str, ...], str, int], Any]


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


def run(cells: Mapping[tuple[str, str], Mapping[str, Method]], *, folds: int = 5) -> pd.DataFrame:
    """Every method on every fold of every (dataset, notion); one row per fit."""
    rows = []
    total = folds * sum(len(methods) for methods in cells.values())
    with tqdm(total=total, unit="fit") as bar:
        for (name, notion), methods in cells.items():
            data = load(name)
            for fold, (train, test) in enumerate(data.folds(folds)):
                for method, make in methods.items():
                    bar.set_description(f"{name}, {method}")
                    result = evaluate(data, notion, make, fold=fold, train=train, test=test)
                    rows.append({"dataset": name, "notion": notion, "method": method, "fold": fold, **result})
                    bar.update()
    return pd.DataFrame(rows)


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over folds, as text."""
    groups = results.groupby(["dataset", "notion", "method"], sort=False)
    table = groups[["accuracy", "violation"]].agg(_mean_and_spread)
    table["epsilon"] = groups["epsilon"].max().map(lambda e: "not asked" if np.isnan(e) else f"{e:.3g}")
    table["seconds"] = groups["seconds"].mean().map("{:.1f}".format)
    return table.reset_index()


def _mean_and_spread(values: pd.Series) -> str:
    return f"{values.mean():.3f} ({values.std(ddof=0):.3f})"
