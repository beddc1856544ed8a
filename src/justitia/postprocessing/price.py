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
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol, Self

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


class PricedRun(Protocol):
    """What the price list needs of a run that has been trained: its points, and how good and how alike they are."""

    @property
    def corrects(self) -> bool:
        """Whether anything is corrected."""

    @property
    def listed_tolerance(self) -> float:
        """The tolerance in force."""

    def scores(self) -> Array:
        """Corrected scores of the sample."""

    def base_scores(self) -> Array:
        """Uncorrected scores of the sample."""

    def priced_tolerances(self) -> Sequence[float]:
        """Tolerances of the list, the loosest first."""

    def solved_at(self, tolerance: float, start: Array | None) -> tuple[Self, Array]:
        """A run on the same answers with this tolerance, and its multipliers."""

    def quality(self, scores: Array) -> dict[str, float]:
        """How good scores are, by public targets."""

    def estimated_violation(self, scores: Array) -> tuple[float, float]:
        """By memberships and checks, and by memberships alone."""

    def violation_stddev(self) -> float:
        """Noise and sampling error of a violation."""

    def distance_between(self, scores: Array, others: Array) -> float:
        """How much decisions of the sample differ."""


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

    @classmethod
    def from_run(cls, run: PricedRun) -> PricedPoints:
        """Solve every point of a run that has been trained."""
        empty = cls((), run.scores(), run.base_scores())
        rows = [empty.row(run, empty.base, math.nan, corrected=False)]
        point, lam = run, None
        for tolerance in run.priced_tolerances():
            point, lam = point.solved_at(tolerance, lam)
            if point.corrects:
                rows.append(empty.row(point, point.scores(), tolerance, corrected=True))
        return cls(tuple(rows), empty.checked, empty.base)

    def row(self, run: PricedRun, scores: Array, tolerance: float, *, corrected: bool) -> dict[str, Any]:
        """One row of the list."""
        violation, unchecked = run.estimated_violation(scores)
        apart = run.distance_between(scores, self.checked)
        if apart:
            apart = min(1.0, apart / max(run.distance_between(self.base, self.checked), 1e-12))
        return {
            "tolerance": tolerance,
            **run.quality(scores),
            "violation": violation,
            "violation_stderr": math.hypot(run.violation_stddev(), apart * (violation - unchecked)),
            "corrected": corrected,
            "deployed": False,
        }

    def table(self, run: PricedRun) -> pd.DataFrame:
        """The list with the tolerance in force of this run."""
        deployed = self.row(run, run.scores(), run.listed_tolerance, corrected=run.corrects) | {"deployed": True}
        others = [one for one in self.rows[1:] if one["tolerance"] != deployed["tolerance"]]
        corrected = sorted([*others, deployed], key=itemgetter("tolerance"), reverse=True)
        return pd.DataFrame([self.rows[0], *corrected])


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
