r"""Population means, violations, multipliers and their ascent: the paper's Section 5 as pure functions.

Letters: n rows, G groups, K events (the index set of the paper is the pairs of a group and an event). The Lagrangian is

.. math:: J(\theta) + \sum_{a,k} \lambda_{a,k} (\mu(D_{G_{a,k}}) - \mu(D_{P_k}))

with signed multipliers, so that no sign of a violation has to be known exactly (see ``docs/proofs.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.goals import Goal
from justitia.notions import FairnessNotion
from justitia.rows.source import MemoryRows, RowSource
from justitia.tasks import BINARY, Task

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything public about one training run: rows, labels, weights, and which rows are compared.

    Attributes
    ----------
    X : ndarray (n, p)
    y : ndarray (n,)
        0 or 1; of classes, 0 to K - 1.
    weight : ndarray (n,)
        How often a row counts, in the loss and in every mean.
    notion : FairnessNotion
    threshold : float
        A positive decision is worth its cost where p(y = 1 | x) is above.
    source : RowSource
        All rows, of which the arrays above are a public sample; by default these rows. Their labels are ``codes``.
    task : Task
        What kind of target y is.
    given_goal : Goal, optional
        Which rates the default engine compares, and how; by default those of the notion.
    strata : ndarray of int (n,), optional
        Public stratum of each row.
    costs : ndarray (K, K), optional
        Cost of each decision by class, of more than two classes.
    proxy : ndarray (n, r), optional
        Public columns that say something about the group, as numbers; for the first release of the default engine.
    """

    X: Array
    y: Array
    weight: Array
    notion: FairnessNotion
    threshold: float = 0.5
    source: RowSource = field(default=None, repr=False)  # type: ignore[assignment]
    task: Task = BINARY
    given_goal: Goal | None = field(default=None, repr=False)
    strata: Array | None = field(default=None, repr=False)
    costs: Array | None = None
    proxy: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.source is None:
            object.__setattr__(self, "source", MemoryRows(self.X, self.codes, self.weight, proxy=self.proxy))

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def goal(self) -> Goal:
        """Which rates are compared, and how."""
        return self.given_goal or Goal.from_notions([self.notion], self.task.classes)

    @cached_property
    def codes(self) -> Array:
        """(n,): the label y or, in public stratum s of a target with Y labels, Y s + y."""
        if self.strata is None:
            return self.y
        found: Array = (self.strata * self.task.n_classes + self.y).astype(self.y.dtype)
        return found

    @property
    def rows(self) -> int:
        """Number of all rows."""
        return self.source.n

    @cached_property
    def events(self) -> Array:
        """(n, K): weight of row i in the population term D_P of event k."""
        return self.notion.events(self.y) * self.weight[:, None]

    @cached_property
    def event_sizes(self) -> Array:
        """(K,): public total weight of each event."""
        sizes: Array = self.events.sum(0, dtype=np.float64)
        return sizes


def population_means(h: Array, events: Array) -> Array:
    """(K,): the paper's mu(D_P), public; 0 for an event without rows."""
    sizes = events.sum(0, dtype=np.float64)
    means = (events * h[:, None]).sum(0, dtype=np.float64) / np.maximum(sizes, 1e-12)
    return np.where(sizes > 0, means, 0.0)


def centred_rows(h: Array, events: Array) -> Array:
    """(n, K) public rows whose sum over a group is ``|D_G| (mu(D_G) - mu(D_P))``.

    Summing h - mu(D_P) instead of h asks the vault for the violation itself: the answer is zero for a model that
    treats groups alike, and its bound is smaller.
    """
    rows: Array = events * (h[:, None] - population_means(h, events).astype(h.dtype))
    return rows


def row_bound(rows: Array) -> float:
    """Largest Euclidean norm of a public row, a valid bound because the rows are public."""
    norms = np.linalg.norm(rows, axis=1)
    return float(norms[np.isfinite(norms)].max(initial=0.0))


def usable_sizes(noisy_sizes: Array, noise_std: float) -> Array:
    """Noised sizes kept away from zero by twice their known noise, so that no group divides by chance."""
    return np.maximum(noisy_sizes, max(1.0, 2 * noise_std))


def ascend(lam: Array, gap: Array, *, step: float, tolerance: float | Array, limit: float) -> Array:
    r"""Lines 5 and 6 of Algorithm 1 for signed multipliers and the constraint :math:`|gap| \le tolerance`.

    The dual function of that constraint is :math:`\lambda\, gap - tolerance |\lambda|`; one proximal step of size s
    on it adds s * gap, pulls the result towards zero by s * tolerance, and stops at the limit lambda^max.
    """
    return np.clip(shrink(lam + step * gap, step * tolerance), -limit, limit)


def shrink(values: Array, by: float | Array) -> Array:
    """Each value pulled towards zero by this much, and not beyond it."""
    pulled: Array = np.sign(values) * np.maximum(np.abs(values) - by, 0.0)
    return pulled


def ascend_as_published(lam: Array, violation: Array, *, step: float, limit: float) -> Array:
    """Lines 5 and 6 of Algorithm 1 as published: lambda + s_k * violation, at most lambda^max.

    The noise of Equation 13 can make a violation negative; multipliers stay at or above 0, as the paper asks.
    """
    return np.clip(lam + step * violation, 0.0, limit)


def group_weights(lam: Array, sizes: Array, events: Array) -> Array:
    """(n, G + 1): omega, the weight of row i's gradient if its person is in group a; 0 for "not given".

    The gradient of sum lambda mu(D_G) is sum_i omega[i, A_i] grad h_i, with noised sizes as denominators.
    """
    omega = events.astype(np.float64) @ (lam / sizes).T
    return np.pad(omega, ((0, 0), (0, 1)))


def population_weights(lam: Array, events: Array) -> Array:
    """(n,): weight of row i's gradient in sum lambda mu(D_P), which is public."""
    wide = events.astype(np.float64)
    weights: Array = wide @ (lam.sum(0) / np.maximum(wide.sum(0), 1e-12))
    return weights


def largest_gap(gap: Array) -> float:
    """The paper's violation: largest difference between any two groups, over all events."""
    return float(np.ptp(gap, axis=0).max())
