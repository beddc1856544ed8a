"""Privacy certificates: what is guaranteed about a run, in numbers and in sentences."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from importlib import import_module
from typing import Any

_PUBLIC = "(to any group, or to 'not given'); features, labels, group names and settings are public"
_KNOWN = (
    "(to any other listed group; missing='none': an entry that is missing or not listed counts as the first group); "
    "features, labels, group names and settings are public"
)
#: What one neighbour changes, by the unit that releases protect.
ADJACENCY = {
    "row": f"two datasets that differ in the attribute of one row {_PUBLIC}",
    "person": f"two datasets that differ in the attribute of one person, in all their rows {_PUBLIC}",
}
#: The same where missing="none": docs/proofs.md, section 1.2.
ADJACENCY_WITHOUT_MISSING = {unit: text.replace(_PUBLIC, _KNOWN) for unit, text in ADJACENCY.items()}
#: docs/guarantee.md explains these, word for word, and those below.
NOT_COVERED = (
    "what features and labels tell about the attribute",
    "attributes that change together",
    "running time and memory access",
    "choices made by looking at runs outside this ledger",
    "exact numbers by group that others compute",
)
#: Said where rows are not grouped by person: docs/proofs.md, section 1.1.
SEVERAL_ROWS = "several rows of one person taken together (person= changes that)"
#: Source of a list of groups that was not given.
INFERRED = "read off the data, the list is not protected"
#: A sum of costs may exceed the budget by this much, relative, and still count as equal to it: float round-off only.
ROUND_OFF = 1e-9


@dataclass(frozen=True)
class Certificate:
    """Privacy guarantee of one run, and what it is based on.

    ``epsilon`` is what is guaranteed: what was spent if all of it was fixed in advance, otherwise the budget of the
    ledger (``docs/proofs.md``, section 2.6). ``spent_epsilon`` is what the ledger recorded, an upper bound.
    ``reproduction`` is true where the noise was seeded, so that nothing is promised. ``claim`` is, for mechanisms whose
    published analysis does not establish the guarantee, what that analysis says; ``tolerance`` is the difference
    between two groups that training allowed, given or not; ``remarks`` are sentences about the training run, made from
    public and noised numbers. ``receipt`` names the state of the durable ledger that it was made from:
    :meth:`DurableLedger.verify <justitia.DurableLedger.verify>` checks whether a file still has it. ``custodian`` names
    who kept the attribute and that ledger, where that was not whoever trained.
    """

    epsilon: float
    delta: float
    budget_epsilon: float
    spent_epsilon: float
    statement: str
    accountant: str
    releases: tuple[Mapping[str, Any], ...]
    noise: str
    groups: tuple[str, ...]
    groups_source: str
    unit: str = "row"
    reproduction: bool = False
    claim: Mapping[str, Any] | None = None
    adjacency: str = ADJACENCY["row"]
    not_covered: tuple[str, ...] = (*NOT_COVERED, SEVERAL_ROWS)
    tolerance: float | None = None
    remarks: tuple[str, ...] = ()
    receipt: Mapping[str, Any] | None = None
    custodian: str = ""

    def __repr__(self) -> str:
        of = f"{sum(one['count'] for one in self.releases)} releases, {len(self.groups)} groups"
        return f"Certificate(epsilon={self.epsilon:.4g}, delta={self.delta:.4g}, {of})"

    def _repr_html_(self) -> str:
        """For notebooks: the guarantee, shares of the budget, and what it rests on."""
        form: str = import_module("justitia.report.notebook").certificate_form(self)
        return form

    def to_dict(self) -> dict[str, Any]:
        """Plain data; an infinite epsilon is the word ``"infinity"``, since JSON has no such number."""
        facts: dict[str, Any] = json_ready(asdict(self))
        return facts

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Certificate:
        """Inverse of :meth:`to_dict`."""
        kept: dict[str, Any] = {k: math.inf if v == "infinity" else v for k, v in facts.items()}
        for name in ("releases", "groups", "not_covered", "remarks"):
            kept[name] = tuple(kept.get(name, ()))
        return Certificate(**kept)

    def without_exact_remarks(self) -> Certificate:
        """Copy for files that others read; without a finite epsilon it has no remarks, which are then exact numbers."""
        return self if math.isfinite(self.epsilon) else replace(self, remarks=(), tolerance=None)

    def to_json(self) -> str:
        """The certificate as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        facts = {
            "neighbours": self.adjacency,
            "accountant": self.accountant,
            "noise": self.noise,
            "custodian": self.custodian,
            "groups": f"{', '.join(self.groups)} ({self.groups_source})",
            "releases": "; ".join(_release_text(entry) for entry in self.releases) or "none",
            "claim": "" if self.claim is None else f"as published, not established: {self.claim['statement']}",
            "tolerance": "" if self.tolerance is None else f"differences up to {self.tolerance:.3g} were allowed",
            "not covered": "; ".join(self.not_covered),
            "remarks": "; ".join(self.remarks),
        }
        first = textwrap.fill(self.statement, 96, break_on_hyphens=False)
        return "\n".join([first, *(_paragraph(name, text) for name, text in facts.items() if text)])


def _release_text(entry: Mapping[str, Any]) -> str:
    count, multiplier, epsilon = (entry[k] for k in ("count", "noise_multiplier", "epsilon"))
    scale = f", noise multiplier {multiplier:.4g}" if multiplier else f", epsilon {epsilon:.4g}" if epsilon else ""
    return f"{count} x {entry['purpose']} ({entry['mechanism']}{scale})"


def _paragraph(name: str, text: str) -> str:
    return textwrap.fill(
        text, 96, initial_indent=f"  {name + ':':<13}", subsequent_indent=" " * 15, break_on_hyphens=False
    )


def guarantee_statement(
    epsilon: float,
    delta: float,
    spent: float,
    *,
    fixed: bool,
    gaussian: bool,
    unit: str,
    subject: str,
    claimed: bool,
    reproduction: bool,
    groups_given: bool,
) -> str:
    """First sentences of a certificate: the guarantee, and before it whatever limits it.

    Parameters
    ----------
    fixed : bool
        Whether all releases were fixed in advance; otherwise only the budget of the ledger is guaranteed.
    gaussian : bool
        Whether all releases are Gaussian.
    claimed : bool
        Whether a published analysis claims a guarantee that it does not establish.
    """
    if math.isinf(epsilon):
        if math.isinf(spent):
            reason = "epsilon is infinite"
        elif fixed:
            reason = f"epsilon {spent:.4g} is more than noise as it is drawn can keep"
        else:
            reason = "several runs share a ledger that has no finite budget"
        published = " The published analysis does not establish a guarantee." if claimed else ""
        return f"No privacy guarantee: {reason}.{published}"
    shown = f"({rounded_up(epsilon)}, {rounded_up(delta)})-differentially private"
    private = f"{shown} in the sensitive attribute of any one {unit}."
    if not fixed:
        subject = f"{subject}, with all else on its ledger,"
        private += f" That is the ledger's budget, of which {rounded_up(spent)} is spent"
        if gaussian:
            private += ": where runs follow one another, only the budget is promised."
        else:  # docs/proofs.md, 2.6: adaptive plans are covered for Gaussian releases
            private += "; not all releases are Gaussian, so it holds if every run was fixed before the first."
    later = subject[:1].lower() + subject[1:]
    if reproduction:
        seeded = "For reproduction only: the noise was seeded, so nothing is promised."
        return f"{seeded} With secret noise {later} would be {private}"
    if not groups_given:
        inferred = "Not protected: the list of groups, which was read off the data."
        return f"{inferred} Apart from that list, {later} is {private}"
    return f"{subject} is {private}"


def rounded_up(number: float) -> str:
    """Four digits of an epsilon or a delta, never less than the number: a certificate does not round in its own favour.

    What exceeds four digits by float round-off alone is not rounded up.
    """
    if not math.isfinite(number) or number <= 0:
        return f"{number:.4g}"
    four_digits = Context(prec=4, rounding=ROUND_CEILING)
    return f"{float(four_digits.create_decimal(Decimal(number) * (1 - Decimal(ROUND_OFF)))):.4g}"


def json_ready(value: Any) -> Any:
    """Plain data in which infinity is the word "infinity", since JSON has no such number."""
    if isinstance(value, float) and math.isinf(value):
        return "infinity"
    if isinstance(value, Mapping):
        return dict(zip(value, map(json_ready, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return list(map(json_ready, value))
    return value
