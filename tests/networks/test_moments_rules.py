"""The rules behind the moments engine's defaults: penalty, tolerance, pace, damping, and the average that is kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from moments_setting import PLAN, multipliers, setting, train
from torch import nn

from asking import asked
from justitia import LagrangianDualClassifier, MomentsPlan, PFLDAsPublishedPlan, PFLDPlan
from justitia.networks.crossfitted import CrossFittedNetwork
from justitia.networks.default import default_network
from justitia.networks.moments.engine import MomentsEngine
from justitia.networks.piecewise import PiecewiseNetwork
from justitia.networks.primal import PrimalSteps
from justitia.networks.run import NetworkRun
from justitia.notions import NOTIONS, DemographicParity, FairnessNotion, get_notion
from justitia.training.method import Rows

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so


# The penalty and the tolerance that are chosen where none is given


def test_penalty_falls_with_the_root_of_the_rows_and_gives_way_to_the_users() -> None:
    assert MomentsPlan().options_at(10_000, 50)["weight_decay"] == pytest.approx(0.005)
    assert MomentsPlan().options_at(10_000, 100)["weight_decay"] == pytest.approx(0.01)
    assert MomentsPlan(optimizer_options={"weight_decay": 0.1}).options_at(10_000, 99)["weight_decay"] == 0.1
    assert MomentsPlan(optimizer="Rprop").options_at(10_000, 9) == {}  # knows no penalty


def test_adam_is_fused_unless_the_users_options_rule_it_out() -> None:
    assert MomentsPlan().options_at(100, 2)["fused"] is True
    for options in ({"foreach": True}, {"fused": False}, {"differentiable": True}):
        made = MomentsPlan(optimizer_options=options)
        assert made.options_at(100, 2).get("fused", False) is False
        made.make_optimizer([torch.nn.Parameter(torch.zeros(2))], n=100, inputs=2)
    assert "fused" not in MomentsPlan(optimizer="RMSprop").options_at(100, 2)


@pytest.mark.parametrize(("tolerance", "factor"), [(None, 1.0), (0.0, 4.0), (0.03, 2.5), (0.06, 1.0), (0.5, 1.0)])
def test_penalty_grows_as_a_given_tolerance_gets_stricter(tolerance: float | None, factor: float) -> None:
    assert MomentsPlan(penalty=0.2).at_tolerance(tolerance).penalty_used == pytest.approx(0.2 * factor)
    model = LagrangianDualClassifier(
        groups=["a", "b"],
        engine="moments",
        plan=replace(PLAN, penalty=0.2),
        tolerance=tolerance,
        random_state=0,
        noise_seed=0,
    )
    some = setting()
    model.fit(some.problem.X, some.problem.y, sensitive_features=some.labels)
    assert model.plan_.penalty_used == pytest.approx(0.2 * factor)


def test_tolerance_where_none_is_given_is_three_standard_deviations_of_the_known_noise() -> None:
    some = setting(n=400)
    some.engine.query_before(some.module, np.zeros(1), 1)
    strict, loose = some.engine.at(0.0), some.engine.at(10.0)
    lam, gap = np.zeros((2, 1)), np.full((2, 1), 0.5)
    noise = some.engine._sum_noise / some.engine._sizes
    moved = {name: one.ascend(lam, gap, 1) for name, one in (("strict", strict), ("loose", loose))}
    assert np.allclose(moved["strict"], PLAN.dual_step_at(1) * gap)
    assert np.array_equal(moved["loose"], lam)
    given_none = MomentsEngine(some.engine.plan, some.problem, some.engine.vault, tolerance=None)
    given_none._use(np.pad(some.engine._q.numpy(), ((0, 0), (0, 1))))
    expected = PLAN.dual_step_at(1) * np.maximum(gap - 3 * noise, 0)
    assert np.allclose(given_none.ascend(lam, gap, 1), expected)
    assert (noise > 0).all()


def test_plan_of_a_follower_is_the_second_half_and_has_the_step_sizes_of_the_whole() -> None:
    whole = MomentsPlan(
        rounds=10, checks=2, learning_rate=1e-2, final_learning_rate=1e-4, dual_step=1.0, dual_decay=0.3
    )
    half = whole.following(0.04)
    assert (half.warmup_steps, half.rounds, half.tolerance) == (0, 5, 0.04)
    for k in range(1, 6):
        assert half.dual_step_at(k) == pytest.approx(whole.dual_step_at(5 + k))
        assert half.learning_rate_at(k / 5) == pytest.approx(whole.learning_rate_at((5 + k) / 10))
    assert MomentsPlan(rounds=1, checks=0).following(0.0).rounds == 1


# Damped multipliers, and which weights are kept


def test_last_gaps_beyond_the_tolerance_are_added_to_the_multipliers_of_primal_steps() -> None:
    some = setting("equalized_odds", plan=replace(PLAN, damping=0.5), tolerance=0.2)
    engine, lam, all_rows = some.engine, multipliers(some), torch.arange(60)
    engine.query_before(some.module, lam, 1)
    gap = np.array([[0.3, -0.05], [-0.2, 0.1]])
    by_hand = lam + 0.5 * np.array([[0.2, 0.0], [-0.1, 0.0]])
    expected = engine.row_weights(by_hand, all_rows)
    engine.ascend(lam, gap, 1)
    found = engine.row_weights(lam, all_rows)
    assert expected is not None
    assert found is not None
    assert torch.allclose(found, expected)


@pytest.mark.parametrize(("first", "pace"), [(0.4, 1.0), (0.05, 1.0), (0.025, 2.0), (0.001, 5.0), (0.0, 5.0)])
def test_small_first_gaps_set_a_faster_pace_for_steps_and_damping(first: float, pace: float) -> None:
    some = setting(plan=replace(PLAN, damping=0.5), tolerance=0.0)
    engine, all_rows, zero = some.engine, torch.arange(60), np.zeros((2, 1))
    engine.query_before(some.module, zero, 1)
    gap = np.array([[first], [-first / 2]])
    assert np.allclose(engine.ascend(zero, gap, 1), pace * PLAN.dual_step_at(1) * gap)
    assert np.allclose(engine.ascend(zero, 4 * gap, 2), pace * PLAN.dual_step_at(2) * 4 * gap)  # the first decides
    pushed = engine.row_weights(zero, all_rows)
    engine._last = None
    expected = engine.row_weights(pace * 0.5 * 4 * gap, all_rows)
    assert pushed is not None
    assert expected is not None
    assert torch.allclose(pushed, expected)


def test_a_resumed_engine_and_the_points_of_a_curve_keep_the_pace() -> None:
    some = setting(tolerance=0.0)
    engine, zero = some.engine, np.zeros((2, 1))
    engine.query_before(some.module, zero, 1)
    small = np.array([[0.025], [-0.025]])
    engine.ascend(zero, small, 1)
    other = setting(tolerance=0.0)
    other.engine.restore(engine.state(), lost=0)
    other.engine._use(np.pad(engine._q.numpy(), ((0, 0), (0, 1))))
    for one in (engine.at(0.0), other.engine):
        assert np.allclose(one.ascend(zero, 4 * small, 2), 2 * PLAN.dual_step_at(2) * 4 * small)


def test_damped_multipliers_stay_within_their_limit() -> None:
    some = setting(plan=replace(PLAN, damping=100.0, lambda_max=0.3))
    engine, all_rows = some.engine, torch.arange(60)
    engine.query_before(some.module, np.zeros(1), 1)
    limit = np.array([[0.3], [-0.3]])
    expected = engine.row_weights(limit, all_rows)
    lam = engine.ascend(np.zeros((2, 1)), np.array([[0.4], [-0.4]]), 1)
    found = engine.row_weights(lam, all_rows)
    assert expected is not None
    assert found is not None
    assert torch.allclose(found, expected)


@pytest.mark.parametrize(("excesses", "best"), [([0.3, 0.1, 0.2], 1), ([0.2, 0.0, 0.0], 2), ([0.1, 0.2, 0.3], 0)])
def test_result_is_the_average_nearest_to_the_tolerance_and_the_latest_of_equals(
    monkeypatch: pytest.MonkeyPatch, excesses: list[float], best: int
) -> None:
    some = setting(plan=replace(PLAN, candidates=3, averaging=0.5))
    original, averages, answers = NetworkRun._keep_better, [], iter(excesses)

    def noted(run: NetworkRun, primal: PrimalSteps, rows: Rows) -> None:
        averages.append(primal.average.clone())
        original(run, primal, rows)

    monkeypatch.setattr(MomentsEngine, "excess", lambda *_, **__: next(answers))
    monkeypatch.setattr(NetworkRun, "_keep_better", noted)
    train(some)
    assert len(averages) == 3
    assert torch.equal(nn.utils.parameters_to_vector(some.module.parameters()), averages[best])
    assert not torch.equal(averages[best], averages[best - 1])


def test_comparing_averages_does_not_disturb_the_run_itself() -> None:
    histories = [
        train(some).history for some in (setting(plan=replace(PLAN, candidates=candidates)) for candidates in (0, 4))
    ]
    assert histories[0] == histories[1]


def test_excess_is_the_largest_gap_beyond_tolerance_and_known_noise() -> None:
    some = setting(tolerance=0.1, epsilon=50.0, n=600)
    some.engine.query_before(some.module, np.zeros(1), 1)
    scores = some.problem.X[:, 1]  # what the groups differ in
    gap = asked(some.engine, scores)
    assert gap is not None
    beyond = (np.abs(gap) - 0.05 - some.engine._sum_noise / some.engine._sizes).max()
    assert float(beyond) > 0
    assert some.engine.excess(scores) == pytest.approx(float(beyond))
    assert some.engine.excess(np.full_like(scores, 3.0)) == 0.0


@pytest.mark.parametrize(
    ("n", "inputs", "few"), [(1, 1, True), (20_000, 128, True), (20_001, 10, False), (100, 129, False)]
)
def test_default_network_of_few_rows_follows_where_the_constraint_reads_labels(n: int, inputs: int, few: bool) -> None:
    special = {"demographic_parity": nn.Sequential, "accuracy_parity": CrossFittedNetwork}
    X = torch.zeros(n, inputs)
    for name in NOTIONS:
        notion = get_notion(name)
        expected = special.get(name, PiecewiseNetwork) if few else nn.Sequential
        assert type(default_network(notion, X, small_samples=MomentsPlan.small_samples)) is expected
        for plan in (PFLDPlan, PFLDAsPublishedPlan):
            assert type(default_network(notion, X, small_samples=plan.small_samples)) is nn.Sequential


def test_notion_of_the_users_own_gets_a_piecewise_network_unless_it_says_otherwise() -> None:
    class Mine(FairnessNotion):
        name, event_names = "mine", ("all",)
        events = DemographicParity.events
        h = DemographicParity.h
        h_exact = DemographicParity.h_exact

    assert isinstance(default_network(Mine(), torch.zeros(100, 3), small_samples=True), PiecewiseNetwork)
