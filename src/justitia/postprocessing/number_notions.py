r"""What "alike" means for predicted numbers: the same distribution, the same mean, or the same squared error.

The target and its predictions are scaled to [0, 1] by a public range here. A notion has K rates by group; rate k of
group a is the mean of :math:`v_k(y, f(x))` over its rows. Multipliers are (K, G) and add up to 0 over the groups. The
rule reads the memberships through J columns of a row, and through R linear combinations of them:

============  ==============================  =========================================  =========================
notion        v                               columns                                    prediction
============  ==============================  =========================================  =========================
distribution  1[f > s_t], T levels            p(a|x)/p(a)                                between two of T levels
mean          f                               p(a|x)/p(a)                                m - lambda.c/2
error         (y - f)^2                       p(a|x)/p(a), E[q(a|x,y) y | x]/p(a)        (m + Q)/(1 + P)
============  ==============================  =========================================  =========================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from justitia.notions import RateTable
from justitia.postprocessing.dual import Constraints, solve
from justitia.postprocessing.levels import LevelRates, interpolated, quantile_levels, solve_levels, spacing
from justitia.postprocessing.mean_parity import solve_mean_parity
from justitia.postprocessing.prefix_sums import PrefixFactor, even_bounds
from justitia.postprocessing.target_distribution import TargetDistribution

Array = NDArray[np.float64]
#: Targets, in single or double precision.
Numbers = NDArray[Any]
#: Cells in which values between 0 and 1 are counted, to find a bound of a check's rows.
CELLS = 1024
#: A check cuts squared errors off at this quantile of the base model's: a few outliers would set the noise.
KEPT_ERRORS = 0.98
#: Multipliers of squared errors are found on a grid of predictions, so many evenly spaced and so many quantiles of m.
EVEN, QUANTILES = 9, 24
#: Rows on which they are found, a public sample where there are more: the pass that follows says how far it is off.
ERROR_ROWS = 10_000
#: The dual is smoothed over widths for gains of about this size; squared errors are scaled to it.
USUAL_GAIN = 0.25


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Public posteriors of rows.

    Attributes
    ----------
    m : ndarray (n,)
        E[y | x].
    joint : ndarray (Y, n, G)
        p(a, y bin | x).
    share : ndarray (n,)
        Of each row in a mean; they add up to 1.
    """

    m: Array
    joint: Array
    share: Array

    @property
    def sizes(self) -> Array:
        """(G,): p(a)."""
        found: Array = np.maximum(np.einsum("n,yna->a", self.share, self.joint), 1e-9)
        return found


class NumberNotion(ABC):
    """One way in which predictions of groups are to be alike; public and picklable."""

    #: As users write it.
    name: ClassVar[str]
    #: What is compared, in the middle of a sentence.
    quantity: ClassVar[str]
    #: Power of the target's unit that the rates have.
    power: ClassVar[int]
    #: Whether memberships may depend on the target.
    reads_target: ClassVar[bool] = False

    #: Names of rates before anything is learned, for the fingerprint of a checkpoint.
    event_names: ClassVar[tuple[str, ...]] = ()

    @property
    def count(self) -> int:
        """K, the number of rates."""
        return 1

    @property
    def factor(self) -> PrefixFactor:
        """How the K rates of a check are released."""
        return PrefixFactor(self.count)

    @abstractmethod
    def rate_names(self, low: float, high: float) -> tuple[str, ...]:
        """Names of the K rates, in units of the target."""

    @abstractmethod
    def values(self, y: Numbers, f: Array) -> Array:
        """(n, K): what is averaged over a group, between 0 and 1."""

    def uncut(self, y: Numbers, f: Array) -> Array:
        """(n, K): the same before large values are cut off for a check."""
        return self.values(y, f)

    @abstractmethod
    def solve(self, given: Posteriors, b: Array, tolerance: float, start: Array | None) -> Array:
        """(K, G): multipliers; b (K, G) is added to the rates that posteriors give."""

    @abstractmethod
    def mix(self, lam: Array) -> Array:
        """(R, J): combinations of the columns that :meth:`predict` reads, for (K, G) multipliers."""

    @abstractmethod
    def predict(self, m: Array, read: Array) -> Array:
        """(n,): predictions between 0 and 1 from m and (R, n) combinations."""

    def columns(self, joint: Array, sizes: Array) -> Array:
        """(n, J): columns of rows with these posteriors; sizes are p(a)."""
        found: Array = joint.sum(0) / sizes
        return found

    def estimated(self, given: Posteriors, f: Array) -> Array:
        """(K, G): rates of predictions f by the posteriors."""
        c, values = given.joint.sum(0) / given.sizes, self.values(f, f)
        found: Array = (values * given.share[:, None]).T @ c
        return found

    def distance(self, read: Array) -> Array:
        """(n,): how far rows are from a line at which predictions jump; 0 where all rows count alike."""
        return np.zeros(read.shape[1])

    def fitted(self, given: Posteriors, y: Array, levels: int) -> NumberNotion:  # noqa: ARG002 - used by others
        """With what it learns from public rows: levels, or bins of the target."""
        return self

    def refined(self, f: Array, share: Array, levels: int) -> NumberNotion:  # noqa: ARG002
        """For predictions like these."""
        return self

    @property
    def n_cells(self) -> int:
        """Number of cells that values are counted in."""
        return CELLS

    def cells(self, values: Array) -> NDArray[np.int64]:
        """(n,): the cell of each row of values."""
        return np.clip((values[:, 0] * CELLS).astype(np.int64), 0, CELLS - 1)

    def longest_row(self, weights: Array, means: Array) -> float:
        """Largest norm of a released row of weight 1, from the public weights of the cells."""
        inside = np.flatnonzero(weights > 0)
        edges = np.concatenate([inside / CELLS, (inside + 1) / CELLS]) - means[0]
        return float(np.abs(edges).max(initial=1 / CELLS))

    def bins(self, m: Array) -> Array:
        """(n, Y): probability of each bin of the target; one bin where memberships do not depend on it."""
        return np.ones((len(m), 1))

    @property
    def bin_means(self) -> Array:
        """(Y,): value of the target that stands for each bin."""
        return np.zeros(1)

    def state(self) -> dict[str, Any]:
        """What it has learned from answers, for a checkpoint."""
        return {}

    def restored(self, state: dict[str, Any]) -> NumberNotion:
        """With what a checkpoint has."""
        return replace(self, **state)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class EqualDistributions(NumberNotion):
    """Strong demographic parity: predictions of all groups have the same distribution.

    The violation is the Kolmogorov-Smirnov distance at T levels, see :mod:`justitia.postprocessing.levels`.
    """

    name: ClassVar[str] = "demographic_parity"
    quantity: ClassVar[str] = "rate above a level"
    power: ClassVar[int] = 0
    levels: Array | None = None

    @property
    def at(self) -> Array:
        """(T,): the levels."""
        assert self.levels is not None  # noqa: S101 - fitted before
        return self.levels

    @property
    def count(self) -> int:
        """T."""
        return len(self.at)

    def rate_names(self, low: float, high: float) -> tuple[str, ...]:
        """One for every level."""
        return tuple(f"above {low + (high - low) * one:.6g}" for one in self.at)

    def fitted(self, given: Posteriors, y: Array, levels: int) -> NumberNotion:  # noqa: ARG002
        """With levels at quantiles of the base's predictions."""
        return EqualDistributions(quantile_levels(given.m, given.share, levels))

    def refined(self, f: Array, share: Array, levels: int) -> NumberNotion:
        """With levels at quantiles of these predictions."""
        return EqualDistributions(quantile_levels(f, share, levels))

    def values(self, y: Numbers, f: Array) -> Array:  # noqa: ARG002
        """Whether a prediction is above each level."""
        return (f[:, None] > self.at).astype(np.float64)

    def solve(self, given: Posteriors, b: Array, tolerance: float, start: Array | None) -> Array:
        """The joint dual over all levels."""
        rates = LevelRates(given.joint.sum(0) / given.sizes, b, given.share)
        return solve_levels(given.m, self.at, rates, tolerance, start)

    def mix(self, lam: Array) -> Array:
        """One combination for every level."""
        return lam

    def predict(self, m: Array, read: Array) -> Array:
        """Between the last level that is passed and the next one."""
        return interpolated(2 * (m - self.at[:, None]) - read, self.at, spacing(self.at))

    @property
    def n_cells(self) -> int:
        """Cells between the levels."""
        return self.count + 1

    def cells(self, values: Array) -> NDArray[np.int64]:
        """How many levels a row passes."""
        passed: NDArray[np.int64] = values.sum(1).astype(np.int64)
        return passed

    def longest_row(self, weights: Array, means: Array) -> float:
        """Over the cells that have rows."""
        above = (np.arange(self.count) < np.arange(self.count + 1)[:, None]) - means  # (T + 1, T): by levels passed
        norms = np.linalg.norm(self.factor.factored(above[:, :, None])[..., 0], axis=1)
        return float(norms[weights > 0].max(initial=0.0))

    def state(self) -> dict[str, Any]:
        """The levels."""
        return {"levels": self.levels}


@dataclass(frozen=True, eq=False)
class EqualMeans(NumberNotion):
    """Mean parity: predictions of all groups have the same mean."""

    name: ClassVar[str] = "mean_parity"
    quantity: ClassVar[str] = "mean"
    power: ClassVar[int] = 1

    def rate_names(self, low: float, high: float) -> tuple[str, ...]:  # noqa: ARG002
        """One."""
        return ("mean",)

    def values(self, y: Numbers, f: Array) -> Array:  # noqa: ARG002
        """The prediction itself."""
        return f[:, None]

    def solve(self, given: Posteriors, b: Array, tolerance: float, start: Array | None) -> Array:  # noqa: ARG002
        """The quadratic dual."""
        c = given.joint.sum(0) / given.sizes
        return solve_mean_parity(given.m, c, b[0], given.share, tolerance)[None]

    def mix(self, lam: Array) -> Array:
        """One combination."""
        return lam

    def predict(self, m: Array, read: Array) -> Array:
        """The base prediction less half of lambda.c, within the range."""
        found: Array = np.clip(m - read[0] / 2, 0.0, 1.0)
        return found


@dataclass(frozen=True, eq=False)
class EqualErrors(NumberNotion):
    r"""Equal error: predictions of all groups have the same mean squared error.

    With multipliers the best prediction maximises a parabola, :math:`-(m - v)^2 - P v^2 + 2 Q v`, where
    :math:`P = \sum_a \lambda_a p(a|x)/p(a)` and :math:`Q = \sum_a \lambda_a E[q(a|x,y) y | x]/p(a)`: at
    :math:`(m + Q)/(1 + P)`, or at one end of the range where it opens upwards. Multipliers are found on a grid of
    predictions, as those of a problem with that many actions.
    """

    name: ClassVar[str] = "equal_error"
    quantity: ClassVar[str] = "mean squared error"
    power: ClassVar[int] = 2
    reads_target: ClassVar[bool] = True
    distribution: TargetDistribution | None = None
    most: float = 1.0

    @property
    def target(self) -> TargetDistribution:
        """p(y bin | x)."""
        assert self.distribution is not None  # noqa: S101 - fitted before
        return self.distribution

    def rate_names(self, low: float, high: float) -> tuple[str, ...]:  # noqa: ARG002
        """One."""
        return ("mean squared error",)

    def fitted(self, given: Posteriors, y: Array, levels: int) -> NumberNotion:  # noqa: ARG002
        """With the distribution of the target, and where errors are cut off."""
        found = TargetDistribution.fit(given.m, y.astype(np.float64), given.share)
        return EqualErrors(found, max(float(np.quantile((y - given.m) ** 2, KEPT_ERRORS)), 1e-6))

    def bins(self, m: Array) -> Array:
        """Of the target's distribution."""
        return self.target.probabilities(m)

    @property
    def bin_means(self) -> Array:
        """Of the target's distribution."""
        return self.target.means

    def values(self, y: Numbers, f: Array) -> Array:
        """Squared errors, cut off."""
        return np.minimum((y.astype(np.float64) - f) ** 2, self.most)[:, None]

    def cells(self, values: Array) -> NDArray[np.int64]:
        """Even cells up to where errors are cut off."""
        return super().cells(values / self.most)

    def longest_row(self, weights: Array, means: Array) -> float:
        """Over the cells that have rows."""
        return self.most * super().longest_row(weights, means / self.most)

    def table(self, grid: Array) -> RateTable:
        """Expected squared errors by bin of the target and prediction on a grid, as a table of rates."""
        means, squares = self.target.means[:, None], self.target.squares[:, None]
        errors = squares - 2 * means * grid + grid**2
        return RateTable(np.ones((len(means), 1)), errors[:, :, None], ("mean squared error",))

    def solve(self, given: Posteriors, b: Array, tolerance: float, start: Array | None) -> Array:
        """The dual for actions on a grid of predictions."""
        rows = np.arange(0, len(given.m), max(1, len(given.m) // ERROR_ROWS))
        m, joint, share = given.m[rows], given.joint[:, rows], given.share[rows]
        grid, table = self.grid(m), self.table(self.grid(m))
        scale = USUAL_GAIN / max(float(given.share @ self.expected(given.joint.sum(2), given.m)), 1e-9)
        rates = Constraints.from_table(replace(table, values=scale * table.values), joint, share)
        worth = -scale * (m[:, None] - grid) ** 2
        rates = replace(rates, b=rates.b + scale * b.T)
        return solve(worth[:, 1:] - worth[:, :1], rates, scale * tolerance, _transposed(start)).T

    @staticmethod
    def grid(m: Array) -> Array:
        """Predictions among which the dual chooses: over the whole range, and closer where m is."""
        quantiles = np.quantile(m, np.arange(1, QUANTILES + 1) / (QUANTILES + 1))
        found: Array = np.unique(np.concatenate([np.linspace(0.0, 1.0, EVEN), quantiles]))
        return found

    def expected(self, chances: Array, f: Array) -> Array:
        """(n,): expected squared error of predictions f, for (Y, n) chances of the bins."""
        found: Array = self.target.squares @ chances - 2 * f * (self.target.means @ chances) + f**2 * chances.sum(0)
        return found

    def columns(self, joint: Array, sizes: Array) -> Array:
        """Memberships, and memberships times the target."""
        mean = np.einsum("y,yna->na", self.target.means, joint)
        return np.concatenate([joint.sum(0) / sizes, mean / sizes], axis=1)

    def mix(self, lam: Array) -> Array:
        """P and Q."""
        nothing = np.zeros_like(lam)
        return np.block([[lam, nothing], [nothing, lam]])

    def predict(self, m: Array, read: Array) -> Array:
        """Where the parabola is largest."""
        curve, top = 1 + read[0], m + read[1]
        inside = np.clip(top / np.where(curve > 0, curve, 1.0), 0.0, 1.0)
        ends = (2 * top > curve).astype(np.float64)  # where the parabola opens upwards: its value at 1 less that at 0
        found: Array = np.where(curve > 0, inside, ends)
        return found

    def distance(self, read: Array) -> Array:
        """1 + P: below 0 the parabola opens upwards."""
        curve: Array = 1 + read[0]
        return curve

    def estimated(self, given: Posteriors, f: Array) -> Array:
        """Expected squared errors, not cut off."""
        first, second = given.joint.sum(0), np.einsum("y,yna->na", self.target.means, given.joint)
        third = np.einsum("y,yna->na", self.target.squares, given.joint)
        errors = first * f[:, None] ** 2 - 2 * second * f[:, None] + third
        found: Array = (given.share @ errors / given.sizes)[None]
        return found

    def uncut(self, y: Numbers, f: Array) -> Array:
        """Squared errors."""
        return ((y.astype(np.float64) - f) ** 2)[:, None]


def _transposed(start: Array | None) -> Array | None:
    return None if start is None or not start.any() else start.T


NUMBER_NOTIONS: dict[str, type[NumberNotion]] = {one.name: one for one in (EqualDistributions, EqualMeans, EqualErrors)}


def even_check_bound(notion: NumberNotion, levels: int, values: Array) -> float:
    """About the norm of a check's longest row times its decoded noise, before predictions exist."""
    if isinstance(notion, EqualDistributions):
        row, noise = even_bounds(levels)
        return row * noise
    return float(np.abs(values - values.mean(0)).max())
