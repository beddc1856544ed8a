"""What goes with a release says the same as the package: versions, bounds, hooks, templates."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import justitia
from bench import newcomer
from bench.release import environments

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = ["requirements.lock", "requirements-engines.lock", "requirements-release.lock"]


def yaml_of(name: str) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


def test_citation_has_the_version_and_date_of_the_changelog_and_cites_the_paper() -> None:
    cited = yaml_of("CITATION.cff")
    (released,) = re.findall(
        rf"^## \[{re.escape(justitia.__version__)}\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert (cited["version"], cited["date-released"]) == (justitia.__version__, released)
    assert cited["license"] == PROJECT["license"]
    assert {"authors", "cff-version", "message", "title"} <= set(cited)  # what the schema requires
    (paper,) = cited["references"]  # type: ignore[misc]
    assert [one["family-names"] for one in paper["authors"]] == ["Tran", "Fioretto", "Van Hentenryck"]


def test_lower_bounds_are_below_the_versions_of_the_lock() -> None:
    lock = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE))
    locked = {name.lower().replace("_", "-"): Version(version) for name, version in lock.items()}
    for pinned in environments.lower_bounds():
        name, _, bound = pinned.partition("==")
        assert Version(bound) <= locked[name], name
    assert len(environments.lower_bounds()) == len(PROJECT["dependencies"])


def test_every_requirement_has_a_lower_bound_and_no_upper_one() -> None:
    extras = [one for several in PROJECT["optional-dependencies"].values() for one in several]
    for requirement in map(Requirement, PROJECT["dependencies"] + extras):
        assert [one.operator for one in requirement.specifier] == [">="], requirement


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_every_line(name: str) -> None:
    lines = [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[\w.\[\]-]+==[\w.!-]+", line)] == []


def test_selected_tests_of_other_environments_exist() -> None:
    assert [one for one in environments.TESTS if not (ROOT / one).is_file()] == []


def test_hooks_before_a_commit_are_the_commands_of_make_check() -> None:
    rule = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert rule is not None
    commands = [line.strip().removeprefix("$(BIN)/").removesuffix(" .") for line in rule[1].splitlines()]
    (repository,) = yaml_of(".pre-commit-config.yaml")["repos"]  # type: ignore[misc]
    hooks = [one["entry"].removeprefix(".venv/bin/").removesuffix(" --force-exclude") for one in repository["hooks"]]
    assert hooks == commands


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_template_of_an_issue_has_a_name_a_description_and_fields_with_labels(name: str) -> None:
    form = yaml_of(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert form["name"]
    assert form["description"]
    fields = [one for one in form["body"] if one["type"] != "markdown"]  # type: ignore[attr-defined]
    assert {one["type"] for one in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert all(one["attributes"]["label"] for one in fields)
    assert len({one["id"] for one in fields}) == len(fields)


def test_file_of_the_newcomer_is_in_no_page(tmp_path: Path) -> None:
    newcomer.write_file(tmp_path / newcomer.FILE, rows=50)
    lines = (tmp_path / newcomer.FILE).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 51
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert [page.name for page in pages if "scholarship" in page.read_text(encoding="utf-8")] == []
    assert [command.split()[1] for command in newcomer.COMMANDS] == ["split", "train", "evaluate", "report"]
