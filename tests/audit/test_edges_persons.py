"""The edges of the promise: several rows of one person."""

import itertools
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from edge_cases import GROUPS, QUIET, SECRET, N, X, Y, classifier

from justitia import measure, private_search, tradeoff
from justitia.audit.replay import NoNoise
from justitia.privacy.arrays import Array
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, RandomizedResponse
from justitia.privacy.persons import Persons, rows_each
from justitia.privacy.vault import SensitiveVault

pytestmark = QUIET

PERSON = np.repeat(np.arange(N // 4), 4)


def test_promise_without_ids_is_about_rows_and_with_ids_about_persons() -> None:
    rows = classifier().fit(X, Y, sensitive_features=SECRET).certificate_
    assert rows.statement.endswith("-differentially private in the sensitive attribute of any one row.")
    assert "of one row" in rows.adjacency
    assert any("several rows" in one for one in rows.not_covered)
    persons = classifier().fit(X, Y, sensitive_features=SECRET, person=PERSON).certificate_
    assert persons.statement.endswith("-differentially private in the sensitive attribute of any one person.")
    assert "of one person" in persons.adjacency
    assert not any("several rows" in one for one in persons.not_covered)


def test_curves_searches_and_measurements_with_ids_promise_to_persons() -> None:
    given: dict[str, Any] = {"sensitive_features": SECRET, "person": PERSON}
    found = {
        "curve": tradeoff(classifier(), X, Y, tolerances=(0.1, 0.2), **given).certificate,
        "search": private_search(classifier(), [{"module": (3,)}, {"module": (4,)}], X, Y, **given).certificate,
        "measurement": measure(Y, Y, groups=GROUPS, delta=1e-3, **given).certificate,
    }
    assert {name: one.unit for name, one in found.items()} == dict.fromkeys(found, "person")
    assert all("any one person" in one.statement for one in found.values())


def test_randomized_labels_of_people_with_several_rows_are_refused_before_anything_is_debited() -> None:
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-3)
    vault = SensitiveVault(SECRET, groups=GROUPS, ledger=ledger, people=Persons.from_ids(PERSON))
    with pytest.raises(ValueError, match="randomise one answer per person"):
        vault.randomized_labels(RandomizedResponse(1.0), purpose="labels")
    assert ledger.releases == ()


def test_promise_on_a_ledger_of_rows_and_persons_is_about_rows() -> None:
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-3)
    given: dict[str, Any] = {"sensitive_features": SECRET, "groups": GROUPS, "delta": 1e-3, "ledger": ledger}
    assert measure(Y, Y, person=PERSON, **given).certificate.unit == "person"
    assert measure(Y, Y, **given).certificate.unit == "row"
    both = measure(Y, Y, person=PERSON, **given).certificate
    assert "any one row" in both.statement
    assert "of one row" in both.adjacency


@pytest.mark.parametrize("question", ["group_sums", "weighted_sum"])
def test_answers_about_persons_move_by_at_most_the_recorded_sensitivity_and_reach_it(question: str) -> None:
    ids = ["one"] * 3 + ["two"] * 3
    rows = np.array([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3)
    weights = np.array([[1.0, -1.0, 0.0]] * 6)
    longest = 0.0
    people = Persons.from_ids(ids)
    assert people.rows_each == 3
    for labels in itertools.product("ab-", repeat=3):
        exact = []
        for own in (("a", "a", "a"), labels):
            ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
            vault = SensitiveVault([*own, "a", "b", "b"], groups=["a", "b"], ledger=ledger, people=people)
            answer = exact_answer(vault, question, rows, weights)
            exact.append(answer)
        moved = float(np.linalg.norm(exact[0] - exact[1]))
        (entry,) = ledger.releases
        assert entry.unit == "person"
        assert moved <= entry.sensitivity
        longest = max(longest, moved / entry.sensitivity)
    assert longest > 1 - 1e-6


def exact_answer(vault: SensitiveVault, question: str, rows: Array, weights: Array) -> Array:
    """What is under the noise."""
    vault._source = NoNoise()  # type: ignore[misc]
    noise = Gaussian(1.0)
    if question == "weighted_sum":
        return vault.weighted_sum(rows, weights, bound=1.0, noise=noise, purpose="test")
    return full_sums(vault, rows, noise)


def full_sums(vault: SensitiveVault, rows: Array, noise: Gaussian) -> Array:
    """All blocks, "not given" among them: the answer leaves that one out, and the public total brings it back."""
    sums = vault.group_sums(rows, bound=1.0, noise=noise, purpose="test")
    return np.concatenate([sums, (rows.sum(0) - sums.sum(0))[None]])


def test_rows_beyond_a_persons_share_are_not_asked_about() -> None:
    ids = ["busy"] * 50 + [f"p{i}" for i in range(50)]
    people = Persons.from_ids(ids)
    assert (people.rows_each, people.number) == (1, 51)
    assert np.flatnonzero(people.counted)[1:].tolist() == list(range(50, 100))
    assert people.counted[:50].sum() == 1


@pytest.mark.parametrize(
    ("sizes", "each"),
    [([1] * 10, 1), ([4] * 10, 4), ([50] + [1] * 50, 1), ([2] * 90 + [1] * 10, 2), ([1, 2, 3], 1), ([7], 7)],
)
def test_share_of_rows_follows_from_everybodys_numbers_of_rows(sizes: list[int], each: int) -> None:
    assert rows_each(np.array(sizes)) == each


@pytest.mark.parametrize("other", ["1", " 1 ", "1.0", 1.0, True, Decimal(1), np.float32(1.0)])
def test_id_that_was_read_as_another_type_is_the_same_person(other: Any) -> None:
    people = Persons.from_ids([1, other, "another", 1, "one more", other])
    assert people.number == 3
    assert Persons.from_ids(["1.5", 1, "x1", "01", -1, "-1"]).number == 5


def test_noise_for_persons_is_as_many_times_larger_as_rows_of_one_are_asked_about() -> None:
    found, alone = (
        measure(Y, Y, sensitive_features=SECRET, groups=GROUPS, epsilon=1.0, delta=1e-3, person=ids, noise_seed=0)
        for ids in (PERSON, None)
    )
    assert width(found) > 1.5 * width(alone)
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-3)
    measure(Y, Y, sensitive_features=SECRET, groups=GROUPS, epsilon=1.0, delta=1e-3, person=PERSON, ledger=ledger)
    assert ledger.releases[0].sensitivity == pytest.approx(4 * math.sqrt(2))


def width(found: Any) -> float:
    return float(found.violation.upper - found.violation.lower) if not math.isnan(found.violation.upper) else math.inf


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([1] * (N - 1), "expected one id per row in person, got 59 for 60 rows"),
        ([None] + [1] * (N - 1), "expected an id in every row of person, got 1 without one"),
        (7, "expected person to be one column of ids, got 'int'"),
        ([[1]] * N, "expected ids that can be compared in person, got 'list'"),
        (np.ones((N, 2)), "expected person to be one column of ids, got 'ndarray'"),
    ],
)
def test_ids_that_cannot_be_used_are_refused_before_any_budget_is_spent(ids: Any, sentence: str) -> None:
    ledger = PrivacyLedger(epsilon=8.0, delta=1e-3)
    with pytest.raises((ValueError, TypeError), match=sentence.replace("(", r"\(")):
        classifier().fit(X, Y, sensitive_features=SECRET, person=ids, ledger=ledger)
    assert ledger.releases == ()
