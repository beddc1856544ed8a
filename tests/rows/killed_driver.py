"""A fit in two worker processes whose driver is killed, as a script without a guard: ``killed_driver.py FOLDER``.

It prints one line with its own id and those of its workers before it dies.
"""

import os
import signal
import sys
import warnings
from multiprocessing import active_children
from pathlib import Path
from typing import Any

from file_tables import FEW, files, model

from justitia.rows import files as rows_files
from justitia.training.checkpoint import Checkpoint

FOLDER, SAVES = Path(sys.argv[1]), [0]
warnings.simplefilter("ignore")  # few rows, large noise
rows_files.SAMPLE, rows_files.BLOCK = FEW, 256
original = Checkpoint.save


def save_and_die(self: Checkpoint, *given: Any) -> None:
    """Die after the answer of the first check was saved."""
    original(self, *given)
    SAVES[0] += 1
    if SAVES[0] == 3:
        print(os.getpid(), *(one.pid for one in active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


Checkpoint.save = save_and_die  # type: ignore[method-assign]
model().fit(files(FOLDER / "rows.parquet", workers=2), "label", sensitive_features="sex", checkpoint=FOLDER / "run")
