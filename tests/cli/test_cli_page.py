"""The commands of docs/cli.md and of the README run, in their order."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import click
import pytest
from running import invoke

from justitia.cli.app import COMMANDS, cli
from justitia.cli.errors import EXIT_CODES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
LENDER = (ROOT / "docs" / "lender.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line.removeprefix("$ justitia ")) for line in lines]


def run_all(words: list[list[str]]) -> None:
    for one in words:
        result = invoke(*one)
        assert result.exit_code == 0, f"{one}: {result.output}"


def test_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = commands(PAGE)
    assert len(words) > 10
    run_all(words)


def test_four_commands_of_the_readme_lead_from_a_csv_to_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = commands(README)
    assert len(words) == 4
    run_all([["datasets", "write", "income", "--out", "income.csv"]])
    file = Path("income.csv")
    file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:8001]), encoding="utf-8")
    run_all(words)
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Female" in page
    assert "not measured" not in page


def test_lenders_page_leads_from_its_file_to_a_page_and_shows_the_table_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["lender.py"])
    runpy.run_path(str(ROOT / "examples" / "lender.py"))
    assert all(line in LENDER for line in Path("loans.csv").read_text(encoding="utf-8").splitlines()[:3])
    (shown,) = re.findall(r"^<!-- the table of plan -->\n```text\n(.*?)^```", LENDER, re.MULTILINE | re.DOTALL)
    first, *others = commands(LENDER)
    planned = invoke(*first)
    assert planned.stdout.startswith(shown)
    run_all(others)
    assert "loans-test.csv" in Path("page.html").read_text(encoding="utf-8")


def test_output_of_plan_on_the_page_about_choices_is_what_it_prints() -> None:
    page = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^<!-- output of plan -->\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (planned,) = commands(page)
    assert invoke(*planned).stdout == shown


def test_commands_of_the_page_about_installation_run() -> None:
    run_all(commands((ROOT / "docs" / "install.md").read_text(encoding="utf-8")))


def loaded(group: click.Group) -> dict[str, click.Command]:
    """Commands of a group, each imported."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: one for name, one in found.items() if one is not None}


def all_options(command: click.Command) -> set[str]:
    own = {word for one in command.params for word in one.opts}
    below = loaded(command).values() if isinstance(command, click.Group) else ()
    return own.union(*(all_options(one) for one in below), {"--help"})


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md", "docs/budgets.md", "docs/reports.md"])
def test_options_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {word for code in re.findall(r"`([^`\n]*)`", text) for word in re.findall(r"(?<!\S)--[a-z][a-z-]*", code)}
    assert named - all_options(cli) == set()


def test_commands_that_take_a_ledger_are_those_that_the_page_names() -> None:
    (named,) = re.findall(r"queries the attribute with noise \(([^)]*)\)\s+takes\s+`--ledger`", PAGE)
    assert set(re.findall(r"`(\w+)`", named)) == {name for name, one in loaded(cli).items() if _takes_ledger(one)}


def _takes_ledger(command: click.Command) -> bool:
    # `report --ledger` only reads it: a command that pays can also make one.
    return any("--ledger-epsilon" in one.opts for one in command.params)


def test_page_names_every_command_and_every_exit_code() -> None:
    assert [name for name in COMMANDS if f"`{name}`" not in PAGE] == []
    assert [code for code in EXIT_CODES if f"\n| {code} |" not in PAGE] == []
