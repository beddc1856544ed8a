"""The networks we make ourselves, sized by public numbers: multilayer ones, as in the paper, and one for few people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

#: Pieces of a number: between its quartiles.
PIECES = 4


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


class PiecewiseNetwork(nn.Module):
    """The default network for few people: a multilayer one, plus a sum of piecewise linear functions of each feature.

    Numbers are cut at their quartiles (piecewise linear encoding, Gorishniy et al. 2022), and the score has a part
    that is linear in the pieces beside the deep one (wide and deep, Cheng et al. 2016). Most of what few rows can teach
    is in the linear part, and what is met there is met for new people as well.

    Parameters
    ----------
    X : Tensor (n, p)
        Public features, whose quartiles are the ends of the pieces.
    widths : sequence of int
        Hidden widths of the deep part, at least one.
    """

    column: Tensor
    low: Tensor
    high: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, X: Tensor, widths: Sequence[int]) -> None:
        super().__init__()
        ends = [(j, *pair) for j, feature in enumerate(X.T) for pair in _ends(feature)]
        column, low, high = zip(*ends, strict=True)
        self.register_buffer("column", torch.tensor(column))
        self.register_buffer("low", torch.tensor(low, dtype=X.dtype))
        self.register_buffer("high", torch.tensor(high, dtype=X.dtype))
        pieces = self._below(X)
        self.register_buffer("mean", pieces.mean(0))
        self.register_buffer("spread", pieces.std(0, unbiased=False).clamp_min(1e-3))
        self.linear = nn.Linear(len(ends), 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.deep = multilayer(X.shape[1], widths)

    def forward(self, X: Tensor) -> Tensor:
        """(m,) scores."""
        scores: Tensor = self.linear((self._below(X) - self.mean) / self.spread) + self.deep(X)
        return scores.squeeze(1)

    def _below(self, X: Tensor) -> Tensor:
        """(m, q): which part of each piece lies below the number, 0 to 1."""
        return ((X[:, self.column] - self.low) / (self.high - self.low)).clamp(0, 1)

    def merged(self) -> nn.Sequential:
        """The same function as one multilayer network.

        Beside the deep part, its first hidden layer holds relu(x - end) for both ends of every piece, of which the
        pieces are differences; the linear part v of the score goes through the others as relu(v) and relu(-v).
        """
        first, *inner, last = _linear_layers(self.deep)
        select = nn.functional.one_hot(self.column, first.in_features).double()
        weight = self.linear.weight.double()
        slope = weight / ((self.high - self.low) * self.spread).double()
        to_v, v_at_0 = torch.cat([slope, -slope], 1), self.linear.bias - weight @ (self.mean / self.spread).double()
        signs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
        beside = (signs @ to_v, (signs * v_at_0).flatten())
        layers = [(torch.cat([first.weight, select, select]), torch.cat([first.bias, -self.low, -self.high]))]
        for layer in inner:
            layers.append((torch.block_diag(layer.weight.double(), beside[0]), torch.cat([layer.bias, beside[1]])))
            beside = (torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
            to_v, v_at_0 = signs.T, torch.zeros(1, dtype=torch.float64)
        layers.append((torch.cat([last.weight, to_v], 1), last.bias + v_at_0))
        whole = multilayer(first.in_features, [len(bias) for _, bias in layers[:-1]])
        with torch.no_grad():
            for layer, (weight, bias) in zip(_linear_layers(whole), layers, strict=True):
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
        return whole


def ordinary(module: nn.Module) -> nn.Module:
    """The network as it is kept: a piecewise one as the multilayer one that it is, any other as it is."""
    if not isinstance(module, PiecewiseNetwork):
        return module
    with torch.random.fork_rng(devices=[]):
        return module.merged().eval()


def _ends(feature: Tensor) -> list[tuple[float, float]]:
    """Low and high end of each piece of a feature; a constant one has a piece that nothing enters."""
    ends = feature.quantile(torch.linspace(0, 1, PIECES + 1, dtype=feature.dtype)).unique().tolist()
    return list(pairwise(ends)) or [(ends[0], ends[0] + max(1.0, abs(ends[0])))]


def _linear_layers(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
