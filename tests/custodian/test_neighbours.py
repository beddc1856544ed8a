"""Responses depend on one person's attribute through noise alone; exact answers would give people away."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_fixtures import IDS, LABELS, Caller, Kept, N, Reply, make_folder, opened

from justitia.custodian.wire import to_stream

ROWS = np.random.default_rng(0).normal(size=(N, 2))
TOLD = [place for place, label in enumerate(LABELS) if label is not None]
Y = [int(k % 3 == 0) for k in range(N)]


def conversation(ask: Caller) -> list[Reply]:
    """Everything that a client may ask, and some things that it may not."""
    cohort = ask.cohort([*IDS[:-1], "nobody"])
    odd = ROWS.copy()
    odd[1], odd[2] = np.nan, 1e300
    body = {"request": "m", "y_true": Y, "y_pred": Y[::-1], "notions": ["equalized_odds"]}
    scored = {"request": "s", "before": Y, "scores": ROWS[:, 0].tolist(), "reference": "b", "epsilon": 0.5}
    first = to_stream(ROWS[:100])
    twice = json.dumps({"ids": [IDS[row // 2] for row in range(N)], "person": True}).encode()
    persons = ask("POST", "/v1/populations/people/cohorts", twice)
    return [
        ask("POST", "/v1/populations/people/cohorts", json.dumps({"ids": IDS[:7]}).encode()),
        ask.sums(cohort, odd),
        ask.sums(cohort, odd),
        ask.sums(cohort, first, request="parts", parts=2),
        ask.sums(cohort, ROWS[100:], request="parts", parts=2, part=1),
        ask("POST", f"/v1/cohorts/{cohort}/measure", json.dumps(body).encode()),
        ask("POST", f"/v1/cohorts/{cohort}/measure", json.dumps(body | scored).encode()),
        ask.sums(cohort, ROWS[:3], request="short"),
        ask.sums(cohort, ROWS, request="dear", noise_multiplier=0.01),
        ask.sums(cohort, ROWS, request="r1"),
        persons,
        ask.sums(persons.facts["cohort"], odd, request="persons"),
        ask("GET", "/v1/populations/people"),
        ask("GET", "/v1/populations/people/certificate"),
        ask("GET", "/v1/populations/people/ledger", client="reader"),
        ask("GET", "/metrics", client="reader"),
    ]


def seen(folder: Path, labels: list[Any], noise: Kept) -> list[Reply]:
    with opened(make_folder(folder, labels), noise) as service:
        replies = conversation(Caller(service))
        log = [
            {k: v for k, v in line.items() if k not in {"time", "cohort", "name", "path"}}
            for line in service.log.last()
        ]
    # The seconds since the start, which may have more digits in one of two services.
    counted = replies[-1]
    replies[-1] = Reply(counted.status, counted.headers, re.sub(rb"(uptime_seconds) \d+", rb"\1", counted.body))
    return [*replies, Reply(0, {}, json.dumps(log).encode())]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Kept, list[Reply]]:
    noise = Kept()
    return noise, seen(tmp_path_factory.mktemp("one") / "holder", LABELS, noise)


@pytest.mark.parametrize("label", ["b", None, "no such group", "\ud800", "a\0", "x" * 5000, "," * 50])
def test_neighbours_with_the_same_noisy_answers_get_the_same_responses(
    label: Any, first: tuple[Kept, list[Reply]], tmp_path: Path
) -> None:
    noise, here = first
    second = Kept(noise.noisy)
    there = seen(tmp_path / "two", [LABELS[0], label, *LABELS[2:]], second)
    for one, two in zip(here, there, strict=True):
        assert (one.status, sorted(one.headers), len(one.body)) == (two.status, sorted(two.headers), len(two.body))
        if one.headers.get("content-type", "").endswith("stream") or one.status >= 400:
            assert one.body == two.body
    assert {reply.status for reply in here} == {0, 200, 402, 409, 422}
    assert len(second.exact) == len(noise.exact) == 5
    distances = [float(np.linalg.norm(a - b)) for a, b in zip(noise.exact, second.exact, strict=True)]
    assert all(distance <= math.sqrt(2) * (1 + 1e-9) for distance in distances[:4])
    assert distances[4] <= 2 * math.sqrt(2) * (1 + 1e-9)  # two rows of each person
