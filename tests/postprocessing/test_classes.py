"""Targets with several classes, through the public interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from justitia import LagrangianDualClassifier, tradeoff
from justitia.postprocessing.plan import PostProcessingPlan

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # few rows, large noise
    pytest.mark.usefixtures("quick_fits"),
]
N = 1500
LABELS = np.array(["high", "low", "middle"])


def population(n: int = N, seed: int = 0) -> tuple[pd.DataFrame, NDArray[Any], NDArray[Any]]:
    """Three classes that lean on features, one of which leans on the group."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    group = np.where(X[:, 1] + rng.standard_normal(n) > 0, "f", "m")
    logits = np.stack([X[:, 0] + X[:, 1], X[:, 2] - X[:, 1], np.zeros(n)], axis=1)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    codes = (rng.random(n)[:, None] > p.cumsum(1)).sum(1)
    return pd.DataFrame(X, columns=["u", "v", "w"]), LABELS[codes], group


X, Y, A = population()


def made(**changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {
        "epsilon": 8.0,
        "groups": ["f", "m"],
        "base": LogisticRegression(),
        "tolerance": 0.02,
        "random_state": 0,
        "noise_seed": 0,
    }
    return LagrangianDualClassifier(**usual | changes)


def fitted(**changes: Any) -> LagrangianDualClassifier:
    return made(**changes).fit(X, Y, sensitive_features=A)


def class_rates(decisions: NDArray[Any], rows: Any = slice(None)) -> NDArray[np.float64]:
    """(2, 3): share of every class among the decisions of both groups."""
    decided, group = decisions[rows], A[rows]
    return np.array([[np.mean(decided[group == name] == label) for label in LABELS] for name in "fm"])


def test_decisions_probabilities_and_scores_follow_the_conventions_of_scikit_learn() -> None:
    model = fitted()
    assert model.classes_.tolist() == LABELS.tolist()
    assert model.predict_proba(X).shape == model.decision_function(X).shape == (N, 3)
    assert model.predict_proba(X).sum(1) == pytest.approx(np.ones(N))
    assert np.array_equal(LABELS[model.predict_proba(X).argmax(1)], model.predict(X))
    assert np.array_equal(LABELS[model.decision_function(X).argmax(1)], model.predict(X))
    assert model.score(X, Y) == np.mean(model.predict(X) == Y)


def test_every_class_is_decided_at_the_same_rate_in_both_groups() -> None:
    model = fitted()
    plain = LABELS[model.base_proba(X).argmax(1)]
    assert np.ptp(class_rates(plain), axis=0).max() > 0.25
    assert np.ptp(class_rates(model.predict(X)), axis=0).max() < 0.06
    assert list(model.dual_.columns) == LABELS.tolist()
    assert model.dual_.sum().to_numpy() == pytest.approx(np.zeros(3), abs=1e-6)


def test_equalized_odds_holds_among_every_label() -> None:
    model = fitted(notion="equalized_odds")
    plain = LABELS[model.base_proba(X).argmax(1)]
    for label in LABELS:
        before, after = (np.ptp(class_rates(one, label == Y), axis=0).max() for one in (plain, model.predict(X)))
        assert before > 0.2
        assert after < 0.1
    assert model.dual_.shape == (2, 9)
    assert model.dual_.columns[0] == "y=high, decision high"


def test_base_within_the_tolerance_is_not_corrected() -> None:
    model = fitted(tolerance=0.9)
    assert model.rule_.correction.is_zero
    assert np.array_equal(model.predict(X), LABELS[model.base_proba(X).argmax(1)])
    assert model.predict_proba(X) == pytest.approx(model.base_proba(X))


def test_costs_of_errors_move_decisions_towards_what_is_dear_to_miss() -> None:
    costs = 1 - np.eye(3)
    costs[1] *= 5  # of missing "low"
    plain, dear = (fitted(tolerance=1.0, costs=given) for given in (None, costs))
    assert np.mean(dear.predict(X) == "low") > np.mean(plain.predict(X) == "low") + 0.1
    p = dear.base_proba(X)
    assert np.array_equal(dear.predict(X), LABELS[(p @ costs).argmin(1)])
    by_class = fitted(tolerance=1.0, class_weight={"high": 1, "low": 5, "middle": 1})
    assert np.array_equal(by_class.predict(X), dear.predict(X))


def test_quota_of_classes_is_held() -> None:
    model = fitted(quota={"low": 0.5, "middle": 0.1})
    shares = {label: np.mean(model.predict(X) == label) for label in LABELS}
    assert shares == pytest.approx({"high": 0.4, "low": 0.5, "middle": 0.1}, abs=0.03)


def test_weights_are_repeated_rows() -> None:
    twice = np.repeat(np.arange(N), 2)
    weighted = made(epsilon=np.inf, groups=None).fit(X, Y, sensitive_features=A, sample_weight=np.full(N, 2.0))
    repeated = made(epsilon=np.inf, groups=None).fit(X.iloc[twice], Y[twice], sensitive_features=A[twice])
    assert np.mean(weighted.predict(X) == repeated.predict(X)) > 0.97


def test_persons_with_several_rows_are_one_unit_of_the_certificate() -> None:
    model = made().fit(X, Y, sensitive_features=A[np.arange(N) // 2], person=np.arange(N) // 2)
    assert model.certificate_.unit == "person"
    assert model.predict(X).shape == (N,)


def test_crossed_and_missing_attributes_are_taken() -> None:
    half = np.where(np.arange(N) % 2 == 0, "u", "v")
    given = pd.DataFrame({"sex": np.where(np.arange(N) % 7 == 0, None, A), "half": half})
    model = made(groups={"sex": ["f", "m"], "half": ["u", "v"]}).fit(X, Y, sensitive_features=given)
    assert model.dual_.shape == (4, 3)


def test_run_that_was_interrupted_gives_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from justitia.postprocessing.solver import PostProcessingRun

    whole = fitted()
    check, calls = PostProcessingRun._check, []

    def dies(run: PostProcessingRun) -> None:
        calls.append(run)
        if len(calls) == 3:
            raise KeyboardInterrupt
        check(run)

    with monkeypatch.context() as patch:
        patch.setattr(PostProcessingRun, "_check", dies)
        with pytest.raises(KeyboardInterrupt):
            made().fit(X, Y, sensitive_features=A, checkpoint=tmp_path / "run")
    resumed = made().fit(X, Y, sensitive_features=A, checkpoint=tmp_path / "run")
    assert np.array_equal(resumed.predict(X), whole.predict(X))


def test_curve_of_tolerances_costs_one_model() -> None:
    curve = tradeoff(made(tolerance=None), X, Y, sensitive_features=A, tolerances=(0.0, 0.05, 0.2))
    assert curve.table["accuracy"].is_monotonic_increasing
    assert [one.tolerance_ for one in curve.models] == [0.0, 0.05, 0.2]
    assert curve.certificate.epsilon == pytest.approx(8.0)


def test_rows_in_files_give_the_model_of_rows_in_memory(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    X.assign(label=Y, sex=A).to_parquet(tmp_path / "rows.parquet")
    stored = made().fit(str(tmp_path / "rows.parquet"), "label", sensitive_features="sex")
    assert stored.classes_.tolist() == LABELS.tolist()
    assert np.mean(stored.predict(X) == fitted().predict(X)) > 0.99


def test_rows_in_files_beyond_the_sample_and_in_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    from justitia import RowFiles
    from justitia.rows import files

    monkeypatch.setattr(files, "SAMPLE", 500)
    X.assign(label=Y, sex=A).to_parquet(tmp_path / "rows.parquet")
    one = made().fit(str(tmp_path / "rows.parquet"), "label", sensitive_features="sex")
    monkeypatch.setattr(files, "BLOCK", 512)
    several = made().fit(RowFiles.open(str(tmp_path / "rows.parquet"), workers=2), "label", sensitive_features="sex")
    assert one.predict(X).shape == (N,)
    assert np.mean(one.predict(X) == several.predict(X)) > 0.9


def test_correction_that_is_deployed_decides_like_the_memberships(monkeypatch: pytest.MonkeyPatch) -> None:
    from justitia.postprocessing.solver import PostProcessingRun

    seen: dict[str, Any] = {}
    sound = PostProcessingRun.deployed_scores

    def watched(run: PostProcessingRun) -> Any:
        seen["exact"], seen["deployed"] = run.scores(), sound(run)
        return seen["deployed"]

    monkeypatch.setattr(PostProcessingRun, "deployed_scores", watched)
    fitted(notion="equalized_odds")
    exact, deployed = seen["exact"].argmax(1), seen["deployed"].argmax(1)
    assert np.mean(exact != deployed) < 0.02


def test_small_cells_are_warned_of() -> None:
    from justitia.exceptions import SmallGroupWarning

    rare = np.where((np.arange(N) % 50 == 0) & (A == "f"), "rare", np.where(Y == "high", "high", "low"))
    with pytest.warns(SmallGroupWarning):
        made(notion="equalized_odds", epsilon=1.0).fit(X, rare, sensitive_features=A)


# What is refused


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"at": "scores"}, "expected at='decision' because y has 3 classes"),
        ({"notion": "predictive_equality"}, "expected a notion for 3 classes, got 'predictive_equality'"),
        ({"notion": "predictive_parity"}, "expected a notion for 3 classes, got 'predictive_parity'"),
        ({"threshold": 0.3}, "expected no threshold because y has 3 classes"),
        ({"quota": 0.3}, "expected quota to be a mapping from classes to shares"),
        ({"quota": {"none": 0.3}}, "expected quota to be a share between 0 and 1 of a class"),
        ({"quota": {"low": 0.7, "middle": 0.6}}, "add up to at most 1"),
        ({"costs": [[0, 1], [1, 0]]}, r"expected costs to be numbers of shape \(3, 3\)"),
        ({"costs": np.zeros((3, 3))}, "expected every wrong decision to cost more"),
        ({"base": "score"}, "expected one column of scores per class"),
        ({"tolerance": [0.1, 0.2]}, "expected one tolerance for each of 1 notions, got 2"),
        ({"tolerance": {"none": 0.1}}, "expected names of rates"),
        ({"engine": "moments", "base": None, "module": (4,)}, "Only binary classification is supported"),
    ],
)
def test_what_classes_do_not_have_is_refused_before_anything_is_spent(changes: dict[str, Any], sentence: str) -> None:
    from justitia import PrivacyLedger

    ledger = PrivacyLedger(epsilon=8.0, delta=1e-5)
    with pytest.raises(ValueError, match=sentence) as refused:
        made(**changes).fit(X, Y, sensitive_features=A, ledger=ledger)
    assert "\n" not in str(refused.value)
    assert not ledger.releases


def test_plan_counts_the_same_releases_for_any_number_of_classes() -> None:
    model = fitted(plan=PostProcessingPlan(checks=3))
    assert [one.count for one in model.plan_.releases()] == [1, 3]
    assert len(model.ledger_.releases) == 4
