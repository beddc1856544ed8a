"""Page of a monitor: a verdict, gaps over time with their bounds and the limit, drift of columns, and the rules.

It is made of the plain data of a monitor, all of it public or noised, runs no script and loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from justitia.metrics.drift import LARGE
from justitia.privacy.ledger import rounded_up
from justitia.report.formatting import plain_name, points
from justitia.report.svg import Scale, element, label, left_axis, line, points_text, polyline, span
from justitia.report.verdict import Check, State

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 460.0, 235.0, 46.0, 450.0, 40.0, 210.0
#: Measurements in the table.
_ROWS = 60
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
#: Beside the report's style: one wide chart whose letters do not grow with it, and the marks of alerts.
_STYLE = """
.time { max-width: 46rem; } svg .bounds { fill: var(--accent); opacity: .18; } svg .alert { fill: var(--not-met); }
@media (min-width: 52rem) { .time svg text { font-size: 10px; } }
"""
#: What a measurement says about the limit.
_ANSWERS = {"above": "above", "below": "within", "not enough evidence": "neither is shown", "lost": "result lost"}


def monitor_page(facts: Mapping[str, Any]) -> str:
    """One self-contained page.

    Parameters
    ----------
    facts : mapping
        From :meth:`justitia.Monitor.to_dict`.
    """
    entries: Sequence[Mapping[str, Any]] = facts["measurements"]
    loader = PackageLoader("justitia.report")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, loader=loader, trim_blocks=True, lstrip_blocks=True
    )
    style = loader.get_source(environment, "style.css")[0] + _STYLE
    state, word = _state(entries)
    return environment.get_template(
        "monitor.html"
    ).render(
        policy=_POLICY,
        style=Markup(style),  # noqa: S704 - a file of this package
        name=facts["name"],
        made=len(entries),
        planned=facts["planned"],
        notion=plain_name(facts["notion"]),
        limit=points(facts["limit"]),
        state=state,
        word=word,
        newest=_newest(entries, facts),
        history=_history(entries),
        checks=_checks(entries, facts),
        chart=_gaps(entries, facts),
        rule=facts["rule"],
        budget=facts["budget"],
        columns=[_column(name, entries) for name in facts["columns"]],
        large=f"{LARGE:g}",
        drift_level=f"{facts['drift_level']:.2g}",
        rows=[_row(one) for one in reversed(entries[-_ROWS:])],
        more=max(0, len(entries) - _ROWS),
    )


def _above(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in entries if "limit" in one["alerts"]]


def _state(entries: Sequence[Mapping[str, Any]]) -> tuple[State, str]:
    """State of the page; a measurement that was above the limit stays its verdict, because it was no false alarm."""
    if not entries:
        return "not measured", "Not measured yet"
    newest = entries[-1]
    if above := _above(entries):
        return "not met", "Above the limit" if above[-1] is newest else "Limit was exceeded"
    if newest["alerts"]:
        return "inconclusive", "Drift"
    if newest["answer"] == "lost":
        return "not measured", "Result lost"
    return ("met", "Within the limit") if newest["answer"] == "below" else ("inconclusive", "No alert")


def _history(entries: Sequence[Mapping[str, Any]]) -> str:
    above, drifted = _above(entries), [one for one in entries if set(one["alerts"]) - {"limit"}]
    if not entries:
        return "No measurement was made yet."
    text = "No measurement has shown a gap above the limit."
    if above:
        text = (
            f"{len(above)} of {len(entries)} measurements showed a gap above the limit, the first of {above[0]['when']}"
        )
        text += f" and the last of {above[-1]['when']}." if len(above) > 1 else "."
    if drifted:
        columns = dict.fromkeys(name for one in drifted for name in one["alerts"] if name != "limit")
        names = ", ".join(name.removeprefix("drift of ") for name in columns)
        text += f" Drift of {names}: first in {drifted[0]['when']}."
    return text


def _newest(entries: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    newest = entries[-1] if entries else None
    if newest is None:
        return ""
    if newest["violation"] is None:
        return f"Newest, {newest['when']}: there is no estimate."
    least, most = (points(newest[name], facts["limit"]) for name in ("at_least", "at_most"))
    return (
        f"Newest, {newest['when']}: {points(newest['violation'])} among {newest['people']:,} rows, at least {least} "
        f"and at most {most}."
    )


def _checks(entries: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> list[Check]:
    """The newest measurement, alerts so far, drift and privacy."""
    newest, above = entries[-1] if entries else None, len(_above(entries))
    states: dict[str, State] = {"above": "not met", "below": "met", "not enough evidence": "inconclusive"}
    answer = "lost" if newest is None else newest["answer"]
    gap = "none yet" if newest is None or newest["violation"] is None else points(newest["violation"])
    alarms = f"by chance with a probability of at most {facts['planned'] * (1 - facts['confidence_each']):.2g}"
    drifted = [name.removeprefix("drift of ") for name in (newest or {"alerts": ()})["alerts"] if name != "limit"]
    watched = f"{len(facts['columns'])} public columns watched" if facts["columns"] else "no column is watched"
    spent, total = f"{facts['epsilon_spent']:.4g}", rounded_up(facts["epsilon_total"])
    people = "each measurement has new people" if facts["people"] == "new" else "costs of the same people add up"
    return [
        Check("Newest gap", states.get(answer, "not measured"), gap, f"Against the limit: {_ANSWERS[answer]}"),
        Check("Above the limit", "not met" if above else "met", f"{above} of {len(entries)}", f"Alerts, {alarms}"),
        Check("Drift now", "inconclusive" if drifted else "met", ", ".join(drifted) or "none", watched),
        Check("Privacy", "met", f"epsilon {spent} of {total}", f"Of one person; {people}"),
    ]


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {
        name: "" if one[name] is None else points(one[name]).split(" ")[0]
        for name in ("violation", "at_least", "at_most")
    }
    people, answer = f"{one['people']:,}", _ANSWERS[one["answer"]]
    return {**one, **numbers, "people": people, "answer": answer, "alerts": ", ".join(one["alerts"])}


# -- charts


def _places(entries: Sequence[Mapping[str, Any]]) -> Scale:
    numbers = [one["number"] for one in entries]
    return Scale(min(numbers) - 0.5, max(numbers) + 0.5, _LEFT, _RIGHT)


def _frame(entries: Sequence[Mapping[str, Any]], axis: Markup) -> Markup:
    """Both axes: numbers at the left, the first and the last period below."""
    ends = [label(_LEFT, _BOTTOM + 16, _short(entries[0]["when"]), class_="tick")]
    if len(entries) > 1:
        ends += [label(_RIGHT, _BOTTOM + 16, _short(entries[-1]["when"]), anchor="end", class_="tick")]
    return element("g", axis, element("g", line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, class_="axis"), *ends))


def _short(when: str) -> str:
    return when if len(when) <= 20 else when[:19] + "\N{HORIZONTAL ELLIPSIS}"


def _drawing(name: str, description: str, *parts: Any) -> Markup:
    return element(
        "svg", *parts, viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}", role="img", aria_label=f"{name}: {description}"
    )


def _triangles(entries: Sequence[Mapping[str, Any]], x: Scale, alert: str) -> list[Markup]:
    """A mark above every measurement with this alert."""
    places = [f"translate({x(one['number']):.1f} {_TOP - 10:.1f})" for one in entries if alert in one["alerts"]]
    return [element("path", d="M0-6L5 4H-5z", class_="alert", transform=place) for place in places]


def _gaps(entries: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> Markup:
    """Estimates as a line, their bounds as an area, the limit, alerts as marks."""
    known = [one for one in entries if one["violation"] is not None]
    if not known:
        return element("p", "There is nothing to draw yet.", class_="absent")
    x = _places(known)
    highest = max([facts["limit"] * 1.2, *(one["at_most"] for one in known)])
    y = Scale(0.0, span([0.0, highest], floor=0.0)[1], _BOTTOM, _TOP)
    upper = [(x(one["number"]), y(one["at_most"])) for one in known]
    lower = [(x(one["number"]), y(one["at_least"])) for one in reversed(known)]
    area = element("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in upper + lower), class_="bounds")
    limit, marks = y(facts["limit"]), _triangles(known, x, "limit")
    described = (
        f"{len(known)} measurements from {known[0]['when']} to {known[-1]['when']}; {len(marks)} above the limit of "
        f"{points(facts['limit'])}"
    )
    drawing = _drawing(
        "Gap over time",
        described,
        _frame(known, left_axis(y, _LEFT, _RIGHT, "largest gap, in points", written=points_text)),
        area,
        polyline([(x(one["number"]), y(one["violation"])) for one in known], 0),
        line(_LEFT, limit, _RIGHT, limit, class_="limit"),
        label(_RIGHT, limit - 9, f"limit {points(facts['limit'])}", anchor="end", class_="limit-text"),
        *marks,
    )
    caption = element("figcaption", "Largest gap between two groups (line), its bounds (area), and alerts (triangles)")
    return element("figure", caption, drawing, class_="time")


def _column(name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Stability index of one column over time."""
    known = [one for one in entries if name in one["drift"]]
    if not known:
        return {"chart": "", "caption": f"{name}: not measured yet"}
    values = [one["drift"][name]["stability_index"] for one in known]
    x, y = _places(known), Scale(0.0, span([0.0, 0.3, *values], floor=0.0)[1], _BOTTOM, _TOP)
    marks = _triangles(known, x, f"drift of {name}")
    caption = f"{name}: {values[-1]:.3f} now; {len(marks)} alerts"
    places = [(x(one["number"]), y(value)) for one, value in zip(known, values, strict=True)]
    axis = left_axis(y, _LEFT, _RIGHT, "population stability index")
    large = line(_LEFT, y(LARGE), _RIGHT, y(LARGE), class_="reference")
    chart = _drawing(name, caption, _frame(known, axis), large, polyline(places, 0), *marks)
    return {"chart": chart, "caption": caption}


__all__ = ["monitor_page"]
