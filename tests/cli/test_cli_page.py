"""The commands of docs/cli.md run, in their order."""

import re
import shlex
from pathlib import Path

import pytest
from running import invoke, stand_in

from justitia.cli import cli
from justitia.cli.errors import EXIT_CODES

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [shlex.split(line.removeprefix("$ justitia ")) for block in blocks for line in block.splitlines()]


def test_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    monkeypatch.chdir(tmp_path)
    words = commands(PAGE)
    assert len(words) > 10
    for one in words:
        result = invoke(*one)
        assert result.exit_code == 0, f"{one}: {result.output}"


def test_page_names_every_command_and_every_exit_code() -> None:
    assert [name for name in cli.commands if f"`{name}`" not in PAGE] == []
    assert [code for code in EXIT_CODES if f"\n| {code} |" not in PAGE] == []
