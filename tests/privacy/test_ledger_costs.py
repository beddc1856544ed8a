"""What a ledger says about several releases: their cost together, and the certificate."""

import json
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledgers import FULL, RESPONSE, SIGMA, UNBOUNDED, WEAK, ledger, release
from vaults import derandomized

from justitia.privacy.accounting import (
    Cost,
    GaussianCost,
    epsilon_spent,
    gaussian_epsilon,
)
from justitia.privacy.ledger import Certificate, PrivacyLedger, Release, rounded_up


def spent_on(cost: Cost, copies: int, delta: float) -> float:
    book = ledger(epsilon=math.inf, delta=delta)
    for _ in range(copies):
        book.debit(release(cost))
    return book.epsilon()


@pytest.mark.parametrize("copies", [1, 4, 10])
def test_copies_of_a_gaussian_release_add_up_in_squares(copies: int) -> None:
    assert spent_on(FULL, copies, 1e-5) == pytest.approx(gaussian_epsilon(math.sqrt(copies) / SIGMA, 1e-5))


def test_four_copies_cost_as_much_as_one_with_half_the_noise() -> None:
    assert spent_on(FULL, 4, 1e-5) == pytest.approx(spent_on(GaussianCost(SIGMA / 2), 1, 1e-5))


@pytest.mark.parametrize("copies", [1, 4, 10])
def test_copies_of_randomized_response_at_delta_zero_add_up(copies: int) -> None:
    assert spent_on(RESPONSE, copies, 0.0) == pytest.approx(0.25 * copies)


def test_copies_of_randomized_response_at_a_delta_cost_more_with_each() -> None:
    costs = [spent_on(RESPONSE, n, 1e-5) for n in (1, 2, 10)]
    assert costs[0] < costs[1] < costs[2] <= 2.5


@pytest.mark.parametrize("copies", [1, 3])
def test_copies_of_an_unprotected_release_cost_infinity(copies: int) -> None:
    assert spent_on(UNBOUNDED, copies, 1e-5) == math.inf


def test_different_releases_cost_what_their_composition_says() -> None:
    book = ledger(epsilon=50.0)
    for cost in (FULL, RESPONSE, FULL, GaussianCost(2.0)):
        book.debit(release(cost))
    together: dict[Cost, int] = {FULL: 2, RESPONSE: 1, GaussianCost(2.0): 1}
    assert book.costs() == together
    mu = math.sqrt(2 / SIGMA**2 + 1 / 4)
    assert gaussian_epsilon(mu, 1e-5) < book.epsilon() == epsilon_spent(together, 1e-5)
    assert book.epsilon() <= gaussian_epsilon(mu, 1e-5) + 0.25


@pytest.mark.parametrize("cost", [FULL, WEAK, RESPONSE, UNBOUNDED])
@pytest.mark.parametrize("sensitivity", [0.0, math.sqrt(2) / 3, math.inf])
def test_release_survives_its_journal_line(cost: Cost, sensitivity: float) -> None:
    entry = Release("a 'purpose'\nwith a line break, and \u00fc", cost, sensitivity)
    assert "\n" not in entry.to_json()
    assert Release.from_json(entry.to_json()) == entry


def test_release_keeps_its_unit_and_refuses_what_is_none() -> None:
    entry = Release("sizes", FULL, 2.0, unit="person")
    assert Release.from_json(entry.to_json()) == entry
    assert Release("sizes", FULL, 2.0).unit == "row"
    with pytest.raises(ValueError, match=r"expected unit to be 'row' or 'person', got 'house'\."):
        Release("sizes", FULL, 2.0, unit="house")
    with pytest.raises(ValueError, match=r"expected a sensitivity of at least 0, got nan\."):
        Release("sizes", FULL, math.nan)


@pytest.mark.parametrize(
    ("cost", "name"),
    [(FULL, "gaussian"), (WEAK, "gaussian"), (RESPONSE, "randomized response"), (UNBOUNDED, "unprotected")],
)
def test_mechanism_of_a_release_is_named(cost: Cost, name: str) -> None:
    assert release(cost).mechanism == name


def certificate(
    epsilon: float = math.inf, *costs: Cost, claim: dict[str, object] | None = None, planned: int = 1
) -> Certificate:
    book = ledger(epsilon=epsilon)
    for cost in costs:
        book.debit(release(cost))
    return book.certificate(groups=("F", "M"), noise="operating system entropy", claim=claim, planned=planned)


@pytest.mark.parametrize("costs", [(), (FULL, FULL), (WEAK,), (RESPONSE, FULL), (UNBOUNDED,)])
def test_certificate_survives_plain_data_and_json(costs: tuple[Cost, ...]) -> None:
    for claim in (None, {"epsilon": 1.0, "delta": 1e-5, "statement": "(1, 1e-05) by Theorem 5"}):
        original = certificate(math.inf, *costs, claim=claim)
        assert Certificate.from_dict(original.to_dict()) == original
        assert Certificate.from_dict(json.loads(original.to_json())) == original


def test_certificate_of_plain_data_without_a_receipt_has_none() -> None:
    facts = certificate(2.0, FULL).to_dict()
    assert facts.pop("receipt") is None
    assert Certificate.from_dict(facts) == certificate(2.0, FULL)


def test_certificate_as_json_writes_infinity_as_a_word() -> None:
    facts = json.loads(certificate(math.inf, UNBOUNDED).to_json(), parse_constant=pytest.fail)
    assert (facts["epsilon"], facts["budget_epsilon"]) == ("infinity", "infinity")


@pytest.mark.parametrize(
    ("delta", "shown"),
    [(1.00049e-5, "1.001e-05"), (1e-5, "1e-05"), (9.9999e-6, "1e-05"), (0.1, "0.1"), (0.12341, "0.1235"), (0.0, "0")],
)
def test_certificate_rounds_delta_up(delta: float, shown: str) -> None:
    made = PrivacyLedger(epsilon=5.0, delta=delta).certificate()
    assert f"(0, {shown})-differentially private" in made.statement


@derandomized
@given(st.floats(min_value=2.3e-308, max_value=1e300, allow_subnormal=False))  # four digits need a normal number
def test_rounded_up_is_never_less_than_the_number_but_for_round_off(number: float) -> None:
    assert Decimal(rounded_up(number)) >= Decimal(number) * (1 - Decimal("2e-9"))
    assert Decimal(rounded_up(number)) <= Decimal(number) * Decimal("1.0011")


def test_certificate_of_gaussian_releases_reads_as_written_here() -> None:
    assert str(certificate(2.0, FULL, FULL, planned=2)) == "\n".join(
        [
            "Every output of training is (1.466, 1e-05)-differentially private in the sensitive attribute of",
            "any one row.",
            "  neighbours:  two datasets that differ in the attribute of one row (to any group, or to 'not",
            "               given'); features, labels, group names and settings are public",
            "  accountant:  exact composition of Gaussian releases over all rows (mu-GDP)",
            "  noise:       operating system entropy",
            "  groups:      F, M (given)",
            "  releases:    2 x check round 3 (gaussian, noise multiplier 3.731)",
            "  not covered: what features and labels tell about the attribute; attributes that change",
            "               together; running time and memory access; choices made by looking at runs outside",
            "               this ledger; exact numbers by group that others compute; several rows of one",
            "               person taken together (person= changes that)",
        ]
    )


def test_certificate_of_mixed_releases_names_each_and_its_accountant() -> None:
    text = str(certificate(2.0, FULL, RESPONSE))
    assert "1 x check round 3 (gaussian, noise multiplier 3.731)" in " ".join(text.split())
    assert "1 x check round 3 (randomized response, epsilon 0.25)" in " ".join(text.split())
    assert "  accountant:  privacy-loss distribution under substitution of one attribute\n" in text


def test_certificate_of_an_unprotected_release_promises_nothing() -> None:
    text = str(certificate(math.inf, FULL, UNBOUNDED))
    assert text.startswith("No privacy guarantee: epsilon is infinite.\n")
    assert "  accountant:  none: an answer was given without noise\n" in text
    assert "1 x check round 3 (unprotected)" in " ".join(text.split())


def test_certificate_with_a_published_claim_says_that_it_is_not_established() -> None:
    made = certificate(math.inf, UNBOUNDED, claim={"statement": "(1, 1e-05) by Theorem 5"})
    assert made.statement == (
        "No privacy guarantee: epsilon is infinite. The published analysis does not establish a guarantee."
    )
    assert "  claim:       as published, not established: (1, 1e-05) by Theorem 5\n" in str(made)


def test_certificate_does_not_follow_later_debits() -> None:
    book = ledger(epsilon=5.0)
    book.debit(release())
    before = book.certificate()
    book.debit(release())
    assert (before.releases[0]["count"], before.epsilon < book.epsilon()) == (1, True)
    assert before.statement.startswith("Every output of training is (0.9999, 1e-05)")


def test_certificate_of_an_empty_ledger_says_that_nothing_was_asked() -> None:
    empty = certificate(0.0)
    assert (empty.epsilon, empty.accountant) == (0.0, "none needed: nothing was asked")
