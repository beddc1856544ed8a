"""Rules from posteriors: LinearPost on the exact attribute, and its counterpart on randomised answers."""

import math
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from bench.rivals import LinearPostClassifier, LocalClassifier
from bench.rivals.local import slopes_for_each_label
from bench.rivals.posteriors import GroupModel, joint, linear_weights
from justitia import PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.exceptions import BudgetExceeded
from justitia.metrics.exact import violation
from justitia.notions import get_notion
from justitia.postprocessing.dual import constraints_of
from justitia.privacy.mechanisms import RandomizedResponse
from justitia.privacy.vault import SensitiveVault

DATA = make_synthetic(1500, random_state=0)
THREE = make_synthetic(1500, groups="abc", shares=(0.5, 0.3, 0.2), random_state=1)
#: So generous that everybody tells the truth.
TRUTHFUL = 50.0


def fitted(kind: type, data: Any = DATA, **parameters: Any) -> Any:
    noise = {"noise_seed": 0} if kind is LocalClassifier else {}
    model = kind(groups=data.groups, random_state=0, **(noise | parameters))
    return model.fit(data.X, data.y, sensitive_features=data.sensitive)


def violated(model: Any, data: Any, notion: str) -> float:
    return violation(
        data.y, model.predict(data.X), sensitive_features=data.sensitive, notion=notion, groups=data.groups
    )


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_linear_weights_give_the_correction_of_the_constraints(notion: str) -> None:
    rng = np.random.default_rng(0)
    eta, q = rng.uniform(0.1, 0.9, 50), rng.dirichlet(np.ones(3), (2, 50))
    lam = rng.normal(size=constraints_of(get_notion(notion), eta, q[0], q[1], np.ones(50)).b.shape)
    weights = linear_weights(get_notion(notion), lam, eta, q)
    expected = constraints_of(get_notion(notion), eta, q[0], q[1], np.ones(50)).correction(lam)
    assert np.allclose(np.einsum("ya,yna->n", weights, joint(eta, q)), expected)


def test_group_model_undoes_a_known_randomisation_by_hand() -> None:
    model = GroupModel(None, np.array([[3.0, -1.0], [-1.0, 3.0]]) / 2)  # the inverse of [[3/4, 1/4], [1/4, 3/4]]

    class Said:
        classes_ = np.array([0, 1])

        @staticmethod
        def predict_proba(rows: Any) -> Any:
            return np.tile([0.6, 0.4], (len(rows), 1))

    model._models = [Said]
    assert np.allclose(model(np.zeros((2, 1))), [0.7, 0.3])


def test_slopes_for_each_label_are_features_label_and_products() -> None:
    assert slopes_for_each_label(np.array([[2.0, 0.0], [3.0, 1.0]])).tolist() == [[2.0, 0.0, 0.0], [3.0, 1.0, 3.0]]


@pytest.mark.parametrize("kind", [LinearPostClassifier, LocalClassifier])
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "equal_opportunity"])
def test_strict_rule_violates_less_than_the_plain_one(kind: type, notion: str) -> None:
    truthful = {"epsilon": TRUTHFUL} if kind is LocalClassifier else {}
    strict, plain = (fitted(kind, notion=notion, tolerance=bound, **truthful) for bound in (0.0, 1.0))
    assert violated(strict, DATA, notion) < 0.6 * violated(plain, DATA, notion)
    assert np.mean(plain.predict(DATA.X) == DATA.y) > DATA.truth.accuracy - 0.05


@pytest.mark.parametrize("kind", [LinearPostClassifier, LocalClassifier])
def test_three_groups_with_attributes_that_are_not_given_are_fitted(kind: type) -> None:
    silent = THREE.sensitive.astype(object).where(np.arange(len(THREE.y)) % 4 > 0, None)
    noise = {"noise_seed": 0, "epsilon": TRUTHFUL} if kind is LocalClassifier else {}
    model = kind(groups=THREE.groups, random_state=0, tolerance=0.0, **noise)
    model.fit(THREE.X, THREE.y, sensitive_features=silent)
    assert model.weights_.shape == (2, 3)
    assert violated(model, THREE, "demographic_parity") < 0.25
    assert np.isfinite(model.predict_proba(THREE.X)).all()


@pytest.mark.parametrize("kind", [LinearPostClassifier, LocalClassifier])
def test_family_has_the_rule_of_every_tolerance_and_notion(kind: type) -> None:
    noise = {"noise_seed": 0} if kind is LocalClassifier else {}
    first = kind(groups=DATA.groups, random_state=0, **noise)
    family = first.learn(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    for bound, notion in ((0.0, "demographic_parity"), (0.05, "equalized_odds")):
        alone = fitted(kind, notion=notion, tolerance=bound)
        shared = family.at(bound, notion)
        assert (shared.tolerance, shared.notion) == (bound, notion)
        assert np.array_equal(shared.decision_function(DATA.X), alone.decision_function(DATA.X))


def test_linear_post_is_not_private_and_says_so() -> None:
    model = fitted(LinearPostClassifier)
    assert model.certificate_.epsilon == math.inf
    assert len(model.ledger_.releases) == 1
    ledger = PrivacyLedger(epsilon=1.0, delta=0.0)
    with pytest.raises(BudgetExceeded):
        LinearPostClassifier(groups=DATA.groups).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert ledger.releases == ()


@pytest.mark.parametrize(("not_given", "categories"), [(True, 3), (False, 2)])
def test_local_certificate_states_epsilon_exactly_and_delta_zero(not_given: bool, categories: int) -> None:
    model = fitted(LocalClassifier, epsilon=0.8, not_given=not_given)
    assert [one.cost for one in model.ledger_.releases] == [RandomizedResponse(0.8).cost(categories=categories)]
    assert (model.certificate_.epsilon, model.certificate_.delta) == (0.8, 0.0)


def test_local_rule_depends_on_the_attribute_through_the_answers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    said = np.random.default_rng(0).integers(0, 3, len(DATA.y))
    monkeypatch.setattr(SensitiveVault, "randomized_labels", lambda *_, **__: said)
    model = fitted(LocalClassifier)
    other = DATA.sensitive.to_numpy()[::-1]
    twin = clone(model).fit(DATA.X, DATA.y, sensitive_features=other)
    assert (other != DATA.sensitive).any()
    assert np.array_equal(model.decision_function(DATA.X), twin.decision_function(DATA.X))
    assert model.ledger_.releases == ()


def test_local_noise_seed_decides_the_answers_and_random_state_does_not() -> None:
    model, again, other = (fitted(LocalClassifier, noise_seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(model.weights_, again.weights_)
    assert not np.array_equal(model.weights_, other.weights_)
    assert "so it promises nothing" in model.certificate_.noise


@pytest.mark.parametrize("kind", [LinearPostClassifier, LocalClassifier])
def test_pickle_of_a_fitted_rule_decides_alike_and_holds_no_column_of_groups(kind: type) -> None:
    model = fitted(kind)
    stored = pickle.dumps(model)
    codes = (DATA.sensitive == DATA.groups[1]).to_numpy()
    forms = [codes.astype(dtype).tobytes() for dtype in (np.int64, np.int32, np.int8, np.float64)]
    assert not [form for form in forms if form[: len(form) // 4] in stored]
    assert np.array_equal(pickle.loads(stored).predict(DATA.X), model.predict(DATA.X))


@pytest.mark.parametrize("kind", [LinearPostClassifier, LocalClassifier])
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tolerance": -1.0}, "tolerance to be a finite number of at least 0"),
        ({"notion": "parity"}, "no notion 'parity'"),
    ],
)
def test_wrong_parameter_is_refused_before_anything_is_asked(
    kind: type, parameters: dict[str, Any], message: str
) -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=0.0)
    with pytest.raises(ValueError, match=message):
        kind(groups=DATA.groups, **parameters).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert ledger.releases == ()


def test_one_group_alone_is_left_as_it_is() -> None:
    model = LinearPostClassifier(groups=["a", "b"], random_state=0)
    model.fit(DATA.X, DATA.y, sensitive_features=pd.Series(["a"] * len(DATA.y)))
    assert np.isfinite(model.decision_function(DATA.X)).all()
