r"""The Lagrangian dual in closed form: which actions are best under the constraint, given public posteriors.

A decision is one of L actions with public gains :math:`g_l(x) = u_l(x) - u_0(x)` over the first one. Every rate that a
notion compares is linear in the indicators of the actions. With :math:`p(a, y \mid x)` public by now, and the notion's
table of events :math:`e_k(y)` and values :math:`v_k(y, l)`,

.. math:: r_{a,k}(d) = \frac{1}{p(a,k)} E \sum_{y,l} e_k(y)\, v_k(y, l)\, 1[d(x) = l]\, p(a, y \mid x) + \text{shift}.

Among all rules the best one under :math:`|r_{a,k} - r_{b,k}| \le \tau_k` has a dual with one multiplier per group and
rate,

.. math:: \min_\lambda E \max_l (g_l - t_l) - \lambda \cdot b + \sum_k \tfrac{\tau_k}{2} |\lambda_k|_1
   \quad\text{subject to}\quad \sum_a \lambda_{a,k} = 0, \qquad
   t_l(x) = \sum_{y,a} p(a, y \mid x) \sum_k e_k(y) (v_k(y, l) - v_k(y, 0)) \frac{\lambda_{a,k}}{p(a,k)},

and its solution is :math:`d(x) = \arg\max_l g_l(x) - t_l(x)`: Equation 6 of the paper, solved instead of approached by
descent and ascent. The multipliers of a rate add up to 0 because only differences between groups are bounded; where
rates are held at a public centre, or shares of actions at a quota, they are free. The maximum is smoothed by a
log-sum-exp that grows sharper. Noise may ask for rates that no rule has: multipliers that no accuracy is worth are held
back, and stay finite.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from justitia.goals import Goal
from justitia.notions import FairnessNotion, RateTable

#: The maximum is smoothed over this width, step by step. Where features give the group away, many rows may be
#: this close to the line under equalized odds, and a wider last step leaves their decisions beyond the tolerance.
SMOOTHING = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
#: The absolute value of a multiplier is smoothed over this width.
KINK = 1e-5
#: A multiplier is the accuracy that a unit of violation is worth. Beyond the first it grows by the second times what is
#: missing to the tolerance.
MOST_WORTH, PATIENCE = 10.0, 100.0
#: The same per share of rows in the cell that a multiplier is about: how many right decisions may be given up for each
#: decision of that cell that changes. With more than two actions the smallest cell counts; with two this holds where no
#: tolerance is given.
WORTH_PER_SHARE, DEFAULT_WORTH_PER_SHARE = 30.0, 20.0
#: Newton's method stops when no derivative of the dual, a difference of rates, is larger than this.
PRECISION = 1e-7
#: The same where a wider smoothing only says where the next one starts.
ROUGH_PRECISION = 1e-3
MOST_STEPS = 60
#: A corrected decision moves a probability to the other side of the threshold, and by this share of its margin beyond.
BEYOND = 1e-3
#: A step of Newton's method is halved until the dual falls by this share of what its slope promises.
SUFFICIENT, SMALLEST = 1e-4, 1e-10
#: Rows on which the first, smoothest duals are solved, down to this width, where products with more columns than this
#: take the time.
ROUGH, ROUGH_WIDTH, FEW_COLUMNS = 6_000, 0.003, 4
#: Curvature of a pair of actions below this share is left out, of more than two actions.
NEGLIGIBLE = 1e-12
#: In units of the width, so far from its line a row counts as on one side of it: exp(-40) is below double precision.
FAR = 40.0
#: Largest rate of a ratio, and common value of a linear-fractional rate, are found to this precision.
SEARCHED = 1e-4
#: Values of a linear-fractional rate that are tried before the best of them is refined.
TRIED = 17

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Constraints:
    r"""Rates by group as linear functions of decisions, relative to those of the first action.

    Attributes
    ----------
    joint : ndarray (Y, n, G)
        p(a, y | x).
    events : ndarray (Y, K)
        Which labels belong to the event of each rate.
    change : ndarray (Y, D, K)
        What each of the D = L - 1 other actions adds to the value of the first one.
    sizes : ndarray (G, K)
        Shares of the groups in each event, by which sums are divided.
    b : ndarray (G, K)
        Rates of the first action for all rows, and what is known to be missing in the estimate.
    weight : ndarray (n,)
        Of each row in the mean; they add up to 1.
    """

    joint: Array
    events: Array
    change: Array
    sizes: Array
    b: Array
    weight: Array

    @classmethod
    def from_table(cls, table: RateTable, joint: Array, weight: Array) -> Constraints:
        """The rates of a table, written with posteriors of rows that count this often."""
        share = weight / weight.sum()
        sizes = np.maximum(np.einsum("n,yna,yk->ak", share, joint, table.events), 1e-9)
        b = np.einsum("n,yna,yk->ak", share, joint, table.events * table.values[:, 0]) / sizes
        return cls(joint, table.events, table.values[:, 1:] - table.values[:, :1], sizes, b, share)

    def with_b(self, b: Array) -> Constraints:
        """The same rates with another b; columns that were computed already are kept, since b is in none of them."""
        found = copy.copy(self)
        object.__setattr__(found, "b", b)
        return found

    @cached_property
    def kinds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(Y',) and (Y,): labels that the table tells apart, and which of these each label is like."""
        rows = np.concatenate([self.events, self.change.reshape(len(self.change), -1)], axis=1)
        _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return first, kind.ravel()

    @cached_property
    def merged(self) -> tuple[Array, Array, Array]:
        """(n, Y' G) columns, (Y', K) and (Y', D, K): labels that the table does not tell apart, added up."""
        first, kind = self.kinds
        parts = [self.joint[kind == j].sum(0) for j in range(len(first))]
        return np.concatenate(parts, axis=1), self.events[first], self.change[first]

    @cached_property
    def c(self) -> Array:
        """(n, G, K): what the second action adds to the rates, of a problem with two actions."""
        found: Array = np.einsum("yna,yk->nak", self.joint, self.events * self.change[:, 0]) / self.sizes
        return found

    def rates(self, decisions: NDArray[np.generic]) -> Array:
        """(G, K): rates of (n,) actions, or of (n, D) probabilities of the actions but the first."""
        (columns, events, change), actions = self.merged, self.change.shape[1]
        if decisions.ndim == 1 and actions > 1:
            decisions = decisions[:, None] == np.arange(1, actions + 1)
        shares = decisions.reshape(len(decisions), actions).astype(np.float64)
        mass = columns.T @ (self.weight[:, None] * shares)  # (Y' G, D)
        by_label = mass.reshape(len(events), -1, actions)
        found: Array = np.einsum("yad,yk,ydk->ak", by_label, events, change) / self.sizes + self.b
        return found

    def correction(self, lam: Array) -> Array:
        """(n, D): what the gain of each action has to exceed; (n,) where there are two actions."""
        columns, events, change = self.merged
        price = np.einsum("yk,ydk,ak->yad", events, change, lam / self.sizes)
        found: Array = columns @ price.reshape(columns.shape[1], -1)
        return found[:, 0] if found.shape[1] == 1 else found


@dataclass(frozen=True, eq=False)
class RateLimits:
    """What is allowed of rates.

    Attributes
    ----------
    half : ndarray (J,)
        Half of the largest difference between two groups, of every constrained number.
    centre : ndarray (J,), optional
        Where it has to lie within ``half``; NaN, and by default, anywhere.
    mix : ndarray (K, J), optional
        Which combinations of the rates are constrained; by default the rates themselves.
    quota : ndarray (D,), optional
        Share of rows that each action but the first gets; NaN is any.
    worth : float or ndarray (J,) or (G, J)
        Beyond which multipliers are held back.
    """

    half: Array
    centre: Array | None = None
    mix: Array | None = None
    quota: Array | None = None
    worth: float | Array = MOST_WORTH

    @classmethod
    def from_tolerance(cls, tolerance: float | Array, rates: int, quota: Array | None = None) -> RateLimits:
        """Largest differences of this many rates."""
        half: Array = np.broadcast_to(np.asarray(tolerance, dtype=np.float64) / 2, (rates,))
        return cls(half, quota=quota)


@dataclass(frozen=True, eq=False)
class Multipliers:
    """The solution of a dual.

    Attributes
    ----------
    lam : ndarray (G, K)
        Of the rates.
    quota : ndarray (D,)
        What every row pays for an action because of its quota; 0 without one.
    value : float
        Of the dual.
    """

    lam: Array
    quota: Array
    value: float


def constraints_of(notion: FairnessNotion, eta: Array, q0: Array, q1: Array, weight: Array) -> Constraints:
    """The constraint of a notion of two classes.

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
    return Constraints.from_table(notion.rates(), joint_of(eta, np.stack([q0, q1])), weight)


def joint_of(prediction: Array, q: Array) -> Array:
    """(Y, n, G): p(a, y | x) of p(y = 1 | x), or of (n, Y) probabilities, and of (Y, n, G) memberships."""
    by_label = np.stack([1 - prediction, prediction]) if prediction.ndim == 1 else prediction.T
    found: Array = q * by_label[:, :, None]
    return found


def utilities(prediction: Array, costs: Array | None = None) -> Array:
    """(n, K): what each decision is worth: the probability of its class, or minus its expected cost."""
    found: Array = prediction.copy() if costs is None else -prediction @ costs
    return found


def label_table(notion: FairnessNotion) -> tuple[Array, Array, Array]:
    """(2, K) events, (2,) h without and (2,) change of h with a positive decision, by label."""
    table, h = notion.rates(), notion.decision_values()
    return table.events, h[:, 0], h[:, 1] - h[:, 0]


def solve(
    gain: Array, constraints: Constraints, tolerance: float | Array | RateLimits, start: Array | None = None
) -> Array:
    """(G, K): the multipliers that minimise the dual; see :func:`minimise`."""
    limits = (
        tolerance if isinstance(tolerance, RateLimits) else RateLimits.from_tolerance(tolerance, constraints.b.shape[1])
    )
    return minimise(gain, constraints, limits, start).lam


def minimise(gain: Array, constraints: Constraints, limits: RateLimits, start: Array | None = None) -> Multipliers:
    """Minimise the dual by Newton's method on a smoothed one that grows sharper.

    Multipliers are 0 where the best decisions without a constraint meet it.

    Parameters
    ----------
    gain : ndarray (n, D), or (n,) of two actions
        What each action but the first is worth more than the first.
    start : ndarray (G, K), optional
        Multipliers of a problem nearby, of constraints on the rates themselves.
    """
    gain = gain.reshape(len(gain), -1)
    if _within(constraints.rates(best_action(gain)), limits):
        best = np.maximum(gain.max(1), 0.0)
        return Multipliers(np.zeros(constraints.b.shape), np.zeros(gain.shape[1]), float(constraints.weight @ best))
    dual = _Dual(gain, constraints, limits)
    warm = start is not None and limits.mix is None
    z = (start if warm and start is not None else np.zeros((len(constraints.b), len(limits.half)))).ravel() @ dual.basis
    widths: tuple[float, ...] = SMOOTHING[2:] if warm else SMOOTHING
    if len(gain) > 2 * ROUGH and constraints.merged[0].shape[1] > FEW_COLUMNS:  # a part of the rows says where to start
        rough = dual.part(np.arange(0, len(gain), len(gain) // ROUGH))
        for width in widths:
            if width >= ROUGH_WIDTH:
                z = _newton(rough, z, width, ROUGH_PRECISION)
        widths = tuple(width for width in widths if width <= ROUGH_WIDTH)
    for width in widths[:-1]:
        z = _newton(dual, z, width, ROUGH_PRECISION)
    z = _newton(dual, z, widths[-1])
    return dual.solution(z, SMOOTHING[-1])


def reach(
    goal: Goal,
    gain: Array,
    constraints: Constraints,
    tolerance: Array,
    start: Array | None = None,
    *,
    worth: float | Array = MOST_WORTH,
) -> Multipliers:
    """Minimise the dual of a goal with these largest differences of its K rates."""
    limits = replace(RateLimits.from_tolerance(tolerance, len(goal.table.names), goal.quota), worth=worth)
    if goal.ratio is not None:
        return minimise_ratio(gain, constraints, limits, goal.ratio)
    if goal.is_fraction:
        return minimise_fraction(gain, constraints, float(tolerance[0]), goal.quota)[0]
    return minimise(gain, constraints, limits, start)


def best_action(corrected: Array) -> NDArray[np.int64]:
    """(n,): the action of largest corrected gain, the first one where none is above 0; from (n, D) or (n,)."""
    corrected = corrected.reshape(len(corrected), -1)
    return np.where(corrected.max(1) > 0, 1 + corrected.argmax(1), 0)


def decide(gain: Array, constraints: Constraints, lam: Array, quota: Array | float = 0.0) -> NDArray[np.int64]:
    """(n,): the primal solution, the action of largest gain less correction."""
    return best_action(gain.reshape(len(gain), -1) - constraints.correction(lam).reshape(len(gain), -1) - quota)


def minimise_ratio(gain: Array, constraints: Constraints, limits: RateLimits, ratio: float) -> Multipliers:
    r"""Multipliers such that every group's rate is at least ``ratio`` of the largest, for each rate.

    For a given largest rate R the constraint is :math:`ratio R \le r_a \le R`. What R is worth is concave in R, and
    its slope is known from the multipliers, so R is found by bisection, one rate after the other.
    """
    free = minimise(gain, constraints, replace(limits, half=np.full(len(limits.half), 1.0)))
    if _ratio_holds(constraints, gain, free, ratio):
        return free
    rates = constraints.rates(best_action(gain.reshape(len(gain), -1)))
    largest = np.clip(rates.max(0), SEARCHED, 1.0)
    found, start = free, None
    for _ in range(1 if len(largest) == 1 else 3):
        for k in range(len(largest)):
            low, high = 0.0, 1.0
            while high - low > SEARCHED:
                largest[k] = (low + high) / 2
                bands = replace(limits, half=(1 - ratio) / 2 * largest, centre=(1 + ratio) / 2 * largest)
                found = minimise(gain, constraints, bands, start)
                start = found.lam
                rising = np.maximum(start[:, k], 0.0).sum() > ratio * np.maximum(-start[:, k], 0.0).sum()
                low, high = (largest[k], high) if rising else (low, largest[k])
    return found


def _ratio_holds(constraints: Constraints, gain: Array, found: Multipliers, ratio: float) -> bool:
    rates = constraints.rates(decide(gain, constraints, found.lam, found.quota))
    return bool((rates.min(0) >= ratio * rates.max(0)).all())


def minimise_fraction(
    gain: Array, constraints: Constraints, tolerance: float, quota: Array | None = None
) -> tuple[Multipliers, float]:
    r"""Multipliers such that :math:`r_{a,0} / r_{a,1}` differs by at most the tolerance, and its common value.

    The two rates are those of decisions that are right and of all decisions. For a given common value rho the
    constraint, :math:`r_{a,0} - (\rho + \tau/2) r_{a,1} \le 0 \le r_{a,0} - (\rho - \tau/2) r_{a,1}`, is linear; rho is
    searched for.
    """

    def at(rho: float) -> Multipliers:
        mix = np.array([[1.0, 1.0], [-(rho + tolerance / 2), -(rho - tolerance / 2)]])
        # One side of each is far beyond what any rule has: rates lie between -1 and 1.
        one_sided = RateLimits(np.array([1.0, 1.0]), np.array([-1.0, 1.0]), mix, quota)
        return minimise(gain, constraints, one_sided)

    rho = _best_of(lambda value: at(value).value, 0.0, 1.0)
    return at(rho), rho


def _best_of(worth: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one number is largest: the best of an even grid, then golden sections around it."""
    grid = np.linspace(low, high, TRIED)
    best = int(np.argmax([worth(float(one)) for one in grid]))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, TRIED - 1)])
    golden = (5**0.5 - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = worth(left), worth(right)
    while high - low > SEARCHED:
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = worth(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = worth(right)
    return (low + high) / 2


def clip_to_decision_side(gain: Array, corrected: Array) -> Array:
    """(m,): the gain where its sign is the decision, otherwise a little of the corrected gain: AUC stays the base's."""
    kept: Array = np.where((gain > 0) == (corrected > 0), gain, BEYOND * corrected)
    return kept


def _within(rates: Array, limits: RateLimits) -> bool:
    """Whether rates are as the limits allow; with a quota that has to be searched for."""
    if limits.quota is not None and np.isfinite(limits.quota).any():
        return False
    found = rates if limits.mix is None else rates @ limits.mix
    apart = np.ptp(found, axis=0) <= 2 * limits.half
    if limits.centre is None:
        return bool(apart.all())
    placed = (np.abs(found - np.nan_to_num(limits.centre)) <= limits.half).all(0)
    return bool(np.where(np.isnan(limits.centre), apart, placed).all())


class _Dual:
    """The dual function of free coordinates z of the multipliers, with slope and curvature.

    Corrections are ``columns @ price`` with (C, D) prices that are linear in z: the number of columns does not grow
    with the number of actions or rates.
    """

    def __init__(self, gain: Array, constraints: Constraints, limits: RateLimits) -> None:
        columns, events, change = constraints.merged
        (groups, _), constrained = constraints.b.shape, len(limits.half)
        self._shape, self.gain, self._weight = (groups, constrained), gain, constraints.weight
        self._mix = limits.mix
        mix = np.eye(constraints.b.shape[1]) if limits.mix is None else limits.mix
        centre = np.full(constrained, np.nan) if limits.centre is None else limits.centre
        self._half: Array = np.tile(limits.half, groups)
        self._worth: Array = np.broadcast_to(limits.worth, (groups, constrained)).ravel()
        self._patience: Array = self._worth * (PATIENCE / MOST_WORTH)
        self.basis = _free_directions(groups, np.isnan(centre))  # (G J, U)
        # (C D, U): what each coordinate does to prices
        by_rate = np.einsum("yk,ydk,ak,kj->yadj", events, change, 1 / constraints.sizes, mix)
        spread = np.einsum("yadj,ab->yadbj", by_rate, np.eye(groups))
        self._price = spread.reshape(-1, groups * constrained) @ self.basis
        b = constraints.b @ mix - np.nan_to_num(centre)
        self._b = b.ravel() @ self.basis
        self._columns, self._quotas = columns, np.zeros((gain.shape[1], 0))
        if limits.quota is not None and (held := np.flatnonzero(np.isfinite(limits.quota))).size:
            self._add_quota(limits.quota, held)

    def part(self, rows: NDArray[np.int64]) -> _Dual:
        """The same dual of some of the rows."""
        some = copy.copy(self)
        some.gain, some._columns, some._weight = self.gain[rows], self._columns[rows], self._weight[rows]
        some._weight = some._weight / some._weight.sum()
        return some

    def _add_quota(self, quota: Array, held: NDArray[np.int64]) -> None:
        """One more coordinate for each action whose share is held: every row pays the same for it."""
        actions, more = len(quota), np.eye(len(quota))[:, held]  # (D, H)
        self._columns = np.column_stack([self._columns, np.ones(len(self._columns))])
        old, free = self._price.shape
        self._price = np.block([[self._price, np.zeros((old, len(held)))], [np.zeros((actions, free)), more]])
        self._b = np.concatenate([self._b, -quota[held]])
        self.basis = np.concatenate([self.basis, np.zeros((len(self.basis), len(held)))], axis=1)
        self._quotas = np.concatenate([np.zeros((actions, free)), more], axis=1)

    def solution(self, z: Array, width: float) -> Multipliers:
        """The multipliers and the value of coordinates."""
        lam = (self.basis @ z).reshape(self._shape)
        quota = self._quotas @ z if self._quotas.size else np.zeros(len(self._quotas))
        value = self.value(z, self.gain / width + self.change(z, width), width)
        return Multipliers(lam if self._mix is None else lam @ self._mix.T, quota, value)

    def change(self, step: Array, width: float) -> Array:
        """(n, D): what a step of the coordinates adds to the gains in units of the width."""
        price = (self._price @ step).reshape(self._columns.shape[1], -1)
        change: Array = self._columns @ (price / -width)
        return change

    def value(self, z: Array, u: Array, width: float) -> float:
        """The smoothed dual, from z and its scaled gains u."""
        lam = self.basis @ z
        smooth = width * self._weight @ _log_of_sum(u)
        beyond = lam - np.clip(lam, -self._worth, self._worth)  # what accuracy is worth
        held = (np.square(beyond) / (2 * self._patience)).sum()
        return float(smooth - z @ self._b + self._half @ np.hypot(lam, KINK) + held)

    def slopes(self, z: Array, u: Array, width: float) -> tuple[Array, Array]:
        """Gradient and Hessian of the smoothed dual, from z and its scaled gains u."""
        soft = _shares(u)  # (n, L): the smoothed decision
        lam = self.basis @ z
        length, beyond = np.hypot(lam, KINK), lam - np.clip(lam, -self._worth, self._worth)
        pull = self._half * lam / length + beyond / self._patience
        mass = self._columns.T @ (self._weight[:, None] * soft[:, 1:])  # (C, D)
        gradient = pull @ self.basis - mass.ravel() @ self._price - self._b
        stiff = self._half * KINK**2 / length**3 + (beyond != 0) / self._patience
        hessian = self._price.T @ self._bend(soft, width) @ self._price + (self.basis.T * stiff) @ self.basis
        return gradient, hessian

    def _bend(self, soft: Array, width: float) -> Array:
        """(C D, C D): curvature in the prices, pair by pair of actions; rows far from their line are left out."""
        count, actions = self._columns.shape[1], soft.shape[1] - 1
        total = np.zeros((actions, actions, count, count))
        for first in range(actions + 1):
            for second in range(first + 1, actions + 1):
                bend = self._weight * soft[:, first] * soft[:, second] / width
                near = np.flatnonzero(bend > (NEGLIGIBLE if actions > 1 else 0.0))
                rows = self._columns[near]
                gram = (rows.T * bend[near]) @ rows
                total[second - 1, second - 1] += gram
                if first:
                    total[first - 1, first - 1] += gram
                    total[first - 1, second - 1] -= gram
                    total[second - 1, first - 1] -= gram
        return total.transpose(2, 0, 3, 1).reshape(count * actions, count * actions)


def _free_directions(groups: int, floating: NDArray[np.bool_]) -> Array:
    """(G J, U): orthonormal directions of multipliers, which add up to 0 over the groups where nothing is centred."""
    zero_sum = np.linalg.svd(np.ones((1, groups)))[2][1:].T
    if floating.all():
        basis: Array = np.kron(zero_sum, np.eye(len(floating)))
        return basis
    parts = []
    for j, adds_up in enumerate(floating):
        unit = np.eye(len(floating))[:, [j]]
        parts.append(np.kron(zero_sum if adds_up else np.eye(groups), unit))
    return np.concatenate(parts, axis=1)


def _log_of_sum(u: Array) -> Array:
    """(n,): log(1 + sum of exp(u))."""
    if u.shape[1] == 1:  # numpy's logaddexp takes up to twice as long
        size = np.abs(u[:, 0])
        return np.maximum(u[:, 0], 0.0) + np.log1p(np.exp(-np.minimum(size, FAR)))
    top = np.maximum(u.max(1), 0.0)
    return top + np.log(np.exp(-top) + np.exp(u - top[:, None]).sum(1))  # type: ignore[no-any-return]


def _shares(u: Array) -> Array:
    """(n, L): softmax of 0 and u."""
    if u.shape[1] == 1:
        second = 0.5 * (1 + np.tanh(u / 2))
        return np.concatenate([1 - second, second], axis=1)
    top = np.maximum(u.max(1, keepdims=True), 0.0)
    powers = np.concatenate([np.exp(-top), np.exp(u - top)], axis=1)
    shares: Array = powers / powers.sum(1, keepdims=True)
    return shares


def _newton(dual: _Dual, z: Array, width: float, precision: float = PRECISION) -> Array:
    """Damped Newton steps; where the curvature vanishes a little of it is added.

    Scaled gains are linear in z, so a shorter step costs no product with the columns.
    """
    u = dual.gain / width + dual.change(z, width)
    here = dual.value(z, u, width)
    for _ in range(MOST_STEPS):
        gradient, hessian = dual.slopes(z, u, width)
        if np.abs(gradient).max(initial=0.0) < precision:
            return z
        floor = 1e-9 * (1.0 + np.trace(hessian))
        step = -np.linalg.solve(hessian + floor * np.eye(len(z)), gradient)
        change = dual.change(step, width)
        length, promised = 1.0, float(gradient @ step)
        while (there := dual.value(z + length * step, u + length * change, width)) > (
            here + SUFFICIENT * length * promised
        ):
            length /= 2
            if length <= SMALLEST:
                return z  # as sharp as double precision sees
        z, u, here = z + length * step, u + length * change, there
    return z
