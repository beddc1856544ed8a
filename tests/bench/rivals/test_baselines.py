"""The plain network: learns, ignores the attribute, is reproducible, and refuses what cannot be trained."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from bench.rivals import (
    AgarwalClassifier,
    FairGBMClassifier,
    LinearPostClassifier,
    LocalClassifier,
    MozannarClassifier,
    PlainClassifier,
    ZafarClassifier,
)
from justitia import PrivacyLedger
from justitia.datasets import make_synthetic

DATA = make_synthetic(600, random_state=0)


def fitted(**parameters: object) -> PlainClassifier:
    return PlainClassifier(epochs=5, batch_size=64, learning_rate=1e-2, random_state=0, **parameters).fit(
        DATA.X, DATA.y
    )


def test_plain_network_learns_the_label() -> None:
    accuracy = np.mean(fitted().predict(DATA.X) == DATA.y.to_numpy())
    assert accuracy > DATA.truth.accuracy - 0.05


def test_plain_network_of_few_rows_trains_until_it_has_learned() -> None:
    few = make_synthetic(400, random_state=1)
    rest = make_synthetic(4000, random_state=2)
    settings = {"learning_rate": 1e-3, "random_state": 0}
    model = PlainClassifier(**settings).fit(few.X, few.y)
    linear = LogisticRegression(max_iter=1000).fit(few.X, few.y)
    brief = PlainClassifier(epochs=5, **settings).fit(few.X, few.y)
    found = {name: one.score(rest.X, rest.y) for name, one in [("net", model), ("linear", linear), ("brief", brief)]}
    assert model.steps_ > 5 * brief.steps_
    assert found["net"] > found["linear"] - 0.02
    assert found["net"] > found["brief"] + 0.02


def test_plain_network_of_a_small_credit_file_is_as_good_as_logistic_regression() -> None:
    """A file like German credit: 1,000 rows, 7 columns of numbers, 13 of words, seven of ten labels positive."""
    rng = np.random.default_rng(0)
    numbers, words = rng.normal(size=(4000, 7)), rng.integers(0, 4, size=(4000, 13))
    logit = 0.9 + numbers @ rng.normal(0, 0.3, 7) + rng.normal(0, 0.35, (13, 4))[np.arange(13), words].sum(axis=1)
    y = (rng.random(4000) < 1 / (1 + np.exp(-logit))).astype(int)
    X = pd.DataFrame(numbers).add_prefix("number ").join(pd.DataFrame(np.array([*"abcd"])[words]).add_prefix("word "))
    coded = pd.get_dummies(X).astype(float)
    model = PlainClassifier(random_state=0).fit(X[:1000], y[:1000])
    linear = LogisticRegression(max_iter=1000).fit(coded[:1000], y[:1000])
    assert model.steps_ > 200
    assert model.score(X[1000:], y[1000:]) > linear.score(coded[1000:], y[1000:]) - 0.01


def test_plain_network_of_labels_without_a_reason_stops_at_once() -> None:
    labels = np.random.default_rng(0).permutation(DATA.y)
    assert PlainClassifier(learning_rate=1e-2, random_state=0).fit(DATA.X, labels).steps_ < 200


def test_plain_network_same_seed_gives_the_same_scores() -> None:
    assert np.array_equal(fitted().decision_function(DATA.X), fitted().decision_function(DATA.X))


def test_plain_network_attribute_given_or_not_gives_the_same_scores() -> None:
    other = clone(fitted()).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    assert np.array_equal(other.decision_function(DATA.X), fitted().decision_function(DATA.X))


def test_plain_network_weight_zero_on_a_class_is_refused() -> None:
    with pytest.raises(ValueError, match="both classes"):
        PlainClassifier().fit(DATA.X, DATA.y, sample_weight=DATA.y.to_numpy())


def test_plain_steps_are_epochs_times_the_batches_of_one() -> None:
    batches = -(-len(DATA.y) // 64)
    assert np.array_equal(fitted().decision_function(DATA.X), fitted(steps=5 * batches).decision_function(DATA.X))


@pytest.mark.parametrize(("name", "value"), [("epochs", 0), ("batch_size", 0), ("steps", 0), ("learning_rate", -1.0)])
def test_plain_network_wrong_setting_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        PlainClassifier(**{name: value}).fit(DATA.X, DATA.y)


def test_plain_network_asks_nothing_and_certifies_epsilon_zero() -> None:
    model = fitted()
    assert model.ledger_.releases == ()
    assert (model.certificate_.epsilon, model.certificate_.delta, model.ledger_.budget_epsilon) == (0.0, 0.0, 0.0)


def test_plain_network_ledger_passed_is_kept_and_not_debited() -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    model = PlainClassifier(epochs=1).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert model.ledger_ is ledger
    assert ledger.epsilon() == 0.0


def test_plain_network_ledger_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="PrivacyLedger, got 'float'"):
        PlainClassifier().fit(DATA.X, DATA.y, ledger=1.0)


@pytest.mark.parametrize(
    "kind",
    [
        *(PlainClassifier, AgarwalClassifier, MozannarClassifier, ZafarClassifier),
        *(FairGBMClassifier, LinearPostClassifier, LocalClassifier),
    ],
)
def test_baseline_refit_that_fails_leaves_the_fitted_model(kind: type) -> None:
    model = kind(**({"groups": DATA.groups} if kind in (MozannarClassifier, LocalClassifier) else {}))
    model.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    before = model.predict_proba(DATA.X)
    with pytest.raises(ValueError, match="two classes"):
        model.fit(DATA.X.iloc[:, :2], np.zeros(len(DATA.y)), sensitive_features=DATA.sensitive)
    assert np.array_equal(model.predict_proba(DATA.X), before)
