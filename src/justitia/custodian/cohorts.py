"""Cohorts: rows of a population's people in the order in which questions about them come.

The name of a cohort is a hash of its client and of its people in their order: a client that sends them again, or sends
them in parts and joins those, gets the same cohort, and none learns from a name whether another one sent them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from justitia.custodian.people import People, digests
from justitia.custodian.records import Cohort
from justitia.custodian.refusals import too_large, unknown, wrong
from justitia.privacy.register import check_once, digests_of, persons_of


def joined(
    people: People, client: str, ids: Sequence[str], parts: Sequence[Cohort], *, most: int, person: bool
) -> tuple[Cohort, dict[str, Any]]:
    """The cohort of these ids, or of cohorts that follow each other; and what is public about its persons.

    Parameters
    ----------
    client : str
        Whose cohort it is.
    most : int
        Rows that a cohort may have.
    person : bool
        Whether an id may have several rows; they are protected together then.

    Raises
    ------
    Refused
        For ids that are missing or repeat, for too many, and for a cohort of another population.
    """
    name = people.facts.name
    if any(one.population != name for one in parts):
        raise unknown("cohort")
    rows = len(ids) + sum(one.people for one in parts)
    if not 0 < rows <= most or (ids and parts):
        raise too_large(f"between 1 and {most} ids, or cohorts of so many,")
    try:
        found = np.concatenate([digests(one) for one in parts]) if parts else digests_of(ids)
        if not person:
            check_once(found)
    except ValueError as error:
        raise wrong(str(error)) from None
    held = found.tobytes()
    facts = f"{people.ledger.identity}/{client}/{person}/".encode() + held
    made = Cohort(hashlib.sha256(facts).hexdigest()[:32], name, rows, held, person)
    if not person:
        return made, {}
    grouped = persons_of(found)
    return made, {"rows_each": grouped.rows_each, "persons": grouped.digest}


__all__ = ["joined"]
