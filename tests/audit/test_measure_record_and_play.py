"""Record and play for ``measure``: the noised answer is the only thing that depends on the attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from recording import Player, Recorder

from justitia import PrivacyLedger, measure
from justitia.notions import NOTIONS
from justitia.privacy.arrays import Array
from justitia.privacy.ledger import Release

#: The package's name for the function hides the module of the same name.
MODULE = import_module("justitia.metrics.measure")
N = 120
RNG = np.random.default_rng(0)
Y, D = RNG.integers(0, 2, N), RNG.integers(0, 2, N)
GROUPS = ["a", "b", "c"]
LABELS: list[Any] = [None if i % 7 == 0 else GROUPS[i % 3] for i in range(N)]


@dataclass(frozen=True)
class Outcome:
    releases: tuple[Release, ...]
    exact: Array
    noisy: Array
    public: tuple[str, ...]


def run(
    labels: Sequence[Any], *, answers: Sequence[Array] | None = None, silent: bool = False, **options: Any
) -> Outcome:
    source = Recorder() if answers is None else Player(answers)
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("justitia.privacy.vault.SystemNoise", lambda: source)
        found = measure(
            Y, D, sensitive_features=list(labels), groups=GROUPS, epsilon=3.0, ledger=ledger, threshold=0.1, **options
        )
    (exact,), (noisy,) = source.exact, source.noisy
    told = () if silent else (str(found), found.to_json(), found.table.to_csv(), repr(found))
    return Outcome(ledger.releases, exact, noisy, told)


@pytest.mark.parametrize("notion", [*sorted(NOTIONS), ["demographic_parity", "equalized_odds", "accuracy_parity"]])
def test_measurement_with_one_label_changed_differs_in_its_exact_answer_only_and_within_the_ledger(notion: Any) -> None:
    first = run(LABELS, notion=notion)
    moved = []
    for person, label in [(1, "c"), (2, None), (7, "a"), (8, "no such group"), (9, "b")]:
        changed = [*LABELS[:person], label, *LABELS[person + 1 :]]
        second = run(changed, answers=[first.noisy], notion=notion)
        assert second.public == first.public
        assert second.releases == first.releases
        moved.append(float(np.linalg.norm(first.exact - second.exact)))
    (release,) = first.releases
    assert max(moved) <= release.sensitivity * (1 + 1e-12)
    assert max(moved) >= release.sensitivity * (1 - 1e-8)  # unit rows: attained, but for the grid's rounding


def test_rows_with_scores_and_a_second_model_are_no_longer_than_the_ledger_says() -> None:
    """The row of whoever is farthest from the mean of their cell attains the bound; every other is shorter."""
    scores = RNG.standard_normal(N)
    options = {"scores": scores, "before": (scores > 0).astype(int), "reference": "b", "score_bins": 4}
    first = run(LABELS, **options)
    (release,) = first.releases
    moved = []
    for person in range(N):
        changed = [*LABELS[:person], "c" if LABELS[person] == "a" else "a", *LABELS[person + 1 :]]
        second = run(changed, answers=[first.noisy], silent=person > 2, **options)
        assert (second.public, second.releases) == (first.public if person <= 2 else (), first.releases)
        moved.append(float(np.linalg.norm(first.exact - second.exact)))
    assert max(moved) <= release.sensitivity * (1 + 1e-12)
    assert max(moved) >= release.sensitivity * (1 - 1e-8)
    assert min(moved) < release.sensitivity * 0.98


@pytest.mark.parametrize("labels", [[None] * N, ["a"] * N, [object()] * N], ids=["missing", "one group", "odd"])
def test_measurement_on_wholly_other_labels_with_the_same_answer_says_the_same(labels: list[Any]) -> None:
    first = run(LABELS)
    assert run(labels, answers=[first.noisy]).public == first.public
    assert not np.array_equal(run(labels, answers=[first.noisy]).exact, first.exact)


def test_measurement_holds_no_label_and_prints_no_exact_count() -> None:
    found = run(LABELS)
    assert not any(name in text for text in found.public for name in ("SensitiveVault", "codes"))
