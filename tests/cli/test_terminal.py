"""What a terminal shows: width, colour, the result first, names of groups."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from running import Run, income
from texts import TRAIN

from justitia.cli.output import group_labels, text_width

COLOUR = re.compile(r"\x1b\[\d+m")


def in_terminal(*words: str, cwd: Path, columns: int, **variables: str) -> str:
    """What a command writes to a terminal of this width."""
    outer, inner = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    env |= {"COLUMNS": str(columns), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "justitia", *words]
    with subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, cwd=cwd, env=env) as process:
        os.close(inner)
        written = b""
        while True:
            try:
                part = os.read(outer, 65_536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            written += part
        process.wait()
    os.close(outer)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("coloured", [True, False])
def test_terminal_shows_the_result_first_in_its_width(here: Path, columns: int, coloured: bool) -> None:
    variables = {} if coloured else {"NO_COLOR": "1"}
    words = ("measure", "test.csv", "--decision", "income", "--sensitive", "sex", "--groups", "Female,Male")
    text = in_terminal(*words, "--below", "0.9", cwd=here, columns=columns, **variables)
    shown = text.rpartition("\x1b[K")[2]  # after the last progress line was taken away
    assert bool(COLOUR.search(shown)) == coloured
    lines = COLOUR.sub("", shown).splitlines()
    assert lines[0].startswith("PASS  gap ")
    assert lines[0].endswith("limit 90.0 points")
    assert columns - 30 < max(map(len, lines)) <= columns
    assert "starting" not in shown


def test_output_that_is_no_terminal_has_no_colour_and_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    words = ("--sensitive", "sex", "--groups", "Female,Male", "--epsilon", "30")
    result = run("measure", "test.csv", "--decision", "income", *words)
    assert result.stdout.startswith("MEASURED  gap ")
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize(("below", "word", "code"), [("0.9", "PASS", 0), ("0.01", "FAIL", 4), ("0.2", "INCON", 4)])
def test_first_word_agrees_with_the_exit_code(run: Run, here: Path, below: str, word: str, code: int) -> None:
    decisions = [*["yes"] * 300, *["no"] * 200, *["yes"] * 400, *["no"] * 100]  # rates .6 and .8
    table = pd.DataFrame({"sex": ["Female"] * 500 + ["Male"] * 500, "d": decisions})
    table.to_csv(here / "decided.csv", index=False)
    given = ("--sensitive", "sex", "--groups", "Female,Male", "--epsilon", "30", "--below", below)
    result = run("measure", "decided.csv", "--decision", "d", *given)
    assert result.exit_code == code, result.output
    assert result.stdout.startswith(word)
    assert ("exit code 4" in result.stdout) == (code == 4)


def test_each_notion_has_a_line_of_its_own(run: Run) -> None:
    words = ("--sensitive", "sex", "--groups", "Female,Male", "--epsilon", "30", "--target", "income")
    result = run("measure", "test.csv", "--decision", "income", *words)
    first, second = result.stdout.splitlines()[:2]
    assert first.endswith("(demographic_parity)")
    assert second.strip().startswith("gap ")
    assert second.endswith("(equalized_odds)")


def test_many_columns_are_summarised_and_verbose_lists_them(run: Run, here: Path) -> None:
    table = income(400, 0).drop(columns="age")
    wide = table.assign(**{f"x{j}": table["hours"] + j for j in range(12)}, currency="EUR")
    wide.to_csv(here / "wide.csv", index=False)
    short = run("plan", "wide.csv", *TRAIN[:-2])
    assert "Columns: 15 numeric, 1 categorical; --verbose lists them." in short.stdout
    assert "currency" in short.stdout  # left out, so it is listed
    assert "x11 " not in short.stdout
    listed = run("plan", "wide.csv", *TRAIN[:-2], "--verbose")
    assert "How columns are read (16 of 17 are features):" in listed.stdout
    assert "x11 " in listed.stdout


@pytest.mark.parametrize(
    ("names", "width", "labels"),
    [
        (["F", "M"], 20, ["F", "M"]),
        (["age<25", "25<=age<60", "age>=60"], 20, ["age<25", "25<=age<60", "age>=60"]),
        (["sex=F & age=age<30", "sex=M & age=age>=30"], 20, ["F, age<30", "M, age>=30"]),
        (["a=x & b=y", "b=x & a=y"], 20, ["a=x & b=y", "b=x & a=y"]),
        (["White-European-descent", "White-European-other"], 12, ["White...cent", "White...ther"]),
        (["same-" * 5 + "1" + "-end" * 5, "same-" * 5 + "2" + "-end" * 5], 12, None),
    ],
)
def test_labels_of_groups_are_short_and_distinct(names: list[str], width: int, labels: list[str] | None) -> None:
    found = group_labels(names, width)
    assert len(set(found)) == len(names)
    if labels is not None:
        assert found == labels


def test_width_follows_the_terminal_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for columns in ("20", "100", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        found.append(text_width())
    assert found == [40, 100, 120]
