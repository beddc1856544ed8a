"""One entry of a ledger."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from justitia.privacy.accounting import COST_KINDS, Cost, kind_of

#: What the sensitivity of a release can be about.
UNITS = ("row", "person")


@dataclass(frozen=True)
class Release:
    """One noised answer: what it was for, how much one row or person could move it, and what it cost.

    Parameters
    ----------
    unit : {"row", "person"}
        Whose attribute the sensitivity is about: that of one row, or of all rows of one person.
    """

    purpose: str
    cost: Cost
    sensitivity: float
    unit: str = "row"

    def __post_init__(self) -> None:
        if not self.sensitivity >= 0:
            raise ValueError(f"expected a sensitivity of at least 0, got {self.sensitivity!r}.")
        if self.unit not in UNITS:
            raise ValueError(f"expected unit to be 'row' or 'person', got {self.unit!r}.")

    @property
    def mechanism(self) -> str:
        """Name of the mechanism, as the certificate prints it."""
        return kind_of(self.cost)

    def to_json(self) -> str:
        """One line of the journal."""
        record = {"purpose": self.purpose, "mechanism": self.mechanism, "sensitivity": self.sensitivity}
        return json.dumps(record | {"unit": self.unit, "cost": asdict(self.cost)})

    @staticmethod
    def from_json(line: str) -> Release:
        """Inverse of :meth:`to_json`."""
        record = json.loads(line)
        cost = COST_KINDS[record["mechanism"]](**record["cost"])
        return Release(record["purpose"], cost, record["sensitivity"], record["unit"])
