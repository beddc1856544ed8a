"""From Arrow tables to blocks: the numbers that pandas would give, scores of the sample, and no room on the disk."""

import pickle
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from file_tables import FEW, files, make_table, model, write

from justitia.preprocessing.encoding import TabularEncoder
from justitia.rows import files as rows_files
from justitia.rows.files import stored_bytes
from justitia.rows.reading import BlockReader, Columns, Weights, sampled, scan_table

N, EVERY = 60, 4
PLACE = np.arange(N)
TABLE = pa.table(
    {
        "single": pa.array(np.sin(PLACE), pa.float32()),
        "gaps": pa.array([None if one % 6 == 0 else one / 7 for one in PLACE.tolist()], pa.float64()),
        "large": pa.array((2**60 + PLACE * 3).tolist(), pa.int64()),
        "small": pa.array([None if one % 9 == 0 else one for one in PLACE.tolist()], pa.int16()),
        "truth": pa.array([None if one % 8 == 0 else one % 2 == 0 for one in PLACE.tolist()]),
        "text": pa.array([None if one % 5 == 0 else f"t{one % 3}" for one in PLACE.tolist()]),
        "level": pa.array([f"l{one % 4}" for one in PLACE.tolist()]).dictionary_encode(),
        "y": pa.array(["no" if one % 3 else "yes" for one in PLACE.tolist()]),
    }
)
COLUMNS = Columns(tuple(TABLE.column_names[:-1]), "y")


def reader(features: list[str], **more: Any) -> BlockReader:
    encoder = TabularEncoder().fit(TABLE.select(features).to_pandas())
    return BlockReader(Columns(tuple(features), "y"), encoder.transform, ("no", "yes"), Weights(), N, EVERY, **more)


class Scores:
    """The number of its first feature, and what it has read."""

    def __init__(self, *, reads_table: bool) -> None:
        self.reads_table, self.seen = reads_table, []  # type: ignore[var-annotated]

    def __call__(self, inputs: Any) -> Any:
        self.seen.append(type(inputs.table))
        return np.full(len(inputs), 0.25)


@pytest.mark.parametrize("features", [list(COLUMNS.features), list(COLUMNS.features[:6]), ["single"]])
def test_block_of_arrow_rows_has_the_numbers_that_pandas_gives(features: list[str]) -> None:
    made = reader(features)
    expected = made.encode(TABLE.select(features).to_pandas())
    found = made.block(0, TABLE)
    assert np.array_equal(found.X, expected)
    assert found.y.tolist() == [0.0 if one % 3 else 1.0 for one in PLACE.tolist()]
    assert (found.weight == 1).all()
    assert found.score is None


def test_block_is_the_same_from_several_chunks_and_after_pickling() -> None:
    made = reader(["single", "gaps", "text"])
    chunks = pa.concat_tables([TABLE.slice(0, 7), TABLE.slice(7, 30), TABLE.slice(37)])
    found = pickle.loads(pickle.dumps(made)).block(0, chunks)
    assert np.array_equal(found.X, made.block(0, TABLE).X)


def test_rows_of_the_sample_have_their_own_scores_wherever_a_block_begins() -> None:
    drawn = sampled(0, N, N, EVERY)
    own = np.linspace(0.4, 0.9, len(drawn))
    expected = np.full(N, 0.25)
    expected[drawn] = own
    made = reader(["single"], predict=Scores(reads_table=False), sample_scores=own)
    for size in (N, 13, 1):
        parts = [made.block(first, TABLE.slice(first, size)).score for first in range(0, N, size)]
        assert np.array_equal(np.concatenate([one for one in parts if one is not None]), expected)


@pytest.mark.parametrize("reads_table", [True, False])
def test_base_that_reads_the_table_gets_one_of_pandas(*, reads_table: bool) -> None:
    predict = Scores(reads_table=reads_table)
    reader(["single"], predict=predict, sample_scores=np.zeros(-(-N // EVERY))).block(0, TABLE)
    assert predict.seen == [pd.DataFrame if reads_table else pa.Table]


def test_scan_of_one_table_has_its_labels_and_its_rows_of_the_sample() -> None:
    found = scan_table(TABLE.slice(20), 20, COLUMNS, N, EVERY)
    assert found.labels == {"no", "yes"}
    assert len(found.sample()) == len(sampled(20, N, N, EVERY))


def test_fit_without_room_on_the_disk_is_refused_before_a_base_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_files, "SAMPLE", FEW)
    table = make_table()
    stored = files(write(table, tmp_path / "rows.parquet"))
    usage = namedtuple("usage", "free")
    asked: list[int] = []

    def little(_: str) -> Any:
        asked.append(1)
        return usage(free=stored_bytes(1, 1, weighted=False) * len(table))

    monkeypatch.setattr("justitia.rows.files.shutil.disk_usage", little)
    base = Scores(reads_table=True)
    with pytest.raises(ValueError, match=r"expected room for [0-9]+ MB of encoded rows in .*, got less") as refused:
        model(base=base).fit(stored, "label", sensitive_features="sex")
    assert "\n" not in str(refused.value)
    assert (asked, base.seen) == ([1], [])


def test_stored_row_has_212_bytes_at_50_columns() -> None:
    assert stored_bytes(50, 1, weighted=False) == 212
    assert stored_bytes(50, 1, weighted=True) == 216
