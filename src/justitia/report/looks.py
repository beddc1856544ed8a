"""Every look at people through a model, as the page lists it: training and measurements, with dates and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from justitia.metrics.bounds import format_bound
from justitia.privacy.ledger import Certificate, rounded_up
from justitia.report.formatting import among, listed, plain_name
from justitia.report.inputs import not_compared


@dataclass(frozen=True)
class Look:
    """One look: what was asked of whom, when, at which price, and what came out.

    Attributes
    ----------
    models : int
        How many models the price covers: several where ``justitia compare`` measured them in one table.
    remarks : tuple of str
        What it costs together with the looks before it.
    """

    name: str
    created: str | None
    data: str | None
    rows: int | None
    digest: str | None
    cost: str
    found: str
    same_people: tuple[str, ...] = ()
    models: int = 1
    remarks: tuple[str, ...] = ()


def read_looks(sources: Sequence[Mapping[str, Any]]) -> tuple[Look, ...]:
    """Looks from the facts of training and measurements, oldest first.

    Each has ``certificate``, and may have ``name``, ``created``, ``data``, ``people`` or ``rows``, ``digest``,
    ``violations``, ``by_group``, ``confidence``, ``verdicts``, ``shared_with`` and ``compared`` (the names of all
    models of a table).

    Raises
    ------
    ValueError
        If one has no certificate.
    """
    try:
        return tuple(_look(number, one) for number, one in enumerate(sources))
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ValueError("expected looks to be facts of training and measurements, got something else.") from None


def _look(number: int, facts: Mapping[str, Any]) -> Look:
    certificate = Certificate.from_dict(facts["certificate"])
    rows = facts.get("people", facts.get("rows"))
    models = len(facts.get("compared") or ()) or 1
    return Look(
        name=str(facts.get("name", number)),
        created=_text(facts.get("created")),
        data=_text(facts.get("data")),
        rows=None if rows is None else int(rows),
        digest=_text(facts.get("digest")),
        cost=_cost(certificate) + (f", for {models} models" if models > 1 else ""),
        found=_found(facts),
        same_people=tuple(str(one) for one in facts.get("shared_with") or ()),
        models=models,
        remarks=certificate.remarks,
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _cost(certificate: Certificate) -> str:
    """What this look spent; on a shared ledger, with all before it."""
    if certificate.epsilon == float("inf"):
        return "no guarantee"
    told = f"\N{GREEK SMALL LETTER EPSILON} {rounded_up(certificate.spent_epsilon)}"
    return told if certificate.epsilon <= certificate.spent_epsilon else f"{told} with all else on its ledger"


def _found(facts: Mapping[str, Any]) -> str:
    violations = facts.get("violations")
    if not violations or Certificate.from_dict(facts["certificate"]).epsilon == float("inf"):
        return ""
    verdicts = facts.get("verdicts") or {}
    return "; ".join(
        f"{plain_name(name)}: {_bounded(one, verdicts.get(name))}{_among(facts, name)}{_answer(verdicts.get(name))}"
        for name, one in violations.items()
    )


def _bounded(one: Mapping[str, Any], verdict: Mapping[str, Any] | None) -> str:
    """The bounds that a verdict would rest on; one from below only where it says something."""
    if one["estimate"] is None:
        return "not enough evidence"
    least, most = one.get("at_least"), one.get("at_most")
    most = one["upper"] if most is None else most
    limit = most if verdict is None else verdict["threshold"]
    told = f"at most {format_bound(most, limit)}"
    return f"at least {format_bound(least, limit)}, {told}" if least else told


def _among(facts: Mapping[str, Any], notion: str) -> str:
    groups = len({str(row["group"]) for row in facts["by_group"]})
    which = among(groups, not_compared(facts, notion))
    return f" {which}" if which else ""


def _answer(verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return ""
    told = {"below": "yes", "above": "no"}.get(verdict["answer"], verdict["answer"])
    return f" (below {verdict['threshold']:g}? {told})"


def looks_sentences(looks: Sequence[Look], confidence: float | None) -> tuple[str, ...]:
    """What several looks mean for the number that the page shows, and whether people were looked at twice."""
    measured = [one for one in looks if one.name != "training"]
    alone = [one for one in measured if one.models == 1]
    shown = (
        "the newest" if len(alone) in {0, len(measured)} else "the newest that is not part of a comparison of models"
    )
    found = []
    if len(measured) > 1:
        together = 1 - len(measured) * (1 - (0.95 if confidence is None else confidence))
        held = f"at {together:.2f} confidence or more" if together > 0 else "at no confidence that can be stated"
        found.append(
            f"This model was measured {len(measured)} times. The page shows {shown}. The looks are not pooled: each "
            "was asked with rows of its own, of other people or of the same ones again. Bounds hold for one look each; "
            f"those of all {len(measured)} hold at once {held}. Whoever looks until the answer suits has to say so."
        )
    for one in measured:
        again = [name for name in one.same_people if name != "training"]
        if again:
            found.append(
                f"Warning: look {one.name} was at people who were, or may have been, measured before (look "
                f"{listed(again)}). A second look at the same people is no new evidence about chance in who was drawn, "
                "and its cost adds up for them."
            )
        if "training" in one.same_people:
            found.append(
                f"Warning: look {one.name} was at people of the training, or may have been: the bounds speak of new "
                "people and do not hold for these."
            )
    return tuple(found)
