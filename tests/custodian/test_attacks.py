"""Attacks on one person's attribute through the service, and what they prove beside the certificate.

The exact service is a switch of these tests. JUSTITIA_ATTACKS=1000 asks more often.
"""

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_fixtures import DELTA, LABELS, Caller, Exact, N, make_folder, opened

from justitia.audit.statistics import Evidence, evidence, one_run_epsilon
from justitia.custodian.wire import from_stream, measurement_from_json
from justitia.privacy.accounting import gaussian_mu
from justitia.privacy.mechanisms import NoiseSource, SeededNoise

RUNS = int(os.environ.get("JUSTITIA_ATTACKS", "32"))
ALPHA, EPSILON, TARGET = 0.05, 1.0, 1
NOISE = 1 / gaussian_mu(EPSILON, DELTA)
Y = [int(k % 3 == 0) for k in range(N)]
Attack = Callable[[Caller, str, str], np.ndarray[Any, Any]]


class Drawn(SeededNoise):
    """Noise that a test draws again, whatever the ledger is called."""

    def about(self, *query: object) -> Any:
        return self


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory, where that is a folder: a custodian waits for the disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


def rates(ask: Caller, cohort: str, request: str, decided: list[int]) -> np.ndarray[Any, Any]:
    asked = {"request": request, "y_true": Y, "y_pred": decided, "notions": ["demographic_parity"]}
    asked |= {"epsilon": EPSILON, "delta": DELTA}
    reply = ask("POST", f"/v1/cohorts/{cohort}/measure", json.dumps(asked).encode())
    return np.asarray(measurement_from_json(reply.body).by_group.iloc[:, 0])


def two_queries(ask: Caller, cohort: str, request: str) -> np.ndarray[Any, Any]:
    """Hamman, Chen and Dutta: ask for the rates of both groups twice, with one decision changed in between."""
    before = rates(ask, cohort, f"{request}-before", Y)
    changed = [1 - one if k == TARGET else one for k, one in enumerate(Y)]
    return rates(ask, cohort, f"{request}-after", changed) - before


def targeted_row(ask: Caller, cohort: str, request: str) -> np.ndarray[Any, Any]:
    """A row as long as is allowed for one person, and nothing for the others."""
    rows = np.zeros((N, 1))
    rows[TARGET] = 1.0
    return from_stream(ask.sums(cohort, rows, request=request, noise_multiplier=NOISE).body, max_width=1)[:, 0]


def outcomes(folder: Path, label: str, attack: Attack, seed: int | None) -> np.ndarray[Any, Any]:
    """What the attacker sees in each run, if the person has this label; without a seed, of the exact service.

    To the certificate each run is one of its own. So many fit into the largest budget; then another folder follows.
    """
    labels = [label if k == TARGET else one for k, one in enumerate(LABELS)]
    seen = []
    for batch, start in enumerate(range(0, RUNS, 64)):
        noise = Exact() if seed is None else Drawn(1000 * seed + batch)
        with opened(make_folder(folder / str(batch), labels, epsilon=50.0), noise) as service:
            ask = Caller(service)
            cohort = ask.cohort()
            seen += [attack(ask, cohort, f"run-{k}") for k in range(start, min(start + 64, RUNS))]
    return np.stack(seen)


def certified(folder: Path, attack: Attack) -> float:
    """Epsilon of what one run asks, as the custodian certifies it."""
    with opened(make_folder(folder)) as service:
        ask = Caller(service)
        attack(ask, ask.cohort(), "once")
        return float(ask("GET", "/v1/populations/people/certificate").facts["spent_epsilon"])


def proven(found: Evidence) -> float:
    return max(found.binomial(DELTA), found.gaussian(DELTA))


@pytest.mark.parametrize("attack", [two_queries, targeted_row])
def test_attack_proves_less_than_the_certificate_with_noise_and_more_without(attack: Attack, place: Path) -> None:
    epsilon = certified(place / "once", attack)
    ours = [outcomes(place / f"ours-{one}", one, attack, seed) for seed, one in enumerate("ab")]
    assert proven(evidence(*ours, alpha=ALPHA, delta=DELTA)) <= epsilon
    exact = [outcomes(place / f"exact-{one}", one, attack, None) for one in "ab"]
    assert proven(evidence(*exact, alpha=ALPHA, delta=DELTA)) > epsilon


def guessed(folder: Path, noise: NoiseSource, coins: np.ndarray[Any, Any], guesses: int) -> tuple[int, float]:
    """How many of the surest guesses are right about people who each get a row of their own; the certificate's epsilon.

    Their labels are coins, which is what the bound for one run is about.
    """
    with opened(make_folder(folder, ["ab"[coin] for coin in coins]), noise) as service:
        ask = Caller(service)
        told = from_stream(ask.sums(ask.cohort(), np.eye(N), noise_multiplier=NOISE).body, max_width=N)
        epsilon = ask("GET", "/v1/populations/people/certificate").facts["spent_epsilon"]
    score = told[1] - told[0]
    surest = np.argsort(-np.abs(score))[:guesses]
    return int(((score[surest] > 0) == coins[surest]).sum()), float(epsilon)


def test_rows_that_single_individuals_out_reveal_all_groups_exactly_and_few_with_noise(place: Path) -> None:
    coins = np.random.default_rng(0).integers(0, 2, N)
    right, epsilon = guessed(place / "exact", Exact(), coins, N)
    assert right == N
    assert one_run_epsilon(N, N, right, alpha=ALPHA, delta=DELTA) > epsilon
    for guesses in (N // 3, N):
        right, epsilon = guessed(place / f"ours-{guesses}", Drawn(3), coins, guesses)
        assert right < 0.75 * guesses
        assert one_run_epsilon(N, guesses, right, alpha=ALPHA / 2, delta=DELTA) <= epsilon
    assert epsilon == pytest.approx(EPSILON, rel=1e-6)


def test_exact_fairness_queries_give_people_away(place: Path) -> None:
    """Hamman, Chen and Dutta, person by person: the rate that moves is that of the person's group."""
    told = [k for k, label in enumerate(LABELS) if label is not None]
    with opened(make_folder(place / "exact", epsilon=50.0), Exact()) as service:
        ask = Caller(service)
        cohort = ask.cohort()
        before = rates(ask, cohort, "before", Y)
        for person in told[:5]:
            changed = [1 - one if k == person else one for k, one in enumerate(Y)]
            moved = np.abs(rates(ask, cohort, f"p{person}", changed) - before)
            assert "ab"[int(moved.argmax())] == LABELS[person]
            assert moved.max() > 1e6 * moved.min()
    assert math.isclose(moved.min(), 0.0, abs_tol=1e-9)
