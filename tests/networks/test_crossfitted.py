"""Default networks for small samples: pieces of numbers, scores of rows not seen, one network of it all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from moments_setting import said
from torch import Tensor, nn

from justitia import LagrangianDualClassifier, MomentsPlan, tradeoff
from justitia.datasets import make_synthetic
from justitia.networks.crossfitted import PARTS, CrossFittedNetwork
from justitia.networks.default import evaluate, ordinary
from justitia.networks.multilayer import default_widths, widths_of
from justitia.networks.piecewise import PiecewiseEncoding, PiecewiseNetwork, SmallSampleNetwork
from justitia.networks.requirements import trainable

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so

SHORT = MomentsPlan(warmup_steps=30, rounds=6, public_steps=3, checks=2)
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


def labels(n: int = 300) -> Tensor:
    return (torch.rand(n, generator=torch.Generator().manual_seed(1)) > 0.5).float()


def learnt(X: Tensor, y: Tensor, widths: Any = (5, 4), steps: int = 20) -> tuple[CrossFittedNetwork, Tensor]:
    network = CrossFittedNetwork(X, widths)
    return network, network.learn(X, y, torch.ones_like(y), steps=steps)


def trained(X: Tensor, widths: Any = (5, 4)) -> CrossFittedNetwork:
    """A network whose correction has weights as after training."""
    network, _ = learnt(X, labels(len(X)), widths)
    disturb(network)
    return network


def disturb(network: nn.Module) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


# ------------------------------------------------------------------ pieces


def test_numbers_are_cut_at_their_quartiles_and_two_values_are_one_piece() -> None:
    X = table()
    pieces = PiecewiseEncoding(X)
    number = pieces.column == 0
    assert number.sum() == 4
    torch.testing.assert_close(pieces.low[number], X[:, 0].quantile(torch.tensor([0.0, 0.25, 0.5, 0.75])))
    for name in ("two values", "a rare value", "constant"):
        assert (pieces.column == list(FEATURES).index(name)).sum() == 1
    assert (pieces.high > pieces.low).all()
    assert float(pieces(X)[:, number].std(0, unbiased=False).sub(1).abs().max()) < 1e-4


@pytest.mark.parametrize("value", [0.0, -3.0, 1e9])
def test_feature_that_is_constant_changes_no_score(value: float) -> None:
    X = torch.cat([table(50)[:, :1], torch.full((50, 1), value)], dim=1)
    network = trained(X)
    assert torch.equal(network.pieces(X)[:, network.pieces.column == 1], torch.zeros(50, 1))
    assert torch.isfinite(network(X)).all()


# ------------------------------------------------------------------ a piecewise linear part beside a deep one


@pytest.mark.parametrize("widths", [(5, 4), (3,), (4, 3, 2)], ids=str)
def test_merged_piecewise_network_is_the_same_function_and_a_multilayer_one(widths: tuple[int, ...]) -> None:
    X = table()
    network = PiecewiseNetwork(X, widths)
    disturb(network)
    first, *others = widths
    sizes = [X.shape[1], first + 2 * len(network.pieces), *(width + 2 for width in others), 1]
    assert widths_of(same_function(network, X)) == sizes


def test_new_piecewise_network_starts_from_its_deep_part_and_exposes_no_representation() -> None:
    X = table()
    network = PiecewiseNetwork(X, [4])
    torch.testing.assert_close(network(X), network.deep(X).squeeze(1))
    hidden, scores = said(network, X.numpy())
    assert hidden.shape == (len(X), 0)
    torch.testing.assert_close(torch.from_numpy(scores), network(X).detach())


# ------------------------------------------------------------------ scores of people not seen


def test_score_of_a_row_comes_from_a_network_that_has_not_seen_its_label() -> None:
    X, y = table(), labels()
    _, rows = learnt(X, y)
    for person in (0, 17, 299):
        other = y.clone()
        other[person] = 1 - other[person]
        _, changed = learnt(X, other)
        moved = (rows[:, -1] != changed[:, -1]).nonzero()[:, 0].tolist()
        assert person not in moved  # her own score is what it was
        assert len(moved) > 100  # and that of everybody whose network has seen her is not


def test_rows_keep_their_features_and_get_one_column() -> None:
    X = table()
    _, rows = learnt(X, labels())
    assert torch.equal(rows[:, :-1], X)
    assert rows.shape[1] == X.shape[1] + 1
    assert torch.isfinite(rows).all()


def test_networks_learn_the_same_whatever_the_global_seed_and_leave_it_alone() -> None:
    X, y = table(), labels()
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        network, before = CrossFittedNetwork(X, [4]), torch.get_rng_state()
        found.append(network.learn(X, y, torch.ones_like(y), steps=20))
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(*found)


def test_networks_learn_what_can_be_learnt_and_are_not_fooled_by_chance() -> None:
    X = table(2000)
    clear, chance = (X[:, 0] + X[:, 6] > 0).float(), labels(2000)
    for y, least, most in ((clear, 0.9, 1.0), (chance, 0.4, 0.6)):
        _, rows = learnt(X, y, steps=200)
        accuracy = float(((rows[:, -1] > 0) == (y > 0.5)).float().mean())
        assert least < accuracy <= most


def test_row_of_weight_zero_teaches_nothing() -> None:
    X, y = table(), labels()
    weight = torch.ones_like(y)
    weight[5] = 0
    other = y.clone()
    other[5] = 1 - other[5]
    found = [CrossFittedNetwork(X, [4]).learn(X, target, weight, steps=10) for target in (y, other)]
    assert torch.equal(*found)


@pytest.mark.parametrize("n", [1, 2, PARTS, 7])
@pytest.mark.parametrize("steps", [0, 3])
def test_very_few_rows_and_one_class_are_scored(n: int, steps: int) -> None:
    _, rows = learnt(table(n), torch.ones(n), steps=steps)
    assert rows.shape == (n, len(FEATURES) + 1)
    assert torch.isfinite(rows).all()


# ------------------------------------------------------------------ the correction


def test_new_network_is_the_mean_of_its_networks_and_only_its_correction_is_trained() -> None:
    X = table()
    network, rows = learnt(X, labels())
    each = network._each(network.pieces(X))
    assert each.shape == (PARTS, len(X))
    torch.testing.assert_close(network(X), each.mean(0))
    torch.testing.assert_close(network(rows), rows[:, -1])
    assert trainable(network) == list(network.linear.parameters())


def test_network_exposes_its_pieces_to_the_moments() -> None:
    X = table()
    network, rows = learnt(X, labels())
    hidden, scores = said(network, rows.numpy())
    torch.testing.assert_close(torch.from_numpy(hidden), torch.cat([network.pieces(X), rows[:, -1:]], 1))
    torch.testing.assert_close(torch.from_numpy(scores), network(rows).detach())


@pytest.mark.parametrize("widths", [(5, 4), (3,), (4, 3, 2)], ids=str)
def test_merged_network_is_the_same_function_and_a_multilayer_one(widths: tuple[int, ...]) -> None:
    X = table()
    network = trained(X, widths)
    whole = same_function(network, X)
    assert widths_of(whole) == [X.shape[1], 2 * len(network.pieces), *(PARTS * width + 2 for width in widths), 1]


def same_function(network: SmallSampleNetwork, X: Tensor) -> nn.Module:
    """The network as it is kept, after a look at its scores inside and outside of the range of training rows."""
    whole, new = ordinary(network), torch.cat([X, X + torch.randn_like(X), 3 * X])
    expected = network(new).detach()
    assert expected.std() > 0.1
    np.testing.assert_allclose(evaluate(whole, new), expected.numpy(), rtol=1e-3, atol=1e-3)
    return whole


def test_ordinary_leaves_other_modules_alone() -> None:
    mine = nn.Linear(3, 1)
    assert ordinary(mine) is mine


# ------------------------------------------------------------------ in a fit


def by_moments(notion: str, **changes: Any) -> LagrangianDualClassifier:
    return LagrangianDualClassifier(notion, engine="moments", random_state=0, noise_seed=0, **changes)


def fitted(notion: str, module: Any = None) -> tuple[LagrangianDualClassifier, Any]:
    data = make_synthetic(400, random_state=0)
    model = by_moments(notion, groups=data.groups, module=module, plan=SHORT)
    return model.fit(data.X, data.y, sensitive_features=data.sensitive), data


@pytest.mark.parametrize(("notion", "parts"), [("accuracy_parity", PARTS), ("equalized_odds", 1)])
def test_default_model_of_few_people_is_saved_and_loaded_as_a_multilayer_network(
    notion: str, parts: int, tmp_path: Path
) -> None:
    model, data = fitted(notion)
    sizes = widths_of(model.module_)
    assert sizes is not None
    assert sizes[-2:] == [parts * default_widths(400)[1] + 2, 1]
    again = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.decision_function(data.X), model.decision_function(data.X))


@pytest.mark.parametrize(("notion", "module"), [("accuracy_parity", [7, 5]), ("demographic_parity", None)])
def test_network_that_was_asked_for_or_reads_no_label_is_a_plain_one(notion: str, module: Any) -> None:
    model, data = fitted(notion, module)
    assert widths_of(model.module_) == [data.X.shape[1], *(module or default_widths(400)), 1]


def test_curve_of_few_people_has_multilayer_networks() -> None:
    data = make_synthetic(400, random_state=0)
    model = by_moments("accuracy_parity", groups=data.groups, plan=SHORT)
    curve = tradeoff(model, data.X, data.y, sensitive_features=data.sensitive, tolerances=[0.0, 0.1])
    sizes = [widths_of(one.module_) for one in curve.models]
    assert sizes[0] is not None
    assert sizes[0] == sizes[1]
    assert curve.table[["accuracy", "noisy_violation"]].notna().all(axis=None)


def test_curve_of_piecewise_networks_agrees_with_its_table() -> None:
    data = make_synthetic(400, random_state=0)
    model = by_moments("equalized_odds", groups=data.groups, plan=SHORT)
    curve = tradeoff(model, data.X, data.y, sensitive_features=data.sensitive, tolerances=[0.0, 0.1])
    for one, accuracy in zip(curve.models, curve.table["accuracy"], strict=True):
        assert accuracy == pytest.approx(float(np.mean(one.predict(data.X) == data.y)))


def test_curve_of_cross_fitted_networks_shows_the_accuracy_on_scores_of_people_not_seen() -> None:
    """Labels are coins: what networks learn of people they have seen is no use for the others."""
    data = make_synthetic(400, random_state=0)
    coins = np.random.default_rng(0).integers(0, 2, 400)
    plan = MomentsPlan(warmup_steps=300, rounds=6, public_steps=3, checks=2)
    model = by_moments("accuracy_parity", groups=data.groups, plan=plan)
    curve = tradeoff(model, data.X, coins, sensitive_features=data.sensitive, tolerances=[None])
    by_heart = float(np.mean(curve.models[0].predict(data.X) == coins))
    assert curve.table["accuracy"][0] < 0.6 < by_heart
