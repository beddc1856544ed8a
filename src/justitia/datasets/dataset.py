"""Dataset: public features X and target y, with the sensitive attribute in a series of its own."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import StratifiedKFold

Index = npt.NDArray[np.intp]
#: Kinds of target: 0 or 1, one of several classes, or a number.
Task = Literal["binary", "classes", "number"]
#: Folds of a numeric target are stratified on so many quantiles of it.
STRATA = 10


@dataclass(frozen=True, eq=False)
class Dataset:
    """Table of public features and target, with the sensitive attribute apart from them.

    Nothing in here was fitted: numbers are as recorded and categories are words. Encoders and scalers are fitted later,
    on training rows.

    Parameters
    ----------
    name : str
        Name under which `load` knows the table.
    X : pandas.DataFrame, shape (n, d)
        Public features. The sensitive column is not among them.
    y : pandas.Series, shape (n,)
        Public target: 0 or 1, names of classes, or finite numbers, as `task` says.
    sensitive : pandas.Series, shape (n,)
        The private attribute A as group names; a missing value means "not given".
    groups : tuple of str
        The public list of group names, fixed before any row was read.
    description : str
        What the rows are and which choices were made.
    task : {"binary", "classes", "number"}
        Kind of target.

    Raises
    ------
    ValueError
        If the columns do not belong together or X holds the sensitive column.
    """

    name: str
    X: pd.DataFrame = field(repr=False)
    y: pd.Series = field(repr=False)
    # Kept out of repr: a table printed in a log must not show who is in which group.
    sensitive: pd.Series = field(repr=False)
    groups: tuple[str, ...]
    description: str = field(repr=False)
    task: Task = field(default="binary", repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_lengths(len(self.X), len(self.y), len(self.sensitive))
        if self.sensitive.name in self.X.columns:
            raise ValueError(f"X must not hold the sensitive column, but has {self.sensitive.name!r}; drop it from X.")
        _check_target(self.y, self.task)
        if not self.sensitive.dropna().isin(self.groups).all():
            raise ValueError("Some sensitive values are not in `groups`; list every group name or leave them missing.")

    def folds(self, n_splits: int = 5, seed: int = 0) -> Iterator[tuple[Index, Index]]:
        """Yield (train_index, test_index) of shuffled folds, stratified on y alone; a numeric y on its deciles.

        The sensitive attribute is not used: folds balanced by group would be a release about it that no ledger was
        debited for.

        Parameters
        ----------
        n_splits : int
            Number of folds.
        seed : int
            Seed of the public shuffle.
        """
        splitter: Any = StratifiedKFold(n_splits, shuffle=True, random_state=seed)
        yield from splitter.split(np.zeros(len(self.y)), self._strata())

    def _strata(self) -> npt.NDArray[Any]:
        if self.task != "number":
            return self.y.to_numpy()
        # Equal quantiles are one edge: hours per week have fewer than nine different inner deciles.
        edges = np.unique(np.quantile(self.y, np.arange(1, STRATA) / STRATA))
        return np.searchsorted(edges, self.y.to_numpy(), side="right")


def _check_lengths(rows: int, labels: int, members: int) -> None:
    if not rows == labels == members:
        raise ValueError(
            f"X, y and sensitive must have one entry per row, but have {rows}, {labels} and {members}; align them."
        )


def _check_target(y: pd.Series, task: Task) -> None:
    if task == "binary" and not y.isin((0, 1)).all():
        raise ValueError("y must hold only 0 and 1, but holds other values; map the labels to 0 and 1.")
    if task == "classes" and (y.isna().any() or y.nunique() < 2):
        raise ValueError("y must name one of at least two classes in every row, but does not; drop rows without one.")
    if task == "number" and not (pd.api.types.is_numeric_dtype(y) and np.isfinite(y.to_numpy(dtype=float)).all()):
        raise ValueError("y must hold finite numbers, but holds other values; drop rows without one.")
