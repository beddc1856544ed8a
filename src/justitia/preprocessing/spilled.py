"""Public numbers of rows that do not fit memory, in temporary files."""

from __future__ import annotations

import tempfile
import weakref
from contextlib import suppress
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


class Spilled:
    """A public number of each row, in order, in a temporary file that is gone with this.

    Parameters
    ----------
    kind : dtype
        Of the numbers.
    """

    def __init__(self, kind: np.dtype[Any]) -> None:
        self._kind = kind
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - as long as this lives
        weakref.finalize(self, self._file.close)

    def rewind(self) -> None:
        """Go to the first row."""
        self._file.seek(0)

    def write(self, numbers: NDArray[Any]) -> None:
        """Keep those of the next rows.

        Raises
        ------
        ValueError
            If the disk is full.
        """
        content, kept = numbers.astype(self._kind, copy=False).tobytes(), 0
        with suppress(OSError):
            kept = self._file.write(content)
        if kept < len(content):
            self._file.close()  # gives back what it took
            room = f"{self._kind.itemsize} bytes per row in {tempfile.gettempdir()!r}"
            raise ValueError(f"expected room for {room}, got none; make room, or set TMPDIR.")

    def read(self, rows: int) -> NDArray[Any]:
        """Those of the next rows."""
        return np.frombuffer(self._file.read(self._kind.itemsize * rows), dtype=self._kind).copy()


__all__ = ["Spilled"]
