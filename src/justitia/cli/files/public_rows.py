"""Public rows as hashes, to notice that two files hold the same people.

Features and target are public, and nothing else is looked at: what is found here, said and kept is no function of the
attribute.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.cli.files.rows import Label, Rows

#: So many hashes of a file are kept, the smallest ones: a fair sample, and of small files all.
KEPT = 4096
#: Rows that are equal by coincidence are told from the same people by so many standard deviations.
DEVIATIONS = 5.0

Overlap = Literal["shared", "apart", "unknown"]


@dataclass(frozen=True)
class Sketch:
    """What is kept of a file's public rows.

    Attributes
    ----------
    columns : tuple of str
        What a row is made of.
    rows : int
    single, double : int
        How many rows differ from every other row of the file, and how many have one twin.
    digest : str
        Of all rows, whatever their order.
    smallest : frozenset of int
        The ``KEPT`` smallest hashes of single rows.
    """

    columns: tuple[str, ...]
    rows: int
    single: int
    double: int
    digest: str
    smallest: frozenset[int] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "columns": list(self.columns),
            "rows": self.rows,
            "single": self.single,
            "double": self.double,
            "digest": self.digest,
            "smallest": " ".join(f"{one:016x}" for one in sorted(self.smallest)),
        }

    @staticmethod
    def from_dict(facts: Any) -> Sketch | None:
        """Inverse of :meth:`to_dict`; None for anything else: who was in that file is then not known."""
        if not isinstance(facts, Mapping):
            return None
        try:
            smallest = frozenset(int(one, 16) for one in facts["smallest"].split())
            columns = tuple(str(one) for one in facts["columns"])
            rows, single, double = (int(facts[name]) for name in ("rows", "single", "double"))
            return Sketch(columns, rows, single, double, str(facts["digest"]), smallest)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


@dataclass(frozen=True)
class PublicRows:
    """Hashes of all public rows of one file."""

    columns: tuple[str, ...]
    hashes: NDArray[np.uint64] = field(repr=False)

    @cached_property
    def sketch(self) -> Sketch:
        """What to keep of them."""
        different, counts = np.unique(self.hashes, return_counts=True)
        single = different[counts == 1]
        digest = hashlib.sha256(np.sort(self.hashes).astype("<u8").tobytes()).hexdigest()
        return Sketch(
            self.columns,
            rows=len(self.hashes),
            single=len(single),
            double=2 * int((counts == 2).sum()),
            digest=digest,
            smallest=frozenset(int(one) for one in single[:KEPT]),
        )

    def overlap(self, other: Sketch | None) -> Overlap:
        """Whether people of that file are among these, as far as public rows tell.

        Rows of other people may be equal by coincidence, where columns are few. If nobody is in both files, a row here
        equals a single row there as often as rows there have one twin (Good and Turing's estimate); much more often
        means the same people. Where even the same people would not be noticed, nothing is known.
        """
        if other is None or self.columns != other.columns or not other.rows:
            return "unknown"
        if self.sketch.digest == other.digest:
            return "shared"
        share = len(other.smallest) / max(1, other.single)
        chance = share * len(self.hashes) * other.double / other.rows
        limit = chance + DEVIATIONS * math.sqrt(chance)
        kept = np.array(sorted(other.smallest), dtype=np.uint64)
        if np.isin(np.unique(self.hashes), kept).sum() > limit:
            return "shared"
        same = share * min(len(self.hashes), other.rows) * other.single / other.rows
        return "apart" if same > limit + DEVIATIONS else "unknown"


def public_rows(rows: Rows, target: str) -> PublicRows:
    """Hash features and target of every row."""
    return PublicRows((*_sorted_names(rows.X), target), row_hashes(rows.X, rows.y, rows.classes))


def row_hashes(X: pd.DataFrame, y: NDArray[np.int64], classes: Sequence[Label]) -> NDArray[np.uint64]:
    """Of features and target of some rows."""
    labels = np.array([_hash(_canonical(one)) for one in classes], dtype=np.uint64)
    columns = [_column(X[name]) for name in _sorted_names(X)]
    table = np.ascontiguousarray(np.stack([*columns, labels[y]], axis=1).astype("<u8"))
    width = table.shape[1] * 8
    raw = table.tobytes()
    return np.array([_hash(raw[place : place + width]) for place in range(0, len(raw), width)], dtype=np.uint64)


def _sorted_names(X: pd.DataFrame) -> list[str]:
    return sorted(str(name) for name in X.columns)


def _column(values: pd.Series) -> NDArray[np.uint64]:
    codes, different = pd.factorize(values, use_na_sentinel=True)
    hashes = np.array([*(_hash(_canonical(one)) for one in different), _hash(b"")], dtype=np.uint64)
    return hashes[codes]  # -1, of a missing entry, is the last


def _canonical(value: Any) -> bytes:
    """The same bytes for 1, 1.0 and "1", however a file was read."""
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        return text.encode("utf-8", "surrogatepass")
    return b"" if math.isnan(number) else repr(number + 0.0).encode()


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big")


def united(edges: Sequence[tuple[int, int]], number: int) -> list[set[int]]:
    """Places 0 .. number - 1 in lots: those that an edge joins, directly or through others, are in one."""
    lots = [{place} for place in range(number)]
    for edge in edges:
        joined = [lot for lot in lots if lot & set(edge)]
        lots = [lot for lot in lots if lot not in joined] + [set().union(*joined)]
    return lots
