"""The contract of every mechanism: what it charges bounds what it tells, and all its randomness comes from its source.

A new mechanism joins with one line of :data:`MECHANISMS`.
"""

import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from justitia.privacy.accounting import Cost, delta_spent, epsilon_spent, kind_of
from justitia.privacy.arrays import Array
from justitia.privacy.ledger import BudgetExceeded, PrivacyLedger
from justitia.privacy.mechanisms import (
    Gaussian,
    MinorityResponse,
    NoiseSource,
    RandomizedResponse,
    SeededNoise,
    SystemNoise,
    Unprotected,
)
from justitia.privacy.vault import SensitiveVault

CATEGORIES, SENSITIVITY, DRAWS = 3, 2.5, 40_000
#: Two answers, or two codes, that one person can turn into one another.
NEIGHBOURS = (0.0, SENSITIVITY)


@dataclass(frozen=True)
class Case:
    """How a mechanism is charged, asked for many independent answers to one question, and asked through the vault."""

    mechanism: Any
    noisier: Any
    cost: Callable[[Any], Cost]
    tell: Callable[[Any, float, int, NoiseSource, int], Array]
    ask: Callable[[Any, SensitiveVault], Array]
    wrong: tuple[Any, ...] = ()
    #: Whether the cost is all that is told, or only a bound.
    tight: bool = True


def tell_sum(mechanism: Any, exact: float, size: int, source: NoiseSource, release: int) -> Array:
    answers = np.full(size, exact)
    noisy: Array = mechanism.add_noise(answers, sensitivity=SENSITIVITY, source=source, release=release)
    return noisy


def tell_code(mechanism: Any, exact: float, size: int, source: NoiseSource, release: int) -> Array:
    codes = np.full(size, int(exact > 0))
    told: Array = mechanism.randomize(codes, categories=CATEGORIES, source=source, release=release)
    return told


def tell_one_of_two(mechanism: Any, exact: float, size: int, source: NoiseSource, release: int) -> Array:
    codes = np.full(size, int(exact > 0))
    told: Array = mechanism.randomize(codes, categories=2, source=source, release=release)
    return told


def ask_sum(mechanism: Any, vault: SensitiveVault) -> Array:
    return vault.group_sums(np.ones(len(vault)), bound=1.0, noise=mechanism, purpose="sizes")


def ask_labels(mechanism: Any, vault: SensitiveVault) -> Array:
    return vault.randomized_labels(mechanism, purpose="labels")


def ask_without_silence(mechanism: Any, vault: SensitiveVault) -> Array:
    return vault.randomized_labels(mechanism, purpose="labels", not_given=False)


def noise(mechanism: Any, noisier: Any, *wrong: Any) -> Case:
    """A mechanism that sums are noised with."""
    return Case(mechanism, noisier, lambda one: one.cost(), tell_sum, ask_sum, wrong)


def response(mechanism: Any, noisier: Any, *wrong: Any) -> Case:
    """A mechanism that everybody answers with."""
    return Case(mechanism, noisier, lambda one: one.cost(categories=CATEGORIES), tell_code, ask_labels, wrong)


def binary_response(mechanism: Any, noisier: Any, *wrong: Any) -> Case:
    """A mechanism for two groups, charged as the one for two groups that tells most."""
    return Case(
        mechanism,
        noisier,
        lambda one: one.cost(categories=2),
        tell_one_of_two,
        ask_without_silence,
        wrong,
        tight=False,
    )


MECHANISMS = {
    "Gaussian": noise(Gaussian(2.0), Gaussian(3.0), Gaussian(0.0), Gaussian(-1.0), Gaussian(math.nan)),
    "Unprotected": noise(Unprotected(), Unprotected()),
    "RandomizedResponse": response(
        RandomizedResponse(0.7),
        RandomizedResponse(0.4),
        *(RandomizedResponse(wrong) for wrong in (0.0, -1.0, math.nan, math.inf)),
    ),
    **{
        f"MinorityResponse {code}": binary_response(
            MinorityResponse(0.7, code),
            MinorityResponse(0.4, code),
            *(MinorityResponse(wrong, code) for wrong in (0.0, -1.0, math.nan, math.inf)),
        )
        for code in (0, 1)
    },
}
every_mechanism = pytest.mark.parametrize("case", MECHANISMS.values(), ids=MECHANISMS)
noisy_mechanisms = pytest.mark.parametrize(
    "case", [case for name, case in MECHANISMS.items() if name != "Unprotected"], ids=lambda case: repr(case.mechanism)
)


def vault_of(ledger: PrivacyLedger, source: NoiseSource | None = None) -> SensitiveVault:
    labels = ["a", "b", None, "a", "b", "b"]
    return SensitiveVault(labels, groups=("a", "b"), ledger=ledger, noise_source=source)


# What it is


@every_mechanism
def test_contract_mechanism_is_an_immutable_value(case: Case) -> None:
    one = case.mechanism
    assert pickle.loads(pickle.dumps(one)) == one
    assert hash(pickle.loads(pickle.dumps(one))) == hash(one)
    for field in fields(one):
        with pytest.raises(FrozenInstanceError):
            setattr(one, field.name, 1.0)


@every_mechanism
def test_contract_cost_is_of_a_known_kind_and_the_same_every_time(case: Case) -> None:
    assert case.cost(case.mechanism) == case.cost(case.mechanism)
    assert kind_of(case.cost(case.mechanism))


@noisy_mechanisms
def test_contract_more_noise_costs_less(case: Case) -> None:
    cheap, dear = (epsilon_spent({case.cost(one): 1}, 1e-6) for one in (case.noisier, case.mechanism))
    assert 0 < cheap < dear < math.inf


@every_mechanism
def test_contract_noise_that_is_none_cannot_be_charged_for(case: Case) -> None:
    for wrong in case.wrong:
        with pytest.raises(ValueError, match="must be positive and finite"):
            case.cost(wrong)
        ledger = PrivacyLedger(epsilon=math.inf, delta=1e-6)
        with pytest.raises(ValueError, match="must be positive and finite"):
            case.ask(wrong, vault_of(ledger))
        assert ledger.releases == ()


# What it tells


@every_mechanism
def test_contract_answer_has_the_shape_and_type_of_the_question(case: Case) -> None:
    for size in (0, 1, 5):
        answers = [case.tell(case.mechanism, exact, size, SystemNoise(), 0) for exact in NEIGHBOURS]
        assert {one.shape for one in answers} == {(size,)}
        assert len({one.dtype for one in answers}) == 1
        assert all(bool(np.isfinite(one).all()) for one in answers)


@every_mechanism
def test_contract_neighbouring_answers_are_as_alike_as_the_cost_says(case: Case) -> None:
    """P[S] <= e^epsilon P'[S] + delta for every set {answer <= t} and its complement, up to the error of sampling."""
    here, there = (case.tell(case.mechanism, exact, DRAWS, SeededNoise(5), k) for k, exact in enumerate(NEIGHBOURS))
    for epsilon in (0.0, 0.2, 0.5):
        allowed = delta_spent({case.cost(case.mechanism): 1}, epsilon)
        seen = max(largest_delta(here, there, epsilon), largest_delta(there, here, epsilon))
        assert seen <= allowed + 0.02
        assert not case.tight or seen >= allowed - 0.02


def largest_delta(here: NDArray[Any], there: NDArray[Any], epsilon: float) -> float:
    values = np.unique(here)
    pairs = [(float(np.mean(here <= cut)), float(np.mean(there <= cut))) for cut in values[:: len(values) // 200 + 1]]
    pairs += [(1 - p, 1 - q) for p, q in pairs]
    return max(0.0, *(p - math.exp(epsilon) * q for p, q in pairs))


def test_contract_mechanism_without_noise_tells_the_exact_answer_and_says_so_in_its_price() -> None:
    case = MECHANISMS["Unprotected"]
    assert case.tell(case.mechanism, 2.5, 3, SystemNoise(), 0).tolist() == [2.5] * 3
    assert epsilon_spent({case.cost(case.mechanism): 1}, 0.5) == math.inf


@noisy_mechanisms
def test_contract_answers_are_drawn_anew_for_every_release_and_again_for_the_same_one(case: Case) -> None:
    first, again, other = (case.tell(case.mechanism, 0.0, 64, SeededNoise(3), release) for release in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@every_mechanism
def test_contract_randomness_comes_from_the_source_and_from_nowhere_else(case: Case) -> None:
    state = np.random.get_state()  # noqa: NPY002 - the generator in question
    np.random.seed(0)  # noqa: NPY002
    first = case.tell(case.mechanism, 0.0, 32, SeededNoise(3), 0)
    np.random.seed(1)  # noqa: NPY002
    before = str(np.random.get_state())  # noqa: NPY002
    second = case.tell(case.mechanism, 0.0, 32, SeededNoise(3), 0)
    assert np.array_equal(first, second)
    assert str(np.random.get_state()) == before  # noqa: NPY002
    np.random.set_state(state)  # noqa: NPY002


# Through the vault


class Watching(SeededNoise):
    """Keeps what the ledger held whenever noise was drawn."""

    def __init__(self, ledger: PrivacyLedger) -> None:
        super().__init__(0)
        self.ledger = ledger
        self.held: list[dict[Cost, int]] = []

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        self.held.append(dict(self.ledger.costs()))
        return super().words(size, release=release, stream=stream)

    def about(self, question: bytes) -> Any:
        asked = super().about(question)
        asked.held = self.held
        return asked


@every_mechanism
def test_contract_vault_charges_the_cost_before_anything_is_drawn(case: Case) -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-6)
    source = Watching(ledger)
    case.ask(case.mechanism, vault_of(ledger, source))
    (release,) = ledger.releases
    assert release.mechanism == kind_of(release.cost)
    assert all(list(costs.values()) == [1] for costs in source.held)
    assert bool(source.held) == (not isinstance(case.mechanism, Unprotected))


@every_mechanism
def test_contract_vault_draws_and_records_nothing_where_the_budget_does_not_allow_it(case: Case) -> None:
    ledger = PrivacyLedger(epsilon=1e-3, delta=1e-6)
    source = Watching(ledger)
    with pytest.raises(BudgetExceeded):
        case.ask(case.mechanism, vault_of(ledger, source))
    assert ledger.releases == ()
    assert source.held == []


@every_mechanism
def test_contract_vault_fails_for_no_label(case: Case) -> None:
    for labels in ([None] * 4, ["a"] * 4, ["unknown", 7, float("nan"), ()]):
        ledger = PrivacyLedger(epsilon=math.inf, delta=1e-6)
        vault = SensitiveVault(labels, groups=("a", "b"), ledger=ledger)
        assert len(case.ask(case.mechanism, vault)) in {2, 4}
        assert len(ledger.releases) == 1
