"""What somebody keeps elsewhere to notice that a ledger file was put back or rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from justitia.exceptions import LedgerError


class Head(NamedTuple):
    """How many debits a ledger holds, and the hash that stands for all of them and for the ledger's facts."""

    debits: int
    hash: str


def make_receipt(identity: str, head: Head) -> dict[str, Any]:
    """Plain data, public like everything in the file."""
    return {"ledger": identity, "debits": head.debits, "head": head.hash}


def check_receipt(receipt: Mapping[str, Any], *, identity: str, links: Sequence[str], path: Path) -> None:
    """Raise unless the ledger with these links, the first of which is that of its facts, once had this receipt's head.

    Raises
    ------
    LedgerError
        In one sentence: no receipt, one of another ledger, an old copy, or a rewritten file.
    """
    debits, head = receipt.get("debits"), receipt.get("head")
    if not (isinstance(debits, int) and debits >= 0 and isinstance(head, str)):
        raise LedgerError("Expected a receipt with 'ledger', 'debits' and 'head', got other data; pass a receipt.")
    if receipt.get("ledger") != identity:
        raise LedgerError(f"The receipt is not of the ledger {str(path)!r} but of another one; pass that one.")
    if debits >= len(links):
        raise LedgerError(
            f"The ledger {str(path)!r} holds {len(links) - 1} debits and had {debits} when the receipt was made, "
            "so it is an old copy; restore its newest one."
        )
    if links[debits] != head:
        raise LedgerError(
            f"The ledger {str(path)!r} does not begin with the {debits} debits that it had when the receipt was made, "
            "so it was rewritten; restore its newest copy."
        )
