"""The status page: read only, no script, nothing from elsewhere, and it opens in a browser."""

import base64
import csv
import io
import itertools
import json
import math
import re
import socket
import sqlite3
import stat
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import norm
from service_fixtures import IDS, KEYS, Caller, make_folder, opened

from access import CHROMIUM, FLAGS, axe_faults, faults, weak_colours
from justitia import DurableLedger
from justitia.cli import cli
from justitia.custodian.page import Debit, csv_text, folded, page_app, page_text
from justitia.custodian.populations import ledger_file
from justitia.custodian.records import Client
from justitia.custodian.server import servers
from justitia.custodian.settings import ServiceSettings
from justitia.privacy.accounting import GaussianCost, RandomizedResponseCost, best_guess

READER = Client("reader", ("read",), None, "", ("people",))
WRONG = ((None, "people"), ("trainer", "people"), ("reader", "others"), ("reader", "../people"))


def asked_page(folder: Path) -> str:
    with opened(make_folder(folder)) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        ask.sums(cohort, np.ones((len(IDS), 2)), purpose="<script>alert(1)</script>")
        ask.sums(cohort, np.ones((3, 2)), request="short")
        ask("GET", "/v1/populations/people", client="a wrong key")
        return page_text(service, READER)


def test_page_shows_answers_receipts_and_refusals_and_runs_nothing(tmp_path: Path) -> None:
    text = asked_page(tmp_path / "holder")
    for part in (
        "<td>trainer</td>",
        '<code title="r1">r1</code>',
        "training, 1 answer, &lt;script&gt;alert(1)",
        ", by trainer",
        "input (422): request that cannot be used",
        "key (401): no valid key",
        "no valid key",
        "<dd>1 of 1 debits</dd>",
        "Chain verified: 1 debits and 1 receipts",
        "(dashed): 1 debits from",
    ):
        assert part in text
    assert "<script" not in text
    assert re.findall(r"(?:src|href)=.*?>", text) == ['href="answers.csv?population=people">']
    assert "a wrong key" not in text


def test_page_states_what_is_used_and_how_well_a_group_can_be_guessed(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder", epsilon=5.0)
    with opened(folder) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        empty = page_text(service, READER)
        assert ask.sums(cohort, np.ones((len(IDS), 2)), noise_multiplier=1.0).status == 200
        text = page_text(service, READER)
        spent = DurableLedger.open(ledger_file(folder, "people")).epsilon()
    assert ">0% used<" in empty
    assert "at most 50 times in 100 (50 is chance)" in empty
    assert f">{math.ceil(100 * spent / 5.0)}% used<" in text
    # One Gaussian release of noise multiplier 1 is a test between N(0, 1) and N(1, 1): right in Phi(1/2) of cases.
    assert "at most 69.2 times in 100" in text
    assert best_guess({GaussianCost(1.0): 1}, 1e-5) == pytest.approx(float(norm.cdf(0.5)), rel=1e-12)
    assert best_guess({GaussianCost(2.0): 4}, 1e-5) == pytest.approx(float(norm.cdf(0.5)), rel=1e-12)
    # Randomised response says the right one of two groups with exactly this probability.
    assert best_guess({RandomizedResponseCost(1.0, 2): 1}, 0.0) == pytest.approx(1 / (1 + math.exp(-1.0)))


def test_answers_of_a_fit_are_one_run_and_another_client_or_a_pause_begins_another() -> None:
    def debit(number: int, minute: int, client: str, purpose: str) -> Debit:
        time = f"2026-03-01T10:{minute:02d}:00.000+00:00"
        return Debit(number, time, client, f"r{number}", purpose, GaussianCost(9.0), "")

    given = [
        debit(0, 0, "a", "sums"),
        debit(1, 1, "b", "sums"),
        debit(2, 2, "a", "check 1"),
        debit(3, 3, "a", "group rates"),
        debit(4, 20, "b", "sums"),
    ]
    runs = [[one.number for one in run] for run in folded(given)]
    assert runs == [[0, 2], [1], [3], [4]]


def test_answers_are_exported_and_no_cell_is_a_formula(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        ask.sums(cohort, np.ones((len(IDS), 2)), purpose='=HYPERLINK("http://evil")')
        page = Caller(service)
        page.asgi = page_app(page.app)
        reply = page("GET", "/answers.csv", client="reader", population="people")
        others = [page("GET", "/answers.csv", client=one, population=name).status for one, name in WRONG]
    header, line = list(csv.reader(io.StringIO(reply.body.decode())))
    assert (reply.status, others) == (200, [401, 403, 404, 404])
    row = dict(zip(header, line, strict=True))
    assert (row["client"], row["kind"], row["request"]) == ("trainer", "training", "r1")
    assert row["purpose"] == '\'=HYPERLINK("http://evil")'
    assert len(row["receipt"]) == 64


def test_answers_that_share_a_commit_are_shown_with_their_own_receipts(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        asked = [lambda k=k: ask.sums(cohort, np.ones((len(IDS), 2)), request=f"r{k}") for k in range(6)]
        threads = [threading.Thread(target=one) for one in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lines = list(csv.DictReader(io.StringIO(csv_text(service, "people"))))
        links = {receipt["request"]: link for receipt, link in service.records.receipts("people")}
    assert {one["request"]: one["receipt"] for one in lines} == links
    assert len(links) == 6


def test_page_says_when_the_chain_is_broken_and_when_the_attribute_was_to_be_retired(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    with opened(folder) as service:
        ask = Caller(service)
        ask.sums(ask.cohort(), np.ones((len(IDS), 2)))
        with closing(sqlite3.connect(folder / "custodian.sqlite", isolation_level=None)) as connection:
            connection.execute("UPDATE populations SET source = 'staff.csv', keep_until = '2020-01-31'")
        text = page_text(service, READER)
        assert "The attribute was to be kept until 2020-01-31: retire it." in text
        assert "<dd>staff.csv</dd>" in text
        with closing(sqlite3.connect(folder / "custodian.sqlite", isolation_level=None)) as connection:
            connection.execute("DROP TRIGGER receipts_stand")
            connection.execute("UPDATE receipts SET link = 'x'")
        assert "Chain broken: receipt 0" in page_text(service, READER)


def test_fit_that_a_client_refuses_itself_is_among_the_refusals(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder", epsilon=0.1)) as service:
        ask = Caller(service)
        for plan in ([[1.0, 1]], [[1000.0, 1]], [[1.0, 2]]):
            ask("GET", "/v1/populations/people", plan=json.dumps({"costs": plan}))
        text = page_text(service, READER)
    assert '<td>plan does not fit into the budget (decided by the client)</td><td class="number">2</td>' in text


def basic(key: str) -> dict[str, str]:
    """As a browser sends what was typed as a password."""
    return {"authorization": "Basic " + base64.b64encode(f"anybody:{key}".encode()).decode()}


def test_page_needs_a_key_that_may_read_and_a_name_of_this_machine(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        ask = Caller(service)
        ask.asgi = page_app(ask.app)
        replies = [ask("GET", "/", client=one) for one in (None, "a wrong key", "trainer", "reader")]
        assert [one.status for one in replies] == [401, 401, 403, 200]
        assert "trainer" not in b"".join(one.body for one in replies[:3]).decode()
        assert replies[0].headers["www-authenticate"].startswith("Basic")
        assert ask("GET", "/", client=None, headers=basic(KEYS["reader"])).status == 200
        for wrong in (
            basic(KEYS["trainer"]),
            basic("x"),
            {"authorization": "Basic \xff"},
            {"authorization": "Basic eA"},
        ):
            assert ask("GET", "/", client=None, headers=wrong).status in {401, 403}
        hosts = {"localhost:8788": 200, "127.0.0.1:9": 200, "evil.example:8788": 400}
        assert {host: ask("GET", "/", client="reader", headers={"host": host}).status for host in hosts} == hosts


def test_page_of_a_custodian_without_populations_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as service:
        assert "No population is registered yet" in page_text(service, READER)


def test_page_shows_the_populations_that_a_key_is_for_and_no_others(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        assert "<h2>people" in page_text(service, READER)
        assert "<h2>people" not in page_text(service, replace(READER, populations=("others",)))


def test_page_names_its_parts_and_its_colours_have_contrast(tmp_path: Path) -> None:
    text = asked_page(tmp_path / "holder")
    assert faults(text) == []
    assert weak_colours(text, ("ink", "quiet", "spent", "wrong", "good"), (), ("back", "card")) == []


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed; run `make browser`.")
def test_page_opens_in_a_browser_without_errors_and_is_accessible(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    file = tmp_path / "page.html"
    file.write_text(asked_page(tmp_path / "holder"), encoding="utf-8")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            for width, scheme in itertools.product((390, 1280), ("light", "dark")):
                assert axe_faults(browser, file, width, scheme) == []
            page, said = browser.new_page(), []
            page.on("console", lambda message: said.append(message.text))
            page.goto(file.as_uri())
            assert said == []
        finally:
            browser.close()


def test_page_at_a_socket_is_open_to_this_user_alone_and_the_socket_goes_with_the_server(tmp_path: Path) -> None:
    folder, place = make_folder(tmp_path / "holder"), tmp_path / "page.sock"
    with opened(folder, page_socket=str(place)) as service:
        place.touch()
        place.unlink()
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(place))  # of a process that was killed
        left.close()
        _, page = servers(service)
        thread = threading.Thread(target=page.run, daemon=True)
        thread.start()
        while not page.started:
            time.sleep(0.01)
        try:
            assert stat.S_IMODE(place.stat().st_mode) == 0o600
            for key, status in ((KEYS["reader"], b"200"), ("wrong", b"401")):
                word = base64.b64encode(f"any:{key}".encode()).decode()
                with socket.socket(socket.AF_UNIX) as caller:
                    caller.connect(str(place))
                    lines = "GET / HTTP/1.1", "Host: localhost", f"Authorization: Basic {word}", "Connection: close"
                    caller.sendall("\r\n".join([*lines, "", ""]).encode())
                    assert caller.makefile("rb").read().split()[1] == status
        finally:
            page.should_exit = True
            thread.join()
        assert not place.exists()


def test_other_file_in_the_place_of_the_socket_is_kept_and_the_page_does_not_start(tmp_path: Path) -> None:
    place = tmp_path / "page.sock"
    place.write_text("mine")
    with opened(make_folder(tmp_path / "holder"), page_socket=str(place)) as service:
        _, page = servers(service)
        with pytest.raises(SystemExit):
            page.run()
    assert place.read_text() == "mine"


def test_settings_name_the_socket_within_the_folder_and_the_command_overrides_it(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    (folder / "custodian.toml").write_text('page_socket = "page.sock"\n')
    assert ServiceSettings.read(folder).page_socket == str(folder / "page.sock")
    given = ["custodian", "serve", str(folder), "--check", "--socket", str(tmp_path / "other.sock"), "--json"]
    found = CliRunner().invoke(cli, given)
    assert json.loads(found.output)["page"] == f"Unix socket {tmp_path / 'other.sock'}"
