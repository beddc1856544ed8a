"""Hashes of public rows, by which commands notice that two files contain the same individuals.

Only features and target are hashed, which are public, so nothing that is found, printed or stored here depends on the
attribute.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.cli.files.rows import LabelledRows
from justitia.cli.files.target import Label

#: Number of hashes that are kept of a file. The smallest ones are a uniform sample; of a small file all are kept.
KEPT = 4096
#: Files share individuals if more rows are equal than by coincidence, by so many standard deviations.
DEVIATIONS = 5.0

Overlap = Literal["shared", "apart", "unknown"]


@dataclass(frozen=True)
class Sketch:
    """Summary of a file's public rows that is stored with a model or a measurement.

    Attributes
    ----------
    columns : tuple of str
        Columns of a row.
    rows : int
    single, double : int
        Number of rows that differ from every other row of the file, and of rows that have exactly one duplicate.
    digest : str
        Digest of all rows that does not depend on their order.
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
            "smallest": " ".join(map("{:016x}".format, sorted(self.smallest))),
        }

    @staticmethod
    def from_dict(facts: Any) -> Sketch | None:
        """Inverse of :meth:`to_dict`; None for anything else."""
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
class RowHashes:
    """Hashes of all public rows of one file."""

    columns: tuple[str, ...]
    hashes: NDArray[np.uint64] = field(repr=False)

    @cached_property
    def sketch(self) -> Sketch:
        """The summary to store."""
        different, counts = np.unique(self.hashes, return_counts=True)
        single = different[counts == 1]
        digest = hashlib.sha256(np.sort(self.hashes).astype("<u8").tobytes()).hexdigest()
        return Sketch(
            self.columns,
            rows=len(self.hashes),
            single=len(single),
            double=2 * int((counts == 2).sum()),
            digest=digest,
            smallest=frozenset(single[:KEPT].tolist()),
        )

    def overlap(self, other: Sketch | None) -> Overlap:
        """Whether individuals of another file are among these, by their public rows.

        Where columns are few, rows of different individuals may be equal by coincidence. If nobody is in both files, a
        row here equals a single row there as often as rows there have one duplicate (Good and Turing's estimate). If it
        does so much more often, the files share individuals. The answer is "unknown" where even the same individuals
        would not be noticed.
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


def hash_rows(rows: LabelledRows, target: str) -> RowHashes:
    """Hashes of features and target of every row of a file."""
    names = sorted(map(str, rows.X.columns))
    return RowHashes((*names, target), row_hashes(rows.X, rows.y, rows.classes))


def row_hashes(X: pd.DataFrame, y: NDArray[Any], classes: Sequence[Label]) -> NDArray[np.uint64]:
    """Hashes of features and target of some rows; columns are taken in the order of their names."""
    columns = []
    for name in sorted(X.columns, key=str):
        codes, different = pd.factorize(X[name], use_na_sentinel=True)
        hashes = _hashes([*map(_canonical, different), b""])  # a missing entry has code -1, the last
        columns.append(hashes[codes])
    codes, labels = (y, classes) if len(classes) else pd.factorize(y)  # without classes, the target is a number
    columns.append(_hashes(map(_canonical, labels))[codes])
    table = np.stack(columns, axis=1).astype("<u8")
    return _hashes(map(np.ndarray.tobytes, table))


def _canonical(value: Any) -> bytes:
    """The same bytes for 1, 1.0 and "1", however a file was read."""
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        return text.encode("utf-8", "surrogatepass")
    return b"" if math.isnan(number) else repr(number + 0.0).encode()


def _hashes(contents: Iterable[bytes]) -> NDArray[np.uint64]:
    """The first 64 bits of each SHA-256."""
    found = bytearray()
    for content in contents:
        found += hashlib.sha256(content).digest()[:8]
    return np.frombuffer(bytes(found), dtype=">u8").astype(np.uint64)
