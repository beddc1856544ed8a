"""Numeric targets on which settings of the regressor are compared: training rows of the first fold, or drawn rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from bench.experiments.folds import FOLDS, dataset
from justitia.datasets import Dataset, make_synthetic
from justitia.datasets.dataset import Index

INNER_FOLDS = 3
#: Rows of a dataset that are used, so that a fit takes a second.
MOST_ROWS = 3_600


@dataclass(frozen=True)
class Place:
    """Rows with a numeric target.

    Parameters
    ----------
    name : str
        A dataset of `justitia.datasets`, or that of drawn rows.
    title : str
        For the head of a table.
    rows : callable
        Makes the rows; none of them is a test row of the first fold.
    """

    name: str
    title: str
    rows: Callable[[], Dataset]


def training_rows(name: str) -> Dataset:
    """The training rows of the first fold of a dataset: its test rows are in no number that is compared here."""
    data = dataset(name)
    outer, _ = next(iter(data.folds(FOLDS)))
    return some_of(data, outer)


def some_of(data: Dataset, rows: Index) -> Dataset:
    """At most so many of these rows."""
    kept = np.sort(np.random.default_rng(0).permutation(rows)[:MOST_ROWS])
    return replace(
        data,
        X=data.X.iloc[kept].reset_index(drop=True),
        y=data.y.iloc[kept].reset_index(drop=True),
        sensitive=data.sensitive.iloc[kept].reset_index(drop=True),
    )


def decile_by_race() -> Dataset:
    """Compas: the decile of the score, by race, from the other columns."""
    data = training_rows("compas")
    X = data.X.drop(columns=["decile_score", "race", "c_charge_desc"]).assign(sex=data.sensitive, again=data.y)
    y, race = data.X["decile_score"].astype(float), data.X["race"]
    return replace(data, X=X, y=y, sensitive=race, groups=("African-American", "Caucasian"), task="number")


def balance_by_age() -> Dataset:
    """Bank: the logarithm of the balance with its sign, by two of the three age groups, from the other columns."""
    data = training_rows("m_bank3")
    inside = np.flatnonzero(data.sensitive != data.groups[-1])
    data = some_of(data, inside)
    balance = data.X["balance"].astype(float)
    X = data.X.drop(columns="balance").assign(deposit=data.y)
    return replace(data, X=X, y=np.sign(balance) * np.log1p(balance.abs()), groups=data.groups[:-1], task="number")


def drawn(n: int, features: int, factors: int | None = None) -> Dataset:
    """Synthetic rows: groups differ in the first of the features, or of the factors that features are made of."""
    data = make_synthetic(n, shares=(0.35, 0.65), disparity=0.4, n_features=factors or features, random_state=0)
    rng = np.random.default_rng(1)
    y = data.X["x0"] + data.X["x1"] + rng.standard_normal(n)
    X: Any = data.X
    if factors:
        loadings = rng.standard_normal((factors, features))
        X = (X @ loadings + 2.0 * rng.standard_normal((n, features))).add_prefix("f")
    return Dataset("drawn", X, y.rename("y"), data.sensitive, data.groups, "Synthetic.", task="number")


PLACES = (
    Place("communities", "Communities", lambda: training_rows("communities")),
    Place("hours", "Hours", lambda: training_rows("hours")),
    Place("compas", "Compas decile", decile_by_race),
    Place("m_bank3", "Bank balance", balance_by_age),
    Place("narrow", "5 features", lambda: drawn(2_400, 5)),
    Place("wide", "100 features", lambda: drawn(2_400, 100)),
    Place("factors", "60 features of 6 factors", lambda: drawn(2_400, 60, 6)),
)
#: Names of drawn rows, for which no file is needed.
DRAWN = ("narrow", "wide", "factors")


@cache
def rows_at(name: str) -> Dataset:
    """The rows of a place, made once per process."""
    return next(place for place in PLACES if place.name == name).rows()


def inner_split(data: Dataset, fold: int, seed: int) -> tuple[Index, Index]:
    """Rows to fit on, and rows to measure on."""
    return list(data.folds(INNER_FOLDS, seed=seed))[fold]
