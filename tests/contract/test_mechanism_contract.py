"""The contract of every mechanism: its cost bounds what it reveals, and all its randomness comes from its source.

A new mechanism is one class, and joins with one line of :data:`MECHANISMS`; ``new_mechanism.py`` shows it.
"""

import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any

import numpy as np
import pytest
from new_mechanism import TwoPartyGaussian
from numpy.typing import NDArray

from justitia.privacy.accounting import Cost, GaussianCost, UnboundedCost, delta_spent, epsilon_spent
from justitia.privacy.arrays import Array
from justitia.privacy.ledger import BudgetExceeded, PrivacyLedger
from justitia.privacy.mechanisms import (
    Gaussian,
    Mechanism,
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
    """How a mechanism is charged, gives many independent answers to one query, and answers through the vault."""

    mechanism: Any
    noisier: Any
    cost: Callable[[Any], Cost]
    answer: Callable[[Any, float, int, NoiseSource, int], Array]
    query: Callable[[Any, SensitiveVault], Array]
    wrong: tuple[Any, ...] = ()
    #: Whether the cost is exactly what is revealed, or only a bound.
    tight: bool = True


def noisy_sum(mechanism: Any, exact: float, size: int, source: NoiseSource, release: int) -> Array:
    answers = np.full(size, exact)
    noisy: Array = mechanism.add_noise(answers, sensitivity=SENSITIVITY, source=source, release=release)
    return noisy


def randomized_code(mechanism: Any, exact: float, size: int, source: NoiseSource, release: int) -> Array:
    codes = np.full(size, int(exact > 0))
    reported: Array = mechanism.randomize(codes, categories=CATEGORIES, source=source, release=release)
    return reported


def randomized_binary_code(mechanism: Any, exact: float, size: int, source: NoiseSource, release: int) -> Array:
    codes = np.full(size, int(exact > 0))
    reported: Array = mechanism.randomize(codes, categories=2, source=source, release=release)
    return reported


def query_sum(mechanism: Any, vault: SensitiveVault) -> Array:
    return vault.group_sums(np.ones(len(vault)), bound=1.0, noise=mechanism, purpose="sizes")


def query_labels(mechanism: Any, vault: SensitiveVault) -> Array:
    return vault.randomized_labels(mechanism, purpose="labels")


def query_given_labels(mechanism: Any, vault: SensitiveVault) -> Array:
    return vault.randomized_labels(mechanism, purpose="labels", not_given=False)


def noise(mechanism: Any, noisier: Any, *wrong: Any, tight: bool = True) -> Case:
    """A mechanism that protects sums."""
    return Case(mechanism, noisier, lambda one: one.cost(), noisy_sum, query_sum, wrong, tight)


def response(mechanism: Any, noisier: Any, *wrong: Any) -> Case:
    """A mechanism that randomizes each label."""
    return Case(mechanism, noisier, lambda one: one.cost(categories=CATEGORIES), randomized_code, query_labels, wrong)


def binary_response(mechanism: Any, noisier: Any, *wrong: Any) -> Case:
    """A mechanism for two groups, charged as the one for two groups that reveals most."""
    return Case(
        mechanism,
        noisier,
        lambda one: one.cost(categories=2),
        randomized_binary_code,
        query_given_labels,
        wrong,
        tight=False,
    )


MECHANISMS = {
    "Gaussian": noise(Gaussian(2.0), Gaussian(3.0), Gaussian(0.0), Gaussian(-1.0), Gaussian(math.nan)),
    "Unprotected": noise(Unprotected(), Unprotected()),
    "TwoPartyGaussian": noise(
        TwoPartyGaussian(2.0), TwoPartyGaussian(3.0), TwoPartyGaussian(0.0), TwoPartyGaussian(-1.0), tight=False
    ),
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


protects_sums = pytest.mark.parametrize(
    "mechanism",
    [case.mechanism for case in MECHANISMS.values() if case.answer is noisy_sum],
    ids=lambda mechanism: type(mechanism).__name__,
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
    assert case.cost(case.mechanism).kind


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
            case.query(wrong, vault_of(ledger))
        assert ledger.releases == ()


# Mechanisms that protect sums: what callers read instead of the class


@protects_sums
def test_contract_mechanism_has_the_interface_that_callers_rely_on(mechanism: Mechanism) -> None:
    assert isinstance(mechanism, Mechanism)
    assert not isinstance(RandomizedResponse(0.7), Mechanism)


@protects_sums
def test_contract_stated_stddev_is_that_of_the_noise(mechanism: Mechanism) -> None:
    noisy = noisy_sum(mechanism, 1.0, DRAWS, SeededNoise(11), 0)
    stated = mechanism.stddev(SENSITIVITY)
    assert float(noisy.std()) == pytest.approx(stated, rel=0.02)  # 1 / sqrt(2 n) is 0.35%
    assert float(noisy.mean()) == pytest.approx(1.0, abs=4 * stated / math.sqrt(DRAWS))
    assert mechanism.stddev(2 * SENSITIVITY) == pytest.approx(2 * stated)


@protects_sums
def test_contract_exact_means_no_noise_and_an_infinite_cost(mechanism: Mechanism) -> None:
    assert mechanism.is_exact == (mechanism.stddev(SENSITIVITY) == 0.0) == (mechanism.cost() == UnboundedCost())


@protects_sums
def test_contract_noisy_answers_are_multiples_of_the_stated_step(mechanism: Mechanism) -> None:
    step = mechanism.step(SENSITIVITY)
    assert (step == 0.0) == mechanism.is_exact
    if step:
        steps = noisy_sum(mechanism, 1 / 3, 1000, SystemNoise(), 0) / step
        assert np.array_equal(steps, np.rint(steps))


# What it reveals


@every_mechanism
def test_contract_answer_has_the_shape_and_type_of_the_question(case: Case) -> None:
    for size in (0, 1, 5):
        answers = [case.answer(case.mechanism, exact, size, SystemNoise(), 0) for exact in NEIGHBOURS]
        assert {one.shape for one in answers} == {(size,)}
        assert len({one.dtype for one in answers}) == 1
        assert all(bool(np.isfinite(one).all()) for one in answers)


@every_mechanism
def test_contract_neighbouring_answers_are_as_alike_as_the_cost_says(case: Case) -> None:
    """P[S] <= e^epsilon P'[S] + delta for every set {answer <= t} and its complement, up to the error of sampling."""
    here, there = (case.answer(case.mechanism, exact, DRAWS, SeededNoise(5), k) for k, exact in enumerate(NEIGHBOURS))
    for epsilon in (0.0, 0.2, 0.5):
        claimed = delta_spent({case.cost(case.mechanism): 1}, epsilon)
        observed = max(largest_delta(here, there, epsilon), largest_delta(there, here, epsilon))
        assert observed <= claimed + 0.02
        assert not case.tight or observed >= claimed - 0.02


def largest_delta(here: NDArray[Any], there: NDArray[Any], epsilon: float) -> float:
    values = np.unique(here)
    pairs = [(float(np.mean(here <= cut)), float(np.mean(there <= cut))) for cut in values[:: len(values) // 200 + 1]]
    pairs += [(1 - p, 1 - q) for p, q in pairs]
    return max(0.0, *(p - math.exp(epsilon) * q for p, q in pairs))


def test_contract_mechanism_without_noise_gives_the_exact_answer_at_an_infinite_cost() -> None:
    case = MECHANISMS["Unprotected"]
    assert case.answer(case.mechanism, 2.5, 3, SystemNoise(), 0).tolist() == [2.5] * 3
    assert epsilon_spent({case.cost(case.mechanism): 1}, 0.5) == math.inf


@noisy_mechanisms
def test_contract_answers_are_drawn_anew_for_every_release_and_again_for_the_same_one(case: Case) -> None:
    first, again, other = (case.answer(case.mechanism, 0.0, 64, SeededNoise(3), release) for release in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@every_mechanism
def test_contract_randomness_comes_from_the_source_and_from_nowhere_else(case: Case) -> None:
    state = np.random.get_state()  # noqa: NPY002 - the generator in question
    np.random.seed(0)  # noqa: NPY002
    first = case.answer(case.mechanism, 0.0, 32, SeededNoise(3), 0)
    np.random.seed(1)  # noqa: NPY002
    before = str(np.random.get_state())  # noqa: NPY002
    second = case.answer(case.mechanism, 0.0, 32, SeededNoise(3), 0)
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

    def about(self, *query: object) -> Any:
        source = super().about(*query)
        source.held = self.held
        return source


@every_mechanism
def test_contract_vault_charges_the_cost_before_anything_is_drawn(case: Case) -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-6)
    source = Watching(ledger)
    case.query(case.mechanism, vault_of(ledger, source))
    (release,) = ledger.releases
    assert release.mechanism == release.cost.kind
    assert all(list(costs.values()) == [1] for costs in source.held)
    assert bool(source.held) == (not getattr(case.mechanism, "is_exact", False))


@every_mechanism
def test_contract_vault_draws_and_records_nothing_where_the_budget_does_not_allow_it(case: Case) -> None:
    ledger = PrivacyLedger(epsilon=1e-3, delta=1e-6)
    source = Watching(ledger)
    with pytest.raises(BudgetExceeded):
        case.query(case.mechanism, vault_of(ledger, source))
    assert ledger.releases == ()
    assert source.held == []


@every_mechanism
def test_contract_vault_fails_for_no_label(case: Case) -> None:
    for labels in ([None] * 4, ["a"] * 4, ["unknown", 7, float("nan"), ()]):
        ledger = PrivacyLedger(epsilon=math.inf, delta=1e-6)
        vault = SensitiveVault(labels, groups=("a", "b"), ledger=ledger)
        assert len(case.query(case.mechanism, vault)) in {2, 4}
        assert len(ledger.releases) == 1


def test_new_mechanism_answers_group_sums_of_a_vault_and_is_debited() -> None:
    """One class in one file: the vault needs no change, and the certificate says what it cost."""
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-6)
    mechanism = TwoPartyGaussian(10.0)
    sums = vault_of(ledger, SeededNoise(3)).group_sums(np.ones(6), bound=1.0, noise=mechanism, purpose="sizes")
    assert sums.shape == (2, 1)
    (release,) = ledger.releases
    assert release.cost == GaussianCost(10.0)
    assert release.purpose == "sizes"
    assert release.sensitivity == pytest.approx(math.sqrt(2))
    assert ledger.certificate().epsilon == epsilon_spent({GaussianCost(10.0): 1}, 1e-6) < 1.0
    # With exact sums (2, 3) and the public total, two thirds of the variance of the noise are left in each group.
    runs = [
        vault_of(PrivacyLedger(epsilon=1.0, delta=1e-6), SeededNoise(seed)).group_sums(
            np.ones(6), bound=1.0, noise=mechanism, purpose="sizes"
        )
        for seed in range(1500)
    ]
    errors = np.concatenate(runs, axis=1) - [[2.0], [3.0]]
    assert float(errors.std()) == pytest.approx(mechanism.stddev(math.sqrt(2)) * math.sqrt(2 / 3), rel=0.05)
