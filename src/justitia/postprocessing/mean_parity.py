r"""Numbers with the same mean in every group: a quadratic dual.

With :math:`m(x) = E[y \mid x]` and :math:`c_a(x) = p(a \mid x) / p(a)`, the problem

.. math:: \min_f E(f - m)^2 \quad\text{subject to}\quad |r_a - r_b| \le \text{tolerance}, \qquad
   r_a = E[c_a f] + b_a,

has for multipliers that add up to 0 the solution :math:`f = m - \lambda \cdot c / 2`, and the dual

.. math:: \min_\lambda \tfrac14 E(\lambda \cdot c)^2 - \lambda \cdot (E[c\, m] + b) +
   \tfrac{\text{tolerance}}{2} |\lambda|_1

is a quadratic function with a kink of G unknowns. It reads the rows through two small sums.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from justitia.postprocessing.dual import MOST_WORTH, PATIENCE

Array = NDArray[np.float64]
#: The absolute value of a multiplier is smoothed over these widths, step by step.
KINKS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
#: Newton's method stops when no derivative of the dual, a difference of means, is larger than this.
PRECISION = 1e-10
MOST_STEPS = 100
SUFFICIENT, SMALLEST = 1e-4, 1e-12


def solve_mean_parity(m: Array, c: Array, b: Array, share: Array, tolerance: float) -> Array:
    """(G,): the multipliers; 0 where m itself is within the tolerance.

    Parameters
    ----------
    m : ndarray (n,)
        E[y | x], between 0 and 1.
    c : ndarray (n, G)
        p(a | x) / p(a).
    b : ndarray (G,)
        What passes over all rows and checks have added to the means.
    share : ndarray (n,)
        Of each row in the mean; they add up to 1.
    tolerance : float
        Largest difference between two groups' means.
    """
    means, groups = (share * m) @ c + b, len(b)
    if np.ptp(means) <= tolerance:
        return np.zeros(groups)
    axes = np.linalg.svd(np.ones((1, groups)))[2][1:].T  # (G, G - 1): multipliers that add up to 0
    square, linear = axes.T @ ((c.T * share) @ c / 2) @ axes, means @ axes
    z = np.zeros(groups - 1)
    for kink in KINKS:
        z = _newton(z, square, linear, axes, tolerance / 2, kink)
    found: Array = axes @ z
    return found


def _newton(z: Array, square: Array, linear: Array, axes: Array, half: float, kink: float) -> Array:
    """Damped Newton steps on the dual with a smoothed absolute value; multipliers beyond any worth are held back."""

    def value(z: Array) -> float:
        lam = axes @ z
        held = np.square(_beyond(lam)).sum() / (2 * PATIENCE)
        return float(z @ square @ z / 2 - linear @ z + half * np.hypot(lam, kink).sum() + held)

    for _ in range(MOST_STEPS):
        lam = axes @ z
        length, beyond = np.hypot(lam, kink), _beyond(lam)
        gradient = square @ z - linear + (half * lam / length + beyond / PATIENCE) @ axes
        if np.abs(gradient).max(initial=0.0) < PRECISION:
            return z
        stiff = half * kink**2 / length**3 + (beyond != 0) / PATIENCE
        hessian = square + (axes.T * stiff) @ axes
        step = -np.linalg.solve(hessian + 1e-12 * (1 + np.trace(hessian)) * np.eye(len(z)), gradient)
        size, promised, here = 1.0, float(gradient @ step), value(z)
        while size > SMALLEST and value(z + size * step) > here + SUFFICIENT * size * promised:
            size /= 2
        if size <= SMALLEST:
            return z  # as sharp as double precision sees
        z = z + size * step
    return z


def _beyond(lam: Array) -> Array:
    return lam - np.clip(lam, -MOST_WORTH, MOST_WORTH)
