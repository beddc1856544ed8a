"""Public rows whose group sums the moments engine asks for: what may tell the groups apart, bounded by 1.

A row holds a constant, the row's features, a public representation of it and its score: a network's last hidden layer
and its logit, or what a model of the label says. They come in one block per label, or once, with the label as one more
column. Everything here is a function of features, labels and a public model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from justitia.networks.requirements import as_scores
from justitia.privacy.arrays import Floats, Index
from justitia.privacy.rows import index_chunks, placed_chunks
from justitia.training.remarks import silence_by_label

#: Standardised features are cut off here, so that one far outlier does not make everybody else's row small.
CUT = 3.0
#: Features, or hidden units, beyond this number are replaced by as many principal components.
MOST_FEATURES = 128
#: Rows from which means, scales and principal components are computed.
SAMPLE = 20_000
#: Share of rows that keep their length; longer ones are shortened to the bound.
KEPT = 0.8
#: Rows of one product of matrices, at most; those of fewer rows are filled up.
PLACES = 2048
#: What rows learn from a sample of theirs, and how many of them are computed at once.
_LEARNED = (
    "_chunk_rows",
    "_blocks",
    "_centre",
    "_spread",
    "_axes",
    "_hidden_axes",
    "_hidden_length",
    "_score_length",
    "_length",
)


class FrozenNetwork:
    """A copy of the network as it is now: its score, and what it computes before its last linear layer.

    A network that does not use exactly one linear layer with a single output exposes no representation.
    """

    def __init__(self, module: nn.Module, X: Tensor) -> None:
        self._X = X
        self.module = copy.deepcopy(module).eval()
        self._seen: list[Tensor] = []
        for part in self.module.modules():
            if isinstance(part, nn.Linear) and part.out_features == 1:
                part.register_forward_pre_hook(lambda _layer, inputs: self._seen.append(inputs[0].detach()))

    def of(self, X: Tensor) -> FrozenNetwork:
        """The same network, and other rows."""
        others = copy.copy(self)
        others._X = X
        return others

    def __call__(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """(m, width) representation of these rows, width 0 if there is none, and (m,) scores."""
        X = self._X[index]
        self._seen.clear()
        with torch.no_grad():
            scores = as_scores(self.module(X), len(X)).detach()
        exposed = len(self._seen) == 1 and self._seen[0].ndim == 2 and len(self._seen[0]) == len(X)
        return (self._seen[0] if exposed else scores.new_zeros(len(X), 0)), scores


class PublicRows:
    """Rows of norm at most 1 for everybody, computed a few at a time.

    Parameters
    ----------
    represent : callable
        From the positions of rows to an (m, width) representation and (m,) scores; public.
    X, y : Tensor
        Public features and labels.
    chunk_rows : int
        Rows computed at once; bounds memory.
    blocks : bool
        One block per label; otherwise the label is a column, for half as many sums and less noise.
    """

    def __init__(
        self,
        represent: Callable[[Tensor], tuple[Tensor, Tensor]],
        X: Tensor,
        y: Tensor,
        *,
        chunk_rows: int,
        blocks: bool = True,
    ) -> None:
        self._represent, self._blocks = represent, blocks
        self._X, self._y, self._chunk_rows = X, y, chunk_rows
        sample = torch.linspace(0, len(X) - 1, min(SAMPLE, len(X))).long()
        flat = X[sample].flatten(1).to(torch.float32)
        spread = flat.std(0, unbiased=False)
        self._centre, self._spread = flat.mean(0), torch.where(spread > 0, spread, torch.ones_like(spread))
        self._axes = _principal_axes(self._standardised(X[sample]), MOST_FEATURES)
        hidden, scores = represent(sample)
        self._hidden_axes = _principal_axes(hidden, MOST_FEATURES)
        self._hidden_length = hidden.norm(dim=1).mean().clamp_min(1e-6)
        self._score_length = CUT * scores.abs().mean().clamp_min(1e-6)
        self._length = torch.ones(())
        label = torch.zeros(()) if blocks else torch.ones(())  # its column is 1 or -1 before it is scaled
        self._length = torch.hypot(self._base(sample).norm(dim=1), label).quantile(KEPT)

    def of(self, represent: Callable[[Tensor], tuple[Tensor, Tensor]], X: Tensor, y: Tensor) -> PublicRows:
        """Other rows, standardised and bounded as these are."""
        others = copy.copy(self)
        others._represent, others._X, others._y = represent, X, y
        return others

    def numbers(self) -> dict[str, Tensor | bool | int | None]:
        """Everything that was learned from the rows: means, scales, axes and lengths."""
        return {name: getattr(self, name) for name in _LEARNED}

    @classmethod
    def from_numbers(cls, numbers: dict[str, Tensor | bool | int | None]) -> PublicRows:
        """No rows yet, and what :meth:`numbers` of others gave; :meth:`of` adds rows."""
        made = cls.__new__(cls)
        for name in _LEARNED:
            setattr(made, name, numbers[name])
        return made

    def __len__(self) -> int:
        return len(self._X)

    @property
    def places(self) -> int:
        """Rows of one product of matrices."""
        return min(self._chunk_rows, PLACES)

    @property
    def width(self) -> int:
        """Number of columns: those of a person once per label, or one more than those of a person."""
        each = self._base(torch.zeros(1, dtype=torch.long)).shape[1]
        return 2 * each if self._blocks else each + 1

    def constants(self) -> Tensor:
        """(width,): for each column, the position of the constant of its block."""
        block = self.width // 2 if self._blocks else self.width
        return torch.arange(self.width) // block * block

    def take(self, index: Tensor, label: float | None = None) -> Tensor:
        """(m, width): these rows, by their own labels or as if all had one label."""
        base = torch.nan_to_num(self._base(index), nan=0.0, posinf=0.0, neginf=0.0)  # a network may diverge
        positive = self._y[index, None].to(base.dtype)
        positive = positive if label is None else torch.full_like(positive, label)
        if not self._blocks:
            base = torch.cat([base, (2 * positive - 1) * base[:, :1]], dim=1)
        base = base / base.norm(dim=1, keepdim=True).clamp_min(1.0)
        return torch.cat([base * (1 - positive), base * positive], dim=1) if self._blocks else base

    def sizes(self, sums: Tensor, total: Tensor, n: int) -> Tensor:
        """(C, 2): about how many of n rows, by label, the sums are of; the total of all rows is public."""
        if self._blocks:
            constants = [0, self.width // 2]
            sizes, everybody = sums[:, constants], total[constants].sum()
        else:
            sizes = torch.stack([sums[:, 0] - sums[:, -1], sums[:, 0] + sums[:, -1]], dim=1) / 2
            everybody = total[0]
        counted: Tensor = sizes * n / everybody
        return counted

    def silence(self, answer: Tensor, total: Tensor, spread: float, n: int) -> Tensor:
        """(2, 2): by label, the share of "not given" and its noise, from sums with noise of this deviation."""
        one = torch.zeros_like(total)
        one[0] = 1.0  # what a sum of the constant is in rows
        unit, everybody = self.sizes(one[None], total, n).sum(), self.sizes(total[None], total, n)[0]
        return silence_by_label(self.sizes(answer, total, n), everybody, spread * float(unit))

    def dense(self) -> Iterator[tuple[Index, Floats]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        for part in index_chunks(len(self), self._chunk_rows):
            yield part, self.placed(int(part[0]), torch.from_numpy(part)).numpy()

    def placed(self, first: int, part: Tensor) -> Tensor:
        """(m, width): consecutive rows, of which the first has this position among those of everybody.

        To the last bit it does not matter which of the others are here (``placed_chunks``).
        """
        chunks = placed_chunks(first, len(part), self.places)
        return torch.cat([self.take(part[torch.from_numpy(who)])[places] for places, who in chunks])

    def _standardised(self, X: Tensor) -> Tensor:
        return ((X.flatten(1).to(torch.float32) - self._centre) / self._spread).clamp(-CUT, CUT)

    def _base(self, index: Tensor) -> Tensor:
        """(m, width / 2): constant, features, representation and score, each part of length about 1."""
        features = self._standardised(self._X[index])
        hidden, scores = self._represent(index)
        parts = [
            torch.ones(len(index), 1),
            (features if self._axes is None else features @ self._axes) / features.shape[1] ** 0.5,
            (hidden if self._hidden_axes is None else hidden @ self._hidden_axes) / self._hidden_length,
            (scores[:, None] / self._score_length).clamp(-1, 1),
        ]
        return torch.cat([part.to(torch.float32) for part in parts], dim=1) / self._length


def _principal_axes(standardised: Tensor, most: int) -> Tensor | None:
    """(p, most): directions in which the rows differ most; None if there are few enough features as it is."""
    if standardised.shape[1] <= most:
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # a public sketch; the same one whenever a run is resumed
        axes: Tensor = torch.pca_lowrank(standardised, q=min(most, len(standardised)), center=False)[2]
    return axes
