"""Fits where the disk is full: ``python full_disk.py PLACE FOLDER``, PLACE being a small file system of its own."""

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from file_tables import FEW, files, make_table, model, write

from justitia import DurableLedger
from justitia.rows import files as rows_files


def filled(place: Path, *, but: int) -> None:
    """Leave so many bytes of a file system free."""
    (place / "filler").unlink(missing_ok=True)
    found = os.statvfs(place)
    (place / "filler").write_bytes(bytes(found.f_bavail * found.f_frsize - but))


def main(place: Path, folder: Path) -> Any:
    """The error of each fit, and how many debits there are then."""
    whole = files(write(make_table(), folder / "whole.parquet"))
    ledger = DurableLedger(folder / "ledger.db", dataset="rows", epsilon=20.0, delta=1e-5)
    found = {}

    def fit(**more: Any) -> str:
        try:
            model(noise_seed=None).fit(whole, "label", sensitive_features="sex", **{"ledger": ledger} | more)
        except Exception as error:  # noqa: BLE001 - shown by the test
            return f"{type(error).__name__}: {error}"
        return "fitted"

    filled(place, but=8192)
    usual, tempfile.tempdir = tempfile.gettempdir(), str(place)
    found["rows"] = [fit(), len(ledger.releases)]
    tempfile.tempdir = usual
    found["state"] = [fit(checkpoint=place / "run"), len(ledger.releases)]
    found["journal"] = [fit(ledger=None, checkpoint=place / "other"), len(ledger.releases)]
    found["left"] = sorted(str(one.relative_to(place)) for one in place.rglob("*"))
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # few rows, large noise
    rows_files.SAMPLE = FEW
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))))
