"""Do tests notice when code is wrong? ``make mutants``, or ``python -m bench.performance.mutants [--sample 30]``.

mutmut makes wrong copies of the lines that may not break unnoticed (``[tool.mutmut]`` in pyproject.toml), in the folder
``mutants``, and runs the tests that come by each. There are thousands, so a random sample is run. A survivor is a
difference that no test sees: a missing test, or a number that may as well be another.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

from _pytest.nodes import Node

FOLDER = Path("mutants")
#: What is run first, because mutmut makes the wrong copies and times the tests only when it runs some.
FIRST = "justitia.training.lagrangian.x_shrink__*"
#: How a mutant ends that nobody noticed: its tests passed, or there are none (pytest's code for that, and mutmut's).
UNNOTICED = (0, 5, 33)


def mutmut(*words: str) -> None:
    """Run mutmut in this interpreter, where it finds a name of pytest's that pytest 9 took away."""
    Node._nodeid = property(lambda node: node.nodeid)  # type: ignore[attr-defined]
    from mutmut.__main__ import cli  # noqa: PLC0415 - reads its settings when it is imported

    cli.main(list(words), standalone_mode=False)


def verdicts() -> dict[str, int | None]:
    """Every mutant: None before it was run, then how its tests ended."""
    found: dict[str, int | None] = {}
    for file in sorted(FOLDER.rglob("*.meta")):
        found |= json.loads(file.read_text(encoding="utf-8"))["exit_code_by_key"]
    return found


def run(names: list[str], jobs: int) -> None:
    """Run these in a process of their own: mutmut changes its folder and its path."""
    words = ["-m", "bench.performance.mutants", "--only", *names, "--jobs", str(jobs)]
    subprocess.run([sys.executable, *words], check=True)  # noqa: S603


def main(arguments: list[str] | None = None) -> int:
    """Run a sample, and show how each survivor differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=30, help="how many of them")
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="these, by name")
    options = parser.parse_args(arguments)
    if options.only:
        mutmut("run", "--max-children", str(options.jobs), *options.only)
        return 0
    run([FIRST], options.jobs)
    known = sorted(verdicts())
    chosen = random.Random(options.seed).sample(known, min(options.sample, len(known)))  # noqa: S311 - a public choice
    run(chosen, options.jobs)
    ended = verdicts()
    survivors = [name for name in chosen if ended[name] in UNNOTICED]
    for name in survivors:
        mutmut("show", name)
    print(f"{len(survivors)} of {len(chosen)} survived (of {len(known)} in all)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
