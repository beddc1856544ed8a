"""A post-processing run: how far its checks count, the tolerance in force, its state."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from run_setting import PLAN, released, setting

from justitia import PostProcessingPlan
from justitia.postprocessing.run import all_releases_stddev, sum_stddev
from justitia.postprocessing.solver import check_weight
from justitia.privacy.mechanisms import Gaussian
from justitia.training.lagrangian import centred_rows, row_bound

every_notion = pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])


# Checks


def test_weight_of_checks_follows_from_their_known_noise() -> None:
    variance, none = np.array([[0.0, 0.03**2, 0.09**2, 1e9]]), np.zeros((1, 4))
    assert check_weight(variance, none, 0.03)[0] == pytest.approx([1.0, 0.5, 0.1, 0.0], abs=1e-9)
    assert check_weight(variance, none, 0.0)[0] == pytest.approx([1.0, 0.0, 0.0, 0.0])


def test_weight_of_checks_counts_the_sampling_error_of_small_cells_without_noise() -> None:
    none = np.zeros((1, 2))
    cells_of_25_and_2500 = np.array([[0.25 / 25, 0.25 / 2500]])
    assert check_weight(none, cells_of_25_and_2500, 0.1)[0] == pytest.approx([0.5, 1 / 1.01])
    assert check_weight(cells_of_25_and_2500, none, 0.1) == pytest.approx(check_weight(none, cells_of_25_and_2500, 0.1))


def test_run_without_noise_trusts_a_check_less_where_the_cell_is_small() -> None:
    few, many = (setting(epsilon=math.inf, n=n) for n in (60, 6000))
    trusted = []
    for some in (few, many):
        released(some)
        some.run._check()
        shift = some.run._constraint(0).b - some.run._estimated().b - some.run._shift[0]
        trusted.append(float((shift / some.run._surprises[0][0]).mean()))
    assert trusted[0] < 0.8
    assert 0.98 < trusted[1] < 1


@every_notion
def test_check_without_noise_makes_the_estimate_of_its_decisions_exact(notion: str) -> None:
    some = setting(notion, epsilon=math.inf, plan=replace(PLAN, trust=100.0))
    released(some)
    scores = some.run.scores()
    before = some.run.gap(scores)
    some.run._check()
    after = some.run.gap(scores)
    decided = (scores > 0).astype(np.float32)
    h = some.problem.notion.h_exact(scores, some.problem.y).astype(np.float64)
    events = some.problem.events.astype(np.float64)
    population = (events * h[:, None]).sum(0) / events.sum(0)
    exact = some.exact_rates(decided) - population
    assert before is not None
    assert after is not None
    # sizes under memberships are exact up to the precision of their fit
    assert after == pytest.approx(exact, abs=3e-3)
    assert np.abs(after - exact).max() < np.abs(before - exact).max()


@every_notion
def test_check_moves_the_constraint_by_its_weight(notion: str) -> None:
    some = setting(notion, epsilon=2.0)
    run = some.run
    released(some)
    scores = run.scores()
    before, b = run.gap(scores), run._estimated().b.copy()
    run._check()
    h = some.problem.notion.h_exact(scores, some.problem.y)
    bound = row_bound(centred_rows(h, some.problem.events))
    noise = run.plan.noise_checks
    assert isinstance(noise, Gaussian)
    variance = (sum_stddev(noise, bound, 2) / run._sizes) ** 2
    share = PLAN.trust**2 / (PLAN.trust**2 + variance + run._sampling_variance())
    assert (share < 1).all()
    after, ((surprise,),) = run.gap(scores), run._surprises
    assert before is not None
    assert after is not None
    # rates of all rows and of the sample are the same here, up to the grid of sums
    assert (after - before) == pytest.approx(share * surprise, abs=1e-6)
    assert run._constraint(0).b - b == pytest.approx(share * surprise, abs=1e-6)


def test_two_checks_are_averaged_and_count_more_than_one() -> None:
    some = setting(epsilon=2.0)
    run = some.run
    released(some)
    moved = []
    for _ in range(2):
        run._check()
        shift = run._constraint(0).b - run._estimated().b - run._shift[0]
        moved.append(shift / np.mean(run._surprises, axis=0)[0])
    assert some.purposes() == ["moments", "decisions", "decisions"]
    assert (moved[1] > moved[0]).all()
    one, two = (_weight(run, np.mean(run._variances[:m], axis=0)[0] / m) for m in (1, 2))
    assert moved[0] == pytest.approx(one)
    assert moved[1] == pytest.approx(two)


def _weight(run: Any, noise: Any) -> Any:
    return check_weight(noise, run._sampling_variance(), PLAN.trust)


def test_check_of_decisions_that_are_all_alike_does_not_vouch_for_the_noise_of_others() -> None:
    """Its answer has no noise; that of the other check still has."""
    some = setting(epsilon=0.5)
    run = some.run
    released(some)
    run._check()
    run._levels = np.array([-1.0])  # every decision is positive
    run._check()
    assert not run._variances[1].any()
    weight = _weight(run, run._variances[0][0] / 4)
    assert (weight < 1).all()
    shift = run._constraint(0).b - run._estimated().b - run._shift[0]
    assert shift == pytest.approx(weight * np.mean(run._surprises, axis=0)[0])


def test_checks_bring_the_exact_gap_of_the_solution_towards_the_tolerance() -> None:
    """The memberships know two features of three; checks without noise show what they miss."""
    some = setting(epsilon=math.inf, n=4000)
    lam = released(some)
    gaps = []
    for _ in range(4):
        rates = some.exact_rates((some.run.scores() > 0).astype(np.float32))
        gaps.append(float(np.ptp(rates, axis=0).max()))
        some.run._check()
        lam = some.run._solve(lam)
    assert gaps[-1] < max(0.6 * gaps[0], 0.004)
    assert gaps[-1] < 0.01


# The tolerance in force


def test_tolerance_that_is_given_is_the_one_in_force() -> None:
    assert setting(tolerance=0.3).run.tolerance == 0.3


def test_tolerance_where_none_is_given_counts_sampling_and_noise_of_the_two_smallest_groups() -> None:
    some = setting(tolerance=None, epsilon=4.0, n_groups=3, plan=replace(PLAN, dead_zone=2.0, least=0.0))
    released(some)
    run = some.run
    rate = float((run.base_scores() > 0).mean())
    sizes = run._sizes[:, 0]
    moments, checks = run.plan.noise_moments, run.plan.noise_checks
    assert moments is not None
    assert checks is not None
    noise = all_releases_stddev(moments, checks, 2, (1.0, 1.0), 3)
    two = sorted((rate * (1 - rate) / size + (noise / size) ** 2 for size in sizes), reverse=True)[:2]
    assert run.tolerance == pytest.approx(2.0 * math.sqrt(sum(two)), rel=1e-5)


def test_tolerance_where_none_is_given_is_no_less_than_the_plan_says_and_no_more_than_one() -> None:
    exact = setting(tolerance=None, epsilon=math.inf, plan=replace(PLAN, least=0.4))
    noisy = setting(tolerance=None, epsilon=0.01)
    for some in (exact, noisy):
        some.run._release_moments()
        some.run._fit_memberships()
    assert exact.run.tolerance == 0.4
    assert noisy.run.tolerance == 1.0


def test_run_at_another_tolerance_shares_answers_and_queries_nothing() -> None:
    some = setting()
    some.run.train(lambda *_: _Bar())
    before = some.purposes()
    other = some.run.at(0.25)
    assert other.tolerance == 0.25
    other.train(lambda *_: _Bar())
    assert some.purposes() == before == ["moments", "decisions", "decisions"]
    gap = other.gap(other.scores())
    assert gap is not None
    assert float(gap.max() - gap.min()) <= 0.25 + 0.01
    assert some.run.tolerance == 0.0


class _Bar:
    """A progress bar that shows nothing."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def update(self, *_: Any) -> None: ...


# Warnings and limits


def test_solution_before_the_moments_is_refused_in_one_sentence() -> None:
    run = setting().run
    for query in (lambda: run._solve(np.zeros((2, 1))), run._multiplied, run.scores):
        with pytest.raises(ValueError, match="expected moments to have been released, got none") as caught:
            query()
        assert "\n" not in str(caught.value)
    assert run.gap(np.zeros(600)) is None
    assert run.diagnostics() == []


def test_preflight_warns_of_noise_that_drowns_groups_of_equal_sizes() -> None:
    assert setting().run.preflight() == []
    (sentence,) = setting(epsilon=0.02).run.preflight()
    assert "no smaller violation can be held" in sentence
    assert "\n" not in sentence


def test_diagnostics_speak_of_every_group_whose_rates_are_mostly_noise() -> None:
    some = setting(epsilon=0.2, n_groups=3)
    released(some)
    found = some.run.diagnostics()
    assert [any(f"'{name}'" in one for one in found) for name in "abc"] == [True, True, True]


@pytest.mark.parametrize("block_rows", [7, 100, 100_000])
@every_notion
def test_size_of_a_block_changes_no_bit_of_a_run(block_rows: int, notion: str) -> None:
    weight = np.linspace(0.5, 1.5, 600).astype(np.float32)
    one, other = setting(notion, weight=weight), setting(notion, weight=weight, block_rows=block_rows)
    histories = [some.run.train(lambda *_: _Bar()) for some in (one, other)]
    assert histories[0].history == histories[1].history
    assert np.array_equal(histories[0].lam, histories[1].lam)


# Its state


def test_state_of_a_run_with_another_base_is_refused_in_one_sentence() -> None:
    some, other = setting(), setting()
    some.run._release_moments()
    state = some.run._state()
    with pytest.raises(ValueError, match="expected the base that the checkpoint was begun with") as caught:
        other.run._restore(state | {"eta": np.flip(state["eta"], 0)}, lost=0)
    assert "\n" not in str(caught.value)
    assert other.run._answer is None
    other.run._restore(state | {"eta": state["eta"] + 1e-9}, lost=0)  # another machine's last digits


def test_lost_check_is_passed_over_and_the_next_is_queried() -> None:
    some, other = setting(), setting()
    released(some)
    other.run._restore(some.run._state(), lost=1)
    other.run._check()
    assert other.purposes() == []
    other.run._check()
    assert other.purposes() == ["decisions"]


def test_plan_without_checks_releases_moments_alone_and_gives_them_the_whole_budget() -> None:
    plan = PostProcessingPlan(checks=0, share_moments=1.0).calibrate(1.0, 1e-5, n=100)
    assert [(one.purpose, one.count) for one in plan.releases()] == [("moments", 1)]
    assert plan.epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(ValueError, match="expected share_moments below 1 where checks are to be paid for, got 1"):
        PostProcessingPlan(checks=1, share_moments=1.0)
