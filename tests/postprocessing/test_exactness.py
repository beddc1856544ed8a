"""The dual against a generic linear program: every task and notion, with and without tolerance, 2 to 5 groups."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from justitia.notions import RateTable, get_notion
from justitia.postprocessing.dual import (
    Constraints,
    RateLimits,
    decide,
    minimise,
    minimise_fraction,
    minimise_ratio,
)

Array = NDArray[np.float64]
N = 50
group_counts = pytest.mark.parametrize("groups", [2, 3, 5])
tolerances = pytest.mark.parametrize("tolerance", [0.0, 0.03, 0.2])


def population(groups: int, labels: int, seed: int = 0, n: int = N) -> tuple[Array, Array, Array]:
    """p(y | x), p(a, y | x) and the weight of n atoms."""
    rng = np.random.default_rng([seed, groups, labels])
    p = rng.dirichlet(np.full(labels, 0.7), n)
    joint = p[:, :, None] * rng.dirichlet(np.full(groups, 0.7), (n, labels))
    joint = np.ascontiguousarray(joint.transpose(1, 0, 2))
    return p, joint, rng.uniform(0.5, 2.0, n)


class Program:
    """A linear program over probabilities (n, L) of actions, with more unknowns behind them."""

    def __init__(self, utility: Array, weight: Array, more: int = 0) -> None:
        self.n, self.actions, self.more = *utility.shape, more
        share = weight / weight.sum()
        self.share = share
        self.worth = np.concatenate([(share[:, None] * utility).ravel(), np.zeros(more)])
        self.below: list[tuple[Array, float]] = []
        self.equal = [(self.unit(i), 1.0) for i in range(self.n)]

    def unit(self, i: int) -> Array:
        row = np.zeros((self.n, self.actions))
        row[i] = 1.0
        return self.extended(row)

    def extended(self, row: Array, *more: float) -> Array:
        return np.concatenate([row.ravel(), more or np.zeros(self.more)])

    def rate(self, table: RateTable, joint: Array, a: int, k: int) -> Array:
        """(n, L): what an action adds to a group's rate; counted label by label."""
        total = np.zeros((self.n, self.actions))
        size = 0.0
        for y in range(len(joint)):
            mass = self.share * joint[y, :, a] * table.events[y, k]
            total += mass[:, None] * table.values[y, :, k]
            size += mass.sum()
        return total / size

    def solve(self) -> tuple[float, Array]:
        rows, limits = zip(*self.below, strict=True) if self.below else ((), ())
        found = linprog(
            -self.worth,
            A_ub=np.array(rows) if rows else None,
            b_ub=limits or None,
            A_eq=np.array([row for row, _ in self.equal]),
            b_eq=[limit for _, limit in self.equal],
            bounds=(0, 1),
            method="highs",
        )
        assert found.status == 0
        return -float(found.fun), found.x


def program_of(table: RateTable, utility: Array, joint: Array, weight: Array, tolerance: Array) -> Program:
    """No two groups differ by more than the tolerance of a rate."""
    program, groups = Program(utility, weight), joint.shape[2]
    for k in range(len(table.names)):
        rates = [program.rate(table, joint, a, k) for a in range(groups)]
        for one in range(groups):
            for other in range(groups):
                if one != other:
                    program.below.append((program.extended(rates[one] - rates[other]), float(tolerance[k])))
    return program


def agree(table: RateTable, utility: Array, joint: Array, weight: Array, tolerance: Array) -> None:
    """The value of the dual is that of the program, utilities of the first action apart."""
    some = Constraints.from_table(table, joint, weight)
    gain = utility[:, 1:] - utility[:, :1]
    found = minimise(gain, some, RateLimits.from_tolerance(tolerance, len(table.names)))
    best, _ = program_of(table, utility, joint, weight, tolerance).solve()
    assert found.value + some.weight @ utility[:, 0] == pytest.approx(best, abs=3e-4)
    assert sharp_value(gain, some, RateLimits.from_tolerance(tolerance, len(table.names)), found.lam) == pytest.approx(
        best - some.weight @ utility[:, 0], abs=1e-4
    )
    assert found.lam.sum(0) == pytest.approx(np.zeros(len(table.names)), abs=1e-8)


def sharp_value(gain: Array, some: Constraints, limits: RateLimits, lam: Array, quota: Array | float = 0.0) -> float:
    """The dual without smoothing."""
    t = some.correction(lam).reshape(len(gain), -1)
    reward = some.weight @ np.maximum((gain - t - quota).max(1), 0.0)
    held = 0.0 if limits.quota is None else float(np.nansum(np.asarray(quota) * limits.quota))
    centre = 0.0 if limits.centre is None else np.nan_to_num(limits.centre)
    return float(reward - (lam * (some.b - centre)).sum() + (limits.half * np.abs(lam)).sum() + held)


@tolerances
@group_counts
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "equal_opportunity", "accuracy_parity"])
@pytest.mark.parametrize("labels", [2, 3, 5])
def test_classes(notion: str, labels: int, groups: int, tolerance: float) -> None:
    # many rates of many groups leave few atoms nothing to choose, and multipliers are then held back
    p, joint, weight = population(groups, labels, n=6 * N if labels * groups > 12 else N)
    table = get_notion(notion).rates(range(labels))
    agree(table, p, joint, weight, np.full(len(table.names), tolerance))


@tolerances
def test_costs_of_errors(tolerance: float) -> None:
    p, joint, weight = population(3, 4)
    costs = np.random.default_rng(7).uniform(size=(4, 4)) * (1 - np.eye(4))
    table = get_notion("demographic_parity").rates(range(4))
    agree(table, -p @ costs, joint, weight, np.full(4, tolerance))


@group_counts
@pytest.mark.parametrize("labels", [2, 3])
def test_several_notions_each_with_its_tolerance(labels: int, groups: int) -> None:
    p, joint, weight = population(groups, labels)
    names = ("demographic_parity", "equal_opportunity", "accuracy_parity")
    tables = [get_notion(name).rates(range(labels)) for name in names]
    table = RateTable.joined(tables)
    tolerance = np.concatenate([np.full(len(t.names), tau) for t, tau in zip(tables, (0.05, 0.1, 0.02), strict=True)])
    agree(table, p, joint, weight, tolerance)


def stratified(joint: Array, stratum: NDArray[np.int64], count: int) -> Array:
    """(S Y, n, G): rows of a stratum have its labels only."""
    return np.concatenate([joint * (stratum == s)[:, None] for s in range(count)])


@tolerances
@group_counts
@pytest.mark.parametrize("labels", [2, 3])
def test_rates_within_public_strata(labels: int, groups: int, tolerance: float) -> None:
    p, joint, weight = population(groups, labels)
    stratum = np.arange(N) % 3
    table = get_notion("demographic_parity").rates(range(labels)).within(["low", "middle", "high"])
    agree(table, p, stratified(joint, stratum, 3), weight, np.full(len(table.names), tolerance))
    assert table.names[0] == ("low" if labels == 2 else "low: 0")


@pytest.mark.parametrize("labels", [2, 4])
@pytest.mark.parametrize("groups", [2, 4])
def test_quota_of_an_action(labels: int, groups: int) -> None:
    p, joint, weight = population(groups, labels)
    table = get_notion("demographic_parity").rates(range(labels))
    quota = np.full(labels - 1, np.nan)
    quota[0] = 0.2
    some, gain = Constraints.from_table(table, joint, weight), p[:, 1:] - p[:, :1]
    limits = RateLimits.from_tolerance(0.05, len(table.names), quota)
    found = minimise(gain, some, limits)
    program = program_of(table, p, joint, weight, np.full(len(table.names), 0.05))
    share = np.zeros(p.shape)
    share[:, 1] = program.share
    program.equal.append((program.extended(share), 0.2))
    best, _ = program.solve()
    value = sharp_value(gain, some, limits, found.lam, np.where(np.isnan(quota), 0.0, found.quota))
    assert value + some.weight @ p[:, 0] == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("ratio", [0.8, 0.5, 1.0])
@group_counts
def test_ratio_of_the_smallest_to_the_largest_rate(groups: int, ratio: float) -> None:
    p, joint, weight = population(groups, 2)
    table = get_notion("demographic_parity").rates()
    some, gain = Constraints.from_table(table, joint, weight), p[:, 1:] - p[:, :1]
    found = minimise_ratio(gain, some, RateLimits.from_tolerance(0.0, 1), ratio)
    program = Program(p, weight, more=1)  # the largest rate is one more unknown
    for a in range(groups):
        rate = program.rate(table, joint, a, 0)
        program.below.append((program.extended(rate, -1.0), 0.0))
        program.below.append((program.extended(-rate, ratio), 0.0))
    best, _ = program.solve()
    assert found.value + some.weight @ p[:, 0] == pytest.approx(best, abs=1e-3)


def test_ratio_that_the_best_decisions_have_costs_nothing() -> None:
    p, joint, weight = population(3, 2)
    table = get_notion("demographic_parity").rates()
    some, gain = Constraints.from_table(table, joint, weight), p[:, 1:] - p[:, :1]
    assert not minimise_ratio(gain, some, RateLimits.from_tolerance(0.0, 1), 0.01).lam.any()


def precision_table() -> RateTable:
    """Decisions that are right, and all positive decisions, among all rows."""
    values = np.zeros((2, 2, 2))
    values[1, 1, 0] = 1.0
    values[:, 1, 1] = 1.0
    return RateTable(np.ones((2, 2)), values, ("right", "positive"))


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
@group_counts
def test_predictive_parity(groups: int, tolerance: float) -> None:
    p, joint, weight = population(groups, 2, seed=3)
    table = precision_table()
    some, gain = Constraints.from_table(table, joint, weight), p[:, 1:] - p[:, :1]
    found, rho = minimise_fraction(gain, some, tolerance)

    def program_at(value: float) -> float:
        program = Program(p, weight)
        for a in range(groups):
            right, positive = (program.rate(table, joint, a, k) for k in (0, 1))
            program.below.append((program.extended(right - (value + tolerance / 2) * positive), 0.0))
            program.below.append((program.extended((value - tolerance / 2) * positive - right), 0.0))
        return program.solve()[0]

    best = max(program_at(float(value)) for value in np.linspace(0, 1, 101))
    here = program_at(rho)
    assert here >= best - 1e-3
    assert found.value + some.weight @ p[:, 0] == pytest.approx(here, abs=1e-3)


def rates_meet(make: Callable[[Array, Constraints], Array], table: RateTable, labels: int) -> Array:
    """(G, K): rates of the decisions of a fine population, where no atom counts for much."""
    p, joint, weight = population(3, labels, seed=5, n=20_000)
    some = Constraints.from_table(table, joint, weight)
    return make(p[:, 1:] - p[:, :1], some)


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_decisions_of_a_fine_population_meet_the_tolerance(notion: str) -> None:
    table = get_notion(notion).rates(range(4))
    for tolerance in (0.0, 0.02):

        def rates(gain: Array, some: Constraints, tolerance: float = tolerance) -> Array:
            found = minimise(gain, some, RateLimits.from_tolerance(tolerance, len(table.names)))
            return some.rates(decide(gain, some, found.lam))

        assert np.ptp(rates_meet(rates, table, 4), axis=0).max() <= tolerance + 2e-3


def test_ratio_and_quota_of_a_fine_population_are_met() -> None:
    table = get_notion("demographic_parity").rates()

    def rates(gain: Array, some: Constraints) -> Array:
        limits = RateLimits.from_tolerance(0.0, 1, np.array([0.3]))
        found = minimise_ratio(gain, some, limits, 0.8)
        decided = decide(gain, some, found.lam, found.quota)
        assert some.weight @ decided == pytest.approx(0.3, abs=2e-3)
        return some.rates(decided)

    found = rates_meet(rates, table, 2)
    assert found.min() >= 0.8 * found.max() - 2e-3


def test_predictive_parity_of_a_fine_population_is_met() -> None:
    table = precision_table()

    def rates(gain: Array, some: Constraints) -> Array:
        found, _ = minimise_fraction(gain, some, 0.02)
        return some.rates(decide(gain, some, found.lam))

    right, positive = rates_meet(rates, table, 2).T
    assert np.ptp(right / positive) <= 0.02 + 5e-3


def test_start_from_a_problem_nearby_gives_the_same_value() -> None:
    p, joint, weight = population(3, 4)
    table = get_notion("equalized_odds").rates(range(4))
    some, gain, limits = (
        Constraints.from_table(table, joint, weight),
        p[:, 1:] - p[:, :1],
        RateLimits.from_tolerance(0.03, 16),
    )
    cold = minimise(gain, some, limits)
    near = minimise(gain, replace(some, b=some.b + 0.01 * np.arange(3)[:, None]), limits)
    warm = minimise(gain, some, limits, near.lam)
    assert warm.value == pytest.approx(cold.value, abs=1e-5)
