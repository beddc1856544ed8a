"""Where a careful attacker got in once: seeds, lists of groups, several runs, several rows, error reporters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from edge_cases import GROUPS, PLAN, QUIET, SECRET, N, X, Y, classifier

from bench.rivals import (
    FermiClassifier,
    HistogramClassifier,
    LocalClassifier,
    MozannarClassifier,
)
from justitia import measure, private_search, tradeoff
from justitia.privacy.accounting import gaussian_epsilon
from justitia.privacy.arrays import Array
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, RandomizedResponse, SeededNoise
from justitia.privacy.noise_grid import largest_epsilon, sampler_delta
from justitia.privacy.vault import SensitiveVault

pytestmark = QUIET

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


@pytest.mark.parametrize("engine", ["moments", "pf-ld", "pf-ld-as-published"])
@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_nobody_has_given_the_attribute_is_a_defined_result(engine: str, epsilon: float) -> None:
    plan = PLAN if engine == "moments" else None
    model = classifier(groups="infer", engine=engine, plan=plan, epsilon=epsilon)
    model.fit(X, Y, sensitive_features=[None] * N)
    assert model.certificate_.groups == ("no group found",)
    assert model.predict(X).shape == (N,)


# -- seeded noise


def noise_of(rows: float = 1.0, **changes: Any) -> Array:
    """Noise of two seeded sums: what the answers are beyond the exact ones, of which all rows are "not given"."""
    how: dict[str, Any] = {"purpose": "a", "bound": 2.0, "noise": Gaussian(40.0)} | changes
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-3)
    vault = SensitiveVault([None] * N, groups=GROUPS, ledger=ledger, noise_source=SeededNoise(7))
    return np.concatenate([vault.group_sums(np.full((N, 2), rows), **how).ravel() for _ in range(2)])


def test_seeded_noise_is_the_same_for_the_same_question_and_other_for_any_other() -> None:
    base = noise_of()
    assert np.array_equal(base, noise_of())
    assert not np.isclose(base[:4], base[4:]).any()  # the second release of a run
    for change in ({"purpose": "b"}, {"bound": 2.0 + 1e-12}, {"noise": Gaussian(40.0 + 1e-12)}):
        assert not np.isclose(base, noise_of(**change)).any()


def test_seeded_noise_of_other_rows_is_the_same_so_that_it_promises_nothing() -> None:
    assert np.allclose(noise_of(), noise_of(rows=0.5), atol=1e-9)


def test_seeded_randomized_response_of_another_epsilon_tosses_other_coins() -> None:
    drawn = []
    for epsilon in (1e-6, 2e-6):  # answers are nearly uniform, so they agree if the coins do
        ledger = PrivacyLedger(epsilon=1.0, delta=0.0)
        vault = SensitiveVault(SECRET, groups=GROUPS, ledger=ledger, noise_source=SeededNoise(7))
        drawn.append(vault.randomized_labels(RandomizedResponse(epsilon), purpose="a"))
    assert not np.array_equal(*drawn)


def test_seeded_randomized_response_does_not_share_coins_between_two_epsilons() -> None:
    """With shared coins, whoever answers differently has told the truth at the larger epsilon."""
    told = []
    for epsilon in (0.5, 1.5):
        ledger = PrivacyLedger(epsilon=2.0, delta=0.0)
        vault = SensitiveVault(SECRET, groups=GROUPS, ledger=ledger, noise_source=SeededNoise(7))
        told.append(vault.randomized_labels(RandomizedResponse(epsilon), purpose="answers", not_given=False))
    true = np.array([GROUPS.index(label) for label in SECRET])
    other = told[0] != told[1]
    assert not np.array_equal(told[1][other], true[other])


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

    told = RandomizedResponse(50.0).randomize(np.zeros(4).astype(np.int64), categories=2, source=Low(0), release=0)
    # a coin of about 2^-10 is above e^-50, one whose leading word is 0 is below
    assert told.tolist() == [0] * 4

    class Lowest(Low):
        def words(self, size: int, *, release: int, stream: str = "noise") -> Any:
            drawn = super().words(size, release=release, stream=stream).copy()
            return np.where(np.arange(size) % 2, drawn, 0).astype(np.uint64) if stream == "coins" else drawn

    told = RandomizedResponse(50.0).randomize(np.zeros(4).astype(np.int64), categories=2, source=Lowest(0), release=0)
    assert told.tolist() == [1] * 4
