import copy
import datetime as dt
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bench.rivals import PlainClassifier
from justitia import LagrangianDualClassifier, measure
from justitia.metrics import exact as metrics
from justitia.privacy.attribute import Attribute
from justitia.privacy.columns import INTERRUPTS, columns_of, read_each
from justitia.privacy.frames import has_index_of
from justitia.privacy.groups import encode, group_names, infer_groups, read_columns
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.vault import SensitiveVault

BIG = 2**53 + 1


class Panic(BaseException):
    """Neither an Exception nor an interrupt."""


class Raises:
    """Raises this error when compared."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __eq__(self, other: object) -> bool:
        raise self.error

    def __hash__(self) -> int:
        return hash("f")


def entries(container: Any) -> list[Any]:
    found: list[Any] = read_columns(container)[1][0].tolist()
    return found


# --- the closed holder


def test_attribute_shows_rows_and_names_and_no_entry() -> None:
    closed = Attribute.from_container(pd.DataFrame({"sex": ["zanzibar", "m"], "age": [1, 2]}))
    assert len(closed) == 2
    assert closed.names == ("sex", "age")
    assert repr(closed) == str(closed) == f"{closed}" == "<sensitive attribute of 2 rows>"
    assert not hasattr(closed, "__dict__")


@pytest.mark.parametrize("question", [iter, list, lambda one: one[0], pickle.dumps, copy.copy, copy.deepcopy, vars])
def test_attribute_gives_no_entry_to_python(question: Any) -> None:
    with pytest.raises(TypeError) as caught:
        question(Attribute.from_container(["zanzibar"]))
    assert "zanzibar" not in str(caught.value)


def test_attribute_as_an_array_is_one_closed_thing() -> None:
    array = np.asarray(Attribute.from_container(["zanzibar"]))
    assert array.shape == ()
    assert "zanzibar" not in repr(array)


def test_attribute_of_an_attribute_is_itself() -> None:
    closed = Attribute.from_container(["f", None])
    assert Attribute.from_container(closed) is closed
    assert read_columns(closed)[1][0].tolist() == ["f", None]


def test_attribute_keeps_its_columns_when_the_container_or_a_reader_changes() -> None:
    container = np.array(["f", "m"], dtype=object)
    closed = Attribute.from_container(container)
    container[0] = "m"
    read_columns(closed)[1].clear()
    assert entries(closed) == ["f", "m"]


def test_attribute_goes_into_the_vault_and_the_metrics_like_its_container() -> None:
    labels = pd.Series(["f", "m", None, "f"], name="sex")
    vaults = [
        SensitiveVault(one, groups=["f", "m"], ledger=PrivacyLedger(epsilon=1.0, delta=1e-5))
        for one in (labels, Attribute.from_container(labels))
    ]
    assert len(vaults[1]) == 4
    assert vaults[0].column_names == vaults[1].column_names == ("sex",)
    tables = [
        metrics.rates_by_group([0, 1, 0, 1], [1, 1, 0, 0], sensitive_features=one)
        for one in (labels, Attribute.from_container(labels))
    ]
    assert tables[0].equals(tables[1])


def test_attribute_of_a_wrong_container_is_refused_as_before() -> None:
    with pytest.raises(TypeError, match="expected sensitive_features to be a Series"):
        Attribute.from_container("FM")


# --- entries by themselves


@pytest.mark.parametrize(
    "container",
    [
        pd.Series([BIG, None, 1], dtype="Int64"),
        pd.array([BIG, None, 1], dtype="Int64"),
        pd.Series([BIG, None, 1], dtype="int64[pyarrow]"),
        pl.Series([BIG, None, 1]),
        pa.array([BIG, None, 1]),
        pa.chunked_array([[BIG, None], [1]]),
        pa.record_batch({"a": [BIG, None, 1]}),
        np.ma.MaskedArray([BIG, 0, 1], mask=[0, 1, 0]),
        {"a": pd.array([BIG, None, 1], dtype="Int64")},
    ],
    ids=lambda one: type(one).__name__,
)
def test_entries_large_integers_beside_a_gap_keep_their_value(container: Any) -> None:
    columns = read_columns(container)[1]
    assert encode(columns, (BIG, BIG - 1, 1)).tolist() == [0, 3, 2]


EPOCH, NEXT = dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, 0, 0, 1)


@pytest.mark.parametrize("far", [2**62, -(2**62)])
@pytest.mark.parametrize(
    ("build", "first", "second"),
    [
        (lambda far: pl.Series([0, far, 1]).cast(pl.Datetime("us")), EPOCH, EPOCH + dt.timedelta(microseconds=1)),
        (lambda far: pl.Series([0, far, 1000]).cast(pl.Datetime("ms")), EPOCH, NEXT),
        (
            lambda far: pl.Series([0, far, 1000]).cast(pl.Datetime("ms", "UTC")),
            EPOCH.replace(tzinfo=dt.UTC),
            NEXT.replace(tzinfo=dt.UTC),
        ),
        (lambda far: pl.Series([0, far, 1000]).cast(pl.Duration("ms")), dt.timedelta(0), dt.timedelta(seconds=1)),
        (lambda far: pa.array([0, far, 1]).cast(pa.timestamp("s")), EPOCH, NEXT),
        (lambda far: pa.array([0, far, 1]).cast(pa.duration("s")), dt.timedelta(0), dt.timedelta(seconds=1)),
    ],
    ids=["polars us", "polars ms", "polars zone", "polars duration", "arrow time", "arrow duration"],
)
def test_entries_time_out_of_range_is_not_given_and_says_nothing(
    build: Any, first: Any, second: Any, far: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert entries(build(far)) == [first, None, second]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("table", [False, True])
def test_entries_polars_date_out_of_range_is_not_given_and_prints_no_panic(
    table: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    days = pl.Series("born", [0, 2**31 - 1, 2932896, -719162], dtype=pl.Int32).cast(pl.Date)
    container = pl.DataFrame([days]) if table else days
    assert entries(container) == [dt.date(1970, 1, 1), None, dt.date.max, dt.date.min]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_entries_polars_times_at_the_edges_of_python_are_read(unit: Any) -> None:
    edges = [dt.datetime.min, dt.datetime(9999, 12, 31, 23, 59, 59)]
    assert entries(pl.Series(edges, dtype=pl.Datetime(unit))) == edges


def test_entries_text_that_is_none_is_not_given_in_arrow_pandas_and_polars(capfd: pytest.CaptureFixture[str]) -> None:
    texts = pa.array([b"f", b"\xff", b"m"], pa.large_binary()).view(pa.large_string())
    for container in (
        texts,
        pa.table({"a": texts}),
        pd.Series(pd.arrays.ArrowExtensionArray(texts)),
        pl.from_arrow(texts),
    ):
        assert entries(container) == ["f", None, "m"]
    assert capfd.readouterr() == ("", "")


def test_entries_masked_field_of_a_record_makes_it_not_given() -> None:
    kind = [("a", "i8"), ("b", [("c", "i8"), ("d", "i8", (2,))])]
    data = np.zeros(3, dtype=kind)
    mask = np.zeros(3, dtype=np.ma.make_mask_descr(data.dtype))
    mask["b"]["d"][1, 1] = True
    found = entries(np.ma.MaskedArray(data[["a"]], mask=mask[["a"]]))
    assert found == [(0,), (0,), (0,)]
    assert entries(np.ma.MaskedArray(data, mask=mask))[1] is None


def test_entries_of_an_unknown_kind_of_column_are_read_one_by_one() -> None:
    index = pd.MultiIndex.from_tuples([("f", "b"), ("m", "w")])
    assert encode(read_columns(index)[1], (("f", "b"), ("m", "w"))).tolist() == [0, 1]
    assert entries(pd.Series([0.0, 1.0], dtype="Sparse[float]")) == [0.0, 1.0]


# --- whatever a value does


def test_encode_value_that_panics_is_not_given() -> None:
    assert encode(read_columns(["f", Raises(Panic), "m"])[1], ("f", "m")).tolist() == [0, 2, 1]


@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_interrupts_pass_through_every_reader_of_a_value(interrupt: type[BaseException]) -> None:
    columns = columns_of([Raises(interrupt)])[1]
    with pytest.raises(interrupt):
        encode(columns, ("f", "m"))
    with pytest.raises(interrupt):
        infer_groups(columns)

    def read(_: Any) -> Any:
        raise interrupt

    with pytest.raises(interrupt):
        read_each(read, [1])


class Sly:
    """Equal to itself, raises for all others, and cannot be printed."""

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        raise Panic

    def __hash__(self) -> int:
        return hash("f")

    def _refuse(self) -> str:
        raise Panic

    __repr__ = __str__ = _refuse


@pytest.mark.parametrize("labels", [["f", "m", Sly()], ["f", Raises(Panic), "m"], [10**5000, "f", "m"]])
def test_infer_groups_hostile_label_leaves_the_others_listed(labels: list[Any]) -> None:
    groups = infer_groups(read_columns(labels)[1])
    assert {"f", "m"} <= {one for one in groups if isinstance(one, str)}
    assert len(group_names(groups)) == len(groups)


@pytest.mark.parametrize(
    "form", [lambda a: a, lambda a: a.to_frame(), lambda a: {"a": a}], ids=["series", "frame", "dict"]
)
def test_attribute_with_another_index_than_the_rows_is_refused_without_a_value(
    form: Callable[[pd.Series], Any],
) -> None:
    X = pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=[7, 8, 9])
    secret = pd.Series(["hidden", "b", "b"], index=[9, 8, 7], name="a")
    assert not has_index_of(form(secret), [X])
    assert has_index_of(form(secret.sort_index()), [X])
    with pytest.raises(ValueError, match="the index of the rows") as caught:
        measure(X["x"] > 2, X["x"] > 2, sensitive_features=form(secret), groups=["a", "b"])
    assert "hidden" not in str(caught.value)
    assert "9" not in str(caught.value)


def test_attribute_without_an_index_or_beside_an_array_goes_by_position() -> None:
    secret = pd.Series(["b", "b"], index=[4, 5])
    assert has_index_of(secret, [np.zeros((2, 1)), [0, 1], None])
    assert has_index_of(secret.to_numpy(), [pd.DataFrame({"x": [1.0, 2.0]})])


@pytest.mark.parametrize("place", ["fit", "measure", "plain"])
def test_attribute_with_another_index_is_refused_wherever_it_is_passed(place: str) -> None:
    X, y = pd.DataFrame({"x": [0.0, 1.0] * 20}), pd.Series([0, 1] * 20)
    secret = pd.Series(["a", "b"] * 20, index=range(5, 45))
    calls: dict[str, Callable[[], object]] = {
        "fit": lambda: LagrangianDualClassifier(groups=["a", "b"]).fit(X, y, sensitive_features=secret),
        "measure": lambda: measure(y, y, sensitive_features=secret, groups=["a", "b"]),
        "plain": lambda: PlainClassifier(steps=1).fit(X, y, sensitive_features=secret),
    }
    with pytest.raises(ValueError, match="to go by position"):
        calls[place]()
