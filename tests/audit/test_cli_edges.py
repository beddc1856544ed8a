"""Record and play over odd files: whatever one person's entry or row is, a command says and writes the same."""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from recording import Outcome, command, problems

from justitia.cli.files.attribute import Where
from justitia.cli.files.rows import read_rows
from justitia.datasets import make_synthetic
from justitia.privacy.arrays import Array

N = 40
PLAN = b"warmup_steps = 3\nrounds = 2\npublic_steps = 1\nchecks = 1\nbatch_size = 64\n"
BIG = 2**53
DATA = make_synthetic(N, n_features=2, random_state=1)
TARGET = DATA.y.tolist()
PUBLIC = {"x0": DATA.X["x0"].tolist(), "x1": DATA.X["x1"].tolist(), "y": TARGET}
KEYS = list(range(1, N + 1))

Files = Mapping[str, bytes]


def run(folder: Path, words: Sequence[str], files: Files, answers: Sequence[Array] | None = None) -> Outcome:
    return command(folder, words, {"plan.toml": PLAN, **files}, answers)


def keep(folder: Path, made: Outcome) -> None:
    """Write the files of a command again."""
    for name, content in made.public["files"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def train(data: str, *where: str, groups: str = "f,m") -> list[str]:
    common = ["--target", "y", "--seed", "3", "--plan", "plan.toml", "--hidden", "2", "--epsilon", "4"]
    return ["train", data, *common, *([] if not groups else ["--groups", groups]), *where, "--out", "out"]


def csv_of(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """A CSV in which every field is quoted; bytes are written as they are."""

    def field(value: Any) -> bytes:
        raw = value if isinstance(value, bytes) else str(value).encode()
        return b'"' + raw.replace(b'"', b'""') + b'"'

    rows = [list(columns), *zip(*columns.values(), strict=True)]
    return b"".join(b",".join(field(value) for value in row) + b"\n" for row in rows)


def parquet_of(columns: Mapping[str, Any]) -> bytes:
    content = io.BytesIO()
    parquet.write_table(pa.table(dict(columns)), content)
    return content.getvalue()


def assert_alike(folder: Path, words: Sequence[str], files: Sequence[Files]) -> None:
    """The first of ``files`` is recorded; with all others everything public is the same."""
    first = run(folder, words, files[0])
    assert first.public["exit code"] in {0, 4}, first.public["stderr"]
    for other in files[1:]:
        second = run(folder, words, other, first.noisy)
        assert problems(first, second, neighbours=False) == []


def labels_of(folder: Path, files: Files, **where: Any) -> list[Any]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    place = {name: folder / value if name == "sensitive_file" else value for name, value in where.items()}
    people = read_rows(folder / next(iter(files)), Where(**place), target="y")
    found: list[Any] = people.sensitive.reveal_entries()[1][0].tolist()
    return found


def differing(one: Sequence[Any], other: Sequence[Any]) -> list[int]:
    return [row for row, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]


def with_entry(values: Sequence[Any], row: int, entry: Any) -> list[Any]:
    return [entry if place == row else value for place, value in enumerate(values)]


# --- the attribute in the file of the features

SEX = ["f" if row % 3 else "m" for row in range(N)]
ODD_TEXTS = [
    *(
        b"",
        b"m",
        b"no such group",
        b"\xff\xfe",
        b"\xe9",
        b"f\x00m",
        b"\x00",
        b"f\rm",
        b"f\nm",
        b"f\r\nm",
        b'f"m',
        b"f,m",
    ),
    *(
        b"NA",
        b"nan",
        b"None",
        b"-0.0",
        b"1e400",
        b"True",
        b"9" * 5000,
        b"f" * 200_000,
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
    ),
]


@pytest.mark.parametrize("groups", ["f,m", "bins"])
def test_csv_odd_entry_gives_the_same_messages_files_and_labels_of_others(tmp_path: Path, groups: str) -> None:
    numbers = [str(20 + row) for row in range(N)]
    sound, bins = (numbers, ["sex=30,45"]) if groups == "bins" else (SEX, [])
    files = [{"data.csv": csv_of(PUBLIC | {"sex": with_entry(sound, 5, one)})} for one in [sound[5], *ODD_TEXTS]]
    where = ["--sensitive", "sex", *(word for one in bins for word in ("--bins", one))]
    assert_alike(tmp_path, train("data.csv", *where, groups="" if bins else groups), files)
    found = [labels_of(tmp_path, one, sensitive=["sex"], bins=bins) for one in files]
    assert all(set(differing(found[0], other)) <= {5} for other in found[1:])
    assert None not in found[0]


def texts(values: Sequence[str | bytes]) -> pa.Array:
    return pa.array([one.encode() if isinstance(one, str) else one for one in values], pa.binary()).view(pa.string())


def ticks(kind: pa.DataType) -> Callable[[Sequence[Any]], pa.Array]:
    return lambda values: pa.array(values, pa.int64()).view(kind)


#: What a column is made with, two values, their text, and odd values to put in their place.
COLUMNS: dict[str, tuple[Callable[..., Any], tuple[Any, Any], str, list[Any]]] = {
    "int64": (lambda v: pa.array(v, pa.int64()), (BIG + 1, BIG), f"{BIG + 1},{BIG}", [None, 0, -(2**63)]),
    "float": (pa.array, (1.0, 2.0), "1,2", [None, float("nan"), float("inf"), -0.0, 1e308]),
    "text": (texts, ("f", "m"), "f,m", [b"\xff", b"", b"f\x00m", b"\xed\xa0\x80"]),
    "binary": (lambda v: pa.array(v, pa.binary()), (b"f", b"m"), "f,m", [b"\xff", None]),
    "date32": (
        lambda v: pa.array(v, pa.int32()).view(pa.date32()),
        (0, 1),
        "1970-01-01,1970-01-02",
        [None, 2**31 - 1, -(2**31)],
    ),
    "timestamp": (
        ticks(pa.timestamp("us")),
        (0, 1_000_000),
        "1970-01-01 00:00:00,1970-01-01 00:00:01",
        [None, 2**62, -(2**62)],
    ),
    "time with a zone": (
        ticks(pa.timestamp("ms", "UTC")),
        (0, 1000),
        "1970-01-01 00:00:00+00:00,1970-01-01 00:00:01+00:00",
        [None, 2**62, -(2**62)],
    ),
    "duration": (ticks(pa.duration("ms")), (0, 1000), "0:00:00,0:00:01", [None, 2**62, 2**53, 86_400_000]),
    "lists": (lambda v: pa.array(v, pa.list_(pa.int64())), ([1], [2]), '"[1]","[2]"', [None, [], [None], [BIG]]),
}


@pytest.mark.parametrize("kind", list(COLUMNS))
def test_parquet_odd_entry_gives_the_same_messages_files_and_labels_of_others(tmp_path: Path, kind: str) -> None:
    build, (one, other), groups, odd = COLUMNS[kind]
    sound = [one if row % 3 else other for row in range(N)]
    columns = [build(with_entry(sound, 5, entry)) for entry in [sound[5], *odd]]
    files = [{"data.parquet": parquet_of(PUBLIC | {"sex": column})} for column in columns]
    assert_alike(tmp_path, train("data.parquet", "--sensitive", "sex", groups=groups), files)
    found = [labels_of(tmp_path, one, sensitive=["sex"]) for one in files]
    assert sorted(set(found[0])) == sorted(text.strip('"') for text in groups.split(","))
    assert all(differing(found[0], other) == [5] for other in found[1:])


@pytest.mark.parametrize("kind", list(COLUMNS))
def test_split_of_odd_entries_says_the_same_and_writes_the_same_public_columns(tmp_path: Path, kind: str) -> None:
    build, (one, other), _, odd = COLUMNS[kind]
    sound = [one if row % 3 else other for row in range(N)]
    found = []
    for entry in [sound[5], *odd]:
        column = build(with_entry(sound, 5, entry))
        made = run(tmp_path, ["split", "data.parquet"], {"data.parquet": parquet_of(PUBLIC | {"sex": column})})
        code, stdout, stderr, written = (made.public[name] for name in ("exit code", "stdout", "stderr", "files"))
        assert code == 0, stderr
        tables = {name: parquet.read_table(io.BytesIO(content)) for name, content in written.items()}
        found.append((stdout, stderr, {name: table.drop_columns("sex") for name, table in tables.items()}))
    assert all(one == found[0] for one in found[1:])


# --- the attribute in a second file

PEOPLE = {"id": KEYS, **PUBLIC}


def rows_of(keys: Sequence[Any], sex: Sequence[Any]) -> dict[str, Sequence[Any]]:
    return {"id": list(keys), "sex": list(sex)}


def neighbours_of_the_second_file() -> dict[str, dict[str, Sequence[Any]]]:
    """What may become of the second file; everything in its rows is private."""
    return {
        "as it is": rows_of(KEYS, SEX),
        "in another order": rows_of(KEYS[::-1], SEX[::-1]),
        "without a person's row": rows_of(KEYS[1:], SEX[1:]),
        "with a person's row twice": rows_of([*KEYS, 3], [*SEX, "m"]),
        "with a row of nobody's": rows_of([*KEYS, 10**6], [*SEX, "m"]),
        "with a row without a key": rows_of([*KEYS, None], [*SEX, "m"]),
        "with nobody's key": rows_of([key + 10**6 for key in KEYS], SEX),
        "with one row": rows_of(KEYS[:1], SEX[:1]),
        "without rows": rows_of([], []),
        "with numbers for labels": rows_of(KEYS, [*SEX[: N // 2], *range(N - N // 2)]),
    }


def as_csv(rows: Mapping[str, Sequence[Any]]) -> bytes:
    return csv_of({name: ["" if one is None else one for one in column] for name, column in rows.items()})


def as_parquet(rows: Mapping[str, Sequence[Any]]) -> bytes:
    sex = [str(one) for one in rows["sex"]]
    return parquet_of({"id": pa.array(rows["id"], pa.int64()), "sex": pa.array(sex, pa.string())})


def as_folder(rows: Mapping[str, Sequence[Any]]) -> dict[str, bytes]:
    """Two files, each typed by what is in it: text in the one and numbers, or nothing, in the other."""
    half = len(rows["id"]) // 2
    parts = {"a": slice(0, half), "b": slice(half, None)}
    return {
        f"secret/{name}.parquet": parquet_of({one: pa.array(rows[one][part]) for one in rows})
        for name, part in parts.items()
    }


SECOND: dict[str, Callable[[Any], dict[str, bytes]]] = {
    "secret.csv": lambda rows: {"secret.csv": as_csv(rows)},
    "secret.parquet": lambda rows: {"secret.parquet": as_parquet(rows)},
    "secret": as_folder,
}


@pytest.mark.parametrize("form", SECOND)
@pytest.mark.parametrize("command", ["train", "evaluate", "compare"])
def test_second_file_with_any_rows_gives_the_same_messages_and_files(
    tmp_path: Path, command: str, form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    data = csv_of(PEOPLE)
    files = [{"data.csv": data, **SECOND[form](rows)} for rows in neighbours_of_the_second_file().values()]
    where = ["--sensitive-file", form, "--key", "id", "--sensitive", "sex"]
    words = train("data.csv", *where)
    if command != "train":
        keep(tmp_path, run(tmp_path, [*words[:-1], "model"], files[0]))
        words = ["evaluate", "model", "data.csv", *where, "--below", "0.2", "--out", "out.json"]
    if command == "compare":
        words = ["compare", "model", "--data", "data.csv", *where, "--groups", "f,m"]
    assert_alike(tmp_path, words, files)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("odd", [b"", b"\xff", b"\x00", b"1", b"1\xff", b"k" * 200_000, b"1\r2"])
def test_second_file_with_an_odd_key_loses_that_row_alone(tmp_path: Path, odd: bytes) -> None:
    sound = {"data.csv": csv_of(PEOPLE), "secret.csv": as_csv(rows_of(KEYS, SEX))}
    other = sound | {"secret.csv": as_csv(rows_of(with_entry(KEYS, 7, odd), SEX))}
    words = train("data.csv", "--sensitive-file", "secret.csv", "--key", "id")
    assert_alike(tmp_path, words, [sound, other])
    found = [labels_of(tmp_path, files, sensitive_file="secret.csv", key="id") for files in (sound, other)]
    assert differing(*found) == [7]
    assert found[1][7] is None


def test_neighbours_of_the_second_file_differ_in_their_answers(tmp_path: Path) -> None:
    """The comparison above is able to fail: without the answers of the first run the files differ."""
    rows = neighbours_of_the_second_file()
    words = train("data.csv", "--sensitive-file", "secret.csv", "--key", "id")
    files = [
        {"data.csv": csv_of(PEOPLE), "secret.csv": as_csv(rows[name])} for name in ("as it is", "with nobody's key")
    ]
    first, second = (run(tmp_path, words, one) for one in files)
    assert first.public != second.public
    played = run(tmp_path, words, files[1], first.noisy)
    assert played.public == first.public
    assert any(not np.array_equal(one, other) for one, other in zip(first.exact, played.exact, strict=True))


# --- what an error reporter sees


@pytest.mark.parametrize("apart", [False, True], ids=["one file", "two files"])
@pytest.mark.parametrize("command", ["train", "tradeoff", "evaluate"])
def test_refused_budget_shows_no_label_in_the_variables_of_any_frame_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, apart: bool
) -> None:
    """Reporters of errors record the variables of every frame; the attribute is closed wherever it waits."""
    label = "Zzyzx-7f3a"
    secret = rows_of(KEYS, [label] * N)
    if apart:
        files, where = {"data.csv": csv_of(PEOPLE), "secret.csv": as_csv(secret)}, ["--sensitive-file", "secret.csv"]
        where += ["--key", "id", "--sensitive", "sex"]
    else:
        files, where = {"data.csv": csv_of(PUBLIC | {"sex": secret["sex"]})}, ["--sensitive", "sex"]
    words = train("data.csv", *where)
    if command == "evaluate":
        keep(tmp_path, run(tmp_path, [*words[:-1], "model"], files))
        words = ["evaluate", "model", "data.csv", *where, "--epsilon", "4"]
    words = [command, *words[1:], "--ledger", "people.ledger", "--ledger-name", "people", "--ledger-epsilon", "0.5"]
    seen: list[str] = []

    def described(error: BaseException) -> tuple[int, str]:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            assert frame.f_globals["__name__"] != "justitia.privacy.columns"
            if frame.f_globals["__name__"].startswith("justitia."):
                seen.extend(shown(value) for value in frame.f_locals.values())
        return sound(error)

    module = import_module("justitia.cli.command")
    sound = module.describe_error
    monkeypatch.setattr(module, "describe_error", described)
    assert run(tmp_path, words, files).public["exit code"] == 3
    assert any("sensitive attribute of" in one for one in seen)
    assert not [one for one in seen if label in one]


def shown(value: Any) -> str:
    """As a reporter prints it: its text, and what is in it, one level down."""
    inner = list(vars(value).values()) if hasattr(value, "__dict__") and not isinstance(value, type) else []
    inner += list(value.values()) if isinstance(value, dict) else []
    return " ".join(repr(one) for one in [value, *inner])
