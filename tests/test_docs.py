"""The documentation runs, its links lead somewhere, and it names every dependency."""

import json
import re
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from justitia.privacy.certificate import NOT_COVERED, SEVERAL_ROWS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "bench" / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
#: Pages without snippets whose links are followed too.
OTHERS = [ROOT / name for name in ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")]
README, SPEED, RESULTS = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/speed.md", "docs/results.md")
)
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
#: A python block, and what it prints: to the digit, or with other digits where noise decides them.
PRINTS = re.compile(
    r"^```python\n(?P<source>(?:(?!```).*\n)*)```\n+<!-- prints(?P<exactly> exactly)? -->\n```text\n"
    r"(?P<shown>(?:(?!```).*\n)*)```$",
    re.MULTILINE,
)
NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e-?\d+)?")
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(text: str) -> list[tuple[int, str]]:
    """Line number and source of each python block."""
    found = [(text.count("\n", 0, m.start()) + 2, m[1].strip(), m[2]) for m in FENCE.finditer(text)]
    return [(line, source) for line, language, source in found if language == "python"]


def shown_outputs(text: str) -> dict[str, tuple[str, bool]]:
    """What the page says that a block prints, and whether to the digit, by the block's source."""
    return {m["source"]: (m["shown"], bool(m["exactly"])) for m in PRINTS.finditer(text)}


def without_digits(printed: str) -> str:
    """The words and the layout in words: numbers and the width of columns are left out."""
    return " ".join(NUMBER.sub("#", printed).split())


def without_blocks(text: str) -> str:
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """Fragments of a page's headings, as code hosts derive them."""
    titles = re.findall(r"^#+ +(.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def missing_targets(page: Path) -> list[str]:
    """Relative links of a page whose file or heading does not exist."""
    missing = []
    for link in LINK.findall(without_blocks(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        known = target.exists() and (not fragment or fragment in anchors(target.read_text(encoding="utf-8")))
        missing += [] if known else [link]
    return missing


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_python_blocks_of_a_page_run_in_order_and_print_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    text = page.read_text(encoding="utf-8")
    shown = shown_outputs(text)
    for line, source in python_blocks(text):
        capsys.readouterr()
        # Blank lines in front, so that a failure names the line of the page.
        exec(compile("\n" * (line - 1) + source, str(page), "exec"), namespace)
        if source in shown:
            expected, exactly = shown[source]
            printed = capsys.readouterr().out
            assert printed == expected if exactly else without_digits(printed) == without_digits(expected)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_python_blocks_of_a_page_are_never_exempt(page: Path) -> None:
    languages = [m[1].strip() for m in FENCE.finditer(page.read_text(encoding="utf-8"))]
    assert [one for one in languages if one.lower().startswith("py") and one != "python"] == []


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=page_name)
def test_relative_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    assert missing_targets(page) == []


def test_helpers_on_a_made_up_page_find_its_blocks_and_its_broken_links(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title: here\n\n```python\nx = 1\n```\n[a](gone.md) [b](#a-title-here) [c](#no) [d](https://x.y)\n"
    )
    assert python_blocks(page.read_text()) == [(4, "x = 1\n")]
    assert missing_targets(page) == ["gone.md", "#no"]


def test_helpers_on_a_made_up_page_find_what_its_blocks_print() -> None:
    page = "```python\nprint(1)\n```\n\n<!-- prints -->\n```text\n1\n```\n\n```python\nx = 2\n```\n"
    assert shown_outputs(page) == {"print(1)\n": ("1\n", False)}
    assert without_digits("a  -0.5 [1,000, 1e-05]\n") == without_digits("a 0.25 [7, 3]")
    assert without_digits("below 1") != without_digits("above 1")


def test_every_output_that_a_page_shows_belongs_to_a_block() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- prints") == len(shown_outputs(text)), page_name(page)


# --- paper line beside code line


def quoted_lines(text: str) -> list[tuple[str, str]]:
    """File and code of each table row that ends with both."""
    return re.findall(r"^\|.*\| `([\w/]+\.py)` \| `([^`]+)` \|$", text, re.MULTILINE)


@pytest.mark.parametrize(("page", "least"), [("paper", 20), ("how_it_works", 7)])
def test_code_lines_that_a_page_quotes_are_in_their_files(page: str, least: int) -> None:
    quoted = quoted_lines((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert len(quoted) >= least
    for name, code in quoted:
        assert code in (ROOT / "src/justitia" / name).read_text(encoding="utf-8"), (name, code)


#: Statements of the paper, as docs/paper.md counts them; (8), (9) and (12) are steps of its proofs.
EQUATIONS = {1, 2, 3, 4, 5, 6, 7, 10, 11, 13}


def test_equations_that_code_and_pages_name_are_statements_of_the_paper() -> None:
    files = [*PAGES, *(path for folder in ("src", "tests", "bench") for path in (ROOT / folder).rglob("*.py"))]
    named = re.compile(r"\bEquations? (\d+)(?: and (\d+))?")
    found = {
        (page_name(path), int(number))
        for path in files
        for pair in named.findall(path.read_text(encoding="utf-8"))
        for number in pair
        if number
    }
    assert {number for _, number in found} >= {1, 10, 13}
    assert [(name, number) for name, number in sorted(found) if number not in EQUATIONS] == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_tests_that_a_page_names_exist(page: Path) -> None:
    text = without_blocks(page.read_text(encoding="utf-8"))
    named = set(re.findall(r"`(?:[\w/]+\.py::)?(test_\w+)`", text))
    assert sorted(named - defined_tests()) == []


@cache
def defined_tests() -> frozenset[str]:
    """Names of all tests."""
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for source in sources for name in re.findall(r"def (test_\w+)\(", source))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_files_of_tests_that_a_page_names_exist_and_hold_the_tests_named_with_them(page: Path) -> None:
    text = without_blocks(page.read_text(encoding="utf-8"))
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", text):
        assert not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), (file, name)
        assert (ROOT / file).is_file(), file


# --- sentences that two places share


def test_what_certificates_do_not_cover_is_what_the_page_of_the_guarantee_explains() -> None:
    text = (ROOT / "docs/guarantee.md").read_text(encoding="utf-8")
    section = text.partition("## What is not promised\n")[2].partition("\n## ")[0]
    explained = [" ".join(words.split()) for words in re.findall(r"^\* \*(.+?)\*", section, re.MULTILINE | re.DOTALL)]
    assert explained == [*NOT_COVERED, SEVERAL_ROWS]


# --- dependencies


def plain(name: str) -> str:
    """Package name as indexes compare it, without version and markers."""
    found = re.match(r"[A-Za-z0-9._-]+", name)
    assert found is not None, name
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {**project["project"].get("optional-dependencies", {}), **project.get("dependency-groups", {})}
    listed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    return {plain(one) for one in [*listed, *(one for group in groups.values() for one in group)]}


def documented() -> set[str]:
    rows = re.findall(r"^\| ([\w.-]+) \| (?!why)", (ROOT / "docs/dependencies.md").read_text(encoding="utf-8"), re.M)
    return {plain(one) for one in rows}


def locked(name: str = "requirements.lock") -> set[str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return {plain(line) for line in lines if line.strip() and not line.startswith("#")}


def test_dependencies_of_the_project_each_have_a_reason() -> None:
    assert declared() - documented() == set()


def test_dependencies_with_a_reason_are_locked() -> None:
    others = locked("requirements-engines.lock") | locked("requirements-release.lock")
    assert documented() - locked() - others == set()


def test_locked_packages_each_have_a_reason_or_are_asked_for_by_another() -> None:
    asked_for = {plain(one) for name in locked() for one in metadata.requires(name) or []}
    assert locked() - documented() - asked_for == set()


@pytest.mark.parametrize(("name", "most"), [("bench", 6), ("moments", 5), ("start", 4)])
def test_speed_table_is_what_the_committed_results_say(name: str, most: int) -> None:
    ratios = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))["ratios"]
    assert len(ratios) >= most
    for ratio in ratios:
        assert f"| {ratio['name']} | {ratio['value']:.2f} |" in SPEED, ratio["name"]
