"""Multilayer networks: their sizes, how they are told from others, and made of given weights."""

from typing import Any

import pytest
import torch
from torch import nn

from justitia.networks.multilayer import default_widths, multilayer, multilayer_of, widths_of


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


def test_multilayer_of_weights_is_that_network_and_leaves_the_random_state_alone() -> None:
    torch.manual_seed(0)
    network, X = multilayer(3, [4, 2]), torch.randn(5, 3)
    before = torch.get_rng_state()
    again = multilayer_of([(layer.weight, layer.bias) for layer in network if isinstance(layer, nn.Linear)])
    assert torch.equal(before, torch.get_rng_state())
    assert widths_of(again) == [3, 4, 2, 1]
    assert torch.equal(again(X), network(X))
