r"""RaCO-DP (Yaghini et al. 2025): rate constraints by descent-ascent, with rates from a noised histogram of decisions.

For each event k, group a and decision :math:`c \in \{0, 1\}` the constraint compares the group with all other groups,

.. math:: \Gamma_{c,a,k} = P(\hat y = c \mid a, k) - P(\hat y = c \mid \text{not } a, k) \le \gamma,

with multipliers :math:`\lambda_{c,a,k} \ge 0` in a ball. For two-valued decisions :math:`\Gamma_0 = -\Gamma_1`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from bench.rivals.descent import DescentClassifier, DescentEngine, DescentPlan
from justitia._validate import check_choice, check_nonnegative
from justitia.privacy.interface import Vault
from justitia.training.lagrangian import Problem
from justitia.training.method import Array

DECISIONS = ("soft", "hard")


def contrasts(sizes: Array) -> Array:
    """(K, G, G): matrix whose product with the groups' rates is each group's rate minus that of all other groups.

    A single group has no others; its row then takes the group's gap to the population as it is.

    Parameters
    ----------
    sizes : ndarray (G, K)
        Above 0.
    """
    own = np.eye(len(sizes))
    others: Array = sizes.T[:, None, :] * (1 - own)
    compare: Array = own - others / np.maximum(others.sum(2, keepdims=True), 1e-12)
    return compare


def ascend_multipliers(multipliers: Array, gamma: Array, *, slack: float, step: float, radius: float) -> Array:
    """One step of dual ascent, projected onto the non-negative part of a ball.

    Parameters
    ----------
    multipliers, gamma : ndarray (2, G, K)
        One entry per constraint ``gamma <= slack``.
    radius : float
        Of the Euclidean ball around 0 that holds all multipliers.
    """
    raised: Array = np.maximum(multipliers + step * (gamma - slack), 0.0)
    return raised * min(1.0, radius / max(float(np.linalg.norm(raised)), 1e-12))


@dataclass(frozen=True, kw_only=True)
class HistogramPlan(DescentPlan):
    """Group sizes once; a histogram of decisions and a group gradient per round.

    Parameters
    ----------
    slack : float
        The allowed gap between a group and all others, gamma of the authors: the trade-off.
    decisions : {"soft", "hard"}
        What the histogram counts.
    lambda_max : float
        Radius of the ball that holds all multipliers.
    """

    table: ClassVar[str] = "histogram of decisions"

    slack: float = 0.01
    decisions: Literal["soft", "hard"] = "soft"
    dual_step: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nonnegative("slack", self.slack)
        check_choice("decisions", self.decisions, DECISIONS)


class HistogramEngine(DescentEngine):
    """Multipliers ascend on rates of the noised histogram; the weights of the groups' means follow from both."""

    plan: HistogramPlan

    def __init__(self, plan: HistogramPlan, problem: Problem, vault: Vault, **public: Any) -> None:
        super().__init__(plan, problem, vault, **public)
        self.hard = plan.decisions == "hard"
        self._multipliers = np.zeros((2, vault.n_groups, len(problem.event_sizes)))

    def ascend(self, _lam: Array, gap: Array, k: int) -> Array:
        """One dual step; then the derivative of the Lagrangian by each group's mean."""
        compare = contrasts(self.sizes)
        gamma = np.einsum("kab,bk->ak", compare, gap)
        self._multipliers = ascend_multipliers(
            self._multipliers,
            np.stack([-gamma, gamma]),
            slack=self.plan.slack,
            step=self.plan.dual_step_at(k),
            radius=self.plan.lambda_max,
        )
        slope: Array = np.einsum("kab,ak->bk", compare, self._multipliers[1] - self._multipliers[0])
        return slope


class HistogramClassifier(DescentClassifier):
    r"""RaCO-DP: every group's rate of each decision within ``slack`` of the other groups' rate.

    Stochastic gradient descent-ascent on the Lagrangian of the constraints in :mod:`bench.rivals.histogram`;
    private in the attribute alone, where the authors protect whole records. In every round a histogram of decisions by
    group is released with noise, the multipliers ascend on its rates, and the weights descend along the loss's public
    gradient plus the noised sum of per-row gradients :math:`\sum_i \omega_{i, A_i} \nabla h_i`, whose weights are
    functions of noised answers only.

    Accuracy parity has histograms of correct and wrong decisions. Parameters, attributes and guarantee:
    :class:`~bench.rivals.descent.DescentClassifier`; ``dual_`` is the last derivative of the Lagrangian by each
    group's mean.

    Notes
    -----
    The denominators of all rates are group sizes, noised once (the authors' histograms also allow to sum them up anew
    in every step). Noise is Gaussian for histograms too, where the authors use Laplace noise, so that one accountant
    composes everything exactly. People whose attribute is not given are in no group and in no constraint.
    """

    plan_kind = HistogramPlan
    engine_kind = HistogramEngine
