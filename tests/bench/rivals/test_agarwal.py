"""Reductions behind our surface: fairlearn's numbers, the constraint, the attribute billed and not kept."""

import math
import pickle
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from fairlearn import reductions
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate

from bench.rivals.agarwal import AgarwalClassifier, Mixture, make_base
from justitia import BudgetExceeded, PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.notions import NOTIONS, DemographicParity

# Many tests stop the reduction after a few rounds, and mean to.
pytestmark = pytest.mark.filterwarnings("ignore:expected the reduction to meet its constraint")

DATA = make_synthetic(400, random_state=0)
FIVE = make_synthetic(600, groups=("a", "b", "c", "d", "e"), random_state=1)
MOMENTS = {
    "demographic_parity": reductions.DemographicParity,
    "equalized_odds": reductions.EqualizedOdds,
    "accuracy_parity": reductions.ErrorRateParity,
    "equal_opportunity": reductions.TruePositiveRateParity,
    "predictive_equality": reductions.FalsePositiveRateParity,
}


class OwnNotion(DemographicParity):
    """A notion that fairlearn has no moment for."""


def fitted(notion: str = "demographic_parity", data: Any = DATA, **parameters: Any) -> AgarwalClassifier:
    model = AgarwalClassifier(notion, groups=data.groups, random_state=0, **parameters)
    return model.fit(data.X, data.y, sensitive_features=data.sensitive)


def called_directly(model: AgarwalClassifier, *, max_iter: int = 50) -> NDArray[np.int64]:
    """Decisions of fairlearn itself, on the same encoded features, drawn with the same seed."""
    X = model.encoder_.transform(DATA.X).astype(np.float64)
    game = reductions.ExponentiatedGradient(
        make_base(model.base, n=len(X), seed=model.prediction_seed_),
        MOMENTS[model.notion](difference_bound=0.01),
        max_iter=max_iter,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Setting (a value|an item)", category=DeprecationWarning)
        game.fit(X, DATA.y.to_numpy(), sensitive_features=DATA.sensitive.to_numpy())
    return game.predict(X, random_state=model.prediction_seed_)


@pytest.mark.parametrize("notion", list(MOMENTS))
def test_reduction_fairlearn_called_directly_gives_the_same_decisions(notion: str) -> None:
    model = fitted(notion)
    assert np.array_equal(model.predict(DATA.X), called_directly(model))


def test_reduction_network_fairlearn_called_directly_gives_the_same_decisions() -> None:
    model = fitted(base="network", max_iter=1)
    assert np.array_equal(model.predict(DATA.X), called_directly(model, max_iter=1))


@pytest.mark.filterwarnings("default")
def test_reduction_that_does_not_meet_its_constraint_says_so_in_one_sentence() -> None:
    with pytest.warns(ConvergenceWarning, match=r"^expected the reduction .* within 1 rounds, [^.]*; raise"):
        fitted("equalized_odds", difference_bound=0.0, max_iter=1)


def test_moments_cover_every_named_notion() -> None:
    assert set(MOMENTS) == set(NOTIONS)


@pytest.mark.parametrize("data", [DATA, FIVE], ids=["two groups", "five groups"])
def test_demographic_parity_holds_on_training_rows_within_the_bound(data: Any) -> None:
    chance = fitted(data=data, difference_bound=0.02).predict_proba(data.X)[:, 1]
    rates = pd.Series(chance).groupby(data.sensitive.to_numpy()).mean()
    plain = LogisticRegression().fit(data.X, data.y).predict(data.X)
    assert np.abs(rates - chance.mean()).max() < 0.02 + 0.005
    assert np.abs(pd.Series(plain).groupby(data.sensitive.to_numpy()).mean() - plain.mean()).max() > 0.1


def test_network_base_learns_the_label_under_a_loose_bound() -> None:
    model = fitted(base="network", difference_bound=0.5, max_iter=1)
    assert model.score(DATA.X, DATA.y) > DATA.truth.accuracy - 0.05


def test_not_given_for_everyone_leaves_the_base_alone() -> None:
    model = AgarwalClassifier(groups=DATA.groups, random_state=0)
    model.fit(DATA.X, DATA.y, sensitive_features=[None] * len(DATA.y))
    X = model.encoder_.transform(DATA.X).astype(np.float64)
    assert np.array_equal(model.predict(DATA.X), LogisticRegression(max_iter=1000).fit(X, DATA.y).predict(X))


def test_not_given_for_some_bounds_the_gap_of_the_others() -> None:
    silent = np.arange(len(DATA.y)) % 4 == 0
    a = DATA.sensitive.astype(object).where(~silent, None)
    model = AgarwalClassifier(groups=DATA.groups, random_state=0).fit(DATA.X, DATA.y, sensitive_features=a)
    chance = pd.Series(model.predict_proba(DATA.X)[:, 1])[~silent]
    rates = chance.groupby(DATA.sensitive.to_numpy()[~silent]).mean()
    assert np.abs(rates - chance.mean()).max() < 0.01 + 0.005


def by_hand(weights: list[float]) -> AgarwalClassifier:
    """A model whose mixture says 0 or 1 to everybody."""
    model = AgarwalClassifier(preprocess=None)
    rows = np.zeros((2, 1))
    constants = tuple(DummyClassifier(strategy="constant", constant=c).fit(rows, [0, 1]) for c in (0, 1))
    model.mixture_ = Mixture(constants, np.array(weights))
    model.classes_, model.prediction_seed_, model.n_features_in_ = np.array(["no", "yes"]), 3, 1
    return model


def test_mixture_by_hand_gives_expected_probabilities_and_margins() -> None:
    model = by_hand([0.25, 0.75])
    assert model.predict_proba(np.zeros((2, 1))).tolist() == [[0.25, 0.75], [0.25, 0.75]]
    assert model.decision_function(np.zeros((1, 1))).tolist() == [0.25]


def test_mixture_by_hand_draws_labels_with_their_probabilities() -> None:
    drawn = by_hand([0.25, 0.75]).predict(np.zeros((10_000, 1)))
    assert np.mean(drawn == "yes") == pytest.approx(0.75, abs=4 * math.sqrt(0.75 * 0.25 / 10_000))
    assert set(by_hand([0.0, 1.0]).predict(np.zeros((50, 1)))) == {"yes"}


def test_mixture_without_zeros_keeps_only_what_is_drawn() -> None:
    mixture = Mixture(("first", "second", "third"), np.array([0.5, 0.0, 0.5])).without_zeros()
    assert mixture.predictors == ("first", "third")
    assert mixture.weights.tolist() == [0.5, 0.5]


def test_predict_same_seed_gives_the_same_answer_and_another_seed_another() -> None:
    first = fitted()
    other = clone(first).set_params(random_state=1).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    assert np.array_equal(first.predict(DATA.X), first.predict(DATA.X))
    assert np.array_equal(first.predict(DATA.X), fitted().predict(DATA.X))
    assert np.array_equal(first.predict_proba(DATA.X), other.predict_proba(DATA.X))
    assert not np.array_equal(first.predict(DATA.X), other.predict(DATA.X))


def test_classes_of_any_name_come_back() -> None:
    named = DATA.y.map({0: "refused", 1: "granted"})
    model = AgarwalClassifier(random_state=0).fit(DATA.X, named, sensitive_features=DATA.sensitive)
    assert set(model.predict(DATA.X)) == {"granted", "refused"}
    assert model.score(DATA.X, named) > 0.6


def test_certificate_says_that_the_attribute_was_read_without_protection() -> None:
    model = fitted()
    assert [release.mechanism for release in model.ledger_.releases] == ["unprotected"]
    assert model.certificate_.epsilon == math.inf
    assert model.certificate_.groups == ("a", "b")


def test_ledger_with_a_finite_budget_is_refused_before_anything_is_read() -> None:
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
    model = AgarwalClassifier()
    with pytest.raises(BudgetExceeded, match="exact attribute for the reduction"):
        model.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert ledger.releases == ()
    assert not hasattr(model, "mixture_")


def test_pickle_of_a_fitted_model_holds_no_attribute() -> None:
    secret = np.where(DATA.sensitive == "a", "ZZ-secret-1", "ZZ-secret-2")
    model = AgarwalClassifier(groups={"group": ["ZZ-secret-1", "ZZ-secret-2"]}, random_state=0)
    model.fit(DATA.X, DATA.y, sensitive_features={"group": secret})
    codes = (secret == "ZZ-secret-2").astype(np.int64)
    forms = [codes.astype(kind).tobytes() for kind in (np.int64, np.int32, np.int8, np.float64, np.float32)]
    stored = pickle.dumps(model)
    assert not [form for form in forms if form in stored or form[: len(form) // 4] in stored]
    assert forms[0] in pickle.dumps({"a": codes})
    assert np.array_equal(pickle.loads(stored).predict(DATA.X), model.predict(DATA.X))


def test_fairlearn_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fairlearn", None)
    with pytest.raises(ImportError, match="run: make setup"):
        AgarwalClassifier().fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)


def test_clone_keeps_every_parameter_and_nothing_fitted() -> None:
    model = fitted("equalized_odds", max_iter=3)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "mixture_")


def test_cross_validate_routes_the_attribute() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        scores = cross_validate(
            AgarwalClassifier(groups=DATA.groups, max_iter=3, random_state=0),
            DATA.X,
            DATA.y,
            cv=2,
            params={"sensitive_features": DATA.sensitive},
        )
    assert (scores["test_score"] > 0.5).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"notion": "fairness"}, "no notion 'fairness'"),
        ({"notion": OwnNotion()}, "got OwnNotion; the reduction knows no others"),
        ({"base": "tree"}, "no base 'tree'"),
        ({"max_iter": 0}, "max_iter to be at least 1"),
        ({"difference_bound": -0.1}, "difference_bound to be a finite number of at least 0"),
        ({"preprocess": "none"}, "no preprocess 'none'"),
    ],
    ids=["unknown notion", "own notion", "base", "max_iter", "difference_bound", "preprocess"],
)
def test_wrong_parameter_is_refused_in_one_sentence(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        AgarwalClassifier(**parameters).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    assert "\n" not in str(caught.value)


def test_attribute_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="X has 400, sensitive_features has 399"):
        AgarwalClassifier().fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive.iloc[1:])


def test_attribute_among_the_features_is_refused() -> None:
    X = DATA.X.assign(group=DATA.sensitive.to_numpy())
    with pytest.raises(ValueError, match="'group' is both a feature and a sensitive attribute"):
        AgarwalClassifier().fit(X, DATA.y, sensitive_features=DATA.sensitive)


def test_images_are_refused_because_the_base_takes_rows() -> None:
    with pytest.raises(ValueError, match="2 dimensions, got 3"):
        AgarwalClassifier(preprocess=None).fit(np.zeros((4, 2, 2)), [0, 1, 0, 1], sensitive_features=list("abab"))
