"""A mechanism that the library does not have, as a user would add it: one class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.accounting import Cost, GaussianCost
from justitia.privacy.arrays import Array
from justitia.privacy.mechanisms import NoiseSource
from justitia.privacy.noise_grid import grid_step, noised_on_grid


@dataclass(frozen=True)
class TwoPartyGaussian:
    """Gaussian noise twice, each with the whole standard deviation: against a party that knows one of the two draws.

    The cost is that of one draw. Without knowledge of either, the second draw is post-processing of the first answer.
    """

    noise_multiplier: float
    is_exact = False

    def cost(self) -> Cost:
        return GaussianCost(self.noise_multiplier)

    def stddev(self, sensitivity: float) -> float:
        return math.sqrt(2) * self.noise_multiplier * sensitivity

    def step(self, sensitivity: float) -> float:
        return grid_step(self.noise_multiplier * sensitivity)

    def add_noise(self, exact: Array, *, sensitivity: float, source: NoiseSource, release: int) -> Array:
        def words(size: int, stream: str, party: str) -> NDArray[np.uint64]:
            return source.words(size, release=release, stream=f"{party}: {stream}")

        noisy = exact
        for party in ("first", "second"):
            noisy = noised_on_grid(noisy, self.noise_multiplier * sensitivity, partial(words, party=party))
        return noisy
