"""Randomised groups: the inversion is exact, the estimates unbiased, the mixture best, and epsilon is what it says."""

import math
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bench.rivals import mozannar
from bench.rivals.agarwal import AgarwalClassifier
from bench.rivals.debiasing import (
    DebiasedGaps,
    debiased_gaps,
    debiased_memberships,
    inverse_response_matrix,
    response_matrix,
)
from bench.rivals.mozannar import MozannarClassifier, best_weights, split_halves
from justitia import BudgetExceeded, PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.privacy.mechanisms import RandomizedResponse, SeededNoise
from justitia.privacy.vault import SensitiveVault

# Many tests stop the reduction after a few rounds, and mean to.
pytestmark = pytest.mark.filterwarnings("ignore:expected the reduction to meet its constraint")

DATA = make_synthetic(400, random_state=0)
FIVE = make_synthetic(500, groups=("a", "b", "c", "d", "e"), random_state=1)
#: Tells the truth with probability 1 - 2e-22: as good as no noise.
TRUTHFUL = 50.0


def fitted(notion: str = "demographic_parity", data: Any = DATA, **parameters: Any) -> MozannarClassifier:
    usual = {"groups": data.groups, "random_state": 0, "noise_seed": 0}
    return MozannarClassifier(notion, **usual | parameters).fit(data.X, data.y, sensitive_features=data.sensitive)


# The inversion


def test_response_matrix_by_hand() -> None:
    # e^epsilon = 2: the truth in 2 of 4 cases, each other category in 1 of 4
    expected = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    assert np.allclose(response_matrix(math.log(2), 3), expected, atol=1e-15)


@pytest.mark.parametrize("categories", [2, 3, 6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_inverse_response_matrix_undoes_the_response(epsilon: float, categories: int) -> None:
    product = inverse_response_matrix(epsilon, categories) @ response_matrix(epsilon, categories)
    assert np.allclose(product, np.eye(categories), atol=1e-12)


def test_inverse_response_matrix_large_epsilon_is_the_identity() -> None:
    assert np.array_equal(inverse_response_matrix(2000.0, 3), np.eye(3))


def test_debiased_memberships_by_hand() -> None:
    # Inverse of [[.5, .25, .25], ...]: 3 on the diagonal, -1 elsewhere
    memberships = debiased_memberships(np.array([0, 2]), categories=3, epsilon=math.log(2))
    assert np.allclose(memberships, [[3, -1, -1], [-1, -1, 3]])


# The estimates


def answers(
    labels: NDArray[Any], groups: tuple[str, ...], *, epsilon: float, draw: int, not_given: bool = True
) -> NDArray[np.int64]:
    ledger = PrivacyLedger(epsilon=epsilon, delta=0.0)
    vault = SensitiveVault(labels, groups=groups, ledger=ledger, noise_source=SeededNoise(draw))
    return vault.randomized_labels(RandomizedResponse(epsilon), purpose="draw", not_given=not_given)


def people(n_groups: int, n: int = 600) -> tuple[NDArray[Any], tuple[str, ...], NDArray[Any], NDArray[Any]]:
    """Labels of which one in ten is not given, groups, 0/1 values that depend on the group, and two events."""
    rng = np.random.default_rng(n_groups)
    groups = tuple("abcde"[:n_groups])
    codes = rng.integers(0, n_groups, n)
    values = (rng.random(n) < 0.2 + 0.6 * codes / n_groups).astype(np.float64)
    labels = np.array(groups, dtype=object)[codes]
    labels[rng.random(n) < 0.1] = None
    events = np.eye(2)[rng.integers(0, 2, n)]
    return labels, groups, values[:, None], events


def in_standard_errors(estimates: list[NDArray[Any]], truth: NDArray[Any]) -> NDArray[Any]:
    draws = np.array(estimates)
    return np.abs(draws.mean(axis=0) - truth) / (draws.std(axis=0, ddof=1) / math.sqrt(len(draws)))


@pytest.mark.parametrize("n_groups", [2, 5])
def test_debiased_sums_over_many_draws_are_unbiased_and_raw_ones_are_not(n_groups: int) -> None:
    labels, groups, values, _ = people(n_groups)
    truth = np.array([values[labels == group].sum() for group in groups])
    debiased, raw = [], []
    for draw in range(1000):
        codes = answers(labels, groups, epsilon=1.0, draw=draw)
        memberships = debiased_memberships(codes, categories=n_groups + 1, epsilon=1.0)
        debiased.append(memberships[:, :n_groups].T @ values[:, 0])
        raw.append(np.array([values[codes == code].sum() for code in range(n_groups)]))
    assert in_standard_errors(debiased, truth).max() < 4
    assert in_standard_errors(raw, truth).max() > 20


@pytest.mark.parametrize("not_given", [True, False])
@pytest.mark.parametrize("n_groups", [2, 5])
def test_debiased_gaps_over_many_draws_are_those_of_the_true_groups(n_groups: int, not_given: bool) -> None:
    labels, groups, values, events = people(n_groups, n=6000)
    if not not_given:
        known = pd.notna(labels)
        labels, values, events = labels[known], values[known], events[known]
    truth = [
        values[(labels == group) & (event > 0)].mean() - values[event > 0].mean()
        for event in events.T
        for group in groups
    ]
    draws, noise = [], np.zeros(0)
    for draw in range(200):
        codes = answers(labels, groups, epsilon=2.0, draw=draw, not_given=not_given)
        categories = n_groups + not_given
        estimated = debiased_gaps(values, events, codes, n_groups=n_groups, categories=categories, epsilon=2.0)
        draws.append(estimated.gaps[:, 0])
        noise = estimated.noise[:, 0]
    assert in_standard_errors(draws, np.array(truth)).max() < 4
    # The bound is on the numerator, with the larger of two variances; the size adds a little. Both are of one order.
    spread = np.std(draws, axis=0)
    assert (spread < 1.25 * noise).all()
    assert (spread > 0.3 * noise).all()


def test_debiased_gaps_without_noise_are_exact() -> None:
    # Group 0 decides 1, 0; group 1 decides 1, 1; the last row is not given. Population: 4 of 5.
    values, events = np.array([[1.0], [0.0], [1.0], [1.0], [1.0]]), np.ones((5, 1))
    estimated = debiased_gaps(values, events, np.array([0, 0, 1, 1, 2]), n_groups=2, categories=3, epsilon=TRUTHFUL)
    assert np.allclose(estimated.gaps, [[0.5 - 0.8], [1.0 - 0.8]])
    assert np.allclose(estimated.noise, 0, atol=1e-9)


def test_debiased_gaps_of_a_group_nobody_answered_are_finite() -> None:
    values, events = np.array([[1.0], [0.0], [1.0]]), np.ones((3, 1))
    estimated = debiased_gaps(values, events, np.zeros(3, dtype=np.int64), n_groups=2, categories=3, epsilon=0.5)
    assert np.isfinite(estimated.gaps).all()


def test_debiased_gaps_event_without_rows_is_left_out() -> None:
    events = np.array([[1.0, 0.0], [1.0, 0.0]])
    values, codes = np.array([[1.0], [0.0]]), np.array([0, 1])
    estimated = debiased_gaps(values, events, codes, n_groups=2, categories=2, epsilon=TRUTHFUL)
    assert estimated.gaps.shape == (2, 1)


# The linear program


def test_best_weights_by_hand_spends_the_whole_bound() -> None:
    # 0.2 w <= 0.05
    estimated = DebiasedGaps(np.array([[0.2, 0.0]]), np.zeros((1, 2)))
    weights = best_weights(np.array([0.1, 0.3]), estimated, difference_bound=0.05, noise_slack=0.0)
    assert np.allclose(weights, [0.25, 0.75], atol=1e-5)


def test_best_weights_slack_adds_known_noise_to_the_bound() -> None:
    # 0.2 w <= 0.05 + 1 * 0.05
    estimated = DebiasedGaps(np.array([[0.2, 0.0]]), np.full((1, 2), 0.05))
    weights = best_weights(np.array([0.1, 0.3]), estimated, difference_bound=0.05, noise_slack=1.0)
    assert np.allclose(weights, [0.5, 0.5], atol=1e-5)


def test_best_weights_negative_gaps_are_bounded_too() -> None:
    estimated = DebiasedGaps(np.array([[0.3, -0.1], [-0.3, 0.1]]), np.zeros((2, 2)))
    weights = best_weights(np.array([0.1, 0.2]), estimated, difference_bound=0.0, noise_slack=0.0)
    assert np.allclose(weights, [0.25, 0.75], atol=1e-5)


def test_best_weights_bound_that_nothing_meets_takes_the_smallest_gap() -> None:
    estimated = DebiasedGaps(np.array([[0.3, 0.2]]), np.zeros((1, 2)))
    with pytest.warns(ConvergenceWarning, match="found none and took the nearest; raise difference_bound"):
        weights = best_weights(np.array([0.1, 0.4]), estimated, difference_bound=0.01, noise_slack=0.0)
    assert np.allclose(weights, [0.0, 1.0], atol=1e-5)


def test_best_weights_solver_that_gives_up_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mozannar, "linprog", lambda *_, **__: SimpleNamespace(status=4, x=None))
    estimated = DebiasedGaps(np.zeros((1, 1)), np.zeros((1, 1)))
    with pytest.raises(RuntimeError, match="gave up with status 4; raise difference_bound or noise_slack"):
        best_weights(np.array([0.1]), estimated, difference_bound=0.01, noise_slack=0.0)


def test_split_halves_keeps_the_share_of_labels() -> None:
    y = np.array([0] * 10 + [1] * 4)
    first, second = split_halves(y, seed=0)
    assert sorted([*first, *second]) == list(range(14))
    assert (np.bincount(y[first]).tolist(), np.bincount(y[second]).tolist()) == ([5, 2], [5, 2])


# The classifier


def test_first_step_without_noise_is_the_reduction_on_the_true_groups() -> None:
    model = fitted(epsilon=TRUTHFUL, correct=False)
    exact = AgarwalClassifier(groups=DATA.groups, random_state=0)
    exact.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    assert np.array_equal(model.predict_proba(DATA.X), exact.predict_proba(DATA.X))


@pytest.mark.parametrize(("data", "bound"), [(DATA, 0.02), (FIVE, 0.05)], ids=["two groups", "five groups"])
def test_second_step_without_noise_meets_the_bound_on_its_rows(data: Any, bound: float) -> None:
    model = fitted(data=data, epsilon=TRUTHFUL, difference_bound=bound, halves=False)
    chance = pd.Series(model.predict_proba(data.X)[:, 1])
    rates = chance.groupby(data.sensitive.to_numpy()).mean()
    assert np.abs(rates - chance.mean()).max() < bound + 1e-5


@pytest.mark.parametrize("notion", ["equalized_odds", "accuracy_parity", "equal_opportunity", "predictive_equality"])
def test_other_notions_without_noise_meet_the_bound_on_their_rows(notion: str) -> None:
    model = fitted(notion, epsilon=TRUTHFUL, difference_bound=0.03, halves=False)
    chance, y = model.predict_proba(DATA.X)[:, 1], DATA.y.to_numpy()
    value = np.abs(chance - y) if notion == "accuracy_parity" else chance
    labels = {"equalized_odds": [0, 1], "equal_opportunity": [1], "predictive_equality": [0]}.get(notion, [None])
    for label in labels:
        rows = np.full(len(y), fill_value=True) if label is None else y == label
        rates = pd.Series(value[rows]).groupby(DATA.sensitive.to_numpy()[rows]).mean()
        assert np.abs(rates - value[rows].mean()).max() < 0.03 + 1e-5


def test_second_step_under_noise_bounds_the_true_gap_that_the_first_leaves() -> None:
    # A gap of 0.1 between randomised groups is one of about 0.3 between the true ones.
    data = make_synthetic(10_000, shares=(0.3, 0.7), disparity=0.4, random_state=2)

    def gap(**parameters: Any) -> float:
        model = fitted(data=data, epsilon=1.0, difference_bound=0.1, **parameters)
        chance = pd.Series(model.predict_proba(data.X)[:, 1])
        return float(np.abs(chance.groupby(data.sensitive.to_numpy()).mean() - chance.mean()).max())

    assert gap(correct=False) > 0.2
    assert gap() < 0.1 + 0.06  # three times the standard deviation of the estimate
    assert gap(halves=False) < 0.1 + 0.045
    assert gap(halves=False, not_given=False) < 0.1 + 0.045


def test_missing_attributes_and_a_network_base_are_fitted() -> None:
    silent = DATA.sensitive.astype(object).where(np.arange(len(DATA.y)) % 3 > 0, None)
    model = MozannarClassifier(
        base="network", groups=DATA.groups, epsilon=4.0, max_iter=1, random_state=0, difference_bound=0.5, noise_seed=0
    )
    model.fit(DATA.X, DATA.y, sensitive_features=silent)
    assert model.score(DATA.X, DATA.y) > DATA.truth.accuracy - 0.1


@pytest.mark.parametrize(("data", "categories"), [(DATA, 3), (FIVE, 6)], ids=["two groups", "five groups"])
def test_certificate_states_epsilon_exactly_and_delta_zero(data: Any, categories: int) -> None:
    model = fitted(data=data, epsilon=0.8, max_iter=2)
    assert [release.cost for release in model.ledger_.releases] == [RandomizedResponse(0.8).cost(categories=categories)]
    assert (model.certificate_.epsilon, model.certificate_.delta) == (0.8, 0.0)
    assert model.certificate_.groups == data.groups


def test_budget_that_is_too_small_refuses_before_anything_is_asked() -> None:
    ledger = PrivacyLedger(epsilon=0.5, delta=0.0)
    with pytest.raises(BudgetExceeded, match="'randomised groups' would bring epsilon to 1;"):
        MozannarClassifier(epsilon=1.0, groups=DATA.groups).fit(
            DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger
        )
    assert ledger.releases == ()


def test_model_depends_on_the_attribute_through_the_answers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    said = np.random.default_rng(0).integers(0, 3, len(DATA.y))
    monkeypatch.setattr(SensitiveVault, "randomized_labels", lambda *_, **__: said)
    other = DATA.sensitive.to_numpy()[::-1]
    model = fitted(max_iter=3)
    twin = clone(model).fit(DATA.X, DATA.y, sensitive_features=other)
    assert (other != DATA.sensitive).any()
    assert np.array_equal(model.predict_proba(DATA.X), twin.predict_proba(DATA.X))
    assert model.ledger_.releases == ()  # nothing was asked in any other way


def test_noise_seed_decides_the_answers_and_random_state_does_not() -> None:
    model = fitted(max_iter=2)
    again, other = fitted(max_iter=2), fitted(max_iter=2, noise_seed=1)
    assert np.array_equal(model.predict_proba(DATA.X), again.predict_proba(DATA.X))
    assert not np.array_equal(model.predict_proba(DATA.X), other.predict_proba(DATA.X))
    assert "so it promises nothing" in model.certificate_.noise
    assert "operating system" in fitted(max_iter=1, noise_seed=None).certificate_.noise


def test_pickle_of_a_fitted_model_holds_neither_attribute_nor_answers() -> None:
    model = fitted(max_iter=3, halves=False)
    said = answers(DATA.sensitive.to_numpy(), DATA.groups, epsilon=1.0, draw=0)
    true = (DATA.sensitive == "b").to_numpy()
    stored = pickle.dumps(model)
    for codes in (said, true):
        forms = [codes.astype(kind).tobytes() for kind in (np.int64, np.int32, np.int8, np.float64, np.float32)]
        assert not [form for form in forms if form[: len(form) // 4] in stored]
        assert forms[0] in pickle.dumps(codes.astype(np.int64))
    assert np.array_equal(pickle.loads(stored).predict(DATA.X), model.predict(DATA.X))


def test_clone_keeps_every_parameter_and_nothing_fitted() -> None:
    model = fitted(max_iter=1, correct=False, noise_slack=0.5)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "mixture_")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0.0}, "epsilon to be a finite number above 0"),
        ({"epsilon": math.inf}, "epsilon to be a finite number above 0"),
        ({"noise_slack": -1.0}, "noise_slack to be a finite number of at least 0"),
        ({"noise_seed": -1}, "noise_seed to be at least 0"),
        ({"base": "logistics"}, "did you mean 'logistic'"),
        ({"notion": "parity"}, "no notion 'parity'"),
    ],
    ids=["epsilon 0", "epsilon infinite", "noise_slack", "noise_seed", "base", "notion"],
)
def test_wrong_parameter_is_refused_before_any_budget_is_spent(parameters: dict[str, Any], message: str) -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=0.0)
    with pytest.raises(ValueError, match=message) as caught:
        MozannarClassifier(**parameters).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert "\n" not in str(caught.value)
    assert ledger.releases == ()


def test_class_with_one_row_cannot_be_split_and_costs_nothing() -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=0.0)
    with pytest.raises(ValueError, match="at least 2 rows of each class"):
        MozannarClassifier(groups=list("ab")).fit(
            np.zeros((3, 1)), [0, 0, 1], sensitive_features=list("aba"), ledger=ledger
        )
    assert ledger.releases == ()
