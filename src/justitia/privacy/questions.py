"""A digest of everything public about one question, for noise that can be drawn again.

Two questions that share noise tell their difference exactly. A seeded source therefore mixes the question itself into
its stream. With noise from the operating system nothing is computed here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

#: A digest of one row is added up in so many numbers of 16 bits: exact for 2^47 rows, in any order.
LANES = 16


class Listener(Protocol):
    """Hears everybody's public row."""

    def hear(self, *rows: NDArray[Any]) -> None:
        """The next rows, to the last bit."""

    def heard(self) -> NDArray[np.int64]:
        """Whole numbers (int64) that are to be added up over all places where rows are heard."""

    def settle(self, lanes: NDArray[np.int64]) -> None:
        """What they added up to."""


class Question:
    """Hears all that is public about a question and sums it up in 32 bytes; an idle one hears nothing."""

    def __init__(self, facts: Iterable[Any], *, idle: bool) -> None:
        self.idle = idle
        self._sum = hashlib.sha256(repr(tuple(facts)).encode())

    def hear(self, *rows: NDArray[Any]) -> None:
        """Public rows, weights or marks, to the last bit and in this order."""
        if not self.idle:
            for part in rows:
                self._sum.update(np.ascontiguousarray(part).data)

    def heard(self) -> NDArray[np.int64]:
        """Nothing: all rows are here, and heard in order."""
        return np.empty(0, dtype=np.int64)

    def settle(self, lanes: NDArray[np.int64]) -> None:
        """Nothing was added up."""

    def digest(self) -> bytes:
        """What was heard so far."""
        return b"" if self.idle else self._sum.digest()


class RowDigest:
    """Hears rows in several places: each is summed up by itself, with its position, so that no order matters.

    Parameters
    ----------
    question : Question
        Is told what they added up to.
    first : int
        Position of the first row of this place among those of all.
    """

    def __init__(self, question: Question, *, first: int) -> None:
        self._question, self._next = question, first
        self._lanes = np.zeros(LANES, dtype=np.int64)

    def hear(self, *rows: NDArray[Any]) -> None:
        """The next rows, to the last bit, each with its position."""
        for part in () if self._question.idle else rows:
            table = np.ascontiguousarray(part)
            width, raw = table.shape[1] * table.itemsize, table.tobytes()
            found = (
                hashlib.sha256((self._next + i).to_bytes(8, "little") + raw[i * width : (i + 1) * width]).digest()
                for i in range(len(table))
            )
            digests = np.frombuffer(b"".join(found), dtype="<u2").reshape(-1, LANES)
            self._lanes += digests.sum(0, dtype=np.int64)
            self._next += len(table)

    def heard(self) -> NDArray[np.int64]:
        """Sums of the digests, 16 bits at a time."""
        return self._lanes

    def settle(self, lanes: NDArray[np.int64]) -> None:
        """The question hears the sums over all places."""
        self._question.hear(lanes)


class Heard:
    """A listener for rows that the question has heard already, in order: those of the places add nothing."""

    def hear(self, *rows: NDArray[Any]) -> None:
        """Nothing new."""

    def heard(self) -> NDArray[np.int64]:
        """As many numbers as other places add up."""
        return np.zeros(LANES, dtype=np.int64)

    def settle(self, lanes: NDArray[np.int64]) -> None:
        """Nothing was added up."""


__all__ = ["LANES", "Heard", "Listener", "Question", "RowDigest"]
