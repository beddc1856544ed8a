r"""What is deployed of the multipliers and memberships: one public function of x, a small network.

The rule needs t(x) = lambda . c(x), which is made of memberships. By its definition

.. math:: t(x) = \eta(x)\, u(x) + (1 - \eta(x))\, v(x),

with u and v what the memberships of people with label 1 and label 0 add. A network with one hidden layer learns u and
v from the training rows, and the memberships are dropped. What t itself tells about groups is said in
``docs/plugin.md``.

**Many thresholds.** At each of a few thresholds :math:`s_1 < \ldots < s_T`, quantiles of the score, the best decision
under the constraint is :math:`d_t(x) = 1[m_t(x) > 0]` with margin :math:`m_t(x) = 2(\eta(x) - s_t) - \lambda_t \cdot
c(x)`: the same c for every threshold, so nothing more is asked. A score p whose decisions at all thresholds are these
has :math:`p(x) > s_t` where :math:`m_t(x) > 0`. The margins of a row, sorted, fall with t (rearrangement), and p is
where they cross 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from justitia.learners.base import Base, Inputs
from justitia.learners.calibration import Calibration
from justitia.postprocessing.dual import clip_to_decision_side

Array = NDArray[np.float64]
#: Hidden units: so many for each column of c, and at least so many.
UNITS_EACH, UNITS = 3, 12
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
    hidden : ndarray (d + 3, H)
        Weights of the hidden units, of features, 2 eta - 1, log-odds and a constant.
    out : ndarray (H + 1, 2)
        Weights of v and u, of the hidden units and a constant; none means 0 everywhere.
    """

    centre: Array | None = None
    spread: Array | None = None
    hidden: Array | None = None
    out: Array | None = None

    @property
    def is_zero(self) -> bool:
        """Whether nothing is corrected."""
        return self.out is None

    def describe(self) -> str:
        """How large it is, for reports."""
        if self.out is None:
            return "none: the base is within the tolerance"
        return f"a network with {len(self.out) - 1} hidden units on features and base"

    def __call__(self, numbers: NDArray[np.float32], eta: Array) -> Array:
        """(m,): t of rows with these features and this eta."""
        if self.out is None or self.hidden is None or self.centre is None or self.spread is None:
            return np.zeros(len(eta))
        units = np.tanh(inputs_of(numbers, eta, self.centre, self.spread) @ self.hidden)
        v, u = (units @ self.out[:-1] + self.out[-1]).T
        found: Array = eta * u + (1 - eta) * v
        return found


def inputs_of(numbers: NDArray[np.float32], eta: Array, centre: Array, spread: Array) -> Array:
    """(m, d + 3): what hidden units read."""
    standard = np.clip((numbers.astype(np.float64) - centre) / spread, -CUT, CUT)
    return np.column_stack([standard, 2 * eta - 1, np.log(eta / (1 - eta)) / CUT, np.ones(len(eta))])


class Distillation:
    """A network that is learned for all columns of c at once; the correction of any multipliers is then a sum.

    Parameters
    ----------
    numbers : ndarray (n, d)
        Public features.
    eta : ndarray (n,)
    c : ndarray (n, J)
        What multipliers multiply.
    lam : ndarray (J,)
        Multipliers: rows near their line are learned best.
    gain : ndarray (n,)
        What a positive decision is worth: on the line the gain is t.
    """

    def __init__(self, numbers: NDArray[np.float32], eta: Array, c: Array, lam: Array, gain: Array) -> None:
        rows = np.arange(0, len(eta), max(1, -(-len(eta) // ROWS)))
        numbers, eta, c, gain = numbers[rows], eta[rows], c[rows], gain[rows]
        spread = numbers.std(0, dtype=np.float64)
        self._centre, self._spread = numbers.mean(0, dtype=np.float64), np.where(spread > 0, spread, 1.0)
        weight = FAR + 1 / (1 + ((gain - c @ lam) / NEAR) ** 2)
        read = inputs_of(numbers, eta, self._centre, self._spread)
        self._axes = _axes(c)
        self._hidden, self._out = _learned(read, eta, c @ self._axes, weight / weight.mean())

    def correction(self, lam: Array) -> Correction:
        """The correction of these multipliers."""
        return Correction(self._centre, self._spread, self._hidden, self._out @ (self._axes.T @ lam))


def _axes(c: Array) -> Array:
    """(J, r): orthonormal directions in which c is not 0; columns that add up to 0 are not learned twice."""
    values, vectors = np.linalg.eigh(c.T @ c)
    axes: Array = vectors[:, values > SAME * values[-1]]
    return axes


def _learned(read: Array, eta: Array, c: Array, weight: Array) -> tuple[Array, Array]:
    """(d + 3, H) and (H + 1, 2, J): the network of least weighted squares, by L-BFGS on its hidden units."""
    mean, scale = c.mean(0), np.maximum(c.std(0), 1e-6)  # c is about 1, and may differ little from it
    centred = (c - mean) / scale
    squares = _Squares(read, eta, centred, weight)
    start = _start(read, centred)
    options: Any = {"maxiter": STEPS, "maxfun": 2 * STEPS, "maxcor": MEMORY, "ftol": 0.0}
    with threadpool_limits(1, user_api="blas"):  # threads that wait for each other take longer than such products
        found = minimize(squares, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    hidden = found.x.reshape(start.shape)
    out = squares.best_out(hidden) * scale
    out[-1] += mean
    return hidden, out


class _Squares:
    """Weighted squares that the best output weights leave, as a function of the hidden ones, with its slope.

    Given hidden units, v and u are linear and their weights a small least-squares problem (variable projection of Golub
    and Pereyra, 1973): what is left to search for is half as much, and lies less crooked. At the best output weights
    the slope has no part that comes from them.
    """

    def __init__(self, read: Array, eta: Array, target: Array, weight: Array) -> None:
        single = np.float32  # enough for a slope; small systems are solved in double
        share = np.sqrt(weight / target.size)[:, None]
        self._read, self._target = read.astype(single), (share * target).astype(single)
        self._counts = (share * (1 - eta[:, None])).astype(single), (share * eta[:, None]).astype(single)

    def _units(self, hidden: Array) -> NDArray[np.float32]:
        """(n, H + 1): hidden units and a constant."""
        units = np.ones((len(self._read), hidden.shape[1] + 1), dtype=np.float32)
        np.tanh(self._read @ hidden.astype(np.float32), out=units[:, :-1])
        return units

    def _fitted(self, units: NDArray[np.float32]) -> tuple[Array, NDArray[np.float32]]:
        """(2 (H + 1), J) output weights and (n, J) what they leave, by the roots of the rows' shares."""
        design = np.concatenate([count * units for count in self._counts], axis=1)
        gram = (design.T @ design).astype(np.float64) + DECAY * np.eye(design.shape[1])
        out = np.linalg.solve(gram, (design.T @ self._target).astype(np.float64))
        return out, design @ out.astype(np.float32) - self._target

    def best_out(self, hidden: Array) -> Array:
        """(H + 1, 2, J)."""
        out, _ = self._fitted(self._units(hidden))
        return np.stack(np.split(out, 2), axis=1)

    def __call__(self, flat: Array) -> tuple[float, Array]:
        """Value and slope."""
        hidden = flat.reshape(self._read.shape[1], -1)
        units = self._units(hidden)
        out, left = self._fitted(units)
        value = float(np.square(left).sum(dtype=np.float64)) + DECAY * float(flat @ flat + np.square(out).sum())
        v, u = (left @ weights[:-1].T.astype(np.float32) for weights in np.split(out, 2))
        back = (self._counts[0] * v + self._counts[1] * u) * (1 - np.square(units[:, :-1]))
        return value, 2 * ((self._read.T @ back).astype(np.float64).ravel() + DECAY * flat)


def _start(read: Array, c: Array) -> Array:
    """(d + 3, H): hidden units along the directions of least squares, at several slopes."""
    units = max(UNITS, UNITS_EACH * c.shape[1])
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
    """

    def __init__(
        self,
        base: Base,
        calibration: Calibration,
        correction: Correction,
        threshold: float,
        levels: Levels | None = None,
    ) -> None:
        self.base, self.calibration, self.correction, self.threshold = base, calibration, correction, threshold
        self.levels = levels

    def base_probability(self, inputs: Inputs) -> Array:
        """(m,): eta, before the correction."""
        return self.calibration(self.base.predict(inputs))

    def margin(self, inputs: Inputs) -> Array:
        """(m,): twice the probability less the threshold; positive is a positive decision."""
        eta = self.base_probability(inputs)
        if self.levels is not None:
            return 2 * (self.levels.probability(inputs.numbers, eta) - self.threshold)
        gain = 2 * (eta - self.threshold)
        return clip_to_decision_side(gain, gain - self.correction(inputs.numbers, eta))

    def probability(self, margin: Array) -> Array:
        """(m,): between 0 and 1, from the margin."""
        moved: Array = np.clip(self.threshold + margin / 2, 0.0, 1.0)
        return moved
