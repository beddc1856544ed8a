"""A page for the custodian's own people, read only: budgets, who asked what and why, receipts, refusals.

It has no script, loads nothing, and shows no number by group: there is none outside the vault.
"""

from __future__ import annotations

from typing import Any

import jinja2
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from justitia.custodian.people import ledger_file
from justitia.custodian.records import Population
from justitia.custodian.service import Service
from justitia.privacy.accounting import epsilon_spent
from justitia.privacy.durable_ledger import DurableLedger

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {"content-security-policy": _POLICY, "cache-control": "no-store", "x-content-type-options": "nosniff"}
#: Points of the line, and entries of the tables.
_POINTS, _SHOWN = 60, 100

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ name }}: who asked what</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; } caption { text-align: left; font-weight: 600; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
.scroll { overflow-x: auto; } code { font-size: .85em; overflow-wrap: anywhere; } h2 { margin-top: 2.5rem; }
svg { max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) { body { background: #16181d; color: #e6e6e6; } th, td { border-color: #3a3d45; } }
</style></head><body><main>
<h1>{{ name }}</h1>
<p>Budgets, debits and refusals. Nothing here is by group: exact numbers do not leave the vault.</p>
{% for one in populations %}
<section><h2>{{ one.name }}{% if one.retired %} (retired {{ one.retired }}){% endif %}</h2>
<p>{{ one.people }} registered people; epsilon {{ one.spent }} of {{ one.epsilon }} spent at delta {{ one.delta }},
{{ one.left }} left for one more answer; {{ one.debits }} debits, {{ one.receipts }} receipts.</p>
{{ one.line }}
<div class="scroll" tabindex="0" role="region" aria-label="Debits of {{ one.name }}"><table>
<caption>Newest debits</caption>
<thead><tr><th scope="col">time</th><th scope="col">client / request</th><th scope="col">for</th>
<th scope="col">noise</th><th scope="col">receipt</th></tr></thead><tbody>
{% for entry in one.entries %}<tr><td>{{ entry.time }}</td><td>{{ entry.run }}</td><td>{{ entry.purpose }}</td>
<td>{{ entry.noise }}</td><td><code>{{ entry.link }}</code></td></tr>
{% else %}<tr><td colspan="5">none yet</td></tr>{% endfor %}</tbody></table></div></section>
{% else %}<p>No population is registered yet.</p>{% endfor %}
<section><h2>Refusals</h2><div class="scroll" tabindex="0" role="region" aria-label="Refusals"><table>
<caption>Newest refusals</caption><thead><tr><th scope="col">time</th><th scope="col">client</th>
<th scope="col">asked for</th><th scope="col">refused because of</th></tr></thead><tbody>
{% for entry in refusals %}<tr><td>{{ entry.time }}</td><td>{{ entry.client or "no valid key" }}</td>
<td>{{ entry.what }}</td><td>{{ entry.refused }} ({{ entry.status }})</td></tr>
{% else %}<tr><td colspan="4">none yet</td></tr>{% endfor %}</tbody></table></div></section>
</main></body></html>
"""


def page_app(service: Service) -> Starlette:
    """One route."""

    async def page(request: Request) -> Response:
        del request
        return HTMLResponse(await run_in_threadpool(page_text, service), headers=_HEADERS)

    return Starlette(routes=[Route("/", page, methods=["GET"])])


def page_text(service: Service) -> str:
    """The page as it is now."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    refusals = [entry for entry in service.log.last(1000) if "refused" in entry][:_SHOWN]
    populations = [_population(service, one) for one in service.records.populations()]
    return environment.from_string(_TEMPLATE).render(
        name=service.settings.name, populations=populations, refusals=refusals
    )


def _population(service: Service, one: Population) -> dict[str, Any]:
    ledger = DurableLedger.open(ledger_file(service.folder, one.name))
    releases = ledger.releases_by_run()
    receipts = service.records.receipts(one.name)
    links = {receipt["ledger"]["debits"] - 1: link for receipt, link in receipts}
    entries = [
        {
            "time": next((receipt["time"] for receipt, link in receipts if links.get(number) == link), ""),
            "run": run,
            "purpose": release.purpose,
            "noise": f"{getattr(release.cost, 'noise_multiplier', 0.0):.4g}",
            "link": links.get(number, "not answered"),
        }
        for number, (run, release) in list(enumerate(releases))[-_SHOWN:]
    ]
    return {
        "name": one.name,
        "retired": one.retired,
        "people": f"{one.people:,}",
        "epsilon": f"{one.epsilon:g}",
        "delta": f"{one.delta:g}",
        "spent": f"{ledger.epsilon():.4g}",
        "left": f"{ledger.remaining():.4g}",
        "debits": len(releases),
        "receipts": len(receipts),
        "entries": entries[::-1],
        "line": _line(ledger, one),
    }


def _line(ledger: DurableLedger, one: Population) -> Markup:
    """Epsilon spent after each debit, and the budget above it."""
    releases = ledger.releases
    places = sorted({round(k * len(releases) / _POINTS) for k in range(_POINTS + 1)})
    counts: dict[Any, int] = {}
    points, done = [], 0
    for place in places:
        for release in releases[done:place]:
            counts[release.cost] = counts.get(release.cost, 0) + 1
        done = place
        spent = epsilon_spent(counts, one.delta) if counts else 0.0
        x, y = 600 * place / max(len(releases), 1), 110 - 100 * min(spent / one.epsilon, 1.0)
        points.append(f"{x:.1f},{y:.1f}")
    label = Markup("epsilon spent after each of {} debits; the line above is the budget").format(len(releases))
    return Markup(
        '<svg viewBox="0 0 600 120" width="600" height="120" role="img" aria-label="{}">'
        '<line x1="0" y1="10" x2="600" y2="10" stroke="currentColor" stroke-dasharray="4 4"/>'
        '<line x1="0" y1="110" x2="600" y2="110" stroke="currentColor"/>'
        '<polyline points="{}" fill="none" stroke="#2f6fb0" stroke-width="2"/></svg>'
    ).format(label, " ".join(points))


__all__ = ["page_app", "page_text"]
