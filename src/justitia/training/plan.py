"""Plans: public numbers that fix a training run and know what it costs before any data is read.

A plan is frozen. ``calibrate`` returns a new plan whose noise fits a budget; ``costs`` says what the ledger will hold
after ``fit``, and ``fit`` checks that it does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from justitia.privacy.accounting import Cost, epsilon_spent, gaussian_mu
from justitia.privacy.mechanisms import Gaussian, Mechanism

#: Tolerances below this are strict: a curve approaches them from looser ones.
STRICT_BELOW = 0.06
#: Relative room for the rounding of costs that are added up again.
ROUND_OFF = 1e-12
#: Said of a plan that does not know its price yet.
NO_NOISE = "This plan has no noise yet; call plan.calibrate(epsilon, delta, n=...) first."


def check_noise(name: str, noise: object) -> None:
    """Refuse what is no mechanism, and noise that the ledger cannot charge for."""
    if noise is None:
        return
    if not isinstance(noise, Mechanism):
        raise TypeError(
            f"expected {name} to be set by calibrate, got an object of type {type(noise).__name__!r}; leave it out."
        )
    try:
        noise.cost()
    except ValueError as error:
        found = str(error).rstrip(".")
        raise ValueError(
            f"expected {name} to be set by calibrate, got noise without a cost ({found}); leave it out."
        ) from None


def calibrated(noise: Mechanism | None) -> Mechanism:
    """The noise of a plan that has been calibrated."""
    if noise is None:
        raise ValueError(NO_NOISE)
    return noise


def budget_scale(epsilon: float, delta: float) -> float:
    """1 / mu of Gaussian releases that together cost (epsilon, delta); a hair more, for the rounding of their sum."""
    return (1 + ROUND_OFF) / gaussian_mu(epsilon, delta)


def moments_and_checks(scale: float, share: float, checks: int) -> tuple[Gaussian, Gaussian]:
    """Noise of a first release that gets a share of mu^2 = 1/scale^2, and of checks that divide the rest evenly."""
    first = share if checks else 1.0
    each = (1 - first) / checks if checks else 1.0
    return Gaussian(scale / math.sqrt(first)), Gaussian(scale / math.sqrt(each))


@dataclass(frozen=True)
class PlannedRelease:
    """One kind of query of a run, how often it is asked, and with which noise."""

    purpose: str
    noise: Mechanism
    count: int


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """Public numbers that fix a fit: its queries, how often each is asked, and what that costs."""

    #: Whether models of other tolerances can be made of the answers of one.
    shares_answers: ClassVar[bool] = False
    #: Whether the engine trains a network, by Algorithm 1.
    trains_network: ClassVar[bool] = False
    #: Rows whose columns are held in memory at once.
    micro_batch: int = 65_536

    @abstractmethod
    def releases(self) -> tuple[PlannedRelease, ...]:
        """Every query about A that this run will send to the vault."""

    @abstractmethod
    def calibrate(self, epsilon: float, delta: float, *, n: int) -> Self:
        """A new plan whose releases together cost at most (epsilon, delta)."""

    def costs(self) -> Counter[Cost]:
        """What the ledger will hold after ``fit``."""
        counts: Counter[Cost] = Counter()
        for release in self.releases():
            counts[release.noise.cost()] += release.count
        return counts

    def epsilon(self, delta: float) -> float:
        """What this plan costs."""
        return epsilon_spent(self.costs(), delta)

    def at_tolerance(self, tolerance: float | None) -> Self:  # noqa: ARG002 - plans of networks need it
        """The plan for a tolerance that was given; by default the same."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for reports and saved models."""
        return asdict(self)

    def following(self, tolerance: float) -> Self:
        """The plan of a model that is made of this one's answers, with another tolerance; it sends no query."""
        return self.at_tolerance(tolerance)
