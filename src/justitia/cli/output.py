"""What commands print and write: text of at most 80 columns, or JSON; folders that appear complete or not at all."""

from __future__ import annotations

import json
import math
import os
import re
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

from justitia import _files as writing
from justitia._files import Foreign, check_folder, replace_folder, stage_beside
from justitia.cli.errors import Refusal, shown_path

WIDTH = 80


def plain(value: Any) -> Any:
    """Data that JSON has: infinity is a word, NaN is null."""
    if getattr(value, "shape", None) == ():  # a number of numpy's, which is not imported for it
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return os.fspath(value)
    return value


def json_text(value: Any) -> str:
    """Indented JSON, with a line end."""
    return json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


#: What a terminal would obey: control characters other than tab and line end, and what changes the direction of text.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _escaped(found: re.Match[str]) -> str:
    """As JSON writes it, so that the output is the same JSON."""
    return json.dumps(found[0])[1:-1]


def tell(facts: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print either form to the standard output."""
    doing("")
    click.echo(_UNSAFE.sub(_escaped, json_text(facts) if as_json else text), nl=not as_json)


def warn(sentence: str) -> None:
    """Print a warning to the standard error."""
    doing("")
    click.echo(filled(f"warning: {sentence}", indent=9), err=True)


def doing(what: str) -> None:
    """Say in a terminal what is done now; the next line takes its place. Elsewhere nothing is written."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}" + (" ..." if what else ""))
        sys.stderr.flush()


@contextmanager
def unhurried() -> Iterator[None]:
    """Let nobody stop what takes a moment and was paid for: Ctrl-C and SIGTERM have no effect until it is done."""
    if threading.current_thread() is not threading.main_thread():
        yield  # where nobody can be asked to wait
        return
    kept = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextmanager
def told_warnings() -> Iterator[list[str]]:
    """Print the library's warnings as they come, each once, and keep them for JSON."""
    kept: list[str] = []

    def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, UserWarning) and str(message) not in kept:
            kept.append(str(message))
            warn(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield kept


def filled(text: str, *, indent: int = 0, first: str = "") -> str:
    """A paragraph within the width; later lines are indented."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def fields_text(facts: Mapping[str, str]) -> str:
    """Names and values, one paragraph each."""
    width = max(map(len, facts), default=0)
    return "\n".join(
        filled(text, indent=width + 4, first=f"  {name:<{width}}  ") for name, text in facts.items() if text
    )


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Columns of text under their names; the first ``left`` ones begin at the left."""
    columns = [[str(cell) for cell in column] for column in zip(head, *rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in zip(*columns, strict=True)
    ]
    return "\n".join(f"  {line}" for line in lines)


def shortened(text: str, width: int) -> str:
    """At most this many characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


@contextmanager
def staged_folder(target: Path, *, overwrite: bool, marker: str, foreign: Foreign) -> Iterator[Path]:
    """A place beside ``target`` to write to, moved there when all is written and removed if anything fails.

    It is made at once, so that a folder that cannot be written is found before any budget is spent.

    Raises
    ------
    Refusal
        If there is something already, unless it holds ``marker``, may be overwritten, and nothing in it is ``foreign``.
    """
    _check_replaceable(target, overwrite=overwrite, marker=marker, foreign=foreign)
    target.parent.mkdir(parents=True, exist_ok=True)
    with stage_beside(target) as stage:
        yield stage / "new"
        kept = replace_folder(stage / "new", target, stage, foreign)
    if kept is not None:
        warn(f"files that were put into {shown_path(target)} in the meantime are kept in {shown_path(kept)}.")


def _check_replaceable(target: Path, *, overwrite: bool, marker: str, foreign: Foreign) -> None:
    others = f"{shown_path(target)} exists and was not made by this command; choose another --out."
    if target.is_file():
        raise Refusal(others)
    check_folder(target)
    if not target.exists() or not any(target.iterdir()):
        return
    if not (target / marker).exists():
        raise Refusal(others)
    found = foreign(target)
    if found is not None:
        raise Refusal(
            f"{shown_path(target)} holds {shown_path(found.relative_to(target))}, which this command did not write; "
            "move it away or choose another --out."
        )
    if not overwrite:
        raise Refusal(f"{shown_path(target)} exists, and privacy was paid for it; pass --overwrite to replace it.")


def check_ledger_outside(ledger: Path | None, out: Path) -> None:
    """Refuse a ledger in the folder that is written: it has to outlive what it pays for."""
    if ledger is not None and ledger.resolve().is_relative_to(out.resolve()):
        raise Refusal(
            f"expected a ledger outside {shown_path(out)}, which may be replaced one day, got {shown_path(ledger)}; "
            "move it elsewhere."
        )


def check_apart(checkpoint: Path | None, out: Path) -> None:
    """Refuse a checkpoint in the folder that is written, or around it, or in that of a model."""
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
    """A file beside ``target``, moved there when all is written; made at once, as :func:`staged_folder` does.

    Raises
    ------
    Refusal
        If there is a file already that may not be overwritten, or it is one of the ``inputs``: those never may.
    """
    check_file(target, overwrite=overwrite, inputs=inputs)
    target.parent.mkdir(parents=True, exist_ok=True)
    with writing.staged_file(target, like=like, mode=mode) as stage:
        yield stage


def check_file(target: Path, *, overwrite: bool, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse a file that may not be replaced; for commands that write several, before the first is written."""
    if target.is_dir():
        raise Refusal(f"{shown_path(target)} is a folder; expected the name of a file to write.")
    if any(one is not None and one.resolve() == target.resolve() for one in inputs):
        raise Refusal(f"{shown_path(target)} is read by this command and cannot be written, too; choose another name.")
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise Refusal(f"{shown_path(target)} is not an ordinary file; choose another name.")
    if target.exists() and not overwrite:
        raise Refusal(f"{shown_path(target)} exists; pass --overwrite to replace it, or choose another name.")
