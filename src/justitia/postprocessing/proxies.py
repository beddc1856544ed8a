"""Memberships that know proxies of the group, averaged over them: a public regression on features and label.

The deployed rule does not have the proxies, so the dual needs p(a | x, y). Memberships p(a | x, y, proxy) of the
training rows are regressed on (x, y): first by a softmax of the public rows without proxies, then by boosted trees of
what that leaves. Both are cross-fitted: a training row is predicted by models that were not fitted on it. Without that
the dual would correct by each row's own proxy, and a rule without proxies would not follow: the correction averages
out.

Everything here is a function of public rows and of the weights that the noised sums gave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from justitia.learners.base import FOLDS
from justitia.postprocessing.features import PublicRows, base_scores
from justitia.postprocessing.memberships import FIT_ROWS, LEAST_RIDGE, Memberships, fit_memberships
from justitia.rows.source import Block

Array = NDArray[np.float64]
#: Trees at most, and boosting steps without gain on the other fold after which it ends.
TREES, PATIENCE = 150, 10
#: Size of the trees. Small, because most of what they are fitted to is the chance of the proxies.
SIZE: dict[str, Any] = {
    "num_leaves": 8,
    "min_child_samples": 50,
    "learning_rate": 0.1,
    "reg_lambda": 5.0,
    "colsample_bytree": 0.5,
}
#: The same trees on every machine.
SAME: dict[str, Any] = {
    "verbosity": -1,
    "n_jobs": 1,
    "random_state": 0,
    "deterministic": True,
    "force_row_wise": True,
}


@dataclass(frozen=True, eq=False)
class Regression:
    """p(a | x, y) by a softmax of public rows and by trees, one regressor for each named group."""

    softmax: Memberships
    trees: tuple[Any, ...]

    def by_label(self, block: Block) -> Array:
        """(Y, m, G): as :meth:`Memberships.by_label`."""
        found = self.softmax.by_label(block)
        for y, q in enumerate(found):
            columns = _columns(block, np.full(len(block), y))
            for a, model in enumerate(self.trees):
                q[:, a] += model.predict(columns)
        found = np.maximum(found, 0.0)
        scaled: Array = found / np.maximum(found.sum(axis=2, keepdims=True), 1.0)
        return scaled


@dataclass(frozen=True, eq=False)
class AveragedMemberships:
    """p(a | x, y) of any block, in the place of memberships that know proxies.

    Attributes
    ----------
    weights : ndarray (C, width)
        Of the memberships that know proxies; everything else follows from them and from public rows.
    regressions : tuple of Regression
        One per fold; rows of files get their mean.
    out_of_fold : ndarray (Y, n, G), optional
        Of all rows where they are in memory, each by the models that were not fitted on it.
    """

    weights: Array
    regressions: tuple[Regression, ...]
    out_of_fold: Array | None

    def by_label(self, block: Block) -> Array:
        """(Y, m, G): memberships of the named groups if the label were each of the Y labels."""
        if self.out_of_fold is not None:
            return self.out_of_fold[:, block.first : block.first + len(block)]
        mean: Array = np.mean([one.by_label(block) for one in self.regressions], axis=0)
        return mean


def average_over_proxies(known: Memberships, sample: Block, *, all_rows: bool) -> tuple[AveragedMemberships, Array]:
    """Regress memberships that know proxies; also return those of the sample, (Y, n, G), out of fold.

    Parameters
    ----------
    known : Memberships
    sample : Block
        With proxies.
    all_rows : bool
        Whether the sample has all rows.
    """
    labels, n = known.rows.labels, len(sample)
    label, bare = sample.y.astype(np.int64) % labels, replace(sample, proxy=None, memo={})
    q = known.by_label(sample)[label, np.arange(n)]
    rows = PublicRows.fit(base_scores, bare, blocks=known.rows.blocks, labels=labels)
    start, found, regressions = None, np.zeros((labels, *q.shape)), []
    for train, test in KFold(min(FOLDS, n), shuffle=True, random_state=0).split(q):
        some = train[:: -(-len(train) // FIT_ROWS)]
        softmax = _fit_softmax(rows, _part(bare, some), q[some], start)
        start = softmax.weights
        residual = q - softmax.by_label(bare)[label, np.arange(n)]
        columns = _columns(bare, label)
        trees = tuple(_fit_trees(columns, residual[:, a], some, test) for a in range(q.shape[1]))
        regressions.append(Regression(softmax, trees))
        found[:, test] = regressions[-1].by_label(_part(bare, test))
    if all_rows:
        return AveragedMemberships(known.weights, (), found), found
    return AveragedMemberships(known.weights, tuple(regressions), None), found


def _part(block: Block, rows: NDArray[np.int64]) -> Block:
    """Some rows of a block, at positions of their own."""
    return replace(block.take(rows), first=0)


def _fit_softmax(rows: PublicRows, block: Block, q: Array, start: Array | None) -> Memberships:
    """Softmax of public rows with the same sums as these memberships; "not given" is the last category."""
    columns = rows(block)
    sums = np.column_stack([q, 1 - q.sum(1)]).T @ columns.astype(np.float64)
    ridge = np.full(rows.width, LEAST_RIDGE)
    return Memberships(rows, fit_memberships(columns, sums, ridge=ridge, start=start), q.shape[1])


def _fit_trees(columns: NDArray[np.float32], target: Array, train: Any, test: Any) -> Any:
    """A regressor of the target on some rows; it stops where it no longer helps on the others."""
    import lightgbm  # noqa: PLC0415 - imported when needed, as everywhere

    return lightgbm.LGBMRegressor(n_estimators=TREES, **SIZE, **SAME).fit(
        columns[train],
        target[train],
        eval_X=columns[test],
        eval_y=target[test],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )


def _columns(block: Block, label: NDArray[Any]) -> NDArray[np.float32]:
    """What trees read: features, scores of the base model, and the label."""
    return np.column_stack([block.X, block.prediction, label]).astype(np.float32)
