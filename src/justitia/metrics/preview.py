"""How precisely a violation can be held and measured, from public numbers, before any privacy is spent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.engines import MOMENTS, PF_LD, name_of
from justitia.exceptions import Diagnostic
from justitia.metrics.intervals import marginal_quantile
from justitia.metrics.rates import make_rows, notion_rates
from justitia.notions import FairnessNotion
from justitia.postprocessing.dual import label_table
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.solver import default_tolerance, gap_stddev, noise_warnings, rates_stddev, sum_stddev
from justitia.privacy.accounting import gaussian_mu
from justitia.training.lagrangian import row_bound
from justitia.training.remarks import cell_remark

#: Share of decisions that are taken to be right, of either label.
RIGHT = 0.8


@dataclass(frozen=True)
class Counts:
    """Public numbers: rows, positive answers, groups; and what the positive answer is called, where a file says it."""

    rows: int
    positives: int
    groups: int
    positive: str | None = None

    @property
    def by_label(self) -> NDArray[np.float64]:
        """(2,): rows of either label."""
        return np.array([self.rows - self.positives, self.positives], dtype=np.float64)


def _target(counts: Counts) -> NDArray[np.float64]:
    return np.repeat([0.0, 1.0], [counts.rows - counts.positives, counts.positives])


def rate_noise(size: int, counts: Counts, made: Any, notion: FairnessNotion) -> float | None:
    """Standard deviation of the noise in the rate of a group, in the event that has the fewest rows."""
    events = notion.events(_target(counts))
    share = float(events.mean(0).min())
    heaviest = row_bound(events)
    if made.shares_answers:
        return gap_stddev(made, heaviest, counts.groups) / max(1.0, size * share)
    if name_of(made) == PF_LD and made.noise_violations is not None:
        return sum_stddev(made.noise_violations, heaviest, counts.groups) / max(1.0, size * share)
    return None


def expected_tolerance(counts: Counts, made: Any, notion: FairnessNotion) -> float | None:
    """The tolerance in force where none is given, for groups of equal sizes; None of an engine without such a rule.

    Training puts the base's decisions and noised sizes in the place of :data:`RIGHT` and of equal sizes.
    """
    events = notion.events(_target(counts))
    sizes = np.tile(events.sum(0) / counts.groups, (counts.groups, 1))
    noise = gap_stddev(made, row_bound(events), counts.groups) if made.shares_answers else 0.0
    if name_of(made) == MOMENTS:
        return float(2 * made.dead_zone * noise / sizes.min())
    if not isinstance(made, PostProcessingPlan):
        return None
    return default_tolerance(made, _expected_rates(counts, notion), sizes, noise)


def _expected_rates(counts: Counts, notion: FairnessNotion) -> NDArray[np.float64]:
    """(K,): rates of everybody if :data:`RIGHT` of the decisions are right."""
    by_label, without, change = label_table(notion)
    h = without + change * np.array([1 - RIGHT, RIGHT])
    rows = by_label * counts.by_label[:, None]
    rates: NDArray[np.float64] = (rows * h[:, None]).sum(0) / rows.sum(0)
    return rates


def measured_within(size: int, counts: Counts, notion: FairnessNotion, epsilon: float, delta: float) -> float:
    """Upper bound that 'evaluate' is expected to show at 95% if groups are treated alike.

    As many rows are measured, :data:`RIGHT` of the decisions are right, and all other groups are of one size.
    """
    negatives = counts.rows - counts.positives
    wrong = 1 - RIGHT
    totals = np.array([RIGHT * negatives, wrong * negatives, wrong * counts.positives, RIGHT * counts.positives])
    rows = make_rows(notion_rates(notion), totals)
    others = (counts.rows - size) / (counts.groups - 1)
    shares = np.array([size, *[others] * (counts.groups - 1)]) / counts.rows
    variance = 0.0 if math.isinf(epsilon) else 2 / gaussian_mu(epsilon, delta) ** 2
    expected = (shares[:, None] * rows.totals) @ rows.vectors
    _, low, high = rows.read(expected, variance).differences(marginal_quantile(0.95))
    return 1.0 if np.isnan(low).any() else float(np.maximum(-low, high).max())


def outlook(counts: Counts, made: Any, notion: FairnessNotion, tolerance: float | None) -> list[Diagnostic]:
    """What training would say before it asks anything, and of small cells after it."""
    if not made.shares_answers:
        return []
    events = notion.events(_target(counts))
    size, noise = (
        float(events.sum(0).min()) / counts.groups,
        gap_stddev(made, row_bound(events), counts.groups),
    )
    said = noise_warnings(size, noise / size, tolerance or 0.0)
    if said or not isinstance(made, PostProcessingPlan):
        return said
    sizes = np.tile(events.sum(0) / counts.groups, (counts.groups, 1))
    allowed = expected_tolerance(counts, made, notion) if tolerance is None else tolerance
    spread = rates_stddev(_expected_rates(counts, notion), sizes, noise)
    cell = "the smallest of equal groups"
    return cell_remark(size, cell, allowed or 0.0, spread, given=tolerance is not None)
