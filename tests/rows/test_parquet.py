"""Parquet files, folders, patterns and datasets as rows in order."""

import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from file_tables import make_table, write, write_parts
from pyarrow import dataset, parquet

from justitia.rows import parquet as parquet_rows
from justitia.rows.parquet import RowFiles, is_files


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "BLOCK", 256)


def read(where: Any, names: list[str], start: int = 0, stop: int | None = None) -> pd.DataFrame:
    blocks = list(RowFiles.open(where).blocks(names, start, stop))
    assert [at for at, _ in blocks] == [start, *(256 * (at // 256) for at, _ in blocks[1:])]
    assert all(len(table) <= 256 for _, table in blocks)
    return pa.concat_tables([table for _, table in blocks]).to_pandas()


@pytest.mark.usefixtures("small_blocks")
def test_rows_come_in_order_in_blocks_that_do_not_depend_on_how_they_are_stored(tmp_path: Path) -> None:
    table, names = make_table(), ["town", "id"]
    write(table, tmp_path / "one.parquet")
    write_parts(table, tmp_path / "many", [7, 7, 900])
    for where in (tmp_path / "one.parquet", str(tmp_path / "many"), str(tmp_path / "many" / "*.parquet")):
        pd.testing.assert_frame_equal(read(where, names), table[names])
    in_memory = dataset.dataset(pa.Table.from_pandas(table, preserve_index=False))
    on_disk = dataset.dataset(tmp_path / "many")
    for other in (in_memory, on_disk):
        assert is_files(other)
        pd.testing.assert_frame_equal(read(other, names, 100, 1000), table[names][100:1000].reset_index(drop=True))
    assert not is_files(table)


@pytest.mark.usefixtures("small_blocks")
def test_keys_of_hive_folders_are_columns(tmp_path: Path) -> None:
    table = make_table().assign(year=lambda one: 2000 + one["id"] % 2)
    parquet.write_to_dataset(
        pa.Table.from_pandas(table, preserve_index=False), tmp_path, partition_cols=["year", "town"]
    )
    for where in (tmp_path, dataset.dataset(tmp_path, partitioning="hive")):
        found = read(where, ["year", "town", "id"]).sort_values("id", ignore_index=True)
        assert found["year"].tolist() == table["year"].tolist()
        assert found["town"].tolist() == table["town"].tolist()
    with pytest.raises(ValueError, match="is a key of folders, so that names of files tell it"):
        RowFiles.open(tmp_path).check(["id"], ["town"])
    write(table, tmp_path / "0.parquet")  # the first file stores it
    with pytest.raises(ValueError, match="is a key of folders, so that names of files tell it"):
        RowFiles.open(tmp_path).check(["id"], ["town"])


def test_blocks_end_at_multiples_of_their_size_and_where_the_range_ends(tmp_path: Path) -> None:
    rows = RowFiles.open(write(make_table(), tmp_path / "one.parquet"))
    found = [(first, len(table)) for first, table in rows.blocks(["a"], 100, 700, 256)]
    assert found == [(100, 156), (256, 256), (512, 188)]


def test_files_and_datasets_can_be_sent_to_another_process_with_what_they_were_at_first(tmp_path: Path) -> None:
    table = make_table()
    stored = write(table, tmp_path / "rows" / "one.parquet")
    for where in (stored, dataset.dataset(tmp_path / "rows")):
        rows = RowFiles.open(where)
        assert len(rows) == len(table)
        copy = pickle.loads(pickle.dumps(rows))
        assert len(copy) == len(table)
        assert sum(len(one) for one in copy.tables(["a"])) == len(table)
        write(table, stored)
        with pytest.raises(ValueError, match="to stay as it was when it was first read"):
            list(copy.tables(["a"]))
