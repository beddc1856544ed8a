"""One question to the vault, kept: what was asked, how far each person moves the answer, and how it is asked again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from justitia.privacy.mechanisms import Noise
from justitia.privacy.rows import FactoredRows, TensorRows
from justitia.privacy.vault import SensitiveVault


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Public rows of one moment, in order, kept in the form they came in."""

    width: int
    parts: tuple[tuple[Tensor, FactoredRows], ...]

    def __len__(self) -> int:
        return sum(len(index) for index, _ in self.parts)

    def chunks(self) -> Iterator[tuple[Tensor, FactoredRows]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        yield from self.parts

    def lengths(self) -> Tensor:
        """(n,) norms, rounded up."""
        return torch.cat([rows.double().norm_bounds() for _, rows in self.parts])

    def row(self, person: int) -> Tensor:
        """(d,) the row of one person."""
        for part, rows in self.parts:
            here = part == person
            if bool(here.any()):
                return rows.double().weighted_sum(here.double())
        raise IndexError(f"expected a person below {len(self)}, got {person}.")

    @staticmethod
    def of(dense: Tensor) -> KeptRows:
        """Rows of a matrix."""
        return KeptRows(dense.shape[1], tuple(TensorRows(dense, len(dense)).chunks()))


@dataclass(frozen=True, eq=False)
class Question:
    """One question to the vault; ``weights`` is None for sums over each group, whose rows are ``values``."""

    rows: KeptRows
    values: Tensor | None
    weights: Tensor | None
    bound: float
    noise: Noise
    purpose: str

    def ask(self, vault: SensitiveVault) -> Tensor:
        """The noised answer, flat."""
        if self.weights is None and self.values is not None:
            return flat(vault.group_sums(self.values, bound=self.bound, noise=self.noise, purpose=self.purpose))
        if self.weights is None:
            raise ValueError(f"expected rows or weights of {self.purpose!r}, got neither; record the run again.")
        return vault.weighted_sum(self.rows, self.weights, bound=self.bound, noise=self.noise, purpose=self.purpose)

    def copied(self, copies: int) -> Question:
        """The same question about so many copies of the people, each of which has columns of its own."""
        dense = torch.stack([self.rows.row(person) for person in range(len(self.rows))])
        blocks = torch.block_diag(*[dense] * copies)
        values, weights = (blocks, None) if self.weights is None else (None, self.weights.repeat(copies, 1))
        return replace(self, rows=KeptRows.of(blocks), values=values, weights=weights)

    def split(self, answer: Tensor, copies: int) -> Tensor:
        """(copies, d) the answer for each of the copies."""
        return answer.view(-1, copies, self.rows.width // copies).transpose(0, 1).flatten(1)

    def movements(self, here: int, there: int) -> Tensor:
        """(n,) how far each person moves the answer by leaving one group for another."""
        lengths = self.rows.lengths()
        lengths = torch.where(torch.isfinite(lengths), lengths.clamp_max(self.bound), 0.0)
        if self.weights is None:
            return math.sqrt(2) * lengths
        return lengths * (self.weights[:, there] - self.weights[:, here]).abs().double()

    def movement(self, person: int, here: int, there: int, n_groups: int) -> Tensor:
        """The flat vector by which one person moves the answer of :meth:`ask`."""
        row = self.rows.row(person)
        row = (
            row * min(1.0, self.bound / max(float(row.norm()), 1e-300)) if bool(torch.isfinite(row).all()) else 0 * row
        )
        if self.weights is not None:
            return row * float(self.weights[person, there] - self.weights[person, here])
        blocks = torch.zeros(n_groups + 1, len(row), dtype=torch.float64)
        blocks[here] -= row
        blocks[there] += row
        return blocks.flatten()


def flat(sums: Tensor) -> Tensor:
    """Sums over groups as one vector, with the block of "not given", which is public then."""
    return torch.cat([sums, -sums.sum(0, keepdim=True)]).flatten()


def noise_scale(question: Question) -> float:
    """Standard deviation of the noise as claimed, from public numbers; infinite where nobody moves the answer."""
    spread = math.sqrt(2)
    if question.weights is not None:
        low, high = question.weights.double().aminmax(dim=1)
        spread = float((high - low).max())
    return float(getattr(question.noise, "noise_multiplier", 0.0)) * question.bound * spread or math.inf
