"""Charts for people: calibration of scores, and impact ratios against four fifths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from justitia.report import svg
from justitia.report.charts import AXIS, NAMES, RIGHT, ROW, whisker
from justitia.report.formatting import bounds, known, number
from justitia.report.svg import WIDTH, Chart, Mark, Scale

#: The line that a ratio is held against, and equal rates.
FOUR_FIFTHS, EQUAL = 0.8, 1.0
#: Ratios are drawn up to here.
MOST = 2.0


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
    told = [
        f"score {number(one['score'], 2)}: {number(one['share'], 2)} have the positive label, {one['rows']:,} rows"
        for one in bins
    ]
    marks = [Mark(x, y, text, index=k) for k, ((x, y), text) in enumerate(zip(places, told, strict=True))]
    return Chart("calibration", "Calibration, everybody", "; ".join(told), height, tuple(parts), tuple(marks))


def impact_chart(impact: Mapping[str, Any], confidence: float) -> Chart | None:
    """Impact ratios with bounds, a line at four fifths, equal rates dashed."""
    rows = impact["by_group"]
    shown = [one for one in rows if known(one["impact_ratio"])]
    if not shown:
        return None
    ends = [min(MOST, one["upper"]) if known(one["upper"]) else MOST for one in shown]
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
        upper = min(MOST, one["upper"]) if known(one["upper"]) else MOST
        parts += whisker(scale, one["lower"], upper, y) if upper > one["lower"] else []  # the reference has none
        told = f"{one['group']}: {number(one['impact_ratio'], 2)}, bounds {bounds(one['lower'], one['upper'], 2)}"
        marks += [Mark(scale(min(MOST, one["impact_ratio"])), y, f"{told} at {confidence:.4g} confidence", index=k)]
    described = "; ".join(mark.text for mark in marks)
    return Chart("impact-chart", "Impact ratios with bounds", described, bottom + AXIS, tuple(parts), tuple(marks))


def gap_curve_chart(curve: Sequence[Mapping[str, Any]], confidence: float) -> Chart | None:
    """Gap of each group's share above a threshold to everybody's, over thresholds; upright strokes are bounds."""
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
        svg.bottom_axis(x_scale, height - AXIS, y_scale.end, "threshold"),
        svg.line(x_scale.start, y_scale(0.0), end, y_scale(0.0), class_="axis"),
    ]
    marks: list[Mark] = []
    for series, group in enumerate(dict.fromkeys(str(one["group"]) for one in known_ones)):
        own = [one for one in known_ones if str(one["group"]) == group]
        path = [(x_scale(one["threshold"]), y_scale(one["gap"])) for one in own]
        parts += [svg.polyline(path, series)] if len(path) > 1 else []
        for k, (one, (x, y)) in enumerate(zip(own, path, strict=True)):
            parts += [svg.line(x, y_scale(one["gap_lower"]), x, y_scale(one["gap_upper"]), class_="leader")]
            told = f"{group}, above {number(one['threshold'])}: gap {number(one['gap'])}"
            told += f", bounds {bounds(one['gap_lower'], one['gap_upper'])} at {confidence:.4g} confidence"
            marks += [Mark(x, y, told, series=series, index=k)]
        beside = 14.0 + (svg.LETTER + 6) * series
        parts += [svg.sign(end + 14, beside, series)]
        parts += [svg.label(end + 24, beside, svg.shortened(group, WIDTH - end - 24))]
    described = "; ".join(mark.text for mark in marks)
    return Chart("gap-curve", "Gap to everybody at every threshold", described, height, tuple(parts), tuple(marks))
