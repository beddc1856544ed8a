"""The network for small samples where a constraint compares errors: cross-fitted scores, and a linear part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from justitia.networks.multilayer import multilayer_of
from justitia.networks.piecewise import PiecewiseEncoding, SmallSampleNetwork, linear_at_zero, passed_on

#: Networks side by side, each trained without a part of the rows.
PARTS = 5
#: Their steps: rows of one network, learning rate (it falls to 0), decay of the weights (AdamW).
BATCH, RATE, DECAY = 512, 4e-3, 1.0


class CrossFittedNetwork(SmallSampleNetwork):
    r"""Mean score of networks that learn from labels alone, plus a function that is linear in pieces of the features.

    .. math:: f(x) = s(x) + v(\text{pieces}(x), s(x)), \qquad s(x) = \frac{1}{5} \sum_k s_k(x)

    The networks :math:`s_k` are trained first, each without a fifth of the rows (:meth:`learn`). From then on only v is
    trained, and every row comes with the score of the network that has *not* learned from it, as one more column. A
    network makes fewer errors on rows that it has learned from, and not equally fewer in every group; here the errors
    that training compares are those on other rows, as all new rows are, and v has too few numbers to memorise rows.

    Parameters
    ----------
    X : Tensor (n, p)
        Public features.
    widths : sequence of int
        Hidden widths of each network, at least one.
    """

    def __init__(self, X: Tensor, widths: Sequence[int]) -> None:
        super().__init__()
        self.pieces = PiecewiseEncoding(X)
        self.linear = linear_at_zero(len(self.pieces) + 1)
        sizes = list(pairwise([len(self.pieces), *widths, 1]))
        self.weights = nn.ParameterList(_frozen(PARTS, a, b) for a, b in sizes)
        self.biases = nn.ParameterList(_frozen(PARTS, 1, b) for _, b in sizes)

    def forward(self, X: Tensor) -> Tensor:
        """(m,) scores of rows with p features, or with p + 1: then the last is s."""
        pieces, given = self.pieces(X), X[:, self.pieces.inputs :]
        s = given if given.shape[1] else self._each(pieces).mean(0)[:, None]
        scores: Tensor = s + self.linear(torch.cat([pieces, s], 1))
        return scores.squeeze(1)

    def _each(self, pieces: Tensor) -> Tensor:
        """(5, m): scores by each network, of the same rows (m, q) or of its own (5, m, q)."""
        hidden = pieces.expand(PARTS, *pieces.shape[-2:])
        *inner, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in inner:
            hidden = torch.baddbmm(bias, hidden, weight).relu()
        return torch.baddbmm(last[1], hidden, last[0]).squeeze(2)

    def learn(
        self, X: Tensor, y: Tensor, weight: Tensor, *, steps: int, progress: Callable[[int], object] = lambda _: None
    ) -> Tensor:
        """Train the networks on labels; (n, p + 1): the rows with their out-of-fold scores.

        Public, and the same whenever a run is resumed: first weights, parts and batches have a seed of their own.
        """
        draw = torch.Generator().manual_seed(0)
        pieces, part = self.pieces(X), torch.randperm(len(X), generator=draw) % PARTS
        # With a single row a network has nothing else to learn from.
        others = [rows if len(rows := (part != k).nonzero()[:, 0]) else torch.arange(len(X)) for k in range(PARTS)]
        trained = self._start(draw)
        optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=DECAY, fused=True)
        size = min(BATCH, len(X))
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
            batch = torch.stack([rows[torch.randint(len(rows), (size,), generator=draw)] for rows in others])
            scores = self._each(pieces[batch])
            loss = PARTS * F.binary_cross_entropy_with_logits(scores, y[batch], weight=weight[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress(1)
        for parameter in trained:
            parameter.requires_grad = False
        with torch.no_grad():
            held_out = self._each(pieces).gather(0, part[None])
        return torch.cat([X, held_out.T], 1)

    def _start(self, draw: torch.Generator) -> list[nn.Parameter]:
        """First weights, as torch's linear layers have them, ready to be trained."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            bound = weight.shape[1] ** -0.5
            for parameter in (weight, bias):
                parameter.uniform_(-bound, bound, generator=draw)
        return [parameter.requires_grad_() for parameter in (*self.weights, *self.biases)]

    def merged(self) -> nn.Sequential:
        """The same function of p features as one multilayer network.

        Its first layer holds the ends of all pieces, the others hold the networks side by side; what the pieces add to
        s goes along as relu(v) and relu(-v).
        """
        of_linear = self.linear.weight.detach()
        of_pieces, share = of_linear[:, :-1], (1 + float(of_linear[0, -1])) / PARTS
        (first, start), *inner, (last, end) = [
            (weight.transpose(1, 2), bias.flatten()) for weight, bias in zip(self.weights, self.biases, strict=True)
        ]
        weight, bias = (
            torch.cat([*first, of_pieces, -of_pieces]),
            torch.cat([start, self.linear.bias, -self.linear.bias]),
        )
        layers = [self.pieces.hinges(), self.pieces.of_hinges(weight, bias)]
        for each, offset in inner:
            layers.append((torch.block_diag(*each.double(), torch.eye(2).double()), F.pad(offset.double(), (0, 2))))
        v = passed_on()
        layers.append((torch.cat([*(share * last.double()), v[0]], 1), share * end.double().sum()[None] + v[1]))
        return multilayer_of(layers)


def _frozen(*shape: int) -> nn.Parameter:
    """Weights that only :meth:`CrossFittedNetwork.learn` trains."""
    return nn.Parameter(torch.zeros(shape), requires_grad=False)
