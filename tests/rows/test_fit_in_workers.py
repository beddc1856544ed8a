"""Fits in worker processes: the same numbers, no second debit when one is killed, and the attribute stays in them."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_tables import FEW, GROUPS, digest, files, make_table, model, recorded_sums, write

from justitia import PrivacyLedger, SensitiveColumns
from justitia.postprocessing.solver import PostProcessingRun
from justitia.privacy import vault as vault_module
from justitia.privacy.joining import FileAttribute
from justitia.privacy.vault import FileCodes
from justitia.rows import files as rows_files
from justitia.rows.parquet import RowFiles
from justitia.rows.processes import _Worker

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # few rows, large noise
    pytest.mark.skipif(os.name != "posix", reason="kills processes"),
]
TABLE = make_table()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most rows are not in the sample, and two workers have several blocks each."""
    monkeypatch.setattr(rows_files, "SAMPLE", FEW)
    monkeypatch.setattr(rows_files, "BLOCK", 256)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return write(TABLE, tmp_path / "rows.parquet")


def listening(process: int) -> list[str]:
    """Sockets of a process that wait for connections."""
    kernel = Path("/proc/net")
    waiting = {
        line.split()[9]
        for name in ("tcp", "tcp6")
        if (kernel / name).exists()
        for line in (kernel / name).read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    unix = (line.split() for line in (kernel / "unix").read_text().splitlines()[1:])
    waiting |= {words[6] for words in unix if int(words[3], 16) & 0x10000}
    links = [str(one.readlink()) for one in Path(f"/proc/{process}/fd").iterdir() if one.is_symlink()]
    return [link for link in links if link.removeprefix("socket:[").removesuffix("]") in waiting]


def test_two_workers_give_the_fit_of_one_process_and_the_driver_reads_no_attribute(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns: dict[str, Any] = {"sensitive_features": "sex", "sample_weight": "weight", "person": "who"}
    with recorded_sums() as alone:
        expected = model().fit(files(stored), "label", **columns)
    read: set[str] = set()
    sockets: list[str] = []
    tables, check, workers = RowFiles.tables, PostProcessingRun._check, list[_Worker]()

    def recorded_tables(self: RowFiles, names: Any, *rows: Any) -> Any:
        read.update(names)
        return tables(self, names, *rows)

    def checked(self: PostProcessingRun) -> None:
        pool = self.source._pool  # type: ignore[attr-defined]
        workers[:] = pool._workers
        if Path("/proc/net/unix").exists():
            sockets.extend(one for worker in pool._workers for one in listening(worker._process.pid))
        check(self)

    monkeypatch.setattr(RowFiles, "tables", recorded_tables)
    monkeypatch.setattr(FileAttribute, "stream", lambda *_: pytest.fail("the driver reads the attribute"))
    monkeypatch.setattr(PostProcessingRun, "_check", checked)
    with recorded_sums() as together:
        found = model().fit(files(stored, workers=2), "label", **columns)
    assert together == alone
    assert digest(found, TABLE) == digest(expected, TABLE)
    assert found.history_.equals(expected.history_)
    assert found.ledger_.costs() == expected.ledger_.costs()
    assert read == {"who"}  # public ids; workers read all else
    assert sockets == []
    assert len(workers) == 2
    assert not any(worker._process.is_alive() for worker in workers)


def test_workers_killed_during_passes_change_neither_result_nor_ledger(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = write(TABLE[["id", "sex"]].sample(frac=1.0, random_state=0), tmp_path / "second.parquet")
    where = SensitiveColumns("sex", file=second, key="id")
    apart = write(TABLE.drop(columns="sex"), tmp_path / "public.parquet")
    expected = model().fit(files(apart), "label", sensitive_features=where)
    send, passes, killed = _Worker.send, [0], []

    def send_and_kill(self: _Worker, message: bytes) -> None:
        send(self, message)
        if b"\x8c\x03run" in message[:40]:
            passes[0] += 1
            if passes[0] in {1, 12}:  # the moments in the first worker, a later pass in the second
                assert self._process.pid is not None
                os.kill(self._process.pid, signal.SIGKILL)
                killed.append(self._process.pid)

    monkeypatch.setattr(_Worker, "send", send_and_kill)
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-5)
    found = model().fit(files(apart, workers=2), "label", sensitive_features=where, ledger=ledger)
    assert len(killed) == 2
    assert digest(found, TABLE) == digest(expected, TABLE)
    assert [one.purpose for one in ledger.releases] == ["moments", "decisions", "decisions"]
    assert ledger.costs() == expected.ledger_.costs()


def test_fit_whose_driver_was_killed_resumes_and_its_workers_end(stored: Path, tmp_path: Path) -> None:
    for name in ("random", "json", "pandas", "file_tables"):  # a worker that imported one of these would leave a trace
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("killed_driver.py")), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=500,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (line,) = done.stdout.splitlines()  # the script ran once: no worker has run it again
    _, *workers = map(int, line.split())
    assert len(workers) == 2
    until = time.monotonic() + 60
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    assert not (tmp_path / "imported").exists()
    assert "Traceback" not in done.stderr
    resumed = model().fit(files(stored), "label", sensitive_features="sex", checkpoint=tmp_path / "run")
    assert [one.purpose for one in resumed.ledger_.releases] == ["moments", "decisions", "decisions"]
    assert digest(resumed, TABLE) == digest(model().fit(files(stored), "label", sensitive_features="sex"), TABLE)


def test_base_that_cannot_be_sent_to_workers_is_refused_before_anything_is_debited(stored: Path) -> None:
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-5)
    base = model(base=lambda rows: 1 / (1 + np.exp(-rows["a"].to_numpy())))
    with pytest.raises(ValueError, match="cannot be pickled") as refused:
        base.fit(files(stored, workers=2), "label", sensitive_features="sex", ledger=ledger)
    assert "\n" not in str(refused.value)
    assert len(ledger.releases) == 0


def test_pickled_codes_hold_no_entry_and_are_read_again_where_they_arrive(stored: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(vault_module, "_IN_WORKER", {})
    codes = FileCodes(FileAttribute(SensitiveColumns("sex"), files(stored)), GROUPS)
    before = pickle.dumps(codes)
    found = codes.take(0, len(TABLE))
    text = pickle.dumps(codes)
    assert text == before
    assert found.tobytes()[:40] not in text
    assert found.astype(np.int8).tobytes()[:40] not in text
    copy = pickle.loads(text)
    assert copy._read == {}
    assert np.array_equal(copy.take(0, len(TABLE)), found)
    assert pickle.loads(text) is copy  # in a worker every pass finds the codes that the first one has read
