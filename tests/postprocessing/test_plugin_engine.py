"""The engine: what checks say and how much of it is believed, the tolerance in force, its state."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plugin_setting import PLAN, Setting, asked, setting

from justitia import PostProcessingPlan
from justitia.postprocessing.solver import check_weight, gap_stddev, sum_stddev
from justitia.privacy.mechanisms import Gaussian
from justitia.training.lagrangian import Problem, centred_rows, row_bound

every_notion = pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])


def purposes(some: Setting) -> list[str]:
    return [release.purpose for release in some.ledger.releases]


# Checks


def test_checks_are_believed_by_their_known_noise() -> None:
    variance = np.array([[0.0, 0.03**2, 0.09**2, 1e9]])
    assert check_weight(0.03, variance)[0] == pytest.approx([1.0, 0.5, 0.1, 0.0], abs=1e-9)
    assert check_weight(0.0, variance)[0] == pytest.approx([1.0, 0.0, 0.0, 0.0])


@every_notion
def test_check_without_noise_makes_the_engine_right_about_the_decisions_asked_about(notion: str) -> None:
    some = setting(notion, epsilon=math.inf)
    scores = some.engine.scores(asked(some))
    before = some.engine.gap(scores)
    some.engine.ask_after(scores, 1)
    after = some.engine.gap(scores)
    decided = (scores > 0).astype(np.float32)
    h = some.problem.notion.h_exact(scores, some.problem.y).astype(np.float64)
    events = some.problem.events.astype(np.float64)
    population = (events * h[:, None]).sum(0) / events.sum(0)
    exact = some.exact_rates(decided) - population
    assert before is not None
    assert after is not None
    # sizes under memberships are exact up to the precision of their fit
    assert after == pytest.approx(exact, abs=2e-3)
    assert np.abs(after - exact).max() < np.abs(before - exact).max()


@every_notion
def test_what_a_check_says_moves_the_constraint_by_its_weight(notion: str) -> None:
    some = setting(notion, epsilon=2.0)
    engine = some.engine
    scores = engine.scores(asked(some))
    before, b = engine.gap(scores), engine._used().b.copy()
    engine.ask_after(scores, 1)
    h = some.problem.notion.h_exact(scores, some.problem.y)
    bound = row_bound(centred_rows(h, some.problem.events))
    noise = engine.plan.noise_checks
    assert isinstance(noise, Gaussian)
    variance = (sum_stddev(noise, bound, 2) / engine.sizes) ** 2
    share = PLAN.trust**2 / (PLAN.trust**2 + variance)
    assert (share < 1).all()
    after, (surprise,) = engine.gap(scores), engine._surprises
    assert before is not None
    assert after is not None
    assert (after - before) == pytest.approx(share * surprise)
    assert engine._corrected().b - b == pytest.approx(share * surprise)


def test_two_checks_are_averaged_and_believed_more_than_one() -> None:
    some = setting(epsilon=2.0)
    engine = some.engine
    lam = asked(some)
    moved = []
    for k in (1, 2):
        engine.ask_after(engine.scores(lam), k)
        shift = engine._corrected().b - engine._used().b
        moved.append(shift / np.mean(engine._surprises, axis=0))
    assert purposes(some) == ["moments", "decisions", "decisions"]
    assert (moved[1] > moved[0]).all()
    one, two = (check_weight(PLAN.trust, np.mean(engine._variances[:m], axis=0) / m) for m in (1, 2))
    assert moved[0] == pytest.approx(one)
    assert moved[1] == pytest.approx(two)


def test_check_of_decisions_that_are_all_alike_does_not_vouch_for_the_noise_of_others() -> None:
    """Its answer has no noise; that of the other check still has."""
    some = setting(epsilon=0.5)
    engine = some.engine
    engine.ask_after(engine.scores(asked(some)), 1)
    engine.ask_after(np.ones(len(some.problem)), 2)
    assert not engine._variances[1].any()
    weight = check_weight(PLAN.trust, engine._variances[0] / 4)
    assert (weight < 1).all()
    shift = engine._corrected().b - engine._used().b
    assert shift == pytest.approx(weight * np.mean(engine._surprises, axis=0))


def test_checks_bring_the_exact_gap_of_the_solution_towards_the_tolerance() -> None:
    """The memberships know two features of three; without noise the checks say what they miss."""
    some = setting(epsilon=math.inf, n=4000)
    lam = asked(some)
    gaps = []
    for k in range(4):
        scores = some.engine.scores(lam)
        rates = some.exact_rates((scores > 0).astype(np.float32))
        gaps.append(float(np.ptp(rates, axis=0).max()))
        some.engine.ask_after(scores, k + 1)
        lam = some.engine.solve(lam)
    assert gaps[-1] < max(0.6 * gaps[0], 0.004)
    assert gaps[-1] < 0.01


# The tolerance in force


def test_tolerance_that_is_given_is_the_one_in_force() -> None:
    assert setting(tolerance=0.3).engine.allowed() == 0.3


def test_tolerance_where_none_is_given_counts_sampling_and_noise_of_the_two_smallest_groups() -> None:
    some = setting(tolerance=None, epsilon=4.0, n_groups=3, plan=replace(PLAN, dead_zone=2.0, least=0.0))
    asked(some)
    engine = some.engine
    rate = float((engine.gain > 0).mean())
    sizes = engine.sizes[:, 0]
    noise = gap_stddev(engine.plan, 1.0, 3)
    two = sorted((rate * (1 - rate) / size + (noise / size) ** 2 for size in sizes), reverse=True)[:2]
    assert engine.allowed() == pytest.approx(2.0 * math.sqrt(sum(two)), rel=1e-5)


def test_tolerance_where_none_is_given_is_no_less_than_the_plan_says_and_no_more_than_one() -> None:
    many, few = setting(tolerance=None, epsilon=math.inf, n=4000), setting(tolerance=None, epsilon=0.01)
    many = replace(many, engine=setting(tolerance=None, epsilon=math.inf, plan=replace(PLAN, least=0.4)).engine)
    for some in (many, few):
        some.engine.ask_before(None, np.zeros((2, 1)), 0)
    assert many.engine.allowed() == 0.4
    assert few.engine.allowed() == 1.0


def test_follower_shares_answers_asks_nothing_and_has_its_own_tolerance() -> None:
    some = setting()
    lam = asked(some)
    follower = some.engine.at(0.25)
    assert follower.allowed() == 0.25
    follower.ask_after(follower.scores(lam), 1)
    assert purposes(some) == ["moments"]
    gap = follower.gap(follower.scores(follower.solve(lam)))
    assert gap is not None
    assert float(gap.max() - gap.min()) <= 0.25 + 0.01
    assert some.engine.allowed() == 0.0


# Its words and its limits


def test_solution_before_the_moments_is_refused_in_one_sentence() -> None:
    engine = setting().engine
    for ask in (lambda: engine.solve(np.zeros((2, 1))), lambda: engine.sizes, engine.multiplied):
        with pytest.raises(ValueError, match="expected moments to have been asked for, got none") as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert engine.gap(np.zeros(600)) is None
    assert engine.remarks() == []


def test_problem_without_eta_is_refused_in_one_sentence() -> None:
    some = setting()
    bare = Problem(some.problem.X, some.problem.y, some.problem.weight, some.problem.notion)
    with pytest.raises(ValueError, match="expected a problem with eta, got none; learn a base first"):
        some.engine.plan.engine(bare, some.engine.vault, tolerance=0.0, seed=0)


def test_outlook_warns_of_noise_that_drowns_groups_of_equal_sizes() -> None:
    assert setting().engine.outlook() == []
    (sentence,) = setting(epsilon=0.02).engine.outlook()
    assert "no smaller violation can be held" in sentence
    assert "\n" not in sentence


def test_remarks_speak_of_every_group_whose_rates_are_mostly_noise() -> None:
    some = setting(epsilon=0.2, n_groups=3)
    asked(some)
    told = some.engine.remarks()
    assert [any(f"'{name}'" in one for one in told) for name in "abc"] == [True, True, True]


@pytest.mark.parametrize("chunk", [7, 100_000])
def test_rows_held_at_once_do_not_change_the_answer(chunk: int) -> None:
    one, other = setting(), setting(plan=replace(PLAN, micro_batch=chunk))
    assert asked(one) == pytest.approx(asked(other), abs=1e-3)


# Its state


def test_state_of_a_run_with_another_base_is_refused_in_one_sentence() -> None:
    some, other = setting(), setting()
    some.engine.ask_before(None, np.zeros((2, 1)), 0)
    state: dict[str, Any] = some.engine.state()
    assert other.engine._weights is None
    with pytest.raises(ValueError, match="expected the base that the checkpoint was begun with") as caught:
        other.engine.restore(state | {"eta": np.flip(state["eta"], 0)}, lost=0)
    assert "\n" not in str(caught.value)
    other.engine.restore(state | {"eta": state["eta"] + 1e-9}, lost=0)  # another machine's last digits


def test_lost_check_is_passed_over_and_the_next_is_asked() -> None:
    some, other = setting(), setting()
    lam = asked(some)
    other.engine.restore(some.engine.state(), lost=1)
    scores = other.engine.scores(lam)
    other.engine.ask_after(scores, 1)
    assert purposes(other) == []
    other.engine.ask_after(scores, 2)
    assert purposes(other) == ["decisions"]


def test_plan_without_checks_asks_for_moments_alone_and_gives_them_the_whole_budget() -> None:
    plan = PostProcessingPlan(checks=0, share_moments=1.0).calibrate(1.0, 1e-5, n=100)
    assert [(one.purpose, one.count) for one in plan.releases()] == [("moments", 1)]
    assert plan.epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(ValueError, match="expected share_moments below 1 where checks are to be paid for, got 1"):
        PostProcessingPlan(checks=1, share_moments=1.0)
