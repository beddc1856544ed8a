"""Notions whose differentiable h is the score, or half score and half probability, for the repaired engine."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from justitia.notions import DemographicParity, EqualizedOdds, PositiveDecisions

#: Scores reach about this far, so that both halves of a mixture count alike.
REACH = 5.0


class _Score(PositiveDecisions):
    def h(self, scores: Tensor, y: Tensor) -> Tensor:
        """The score, in place of its probability."""
        return self.h_score(scores, y)


class _Mixture(PositiveDecisions):
    def h(self, scores: Tensor, y: Tensor) -> Tensor:
        """Half of the probability, and half of the score over its reach."""
        return (super().h(scores, y) + self.h_score(scores, y) / REACH) / 2


@dataclass(frozen=True)
class ScoreParity(_Score, DemographicParity):
    """Demographic parity of scores."""


@dataclass(frozen=True)
class ScoreOdds(_Score, EqualizedOdds):
    """Equalized odds of scores."""


@dataclass(frozen=True)
class MixedParity(_Mixture, DemographicParity):
    """Demographic parity of the mixture."""


@dataclass(frozen=True)
class MixedOdds(_Mixture, EqualizedOdds):
    """Equalized odds of the mixture."""


#: By reading and the name of the notion; "probability" is the library's own h.
READ_AS: dict[str, dict[str, type[PositiveDecisions]]] = {
    "probability": {"demographic_parity": DemographicParity, "equalized_odds": EqualizedOdds},
    "score": {"demographic_parity": ScoreParity, "equalized_odds": ScoreOdds},
    "mixture": {"demographic_parity": MixedParity, "equalized_odds": MixedOdds},
}
