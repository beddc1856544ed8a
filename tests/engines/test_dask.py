"""Data frames of Dask, on two worker processes and in this process."""

from __future__ import annotations

import runpy
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from cases import (
    TARGETS,
    check_flip,
    check_key_without_partner,
    check_killed_worker_changes_nothing,
    check_measure_tradeoff_predict,
    check_odd_entry,
    check_persons,
    check_same_as_files,
    check_same_as_memory,
    check_wrong_input,
    fitted,
    nothing_spent,
    table_for,
    unfitted,
    worker_killer,
)
from distributed import Client, LocalCluster

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning")


def make(table: pd.DataFrame, partitions: int) -> Any:
    return dd.from_pandas(table, npartitions=partitions, sort=False)


def by_partition(*parts: pd.DataFrame) -> Any:
    """A data frame whose partitions are not alike, as one that was made of files by hand."""
    return dd.from_delayed([dask.delayed(part) for part in parts], meta=parts[0][:0], verify_meta=False)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
        with cluster, Client(cluster) as made:
            yield made


@pytest.mark.parametrize("target", TARGETS)
def test_fit_on_workers_has_the_sums_and_the_model_of_rows_in_memory(client: Client, target: str) -> None:
    check_same_as_memory(make, target)


@pytest.mark.parametrize("target", TARGETS)
def test_fit_beyond_the_sample_has_the_sums_and_the_model_of_files(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_same_as_files(make, target, tmp_path, monkeypatch)


@pytest.mark.usefixtures("client")
def test_measure_tradeoff_and_predict_give_the_numbers_of_rows_in_memory() -> None:
    check_measure_tradeoff_predict(make, lambda frame: frame.compute())


@pytest.mark.usefixtures("client")
def test_worker_that_is_killed_in_a_pass_changes_neither_sums_nor_model_nor_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_killed_worker_changes_nothing(make, tmp_path, monkeypatch, worker_killer())


@pytest.mark.usefixtures("client")
def test_worker_without_lightgbm_is_refused_before_anything_is_spent(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide() -> Any:
        import sys

        return sys.modules.__setitem__("lightgbm", None)

    def show() -> Any:
        import sys

        return sys.modules.pop("lightgbm")

    client.run(hide)
    try:
        with nothing_spent(
            ValueError, "expected the package 'lightgbm' on every worker of Dask", monkeypatch
        ) as ledger:
            rows = make(table_for("binary"), 2)
            unfitted("binary").fit(rows, "label", sensitive_features="sex", ledger=ledger)
    finally:
        client.run(show)


def test_wrong_input_is_refused_in_one_sentence_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_for("binary")
    first, second = table[:600], table[600:]
    for other, match in (
        (second.assign(a=second["a"].astype(str)), "expected one type in column 'a'"),
        (second.drop(columns="b"), "expected a column 'b' in every partition"),
        (second.drop(columns="sex"), "expected a column 'sex' in every partition"),
        (second.assign(a=[{}, *second["a"][1:]]), "expected public columns of one type each"),
    ):
        with (
            nothing_spent(ValueError, match, monkeypatch) as ledger,
            dask.config.set({"dataframe.convert-string": False}),
        ):
            unfitted("binary").fit(by_partition(first, other), "label", sensitive_features="sex", ledger=ledger)
    check_wrong_input(make, monkeypatch)


def test_rows_that_come_in_another_order_each_time_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_for("binary")
    order = np.random.default_rng(0)
    shuffled = make(table, 2).map_partitions(lambda part: part.iloc[order.permutation(len(part))], meta=table[:0])
    match, here = "the same rows in the same order each time", {"scheduler": "synchronous"}
    with nothing_spent(ValueError, match, monkeypatch) as ledger, dask.config.set(here):
        unfitted("binary").fit(shuffled, "label", sensitive_features="sex", ledger=ledger)


def test_error_of_the_engine_keeps_neither_rows_nor_the_text_of_its_own_error() -> None:
    """Without a client, tasks run in this process, and frames of what they raise hold the attribute."""
    calls: list[int] = []

    def failing(part: pd.DataFrame) -> pd.DataFrame:
        calls.append(len(part))
        if len(calls) > 3:  # not when the rows are counted
            raise RuntimeError(f"the first of these is {part['sex'].iloc[0]}")
        return part

    table = table_for("binary")
    rows = make(table, 2).map_partitions(failing, meta=table[:0])
    fit, match = unfitted("binary").fit, "Dask could not compute a pass"
    with dask.config.set(scheduler="sync"), pytest.raises(RuntimeError, match=match) as caught:
        fit(rows, "label", sensitive_features="sex")
    assert len(calls) > 3
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    held = [frame.f_locals.values() for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    ours = [values for values, entry in zip(held, caught.traceback, strict=True) if "justitia" in str(entry.path)]
    assert not any(isinstance(one, pd.DataFrame | BaseException) for values in ours for one in values)


def test_odd_entry_of_the_attribute_is_not_given_and_changes_no_other() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("compared")

        __hash__ = None  # type: ignore[assignment]

    with dask.config.set({"dataframe.convert-string": False}):
        check_odd_entry(make, [float("nan"), b"\xff", {"f": 1}, Odd()])


def test_row_whose_key_does_not_join_is_not_given() -> None:
    def joined(rows: Any, attribute: Any) -> Any:
        return rows.merge(attribute, on="id", how="left")  # one partition on the right side: rows keep their order

    with dask.config.set(scheduler="synchronous"):
        check_key_without_partner(make, joined)


def test_rows_of_one_person_are_protected_together() -> None:
    check_persons(make)


def test_another_label_of_one_row_moves_that_row_alone() -> None:
    check_flip(make)


def test_partitions_without_rows_change_nothing() -> None:
    table = table_for("binary")
    holes = by_partition(table[:0], table[:500], table[500:500], table[500:])
    assert fitted("binary", holes)[:2] == fitted("binary", make(table, 1))[:2]


def test_example_of_the_documentation_runs() -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "docs/engines/dask_fit.py"), run_name="__main__")
