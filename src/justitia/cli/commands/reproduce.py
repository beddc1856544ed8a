"""``justitia reproduce``: tables and figures of the evaluation, from a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import OK, Refusal, no_such, shown_path
from justitia.cli.output import print_result

EXAMPLE = """
$ justitia reproduce --list
"""
#: Prints the names that the checkout can reproduce.
NAMES = "from bench.experiments.__main__ import ALIASES, EXPERIMENTS; print(*EXPERIMENTS, *ALIASES)"


@click.command("reproduce", cls=Command, example=EXAMPLE)
@click.argument("name", required=False)
@click.option("--list", "listed", is_flag=True, help="List the names.")
@click.option("--quick", is_flag=True, help="A small and fast version.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Worker processes.")
@click.option("--out", type=options.FILE, help="Folder for the results; by default the checkout's.")
@click.option("--checkout", "folder", type=options.FILE, help="Of another checkout than the installed one; it is run.")
@options.as_json
def reproduce(
    name: str | None,
    listed: bool,
    quick: bool,
    jobs: int,
    out: Path | None,
    folder: Path | None,
    as_json: bool,
) -> int:
    """Reproduce the table or figure NAME of the evaluation.

    Runs 'python -m bench.experiments' of the checkout that justitia is installed from, or of the named one, but never
    of the current folder. An interrupted run resumes where it stopped.
    """
    root = checkout(folder)
    names = _run(root, ["-c", NAMES], quiet=True)[1].split()
    if listed or name is None:
        print_result({"names": names}, "\n".join(names), as_json=as_json)
        return OK
    if name not in names:
        raise no_such("table or figure", name, names)
    words = ["-m", "bench.experiments", name, "--jobs", str(jobs), *(["--quick"] if quick else [])]
    words += [] if out is None else ["--out", str(out.absolute())]
    code, text = _run(root, words, quiet=as_json)
    if as_json:
        print_result({"name": name, "exit_code": code, "output": text}, "", as_json=True)
    return code


def checkout(named: Path | None = None) -> Path:
    """Folder of the checkout that this package is installed from, or of the one that the user names.

    Raises
    ------
    Refusal
        If it is none.
    """
    root = Path(__file__).parents[4] if named is None else named.absolute()
    if (root / "bench" / "experiments" / "__main__.py").exists() and (root / "src" / "justitia").exists():
        return root
    if named is not None:
        raise Refusal(f"{shown_path(named)} is not a checkout of justitia; clone the repository and name its folder.")
    raise Refusal(
        "'justitia reproduce' needs a checkout of justitia; clone the repository and pass its folder as --checkout."
    )


def _run(root: Path, words: list[str], *, quiet: bool) -> tuple[int, str]:
    """Exit code and, if quiet, what was printed."""
    done = subprocess.run(  # noqa: S603 - our own interpreter and our own module
        [sys.executable, *words],
        cwd=root,
        stdout=subprocess.PIPE if quiet else None,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout or ""
