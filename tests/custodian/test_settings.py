"""Settings of a custodian, public routes, and spooled parts of a request that was never finished."""

from pathlib import Path

import numpy as np
import pytest
from service_fixtures import IDS, Caller, make_folder, opened

from justitia.custodian import records
from justitia.custodian.connection import Connection, read_key
from justitia.custodian.settings import CONFIG, ServiceSettings, settings_text


def test_settings_that_init_writes_are_the_defaults(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(settings_text("custodian", tls=False))
    assert ServiceSettings.read(tmp_path) == ServiceSettings()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("colour = 1", "got 'colour'"),
        ("port = 'x'", "another kind"),
        ("port =", "expected TOML"),
        ("host = '0.0.0.0'", "expected tls_certificate and tls_key"),
        ("tls_key = 'a'", "together"),
        ("client_ca = 'a'", "beside client_ca"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_in_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(text)
    with pytest.raises(ValueError, match=sentence):
        ServiceSettings.read(tmp_path)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://example.org", "https://", "https://user:word@example.org"])
def test_addresses_that_would_show_the_key_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        Connection(url, "secret-key")
    assert "secret-key" not in str(error.value)


def test_key_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="expected the key"):
        read_key(None)
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY", "one")
    (tmp_path / "key").write_text("two\n")
    assert (read_key(None), read_key(tmp_path / "key")) == ("one", "two")


def test_metrics_need_a_key_that_may_read_and_name_no_group(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        ask = Caller(service)
        ask.sums(ask.cohort(), np.ones((len(IDS), 2)))
        assert ask("GET", "/healthz", client=None).facts == {"ok": True}
        assert [ask("GET", "/metrics", client=one).status for one in (None, "trainer", "reader")] == [401, 403, 200]
        told = ask("GET", "/metrics", client="reader").body.decode()
    assert 'justitia_answers_total{population="people"} 1' in told
    assert 'justitia_requests_total{what="sums",status="200"} 1' in told
    assert "group" not in told


def test_parts_of_a_request_that_was_never_finished_are_deleted_a_day_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path / "holder")
    monkeypatch.setattr(records, "now", lambda: "2026-01-01T00:00:00.000+00:00")
    with opened(folder) as service:
        ask = Caller(service)
        assert ask.sums(ask.cohort(), np.ones((9, 2)), parts=2).facts == {"received": 1, "parts": 2}
        (request,) = (folder / "spool").iterdir()
        assert [one.stat().st_mode & 0o777 for one in (request, *request.iterdir())] == [0o700, 0o600]
    with opened(folder):
        assert list((folder / "spool").iterdir()) == []
