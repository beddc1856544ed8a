"""Run a command in this process, and small tables to run it on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from click.testing import CliRunner, Result

from justitia import DurableLedger, MomentsPlan, PFLDPlan, PostProcessingPlan
from justitia.cli import cli
from justitia.datasets import make_synthetic

TINY = {
    "post-processing": PostProcessingPlan(checks=2, share_sizes=0.05),
    "moments": MomentsPlan(
        warmup_steps=60, warmup_learning_rate=0.02, rounds=10, public_steps=2, checks=2, batch_size=128
    ),
    "pf-ld": PFLDPlan(warmup_steps=10, private_steps=3, public_steps=2, batch_size=64),
}
ROWS = 400

Run = Callable[..., Result]


def income(rows: int, seed: int) -> pd.DataFrame:
    """A table with the words of Income, and an attribute that leans towards the label."""
    data = make_synthetic(rows, groups=("Female", "Male"), n_features=3, random_state=seed)
    table = data.X.set_axis(["hours", "education", "gain"], axis=1).round(3)
    table["work"] = np.where(data.X["x2"] > 0, "private", "state")
    ages = 20 + 50 * np.random.default_rng(seed).random(rows)
    return table.assign(income=np.where(data.y == 1, ">50K", "<=50K"), sex=data.sensitive, age=ages.round())


def invoke(*words: Any, **options: Any) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], terminal_width=80, **options)


def assert_refused(result: Result, code: int, *parts: str) -> str:
    """One sentence on the standard error, nothing on the standard output, and this exit code."""
    sentences = " ".join(line for line in result.stderr.splitlines() if not line.startswith("warning"))
    text = " ".join(sentences.split())
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in text
    assert "error: " in text
    for part in parts:
        assert part in text, text
    return text


def names(folder: Path) -> set[str]:
    """Everything in it."""
    return {one.relative_to(folder).as_posix() for one in folder.rglob("*")}


def refused(run: Run, here: Path, words: tuple[Any, ...], *parts: str, code: int = 2) -> str:
    """Run with a ledger; afterwards it is empty and the folder as it was."""
    before = names(here)
    counted = words[0] in {"train", "tradeoff", "evaluate"} and not any(
        str(one).startswith("--ledger") for one in words
    )
    ledger = ("--ledger", "people.ledger") if counted else ()
    text = assert_refused(run(*words, *ledger), code, *parts)
    assert names(here) == before
    assert DurableLedger.open("people.ledger").releases == ()
    return text


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
