"""RaCO-DP: contrasts and dual ascent by hand, an exact Lagrangian gradient, and slack that bounds the gap."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from asking import asked, opened, with_plan
from bench.rivals.descent import soft_decisions
from bench.rivals.histogram import (
    HistogramClassifier,
    HistogramEngine,
    HistogramPlan,
    ascend_multipliers,
    contrasts,
)
from justitia import PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.networks.multilayer import multilayer
from justitia.privacy.vault import SensitiveVault
from justitia.training.lagrangian import Problem


def test_contrasts_by_hand_compare_a_group_with_all_others() -> None:
    # Others of the first group: 30 and 10 people, so 3/4 and 1/4 of their rate.
    matrix = contrasts(np.array([[60.0], [30.0], [10.0]]))
    expected = [[1, -0.75, -0.25], [-6 / 7, 1, -1 / 7], [-2 / 3, -1 / 3, 1]]
    assert np.allclose(matrix, [expected])


def test_contrasts_of_a_single_group_leave_its_gap_as_it_is() -> None:
    assert contrasts(np.array([[5.0, 3.0]])).tolist() == [[[1.0]], [[1.0]]]


def test_ascend_multipliers_by_hand_moves_up_beyond_the_slack_and_stays_at_or_above_zero() -> None:
    multipliers = np.array([[[0.0]], [[0.1]]])
    raised = ascend_multipliers(multipliers, np.array([[[-0.3]], [[0.3]]]), slack=0.1, step=0.5, radius=5.0)
    assert raised.flatten().tolist() == pytest.approx([0.0, 0.2])


def test_ascend_multipliers_outside_the_ball_are_scaled_back_to_it() -> None:
    raised = ascend_multipliers(np.array([[[3.0]], [[4.0]]]), np.zeros((2, 1, 1)), slack=0.0, step=1.0, radius=1.0)
    assert raised.flatten().tolist() == pytest.approx([0.6, 0.8])


def exact_engine(notion: str, labels: list[Any], X: Tensor, y: Tensor, *, hard: bool = False) -> HistogramEngine:
    problem = Problem(X.numpy(), y.numpy(), np.ones(len(y)), soft_decisions(notion, temperature=2.0))
    vault = SensitiveVault(labels, groups=("a", "b", "c"), ledger=PrivacyLedger(epsilon=math.inf, delta=0.0))
    decisions = "hard" if hard else "soft"
    plan = HistogramPlan(dual_step=0.7, slack=0.02, decisions=decisions).calibrate(math.inf, 1e-5, n=len(y))
    engine = HistogramEngine(plan, problem, vault, tolerance=0.0, seed=0)
    opened(engine)
    return engine


def gamma_of(engine: HistogramEngine, h: Tensor, labels: list[Any]) -> Tensor:
    """(G, K): rate of each group minus rate of the people of other groups, with the true groups."""
    events = engine.events.double()
    inside = torch.tensor([[label == group for group in "abc"] for label in labels]).double()
    others = inside.sum(1, keepdim=True) - inside

    def rates(members: Tensor) -> Tensor:
        return (members * h[:, None]).T @ events / (members.T @ events)

    return rates(inside) - rates(others)


def rows(missing: bool) -> tuple[Tensor, Tensor, list[Any], nn.Module]:
    data = make_synthetic(150, groups=("a", "b", "c"), n_features=3, random_state=1)
    labels = [None if missing and i % 5 == 0 else label for i, label in enumerate(data.sensitive)]
    torch.manual_seed(0)
    X, y = torch.tensor(data.X.to_numpy()).double(), torch.tensor(data.y.to_numpy()).double()
    return X, y, labels, multilayer(3, (4,)).double()


@pytest.mark.parametrize("missing", [False, True], ids=["all given", "some missing"])
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_noised_part_without_noise_is_the_gradient_of_the_lagrangian(notion: str, missing: bool) -> None:
    X, y, labels, module = rows(missing)
    engine = exact_engine(notion, labels, X, y)
    lam = np.zeros((3, engine.problem.events.shape[1]))
    for k in range(2):
        lam = engine.ascend(lam, asked(engine, module(X)[:, 0].detach().numpy()), k)
    engine.query_before(module, lam, 1)
    noisy = engine.constraint(module, lam, torch.arange(len(y)))
    assert noisy is not None
    gamma = gamma_of(engine, engine.problem.notion.h(module(X)[:, 0], y), labels)
    lagrangian = (torch.from_numpy(engine._multipliers) * torch.stack([-gamma, gamma])).sum()
    expected = parameters_to_vector(torch.autograd.grad(lagrangian, list(module.parameters())))
    assert torch.allclose(noisy, expected, atol=1e-8)
    assert float(expected.norm()) > 1e-3


@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_multipliers_after_one_step_are_those_of_the_true_rates(hard: bool) -> None:
    X, y, labels, module = rows(missing=True)
    engine = exact_engine("equalized_odds", labels, X, y, hard=hard)
    scores = module(X)[:, 0].detach()
    lam = engine.ascend(np.zeros((3, 2)), asked(engine, scores.numpy()), 0)
    gamma = gamma_of(engine, (scores > 0).double() if hard else torch.sigmoid(2 * scores), labels)
    expected = (0.7 * (torch.stack([-gamma, gamma]) - 0.02)).clamp_min(0)
    assert np.allclose(engine._multipliers, expected.numpy(), atol=1e-12)
    assert np.allclose(lam.sum(0), np.zeros(2), atol=1e-12)  # a common shift of all rates is free


# The classifier


def uneven(n_groups: int) -> tuple[Any, np.ndarray]:
    """Rates of decisions differ between groups, and so do errors: three in ten labels of the first are flipped."""
    data = make_synthetic(500, groups=("a", "b", "c")[:n_groups], disparity=0.6, n_features=2, random_state=0)
    flipped = (data.sensitive == "a").to_numpy() & (np.random.default_rng(0).random(500) < 0.3)
    return data, np.where(flipped, 1 - data.y, data.y)


def soft_gap(model: HistogramClassifier, data: Any, y: np.ndarray, notion: str) -> float:
    """Largest difference between a group's mean probability and that of the others, over all events."""
    chosen = soft_decisions(notion)
    target = torch.tensor(y).double()
    h = chosen.h(torch.from_numpy(model.decision_function(data.X)), target).numpy()
    members = [(data.sensitive == group).to_numpy() for group in data.groups]
    events = chosen.events(target.numpy()).T > 0
    return max(abs(h[event & one].mean() - h[event & ~one].mean()) for event in events for one in members)


def fitted(data: Any, y: np.ndarray, notion: str, **changes: Any) -> HistogramClassifier:
    usual: dict[str, Any] = {
        "epsilon": math.inf,
        "module": (4,),
        "private_steps": 40,
        "public_steps": 2,
        "warmup_steps": 60,
        "batch_size": 500,
        "learning_rate": 2e-2,
        "dual_step": 0.15,
        "memory": 0.0,
        "averaging": 0.1,
        "random_state": 0,
    }
    return with_plan(HistogramClassifier, HistogramPlan, notion=notion, groups=data.groups, **usual | changes).fit(
        data.X, y, sensitive_features=data.sensitive
    )


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "equal_opportunity", "accuracy_parity"])
def test_gap_without_noise_falls_as_slack_falls(notion: str, n_groups: int) -> None:
    data, y = uneven(n_groups)
    gaps = [soft_gap(fitted(data, y, notion, slack=slack), data, y, notion) for slack in (1.0, 0.1, 0.0)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.7 * gaps[0]


def test_slack_that_nothing_exceeds_leaves_all_multipliers_at_zero() -> None:
    data, y = uneven(2)
    model = fitted(data, y, "demographic_parity", slack=1.0, private_steps=3)
    assert (model.dual_.to_numpy() == 0).all()


def test_hard_histogram_and_a_temperature_change_the_model() -> None:
    data, y = uneven(2)
    models = [
        fitted(data, y, "demographic_parity", private_steps=5, **changes)
        for changes in ({}, {"decisions": "hard"}, {"temperature": 3.0})
    ]
    assert len({tuple(model.decision_function(data.X)) for model in models}) == 3


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"slack": -0.1}, "slack to be a finite number of at least 0"),
        ({"lambda_max": -1.0}, "lambda_max to be a finite number of at least 0"),
        ({"dual_step": 0.0}, "dual_step to be a finite number above 0"),
        ({"temperature": 0.0}, "temperature to be a finite number above 0"),
        ({"decisions": "harder"}, "did you mean 'hard'"),
    ],
)
def test_wrong_parameter_of_the_method_is_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    data = make_synthetic(50, random_state=0)
    with pytest.raises(ValueError, match=message):
        with_plan(HistogramClassifier, HistogramPlan, groups=data.groups, **parameters).fit(
            data.X, data.y, sensitive_features=data.sensitive
        )
