"""Whether time tells who is registered: ``python -m bench.performance.custodian_timing [--repeats 300] [--ids 1 99]``.

Cohorts of registered people, of people whose label is in no group, of silent people and of strangers, in turns, each of
ids that were drawn anew, against a service in this process without a network. Timed are the making of a cohort, the
first question about it, and the one step of that which looks people up; and, as a control that shows what this measure
notices, the same step on labels as they are stored, which the service does not do. The two look-ups are timed by the
processor's clock, which other programs on the machine disturb less. Printed for each kind: the median,
and how often a time of this kind is longer than one of a registered cohort (0.5 is what an attacker who sees nothing
has; ``by_chance`` is where it lies 99% of the time then). A busy machine adds noise.
Kept in results/custodian_timing.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from justitia.custodian.populations import attribute_file, cohort_digests, register
from justitia.custodian.records import Client, Records
from justitia.custodian.schemas import SumsRequest
from justitia.custodian.service import Service
from justitia.custodian.settings import ServiceSettings, private_folder
from justitia.custodian.wire import to_stream
from justitia.privacy.attribute import Attribute
from justitia.privacy.keys import key_hash
from justitia.privacy.register import Register
from justitia.privacy.vault import SensitiveVault

KINDS = ("registered", "unlisted", "silent", "stranger")
STEPS = ("cohort", "question", "look_up", "look_up_as_stored")
CLIENT = Client("client", ("train",), None, key_hash("key"), ("people",))


def made(folder: Path, people: int) -> Service:
    """So many people of each kind but the last, who are not there."""
    private_folder(folder)
    labels = {"registered": "a", "unlisted": "another one", "silent": None}
    ids = [f"{kind}-{k}" for kind in labels for k in range(people)]
    column = np.array([label for label in labels.values() for _ in range(people)], dtype=object)
    column[:people:2] = "b"
    records = Records(folder)
    taken = Register.from_rows(ids, Attribute(("group",), [column]))
    register(folder, records, "people", taken, groups=["a", "b"], epsilon=50.0, delta=1e-9)
    return Service(folder, ServiceSettings(page_port=0, largest_spool=1 << 40))


def times(service: Service, stored: Register, ids: list[str], body: bytes, request: str) -> list[float]:
    """Seconds of each step for a cohort of these ids."""
    clock = [time.perf_counter()]
    cohort = service.make_cohort(CLIENT, "people", ids).cohort
    clock.append(time.perf_counter())
    service.sums(CLIENT, cohort, SumsRequest(request, "timing", 1.0, 1e6), body)
    clock.append(time.perf_counter())
    people = service._populations.get("people", CLIENT.populations)
    found = service.records.cohort(cohort, CLIENT.name, with_digests=True)
    assert found is not None
    given: dict[str, Any] = {"groups": people.facts.groups, "ledger": people.ledger}
    steps = list(np.diff(clock))
    look_up = (lambda: people._register.cohort(cohort_digests(found)), lambda: stored.cohort(cohort_digests(found)))
    SensitiveVault(look_up[0](), **given)  # once before, so that none of the two finds everything cold
    for look in look_up:
        begun = time.thread_time()
        SensitiveVault(look(), **given)
        steps.append(time.thread_time() - begun)
    return steps


def measured(folder: Path, *, repeats: int, ids: int, people: int) -> dict[str, Any]:
    """Times of all kinds, in turns."""
    service, rng = made(folder, people), np.random.default_rng(0)
    stored = Register.read(attribute_file(folder, "people"))
    body = to_stream(np.ones((ids, 1)))
    found: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    gc.disable()
    for turn in range(repeats + 5):
        for kind in rng.permutation(KINDS):
            asked = [f"{kind}-{k}" for k in rng.choice(people, ids, replace=False)]
            seen = times(service, stored, asked, body, f"{kind}-{turn}")
            if turn >= 5:  # the first ones warm up
                found[kind].append(seen)
        gc.collect()
    service.close()
    return {step: compared({kind: [one[at] for one in found[kind]] for kind in KINDS}) for at, step in enumerate(STEPS)}


def compared(found: dict[str, list[float]]) -> dict[str, Any]:
    """Each kind beside registered people: median in milliseconds, and share of longer times."""
    first, told = np.array(found["registered"]), {}
    half = 2.576 * math.sqrt((2 * len(first) + 1) / (12 * len(first) ** 2))  # of the share, by chance
    for kind in KINDS:
        times = np.array(found[kind])
        share = stats.mannwhitneyu(times, first).statistic / (len(times) * len(first))
        told[kind] = [round(1e3 * float(np.median(times)), 4), round(float(share), 3)]
    return told | {"by_chance": [round(0.5 - half, 3), round(0.5 + half, 3)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--ids", type=int, nargs="+", default=[1, 2000])
    parser.add_argument("--people", type=int, default=100_000)
    chosen = parser.parse_args()
    told: dict[str, Any] = {"repeats": chosen.repeats, "people": 3 * chosen.people}
    for ids in chosen.ids:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(Path(folder) / "holder", repeats=chosen.repeats, ids=ids, people=chosen.people)
        told[f"cohorts of {ids}"] = found
    text = json.dumps(told, indent=2)
    Path("results/custodian_timing.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
