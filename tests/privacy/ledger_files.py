"""Ledger files, and what somebody does to them behind the ledger's back."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from justitia import DurableLedger
from justitia.privacy.accounting import Cost, GaussianCost, cost_to_dict
from justitia.privacy.durable_ledger import Entry, link
from justitia.privacy.ledger import Release

SIGMA = 3.731  # one release costs epsilon 0.9999 at delta 1e-5


def release(cost: Cost | None = None, purpose: str = "violation") -> Release:
    return Release(purpose, GaussianCost(SIGMA) if cost is None else cost, 2.0)


def opened(folder: Path, **changes: Any) -> DurableLedger:
    facts: dict[str, Any] = {"dataset": "people", "epsilon": 1.0, "delta": 1e-5} | changes
    return DurableLedger(folder / "people.ledger", **facts)


TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"


def edited(path: Path, *sql: str) -> None:
    """Change the file as somebody who knows how: without its triggers, which are put back."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute(TRIGGERS).fetchall()
    for one in [*(f"DROP TRIGGER {name}" for name, _ in triggers), *sql, *(text for _, text in triggers)]:
        connection.execute(one)
    connection.close()


def inserted(ledger: DurableLedger, cost: str, count: int = 1) -> None:
    """Entries as a debit writes them, of another process that may know other costs."""
    connection, previous = sqlite3.connect(ledger.path), ledger.head.hash
    for number in range(count):
        entry = Entry(number, "violation", cost, 1.0, "row", "now", "run", "v")
        previous = link(previous, entry)
        connection.execute("INSERT INTO debits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*entry, previous))
    connection.commit()
    connection.close()


def assert_one_sentence(error: BaseException) -> None:
    text = str(error)
    assert text.endswith(".")
    assert "\n" not in text
    assert "Traceback" not in text


SMALL = json.dumps(cost_to_dict(GaussianCost(1e9)))
