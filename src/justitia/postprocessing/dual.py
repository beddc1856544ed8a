r"""The Lagrangian dual in closed form: which decisions are best under the constraint, given public posteriors.

Let :math:`\eta(x) = p(y=1 \mid x)` and :math:`p(a, y \mid x)` be public by now. Every rate that a notion compares is
linear in the decision d(x), so among all rules the best one,

.. math:: \max_d E[g(x) d(x)] \quad\text{subject to}\quad |r_{a,k}(d) - r_{b,k}(d)| \le \text{tolerance},
   \qquad r_{a,k}(d) = E[c_{a,k}(x) d(x)] + b_{a,k},

with gain :math:`g = 2(\eta - \text{threshold})`, has a dual with one multiplier per group and event,

.. math:: \min_\lambda E[(g - \lambda \cdot c)_+] - \lambda \cdot b + \tfrac{\text{tolerance}}{2} |\lambda|_1
   \quad\text{subject to}\quad \sum_a \lambda_{a,k} = 0,

and its solution is :math:`d(x) = 1[g(x) > \lambda \cdot c(x)]`: Equation 6 of the paper, solved instead of approached
by descent and ascent. The multipliers of an event add up to 0 because only differences between groups are bounded.
Noise may ask for rates that no rule has: multipliers that no accuracy is worth are held back, and stay finite.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from justitia.notions import FairnessNotion

#: The positive part is smoothed over this width, step by step; the last is far below what moves a decision that counts.
SMOOTHING = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
#: The absolute value of a multiplier is smoothed over this width.
KINK = 1e-5
#: A multiplier is the accuracy that a unit of violation is worth. Beyond the first it grows by the second times what is
#: missing to the tolerance.
MOST_WORTH, PATIENCE = 10.0, 100.0
#: Newton's method stops when no derivative of the dual, a difference of rates, is larger than this.
PRECISION = 1e-7
MOST_STEPS = 60
#: A corrected decision moves a probability to the other side of the threshold, and by this share of its margin beyond.
BEYOND = 1e-3
#: A step of Newton's method is halved until the dual falls by this share of what its slope promises.
SUFFICIENT, SMALLEST = 1e-4, 1e-10

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Constraints:
    r"""Rates by group and event as linear functions of decisions, :math:`r = E[c d] + b`.

    Attributes
    ----------
    c : ndarray (n, G, K)
    b : ndarray (G, K)
    weight : ndarray (n,)
        Of each row in the mean; they add up to 1.
    sizes : ndarray (G, K), optional
        Shares of the groups in each event, by which c is divided.
    """

    c: Array
    b: Array
    weight: Array
    sizes: Array | None = None

    def rates(self, decisions: Array) -> Array:
        """(G, K): what the rates of these decisions are."""
        flat = (self.weight * decisions) @ self.c.reshape(len(self.c), -1)
        return flat.reshape(self.b.shape) + self.b

    def correction(self, lam: Array) -> Array:
        """(n,): lambda . c, what a gain has to exceed."""
        return self.c.reshape(len(self.c), -1) @ lam.ravel()


def constraints_of(notion: FairnessNotion, eta: Array, q0: Array, q1: Array, weight: Array) -> Constraints:
    r"""The constraint of a notion, written with posteriors.

    With :math:`e_k(y)` the events and :math:`h(d, y)` what the notion averages,

    .. math:: c_{a,k}(x) = \sum_y e_k(y) (h(1, y) - h(0, y)) \frac{p(a, y \mid x)}{p(a, k)}, \qquad
       b_{a,k} = E \sum_y e_k(y) h(0, y) \frac{p(a, y \mid x)}{p(a, k)}.

    Demographic parity: c = p(a|x)/p(a), b = 0. Equalized odds: c = p(a,y|x)/p(a,y), b = 0. Accuracy parity:
    c = (p(a,0|x) - p(a,1|x))/p(a), b = p(y=1|a).

    Parameters
    ----------
    eta : ndarray (n,)
        p(y=1|x).
    q0, q1 : ndarray (n, G)
        p(a|x, y) for both labels.
    weight : ndarray (n,)
        How often a row counts.
    """
    share = weight / weight.sum()
    joint = np.stack([q0 * (1 - eta)[:, None], q1 * eta[:, None]])  # (2, n, G): p(a, y | x)
    events, without, change = label_table(notion)
    sizes = np.einsum("n,yna,yk->ak", share, joint, events)
    sizes = np.maximum(sizes, 1e-9)
    c = np.einsum("yna,yk->nak", joint, events * change[:, None]) / sizes
    b = np.einsum("n,yna,yk->ak", share, joint, events * without[:, None]) / sizes
    return Constraints(c, b, share, sizes)


def label_table(notion: FairnessNotion) -> tuple[Array, Array, Array]:
    """(2, K) events, (2,) h without and (2,) change of h with a positive decision, by label.

    Raises
    ------
    ValueError
        If the notion averages something else than a function of decision and label.
    """
    y = np.array([0.0, 1.0])
    sizes = (0.01, 1.0, 30.0)
    low, high = ([notion.h_exact(sign * s * np.ones(2), y) for s in sizes] for sign in (-1.0, 1.0))
    if not all(np.array_equal(one, values[0]) for values in (low, high) for one in values):
        raise ValueError(
            f"expected a notion whose h_exact depends on a score through its sign, got {type(notion).__name__}; "
            "use engine 'moments'."
        )
    events, without = np.asarray(notion.events(y), dtype=np.float64), np.asarray(low[0], dtype=np.float64)
    return events, without, np.asarray(high[0], dtype=np.float64) - without


def solve(gain: Array, constraints: Constraints, tolerance: float, start: Array | None = None) -> Array:
    """(G, K): the multipliers that minimise the dual, by Newton's method on a smoothed one that grows sharper.

    They are 0 where the best decisions without a constraint meet it.

    Parameters
    ----------
    gain : ndarray (n,)
        What a positive decision is worth.
    tolerance : float
        Largest difference between two groups that is allowed.
    start : ndarray (G, K), optional
        Multipliers of a problem nearby.
    """
    rates = constraints.rates((gain > 0).astype(np.float64))
    if np.ptp(rates, axis=0).max() <= tolerance:
        return np.zeros(rates.shape)
    dual = _Dual(gain, constraints, tolerance)
    z = dual.free(np.zeros(constraints.b.shape) if start is None else start)
    for width in SMOOTHING if start is None else SMOOTHING[2:]:
        z = _newton(dual, z, width)
    return dual.multipliers(z)


def decide(gain: Array, constraints: Constraints, lam: Array) -> Array:
    """(n,): the primal solution d = 1[g > lambda . c], as numbers."""
    return (gain > constraints.correction(lam)).astype(np.float64)


def clip_to_decision_side(gain: Array, corrected: Array) -> Array:
    """(m,): the gain where its sign is the decision, otherwise a little of the corrected gain: AUC stays the base's."""
    kept: Array = np.where((gain > 0) == (corrected > 0), gain, BEYOND * corrected)
    return kept


class _Dual:
    """The dual function of multipliers that add up to 0 over the groups, with slope and curvature."""

    def __init__(self, gain: Array, constraints: Constraints, tolerance: float) -> None:
        groups, events = constraints.b.shape
        self._shape = (groups, events)
        # orthonormal directions in which the multipliers of one event add up to 0
        zero_sum = np.linalg.svd(np.ones((1, groups)))[2][1:].T
        self._basis = np.kron(zero_sum, np.eye(events))  # (G K, (G - 1) K)
        self._rows = constraints.c.reshape(len(gain), -1) @ self._basis
        self._b = constraints.b.ravel() @ self._basis
        self._gain, self._weight, self._half = gain, constraints.weight, tolerance / 2

    def free(self, lam: Array) -> Array:
        """Coordinates of multipliers."""
        return lam.ravel() @ self._basis

    def multipliers(self, z: Array) -> Array:
        """(G, K) of coordinates."""
        return (self._basis @ z).reshape(self._shape)

    def value(self, z: Array, width: float) -> float:
        """The smoothed dual."""
        u = (self._gain - self._rows @ z) / width
        lam = self._basis @ z
        smooth = width * self._weight @ np.logaddexp(0.0, u)
        held = np.square(_beyond(lam)).sum() / (2 * PATIENCE)
        return float(smooth - z @ self._b + self._half * np.hypot(lam, KINK).sum() + held)

    def slopes(self, z: Array, width: float) -> tuple[Array, Array]:
        """Gradient and Hessian of the smoothed dual."""
        u = (self._gain - self._rows @ z) / width
        soft = 0.5 * (1 + np.tanh(u / 2))  # the smoothed decision
        lam = self._basis @ z
        length = np.hypot(lam, KINK)
        beyond = _beyond(lam)
        pull = self._half * lam / length + beyond / PATIENCE
        gradient = -(self._weight * soft) @ self._rows - self._b + pull @ self._basis
        bend = self._weight * soft * (1 - soft) / width
        near = bend > 0  # most rows are far from the line
        hessian = (self._rows[near].T * bend[near]) @ self._rows[near]
        stiff = self._half * KINK**2 / length**3 + (beyond != 0) / PATIENCE
        hessian += (self._basis.T * stiff) @ self._basis
        return gradient, hessian


def _beyond(lam: Array) -> Array:
    """How far multipliers are beyond what accuracy is worth."""
    return lam - np.clip(lam, -MOST_WORTH, MOST_WORTH)


def _newton(dual: _Dual, z: Array, width: float) -> Array:
    """Damped Newton steps; where the curvature vanishes a little of it is added."""
    for _ in range(MOST_STEPS):
        gradient, hessian = dual.slopes(z, width)
        if np.abs(gradient).max(initial=0.0) < PRECISION:
            return z
        floor = 1e-9 * (1.0 + np.trace(hessian))
        step = -np.linalg.solve(hessian + floor * np.eye(len(z)), gradient)
        length, promised, here = 1.0, float(gradient @ step), dual.value(z, width)
        while length > SMALLEST and dual.value(z + length * step, width) > here + SUFFICIENT * length * promised:
            length /= 2
        if length <= SMALLEST:
            return z  # as sharp as double precision sees
        z = z + length * step
    return z
