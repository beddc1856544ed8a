r"""Numbers with the same distribution in every group: one decision "above this level" for each of T levels, jointly.

Squared loss of a prediction f is a sum over levels: with :math:`m(x) = E[y \mid x]`,

.. math:: -E(f - m)^2 = \text{const} + \int E\big[2 (m - s)\, 1[f > s]\big]\, ds
   \approx \text{const} + \sum_t w_t E\big[2 (m - s_t)\, 1[f > s_t]\big],

so at every level :math:`s_1 < \ldots < s_T` a prediction is a yes/no decision with margin :math:`2 (m - s_t)`. Strong
demographic parity bounds the difference between two groups' rates of every such decision; the largest of them is the
Kolmogorov-Smirnov distance. A prediction passes the first l levels and no others, so it is one of T + 1 actions, and

.. math:: l(x) = \arg\max_l F_l(x), \qquad F_l = \sum_{t \le l} w_t M_t, \qquad
   M_t(x) = 2 (m(x) - s_t) - \lambda_t \cdot c(x), \qquad c_a(x) = p(a \mid x) / p(a),

.. math:: \min_\lambda E \max_l F_l - \sum_t w_t \big(\lambda_t \cdot b_t - \tfrac{\text{tolerance}}{2} |\lambda_t|_1
   \big), \qquad \sum_a \lambda_{t,a} = 0.

Where margins of every row fall with the level ("nested"), the maximum is the sum of the positive margins, and the
problem falls apart into T binary ones. Where they do not, T binary problems would contradict each other, and this dual
is exact all the same.

**Between levels.** Around its maximum the least concave majorant of :math:`F_0, \ldots, F_T` has slope
:math:`M^- > 0` on the left and :math:`M^+ \le 0` on the right. The prediction divides the interval between the two
levels at the point where a margin that falls linearly from one to the other is 0. So a prediction is not one of T
values, and without multipliers it is m itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from justitia.postprocessing.dual import MOST_WORTH, PATIENCE

Array = NDArray[np.float64]
#: The maximum and the absolute value are smoothed over these widths, step by step.
WIDTHS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
KINKS = (3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5)
#: Newton's method stops when no derivative of the dual, a difference of rates, is larger than this.
PRECISION = 1e-6
MOST_STEPS = 60
#: A step is halved until the dual falls by this share of what its slope promises.
SUFFICIENT, SMALLEST = 1e-4, 1e-10
#: Rows that a large problem is solved on first.
PART = 10_000
#: Levels closer to each other than this share of the public range are one.
APART = 1e-3


@dataclass(frozen=True, eq=False)
class LevelRates:
    r"""Rates "above level t" by group as linear functions of decisions: :math:`r_{t,a} = E[c_a d_t] + b_{t,a}`.

    Attributes
    ----------
    c : ndarray (n, G)
        p(a | x) / p(a).
    b : ndarray (T, G)
        What passes over all rows and checks have added.
    share : ndarray (n,)
        Of each row in the mean; they add up to 1.
    """

    c: Array
    b: Array
    share: Array

    def rates(self, passed: NDArray[np.int64]) -> Array:
        """(T, G): rates of predictions that pass so many levels."""
        above = np.arange(len(self.b))[:, None] < passed  # (T, n)
        found: Array = (above * self.share) @ self.c + self.b
        return found


def spacing(levels: Array) -> Array:
    """(T,): w, the part of the range that each level stands for (trapezoids), with mean 1."""
    if len(levels) == 1:
        return np.ones(1)
    gaps = np.diff(levels)
    width = (np.concatenate([gaps[:1], gaps]) + np.concatenate([gaps, gaps[-1:]])) / 2
    weights: Array = width / width.mean()
    return weights


def quantile_levels(predictions: Array, share: Array, count: int) -> Array:
    """(T,): evenly spaced quantiles of predictions between 0 and 1, those that are apart from each other.

    Parameters
    ----------
    share : ndarray (n,)
        Of each row.
    """
    order = np.argsort(predictions, kind="stable")
    below = np.cumsum(share[order]) / share.sum()
    wanted = predictions[order][
        np.minimum(np.searchsorted(below, np.arange(1, count + 1) / (count + 1)), len(order) - 1)
    ]
    found = [float(wanted[0])]
    for level in wanted[1:]:
        if level - found[-1] > APART:
            found.append(float(level))
    return np.array(found)


def margins(m: Array, levels: Array, lam: Array, c: Array) -> Array:
    """(T, n): M of every level and row."""
    return 2 * (m - levels[:, None]) - lam @ c.T


def passed_levels(found: Array, weights: Array) -> NDArray[np.int64]:
    """(n,): how many levels each row passes, the maximum of F; of several maxima the lowest."""
    sums = np.cumsum(weights[:, None] * found, axis=0)
    best = sums.argmax(0)
    return np.where(np.take_along_axis(sums, best[None], 0)[0] > 0, best + 1, 0)


def interpolated(found: Array, levels: Array, weights: Array, low: float = 0.0, high: float = 1.0) -> Array:
    """(n,): predictions between the last level that a row passes and the next one.

    Parameters
    ----------
    found : ndarray (T, n)
        Margins.
    levels, weights : ndarray (T,)
    low, high : float
        Public range of predictions.
    """
    top = len(levels)
    F = np.concatenate([np.zeros((1, found.shape[1])), np.cumsum(weights[:, None] * found, axis=0)])  # (T + 1, n)
    W = np.concatenate([[0.0], np.cumsum(weights)])
    passed = passed_levels(found, weights)
    rise, run = np.take_along_axis(F, passed[None], 0) - F, W[passed] - W[:, None]
    slope = rise / np.where(run == 0, 1.0, run)  # from any level to the one that is reached
    left = np.where(run > 0, slope, np.inf).min(0)
    right = np.where(run < 0, slope, -np.inf).max(0)
    below, above = np.maximum(passed - 1, 0), np.minimum(passed, top - 1)
    inside = (passed > 0) & (passed < top)
    part = np.clip(np.where(inside, left, 0.0) / np.where(inside, np.maximum(left - right, 1e-12), 1.0), 0.0, 1.0)
    between = levels[below] + part * (levels[above] - levels[below])
    lowest = np.clip(levels[0] + np.where(passed == 0, right, 0.0) / 2, low, levels[0])
    highest = np.clip(levels[-1] + np.where(passed == top, left, 0.0) / 2, levels[-1], high)
    predictions: Array = np.where(passed == 0, lowest, np.where(passed == top, highest, between))
    return predictions


def solve_levels(m: Array, levels: Array, some: LevelRates, tolerance: float, start: Array | None = None) -> Array:
    """(T, G): the multipliers that minimise the joint dual, by Newton's method on a smoothed one that grows sharper.

    Parameters
    ----------
    m : ndarray (n,)
        E[y | x], between 0 and 1.
    levels : ndarray (T,)
        Rising.
    tolerance : float
        Largest difference between two groups' rates above any level.
    start : ndarray (T, G), optional
        Multipliers of a problem nearby.
    """
    nothing = np.zeros(some.b.shape)
    free = some.rates(passed_levels(margins(m, levels, nothing, some.c), spacing(levels)))
    if np.ptp(free, axis=1).max() <= tolerance:
        return nothing
    stages = list(zip(WIDTHS, KINKS, strict=True))[0 if start is None else 2 :]
    if len(m) >= 2 * PART:  # a part of the rows says nearly where the minimum is
        some_rows = np.arange(0, len(m), len(m) // PART)
        share = some.share[some_rows] / some.share[some_rows].sum()
        part = _LevelDual(m[some_rows], levels, LevelRates(some.c[some_rows], some.b, share), tolerance)
        start = _descend(part, nothing if start is None else start, stages)
        stages = stages[-2:]
    return _descend(_LevelDual(m, levels, some, tolerance), nothing if start is None else start, stages)


def _descend(dual: _LevelDual, start: Array, stages: list[tuple[float, float]]) -> Array:
    """(T, G): multipliers after Newton's method at each width and kink."""
    z = dual.free(start)
    for width, kink in stages:
        z = _newton(dual, z, width, kink)
    return dual.multipliers(z)


class _LevelDual:
    """The joint dual as a function of multipliers that add up to 0 over the groups, with slope and curvature.

    The curvature needs how decisions at two levels vary together: of a row that passes t' >= t levels with smoothed
    probability S_t' <= S_t that is S_t' (1 - S_t). So each pair of columns of c costs one product of (T, n) matrices.
    """

    def __init__(self, m: Array, levels: Array, some: LevelRates, tolerance: float) -> None:
        groups, count = some.c.shape[1], len(levels)
        self._axes = np.linalg.svd(np.ones((1, groups)))[2][1:].T  # (G, G - 1): sums to 0, orthonormal
        self._shape, self._weights, self._half = (count, groups - 1), spacing(levels), tolerance / 2
        self._margins = 2 * (m[:, None] - levels) * self._weights  # (n, T)
        self._c, self._b, self._share = some.c @ self._axes, some.b @ self._axes, some.share

    def free(self, lam: Array) -> Array:
        """Coordinates of (T, G) multipliers."""
        z: Array = (lam @ self._axes).ravel()
        return z

    def multipliers(self, z: Array) -> Array:
        """(T, G) of coordinates."""
        lam: Array = z.reshape(self._shape) @ self._axes.T
        return lam

    def _soft(self, z: Array, width: float) -> tuple[Array, Array]:
        """(n, T) smoothed probabilities S of passing each level, and (n,) smoothed maxima."""
        F = np.cumsum(self._margins - self._weights * (self._c @ z.reshape(self._shape).T), axis=1) / width
        most = np.maximum(F.max(1), 0.0)
        parts = np.exp(F - most[:, None])
        total = np.exp(-most) + parts.sum(1)
        S = np.cumsum(parts[:, ::-1], axis=1)[:, ::-1] / total[:, None]
        return S, width * (np.log(total) + most)

    def value(self, z: Array, width: float, kink: float) -> float:
        """The smoothed dual."""
        return self._total(z, self._soft(z, width)[1], kink)

    def _total(self, z: Array, most: Array, kink: float) -> float:
        """The smoothed dual, of smoothed maxima."""
        lam = self.multipliers(z)
        linear = (self._weights[:, None] * z.reshape(self._shape) * self._b).sum()
        held = np.square(_beyond(lam)) / (2 * PATIENCE)
        return float(self._share @ most - linear + self._weights @ (self._half * np.hypot(lam, kink) + held).sum(1))

    def slopes(self, z: Array, width: float, kink: float) -> tuple[float, Array, Array]:
        """Value, gradient and Hessian of the smoothed dual."""
        (S, most), lam, (count, free) = self._soft(z, width), self.multipliers(z), self._shape
        w, length, beyond = self._weights[:, None], np.hypot(lam, kink), _beyond(lam)
        pull = (self._half * lam / length + beyond / PATIENCE) @ self._axes
        gradient = w * (pull - (S * self._share[:, None]).T @ self._c - self._b)
        hessian = np.zeros((count, free, count, free))
        scale = np.outer(self._weights, self._weights) / width
        for i in range(free):
            for j in range(i + 1):
                product = (S * (self._share * self._c[:, i] * self._c[:, j])[:, None]).T @ (1 - S)  # (t', t)
                pairs = np.tril(product) + np.tril(product, -1).T
                hessian[:, i, :, j] = hessian[:, j, :, i] = scale * pairs
        stiff = self._half * kink**2 / length**3 + (beyond != 0) / PATIENCE
        for t in range(count):
            hessian[t, :, t, :] += self._weights[t] * (self._axes.T * stiff[t]) @ self._axes
        return self._total(z, most, kink), gradient.ravel(), hessian.reshape(count * free, count * free)


def _beyond(lam: Array) -> Array:
    """How far multipliers are beyond what accuracy is worth."""
    return lam - np.clip(lam, -MOST_WORTH, MOST_WORTH)


def _newton(dual: _LevelDual, z: Array, width: float, kink: float) -> Array:
    """Damped Newton steps; where the curvature vanishes a little of it is added."""
    for _ in range(MOST_STEPS):
        here, gradient, hessian = dual.slopes(z, width, kink)
        if np.abs(gradient).max(initial=0.0) < PRECISION:
            return z
        floor = 1e-9 * (1.0 + np.trace(hessian))
        step = -np.linalg.solve(hessian + floor * np.eye(len(z)), gradient)
        length, promised = 1.0, float(gradient @ step)
        while length > SMALLEST and dual.value(z + length * step, width, kink) > here + SUFFICIENT * length * promised:
            length /= 2
        if length <= SMALLEST:
            return z  # as sharp as double precision sees
        z = z + length * step
    return z
