"""What was released, what it cost, and the certificate that says so."""

from __future__ import annotations

import json
import math
import os
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from justitia.privacy.accounting import Cost, GaussianCost, UnboundedCost, delta_spent, epsilon_left, epsilon_spent
from justitia.privacy.costs import COST_KINDS, kind_of
from justitia.privacy.grid import check_deliverable, largest_epsilon

_PUBLIC = (
    "(to any other group, or to 'not given'); features, labels, the list of group names and all hyper-parameters are "
    "public"
)
#: What one neighbour changes, by the unit that releases protect.
ADJACENCY = {
    "row": f"two datasets that differ in the sensitive attribute of one row {_PUBLIC}",
    "person": f"two datasets that differ in the sensitive attribute of one person, in all their rows {_PUBLIC}",
}
NOT_COVERED = (
    "features X and labels Y are treated as public",
    "what features and labels themselves tell about the attribute",
    "running time and memory access of the machine that trains",
    "choices made by looking at other runs on the same people, unless those runs share this ledger",
)
#: Said where rows are not grouped by person: docs/privacy.md, section 1.1.
SEVERAL_ROWS = "a person with several rows, whose rows are each protected and together less; ids (person=) change that"
#: Where a list of groups came from that nobody named.
INFERRED = "read off the data, the list is not protected"
#: A sum of costs may exceed the budget by this much, relative, and still count as equal to it: float round-off only.
ROUND_OFF = 1e-9


class BudgetExceeded(RuntimeError):
    """A release was refused because the privacy budget does not allow it; nothing was computed."""


class LedgerError(RuntimeError):
    """The file of a ledger could not be used, so nothing was answered."""


@dataclass(frozen=True)
class Release:
    """One noised answer: what it was for, how much one person could move it, and what it cost."""

    purpose: str
    cost: Cost
    sensitivity: float
    unit: str = "row"

    @property
    def mechanism(self) -> str:
        """Name of the mechanism, as the certificate prints it."""
        return kind_of(self.cost)

    def to_json(self) -> str:
        """One line of the journal."""
        record = {"purpose": self.purpose, "mechanism": self.mechanism, "sensitivity": self.sensitivity}
        record |= {"unit": self.unit}
        return json.dumps(record | {"cost": asdict(self.cost)})

    @staticmethod
    def from_json(line: str) -> Release:
        """Inverse of :meth:`to_json`."""
        record = json.loads(line)
        cost = COST_KINDS[record["mechanism"]](**record["cost"])
        return Release(record["purpose"], cost, record["sensitivity"], record["unit"])


@dataclass(frozen=True)
class Certificate:
    """What can be said about the privacy of one training run.

    ``epsilon`` is what holds: what was spent if all of it was fixed in advance, otherwise the budget of the ledger
    (``docs/privacy.md``, section 2.6). ``spent_epsilon`` is what the ledger recorded, an upper bound. ``reproduction``
    is true where the noise was seeded, so that nothing is promised. ``claim`` holds, for mechanisms whose published
    analysis does not establish the guarantee, what that analysis says; ``remarks`` are sentences about the training
    run, made from public and noised numbers.
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
    remarks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data; an infinite epsilon is the word ``"infinity"``, since JSON has no such number."""
        return {name: json_ready(value) for name, value in asdict(self).items()}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Certificate:
        """Inverse of :meth:`to_dict`."""
        kept: dict[str, Any] = {k: math.inf if v == "infinity" else v for k, v in facts.items()}
        for name in ("releases", "groups", "not_covered", "remarks"):
            kept[name] = tuple(kept.get(name, ()))
        return Certificate(**kept)

    def without_exact_remarks(self) -> Certificate:
        """For files that others read: without a finite epsilon remarks are made of exact numbers, and left out."""
        return self if math.isfinite(self.epsilon) else replace(self, remarks=())

    def to_json(self) -> str:
        """The certificate as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        facts = {
            "neighbours": self.adjacency,
            "accountant": self.accountant,
            "noise": self.noise,
            "groups": f"{', '.join(self.groups)} ({self.groups_source})",
            "releases": "; ".join(_release_text(entry) for entry in self.releases) or "none",
            "claim": "" if self.claim is None else f"printed, not established: {self.claim['statement']}",
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


class PrivacyLedger:
    """Append-only list of releases that refuses whatever would exceed the budget.

    Parameters
    ----------
    epsilon : float
        The budget. 0 allows no release at all; ``inf`` allows everything and the certificate says so.
    delta : float
        Probability mass of the guarantee that may fail, in [0, 1).
    journal : path, optional
        A file that receives every debit, flushed to disk, before its answer is computed. If it holds debits already
        (of an interrupted run), they count.

    Notes
    -----
    A ledger counts what passes through this object. Copies made for parallel workers count on their own: fit models
    that share a budget in one process, or use a :class:`~justitia.privacy.durable.DurableLedger`.

    Guarantee
    ---------
    * :meth:`debit` records the release before the caller computes anything, or raises and records nothing.
    """

    def __init__(self, *, epsilon: float, delta: float, journal: Path | str | None = None) -> None:
        if not (epsilon >= 0):
            raise ValueError(f"The budget epsilon must be a number of at least 0; got {epsilon!r}.")
        if not (0 <= delta < 1):
            raise ValueError(f"The budget delta must lie in [0, 1); got {delta!r}.")
        check_deliverable(float(epsilon), float(delta))
        self.budget_epsilon = float(epsilon)
        self.delta = float(delta)
        self._releases: list[Release] = []
        self._counts: Counter[Cost] = Counter()
        self._journal = None if journal is None else Path(journal)
        for line in [] if self._journal is None else _read_lines(self._journal):
            self._append(Release.from_json(line))

    def check(self, costs: Mapping[Cost, int], *, purpose: str = "this plan") -> None:
        """Raise :class:`BudgetExceeded` if ``costs`` do not fit into what remains; records nothing."""
        if not self._fits(self._counts + Counter(costs)):
            raise BudgetExceeded(self._refusal(costs, purpose))

    def _refusal(self, costs: Mapping[Cost, int], purpose: str) -> str:
        total = epsilon_spent(self._counts + Counter(costs), self.delta)
        would, budget = _told_apart(total, self.budget_epsilon)
        return (
            f"{purpose!r} would bring epsilon to {would}; the budget is {budget} "
            f"(spent {epsilon_spent(self._counts, self.delta):.4g}). Use fewer or noisier releases, or raise epsilon."
        )

    def _fits(self, counts: Counter[Cost]) -> bool:
        if self.budget_epsilon == 0 or math.isinf(self.budget_epsilon):
            return self.budget_epsilon > 0
        limit = self.budget_epsilon * (1 + ROUND_OFF)
        if _all_gaussian(counts):  # one evaluation of the closed form, where epsilon would take a search
            return delta_spent(counts, limit) <= self.delta * (1 + ROUND_OFF)
        return epsilon_spent(counts, self.delta) <= limit

    def debit(self, release: Release) -> int:
        """Record ``release`` and return its number, or raise :class:`BudgetExceeded` and record nothing."""
        self.check({release.cost: 1}, purpose=release.purpose)
        if self._journal is not None:
            _append_line(self._journal, release.to_json())
        self._append(release)
        return len(self._releases) - 1

    def _append(self, release: Release) -> None:
        self._releases.append(release)
        self._counts[release.cost] += 1

    @property
    def releases(self) -> tuple[Release, ...]:
        """Everything released so far, in order."""
        return tuple(self._releases)

    def costs(self) -> Mapping[Cost, int]:
        """How often each cost was charged."""
        return dict(self._counts)

    def own_releases(self) -> tuple[Release, ...]:
        """What this run released, in order; another run may share the budget, never the run."""
        return self.releases

    def own_costs(self) -> Counter[Cost]:
        """How often this run was charged each cost."""
        return Counter(release.cost for release in self.own_releases())

    def epsilon(self) -> float:
        """Epsilon spent so far, at this ledger's delta."""
        return epsilon_spent(self.costs(), self.delta)

    def remaining(self) -> float:
        """Epsilon of the costliest single Gaussian release that the budget still allows, at this ledger's delta."""
        return epsilon_left(self.costs(), self.budget_epsilon, self.delta)

    @property
    def identity(self) -> str:
        """What tells this ledger from others where it outlives the process; nothing for one in memory."""
        return ""

    def certificate(
        self,
        *,
        groups: tuple[str, ...] = (),
        groups_source: str = "given",
        noise: str = "",
        reproduction: bool = False,
        planned: int = 1,
        claim: Mapping[str, Any] | None = None,
        subject: str = "Every output of training",
    ) -> Certificate:
        """What can be said about everything recorded so far.

        Parameters
        ----------
        groups, groups_source, noise, claim
            As in :class:`Certificate`.
        reproduction : bool
            Whether the noise was seeded.
        planned : int
            How many releases were fixed in advance, before any answer was seen. If the ledger holds more than these,
            somebody chose to go on, and may have chosen to stop, after looking: then only the budget is promised.
        subject : str
            What the statement speaks of.
        """
        releases = self.releases
        counts = Counter(release.cost for release in releases)
        spent = epsilon_spent(counts, self.delta)
        fixed = len(releases) <= planned
        epsilon = spent if fixed else max(spent, self.budget_epsilon)
        epsilon = epsilon if epsilon <= largest_epsilon(self.delta) * (1 + ROUND_OFF) else math.inf
        unit = "row" if any(release.unit == "row" for release in releases) else "person"
        unit = unit if releases else "row"
        promise = _Promise(epsilon, self.delta, spent, fixed=fixed, unit=unit, subject=subject)
        return Certificate(
            epsilon=epsilon,
            delta=self.delta,
            budget_epsilon=self.budget_epsilon,
            spent_epsilon=spent,
            statement=promise.statement(claim, reproduction=reproduction, groups_given=groups_source != INFERRED),
            accountant=accountant(counts),
            releases=summary(releases),
            noise=noise,
            groups=groups,
            groups_source=groups_source,
            unit=unit,
            reproduction=reproduction,
            claim=claim,
            adjacency=ADJACENCY[unit],
            not_covered=NOT_COVERED if unit == "person" else (*NOT_COVERED, SEVERAL_ROWS),
        )


def _told_apart(total: float, budget: float) -> tuple[str, str]:
    """Both numbers with four digits, or as many as it takes to see which is larger."""
    pairs = ((f"{total:.{digits}g}", f"{budget:.{digits}g}") for digits in range(4, 18))
    return next((pair for pair in pairs if pair[0] != pair[1]), (f"{total:.4g}", f"{budget:.4g}"))


def _read_lines(path: Path) -> list[str]:
    """Complete lines of the journal; half a line at the end is a debit whose answer was never computed."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    complete = text[: text.rfind("\n") + 1]
    if complete != text:
        os.truncate(path, len(complete.encode()))
    return complete.splitlines()


def _append_line(path: Path, line: str) -> None:
    created = not path.exists()
    with path.open("a", encoding="utf-8", newline="\n") as file:  # one byte on every system, as _read_lines counts
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
    if created and os.name == "posix":  # the name of a new file is durable once its folder is
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


@dataclass(frozen=True)
class _Promise:
    """What is promised, to whom, about what; its sentences are the first lines of a certificate."""

    epsilon: float
    delta: float
    spent: float
    fixed: bool
    unit: str
    subject: str

    def statement(self, claim: Mapping[str, Any] | None, *, reproduction: bool, groups_given: bool) -> str:
        """The promise; whatever takes away from it comes first."""
        if math.isinf(self.epsilon):
            return f"No privacy guarantee: {self._reason()}.{_PRINTED if claim else ''}"
        shown = f"({rounded_up(self.epsilon)}, {self.delta:.4g})-differentially private"
        private = f"{shown} in the sensitive attribute of any one {self.unit}.{self._budget()}"
        subject = self.subject if self.fixed else f"{self.subject}, with all else on its ledger,"
        later = subject[:1].lower() + subject[1:]
        if reproduction:
            return f"{_SEEDED} With secret noise {later} would be {private}"
        if not groups_given:
            return f"{_LIST} Apart from that list, {later} is {private}"
        return f"{subject} is {private}"

    def _reason(self) -> str:
        if math.isinf(self.spent):
            return "epsilon is infinite"
        if self.fixed:
            return f"epsilon {self.spent:.4g} is more than noise as it is drawn can keep"
        return "several runs share a ledger that has no finite budget"

    def _budget(self) -> str:
        if self.fixed:
            return ""
        return (
            f" That is the ledger's budget, of which {rounded_up(self.spent)} is spent: where runs follow one another, "
            "only the budget is promised."
        )


_PRINTED = " The printed analysis does not establish a guarantee."
_SEEDED = "For reproduction only: the noise was seeded, so nothing is promised."
_LIST = "Not protected: the list of groups, which was read off the data."


def rounded_up(epsilon: float) -> str:
    """Four digits, never fewer than the number says: a certificate does not round in its own favour."""
    if epsilon == 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return f"{math.ceil(epsilon / unit * (1 - ROUND_OFF)) * unit:.4g}"


def _all_gaussian(counts: Mapping[Cost, int]) -> bool:
    return all(isinstance(cost, GaussianCost) for cost in counts)


def accountant(counts: Mapping[Cost, int]) -> str:
    """How the total of these costs is computed, as the certificate prints it."""
    if not counts:
        return "none needed: nothing was asked"
    if any(isinstance(cost, UnboundedCost) for cost in counts):
        return "none: an answer was given without noise"
    if _all_gaussian(counts):
        return "exact composition of Gaussian releases over all rows (mu-GDP)"
    return "privacy-loss distribution under substitution of one attribute"


def summary(releases: Sequence[Release]) -> tuple[dict[str, Any], ...]:
    """One entry per purpose and cost, in order of first appearance."""
    counts = Counter((release.purpose, release.mechanism, release.cost) for release in releases)
    return tuple(
        {
            "purpose": purpose,
            "mechanism": mechanism,
            "count": count,
            "noise_multiplier": getattr(cost, "noise_multiplier", None),
            "epsilon": getattr(cost, "epsilon", None),
        }
        for (purpose, mechanism, cost), count in counts.items()
    )


def json_ready(value: Any) -> Any:
    """Plain data in which an infinite number is a word, since JSON has no such number."""
    if isinstance(value, float) and math.isinf(value):
        return "infinity"
    if isinstance(value, Mapping):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return value
