"""What randomised answers say about the true groups: the known matrix of the randomisation, inverted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def response_matrix(epsilon: float, categories: int) -> NDArray[np.float64]:
    r"""(c, c): how likely somebody of category a is to answer z.

    .. math:: \Pi_{za} = P(Z = z \mid A = a) = \begin{cases} p = e^\epsilon / (e^\epsilon + c - 1) & z = a \\
              q = 1 / (e^\epsilon + c - 1) & z \ne a. \end{cases}
    """
    p, q = _answer_probabilities(epsilon, categories)
    return (p - q) * np.eye(categories) + q


def inverse_response_matrix(epsilon: float, categories: int) -> NDArray[np.float64]:
    r"""(c, c): :math:`\Pi^{-1} = (I - q 1 1^T) / (p - q)`, in closed form because p + (c - 1) q = 1."""
    p, q = _answer_probabilities(epsilon, categories)
    return (np.eye(categories) - q) / (p - q)


def minority_response_matrix(epsilon: float, minority: int) -> NDArray[np.float64]:
    r"""(2, 2): the same where ``minority`` hides with probability :math:`e^{-\epsilon} / 2` and the other with 1/2."""
    matrix = np.full((2, 2), 0.5)
    matrix[1 - minority, minority] = np.exp(-epsilon) / 2
    matrix[minority, minority] = 1 - matrix[1 - minority, minority]
    return matrix


def _answer_probabilities(epsilon: float, categories: int) -> tuple[float, float]:
    # exp(-epsilon) does not overflow, however generous the budget.
    other = float(np.exp(-epsilon))
    total = 1.0 + (categories - 1) * other
    return 1.0 / total, other / total


def visible_share(epsilon: float, categories: int) -> float:
    """How much of a gap between true groups the randomised ones show, at most: p - q."""
    p, q = _answer_probabilities(epsilon, categories)
    return p - q


def debiased_memberships(codes: NDArray[np.int64], *, categories: int, epsilon: float) -> NDArray[np.float64]:
    r"""(n, c): unbiased estimates of everybody's 1[A_i = a] from randomised answers.

    Row i is the column :math:`Z_i` of :math:`\Pi^{-1}`, so that
    :math:`E[W_{ia} \mid A_i] = \sum_z \Pi^{-1}_{az} \Pi_{z A_i} = 1[A_i = a]`. Sums :math:`\sum_i W_{ia} v_i` of public
    numbers are then unbiased for the sums over the true groups; a single row is far outside [0, 1] and says little.
    """
    memberships: NDArray[np.float64] = inverse_response_matrix(epsilon, categories)[:, codes].T
    return memberships


@dataclass(frozen=True)
class DebiasedGaps:
    """Estimates for each cell (event, group) and each of m classifiers; everything is a function of the answers Z.

    Attributes
    ----------
    gaps : ndarray (cells, m)
        Rate of the group minus rate of the population.
    noise : ndarray (cells, m)
        Upper bound on the standard deviation that the randomisation gives the gap's numerator, over the group's size.
    """

    gaps: NDArray[np.float64]
    noise: NDArray[np.float64]


def debiased_gaps(
    values: NDArray[np.float64],
    events: NDArray[np.float64],
    codes: NDArray[np.int64],
    *,
    n_groups: int,
    categories: int,
    epsilon: float,
) -> DebiasedGaps:
    r"""Gaps of the true groups, estimated from randomised ones.

    With memberships W (see :func:`debiased_memberships`), events :math:`e_{ik}`, values :math:`h_{ij}` and the public
    mean :math:`\mu_{kj}` of an event, the numerator and the size

    .. math:: D_{kaj} = \sum_i e_{ik} W_{ia} (h_{ij} - \mu_{kj}), \qquad M_{ka} = \sum_i e_{ik} W_{ia}

    are unbiased for those of the true groups. One answer has variance at most :math:`v = \max(p(1-p), q(1-q))`, so the
    standard deviation of D is at most :math:`\sqrt{v \sum_i e_{ik} (h_{ij} - \mu_{kj})^2} / (p - q)`, a public number;
    likewise that of M. A size below its own standard deviation is replaced by it: nothing smaller can be seen.

    Parameters
    ----------
    values : ndarray (n, m)
        The notion's h of each row under each classifier.
    events : ndarray (n, K)
    codes : ndarray (n,)
        Randomised answers, 0 to ``categories - 1``; those from ``n_groups`` on are no group.
    """
    memberships = debiased_memberships(codes, categories=categories, epsilon=epsilon)[:, :n_groups]
    p, q = _answer_probabilities(epsilon, categories)
    per_row = np.sqrt(max(p * (1 - p), q * (1 - q))) / (p - q)
    gaps, noise = [], []
    for event in events.T:
        rows = event > 0
        if not rows.any():
            continue
        centred = values[rows] - values[rows].mean(axis=0)
        least = per_row * np.sqrt(rows.sum())
        sizes = memberships[rows].sum(axis=0).clip(min=least)[:, None]
        gaps.append(memberships[rows].T @ centred / sizes)
        noise.append(per_row * np.sqrt((centred**2).sum(axis=0)) / sizes)
    return DebiasedGaps(np.concatenate(gaps), np.concatenate(noise))
