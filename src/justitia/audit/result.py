"""Result of an audit: lower bounds on epsilon, and the verdict on the certificate."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from justitia.audit.statistics import Evidence
from justitia.privacy.ledger import json_ready


@dataclass(frozen=True)
class AuditResult:
    """Lower bounds on epsilon that an attack proves, next to what the certificate says.

    Not private: an audit reads the attribute exactly. Publish it for public or synthetic people only.

    Attributes
    ----------
    binomial : float
        Bound that assumes nothing about the mechanism.
    gaussian : float or None
        Bound for releases that compose to a Gaussian; None in "one run", and where the vault got no noisy query.
    epsilon : float
        Of the certificate or, where a published analysis claims one in its place, of that claim.
    evidence : Evidence or None
        Outcomes; None for the attack in one run, whose ``guesses`` and ``right`` guesses are given instead.
    """

    attack: str
    engine: str
    canary: int | None
    groups: tuple[str, str]
    runs: int
    confidence: float
    audits: int
    epsilon: float
    delta: float
    binomial: float
    gaussian: float | None
    evidence: Evidence | None = None
    guesses: int = 0
    right: int = 0

    @property
    def lower(self) -> float:
        """The larger of the bounds."""
        return max(self.binomial, self.gaussian or 0.0)

    @property
    def exceeded(self) -> bool:
        """Whether the attack proves more than the certificate allows."""
        return self.lower > self.epsilon

    @property
    def verdict(self) -> str:
        """One sentence."""
        proven = f"the attack proves at least {_rounded_down(self.lower)}"
        level = f"{100 * self.confidence:.4g}% confidence"
        level += f", corrected for {self.audits} audits" if self.audits > 1 else ""
        if math.isinf(self.epsilon):
            return f"{proven}; there is no certificate to compare it with ({level})."
        judged = "the certificate is refuted" if self.exceeded else "no contradiction"
        return f"{proven}; the certificate says {self.epsilon:.2f}: {judged} ({level})."

    @property
    def table(self) -> pd.DataFrame:
        """One row: the person attacked, the outcomes and the bounds."""
        return pd.DataFrame([self._facts()])

    def _facts(self) -> dict[str, Any]:
        facts = {name: value for name, value in asdict(self).items() if name not in {"evidence", "groups"}}
        facts |= {"lower": self.lower, "exceeded": self.exceeded, "here": self.groups[0], "there": self.groups[1]}
        if self.evidence is not None:
            found = self.evidence
            facts |= {"tested": found.tested, "true_positives": found.true_positives}
            facts |= {"false_positives": found.false_positives, "guesses": 2 * found.tested, "right": found.right}
            facts |= {"tpr_low": found.tpr_low, "fpr_high": found.fpr_high, "mu_low": found.mu}
        return facts

    def to_json(self) -> str:
        """The result as JSON text, with the verdict."""
        return json.dumps({k: json_ready(v) for k, v in (self._facts() | {"verdict": self.verdict}).items()}, indent=2)

    def __str__(self) -> str:
        return self.verdict


def _rounded_down(epsilon: float) -> str:
    return f"{math.floor(epsilon * 100) / 100:.2f}" if math.isfinite(epsilon) else "infinity"
