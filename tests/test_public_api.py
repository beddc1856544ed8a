"""Public names and signatures do not change without a record and a line in the changelog."""

import re
from pathlib import Path
from typing import Any

import pytest

import justitia
from bench.release import api

TODAY = api.describe()


def test_record_has_every_public_name_of_today() -> None:
    _, recorded, _ = api.read_record()
    assert sorted(recorded) == sorted(TODAY), "run `make api`, and name what changed in CHANGELOG.md under [Unreleased]"


def test_changelog_names_what_came_or_went_since_the_last_release() -> None:
    assert api.missing_from_changelog() == []


def test_record_speaks_of_the_newest_release_of_the_changelog() -> None:
    released = re.findall(r"^## \[(\d[^\]]*)\]", api.CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE)
    assert (api.read_record()[0], justitia.__version__) == (released[0], released[0])


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A record and a changelog of a release with two functions, in a folder of their own."""
    monkeypatch.setattr(api, "RECORD", tmp_path / "record.txt")
    monkeypatch.setattr(api, "CHANGELOG", tmp_path / "changelog.md")
    api.CHANGELOG.write_text("## [Unreleased]\n\n## [1.0.0]\n\n- `justitia.gone` is gone.\n")

    def today(*lines: str) -> None:
        monkeypatch.setattr(api, "describe", lambda: sorted(lines))

    today("justitia.kept(x)", "justitia.gone()", "$ justitia train --old")
    api.write_record(released=True, version="1.0.0")
    return today


def test_record_after_changes_marks_what_came_and_what_went(other: Any) -> None:
    other("justitia.kept(x, y=None)", "$ justitia train --new")
    for _ in range(2):  # a second run changes nothing
        api.write_record(released=False, version="1.1.0")
        assert api.RECORD.read_text().splitlines()[1:] == [
            "+ $ justitia train --new",
            "- $ justitia train --old",
            "- justitia.gone()",
            "- justitia.kept(x)",
            "+ justitia.kept(x, y=None)",
        ]
    assert api.read_record()[0] == "1.0.0"


def test_change_that_only_an_older_section_names_is_missing(other: Any) -> None:
    other("justitia.kept(x)", "$ justitia train --new")
    api.write_record(released=False, version="1.0.0")
    assert api.missing_from_changelog() == [
        "+ $ justitia train --new",
        "- $ justitia train --old",
        "- justitia.gone()",
    ]
    text = "## [Unreleased]\n\n- `gone()` went, `train --old` is `--new`.\n\n## [1.0.0]\n"
    api.CHANGELOG.write_text(text)
    assert api.missing_from_changelog() == []


def test_record_after_a_change_was_taken_back_has_no_mark(other: Any) -> None:
    other("justitia.kept(x)")
    api.write_record(released=False, version="1.0.0")
    other("justitia.kept(x)", "justitia.gone()", "$ justitia train --old")
    api.write_record(released=False, version="1.0.0")
    assert api.read_record()[2] == []


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("justitia.measure(", "a function with its parameters"),
        ("justitia.LagrangianDualClassifier.fit(X, y, *, sensitive_features, ", "a method without self"),
        ("justitia.LagrangianDualClassifier.certificate_", "an attribute that fit sets"),
        ("justitia.Certificate.epsilon", "a field of a result"),
        ("justitia.exceptions.SmallGroupWarning(", "a warning"),
        ("$ justitia train --epsilon", "an option"),
        ("$ justitia train DATA required", "an argument"),
        ("$ justitia budget create --name required", "an option of a subcommand"),
    ],
)
def test_public_api_has(line: str, kind: str) -> None:
    assert [one for one in TODAY if one.startswith(line)] != [], kind


def test_public_api_has_no_private_name_and_nothing_of_scikit_learn() -> None:
    assert [line for line in TODAY if "._" in line] == []
    assert [line for line in TODAY if ".get_params" in line or ".set_params" in line] == []
