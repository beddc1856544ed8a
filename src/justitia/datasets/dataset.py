"""Dataset: public features X and labels y, with the sensitive attribute in a series of its own."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import StratifiedKFold

Index = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Table of public features and labels, with the sensitive attribute apart from them.

    Nothing in here was fitted: numbers are as recorded and categories are words. Encoders and scalers are fitted later,
    on training rows.

    Parameters
    ----------
    name : str
        Name under which `load` knows the table.
    X : pandas.DataFrame, shape (n, d)
        Public features. The sensitive column is not among them.
    y : pandas.Series, shape (n,)
        Public labels, 0 or 1.
    sensitive : pandas.Series, shape (n,)
        The private attribute A as group names; a missing value means "not given".
    groups : tuple of str
        The public list of group names, fixed before any row was read.
    description : str
        What the rows are and which choices were made.

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

    def __post_init__(self) -> None:
        _check_lengths(len(self.X), len(self.y), len(self.sensitive))
        if self.sensitive.name in self.X.columns:
            raise ValueError(f"X must not hold the sensitive column, but has {self.sensitive.name!r}; drop it from X.")
        if not self.y.isin((0, 1)).all():
            raise ValueError("y must hold only 0 and 1, but holds other values; map the labels to 0 and 1.")
        if not self.sensitive.dropna().isin(self.groups).all():
            raise ValueError("Some sensitive values are not in `groups`; list every group name or leave them missing.")

    def folds(self, n_splits: int = 5, seed: int = 0) -> Iterator[tuple[Index, Index]]:
        """Yield (train_index, test_index) of shuffled folds, stratified on y alone.

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
        yield from splitter.split(np.zeros(len(self.y)), self.y.to_numpy())


def _check_lengths(rows: int, labels: int, members: int) -> None:
    if not rows == labels == members:
        raise ValueError(
            f"X, y and sensitive must have one entry per row, but have {rows}, {labels} and {members}; align them."
        )
