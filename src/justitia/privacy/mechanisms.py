"""How noise is drawn and what it costs: Gaussian, RandomizedResponse, MinorityResponse, Unprotected.

Noise comes from the operating system's generator, never from ``random_state``. What is added to sums is a Gaussian
rounded to a public grid (:mod:`justitia.privacy.noise_grid`), so that no bit of an answer tells what lies under the
noise.
"""

from __future__ import annotations

import copy
import hashlib
import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.accounting import Cost, GaussianCost, RandomizedResponseCost, UnboundedCost
from justitia.privacy.arrays import Array
from justitia.privacy.noise_grid import grid_step, noised_on_grid

#: Codes of groups, 0 .. G - 1, and G for "not given".
Codes = NDArray[np.int64]


class NoiseSource(ABC):
    """Where the randomness that protects people comes from.

    Every draw names the ledger's number of the release it is for, so that a seeded source never gives two releases
    the same noise, not even in a run that was interrupted and resumed.
    """

    #: How the certificate describes this source.
    description: str
    #: Whether the noise can be drawn again, so that a certificate promises nothing.
    seeded: bool = False

    def about(self, question: bytes) -> Self:
        """The source for one question, described by ``question``: itself, unless the noise is seeded."""
        del question
        return self

    @abstractmethod
    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        """Independent uniform 64-bit words; ``stream`` keeps the uses within one release apart."""

    def uniform(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.float64]:
        """Independent draws from the open interval (0, 1), multiples of 2^-53."""
        return _open_uniform(self.words(size, release=release, stream=stream))

    def add_gaussian(self, exact: Array, std: float, *, release: int) -> Array:
        """``exact``, rounded to the grid of ``std``, plus an independent N(0, std^2) rounded to it in every entry.

        With ``std`` 0 it is ``exact`` itself.
        """
        if std == 0:
            return exact
        return noised_on_grid(exact, std, lambda size, stream: self.words(size, release=release, stream=stream))


class SystemNoise(NoiseSource):
    """The operating system's generator, asked anew for every draw."""

    description = "operating system entropy"

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        """Independent words; the names are not needed, no two reads of the generator agree."""
        del release, stream
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


class SeededNoise(NoiseSource):
    """Noise that can be drawn again, for reproducing tables. Whoever knows the seed can subtract the noise.

    The noise of a release depends on the seed, on the number of the release and on its purpose, width, bound and
    mechanism (:meth:`about`). Rows and attributes are no part of that: two runs that differ in those alone share their
    noise, and the difference of their answers is exact. So even a secret seed promises nothing.
    """

    seeded = True

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"Expected a noise seed that is a whole number of at least 0; got {seed!r}.")
        self._seed = int(seed)
        self._question = b""
        self.description = "fixed noise seed: it can be drawn again, so it promises nothing"

    def about(self, question: bytes) -> Self:
        """The same seed for one question."""
        asked = copy.copy(self)
        asked._question = question
        return asked

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        """Independent words, the same for the same seed, question, release and stream."""
        named = f"{self._seed}/{release}/{stream}/".encode()
        return np.frombuffer(hashlib.shake_256(named + self._question).digest(8 * size), dtype=np.uint64)


def _open_uniform(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    # 52 bits, not 53: with one more, adding a half would round the largest word up to 1.
    draws = (words >> np.uint64(12)).astype(np.float64)
    draws += 0.5
    draws *= 2.0**-52
    return draws


def _fine_uniform(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in (0, 1] of 128 bits, two words each: small ones have as many digits as large ones."""
    high, low = words[::2].astype(np.float64), words[1::2].astype(np.float64)
    return high * 2.0**-64 + (low + 0.5) * 2.0**-128


@dataclass(frozen=True)
class Gaussian:
    """Adds N(0, (noise_multiplier * sensitivity)^2), rounded to a public grid, to every entry.

    Guarantee
    ---------
    * One release is mu-GDP with mu = 1 / noise_multiplier, if ``sensitivity`` bounds how far the entries of neighbours
      are apart after they were rounded to the grid.
    """

    noise_multiplier: float

    def cost(self) -> Cost:
        """What the ledger charges for one release."""
        return GaussianCost(self.noise_multiplier)

    def step(self, sensitivity: float) -> float:
        """Step of the grid that an answer of this sensitivity is released on; 0 if it needs no noise."""
        std = self.noise_multiplier * sensitivity
        return grid_step(std) if std > 0 else 0.0

    def add_noise(self, exact: Array, *, sensitivity: float, source: NoiseSource, release: int) -> Array:
        """Noised ``exact``, whose entries together move by at most ``sensitivity`` in Euclidean norm."""
        return source.add_gaussian(exact, self.noise_multiplier * sensitivity, release=release)


@dataclass(frozen=True)
class Unprotected:
    """No noise and an infinite price: for comparisons with training that is not private."""

    def cost(self) -> Cost:
        """Infinite."""
        return UnboundedCost()

    def step(self, sensitivity: float) -> float:
        """0: an answer without noise needs no grid."""
        del sensitivity
        return 0.0

    def add_noise(self, exact: Array, *, sensitivity: float, source: NoiseSource, release: int) -> Array:
        """``exact`` itself."""
        del sensitivity, source, release
        return exact


@dataclass(frozen=True)
class RandomizedResponse:
    r"""Tells the true category with probability :math:`e^\epsilon / (e^\epsilon + k - 1)`, else one of the others.

    Guarantee
    ---------
    * One release of all labels is (epsilon, 0)-differentially private in each row's label, "no category" included.
    """

    epsilon: float

    def cost(self, *, categories: int) -> Cost:
        """What the ledger charges for one randomised answer from everybody."""
        return RandomizedResponseCost(self.epsilon, categories)

    def randomize(self, codes: Codes, *, categories: int, source: NoiseSource, release: int) -> Codes:
        """Randomised copy of ``codes`` (0 .. categories - 1); the code ``categories`` answers with any of them."""
        coin = _fine_uniform(source.words(2 * len(codes), release=release, stream="coins"))
        second = source.uniform(len(codes), release=release)
        rare = (categories - 1) * math.exp(-self.epsilon)
        other = (codes + 1 + (second * (categories - 1)).astype(np.int64)) % categories
        told = np.where(coin < rare / (1.0 + rare), other, codes)
        return np.where(codes < categories, told, (second * categories).astype(np.int64))


@dataclass(frozen=True)
class MinorityResponse:
    r"""One of two groups tells the truth with probability :math:`1 - e^{-\epsilon} / 2`; all others toss a fair coin.

    The mechanism for two groups of Ghoukasian and Asoodeh (2025), Theorem 1, where the smaller group is the one that
    tells more. Write p and q for how often the two groups tell the truth: among all :math:`p, q \ge 1/2` that use up
    epsilon, it leaves the least :math:`|P(Y = 1 \mid Z = 1) - P(Y = 1 \mid Z = 0)|`.

    Parameters
    ----------
    epsilon : float
    minority : {0, 1}
        Code of the group that tells the truth more often. It has to be public: it is not read off the data.

    Guarantee
    ---------
    * One release of all labels is (epsilon, 0)-differentially private in each row's label, "no category" included:
      an answer is at most :math:`\max(2 - e^{-\epsilon}, e^\epsilon) = e^\epsilon` times as likely for one as for
      another.
    """

    epsilon: float
    minority: int

    def cost(self, *, categories: int) -> Cost:
        """What the ledger charges: binary randomised response, which tells more than any other answer of epsilon."""
        if categories != 2:
            raise ValueError(f"expected two categories, got {categories}; use RandomizedResponse for more.")
        if self.minority not in (0, 1):
            raise ValueError(f"expected the minority to be 0 or 1, got {self.minority!r}.")
        return RandomizedResponseCost(self.epsilon, categories)

    def randomize(self, codes: Codes, *, categories: int, source: NoiseSource, release: int) -> Codes:
        """Randomised copy of ``codes`` (0 and 1); any other code, as the larger group, answers with either."""
        del categories
        coin = _fine_uniform(source.words(2 * len(codes), release=release, stream="coins"))
        hides = np.where(codes == self.minority, math.exp(-self.epsilon) / 2, 0.5)
        return np.where(coin < hides, 1 - self.minority, self.minority)


#: What everybody may answer with.
Response = RandomizedResponse | MinorityResponse
#: What a sum may be noised with.
Noise = Gaussian | Unprotected
