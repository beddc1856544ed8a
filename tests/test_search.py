"""Choosing among candidates has a price, and the search pays it once."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

from justitia import (
    BudgetExceeded,
    DurableLedger,
    LagrangianDualClassifier,
    LagrangianDualRegressor,
    MomentsPlan,
    PostProcessingPlan,
    PrivacyLedger,
    SearchResult,
    private_search,
)
from justitia.privacy.accounting import SelectionCost, epsilon_spent
from justitia.privacy.mechanisms import SeededNoise
from justitia.search import _draws
from justitia.training.session import Session

pytestmark = pytest.mark.usefixtures("quick_fits")

CANDIDATES = [{"tolerance": 0.0}, {"tolerance": 0.2}, {"module": (4,)}]


def search(model: LagrangianDualClassifier, people: Any, candidates: Any = CANDIDATES, **options: Any) -> SearchResult:
    return private_search(
        model, candidates, people.X, people.y, **{"sensitive_features": people.a, "trials": 3.0} | options
    )


def test_search_debits_the_whole_price_once(people: Any, make: Any) -> None:
    ledger = PrivacyLedger(epsilon=8.0, delta=1e-5)
    found = search(make(), people, ledger=ledger)
    ((cost, count),) = ledger.costs().items()
    assert isinstance(cost, SelectionCost)
    assert count == 1
    assert 7.99 < found.certificate.epsilon == epsilon_spent({cost: 1}, 1e-5) <= 8.0
    assert found.model.ledger_ is ledger
    assert found.model.certificate_ == found.certificate
    assert found.parameters in CANDIDATES
    assert math.isfinite(found.score)
    assert found.table is None
    assert found.model.epsilon < 8.0
    assert found.model.predict(people.X).shape == (120,)


def test_search_is_the_same_for_the_same_seeds_and_keeps_the_users_noise_seed(people: Any, make: Any) -> None:
    one, other = search(make(), people), search(make(), people)
    assert (one.score, one.parameters) == (other.score, other.parameters)
    assert one.model.noise_seed == 0
    assert search(make(noise_seed=1), people).score != one.score


def test_trials_are_drawn_independently_with_noise_of_their_own() -> None:
    cost = SelectionCost(3.0, 0.05)
    draws = [one for seed in range(30) for one in _draws(SeededNoise(seed), 0, cost, 3, seeded=True)]
    assert {pick for pick, _ in draws} == {0, 1, 2}
    assert len({seed for _, seed in draws}) == len(draws)
    assert {seed for _, seed in _draws(SeededNoise(0), 0, cost, 3, seeded=False)} == {None}


def test_search_on_a_durable_ledger_leaves_one_debit_whatever_the_number_of_trials(
    people: Any, make: Any, tmp_path: Path
) -> None:
    ledger = DurableLedger(tmp_path / "people.ledger", dataset="people", epsilon=8.0, delta=1e-5)
    search(make(), people, ledger=ledger)
    assert [one.purpose for one in DurableLedger.open(ledger.path).releases] == ["search over candidates"]
    with pytest.raises(BudgetExceeded, match="'search over candidates' would bring epsilon to"):
        search(make(), people, ledger=ledger)


def test_search_that_the_ledger_cannot_pay_asks_nothing(people: Any, make: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(Session, "train", lambda *_: pytest.fail("trained"))
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        search(make(), people, ledger=ledger)
    assert ledger.releases == ()


def test_trial_that_fails_is_the_worst_outcome_and_not_shown(people: Any, make: Any, monkeypatch: Any) -> None:
    original = Session.train

    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.settings.tolerance == 0.2:
            raise RuntimeError("diverged")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Session, "train", train)
    found = search(make(), people, CANDIDATES[:2], trials=12.0)
    assert found.parameters == {"tolerance": 0.0}
    ledger = PrivacyLedger(epsilon=8.0, delta=1e-5)
    with pytest.raises(RuntimeError, match="no trial of the search gave a model, and the debit stands"):
        search(make(), people, CANDIDATES[1:2], ledger=ledger)
    assert len(ledger.releases) == 1


def test_candidates_that_differ_in_tolerance_share_the_releases_of_one_model(people: Any) -> None:
    plan = MomentsPlan(warmup_steps=20, rounds=6, public_steps=2, checks=2, batch_size=64)
    model = LagrangianDualClassifier(
        epsilon=20.0, groups=["f", "m"], engine="moments", plan=plan, random_state=0, noise_seed=0, tolerance=0.05
    )
    ledger = PrivacyLedger(epsilon=20.0, delta=1e-5)
    found = search(model, people, [{"tolerance": 0.3}, {}], ledger=ledger, violation=0.02, penalty=2.0)
    assert len(ledger.releases) == 3  # moments and two checks
    assert found.certificate.epsilon <= 20.0
    assert found.table is not None
    assert found.table["tolerance"].tolist() == [0.05, 0.3]
    excess = (found.table["noisy_violation"] - 0.02).clip(lower=0)
    assert found.table["score"].tolist() == pytest.approx((found.table["accuracy"] - 2 * excess).tolist())
    assert found.score == found.table["score"].max()


CALLS: list[str] = []


class Counting(LogisticRegression):
    """A base that keeps a record of what is asked of it."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        CALLS.append(f"fit {self.C}")
        return super().fit(X, y, sample_weight)

    def predict_proba(self, X: Any) -> Any:
        CALLS.append(f"predict_proba {self.C}")
        return super().predict_proba(X)


def calls_of_a_search(people: Any, monkeypatch: pytest.MonkeyPatch, k: int, **options: Any) -> list[str]:
    """What the base sees of a search with k trials."""
    CALLS.clear()
    monkeypatch.setattr("justitia.search.draw_trials", lambda *_: k)
    model = LagrangianDualClassifier(epsilon=8.0, groups=["f", "m"], random_state=0, **options)
    candidates = [{"base": Counting(C=c)} for c in (0.1, 1.0)]
    found = search(model, people, candidates)
    assert found.parameters in candidates
    return list(CALLS)


def test_base_is_fitted_and_asked_once_per_candidate_whatever_the_number_of_trials(
    people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, many = (calls_of_a_search(people, monkeypatch, k) for k in (1, 9))
    assert one == many
    for c in (0.1, 1.0):  # cross-fitted: five parts
        assert one.count(f"fit {c}") == one.count(f"predict_proba {c}") == 5


def test_base_that_is_fitted_already_is_asked_once_per_candidate(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Counting().fit(people.X, people.y)
    model = LagrangianDualClassifier(epsilon=8.0, groups=["f", "m"], base=base, random_state=0)
    seen = []
    for k in (1, 7):
        CALLS.clear()
        monkeypatch.setattr("justitia.search.draw_trials", lambda *_, k=k: k)
        search(model, people, [{"threshold": 0.4}, {"threshold": 0.6}])
        seen.append(list(CALLS))
    assert seen == [["predict_proba 1.0"] * 2] * 2


class Nosy(LogisticRegression):
    """A base that keeps a record of whoever asks for its parameters or predictions."""

    def get_params(self, deep: bool = True) -> Any:
        CALLS.append("get_params")
        return super().get_params(deep)

    def predict_proba(self, X: Any) -> Any:
        CALLS.append("predict_proba")
        return super().predict_proba(X)


@pytest.mark.parametrize("options", [{}, {"quota": 0.3}])
def test_fitted_base_is_neither_asked_nor_read_in_a_trial(
    people: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    base = Nosy().fit(people.X, people.y)
    model = LagrangianDualClassifier(epsilon=8.0, groups=["f", "m"], base=base, random_state=0, **options)
    seen = []
    for k in (1, 6):
        CALLS.clear()
        monkeypatch.setattr("justitia.search.draw_trials", lambda *_, k=k: k)
        search(model, people, [{"threshold": 0.4}, {"threshold": 0.6}])
        seen.append(list(CALLS))
    assert seen[0] == seen[1]


PLAN = PostProcessingPlan(checks=1, levels=4)


def classes_of(people: Any) -> NDArray[np.int64]:
    """Three classes, the third where a feature is large."""
    return np.where(people.X[:, 2] > 0.5, 2, people.y)


def classifier(**options: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": 8.0, "groups": ["f", "m"], "plan": PLAN, "random_state": 0, "noise_seed": 0}
    return LagrangianDualClassifier(**usual | {"base": LogisticRegression()} | options)


def regressor(**options: Any) -> LagrangianDualRegressor:
    usual: dict[str, Any] = {"epsilon": 8.0, "groups": ["f", "m"], "plan": PLAN, "random_state": 0, "noise_seed": 0}
    return LagrangianDualRegressor(**usual | {"base": LinearRegression()} | options)


@pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")
@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({}, {}),
        ({"notion": ["demographic_parity", "accuracy_parity"], "tolerance": [0.1, 0.2]}, {}),
        ({"notion": "conditional_demographic_parity"}, {"strata": np.arange(120) % 2}),
        ({"quota": {2: 0.2}}, {}),
    ],
    ids=str,
)
def test_search_over_bases_of_several_classes_debits_once(
    people: Any, options: dict[str, Any], given: dict[str, Any]
) -> None:
    ledger = PrivacyLedger(epsilon=8.0, delta=1e-5)
    candidates = [{"base": LogisticRegression(C=c)} for c in (0.01, 1.0)]
    given = given | {"sensitive_features": people.a, "trials": 3.0, "ledger": ledger}
    found = private_search(classifier(**options), candidates, people.X, classes_of(people), **given)
    assert [one.purpose for one in ledger.releases] == ["search over candidates"]
    assert 7.99 < found.certificate.epsilon <= 8.0
    assert found.parameters in candidates
    assert set(found.model.predict(people.X)) <= {0, 1, 2}


@pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")
def test_search_over_bases_of_a_number_takes_the_one_with_the_best_r2(people: Any) -> None:
    y = 3 * people.X[:, 0] + people.X[:, 1]
    candidates = [{"base": Ridge(alpha=alpha)} for alpha in (1e6, 1e-3)]
    ledger = PrivacyLedger(epsilon=8.0, delta=1e-5)
    found = private_search(
        regressor(tolerance=0.5),
        candidates,
        people.X,
        y,
        sensitive_features=people.a,
        trials=8.0,
        violation=1.0,
        ledger=ledger,
    )
    assert [one.purpose for one in ledger.releases] == ["search over candidates"]
    assert found.parameters == candidates[1]
    assert 0.5 < found.score <= 1.0  # no penalty: the score is R2
    assert isinstance(found.model, LagrangianDualRegressor)
    assert found.model.certificate_ == found.certificate
    assert found.model.predict(people.X).shape == (120,)


@pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")
@pytest.mark.parametrize("kind", ["classes", "number"])
def test_tolerances_of_classes_and_of_numbers_share_the_releases_of_one_model(people: Any, kind: str) -> None:
    model: Any = classifier() if kind == "classes" else regressor()
    y, quality = (classes_of(people), "accuracy") if kind == "classes" else (people.X[:, 0], "r2")
    ledger = PrivacyLedger(epsilon=8.0, delta=1e-5)
    candidates = [{"tolerance": 0.02}, {"tolerance": 0.4}]
    found = private_search(model, candidates, people.X, y, sensitive_features=people.a, violation=0.1, ledger=ledger)
    assert [one.purpose for one in ledger.releases] == ["moments", "decisions"]
    assert found.table is not None
    excess = (found.table["noisy_violation"] - 0.1).clip(lower=0)
    assert found.table["score"].tolist() == pytest.approx((found.table[quality] - excess).tolist())
    assert found.score == found.table["score"].max()


def test_search_over_numbers_refuses_strata_and_parameters_of_classifiers(people: Any) -> None:
    given: dict[str, Any] = {"sensitive_features": people.a}
    with pytest.raises(ValueError, match="expected no strata with a LagrangianDualRegressor"):
        private_search(regressor(), [{"base": Ridge()}], people.X, people.X[:, 0], strata=people.y, **given)
    with pytest.raises(ValueError, match="expected parameters of the model in candidates, got 'module'"):
        private_search(regressor(), [{"module": (4,)}], people.X, people.X[:, 0], **given)
    with pytest.raises(ValueError, match="notion is the same for all candidates"):
        private_search(regressor(), [{"notion": "mean_parity"}], people.X, people.X[:, 0], **given)


def test_public_tables_and_functions_that_make_modules_are_read_once_per_candidate(
    people: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Ids(list[int]):
        def __iter__(self) -> Any:
            seen.append("person")
            return super().__iter__()

    class Labels:
        def __array__(self, *_: Any, **__: Any) -> Any:
            seen.append("y")
            return people.y

        def __len__(self) -> int:
            return len(people.y)

    def module(inputs: int) -> torch.nn.Module:
        seen.append("module")
        return torch.nn.Sequential(torch.nn.Linear(inputs, 1))

    counts = []
    for k in (1, 6):
        seen.clear()
        monkeypatch.setattr("justitia.search.draw_trials", lambda *_, k=k: k)
        private_search(
            make(module=module),
            [{"tolerance": 0.0}, {"tolerance": 0.2}],
            people.X,
            Labels(),
            sensitive_features=people.a,
            person=Ids(range(120)),
        )
        counts.append(sorted(seen))
    assert counts[0] == counts[1]
    assert counts[0].count("module") == 2


def test_progress_and_warnings_do_not_count_trials(
    people: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for k in (1, 5):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            calls_of_a_search(people, monkeypatch, k, progress=True)
        shown.append((tuple(capfd.readouterr()), [str(one.message) for one in caught]))
    assert shown[0] == shown[1]
    assert shown[0][0] == ("", "")


@pytest.mark.parametrize(
    ("candidates", "options", "kind", "text"),
    [
        ([], {}, ValueError, "expected at least one candidate, got none"),
        ({"tolerance": 0.1}, {}, TypeError, "expected candidates to be a sequence of dicts"),
        ([{"epsilon": 1.0}], {}, ValueError, "epsilon is the same for all candidates"),
        ([{"depth": 1}], {}, ValueError, "expected parameters of the model in candidates, got 'depth'"),
        ([{"tolerance": -1.0}], {}, ValueError, "tolerance"),
        (CANDIDATES, {"trials": 0.5}, ValueError, "at least one trial"),
        (CANDIDATES, {"shape": -1.0}, ValueError, "shape"),
        (CANDIDATES, {"penalty": -1.0}, ValueError, "penalty"),
        (CANDIDATES, {"ledger": 1.0}, TypeError, "expected ledger to be a PrivacyLedger"),
        ([{"engine": "pf-ld-as-published", "plan": None}], {}, ValueError, "releases are all Gaussian"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_paid(
    people: Any, make: Any, candidates: Any, options: Any, kind: type[Exception], text: str
) -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    with pytest.raises(kind, match=text):
        search(make(), people, candidates, **{"ledger": ledger} | options)
    assert ledger.releases == ()


def test_infinite_epsilon_and_other_estimators_are_refused(people: Any, make: Any) -> None:
    with pytest.raises(ValueError, match="expected a positive and finite epsilon to search with"):
        search(make(epsilon=math.inf), people)
    with pytest.raises(TypeError, match="expected a LagrangianDualClassifier or a LagrangianDualRegressor, got 'str'"):
        search("model", people)  # type: ignore[arg-type]
