"""Where a careful attacker got in once: seeds, lists of groups, several runs, several rows, error reporters."""

from __future__ import annotations

import itertools
import math
import traceback
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from justitia import LagrangianDualClassifier, MomentsPlan, measure, private_search, tradeoff
from justitia.audit import audit
from justitia.audit.replay import Silent
from justitia.baselines import (
    AgarwalClassifier,
    FermiClassifier,
    HistogramClassifier,
    LinearPostClassifier,
    LocalClassifier,
    MozannarClassifier,
    ZafarClassifier,
)
from justitia.evaluation.exact import rates_by_group, violation
from justitia.evaluation.scorer import private_scorer
from justitia.privacy.accounting import gaussian_epsilon
from justitia.privacy.ledger import BudgetExceeded, PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, RandomizedResponse, SeededNoise
from justitia.privacy.noise_grid import largest_epsilon, sampler_delta
from justitia.privacy.persons import Persons, rows_each
from justitia.privacy.rows import TensorRows
from justitia.privacy.vault import SensitiveVault

# Sixty people are few: every fit says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore:with this budget and groups of about"),
    pytest.mark.filterwarnings("ignore:the noise"),
    pytest.mark.filterwarnings("ignore:delta="),
]

N = 60
GENERATOR = np.random.default_rng(5)
X = GENERATOR.normal(size=(N, 3))
Y = (X[:, 0] + 0.5 * GENERATOR.normal(size=N) > 0).astype(int)
#: A label that no other text of the library contains.
SECRET = np.array(["zyxelbrand", "quuxfather"])[(X[:, 1] > 0).astype(int)].tolist()
GROUPS = ["zyxelbrand", "quuxfather"]
PLAN = MomentsPlan(rounds=6, warmup_steps=5, checks=2)


def classifier(**changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-3, "groups": GROUPS, "plan": PLAN, "module": (4,)}
    return LagrangianDualClassifier(**usual | {"random_state": 0} | changes)


# -- the list of groups


def runs_without_groups() -> dict[str, Any]:
    given: dict[str, Any] = {"sensitive_features": SECRET}
    unnamed = classifier(groups=None)
    return {
        "fit": lambda: unnamed.fit(X, Y, **given),
        "tradeoff": lambda: tradeoff(unnamed, X, Y, tolerances=(0.1,), **given),
        "search": lambda: private_search(unnamed, [{"module": (3,)}], X, Y, **given),
        "search of tolerances": lambda: private_search(unnamed, [{"tolerance": 0.1}], X, Y, **given),
        "measure": lambda: measure(Y, Y, groups=None, **given),
        "mozannar": lambda: MozannarClassifier(epsilon=1.0).fit(X, Y, **given),
        "local": lambda: LocalClassifier(epsilon=1.0).fit(X, Y, **given),
        "fermi": lambda: FermiClassifier(epsilon=1.0).fit(X, Y, **given),
        "histogram": lambda: HistogramClassifier(epsilon=1.0).fit(X, Y, **given),
    }


@pytest.mark.parametrize("way", runs_without_groups())
def test_finite_epsilon_without_a_list_of_groups_is_refused_in_one_sentence_without_a_label(way: str) -> None:
    with pytest.raises(ValueError, match="expected the public list of groups, got None; ") as refused:
        runs_without_groups()[way]()
    assert not any(label in str(refused.value) for label in GROUPS)


def test_groups_read_off_the_data_are_the_first_thing_the_certificate_says() -> None:
    model = classifier(groups="infer").fit(X, Y, sensitive_features=SECRET)
    first = model.certificate_.statement.split(". ")[0]
    assert first == "Not protected: the list of groups, which was read off the data"
    assert str(model.certificate_).startswith(first)


@pytest.mark.parametrize("engine", ["moments", "gradients", "printed"])
@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_nobody_has_given_the_attribute_is_a_defined_result(engine: str, epsilon: float) -> None:
    plan = PLAN if engine == "moments" else None
    model = classifier(groups="infer", engine=engine, plan=plan, epsilon=epsilon)
    model.fit(X, Y, sensitive_features=[None] * N)
    assert model.certificate_.groups == ("no group found",)
    assert model.predict(X).shape == (N,)


# -- seeded noise


def test_two_measurements_with_one_secret_seed_do_not_share_noise() -> None:
    """With shared noise the difference of two answers is exact, and names the group of the person who differs."""
    named = 0
    for person in range(30):
        other = Y.copy()
        other[person] = 1 - other[person]
        answers = []
        for decided in (Y, other):
            vault = SensitiveVault(
                SECRET, groups=GROUPS, ledger=PrivacyLedger(epsilon=1.0, delta=1e-3), noise_source=SeededNoise(99)
            )
            rows = torch.from_numpy(decided.astype(float))
            answers.append(vault.group_sums(rows, bound=1.0, noise=Gaussian(20.0), purpose="rates"))
        moved = (answers[1] - answers[0]).flatten()
        exact = torch.zeros(2, dtype=torch.float64)
        exact[GROUPS.index(SECRET[person])] = float(other[person]) - float(Y[person])
        named += bool(torch.allclose(moved, exact, atol=0.6))
    assert named <= 2


def asked(**changes: Any) -> torch.Tensor:
    facts: dict[str, Any] = {
        "purpose": "a",
        "rows": torch.ones(N, 2, dtype=torch.float64),
        "bound": 2.0,
        "weight": 1.0,
        "identity": "",
        "labels": SECRET,
        "groups": GROUPS,
        "ids": None,
    }
    facts |= changes
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-3)
    if facts["identity"]:
        ledger = type("Named", (PrivacyLedger,), {"identity": facts["identity"]})(epsilon=1.0, delta=1e-3)
    people = None if facts["ids"] is None else Persons.of(facts["ids"])
    vault = SensitiveVault(
        facts["labels"], groups=facts["groups"], ledger=ledger, people=people, noise_source=SeededNoise(7)
    )
    weights = facts["weight"] * torch.eye(3, dtype=torch.float64)[torch.arange(N) % 3]
    how: dict[str, Any] = {"bound": facts["bound"], "noise": Gaussian(40.0), "purpose": facts["purpose"]}
    sums = vault.group_sums(facts["rows"], **how).flatten()
    return torch.cat([sums, vault.weighted_sum(facts["rows"], weights, **how)])


def test_seeded_noise_is_the_same_for_the_same_question_and_other_for_any_other() -> None:
    base = asked()
    assert torch.equal(base, asked())
    moved = torch.ones(N, 2, dtype=torch.float64)
    moved[0, 0] += 1e-12
    others = [{"purpose": "b"}, {"rows": moved}, {"bound": 2.0 + 1e-12}, {"identity": "another ledger"}]
    for change in others:
        assert not torch.isclose(base, asked(**change)).any()
    assert not torch.isclose(base[4:], asked(weight=1.0 + 1e-12)[4:]).any()


def test_seeded_noise_is_other_where_other_rows_of_a_person_are_asked_about() -> None:
    busy = [*(["busy"] * 9), *range(N - 9)]
    one, other = (Persons.of(ids) for ids in (busy, busy[::-1]))
    assert one.rows_each == other.rows_each
    labels = [None] * N  # so that the exact answers are the same, and the noise alone can differ
    assert not torch.isclose(asked(labels=labels, ids=busy)[:4], asked(labels=labels, ids=busy[::-1])[:4]).any()


def test_seeded_noise_is_other_for_groups_that_are_only_printed_alike() -> None:
    labels = [None] * N
    assert not torch.isclose(asked(labels=labels, groups=["1", "2"])[:4], asked(labels=labels, groups=[1, 2])[:4]).any()


def test_seeded_randomized_response_of_another_epsilon_tosses_other_coins() -> None:
    drawn = []
    for epsilon in (1e-6, 2e-6):  # answers are nearly uniform, so they agree if the coins do
        ledger = PrivacyLedger(epsilon=1.0, delta=0.0)
        vault = SensitiveVault(SECRET, groups=GROUPS, ledger=ledger, noise_source=SeededNoise(7))
        drawn.append(vault.randomized_labels(RandomizedResponse(epsilon), purpose="a"))
    assert not torch.equal(*drawn)


def sums_of(labels: Any, groups: Any = tuple(GROUPS), ids: Any = None) -> torch.Tensor:
    people = None if ids is None else Persons.of(ids)
    ledger = PrivacyLedger(epsilon=5.0, delta=1e-3)
    vault = SensitiveVault(labels, groups=groups, ledger=ledger, people=people, noise_source=SeededNoise(7))
    return vault.group_sums(torch.ones(N), bound=1.0, noise=Gaussian(5.0), purpose="sizes").flatten()


def test_seeded_noise_is_other_for_other_persons_labels_or_columns() -> None:
    """All of it is public, and each difference of two answers with the same noise would be exact."""
    two_types = [1 if i % 3 else "1" for i in range(N)]
    pairs = {
        "persons": [sums_of(SECRET, ids=[first, 1, 0, *range(3, N)]) for first in (0, 1)],
        "types of labels": [sums_of(two_types, groups=[label, "other"]) for label in (1, "1")],
        "parts of labels": [
            sums_of({"one": SECRET, "two": SECRET}, groups=pairs)
            for pairs in ([("a & b", "c"), ("x", "y")], [("a", "b & c"), ("x", "y")])
        ],
        "columns": [sums_of({name: SECRET}) for name in ("sex", "illness")],
    }
    for what, (one, other) in pairs.items():
        assert not torch.isclose((one - other) % 1, torch.zeros_like(one)).all(), what


def test_seeded_randomized_response_does_not_share_coins_between_two_epsilons() -> None:
    """With shared coins, whoever answers differently has told the truth at the larger epsilon."""
    told = []
    for epsilon in (0.5, 1.5):
        ledger = PrivacyLedger(epsilon=2.0, delta=0.0)
        vault = SensitiveVault(SECRET, groups=GROUPS, ledger=ledger, noise_source=SeededNoise(7))
        told.append(vault.randomized_labels(RandomizedResponse(epsilon), purpose="answers", not_given=False))
    true = torch.tensor([GROUPS.index(label) for label in SECRET])
    other = told[0] != told[1]
    assert not torch.equal(told[1][other], true[other])


def test_seeded_fit_is_reproducible_and_its_certificate_promises_nothing_first() -> None:
    one, two = (classifier(noise_seed=3).fit(X, Y, sensitive_features=SECRET) for _ in range(2))
    assert np.array_equal(one.decision_function(X), two.decision_function(X))
    assert one.certificate_.statement.startswith(
        "For reproduction only: the noise was seeded, so nothing is promised. "
    )
    assert one.certificate_.reproduction
    found = measure(Y, Y, sensitive_features=SECRET, groups=GROUPS, delta=1e-3, noise_seed=0)
    assert found.certificate.statement.startswith("For reproduction only")


# -- several runs on one ledger


def test_certificate_after_several_runs_states_the_budget_and_says_so() -> None:
    ledger = PrivacyLedger(epsilon=20.0, delta=1e-3)
    first = classifier().fit(X, Y, sensitive_features=SECRET, ledger=ledger).certificate_
    assert first.epsilon == first.spent_epsilon == pytest.approx(8.0)
    second = classifier().fit(X, Y, sensitive_features=SECRET, ledger=ledger).certificate_
    assert 8.0 < second.spent_epsilon == ledger.epsilon() < 20.0
    assert second.epsilon == 20.0
    assert "is (20, 0.001)-differentially private" in second.statement
    assert "That is the ledger's budget, of which" in second.statement


def test_certificate_of_several_runs_without_a_budget_promises_nothing() -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-3)
    for _ in range(2):
        model = classifier().fit(X, Y, sensitive_features=SECRET, ledger=ledger)
    assert model.certificate_.epsilon == math.inf
    assert model.certificate_.statement.startswith("No privacy guarantee: several runs share a ledger")


def test_stop_chosen_after_looking_breaks_what_was_spent_and_not_the_budget() -> None:
    """Releases one after another, stopped when their loss is far above the epsilon spent so far."""
    mu, most, delta, runs = 0.3, 64, 0.01, 40_000
    steps = np.arange(1, most + 1)
    spent = np.array([gaussian_epsilon(mu * math.sqrt(k), delta) for k in steps])
    losses = np.cumsum(mu**2 / 2 + mu * np.random.default_rng(0).normal(size=(runs, most)), axis=1)
    beyond = np.maximum(0.0, -np.expm1(np.minimum(0.0, spent - losses)))  # what each outcome adds to delta
    stop = np.where((beyond > 0.2).any(1), (beyond > 0.2).argmax(1), most - 1)
    at_stop = losses[np.arange(runs), stop]
    by_spent = beyond[np.arange(runs), stop].mean()
    by_budget = np.maximum(0.0, -np.expm1(np.minimum(0.0, spent[-1] - at_stop))).mean()
    assert by_spent > 3 * delta
    assert by_budget < delta


# -- several rows of one person


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
    vault = SensitiveVault(SECRET, groups=GROUPS, ledger=ledger, people=Persons.of(PERSON))
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
    rows = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3, dtype=torch.float64)
    weights = torch.tensor([[1.0, -1.0, 0.0]] * 6, dtype=torch.float64)
    longest = 0.0
    people = Persons.of(ids)
    assert people.rows_each == 3
    for labels in itertools.product("ab-", repeat=3):
        exact = []
        for own in (("a", "a", "a"), labels):
            ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
            vault = SensitiveVault([*own, "a", "b", "b"], groups=["a", "b"], ledger=ledger, people=people)
            answer = exact_answer(vault, question, rows, weights)
            exact.append(answer)
        moved = float((exact[0] - exact[1]).norm())
        (entry,) = ledger.releases
        assert entry.unit == "person"
        assert moved <= entry.sensitivity
        longest = max(longest, moved / entry.sensitivity)
    assert longest > 1 - 1e-6


def exact_answer(vault: SensitiveVault, question: str, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What is under the noise."""
    vault._source = Silent()  # type: ignore[misc]
    noise = Gaussian(1.0)
    if question == "weighted_sum":
        return vault.weighted_sum(rows, weights, bound=1.0, noise=noise, purpose="test")
    return full_sums(vault, rows, noise)


def full_sums(vault: SensitiveVault, rows: torch.Tensor, noise: Gaussian) -> torch.Tensor:
    """All blocks, "not given" among them: the answer leaves that one out, and the public total brings it back."""
    sums = vault.group_sums(rows, bound=1.0, noise=noise, purpose="test")
    return torch.cat([sums, (rows.sum(0) - sums.sum(0))[None]])


def test_rows_beyond_a_persons_share_are_not_asked_about() -> None:
    ids = ["busy"] * 50 + [f"p{i}" for i in range(50)]
    people = Persons.of(ids)
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
    people = Persons.of([1, other, "another", 1, "one more", other])
    assert people.number == 3
    assert Persons.of(["1.5", 1, "x1", "01", -1, "-1"]).number == 5


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


# -- what noise can deliver


@pytest.mark.parametrize("epsilon", [51.0, 700.0, 1e9])
def test_finite_epsilon_that_noise_cannot_keep_is_refused_in_one_sentence(epsilon: float) -> None:
    ways: list[Any] = [
        lambda: PrivacyLedger(epsilon=epsilon, delta=1e-5),
        lambda: classifier(epsilon=epsilon).fit(X, Y, sensitive_features=SECRET),
        lambda: measure(Y, Y, sensitive_features=SECRET, groups=GROUPS, epsilon=epsilon),
        lambda: RandomizedResponse(epsilon).cost(categories=2),
        lambda: MozannarClassifier(epsilon=epsilon, groups=GROUPS).fit(X, Y, sensitive_features=SECRET),
        lambda: FermiClassifier(epsilon=epsilon, groups=GROUPS).fit(X, Y, sensitive_features=SECRET),
    ]
    for way in ways:
        with pytest.raises(ValueError, match="noise as it is drawn cannot keep a larger one"):
            way()


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-12, 1e-20])
def test_largest_epsilon_leaves_the_sampler_less_than_a_thousandth_of_delta(delta: float) -> None:
    assert sampler_delta(2**30, largest_epsilon(delta)) <= delta / 1000
    assert largest_epsilon(delta) <= 50


def test_randomized_response_at_the_largest_epsilon_still_lies() -> None:
    class Low(SeededNoise):
        """Coins whose words are both 2^54."""

        def words(self, size: int, *, release: int, stream: str = "noise") -> Any:
            drawn = super().words(size, release=release, stream=stream).copy()
            return np.zeros_like(drawn) + np.uint64(2**54) if stream == "coins" else drawn

    told = RandomizedResponse(50.0).randomize(torch.zeros(4).long(), categories=2, source=Low(0), release=0)
    # a coin of about 2^-10 is above e^-50, one whose leading word is 0 is below
    assert told.tolist() == [0] * 4

    class Lowest(Low):
        def words(self, size: int, *, release: int, stream: str = "noise") -> Any:
            drawn = super().words(size, release=release, stream=stream).copy()
            return np.where(np.arange(size) % 2, drawn, 0).astype(np.uint64) if stream == "coins" else drawn

    told = RandomizedResponse(50.0).randomize(torch.zeros(4).long(), categories=2, source=Lowest(0), release=0)
    assert told.tolist() == [1] * 4


# -- error reporters that keep local variables


def kept_by_a_reporter(error: BaseException) -> str:
    """The local variables of every frame of the package, as error reporters print them."""
    came_from = [error, *(one for one in (error.__cause__, error.__context__) if one is not None)]
    frames = [frame for one in came_from for frame, _ in traceback.walk_tb(one.__traceback__)]
    ours = [frame for frame in frames if str(frame.f_globals.get("__name__", "")).startswith("justitia")]
    assert ours
    return "\n".join(f"{name} = {value!r}" for frame in ours for name, value in frame.f_locals.items())


def refused_runs() -> dict[str, Any]:
    def poor() -> PrivacyLedger:
        return PrivacyLedger(epsilon=0.1, delta=1e-3)

    anonymous = ["a", "b"]
    model = classifier(groups=anonymous)
    given: dict[str, Any] = {"sensitive_features": SECRET}
    return {
        "fit": lambda: model.fit(X, Y, ledger=poor(), **given),
        "tradeoff": lambda: tradeoff(model, X, Y, ledger=poor(), **given),
        "search": lambda: private_search(model, [{"module": (3,)}], X, Y, ledger=poor(), **given),
        "measure": lambda: measure(Y, Y, groups=anonymous, ledger=poor(), **given),
        "mozannar": lambda: MozannarClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, ledger=poor(), **given),
        "local": lambda: LocalClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, ledger=poor(), **given),
        "fermi": lambda: FermiClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, ledger=poor(), **given),
        "histogram": lambda: HistogramClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, ledger=poor(), **given),
    }


@pytest.mark.parametrize("way", refused_runs())
def test_local_variables_of_a_refused_run_hold_no_readable_attribute(way: str) -> None:
    with pytest.raises(BudgetExceeded) as refused:
        refused_runs()[way]()
    kept = kept_by_a_reporter(refused.value)
    assert not any(label in kept for label in GROUPS)


class Interrupted:
    """Public rows of which the second half is never given."""

    width = 1

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __len__(self) -> int:
        return N

    def dense(self) -> Any:
        yield torch.arange(N // 2), torch.ones(N // 2, 1)
        raise self.error

    def chunks(self) -> Any:
        for part in TensorRows(torch.ones(N, 1), chunk_rows=N // 2).chunks():
            yield part
            raise self.error


class Broken(SeededNoise):
    """A source whose generator fails."""

    def words(self, size: int, *, release: int, stream: str = "noise") -> Any:
        raise KeyboardInterrupt


ERRORS = (RuntimeError("a module failed"), KeyboardInterrupt())


def interrupted_questions() -> dict[str, Any]:
    how: dict[str, Any] = {"bound": 1.0, "noise": Gaussian(1.0), "purpose": "test"}
    weights = torch.tensor([[1.0, 2.0, 0.0]] * N)

    def vault(source: SeededNoise | None = None) -> SensitiveVault:
        ledger = PrivacyLedger(epsilon=math.inf, delta=1e-3)
        return SensitiveVault(SECRET, groups=GROUPS, ledger=ledger, noise_source=source)

    response = RandomizedResponse(1.0)
    found: dict[str, Any] = {}
    for error in ERRORS:
        rows, name = Interrupted(error), type(error).__name__
        found[f"group_sums, {name}"] = lambda rows=rows: vault().group_sums(rows, **how)
        found[f"weighted_sum, {name}"] = lambda rows=rows: vault().weighted_sum(rows, weights, **how)
    return found | {
        "group_sums, noise": lambda: vault(Broken(1)).group_sums(torch.ones(N), **how),
        "weighted_sum, noise": lambda: vault(Broken(1)).weighted_sum(torch.ones(N), weights, **how),
        "randomized_labels, noise": lambda: vault(Broken(1)).randomized_labels(response, purpose="test"),
    }


@pytest.mark.parametrize("way", interrupted_questions())
def test_error_in_the_middle_of_a_question_holds_no_variable_of_it(way: str) -> None:
    """Exact sums, and everybody's weight or code, are local variables until there is noise on them."""
    with pytest.raises((RuntimeError, KeyboardInterrupt)) as stopped:
        interrupted_questions()[way]()
    kept = kept_by_a_reporter(stopped.value)
    assert not any(name in kept for name in ("exact", "selected", "codes", "tensor"))


def misshapen() -> dict[str, Any]:
    return {
        "three dimensions": np.array(SECRET).reshape(N, 1, 1),
        "columns of two lengths": {"one": SECRET, "two": SECRET[:-1]},
        "no container": iter(SECRET),
        "too few rows": SECRET[:-1],
    }


def misused(attribute: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"sensitive_features": attribute}
    anonymous = ["a", "b"]
    model = classifier(groups=anonymous)
    scorer = private_scorer(groups=anonymous, ledger=PrivacyLedger(epsilon=1.0, delta=1e-3), epsilon=0.5)
    return {
        "fit": lambda: model.fit(X, Y, **given),
        "tradeoff": lambda: tradeoff(model, X, Y, **given),
        "search": lambda: private_search(model, [{"module": (3,)}], X, Y, **given),
        "measure": lambda: measure(Y, Y, groups=anonymous, **given),
        "scorer": lambda: scorer._score_func(Y, Y, **given),
        "mozannar": lambda: MozannarClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, **given),
        "local": lambda: LocalClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, **given),
        "linear post": lambda: LinearPostClassifier(groups=anonymous).fit(X, Y, **given),
        "fermi": lambda: FermiClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, **given),
        "histogram": lambda: HistogramClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, **given),
        "agarwal": lambda: AgarwalClassifier(groups=anonymous).fit(X, Y, **given),
        "zafar": lambda: ZafarClassifier(groups=anonymous).fit(X, Y, **given),
        "audit": lambda: audit(model, X, Y, runs=8, **given),
        "rates_by_group": lambda: rates_by_group(Y, Y, **given),
        "violation": lambda: violation(Y, Y, **given),
    }


@pytest.mark.parametrize("shape", misshapen())
@pytest.mark.parametrize("way", misused(None))
def test_error_about_the_container_holds_none_of_its_entries(way: str, shape: str) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        misused(misshapen()[shape])[way]()
    kept = kept_by_a_reporter(refused.value)
    assert not any(label in kept for label in GROUPS)
