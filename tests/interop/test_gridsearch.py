"""scikit-learn's searches with a scorer that pays: every fit and every score is on the ledger."""

import copy
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate

from justitia import BudgetExceeded, DurableLedger, LedgerError, PrivacyLedger, measure
from justitia.metrics.scorer import private_scorer
from scripts import run_script

ROOT = Path(__file__).parents[2]
GROUPS = ["f", "m"]


@pytest.fixture(autouse=True)
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def ledger() -> PrivacyLedger:
    return PrivacyLedger(epsilon=50.0, delta=1e-5)


def scorer_on(ledger: PrivacyLedger, **changes: Any) -> Any:
    return private_scorer(**{"groups": GROUPS, "ledger": ledger, "epsilon": 4.0, "noise_seed": 3} | changes)


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_score_is_minus_the_noised_violation_and_costs_one_measurement(people: Any, ledger: Any, notion: str) -> None:
    model = LogisticRegression().fit(people.X, people.y)
    score = scorer_on(ledger, notion=notion)(model, people.X, people.y, sensitive_features=people.a)
    alone = PrivacyLedger(epsilon=4.0, delta=1e-5)
    same = measure(
        people.y,
        model.predict(people.X),
        sensitive_features=people.a,
        groups=GROUPS,
        notion=notion,
        epsilon=4.0,
        ledger=alone,
        noise_seed=3,
    )
    assert score == -same.violation.estimate
    assert score < 0
    assert ledger.costs() == alone.costs()


def test_score_beyond_the_budget_is_refused_and_debits_nothing(people: Any) -> None:
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-5)
    scorer, model = scorer_on(ledger), LogisticRegression().fit(people.X, people.y)
    scorer(model, people.X, people.y, sensitive_features=people.a)
    with pytest.raises(BudgetExceeded, match="'group rates' would bring epsilon to"):
        scorer(model, people.X, people.y, sensitive_features=people.a)
    assert len(ledger.releases) == 1


def test_score_without_enough_evidence_is_the_worst_there_is(people: Any, ledger: Any) -> None:
    model = LogisticRegression().fit(people.X, people.y)
    scorer = scorer_on(ledger, groups=["nobody", "no one"])
    assert scorer(model, people.X, people.y, sensitive_features=people.a) == -1.0


def test_grid_search_debits_every_fit_every_score_and_the_last_fit(people: Any, make: Any, ledger: Any) -> None:
    search = GridSearchCV(
        make().set_fit_request(ledger=True),
        {"tolerance": [0.0, 0.3]},
        scoring={"accuracy": "accuracy", "violation": scorer_on(ledger)},
        refit="violation",
        cv=2,
        error_score="raise",
    )
    search.fit(people.X, people.y, sensitive_features=people.a, ledger=ledger)
    purposes = [release.purpose for release in ledger.releases]
    assert purposes.count("group rates") == 4
    assert purposes.count("group sizes") == 5
    assert len(purposes) == 5 * 7 + 4
    assert (search.cv_results_["mean_test_violation"] < 0).all()
    assert search.best_estimator_.certificate_.spent_epsilon == pytest.approx(ledger.epsilon())
    assert search.best_estimator_.certificate_.epsilon == ledger.budget_epsilon


def test_grid_search_in_other_processes_cannot_overspend_a_ledger_in_memory(people: Any, make: Any) -> None:
    ledger = PrivacyLedger(epsilon=8.0, delta=1e-5)
    model = make(engine=None, plan=None)  # without a network: each process starts sooner
    search = GridSearchCV(
        model.set_fit_request(ledger=True), {"tolerance": [0.0, 0.1, 0.3]}, cv=2, n_jobs=2, error_score="raise"
    )
    with pytest.raises(LedgerError, match="use n_jobs=1, or a DurableLedger"):
        search.fit(people.X, people.y, sensitive_features=people.a, ledger=ledger)
    assert ledger.releases == ()


def test_clone_of_an_estimator_debits_the_same_ledger(people: Any, ledger: Any) -> None:
    class Holder(BaseEstimator):
        def __init__(self, ledger: Any = None) -> None:
            self.ledger = ledger

    assert clone(clone(Holder(ledger))).ledger is ledger


def test_scores_of_training_rows_are_paid_for_too(people: Any, ledger: Any) -> None:
    cross_validate(
        LogisticRegression(),
        people.X,
        people.y,
        scoring=scorer_on(ledger),
        params={"sensitive_features": people.a},
        cv=2,
        return_train_score=True,
        error_score="raise",
    )
    assert len(ledger.releases) == 4


def test_copies_of_the_scorer_debit_the_same_ledger(people: Any, ledger: Any) -> None:
    model = LogisticRegression().fit(people.X, people.y)
    search = clone(GridSearchCV(LogisticRegression(), {"C": [1.0]}, scoring=scorer_on(ledger)))
    for scorer in (search.scoring, copy.copy(search.scoring), copy.deepcopy(search.scoring)):
        scorer(model, people.X, people.y, sensitive_features=people.a)
    assert len(ledger.releases) == 3


def test_scorer_with_a_ledger_in_memory_refuses_to_go_to_another_process(ledger: Any) -> None:
    with pytest.raises(TypeError, match="use n_jobs=1 or a DurableLedger"):
        pickle.dumps(scorer_on(ledger))


def test_scorer_with_a_durable_ledger_debits_the_file_from_wherever_it_went(people: Any, tmp_path: Path) -> None:
    ledger = DurableLedger(tmp_path / "people.ledger", dataset="people", epsilon=20.0, delta=1e-5)
    elsewhere = pickle.loads(pickle.dumps(scorer_on(ledger)))
    model = LogisticRegression().fit(people.X, people.y)
    elsewhere(model, people.X, people.y, sensitive_features=people.a)
    assert len(ledger.releases) == 1


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"ledger": None}, TypeError, "expected ledger to be a PrivacyLedger, got 'NoneType'"),
        ({"groups": None}, ValueError, "expected the public list of groups, got None"),
        ({"epsilon": 0.0}, ValueError, "epsilon=0 allows no question"),
        ({"notion": "parity"}, ValueError, "did you mean"),
    ],
)
def test_impossible_scorer_is_refused(changes: Any, error: Any, sentence: str, ledger: Any) -> None:
    with pytest.raises(error, match=sentence):
        scorer_on(**{"ledger": ledger} | changes)


def test_tutorial_spends_its_budget_and_is_refused_after_it(tmp_path: Path) -> None:
    picture = tmp_path / "grid.png"
    script = ROOT / "examples" / "gridsearch_with_ledger.py"
    printed = run_script(script, "--picture", str(picture), folder=tmp_path)
    rows = dict(re.findall(r"^(GridSearchCV|private search) +(.*)$", printed, re.MULTILINE))
    grid, search = (np.array(rows[name].split(), dtype=float) for name in ("GridSearchCV", "private search"))
    assert grid[:3].tolist() == [7, 6, 0.29]
    assert search[:3].tolist() == [1, 0, 1.0]
    assert 0.95 < grid[3] <= 1.0
    assert 0.999 <= search[3] <= 1.0
    assert min(grid[5], search[5]) > 0.6
    assert "One more fit: 'this plan' would bring epsilon to" in printed
    assert picture.stat().st_size > 5_000
