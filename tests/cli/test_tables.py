"""Reading tables, joining the second file, cut points, groups: a label comes from one person's own entry alone."""

import csv
import gzip
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pyarrow_parquet

from justitia.cli.commands.split import RawRows
from justitia.cli.errors import Refusal
from justitia.cli.files.attribute import (
    CutPoints,
    Where,
    find_attribute,
    groups_text,
    person_keys,
    read_attribute,
    read_bins,
    read_groups,
)
from justitia.cli.files.columns import FeatureColumns
from justitia.cli.files.reading import open_table
from justitia.cli.files.rows import read_rows
from justitia.cli.files.target import read_target
from justitia.privacy.attribute import Attribute


def table(folder: Path, text: str, name: str = "data.csv", **options: Any) -> Any:
    (folder / name).write_text(text, encoding="utf-8")
    return open_table(folder / name, **options)


def entries(attribute: Attribute, column: int = 0) -> list[Any]:
    """What the closed holder keeps to itself."""
    found: list[Any] = attribute.reveal_entries()[1][column].tolist()
    return found


def test_text_columns_are_read_as_they_are_written(tmp_path: Path) -> None:
    data = table(tmp_path, "a,b\n01, x \n1,NA\n1.0,\n,None\n")
    assert data.text(["a"])["a"].tolist() == ["01", "1", "1.0", None]
    assert data.text(["b"])["b"].tolist() == ["x", "NA", None, "None"]


def test_public_columns_are_typed_and_in_the_order_asked_for(tmp_path: Path) -> None:
    data = table(tmp_path, "a,b,c\n1,x,2.5\n2,y,\n")
    frame = data.public(["c", "a"])
    assert list(frame) == ["c", "a"]
    assert frame["a"].tolist() == [1, 2]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_byte_order_mark_and_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    content = "größe;b\n1;2\n"
    (tmp_path / "x.csv").write_bytes(content.encode("utf-8-sig" if encoding == "utf-8" else encoding))
    assert open_table(tmp_path / "x.csv", ";", encoding).columns == ("größe", "b")


def test_parquet_says_the_same_as_csv(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"x": [1.5, 2.5, 3.0], "code": [1, 2, None], "y": [True, False, True], "sex": ["f", None, "m"]}
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    text, parquet = (open_table(tmp_path / name) for name in ("a.csv", "a.parquet"))
    assert text.columns == parquet.columns
    assert text.public(["x"]).equals(parquet.public(["x"]))
    assert parquet.text(["code", "sex"]).equals(
        pd.DataFrame({"code": ["1", "2", None], "sex": ["f", None, "m"]}, dtype=object)
    )
    assert read_target(text, "y")[0].tolist() == read_target(parquet, "y")[0].tolist() == [1, 0, 1]


def test_parquet_without_its_libraries_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(Refusal, match="needs pyarrow or polars; run pip install pyarrow"):
        open_table(tmp_path / "a.parquet")


def test_parquet_is_read_with_polars_where_there_is_no_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd.DataFrame({"x": [1, 2], "sex": ["f", None]}).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    data = open_table(tmp_path / "a.parquet")
    assert data.public(["x"])["x"].tolist() == [1, 2]
    assert data.text(["sex"])["sex"].tolist() == ["f", None]


def test_bins_have_names_from_their_cuts_and_what_is_no_number_is_not_given() -> None:
    bins = read_bins("age=25,60")
    assert bins.labels == ("age<25", "25<=age<60", "age>=60")
    assert bins.assign(["24.9", "25", "59", "60", "1e9", "?", None, "nan", "-inf"]) == [
        *("age<25", "25<=age<60", "25<=age<60", "age>=60", "age>=60"),
        *(None, None, None, "age<25"),
    ]
    assert read_bins(str(CutPoints("age", (0.5, 1234567.25)))) == CutPoints("age", (0.5, 1234567.25))


def test_groups_are_read_and_written_alike() -> None:
    groups = read_groups(["sex=Female,Male", 'race="a, b",c=d'], ("sex", "race"), ())
    assert groups == {"sex": ["Female", "Male"], "race": ["a, b", "c=d"]}
    assert read_groups(groups_text(groups), ("sex", "race"), ()) == groups
    assert read_groups(["x=1,x=2"], ("code",), ()) == {"code": ["x=1", "x=2"]}  # one column needs no name
    assert read_groups([], ("sex",), ()) is None
    assert read_groups(["sex=f,m"], ("sex", "age"), (read_bins("age=30"),)) == {
        "sex": ["f", "m"],
        "age": ["age<30", "age>=30"],
    }


def attribute_of(folder: Path, secret: str, **where: Any) -> list[Any]:
    data = table(folder, "id,x\np1,1\np2,2\np3,3\n")
    table(folder, secret, "secret.csv")
    place = Where(sensitive_file=folder / "secret.csv", key="id", **where)
    return entries(read_attribute(find_attribute(place, data), data))


def test_join_follows_the_data_and_leaves_others_out(tmp_path: Path) -> None:
    assert attribute_of(tmp_path, "id,sex\np9,m\np3,f\np1,m\n") == ["m", None, "f"]
    assert attribute_of(tmp_path, "id,sex\n p3 ,f\n") == [None, None, "f"]
    assert attribute_of(tmp_path, "id,sex\np1,?\np2,f\n", missing="?") == [None, "f", None]
    assert attribute_of(tmp_path, "id,age\np1,20\np2,old\np3,40\n", bins=["age=30"]) == ["age<30", None, "age>=30"]


def test_columns_of_the_second_file_are_all_sensitive_unless_named(tmp_path: Path) -> None:
    data = table(tmp_path, "id,x\np1,1\n")
    table(tmp_path, "id,sex,race\np1,f,b\n", "secret.csv")
    place = Where(sensitive_file=tmp_path / "secret.csv", key="id")
    assert find_attribute(place, data).columns == ("sex", "race")
    only = Where(sensitive_file=tmp_path / "secret.csv", key="id", sensitive=["race"])
    assert find_attribute(only, data).columns == ("race",)


@pytest.mark.parametrize("odd", ["", "?", "nan", "1e999", "\x00x"[1:], "Weiblich, oder nicht", "0" * 200])
def test_one_odd_value_changes_one_label_and_nothing_else(tmp_path: Path, odd: str) -> None:
    values = ["f", "m", "f", "m"]
    frame = pd.DataFrame({"x": [1, 2, 3, 4], "y": [0, 1, 0, 1], "sex": values})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.assign(sex=["f", odd, "f", "m"]).to_csv(tmp_path / "b.csv", index=False)
    one, other = (read_rows(tmp_path / name, Where(sensitive=["sex"]), target="y") for name in ("a.csv", "b.csv"))
    assert one.X.equals(other.X)
    assert one.y.tolist() == other.y.tolist()
    differ = [first != second for first, second in zip(entries(one.sensitive), entries(other.sensitive), strict=True)]
    assert differ == [False, True, False, False]


def test_features_are_neither_target_nor_attribute_nor_key(tmp_path: Path) -> None:
    table(tmp_path, "id,x,z,y,sex\n1,1,2,no,f\n2,2,3,yes,m\n")
    people = read_rows(tmp_path / "data.csv", Where(sensitive=["sex"]), target="y", columns=FeatureColumns(drop=["id"]))
    assert list(people.X) == ["x", "z"]
    table(tmp_path, "id,sex\n1,f\n2,m\n", "secret.csv")
    table(tmp_path, "id,x,z,y\n1,1,2,no\n2,2,3,yes\n")
    joined = read_rows(
        tmp_path / "data.csv",
        Where(sensitive_file=tmp_path / "secret.csv", key="id"),
        target="y",
        columns=FeatureColumns(features=["z"]),
    )
    assert list(joined.X) == ["z"]
    assert joined.sensitive.names == ("sex",)
    assert repr(joined.sensitive) == "<sensitive attribute of 2 rows>"
    assert "labels" not in repr(joined)


@pytest.mark.parametrize(
    ("values", "positive", "expected", "codes"),
    [
        (["no", "yes", "no"], None, ("no", "yes"), [0, 1, 0]),
        (["no", "yes", "no"], "no", ("yes", "no"), [1, 0, 1]),
        ([0, 1, 1], None, (0, 1), [0, 1, 1]),
        ([0, 1, 1], "0", (1, 0), [1, 0, 0]),
        ([1.0, 2.0, 1.0], "2", (1, 2), [0, 1, 0]),
        ([True, False, True], None, (False, True), [1, 0, 1]),
    ],
)
def test_target_has_two_values_of_which_one_is_positive(
    tmp_path: Path, values: list[Any], positive: str | None, expected: tuple[Any, Any], codes: list[int]
) -> None:
    pd.DataFrame({"x": range(3), "y": values}).to_csv(tmp_path / "a.csv", index=False)
    y, classes = read_target(open_table(tmp_path / "a.csv"), "y", positive)
    assert classes == expected
    assert y.tolist() == codes


# --- nobody's entry changes another's, or whether the file can be read


def parquet_table(folder: Path, name: str = "a.parquet", **columns: Any) -> Any:
    pyarrow_parquet.write_table(pa.table(columns), folder / name)
    return open_table(folder / name)


def test_parquet_large_integers_beside_a_gap_are_written_out(tmp_path: Path) -> None:
    data = parquet_table(tmp_path, a=pa.array([2**53 + 1, None, 2**63 - 1]))
    assert data.private(["a"]) == {"a": [str(2**53 + 1), None, str(2**63 - 1)]}
    assert data.text(["a"])["a"].tolist() == [str(2**53 + 1), None, str(2**63 - 1)]


def test_parquet_overlong_duration_leaves_the_text_of_others(tmp_path: Path) -> None:
    column = pa.array([1000, 2**62, 2**53]).cast(pa.duration("ms"))
    others = parquet_table(tmp_path, a=pa.array([1000, 0, 2**53]).cast(pa.duration("ms"))).private(["a"])["a"]
    assert parquet_table(tmp_path, a=column).private(["a"])["a"] == [others[0], None, others[2]]


def test_parquet_unreadable_entries_are_not_given(tmp_path: Path) -> None:
    day = pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())
    time = pa.array([0, 2**62]).cast(pa.timestamp("us"))
    text = pa.array([b"f", b"\xff"]).view(pa.string())
    data = parquet_table(tmp_path, day=day, time=time, text=text, raw=pa.array([b"f", b"\xff"]))
    assert data.private(["day", "time", "text", "raw"]) == {
        "day": ["1970-01-01", None],
        "time": ["1970-01-01 00:00:00", None],
        "text": ["f", None],
        "raw": ["f", None],
    }


def test_parquet_public_dates_that_python_cannot_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = parquet_table(tmp_path, day=pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()))
    with pytest.raises(Refusal, match="has public values that cannot be read"):
        data.public(["day"])


def test_parquet_attribute_without_pyarrow_is_refused_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in (b"f", b"\xff"):
        data = parquet_table(tmp_path, sex=pa.array([text]).view(pa.string()))
        with monkeypatch.context() as patch:
            patch.setattr("importlib.util.find_spec", lambda name: None)
            with pytest.raises(Refusal, match=r"reading the attribute in '.*' needs pyarrow; run pip install pyarrow"):
                data.private(["sex"])
            with pytest.raises(Refusal, match=r"copying rows of '.*' needs pyarrow; run pip install pyarrow"):
                RawRows.read(data)


def bytes_table(folder: Path, content: bytes, name: str = "a.csv", **options: Any) -> Any:
    (folder / name).write_bytes(content)
    return open_table(folder / name, **options)


def test_csv_bytes_that_are_no_text_are_not_given_in_the_attribute_and_refused_elsewhere(tmp_path: Path) -> None:
    data = bytes_table(tmp_path, b"x,sex\n1,f\n2,\xff\n3,m\n")
    assert data.private(["sex"]) == {"sex": ["f", None, "m"]}
    assert data.public(["x"])["x"].tolist() == [1, 2, 3]
    with pytest.raises(Refusal, match="is not text in the encoding asked for; pass --encoding latin-1"):
        data.public(["sex"])
    with pytest.raises(Refusal, match="is not text in the encoding asked for"):
        bytes_table(tmp_path, b"x,s\xffx\n1,f\n")


def test_csv_of_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    for encoding in ("latin-99", "utf-16"):  # the second needs a mark at the beginning
        with pytest.raises(Refusal, match="is not text in the encoding asked for"):
            bytes_table(tmp_path, b"x,sex\n1,f\n", encoding=encoding)


@pytest.mark.parametrize("value", ["f" * 200_000, "f\0m", "f\rm", "f\r\nm", "1e400", "NA", "9" * 5000, "True", "-0.0"])
def test_csv_odd_text_is_read_as_it_is_written(tmp_path: Path, value: str) -> None:
    limit = csv.field_size_limit()
    data = bytes_table(tmp_path, f'x,sex\n1,"{value}"\n2,m\n'.encode())
    assert data.private(["sex"]) == {"sex": [value, "m"]}
    assert data.public(["x"])["x"].tolist() == [1, 2]
    assert csv.field_size_limit() == limit


def test_csv_public_text_survives_being_typed(tmp_path: Path) -> None:
    data = bytes_table(tmp_path, b'a,b, c ,\n"x\ry","1",2,\n"p ""q"", r", 2 ,,NA\n\n"",3,4,z\n')
    assert data.columns == ("a", "b", "c", "Unnamed: 3")
    frame = data.public(["a", "b", "c", "Unnamed: 3", "b"])
    assert frame["a"].tolist()[:2] == ["x\ry", 'p "q", r']
    assert frame["a"].isna().tolist() == [False, False, True]
    assert frame["b"].iloc[:, 0].tolist() == [1, 2, 3]
    assert frame["c"].tolist()[::2] == [2, 4]


def test_csv_single_column_keeps_its_empty_rows_and_a_head_alone_has_none(tmp_path: Path) -> None:
    assert bytes_table(tmp_path, b'a\n1\n""\n3\n').public(["a"])["a"].tolist()[::2] == [1, 3]
    assert len(bytes_table(tmp_path, b"a,b\n").public(["b"])) == 0
    assert bytes_table(tmp_path, b"a,b\n").private(["b"]) == {"b": []}


def test_csv_that_is_packed_is_read_alike(tmp_path: Path) -> None:
    assert bytes_table(tmp_path, gzip.compress(b"x,sex\n1,\xff\n2,m\n"), "a.csv.gz").private(["sex"]) == {
        "sex": [None, "m"]
    }


@pytest.mark.parametrize(("encoding", "content"), [("utf-8", b"a,sex\n1,\xff\xc3f\n"), ("cp1252", b"a,sex\n1,\x81f\n")])
def test_csv_copied_rows_keep_the_bytes_that_are_no_text(tmp_path: Path, encoding: str, content: bytes) -> None:
    rows = RawRows.read(bytes_table(tmp_path, content, encoding=encoding))
    rows.write([0], tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_bytes() == content


def test_parquet_copied_rows_keep_the_bytes_that_are_no_text(tmp_path: Path) -> None:
    data = parquet_table(tmp_path, sex=pa.array([b"f", b"\xff", b"m"]).view(pa.string()))
    RawRows.read(data).write([1, 2], tmp_path / "b.parquet")
    assert open_table(tmp_path / "b.parquet").private(["sex"]) == {"sex": [None, "m"]}


def test_csv_copied_rows_of_a_packed_file_are_packed(tmp_path: Path) -> None:
    rows = RawRows.read(bytes_table(tmp_path, gzip.compress(b"a,sex\n1,f\n2,m\n"), "a.csv.gz"))
    rows.write([1], tmp_path / "stage")
    assert gzip.decompress((tmp_path / "stage").read_bytes()) == b"a,sex\n2,m\n"


def test_csv_copied_rows_can_be_read_whatever_line_ends_their_fields_have(tmp_path: Path) -> None:
    content = b'a,sex\n1,"f\rm"\n2,"f\nm"\n3,"f\r\nm"\n4,\x00\n5,"""f"", m"\n'
    RawRows.read(bytes_table(tmp_path, content)).write(range(5), tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_bytes() == content


# --- the second file


def test_second_file_of_which_no_key_is_found_makes_all_rows_not_given(tmp_path: Path) -> None:
    assert attribute_of(tmp_path, "id,sex\nq1,m\nq2,f\n") == [None, None, None]
    assert attribute_of(tmp_path, "id,sex\n") == [None, None, None]
    assert attribute_of(tmp_path, "id,sex\n,m\n") == [None, None, None]


def test_second_file_first_row_of_a_key_counts(tmp_path: Path) -> None:
    assert attribute_of(tmp_path, "id,sex\np1,m\np2,\np1,f\np2,f\n") == ["m", None, None]


@pytest.mark.parametrize("ours", ["csv", "parquet"])
@pytest.mark.parametrize("theirs", ["csv", "csv of floats", "parquet", "parquet of floats", "parquet with a gap"])
def test_second_file_keys_join_whatever_the_numbers_are_written_in(tmp_path: Path, ours: str, theirs: str) -> None:
    numbers = [2**53 + 1, 1, 20] if "floats" not in theirs else [3, 1, 20]
    if ours == "csv":
        data = table(tmp_path, "id,x\n" + "".join(f"{one},0\n" for one in numbers))
    else:
        data = parquet_table(tmp_path, id=pa.array(numbers), x=pa.array([0, 0, 0]))
    keys: list[Any] = [*numbers, None] if "gap" in theirs else numbers
    written = [float(one) for one in numbers] if "floats" in theirs else keys
    sexes = ["f", "m", "x", "x"][: len(keys)]
    if theirs.startswith("csv"):
        name = "secret.csv"
        table(tmp_path, "id,sex\n" + "".join(f"{k},{v}\n" for k, v in zip(written, sexes, strict=True)), name)
    else:
        name = "secret.parquet"
        parquet_table(tmp_path, name, id=pa.array(written), sex=pa.array(sexes))
    place = Where(sensitive_file=tmp_path / name, key="id")
    assert entries(read_attribute(find_attribute(place, data), data)) == ["f", "m", "x"]


def test_keys_keep_leading_zeros_and_other_texts() -> None:
    assert person_keys(["01", "1.0", "1.50", "-2.000", "a.0", "1.0.0", None]) == [
        *("01", "1", "1.50", "-2", "a.0", "1.0.0"),
        None,
    ]


class Odd:
    """A number that panics."""

    def __float__(self) -> float:
        raise BaseException("no")


def test_bins_value_that_panics_is_not_given() -> None:
    values = ["1", Odd(), 10**400, "9" * 5000, "-1e400", b"\xff", "40"]
    assert CutPoints("age", (30.0,)).assign(values) == ["age<30", None, None, "age>=30", "age<30", None, "age>=30"]
