"""Ridges of the memberships: which columns tell, and how firmly the others are held."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from justitia.postprocessing.memberships import IDLE, LEAST_RIDGE, fit_memberships, memberships, ridges

Array = NDArray[Any]
N, SPREAD, SHARE = 4_000, 30.0, 0.05


def people(columns: int, seed: int = 0) -> tuple[Array, Array]:
    """Public rows, of which the second column alone differs between two groups, and who is in the second group."""
    generator = np.random.default_rng(seed)
    member = np.arange(N) % 2
    rows = np.concatenate([np.ones((N, 1)), generator.standard_normal((N, columns))], axis=1)
    rows[:, 1] += member - 0.5
    return rows / np.linalg.norm(rows, axis=1).max(), member


def noised(rows: Array, member: Array, seed: int = 1) -> Array:
    exact = np.stack([rows[member == a].astype(np.float64).sum(0) for a in (0, 1)])
    return exact + SPREAD * np.random.default_rng(seed).standard_normal(exact.shape)


def found(rows: Array, sums: Array, constant: Array | None = None, spread: float = SPREAD) -> Array:
    constant = np.zeros(rows.shape[1], dtype=np.int64) if constant is None else constant
    return ridges(sums, rows.astype(np.float64).sum(0), rows, constant, len(rows), spread, SHARE)


def test_column_that_tells_is_held_less_than_idle_ones() -> None:
    rows, member = people(5)
    ridge = found(rows, noised(rows, member))
    assert ridge[:2].tolist() == pytest.approx([SHARE * SPREAD**2] * 2)  # the constant, and the column that differs
    assert ridge[2:].tolist() == pytest.approx([4 * IDLE * SPREAD**2] * 4)


def test_threshold_is_that_of_the_largest_of_so_many_sums_of_noise() -> None:
    rows = np.concatenate([np.ones((N, 1)), np.zeros((N, 7))], axis=1)  # columns without a variance of their own
    line = math.sqrt(2 * math.log(8)) * SPREAD
    for beyond, ridge in ((0.99, 7 * IDLE), (1.01, SHARE)):
        sums = np.zeros((2, 8))
        sums[:, 0], sums[0, 3] = N / 2, beyond * line
        assert found(rows, sums)[3] == pytest.approx(ridge * SPREAD**2)


def test_few_idle_columns_are_held_no_less_than_others() -> None:
    rows, member = people(2)
    ridge = found(rows, noised(rows, member))
    assert ridge.tolist() == pytest.approx([SHARE * SPREAD**2] * 3)


def test_without_noise_every_column_is_held_alike() -> None:
    rows, member = people(5)
    assert found(rows, noised(rows, member), spread=0.0).tolist() == [LEAST_RIDGE] * 6


def test_a_block_is_held_against_its_own_constant() -> None:
    rows, member = people(3)
    label = (np.arange(N) // 2 % 2)[:, None]
    blocks = np.concatenate([rows * (1 - label), rows * label], axis=1)
    ridge = found(blocks, noised(blocks, member), np.array([0] * 4 + [4] * 4))
    assert (ridge < 3 * IDLE * SPREAD**2).tolist() == [True, True, False, False] * 2


def test_a_sample_stands_for_everybody() -> None:
    rows, member = people(5)
    sums, constant = noised(rows, member), np.zeros(6, dtype=np.int64)
    sampled = ridges(sums, rows.astype(np.float64).sum(0), rows[::4], constant, N, SPREAD, SHARE)
    assert np.array_equal(sampled, found(rows, sums))


def test_noise_of_idle_columns_moves_memberships_less() -> None:
    rows, member = people(60)
    total = rows.astype(np.float64).sum(0)

    def memberships_of(seed: int, *, alike: bool) -> Array:
        sums = noised(rows, member, seed)
        ridge = found(rows, sums)
        ridge = np.full_like(ridge, float(ridge.min())) if alike else ridge
        every = np.concatenate([sums, (total - sums.sum(0))[None]])
        return memberships(fit_memberships(rows, every, ridge=ridge), rows)[:, 0]

    moved = {alike: float(np.abs(memberships_of(1, alike=alike) - memberships_of(2, alike=alike)).mean())
             for alike in (True, False)}  # fmt: skip
    assert moved[False] < 0.6 * moved[True]
