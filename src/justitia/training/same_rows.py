"""Repeated fits of the same rows without a shared ledger: each certificate is true, but no ledger holds their sum.

Only public facts are compared: a hash of the features and of the labels. The attribute is not among them.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from justitia.exceptions import BudgetWarning
from justitia.privacy.certificate import Certificate

_SENTENCE = (
    "several fits of the same rows ran in this process, each on a budget of its own: together they reveal more "
    "about a person than any one certificate says, and nothing adds them up; pass one ledger to all of them, "
    "ledger=PrivacyLedger(epsilon=..., delta=...), or a DurableLedger where they run in several processes."
)


class FitsOfRows:
    """Rows that were trained on without a ledger; it warns once, when the first of them is trained on again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        self._warned = False

    def note(self, rows: str, certificate: Certificate, *, stacklevel: int) -> None:
        """Remember these rows, or warn.

        Parameters
        ----------
        rows : str
            What :func:`rows_digest` gives; nothing is noted where it is empty.
        certificate : Certificate
            Of the fit; where nothing is promised, or a custodian counts, nothing is noted.
        """
        if not rows or certificate.reproduction or certificate.custodian or not np.isfinite(certificate.epsilon):
            return
        with self._lock:
            again, known = rows in self._seen, self._warned
            self._seen.add(rows)
            self._warned = known or again
        if again and not known:
            warnings.warn(_SENTENCE, BudgetWarning, stacklevel=stacklevel + 1)

    def forget(self) -> None:
        """Begin anew, for tests."""
        with self._lock:
            self._seen.clear()
            self._warned = False


#: Those of this process.
FITS = FitsOfRows()


def rows_digest(arrays: Iterable[NDArray[np.generic]]) -> str:
    """A hash of public arrays: their shapes, types and entries."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


__all__ = ["FITS", "FitsOfRows", "rows_digest"]
