"""Status page for the custodian's staff, read only: budgets, answers by client and purpose, receipts, refusals.

It has no script, loads nothing, and shows no number by group, because there is none outside the vault. All answers are
in a CSV file beside it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from justitia.custodian.app import App, allowed_hosts, checked_headers, drop_traceback
from justitia.custodian.errors import RequestError, not_found
from justitia.custodian.populations import ledger_file
from justitia.custodian.records import Client, Population
from justitia.custodian.service import Service, require_role
from justitia.exceptions import LedgerError
from justitia.privacy.accounting import Cost, GaussianCost, best_guess, cost_from_dict, epsilon_spent, gaussian_mu
from justitia.privacy.durable_ledger import DurableLedger

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {"content-security-policy": _POLICY, "cache-control": "no-store", "x-content-type-options": "nosniff"}
#: Points of the chart, runs and refusals that are shown, and answers that are listed within a run.
_POINTS, _ROWS, _LISTED = 60, 50, 20
#: Answers to one client with no longer pause between them are one run.
_PAUSE = timedelta(minutes=10)
_MEASURED = "group rates"
#: Kinds of refusals in words; others are shown by their kind alone.
_REASONS = {
    "input": "request that cannot be used",
    "key": "no valid key",
    "role": "key without this role",
    "unknown": "no such population or cohort for this key",
    "budget": "more than is left of the budget",
    "rate": "too many requests per minute",
    "queue": "too many requests at once",
    "replay": "request id used before",
    "size": "request too large",
}

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ name }}: budgets and answers</title>
<style>
:root { color-scheme: light dark; --ink: #1c1c1c; --back: #fff; --rule: #d5d8dd; --quiet: #595959; --spent: #2f6fb0;
  --card: #f5f6f8; --wrong: #a32020; --good: #1e6b34; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --back: #16181d; --rule: #3a3d45; --quiet: #a9adb5; --spent: #6cb0f5; --card: #1f2229;
    --wrong: #ff8f8f; --good: #7fd196; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink);
  background: var(--back); }
h1 { margin: 0; } h2 { margin: 3rem 0 .5rem; } h3 { margin: 1.5rem 0 .5rem; font-size: 1rem; }
a { color: var(--spent); } code { font-size: .85em; overflow-wrap: anywhere; } .quiet { color: var(--quiet); }
.bar { height: 1.1rem; background: var(--card); border: 1px solid var(--rule); border-radius: .3rem; overflow: hidden; }
.bar div { height: 100%; background: var(--spent); }
.used { font-size: 1.6rem; margin: .75rem 0 .25rem; font-variant-numeric: tabular-nums; }
.wrong { color: var(--wrong); font-weight: 600; } .good { color: var(--good); } h1 + p { max-width: 44rem; }
.over { margin: 0; color: var(--spent); font-size: .875rem; font-weight: 600; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: .75rem 1.5rem; margin: 1rem 0; }
dt { color: var(--quiet); font-size: .9rem; } dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 1rem 0; max-width: 34rem; } figcaption { color: var(--quiet); font-size: .9rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--quiet); font-size: 13px; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; }
th, td { text-align: left; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--quiet); font-weight: 500; } .number { text-align: right; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; } .time { white-space: nowrap; }
details { border: 1px solid var(--rule); border-radius: .4rem; padding: .5rem .75rem; margin: .5rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
:focus-visible { outline: 3px solid var(--spent); outline-offset: 2px; } .wide { grid-column: 1 / -1; }
@media (max-width: 36rem) {
  body { margin: 1rem auto; } h2 { margin-top: 2rem; } svg text { font-size: 18px; } .middle { display: none; }
  table { font-size: .8125rem; } th, td { padding-right: .5rem; } td.time { white-space: normal; } }
</style></head><body><main>
<p class="over">Custodian of a sensitive attribute</p>
<h1>{{ name }}</h1>
<p class="quiet">Budgets, answers and refusals; times are UTC. Nothing here is by group: exact numbers do not leave the
vault.</p>
{% for one in populations %}
<section><h2>{{ one.name }}{% if one.retired %} (retired {{ one.retired }}){% endif %}</h2>
<p class="used" id="used-{{ one.name }}">{{ one.used }}% used</p>
<div class="bar" role="progressbar" aria-labelledby="used-{{ one.name }}" aria-valuemin="0" aria-valuemax="100"
 aria-valuenow="{{ one.used }}"><div style="width: {{ one.used }}%"></div></div>
<p>{{ one.guess }}</p>
<p class="{{ "wrong" if one.broken else "good" }}">
<span aria-hidden="true">{{ "\u2717" if one.broken else "\u2713" }}</span> {{ one.chain }}</p>
{% if one.overdue %}<p class="wrong"><span aria-hidden="true">!</span> {{ one.overdue }}</p>{% endif %}
<dl>{% for name, value in one.facts %}<div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>{% endfor %}
<div class="wide"><dt>to delete the attribute</dt><dd><code>{% for word in one.retire %}
<span class="time">{{ word }}</span>{% endfor %}</code></dd></div></dl>
{{ one.chart }}
<h3>Answers</h3>
{% for run in one.runs %}<details><summary>{{ run.summary }}<br>
<span class="quiet">{{ run.times }}; epsilon {{ run.epsilon }} alone</span></summary>
<div class="scroll" tabindex="0" role="region" aria-label="Answers of {{ run.times }}"><table>
<thead><tr><th scope="col">time</th><th scope="col">purpose</th><th scope="col" class="number">noise multiplier</th>
<th scope="col">request</th><th scope="col">receipt</th></tr></thead><tbody>
{% for debit in run.debits %}<tr><td class="time">{{ debit.time | clock }}</td><td>{{ debit.purpose }}</td>
<td class="number">{{ debit.noise }}</td><td><code title="{{ debit.request }}">{{ debit.request[:12] }}</code></td>
<td><code title="{{ debit.link }}">{{ debit.link[:12] or "not answered" }}</code></td></tr>{% endfor %}
{% if run.more %}<tr><td colspan="5">and {{ run.more }} earlier ones</td></tr>{% endif %}</tbody></table></div>
</details>
{% else %}<p>None yet.</p>{% endfor %}
<p>{% if one.more_runs %}And {{ one.more_runs }} earlier runs. {% endif %}<a
 href="answers.csv?population={{ one.name }}">All {{ one.debits }} answers of {{ one.name }} as CSV</a></p>
<h3>Clients</h3>
<div class="scroll" tabindex="0" role="region" aria-label="Clients of {{ one.name }}"><table>
<thead><tr><th scope="col">client</th><th scope="col" class="number">answers</th>
<th scope="col" class="number">epsilon of these alone</th><th scope="col">last</th></tr></thead><tbody>
{% for client in one.clients %}<tr><td>{{ client.name }}</td><td class="number">{{ client.debits }}</td>
<td class="number">{{ client.epsilon }}</td><td class="time">{{ client.last }}</td></tr>
{% else %}<tr><td colspan="4">none yet</td></tr>{% endfor %}</tbody></table></div></section>
{% else %}<p>No population is registered yet.</p>{% endfor %}
<section><h2>Refusals</h2>
<p class="quiet">Of requests, and of fits that a client refused itself because their plan did not fit into the
budget.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Refusals"><table>
<thead><tr><th scope="col">time</th><th scope="col">client</th><th scope="col">operation</th><th scope="col">reason</th>
<th scope="col" class="number">times</th></tr></thead><tbody>
{% for entry in refusals %}<tr><td class="time">{{ entry.time | clock }}</td>
<td>{{ entry.client or "no valid key" }}</td>
<td>{{ entry.what }}</td><td>{{ entry.reason }}</td><td class="number">{{ entry.times }}</td></tr>
{% else %}<tr><td colspan="5">none yet</td></tr>{% endfor %}</tbody></table></div></section>
</main></body></html>
"""


def page_app(app: App) -> ASGIApp:
    """The page as an application, for keys with the role ``read``; a browser asks for the key as a password."""

    async def answer(request: Request, make: Any) -> Response:
        try:
            client = await app.client(request)
            require_role(client, "read")
            response: Response = await app.answers.run(client.name, lambda: make(app.service, client))
        except RequestError as error:
            drop_traceback(error)
            headers = _HEADERS | ({"www-authenticate": 'Basic realm="custodian"'} if error.status == 401 else {})
            return PlainTextResponse(error.message + "\n", error.status, headers)
        return response

    async def page(request: Request) -> Response:
        return await answer(request, lambda service, client: HTMLResponse(page_text(service, client), headers=_HEADERS))

    async def answers(request: Request) -> Response:
        name = request.query_params.get("population", "")
        return await answer(request, lambda service, client: _csv_response(service, client, name))

    routes = [Route("/", page, methods=["GET"]), Route("/answers.csv", answers, methods=["GET"])]
    return checked_headers(Starlette(routes=routes), allowed_hosts("", "127.0.0.1"))


def page_text(service: Service, client: Client) -> str:
    """HTML of the page, with the populations that the client's key is for."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["clock"] = _clock
    allowed = [one for one in service.records.populations() if one.name in client.populations]
    return environment.from_string(_TEMPLATE).render(
        name=service.settings.name,
        populations=[_population(service, one) for one in allowed],
        refusals=_refusals(service.log.last(2000)),
    )


def _clock(time: str) -> str:
    """A time of the records, to the second."""
    return time[:19].replace("T", " ")


class Debit(NamedTuple):
    """One debit, with the link of its receipt if it was answered."""

    number: int
    time: str
    client: str
    request: str
    purpose: str
    cost: Cost
    link: str

    @property
    def noise(self) -> str:
        """The noise multiplier."""
        return f"{getattr(self.cost, 'noise_multiplier', 0.0):.4g}"

    @property
    def kind(self) -> str:
        """What it was for: a measurement, or one of the answers of a fit."""
        return "measurement" if self.purpose == _MEASURED else "training"


def _debits(ledger: DurableLedger, receipts: list[tuple[dict[str, Any], str]]) -> list[Debit]:
    links = {(receipt["client"], receipt["request"]): link for receipt, link in receipts}
    found = []
    for entry in json.loads(ledger.to_json())["entries"]:
        client, _, request = entry["run"].rpartition("/")
        cost, link = cost_from_dict(entry["cost"]), links.get((client, request), "")
        found.append(Debit(entry["number"], entry["time"], client, request, entry["purpose"], cost, link))
    return found


def _population(service: Service, one: Population) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": one.name, "retired": one.retired and _clock(one.retired)}
    ledger = DurableLedger.open(ledger_file(service.folder, one.name))
    try:
        receipts, broken = service.records.receipts(one.name), ""
        if receipts:
            ledger.verify(receipts[-1][0]["ledger"])
    except (ValueError, LedgerError) as error:
        receipts, broken = [], str(error)
    debits = _debits(ledger, receipts)
    counts = Counter(debit.cost for debit in debits)
    runs = folded(debits)
    facts = {
        "epsilon spent": f"{ledger.epsilon():.4g} of {one.epsilon:g}",
        "left for one answer": f"epsilon {ledger.remaining():.4g}",
        "delta": f"{one.delta:g}",
        "answers": f"{sum(bool(debit.link) for debit in debits):,} of {len(debits):,} debits",
        "people": f"{one.people:,}",
        "groups": "; ".join(", ".join(group) if isinstance(group, tuple) else str(group) for group in one.groups),
        "columns": ", ".join(one.columns),
        "data source": one.source or "not stated",
        "registered": _clock(one.registered),
        "keep until": one.keep_until or "not stated",
    }
    command = f"justitia custodian retire FOLDER --population {one.name}"
    return shown | {
        "used": _used(counts, one),
        "guess": _guess(counts, one),
        "broken": bool(broken),
        "chain": f"Chain broken: {broken}"
        if broken
        else f"Chain verified: {len(debits):,} debits and {len(receipts):,} receipts follow from those before them.",
        "overdue": _overdue(one),
        "facts": facts.items(),
        "retire": command.split(),
        "chart": _chart(debits, one),
        "debits": f"{len(debits):,}",
        "runs": [_shown(run, one.delta) for run in reversed(runs[-_ROWS:])],
        "more_runs": max(0, len(runs) - _ROWS),
        "clients": [_client(name, debits, one.delta) for name in sorted({debit.client for debit in debits})],
    }


def _used(counts: Counter[Cost], one: Population) -> int:
    """Percent of the budget that is spent, rounded up."""
    return min(100, math.ceil(100 * epsilon_spent(counts, one.delta) / one.epsilon - 1e-9))


def _guess(counts: Counter[Cost], one: Population) -> str:
    """What the answers so far, and the whole budget, tell about one person at most."""
    whole: Counter[Cost] = Counter({GaussianCost(1 / gaussian_mu(one.epsilon, one.delta)): 1})
    now, later = (math.ceil(1000 * best_guess(each, one.delta) - 1e-9) / 10 for each in (counts, whole))
    return (
        "Anyone who sees every answer guesses one person's group, of two that are equally likely, right at most "
        f"{now:g} times in 100 (50 is chance). With the whole budget it is at most {later:g}."
    )


def _overdue(one: Population) -> str:
    late = one.keep_until and one.retired is None and one.keep_until < datetime.now(UTC).date().isoformat()
    return f"The attribute was to be kept until {one.keep_until}: retire it." if late else ""


def folded(debits: Sequence[Debit]) -> list[list[Debit]]:
    """Debits in runs: answers of one kind to one client, with no long pause between them."""
    runs: list[list[Debit]] = []
    open_runs: dict[str, list[Debit]] = {}
    for debit in debits:
        run = open_runs.get(debit.client)
        together = run is not None and run[-1].kind == debit.kind
        if run is None or not together or _moment(debit) - _moment(run[-1]) > _PAUSE:
            run = open_runs[debit.client] = []
            runs.append(run)
        run.append(debit)
    return runs


def _moment(debit: Debit) -> datetime:
    return datetime.fromisoformat(debit.time)


def _shown(run: Sequence[Debit], delta: float) -> dict[str, Any]:
    purposes = list(Counter(debit.purpose for debit in run))
    named = ", ".join(purposes[:3]) + (f" and {len(purposes) - 3} more" if len(purposes) > 3 else "")
    answers = f"{len(run)} answer{'' if len(run) == 1 else 's'}"
    first, last = _clock(run[0].time), _clock(run[-1].time)
    spent = epsilon_spent(Counter(debit.cost for debit in run), delta)
    return {
        "summary": f"{run[0].kind}, {answers}, {named}, by {run[0].client}",
        "times": first if first == last else f"{first} to {last}",
        "epsilon": f"{spent:.4g}",
        "debits": list(reversed(run[-_LISTED:])),
        "more": max(0, len(run) - _LISTED),
    }


def _client(name: str, debits: list[Debit], delta: float) -> dict[str, Any]:
    own = [debit for debit in debits if debit.client == name]
    spent = epsilon_spent(Counter(debit.cost for debit in own), delta)
    return {"name": name, "debits": len(own), "epsilon": f"{spent:.4g}", "last": _clock(own[-1].time)}


def _refusals(newest: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest refusals; equal ones in a row are one entry with their number."""
    found: list[dict[str, Any]] = []
    for entry in newest:
        if "refused" in entry:
            kind, words = entry["refused"], _REASONS.get(entry["refused"])
            reason = f"{kind} ({entry['status']})" + (f": {words}" if words else "")
        elif entry.get("fits") == 0:
            reason = "plan does not fit into the budget (decided by the client)"
        else:
            continue
        shown = {"client": entry.get("client", ""), "what": entry["what"], "reason": reason}
        if found and shown.items() <= found[-1].items():
            found[-1]["times"] += 1
        else:
            found.append(shown | {"time": entry["time"], "times": 1})
    return found[:_ROWS]


# -- the chart

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 450, 16, 140


def _chart(debits: Sequence[Debit], one: Population) -> Markup:
    """Chart of epsilon spent over time, below the budget, with both axes."""
    begun = datetime.fromisoformat(one.registered)
    ended = max([begun + timedelta(seconds=1), *(_moment(debit) for debit in debits[-1:])])
    long = (ended - begun).total_seconds()
    counts: Counter[Cost] = Counter()
    points, done, y = [f"{_LEFT}.0,{_BOTTOM}.0"], 0, float(_BOTTOM)
    for place in sorted({round(k * len(debits) / _POINTS) for k in range(1, _POINTS + 1)} - {0}):
        counts.update(debit.cost for debit in debits[done:place])
        x = _LEFT + (_RIGHT - _LEFT) * max(0.0, (_moment(debits[place - 1]) - begun).total_seconds()) / long
        points.append(f"{x:.1f},{y:.1f}")
        y = _BOTTOM - (_BOTTOM - _TOP) * min(epsilon_spent(counts, one.delta) / one.epsilon, 1.0)
        points.append(f"{x:.1f},{y:.1f}")
        done = place
    label = (
        f"Epsilon spent (line) of the budget of {one.epsilon:g} (dashed): {len(debits)} debits from "
        f"{_clock(one.registered)} to {_clock(ended.isoformat())}"
    )
    heights = [
        (_BOTTOM - (_BOTTOM - _TOP) * share, f"{share * one.epsilon:.3g}", "4 4" if share == 1 else "none")
        for share in (0.0, 0.5, 1.0)
    ]
    lines = Markup("").join(
        Markup(
            '<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="var(--rule)" stroke-width="1.5" stroke-dasharray="{}"/>'
            '<text x="{}" y="{}" text-anchor="end">{}</text>'
        ).format(_LEFT, height, _RIGHT, height, dash, _LEFT - 6, height + 4, text)
        for height, text, dash in heights
    )
    times = [(_LEFT, "start", begun), ((_LEFT + _RIGHT) / 2, "middle", begun + (ended - begun) / 2)]
    times += [(_RIGHT, "end", ended)]
    span = ended - begun
    short = "%Y-%m-%d" if span > timedelta(days=3) else "%m-%d %H:%M" if span > timedelta(minutes=10) else "%H:%M:%S"
    ticks = Markup("").join(
        Markup('<text x="{}" y="{}" text-anchor="{}" class="{}">{}</text>').format(
            x, _BOTTOM + 20, anchor, anchor, time.strftime(short)
        )
        for x, anchor, time in times
    )
    return Markup(
        '<figure><svg viewBox="0 4 460 162" role="img" aria-label="{}">{}{}'
        '<polyline points="{}" fill="none" stroke="var(--spent)" stroke-width="2.5"/></svg>'
        "<figcaption>{}</figcaption></figure>"
    ).format(label, lines, ticks, " ".join(points), label)


# -- all answers

_COLUMNS = ("number", "time", "client", "kind", "purpose", "noise multiplier", "request", "receipt")


def _csv_response(service: Service, client: Client, name: str) -> Response:
    known = {one.name for one in service.records.populations()}
    if name not in known or name not in client.populations:
        raise not_found("population")
    named = {"content-disposition": f'attachment; filename="{name}-answers.csv"'}
    return Response(csv_text(service, name), headers=_HEADERS | named, media_type="text/csv")


def csv_text(service: Service, name: str) -> str:
    """All answers about a population, one line each."""
    ledger = DurableLedger.open(ledger_file(service.folder, name))
    written = io.StringIO()
    table = csv.writer(written)
    table.writerow(_COLUMNS)
    for one in _debits(ledger, service.records.receipts(name)):
        row = (one.number, one.time, one.client, one.kind, one.purpose, one.noise, one.request, one.link)
        table.writerow([_plain(value) for value in row])
    return written.getvalue()


def _plain(value: object) -> str:
    """Text that no spreadsheet takes for a formula: clients choose purposes and request ids."""
    text = str(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


__all__ = ["csv_text", "folded", "page_app", "page_text"]
