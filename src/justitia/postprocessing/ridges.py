r"""How firmly each weight of the memberships is held at 0: columns whose noised sums say nothing are held harder.

With d columns and noise alone the largest of d standardised sums is about :math:`\sqrt{2 \log d}` (the universal
threshold of Donoho and Johnstone, 1994). A column below it may matter; its weight is drawn towards 0 the more firmly
the more of them there are. Without this the noise of a hundred idle columns adds up, and decides about people near the
line. Everything here is computed from public rows and noised sums.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Ridge without noise: without one memberships are too sure, and their correction is hard to learn.
LEAST_RIDGE = 1.0
#: Ridge of a column that tells nothing, for each of them, as a share of the variance of the noise: the more there are,
#: the less each can matter. Inner splits of four data sets, and wide data: ``docs/plugin.md``.
IDLE = 0.02


def ridges(sums: Tensor, total: Tensor, rows: Tensor, constant: Tensor, n: int, spread: float, share: float) -> Tensor:
    """(d,): the ridge of each column.

    Parameters
    ----------
    sums : Tensor (G, d)
        Noised sums over each group.
    total : Tensor (d,)
        Of everybody.
    rows : Tensor (m, d)
        Public rows of a sample.
    constant : Tensor (d,)
        Position of the column that is constant where this one is not 0.
    n : int
        Number of rows of everybody.
    spread : float
        Standard deviation of the noise of a sum.
    share : float
        Ridge of a column that tells, as a share of the variance of the noise.
    """
    mean = total / total[constant].clamp_min(1e-12)
    rest = rows.double() - rows.double()[:, constant] * mean
    squares = rest.square().sum(0) * n / len(rows)
    part = (sums[:, constant] / total[constant].clamp_min(1e-12)).clamp(0.0, 1.0)
    chance = part * (1 - part) * squares + spread**2 * (1 + mean.square())
    told = ((sums - sums[:, constant] * mean).square() / chance.clamp_min(1e-12)).amax(0)
    tells = (told > 2 * math.log(len(total))) | (constant == torch.arange(len(total)))
    ridge = torch.full_like(total, share * spread**2)
    ridge[~tells] = max(share, IDLE * int((~tells).sum())) * spread**2
    return ridge.clamp_min(LEAST_RIDGE)
