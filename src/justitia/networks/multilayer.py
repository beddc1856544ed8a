"""Multilayer networks, as in the paper, sized by public numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def default_widths(n: int) -> tuple[int, int]:
    """Hidden widths for n rows: small networks on small data, since noise grows with the number of weights."""
    first = min(40, max(8, round(n**0.5 / 5)))
    return first, max(6, round(0.75 * first))


def multilayer(inputs: int, widths: Sequence[int]) -> nn.Sequential:
    """ReLU network with the given hidden widths and one score."""
    sizes = [inputs, *widths]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 1))


def widths_of(module: nn.Module) -> list[int] | None:
    """Layer sizes if the network is a multilayer one, which can be rebuilt from them; None for any other."""
    if type(module) is not nn.Sequential:
        return None
    linear = _linear_layers(module)
    sizes = [linear[0].in_features, *(layer.out_features for layer in linear)] if linear else [1]
    rebuilt = multilayer(sizes[0], sizes[1:-1])
    return sizes if str(rebuilt) == str(module) else None


def multilayer_of(layers: Sequence[tuple[Tensor, Tensor]]) -> nn.Sequential:
    """The multilayer network with these weights (out, in) and biases, first layer first."""
    sizes = [layers[0][0].shape[1], *(len(bias) for _, bias in layers)]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        network = multilayer(sizes[0], sizes[1:-1])
        for layer, (weight, bias) in zip(_linear_layers(network), layers, strict=True):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    return network.eval()


def _linear_layers(module: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in module if isinstance(layer, nn.Linear)]
