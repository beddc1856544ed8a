"""The trainer's side holds no attribute: as another user, in its files and memory, and on the wire."""

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from service_fixtures import DATA, DELTA, IDS, KEYS, LABELS, make_folder, served

from bench.performance.two_users import found_in, patterns, trial
from justitia import LagrangianDualClassifier, PostProcessingPlan
from justitia.custodian import Custodian

MARK = "what somebody told about themselves"
TOLD = [MARK if k % 7 == 0 else label for k, label in enumerate(LABELS)]
NEEDED = ("unshare", "setpriv", "openssl")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root has other users' processes")
@pytest.mark.skipif(any(shutil.which(name) is None for name in NEEDED), reason=f"needs {', '.join(NEEDED)}")
def test_trainer_of_another_user_gets_the_same_model_over_tls_and_holds_no_attribute() -> None:
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are shut to other users
        found = trial(Path(place))
    assert found["same_bits"]
    assert found["files_of_the_custodian_that_the_trainer_can_open"] == []
    assert found["in_the_trainers_memory"] == found["in_the_trainers_files"] == []
    assert {"codes", "entries"} <= set(found["in_the_custodians_memory"])  # the look finds what is there


@contextmanager
def recorded(url: str, heard: list[bytes]) -> Iterator[str]:
    """Another address of a service, where all bytes in both directions are kept."""
    port = int(url.rpartition(":")[2])

    def pass_on(one: socket.socket, other: socket.socket) -> None:
        while part := one.recv(1 << 16):
            heard.append(part)
            other.sendall(part)
        other.shutdown(socket.SHUT_WR)

    def serve(listener: socket.socket) -> None:
        while True:
            here, _ = listener.accept()
            with here, socket.create_connection(("127.0.0.1", port)) as there:
                back = threading.Thread(target=pass_on, args=(there, here))
                back.start()
                pass_on(here, there)
                back.join()
            if not heard:  # the last connection said nothing
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        kept, heard[:] = list(heard), []
        socket.create_connection(listener.getsockname()).close()
        thread.join()
        heard[:] = kept


@pytest.mark.filterwarnings("ignore::justitia.exceptions.NoisyEstimateWarning")
def test_bytes_on_the_wire_hold_no_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY", KEYS["trainer"])
    heard: list[bytes] = []
    with served(make_folder(tmp_path / "holder", TOLD)) as url, recorded(url, heard) as through:
        holder = Custodian(through, population="people", ids=IDS)
        model = LagrangianDualClassifier(epsilon=2.0, delta=DELTA, groups=["a", "b"], plan=PostProcessingPlan(checks=1))
        model.fit(DATA.X, DATA.y, sensitive_features=holder)
    table, told = DATA.X.assign(id=IDS), DATA.sensitive.reset_index(drop=True).astype(object)
    told[:] = TOLD
    wanted = patterns(table, told.where(told.notna(), None), MARK)
    everything = b"".join(heard)
    assert found_in(iter([everything]), wanted) == []
    assert found_in(iter([everything]), {"ids": [b'"p17", "p18"'], "groups": [b'"groups":["a","b"]']}) == [
        "groups",
        "ids",
    ]
