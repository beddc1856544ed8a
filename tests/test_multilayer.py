"""The networks we make ourselves: their sizes, pieces of numbers, and a piecewise network as a multilayer one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from justitia import LagrangianDualClassifier, MomentsPlan, tradeoff
from justitia.datasets import make_synthetic
from justitia.dual.features import FrozenNetwork
from justitia.multilayer import PiecewiseNetwork, default_widths, multilayer, ordinary, widths_of
from justitia.network import evaluate

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so

SHORT = MomentsPlan(warmup_steps=30, rounds=6, public_steps=3, checks=2)


@pytest.mark.parametrize(("n", "widths"), [(1, (8, 6)), (11_162, (21, 16)), (1_000_000, (40, 30))])
def test_default_widths_grow_with_the_rows(n: int, widths: tuple[int, int]) -> None:
    assert default_widths(n) == widths


def test_multilayer_without_hidden_layers_is_linear() -> None:
    assert str(multilayer(3, [])) == str(nn.Sequential(nn.Linear(3, 1)))


@pytest.mark.parametrize(
    ("module", "widths"),
    [
        (multilayer(3, [4, 2]), [3, 4, 2, 1]),
        (multilayer(3, []), [3, 1]),
        (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), None),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.1), nn.Linear(4, 1)), None),
        (nn.Linear(3, 1), None),
        (nn.Sequential(), None),
    ],
)
def test_widths_of_tells_the_default_kind_from_others(module: nn.Module, widths: Any) -> None:
    assert widths_of(module) == widths


FEATURES = {
    "numbers": lambda x: x,
    "two values": lambda x: (x > 0.7).to(x.dtype),
    "a rare value": lambda x: (x > 2.0).to(x.dtype),
    "constant": lambda x: torch.full_like(x, 0.3),
    "skewed": lambda x: (3 * x).exp(),
    "mostly zero": lambda x: x * (x > 1.5),
    "whole numbers": lambda x: x.round(),
    "far from zero": lambda x: 1000 + x,
}


def table(n: int = 300) -> Tensor:
    """One column of every kind."""
    draw = torch.Generator().manual_seed(0)
    return torch.stack([make(torch.randn(n, generator=draw)) for make in FEATURES.values()], dim=1)


def trained(X: Tensor, widths: Any = (5, 4)) -> PiecewiseNetwork:
    """A piecewise network with weights as after training."""
    torch.manual_seed(1)
    network = PiecewiseNetwork(X, widths)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network


@pytest.mark.parametrize("widths", [(5, 4), (3,), (4, 3, 2)], ids=str)
def test_merged_network_is_the_same_function_and_a_multilayer_one(widths: tuple[int, ...]) -> None:
    X = table()
    network = trained(X, widths)
    whole = ordinary(network)
    pieces = len(network.column)
    first, *others = widths
    assert widths_of(whole) == [X.shape[1], first + 2 * pieces, *(width + 2 for width in others), 1]
    new = torch.cat([X, X + torch.randn_like(X), 3 * X])  # outside of the range of training rows, too
    expected = network(new).detach()
    assert expected.std() > 0.1
    np.testing.assert_allclose(evaluate(whole, new), expected.numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [0.0, -3.0, 1e9])
def test_feature_that_is_constant_changes_no_score(value: float) -> None:
    X = torch.cat([table(50)[:, :1], torch.full((50, 1), value)], dim=1)
    network = trained(X)
    pieces = network._below(X)[:, network.column == 1]
    assert torch.equal(pieces, torch.zeros(50, 1))
    assert torch.isfinite(network(X)).all()


def test_ordinary_leaves_other_modules_and_the_random_state_alone() -> None:
    mine, network = nn.Linear(3, 1), trained(table())
    before = torch.get_rng_state()
    assert ordinary(mine) is mine
    ordinary(network)
    assert torch.equal(before, torch.get_rng_state())


def test_numbers_are_cut_at_their_quartiles_and_two_values_are_one_piece() -> None:
    X = table()
    network = PiecewiseNetwork(X, [4])
    number = network.column == 0
    assert number.sum() == 4
    torch.testing.assert_close(network.low[number], X[:, 0].quantile(torch.tensor([0.0, 0.25, 0.5, 0.75])))
    for name in ("two values", "a rare value", "constant"):
        assert (network.column == list(FEATURES).index(name)).sum() == 1
    assert (network.high > network.low).all()


def test_new_piecewise_network_starts_from_its_deep_part_alone() -> None:
    X = table()
    network = PiecewiseNetwork(X, [4])
    pieces = (network._below(X) - network.mean) / network.spread
    torch.testing.assert_close(network(X), network.deep(X).squeeze(1))
    assert float(pieces[:, network.column == 0].std(0, unbiased=False).sub(1).abs().max()) < 1e-4


def test_piecewise_network_exposes_no_representation() -> None:
    X = table()
    hidden, scores = FrozenNetwork(trained(X))(X)
    assert hidden.shape == (len(X), 0)
    torch.testing.assert_close(scores, trained(X)(X).detach())


def fitted(notion: str = "equalized_odds", module: Any = None) -> tuple[LagrangianDualClassifier, Any]:
    data = make_synthetic(400, random_state=0)
    model = LagrangianDualClassifier(
        notion, groups=data.groups, module=module, plan=SHORT, random_state=0, noise_seed=0
    )
    return model.fit(data.X, data.y, sensitive_features=data.sensitive), data


def test_default_model_of_few_people_is_saved_and_loaded_as_a_multilayer_network(tmp_path: Path) -> None:
    model, data = fitted()
    first, second = default_widths(400)
    sizes = widths_of(model.module_)
    assert sizes is not None
    assert sizes[1] > first
    assert sizes[2:] == [second + 2, 1]
    again = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.decision_function(data.X), model.decision_function(data.X))


@pytest.mark.parametrize(("notion", "module"), [("equalized_odds", [7, 5]), ("demographic_parity", None)])
def test_network_that_was_asked_for_or_reads_no_label_is_a_plain_one(notion: str, module: Any) -> None:
    model, data = fitted(notion, module)
    assert widths_of(model.module_) == [data.X.shape[1], *(module or default_widths(400)), 1]


def test_curve_of_few_people_has_multilayer_networks_that_agree_with_its_table() -> None:
    data = make_synthetic(400, random_state=0)
    model = LagrangianDualClassifier("accuracy_parity", groups=data.groups, plan=SHORT, random_state=0, noise_seed=0)
    curve = tradeoff(model, data.X, data.y, sensitive_features=data.sensitive, tolerances=[0.0, 0.1])
    for one, accuracy in zip(curve.models, curve.table["accuracy"], strict=True):
        assert widths_of(one.module_) is not None
        assert accuracy == pytest.approx(float(np.mean(one.predict(data.X) == data.y)))
