"""Output of commands: text as wide as the terminal or JSON, warnings, and files that appear complete or not at all."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import justitia._files as files
from justitia._files import Foreign, check_folder, replace_folder, stage_beside
from justitia.cli.errors import Refusal, shown_path

#: Width of text where there is no terminal, and of paragraphs and tables at least and at most.
WIDTH, NARROWEST, WIDEST = 80, 40, 120
#: Characters that a part of a group's name keeps at least: two letters at both ends of what is left out.
SHORTEST_PART = 7
#: First words of a result, with their colour on a terminal. The word alone says all.
COLOURS = {
    "PASS": "green",
    "FAIL": "red",
    "INCONCLUSIVE": "yellow",
    "MEASURED": "cyan",
    "TRAINED": "green",
    "ALERT": "red",
}
#: What a terminal would obey: control characters other than tab and line end, and what changes the direction of text.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

#: Name of a column before the label of a crossed group; "age>=60" has none.
_COLUMN = re.compile(r"^\w[\w .-]*=")


def print_result(facts: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print the result of a command to the standard output, as JSON or as text whose first word may have a colour."""
    show_progress("")
    # Escaped as JSON writes it, so that the output is the same JSON.
    safe = _UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], json_text(facts) if as_json else text)
    word = safe.partition(" ")[0]
    if not as_json and word in COLOURS and "NO_COLOR" not in os.environ:
        safe = click.style(word, fg=COLOURS[word], bold=True) + safe.removeprefix(word)
    click.echo(safe, nl=not as_json)  # which leaves colours out unless it writes to a terminal


def text_width() -> int:
    """Columns of the terminal, within limits; 80 where the output is no terminal."""
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, NARROWEST), WIDEST)


def json_text(value: Any) -> str:
    """Indented JSON, with a line end."""
    return json.dumps(json_value(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def json_value(value: Any) -> Any:
    """A value as JSON data: infinity becomes a word, NaN becomes null, a path becomes text."""
    if getattr(value, "shape", None) == ():  # a numpy scalar; numpy is not imported for it
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    if isinstance(value, Mapping):
        return dict(zip(map(str, value), map(json_value, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return list(map(json_value, value))
    return os.fspath(value) if isinstance(value, Path) else value


def warn(sentence: str) -> None:
    """Print a warning to the standard error."""
    show_progress("")
    click.echo(wrap(f"warning: {sentence}", indent=9), err=True)


def show_progress(what: str) -> None:
    """Show the current step in a terminal, on one line that the next call overwrites; elsewhere nothing is written."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}" + (" ..." if what else ""))
        sys.stderr.flush()


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM while a result that was paid for is saved."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signal handlers can be set in the main thread only
        return
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminate = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, terminate)


@contextmanager
def print_warnings() -> Iterator[list[str]]:
    """Print each of the library's warnings once, as it comes; the list that is returned is for JSON."""
    kept: list[str] = []

    def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, UserWarning) and str(message) not in kept:
            kept.append(str(message))
            warn(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield kept


def wrap(text: str, *, indent: int = 0, first: str = "") -> str:
    """A paragraph wrapped at the width; lines after the first are indented."""
    return textwrap.fill(
        text,
        text_width(),
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def fields_text(facts: Mapping[str, str]) -> str:
    """Names and values, one paragraph each; empty values are left out."""
    width = max(map(len, facts), default=0)
    paragraphs = []
    for name, text in facts.items():
        if text:
            first = f"  {name:<{width}}  "
            paragraphs.append(wrap(text, indent=width + 4, first=first))
    return "\n".join(paragraphs)


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A table; its first ``left`` columns are aligned to the left, the others to the right."""
    lines = [head, *rows]
    padded = []
    for place, column in enumerate(zip(*lines, strict=True)):
        width = max(map(len, column))
        padded.append([cell.ljust(width) if place < left else cell.rjust(width) for cell in column])
    text = []
    for cells in zip(*padded, strict=True):
        joined = "  ".join(cells)
        text.append(f"  {joined}".rstrip())
    return "\n".join(text)


def truncate(text: str, width: int) -> str:
    """At most ``width`` characters of a text."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def group_labels(names: Sequence[str], width: int) -> list[str]:
    """Names of groups for a table: about ``width`` characters each, and never two that are the same.

    Crossed groups such as "sex=F & age=age<30" become "F, age<30". Where a name is too long, its longest part loses its
    middle, as little of it as keeps the names apart.
    """
    parts = [[_COLUMN.sub("", part) for part in name.split(" & ")] if " & " in name else [name] for name in names]
    if len({", ".join(one) for one in parts}) < len(names):
        parts = [[name] for name in names]
    longest = max((len(", ".join(one)) for one in parts), default=0)
    for most in range(min(width, longest), longest):
        labels = [_shortened(one, most) for one in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [", ".join(one) for one in parts]


def _shortened(parts: Sequence[str], most: int) -> str:
    """Parts with commas between them; the longest ones lose their middle until this many characters are left."""
    kept = list(map(len, parts))
    while sum(kept) + 2 * (len(kept) - 1) > most and max(kept) > SHORTEST_PART:
        kept[kept.index(max(kept))] -= 1
    cut = [
        part if length == len(part) else f"{part[: (length - 2) // 2]}...{part[len(part) - (length - 3) // 2 :]}"
        for part, length in zip(parts, kept, strict=True)
    ]
    return ", ".join(cut)


@contextmanager
def staged_folder(target: Path, *, overwrite: bool, marker: str, foreign: Foreign) -> Iterator[Path]:
    """A folder beside ``target`` to write to, moved there when it is complete and removed if anything fails.

    It is made at once, so that a place that cannot be written to is found before any budget is spent.

    Raises
    ------
    Refusal
        If there is something already, unless it holds ``marker``, may be overwritten, and nothing in it is ``foreign``.
    """
    others = f"{shown_path(target)} exists and was not made by this command; choose another --out."
    if target.is_file():
        raise Refusal(others)
    check_folder(target)
    if target.exists() and any(target.iterdir()):
        if not (target / marker).exists():
            raise Refusal(others)
        found = foreign(target)
        if found is not None:
            raise Refusal(
                f"{shown_path(target)} holds {shown_path(found.relative_to(target))}, which this command did not "
                "write; move it away or choose another --out."
            )
        if not overwrite:
            raise Refusal(f"{shown_path(target)} exists, and privacy was paid for it; pass --overwrite to replace it.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with stage_beside(target) as stage:
        yield stage / "new"
        kept = replace_folder(stage / "new", target, stage, foreign)
    if kept is not None:
        warn(f"files that were put into {shown_path(target)} in the meantime are kept in {shown_path(kept)}.")


def check_outside(out: Path, *, ledger: Path | None, checkpoint: Path | None = None) -> None:
    """Refuse a ledger in the folder that is written, and a checkpoint in it, around it, or in the folder of a model."""
    if ledger is not None and ledger.resolve().is_relative_to(out.resolve()):
        # It has to outlive what it pays for.
        raise Refusal(
            f"expected a ledger outside {shown_path(out)}, which may be replaced one day, got {shown_path(ledger)}; "
            "move it elsewhere."
        )
    if checkpoint is None:
        return
    if (checkpoint / "model.json").exists():
        raise Refusal(
            f"expected a --checkpoint of its own, got the model {shown_path(checkpoint)}; choose another folder."
        )
    inner, outer = sorted((checkpoint.resolve(), out.resolve()), key=lambda one: len(one.parts), reverse=True)
    if inner.is_relative_to(outer):
        raise Refusal(f"expected a --checkpoint apart from {shown_path(out)}, got {shown_path(checkpoint)}; rename it.")


@contextmanager
def staged_file(
    target: Path, *, overwrite: bool, inputs: Iterable[Path | None] = (), like: Iterable[Path] = (), mode: int = 0o666
) -> Iterator[Path]:
    """A file beside ``target``, made at once and moved there when it is complete, like :func:`staged_folder`.

    Raises
    ------
    Refusal
        If there is a file already that may not be overwritten, or it is one of the ``inputs``: those never may.
    """
    check_file(target, overwrite=overwrite, inputs=inputs)
    target.parent.mkdir(parents=True, exist_ok=True)
    with files.staged_file(target, like=like, mode=mode) as stage:
        yield stage


def check_file(target: Path, *, overwrite: bool, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse a file that may not be replaced. Commands that write several check all before the first is written."""
    if target.is_dir():
        raise Refusal(f"{shown_path(target)} is a folder; expected the name of a file to write.")
    if any(one is not None and one.resolve() == target.resolve() for one in inputs):
        raise Refusal(
            f"{shown_path(target)} is an input of this command and cannot be overwritten; choose another name."
        )
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise Refusal(f"{shown_path(target)} is not an ordinary file; choose another name.")
    if target.exists() and not overwrite:
        raise Refusal(f"{shown_path(target)} exists; pass --overwrite to replace it, or choose another name.")
