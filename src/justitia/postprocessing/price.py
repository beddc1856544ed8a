"""The price list: quality against violation along a grid of tolerances, from answers that were released already.

Memberships and checks do not depend on the tolerance, so each further tolerance is one convex problem on the sample,
and the whole list costs no privacy. Every row is about the exact correction, as the last row of the history is: quality
is public and out of fold, the violation is estimated from memberships and all checks.

The checks were about the deployed decisions. How far they have corrected the memberships need not be right for others,
so that amount is part of the standard error of a row, in proportion to how far its decisions are from the deployed
ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
from numpy.typing import NDArray

Array = NDArray[Any]
#: Tolerances that are priced, of rates between 0 and 1; those that the uncorrected base meets are left out.
TOLERANCES = (
    *(0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.12, 0.1, 0.08, 0.06),
    *(0.05, 0.04, 0.03, 0.025, 0.02, 0.015, 0.01, 0.005, 0.0),
)
#: The same where one point is many problems: of levels of scores, of classes, or of a search; and of levels of numbers.
FEW_TOLERANCES, FEWEST_TOLERANCES = (0.4, 0.2, 0.1, 0.05, 0.02, 0.0), (0.2, 0.05, 0.0)


@dataclass(frozen=True, eq=False)
class PricedPoints:
    """The uncorrected base and the grid, which the runs of a curve share.

    Attributes
    ----------
    rows : tuple of dict
        The base first, then the loosest tolerance.
    checked, base : ndarray (n,) or (n, K)
        Scores that the checks were about, and those of the base.
    """

    rows: tuple[dict[str, Any], ...]
    checked: Array
    base: Array


def price_sentence(model: Any) -> str:
    """What the correction of a fitted model costs, with a looser tolerance beside it; empty where that is not released.

    Without privacy violations are exact, and nobody is shown them.
    """
    table: pd.DataFrame | None = getattr(model, "price_", None)
    if table is None or not math.isfinite(model.certificate_.epsilon):
        return ""
    base, deployed = table.iloc[0], table[table["deployed"]].iloc[0]
    shares = getattr(model, "notion", None) not in ("mean_parity", "equal_error")
    if not deployed["corrected"]:
        return f"the base is within the tolerance: {_point(base, shares=shares)}; nothing is corrected"
    found = f"uncorrected {_point(base, shares=shares)} -> corrected {_point(deployed, shares=shares)}"
    looser = table[table["tolerance"] >= 2 * deployed["tolerance"]]
    if deployed["tolerance"] > 0 and len(looser):
        found += f"; at tolerance {looser.iloc[-1]['tolerance']:g}: {_point(looser.iloc[-1], shares=shares)}"
    return found


def _point(row: pd.Series[Any], *, shares: bool) -> str:
    """Quality and gap of one row."""
    quality = f"{row['accuracy']:.3f}" if "accuracy" in row else f"R2 {row['r2']:.3f}"
    if shares:
        return f"{quality}, gap {100 * row['violation']:.1f} +- {100 * row['violation_stderr']:.1f} points"
    return f"{quality}, gap {row['violation']:.3g} +- {row['violation_stderr']:.2g}"
