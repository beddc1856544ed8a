"""Two groups, least unfair data at epsilon: the mechanism is private as stated, optimal, and undone by its matrix."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.rivals import LocalClassifier
from bench.rivals.debiasing import minority_response_matrix
from justitia import PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.privacy.accounting import RandomizedResponseCost
from justitia.privacy.mechanisms import MinorityResponse, SeededNoise

DATA = make_synthetic(1500, random_state=0)
EPSILONS = (0.1, 1.0, 3.0)


def data_unfairness(p: Any, q: Any, share: float, rates: tuple[float, float]) -> Any:
    """|P(Y = 1 | Z = 1) - P(Y = 1 | Z = 0)| if group 0, of this share, tells the truth with p, and group 1 with q."""
    says = share * p + (1 - share) * (1 - q), share * (1 - p) + (1 - share) * q
    positive = share * p * rates[0] + (1 - share) * (1 - q) * rates[1]
    other = share * (1 - p) * rates[0] + (1 - share) * q * rates[1]
    return np.abs(other / says[1] - positive / says[0])


def spent(p: Any, q: Any) -> Any:
    """Epsilon of telling the truth with p and q."""
    ratios = [p / (1 - q), (1 - q) / p, q / (1 - p), (1 - p) / q]
    return np.log(np.max(ratios, axis=0))


def using_up(epsilon: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All p, q >= 1/2 of a fine grid that use up epsilon."""
    p = np.linspace(0.5, 1 - math.exp(-epsilon) / 2, 2001)
    q = np.minimum(1 - p * math.exp(-epsilon), math.exp(epsilon) * (1 - p))  # where either ratio is reached first
    kept = q >= 0.5 - 1e-12
    return p[kept], q[kept]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("minority", [0, 1])
def test_answers_use_up_epsilon_exactly(epsilon: float, minority: int) -> None:
    matrix = minority_response_matrix(epsilon, minority)
    assert np.allclose(matrix.sum(axis=0), 1.0)
    ratios = np.log(matrix.max(axis=1) / matrix.min(axis=1))
    assert ratios.max() == pytest.approx(epsilon)
    # "not given" answers as the larger group does, and so is as well protected
    assert matrix[:, 1 - minority].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.49, 0.51, 0.9])
@pytest.mark.parametrize("rates", [(0.2, 0.7), (0.6, 0.1)])
def test_no_other_mechanism_that_uses_up_epsilon_leaves_less_unfair_data(
    epsilon: float, share: float, rates: tuple[float, float]
) -> None:
    p, q = using_up(epsilon)
    assert np.allclose(spent(p, q), epsilon)
    matrix = minority_response_matrix(epsilon, 0 if share < 0.5 else 1)
    ours = data_unfairness(matrix[0, 0], matrix[1, 1], share, rates)
    everyone = data_unfairness(p, q, share, rates)
    assert ours == pytest.approx(everyone.min(), rel=1e-9)
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert ours < 0.99 * data_unfairness(truth, truth, share, rates)  # randomised response


@pytest.mark.parametrize("minority", [0, 1])
def test_answers_have_the_frequencies_of_the_matrix(minority: int) -> None:
    codes = np.arange(3).repeat(40_000)  # the last third is "not given"
    told = MinorityResponse(1.0, minority).randomize(codes, categories=2, source=SeededNoise(1), release=0)
    seen = told.reshape(3, -1).mean(axis=1)
    expected = [*minority_response_matrix(1.0, minority)[1], 0.5]
    assert np.allclose(seen, expected, atol=0.01)


def fitted(**parameters: Any) -> LocalClassifier:
    model = LocalClassifier(groups=DATA.groups, random_state=0, noise_seed=0, **({"not_given": False} | parameters))
    return model.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)


@pytest.mark.parametrize("code", [0, 1])
def test_local_answers_by_it_cost_epsilon_and_are_undone(code: int) -> None:
    model = fitted(minority=DATA.groups[code], epsilon=50.0)
    assert [one.cost for one in model.ledger_.releases] == [RandomizedResponseCost(50.0, 2)]
    assert model.certificate_.epsilon == 50.0
    # the group that hides with e^-50 / 2 is known when it does not answer; the shares of both come out right
    _, likely = model.posteriors(DATA.X)
    shares = likely.sum(axis=(0, 1)) / len(DATA.y)
    assert shares[1] == pytest.approx((DATA.sensitive == DATA.groups[1]).mean(), abs=0.05)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"minority": "nobody"}, "expected two groups and minority to be one of them"),
        ({"minority": DATA.groups[0], "not_given": True}, "expected not_given=False where a minority is named"),
    ],
)
def test_wrong_minority_is_refused_before_anything_is_asked(parameters: dict[str, Any], message: str) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=0.0)
    model = LocalClassifier(groups=DATA.groups, **({"not_given": False} | parameters))
    with pytest.raises(ValueError, match=message):
        model.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert ledger.releases == ()


def test_more_than_two_categories_are_refused() -> None:
    with pytest.raises(ValueError, match="expected two categories, got 3"):
        MinorityResponse(1.0, 0).cost(categories=3)
    with pytest.raises(ValueError, match="expected the minority to be 0 or 1, got 2"):
        MinorityResponse(1.0, 2).cost(categories=2)
