"""The help of every command as text in a file: to show it needs neither the command nor the libraries that it imports.

``make help`` writes the file again; a test says when that is needed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

FILE = Path(__file__).with_name("help.json")
ASKING = ("-h", "--help")
#: The help is as wide in every terminal of at least so many columns.
WIDTH = 80


def stored(words: Sequence[str]) -> str | None:
    """The help that these words ask for; None for other words, and in a narrow terminal."""
    if len(words) < 2 or words[-1] not in ASKING or shutil.get_terminal_size().columns < WIDTH:
        return None
    texts: dict[str, str] = json.loads(FILE.read_text(encoding="utf-8"))
    return texts.get(" ".join(words[:-1]))


def rendered(group: click.Group, context: click.Context) -> Iterator[tuple[str, str]]:
    """Path and help of everything below a group."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        below = click.Context(command, info_name=name, parent=context, terminal_width=WIDTH)
        yield below.command_path.partition(" ")[2], command.get_help(below)
        if isinstance(command, click.Group):
            yield from rendered(command, below)


def all_help() -> dict[str, str]:
    """The help of every command, from the commands themselves."""
    from justitia.cli.app import cli  # noqa: PLC0415 - which imports this

    context = cli.make_context("justitia", ["--version"], resilient_parsing=True, terminal_width=WIDTH)
    return dict(rendered(cli, context))


def write() -> None:
    """Write the file again: ``make help``."""
    FILE.write_text(json.dumps(all_help(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
