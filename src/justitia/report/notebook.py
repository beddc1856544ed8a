"""Notebook forms: the result in one sentence, the report's chart, a short table, and what it cost.

Each function takes a released object and returns HTML that stands alone: no scripts, no requests, and colours that
follow the page it is shown on. Where a certificate has no finite epsilon, numbers by group are exact and are left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from justitia.metrics.bounds import Verdict, format_bound
from justitia.metrics.means import NUMBER_METRICS
from justitia.metrics.measurement import Measurement
from justitia.privacy.certificate import Certificate
from justitia.privacy.ledger import PrivacyLedger, summary
from justitia.report import charts
from justitia.report.contents import Spending, spending
from justitia.report.formatting import (
    UNITS,
    bounds,
    known,
    number,
    odds_sentence,
    percent,
    percent_bounds,
    plain_name,
    points,
    rate_name,
    ratio_bounds,
    rounded_count,
)
from justitia.report.inputs import GroupRate, MeasurementInput, PricePoint, read_curve, read_measurement, read_prices
from justitia.report.svg import Chart, element
from justitia.report.verdict import WORDS, State

#: Charts of one page need distinct ids, because their titles are referred to by id.
_NUMBERS = itertools.count(1)
#: Said in the place of numbers that have no privacy.
EXACT = "Without a finite epsilon these numbers are exact, so this form leaves them out; print the object to see them."
#: States of a verdict, by its answer about a gap.
_STATES: Mapping[str, State] = {"below": "met", "above": "not met"}
#: More groups than this are left to the table.
MOST_GROUPS = 8
#: Rates of a table at most.
MOST_RATES = 6
#: Rows of the price list besides the uncorrected and the deployed model.
MOST_PRICES = 5
#: Text and lines have the colour of the surrounding page, which Jupyter, VS Code and the site choose; the two blues are
#: at least 3:1 against white and against dark grey. `Canvas` is the background where a page names none.
STYLE = """
.justitia-form { --jf-paper: var(--jp-layout-color0, var(--vscode-editor-background,
  var(--color-background-primary, Canvas))); --jf-accent: #3878d0; color: inherit; max-width: 62rem; line-height: 1.45;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; font-size: .9375rem; }
.justitia-form p { margin: 0 0 .6rem; max-width: 46rem; }
.justitia-form .jf-lead { font-size: 1.0625rem; font-weight: 600; }
.justitia-form .jf-note { font-size: .875rem; opacity: .85; }
.justitia-form .jf-pair { display: flex; flex-wrap: wrap; gap: .8rem 2rem; align-items: flex-start; margin: 0 0 .6rem; }
.justitia-form figure { margin: 0; max-width: 29rem; min-width: 0; }
.justitia-form .jf-pair > figure { flex: 1 1 17rem; }
.justitia-form .jf-pair > .jf-scroll { flex: 1 1 23rem; max-width: 100%; }
.justitia-form figcaption { font-weight: 600; margin: 0 0 .3rem; }
.justitia-form .jf-scroll { overflow-x: auto; min-width: 0; }
.justitia-form table { border-collapse: collapse; border: 0; margin: 0; font-size: .875rem; color: inherit;
  font-variant-numeric: tabular-nums; width: 100%; table-layout: auto; }
.justitia-form th, .justitia-form td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border: 0;
  border-bottom: 1px solid color-mix(in srgb, currentColor 25%, transparent); background: none; white-space: normal; }
.justitia-form tbody th { font-weight: 400; min-width: 6.5rem; }
.justitia-form tr.jf-strong > * { font-weight: 600; }
.justitia-form .jf-figure { text-align: right; }
.justitia-form td.jf-figure { white-space: nowrap; }
@media (max-width: 40rem) { .justitia-form td.jf-figure { white-space: normal; }
  .justitia-form tbody th { min-width: 0; } }
.justitia-form summary { cursor: pointer; }
.justitia-form svg { display: block; width: 100%; height: auto; overflow: visible; }
.justitia-form svg text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif;
  fill: currentColor; }
.justitia-form svg .tick, .justitia-form svg .axis-title { font-size: 13px; }
.justitia-form svg .tick, .justitia-form svg .axis-title, .justitia-form svg .quiet { fill-opacity: .8; }
.justitia-form svg .strong, .justitia-form svg .limit-text { font-weight: 600; }
.justitia-form svg line { stroke: currentColor; }
.justitia-form svg .grid { stroke-opacity: .15; }
.justitia-form svg .axis { stroke-opacity: .7; }
.justitia-form svg .whisker { stroke-width: 2; }
.justitia-form svg .reference { stroke-width: 1.5; stroke-dasharray: 5 4; stroke-opacity: .7; }
.justitia-form svg .limit { stroke: var(--jf-accent); stroke-width: 3; }
.justitia-form svg .leader { stroke-width: .75; stroke-opacity: .7; }
.justitia-form svg .line { fill: none; stroke: currentColor; stroke-opacity: .7; stroke-width: 2; }
.justitia-form svg .line.accent { stroke: var(--jf-accent); stroke-opacity: 1; }
.justitia-form svg .bar { fill: var(--jf-accent); }
.justitia-form svg .room { fill: currentColor; fill-opacity: .12; }
.justitia-form svg .shape { stroke: var(--jf-paper); stroke-width: 1.25; fill: currentColor; }
.justitia-form svg .shape.accent { fill: var(--jf-accent); }
.justitia-form svg .hollow .shape, .justitia-form svg .legend-hollow { fill: var(--jf-paper); stroke: currentColor;
  stroke-width: 2; }
.justitia-form svg .beaten .shape { fill: var(--jf-paper); stroke: var(--jf-accent); stroke-width: 2; }
.justitia-form svg .chosen .shape { transform: scale(1.7); }
.justitia-form svg .hit { fill: transparent; }
.justitia-form svg .ring { fill: none; }
.justitia-form svg .tip-of-bar .shape { opacity: 0; }
"""


def measurement_form(measurement: Any) -> str:
    """Gap and verdict, rates by group with bounds, and the cost; ``measurement`` is a ``Measurement``."""
    measured = read_measurement(measurement)
    if measured is None or not measured.private:
        return _form("Measurement without a privacy guarantee", _notes([EXACT, measurement.certificate.statement]))
    verdicts = measurement.verdicts if isinstance(measurement, Measurement) else {}
    gaps = [_gap_text(measured, place, verdicts.get(one.notion)) for place, one in enumerate(measured.violations)]
    several = len({rate.group for rate in measured.rates}) > MOST_GROUPS
    chart = None if several else charts.before_after_chart(measured, wide=False)
    sentences = [measured.certificate.statement, *measured.certificate.remarks]
    return _form(". ".join(gaps), _pair(chart, _rates_table(measured)), _notes(sentences))


def _gap_text(measured: MeasurementInput, place: int, verdict: Verdict | None) -> str:
    """Verdict, and gap of one notion with its bounds, after and before the correction."""
    one = measured.violations[place]
    in_points, level = one.notion not in UNITS, f"{100 * measured.confidence:.4g}%"
    name = f"argest gap in {plain_name(one.notion)}"
    word = "L" if verdict is None else f"{WORDS[_STATES.get(verdict.answer, 'inconclusive')]}: l"
    if one.estimate is None:
        return f"{word}{name}: not enough evidence"
    ends = f"{level} bounds {_points(one.lower, in_points)} to {_points(one.upper, in_points)}"
    if verdict is not None:  # it rests on one-sided bounds
        least, most = (points(end, verdict.threshold, in_points=in_points) for end in (one.at_least, one.at_most))
        ends = f"at least {least.split(' ')[0]}, at most {most.split(' ')[0]}, {level} each"
    text = f"{word}{name}: {points(one.estimate, in_points=in_points)} ({ends}{f', {one.among}' if one.among else ''})"
    text += "" if verdict is None else f", limit {points(verdict.threshold, in_points=in_points)}"
    before = None if measured.before is None else measured.before.violations[place].estimate
    return text if before is None else f"{text}; before the correction {points(before, in_points=in_points)}"


def _points(value: float, in_points: bool) -> str:
    return points(value, in_points=in_points).split(" ")[0]


def _rates_table(measured: MeasurementInput) -> Markup:
    """Rates of groups, with the public rate of all rows below them."""
    earlier = measured.before
    kind = "mean" if set(measured.overall) & set(NUMBER_METRICS) else "rate"
    head = ["group", "rows, about", kind, "bounds", *(["before"] if earlier else [])]
    rows: list[Sequence[Any]] = []
    metrics = list(measured.overall)[:MOST_RATES]
    for metric in metrics:
        if len(measured.overall) > 1:
            rows.append([rate_name(metric)])
        for one in (rate for rate in measured.rates if rate.metric == metric):
            was = [_rate(earlier.rate(metric, one.group))] if earlier else []
            found = [one.evidence, ""] if one.rate is None else [_rate(one), _rate_bounds(one)]
            rows.append([one.group, rounded_count(one.count, None), *found, *was])
        rows.append(
            ["all rows", f"{measured.people:,}", _value(measured.overall[metric], metric), "", *[""] * len(head[4:])]
        )
    left = len(measured.overall) - len(metrics)
    caption = f"Noised {kind}s with bounds for all groups at once; the {kind} of all rows is public and exact"
    return _table(head, rows, caption + (f"; {left} more are in .table" if left else ""))


def _rate(one: GroupRate) -> str:
    return _value(one.rate, one.metric)


def _value(value: float | None, metric: str) -> str:
    return number(value) if metric in NUMBER_METRICS else percent(value)


def _rate_bounds(one: GroupRate) -> str:
    write = bounds if one.metric in NUMBER_METRICS else percent_bounds
    return write(one.lower, one.upper)


def impact_form(impact: Any) -> str:
    """Impact ratios against four fifths; ``impact`` is an ``Impact``."""
    facts = impact.to_dict()
    if not facts["count_deviation"] > 0:
        return _form("Impact ratios without a privacy guarantee", _notes([EXACT]))
    lines = facts["by_group"]
    head = ["group", "rows, about", "rate", "impact ratio", "bounds"]
    rows = [
        [
            str(one["group"]),
            rounded_count(one["count"], facts["count_deviation"]),
            percent(one["rate"]),
            number(one["impact_ratio"], 2) if known(one["impact_ratio"]) else one["evidence"],
            ratio_bounds(one["lower"], one["upper"]) if known(one["lower"]) else "",
        ]
        for one in lines
    ]
    chart = None if len(lines) > MOST_GROUPS else charts.impact_chart(facts, impact.confidence)
    caption = f"Impact ratio to {facts['ratio_to']}, noised, bounds at {impact.confidence:.4g} for all groups at once"
    return _form(_impact_lead(facts["four_fifths"]), _pair(chart, _table(head, rows, caption)))


def _impact_lead(found: Mapping[str, Any]) -> str:
    """The smallest impact ratio against four fifths."""
    least, most = (format_bound(found[name], found["threshold"]) for name in ("at_least", "at_most"))
    if found["answer"] == "above":
        return f"Smallest impact ratio: at least {least}, so not below four fifths"
    if found["answer"] == "below":
        return f"Smallest impact ratio: at most {most}, so below four fifths"
    return f"Smallest impact ratio: between {least} and {most}, so neither below nor above four fifths is shown"


def certificate_form(certificate: Certificate, *, folded: bool = False) -> str:
    """The guarantee, what share of it each kind of release took, and what it rests on, ``folded`` or not."""
    facts = {
        "What is compared": certificate.adjacency,
        "How costs are added up": certificate.accountant,
        "Where the noise comes from": certificate.noise,
        "Groups": f"{', '.join(map(str, certificate.groups))} ({certificate.groups_source})",
        "Kept by": certificate.custodian,
        "Not covered": "; ".join(certificate.not_covered),
    }
    private = math.isfinite(certificate.epsilon)
    chart = charts.spending_chart(spending(certificate)) if private and certificate.releases else None
    rows = [[name, text] for name, text in facts.items() if text]
    rests = _pair(chart, Markup("")) + _table((), rows, "What the guarantee rests on", plain=True)
    if folded:
        rests = element("details", element("summary", "What the guarantee rests on"), rests)
    notes = [odds_sentence(certificate) if private else "", *(certificate.remarks if private else ())]
    return _form(certificate.statement, _notes(notes), rests)


def ledger_form(ledger: PrivacyLedger) -> str:
    """How much of the budget is spent, and on what."""
    spent, budget = ledger.epsilon(), ledger.budget_epsilon
    lead = f"Epsilon {spent:.4g} of {budget:.4g} is spent"
    lead += f" ({spent / budget:.0%})" if 0 < budget < math.inf and math.isfinite(spent) else ""
    entries = summary(ledger.releases)
    kinds = _spending_of(entries)
    chart = charts.spending_chart(kinds) if kinds else None
    rows = [[one.purpose, f"{one.count:,}", one.mechanism, _noise(one)] for one in kinds]
    table = _table(["purpose", "answers", "mechanism", "noise multiplier"], rows, f"Releases, delta {ledger.delta:g}")
    return _form(lead, _budget_bar(spent, budget), _pair(chart, table if rows else Markup("<p>No release yet.</p>")))


def _spending_of(entries: Iterable[Any]) -> tuple[Spending, ...]:
    """Releases by kind, with their share of mu^2 where all are Gaussian."""
    kept = list(entries)
    gaussian = bool(kept) and all(one["mechanism"] == "gaussian" for one in kept)
    squares = [one["count"] / one["noise_multiplier"] ** 2 for one in kept] if gaussian else []
    return tuple(
        Spending(
            purpose=str(one["purpose"]),
            mechanism=str(one["mechanism"]),
            count=int(one["count"]),
            noise_multiplier=one["noise_multiplier"],
            alone=None,
            share=squares[k] / sum(squares) if squares else None,
        )
        for k, one in enumerate(kept)
    )


def _noise(one: Spending) -> str:
    return "" if one.noise_multiplier is None else f"{one.noise_multiplier:.4g}"


def _budget_bar(spent: float, budget: float) -> Markup:
    """A bar of the budget; none where it is infinite."""
    if not (0 < budget < math.inf and math.isfinite(spent)):
        return Markup("")
    share = min(1.0, spent / budget)
    drawn = element(
        "svg",
        element("rect", x=0.0, y=0.0, width=460.0, height=14.0, class_="room"),
        element("rect", x=0.0, y=0.0, width=460.0 * share, height=14.0, class_="bar"),
        viewBox="0 0 460 14",
        role="img",
        aria_label=f"{share:.0%} of the budget is spent",
    )
    return element("figure", drawn, style="margin-bottom: .8rem")


def tradeoff_form(tradeoff: Any) -> str:
    """The curve as a chart and a table, and what all models cost together; ``tradeoff`` is a ``Tradeoff``."""
    lead = f"{len(tradeoff.models)} models along a curve, for the price of one"
    curve = read_curve(tradeoff, None)
    if curve is None:
        return _form(lead, _notes([EXACT, tradeoff.certificate.statement]))
    unit = ", in points" if curve.in_points else ""
    head = ["tolerance", curve.quality, *(["AUC"] if curve.points[0].auc is not None else []), f"gap{unit}"]
    rows = [
        [
            charts.tolerance_name(one.tolerance),
            number(one.accuracy) if curve.quality == "R2" else percent(one.accuracy),
            *([number(one.auc)] if one.auc is not None else []),
            _points(one.violation, curve.in_points) if one.violation is not None else "",
        ]
        for one in curve.points
    ]
    caption = f"{curve.quality[:1].upper()}{curve.quality[1:]} is public; gaps are noised"
    if math.isfinite(tradeoff.standard_error):
        caption += f", one standard error is {points(tradeoff.standard_error, in_points=curve.in_points)}"
    return _form(
        lead, _pair(charts.curve_chart(curve), _table(head, rows, caption)), _notes([tradeoff.certificate.statement])
    )


def prices_form(table: pd.DataFrame, *, in_points: bool = True) -> str:
    """The price list of a private model as a chart and a table."""
    prices = read_prices(table)
    deployed = next((one for one in prices if one.deployed), None)
    base = next((one for one in prices if not one.corrected), None)
    lead = "Price list: what every tolerance costs, at no further budget"
    if deployed is not None and base is not None:
        lead = f"{_price(base, in_points)} uncorrected, {_price(deployed, in_points)} deployed"
        lead = lead[:1].upper() + lead[1:]
    name = "R2" if "r2" in table else "accuracy"
    shown = _few(prices)
    chart = charts.price_chart(prices, None, None, None, shares=in_points, name=name)
    rows = [
        [
            charts.price_name(one) + (" (deployed)" if one.deployed else ""),
            _quality(one),
            _points(one.violation, in_points),
            _points(2 * one.stderr, in_points),
        ]
        for one in shown
    ]
    strong = [k for k, one in enumerate(shown) if one.deployed]
    unit = ", in points" if in_points else ""
    head = ["model", name, f"gap{unit}", "2 standard errors"]
    caption = f"{name[:1].upper()}{name[1:]} is public and out of fold; gaps are estimates from released sums"
    caption += f"; all {len(prices)} rows are in price_" if len(shown) < len(prices) else ""
    return _form(lead, _pair(chart, _table(head, rows, caption, strong=strong)))


def _few(prices: Sequence[PricePoint]) -> list[PricePoint]:
    """Rows of a table: uncorrected, deployed, and evenly chosen others."""
    others = [one for one in prices if one.corrected and not one.deployed]
    step = max(1, math.ceil(len(others) / MOST_PRICES))
    kept = {id(one) for one in others[step - 1 :: step]}
    return [one for one in prices if one.deployed or not one.corrected or id(one) in kept]


def _price(one: PricePoint, in_points: bool) -> str:
    kind = "R2" if "r2" in one.columns else "accuracy"
    return f"{kind} {_quality(one)} with a gap of {points(one.violation, in_points=in_points)}"


def _quality(one: PricePoint) -> str:
    return number(one.quality) if "r2" in one.columns else percent(one.quality)


def model_form(model: Any) -> str:
    """What belongs below scikit-learn's diagram of a fitted model: price list, then certificate."""
    certificate = model.certificate_
    table = getattr(model, "price_", None)
    notion = getattr(model, "notion", None)
    shown = ""
    if table is not None and math.isfinite(certificate.epsilon):
        shown = prices_form(table, in_points=not (isinstance(notion, str) and notion in UNITS))
    return shown + certificate_form(certificate, folded=True)


# -- Parts of a form


def _form(lead: str, *parts: Any) -> str:
    style = Markup(f"<style>{STYLE}</style>")  # noqa: S704 - a constant
    return str(element("div", style, element("p", lead, class_="jf-lead"), *parts, class_="justitia-form"))


def _notes(sentences: Iterable[str]) -> Markup:
    return Markup("").join(element("p", one, class_="jf-note") for one in sentences if one)


def _pair(chart: Chart | None, table: Markup) -> Markup:
    """A chart beside its table, or below it where there is no room."""
    left = Markup("") if chart is None else element("figure", element("figcaption", chart.title), _still(chart))
    right = (
        element("div", table, class_="jf-scroll", tabindex="0", role="group", aria_label="table")
        if table
        else Markup("")
    )
    return element("div", left, right, class_="jf-pair")


def _still(chart: Chart) -> Markup:
    """A chart without scripts: marks are drawn in place, and their numbers appear on hover as a tooltip."""
    one = replace(chart, name=f"justitia-{next(_NUMBERS)}-{chart.name}", marks=())
    marks = Markup("").join(
        element(
            "g",
            element("title", mark.text),
            *mark.shapes(),
            class_=f"mark {mark.class_}".strip(),
            transform=f"translate({mark.x:.1f} {mark.y:.1f})",
        )
        for mark in chart.marks
    )
    return escape(replace(one, drawing=(*one.drawing, marks)))


def _table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str, *, strong: Sequence[int] = (), plain: bool = False
) -> Markup:
    """A table whose first column names the row; a row of one cell is a heading. ``plain``: text, left-aligned."""
    figure = None if plain else "jf-figure"
    top = element(
        "thead",
        element("tr", *(element("th", one, scope="col", class_=figure if k else None) for k, one in enumerate(head))),
    )
    body = [
        element(
            "tr",
            element("th", row[0], scope="row", colspan=len(head) if len(row) == 1 and len(head) > 1 else None),
            *(element("td", one, class_=figure) for one in row[1:]),
            class_="jf-strong" if k in strong or len(row) == 1 else None,
        )
        for k, row in enumerate(rows)
    ]
    words = element("caption", caption, style="text-align: left; opacity: .85; caption-side: top")
    return element("table", words, top if head else "", element("tbody", *body))
