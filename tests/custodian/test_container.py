"""The container image of the custodian, read line by line: it cannot be built in the tests, which have no engine."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from justitia.cli import cli

ROOT = Path(__file__).parents[2]
LINES = [
    line
    for line in (ROOT / "deploy/Containerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]
STEPS = [tuple(line.split(maxsplit=1)) for line in LINES]


def only(word: str) -> str:
    (found,) = [rest for step, rest in STEPS if step == word]
    return found


def test_steps_are_those_of_a_containerfile() -> None:
    known = {"FROM", "LABEL", "RUN", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    assert {step for step, _ in STEPS} == known | {"ENTRYPOINT", "CMD"}
    assert STEPS[0] == ("FROM", "python:3.11-slim")


def test_what_is_copied_is_in_the_repository_or_made_by_make_dist() -> None:
    for words in (rest.split() for step, rest in STEPS if step == "COPY"):
        for source in words[:-1]:
            assert source == "dist/justitia-*.whl" or (ROOT / source).is_file(), source


def test_image_runs_as_a_user_without_rights_that_owns_one_folder() -> None:
    user, folder = only("USER"), only("VOLUME")
    (made,) = [rest for step, rest in STEPS if step == "RUN" and "useradd" in rest]
    assert f"--uid {user} " in made
    assert f"--home-dir {folder} " in made
    assert f"chmod 700 {folder}" in made
    order = [step for step, _ in STEPS]
    assert "RUN" not in order[order.index("USER") :]


def test_entry_point_and_command_exist() -> None:
    program, *words = json.loads(only("ENTRYPOINT")) + json.loads(only("CMD"))
    assert program == "justitia"
    assert re.search(r"^justitia = ", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert CliRunner().invoke(cli, [*words[:2], "--help"]).exit_code == 0
    assert words[2] == only("VOLUME")


def test_health_check_runs_the_copied_file_and_asks_the_exposed_port() -> None:
    program, path = json.loads(only("HEALTHCHECK").partition("CMD ")[2])
    copied = [rest.split() for step, rest in STEPS if step == "COPY"]
    assert program == "python"
    assert ["deploy/health.py", path] in copied
    assert f"else {only('EXPOSE')}\n" in (ROOT / "deploy/health.py").read_text(encoding="utf-8")


class Service(BaseHTTPRequestHandler):
    """Answers like the custodian, or like one that has lost its records."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=[200, 503])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    monkeypatch.setattr(Service, "status", request.param)
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, request.param
        server.shutdown()
        thread.join()


def check(port: int) -> int:
    words = [sys.executable, str(ROOT / "deploy/health.py"), str(port)]
    return subprocess.run(words, check=False, capture_output=True).returncode


def test_health_check_passes_for_a_service_that_is_well_and_for_no_other(service: tuple[int, int]) -> None:
    port, status = service
    assert check(port) == (0 if status == 200 else 1)


def test_health_check_fails_where_nothing_listens() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        port = server.server_port
    assert check(port) == 1
