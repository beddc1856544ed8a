"""The closed form: constraints written out by hand, and a linear program that the dual has to agree with."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import expit

import justitia.postprocessing.dual as dual_module
from justitia.notions import NOTIONS, AccuracyParity, DemographicParity, EqualizedOdds, FairnessNotion, get_notion
from justitia.postprocessing.dual import (
    MOST_WORTH,
    PATIENCE,
    Constraints,
    constraints_of,
    decide,
    label_table,
    solve,
)

Array = NDArray[np.float64]
every_notion = pytest.mark.parametrize("notion", list(NOTIONS))
group_counts = pytest.mark.parametrize("groups", [2, 3, 5])


def population(groups: int, seed: int, n: int = 60) -> tuple[Array, Array, Array, Array]:
    """eta, p(a | x, 0), p(a | x, 1) and the weight of n atoms."""
    rng = np.random.default_rng([seed, groups])
    q0, q1 = rng.dirichlet(np.ones(groups), n), rng.dirichlet(np.ones(groups), n)
    return rng.uniform(size=n), q0, q1, rng.uniform(0.5, 2.0, n)


def gain_and_constraints(notion: str, groups: int, seed: int = 0, threshold: float = 0.5) -> tuple[Array, Constraints]:
    eta, q0, q1, weight = population(groups, seed)
    return 2 * (eta - threshold), constraints_of(get_notion(notion), eta, q0, q1, weight)


def linear_program(gain: Array, some: Constraints, tolerance: float) -> tuple[float, Array]:
    """Best value and decisions, between 0 and 1, such that no two groups differ by more than the tolerance."""
    groups, events = some.b.shape
    rows, limits = [], []
    for k in range(events):
        for a in range(groups):
            for other in range(groups):
                rows.append(some.weight * (some.c[:, a, k] - some.c[:, other, k]))
                limits.append(tolerance - some.b[a, k] + some.b[other, k])
    found = linprog(-some.weight * gain, A_ub=np.array(rows), b_ub=limits, bounds=(0, 1), method="highs")
    assert found.status == 0
    return -float(found.fun), found.x


def dual_value(gain: Array, some: Constraints, tolerance: float, lam: Array) -> float:
    reward = some.weight @ np.maximum(gain - some.correction(lam), 0.0)
    return float(reward - (lam * some.b).sum() + tolerance / 2 * np.abs(lam).sum())


# Exactness


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.1, 0.5])
@group_counts
@every_notion
def test_solution_is_the_optimum_of_the_linear_program(notion: str, groups: int, tolerance: float) -> None:
    gain, some = gain_and_constraints(notion, groups)
    lam = solve(gain, some, tolerance)
    best, decisions = linear_program(gain, some, tolerance)
    assert dual_value(gain, some, tolerance, lam) == pytest.approx(best, abs=1e-4)
    whole = (decisions < 1e-6) | (decisions > 1 - 1e-6)
    assert (~whole).sum() <= groups * some.b.shape[1]
    # an atom on the line is divided by the program and decided by a hair here
    decided = whole & (np.abs(gain - some.correction(lam)) > 5e-3)
    assert decided.mean() > 0.8
    assert np.array_equal(decide(gain, some, lam)[decided], decisions[decided].round())


@pytest.mark.parametrize("threshold", [0.2, 0.7])
def test_solution_is_the_optimum_for_other_thresholds_too(threshold: float) -> None:
    gain, some = gain_and_constraints("equalized_odds", 3, threshold=threshold)
    best, _ = linear_program(gain, some, 0.05)
    assert dual_value(gain, some, 0.05, solve(gain, some, 0.05)) == pytest.approx(best, abs=1e-4)


@every_notion
def test_rates_of_a_fine_population_differ_by_no_more_than_the_tolerance(notion: str) -> None:
    """With many atoms none counts for much, and decisions meet what the program allows."""
    eta, q0, q1, weight = population(3, seed=1, n=20_000)
    some = constraints_of(get_notion(notion), eta, q0, q1, weight)
    gain = 2 * eta - 1
    for tolerance in (0.0, 0.02):
        rates = some.rates(decide(gain, some, solve(gain, some, tolerance)))
        assert np.ptp(rates, axis=0).max() <= tolerance + 1e-3


@group_counts
@every_notion
def test_multipliers_of_an_event_add_up_to_zero(notion: str, groups: int) -> None:
    gain, some = gain_and_constraints(notion, groups)
    lam = solve(gain, some, 0.0)
    assert np.abs(lam).max() > 0.01
    assert lam.sum(0) == pytest.approx(np.zeros(some.b.shape[1]), abs=1e-9)


@every_notion
def test_multipliers_are_zero_where_the_best_decisions_meet_the_tolerance(notion: str) -> None:
    gain, some = gain_and_constraints(notion, 3)
    free = (gain > 0).astype(float)
    worst = float(np.ptp(some.rates(free), axis=0).max())
    assert not solve(gain, some, worst).any()
    assert np.array_equal(decide(gain, some, solve(gain, some, 1.0)), free)
    assert solve(gain, some, 0.9 * worst).any()


@every_notion
def test_start_from_a_problem_nearby_gives_the_same_solution(notion: str) -> None:
    gain, some = gain_and_constraints(notion, 3)
    near = solve(gain, replace(some, b=some.b + 0.01 * np.arange(3)[:, None]), 0.05)
    cold, warm = solve(gain, some, 0.02), solve(gain, some, 0.02, start=near)
    assert dual_value(gain, some, 0.02, warm) == pytest.approx(dual_value(gain, some, 0.02, cold), abs=1e-5)


def test_looser_tolerance_is_worth_no_less() -> None:
    gain, some = gain_and_constraints("equalized_odds", 3)
    values = [dual_value(gain, some, one, solve(gain, some, one)) for one in (0.0, 0.05, 0.1, 0.2, 0.5)]
    assert np.diff(values).min() >= -1e-6


# Constraints by hand, on two atoms of one and three thirds of the weight, and two groups


ETA, WEIGHT = np.array([0.2, 0.6]), np.array([1.0, 3.0])
Q0, Q1 = np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([[1.0, 0.0], [0.5, 0.5]])
#: p(a=first, y | x) of both atoms: q0 (1 - eta) and q1 eta.
FIRST = {0: np.array([0.4, 0.1]), 1: np.array([0.2, 0.3])}
SECOND = {0: np.array([0.4, 0.3]), 1: np.array([0.0, 0.3])}


@pytest.mark.parametrize("notion", NOTIONS)
def test_rates_that_no_rule_has_are_asked_for_with_multipliers_of_a_size(notion: str) -> None:
    gain, some = gain_and_constraints(notion, 3)
    lam = solve(gain, replace(some, b=some.b + np.array([[2.0], [0.0], [-2.0]])), 0.01)
    assert MOST_WORTH < np.abs(lam).max() < MOST_WORTH + 4 * PATIENCE


def mean(values: Array) -> float:
    return float(values[0] / 4 + 3 * values[1] / 4)


def test_demographic_parity_is_the_posterior_of_the_group_over_its_share() -> None:
    some = constraints_of(DemographicParity(), ETA, Q0, Q1, WEIGHT)
    for a, joint in enumerate((FIRST, SECOND)):
        posterior = joint[0] + joint[1]
        assert some.c[:, a, 0] == pytest.approx(posterior / mean(posterior))
    assert some.c[:, 0, 0] == pytest.approx([0.6 / 0.45, 0.4 / 0.45])
    assert not some.b.any()
    assert some.weight == pytest.approx([0.25, 0.75])


def test_equalized_odds_is_the_posterior_of_group_and_label_over_their_share() -> None:
    some = constraints_of(EqualizedOdds(), ETA, Q0, Q1, WEIGHT)
    for a, joint in enumerate((FIRST, SECOND)):
        for y in (0, 1):
            assert some.c[:, a, y] == pytest.approx(joint[y] / mean(joint[y]))
    assert some.c[:, 1, 1] == pytest.approx([0.0, 0.3 / 0.225])
    assert not some.b.any()


@pytest.mark.parametrize(("notion", "label"), [("equal_opportunity", 1), ("predictive_equality", 0)])
def test_halves_of_equalized_odds_are_its_columns(notion: str, label: int) -> None:
    both = constraints_of(EqualizedOdds(), ETA, Q0, Q1, WEIGHT)
    half = constraints_of(get_notion(notion), ETA, Q0, Q1, WEIGHT)
    assert half.c[:, :, 0] == pytest.approx(both.c[:, :, label])


def test_accuracy_parity_counts_an_error_where_decision_and_label_differ() -> None:
    some = constraints_of(AccuracyParity(), ETA, Q0, Q1, WEIGHT)
    for a, joint in enumerate((FIRST, SECOND)):
        share = mean(joint[0] + joint[1])
        assert some.c[:, a, 0] == pytest.approx((joint[0] - joint[1]) / share)
        assert some.b[a, 0] == pytest.approx(mean(joint[1]) / share)  # p(y = 1 | a): everybody is refused
    assert some.b[0, 0] == pytest.approx(0.275 / 0.45)


@every_notion
def test_rates_are_those_of_a_population_that_is_counted_row_by_row(notion: str) -> None:
    """Every atom divided into rows of one group and label each."""
    eta, q0, q1, weight = population(3, seed=4, n=7)
    made, kind = constraints_of(get_notion(notion), eta, q0, q1, weight), get_notion(notion)
    decisions = np.array([1.0, 0, 1, 1, 0, 0, 1])
    for a in range(3):
        above, below = np.zeros(made.b.shape[1]), np.zeros(made.b.shape[1])
        for i in range(7):
            for y, joint in ((0.0, q0[i, a] * (1 - eta[i])), (1.0, q1[i, a] * eta[i])):
                score, label = np.array([2 * decisions[i] - 1]), np.array([y])
                event = kind.events(label)[0] * weight[i] * joint
                above += event * kind.h_exact(score, label).item()
                below += event
        assert made.rates(decisions)[a] == pytest.approx(above / below)


def test_group_that_nobody_is_in_gives_finite_constraints() -> None:
    eta, _, _, weight = population(2, seed=0)
    nobody = np.column_stack([np.ones(60), np.zeros(60)])
    some = constraints_of(EqualizedOdds(), eta, nobody, nobody, weight)
    assert np.isfinite(some.c).all()
    assert np.isfinite(solve(2 * eta - 1, some, 0.0)).all()


# What a notion has to be


def test_table_of_labels_is_what_each_notion_averages() -> None:
    events, without, change = label_table(AccuracyParity())
    assert events.tolist() == [[1.0], [1.0]]
    assert without.tolist() == [0.0, 1.0]  # refused: wrong if the label is 1
    assert change.tolist() == [1.0, -1.0]
    events, without, change = label_table(EqualizedOdds())
    assert events.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert (without.tolist(), change.tolist()) == ([0.0, 0.0], [1.0, 1.0])


class Graded(FairnessNotion):
    """Averages how large a score is, which no decision tells."""

    name, event_names = "graded", ("all",)
    events = DemographicParity.events

    def h_exact(self, scores: Array, y: Array) -> Array:
        return np.asarray(expit(scores))


def test_notion_that_averages_more_than_decisions_is_refused_in_one_sentence(people: Any) -> None:
    with pytest.raises(ValueError, match="through its sign, got Graded; use engine 'moments'") as caught:
        label_table(Graded())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_start_from_a_part_of_the_rows_gives_the_same_decisions(notion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    eta, q0, q1, weight = population(8, seed=3, n=4000)
    gain, some = 2 * eta - 1, constraints_of(get_notion(notion), eta, q0, q1, weight)
    on_all_rows = decide(gain, some, solve(gain, some, 0.001))
    assert (on_all_rows != (gain > 0)).any()  # the constraint changes decisions
    parts: list[int] = []
    part = dual_module._Dual.part
    monkeypatch.setattr(dual_module._Dual, "part", lambda self, rows: parts.append(len(rows)) or part(self, rows))
    monkeypatch.setattr(dual_module, "ROUGH", 500)
    assert (decide(gain, some, solve(gain, some, 0.001)) == on_all_rows).all()
    assert parts == [500]
