"""A database for a test: a DuckDB file, or a Postgres server of its own that stops with the test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

Run = Callable[[str], Any]


def programs() -> Path | None:
    """The folder with initdb and postgres, if there is one."""
    found = [Path(one).resolve().parent for one in [shutil.which("postgres")] if one]
    folders = [*found, *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    return next((one for one in folders if (one / "initdb").exists() and (one / "postgres").exists()), None)


def as_somebody(words: Sequence[Any]) -> list[str]:
    """Postgres refuses to run as root."""
    own = [] if os.geteuid() else ["runuser", "-u", "nobody", "--"]
    return [*own, *map(str, words)]


@contextmanager
def postgres(*, encoding: str = "UTF8") -> Iterator[str]:
    """The connection string of a new server."""
    place = programs()
    assert place is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    folder.chmod(0o777)
    data, words = folder / "data", ["-A", "trust", "-U", "holder", "--locale=C", "-E", encoding, "--no-sync"]
    subprocess.run(as_somebody([place / "initdb", "-D", data, *words]), check=True, capture_output=True, cwd="/")
    options = f"-F -p {port} -k {folder} -h 127.0.0.1"
    control = [place / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
    subprocess.run(as_somebody([*control, "-o", options, "start"]), check=True, capture_output=True, cwd="/")
    try:
        yield f"postgresql://holder:a-secret-word@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run(as_somebody([*control, "-m", "immediate", "stop"]), check=False, capture_output=True, cwd="/")
        shutil.rmtree(folder, ignore_errors=True)


def run_duckdb(file: Path, *lines: str) -> None:
    with duckdb.connect(file) as connection:
        for line in lines:
            connection.execute(line)


def run_postgres(url: str, *lines: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for line in lines:
            connection.execute(line)
