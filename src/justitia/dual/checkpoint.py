"""Checkpoint and resume that neither replays noise nor loses a debit.

A checkpoint is a folder with two files. ``ledger.jsonl`` receives every debit before its answer is computed;
``state.pt`` is written after every round. If the run debits a durable ledger, ``run.txt`` stands in the place of the
first: the name under which that ledger holds its debits. A run that stops in between has paid for answers that are
gone: when it is resumed they stay paid, are not asked again, and the round goes on without them.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from justitia.privacy.durable import DurableLedger
from justitia.privacy.ledger import BudgetExceeded, PrivacyLedger
from justitia.privacy.ledger_file import write_durably

if TYPE_CHECKING:
    from justitia.dual.engine import Engine


#: Holds the name of a run whose debits are in a durable ledger.
RUN_FILE = "run.txt"


def run_name(folder: Path) -> str:
    """The name of the run in this folder; a fresh one if there is none."""
    file = folder / RUN_FILE
    return file.read_text(encoding="utf-8").strip() if file.exists() else uuid.uuid4().hex


class Checkpoint:
    """A folder that an interrupted ``fit`` can be resumed from.

    Parameters
    ----------
    folder : path
        Created if it does not exist.
    fingerprint : str
        Hash of the public inputs; a folder of another run is refused.
    ledger : PrivacyLedger
        The run's ledger: its journal is this folder's ``ledger.jsonl``, or it is a durable one and the folder keeps
        the name of the run.
    """

    def __init__(self, folder: Path | str, *, fingerprint: str, ledger: PrivacyLedger) -> None:
        self.folder = Path(folder)
        self.ledger = ledger
        self.fingerprint = fingerprint
        self.folder.mkdir(parents=True, exist_ok=True)
        self._state = self._read()
        if isinstance(ledger, DurableLedger) and not (self.folder / RUN_FILE).exists():
            write_durably(self.folder / RUN_FILE, ledger.run)

    def _read(self) -> dict[str, Any] | None:
        path = self.folder / "state.pt"
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(path, weights_only=True)
        except Exception:  # noqa: BLE001 - torch raises many things, and its advice here is to load unsafely
            raise ValueError(
                f"The checkpoint in {str(self.folder)!r} is damaged; choose another folder, or delete this one."
            ) from None
        if state["fingerprint"] != self.fingerprint:
            raise ValueError(
                f"The checkpoint in {str(self.folder)!r} belongs to a run with other data or settings; "
                "choose another folder, or delete this one."
            )
        return state

    def restore(self, run: Any, engine: Engine, lam: Tensor) -> tuple[Tensor, int]:
        """Put the saved state back; returns the multipliers and the position in the schedule to go on from."""
        spent = len(self.ledger.own_releases())
        if self._state is None:
            if spent:
                raise BudgetExceeded(
                    f"The run in {str(self.folder)!r} stopped before its first answer was saved, and the debit stands; "
                    "start again in another folder with a new budget."
                )
            return lam, 0
        if spent < self._state["releases"]:
            raise ValueError(
                f"The checkpoint in {str(self.folder)!r} has seen debits that its ledger does not hold; "
                "resume it with the ledger it was started with."
            )
        run.restore(self._state["run"])
        engine.restore(self._state["engine"], lost=spent - self._state["releases"])
        return self._state["lam"], self._state["position"]

    def save(self, run: Any, engine: Engine, lam: Tensor, position: int) -> None:
        """Write the state atomically."""
        state = {
            "fingerprint": self.fingerprint,
            "releases": len(self.ledger.own_releases()),
            "position": position,
            "lam": lam,
            "engine": engine.state(),
            "run": run.state(),
        }
        temporary = self.folder / f"state.{os.getpid()}.tmp"
        torch.save(state, temporary)
        temporary.replace(self.folder / "state.pt")
