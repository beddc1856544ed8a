"""Privacy mechanisms and the sources of their noise.

:class:`Mechanism` is the interface of whatever protects sums: :class:`Gaussian`, and :class:`Unprotected` for
comparisons without privacy. A mechanism states its cost, its standard deviation and whether its answers are exact, so
that callers never ask for its class; a new one is one class. :class:`RandomizedResponse` and :class:`MinorityResponse`
randomize each row's label instead.

Noise comes from the operating system's generator, never from ``random_state``. What is added to sums is a Gaussian
rounded to a public grid (:mod:`justitia.privacy.noise_grid`), so that no bit of an answer depends on what lies under
the noise. A noise seed, for tables that have to be reproduced, is a secret: whoever knows it can draw the noise again
and subtract it.
"""

from __future__ import annotations

import copy
import hashlib
import math
import numbers
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.accounting import Cost, GaussianCost, RandomizedResponseCost, UnboundedCost
from justitia.privacy.arrays import Array
from justitia.privacy.noise_grid import grid_step, noised_on_grid

#: Codes of groups, 0 .. G - 1, and G for "not given".
Codes = NDArray[np.int64]


class NoiseSource(ABC):
    """Source of the randomness of mechanisms.

    Every draw names the ledger's number of the release it is for, so that a seeded source never gives two releases
    the same noise, not even in a run that was interrupted and resumed.
    """

    #: How the certificate describes this source.
    description: str
    #: Whether the noise can be drawn again, so that a certificate promises nothing.
    seeded: bool = False

    def about(self, *_query: object) -> Self:
        """Source for one query, described by public values: the source itself, unless the noise is seeded."""
        return self

    @abstractmethod
    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        """Independent uniform 64-bit words; ``stream`` keeps the uses within one release apart."""

    def uniform(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.float64]:
        """Independent draws from the open interval (0, 1), multiples of 2^-53."""
        # 52 bits, not 53: with one more, adding a half would round the largest word up to 1.
        draws = (self.words(size, release=release, stream=stream) >> np.uint64(12)).astype(np.float64)
        draws += 0.5
        draws *= 2.0**-52
        return draws

    def add_gaussian(self, exact: Array, std: float, *, release: int) -> Array:
        """``exact``, rounded to the grid of ``std``, plus an independent N(0, std^2) rounded to it in every entry.

        With ``std`` 0 it is ``exact`` itself.
        """
        if std == 0:
            return exact
        return noised_on_grid(exact, std, partial(self.words, release=release))


class SystemNoise(NoiseSource):
    """The operating system's generator, read anew for every draw."""

    description = "operating system entropy"

    def words(self, size: int, **_names: object) -> NDArray[np.uint64]:
        """Independent words; release and stream are not needed, because no two reads of the generator agree."""
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
        self._query = b""
        self.description = "fixed noise seed: it can be drawn again, so it promises nothing"

    def about(self, *query: object) -> Self:
        """The same seed for one query."""
        source = copy.copy(self)
        source._query = repr(query).encode()
        return source

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        """Independent words, the same for the same seed, query, release and stream."""
        named = f"{self._seed}/{release}/{stream}/".encode()
        return np.frombuffer(hashlib.shake_256(named + self._query).digest(8 * size), dtype=np.uint64)


def _fine_uniform(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in (0, 1] of 128 bits, two words each: small ones have as many digits as large ones."""
    high, low = words[::2].astype(np.float64), words[1::2].astype(np.float64)
    return high * 2.0**-64 + (low + 0.5) * 2.0**-128


@runtime_checkable
class Mechanism(Protocol):
    """Interface of a mechanism that protects sums; a frozen value.

    Guarantee
    ---------
    * :meth:`cost` bounds what :meth:`add_noise` reveals, if neighbours' answers are at most ``sensitivity`` apart in
      Euclidean norm after they were rounded to multiples of :meth:`step`.
    * All randomness of :meth:`add_noise` comes from ``source``, under the number ``release``.
    * Nothing but the answer of :meth:`add_noise` depends on the exact answer.
    """

    @property
    def is_exact(self) -> bool:
        """Whether answers are given without noise, and so without any privacy."""

    def cost(self) -> Cost:
        """What the ledger charges for one release; a ValueError for noise that protects nothing."""

    def stddev(self, sensitivity: float, /) -> float:
        """Standard deviation of the noise in each entry of an answer with this sensitivity; 0 for no noise."""

    def step(self, sensitivity: float, /) -> float:
        """Step of the grid that an answer of this sensitivity is released on; 0 if it needs no grid."""

    def add_noise(self, exact: Array, *, sensitivity: float, source: NoiseSource, release: int) -> Array:
        """Noisy ``exact``, whose entries together move by at most ``sensitivity`` in Euclidean norm."""


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Adds N(0, (noise_multiplier * sensitivity)^2), rounded to a public grid, to every entry.

    Guarantee
    ---------
    * One release is mu-GDP with mu = 1 / noise_multiplier, if ``sensitivity`` bounds how far the entries of neighbours
      are apart after they were rounded to the grid.
    """

    noise_multiplier: float
    is_exact: ClassVar[bool] = False

    def cost(self) -> Cost:
        """What the ledger charges for one release."""
        return GaussianCost(self.noise_multiplier)

    def stddev(self, sensitivity: float) -> float:
        """Standard deviation of the noise in each entry, before it is rounded to the grid."""
        return self.noise_multiplier * sensitivity

    def step(self, sensitivity: float) -> float:
        """Step of the grid that an answer of this sensitivity is released on; 0 if it needs no noise."""
        stddev = self.stddev(sensitivity)
        return grid_step(stddev) if stddev > 0 else 0.0

    def add_noise(self, exact: Array, *, sensitivity: float, source: NoiseSource, release: int) -> Array:
        """Noisy ``exact``, whose entries together move by at most ``sensitivity`` in Euclidean norm."""
        return source.add_gaussian(exact, self.stddev(sensitivity), release=release)


@dataclass(frozen=True)
class Unprotected(Mechanism):
    """No noise, at an infinite cost: for comparisons with training that is not private."""

    is_exact: ClassVar[bool] = True

    def cost(self) -> Cost:
        """Infinite."""
        return UnboundedCost()

    def stddev(self, _sensitivity: float) -> float:
        """0: there is no noise."""
        return 0.0

    def step(self, _sensitivity: float) -> float:
        """0: an answer without noise needs no grid."""
        return 0.0

    def add_noise(self, exact: Array, **_names: object) -> Array:
        """``exact`` itself."""
        return exact


@dataclass(frozen=True)
class RandomizedResponse:
    r"""Reports the true category with probability :math:`e^\epsilon / (e^\epsilon + k - 1)`, else one of the others.

    Guarantee
    ---------
    * One release of all labels is (epsilon, 0)-differentially private in each row's label, "no category" included.
    """

    epsilon: float

    def cost(self, *, categories: int) -> Cost:
        """What the ledger charges for one randomised label of every row."""
        return RandomizedResponseCost(self.epsilon, categories)

    def randomize(self, codes: Codes, *, categories: int, source: NoiseSource, release: int) -> Codes:
        """Randomised copy of ``codes`` (0 .. categories - 1); any of them is reported for the code ``categories``."""
        coin = _fine_uniform(source.words(2 * len(codes), release=release, stream="coins"))
        second = source.uniform(len(codes), release=release)
        rare = (categories - 1) * math.exp(-self.epsilon)
        other = (codes + 1 + (second * (categories - 1)).astype(np.int64)) % categories
        reported = np.where(coin < rare / (1.0 + rare), other, codes)
        return np.where(codes < categories, reported, (second * categories).astype(np.int64))


@dataclass(frozen=True)
class MinorityResponse:
    r"""Reports one of two groups truly with probability :math:`1 - e^{-\epsilon} / 2`, all others by a fair coin.

    The mechanism for two groups of Ghoukasian and Asoodeh (2025), Theorem 1, where the smaller group is the one that
    is reported more truly. Write p and q for how often the two groups are reported truly: among all
    :math:`p, q \ge 1/2` that use up epsilon, it leaves the least :math:`|P(Y = 1 \mid Z = 1) - P(Y = 1 \mid Z = 0)|`.

    Parameters
    ----------
    epsilon : float
    minority : {0, 1}
        Code of the group that is reported truly more often. It has to be public: it is not read off the data.

    Guarantee
    ---------
    * One release of all labels is (epsilon, 0)-differentially private in each row's label, "no category" included:
      an answer is at most :math:`\max(2 - e^{-\epsilon}, e^\epsilon) = e^\epsilon` times as likely for one as for
      another.
    """

    epsilon: float
    minority: int

    def cost(self, *, categories: int) -> Cost:
        """What the ledger charges: binary randomised response, which reveals more than any other answer of epsilon."""
        _check_two(categories)
        if self.minority not in (0, 1):
            raise ValueError(f"expected the minority to be 0 or 1, got {self.minority!r}.")
        return RandomizedResponseCost(self.epsilon, categories)

    def randomize(self, codes: Codes, *, categories: int, source: NoiseSource, release: int) -> Codes:
        """Randomised copy of ``codes`` (0 and 1); for any other code, as for the larger group, either is reported."""
        _check_two(categories)
        coin = _fine_uniform(source.words(2 * len(codes), release=release, stream="coins"))
        hides = np.where(codes == self.minority, math.exp(-self.epsilon) / 2, 0.5)
        return np.where(coin < hides, 1 - self.minority, self.minority)


def _check_two(categories: int) -> None:
    if categories != 2:
        raise ValueError(f"expected two categories, got {categories}; use RandomizedResponse for more.")


#: Mechanisms that randomize each row's label.
Response = RandomizedResponse | MinorityResponse


class NoiseSeed(int):
    """A whole number that neither ``repr`` nor ``str`` shows: not in the text or HTML of an estimator or pipeline."""

    def __repr__(self) -> str:
        return "<not shown>"

    __str__ = __repr__


def hidden_seed(seed: Any) -> Any:
    """``seed`` as a :class:`NoiseSeed` if it is a whole number; anything else as it is, for ``fit`` to refuse."""
    if isinstance(seed, NoiseSeed | bool) or not isinstance(seed, numbers.Integral):
        return seed
    return NoiseSeed(seed)


class _SeedParameter:
    """Descriptor that keeps the parameter as a :class:`NoiseSeed` in the instance, where Python finds it."""

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["noise_seed"] = hidden_seed(value)


class HiddenNoiseSeed:
    """Mixin for estimators with a parameter ``noise_seed``; it comes before ``BaseEstimator`` in the list of bases.

    Guarantee
    ---------
    * No text about the estimator shows the seed.
    * A pickle of a fitted estimator does not hold it. One that is not fitted yet keeps its seed, so that worker
      processes fit with it; so do copies in memory and ``sklearn.clone``.
    """

    noise_seed: Any = _SeedParameter()

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return state | {"noise_seed": None} if "certificate_" in state else state

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(vars(self))
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__dict__.update(copy.deepcopy(vars(self), memo))
        return twin
