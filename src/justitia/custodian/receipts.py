"""Receipts as a client keeps them: what it was given must still be in the custodian's chain later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from justitia.privacy.errors import LedgerError


class Receipts:
    """The last receipt of a population, and a file of all of them if one was named."""

    def __init__(self, path: Path | None, population: str) -> None:
        self._path, self._population = path, population
        self.last: dict[str, Any] | None = None
        for line in [] if path is None or not path.exists() else path.read_text(encoding="utf-8").splitlines():
            try:
                receipt = json.loads(line)
                if receipt["population"] == population:
                    self.last = {"number": int(receipt["number"]), "link": str(receipt["link"])} | receipt
            except (ValueError, KeyError, TypeError):
                raise LedgerError(
                    f"expected receipts in {str(path)!r}, a line of JSON each, got another line; remove it."
                ) from None

    def keep(self, receipt: dict[str, Any]) -> None:
        """One more; it comes after those before it, or is one of them, told again.

        Raises
        ------
        LedgerError
            If the custodian counts from an earlier state.
        """
        if self.last is not None and receipt["number"] <= self.last["number"] and receipt["link"] != self.last["link"]:
            raise LedgerError(self._sentence())
        self.last = receipt
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(receipt) + "\n")

    def check_link(self, link: Any) -> None:
        """Raise unless the custodian still has the last receipt."""
        if self.last is not None and link != self.last["link"]:
            raise LedgerError(self._sentence())

    def _sentence(self) -> str:
        number = "" if self.last is None else f" {self.last['number']}"
        return (
            f"The custodian's ledger of {self._population!r} does not hold receipt{number}, which it gave: it was put "
            "back or rewritten; ask the custodian to restore its newest copy."
        )


__all__ = ["Receipts"]
