"""Help that teaches: every command has an example, every example runs, and nothing is wider than 80 columns."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from running import Run, invoke

from justitia.cli import cli
from justitia.cli.app import COMMANDS as TABLE
from justitia.cli.errors import EXIT_CODES, NOT_SHOWN, OK


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """Commands of a group by name, in its order."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def commands(group: click.Group = cli, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in subcommands(group).items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name)


COMMANDS = list(commands())
GROUPS = [(), ("budget",), ("custodian",), ("datasets",), ("monitor",)]
#: Their verdict hangs on noise of the operating system: now and then a true claim is not shown.
JUDGED_BY_NOISE = [("audit",), ("evaluate",)]


def examples(help_text: str) -> list[list[str]]:
    """Words of each example in a help text, without the program's name and what a shell would do with the output."""
    _, _, below = help_text.partition("\nExample:\n")
    joined = re.sub(r"\\\n\s*", "", below)
    lines = [line.strip().removeprefix("$ justitia ") for line in joined.splitlines() if line.startswith("  $ ")]
    return [shlex.split(line.partition(" > ")[0]) for line in lines]


def out_of(words: list[str], option: str = "--out") -> Path | None:
    return Path(words[words.index(option) + 1]) if option in words else None


def cleared(place: Path | None) -> None:
    """Nothing is overwritten without --overwrite."""
    if place is not None and place.is_dir():
        shutil.rmtree(place)
    elif place is not None:
        place.unlink(missing_ok=True)


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_example_of_every_help_runs(words: tuple[str, ...], run: Run) -> None:
    found = examples(run(*words, "--help").stdout)
    assert found, f"the help of {' '.join(words)!r} has no example"
    for example in found:
        out = out_of(example)
        cleared(out)
        cleared(out_of(example, "--sensitive-file"))
        result = run(*example)
        allowed = {OK, NOT_SHOWN} if words in JUDGED_BY_NOISE else {OK}
        assert result.exit_code in allowed, result.output
        assert out is None or out.exists()


def test_examples_are_found_across_lines() -> None:
    text = "Options:\n\nExample:\n  $ justitia a --b 'c d' \\\n      --e\n  $ justitia f > g\n"
    assert examples(text) == [["a", "--b", "c d", "--e"], ["f"]]


@pytest.mark.parametrize("words", [*GROUPS, *COMMANDS], ids=" ".join)
def test_help_is_at_most_80_wide_and_explains_every_option(words: tuple[str, ...]) -> None:
    result = invoke(*words, "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    command: click.Command = cli
    for word in words:
        assert isinstance(command, click.Group)
        command = subcommands(command)[word]
    assert [one.name for one in command.params if isinstance(one, click.Option) and not one.help] == []


def test_table_of_commands_has_the_first_sentence_of_each_commands_own_help() -> None:
    found = {name: command.get_short_help_str(limit=200) for name, command in subcommands(cli).items()}
    assert found == TABLE
    assert list(found) == list(TABLE)
    shown = " ".join(invoke("--help").stdout.split())
    assert [name for name, sentence in TABLE.items() if f"{name} {sentence}" not in shown] == []


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_json_is_an_option_of_every_command(words: tuple[str, ...]) -> None:
    assert "--json" in invoke(*words, "--help").stdout


def test_exit_codes_are_in_the_help() -> None:
    text = " ".join(invoke("--help").stdout.partition("Exit codes:")[2].split())
    assert text == " ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())


def test_command_unknown_suggests_the_nearest(run: Run) -> None:
    assert "no command 'trian' in justitia; did you mean 'train'?" in run("trian").stderr
    assert "did you mean 'show'?" in run("budget", "shwo").stderr
    assert "did you mean 'income'?" in run("datasets", "write", "incom", "--out", "x.csv").stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_asks_this_program(shell: str) -> None:
    text = invoke("completion", shell).stdout
    assert "_JUSTITIA_COMPLETE" in text
    assert "justitia" in text


def test_completion_of_a_half_written_command_lists_commands_and_notions() -> None:
    from click.shell_completion import ShellComplete

    complete = ShellComplete(cli, {}, "justitia", "_JUSTITIA_COMPLETE")
    assert [one.value for one in complete.get_completions([], "tra")] == ["train", "tradeoff"]
    found = complete.get_completions(["train", "--notion"], "equal")
    assert [one.value for one in found] == ["equal_error", "equal_opportunity", "equalized_odds"]


@pytest.mark.parametrize("words", [(), ("budget",), ("datasets",)])
def test_command_without_arguments_shows_its_help_and_is_no_error(words: tuple[str, ...]) -> None:
    bare, asked = invoke(*words), invoke(*words, "--help")
    assert (bare.exit_code, bare.stdout, bare.stderr) == (0, asked.stdout, "")
