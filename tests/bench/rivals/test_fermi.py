"""DP-FERMI: Psi is the mutual information at the best W, its gradient is exact, and strength closes the gap."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from asking import asked, opened, with_plan
from bench.rivals.descent import soft_decisions
from bench.rivals.fermi import FermiClassifier, FermiEngine, FermiPlan, ascend_matrix, psi, slopes
from justitia import PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.networks.multilayer import multilayer
from justitia.privacy.vault import SensitiveVault
from justitia.training.lagrangian import Problem

# P(group, decision) of three groups: decision 0, decision 1.
JOINT = np.array([[0.30, 0.10], [0.05, 0.15], [0.10, 0.30]])


def small_problem(joint: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Rates, population and shares of one event; the population is everybody, those in no group included."""
    shares = joint.sum(1)
    decided = joint.sum(0) + (1 - joint.sum()) * np.array([0.4, 0.6])
    rates = joint[:, 1] / shares
    return torch.tensor(rates)[:, None], torch.tensor(decided[1:]), torch.tensor(shares)[:, None]


def best_matrix(rates: Tensor, population: Tensor, shares: Tensor) -> Tensor:
    """W at which the gradient of Psi vanishes: P(a, j) / (sqrt(P(a)) P(j))."""
    conditional = torch.stack([1 - rates, rates], -1) / torch.stack([1 - population, population], -1)
    return shares[..., None].sqrt() * conditional


def test_psi_at_the_best_matrix_is_the_exponential_renyi_mutual_information() -> None:
    direct = (JOINT**2 / (JOINT.sum(1, keepdims=True) * JOINT.sum(0, keepdims=True))).sum() - 1
    point = small_problem(JOINT)
    assert float(psi(best_matrix(*point), *point)) == pytest.approx(direct, abs=1e-12)
    assert direct > 0.1


def test_psi_at_any_other_matrix_is_smaller() -> None:
    point = small_problem(JOINT)
    best = best_matrix(*point)
    for seed in range(20):
        other = best + 0.1 * torch.randn(best.shape, dtype=best.dtype, generator=torch.Generator().manual_seed(seed))
        assert float(psi(other, *point)) < float(psi(best, *point))


def test_ascent_from_independence_reaches_the_best_matrix_inside_its_box() -> None:
    point = small_problem(JOINT)
    W = point[2].sqrt()[..., None].expand(-1, -1, 2)
    for _ in range(200):
        W = ascend_matrix(W, *point, step=0.5)
        assert bool((W >= 0).all())
        assert bool((point[2][..., None].rsqrt() >= W).all())
    assert torch.allclose(W, best_matrix(*point), atol=1e-9)


def test_psi_of_independent_decisions_is_zero_and_so_are_the_slopes() -> None:
    joint = np.outer([0.2, 0.5, 0.3], [0.6, 0.4])
    point = small_problem(joint)
    W = best_matrix(*point)
    by_rates, by_population = slopes(W, *point)
    assert float(psi(W, *point)) == pytest.approx(0.0, abs=1e-12)
    assert torch.allclose(by_rates, torch.zeros_like(by_rates), atol=1e-12)
    assert torch.allclose(by_population, torch.zeros_like(by_population), atol=1e-12)


def test_psi_with_missing_attributes_is_smallest_where_groups_decide_like_everybody() -> None:
    alike = small_problem(0.7 * np.outer([0.2, 0.5, 0.3], [0.4, 0.6]))
    other = small_problem(0.7 * JOINT)
    assert float(psi(best_matrix(*alike), *alike)) == pytest.approx(0.7 - 1, abs=1e-12)
    assert float(psi(best_matrix(*other), *other)) > 0.7 - 1 + 0.05


def test_psi_of_two_events_is_the_sum_of_each() -> None:
    first, second = small_problem(JOINT), small_problem(JOINT[::-1, ::-1].copy())
    both = tuple(torch.cat([one, two], dim=-1) for one, two in zip(first, second, strict=True))
    W = torch.cat([best_matrix(*first), best_matrix(*second)], dim=1)
    alone = psi(best_matrix(*first), *first) + psi(best_matrix(*second), *second)
    assert torch.allclose(psi(W, *both), alone)


# The gradient of the weights, without noise


def exact_engine(notion: str, labels: list[Any], X: Tensor, y: Tensor, strength: float) -> FermiEngine:
    problem = Problem(X.numpy(), y.numpy(), np.ones(len(y)), soft_decisions(notion))
    vault = SensitiveVault(labels, groups=("a", "b", "c"), ledger=PrivacyLedger(epsilon=math.inf, delta=0.0))
    plan = FermiPlan(dual_step=0.3, strength=strength).calibrate(math.inf, 1e-5, n=len(y))
    engine = FermiEngine(plan, problem, vault, tolerance=0.0, seed=0)
    opened(engine)
    return engine


def penalty(engine: FermiEngine, module: nn.Module, labels: list[Any], W: Tensor) -> Tensor:
    """Psi of the module's own soft decisions, with the true groups."""
    h = engine.problem.notion.h(module(engine.X)[:, 0], engine.y).double()
    events = engine.events.double()
    inside = torch.tensor([[label == group for group in "abc"] for label in labels]).double()
    sizes = inside.T @ events
    rates = (inside * h[:, None]).T @ events / sizes
    return psi(W, rates, (events * h[:, None]).sum(0) / events.sum(0), sizes / events.sum(0))


@pytest.mark.parametrize("missing", [False, True], ids=["all given", "some missing"])
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_noised_and_public_part_without_noise_are_the_gradient_of_psi(notion: str, missing: bool) -> None:
    data = make_synthetic(150, groups=("a", "b", "c"), n_features=3, random_state=1)
    labels = [None if missing and i % 5 == 0 else label for i, label in enumerate(data.sensitive)]
    X, y = torch.tensor(data.X.to_numpy()).double(), torch.tensor(data.y.to_numpy()).double()
    torch.manual_seed(0)
    module = multilayer(3, (4,)).double()
    nn.utils.vector_to_parameters(3 * parameters_to_vector(module.parameters()), module.parameters())  # far from 1/2
    engine = exact_engine(notion, labels, X, y, strength=3.0)
    everybody = torch.arange(len(y))
    lam = np.zeros((3, engine.problem.events.shape[1]))
    for k in range(3):  # W away from where it starts
        gap = asked(engine, module(X)[:, 0].detach().numpy())
        lam = engine.ascend(lam, gap, k)
    engine.query_before(module, lam, 1)
    weights, noisy = engine.row_weights(lam, everybody), engine.constraint(module, lam, everybody)
    assert weights is not None
    assert noisy is not None
    public = (weights * engine.problem.notion.h(module(X)[:, 0], y)).sum()
    parts = torch.autograd.grad(public, list(module.parameters()))
    assert engine._W is not None
    value = 3.0 * penalty(engine, module, labels, engine._W)
    expected = torch.autograd.grad(value, list(module.parameters()))
    assert torch.allclose(noisy + parameters_to_vector(parts), parameters_to_vector(expected), atol=1e-8)
    assert float(parameters_to_vector(expected).norm()) > 1e-2


# The classifier


def uneven(n_groups: int) -> tuple[Any, np.ndarray]:
    """Rates of decisions differ between groups, and so do errors: three in ten labels of the first are flipped."""
    data = make_synthetic(500, groups=("a", "b", "c")[:n_groups], disparity=0.6, n_features=2, random_state=0)
    flipped = (data.sensitive == "a").to_numpy() & (np.random.default_rng(0).random(500) < 0.3)
    return data, np.where(flipped, 1 - data.y, data.y)


def soft_gap(model: FermiClassifier, data: Any, y: np.ndarray, notion: str) -> float:
    """Largest difference between two groups' mean probabilities, over all events."""
    chosen = soft_decisions(notion)
    target = torch.tensor(y).double()
    h = chosen.h(torch.from_numpy(model.decision_function(data.X)), target).numpy()
    rates = [
        [h[(event > 0) & (data.sensitive == group).to_numpy()].mean() for group in data.groups]
        for event in chosen.events(target.numpy()).T
    ]
    return float(np.ptp(rates, axis=1).max())


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "equal_opportunity", "accuracy_parity"])
def test_gap_without_noise_falls_as_strength_rises(notion: str, n_groups: int) -> None:
    data, y = uneven(n_groups)
    gaps = []
    for strength in (0.0, 1.0, 10.0):
        model = with_plan(
            FermiClassifier,
            FermiPlan,
            notion=notion,
            epsilon=math.inf,
            strength=strength,
            groups=data.groups,
            module=(4,),
            private_steps=30,
            public_steps=2,
            warmup_steps=60,
            batch_size=500,
            learning_rate=2e-2,
            memory=0.0,
            averaging=0.1,
            random_state=0,
        )
        gaps.append(soft_gap(model.fit(data.X, y, sensitive_features=data.sensitive), data, y, notion))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.6 * gaps[0]


def test_strength_zero_gives_the_same_scores_whatever_the_attribute() -> None:
    data = make_synthetic(200, n_features=2, random_state=0)
    settings: dict[str, Any] = {"strength": 0.0, "private_steps": 3, "warmup_steps": 20, "module": (3,)}
    fits = [
        with_plan(FermiClassifier, FermiPlan, **settings, epsilon=1.0, groups=data.groups, random_state=0).fit(
            data.X, data.y, sensitive_features=labels
        )
        for labels in (data.sensitive, data.sensitive[::-1].to_numpy())
    ]
    assert np.array_equal(fits[0].decision_function(data.X), fits[1].decision_function(data.X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"strength": -1.0}, "strength to be a finite number of at least 0"),
        ({"dual_step": 0.0}, "dual_step to be a finite number above 0"),
    ],
)
def test_wrong_parameter_of_the_method_is_refused_by_name(parameters: dict[str, float], message: str) -> None:
    data = make_synthetic(50, random_state=0)
    with pytest.raises(ValueError, match=message):
        with_plan(FermiClassifier, FermiPlan, groups=data.groups, **parameters).fit(
            data.X, data.y, sensitive_features=data.sensitive
        )
