"""What is deployed of the multipliers and memberships: one public function of x, boosted trees.

The rule needs t(x) = lambda . c(x), which is made of memberships. Trees learn t from the training rows, with their
features and their eta as inputs, and the memberships are dropped. What t itself tells about groups is said in
``docs/plugin.md``.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.learners.default import boosted_trees

Array = NDArray[np.float64]
#: Trees, leaves and learning rate of a correction.
TREES, LEAVES, RATE = 150, 31, 0.1
#: Rows that trees learn from; a public sample where there are more.
ROWS = 200_000
#: A correction that is smaller everywhere is none.
NOTHING = 1e-9
#: Distance from the line at which a row counts half, and what the farthest count.
NEAR, FAR = 0.1, 0.02
#: How often the leaves of given trees are fitted, one tree after the other.
PASSES = 2


class Correction:
    """t(x) as a sum of trees, or 0 everywhere.

    Parameters
    ----------
    text : str
        The trees as LightGBM writes them; no text is 0 everywhere.
    leaves : list of ndarray, optional
        Other values of the leaves, by tree.
    """

    def __init__(self, text: str = "", leaves: list[Array] | None = None) -> None:
        self._text, self._leaves = text, leaves

    @cached_property
    def booster(self) -> Any:
        """The trees, made when they are first needed: most models of a curve never are."""
        if not self._text:
            return None
        import lightgbm  # noqa: PLC0415

        trees = lightgbm.Booster(model_str=self._text)
        for j, values in enumerate(self._leaves or ()):
            for leaf, value in enumerate(values):
                trees.set_leaf_output(j, leaf, float(value))
        return trees

    def describe(self) -> str:
        """How large it is, for reports."""
        if self.booster is None:
            return "none: the base is within the tolerance"
        return f"{self.booster.num_trees()} trees on features and base"

    def __call__(self, numbers: NDArray[np.float32], eta: Array) -> Array:
        """(m,): t of rows with these features and this eta."""
        if self.booster is None:
            return np.zeros(len(eta))
        found: Array = self.booster.predict(_columns(numbers, eta))
        return found


class Distillation:
    """Trees whose splits are learned from one correction, and whose leaves can be fitted to any multipliers.

    The leaves of least squares are linear in the target, so they are found for each c once; the leaves of lambda . c
    are then a sum, and a correction costs next to nothing. Only sums leave.

    Parameters
    ----------
    numbers : ndarray (n, d)
        Public features.
    eta : ndarray (n,)
    c : ndarray (n, J)
        What multipliers multiply.
    lam : ndarray (J,)
        Multipliers whose correction the splits are learned from.
    gain : ndarray (n,)
        What a positive decision is worth: rows near the line, where the gain is t, count most.
    """

    def __init__(self, numbers: NDArray[np.float32], eta: Array, c: Array, lam: Array, gain: Array) -> None:
        rows = np.arange(0, len(eta), max(1, -(-len(eta) // ROWS)))
        self._columns, self._c = _columns(numbers[rows], eta[rows]), c[rows]
        learner = boosted_trees("LGBMRegressor", n_estimators=TREES, num_leaves=LEAVES).set_params(learning_rate=RATE)
        target = self._c @ lam
        weight = FAR + 1 / (1 + ((gain[rows] - target) / NEAR) ** 2)
        self._lam, self._trees = lam, learner.fit(self._columns, target, sample_weight=weight).booster_
        self._text = self._trees.model_to_string()
        self._leaves: list[Array] | None = None

    def correction(self, lam: Array) -> Correction:
        """The correction of these multipliers."""
        if np.array_equal(lam, self._lam):
            return Correction(self._text)
        self._leaves = self._fitted_leaves() if self._leaves is None else self._leaves
        return Correction(self._text, [leaves @ lam for leaves in self._leaves])

    def _fitted_leaves(self) -> list[Array]:
        """Per tree, (leaves, J): least squares, found tree by tree."""
        where = np.asarray(self._trees.predict(self._columns, pred_leaf=True), dtype=np.intp)
        counts = [np.maximum(np.bincount(tree), 1)[:, None] for tree in where.T]
        found = [np.zeros((len(count), self._c.shape[1])) for count in counts]
        left = self._c.copy()
        for _ in range(PASSES):
            for j, (tree, count) in enumerate(zip(where.T, counts, strict=True)):
                means = np.column_stack([np.bincount(tree, one, len(count)) for one in left.T]) / count
                found[j] += means
                left -= means[tree]
        return found


def _columns(numbers: NDArray[np.float32], eta: Array) -> Array:
    return np.column_stack([numbers, eta]).astype(np.float64)
