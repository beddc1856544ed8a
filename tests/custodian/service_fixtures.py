"""Fixtures: a small custodian in a folder, served from a thread of this process, and requests without a network."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pandas as pd

from justitia.custodian.app import App
from justitia.custodian.populations import ledger_file, register
from justitia.custodian.records import Client, Records
from justitia.custodian.server import servers
from justitia.custodian.service import Service
from justitia.custodian.settings import CONFIG, ServiceSettings, private_folder
from justitia.custodian.wire import to_stream
from justitia.datasets import make_synthetic
from justitia.privacy.attribute import Attribute
from justitia.privacy.keys import key_hash
from justitia.privacy.mechanisms import NoiseSource, SeededNoise
from justitia.privacy.register import Register

N, DELTA = 300, 1e-5
DATA = make_synthetic(N, groups=("a", "b"), n_features=3, random_state=1)
IDS = [f"p{row}" for row in range(N)]
LABELS: list[Any] = [None if row % 11 == 0 else label for row, label in enumerate(DATA.sensitive)]
KEYS = {"trainer": "key-of-the-trainer", "analyst": "key-of-the-analyst", "reader": "key-of-the-reader"}
ROLES = {"trainer": ("train", "measure"), "analyst": ("measure",), "reader": ("read",)}


def make_folder(
    folder: Path,
    labels: list[Any] | None = None,
    *,
    epsilon: float = 5.0,
    own: float | None = None,
    ids: Any = None,
    groups: Any = ("a", "b"),
) -> Path:
    """A population of everybody, and three clients."""
    private_folder(folder)
    records = Records(folder)
    attribute = Attribute(("sex",), [np.array([*(labels or LABELS), None], dtype=object)[:-1]])
    people = Register.from_rows(IDS if ids is None else ids, attribute)
    register(folder, records, "people", people, groups=list(groups), epsilon=epsilon, delta=DELTA)
    for name, key in KEYS.items():
        records.put_client(Client(name, ROLES[name], own, key_hash(key), ("people", "others")))
    return folder


def copied_ledger(folder: Path, place: Path) -> Path:
    """A copy of the ledger, with its identity: seeded noise is then the same."""
    return Path(shutil.copy(ledger_file(folder, "people"), place))


@contextmanager
def opened(folder: Path, noise: NoiseSource | None = None, **settings: Any) -> Iterator[Service]:
    service = Service(folder, ServiceSettings(page_port=0, **{"requests_per_minute": 10**6} | settings), noise)
    try:
        yield service
    finally:
        service.close()


@contextmanager
def served(folder: Path, noise: NoiseSource | None = None, **settings: Any) -> Iterator[str]:
    """The address of a service that runs in a thread."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with opened(folder, noise, port=port, **settings) as service:
        server = servers(service)[0]
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[tuple[str, int]]:
    """The address and the number of a service that is a process of its own, as the command starts it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = {"port": port, "page_port": 0, "requests_per_minute": 10**7} | settings
    (folder / CONFIG).write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))
    running = subprocess.Popen([sys.executable, "-m", "justitia", "custodian", "serve", str(folder)], stdout=-3)
    try:
        for _ in range(600):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"{'https' if 'tls_key' in settings else 'http'}://127.0.0.1:{port}", running.pid
        assert running.poll() is None, "the service has ended"
    finally:
        running.terminate()
        running.wait(timeout=60)


@dataclass(frozen=True)
class Reply:
    """All of a response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def facts(self) -> Any:
        return json.loads(self.body)


class Caller:
    """Requests to an application in this process."""

    def __init__(self, service: Service) -> None:
        self.app = App(service)
        self.asgi: Any = self.app.asgi

    def __call__(
        self,
        method: str,
        path: str,
        body: bytes | list[bytes] = b"",
        *,
        client: str | None = "trainer",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Reply:
        return asyncio.run(self._call(method, path, body, client, headers or {}, query))

    async def _call(
        self, method: str, path: str, body: bytes | list[bytes], client: str | None, headers: dict[str, str], query: Any
    ) -> Reply:
        key = {} if client is None else {"authorization": f"Bearer {KEYS.get(client, client)}"}
        if isinstance(body, bytes) and body:
            headers = {"content-length": str(len(body))} | headers
        chunks = list(body) if isinstance(body, list) else [body]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not chunks:
                await asyncio.sleep(3600)
            return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks) or isinstance(body, list)}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(query).encode(),
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in (key | headers).items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        await self.asgi(scope, receive, send)
        start = sent[0]
        head = {k.decode(): v.decode("latin-1") for k, v in start["headers"]}
        return Reply(start["status"], head, b"".join(one.get("body", b"") for one in sent[1:]))

    def cohort(self, ids: list[str] | None = None, **options: Any) -> str:
        body = json.dumps({"ids": ids or IDS}).encode()
        return str(self("POST", "/v1/populations/people/cohorts", body, **options).facts["cohort"])

    def sums(self, cohort: str, rows: Any, **query: Any) -> Reply:
        asked = {"request": "r1", "purpose": "test", "bound": 1.0, "noise_multiplier": 10.0} | query
        body = rows if isinstance(rows, bytes | list) else to_stream(np.asarray(rows, dtype=float))
        headers = asked.pop("headers", None)
        client = asked.pop("client", "trainer")
        return self("POST", f"/v1/cohorts/{cohort}/sums", body, client=client, headers=headers, **asked)


def frame(labels: list[Any]) -> pd.DataFrame:
    """The attribute as somebody has it in memory."""
    return pd.DataFrame({"sex": pd.Series(labels, dtype=object)})


class Exact(NoiseSource):
    """The switch of these tests: a service that gives exact answers, as others do."""

    description = "none"

    def words(self, size: int, *, release: int, stream: str = "noise") -> Any:
        raise AssertionError

    def add_gaussian(self, exact: Any, std: float, *, release: int) -> Any:
        return exact


class Kept(SeededNoise):
    """Keeps exact answers, and gives those that it is told to give, if any."""

    seeded = False
    description = "kept"

    def __init__(self, answers: list[Any] | None = None) -> None:
        super().__init__(5)
        self.exact: list[Any] = []
        self.noisy: list[Any] = []
        self.answers = answers

    def about(self, *query: object) -> Any:
        return self

    def add_gaussian(self, exact: Any, std: float, *, release: int) -> Any:
        place = len(self.exact)
        self.exact.append(exact.copy())
        drawn = super().add_gaussian(exact, std, release=release) if self.answers is None else self.answers[place]
        self.noisy.append(drawn.copy())
        return drawn
