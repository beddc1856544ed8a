"""A digest of everything public about one question, for noise that can be drawn again.

Two questions that share noise tell their difference exactly. A seeded source therefore mixes the question itself into
its stream. With noise from the operating system nothing is computed here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from torch import Tensor


class Question:
    """Hears all that is public about a question and sums it up in 32 bytes; an idle one hears nothing."""

    def __init__(self, facts: Iterable[Any], *, idle: bool) -> None:
        self._sum = None if idle else hashlib.sha256(repr(tuple(facts)).encode())

    def hear(self, *rows: Tensor) -> None:
        """Public rows, weights or marks, to the last bit."""
        if self._sum is not None:
            for part in rows:
                self._sum.update(part.detach().contiguous().numpy().data)

    def digest(self) -> bytes:
        """What was heard so far."""
        return b"" if self._sum is None else self._sum.digest()


__all__ = ["Question"]
