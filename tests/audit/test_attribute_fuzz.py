"""10,000 hostile columns: none fails, warns or prints, and no entry changes another person's group."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hostile import GROUPS, KINDS, Kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from justitia.cli.files.attribute import Where
from justitia.cli.files.rows import read_rows
from justitia.privacy.attribute import Attribute
from justitia.privacy.groups import encode, group_names, infer_groups, read_columns

#: Of each kind; every example is a column, and the same column with another entry.
EXAMPLES = 10_000 // len(KINDS) + 1
CROSSED = tuple(itertools.product(GROUPS, GROUPS))
QUIET = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def codes_of(container: Any) -> list[int]:
    columns = read_columns(container)[1]
    groups = infer_groups(columns)
    assert len(group_names(groups)) == len(groups)
    return encode(columns, GROUPS if len(columns) == 1 else CROSSED).tolist()


def changed(values: list[Any], place: int, other: Any) -> list[Any]:
    return [other if row == place else value for row, value in enumerate(values)]


def columns_with_a_change(kind: Kind) -> Any:
    """Two to six values, the place of one of them, and what it becomes."""
    value = st.integers(0, len(kind.values) - 1)
    return st.tuples(st.lists(value, min_size=2, max_size=6), st.integers(0, 5), value).map(
        lambda drawn: ([kind.values[one] for one in drawn[0]], drawn[1] % len(drawn[0]), kind.values[drawn[2]])
    )


def check_kind(kind: Kind) -> list[int]:
    """Codes that occurred."""
    seen: list[int] = []

    @QUIET
    @given(columns_with_a_change(kind))
    def check(drawn: tuple[list[Any], int, Any]) -> None:
        values, place, other = drawn
        before = codes_of(kind.build(values))
        after = codes_of(kind.build(changed(values, place, other)))
        assert len(before) == len(after) == len(values)
        assert before[:place] + before[place + 1 :] == after[:place] + after[place + 1 :]
        assert before[place] == codes_of(kind.build(values[place : place + 1]))[0]  # nor do others change it
        seen.extend(before)

    check()
    return seen


@pytest.mark.parametrize("name", list(KINDS))
def test_hostile_entry_changes_nobody_elses_group_and_nothing_is_said(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = check_kind(KINDS[name])
    assert capfd.readouterr() == ("", "")
    assert len(seen) >= 2 * EXAMPLES
    assert len(set(seen)) > 1 or name == "polars records"  # those cannot be hashed, so they are no labels


def test_fuzz_makes_ten_thousand_columns() -> None:
    assert EXAMPLES * len(KINDS) >= 10_000


@pytest.mark.parametrize(
    ("name", "whole", "error"),
    [
        ("Arrow timestamp us", lambda column: column.to_pylist(), OverflowError),
        ("Arrow int", lambda column: column.to_pandas().to_list(), AssertionError),
    ],
)
def test_fuzz_finds_a_reader_that_converts_a_column_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, name: str, whole: Any, error: type[Exception]
) -> None:
    """The test above is able to fail."""
    monkeypatch.setattr("justitia.privacy.columns._from_arrow", whole)
    with pytest.raises(error):
        check_kind(KINDS[name])


# --- the same through files


def labels_and_public(file: Path) -> tuple[list[Any], Any]:
    people = read_rows(file, Where(sensitive=["a"]), target="y")
    assert isinstance(people.sensitive, Attribute)
    return people.sensitive.reveal_entries()[1][0].tolist(), (people.X.to_csv(), people.y.tolist())


def written_csv(file: Path, values: list[bytes]) -> Path:
    rows = [b'%d,"%b",%d' % (row, value.replace(b'"', b'""'), row % 2) for row, value in enumerate(values)]
    file.write_bytes(b"\n".join([b"x,a,y", *rows, b""]))
    return file


def test_csv_any_bytes_change_one_label_and_nothing_public(tmp_path: Path) -> None:
    byte = st.binary(max_size=6) | st.sampled_from([b"f", b"\r", b"\n", b"\0", b'"', b"NA", b"1e400", b"\xef\xbb\xbf"])

    @QUIET
    @given(st.lists(byte, min_size=2, max_size=5), st.integers(0, 4), byte)
    def check(values: list[bytes], where: int, other: bytes) -> None:
        place = where % len(values)
        before, public = labels_and_public(written_csv(tmp_path / "a.csv", values))
        after, still = labels_and_public(written_csv(tmp_path / "a.csv", changed(values, place, other)))
        assert public == still
        assert before[:place] + before[place + 1 :] == after[:place] + after[place + 1 :]

    check()


@pytest.mark.parametrize("name", ["Arrow int", "Arrow text", "Arrow date32", "Arrow duration ms", "Arrow timestamp us"])
def test_parquet_any_value_changes_one_label_and_nothing_public(tmp_path: Path, name: str) -> None:
    kind, file = KINDS[name], tmp_path / "a.parquet"

    def written(values: list[Any]) -> Path:
        y = pa.array([row % 2 for row in range(len(values))])
        parquet.write_table(pa.table({"x": y, "a": kind.build(values), "y": y}), file)
        return file

    @QUIET
    @given(columns_with_a_change(kind))
    def check(drawn: tuple[list[Any], int, Any]) -> None:
        values, place, other = drawn
        before, public = labels_and_public(written(values))
        after, still = labels_and_public(written(changed(values, place, other)))
        assert public == still
        assert before[:place] + before[place + 1 :] == after[:place] + after[place + 1 :]

    check()
