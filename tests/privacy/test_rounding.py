"""Rounding inside the answers: in exact fractions, neighbours never differ by more than the sensitivity."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from justitia.privacy import bounding, vault
from justitia.privacy.arrays import Array
from justitia.privacy.bounding import LONGEST, clipped_sum
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, SeededNoise
from justitia.privacy.noise_grid import (
    exact_sum_step,
    grid_step,
    toward_zero,
)
from justitia.privacy.rows import (
    CANCELLATION,
    SUM_ERROR,
    TERMS,
    DenseBlock,
    FactoredRows,
    LongSum,
    OuterBlock,
    ScatterBlock,
    round_off,
)
from justitia.privacy.vault import SensitiveVault

#: The longest row that counts.
SHORTER = math.nextafter(LONGEST, 0.0)

# ------------------------------------------------------------------ rounding inside the sensitivity: group sums


def ask_group_sums(labels: Any, rows: Array, *, bound: float, sigma: float) -> tuple[list[list[Fraction]], float]:
    """What lies under the noise after rounding to its grid, exactly, and the recorded sensitivity."""
    under: list[Array] = []

    class Look(SeededNoise):
        def add_gaussian(self, exact: Array, std: float, *, release: int) -> Array:
            step = grid_step(std) if std else 1.0
            steps = exact / step
            assert not std or np.array_equal(steps, steps.round()), "the answer is not on the grid before noise"
            under.append(exact.copy())
            return super().add_gaussian(exact, std, release=release)

    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    opened = SensitiveVault(labels, groups=("a", "b"), ledger=ledger, noise_source=Look(0))
    opened.group_sums(rows, bound=bound, noise=Gaussian(sigma), purpose="test")
    return [[Fraction(value) for value in block] for block in under[0].tolist()], ledger.releases[0].sensitivity


def squared_distance(one: list[list[Fraction]], other: list[list[Fraction]]) -> Fraction:
    pairs = zip(itertools.chain(*one), itertools.chain(*other), strict=True)
    return sum(((a - b) ** 2 for a, b in pairs), Fraction(0))


def adversarial_rows() -> dict[str, Array]:
    generator = np.random.default_rng(0)
    unit = generator.standard_normal((6, 50))
    magnitudes = 10.0 ** np.linspace(-320, 150, 6 * 50).reshape(6, 50)
    return {
        "norm exactly at the bound": np.eye(6),
        "norm at the bound in many dimensions": np.full((6, 900), 1 / 30),
        "norm at the bound by rounding": unit / np.linalg.norm(unit, axis=1, keepdims=True),
        "huge and small": magnitudes,
        "huge": 1e150 * unit,
        "subnormal": np.full((6, 5), 5e-324),
        "not finite": np.array([[math.nan, 1.0], [math.inf, 0.0], [0.6, 0.8], [1e200, 0.0], [0.0, 0.0], [1.0, 0.0]]),
        "just below whole steps": np.full((6, 7), np.nextafter(np.float32(0.375), np.float32(0.0)), dtype=np.float64),
    }


SIGMAS = [1e-9, 1.0, 100.0, 2.0**31]  # the last grid has steps of about half a bound: rounding shows


def group_sums_break_the_bound(rows: Array, sigma: float, bound: float = 1.0) -> bool:
    labels = ["a", "b", None, "a", "b", "a"]
    before, sensitivity = ask_group_sums(labels, rows, bound=bound, sigma=sigma)
    distances = []
    for person, label in itertools.product(range(6), ("a", "b", None)):
        changed = [*labels[:person], label, *labels[person + 1 :]]
        distances.append(squared_distance(before, ask_group_sums(changed, rows, bound=bound, sigma=sigma)[0]))
    return max(distances) > Fraction(sensitivity) ** 2


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("name", list(adversarial_rows()))
def test_group_sums_of_adversarial_rows_move_by_at_most_the_sensitivity_exactly(name: str, sigma: float) -> None:
    assert not group_sums_break_the_bound(adversarial_rows()[name], sigma)


def test_group_sums_rounded_to_nearest_instead_of_toward_zero_break_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "toward_zero", lambda values, step: (values / step).round() * step)
    broken = [group_sums_break_the_bound(rows, sigma) for rows in adversarial_rows().values() for sigma in SIGMAS]
    assert any(broken)


def test_group_sums_under_the_noise_are_exact_sums_of_the_rounded_rows() -> None:
    rows = np.random.default_rng(1).standard_normal((500, 3)).clip(-2, 2) / 4
    under, sensitivity = ask_group_sums(["a"] * 500, rows, bound=1.0, sigma=1.0)
    step = max(grid_step(sensitivity), exact_sum_step(1000.0))
    expected = [
        sum((Fraction(value) for value in column), Fraction(0)) for column in toward_zero(rows, step).T.tolist()
    ]
    assert under[0] == expected
    assert all(abs(e - s) <= 500 * step for e, s in zip(expected, rows.sum(0).tolist(), strict=True))


@pytest.mark.parametrize("largest", [1.0, 3.7e9, 1e-30, 2.0**512])
def test_whole_steps_up_to_the_largest_sum_are_float64_numbers(largest: float) -> None:
    step = exact_sum_step(largest)
    assert largest < 2**53 * Fraction(step)
    assert Fraction(largest) >= 2**51 * Fraction(step)


@pytest.mark.parametrize("width", [1, 2])
def test_row_longer_than_the_longest_counts_as_zero_in_one_column_too(width: int) -> None:
    longer = [LONGEST, -LONGEST, 2 * LONGEST, 1e300, -1e300, math.inf, math.nan]
    rows = np.zeros((len(longer) + 2, width))
    rows[:, 0] = [*longer, LONGEST / 2, 0.5]
    for bound in (1.0, LONGEST, 1e300):
        found = bounding.bounded_rows(rows, bound)
        assert np.abs(found[: len(longer)]).max() == 0
        assert found[-2:, 0].tolist() == [min(LONGEST / 2, bound), 0.5]
    assert bounding.bounded_rows(np.array([[SHORTER]]), 1e300).item() == SHORTER


@pytest.mark.parametrize("value", [SHORTER, LONGEST, 1e300])
def test_neighbours_with_huge_rows_of_one_column_differ_by_at_most_the_sensitivity(value: float) -> None:
    """Fine noise: sums of rows longer than the longest would be rounded where they are added."""
    n = 200
    labels = ["a"] * n
    attained = []
    for seed in range(20):
        rows = value * np.random.default_rng(seed).random((n, 1))
        rows[0] = value
        (one, sensitivity), (other, _) = (
            ask_group_sums([first, *labels[1:]], rows, bound=value, sigma=1e-7) for first in "ab"
        )
        pairs = ((a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))
        moved = sum((a - b) ** 2 for a, b in pairs)
        assert moved <= Fraction(sensitivity) ** 2
        attained.append(moved >= Fraction(0.999999 * sensitivity) ** 2)
    assert attained == [value == SHORTER] * len(attained)


# ------------------------------------------------------------------ rounding inside the sensitivity: weighted sums


def single(generator: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return generator.standard_normal(shape, dtype=np.float32)


def factored(kind: str, m: int = 40) -> FactoredRows:
    """Rows in single precision whose products, or centres, may cancel."""
    generator = np.random.default_rng(2)
    dense = DenseBlock(single(generator, m, 6))
    outer = OuterBlock(single(generator, m, 3), single(generator, m, 4), bias=True)
    scale = single(generator, m)
    if kind == "plain":
        return FactoredRows((dense, outer), scale)
    if kind == "centred":
        raw = FactoredRows((dense, outer), scale)
        return raw.centred(np.ones((m, 2), dtype=np.float32), single(generator, 2, raw.width))
    if kind == "close to their centre":
        centre = single(generator, 6)
        return FactoredRows((DenseBlock(1e3 * centre + 1e-3 * dense.values),)).centred(
            np.ones((m, 1), dtype=np.float32), 1e3 * centre[None]
        )
    left, right = single(generator, m, 4, 3), single(generator, m, 4, 5)
    left[:, 2:], right[:, 2:] = -left[:, :2], right[:, :2] * (1 + 1e-6)  # positions that nearly cancel
    scatter = ScatterBlock(np.array([[0, 1, 0]] * m), single(generator, m, 3, 2), 4)
    return FactoredRows((OuterBlock(left, right, bias=True), scatter), scale)


KINDS = ["plain", "centred", "close to their centre", "cancelling"]


def written_out(rows: FactoredRows) -> list[list[Fraction]]:
    """Every row in exact arithmetic."""
    exact: list[list[Fraction]] = []
    for i in range(len(rows)):
        entries: list[Fraction] = []
        for block in rows.blocks:
            if isinstance(block, DenseBlock):
                entries += [Fraction(v) for v in block.values[i].tolist()]
            elif isinstance(block, OuterBlock):
                lefts = block.left[i].reshape(block.positions, -1).tolist()
                rights = block.right[i].reshape(block.positions, -1).tolist()
                for out, inside in itertools.product(range(len(lefts[0])), range(len(rights[0]))):
                    entries.append(
                        sum(Fraction(a[out]) * Fraction(b[inside]) for a, b in zip(lefts, rights, strict=True))
                    )
                entries += [sum(Fraction(a[out]) for a in lefts) for out in range(len(lefts[0]))]
            else:
                table = [Fraction(0)] * block.width
                e = block.values.shape[2]
                for place, values in zip(block.index[i].tolist(), block.values[i].tolist(), strict=True):
                    for j, value in enumerate(values):
                        table[place * e + j] += Fraction(value)
                entries += table
        scale = Fraction(1) if rows.scale is None else Fraction(float(rows.scale[i]))
        entries = [scale * entry for entry in entries]
        if rows.member is not None and rows.centres is not None:
            for weight, centre in zip(rows.member[i].tolist(), rows.centres.tolist(), strict=True):
                entries = [entry - Fraction(weight) * Fraction(c) for entry, c in zip(entries, centre, strict=True)]
        exact.append(entries)
    return exact


@pytest.mark.parametrize("kind", KINDS)
def test_norm_bound_is_never_below_the_true_norm_but_for_its_stated_rounding(kind: str) -> None:
    rows = factored(kind)
    for reach, row in zip(rows.double().norm_bounds().tolist(), written_out(rows), strict=True):
        assert ((1 + Fraction(round_off(rows.width))) * Fraction(reach)) ** 2 >= sum(entry**2 for entry in row)


@pytest.mark.parametrize("kind", ["plain", "centred"])
def test_norm_bound_of_rows_that_hardly_cancel_is_their_norm(kind: str) -> None:
    rows = factored(kind)
    for reach, row in zip(rows.double().norm_bounds().tolist(), written_out(rows), strict=True):
        assert reach == pytest.approx(math.sqrt(sum(entry**2 for entry in row)), rel=1e-12 if kind == "plain" else 1e-3)


def test_norm_bound_when_the_square_of_a_factor_underflows_still_shows_the_row() -> None:
    left, right = (np.full((1, 2), value) for value in (1e-162, 1e150))
    rows = FactoredRows((OuterBlock(left, right, bias=False),))
    assert rows.norms().tolist() == [0.0]
    assert float(rows.norm_bounds()[0]) * (1 + round_off(4)) >= 2e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bound", [0.3, 5.0, 1e-4])
def test_clipped_sum_is_within_its_stated_error_of_the_exact_one(kind: str, bound: float) -> None:
    rows, weights = factored(kind), np.linspace(-2, 3, 40)
    total = LongSum(rows.width)
    for part, piece in rows.pieces():
        total.add(clipped_sum(piece, weights[part], bound))
    factors = bounding.clip_factor(rows.double().norm_bounds(), bound).tolist()
    exact = [Fraction(0)] * rows.width
    for row, f, w in zip(written_out(rows), factors, weights.tolist(), strict=True):
        clipped = Fraction(f) ** 2 * sum(entry**2 for entry in row)
        assert clipped <= ((1 + Fraction(round_off(rows.width))) * Fraction(bound)) ** 2
        exact = [e + Fraction(w) * Fraction(f) * entry for e, entry in zip(exact, row, strict=True)]
    distance = math.sqrt(sum((e - Fraction(v)) ** 2 for e, v in zip(exact, total.value().tolist(), strict=True)))
    assert distance <= SUM_ERROR * CANCELLATION * bound * float(np.abs(weights).sum())


def test_long_sum_keeps_what_each_addition_rounds_away() -> None:
    total = LongSum(1)
    for value in (1e16, 1.0, -1e16, 1.0, 1e-3):
        total.add(np.array([value]))
    assert float(total.value()[0]) == 2.001


@pytest.mark.parametrize("positions", [None, 3, TERMS + 1])
def test_pieces_cover_every_row_once_and_add_up_few_products(positions: int | None) -> None:
    m = 2500 if positions is None else 5
    shape = (m,) if positions is None else (m, positions)
    rows = FactoredRows((OuterBlock(np.ones((*shape, 1)), np.ones((*shape, 1)), bias=True),), np.arange(float(m)))
    parts = list(rows.pieces())
    assert np.concatenate([piece.scale for _, piece in parts if piece.scale is not None]).tolist() == list(range(m))
    assert all(len(piece) * (positions or 1) <= max(TERMS, positions or 1) for _, piece in parts)


def ask_weighted_sum(labels: Any, rows: Array, weights: Array, *, sigma: float) -> Any:
    """What lies under the noise after rounding to its grid, exactly, and the recorded sensitivity."""
    under: list[Array] = []

    class Look(SeededNoise):
        def add_gaussian(self, exact: Array, std: float, *, release: int) -> Array:
            under.append((exact / grid_step(std)).round() * grid_step(std))
            return exact

    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    opened = SensitiveVault(labels, groups=("a", "b"), ledger=ledger, noise_source=Look(0))
    opened.weighted_sum(rows, weights, bound=1.0, noise=Gaussian(sigma), purpose="test")
    return [[Fraction(value) for value in under[0].tolist()]], ledger.releases[0].sensitivity


WEIGHTS = np.array([[0.7, -0.3, 0.1]]).repeat(6, axis=0)


def weighted_sum_breaks_the_bound(rows: Array, sigma: float, weights: Array = WEIGHTS) -> bool:
    labels = ["a", "b", None, "a", "b", "a"]
    before, sensitivity = ask_weighted_sum(labels, rows, weights, sigma=sigma)
    for person, label in itertools.product(range(6), ("a", "b", None)):
        changed = [*labels[:person], label, *labels[person + 1 :]]
        after, _ = ask_weighted_sum(changed, rows, weights, sigma=sigma)
        if squared_distance(before, after) > Fraction(sensitivity) ** 2:
            return True
    return False


@pytest.mark.parametrize("sigma", [1e-9, 1.0, 2.0**24])
@pytest.mark.parametrize("name", list(adversarial_rows()))
def test_weighted_sums_of_adversarial_rows_move_by_at_most_the_sensitivity_exactly(name: str, sigma: float) -> None:
    assert not weighted_sum_breaks_the_bound(adversarial_rows()[name], sigma)


def test_weighted_sum_of_weights_that_hardly_differ_stays_within_the_sensitivity() -> None:
    weights = 1e6 + np.array([[0.0, 1e-9, 2e-9]]).repeat(6, axis=0)
    for rows in adversarial_rows().values():
        assert not weighted_sum_breaks_the_bound(rows, 1.0, weights)


def test_weighted_sum_whose_rounding_is_left_out_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "with_rounding", lambda sensitivity, *_, **__: sensitivity)
    rows = list(adversarial_rows().values())
    assert any(weighted_sum_breaks_the_bound(each, sigma) for each in rows for sigma in (1.0, 2.0**24))


def test_rounding_raises_the_sensitivity_of_a_usual_release_by_less_than_a_millionth() -> None:
    n, d = 45_000, 4_000
    weights = np.array([[0.5, -0.5, 0.0]]).repeat(n, axis=0)
    told = bounding.with_rounding(1.0, weights, 1.0, d, Gaussian(20.0))
    assert 1.0 < told < 1 + 1e-6
