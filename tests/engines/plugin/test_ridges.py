"""Ridges of the memberships: which columns tell, and how firmly the others are held."""

import math

import pytest
import torch
from torch import Tensor

from justitia.postprocessing.memberships import fit_memberships, memberships
from justitia.postprocessing.ridges import IDLE, LEAST_RIDGE, ridges

N, SPREAD, SHARE = 4_000, 30.0, 0.05


def people(columns: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Public rows, of which the second column alone differs between two groups, and who is in the second group."""
    generator = torch.Generator().manual_seed(seed)
    member = torch.arange(N) % 2
    rows = torch.cat([torch.ones(N, 1), torch.randn(N, columns, generator=generator)], dim=1)
    rows[:, 1] += member - 0.5
    return rows / rows.norm(dim=1).max(), member


def noised(rows: Tensor, member: Tensor, seed: int = 1) -> Tensor:
    exact = torch.stack([rows[member == a].double().sum(0) for a in (0, 1)])
    return exact + SPREAD * torch.randn(exact.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def found(rows: Tensor, sums: Tensor, constant: Tensor | None = None, spread: float = SPREAD) -> Tensor:
    constant = torch.zeros(rows.shape[1], dtype=torch.long) if constant is None else constant
    return ridges(sums, rows.double().sum(0), rows, constant, len(rows), spread, SHARE)


def test_column_that_tells_is_held_less_than_idle_ones() -> None:
    rows, member = people(5)
    ridge = found(rows, noised(rows, member))
    assert ridge[:2].tolist() == pytest.approx([SHARE * SPREAD**2] * 2)  # the constant, and the column that differs
    assert ridge[2:].tolist() == pytest.approx([4 * IDLE * SPREAD**2] * 4)


def test_threshold_is_that_of_the_largest_of_so_many_sums_of_noise() -> None:
    rows = torch.cat([torch.ones(N, 1), torch.zeros(N, 7)], dim=1)  # columns without a variance of their own
    line = math.sqrt(2 * math.log(8)) * SPREAD
    for beyond, ridge in ((0.99, 7 * IDLE), (1.01, SHARE)):
        sums = torch.zeros(2, 8, dtype=torch.float64)
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
    label = (torch.arange(N) // 2 % 2)[:, None]
    blocks = torch.cat([rows * (1 - label), rows * label], dim=1)
    ridge = found(blocks, noised(blocks, member), torch.tensor([0] * 4 + [4] * 4))
    assert (ridge < 3 * IDLE * SPREAD**2).tolist() == [True, True, False, False] * 2


def test_a_sample_stands_for_everybody() -> None:
    rows, member = people(5)
    sums, constant = noised(rows, member), torch.zeros(6, dtype=torch.long)
    sampled = ridges(sums, rows.double().sum(0), rows[::4], constant, N, SPREAD, SHARE)
    assert torch.equal(sampled, found(rows, sums))


def test_noise_of_idle_columns_moves_memberships_less() -> None:
    rows, member = people(60)
    total = rows.double().sum(0)

    def memberships_of(seed: int, *, alike: bool) -> Tensor:
        sums = noised(rows, member, seed)
        ridge = found(rows, sums)
        ridge = torch.full_like(ridge, float(ridge.min())) if alike else ridge
        every = torch.cat([sums, (total - sums.sum(0))[None]])
        return memberships(fit_memberships(rows, every, ridge=ridge), rows)[:, 0]

    moved = {alike: float((memberships_of(1, alike=alike) - memberships_of(2, alike=alike)).abs().mean())
             for alike in (True, False)}  # fmt: skip
    assert moved[False] < 0.6 * moved[True]
