"""Data frames of Ray, on a local cluster of two processors."""

from __future__ import annotations

import logging
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import ray
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
    nothing_spent,
    table_for,
    unfitted,
    worker_killer,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"
)


def cut(table: pd.DataFrame, partitions: int) -> list[pd.DataFrame]:
    n = len(table)
    return [table[n * k // partitions : n * (k + 1) // partitions] for k in range(partitions)]


def make(table: pd.DataFrame, partitions: int) -> Any:
    return ray.data.from_pandas(cut(table, partitions))


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
        object_store_memory=200_000_000,
        _node_ip_address="127.0.0.1",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.mark.parametrize("target", TARGETS)
def test_fit_on_workers_has_the_sums_and_the_model_of_rows_in_memory(target: str) -> None:
    check_same_as_memory(make, target)


@pytest.mark.parametrize("target", TARGETS)
def test_fit_beyond_the_sample_has_the_sums_and_the_model_of_files(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_same_as_files(make, target, tmp_path, monkeypatch)


def test_measure_tradeoff_and_predict_give_the_numbers_of_rows_in_memory() -> None:
    def in_order(frame: Any) -> pd.DataFrame:
        frame.context.execution_options.preserve_order = True  # otherwise blocks come in the order in which tasks end
        return frame.to_pandas()

    check_measure_tradeoff_predict(make, in_order)


def test_worker_that_is_killed_in_a_pass_changes_neither_sums_nor_model_nor_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_killed_worker_changes_nothing(make, tmp_path, monkeypatch, worker_killer())


def test_wrong_input_is_refused_in_one_sentence_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    check_wrong_input(make, monkeypatch)
    table = table_for("binary")
    other = table[600:].assign(a=table["a"][600:].astype(str))
    with nothing_spent(ValueError, "expected one type in column 'a'", monkeypatch) as ledger:
        rows = ray.data.from_pandas([table[:600], other])
        unfitted("binary").fit(rows, "label", sensitive_features="sex", ledger=ledger)
    for lacking in ("b", "sex"):
        with nothing_spent(ValueError, f"expected a column '{lacking}'", monkeypatch) as ledger:
            rows = ray.data.from_pandas([table[:600], table[600:].drop(columns=lacking)])
            unfitted("binary").fit(rows, "label", sensitive_features="sex", ledger=ledger)


def test_row_whose_key_does_not_join_is_not_given() -> None:
    def joined(rows: Any, attribute: Any) -> Any:
        both = rows.join(attribute, join_type="left_outer", num_partitions=2, on=("id",))
        return both.sort("id").select_columns([*rows.columns(), "sex"]).materialize()

    check_key_without_partner(make, joined)


def test_odd_entry_of_the_attribute_is_not_given_and_changes_no_other() -> None:
    check_odd_entry(make, [float("nan"), b"\xff"])


def test_rows_of_one_person_are_protected_together() -> None:
    check_persons(make)


def test_another_label_of_one_row_moves_that_row_alone() -> None:
    def of_arrow(table: pd.DataFrame, partitions: int) -> Any:
        return ray.data.from_arrow([pa.Table.from_pandas(one, preserve_index=False) for one in cut(table, partitions)])

    check_flip(of_arrow)


def test_example_of_the_documentation_runs() -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "docs/engines/ray_fit.py"), run_name="__main__")
