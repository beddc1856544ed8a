"""Rows of files as a source: the public sample, blocks that are kept between passes, and room on the disk."""

import pickle
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from file_tables import FEATURES, files, make_table, write

from justitia.postprocessing.decisions import DecisionRows, DecisionRule, EvaluateDecisions, Gains
from justitia.postprocessing.features import PublicRows, base_scores
from justitia.postprocessing.memberships import Memberships
from justitia.preprocessing.encoding import TabularEncoder
from justitia.rows import files as rows_files
from justitia.rows.files import Columns, FilePart, FileRows, disk_array, sampled, stride
from justitia.rows.parquet import RowFiles

ROWS, BLOCK = 90, 32


class Bar:
    """Counts what it is updated with."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def update(self, count: int) -> None:
        self.counts.append(count)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileRows:
    """Three blocks of rows that were loaded and scored."""
    monkeypatch.setattr(rows_files, "BLOCK", BLOCK)
    X = np.random.default_rng(0).normal(size=(ROWS, 3))
    table = pd.DataFrame(X, columns=list("abc")).assign(y=(X[:, 0] > 0).astype(int), w=np.arange(ROWS) % 4 + 1.0)
    table.to_parquet(tmp_path / "rows.parquet", index=False, row_group_size=40)
    encoder = TabularEncoder().fit(table[list("abc")])
    made = FileRows(
        RowFiles.open(tmp_path / "rows.parquet"), Columns(tuple("abc"), "y", "w"), lambda *_: nullcontext(Bar())
    )
    made.scan()
    made.scale_weights(4.0, 1.0)
    made.encode_with(encoder.transform, (0, 1))
    made.score(lambda _: pytest.fail("rows of the sample are scored already"), np.linspace(0.1, 0.9, ROWS))
    return made


def rule(source: FileRows, seed: int) -> DecisionRule:
    """Random decisions."""
    (part,) = source._parts
    assert part._stored is not None
    rows = PublicRows.fit(base_scores, part._stored.block(0, ROWS, first=0, memo={}))
    generator = np.random.default_rng(seed)
    weights, factors = generator.normal(size=(3, rows.width)), generator.normal(size=(1, 2, 2, 1))
    return DecisionRule(Memberships(rows, weights), factors, Gains(np.array([0.5])), np.zeros(1), str(seed))


def decision_rows(source: FileRows, seed: int) -> Any:
    return np.concatenate(list(source.map(DecisionRows(rule(source, seed), np.arange(8.0).reshape(1, 2, 2, 2)))))


def test_decisions_that_a_block_keeps_are_those_that_would_be_made_again(source: FileRows) -> None:
    first = decision_rows(source, seed=0)
    source.run(EvaluateDecisions(rule(source, 0), 1e-6))
    assert np.array_equal(decision_rows(source, seed=0), first)
    other = decision_rows(source, seed=1)
    assert not np.array_equal(other, first)
    source.run(EvaluateDecisions(rule(source, 1), 1e-6))
    assert np.array_equal(decision_rows(source, seed=0), first)


def test_decisions_that_a_block_keeps_need_no_feature(source: FileRows, monkeypatch: pytest.MonkeyPatch) -> None:
    first = decision_rows(source, seed=0)
    kept = rule(source, 0)
    monkeypatch.setattr(PublicRows, "label_free", lambda *_: pytest.fail("features were read"))
    table = np.arange(8.0).reshape(1, 2, 2, 2)
    assert np.array_equal(np.concatenate(list(source.map(DecisionRows(kept, table)))), first)


def test_rows_that_were_loaded_are_those_of_the_file_in_order(source: FileRows) -> None:
    blocks = list(source.map(lambda block: block))
    assert [block.first for block in blocks] == [0, 32, 64]
    assert np.concatenate([block.score for block in blocks]) == pytest.approx(np.linspace(0.1, 0.9, ROWS))
    weight = np.arange(ROWS) % 4 + 1.0
    assert np.concatenate([block.weight for block in blocks]) == pytest.approx(weight / weight.mean(), rel=1e-6)


def test_part_is_sent_to_a_worker_without_rows_and_decisions(source: FileRows) -> None:
    decision_rows(source, seed=0)
    (part,) = source._parts
    copy: FilePart = pickle.loads(pickle.dumps(part))
    assert (copy._stored, copy._memos) == (None, {})
    assert (copy.start, copy.stop, copy.every, copy.block_rows) == (0, ROWS, 1, BLOCK)
    assert len(pickle.dumps(part)) < 5000


def test_progress_counts_the_rows_of_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_files, "BLOCK", 256)
    bars: list[Bar] = []

    def progress(total: int, name: str) -> Any:
        assert (total, name) == (1200, f"pass {len(bars) + 1}")
        bars.append(Bar())
        return nullcontext(bars[-1])

    FileRows(files(write(make_table(), tmp_path / "rows.parquet")), Columns(FEATURES), progress).scan()
    assert [bar.counts for bar in bars] == [[256] * 4 + [176]]


@pytest.mark.parametrize(
    ("n", "workers", "expected"),
    [
        (90, 2, ((0, 32), (32, 90))),
        (90, 5, ((0, 32), (32, 64), (64, 90))),
        (20, 3, ((0, 20),)),
        (64, 2, ((0, 32), (32, 64))),
    ],
)
def test_workers_divide_whole_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, workers: int, expected: Any
) -> None:
    monkeypatch.setattr(rows_files, "BLOCK", BLOCK)
    stored = files(write(make_table(n), tmp_path / "rows.parquet"), workers=workers)
    made = FileRows(stored, Columns(FEATURES), lambda *_: nullcontext(Bar()))
    assert made.ranges == expected


def test_sample_is_one_row_of_every_stretch_whatever_parts_it_is_drawn_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_files, "SAMPLE", 100)
    n = 1234
    s = stride(n)
    assert s == 13
    whole = sampled(0, n, n, s)
    assert len(whole) == -(-n // 13)
    assert np.array_equal(whole // 13, np.arange(len(whole)))
    assert len(set(whole % 13)) == 13
    parts = [sampled(start, min(start + 100, n), n, s) for start in range(0, n, 100)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(sampled(0, 100, 100, stride(100)), np.arange(100))


def test_disk_array_has_no_name_and_refuses_a_size_that_does_not_fit(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = disk_array((1000, 3), np.float32)
    kept[:] = 1.5
    assert float(kept.sum()) == 4500.0
    assert list(tmp_path.iterdir()) == []
    assert disk_array((0,), np.float64).shape == (0,)
    with pytest.raises(
        ValueError, match=r"expected room for [0-9,]+ MB of encoded rows in .*, got less; make room, or set TMPDIR"
    ) as no:
        disk_array((2**50,), np.float64)
    assert "\n" not in str(no.value)
