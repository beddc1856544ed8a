"""Xian, Li, Kamath and Zhao (2024): private histograms of predictions, then transports to a common distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.isotonic import isotonic_regression
from sklearn.utils import check_random_state

from bench.rivals.classifier import all_or_nothing
from bench.rivals.rate_program import optimum
from bench.rivals.target_model import Array, NumberModel, one_hot
from justitia._validate import check_int, check_nonnegative, check_positive
from justitia.privacy.accounting import Cost, RandomizedResponseCost
from justitia.privacy.frames import protects_attribute
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import HiddenNoiseSeed, Mechanism, NoiseSource


class PrivateBarycentreRegressor(HiddenNoiseSeed, NumberModel):
    r"""Predictions fall into bins; each group's noised histogram is transported to nearly the same one.

    A linear program moves the histograms, at the least squared distance, such that their distribution functions are
    within half the tolerance of a common one. A row of group a in bin j goes to a bin that is drawn from row j of the
    group's transport. So prediction reads the attribute, exactly; training protects it.

    Parameters
    ----------
    epsilon : float
        Privacy budget of the histograms; delta is 0.
    tolerance : float
        Largest Kolmogorov-Smirnov distance between two groups.
    bins : int
        Of equal width, over the range of the (public) predictions.
    groups : sequence, mapping or None
    base : object, optional
        Model of y; boosted trees without the attribute by default, since it is learned without privacy.
    random_state, noise_seed : int, optional

    Attributes
    ----------
    edges_ : ndarray (bins + 1,)
    transports_ : ndarray (G, bins, bins)
        Distribution of the new bin by group and bin.
    certificate_ : Certificate

    Notes
    -----
    The authors protect rows; changing a row's group changes two of the counts by one, as changing a row does, so the
    noise is theirs. A distribution function from a noised histogram is made monotone by isotonic regression.
    """

    is_private: ClassVar[bool] = True
    reads_attribute: ClassVar[bool] = True

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        tolerance: float = 0.0,
        bins: int = 24,
        groups: Any = None,
        base: Any = None,
        random_state: Any = None,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.tolerance = tolerance
        self.bins = bins
        self.groups = groups
        self.base = base
        self.random_state = random_state
        self.noise_seed = noise_seed

    @all_or_nothing
    def fit(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Self:
        """Learn E[y | x] without the attribute, release histograms of it, solve."""
        epsilon, bins = check_positive("epsilon", self.epsilon), check_int("bins", self.bins, at_least=2)
        tolerance = check_nonnegative("tolerance", self.tolerance)
        numbers, target, seed = self._read(X, y)
        self.seed_, self.model_ = seed, self._base()
        scores = self.model_.learn(numbers, target, seed=seed)
        self.edges_ = np.linspace(scores.min(), scores.max(), bins + 1)
        vault = self._vault(sensitive_features, len(target), ledger, epsilon=epsilon, noise_seed=self.noise_seed)
        self.n_groups_ = vault.n_groups
        counts = vault.group_sums(
            one_hot(self._bin(scores), bins), bound=1.0, noise=HistogramNoise(epsilon), purpose="histograms"
        )
        self.values_ = (self.edges_[1:] + self.edges_[:-1]) / 2
        self.transports_ = transports(to_histograms(counts), counts.sum(axis=1), self.values_, tolerance)
        self.certificate_ = vault.certificate()
        return self

    @protects_attribute
    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """(n,): values of bins that are drawn for features and attribute; a row without a group keeps its bin."""
        numbers = self._numbers(X, reset=False)
        codes = self._codes_of_new_rows(sensitive_features, len(numbers))
        kept = np.eye(len(self.values_))[None]
        chances = np.concatenate([self.transports_, kept])[codes, self._bin(self.model_(numbers))]
        drawn = check_random_state(self.seed_).random_sample(len(numbers))
        found: Array = self.values_[np.argmax(np.cumsum(chances, axis=1) > drawn[:, None] - 1e-12, axis=1)]
        return found

    def _bin(self, scores: Array) -> Any:
        return np.clip(np.searchsorted(self.edges_, scores, side="right") - 1, 0, len(self.edges_) - 2)


@dataclass(frozen=True)
class HistogramNoise(Mechanism):
    """Noise of a two-sided exponential distribution for sums of indicators.

    Guarantee
    ---------
    * Changing a row's group changes two counts by one each: by ``sensitivity``, the square root of 2, in Euclidean
      norm and by 2 in total. With scale 2 / epsilon a release is epsilon-differentially private, whose losses those
      of randomised response with two answers dominate.
    """

    epsilon: float

    @property
    def is_exact(self) -> bool:
        """False."""
        return False

    def cost(self) -> Cost:
        """What the ledger charges for one release."""
        return RandomizedResponseCost(self.epsilon, 2)

    def stddev(self, sensitivity: float, /) -> float:
        """Standard deviation of the noise in each count."""
        return math.sqrt(2) * self._scale(sensitivity)

    def step(self, _sensitivity: float, /) -> float:
        """0: counts are whole numbers."""
        return 0.0

    def add_noise(self, exact: Array, *, sensitivity: float, source: NoiseSource, release: int) -> Array:
        """Noisy ``exact``, the difference of two exponentials for each entry."""
        drawn = source.uniform(2 * exact.size, release=release).reshape(2, *exact.shape)
        first, second = -np.log1p(-drawn)
        noisy: Array = exact + self._scale(sensitivity) * (first - second)
        return noisy

    def _scale(self, sensitivity: float) -> float:
        return math.sqrt(2) * sensitivity / self.epsilon


def to_histograms(counts: Array) -> Array:
    """(G, bins): shares whose distribution functions are monotone and end at 1."""
    cumulative = np.cumsum(counts, axis=1) / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    monotone = np.stack([np.clip(isotonic_regression(row), 0.0, 1.0) for row in cumulative])
    monotone[:, -1] = 1.0
    return np.diff(monotone, axis=1, prepend=0.0)


def transports(histograms: Array, sizes: Array, values: Array, tolerance: float) -> Array:
    """(G, bins, bins): how each group's bins are moved, row by row a distribution.

    Parameters
    ----------
    histograms : ndarray (G, bins)
    sizes : ndarray (G,)
        Noised numbers of rows, the weights of the groups.
    tolerance : float
        Largest difference between two distribution functions after the transport.
    """
    n_groups, bins = histograms.shape
    weights = np.maximum(sizes, 1.0) / np.maximum(sizes, 1.0).sum()
    distance = np.square(values[:, None] - values[None, :]) / np.square(values[-1] - values[0])
    cost = np.concatenate([(weight * distance).ravel() for weight in weights] + [np.zeros(bins)])
    leaves: Any = sparse.kron(sparse.eye_array(bins), np.ones((1, bins)))
    below = np.tril(np.ones((bins, bins)))
    arrives: Any = sparse.kron(np.ones((1, bins)), below)
    each: Any = sparse.eye_array(n_groups)
    mass: Any = sparse.hstack([sparse.kron(each, leaves), sparse.csr_matrix((n_groups * bins, bins))])
    above: Any = sparse.hstack([sparse.kron(each, arrives), sparse.csr_matrix(-np.tile(np.eye(bins), (n_groups, 1)))])
    found = optimum(cost, above, tolerance / 2, (mass, histograms.ravel()))
    moved = np.maximum(found.x[:-bins].reshape(n_groups, bins, bins), 0.0)
    total = moved.sum(axis=2, keepdims=True)
    # No training row fell into an empty bin; a new one goes where the nearest bin's rows go.
    shares: Array = np.where(total > 1e-12, moved / np.maximum(total, 1e-12), 0.0)
    return _with_neighbours(shares, total[:, :, 0] > 1e-12)


def _with_neighbours(shares: Array, known: Any) -> Array:
    places = np.arange(shares.shape[1])
    for a, row in enumerate(known):
        filled = np.flatnonzero(row)
        for j in np.flatnonzero(~row):
            shares[a, j] = shares[a, filled[np.argmin(np.abs(places[filled] - j))]]
    return shares
