"""What several certificates say together."""

import math

import pytest

from justitia.evaluation.joint import composed, joint
from justitia.privacy.accounting import GaussianCost, RandomizedResponseCost, epsilon_spent, gaussian_mu
from justitia.privacy.ledger import Certificate, PrivacyLedger, Release
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
    epsilon, delta = composed([gaussian(1.0)] * number)
    assert epsilon == pytest.approx(epsilon_spent({cost: number}, 1e-5), rel=1e-9)
    assert delta == 1e-5


def test_certificates_read_back_from_json_cost_the_same() -> None:
    read = [Certificate.from_dict(gaussian(one).to_dict()) for one in (1.0, 0.5)]
    assert composed(read) == composed([gaussian(1.0), gaussian(0.5)])


def test_costs_of_other_kinds_are_added_with_their_deltas() -> None:
    assert composed([gaussian(1.0, 1e-5), response(0.7, 1e-6)]) == pytest.approx((1.7, 1.1e-5))


def test_infinite_cost_anywhere_is_no_guarantee() -> None:
    exact = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    from justitia.privacy.accounting import UnboundedCost

    exact.debit(Release("x", UnboundedCost(), 1.0))
    for given in ({"after": [exact.certificate()]}, {"apart": [[gaussian(1.0), exact.certificate()]]}):
        assert joint(gaussian(1.0), **given).endswith("there is no privacy guarantee: epsilon is infinite.")


def test_sentence_takes_the_largest_lot_and_names_its_condition() -> None:
    one, small, large = gaussian(1.0), gaussian(0.1), gaussian(3.0)
    assert "(1.466, 1e-05)" in joint(one, after=[one], apart=[[small]])
    assert joint(one, after=[one], apart=[[small]]).endswith("of which the costs were not added.")
    assert "(3, 1e-05)" in joint(one, after=[one], apart=[[large]])
    assert joint(one, apart=[[small], [small]]).endswith("provided that nobody is in two of them.")
    assert joint(one, after=[one]).endswith("of everybody in either dataset.")
