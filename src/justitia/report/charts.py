"""Charts of a report as inline SVG: rates, violations, trade-off, history, budget, calibration, impact, scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from justitia.metrics.means import NUMBER_METRICS
from justitia.report import svg
from justitia.report.contents import Spending
from justitia.report.formatting import (
    UNITS,
    bounds,
    known,
    number,
    percent,
    percent_bounds,
    plain_name,
    points,
    rate_name,
)
from justitia.report.inputs import Curve, GroupRate, LargestDifference, MeasurementInput, PricePoint
from justitia.report.svg import LETTER, WIDTH, Chart, Mark, Scale
from justitia.training.history import Column

#: Height of one row of a chart with rows, the room for its names at the left, and for numbers at the right.
ROW, NAMES, RIGHT = 30.0, 136.0, 18.0
#: Room of an axis with its title below a chart.
AXIS = 46.0
#: Four-fifths rule: impact ratios below it count as adverse impact. Equal rates have ratio 1; ratios are drawn up to 2.
FOUR_FIFTHS, EQUAL, MAX_RATIO = 0.8, 1.0, 2.0
#: With more events than this, charts by event are left out and tables are shown.
MOST_EVENTS = 6


def rates_chart(measured: MeasurementInput) -> Chart:
    """Noisy rates with their bounds, one block and axis per rate, the public rate of all rows as a dashed line."""
    parts: list[Markup] = []
    marks: list[Mark] = []
    y = 0.0
    for metric, overall in measured.overall.items():
        rows = [rate for rate in measured.rates if rate.metric == metric]
        ends = [one for rate in rows if rate.rate is not None for one in (rate.lower, rate.upper)]
        within = {} if metric in NUMBER_METRICS else {"floor": 0.0, "ceiling": 1.0}
        scale = Scale(*svg.span([*ends, overall], **within), NAMES, WIDTH - RIGHT)
        parts += [svg.label(0, y + 12, rate_name(metric), class_="label strong")]
        top, y = y + 28, y + 28 + ROW * len(rows)
        shares = metric not in NUMBER_METRICS
        tick = svg.percent_text if shares else svg.tick_text
        parts += [svg.bottom_axis(scale, y, top, written=tick), *_reference(scale, overall, top, y, shares=shares)]
        for k, rate in enumerate(rows):
            place = top + ROW * (k + 0.5)
            text = (
                f"{rate.group}, {rate_name(metric)}: {_rate_text(rate, shares=shares)} at "
                f"{measured.confidence:.4g} confidence, "
                f"about {rate.count:,.0f} rows"
            )
            parts += [svg.label(0, place, svg.shortened(rate.group, NAMES - 8))]
            parts += _interval(rate.rate, rate, scale, place, rate.evidence)
            marks += [] if rate.rate is None else [Mark(scale(rate.rate), place, text, index=len(marks))]
        y += 40
    described = "; ".join(
        f"{rate_name(rate.metric)}, {rate.group}: {_rate_text(rate, shares=rate.metric not in NUMBER_METRICS)}"
        if rate.rate is not None
        else f"{rate_name(rate.metric)}, {rate.group}: {rate.evidence}"
        for rate in measured.rates
    )
    what = "means" if set(NUMBER_METRICS) & set(measured.overall) else "rates"
    return Chart("rates", f"Noised {what} by group with bounds", described, y - 10, tuple(parts), tuple(marks))


def _interval(
    estimate: float | None, ends: GroupRate | LargestDifference, scale: Scale, y: float, evidence: str
) -> list[Markup]:
    """Whiskers, or the sentence that says why there are none."""
    if estimate is None:
        return [svg.label(scale.start + 6, y, evidence, class_="label quiet")]
    return whisker(scale, ends.lower, ends.upper, y)


def _rate_text(rate: GroupRate, *, shares: bool) -> str:
    """A rate in percent, or a mean, with its bounds."""
    if rate.rate is None:
        return rate.evidence
    if shares:
        return f"{percent(rate.rate)}, bounds {percent_bounds(rate.lower, rate.upper)}"
    return f"{number(rate.rate)}, bounds {bounds(rate.lower, rate.upper)}"


def _reference(scale: Scale, value: float | None, top: float, bottom: float, *, shares: bool = False) -> list[Markup]:
    """Dashed line at the rate of all rows."""
    if not known(value) or value is None:
        return []
    x = scale(value)
    near_end = x > (scale.start + scale.end) / 2
    text = svg.label(
        x,
        top - 16,
        f"all rows {percent(value) if shares else number(value)}",
        anchor="end" if near_end else "start",
        class_="label quiet",
    )
    return [svg.line(x, top - 8, x, bottom, class_="reference"), text]


def whisker(scale: Scale, lower: float, upper: float, y: float) -> list[Markup]:
    """An interval with end caps."""
    a, b = scale(max(lower, scale.low)), scale(min(upper, scale.high))
    caps = [svg.line(x, y - 5, x, y + 5, class_="whisker") for x in (a, b)]
    return [svg.line(a, y, b, y, class_="whisker"), *caps]


#: Width of charts that have a page's whole width, in their own units, and height of one of two lines of a group.
WIDE, HALF = 940.0, 22.0
#: Rates of the chart at the top at most: those that differ most between groups.
HERO_RATES = 4


def before_after_chart(measured: MeasurementInput, *, wide: bool) -> Chart | None:
    """Rates or means of each group before and after the correction, with bounds for all groups at once.

    Numbers that are compared by their distributions have distances in the place of rates.
    """
    width = WIDE if wide else WIDTH
    start = 190.0 if wide else NAMES
    parts: list[Markup] = []
    marks: list[Mark] = []
    metrics = _most_different(measured)
    y = 0.0
    if measured.distribution is not None or not metrics:  # what the verdict is about
        return _distance_chart(measured, width, start, wide=wide)
    spans = _spans(measured, metrics)
    parts += _legend(before=measured.before is not None)
    y += 26
    for metric in metrics:
        shares = metric not in NUMBER_METRICS
        rows = [one for one in measured.rates if one.metric == metric]
        earlier = (
            {} if measured.before is None else {one.group: measured.before.rate(metric, one.group) for one in rows}
        )
        overall, scale = measured.overall[metric], Scale(*spans[metric], start, width - RIGHT)
        parts += [svg.label(0, y + 12, rate_name(metric), class_="label strong")]
        top = y + 30
        tall = HALF * (2 if earlier else 1) + 10
        y = top + tall * len(rows)
        tick = svg.percent_text if shares else svg.tick_text
        parts += [svg.bottom_axis(scale, y, top, written=tick), *_reference(scale, overall, top, y, shares=shares)]
        for k, now in enumerate(rows):
            place = top + tall * k + tall / 2
            parts += [svg.label(0, place, svg.shortened(now.group, start - 8))]
            pair = (
                [(earlier[now.group], "before", place - HALF / 2), (now, "after", place + HALF / 2)] if earlier else []
            )
            for one, when, at in pair or [(now, "after", place)]:
                if one.rate is None:
                    parts += [svg.label(scale.start + 6, at, f"{when}: {one.evidence}", class_="label quiet")]
                    continue
                parts += whisker(scale, one.lower, one.upper, at)
                at_that_time = f" {when} the correction" if earlier else ""
                text = f"{now.group}, {rate_name(metric)}{at_that_time}: {_rate_text(one, shares=shares)}"
                hollow = "hollow" if when == "before" else ""
                marks += [Mark(scale(one.rate), at, text, index=len(marks), class_=hollow, shape="circle")]
        y += 44
    described = "; ".join(mark.text for mark in marks)
    name, class_ = ("hero", "wide-only") if wide else ("hero-narrow", "narrow-only")
    title = "By group, before and after the correction" if measured.before is not None else "By group"
    if len(metrics) < len(measured.overall):
        title += f": the {len(metrics)} of {len(measured.overall)} rates in which groups differ most"
    return Chart(
        name, title, described or "no group had enough rows", y - 10, tuple(parts), tuple(marks), width, class_
    )


def _spans(measured: MeasurementInput, metrics: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Ends of the axis of each rate; all are equally long, so that equal distances are equal gaps."""
    found = {}
    for metric in metrics:
        every = (*measured.rates, *(() if measured.before is None else measured.before.rates))
        ends = [end for one in every if one.metric == metric and one.rate is not None for end in (one.lower, one.upper)]
        within = {} if metric in NUMBER_METRICS else {"floor": 0.0, "ceiling": 1.0}
        found[metric] = svg.span([*ends, measured.overall[metric]], **within)
    longest = max(high - low for low, high in found.values())
    if set(metrics) & set(NUMBER_METRICS):  # each in its own unit
        return found
    starts = {metric: min(max(0.0, (low + high - longest) / 2), 1 - longest) for metric, (low, high) in found.items()}
    return {metric: (low, low + longest) for metric, low in starts.items()}


def _legend(*, before: bool) -> list[Markup]:
    """Which mark is which; shape first, colour only repeats it."""
    parts = []
    if before:
        parts += [svg.element("circle", cx=6.0, cy=8.0, r=5.0, class_="legend-hollow"), svg.label(18, 8, "before")]
    x = 90.0 if before else 6.0
    parts += [
        svg.element("circle", cx=x, cy=8.0, r=5.0, class_="shape accent"),
        svg.label(x + 12, 8, "after" if before else "measured"),
    ]
    x += 70 if before else 94
    return [
        *parts,
        svg.line(x, 8, x + 24, 8, class_="whisker"),
        svg.label(x + 32, 8, "95% bounds", class_="label quiet"),
    ]


def _most_different(measured: MeasurementInput) -> list[str]:
    """Rates that a notion compares; of many, those in which groups differ most."""
    metrics = list(measured.overall)
    if len(metrics) <= HERO_RATES:
        return metrics
    spread = {}
    for metric in metrics:
        found = [one.rate for one in measured.rates if one.metric == metric and one.rate is not None]
        spread[metric] = max(found) - min(found) if found else 0.0
    chosen = set(sorted(metrics, key=lambda one: -spread[one])[:HERO_RATES])
    return [one for one in metrics if one in chosen]


def _distance_chart(measured: MeasurementInput, width: float, start: float, *, wide: bool) -> Chart | None:
    """Distance of each group's distribution from that of the others, before and after the correction, with bounds."""
    lines = [] if measured.distribution is None else list(measured.distribution["by_group"])
    before = None if measured.before is None else measured.before.distribution
    earlier = {} if before is None else {str(one["group"]): one for one in before["by_group"]}
    shown = [one for one in (*lines, *earlier.values()) if known(one["ks_distance"])]
    if not lines or not shown:
        return None
    high = max(one["ks_distance_upper"] for one in shown)
    scale = Scale(0.0, max(high, 1e-3) * 1.06, start, width - RIGHT)
    top = 26.0 if earlier else 0.0
    tall = 2 * HALF + 10 if earlier else ROW
    bottom = top + tall * len(lines)
    parts = _legend(before=True) if earlier else []
    parts += [svg.bottom_axis(scale, bottom, top, "distance between distributions, in points", written=svg.points_text)]
    marks: list[Mark] = []
    for k, now in enumerate(lines):
        group, y = str(now["group"]), top + tall * (k + 0.5)
        parts += [svg.label(0, y, svg.shortened(group, start - 8))]
        pair = [("before", earlier[group], y - HALF / 2), ("after", now, y + HALF / 2)] if earlier else [("", now, y)]
        for when, one, at in pair:
            if not known(one["ks_distance"]):
                parts += [svg.label(scale.start + 6, at, "not enough evidence", class_="label quiet")]
                continue
            parts += whisker(scale, one["ks_distance_lower"], one["ks_distance_upper"], at)
            text = f"{group}{f', {when} the correction' if when else ''}: {points(one['ks_distance'])}, bounds "
            text += f"{points(one['ks_distance_lower'])} to {points(one['ks_distance_upper'])}"
            hollow = "hollow" if when == "before" else ""
            marks += [Mark(scale(one["ks_distance"]), at, text, index=len(marks), class_=hollow, shape="circle")]
    described = "; ".join(mark.text for mark in marks)
    name, class_ = ("hero", "wide-only") if wide else ("hero-narrow", "narrow-only")
    title = "Distance of each group's predictions from the others'"
    title += ", before and after the correction" if earlier else ", after the correction"
    return Chart(name, title, described, bottom + AXIS, tuple(parts), tuple(marks), width, class_)


def price_chart(
    prices: Sequence[PricePoint],
    limit: float | None,
    new: LargestDifference | None,
    quality: float | None,
    *,
    shares: bool,
    name: str = "accuracy",
) -> Chart | None:
    """Quality against the gap for every tolerance, with two standard errors, the limit, and what was measured.

    Parameters
    ----------
    prices : sequence of PricePoint
    limit : float, optional
        Drawn as a line.
    new, quality : optional
        The gap and the quality of the deployed model on new people.
    shares : bool
        Whether gaps are shares, in points.
    """
    if len(prices) < 2:
        return None
    height, new = 330.0, None if new is None or new.estimate is None or quality is None else new
    xs = [end for one in prices for end in (one.violation - 2 * one.stderr, one.violation + 2 * one.stderr)]
    ys = [one.quality for one in prices]
    if new is not None and quality is not None:
        xs, ys = [*xs, new.lower, new.upper], [*ys, quality]
    xs += [] if limit is None else [limit]
    tick = svg.points_text if shares else svg.tick_text
    x_scale = Scale(*svg.span([max(0.0, one) for one in xs], floor=0.0), 58.0, WIDTH - RIGHT)
    y_scale = Scale(*svg.span(ys), height - AXIS, 26.0)
    parts = [
        svg.left_axis(y_scale, x_scale.start, x_scale.end, name, written=_quality_tick(name)),
        svg.bottom_axis(
            x_scale, height - AXIS, y_scale.end, "largest gap, in points" if shares else "largest gap", written=tick
        ),
    ]
    if limit is not None:
        x = x_scale(limit)
        anchor = "end" if x > WIDTH * 0.7 else "start"
        parts += [svg.line(x, y_scale.end, x, y_scale.start, class_="limit")]
        parts += [
            svg.label(
                x + (-6 if anchor == "end" else 6), y_scale.end + 8, "limit", anchor=anchor, class_="label limit-text"
            )
        ]
    ordered = sorted(range(len(prices)), key=lambda k: prices[k].violation)
    parts += [svg.polyline([(x_scale(max(0.0, prices[k].violation)), y_scale(prices[k].quality)) for k in ordered], 1)]
    marks = []
    for index, k in enumerate(ordered):
        one = prices[k]
        x, y = x_scale(max(0.0, one.violation)), y_scale(one.quality)
        low, high = (x_scale(max(0.0, one.violation + sign * 2 * one.stderr)) for sign in (-1, 1))
        parts += [svg.line(low, y, high, y, class_="leader")]
        text = f"{price_name(one)}: {quality_text(name, one.quality)}, "
        text += f"gap {points(one.violation, in_points=shares)} +- {points(2 * one.stderr, in_points=shares)}"
        text += ", the deployed model" if one.deployed else ""
        class_ = "chosen" if one.deployed else "beaten" if one.tolerance is None and not one.corrected else ""
        shape = "diamond" if one.deployed else "square" if class_ == "beaten" else "circle"
        marks += [Mark(x, y, text, index=index, shape=shape, class_=f"{class_} price".strip(), key=str(k))]
        if class_ == "beaten":
            anchor = "end" if x > WIDTH * 0.7 else "start"
            parts += [
                svg.label(
                    x + (9 if anchor == "end" else -9), y - 15, "uncorrected", anchor=anchor, class_="label quiet"
                )
            ]
    if new is not None and quality is not None:
        y = y_scale(quality)
        parts += whisker(x_scale, new.lower, new.upper, y)
        text = f"the deployed model on new people: {quality_text(name, quality)}, gap "
        text += f"{points(new.estimate, in_points=shares)}"
        marks += [Mark(x_scale(new.estimate or 0.0), y, text, index=len(marks), shape="triangle")]
        parts += [svg.label(x_scale(new.upper) + 8, y, "new people", class_="label quiet")]
    described = "; ".join(mark.text for mark in marks)
    marks.sort(key=lambda mark: "chosen" in mark.class_)  # last, so that it lies above its neighbours
    title = f"{name[:1].upper() + name[1:]} against the largest gap, by tolerance"
    return Chart("price-list", title, described, height, tuple(parts), tuple(marks))


def price_name(one: PricePoint) -> str:
    """A line of the price list."""
    if one.tolerance is None:
        return "uncorrected" if not one.corrected else "the deployed model"
    return f"tolerance {one.tolerance:.4g}"


def violation_chart(measured: MeasurementInput, limit: float | None, *, shares: bool) -> Chart | None:
    """Gap between two groups in every notion, before and after, with one-sided bounds; the limit as a line.

    Notions of numbers have an axis each, because shares, means and errors have other units.
    """
    if all(one.estimate is None for one in measured.violations):
        return None
    apart = len(measured.violations) > 1 and any(one.notion in UNITS for one in measured.violations)
    parts: list[Markup] = []
    marks: list[Mark] = []
    y = 0.0
    each = [[one] for one in measured.violations] if apart else [list(measured.violations)]
    for part in each:
        own = limit if len(each) == 1 else None
        y = _violation_rows(measured, part, own, parts, marks, y, shares=shares) + (AXIS if apart else 0.0)
    described = "; ".join(mark.text for mark in marks)
    described += "" if limit is None else f"; the limit is {points(limit, in_points=shares)}"
    title = "Largest gap between two groups, with one-sided bounds"
    return Chart("violation", title, described, y + (0.0 if apart else AXIS), tuple(parts), tuple(marks))


def _violation_rows(
    measured: MeasurementInput,
    found: Sequence[LargestDifference],
    limit: float | None,
    parts: list[Markup],
    marks: list[Mark],
    y: float,
    *,
    shares: bool,
) -> float:
    """Add the rows of some notions and their axis; returns where the axis is."""
    shares = shares or found[0].notion not in UNITS
    top = y + 24
    earlier = {} if measured.before is None else {one.notion: one for one in measured.before.violations}
    every = [one for violation in found for one in (violation, earlier.get(violation.notion)) if one is not None]
    high = max([0.0, limit or 0.0, *(_most(one) for one in every if one.estimate is not None)]) * 1.06
    scale = Scale(0.0, max(high, 1e-3), NAMES, WIDTH - RIGHT)
    rows: list[Markup] = []
    for violation in found:
        rows += [svg.label(0, y + 12, plain_name(violation.notion), class_="label strong")]
        y += 28
        for name, one in (("before", earlier.get(violation.notion)), ("after", violation)):
            if one is None:
                continue
            place = y + ROW / 2
            rows += [svg.label(0, place, name)]
            y += ROW
            if one.estimate is None:
                rows += [svg.label(scale.start + 6, place, "not enough evidence", class_="label quiet")]
                continue
            rows += whisker(scale, one.at_least or 0.0, _most(one), place)
            which = f" {one.among}" if one.among else ""
            text = f"{plain_name(one.notion)} {name} the correction{which}: {points(one.estimate, in_points=shares)}, "
            text += f"at least {points(one.at_least or 0.0, in_points=shares)}, at most "
            text += points(_most(one), limit, in_points=shares)
            hollow = "hollow" if name == "before" else ""
            marks += [Mark(scale(one.estimate), place, text, index=len(marks), class_=hollow, shape="circle")]
        y += 10
    if limit is not None:
        x = scale(limit)
        anchor = "end" if x > (scale.start + scale.end) / 2 else "start"
        words = f"limit {points(limit, in_points=shares)}"
        rows += [svg.line(x, top - 6, x, y, class_="limit")]
        rows += [svg.label(x, top - 14, words, anchor=anchor, class_="label limit-text")]
    unit = UNITS.get(found[0].notion, "percentage points") if not shares else "percentage points"
    tick = svg.points_text if shares else svg.tick_text
    parts += [svg.bottom_axis(scale, y, top, unit, written=tick), *rows]
    return y


def _most(one: LargestDifference) -> float:
    """The one-sided upper bound; the two-sided one of an older measurement."""
    return one.upper if one.at_most is None else one.at_most


def curve_chart(curve: Curve) -> Chart | None:
    """Accuracy against noised violation, a point per tolerance; a line joins the points that no other one beats."""
    places = [place for place, one in enumerate(curve.points) if one.violation is not None]
    if not places:
        return None
    found = {place: (float(curve.points[place].violation or 0.0), curve.points[place].accuracy) for place in places}
    places.sort(key=lambda place: (found[place][0], -found[place][1]))
    height = 260.0
    xs, ys = [x for x, _ in found.values()], [y for _, y in found.values()]
    x_scale = Scale(*svg.span(xs, floor=min(0.0, *xs)), 52.0, WIDTH - RIGHT)
    y_scale = Scale(*svg.span(ys), height - AXIS, 26.0)
    best = [
        place
        for k, place in enumerate(places)
        if all(found[place][1] > found[before][1] for before in places[:k])  # sorted: none before is less fair
    ]
    parts = [
        svg.left_axis(
            y_scale, x_scale.start, x_scale.end, f"{curve.quality}, public", written=_quality_tick(curve.quality)
        ),
        svg.bottom_axis(
            x_scale,
            height - AXIS,
            y_scale.end,
            "largest gap, noised, in points" if curve.in_points else "largest gap, noised",
            written=svg.points_text if curve.in_points else svg.tick_text,
        ),
    ]
    if len(best) > 1:
        parts += [svg.polyline([(x_scale(found[place][0]), y_scale(found[place][1])) for place in best], 0)]
    marks = []
    for index, place in enumerate(places):
        x, y = x_scale(found[place][0]), y_scale(found[place][1])
        chosen = place == curve.chosen
        marks += [_curve_mark(curve, place, x, y, index, beaten=place not in best)]
        parts += [_chosen_label(x, y)] if chosen else []
    described = "; ".join(mark.text for mark in marks)
    # The chosen mark last, so that it lies above its neighbours.
    marks.sort(key=lambda mark: mark.class_ == "chosen")
    quality = curve.quality[:1].upper() + curve.quality[1:]
    return Chart("curve", f"{quality} against the noised gap", described, height, tuple(parts), tuple(marks))


def _curve_mark(curve: Curve, place: int, x: float, y: float, index: int, *, beaten: bool) -> Mark:
    point = curve.points[place]
    text = (
        f"tolerance {tolerance_name(point.tolerance)}: {quality_text(curve.quality, point.accuracy)}, noised "
        f"gap {points(point.violation, in_points=curve.in_points)}"
    )
    if place == curve.chosen:
        return Mark(x, y, f"{text}, the chosen model", index=index, shape="diamond", class_="chosen")
    return Mark(x, y, text, index=index, shape="circle", class_="beaten" if beaten else "")


def quality_text(name: str, value: float) -> str:
    """Accuracy in percent, or R2, with its name."""
    return f"{name} {percent(value) if name == 'accuracy' else number(value)}"


def _quality_tick(name: str) -> Callable[[float], str]:
    return svg.percent_text if name == "accuracy" else svg.tick_text


def _chosen_label(x: float, y: float) -> Markup:
    """Below the curve, which rises: at the right of the point, or at its left where there is no room."""
    room = x < WIDTH * 0.75
    return svg.label(x + 14 if room else x, y + 18, "chosen", anchor="start" if room else "end", class_="label strong")


def tolerance_name(tolerance: float | None) -> str:
    """A tolerance in a table; None is the default, which follows from the noise."""
    return "by the noise" if tolerance is None else f"{tolerance:.4g}"


@dataclass(frozen=True)
class Series:
    """One line of a chart over rounds."""

    name: str
    numbers: Sequence[float]


#: Public numbers of a history that have a chart.
PUBLIC_SERIES = {"loss": "Loss (public)", "accuracy": "Accuracy (public)", "auc": "AUC (public)", "r2": "R2 (public)"}


def history_charts(history: pd.DataFrame, columns: Sequence[Column]) -> list[Chart]:
    """Public loss, accuracy and AUC, then noised gaps and multipliers by group, one chart per event."""
    rounds = [float(one) for one in history["round"]] if "round" in history else []
    if len(rounds) < 2:
        return []
    charts = [
        _rounds_chart(f"history-{name}", f"{title} by round", [Series(name, history[name].tolist())], rounds)
        for name, title in PUBLIC_SERIES.items()
        if name in history
    ]
    if len({column.event for column in columns if column.kind == "noisy_gap"}) > MOST_EVENTS:
        violation = [Series("violation", history["noisy_violation"].tolist())] if "noisy_violation" in history else []
        charts += [_rounds_chart("history-violation", "Noised violation by round", violation, rounds)]
        return [chart for chart in charts if chart is not None]
    for kind, title in (("noisy_gap", "Noised gap of a group to all rows"), ("multiplier", "Multiplier")):
        for place, (event, series) in enumerate(_by_event(history, columns, kind).items()):
            text = f"{title}, {event}, by round" if event else f"{title} by round"
            charts += [_rounds_chart(f"history-{plain_id(kind)}-{place}", text, series, rounds)]
    return [chart for chart in charts if chart is not None]


def plain_id(name: str) -> str:
    """A name as part of an HTML identifier."""
    return name.replace("_", "-")


def _by_event(history: pd.DataFrame, columns: Sequence[Column], kind: str) -> dict[str, list[Series]]:
    """Columns of one kind as series by event; a single event needs no name."""
    of_kind = [column for column in columns if column.kind == kind]
    several = len({column.event for column in of_kind}) > 1
    found: dict[str, list[Series]] = {}
    for column in of_kind:
        series = Series(str(column.group), history[column.name].tolist())
        found.setdefault(str(column.event) if several else "", []).append(series)
    return found


def _rounds_chart(name: str, title: str, series: Sequence[Series], rounds: Sequence[float]) -> Chart | None:
    """Lines over rounds, each with its name at its end."""
    values = [float(value) for one in series for value in one.numbers if known(value)]
    if not values:
        return None
    several = len(series) > 1
    height = max(205.0, 90.0 + (LETTER + 3) * len(series))
    end = WIDTH - (112.0 if several else RIGHT)
    x_scale = Scale(min(rounds), max(rounds), 58.0, end)
    y_scale = Scale(*svg.span(values), height - AXIS, 8.0)
    parts = [
        svg.left_axis(y_scale, x_scale.start, end, ""),
        svg.bottom_axis(x_scale, height - AXIS, y_scale.end, "round", whole=True),
    ]
    if y_scale.low < 0 < y_scale.high:
        parts += [svg.line(x_scale.start, y_scale(0.0), end, y_scale(0.0), class_="axis")]
    marks: list[Mark] = []
    ends: list[tuple[float, float, str, int]] = []
    for s, one in enumerate(series):
        path = [
            (x_scale(r), y_scale(v), r, v)
            for r, v in zip(rounds, (float(v) for v in one.numbers), strict=True)
            if known(v)
        ]
        if not path:
            continue
        parts += [svg.polyline([(x, y) for x, y, _, _ in path], s)]
        marks += [
            Mark(x, y, f"{one.name}, round {r:g}: {number(v, 4)}", series=s, index=k, class_=_visible(k, path))
            for k, (x, y, r, v) in enumerate(path)
        ]
        ends += [(*path[-1][:2], one.name, s)]
    if several:
        parts += _end_labels(ends, end, y_scale)
    described = "; ".join(
        f"{one.name}: from {number(kept[0], 4)} to {number(kept[-1], 4)}"
        for one in series
        if (kept := [v for v in one.numbers if known(v)])
    )
    return Chart(name, title, f"{len(rounds)} rounds. {described}", height, tuple(parts), tuple(marks))


def _visible(place: int, path: Sequence[Any]) -> str:
    """Class of a mark: long lines show a few of their marks, the others appear on focus."""
    every = max(1, len(path) // 8)
    return "" if place % every == 0 or place == len(path) - 1 else "faint"


def _end_labels(ends: Sequence[tuple[float, float, str, int]], right: float, scale: Scale) -> list[Markup]:
    places = svg.separate([y for _, y, _, _ in ends], LETTER + 3, scale.end, scale.start)
    parts = []
    for (x, y, name, _), place in zip(ends, places, strict=True):
        parts += [svg.line(x, y, right + 12, place, class_="leader")]
        parts += [svg.label(right + 15, place, svg.shortened(name, WIDTH - right - 15))]
    return parts


def multipliers_chart(multipliers: pd.DataFrame) -> Chart | None:
    """Bars from zero, one per group and event; None if there are too many events for a chart."""
    if multipliers.shape[1] > MOST_EVENTS:
        return None
    table = multipliers.to_numpy()
    rows = [
        (str(event), str(group), float(table[a, k]))
        for k, event in enumerate(multipliers.columns)
        for a, group in enumerate(multipliers.index)
    ]
    several = multipliers.shape[1] > 1
    named = [f"{event}, {group}" if several else group for event, group, _ in rows]
    values = [value for _, _, value in rows]
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.22 * max(high - low, 1e-3)
    low, high = (low - room if low < 0 else 0.0), (high + room if high > 0 else 0.0)
    scale = Scale(low, max(high, low + 1e-3), NAMES, WIDTH - RIGHT)
    parts, marks = _bars(named, values, scale, lambda value: number(value, 3))
    height = ROW * len(rows)
    axis = svg.bottom_axis(scale, height, 0, "multiplier")
    zero = svg.line(scale(0.0), 0, scale(0.0), height, class_="axis")
    described = "; ".join(mark.text for mark in marks)
    return Chart("multipliers", "Final multipliers", described, height + AXIS, (axis, *parts, zero), tuple(marks))


def spending_chart(entries: Sequence[Spending]) -> Chart | None:
    """Bars of shares of the budget, or of the epsilon each kind of release would cost alone."""
    shares = all(one.share is not None for one in entries)
    values = [one.share if shares else one.alone for one in entries]
    if not values or not all(known(value) for value in values):
        return None
    lengths = [float(value or 0.0) for value in values]
    scale = Scale(0.0, max(*lengths, 1e-3) * 1.22, NAMES, WIDTH - RIGHT)
    names = [f"{one.count} \N{MULTIPLICATION SIGN} {one.purpose}" if one.count > 1 else one.purpose for one in entries]
    written = (lambda value: f"{value:.1%}") if shares else (lambda value: number(value, 3))
    parts, marks = _bars(names, lengths, scale, written)
    height = ROW * len(entries)
    title = "Share of the privacy budget by release" if shares else "Epsilon of each kind of release alone"
    axis = svg.bottom_axis(scale, height, 0, "share of the budget" if shares else "epsilon")
    described = "; ".join(mark.text for mark in marks)
    return Chart("spending", title, described, height + AXIS, (axis, *parts), tuple(marks))


def _bars(names: Sequence[str], values: Sequence[float], scale: Scale, written: Any) -> tuple[list[Markup], list[Mark]]:
    """Bars with their names at the left and their numbers at their ends, which are the marks."""
    parts: list[Markup] = []
    marks = []
    for k, (name, value) in enumerate(zip(names, values, strict=True)):
        y = ROW * k + ROW / 2
        a, b = sorted((scale(0.0), scale(value)))
        parts += [svg.label(0, y, svg.shortened(name, NAMES - 8))]
        parts += [svg.element("rect", x=a, y=y - 9, width=max(b - a, 0.5), height=18.0, class_="bar")]
        left = value < 0
        parts += [
            svg.label(
                *(scale(value) + (-11 if left else 11), y, written(value)),
                anchor="end" if left else "start",
                class_="label strong",
            )
        ]
        marks += [Mark(scale(value), y, f"{name}: {written(value)}", index=k, class_="tip-of-bar")]
    return parts, marks


def calibration_chart(bins: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Share of the positive label against the mean score, by bin of scores; on the dashed line both are equal."""
    if len(bins) < 2:
        return None
    height = 300.0
    low, high = svg.span([one[name] for one in bins for name in ("score", "share")], floor=0.0, ceiling=1.0)
    x_scale, y_scale = Scale(low, high, 52.0, WIDTH - RIGHT), Scale(low, high, height - AXIS, 26.0)
    places = [(x_scale(one["score"]), y_scale(one["share"])) for one in bins]
    parts = [
        svg.left_axis(y_scale, x_scale.start, x_scale.end, "share of the positive label"),
        svg.bottom_axis(x_scale, height - AXIS, y_scale.end, "mean score"),
        svg.line(x_scale(low), y_scale(low), x_scale(high), y_scale(high), class_="reference"),
        svg.polyline(places, 0),
    ]
    text = [
        f"score {number(one['score'], 2)}: {number(one['share'], 2)} have the positive label, {one['rows']:,} rows"
        for one in bins
    ]
    marks = [Mark(x, y, text, index=k) for k, ((x, y), text) in enumerate(zip(places, text, strict=True))]
    return Chart("calibration", "Calibration, all rows", "; ".join(text), height, tuple(parts), tuple(marks))


def impact_chart(impact: Mapping[str, Any], confidence: float) -> Chart | None:
    """Impact ratios with bounds, a line at four fifths, equal rates dashed."""
    rows = impact["by_group"]
    shown = [one for one in rows if known(one["impact_ratio"])]
    if not shown:
        return None
    ends = [min(MAX_RATIO, one["upper"]) if known(one["upper"]) else MAX_RATIO for one in shown]
    scale = Scale(0.0, max(1.1, *ends) * 1.02, NAMES, WIDTH - RIGHT)
    top, bottom = 24.0, 24.0 + ROW * len(rows)
    parts = [
        svg.bottom_axis(scale, bottom, top, "impact ratio"),
        svg.line(scale(EQUAL), top, scale(EQUAL), bottom, class_="reference"),
        svg.line(scale(FOUR_FIFTHS), top, scale(FOUR_FIFTHS), bottom, class_="limit"),
        svg.label(scale(FOUR_FIFTHS), top - 12, "four fifths", anchor="end", class_="label limit-text"),
    ]
    marks: list[Mark] = []
    for k, one in enumerate(rows):
        y = top + ROW * (k + 0.5)
        parts += [svg.label(0, y, svg.shortened(str(one["group"]), NAMES - 8))]
        if not known(one["impact_ratio"]):
            parts += [svg.label(scale.start + 6, y, one["evidence"], class_="label quiet")]
            continue
        upper = min(MAX_RATIO, one["upper"]) if known(one["upper"]) else MAX_RATIO
        parts += whisker(scale, one["lower"], upper, y) if upper > one["lower"] else []  # the reference has none
        text = f"{one['group']}: {number(one['impact_ratio'], 2)}, bounds {bounds(one['lower'], one['upper'], 2)}"
        marks += [
            Mark(scale(min(MAX_RATIO, one["impact_ratio"])), y, f"{text} at {confidence:.4g} confidence", index=k)
        ]
    described = "; ".join(mark.text for mark in marks)
    return Chart("impact-chart", "Impact ratios with bounds", described, bottom + AXIS, tuple(parts), tuple(marks))


def gap_curve_chart(curve: Sequence[Mapping[str, Any]], confidence: float, *, place: str = "threshold") -> Chart | None:
    """Gap between each group's share above a threshold and that of all rows, over thresholds; strokes are bounds.

    Parameters
    ----------
    place : str
        What a threshold is called: a level, of predicted numbers.
    """
    known_ones = [one for one in curve if known(one["gap"])]
    thresholds = [one["threshold"] for one in known_ones]
    if not known_ones or min(thresholds) == max(thresholds):
        return None
    height, end = 260.0, WIDTH - 112.0
    x_scale = Scale(min(thresholds), max(thresholds), 58.0, end)
    ends = [one[name] for one in known_ones for name in ("gap_lower", "gap_upper")]
    y_scale = Scale(*svg.span([0.0, *ends]), height - AXIS, 8.0)
    parts = [
        svg.left_axis(y_scale, x_scale.start, end, ""),
        svg.bottom_axis(x_scale, height - AXIS, y_scale.end, place),
        svg.line(x_scale.start, y_scale(0.0), end, y_scale(0.0), class_="axis"),
    ]
    marks: list[Mark] = []
    for series, group in enumerate(dict.fromkeys(str(one["group"]) for one in known_ones)):
        own = [one for one in known_ones if str(one["group"]) == group]
        path = [(x_scale(one["threshold"]), y_scale(one["gap"])) for one in own]
        parts += [svg.polyline(path, series)] if len(path) > 1 else []
        for k, (one, (x, y)) in enumerate(zip(own, path, strict=True)):
            parts += [svg.line(x, y_scale(one["gap_lower"]), x, y_scale(one["gap_upper"]), class_="leader")]
            text = f"{group}, above {number(one['threshold'])}: gap {number(one['gap'])}"
            text += f", bounds {bounds(one['gap_lower'], one['gap_upper'])} at {confidence:.4g} confidence"
            marks += [Mark(x, y, text, series=series, index=k)]
        beside = 14.0 + (svg.LETTER + 6) * series
        parts += [svg.sign(end + 14, beside, series)]
        parts += [svg.label(end + 24, beside, svg.shortened(group, WIDTH - end - 24))]
    described = "; ".join(mark.text for mark in marks)
    return Chart("gap-curve", f"Gap to all rows at every {place}", described, height, tuple(parts), tuple(marks))
