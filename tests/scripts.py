"""A script as if it were started alone, in this process: large libraries are imported once for all of them."""

import contextlib
import io
import runpy
import warnings
from pathlib import Path

import matplotlib as mpl
import pytest
import sklearn
import torch


def run_script(path: Path, *words: str, folder: Path) -> str:
    """What it printed, started with these words in this folder."""
    printed = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        mpl.rc_context(),
        sklearn.config_context(),
        torch.random.fork_rng(devices=[]),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
    ):
        warnings.simplefilter("ignore")  # what a script warns of is its own affair
        patch.setattr("sys.argv", [str(path), *words])
        patch.syspath_prepend(str(path.parent))
        runpy.run_path(str(path), run_name="__main__")
    return printed.getvalue()
