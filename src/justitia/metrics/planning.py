"""Expected precision of training and measurement, from public numbers, before any privacy budget is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.engines import MOMENTS, PF_LD, name_of
from justitia.exceptions import Diagnostic
from justitia.goals import Goal
from justitia.metrics.means import NUMBER_NOTIONS, NumberQuery
from justitia.metrics.quantiles import normal_quantile
from justitia.metrics.rates import METRICS, RateMetric, class_metric_of, class_metrics, make_rows, notion_rates
from justitia.notions import RateTable, get_notion, get_notions
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.prefix_sums import even_bounds
from justitia.postprocessing.run import all_releases_stddev, noise_warnings, sum_stddev
from justitia.postprocessing.solver import default_tolerance, rates_stddev
from justitia.privacy.accounting import gaussian_mu
from justitia.training.diagnostics import cell_diagnostics
from justitia.training.lagrangian import row_bound
from justitia.training.plan import calibrated

#: Share of decisions that are taken to be right, of either label.
RIGHT = 0.8
#: Levels at which a measurement compares distributions.
LEVELS = 20


@dataclass(frozen=True)
class PublicCounts:
    """Public numbers: rows, positive labels, groups; and the name of the positive label, where a file has it.

    Of several classes, ``by_class`` has the rows of each, and ``positives`` is 0; of numbers both are empty.
    """

    rows: int
    positives: int
    groups: int
    positive: str | None = None
    by_class: tuple[int, ...] = ()
    classes: tuple[Any, ...] = ()

    @classmethod
    def of_classes(cls, by_class: Sequence[int], groups: int, classes: Sequence[Any]) -> PublicCounts:
        """Of the rows of each class; of two, the second is the positive one."""
        if len(by_class) == 2:
            return cls(sum(by_class), by_class[1], groups, str(classes[1]))
        return cls(sum(by_class), 0, groups, None, tuple(by_class), tuple(classes))

    @property
    def labels(self) -> NDArray[np.float64]:
        """(Y,): rows of each label."""
        return np.array(self.by_class or (self.rows - self.positives, self.positives), dtype=np.float64)


def _rates(counts: PublicCounts, notion: Any) -> tuple[RateTable, NDArray[np.float64], float]:
    """The K rates that one or several notions compare, (K,) rows in their events, and the longest row of all rates."""
    table = Goal.from_notions(get_notions(notion), counts.classes or (0, 1)).table
    longest = row_bound((table.events[:, None] * table.values).reshape(-1, len(table.names)))
    return table, counts.labels @ table.events, longest


def _sum_stddev(plan: Any, max_weight: float, groups: int) -> float:
    """Standard deviation of the noise in a group's sum, all releases of a calibrated plan taken together."""
    moments, checks = calibrated(plan.noise_moments), calibrated(plan.noise_checks)
    return all_releases_stddev(moments, checks, plan.checks, (max_weight, max_weight), groups)


def rate_noise(size: int, counts: PublicCounts, plan: Any, notion: Any) -> float | None:
    """Standard deviation of the noise in the rate of a group, in the event that has the fewest rows."""
    _, sizes, max_weight = _rates(counts, notion)
    rows = max(1.0, size * float(sizes.min()) / counts.rows)
    if plan.shares_answers:
        return _sum_stddev(plan, max_weight, counts.groups) / rows
    if name_of(plan) == PF_LD and plan.noise_violations is not None:
        return sum_stddev(plan.noise_violations, max_weight, counts.groups) / rows
    return None


def expected_tolerance(counts: PublicCounts, plan: Any, notion: Any) -> float | None:
    """The default tolerance, for groups of equal sizes; None for an engine without such a rule.

    Training uses the decisions of the base and noisy sizes instead of :data:`RIGHT` and equal sizes.
    """
    _, sizes, max_weight = _rates(counts, notion)
    sizes = np.tile(sizes / counts.groups, (counts.groups, 1))
    noise = _sum_stddev(plan, max_weight, counts.groups) if plan.shares_answers else 0.0
    if name_of(plan) == MOMENTS:
        return float(2 * plan.dead_zone * noise / sizes.min())
    if not isinstance(plan, PostProcessingPlan):
        return None
    return default_tolerance(plan.least, plan.dead_zone, _expected_rates(counts, notion), sizes, noise)


def _decided(labels: int) -> NDArray[np.float64]:
    """(Y, Y): share of each decision by label if :data:`RIGHT` of them are right and the others are spread evenly."""
    right = np.eye(labels)
    return RIGHT * right + (1 - RIGHT) / (labels - 1) * (1 - right)


def _expected_rates(counts: PublicCounts, notion: Any) -> NDArray[np.float64]:
    """(K,): rates of all rows if :data:`RIGHT` of the decisions are right."""
    table, _, _ = _rates(counts, notion)
    h = (_decided(len(counts.labels))[:, :, None] * table.values).sum(1)
    rows = table.events * counts.labels[:, None]
    rates: NDArray[np.float64] = (rows * h).sum(0) / np.maximum(rows.sum(0), 1e-12)
    return rates


def measured_rates(counts: PublicCounts, notion: Any) -> list[RateMetric]:
    """Rates that a measurement of these notions compares; within strata, those of all rows."""
    known = class_metrics(counts.classes, *[np.arange(len(counts.classes))] * 2) if counts.classes else {}
    found: list[RateMetric] = []
    for one in get_notions(notion):
        name = "demographic_parity" if one.within_strata else one.name
        if counts.classes:
            rates = known[class_metric_of(name)[1]]
        else:
            rates = (METRICS["precision_score"],) if one.is_fraction else notion_rates(get_notion(name))
        found += [rate for rate in rates if rate not in found]
    return found


def expected_upper_bounds(
    sizes: Sequence[int], counts: PublicCounts, notion: Any, epsilon: float, delta: float
) -> list[float]:
    """Upper bound of the violation that 'evaluate' is expected to show at 95% if groups are treated alike.

    One for each size of a group. The same number of rows is measured, :data:`RIGHT` of the decisions are right, and all
    other groups are of one size.
    """
    totals = (counts.labels[:, None] * _decided(len(counts.labels))).ravel()
    rows = make_rows(measured_rates(counts, notion), totals)
    found = []
    for size in sizes:
        expected = (_shares(size, counts)[:, None] * rows.totals) @ rows.vectors
        _, low, high = rows.read(expected, _variance(epsilon, delta)).differences(normal_quantile(0.95))
        found.append(1.0 if np.isnan(low).any() else float(np.maximum(-low, high).max()))
    return found


#: A measurement shows a limit in four of five repetitions if the gap is this many standard errors below what would
#: show it in every second one: the 80% quantile of the normal distribution.
POWER = 0.8416
#: One-sided bounds hold at 95%: so many standard errors.
ONE_SIDED = 1.6449


def tolerance_for_limit(
    limit: float, rows: int, counts: PublicCounts, notion: Any, epsilon: float, delta: float
) -> float | None:
    """Largest gap for which a measurement is expected to show, 4 times out of 5, that the limit is met.

    None if even a gap of 0 would not do. Groups are of equal sizes, the one-sided bound holds at 95%, and the shares of
    labels are those of ``counts``.

    Parameters
    ----------
    rows : int
        Of the measurement.
    epsilon, delta : float
        Its budget.
    """
    by_class = np.maximum(1, np.rint(counts.labels * rows / counts.rows)).astype(int).tolist()
    measured = PublicCounts.of_classes(by_class, counts.groups, counts.classes or (0, 1))
    bound = expected_upper_bounds([measured.rows // counts.groups], measured, notion, epsilon, delta)[0]
    most = limit - bound * (1 + POWER / ONE_SIDED)
    return math.floor(most * 1000) / 1000 if most >= 0.001 else None


def _shares(size: int, counts: PublicCounts) -> NDArray[np.float64]:
    """(G,): share of all rows of each group, the first of this size."""
    others = (counts.rows - size) / (counts.groups - 1)
    return np.array([size, *[others] * (counts.groups - 1)]) / counts.rows


def _variance(epsilon: float, delta: float) -> float:
    return 0.0 if math.isinf(epsilon) else 2 / gaussian_mu(epsilon, delta) ** 2


# -- Numbers


def number_noise(size: int, counts: PublicCounts, plan: PostProcessingPlan, notion: str) -> float:
    """Standard deviation of the noise in a group's share above a level, or in its mean as a share of the range."""
    moments, checks = calibrated(plan.noise_moments), calibrated(plan.noise_checks)
    if notion == "demographic_parity":
        bounds = (1.0, math.prod(even_bounds(plan.levels)))
        return all_releases_stddev(moments, checks, plan.checks, bounds, counts.groups) / size
    noise, times = (checks, plan.checks) if plan.checks else (moments, 1)
    return sum_stddev(noise, 1.0, counts.groups) / math.sqrt(times) / size


def number_upper_bounds(
    sizes: Sequence[int], counts: PublicCounts, notion: str, epsilon: float, delta: float
) -> list[float]:
    """As :func:`expected_upper_bounds`, of predictions that are spread evenly over their range.

    Of means and mean squared errors it is a share of their range.
    """
    n = counts.rows
    even = (np.arange(n) + 0.5) / n
    query = NumberQuery.from_rows({notion: NUMBER_NOTIONS[notion]}, np.roll(even, n // 2), even, LEVELS)
    total = query.values().sum(0)
    found = []
    for size in sizes:
        noisy = query.results(_shares(size, counts)[:, None] * total, _variance(epsilon, delta))
        if notion == "demographic_parity":
            bound = float(noisy["noisy_distribution"].largest_distance(0.95)[2])
        else:
            _, low, high = noisy["noisy"].differences(normal_quantile(0.95))
            bound = 1.0 if np.isnan(low).any() else float(np.maximum(-low, high).max())
        found.append(min(1.0, bound))
    return found


def preflight_warnings(counts: PublicCounts, plan: Any, notion: Any, tolerance: float | None) -> list[Diagnostic]:
    """Warnings that training would give before its first release, and about small cells after it."""
    if not plan.shares_answers:
        return []
    _, sizes, max_weight = _rates(counts, notion)
    size, noise = float(sizes.min()) / counts.groups, _sum_stddev(plan, max_weight, counts.groups)
    found = noise_warnings(size, noise / size, tolerance or 0.0)
    if found or not isinstance(plan, PostProcessingPlan):
        return found
    sizes = np.tile(sizes / counts.groups, (counts.groups, 1))
    used = expected_tolerance(counts, plan, notion) if tolerance is None else tolerance
    stddev = rates_stddev(_expected_rates(counts, notion), sizes, noise)
    cell = "the smallest of equal groups"
    return cell_diagnostics(size, cell, used or 0.0, stddev, given=tolerance is not None)
