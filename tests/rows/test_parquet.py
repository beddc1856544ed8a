"""Parquet files, folders, patterns and datasets as rows in order."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from people_files import people, write, write_parts
from pyarrow import dataset, parquet

from justitia.preprocessing import files, public_sample
from justitia.rows.parquet import RowFiles, is_files


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 256)


def read(where: Any, names: list[str], start: int = 0, stop: int | None = None) -> pd.DataFrame:
    blocks = list(RowFiles.open(where).blocks(names, start, stop))
    assert [at for at, _ in blocks] == [start, *(256 * (at // 256) for at, _ in blocks[1:])]
    assert all(len(table) <= 256 for _, table in blocks)
    return pa.concat_tables([table for _, table in blocks]).to_pandas()


@pytest.mark.usefixtures("small_blocks")
def test_rows_come_in_order_in_blocks_that_do_not_depend_on_how_they_are_stored(tmp_path: Path) -> None:
    table, names = people(), ["town", "id"]
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
    table = people().assign(year=lambda one: 2000 + one["id"] % 2)
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


@pytest.mark.usefixtures("small_blocks")
def test_bar_of_a_pass_is_told_of_every_block_of_this_process(tmp_path: Path) -> None:
    columns = public_sample.Columns(("a",))
    rows = RowFiles.open(write(people(), tmp_path / "one.parquet"))
    told: list[int] = []
    bar = type("Bar", (contextlib.nullcontext,), {"update": lambda _, count: told.append(count)})
    own = public_sample.OwnRows(rows, columns, 100, 700, 100, 1200, watch=lambda _: contextlib.nullcontext(bar()))
    assert [len(block) for block in own.blocks()] == told == [156, 256, 188]


def test_sample_is_one_row_of_every_stretch_whatever_parts_it_is_drawn_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_sample, "SAMPLE", 100)
    n = 1234
    whole = public_sample.sampled(0, n, n)
    assert len(whole) == -(-n // 13)
    assert np.array_equal(whole // 13, np.arange(len(whole)))
    assert len(set(whole % 13)) == 13
    parts = [public_sample.sampled(start, min(start + 100, n), n) for start in range(0, n, 100)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(public_sample.sampled(0, 100, 100), np.arange(100))
