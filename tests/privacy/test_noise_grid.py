"""Noise on a grid: the law of the sampler, and that low bits say nothing about what lies under the noise."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtri

from justitia.privacy import noise_grid as grid
from justitia.privacy.arrays import Array
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, SeededNoise, SystemNoise
from justitia.privacy.noise_grid import (
    SAMPLER_TV,
    STEPS_PER_STD,
    grid_step,
    rounded_gaussian,
    sampler_delta,
)
from justitia.privacy.vault import SensitiveVault

LEVEL = 1e-9  # chance of a false alarm of one test


Floats = NDArray[np.float64]


def draws(s: float, size: int, *, seed: int = 0, release: int = 0) -> Floats:
    source = SeededNoise(seed)
    return rounded_gaussian(lambda n, stream: source.words(n, release=release, stream=stream), size, s)


# ------------------------------------------------------------------ the sampler


def law(s: float, edge: int) -> Floats:
    """Probabilities of -edge .. edge, the ends with everything beyond them."""
    borders = np.concatenate([[-np.inf], np.arange(-edge, edge) + 0.5, [np.inf]])
    return np.diff(stats.norm.cdf(borders / s))


def cell_pvalue(drawn: Floats, s: float) -> float:
    edge = math.ceil(2.5 * s)
    counts = np.bincount((np.clip(drawn, -edge, edge) + edge).astype(int), minlength=2 * edge + 1)
    return float(stats.chisquare(counts, law(s, edge) * len(drawn)).pvalue)


@pytest.mark.parametrize("s", [0.4, 1.0, 1.7, 20.0])
def test_rounded_gaussian_of_few_steps_has_the_probability_of_every_cell(s: float) -> None:
    drawn = draws(s, 100_000)
    assert cell_pvalue(drawn, s) > LEVEL
    assert cell_pvalue(draws(1.1 * s, 100_000), s) < LEVEL


def test_cells_of_a_gaussian_that_is_rounded_down_instead_are_rejected() -> None:
    drawn = np.floor(1.7 * ndtri(SeededNoise(0).uniform(100_000, release=0)))
    assert cell_pvalue(drawn, 1.7) < LEVEL


@pytest.mark.parametrize("s", [2.0**STEPS_PER_STD, 1.37 * 2.0**STEPS_PER_STD])
def test_rounded_gaussian_of_many_steps_is_whole_and_gaussian_and_its_low_bits_are_uniform(s: float) -> None:
    drawn = draws(s, 50_000)
    assert np.array_equal(drawn, np.rint(drawn))
    assert stats.kstest(drawn / s, "norm").pvalue > LEVEL
    for modulus in (2, 16, 256):
        counts = np.bincount((drawn % modulus).astype(int), minlength=modulus)
        assert stats.chisquare(counts).pvalue > LEVEL


@pytest.mark.parametrize("s", [0.7, 33.3, 1.37 * 2.0**STEPS_PER_STD])
def test_draws_that_floating_point_decides_are_those_that_many_digits_decide(
    s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = draws(s, 400)
    monkeypatch.setattr(grid, "_TRUSTED", -1.0)  # every draw is doubtful now
    assert draws(s, 400).tolist() == fast.tolist()


def test_draws_near_a_border_follow_the_bits_that_are_drawn_for_them() -> None:
    s = 2.0**STEPS_PER_STD
    border = grid._upper_tail(2 * int(s) + 1, s)  # between one standard deviation and the next step
    leading, rest = divmod(border >> (grid._FIXED - 192), 2**128)

    def words(size: int, stream: str, *, add: int) -> NDArray[np.uint64]:
        extra = rest + add
        values = [leading << 1] if stream == "noise" else [extra >> 64, extra % 2**64]
        assert len(values) == size
        return np.array(values, dtype=np.uint64)

    answers = [rounded_gaussian(lambda n, stream, a=a: words(n, stream, add=a), 1, s)[0] for a in (-1, 1)]
    assert answers == [s + 1, s]


@pytest.mark.parametrize(
    ("x", "digits"),
    [
        (0.5, "0.308537538725986896362295389391662260116397824445422063179224"),
        (1.0, "0.158655253931457051414767454367962077522087033273395609012606"),
        (4.5, "0.0000033976731247300604016874491908715235121047650868486483385539"),
        (10.0, "7.61985302416052606597334325159930836350403327795696057803536e-24"),
        (15.5, "1.73446079179387005134044759266371190648650478528901105901799e-54"),
    ],
)
def test_tail_of_the_normal_law_is_right_far_beyond_the_bits_of_a_draw(x: float, digits: str) -> None:
    computed = Fraction(grid._upper_tail(int(2 * x), 1.0), 2**grid._FIXED)
    assert abs(computed - Fraction(digits)) < Fraction(1, 10**59)
    assert abs(computed / Fraction(digits) - 1) < Fraction(1, 10**12)


def test_inverse_of_the_normal_law_is_right_to_a_quarter_of_the_margin_where_it_is_trusted() -> None:
    generator = np.random.default_rng(0)
    low = float(stats.norm.sf(grid._TRUSTED))
    uniform = np.concatenate([generator.uniform(low, 0.5, 300), np.exp(generator.uniform(math.log(low), -0.7, 300))])
    worst = 0.0
    for p in uniform.tolist():
        x = -float(ndtri(p))
        top, bottom = (2 * x).as_integer_ratio()
        tail = Fraction(grid._upper_tail(top, float(bottom)), 2**grid._FIXED)
        error = abs(float(tail - Fraction(p))) / float(stats.norm.pdf(x))
        worst = max(worst, error / (grid._MARGIN * (1 + x)))
    assert 0 < worst < 0.25


def test_distance_from_the_law_is_counted_and_negligible() -> None:
    # borders up to 16 standard deviations of at most 2^33 steps, each misplaces one of 2^191 equally likely p, and
    # what lies beyond has less than one more
    assert (16 * 2.0 ** (STEPS_PER_STD + 1) + 2) * 2.0**-191 <= SAMPLER_TV
    assert sampler_delta(10**15, 10.0) < 1.6e-26
    assert sampler_delta(1, 0.0) == 2 * SAMPLER_TV


# ------------------------------------------------------------------ the grid, and what its low bits tell


@pytest.mark.parametrize("std", [1e-300, 1e-9, 0.3, 1.0, 1.5, 7e5, 1e300])
def test_step_is_a_power_of_two_far_below_the_noise(std: float) -> None:
    step = grid_step(std)
    assert math.frexp(step)[0] == 0.5
    assert std < 1e-290 or 2.0**STEPS_PER_STD <= std / step < 2.0 ** (STEPS_PER_STD + 1)


@pytest.mark.parametrize("std", [math.nan, math.inf, 0.0])
def test_step_for_noise_without_a_scale_is_refused(std: float) -> None:
    with pytest.raises(ValueError, match="Expected noise with a positive and finite standard deviation; got "):
        grid_step(std)


ODD = [0.1, math.pi, -1e-3, 1e-200, 5e-324, -0.0, 123456.789, 2.0**-40 + 2.0**-90, 1e15 / 3]


@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(1)], ids=["system", "seeded"])
def test_release_is_on_the_grid_whatever_the_input(source: Any) -> None:
    for std in (0.37, 1.0, 1e-4):
        noisy = source.add_gaussian(np.array(ODD), std, release=0)
        steps = noisy / grid_step(std)
        assert np.array_equal(steps, steps.round())


class MinusZero(SeededNoise):
    """Draws 0 in every entry, with a minus sign."""

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        return np.full(size, 2**64 - 1, dtype=np.uint64)


def test_release_of_zero_has_no_sign_whatever_lies_under_the_noise() -> None:
    drawn = rounded_gaussian(lambda size, stream: MinusZero(0).words(size, release=0), 1, 2.0**32)
    assert (drawn[0], np.signbit(drawn[0])) == (0.0, True)
    exact = np.array([-1e-20, -0.0, 0.0, 1e-20])
    answer = MinusZero(0).add_gaussian(exact, 1.0, release=0)
    assert answer.tolist() == [0.0] * 4
    assert not np.signbit(answer).any()


ONE_WEIGHT = np.array([[1.0, -1.0, 0.0]])


@pytest.mark.parametrize(
    ("values", "weights", "bound"),
    [(1e-20, ONE_WEIGHT, 1.0), (1.0, 0.0 * ONE_WEIGHT, 1.0), (-1.0, ONE_WEIGHT, 0.0), (-0.0, ONE_WEIGHT, 1.0)],
    ids=["far below a step", "weights of zero", "bound of zero", "rows of minus zero"],
)
def test_answers_of_zero_have_no_sign_for_any_label(values: float, weights: Array, bound: float) -> None:
    for label in ("a", "b", None):
        ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
        opened = SensitiveVault([label], groups=("a", "b"), ledger=ledger, noise_source=MinusZero(0))
        ask: dict[str, Any] = {"bound": bound, "noise": Gaussian(1.0), "purpose": "test"}
        rows = np.full((1, 2), values)
        for answer in (opened.weighted_sum(rows, weights, **ask), opened.group_sums(rows, **ask)):
            assert not np.signbit(answer).any()


def test_seeded_release_is_the_same_for_the_same_seed_and_other_for_another() -> None:
    exact = np.array(ODD)
    one, same, other = (SeededNoise(seed).add_gaussian(exact, 1.0, release=3) for seed in (5, 5, 6))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def continuous(exact: Array, std: float, seed: int) -> Array:
    """What a float sampler does: the float nearest to the sum of a float and a float quantile."""
    noise = ndtri(SeededNoise(seed).uniform(exact.size, release=0))
    return exact + std * noise


def on_grid(exact: Array, std: float, seed: int) -> Array:
    return SeededNoise(seed).add_gaussian(exact, std, release=0)


def low_bits(values: Array, unit: float) -> Floats:
    """Remainder after division by 16 units, in units; 16 for what is no multiple of the unit."""
    steps = values / unit
    found: Floats = np.where(steps == steps.round(), steps % 16, 16.0)
    return found


def told_apart(add: Callable[[Array, float, int], Array], unit: float) -> float:
    """p-value of "the low bits around 0.3 and around 1.3 have one law", among answers near 0."""
    tables = []
    for seed, exact in enumerate((0.3, 1.3)):
        answers = add(np.full(100_000, exact), 1.0, seed)
        tables.append(np.bincount(low_bits(answers[np.abs(answers) < 0.125], unit).astype(int), minlength=17))
    table = np.array(tables)
    return float(stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue)


def test_low_bits_of_a_release_carry_no_information_on_the_value_under_the_noise() -> None:
    step = grid_step(1.0)
    for unit in (step, 4 * step, 2.0**10 * step):
        rounded = (lambda e, s, seed, u=unit: np.floor(on_grid(e, s, seed) / u) * u) if unit > step else on_grid
        assert told_apart(rounded, unit) > LEVEL


def test_low_bits_of_a_float_sum_tell_the_value_under_the_noise() -> None:
    """The positive control: near 0, answers around 1.3 are multiples of 2^-52, and those around 0.3 of 2^-54."""
    assert told_apart(continuous, 2.0**-53) < LEVEL
