"""Reading tables, joining the second file, cut points, groups: a label comes from one person's own entry alone."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from justitia.cli.bins import Bins, read_bins
from justitia.cli.errors import Refusal
from justitia.cli.people import read_people, read_target
from justitia.cli.reading import open_table
from justitia.cli.secret import Where, find_attribute, groups_text, read_attribute, read_groups
from justitia.privacy.attribute import Attribute


def table(folder: Path, text: str, name: str = "data.csv", **options: Any) -> Any:
    (folder / name).write_text(text, encoding="utf-8")
    return open_table(folder / name, **options)


def entries(attribute: Attribute, column: int = 0) -> list[Any]:
    """What the closed holder keeps to itself."""
    found: list[Any] = attribute.unsealed()[1][column].tolist()
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
    csv, parquet = (open_table(tmp_path / name) for name in ("a.csv", "a.parquet"))
    assert csv.columns == parquet.columns
    assert csv.public(["x"]).equals(parquet.public(["x"]))
    assert parquet.text(["code", "sex"]).equals(
        pd.DataFrame({"code": ["1", "2", None], "sex": ["f", None, "m"]}, dtype=object)
    )
    assert read_target(csv, "y")[0].tolist() == read_target(parquet, "y")[0].tolist() == [1, 0, 1]


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
    assert read_bins(str(Bins("age", (0.5, 1234567.25)))) == Bins("age", (0.5, 1234567.25))


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
    one, other = (read_people(tmp_path / name, Where(sensitive=["sex"]), target="y") for name in ("a.csv", "b.csv"))
    assert one.X.equals(other.X)
    assert one.y.tolist() == other.y.tolist()
    differ = [first != second for first, second in zip(entries(one.labels), entries(other.labels), strict=True)]
    assert differ == [False, True, False, False]


def test_features_are_neither_target_nor_attribute_nor_key(tmp_path: Path) -> None:
    table(tmp_path, "id,x,z,y,sex\n1,1,2,no,f\n2,2,3,yes,m\n")
    people = read_people(tmp_path / "data.csv", Where(sensitive=["sex"]), target="y", drop=["id"])
    assert list(people.X) == ["x", "z"]
    table(tmp_path, "id,sex\n1,f\n2,m\n", "secret.csv")
    table(tmp_path, "id,x,z,y\n1,1,2,no\n2,2,3,yes\n")
    joined = read_people(
        tmp_path / "data.csv", Where(sensitive_file=tmp_path / "secret.csv", key="id"), target="y", features=["z"]
    )
    assert list(joined.X) == ["z"]
    assert joined.labels.names == ("sex",)
    assert repr(joined.labels) == "<sensitive attribute of 2 rows>"
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
