"""Which public rows are one person's, for bounds that allow for several rows of a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.metrics.bounds import Repeats
from justitia.privacy.persons import Persons, person_codes


@dataclass(frozen=True, eq=False)
class PersonRows:
    """Which public rows are one person's.

    Attributes
    ----------
    codes : array of shape (n,)
        Number of the person of every row.
    persons : Persons
        Which of a person's rows are counted in a group; the others count as "not given".
    """

    codes: NDArray[np.int64]
    persons: Persons

    @classmethod
    def from_ids(cls, ids: Any, n: int) -> PersonRows:
        """From public ids, one per row.

        Raises
        ------
        TypeError, ValueError
            If there is not one id per row.
        """
        codes = person_codes(ids)
        persons = Persons.from_codes(codes)
        persons.check_rows(n)
        return cls(codes, persons)

    def repeats(self, event: NDArray[np.bool_]) -> tuple[Repeats, Repeats]:
        """Rows of an event by person: those that may be counted in a group, and all of them."""
        return Repeats.from_codes(self.codes[event & self.persons.counted]), Repeats.from_codes(self.codes[event])
