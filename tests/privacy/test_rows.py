"""Factored rows: norms and sums from the factors equal those of the rows written out."""

from typing import Any

import numpy as np
import pytest

from justitia.privacy.arrays import Floats
from justitia.privacy.blocks import ColumnBlock, DenseBlock, OuterBlock, ScatterBlock
from justitia.privacy.rows import ArrayRows, FactoredRows


def single(values: Any) -> Floats:
    """Single precision, as networks compute."""
    return np.asarray(values, dtype=np.float32)


def written_out(block: ColumnBlock) -> Floats:
    """Row i is the weighted sum with the i-th unit vector."""
    return np.stack([block.weighted_sum(unit) for unit in np.eye(len(block), dtype=np.float32)])


def outer(positions: int | None, *, bias: bool, n_out: int = 2, n_in: int = 3) -> OuterBlock:
    generator = np.random.default_rng(0)
    shape = (4,) if positions is None else (4, positions)
    left, right = (single(generator.standard_normal((*shape, width))) for width in (n_out, n_in))
    return OuterBlock(left, right, bias)


def test_dense_block_two_rows_gives_written_numbers() -> None:
    block = DenseBlock(np.array([[3.0, 4.0], [1.0, 0.0]]))
    assert block.width == 2
    assert block.squared_norms().tolist() == [25.0, 1.0]
    assert block.weighted_sum(np.array([1.0, -2.0])).tolist() == [1.0, 4.0]


def test_outer_block_without_positions_gives_written_numbers() -> None:
    block = OuterBlock(np.array([[1.0, 2.0]]), np.array([[3.0, 5.0, 7.0]]), bias=True)
    assert block.width == 8
    assert block.weighted_sum(np.array([2.0])).tolist() == [6.0, 10.0, 14.0, 12.0, 20.0, 28.0, 2.0, 4.0]
    assert block.squared_norms().tolist() == [5.0 * (83.0 + 1.0)]


def test_outer_block_with_positions_gives_written_numbers() -> None:
    block = OuterBlock(np.array([[[1.0], [2.0]]]), np.array([[[3.0, 0.0], [1.0, 1.0]]]), bias=True)
    assert block.weighted_sum(np.array([1.0])).tolist() == [5.0, 2.0, 3.0]
    assert block.squared_norms().tolist() == [38.0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("positions", "n_out", "n_in"), [(None, 2, 3), (1, 4, 5), (2, 6, 7), (9, 2, 3)], ids=str)
def test_outer_block_norms_any_shape_equal_written_out(
    positions: int | None, n_out: int, n_in: int, bias: bool
) -> None:
    block = outer(positions, bias=bias, n_out=n_out, n_in=n_in)
    rows = written_out(block)
    assert rows.shape == (4, block.width) == (4, n_out * (n_in + bias))
    np.testing.assert_allclose(block.squared_norms(), np.square(rows).sum(1), rtol=1e-5)


def test_outer_block_gram_and_materialised_norms_agree() -> None:
    block = outer(3, bias=True)
    np.testing.assert_allclose(block._gram_norms(), block._materialised_norms(), rtol=1e-5)


def test_outer_block_gram_norms_cancelling_positions_are_not_hidden() -> None:
    # 4096 * 4096 and its square do not fit into single precision next to the 1 that remains.
    left = single([[[4096.0], [-4096.0], [1.0]]])
    block = OuterBlock(left, single([[[4096.0], [4096.0], [1.0]]]), bias=False)
    assert block._gram_norms().tolist() == [1.0]


@pytest.mark.parametrize("rows", [2, 100])
def test_scatter_block_repeated_entry_adds_up(rows: int) -> None:
    index = np.array([[1, 0, 1]])
    block = ScatterBlock(index, np.array([[[1.0, 2.0], [5.0, 0.0], [3.0, 1.0]]]), rows)
    assert block.width == 2 * rows
    assert block.squared_norms().tolist() == [25.0 + 16.0 + 9.0]
    assert block.weighted_sum(np.array([2.0]))[:4].tolist() == [10.0, 0.0, 8.0, 6.0]


def test_factored_rows_scaled_twice_multiplies_factors() -> None:
    rows = FactoredRows((DenseBlock(np.array([[3.0], [1.0]])), DenseBlock(np.array([[4.0], [0.0]]))))
    rows = rows.scaled(np.array([2.0, -1.0])).scaled(np.array([1.0, 3.0]))
    assert (len(rows), rows.width) == (2, 2)
    assert rows.norms().tolist() == [10.0, 3.0]
    assert rows.weighted_sum(np.array([1.0, 1.0])).tolist() == [3.0, 8.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["dense", "outer", "positions", "scatter"])
def test_factored_rows_non_finite_row_shows_in_norm_and_zeroes_exactly(kind: str, bad: float) -> None:
    poison = np.array([1.0, bad])
    block: ColumnBlock = {
        "dense": DenseBlock(np.ones((2, 3)) * poison[:, None]),
        "outer": OuterBlock(np.zeros((2, 2)), np.ones((2, 3)) * poison[:, None], bias=True),
        "positions": OuterBlock(np.ones((2, 4, 2)), np.ones((2, 4, 3)) * poison[:, None, None], bias=True),
        "scatter": ScatterBlock(np.array([[0, 1], [1, 1]]), np.ones((2, 2, 3)) * poison[:, None, None], 2),
    }[kind]
    rows = FactoredRows((block,), scale=np.array([1.0, bad]))
    mask = ~np.isfinite(rows.norms())
    assert mask.tolist() == [False, True]
    clean = rows.zeroed(mask)
    assert clean.norms()[1] == 0
    assert np.array_equal(clean.weighted_sum(np.ones(2)), block.zeroed(mask).weighted_sum(np.array([1.0, 0.0])))
    assert np.isfinite(clean.weighted_sum(np.ones(2))).all()


CENTRED = {
    "dense": DenseBlock(single(np.random.default_rng(1).standard_normal((4, 5)))),
    "outer": outer(None, bias=True),
    "outer without bias": outer(None, bias=False),
    "positions": outer(3, bias=True),
    "scatter": ScatterBlock(
        np.array([[0, 0], [1, 2], [2, 2], [3, 0]]),
        single(np.random.default_rng(2).standard_normal((4, 2, 3))),
        5,
    ),
}


@pytest.mark.parametrize("kind", CENTRED)
def test_centred_rows_norms_and_sums_equal_those_written_out(kind: str) -> None:
    block = CENTRED[kind]
    generator = np.random.default_rng(3)
    scale, c = single([1.0, -2.0, 0.5, 0.0]), single([1.0, -1.0, 3.0, 0.5])
    member, centres = single(generator.random((4, 2))), single(generator.standard_normal((2, block.width)))
    rows = FactoredRows((block,)).scaled(scale).centred(member, centres)
    expected = written_out(block) * scale[:, None] - member @ centres
    np.testing.assert_allclose(rows.norms(), np.linalg.norm(expected, axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows.weighted_sum(c), c @ expected, rtol=1e-5, atol=1e-5)


def test_centred_rows_norm_of_a_row_at_its_centre_is_never_too_small() -> None:
    block = DenseBlock(single(np.full((1, 1000), 3.0)))
    rows = FactoredRows((block,)).centred(single(np.ones((1, 1))), single(np.full((1, 1000), 3.0 - 1e-3)))
    exact = 1e-3 * 1000**0.5
    assert exact <= float(rows.norms()[0]) < exact + 0.4


def test_centred_rows_zeroed_row_is_exactly_zero() -> None:
    rows = FactoredRows((DenseBlock(np.array([[float("nan"), 1.0], [1.0, 1.0]])),))
    rows = rows.centred(np.ones((2, 1)), np.array([[1.0, 0.0]])).zeroed(np.array([True, False]))
    assert rows.norms()[0] == 0
    assert rows.weighted_sum(np.array([1.0, 1.0])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("chunk_rows", [1, 7, 20])
def test_array_rows_any_chunk_size_same_rows(chunk_rows: int) -> None:
    values = np.arange(60.0).reshape(20, 3)
    source = ArrayRows(values, chunk_rows)
    assert (len(source), source.width) == (20, 3)
    index = np.concatenate([part for part, _ in source.chunks()])
    total = sum(rows.weighted_sum(np.ones(len(rows))) for _, rows in source.chunks())
    assert index.tolist() == list(range(20))
    assert np.array_equal(total, values.sum(0))
    assert max(len(rows) for _, rows in source.chunks()) <= chunk_rows


def test_array_rows_without_rows_yields_nothing() -> None:
    assert list(ArrayRows(np.ones((0, 1))).chunks()) == []


def test_array_rows_chunk_of_no_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="chunk_rows must be at least 1, got 0"):
        list(ArrayRows(np.ones((3, 1)), 0).chunks())
