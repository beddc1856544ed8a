"""What a client sees depends on one person's attribute through noise alone; exact answers would give people away."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from holding import IDS, LABELS, Caller, Exact, Kept, N, Reply, make_folder, opened
from scipy.special import ndtr

from justitia.custodian.measurements import read_measurement
from justitia.custodian.wire import from_stream, to_stream
from justitia.privacy.accounting import gaussian_mu
from justitia.privacy.mechanisms import NoiseSource

ROWS = np.random.default_rng(0).normal(size=(N, 2))
TOLD = [place for place, label in enumerate(LABELS) if label is not None]
Y = [int(k % 3 == 0) for k in range(N)]


def conversation(ask: Caller) -> list[Reply]:
    """Everything that a client may ask, and some things that it may not."""
    cohort = ask.cohort([*IDS[:-1], "nobody"])
    odd = ROWS.copy()
    odd[1], odd[2] = np.nan, 1e300
    body = json.dumps({"request": "m", "y_true": Y, "y_pred": Y[::-1], "notions": ["equalized_odds"]}).encode()
    first = to_stream(ROWS[:100])
    twice = json.dumps({"ids": [IDS[row // 2] for row in range(N)], "person": True}).encode()
    persons = ask("POST", "/v1/populations/people/cohorts", twice)
    return [
        ask("POST", "/v1/populations/people/cohorts", json.dumps({"ids": IDS[:7]}).encode()),
        ask.sums(cohort, odd),
        ask.sums(cohort, odd),
        ask.sums(cohort, first, request="parts", parts=2),
        ask.sums(cohort, ROWS[100:], request="parts", parts=2, part=1),
        ask("POST", f"/v1/cohorts/{cohort}/measure", body),
        ask.sums(cohort, ROWS[:3], request="short"),
        ask.sums(cohort, ROWS, request="dear", noise_multiplier=0.01),
        ask.sums(cohort, ROWS, request="r1"),
        persons,
        ask.sums(persons.facts["cohort"], odd, request="persons"),
        ask("GET", "/v1/populations/people"),
        ask("GET", "/v1/populations/people/certificate"),
        ask("GET", "/v1/populations/people/ledger", client="reader"),
        ask("GET", "/metrics"),
    ]


def seen(folder: Path, labels: list[Any], noise: Kept) -> list[Reply]:
    with opened(make_folder(folder, labels), noise) as service:
        replies = conversation(Caller(service))
        log = [{k: v for k, v in line.items() if k not in {"time", "cohort", "name"}} for line in service.log.last()]
    return [*replies, Reply(0, {}, json.dumps(log).encode())]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Kept, list[Reply]]:
    noise = Kept()
    return noise, seen(tmp_path_factory.mktemp("one") / "holder", LABELS, noise)


@pytest.mark.parametrize("label", ["b", None, "no such group", "\ud800", "a\0", "x" * 5000, "," * 50])
def test_neighbours_with_the_same_noised_answers_get_the_same_replies(
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
    assert len(second.exact) == len(noise.exact) == 4
    distances = [float((a - b).norm()) for a, b in zip(noise.exact, second.exact, strict=True)]
    assert all(distance <= math.sqrt(2) * (1 + 1e-9) for distance in distances[:3])
    assert distances[3] <= 2 * math.sqrt(2) * (1 + 1e-9)  # two rows of each person


def guessed(folder: Path, noise: NoiseSource | None, multiplier: float) -> int:
    """How many people a client places rightly who sends a row of their own for each of them."""
    with opened(make_folder(folder, epsilon=50.0), noise) as service:
        ask = Caller(service)
        told = from_stream(ask.sums(ask.cohort(), np.eye(N), noise_multiplier=multiplier).body, widest=N)
    return sum("ab"[int(told[1, place] > told[0, place])] == LABELS[place] for place in TOLD)


def test_rows_chosen_to_single_people_out_tell_everybody_exactly_and_hardly_anybody_with_noise(tmp_path: Path) -> None:
    mu = gaussian_mu(1.0, 1e-5)
    assert guessed(tmp_path / "exact", Exact(), 1 / mu) == len(TOLD)
    best = float(ndtr(mu / 2))  # no guess about one person is right more often, whatever else is known
    right = guessed(tmp_path / "ours", None, 1 / mu)
    assert right <= len(TOLD) * best + 5 * math.sqrt(len(TOLD) / 4)


def test_exact_fairness_queries_give_people_away(tmp_path: Path) -> None:
    """Hamman, Chen and Dutta: two answers about decisions that differ in one person tell that person's group."""
    with opened(make_folder(tmp_path / "exact", epsilon=50.0), Exact()) as service:
        ask = Caller(service)
        path = f"/v1/cohorts/{ask.cohort()}/measure"

        def parity(decided: list[int], request: str) -> Any:
            asked = {"request": request, "y_true": Y, "y_pred": decided, "notions": ["demographic_parity"]}
            reply = ask("POST", path, json.dumps(asked | {"epsilon": 1.0}).encode())
            return read_measurement(reply.body).by_group.iloc[:, 0]

        before = parity(Y, "before")
        for place in TOLD[:5]:
            changed = [1 - one if k == place else one for k, one in enumerate(Y)]
            moved = (parity(changed, f"p{place}") - before).abs()
            assert moved.idxmax() == LABELS[place]
            assert moved.max() > 1e6 * moved.min()
