"""What a check is about and what it said, and which solution is kept where checking again made it worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.rows import DenseSource

Array = NDArray[np.float64]
#: Violations differ if they do by more than this and by so many standard deviations of the known noise.
SLACK, DEVIATIONS = 0.01, 3.0


@dataclass(frozen=True, eq=False)
class Seen:
    """Decisions at a check: centred public rows with their bound, means of the population, rates by the memberships."""

    rows: DenseSource
    bound: float
    means: Array
    rates: Array


@dataclass(frozen=True, eq=False)
class Checked:
    """Multipliers and what a check said of their decisions.

    Attributes
    ----------
    lam : ndarray (G, K)
    told : ndarray (G, K)
        Noised rates.
    variance : ndarray (G, K)
        Of their known noise.
    """

    lam: Array
    told: Array
    variance: Array

    @property
    def violation(self) -> float:
        """Largest noised difference between two groups."""
        return float(np.ptp(self.told, axis=0).max())

    @property
    def noise(self) -> float:
        """Standard deviation of the difference between the two least known groups."""
        return float(np.sort(self.variance, axis=0)[-2:].sum(0).max() ** 0.5)


def settled(checks: Sequence[Checked], allowed: float) -> int | None:
    """Which check to go back to; None where the last one shows no more than the best, or than is allowed.

    Each correction assumes that memberships are wrong about the next decisions as they were about the last ones. Where
    they know little of a group that need not be, and corrections may run away.
    """
    if not checks:
        return None
    best, last = int(np.argmin([one.violation for one in checks])), checks[-1]
    beyond = last.violation - max(allowed, checks[best].violation)
    return best if beyond > max(SLACK, DEVIATIONS * last.noise) else None
