r"""Theorems 6 and 7: expected error of the noised gradient and violation, and the clipping bounds that minimise them.

Both bounds have the form noise * C + sum_i w_i max(0, x_i - C): convex and piecewise linear in C. Noise grows with the
bound, bias falls with it. The published forms take exact group sizes and group means; ``auto`` bounds use public
quantities only: the norms of all rows (X, Y and the weights are public) and noised sizes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def primal_error_bound(
    C_p: float,
    *,
    gradient_norms: list[Tensor],
    multipliers: Tensor,
    parameters: int,
    sigma_p: float,
    lambda_max: float,
    smallest_group: int,
) -> float:
    r"""Theorem 6 as published: bound on :math:`E\|G - \tilde G\|`.

    .. math:: \frac{2 \sqrt{S} \sigma_p \lambda^{max} C_p}{\min_i |B_{G_i}| - 1}
              + \sum_i \lambda_i \hat E_{z \sim B_{G_i}} [\max(0, \|\nabla h(z)\| - C_p)]

    Parameters
    ----------
    gradient_norms : list of Tensor
        Norms of grad h over each group term B_G_i.
    multipliers : Tensor
        lambda_i, one per group term.
    """
    noise = _over_size(2 * math.sqrt(parameters) * sigma_p * lambda_max * C_p, smallest_group)
    return noise + sum(
        float(lam) * _mean_excess(norms, C_p) for lam, norms in zip(multipliers, gradient_norms, strict=True)
    )


def dual_error_bound(C_d: float, *, values: Tensor, sigma_d: float, smallest_group: int) -> float:
    r"""Theorem 7 as published: bound on :math:`E|V_i - \tilde V_i|` for one constraint.

    .. math:: \frac{\sqrt 2 C_d \sigma_d}{\min_i |D_{G_i}| - 1} + \hat E_{z \sim D_{G_i}} [\max(0, |h(z)| - C_d)]
    """
    return _over_size(math.sqrt(2) * C_d * sigma_d, smallest_group) + _mean_excess(values.abs(), C_d)


def minimise_error_bound(sizes: Tensor, weights: Tensor, noise_slope: float) -> float:
    r"""The C that minimises ``noise_slope * C + sum_i weights_i * max(0, sizes_i - C)``.

    Its derivative is noise_slope minus the weight of all rows above C (the condition after Theorem 6), so the
    minimiser is a weighted quantile of the sizes.

    Parameters
    ----------
    sizes : Tensor (n,)
        Gradient norms for C_p, |h| for C_d.
    weights : Tensor (n,)
        How much the excess of row i counts.
    noise_slope : float
        Growth of the noise term with C.
    """
    order = torch.argsort(sizes, descending=True)
    above = weights[order].cumsum(0)
    reached = torch.nonzero(above >= noise_slope)
    return float(sizes[order[reached[0, 0]]]) if len(reached) else 0.0


def _mean_excess(values: Tensor, bound: float) -> float:
    return float((values - bound).clamp_min(0.0).mean()) if len(values) else 0.0


def _over_size(value: float, size: int) -> float:
    """Quotient value / (size - 1), infinite where the published theorems divide by zero or less."""
    return value / (size - 1) if size > 1 else math.inf
