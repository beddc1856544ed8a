r"""What is deployed of the multipliers and memberships: one public function of x, a small network.

The rule needs t(x) = lambda . c(x), which is made of memberships. By its definition

.. math:: t(x) = \eta(x)\, u(x) + (1 - \eta(x))\, v(x),

with u and v what the memberships of people with label 1 and label 0 add. A network with one hidden layer learns u and
v from the training rows, and the memberships are dropped. What t itself tells about groups is said in
``docs/how_it_works.md``.

**Classes.** With K classes every action l has its own :math:`t_l(x) = \sum_y p(y \mid x)\, w_{y,l}(x)`, where
:math:`w_{y,l}` is a sum over groups of memberships times prices. The network learns the memberships, one output per
label and group, and the multipliers combine these into outputs for every label and action.

**Many thresholds.** At each of a few thresholds :math:`s_1 < \ldots < s_T`, quantiles of the score, the best decision
under the constraint is :math:`d_t(x) = 1[m_t(x) > 0]` with margin :math:`m_t(x) = 2(\eta(x) - s_t) - \lambda_t \cdot
c(x)`: the same c for every threshold, so nothing more is asked. A score p whose decisions at all thresholds are these
has :math:`p(x) > s_t` where :math:`m_t(x) > 0`. The margins of a row, sorted, fall with t (rearrangement), and p is
where they cross 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from justitia.learners.base import Base, Inputs
from justitia.learners.calibration import Calibration, VectorScaling
from justitia.postprocessing.coin import Coin
from justitia.postprocessing.dual import BEYOND, best_action, clip_to_decision_side, utilities

Array = NDArray[np.float64]
#: Hidden units: so many for each column of c, and at least so many.
UNITS_EACH, UNITS = 3, 12
#: Where columns would need more hidden units than so many, no column is learned, but what multipliers make of them.
MOST_UNITS = 48
#: Rows that are learned from; a public sample where there are more.
ROWS = 6_000
#: Steps of L-BFGS at most, how many of them it remembers, and weight decay.
STEPS, MEMORY, DECAY = 400, 50, 1e-6
#: A direction of c whose squares are a smaller share of the largest one's is rounding.
SAME = 1e-12
#: A correction that is smaller everywhere is none.
NOTHING = 1e-9
#: Distance from the line at which a row counts half, and what the farthest count.
NEAR, FAR = 0.1, 0.02
#: Standardised features are cut off here, and log-odds divided by this.
CUT = 3.0
#: Thresholds closer to each other than this are one.
APART = 1e-3


@dataclass(frozen=True, eq=False)
class Correction:
    """t(x) as a small network, or 0 everywhere.

    Parameters
    ----------
    centre, spread : ndarray (d,)
        Of each feature.
    hidden : ndarray (d + 3, H), or (d + 2 K + 1, H)
        Weights of the hidden units, of features, 2 p - 1, log-odds and a constant.
    out : ndarray (H + 1, 2), or (H + 1, K, K - 1)
        Weights of v and u, of the hidden units and a constant; of K classes, weights by label and action but the first;
        none means 0 everywhere.
    """

    centre: Array | None = None
    spread: Array | None = None
    hidden: Array | None = None
    out: Array | None = None

    @property
    def is_zero(self) -> bool:
        """Whether nothing is corrected."""
        return self.out is None

    def plus(self, constant: float, columns: int) -> Correction:
        """The same correction and a constant, of two classes and features with this many columns."""
        if self.out is None:
            nothing = np.zeros((columns + 3, 1))
            return Correction(
                np.zeros(columns), np.ones(columns), nothing, np.array([[0.0, 0.0], [constant, constant]])
            )
        moved = self.out.copy()
        moved[-1] += constant
        return replace(self, out=moved)

    def describe(self) -> str:
        """How large it is, for reports."""
        if self.out is None:
            return "none: the base is within the tolerance"
        return f"a network with {len(self.out) - 1} hidden units on features and base"

    def __call__(self, numbers: NDArray[np.float32], prediction: Array) -> Array:
        """(m,): t of rows with these features and this eta; (m, K - 1) of classes."""
        if self.out is None or self.hidden is None or self.centre is None or self.spread is None:
            return np.zeros(len(prediction) if prediction.ndim == 1 else (len(prediction), prediction.shape[1] - 1))
        units = np.tanh(inputs_of(numbers, prediction, self.centre, self.spread) @ self.hidden)
        if prediction.ndim == 1:
            v, u = (units @ self.out[:-1] + self.out[-1]).T
            found: Array = prediction * u + (1 - prediction) * v
            return found
        total = np.zeros((len(prediction), self.out.shape[2]))
        for y, column in enumerate(prediction.T):
            total += column[:, None] * (units @ self.out[:-1, y] + self.out[-1, y])
        return total


def inputs_of(numbers: NDArray[np.float32], prediction: Array, centre: Array, spread: Array) -> Array:
    """(m, d + 3) of two classes, (m, d + 2 K + 1) of more: what hidden units read."""
    standard = np.clip((numbers.astype(np.float64) - centre) / spread, -CUT, CUT)
    odds = np.log(prediction / (1 - prediction)) / CUT
    return np.column_stack([standard, 2 * prediction - 1, odds, np.ones(len(prediction))])


@dataclass(frozen=True, eq=False)
class LearningTarget:
    """Columns that are learned as ``sum of count * output`` over the counts, with an output of its own for each.

    Attributes
    ----------
    counts : tuple of ndarray (n,)
        Public numbers that outputs are multiplied by, such as probabilities of labels.
    target : ndarray (n, J)
    total : ndarray (n,), optional
        Sum of the counts; 1 by default.
    importance : float
        What an error of one standard deviation counts.
    """

    counts: tuple[Array, ...]
    target: Array
    total: Array | None = None
    importance: float = 1.0

    def take(self, rows: NDArray[np.int64]) -> LearningTarget:
        """Some of the rows."""
        total = None if self.total is None else self.total[rows]
        return LearningTarget(tuple(one[rows] for one in self.counts), self.target[rows], total, self.importance)


class Distillation:
    """A network that is learned for all columns of memberships at once; the correction of any multipliers is a sum.

    The time of a step grows with the square of the hidden units, so columns of many groups would take a time that grows
    with the square of the groups. Where two classes have so many columns, multipliers have a network of their own,
    which learns t alone: that is one column, however many groups there are.

    Parameters
    ----------
    numbers : ndarray (n, d)
        Public features.
    prediction : ndarray (n,) or (n, K)
        Of the base model.
    parts : sequence of LearningTarget
        What is learned.
    distance : ndarray (n,)
        From the line between two decisions: rows near it are learned best.
    units : int
        Hidden units; by default so many for each column.
    """

    def __init__(
        self,
        numbers: NDArray[np.float32],
        prediction: Array,
        parts: Sequence[LearningTarget],
        distance: Array,
        units: int = 0,
    ) -> None:
        rows = np.arange(0, len(prediction), max(1, -(-len(prediction) // ROWS)))
        numbers, prediction, distance = numbers[rows], prediction[rows], distance[rows]
        parts = [one.take(rows) for one in parts]
        spread = numbers.std(0, dtype=np.float64)
        self._centre, self._spread = numbers.mean(0, dtype=np.float64), np.where(spread > 0, spread, 1.0)
        weight = FAR + 1 / (1 + (distance / NEAR) ** 2)
        weight /= weight.mean()
        read = inputs_of(numbers, prediction, self._centre, self._spread)
        self._axes = [_axes(one.target) for one in parts]
        self._of_multipliers: tuple[Array, LearningTarget, Array] | None = None
        if not units and UNITS_EACH * sum(axes.shape[1] for axes in self._axes) > MOST_UNITS:
            self._of_multipliers = read, parts[0], weight
            return
        rotated = [replace(one, target=one.target @ axes) for one, axes in zip(parts, self._axes, strict=True)]
        self._hidden, self._outs = _learned(read, rotated, weight, units)

    @classmethod
    def of_two_classes(
        cls, numbers: NDArray[np.float32], eta: Array, c: Array, lam: Array, gain: Array
    ) -> Distillation:
        """Of (n, J) columns c that (J,) multipliers multiply; on the line the gain is t."""
        return cls(numbers, eta, [LearningTarget((1 - eta, eta), c)], gain - c @ lam)

    def correction(self, lam: Array) -> Correction:
        """The correction of these (J,) multipliers, of two classes."""
        return self.corrections(lam[None])[0]

    def corrections(self, lams: Array) -> tuple[Correction, ...]:
        """The corrections of (T, J) multipliers, of two classes or of a number."""
        if self._of_multipliers is None:
            hidden, outs = self._hidden, [self._outs[0] @ (self._axes[0].T @ lam) for lam in lams]
        else:
            read, part, weight = self._of_multipliers
            hidden, (out,) = _learned(read, [replace(part, target=part.target @ lams.T)], weight, MOST_UNITS)
            outs = list(np.moveaxis(out, 2, 0))
        return tuple(Correction(self._centre, self._spread, hidden, out) for out in outs)

    def class_correction(self, prices: Sequence[Array], parts_of_label: Sequence[Sequence[int]]) -> Correction:
        """The correction of classes.

        Parameters
        ----------
        prices : sequence of ndarray (J, D)
            What the columns of each part are multiplied by.
        parts_of_label : sequence of sequence of int
            Parts that the outputs of each label are the sum of.
        """
        each = [out[:, 0] @ (axes.T @ price) for out, axes, price in zip(self._outs, self._axes, prices, strict=True)]
        by_label = [np.sum([each[part] for part in parts], axis=0) for parts in parts_of_label]
        return Correction(self._centre, self._spread, self._hidden, np.stack(by_label, axis=1))


def _axes(c: Array) -> Array:
    """(J, r): orthonormal directions in which c is not 0; columns that add up to 0 are not learned twice."""
    values, vectors = np.linalg.eigh(c.T @ c)
    axes: Array = vectors[:, values > SAME * values[-1]]
    return axes


def _learned(read: Array, parts: Sequence[LearningTarget], weight: Array, units: int) -> tuple[Array, list[Array]]:
    """(d + 3, H) and, for each part, (H + 1, counts, J): the network of least weighted squares, by L-BFGS."""
    means, scales, centred = [], [], []
    for one in parts:
        if one.total is None:
            mean = one.target.mean(0)
            left = one.target - mean
            scale = np.maximum(one.target.std(0), 1e-6)  # c is about 1, and may differ little from it
        else:
            mean = one.target.mean(0) / one.total.mean()
            left = one.target - one.total[:, None] * mean
            scale = np.maximum(left.std(0), 1e-6)
        means.append(mean)
        scales.append(scale)
        centred.append(replace(one, target=left / scale))
    squares = _Squares(read, centred, weight)
    start = _start(read, np.concatenate([one.target for one in centred], axis=1), units)
    options: Any = {"maxiter": STEPS, "maxfun": 2 * STEPS, "maxcor": MEMORY, "ftol": 0.0}
    with threadpool_limits(1, user_api="blas"):  # threads that wait for each other take longer than such products
        found = minimize(squares, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    hidden = found.x.reshape(start.shape)
    outs = [out * scale for out, scale in zip(squares.best_out(hidden), scales, strict=True)]
    for out, mean in zip(outs, means, strict=True):
        out[-1] += mean
    return hidden, outs


class _Squares:
    """Weighted squares that the best output weights leave, as a function of the hidden ones, with its slope.

    Given hidden units, outputs are linear and their weights a small least-squares problem (variable projection of Golub
    and Pereyra, 1973): what is left to search for is half as much, and lies less crooked. At the best output weights
    the slope has no part that comes from them.
    """

    def __init__(self, read: Array, parts: Sequence[LearningTarget], weight: Array) -> None:
        single = np.float32  # enough for a slope; small systems are solved in double
        size = sum(one.target.size for one in parts)
        # Rows come last: they are many, and each operation is then over numbers that lie side by side.
        self._read = np.ascontiguousarray(read.T, dtype=single)
        self._targets, self._counts = [], []
        for one in parts:
            share = np.sqrt(weight / size) * one.importance
            self._targets.append((share * one.target.T).astype(single))
            self._counts.append([(share * count).astype(single) for count in one.counts])

    def _units(self, hidden: Array) -> NDArray[np.float32]:
        """(H + 1, n): hidden units and a constant."""
        units = np.ones((hidden.shape[1] + 1, self._read.shape[1]), dtype=np.float32)
        np.tanh(hidden.T.astype(np.float32) @ self._read, out=units[:-1])
        return units

    def _fitted(self, units: NDArray[np.float32], part: int) -> tuple[Array, NDArray[np.float32]]:
        """(counts (H + 1), J) output weights and (J, n) what they leave, by the roots of the rows' shares."""
        design = np.concatenate([count * units for count in self._counts[part]])
        gram = (design @ design.T).astype(np.float64) + DECAY * np.eye(len(design))
        out = np.linalg.solve(gram, (design @ self._targets[part].T).astype(np.float64))
        return out, out.T.astype(np.float32) @ design - self._targets[part]

    def best_out(self, hidden: Array) -> list[Array]:
        """(H + 1, counts, J) of each part."""
        units = self._units(hidden)
        found = [self._fitted(units, part)[0] for part in range(len(self._targets))]
        return [np.stack(np.split(out, len(self._counts[k])), axis=1) for k, out in enumerate(found)]

    def __call__(self, flat: Array) -> tuple[float, Array]:
        """Value and slope."""
        hidden = flat.reshape(len(self._read), -1)
        units = self._units(hidden)
        value, back = 0.0, np.zeros((), dtype=np.float32)
        squares = float(flat @ flat)
        for part, counts in enumerate(self._counts):
            out, left = self._fitted(units, part)
            value += float(np.square(left).sum(dtype=np.float64))
            squares = squares + np.square(out).sum()
            by_count = [weights[:-1].astype(np.float32) for weights in np.split(out, len(counts))]
            back = back + np.concatenate(by_count, axis=1) @ np.concatenate([count * left for count in counts])
        back = back * (1 - np.square(units[:-1]))
        slope = 2 * ((self._read @ back.T).astype(np.float64).ravel() + DECAY * flat)
        return value + DECAY * float(squares), slope


def _start(read: Array, c: Array, units: int) -> Array:
    """(d + 3, H): hidden units along the directions of least squares, at several slopes."""
    units = units or max(UNITS, UNITS_EACH * c.shape[1])
    ridge = 1e-3 * len(read) * np.eye(read.shape[1])
    directions = np.linalg.solve(read.T @ read + ridge, read.T @ c)
    apart = np.sin(np.outer(1 + np.arange(read.shape[1]), 1 + np.arange(units)))  # no two units start alike
    found: Array = np.resize(directions.T, (units, read.shape[1])).T + (0.4 / read.shape[1] ** 0.5) * apart
    return found


def levels_of(eta: Array, threshold: float, count: int) -> Array:
    """(T,): evenly spaced quantiles of eta, and the threshold where decisions are made."""
    found = [threshold]
    for level in np.quantile(eta, np.arange(1, count + 1) / (count + 1)):
        if min(abs(level - one) for one in found) > APART:
            found.append(float(level))
    return np.sort(found)


def moved_probability(margins: Array, levels: Array) -> Array:
    """(m,): the score whose decision at every level is the sign of the sorted margins.

    Parameters
    ----------
    margins : ndarray (T, m)
        At each level.
    levels : ndarray (T,)
        Rising.
    """
    falling = -np.sort(-margins, axis=0)
    passed = (falling > 0).sum(0)  # how many levels a row is above
    above, below = np.minimum(passed, len(levels) - 1), np.maximum(passed - 1, 0)
    m_below, m_above = (np.take_along_axis(falling, one[None], 0)[0] for one in (below, above))
    share = m_below / np.maximum(m_below - m_above, 1e-12)
    inside = levels[below] + np.clip(share, 0.0, 1.0) * (levels[above] - levels[below])
    lowest = np.clip(levels[0] + falling[0] / 2, 0.0, levels[0])
    highest = np.clip(levels[-1] + falling[-1] / 2, levels[-1], 1.0)
    found: Array = np.where(passed == 0, lowest, np.where(passed == len(levels), highest, inside))
    return found


@dataclass(frozen=True, eq=False)
class Levels:
    """What is deployed of many thresholds: where they are, and a correction at each.

    Parameters
    ----------
    at : ndarray (T,)
        The thresholds, rising.
    corrections : tuple of Correction
        t at each.
    """

    at: Array
    corrections: tuple[Correction, ...]

    def probability(self, numbers: NDArray[np.float32], eta: Array) -> Array:
        """(m,): the moved probability of rows with these features and this eta."""
        margins = [2 * (eta - s) - t(numbers, eta) for s, t in zip(self.at, self.corrections, strict=True)]
        return moved_probability(np.stack(margins), self.at)


class Rule:
    r"""The deployed model: decisions 2 (eta(x) - threshold) > t(x), and a probability on their side of the threshold.

    Where the correction does not change a decision the probability is the base's, eta. Where it does, it is next to the
    threshold, on the side of the decision.

    Parameters
    ----------
    base : Base
    calibration : Calibration
        Of the base.
    correction : Correction
        t.
    threshold : float
    levels : Levels, optional
        Corrections at many thresholds, of a model with ``at="scores"``.
    coin : Coin, optional
        Moves the line row by row.
    """

    def __init__(
        self,
        base: Base,
        calibration: Calibration,
        correction: Correction,
        threshold: float,
        levels: Levels | None = None,
        coin: Coin | None = None,
    ) -> None:
        self.base, self.calibration, self.correction, self.threshold = base, calibration, correction, threshold
        self.levels, self.coin = levels, coin

    def base_probability(self, inputs: Inputs) -> Array:
        """(m,): eta, before the correction."""
        return self.calibration(self.base.predict(inputs))

    def margin(self, inputs: Inputs) -> Array:
        """(m,): twice the probability less the threshold; positive is a positive decision."""
        eta = self.base_probability(inputs)
        if self.levels is not None:
            return 2 * (self.levels.probability(inputs.numbers, eta) - self.threshold)
        gain = 2 * (eta - self.threshold)
        return clip_to_decision_side(gain, self.corrected(inputs.numbers, eta))

    def corrected(self, numbers: NDArray[np.float32], eta: Array) -> Array:
        """(m,): gain less correction, and less what the coin adds to the line; positive is a positive decision."""
        found: Array = 2 * (eta - self.threshold) - self.correction(numbers, eta)
        return found if self.coin is None else found - self.coin(numbers)

    def probability(self, margin: Array) -> Array:
        """(m,): between 0 and 1, from the margin."""
        moved: Array = np.clip(self.threshold + margin / 2, 0.0, 1.0)
        return moved


class ClassRule:
    r"""The deployed model of K classes: the decision is the class of largest utility less correction.

    Parameters
    ----------
    base : Base
    calibration : VectorScaling
        Of the base.
    correction : Correction
        t by action.
    costs : ndarray (K, K), optional
        Cost of each decision by class; by default 1 for every error.
    quota : ndarray (K - 1,), optional
        What every row pays for each class but the first.
    """

    def __init__(
        self,
        base: Base,
        calibration: VectorScaling,
        correction: Correction,
        costs: Array | None = None,
        quota: Array | None = None,
    ) -> None:
        self.base, self.calibration, self.correction, self.costs = base, calibration, correction, costs
        self.quota = quota

    def base_probability(self, inputs: Inputs) -> Array:
        """(m, K): probabilities of the classes, before the correction."""
        return self.calibration(self.base.predict(inputs))

    def margin(self, inputs: Inputs) -> Array:
        """(m, K): utilities less corrections; the largest is the decision."""
        return self.margin_of(inputs.numbers, self.base_probability(inputs))

    def margin_of(self, numbers: NDArray[np.float32], p: Array) -> Array:
        """(m, K): as :meth:`margin`, of rows that the base has predicted."""
        utility = utilities(p, self.costs)
        utility[:, 1:] -= self.correction(numbers, p)
        if self.quota is not None:
            utility[:, 1:] -= self.quota
        return utility

    def probability(self, inputs: Inputs) -> Array:
        """(m, K): the base's probabilities; where another class is decided for, its own is raised above the largest."""
        p = self.base_probability(inputs)
        return moved_classes(p, self.margin_of(inputs.numbers, p), self.costs)


def moved_classes(p: Array, margin: Array, costs: Array | None = None) -> Array:
    """(m, K): probabilities whose best class is the one of largest margin."""
    decided, plain = (best_action(one[:, 1:] - one[:, :1]) for one in (margin, utilities(p, costs)))
    rows = np.flatnonzero(decided != plain)
    moved = p.copy()
    moved[rows, decided[rows]] = (1 + BEYOND) * p[rows].max(1)
    found: Array = moved / moved.sum(1, keepdims=True)
    return found
