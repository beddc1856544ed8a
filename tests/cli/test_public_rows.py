"""Hashes of public rows: the same individuals are noticed, coincidences are not, and what is unclear is unknown."""

import numpy as np
import pandas as pd
import pytest

from justitia.cli.files import public_rows as rows
from justitia.cli.files.measurement_log import connected_parts
from justitia.cli.files.public_rows import RowHashes, Sketch, _canonical


def hashed(values: object) -> RowHashes:
    return RowHashes(("x", "y"), np.asarray(values, dtype=np.uint64))


def drawn(number: int, *, kinds: int, seed: int) -> RowHashes:
    """Rows that are equal by coincidence: so many kinds, spread over all hashes."""
    chosen = np.random.default_rng(seed).integers(0, kinds, number).astype(np.uint64)
    return hashed(chosen * np.uint64(0x9E3779B97F4A7C15))


@pytest.mark.parametrize(("kinds", "kept"), [(10_000, 4096), (100_000, 4096), (100_000, 64), (10**15, 64)])
def test_other_individuals_with_equal_rows_by_coincidence_are_apart(
    kinds: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "KEPT", kept)
    for seed in range(20):
        trained, other = drawn(4000, kinds=kinds, seed=seed), drawn(1500, kinds=kinds, seed=100 + seed)
        assert other.overlap(trained.sketch) == "apart"


@pytest.mark.parametrize(("kinds", "kept"), [(10_000, 4096), (100_000, 4096), (100_000, 64), (10**15, 64)])
def test_same_individuals_are_noticed_among_others(kinds: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "KEPT", kept)
    for seed in range(20):
        trained, other = drawn(4000, kinds=kinds, seed=seed), drawn(700, kinds=kinds, seed=100 + seed)
        both = hashed(np.concatenate([other.hashes, trained.hashes[1000:3000]]))
        assert both.overlap(trained.sketch) == "shared"


def test_few_kinds_of_rows_tell_nothing_but_the_same_file_does() -> None:
    trained, other = drawn(4000, kinds=8, seed=0), drawn(1000, kinds=8, seed=1)
    assert other.overlap(trained.sketch) == "unknown"
    assert hashed(trained.hashes[::-1]).overlap(trained.sketch) == "shared"


def test_sample_too_small_to_notice_anything_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "KEPT", 16)
    trained = drawn(4000, kinds=10**9, seed=0)
    assert drawn(100, kinds=10**9, seed=1).overlap(trained.sketch) == "unknown"


def test_one_row_of_the_training_among_different_ones_is_noticed() -> None:
    trained = hashed(np.arange(100) * 7 + 1)
    assert hashed([*range(10**6, 10**6 + 50), 8]).overlap(trained.sketch) == "shared"


def test_other_columns_or_no_sketch_tell_nothing() -> None:
    trained = hashed(range(100))
    assert RowHashes(("z", "y"), trained.hashes).overlap(trained.sketch) == "unknown"
    assert trained.overlap(None) == "unknown"


def test_sketch_is_the_same_after_writing_and_reading() -> None:
    sketch = drawn(500, kinds=400, seed=0).sketch
    assert Sketch.from_dict(sketch.to_dict()) == sketch
    assert sketch.single + sketch.double <= sketch.rows == 500
    for damaged in (None, [], {}, sketch.to_dict() | {"smallest": 3}, sketch.to_dict() | {"rows": "many"}):
        assert Sketch.from_dict(damaged) is None


def test_value_has_the_same_bytes_however_it_was_read() -> None:
    assert len({_canonical(one) for one in (1, 1.0, "1", " 1.0 ", np.int64(1), np.float64(1))}) == 1
    assert _canonical(np.nan) == _canonical("nan") == b""
    assert _canonical(-0.0) == _canonical(0)
    assert _canonical("a") != _canonical("b")
    typed, text = pd.DataFrame({"x": [1.5, None, 2]}), pd.DataFrame({"x": ["1.5", None, "2"]}, dtype=object)
    y = np.array([0, 1, 1])
    assert rows.row_hashes(typed, y, (0, 1)).tolist() == rows.row_hashes(text, y, ("0", "1")).tolist()


def test_parts_are_connected_through_others() -> None:
    assert sorted(map(sorted, connected_parts([(0, 1), (3, 1)], 5))) == [[0, 1, 3], [2], [4]]
