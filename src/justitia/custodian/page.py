"""Status page for the custodian's staff, read only: budgets, debits by client and purpose, receipts, refusals.

It has no script, loads nothing, and shows no number by group, because there is none outside the vault.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from justitia.custodian.app import App, allowed_hosts, checked_headers, drop_traceback
from justitia.custodian.errors import RequestError
from justitia.custodian.populations import ledger_file
from justitia.custodian.records import Client, Population
from justitia.custodian.service import Service, require_role
from justitia.privacy.accounting import epsilon_spent
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.ledger import Release

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {"content-security-policy": _POLICY, "cache-control": "no-store", "x-content-type-options": "nosniff"}
#: Points of the chart, and rows of the tables.
_POINTS, _ROWS = 60, 100

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ name }}: budgets and debits</title>
<style>
:root { color-scheme: light dark; --ink: #1c1c1c; --back: #fff; --rule: #ddd; --quiet: #595959; --spent: #2f6fb0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --back: #16181d; --rule: #3a3d45; --quiet: #a9adb5; --spent: #6cb0f5; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink);
  background: var(--back); }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; white-space: nowrap; }
th, td { text-align: left; padding: .25rem 1rem .25rem 0; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { color: var(--quiet); font-weight: 500; } .number { text-align: right; font-variant-numeric: tabular-nums; }
.long { white-space: normal; min-width: 11rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } code { font-size: .85em; } h2 { margin-top: 2.5rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 1rem; margin: 1rem 0 1.5rem; }
dt { color: var(--quiet); font-size: .9rem; } dd { margin: 0; font-size: 1.4rem; font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; max-width: 44rem; } figcaption { color: var(--quiet); font-size: .9rem; }
svg { width: 100%; height: auto; }
</style></head><body><main>
<h1>{{ name }}</h1>
<p>Budgets, debits and refusals; times are UTC. Nothing here is by group: exact numbers do not leave the vault.</p>
{% for one in populations %}
<section><h2>{{ one.name }}{% if one.retired %} (retired {{ one.retired }}){% endif %}</h2>
<dl>{% for name, value in one.facts %}<div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>{% endfor %}</dl>
{{ one.chart }}
<div class="scroll" tabindex="0" role="region" aria-label="Clients of {{ one.name }}"><table>
<caption>Clients</caption><thead><tr><th scope="col">client</th><th scope="col" class="number">debits</th>
<th scope="col" class="number">epsilon of these alone</th><th scope="col">last</th></tr></thead><tbody>
{% for client in one.clients %}<tr><td>{{ client.name }}</td><td class="number">{{ client.debits }}</td>
<td class="number">{{ client.epsilon }}</td><td>{{ client.last }}</td></tr>
{% else %}<tr><td colspan="4">none yet</td></tr>{% endfor %}</tbody></table></div>
<div class="scroll" tabindex="0" role="region" aria-label="Debits of {{ one.name }}"><table>
<caption>Newest debits</caption>
<thead><tr><th scope="col">time</th><th scope="col">client</th><th scope="col">purpose</th>
<th scope="col" class="number">noise multiplier</th><th scope="col">request</th>
<th scope="col">receipt</th></tr></thead><tbody>
{% for entry in one.entries %}<tr><td>{{ entry.time }}</td><td>{{ entry.client }}</td>
<td class="long">{{ entry.purpose }}</td><td class="number">{{ entry.noise }}</td>
<td><code title="{{ entry.request }}">{{ entry.request[:12] }}</code></td>
<td><code title="{{ entry.link }}">{{ entry.link[:12] }}</code></td></tr>
{% else %}<tr><td colspan="6">none yet</td></tr>{% endfor %}</tbody></table></div></section>
{% else %}<p>No population is registered yet.</p>{% endfor %}
<section><h2>Refusals</h2><div class="scroll" tabindex="0" role="region" aria-label="Refusals"><table>
<caption>Newest refusals</caption><thead><tr><th scope="col">time</th><th scope="col">client</th>
<th scope="col">operation</th><th scope="col">reason</th></tr></thead><tbody>
{% for entry in refusals %}<tr><td>{{ entry.time | clock }}</td><td>{{ entry.client or "no valid key" }}</td>
<td>{{ entry.what }}</td><td>{{ entry.refused }} ({{ entry.status }})</td></tr>
{% else %}<tr><td colspan="4">none yet</td></tr>{% endfor %}</tbody></table></div></section>
</main></body></html>
"""


def page_app(app: App) -> ASGIApp:
    """The page as an application, for keys with the role ``read``; a browser asks for the key as a password."""

    async def page(request: Request) -> Response:
        try:
            client = await app.client(request)
            require_role(client, "read")
            text = await app.answers.run(client.name, lambda: page_text(app.service, client))
        except RequestError as error:
            drop_traceback(error)
            headers = _HEADERS | ({"www-authenticate": 'Basic realm="custodian"'} if error.status == 401 else {})
            return PlainTextResponse(error.message + "\n", error.status, headers)
        return HTMLResponse(text, headers=_HEADERS)

    return checked_headers(Starlette(routes=[Route("/", page, methods=["GET"])]), allowed_hosts("", "127.0.0.1"))


def page_text(service: Service, client: Client) -> str:
    """HTML of the page, with the populations that the client's key is for."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["clock"] = _clock
    refusals = [entry for entry in service.log.last(2000) if "refused" in entry][:_ROWS]
    allowed = [one for one in service.records.populations() if one.name in client.populations]
    populations = [_population(service, one) for one in allowed]
    return environment.from_string(_TEMPLATE).render(
        name=service.settings.name, populations=populations, refusals=refusals
    )


def _clock(time: str) -> str:
    """A time of the records, to the second."""
    return time[:19].replace("T", " ")


class Debit(NamedTuple):
    """One debit, with the time and link of its receipt if it was answered."""

    client: str
    request: str
    release: Release
    time: str
    link: str


def _debits(service: Service, name: str, ledger: DurableLedger) -> list[Debit]:
    receipts = {
        receipt["ledger"]["debits"] - 1: (receipt["time"], link) for receipt, link in service.records.receipts(name)
    }
    found = []
    for number, (run, release) in enumerate(ledger.releases_by_run()):
        client, _, request = run.rpartition("/")
        found.append(Debit(client, request, release, *receipts.get(number, ("", "not answered"))))
    return found


def _population(service: Service, one: Population) -> dict[str, Any]:
    ledger = DurableLedger.open(ledger_file(service.folder, one.name))
    debits = _debits(service, one.name, ledger)
    answered = sum(bool(debit.time) for debit in debits)
    facts = {
        "epsilon spent": f"{ledger.epsilon():.4g}",
        "of a budget of": f"{one.epsilon:g}",
        "left for one answer": f"{ledger.remaining():.4g}",
        "delta": f"{one.delta:g}",
        "debits": f"{len(debits):,}",
        "receipts": f"{answered:,}",
    }
    entries = [
        {
            "time": _clock(debit.time),
            "client": debit.client,
            "request": debit.request,
            "purpose": debit.release.purpose,
            "noise": f"{getattr(debit.release.cost, 'noise_multiplier', 0.0):.4g}",
            "link": debit.link,
        }
        for debit in reversed(debits[-_ROWS:])
    ]
    clients = [_client(name, debits, one.delta) for name in sorted({debit.client for debit in debits})]
    shown = {"name": one.name, "retired": one.retired and _clock(one.retired), "facts": facts.items()}
    return shown | {"entries": entries, "clients": clients, "chart": _chart(debits, one)}


def _client(name: str, debits: list[Debit], delta: float) -> dict[str, Any]:
    own = [debit for debit in debits if debit.client == name]
    spent = epsilon_spent(Counter(debit.release.cost for debit in own), delta)
    return {"name": name, "debits": len(own), "epsilon": f"{spent:.4g}", "last": _clock(own[-1].time)}


def _chart(debits: list[Debit], one: Population) -> Markup:
    """Chart of epsilon spent over time, below the budget; a debit without an answer has the time of the one before."""
    begun = datetime.fromisoformat(one.registered)
    times, now = [], begun
    for debit in debits:
        now = datetime.fromisoformat(debit.time) if debit.time else now
        times.append(now)
    long = max((now - begun).total_seconds(), 1e-3)
    counts: Counter[Any] = Counter()
    points, done, y = ["0.0,120.0"], 0, 120.0
    for place in sorted({round(k * len(debits) / _POINTS) for k in range(1, _POINTS + 1)} - {0}):
        counts.update(debit.release.cost for debit in debits[done:place])
        x = 700 * (times[place - 1] - begun).total_seconds() / long
        points.append(f"{x:.1f},{y:.1f}")
        y = 120 - 100 * min(epsilon_spent(counts, one.delta) / one.epsilon, 1.0)
        points.append(f"{x:.1f},{y:.1f}")
        done = place
    label = (
        f"Epsilon spent (line) of the budget of {one.epsilon:g} (dashed): {len(debits)} debits from "
        f"{_clock(one.registered)} to {_clock(now.isoformat())}"
    )
    return Markup(
        '<figure><svg viewBox="0 14 700 110" role="img" aria-label="{}">'
        '<line x1="0" y1="20" x2="700" y2="20" stroke="currentColor" stroke-dasharray="4 4"/>'
        '<line x1="0" y1="120" x2="700" y2="120" stroke="currentColor"/>'
        '<polyline points="{}" fill="none" stroke="var(--spent)" stroke-width="2.5"/></svg>'
        "<figcaption>{}</figcaption></figure>"
    ).format(label, " ".join(points), label)


__all__ = ["page_app", "page_text"]
