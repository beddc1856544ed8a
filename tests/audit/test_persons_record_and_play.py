"""Record and play where people have several rows: all rows of one person change at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from recording import SMALL_PLAN, Outcome, People, Player, Recorder, largest_movements, make_people, problems, run

from justitia import MomentsPlan, PostProcessingPlan, PrivacyLedger, measure
from justitia.privacy.persons import Persons
from justitia.privacy.vault import SensitiveVault

ROWS_EACH = 3
MOMENTS = MomentsPlan(warmup_steps=4, rounds=4, public_steps=1, checks=2, batch_size=64, averaging=0.5)
SETTINGS: dict[str, dict[str, Any]] = {
    "post-processing": {"engine": "post-processing", "plan": PostProcessingPlan(checks=2), "tolerance": 0.0},
    "pf-ld": {"engine": "pf-ld", "plan": SMALL_PLAN},
    "moments": {"engine": "moments", "plan": MOMENTS},
}
every_engine = pytest.mark.parametrize("engine", SETTINGS)


def grouped(*, weighted: bool = False) -> People:
    """Persons of three rows with one label, and one with fifty, of which three count."""
    people = make_people(2, missing=True)
    n = len(people.y)
    ids = tuple("busy" if i < 50 else f"person {i // ROWS_EACH}" for i in range(n))
    label_of = dict(zip(ids, people.labels, strict=True))
    weights = tuple(np.random.default_rng(2).uniform(0.0, 4.0, n).tolist()) if weighted else None
    people = replace(people, ids=ids, labels=tuple(label_of[one] for one in ids), weights=weights)
    assert Persons.from_ids(ids).rows_each == ROWS_EACH
    return people


def persons_and_labels(people: People) -> list[tuple[str, Any]]:
    """Some persons, each to every other label, and the one with more rows than count."""
    chosen = ("busy", "person 20", "person 33", "person 61")
    held = dict(zip(people.ids or (), people.labels, strict=True))
    return [(one, label) for one in chosen for label in (*people.groups, None) if label != held[one]]


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
@every_engine
def test_fit_with_all_labels_of_one_person_changed_stays_within_the_ledger(
    engine: str, notion: str, weighted: bool
) -> None:
    people, options = grouped(weighted=weighted), SETTINGS[engine] | {"notion": notion}
    first = run(people, **options)
    assert {release.unit for release in first.releases} == {"person"}
    assert Counter(first.model.ledger_.costs()) == first.model.plan_.costs()
    for person, label in persons_and_labels(people):
        assert problems(first, run(people.with_labels(person, label), answers=first.noisy, **options)) == []


def moved_most(people: People, first: Outcome, **options: Any) -> dict[str, float]:
    best: dict[str, float] = {}
    for person in dict.fromkeys(people.ids or ()):
        second = run(people.with_labels(person, people.groups[1]), answers=first.noisy, **options)
        assert problems(first, second) == []
        shares = largest_movements(first, second)
        best = {name: max(best.get(name, 0.0), share) for name, share in shares.items()}
    return best


@every_engine
def test_sensitivity_for_persons_is_reached_and_not_exceeded(engine: str) -> None:
    """Three rows of equal length move together, so the sum moves three times as far as one of them."""
    people = grouped()
    people = replace(people, labels=tuple(people.groups[0] for _ in people.labels))
    options = SETTINGS[engine] | {"epsilon": 30.0}
    if engine == "pf-ld":
        options |= {"plan": replace(SMALL_PLAN, clip=1e-4)}
    best = moved_most(people, run(people, **options), **options)
    once = {"post-processing": ("moments",), "pf-ld": ("group sizes",), "moments": ("moments",)}[engine]
    assert all(best[name] > (0.999 if name == "group sizes" else 0.8) for name in once), best
    assert all(share > 0.5 for share in best.values()), best


@every_engine
def test_problems_of_a_vault_that_counts_one_row_per_person_are_found(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SensitiveVault, "rows_per_person", 1)
    people, options = grouped(), SETTINGS[engine]
    first = run(people, **options)
    found = [
        problems(first, run(people.with_labels(person, label), answers=first.noisy, **options))
        for person, label in persons_and_labels(people)
    ]
    assert any(found)


@every_engine
def test_problems_of_persons_whose_rows_all_count_are_found(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Persons.from_ids

    def all_rows(ids: Any) -> Persons:
        found = of(ids)
        return replace(found, counted=np.ones_like(found.counted))

    monkeypatch.setattr(Persons, "of", all_rows)
    people, options = grouped(), SETTINGS[engine]
    first = run(people, **options)
    found = [
        problems(first, run(people.with_labels("busy", label), answers=first.noisy, **options))
        for label in (*people.groups, None)
    ]
    assert any(found)


def measured(people: People, source: Recorder, monkeypatch: pytest.MonkeyPatch) -> tuple[str, PrivacyLedger]:
    monkeypatch.setattr("justitia.privacy.vault.SystemNoise", lambda: source)
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-5)
    decided = np.roll(people.y, 1)
    given: dict[str, Any] = {"sensitive_features": list(people.labels), "person": people.ids, "groups": people.groups}
    found = measure(people.y, decided, epsilon=4.0, ledger=ledger, notion="equalized_odds", **given)
    return found.to_json(), ledger


def test_measurement_with_all_labels_of_one_person_changed_stays_within_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    people = grouped()
    source = Recorder()
    text, ledger = measured(people, source, monkeypatch)
    (release,) = ledger.releases
    longest = 0.0
    for person, label in persons_and_labels(people):
        player = Player(source.noisy)
        other, _ = measured(people.with_labels(person, label), player, monkeypatch)
        assert other == text
        distance = float(np.linalg.norm(player.exact[0] - source.exact[0]))
        assert distance <= release.sensitivity
        longest = max(longest, distance)
    assert longest > 0.5 * release.sensitivity
