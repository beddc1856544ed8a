"""The habits around the code: how tests are started, and what `make` can do."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.experiments.__main__ import ALIASES, EXPERIMENTS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RULE = re.compile(r"^([a-z][\w.-]*)%?:", re.MULTILINE)
#: In code only: at the start of a line of a block, or in backticks.
NAMED = re.compile(r"(?:^|`)make ([a-z][\w.-]*(?<![.]))", re.MULTILINE)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
RULES = set(RULE.findall(MAKEFILE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_that_a_page_names_are_in_the_makefile(page: Path) -> None:
    named = set(NAMED.findall(page.read_text(encoding="utf-8")))
    unknown = named - RULES
    reproduced = {name.removeprefix("reproduce-") for name in unknown if name.startswith("reproduce-")}
    assert sorted(name for name in unknown if not name.startswith("reproduce-")) == []
    assert sorted(reproduced - {*EXPERIMENTS, *ALIASES}) == []


def test_targets_that_make_no_file_are_phony() -> None:
    phony = set(MAKEFILE.partition(".PHONY:")[2].partition("\n")[0].split())
    assert phony == RULES - {"reproduce-"}


def test_pytest_started_as_a_program_finds_experiments_from_the_root() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    source = f"import sys; sys.path[0] = {str(Path(sys.executable).parent)!r}; import pytest; sys.exit(pytest.main())"
    asked = ["--collect-only", "--noconftest", "tests/bench/experiments/test_paper.py"]
    run = subprocess.run(
        [sys.executable, "-c", source, *asked], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout
