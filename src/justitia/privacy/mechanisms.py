"""How noise is drawn and what it costs: Gaussian, RandomizedResponse, Unprotected.

Noise comes from the operating system's generator, never from ``random_state``. Whoever wants another sampler (one on
an integer grid, say) writes one :class:`NoiseSource`; nothing else changes.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from justitia.privacy.accounting import Cost, GaussianCost, RandomizedResponseCost, UnboundedCost


class NoiseSource(ABC):
    """Where the randomness that protects people comes from.

    Every draw names the ledger's number of the release it is for, so that a seeded source never gives two releases
    the same noise, not even in a run that was interrupted and resumed.
    """

    #: How the certificate describes this source.
    description: str

    @abstractmethod
    def uniform(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.float64]:
        """Independent draws from the open interval (0, 1); ``stream`` keeps two uses within one release apart."""

    def add_gaussian(self, exact: Tensor, std: float, *, release: int) -> Tensor:
        """``exact`` plus independent N(0, std^2) in every entry.

        Takes the exact value, not only its shape: a sampler on a grid has to round it first.
        """
        noise = ndtri(self.uniform(exact.numel(), release=release))
        return exact.add(torch.from_numpy(noise).view(exact.shape), alpha=std)


class SystemNoise(NoiseSource):
    """The operating system's generator, asked anew for every draw."""

    description = "operating system entropy"

    def uniform(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.float64]:
        """Independent draws from (0, 1); the names are not needed, no two reads of the generator agree."""
        del release, stream
        return _open_uniform(np.frombuffer(os.urandom(8 * size), dtype=np.uint64))


class SeededNoise(NoiseSource):
    """Noise that can be drawn again, for reproducing tables. Whoever knows the seed can subtract the noise."""

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"Expected a noise seed that is a whole number of at least 0; got {seed!r}.")
        self._seed = int(seed)
        self.description = "fixed noise seed: reproducible, and void for whoever knows the seed"

    def uniform(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.float64]:
        """Independent draws from (0, 1), the same for the same seed, release and stream."""
        generator = np.random.Generator(np.random.PCG64DXSM([self._seed, release, *stream.encode()]))
        return _open_uniform(generator.integers(0, 2**64, size=size, dtype=np.uint64))


def _open_uniform(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    # 52 bits, not 53: with one more, adding a half would round the largest word up to 1, and its noise to infinity.
    draws = (words >> np.uint64(12)).astype(np.float64)
    draws += 0.5
    draws *= 2.0**-52
    return draws


@dataclass(frozen=True)
class Gaussian:
    """Adds N(0, (noise_multiplier * sensitivity)^2) to every entry.

    Guarantee
    ---------
    * With all rows taking part, one release is mu-GDP with mu = 1 / noise_multiplier.
    """

    noise_multiplier: float

    def cost(self, *, sample_rate: float = 1.0) -> Cost:
        """What the ledger charges for one release."""
        return GaussianCost(self.noise_multiplier, sample_rate)

    def add_noise(self, exact: Tensor, *, sensitivity: float, source: NoiseSource, release: int) -> Tensor:
        """Noised ``exact``, whose entries together move by at most ``sensitivity`` in Euclidean norm."""
        return source.add_gaussian(exact, self.noise_multiplier * sensitivity, release=release)


@dataclass(frozen=True)
class Unprotected:
    """No noise and an infinite price: for comparisons with training that is not private."""

    def cost(self, *, sample_rate: float = 1.0) -> Cost:
        """Infinite, whatever the sampling."""
        del sample_rate
        return UnboundedCost()

    def add_noise(self, exact: Tensor, *, sensitivity: float, source: NoiseSource, release: int) -> Tensor:
        """``exact`` itself."""
        del sensitivity, source, release
        return exact


@dataclass(frozen=True)
class RandomizedResponse:
    r"""Tells the true category with probability :math:`e^\epsilon / (e^\epsilon + k - 1)`, else one of the others.

    Guarantee
    ---------
    * One release of all labels is (epsilon, 0)-differentially private in each person's label, "no category" included.
    """

    epsilon: float

    def cost(self, *, categories: int) -> Cost:
        """What the ledger charges for one randomised answer from everybody."""
        return RandomizedResponseCost(self.epsilon, categories)

    def randomize(self, codes: Tensor, *, categories: int, source: NoiseSource, release: int) -> Tensor:
        """Randomised copy of ``codes`` (0 .. categories - 1); the code ``categories`` answers with any of them."""
        first, second = torch.from_numpy(source.uniform(2 * len(codes), release=release)).chunk(2)
        tell_truth = 1.0 / (1.0 + (categories - 1) * np.exp(-self.epsilon))
        other = (codes + 1 + (second * (categories - 1)).long()) % categories
        told = torch.where(first < tell_truth, codes, other)
        return torch.where(codes < categories, told, (second * categories).long())


#: What a sum may be noised with.
Noise = Gaussian | Unprotected
