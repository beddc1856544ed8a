r"""Logistic regression under decision-boundary covariance constraints: the mathematics of Zafar et al. (2015, 2017).

With signs :math:`s_i \in \{-1, +1\}` for the label, :math:`z_i \in \{0, 1\}` for the group and a score
:math:`d_\theta(x) = \theta^\top x` whose last feature is 1, both papers minimise the logistic loss subject to
:math:`|\mathrm{Cov}| \le c`, where

.. math:: \mathrm{Cov} = \frac1n \sum_i (z_i - \bar z)\, g_\theta(x_i),
          \qquad g_\theta = d_\theta \ (2015), \quad g_\theta = \min(0, s\, d_\theta) \ (2017).

The first is linear in theta, so the problem is smooth and convex. The second is a difference of convex functions and is
met by the penalty convex-concave procedure (Lipp and Boyd 2016), the form of the procedure that the 2017 paper used.

Every convex problem has as many variables as there are features, so it goes to SLSQP of scipy, in coordinates in which
the Hessian of the loss is the identity at the unconstrained optimum. An interior-point solver for cones has to
carry two exponential cones per row instead; Clarabel, at its default settings, gave up on Income and Compas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

Array = NDArray[np.float64]

#: Width of the parabola that rounds the kink of max(0, t), in log-odds.
ROUNDING = 1e-4
#: Weight of the constraint in the first round of the convex-concave procedure, and its growth from round to round: a
#: gentle path from the unconstrained optimum ends in better local optima than one jump.
FIRST_PENALTY, PENALTY_GROWTH = 0.02, 1.3
#: The procedure ends when no constraint is missed by more than the first and the loss falls by no more than the second.
FEASIBLE, SETTLED = 1e-7, 1e-6
#: Largest slope along the bound at the optimum of the smooth problem, in coordinates in which curvature is about 1.
STATIONARY = 1e-5
#: SLSQP's tolerance on the objective, for the smooth problem and for the rounded one, and its most iterations.
SMOOTH_PRECISION, ROUNDED_PRECISION, MOST_STEPS = 1e-14, 1e-10, 500


@dataclass(frozen=True)
class Solution:
    """Weights theta (d,) and whether the solver got where it was going."""

    theta: Array
    converged: bool


@dataclass(frozen=True)
class LogisticLoss:
    r"""Mean logistic loss with a quadratic penalty, :math:`\frac1n\sum_i \log(1 + e^{-s_i d_i}) + \frac12 u^\top Q u`.

    Parameters
    ----------
    rows : Array (n, d)
    signs : Array (n,)
        Labels, -1 or +1.
    penalty : Array (d, d)
        Q.
    """

    rows: Array
    signs: Array
    penalty: Array

    def __call__(self, u: Array) -> tuple[float, Array]:
        """Value and gradient."""
        wrong = -self.signs * (self.rows @ u)
        slope = self.rows.T @ (-self.signs * expit(wrong)) / len(self.rows)
        pull = self.penalty @ u
        return float(np.logaddexp(0.0, wrong).mean() + 0.5 * u @ pull), slope + pull

    def hessian(self, u: Array) -> Array:
        """(d, d) second derivative."""
        probability = expit(self.rows @ u)
        spread = probability * (1 - probability)
        curvature: Array = (self.rows * spread[:, None]).T @ self.rows / len(self.rows) + self.penalty
        return curvature

    def in_coordinates(self, root: Array) -> LogisticLoss:
        """The same loss as a function of ``root @ u``; ``root`` is upper triangular."""
        half = solve_triangular(root, self.penalty, trans="T")
        return LogisticLoss(
            solve_triangular(root, self.rows.T, trans="T").T,
            self.signs,
            solve_triangular(root, half.T, trans="T").T,
        )


def logistic_loss(features: Array, target: Array, l2: float) -> LogisticLoss:
    """Loss of the labels 0 and 1 with a column of ones appended; the ridge ``l2`` spares the intercept."""
    rows = np.column_stack([features, np.ones(len(features))])
    return LogisticLoss(rows, 2 * target - 1, np.diag(np.append(np.full(features.shape[1], l2), 0.0)))


def unconstrained(loss: LogisticLoss) -> Array:
    """The optimum without constraint: scikit-learn's logistic regression with the same ridge."""
    n, l2 = len(loss.rows), loss.penalty[0, 0]
    model = LogisticRegression(C=1 / (l2 * n), solver="newton-cholesky", tol=1e-10, max_iter=MOST_STEPS)
    model.fit(loss.rows[:, :-1], loss.signs)
    return np.append(model.coef_[0], model.intercept_[0])


def _root(loss: LogisticLoss, u: Array) -> Array:
    """Upper triangular root of the Hessian: in the coordinates ``root @ u`` the curvature is 1 in every direction."""
    try:
        return np.asarray(cholesky(loss.hessian(u)))
    except LinAlgError:
        raise ValueError(
            "expected features that determine the weights, got collinear or separable ones and a ridge too small to "
            "help; raise l2, for example to 1e-5."
        ) from None


@dataclass(frozen=True)
class Contrast:
    r"""One constraint of 2017, between the rows of two groups in one event.

    .. math:: \mathrm{Cov} = \pi_0 \pi_1 (M_0 - M_1), \qquad M_a(u) = \mathrm{mean}_{i \in a} \max(0, -s_i d_i),

    with :math:`\pi_a` the share of group a among the event's rows: the covariance is a difference of convex functions.

    Parameters
    ----------
    wrong : tuple of two arrays (n_a, d)
        Rows :math:`-s_i x_i` of each group.
    bound : float
        :math:`c / (\pi_0 \pi_1)`, the bound on :math:`|M_0 - M_1|`.
    """

    wrong: tuple[Array, Array]
    bound: float

    def depth(self, group: int, u: Array) -> float:
        """M_a: how far behind the boundary the misclassified rows of a group lie, on average over the group."""
        return float(np.maximum(self.wrong[group] @ u, 0.0).mean())

    def tangent(self, group: int, u: Array) -> Array:
        """(d,) subgradient of M_a; since M_a is positively homogeneous, its tangent at u is this times the argument."""
        rows = self.wrong[group]
        gradient: Array = rows[rows @ u > 0].sum(0) / len(rows)
        return gradient

    def rounded(self, group: int, u: Array) -> float:
        """M_a with its kinks rounded upwards, by at most ``ROUNDING / 8``."""
        t = self.wrong[group] @ u
        inside = np.clip(t + ROUNDING / 2, 0.0, ROUNDING)
        return float((inside**2 / (2 * ROUNDING) + np.maximum(t - ROUNDING / 2, 0.0)).mean())

    def rounded_gradient(self, group: int, u: Array) -> Array:
        """(d,) gradient of :meth:`rounded`."""
        rows = self.wrong[group]
        gradient: Array = np.clip((rows @ u) / ROUNDING + 0.5, 0.0, 1.0) @ rows / len(rows)
        return gradient

    def excess(self, u: Array) -> float:
        """How far the constraint is missed; 0 if it holds."""
        return max(0.0, abs(self.depth(0, u) - self.depth(1, u)) - self.bound)


def contrasts(rows: Array, signs: Array, z: NDArray[np.int64], events: NDArray[np.bool_], c: float) -> list[Contrast]:
    """One contrast per event (column of ``events``); an event without rows of both groups has covariance 0."""
    found = []
    for event in events.T:
        members = [np.flatnonzero(event & (z == group)) for group in (0, 1)]
        sizes = [len(index) for index in members]
        if all(sizes):
            wrong = tuple(-signs[index, None] * rows[index] for index in members)
            found.append(Contrast((wrong[0], wrong[1]), c * sum(sizes) ** 2 / (sizes[0] * sizes[1])))
    return found


def _slsqp(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array,
    constraint: Any,
    precision: float,
    limits: Any = None,
) -> Array:
    """Where SLSQP of scipy ends; its own verdict mixes minima up with the limits of round-off, so callers judge."""
    options: Any = {"ftol": precision, "maxiter": MOST_STEPS}
    found = minimize(objective, start, jac=True, method="SLSQP", bounds=limits, constraints=constraint, options=options)
    return np.asarray(found.x)


def linear_constraint(loss: LogisticLoss, z: NDArray[np.int64], c: float) -> Solution:
    """Zafar et al. (2015): the minimum of ``loss`` with |covariance of z and score| at most ``c``.

    Rows with z other than 0 and 1 count in the loss only. If the optimum without constraint misses the bound, the loss
    being convex, the constrained optimum lies on the side of the bound that was crossed: one equality remains.
    """
    start = unconstrained(loss)
    given = np.flatnonzero((z == 0) | (z == 1))
    if not len(given):
        return Solution(start, converged=True)
    direction = (z[given] - z[given].mean()) @ loss.rows[given] / len(given)
    reached = float(direction @ start)
    if abs(reached) <= c:
        return Solution(start, converged=True)
    root = _root(loss, start)
    towards = solve_triangular(root, direction, trans="T")
    length = float(np.linalg.norm(towards))
    towards, target = towards / length, np.copysign(c, reached) / length
    equality = {"type": "eq", "fun": lambda u: towards @ u - target, "jac": lambda _: towards}
    loss = loss.in_coordinates(root)
    u = _slsqp(loss, root @ start, equality, SMOOTH_PRECISION)
    u = u - (towards @ u - target) * towards  # what round-off left of the constraint
    slope = loss(u)[1]
    along = float(np.linalg.norm(slope - (slope @ towards) * towards))
    return Solution(solve_triangular(root, u), converged=along <= STATIONARY)


def error_constraint(
    loss: LogisticLoss, z: NDArray[np.int64], events: NDArray[np.bool_], c: float, max_iterations: int
) -> Solution:
    """Zafar et al. (2017): a local minimum of ``loss`` with |covariance of z and misclassification| at most ``c``.

    ``events`` (n, K) says which rows each constraint looks at: all of them, or those of one label.
    """
    start = unconstrained(loss)
    root = _root(loss, start)
    loss = loss.in_coordinates(root)
    constraints = contrasts(loss.rows, loss.signs, z, events, c)
    found = convex_concave(loss, constraints, root @ start, max_iterations)
    return Solution(solve_triangular(root, found.theta), found.converged)


def convex_concave(loss: LogisticLoss, constraints: Sequence[Contrast], start: Array, max_iterations: int) -> Solution:
    """The penalty convex-concave procedure from ``start``, which is returned if it keeps every constraint.

    In each round both sides of a contrast, M_0 - M_1 <= bound and M_1 - M_0 <= bound, have their concave part replaced
    by its tangent at the current point (to keep the new one is to keep the old one), and a slack lets them be missed at
    a price that grows as long as they are.
    """

    def missed(u: Array) -> float:
        return max((contrast.excess(u) for contrast in constraints), default=0.0)

    u, excess, penalty = start, missed(start), FIRST_PENALTY
    if excess == 0:
        return Solution(start, converged=True)
    for _ in range(max_iterations):
        before, u = u, convexified(loss, constraints, u, penalty)
        excess, excess_before = missed(u), excess
        if max(excess, excess_before) <= FEASIBLE and loss(before)[0] - loss(u)[0] <= SETTLED:
            return Solution(u, converged=True)
        if excess > FEASIBLE:
            penalty *= PENALTY_GROWTH
    return Solution(u, converged=False)


def convexified(loss: LogisticLoss, constraints: Sequence[Contrast], at: Array, penalty: float) -> Array:
    r"""One round: the minimum of loss + penalty * (sum of slacks) with the concave parts made linear at ``at``.

    .. math:: M_a(u) - \nabla M_b(u_k)^\top u \le \mathit{bound} + \mathit{slack}, \qquad (a, b) \in \{(0, 1), (1, 0)\}

    The convex part M_a is rounded upwards by at most ``ROUNDING / 8``, so a solution keeps the constraint that was
    meant. ``at`` itself is returned where SLSQP finds nothing better.
    """
    d, k = len(at), len(constraints)
    tangents = [(contrast.tangent(0, at), contrast.tangent(1, at)) for contrast in constraints]
    sides = [(j, a) for j in range(k) for a in (0, 1)]
    price = np.full(k, penalty)

    def objective(v: Array) -> tuple[float, Array]:
        value, gradient = loss(v[:d])
        return value + penalty * float(v[d:].sum()), np.append(gradient, price)

    def room(v: Array) -> Array:
        return np.array([
            v[d + j] + constraints[j].bound + tangents[j][1 - a] @ v[:d] - constraints[j].rounded(a, v[:d])
            for j, a in sides
        ])  # fmt: skip

    def room_gradient(v: Array) -> Array:
        weights = [tangents[j][1 - a] - constraints[j].rounded_gradient(a, v[:d]) for j, a in sides]
        return np.column_stack([weights, np.eye(k).repeat(2, axis=0)])

    def with_slack(u: Array) -> Array:
        shortage = -room(np.append(u, np.zeros(k))).reshape(k, 2).min(1)
        return np.append(u, np.maximum(shortage, 0.0))

    first = with_slack(at)
    inequality = {"type": "ineq", "fun": room, "jac": room_gradient}
    limits = [(None, None)] * d + [(0.0, None)] * k
    found = _slsqp(objective, first, inequality, ROUNDED_PRECISION, limits)
    last = with_slack(found[:d])
    return last[:d] if objective(last)[0] < objective(first)[0] else at
