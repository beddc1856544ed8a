"""A user's function that makes labels of entries: what it does with one entry changes nobody else's, and no outcome."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from justitia import LagrangianDualClassifier, MomentsPlan, PrivacyLedger, SensitiveColumns
from justitia.privacy.joining import FileAttribute
from justitia.privacy.vault import SensitiveVault

TABLE = {"M": "m", "F": "f"}
CLEAN = ["M", "F", "F", "M", "F", "M"]


class Rows:
    """Two tables of rows, as files give them."""

    def __init__(self, entries: Sequence[Any]) -> None:
        self.entries = list(entries)

    def __len__(self) -> int:
        return len(self.entries)

    def tables(self, names: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[Any]:
        for part in (self.entries[:2], self.entries[2:]):
            yield pd.DataFrame({"id": range(len(part)), "sex": pd.Series(part, dtype=object)})[list(names)]


def codes(entries: Sequence[Any], read: Callable[[str, Any], Any]) -> list[int]:
    attribute = FileAttribute(SensitiveColumns("sex", read=read), Rows(entries))
    vault = SensitiveVault(attribute, groups=["f", "m"], ledger=PrivacyLedger(epsilon=np.inf, delta=0.0))
    return vault.reveal(purpose="a test").tolist()


def raising(error: BaseException) -> Callable[[str, Any], Any]:
    def read(name: str, column: Any) -> Any:
        if "intersex" in list(column):
            raise error
        return [TABLE[one] for one in column]

    return read


def returning(odd: Any) -> Callable[[str, Any], Any]:
    return lambda name, column: odd if "intersex" in list(column) else [TABLE[one] for one in column]


def warning(name: str, column: Any) -> list[str]:
    if "intersex" in list(column):
        warnings.warn("intersex", stacklevel=1)
        return ["x"]
    return [TABLE[one] for one in column]


class Unhashable:
    __hash__ = None  # type: ignore[assignment]


class Loud:
    def __eq__(self, other: object) -> bool:
        raise KeyError("intersex")

    def __hash__(self) -> int:
        return hash("f")


READERS: dict[str, Callable[[str, Any], Any]] = {
    "the issue's": lambda name, column: [TABLE[one] for one in column],
    "shorter": lambda name, column: [TABLE[one] for one in column if one in TABLE],
    "warning": warning,
    **{
        f"raises {type(one).__name__}": raising(one)
        for one in (ValueError("intersex"), StopIteration(), MemoryError(), SystemExit(3), GeneratorExit())
    },
    **{
        f"returns {name}": returning(odd)
        for name, odd in {
            "nothing": None,
            "no label": [],
            "two labels": ["f", "m"],
            "a text": "f",
            "a number": 3,
            "a generator": (one for one in "f"),
            "a dict": [{"f": 1}],
            "an unhashable": [Unhashable()],
            "a loud one": [Loud()],
            "a long text": ["f" * 10_000_000],
            "a huge number": [10**100_000],
            "many parts": [("f",) * 1_000_000],
            "a table": np.zeros((2, 2), dtype=object),
            "floats": np.array([0.5]),
            "a class": [Unhashable],
        }.items()
    },
}


@pytest.mark.parametrize("name", READERS)
def test_entry_that_a_function_cannot_read_is_not_given_and_changes_nobody_elses(name: str) -> None:
    assert codes(CLEAN, READERS[name]) == [1, 0, 0, 1, 0, 1]
    for person in range(len(CLEAN)):
        flipped = [*CLEAN[:person], "intersex", *CLEAN[person + 1 :]]
        expected = [1, 0, 0, 1, 0, 1]
        expected[person] = 2
        assert codes(flipped, READERS[name]) == expected


def test_function_is_called_once_per_entry_in_order_with_that_entry_alone() -> None:
    calls: list[tuple[str, list[Any]]] = []

    def read(name: str, column: Any) -> Any:
        calls.append((name, list(column)))
        return column

    codes(["f", "intersex", None, "m"], read)
    assert calls == [("sex", [one]) for one in ("f", "intersex", None, "m")]


@pytest.mark.parametrize(
    "read",
    [
        lambda name, column: np.array([TABLE[one] for one in column]),
        lambda name, column: pd.Series(column).map(TABLE),
        lambda name, column: pd.Categorical([TABLE[one] for one in column]),
        lambda name, column: tuple(TABLE[one] for one in column),
        lambda name, column: {"label": [TABLE[one] for one in column]},
    ],
)
def test_function_may_return_any_container_of_one_label(read: Any) -> None:
    assert codes(CLEAN, read) == [1, 0, 0, 1, 0, 1]


def test_joined_entries_are_read_one_by_one_too() -> None:
    second = pd.DataFrame({"id": range(6), "sex": ["M", "F", "intersex", "M", "F", "M"]})

    class Keys(Rows):
        def tables(self, names: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[Any]:
            yield (second if "sex" in names else pd.DataFrame({"id": range(6)}))[list(names)]

    where = SensitiveColumns("sex", file="second.parquet", key="id", read=READERS["the issue's"])
    attribute = FileAttribute(where, Keys(CLEAN), Keys(CLEAN))
    vault = SensitiveVault(attribute, groups=["f", "m"], ledger=PrivacyLedger(epsilon=np.inf, delta=0.0))
    assert vault.reveal(purpose="a test").tolist() == [1, 0, 2, 1, 0, 1]


def test_interrupt_passes_through_and_holds_no_entry() -> None:
    import traceback

    with pytest.raises(KeyboardInterrupt) as stopped:
        codes(["M", "intersex"], raising(KeyboardInterrupt()))
    frames = [frame for frame, _ in traceback.walk_tb(stopped.value.__traceback__)]
    inside = [one for one in frames if "/justitia/" in one.f_code.co_filename]
    assert inside
    assert not any("intersex" in repr(one.f_locals) for one in inside)


@pytest.mark.parametrize("read", ["text", 3, lambda column: column, lambda a, b, c: b])
def test_read_that_cannot_be_called_so_is_refused_at_once(read: Any) -> None:
    with pytest.raises(TypeError, match="expected read to be a function of a column's name and an array of one entry"):
        SensitiveColumns("sex", read=read)


def test_fit_on_files_succeeds_and_shows_no_entry_whatever_the_function_makes_of_it(
    tmp_path: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=300), "sex": rng.choice(["M", "F"], size=300)})
    table["y"] = (table["x"] > 0).astype(int)
    shown = []
    for odd in ("M", "intersex"):
        table.loc[7, "sex"] = odd
        table.to_parquet(tmp_path / "people.parquet")
        model = LagrangianDualClassifier(
            epsilon=4.0, groups=["f", "m"], engine="moments", plan=MomentsPlan(warmup_steps=5, rounds=2, checks=1)
        )
        where = SensitiveColumns("sex", read=READERS["the issue's"])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the noise|even if groups|with this budget|delta=")
            model.fit(tmp_path / "people.parquet", "y", sensitive_features=where)
        shown.append((model.certificate_.releases, model.dual_.shape, model.history_.shape, capfd.readouterr()))
    assert shown[0] == shown[1]
