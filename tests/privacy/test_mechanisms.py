import math
import os
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from justitia.privacy.accounting import GaussianCost, RandomizedResponseCost, UnboundedCost
from justitia.privacy.mechanisms import Gaussian, NoiseSource, RandomizedResponse, SeededNoise, SystemNoise, Unprotected

# With 20,000 draws the Kolmogorov-Smirnov distance exceeds 0.0231 by chance with probability 1e-9, while a standard
# deviation that is off by 3/2 puts it at 0.0968: no false alarm and no miss in a lifetime of test runs.
DRAWS, LEVEL = 20_000, 1e-9


def noise_of(source: NoiseSource, *, sigma: float = 1.3, sensitivity: float = 2.0) -> NDArray[np.float64]:
    zeros = np.zeros((DRAWS // 4, 4))
    noisy = Gaussian(sigma).add_noise(zeros, sensitivity=sensitivity, source=source, release=0)
    assert noisy.shape == zeros.shape
    drawn: NDArray[np.float64] = noisy.ravel()
    return drawn


class Fixed(NoiseSource):
    """Gives what it was told to give."""

    description = "fixed"

    def __init__(self, coins: NDArray[np.float64], uniform: NDArray[np.float64]) -> None:
        self._coins, self._uniform = coins, uniform

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        assert (stream, size) == ("coins", 2 * len(self._coins))
        pairs = [divmod(int(Fraction(coin) * 2**128), 2**64) for coin in self._coins.tolist()]
        return np.array(pairs, dtype=np.uint64).ravel()

    def uniform(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.float64]:
        assert size == len(self._uniform)
        return self._uniform


@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(7)], ids=["system", "seeded"])
def test_gaussian_noise_has_sigma_times_sensitivity_accepted_and_other_scales_rejected(source: NoiseSource) -> None:
    drawn = noise_of(source)
    pvalues = [stats.kstest(drawn / (scale * 2.6), "norm").pvalue for scale in (2 / 3, 1.0, 3 / 2)]
    assert pvalues[1] > LEVEL
    assert max(pvalues[0], pvalues[2]) < LEVEL


def test_gaussian_noise_around_an_answer_is_centred_there() -> None:
    exact = np.full(DRAWS, 100.0)
    noisy = Gaussian(1.0).add_noise(exact, sensitivity=3.0, source=SeededNoise(1), release=0)
    assert stats.kstest((noisy - 100.0) / 3.0, "norm").pvalue > LEVEL


def test_gaussian_noise_of_zero_sensitivity_is_the_answer_itself() -> None:
    exact = np.array([1.0, 2.0])
    assert np.array_equal(Gaussian(5.0).add_noise(exact, sensitivity=0.0, source=SystemNoise(), release=0), exact)
    assert Gaussian(5.0).step(0.0) == Unprotected().step(1.0) == 0.0


def test_unprotected_returns_the_answer_and_costs_infinity() -> None:
    exact = np.array([1.0, 2.0])
    assert np.array_equal(Unprotected().add_noise(exact, sensitivity=9.0, source=SystemNoise(), release=0), exact)
    assert Unprotected().cost() == UnboundedCost()


def test_cost_of_each_mechanism_holds_its_own_numbers() -> None:
    assert Gaussian(3.0).cost() == GaussianCost(3.0)
    assert RandomizedResponse(0.5).cost(categories=4) == RandomizedResponseCost(0.5, 4)


def test_seeded_noise_is_the_same_for_the_same_seed_and_release_only() -> None:
    draws = {
        (seed, release, stream): SeededNoise(seed).uniform(5, release=release, stream=stream).tolist()
        for seed in (0, 1, 2**32)
        for release in (0, 1, 2)
        for stream in ("noise", "sample")
    }
    for (seed, release, stream), values in draws.items():
        assert SeededNoise(seed).uniform(5, release=release, stream=stream).tolist() == values
    flat = [value for values in draws.values() for value in values]
    assert len(set(flat)) == len(flat)


def test_seeded_noise_does_not_depend_on_what_was_drawn_before() -> None:
    source = SeededNoise(3)
    source.uniform(100, release=0)
    assert source.uniform(4, release=1).tolist() == SeededNoise(3).uniform(4, release=1).tolist()


def test_sample_stream_is_uncorrelated_with_the_noise_of_its_release() -> None:
    source = SeededNoise(5)
    noise, sample = (source.uniform(DRAWS, release=0, stream=stream) for stream in ("noise", "sample"))
    assert abs(np.corrcoef(noise, sample)[0, 1]) < 6 / math.sqrt(DRAWS)


def test_system_noise_never_repeats() -> None:
    source = SystemNoise()
    draws = np.concatenate([source.uniform(500, release=0) for _ in range(4)] + [SystemNoise().uniform(500, release=0)])
    assert len(np.unique(draws)) == 2500


def test_system_noise_ignores_the_global_seed() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - the legacy global generator is what is being tested
        draws.append(SystemNoise().uniform(8, release=0).tolist())
    assert draws[0] != draws[1]


def test_noise_leaves_the_global_generator_alone() -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    noise_of(SystemNoise())
    noise_of(SeededNoise(1))
    after = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    assert before == after


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_uniform_at_the_ends_of_the_generator_stays_inside_zero_and_one(
    byte: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: byte * size)
    (draw,) = SystemNoise().uniform(1, release=0)
    assert 0.0 < draw < 1.0
    # all bits 0: p = 2^-193, far in the tail; all bits 1: p just below 1/2, in the middle
    noisy = SystemNoise().add_gaussian(np.zeros(1), 1.0, release=0)
    assert abs(float(noisy[0])) == pytest.approx({b"\x00": 16.1, b"\xff": 0.0}[byte], abs=0.1)


@pytest.mark.parametrize("seed", [-1, 0.5, True, "1"])
def test_seeded_noise_with_a_seed_that_is_no_whole_number_is_refused(seed: object) -> None:
    with pytest.raises(ValueError, match="noise seed that is a whole number of at least 0; got "):
        SeededNoise(seed)  # type: ignore[arg-type]


def test_descriptions_say_whether_the_noise_can_be_drawn_again() -> None:
    assert SystemNoise().description == "operating system entropy"
    assert SeededNoise(0).description == "fixed noise seed: it can be drawn again, so it promises nothing"
    assert "31337" not in SeededNoise(31337).description


def answers(k: int, epsilon: float, code: int, first: NDArray[np.float64], second: NDArray[np.float64]) -> list[int]:
    codes = np.full(len(first), code)
    source = Fixed(first, second)
    randomized = RandomizedResponse(epsilon).randomize(codes, categories=k, source=source, release=0)
    told: list[int] = randomized.tolist()
    return told


@pytest.mark.parametrize("epsilon", [0.01, 1.2, 20.0, 37.0, 50.0])
@pytest.mark.parametrize("k", [2, 5])
def test_randomized_response_is_truthful_exactly_e_to_epsilon_times_as_often_as_any_other(
    k: int, epsilon: float
) -> None:
    low, high = 0.0, 1.0
    for _ in range(150):  # bisect to the largest coin that still lies: its probability
        middle = (low + high) / 2
        told = answers(k, epsilon, 1, np.array([middle]), np.array([0.5]))
        low, high = (low, middle) if told == [1] else (middle, high)
    assert (1 - low) / (low / (k - 1)) == pytest.approx(math.exp(epsilon), rel=1e-12)


@pytest.mark.parametrize("k", [2, 5])
def test_randomized_response_that_lies_names_each_other_category_equally_often(k: int) -> None:
    grid = (np.arange(60 * (k - 1)) + 0.5) / (60 * (k - 1))
    for code in range(k):
        told = answers(k, 1.2, code, np.full(len(grid), 1e-9), grid)
        assert np.bincount(told, minlength=k).tolist() == [0 if other == code else 60 for other in range(k)]


@pytest.mark.parametrize("k", [2, 5])
def test_randomized_response_frequencies_over_many_people_are_those_of_its_law(k: int) -> None:
    n, epsilon = 100_000, 0.8
    codes = np.full(n, k - 1)
    told = RandomizedResponse(epsilon).randomize(codes, categories=k, source=SeededNoise(11), release=0)
    other = 1 / (math.exp(epsilon) + k - 1)
    expected = np.array([other] * (k - 1) + [math.exp(epsilon) * other])
    counts = np.bincount(told, minlength=k)
    assert np.all(np.abs(counts - n * expected) < 5 * np.sqrt(n * expected * (1 - expected)))


@pytest.mark.parametrize("k", [2, 5])
def test_randomized_response_of_no_category_is_any_of_them_equally_often(k: int) -> None:
    grid = (np.arange(60 * k) + 0.5) / (60 * k)
    for first in (1e-9, 1 - 1e-9):
        told = answers(k, 1.2, k, np.full(len(grid), first), grid)
        assert np.bincount(told).tolist() == [60] * k


@pytest.mark.parametrize("k", [2, 3, 5])
def test_randomized_response_between_any_two_inputs_is_within_its_cost_at_every_order(k: int) -> None:
    epsilon = 0.9
    other = 1 / (math.exp(epsilon) + k - 1)
    inputs = [*((math.exp(epsilon) - 1) * other * np.eye(k) + other), np.full(k, 1 / k)]
    for order in np.exp(np.linspace(0, epsilon, 7)):
        allowed = np.maximum(inputs[0] - order * inputs[1], 0).sum()
        for P in inputs:
            assert all(np.maximum(P - order * Q, 0).sum() <= allowed + 1e-12 for Q in inputs)


def test_randomized_response_of_nobody_is_empty() -> None:
    told = RandomizedResponse(1.0).randomize(np.empty(0, dtype=np.int64), categories=3, source=SystemNoise(), release=0)
    assert told.tolist() == []
