r"""DP-FERMI (Lowy, Gupta and Razaviyayn 2023): loss plus exponential Renyi mutual information, as a min-max problem.

For each event, with the one-hot random decision :math:`\hat y`, the one-hot group s (zero if not given) and the
diagonal matrices :math:`P_{\hat y} = E[\hat y \hat y^T]` and :math:`P_s`,

.. math:: \Psi(W) = -\mathrm{Tr}(W P_{\hat y} W^T) + 2\,\mathrm{Tr}(W E[\hat y s^T] P_s^{-1/2}) - 1.

Its maximum over W is :math:`\sum_{a,j} P(a,j)^2 / (P(a) P(j)) - 1`, the exponential Renyi mutual information of
decision and group (Lowy et al. 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.func import grad

from bench.rivals.descent import DescentClassifier, DescentEngine, DescentPlan
from justitia._validate import check_nonnegative
from justitia.privacy.interface import Vault
from justitia.training.lagrangian import Problem, population_weights
from justitia.training.method import Array


def psi(W: Tensor, rates: Tensor, population: Tensor, shares: Tensor) -> Tensor:
    r"""Sum over the events of :math:`\Psi`, from rates of two-valued decisions.

    Parameters
    ----------
    W : Tensor (G, K, 2)
        One matrix per event; the last axis is the decision, 0 and 1.
    rates : Tensor (G, K)
        P(decision 1 | group a, event k).
    population : Tensor (K,)
        P(decision 1 | event k), over everybody.
    shares : Tensor (G, K)
        P(group a | event k); they add up to less than 1 if some attributes are not given.
    """
    decided = torch.stack([1 - population, population], dim=-1)
    joint = shares[..., None] * torch.stack([1 - rates, rates], dim=-1)
    quadratic = (W.square() * decided).sum((0, 2))
    linear = (W * joint / shares[..., None].sqrt()).sum((0, 2))
    return (2 * linear - quadratic - 1).sum()


def ascend_matrix(W: Tensor, rates: Tensor, population: Tensor, shares: Tensor, *, step: float) -> Tensor:
    r"""One step of projected gradient ascent on :math:`\Psi`.

    The maximiser is :math:`P(a | j) / \sqrt{P(a)}`, so the projection is onto :math:`[0, P(a)^{-1/2}]`.
    """
    (gradient,) = grad(psi, argnums=(0,))(W, rates, population, shares)
    raised: Tensor = W + step * gradient
    return raised.clamp_min(0.0).minimum(shares[..., None].rsqrt())


def slopes(W: Tensor, rates: Tensor, population: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    r"""(G, K) and (K,): derivatives of :math:`\Psi` by the groups' rates and by the population's."""
    by_rates, by_population = grad(psi, argnums=(1, 2))(W, rates, population, shares)
    return by_rates, by_population


@dataclass(frozen=True, kw_only=True)
class FermiPlan(DescentPlan):
    """Group sizes once; a cross term and a group gradient per round.

    Parameters
    ----------
    strength : float
        Of the regulariser, lambda of the authors: the trade-off; 0 is plain training.
    dual_step : float
        Step size on W; Psi is concave in W with curvature at most 2, so 0.5 is stable.
    """

    table: ClassVar[str] = "cross term"

    strength: float = 1.0
    dual_step: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nonnegative("strength", self.strength)


class FermiEngine(DescentEngine):
    """Ascends on W with the noised cross term; the slopes of Psi are the weights of the groups' means."""

    plan: FermiPlan

    def __init__(self, plan: FermiPlan, problem: Problem, vault: Vault, **public: Any) -> None:
        super().__init__(plan, problem, vault, **public)
        self._W: Tensor | None = None
        self._by_population: Array = np.zeros(len(problem.event_sizes))

    def ascend(self, _lam: Array, gap: Array, k: int) -> Array:
        """One step on W; then strength times the slope of Psi by each group's mean."""
        rates = torch.from_numpy(np.clip(self.population + gap, 0.0, 1.0))
        shares = torch.from_numpy(self.sizes / self.problem.event_sizes)
        point = (rates, torch.from_numpy(self.population), shares)
        # Where decision and group are independent, this is the maximiser.
        W = shares.sqrt()[..., None].expand(-1, -1, 2) if self._W is None else self._W
        self._W = ascend_matrix(W, *point, step=self.plan.dual_step_at(k))
        by_rates, by_population = slopes(self._W, *point)
        self._by_population = self.plan.strength * by_population.numpy()
        raised: Array = self.plan.strength * by_rates.numpy()
        return raised

    def row_weights(self, lam: Array, batch: Tensor) -> Tensor | None:
        """Weights of the public part: the slope of Psi by the population's mean.

        The noised gradient is that of sum lambda (mu(D_G) - mu(D_P)), so its population part is taken back as well.
        """
        weights = population_weights((self._by_population + lam.sum(0))[None], self.problem.events)
        return torch.from_numpy(weights[batch.numpy()])


class FermiClassifier(DescentClassifier):
    r"""DP-FERMI: minimises loss + strength * exponential Renyi mutual information of decision and group.

    Stochastic gradient descent-ascent on :math:`\min_\theta \max_W J(\theta) + \mathit{strength}\, \Psi(\theta, W)`,
    see :mod:`bench.rivals.fermi`; private in the attribute alone. The attribute enters through group sizes
    (:math:`P_s`, once), the cross term :math:`\sum_i s_i F_i^T` of each round (for W) and the gradient
    :math:`\sum_i \omega_{i, A_i} \nabla F_i` of each round (for the weights); everything else is public and exact.

    Notions that condition on the label have one W for each event. For accuracy parity F holds the probabilities of a
    correct and of a wrong decision; that case is our extension, the authors treat the others. One noised gradient
    steers several public steps: our adaptation, in the method's favour, since the authors noise every step.
    Parameters, attributes and guarantee: :class:`~bench.rivals.descent.DescentClassifier`; ``dual_`` is strength
    times the last slope of Psi by each group's mean.

    Notes
    -----
    People whose attribute is not given belong to no group and count in the population, whose distribution of decisions
    is public. With r the share of the others, max Psi is then r - 1 where every group decides like the population, and
    larger elsewhere.
    """

    plan_kind = FermiPlan
    engine_kind = FermiEngine
