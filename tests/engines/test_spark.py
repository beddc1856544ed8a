"""Data frames of Spark, on two threads of one JVM; a killed executor is one of a cluster of processes."""

from __future__ import annotations

import os
import random
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from cases import (
    TARGETS,
    check_flip,
    check_key_without_partner,
    check_killed_worker_changes_nothing,
    check_measure_tradeoff_predict,
    check_persons,
    check_same_as_files,
    check_same_as_memory,
    check_wrong_input,
    fitted,
    nothing_spent,
    table_for,
    unfitted,
)
from pyspark.sql import SparkSession, functions, types

from justitia.rows.spark import SparkFrame

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning", "ignore::UserWarning"
)
NAMES = {"id": "long", "a": "double", "b": "double", "c": "double", "d": "double", "town": "string", "sex": "string"}


def session(master: str) -> SparkSession:
    made = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "OFF")
        .config("spark.python.worker.faulthandler.enabled", "false")
        .config("spark.executor.memory", "1g")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    return made


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[SparkSession]:
    made = session("local[2,4]")
    yield made
    SparkSession.getActiveSession().stop()  # type: ignore[union-attr]


def make(table: pd.DataFrame, partitions: int) -> Any:
    """Rows in partitions whose order is that of a hidden number of the row."""
    spark = SparkSession.getActiveSession()
    assert spark is not None
    kinds = NAMES | {"weight": "double"}
    if "label" in table:
        texts = any(isinstance(one, str) for one in table["label"]) or not len(table)
        number = "long" if pd.api.types.is_integer_dtype(table["label"]) else "double"
        kinds["label"] = kinds["prediction"] = "string" if texts else number
    if "id" in table and isinstance(table["id"].iloc[0], str):
        kinds["id"] = "string"
    schema = ", ".join(f"{name} {kinds[name]}" for name in table.columns)
    rows = table.astype(object).where(table.notna(), None).to_dict("split")["data"]
    frame = spark.createDataFrame([(at, *row) for at, row in enumerate(rows)], f"place long, {schema}")
    return frame.repartitionByRange(partitions, "place").sortWithinPartitions("place").drop("place")


@pytest.mark.parametrize("target", TARGETS)
def test_fit_on_workers_has_the_sums_and_the_model_of_rows_in_memory(target: str) -> None:
    check_same_as_memory(make, target)


@pytest.mark.parametrize("target", TARGETS)
def test_fit_beyond_the_sample_has_the_sums_and_the_model_of_files(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_same_as_files(make, target, tmp_path, monkeypatch)


def test_measure_tradeoff_and_predict_give_the_numbers_of_rows_in_memory() -> None:
    check_measure_tradeoff_predict(make, lambda frame: frame.toPandas())


def test_wrong_input_is_refused_in_one_sentence_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    check_wrong_input(make, monkeypatch)


def test_rows_that_change_each_time_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def select_without_cache(self: SparkFrame, public: Any, private: Any) -> None:
        self._public, self._private = list(public), list(private)
        self._used = self._frame.select(*public, *private)

    drawn = functions.udf(random.random, types.DoubleType()).asNondeterministic()
    changing = make(table_for("binary"), 2).withColumn("a", drawn())
    monkeypatch.setattr(SparkFrame, "select", select_without_cache)
    monkeypatch.setattr(SparkFrame, "close", lambda self: None)
    with nothing_spent(ValueError, "the same rows in the same order each time", monkeypatch) as ledger:
        unfitted("binary").fit(changing, "label", sensitive_features="sex", ledger=ledger)


def test_row_whose_key_does_not_join_is_not_given() -> None:
    def joined(rows: Any, attribute: Any) -> Any:
        both = rows.join(functions.broadcast(attribute), on="id", how="left").select(*rows.columns, "sex")
        return both.repartitionByRange(2, "id").sortWithinPartitions("id")

    check_key_without_partner(make, joined)


def test_rows_of_one_person_are_protected_together() -> None:
    check_persons(make)


def test_another_label_of_one_row_moves_that_row_alone() -> None:
    check_flip(make)


def test_attribute_of_another_type_is_not_given() -> None:
    frame = make(table_for("binary"), 2)
    as_map = frame.withColumn("sex", functions.create_map(functions.lit("x"), functions.col("sex")))
    none = frame.withColumn("sex", functions.lit(None).cast("string"))
    assert fitted("binary", as_map)[:2] == fitted("binary", none)[:2]


def test_example_of_the_documentation_runs() -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "docs/engines/spark_fit.py"), run_name="__main__")


def executor_killer() -> Callable[[], None]:
    """A function that ends the JVM that started this worker: in a cluster of processes, an executor."""

    def kill() -> None:
        at = os.getpid()
        while at > 1:
            at = int(Path(f"/proc/{at}/stat").read_text().rpartition(")")[2].split()[1])
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{at}/cmdline").read_bytes():
                os.kill(at, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)

    return kill


def test_executor_that_is_killed_in_a_pass_changes_neither_sums_nor_model_nor_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SparkSession.getActiveSession().stop()  # type: ignore[union-attr]
    session("local-cluster[2,1,1024]")
    check_killed_worker_changes_nothing(make, tmp_path, monkeypatch, executor_killer())
