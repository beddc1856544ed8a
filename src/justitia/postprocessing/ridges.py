r"""How firmly each weight of the memberships is held at 0: columns whose noised sums say nothing are held harder.

With d columns and noise alone the largest of d standardised sums is about :math:`\sqrt{2 \log d}` (the universal
threshold of Donoho and Johnstone, 1994). A column below it may matter; its weight is drawn towards 0 the more firmly
the more of them there are. Without this the noise of a hundred idle columns adds up, and decides about people near the
line. Everything here is computed from public rows and noised sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Ridge without noise: without one memberships are too sure, and their correction is hard to learn.
LEAST_RIDGE = 1.0
#: Ridge of a column that tells nothing, for each of them, as a share of the variance of the noise: the more there are,
#: the less each can matter. Inner splits of four data sets, and wide data: ``docs/plugin.md``.
IDLE = 0.02


def ridges(
    sums: Array, total: Array, rows: NDArray[Any], constant: NDArray[np.int64], n: int, spread: float, share: float
) -> Array:
    """(d,): the ridge of each column.

    Parameters
    ----------
    sums : ndarray (G, d)
        Noised sums over each group.
    total : ndarray (d,)
        Of everybody.
    rows : ndarray (m, d)
        Public rows of a sample.
    constant : ndarray of int (d,)
        Position of the column that is constant where this one is not 0.
    n : int
        Number of rows of everybody.
    spread : float
        Standard deviation of the noise of a sum.
    share : float
        Ridge of a column that tells, as a share of the variance of the noise.
    """
    mean = total / np.maximum(total[constant], 1e-12)
    wide = rows.astype(np.float64)
    squares = np.square(wide - wide[:, constant] * mean).sum(0) * n / len(rows)
    part = np.clip(sums[:, constant] / np.maximum(total[constant], 1e-12), 0.0, 1.0)
    chance = part * (1 - part) * squares + spread**2 * (1 + mean**2)
    statistic = (np.square(sums - sums[:, constant] * mean) / np.maximum(chance, 1e-12)).max(0)
    tells = (statistic > 2 * math.log(len(total))) | (constant == np.arange(len(total)))
    idle = max(share, IDLE * int((~tells).sum()))
    return np.maximum(np.where(tells, share, idle) * spread**2, LEAST_RIDGE)
