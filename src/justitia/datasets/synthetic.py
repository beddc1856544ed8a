r"""A synthetic table whose ground truth is known in closed form.

Two features carry everything. With the direction :math:`u = (x_0 + x_1) / \sqrt 2`,

.. math::
    x_0 \mid a \sim N(\sqrt 2\, t_a, 1), \qquad x_j \sim N(0, 1), \qquad P(y = 1 \mid x) = \Phi(s\,u),

so that :math:`u \mid a \sim N(t_a, 1)`. Given x the label does not depend on the group: the best
classifier predicts 1 where u > 0, has no use for A, and selects the share :math:`\Phi(t_a)` of group a.
The shifts t_a are chosen so that these shares are evenly spaced around one half and differ by `disparity`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm

from justitia.datasets.dataset import Dataset

Floats = npt.NDArray[np.float64]

SIGNAL = 2.0
"""s above: how sharply the label follows u."""


@dataclass(frozen=True)
class GroundTruth:
    """What is true of the distribution behind a synthetic table, group by group.

    Parameters
    ----------
    shares : tuple of float
        Share of each group.
    shifts : tuple of float
        t_a, the mean of u in each group.
    base_rates : tuple of float
        P(y = 1 | a).
    selection_rates : tuple of float
        Share of each group that the best classifier selects.
    accuracies : tuple of float
        Accuracy of the best classifier on each group.
    """

    shares: tuple[float, ...]
    shifts: tuple[float, ...]
    base_rates: tuple[float, ...]
    selection_rates: tuple[float, ...]
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """Accuracy of the best classifier."""
        return float(np.dot(self.shares, self.accuracies))

    @property
    def demographic_parity_difference(self) -> float:
        """Largest minus smallest selection rate of the best classifier."""
        return max(self.selection_rates) - min(self.selection_rates)


@dataclass(frozen=True, eq=False)
class SyntheticDataset(Dataset):
    """A `Dataset` with the truth behind it.

    Parameters
    ----------
    truth : GroundTruth
        Closed-form quantities of the distribution.
    scores : ndarray, shape (n,)
        P(y = 1 | x) of each row, the best possible score.
    """

    truth: GroundTruth
    scores: Floats = field(repr=False)


def make_synthetic(
    n: int,
    *,
    groups: Sequence[str] = ("a", "b"),
    shares: Sequence[float] | None = None,
    disparity: float = 0.3,
    n_features: int = 5,
    random_state: int | None = None,
) -> SyntheticDataset:
    """Draw a table in which a plain classifier has a known demographic-parity gap.

    Parameters
    ----------
    n : int
        Number of rows.
    groups : sequence of str
        Group names, from the least to the most often selected.
    shares : sequence of float, optional
        Share of each group, equal if not given. Group sizes are n times the shares, rounded.
    disparity : float in [0, 1)
        Demographic-parity difference of the best classifier.
    n_features : int
        Number of features, at least 2; all but the first two are noise.
    random_state : int, optional
        Seed of the draw.

    Raises
    ------
    ValueError
        If a parameter is out of its range.
    """
    weights = _checked_shares(groups, shares)
    _check_ranges(n, n_features, disparity, len(groups))
    truth = ground_truth(weights, disparity)
    rng = np.random.default_rng(random_state)
    member = _members(n, weights, rng)
    x = rng.standard_normal((n, n_features))
    x[:, 0] += np.sqrt(2.0) * np.asarray(truth.shifts)[member]
    scores = norm.cdf(SIGNAL * (x[:, 0] + x[:, 1]) / np.sqrt(2.0))
    return SyntheticDataset(
        name="synthetic",
        X=pd.DataFrame(x, columns=[f"x{j}" for j in range(n_features)]),
        y=pd.Series((rng.random(n) < scores).astype(int), name="y"),
        sensitive=pd.Series([groups[a] for a in member], name="group"),
        groups=tuple(groups),
        description=f"Synthetic; demographic-parity difference of the best classifier: {disparity:g}.",
        truth=truth,
        scores=scores,
    )


def ground_truth(shares: Sequence[float] | Floats, disparity: float) -> GroundTruth:
    r"""Compute the closed forms of the module's distribution.

    .. math::
        t_a = \Phi^{-1}(r_a), \qquad P(y = 1 \mid a) = \Phi\Bigl(\frac{s\,t_a}{\sqrt{1 + s^2}}\Bigr)
    """
    rates = np.linspace(0.5 - disparity / 2, 0.5 + disparity / 2, len(shares))
    shifts = norm.ppf(rates)
    return GroundTruth(
        shares=tuple(float(share) for share in shares),
        shifts=tuple(shifts.tolist()),
        base_rates=tuple(norm.cdf(SIGNAL * shifts / np.sqrt(1 + SIGNAL**2)).tolist()),
        selection_rates=tuple(rates.tolist()),
        accuracies=tuple(_accuracy(shift) for shift in shifts),
    )


def _accuracy(shift: float) -> float:
    r"""Integrate :math:`E\,\Phi(s|u|)`, u ~ N(shift, 1): the best classifier is right that often."""
    u = np.linspace(-12.0, 12.0, 24001)
    return float(np.trapezoid(norm.cdf(SIGNAL * np.abs(u)) * norm.pdf(u - shift), u))


def _members(n: int, shares: Floats, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Group index of each row: sizes are n times the shares, rounded; the order is random."""
    ends = np.rint(n * np.cumsum(shares)).astype(int)
    return rng.permutation(np.repeat(np.arange(len(shares)), np.diff(ends, prepend=0)))


def _checked_shares(groups: Sequence[str], shares: Sequence[float] | None) -> Floats:
    weights = np.asarray([1 / len(groups)] * len(groups) if shares is None else shares, dtype=float)
    if weights.shape != (len(groups),) or (weights < 0).any() or not np.isclose(weights.sum(), 1.0):
        raise ValueError(f"shares must be {len(groups)} numbers from 0 that sum to 1, one per group; got {shares!r}.")
    return weights


def _check_ranges(n: int, n_features: int, disparity: float, n_groups: int) -> None:
    if n < 1 or n_features < 2 or n_groups < 2:
        raise ValueError(
            "make_synthetic needs at least 1 row, 2 features and 2 groups, "
            f"but was asked for {n}, {n_features} and {n_groups}."
        )
    if not 0.0 <= disparity < 1.0:
        raise ValueError(f"disparity must be at least 0 and below 1, got {disparity!r}.")
