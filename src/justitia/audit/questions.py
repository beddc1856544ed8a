"""One question to the vault, kept: what was asked, how far each person moves the answer, and how it is asked again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag

from justitia.privacy.arrays import Array, Floats, Index
from justitia.privacy.mechanisms import Noise
from justitia.privacy.rows import ArrayRows, FactoredRows
from justitia.privacy.vault import SensitiveVault


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Public rows of one moment, in order, kept in the form they came in."""

    width: int
    parts: tuple[tuple[Index, FactoredRows], ...]

    def __len__(self) -> int:
        return sum(len(index) for index, _ in self.parts)

    def chunks(self) -> Iterator[tuple[Index, FactoredRows]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        yield from self.parts

    def lengths(self) -> Floats:
        """(n,) norms, rounded up."""
        return np.concatenate([rows.double().norm_bounds() for _, rows in self.parts])

    def row(self, person: int) -> Floats:
        """(d,) the row of one person."""
        for part, rows in self.parts:
            here = part == person
            if here.any():
                return rows.double().weighted_sum(here.astype(np.float64))
        raise IndexError(f"expected a person below {len(self)}, got {person}.")

    @staticmethod
    def of(dense: Floats) -> KeptRows:
        """Rows of a matrix."""
        return KeptRows(dense.shape[1], tuple(ArrayRows(dense, len(dense)).chunks()))


@dataclass(frozen=True, eq=False)
class Question:
    """One question to the vault; ``weights`` is None for sums over each group, whose rows are ``values``."""

    rows: KeptRows
    values: Floats | None
    weights: Floats | None
    bound: float
    noise: Noise
    purpose: str

    def ask(self, vault: SensitiveVault) -> Array:
        """The noised answer, flat."""
        if self.weights is None and self.values is not None:
            return flat(vault.group_sums(self.values, bound=self.bound, noise=self.noise, purpose=self.purpose))
        if self.weights is None:
            raise ValueError(f"expected rows or weights of {self.purpose!r}, got neither; record the run again.")
        return vault.weighted_sum(self.rows, self.weights, bound=self.bound, noise=self.noise, purpose=self.purpose)

    def copied(self, copies: int) -> Question:
        """The same question about so many copies of the people, each of which has columns of its own."""
        dense = np.stack([self.rows.row(person) for person in range(len(self.rows))])
        blocks = block_diag(*[dense] * copies)
        values, weights = (blocks, None) if self.weights is None else (None, np.tile(self.weights, (copies, 1)))
        return replace(self, rows=KeptRows.of(blocks), values=values, weights=weights)

    def split(self, answer: Array, copies: int) -> Array:
        """(copies, d) the answer for each of the copies."""
        return answer.reshape(-1, copies, self.rows.width // copies).swapaxes(0, 1).reshape(copies, -1)

    def movements(self, here: int, there: int) -> Floats:
        """(n,) how far each person moves the answer by leaving one group for another."""
        lengths = self.rows.lengths()
        lengths = np.where(np.isfinite(lengths), np.minimum(lengths, self.bound), 0.0)
        moved = math.sqrt(2) if self.weights is None else np.abs(self.weights[:, there] - self.weights[:, here])
        movements: Floats = lengths * moved
        return movements

    def movement(self, person: int, here: int, there: int, n_groups: int) -> Floats:
        """The flat vector by which one person moves the answer of :meth:`ask`."""
        row = self.rows.row(person)
        if np.isfinite(row).all():
            row = row * min(1.0, self.bound / max(float(np.linalg.norm(row)), 1e-300))
        else:
            row = np.zeros_like(row)
        if self.weights is not None:
            return row * float(self.weights[person, there] - self.weights[person, here])
        blocks = np.zeros((n_groups + 1, len(row)))
        blocks[here] -= row
        blocks[there] += row
        return blocks.flatten()


def flat(sums: Array) -> Array:
    """Sums over groups as one vector, with the block of "not given", which is public then."""
    return np.concatenate([sums, -sums.sum(0, keepdims=True)]).ravel()


def noise_scale(question: Question) -> float:
    """Standard deviation of the noise as claimed, from public numbers; infinite where nobody moves the answer."""
    spread = math.sqrt(2)
    if question.weights is not None:
        spread = float(np.ptp(question.weights, axis=1).max())
    return float(getattr(question.noise, "noise_multiplier", 0.0)) * question.bound * spread or math.inf
