"""Receipts: a file that was rewritten, put back or given another budget is noticed by what was kept elsewhere."""

import json
import sqlite3
from pathlib import Path

import pytest
from ledger_files import SMALL, assert_one_sentence, edited, opened, release

from justitia import DurableLedger, LedgerError
from justitia.privacy.accounting import GaussianCost
from justitia.privacy.durable_ledger import Entry, link
from justitia.privacy.ledger import Certificate


def rewritten(path: Path) -> None:
    """Make the first debit cheap and all links anew, as somebody can who may write the file."""
    connection = sqlite3.connect(path)
    facts = connection.execute("SELECT * FROM ledger").fetchone()
    previous, sql = link("", facts), []
    for *fields, _ in connection.execute("SELECT * FROM debits ORDER BY number"):
        entry = Entry(*fields)._replace(cost=SMALL) if fields[0] == 0 else Entry(*fields)
        previous = link(previous, entry)
        sql.append(f"UPDATE debits SET cost = '{entry.cost}', link = '{previous}' WHERE number = {entry.number}")
    connection.close()
    edited(path, *sql)


def test_file_that_was_rewritten_as_a_whole_is_noticed_by_an_open_ledger_and_by_a_receipt(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    ledger.debit(release(GaussianCost(5.0)))
    receipt = ledger.receipt()
    rewritten(ledger.path)
    again = opened(tmp_path, epsilon=5.0)  # nothing else tells
    with pytest.raises(LedgerError, match="was changed by other means than a debit"):
        ledger.debit(release())
    with pytest.raises(
        LedgerError, match=r"does not begin with the 2 debits that it had when the receipt was made"
    ) as no:
        again.verify(receipt)
    assert_one_sentence(no.value)


def test_budget_that_was_raised_before_the_first_debit_is_noticed_by_a_receipt(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    receipt = ledger.receipt()
    edited(ledger.path, "UPDATE ledger SET epsilon = 9.0")
    with pytest.raises(LedgerError, match="was given another budget or name while in use"):
        ledger.debit(release())
    with pytest.raises(LedgerError, match="does not begin with the 0 debits"):
        DurableLedger.open(ledger.path).verify(receipt)


def test_old_copy_of_the_file_is_noticed_by_a_receipt(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    early, copied = ledger.receipt(), ledger.path.read_bytes()
    ledger.debit(release())
    late = ledger.receipt()
    ledger.verify(early)
    ledger.verify(late)
    ledger.path.write_bytes(copied)
    restored = opened(tmp_path, epsilon=5.0)
    restored.verify(early)
    with pytest.raises(LedgerError, match=r"holds 1 debits and had 2 when the receipt was made, so it is an old copy"):
        restored.verify(late)
    restored.debit(release(GaussianCost(50.0)))  # another second debit
    with pytest.raises(LedgerError, match="does not begin with the 2 debits") as caught:
        restored.verify(late)
    assert_one_sentence(caught.value)


def test_receipt_of_another_ledger_or_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ledger = opened(tmp_path)
    with pytest.raises(LedgerError, match="The receipt is not of the ledger"):
        ledger.verify(opened(tmp_path / "other").receipt())
    for data in ({}, {"ledger": "x", "debits": "1", "head": "y"}, ledger.receipt() | {"debits": -1}):
        with pytest.raises(LedgerError, match="Expected a receipt with 'ledger', 'debits' and 'head'") as caught:
            ledger.verify(data)
        assert_one_sentence(caught.value)


def test_certificate_holds_the_receipt_of_the_debits_that_it_lists(tmp_path: Path) -> None:
    ledger = opened(tmp_path, epsilon=5.0)
    ledger.debit(release())
    certificate = ledger.certificate()
    assert ledger.head == (1, certificate.receipt["head"])
    assert certificate.receipt == ledger.receipt() == json.loads(ledger.to_json())["receipt"]
    ledger.debit(release())
    kept = Certificate.from_dict(json.loads(certificate.to_json()))
    assert kept == certificate
    opened(tmp_path, epsilon=5.0).verify(kept.receipt)
