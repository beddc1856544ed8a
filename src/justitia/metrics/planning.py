"""Expected precision of training and measurement, from public numbers, before any privacy budget is spent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.engines import MOMENTS, PF_LD, name_of
from justitia.exceptions import Diagnostic
from justitia.metrics.quantiles import normal_quantile
from justitia.metrics.rates import make_rows, notion_rates
from justitia.notions import FairnessNotion
from justitia.postprocessing.dual import label_table
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.solver import (
    all_releases_stddev,
    default_tolerance,
    noise_warnings,
    rates_stddev,
    sum_stddev,
)
from justitia.privacy.accounting import gaussian_mu
from justitia.training.diagnostics import cell_diagnostics
from justitia.training.lagrangian import row_bound
from justitia.training.method import calibrated

#: Share of decisions that are taken to be right, of either label.
RIGHT = 0.8


@dataclass(frozen=True)
class PublicCounts:
    """Public numbers: rows, positive labels, groups; and the name of the positive label, where a file has it."""

    rows: int
    positives: int
    groups: int
    positive: str | None = None


def _events(counts: PublicCounts, notion: FairnessNotion) -> NDArray[np.float64]:
    """(n, K): which rows are in which event."""
    return notion.events(np.repeat([0.0, 1.0], [counts.rows - counts.positives, counts.positives]))


def _sum_stddev(plan: Any, max_weight: float, groups: int) -> float:
    """Standard deviation of the noise in a group's sum, all releases of a calibrated plan taken together."""
    moments, checks = calibrated(plan.noise_moments), calibrated(plan.noise_checks)
    return all_releases_stddev(moments, checks, plan.checks, (max_weight, max_weight), groups)


def rate_noise(size: int, counts: PublicCounts, plan: Any, notion: FairnessNotion) -> float | None:
    """Standard deviation of the noise in the rate of a group, in the event that has the fewest rows."""
    events = _events(counts, notion)
    rows = max(1.0, size * float(events.mean(0).min()))
    max_weight = row_bound(events)
    if plan.shares_answers:
        return _sum_stddev(plan, max_weight, counts.groups) / rows
    if name_of(plan) == PF_LD and plan.noise_violations is not None:
        return sum_stddev(plan.noise_violations, max_weight, counts.groups) / rows
    return None


def expected_tolerance(counts: PublicCounts, plan: Any, notion: FairnessNotion) -> float | None:
    """The default tolerance, for groups of equal sizes; None for an engine without such a rule.

    Training uses the decisions of the base and noisy sizes instead of :data:`RIGHT` and equal sizes.
    """
    events = _events(counts, notion)
    sizes = np.tile(events.sum(0) / counts.groups, (counts.groups, 1))
    noise = _sum_stddev(plan, row_bound(events), counts.groups) if plan.shares_answers else 0.0
    if name_of(plan) == MOMENTS:
        return float(2 * plan.dead_zone * noise / sizes.min())
    if not isinstance(plan, PostProcessingPlan):
        return None
    return default_tolerance(plan.least, plan.dead_zone, _expected_rates(counts, notion), sizes, noise)


def _expected_rates(counts: PublicCounts, notion: FairnessNotion) -> NDArray[np.float64]:
    """(K,): rates of all rows if :data:`RIGHT` of the decisions are right."""
    by_label, without, change = label_table(notion)
    h = without + change * np.array([1 - RIGHT, RIGHT])
    rows = by_label * np.array([counts.rows - counts.positives, counts.positives], dtype=np.float64)[:, None]
    rates: NDArray[np.float64] = (rows * h[:, None]).sum(0) / rows.sum(0)
    return rates


def expected_upper_bound(
    size: int, counts: PublicCounts, notion: FairnessNotion, epsilon: float, delta: float
) -> float:
    """Upper bound of the violation that 'evaluate' is expected to show at 95% if groups are treated alike.

    The same number of rows is measured, :data:`RIGHT` of the decisions are right, and all other groups are of one size.
    """
    negatives = counts.rows - counts.positives
    wrong = 1 - RIGHT
    totals = np.array([RIGHT * negatives, wrong * negatives, wrong * counts.positives, RIGHT * counts.positives])
    rows = make_rows(notion_rates(notion), totals)
    others = (counts.rows - size) / (counts.groups - 1)
    shares = np.array([size, *[others] * (counts.groups - 1)]) / counts.rows
    variance = 0.0 if math.isinf(epsilon) else 2 / gaussian_mu(epsilon, delta) ** 2
    expected = (shares[:, None] * rows.totals) @ rows.vectors
    _, low, high = rows.read(expected, variance).differences(normal_quantile(0.95))
    return 1.0 if np.isnan(low).any() else float(np.maximum(-low, high).max())


def preflight_warnings(
    counts: PublicCounts, plan: Any, notion: FairnessNotion, tolerance: float | None
) -> list[Diagnostic]:
    """Warnings that training would give before its first release, and about small cells after it."""
    if not plan.shares_answers:
        return []
    events = _events(counts, notion)
    size = float(events.sum(0).min()) / counts.groups
    noise = _sum_stddev(plan, row_bound(events), counts.groups)
    found = noise_warnings(size, noise / size, tolerance or 0.0)
    if found or not isinstance(plan, PostProcessingPlan):
        return found
    sizes = np.tile(events.sum(0) / counts.groups, (counts.groups, 1))
    used = expected_tolerance(counts, plan, notion) if tolerance is None else tolerance
    stddev = rates_stddev(_expected_rates(counts, notion), sizes, noise)
    cell = "the smallest of equal groups"
    return cell_diagnostics(size, cell, used or 0.0, stddev, given=tolerance is not None)
