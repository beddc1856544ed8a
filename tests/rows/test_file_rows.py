"""One process's rows in engine plugin: what is kept between passes is what would be computed again."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from justitia.engines.shards import Facts
from justitia.postprocessing.shard import ScoredShard
from justitia.preprocessing.spilled import Spilled
from numpy.typing import NDArray

from justitia.engines import shards
from justitia.postprocessing.features import PublicRows
from justitia.postprocessing.solver import represented
from justitia.preprocessing import files as row_files
from justitia.preprocessing.encoding import TabularEncoder
from justitia.rows.files import Columns, OwnRows
from justitia.rows.parquet import RowFiles

ROWS, BLOCK = 90, 32


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ScoredShard, int]:
    """A shard of three blocks that was scored, and the width of its public rows."""
    for module in (row_files, shards):
        monkeypatch.setattr(module, "BLOCK", BLOCK)
    X = np.random.default_rng(0).normal(size=(ROWS, 3))
    table = pd.DataFrame(X, columns=list("abc")).assign(y=(X[:, 0] > 0).astype(int), w=np.arange(ROWS) % 4 + 1.0)
    table.to_parquet(tmp_path / "rows.parquet", index=False, row_group_size=40)
    encoder = TabularEncoder().fit(table[list("abc")])
    numbers, eta = encoder.transform(table[list("abc")]), np.linspace(0.1, 0.9, ROWS)
    labels = table["y"].to_numpy(dtype=np.float32)
    learned = PublicRows(represented(eta), numbers, labels, chunk_rows=BLOCK)
    files = RowFiles.open(tmp_path / "rows.parquet")
    own = OwnRows(files, Columns(tuple("abc"), "y", "w"), 0, ROWS, 0, ROWS)
    shard = ScoredShard(own, Facts(1, largest=4.0, cap=1.0, mean=0.6), encoder.transform)
    shard.score(learned, learned.width, lambda *_: pytest.fail("rows of the sample are scored already"), eta)
    return shard, learned.width


def asked(shard: ScoredShard, width: int, seed: int) -> tuple[dict[str, Any], NDArray[Any]]:
    """Rules by a seed, and the rows that their decisions give."""
    generator = np.random.default_rng(seed)
    by: dict[str, Any] = {
        "membership": generator.normal(size=(3, width)),
        "multiplied": generator.normal(size=(2, 2)),
        "threshold": 0.5,
    }
    table = np.arange(8.0).reshape(2, 2, 2)
    return by, np.concatenate([rows for _, rows in shard.decision_rows(by | {"table": table}).dense()])


def test_decisions_that_are_kept_are_those_that_would_be_made_again(made: tuple[ScoredShard, int]) -> None:
    shard, width = made
    by, again = asked(shard, width, seed=0)
    shard.judge(**by)
    assert np.array_equal(asked(shard, width, seed=0)[1], again)
    other = asked(shard, width, seed=1)[1]
    assert not np.array_equal(other, again)
    shard.judge(**asked(shard, width, seed=1)[0])
    assert np.array_equal(asked(shard, width, seed=0)[1], again)


def test_decisions_that_are_kept_need_no_feature(
    made: tuple[ScoredShard, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard, width = made
    by, again = asked(shard, width, seed=0)
    shard.judge(**by)
    monkeypatch.setattr(shard, "encode", lambda _: pytest.fail("features were read"))
    assert np.array_equal(asked(shard, width, seed=0)[1], again)


def test_spilled_numbers_come_back_in_order() -> None:
    spilled = Spilled(np.dtype(np.float64))
    for _ in range(2):
        spilled.rewind()
        spilled.write(np.array([0.1, 0.2]))
        spilled.write(np.array([0.3]))
        spilled.rewind()
        assert spilled.read(1).tolist() == [0.1]
        assert spilled.read(2).tolist() == [0.2, 0.3]
