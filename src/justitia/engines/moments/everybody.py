"""Memberships of everybody: fitted on a public sample where there are too many rows, then corrected by a pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from justitia.engines.moments.memberships import expected_sums, fit_memberships, memberships
from justitia.privacy.rows import index_chunks

#: Rows that the memberships are fitted on, a public sample where there are more.
FIT_ROWS = 200_000
#: How often the sample's solution is then corrected by a pass over everybody.
CORRECTIONS = 1


class Everybody:
    """All rows, a few at a time.

    Parameters
    ----------
    columns : callable
        From the positions of rows to their public columns (m, d).
    n : int
        Number of rows.
    chunk_rows : int
        Rows computed at once; bounds memory.
    """

    def __init__(self, columns: Callable[[Tensor], Tensor], n: int, chunk_rows: int) -> None:
        self._columns, self._n, self._chunk_rows = columns, n, chunk_rows

    def fit(self, sums: Tensor, *, ridge: Tensor, start: Tensor | None = None) -> Tensor:
        """(C, d): weights of memberships that agree with the sums over everybody.

        What everybody's sums are at the sample's solution is computed once more, and the sample is asked for the
        difference: F of everybody is F of the sample plus a nearly linear function (as in variance reduction).
        """
        seen = self.sample()
        share = len(seen) / self._n
        if share == 1:
            return fit_memberships(seen, sums, ridge=ridge, start=start)
        sizes = sums[:, 0].clamp_min(0.0)
        equal = (sizes / sizes.sum().clamp_min(1e-12))[:, None]
        target = share * (sums - equal * sums.sum(0)) + equal * seen.sum(0, dtype=torch.float64)
        for _ in range(CORRECTIONS):
            start = fit_memberships(seen, target, ridge=share * ridge, start=start)
            target = share * (sums - self.expected(start)) + expected_sums(start, seen)
        return fit_memberships(seen, target, ridge=share * ridge, start=start)

    def sample(self) -> Tensor:
        """Columns of the rows that memberships are fitted on."""
        return self._columns(torch.arange(0, self._n, math.ceil(self._n / FIT_ROWS)))

    def expected(self, weights: Tensor) -> Tensor:
        """(C, d): what everybody's sums are under memberships of these weights."""
        return torch.stack([expected_sums(weights, part) for part in self._parts()]).sum(0)

    def memberships(self, weights: Tensor) -> Tensor:
        """(n, C): q of everybody."""
        return torch.cat([memberships(weights, part) for part in self._parts()])

    def _parts(self) -> Iterator[Tensor]:
        return (self._columns(torch.from_numpy(part)) for part in index_chunks(self._n, self._chunk_rows))
