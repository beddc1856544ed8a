"""Methods that ``justitia compare`` trains on the spot: the private ones, and the network that never asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from justitia.baselines import FermiClassifier, HistogramClassifier, MozannarClassifier, PlainClassifier
from justitia.cli.errors import Refusal
from justitia.cli.files.rows import Rows
from justitia.cli.training import unfitted
from justitia.estimator import LagrangianDualClassifier
from justitia.privacy.ledger import PrivacyLedger

#: Methods that read the attribute exactly (Zafar, Agarwal) are for Python, where their certificate is at hand.
METHODS = ("plain", "plugin", "moments", "gradients", "fermi", "histogram", "mozannar")


@dataclass(frozen=True)
class Recipe:
    """Public settings that all methods share."""

    notion: str
    epsilon: float
    delta: float
    seed: int | None = None

    def make(self, name: str, rows: Rows) -> Any:
        """An unfitted classifier."""
        groups = rows.attribute.groups
        if name == "plain":
            return PlainClassifier(random_state=self.seed)
        if name == "mozannar":
            return MozannarClassifier(self.notion, epsilon=self.epsilon, groups=groups, random_state=self.seed)
        if name in {"fermi", "histogram"}:
            kind = FermiClassifier if name == "fermi" else HistogramClassifier
            return kind(self.notion, epsilon=self.epsilon, delta=self.delta, groups=groups, random_state=self.seed)
        settings = {"notion": self.notion, "epsilon": self.epsilon, "delta": self.delta, "seed": self.seed}
        default = {"hidden": None, "plan_file": None, "base": None, "base_column": None, "threshold": 0.5}
        default |= {"small_groups": True}  # as in Python
        return unfitted(rows, settings | default | {"engine": name})

    def fit(self, name: str, rows: Rows, total: PrivacyLedger) -> Any:
        """A fitted classifier; what it spent is also on the ledger of all methods."""
        model = self.make(name, rows)
        own = PrivacyLedger(epsilon=self.epsilon, delta=self.delta)
        given: dict[str, Any] = {"sensitive_features": rows.sensitive, "ledger": own}
        if rows.person is not None and name != "plain":
            if not isinstance(model, LagrangianDualClassifier):
                raise Refusal(f"the method {name!r} protects rows, not people; leave out --person, or the method.")
            given["person"] = rows.person
        model.fit(rows.X, rows.y, **given)
        for release in own.releases:
            total.debit(release)
        return model
