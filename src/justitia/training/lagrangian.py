r"""Population means, violations, multipliers and their ascent: the paper's Section 5 as pure functions.

Letters: n rows, G groups, K events (the index set of the paper is the pairs of a group and an event). The Lagrangian is

.. math:: J(\theta) + \sum_{a,k} \lambda_{a,k} (\mu(D_{G_{a,k}}) - \mu(D_{P_k}))

with signed multipliers, so that no sign of a violation has to be known exactly (see ``docs/privacy.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from justitia.notions import FairnessNotion


@dataclass(frozen=True)
class Problem:
    """Everything public about one training run: rows, labels, weights, and which rows are compared.

    Attributes
    ----------
    X : Tensor (n, p)
    y : Tensor (n,)
        0 or 1.
    weight : Tensor (n,)
        How often a row counts, in the loss and in every mean.
    notion : FairnessNotion
    eta : Tensor (n,), optional
        p(y = 1 | x) by a model that has not learned from the row, where there is one.
    threshold : float
        A positive decision is worth its price where p(y = 1 | x) is above.
    crowd : object, optional
        Everybody, where these rows are a public sample of them; the engine knows what it is.
    """

    X: Tensor
    y: Tensor
    weight: Tensor
    notion: FairnessNotion
    eta: Tensor | None = None
    threshold: float = 0.5
    crowd: Any = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def rows(self) -> int:
        """How many rows the vault is asked about: these, or those that they are a sample of."""
        return len(self) if self.crowd is None else int(self.crowd.n)

    @cached_property
    def events(self) -> Tensor:
        """(n, K): weight of row i in the population term D_P of event k."""
        return self.notion.events(self.y) * self.weight[:, None]

    @cached_property
    def event_sizes(self) -> Tensor:
        """(K,): public total weight of each event."""
        return self.events.double().sum(0)


def population_means(h: Tensor, events: Tensor) -> Tensor:
    """(K,): the paper's mu(D_P), public; 0 for an event without rows."""
    sizes = events.double().sum(0)
    return torch.where(sizes > 0, (events * h[:, None]).double().sum(0) / sizes.clamp_min(1e-12), 0.0)


def centred_rows(h: Tensor, events: Tensor) -> Tensor:
    """(n, K) public rows whose sum over a group is ``|D_G| (mu(D_G) - mu(D_P))``.

    Summing h - mu(D_P) instead of h asks the vault for the violation itself: the answer is zero for a model that
    treats groups alike, and its bound is smaller.
    """
    return events * (h[:, None] - population_means(h, events).to(h.dtype))


def row_bound(rows: Tensor) -> float:
    """Largest Euclidean norm of a public row, a valid bound because the rows are public."""
    norms = rows.norm(dim=1)
    return float(norms[torch.isfinite(norms)].max()) if len(norms) else 0.0


def usable_sizes(noisy_sizes: Tensor, noise_std: float) -> Tensor:
    """Noised sizes kept away from zero by twice their known noise, so that no group divides by chance."""
    return noisy_sizes.clamp_min(max(1.0, 2 * noise_std))


def ascend(lam: Tensor, gap: Tensor, *, step: float, tolerance: float | Tensor, limit: float) -> Tensor:
    r"""Lines 5 and 6 of Algorithm 1 for signed multipliers and the constraint :math:`|gap| \le tolerance`.

    The dual function of that constraint is :math:`\lambda\, gap - tolerance |\lambda|`; one proximal step of size s
    on it adds s * gap, pulls the result towards zero by s * tolerance, and stops at the limit lambda^max.
    """
    return shrink(lam + step * gap, step * tolerance).clamp(-limit, limit)


def shrink(values: Tensor, by: float | Tensor) -> Tensor:
    """Each value pulled towards zero by this much, and not beyond it."""
    return values.sign() * (values.abs() - by).clamp_min(0.0)


def ascend_printed(lam: Tensor, violation: Tensor, *, step: float, limit: float) -> Tensor:
    """Lines 5 and 6 of Algorithm 1 as printed: lambda + s_k * violation, at most lambda^max.

    The noise of Equation 13 can make a violation negative; multipliers stay at or above 0, as the paper asks.
    """
    return (lam + step * violation).clamp(0.0, limit)


def group_weights(lam: Tensor, sizes: Tensor, events: Tensor) -> Tensor:
    """(n, G + 1): omega, the weight of row i's gradient if its person is in group a; 0 for "not given".

    The gradient of sum lambda mu(D_G) is sum_i omega[i, A_i] grad h_i, with noised sizes as denominators.
    """
    omega = events.double() @ (lam / sizes).T
    return torch.cat([omega, torch.zeros(len(omega), 1, dtype=omega.dtype)], dim=1)


def population_weights(lam: Tensor, events: Tensor) -> Tensor:
    """(n,): weight of row i's gradient in sum lambda mu(D_P), which is public."""
    sizes = events.double().sum(0).clamp_min(1e-12)
    return events.double() @ (lam.sum(0) / sizes)


def largest_gap(gap: Tensor) -> float:
    """The paper's violation: largest difference between any two groups, over all events."""
    return float((gap.max(0).values - gap.min(0).values).max())
