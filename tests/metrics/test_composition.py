"""What several certificates say together."""

import dataclasses
import math

import pytest

from justitia.metrics.composition import composed_cost, joint_statement
from justitia.privacy.accounting import GaussianCost, RandomizedResponseCost, epsilon_spent, gaussian_mu
from justitia.privacy.ledger import INFERRED, Certificate, PrivacyLedger, Release
from justitia.privacy.mechanisms import Gaussian


def gaussian(epsilon: float, delta: float = 1e-5) -> Certificate:
    ledger = PrivacyLedger(epsilon=math.inf, delta=delta)
    ledger.debit(Release("x", Gaussian(1 / gaussian_mu(epsilon, delta)).cost(), 1.0))
    return ledger.certificate()


def response(epsilon: float, delta: float = 0.0) -> Certificate:
    ledger = PrivacyLedger(epsilon=math.inf, delta=delta)
    ledger.debit(Release("x", RandomizedResponseCost(epsilon, 2), 1.0))
    return ledger.certificate()


@pytest.mark.parametrize("number", [1, 2, 4, 9])
def test_copies_of_a_certificate_cost_what_one_ledger_would_say(number: int) -> None:
    cost = GaussianCost(1 / gaussian_mu(1.0, 1e-5))
    epsilon, delta = composed_cost([gaussian(1.0)] * number)
    assert epsilon == pytest.approx(epsilon_spent({cost: number}, 1e-5), rel=1e-9)
    assert delta == 1e-5


def test_certificates_read_back_from_json_cost_the_same() -> None:
    read = [Certificate.from_dict(gaussian(one).to_dict()) for one in (1.0, 0.5)]
    assert composed_cost(read) == composed_cost([gaussian(1.0), gaussian(0.5)])


def test_costs_of_other_kinds_are_added_with_their_deltas() -> None:
    assert composed_cost([gaussian(1.0, 1e-5), response(0.7, 1e-6)]) == pytest.approx((1.7, 1.1e-5))


def test_infinite_cost_anywhere_is_no_guarantee() -> None:
    exact = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    from justitia.privacy.accounting import UnboundedCost

    exact.debit(Release("x", UnboundedCost(), 1.0))
    for given in ({"after": [exact.certificate()]}, {"apart": [[gaussian(1.0), exact.certificate()]]}):
        assert joint_statement(gaussian(1.0), **given).endswith("there is no privacy guarantee: epsilon is infinite.")


def test_sentence_takes_the_largest_lot_and_names_its_condition() -> None:
    one, small, large = gaussian(1.0), gaussian(0.1), gaussian(3.0)
    assert "(1.466, 1e-05)" in joint_statement(one, after=[one], apart=[[small]])
    assert "of which the costs were not added and that" in joint_statement(one, after=[one], apart=[[small]])
    assert "(3, 1e-05)" in joint_statement(one, after=[one], apart=[[large]])
    assert joint_statement(one, apart=[[small], [small]]).endswith("provided that nobody is in two of them.")
    assert "of everybody in either dataset, with at most one row in each, " in joint_statement(one, after=[one])


def test_sentence_of_added_costs_holds_for_looks_that_were_fixed_in_advance() -> None:
    one = gaussian(1.0)
    for given in ({"after": [one]}, {"after": [one, one]}, {"apart": [[one, one]]}, {"after": [one], "apart": [[one]]}):
        assert joint_statement(one, **given).endswith("these releases and their costs were fixed before the first.")
    assert "fixed" not in joint_statement(one, apart=[[one], [one]])


def test_sentence_speaks_of_rows_unless_every_certificate_is_about_persons() -> None:
    row = gaussian(1.0)
    person = dataclasses.replace(row, unit="person")
    assert "with at most one row in each" in joint_statement(person, after=[row])
    assert "with at most one row in each" in joint_statement(person, apart=[[row]])
    assert "row" not in joint_statement(person, after=[person])


def test_sentence_with_seeded_noise_anywhere_promises_nothing() -> None:
    one = gaussian(1.0)
    seeded = dataclasses.replace(one, reproduction=True)
    for own, given in ((seeded, {"after": [one]}), (one, {"after": [seeded]}), (one, {"apart": [[one], [seeded]]})):
        found = joint_statement(own, **given)
        assert found.startswith("Nothing is promised, since noise was seeded; with secret noise, ")


def test_sentence_with_a_list_of_groups_read_off_the_data_leaves_that_list_out() -> None:
    one = gaussian(1.0)
    inferred = dataclasses.replace(one, groups_source=INFERRED)
    found = joint_statement(one, apart=[[inferred]])
    assert "apart from lists of groups that were read off the data: (1, 1e-05)" in found
    assert "lists of groups" not in joint_statement(one, apart=[[one]])
