"""Public rows of the first release: lengths by the noise, principal components, and the bound on their norm."""

import math

import numpy as np
import pytest

from justitia.postprocessing.features import EXPLAINED, LONGEST, PREDICTION, SHORTEST, Layout, PublicRows, base_scores
from justitia.rows.source import Block

NOISY = Layout.for_noise(30.0, 5000, blocks=False)


def rows(n: int = 500, columns: int = 40, *, labels: int = 2, factors: int = 3) -> Block:
    """Columns that a few factors explain, but for a little."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((n, factors)) @ generator.standard_normal((factors, columns))
    X = (X + 0.1 * generator.standard_normal(X.shape)).astype(np.float32)
    score = generator.dirichlet(np.ones(labels), n) if labels > 2 else generator.uniform(0.05, 0.95, n)
    y = generator.integers(0, labels, n).astype(np.float32)
    return Block(0, X, y, np.ones(n, dtype=np.float32), score)


def test_constant_is_longer_where_the_noise_per_row_is_larger() -> None:
    lengths = [Layout.for_noise(stddev, 10_000, blocks=False).constant for stddev in (0.0, 10.0, 60.0, 1000.0)]
    assert lengths == [SHORTEST, SHORTEST, pytest.approx(0.6), LONGEST]


def test_columns_are_kept_where_there_is_little_noise() -> None:
    assert Layout.for_noise(1.0, 10_000, blocks=True) == Layout(SHORTEST, PREDICTION, 1.0)
    assert Layout.for_noise(1.0, 10_000, blocks=False) == Layout(SHORTEST, PREDICTION, EXPLAINED, 1e-4)


@pytest.mark.parametrize(("stddev", "components"), [(0.2, 40), (30.0, 3)])
def test_weak_components_are_kept_where_their_sums_vary_more_by_the_sample_than_by_the_noise(
    stddev: float, components: int
) -> None:
    """Three factors hold nearly all of the variance; the others hold about one in ten thousand each."""
    layout = Layout.for_noise(stddev, 10_000, blocks=False)
    made = PublicRows.fit(base_scores, rows(), blocks=False, layout=layout)
    assert made.axes is not None
    assert made.axes.shape[1] == components


def test_correlated_columns_become_few_components_of_the_same_length() -> None:
    made = PublicRows.fit(base_scores, rows(), blocks=False, layout=NOISY)
    assert made.width == 1 + 3 + 2 + 1  # constant, components, probability and log-odds, label
    features = made._base(rows())[:, 1:4] * made.length
    assert np.square(features).sum(1).mean() == pytest.approx(1.0, abs=0.02)


def test_constant_columns_add_nothing() -> None:
    block = rows()
    made = PublicRows.fit(
        base_scores, Block(0, np.ones_like(block.X), block.y, block.weight, block.score), layout=NOISY
    )
    assert np.isfinite(made(block)).all()


@pytest.mark.parametrize("labels", [2, 4])
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("stddev", [0.0, 30.0, math.inf])
def test_rows_have_norm_at_most_one_and_count_groups_whatever_the_layout(
    stddev: float, labels: int, blocks: bool
) -> None:
    block = rows(labels=labels)
    layout = Layout.for_noise(stddev, 5000, blocks=blocks)
    made = PublicRows.fit(base_scores, block, blocks=blocks, labels=labels, layout=layout)
    found = made(block)
    assert found.shape == (500, made.width)
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-6
    inside = np.arange(500) % 3 == 0
    counted = made.sizes(found[inside].sum(0, dtype=np.float64)[None], found.sum(0, dtype=np.float64), 500)
    exact = np.bincount(block.y[inside].astype(int), minlength=labels)
    # rows that are shortened to the bound count a little less
    assert counted.sum() == pytest.approx(inside.sum(), rel=0.05)
    assert counted[0] == pytest.approx(exact, abs=12)


def test_row_is_the_same_to_the_last_bit_in_every_block() -> None:
    block = rows(n=5000)
    made = PublicRows.fit(base_scores, block, blocks=False, layout=NOISY)
    whole = made(block)
    for first, last in ((0, 1), (17, 2500), (4999, 5000)):
        part = Block(first, *(part[first:last] for part in (block.X, block.y, block.weight, block.score)))  # type: ignore[index]
        assert (made(part) == whole[first:last]).all()
