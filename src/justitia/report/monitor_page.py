"""Page of a monitor: the newest verdict, violations over time with their bounds, drift of columns, and the budget.

It is made of the plain data of a monitor, all of it public or noised, runs no script and loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from justitia.privacy.ledger import rounded_up
from justitia.report.svg import Scale, element, label, left_axis, line, polyline, span, tick_text

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 460.0, 250.0, 46.0, 450.0, 30.0, 210.0
#: Measurements in the table.
_ROWS = 60
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
#: Icon and words of the newest answer; colour only repeats them.
_STATES = {
    "below": ("\N{CHECK MARK}", "Within the limit", "good"),
    "above": ("!", "Above the limit", "wrong"),
    "not enough evidence": ("?", "Not enough evidence", "open"),
    "lost": ("?", "Result lost", "open"),
    "none": ("?", "Not measured yet", "open"),
}

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="content-security-policy" content="{{ policy }}">
<meta name="generator" content="justitia monitor">
<title>{{ name }}: monitoring</title>
<style>
:root { color-scheme: light dark; --ink: #1c1c1c; --back: #fff; --rule: #d5d8dd; --quiet: #595959; --accent: #2f6fb0;
  --card: #f5f6f8; --wrong: #a32020; --good: #1e6b34; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --back: #16181d; --rule: #3a3d45; --quiet: #a9adb5; --accent: #6cb0f5; --card: #1f2229;
    --wrong: #ff8f8f; --good: #7fd196; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink);
  background: var(--back); overflow-wrap: anywhere; }
h1 { margin-bottom: .25rem; } h2 { margin: 2.5rem 0 .5rem; } .quiet { color: var(--quiet); }
.state { font-size: 1.5rem; font-weight: 600; margin: .5rem 0; } .wrong { color: var(--wrong); }
.good { color: var(--good); } figure { margin: 1rem 0; max-width: 46rem; } figcaption { color: var(--quiet); }
svg { width: 100%; height: auto; } svg text { fill: var(--quiet); font-size: 13px; }
svg .grid { stroke: var(--rule); } svg .axis { stroke: var(--quiet); }
svg .line { fill: none; stroke: var(--accent); stroke-width: 2; } svg .bounds { fill: var(--accent); opacity: .18; }
svg .limit { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 6 4; }
svg .limit-text { fill: var(--ink); } svg .alert { fill: var(--wrong); }
.bar { height: 1.1rem; background: var(--card); border: 1px solid var(--rule); border-radius: .3rem; overflow: hidden; }
.bar div { height: 100%; background: var(--accent); }
table { border-collapse: collapse; width: 100%; } .scroll { overflow-x: auto; }
th, td { text-align: left; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { color: var(--quiet); font-weight: 500; } .number { text-align: right; font-variant-numeric: tabular-nums; }
</style></head><body><main>
<h1>{{ name }}</h1>
<p class="quiet">{{ made }} of {{ planned }} planned measurements of {{ notion }}; limit {{ limit }}.</p>
<p class="state {{ state[2] }}"><span aria-hidden="true">{{ state[0] }}</span> {{ state[1] }}</p>
<p>{{ newest }}</p>
<p>{{ history }}</p>
<h2>Violation over time</h2>
{{ chart }}
<p>{{ rule }}</p>
<h2>Budget</h2>
<p id="used">{{ used }}% used: epsilon {{ spent }} of {{ total }} of a person.</p>
<div class="bar" role="progressbar" aria-labelledby="used" aria-valuemin="0" aria-valuemax="100"
 aria-valuenow="{{ used }}"><div style="width: {{ used }}%"></div></div>
<p>{{ budget }}</p>
{% if columns %}<h2>Drift of public columns</h2>
<p>An alert needs a population stability index of at least {{ large }} and a difference that chance makes with a
probability below {{ drift_level }}.</p>
{% for one in columns %}<figure>{{ one.chart }}<figcaption>{{ one.caption }}</figcaption></figure>{% endfor %}
{% endif %}
<h2>Measurements</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Measurements"><table>
<thead><tr><th scope="col">period</th><th scope="col" class="number">rows</th>
<th scope="col" class="number">violation</th><th scope="col" class="number">at least</th>
<th scope="col" class="number">at most</th><th scope="col">answer</th>
<th scope="col">alerts</th></tr></thead><tbody>
{% for one in rows %}<tr><td>{{ one.when }}</td><td class="number">{{ one.people }}</td>
<td class="number">{{ one.violation }}</td><td class="number">{{ one.at_least }}</td>
<td class="number">{{ one.at_most }}</td><td>{{ one.answer }}</td><td>{{ one.alerts }}</td></tr>
{% else %}<tr><td colspan="7">none yet</td></tr>{% endfor %}</tbody></table></div>
{% if more %}<p class="quiet">And {{ more }} earlier ones.</p>{% endif %}
</main></body></html>
"""


def monitor_page(facts: Mapping[str, Any]) -> str:
    """One self-contained page.

    Parameters
    ----------
    facts : mapping
        From :meth:`justitia.Monitor.to_dict`.
    """
    entries: Sequence[Mapping[str, Any]] = facts["measurements"]
    newest = entries[-1] if entries else None
    alerted = [one for one in entries if one["alerts"]]
    used = min(100, round(100 * facts["epsilon_spent"] / facts["epsilon_total"]))
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(_TEMPLATE).render(
        policy=_POLICY,
        name=facts["name"],
        made=len(entries),
        planned=facts["planned"],
        notion=facts["notion"].replace("_", " "),
        limit=f"{facts['limit']:g}",
        state=_STATES["none" if newest is None else newest["answer"]],
        newest="" if newest is None else _newest(newest, facts),
        history=_history(entries, alerted),
        chart=_violations(entries, facts),
        rule=facts["rule"],
        used=used,
        spent=f"{facts['epsilon_spent']:.4g}",
        total=rounded_up(facts["epsilon_total"]),
        budget=facts["budget"],
        columns=[_column(name, entries) for name in facts["columns"]],
        large="0.1",
        drift_level=f"{facts['drift_level']:.2g}",
        rows=[_row(one) for one in reversed(entries[-_ROWS:])],
        more=max(0, len(entries) - _ROWS),
    )


def _newest(newest: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    if newest["violation"] is None:
        return f"{newest['when']}: there is no estimate."
    return (
        f"{newest['when']}: the violation of {newest['people']:,} rows is about {newest['violation']:.3f}, at least "
        f"{newest['at_least']:.3f} and at most {newest['at_most']:.3f}, each at confidence "
        f"{facts['confidence_each']:.6g}."
    )


def _history(entries: Sequence[Mapping[str, Any]], alerted: Sequence[Mapping[str, Any]]) -> str:
    if not entries:
        return ""
    if not alerted:
        return "No measurement was an alert so far."
    about = ", ".join(alerted[0]["alerts"])
    return f"{len(alerted)} of {len(entries)} measurements were alerts, the first at {alerted[0]['when']} ({about})."


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: "" if one[name] is None else f"{one[name]:.3f}" for name in ("violation", "at_least", "at_most")}
    return {**one, **numbers, "people": f"{one['people']:,}", "alerts": ", ".join(one["alerts"])}


def _places(entries: Sequence[Mapping[str, Any]]) -> Scale:
    numbers = [one["number"] for one in entries]
    return Scale(min(numbers) - 0.5, max(numbers) + 0.5, _LEFT, _RIGHT)


def _frame(entries: Sequence[Mapping[str, Any]], scale: Scale, title: str) -> Markup:
    """Both axes: numbers at the left, the first and the last period below."""
    ends = [label(_LEFT, _BOTTOM + 16, _short(entries[0]["when"]), class_="tick")]
    if len(entries) > 1:
        ends += [label(_RIGHT, _BOTTOM + 16, _short(entries[-1]["when"]), anchor="end", class_="tick")]
    below = element("g", line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, class_="axis"), *ends)
    return element("g", left_axis(scale, _LEFT, _RIGHT, title), below)


def _short(when: str) -> str:
    return when if len(when) <= 20 else when[:19] + "\N{HORIZONTAL ELLIPSIS}"


def _drawing(name: str, description: str, *parts: Any) -> Markup:
    box = f"0 0 {_WIDTH:g} {_HEIGHT - 15:g}"
    return element("svg", *parts, viewBox=box, role="img", aria_label=f"{name}: {description}")


def _violations(entries: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> Markup:
    """Estimates as a line, their bounds as an area, the limit dashed, alerts as marks."""
    known = [one for one in entries if one["violation"] is not None]
    if not known:
        return element("p", "There is nothing to draw yet.")
    x = _places(known)
    highest = max([facts["limit"] * 1.2, *(one["at_most"] for one in known)])
    y = Scale(0.0, span([0.0, highest], floor=0.0)[1], _BOTTOM, _TOP)
    upper = [(x(one["number"]), y(one["at_most"])) for one in known]
    lower = [(x(one["number"]), y(one["at_least"])) for one in reversed(known)]
    area = element("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in upper + lower), class_="bounds")
    limit = y(facts["limit"])
    marks = [
        element("path", d="M0-6L5 4H-5z", class_="alert", transform=f"translate({x(one['number']):.1f} {_TOP:.1f})")
        for one in known
        if "limit" in one["alerts"]
    ]
    described = (
        f"{len(known)} measurements from {known[0]['when']} to {known[-1]['when']}; {len(marks)} above the limit of "
        f"{facts['limit']:g}"
    )
    drawing = _drawing(
        "Violation over time",
        described,
        _frame(known, y, "violation"),
        area,
        polyline([(x(one["number"]), y(one["violation"])) for one in known], 0),
        line(_LEFT, limit, _RIGHT, limit, class_="limit"),
        label(_LEFT + 4, limit - 10, f"limit {tick_text(facts['limit'])}", class_="limit-text"),
        *marks,
    )
    caption = element("figcaption", f"Estimates (line), their bounds (area) and alerts (triangles): {described}.")
    return element("figure", drawing, caption)


def _column(name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Stability index of one column over time."""
    known = [one for one in entries if name in one["drift"]]
    if not known:
        return {"chart": "", "caption": f"{name}: not measured yet"}
    values = [one["drift"][name]["stability_index"] for one in known]
    x, y = _places(known), Scale(0.0, span([0.0, 0.3, *values], floor=0.0)[1], _BOTTOM, _TOP)
    alerts = sum(one["drift"][name]["alert"] for one in known)
    caption = f"{name}: population stability index, {values[-1]:.3f} at the end; {alerts} alerts"
    points = [(x(one["number"]), y(value)) for one, value in zip(known, values, strict=True)]
    chart = _drawing(name, caption, _frame(known, y, f"stability index of {_short(name)}"), polyline(points, 0))
    return {"chart": chart, "caption": caption}


__all__ = ["monitor_page"]
