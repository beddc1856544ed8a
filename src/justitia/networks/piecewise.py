"""Numbers cut into pieces, and the default network for small samples where a constraint chooses rows by label."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from justitia.networks.multilayer import multilayer, multilayer_of

#: Pieces of a number: between its quartiles.
PIECES = 4


class PiecewiseEncoding(nn.Module):
    """Numbers cut at their quartiles: which part of each piece lies below the number, standardised.

    Piecewise linear encoding (Gorishniy et al. 2022). A feature with two values is one piece; a constant one has a
    piece that nothing enters.

    Parameters
    ----------
    X : Tensor (n, p)
        Public features, whose quartiles are the ends of the pieces.
    """

    column: Tensor
    low: Tensor
    high: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, X: Tensor) -> None:
        super().__init__()
        self.inputs = X.shape[1]
        column, low, high = zip(*((j, *pair) for j, feature in enumerate(X.T) for pair in _ends(feature)), strict=True)
        self.register_buffer("column", torch.tensor(column))
        self.register_buffer("low", torch.tensor(low, dtype=X.dtype))
        self.register_buffer("high", torch.tensor(high, dtype=X.dtype))
        below = self._below(X)
        self.register_buffer("mean", below.mean(0))
        self.register_buffer("spread", below.std(0, unbiased=False).clamp_min(1e-3))

    def __len__(self) -> int:
        return len(self.column)

    def forward(self, X: Tensor) -> Tensor:
        """(m, q) pieces."""
        return (self._below(X) - self.mean) / self.spread

    def _below(self, X: Tensor) -> Tensor:
        return ((X[:, self.column] - self.low) / (self.high - self.low)).clamp(0, 1)

    def hinges(self) -> tuple[Tensor, Tensor]:
        """Weights and biases of a layer of ReLUs: x - low and x - high of every piece."""
        select = F.one_hot(self.column, self.inputs).double()
        return torch.cat([select, select]), -torch.cat([self.low, self.high]).double()

    def of_hinges(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """A linear layer on the pieces as one on those ReLUs, of which the pieces are differences."""
        slope = weight.double() / ((self.high - self.low) * self.spread).double()
        return torch.cat([slope, -slope], 1), bias.double() - weight.double() @ (self.mean / self.spread).double()


class SmallSampleNetwork(nn.Module, ABC):
    """A network of ours that is trained as it is, and kept as the multilayer network that it is a way to write."""

    @abstractmethod
    def merged(self) -> nn.Sequential:
        """The same function as one multilayer network."""


class PiecewiseNetwork(SmallSampleNetwork):
    """A multilayer network, plus a sum of piecewise linear functions of each feature.

    A part that is linear in pieces beside the deep one (wide and deep, Cheng et al. 2016). A small sample
    determines little beyond the linear part, and a constraint met there holds for new rows as well.

    Parameters
    ----------
    X : Tensor (n, p)
        Public features.
    widths : sequence of int
        Hidden widths of the deep part, at least one.
    """

    def __init__(self, X: Tensor, widths: Sequence[int]) -> None:
        super().__init__()
        self.pieces = PiecewiseEncoding(X)
        self.linear = linear_at_zero(len(self.pieces))
        self.deep = multilayer(X.shape[1], widths)

    def forward(self, X: Tensor) -> Tensor:
        """(m,) scores."""
        scores: Tensor = self.linear(self.pieces(X)) + self.deep(X)
        return scores.squeeze(1)

    def merged(self) -> nn.Sequential:
        """The same function as one multilayer network.

        Beside the deep part, its first hidden layer holds the ends of the pieces; the linear part v of the score goes
        through the others as relu(v) and relu(-v).
        """
        first, *inner, last = (layer for layer in self.deep if isinstance(layer, nn.Linear))
        ends, v = self.pieces.hinges(), self.pieces.of_hinges(self.linear.weight, self.linear.bias)
        layers = [(torch.cat([first.weight.double(), ends[0]]), torch.cat([first.bias.double(), ends[1]]))]
        for layer in inner:
            both = torch.cat([v[0], -v[0]]), torch.cat([v[1], -v[1]])
            layers.append((torch.block_diag(layer.weight.double(), both[0]), torch.cat([layer.bias.double(), both[1]])))
            v = passed_on()
        layers.append((torch.cat([last.weight.double(), v[0]], 1), last.bias.double() + v[1]))
        return multilayer_of(layers)


def linear_at_zero(inputs: int) -> nn.Linear:
    """A linear layer that adds nothing before it is trained."""
    layer = nn.Linear(inputs, 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def passed_on() -> tuple[Tensor, Tensor]:
    """A number v from the layer before, which holds relu(v) and relu(-v): weight and bias."""
    return torch.tensor([[1.0, -1.0]], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)


def _ends(feature: Tensor) -> list[tuple[float, float]]:
    """Low and high end of each piece of a feature; a constant one has a piece that nothing enters."""
    ends = feature.quantile(torch.linspace(0, 1, PIECES + 1, dtype=feature.dtype)).unique().tolist()
    return list(pairwise(ends)) or [(ends[0], ends[0] + max(1.0, abs(ends[0])))]
