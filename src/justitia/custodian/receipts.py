"""Receipts as a client keeps them: what it was given must still be in the custodian's chain later."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from justitia.exceptions import LedgerError


class Receipts:
    """The newest receipt of a population, and a file of all of them if one was named; threads may share it."""

    def __init__(self, path: Path | None, population: str) -> None:
        self._path, self._population = path, population
        self._links: dict[int, str] = {}
        self._lock = threading.Lock()
        for line in [] if path is None or not path.exists() else path.read_text(encoding="utf-8").splitlines():
            try:
                receipt = json.loads(line)
                if receipt["population"] == population:
                    self._links[int(receipt["number"])] = str(receipt["link"])
            except (ValueError, KeyError, TypeError):
                raise LedgerError(
                    f"expected receipts in {str(path)!r}, a line of JSON each, got another line; remove it."
                ) from None

    @property
    def newest(self) -> int | None:
        """Its number; None while there is none."""
        with self._lock:
            return max(self._links, default=None)

    def keep(self, receipt: dict[str, Any]) -> bool:
        """One more, or one of those before, told again.

        Returns
        -------
        bool
            Whether it is the newest. An earlier one is right where answers came in another order than receipts were
            made, and wrong where the custodian counts from an earlier state: ask it for the newest one's link.

        Raises
        ------
        LedgerError
            If another receipt had its number.
        """
        number, link = int(receipt["number"]), str(receipt["link"])
        with self._lock:
            known = self._links.get(number)
            if known not in {None, link}:
                raise LedgerError(self._sentence(number))
            self._links[number] = link
            if known is None and self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(receipt) + "\n")
            return number == max(self._links)

    def check_link(self, number: int, link: Any) -> None:
        """Raise unless this is what the receipt of this number says."""
        with self._lock:
            if self._links[number] != link:
                raise LedgerError(self._sentence(number))

    def _sentence(self, number: int) -> str:
        return (
            f"The custodian's ledger of {self._population!r} does not hold receipt {number}, which it gave: it was put "
            "back or rewritten; ask the custodian to restore its newest copy."
        )


__all__ = ["Receipts"]
