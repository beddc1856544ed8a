"""Fits by post-processing through the public interface: inputs, decisions, limits, thresholds, seeds."""

import math
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from run_setting import classifier
from sklearn.linear_model import LogisticRegression

from justitia import LagrangianDualClassifier, PostProcessingPlan, PrivacyLedger, tradeoff
from justitia.datasets import make_synthetic
from justitia.exceptions import NoisyEstimateWarning
from justitia.learners.base import Inputs
from justitia.metrics.exact import violation
from justitia.notions import NOTIONS

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # few rows, large noise
    pytest.mark.usefixtures("quick_fits"),
]
every_notion = pytest.mark.parametrize("notion", list(NOTIONS))
DATA = make_synthetic(3000, random_state=0)


def fitted(model: LagrangianDualClassifier, people: Any, **changes: Any) -> LagrangianDualClassifier:
    given = {"X": people.X, "y": people.y, "sensitive_features": people.a} | changes
    return model.fit(given.pop("X"), given.pop("y"), **given)


def on_data(**changes: Any) -> LagrangianDualClassifier:
    return classifier(groups=DATA.groups, **changes).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)


def eta_of(model: LagrangianDualClassifier, X: Any) -> Any:
    inputs = Inputs(X, model._features(X, reset=False))
    return model.rule_.calibration(model.rule_.base.predict(inputs))


# Which engine


def test_default_engine_is_post_processing_and_that_of_a_network_moments(people: Any) -> None:
    from justitia import MomentsPlan

    assert isinstance(fitted(classifier(), people).plan_, PostProcessingPlan)
    short = MomentsPlan(warmup_steps=5, rounds=3, public_steps=1, checks=1)
    network = fitted(classifier(module=(4,), plan=short), people)
    assert isinstance(network.plan_, MomentsPlan)
    assert hasattr(network, "module_")
    assert not hasattr(network, "rule_")


def test_refit_with_another_engine_forgets_the_first(people: Any) -> None:
    from justitia import MomentsPlan

    model = fitted(classifier(), people)
    short = MomentsPlan(warmup_steps=5, rounds=3, public_steps=1, checks=1)
    fitted(model.set_params(engine="moments", plan=short), people)
    assert not hasattr(model, "rule_")
    fitted(model.set_params(engine=None, plan=None), people)
    assert not hasattr(model, "module_")
    assert model.predict(people.X).shape == (120,)


# Data in


@pytest.mark.parametrize("labels", [np.array(["no", "yes"]), np.array([-1, 1]), np.array([False, True])], ids=str)
def test_fit_any_two_labels_predicts_them(people: Any, labels: Any) -> None:
    model = fitted(classifier(), people, y=labels[people.y])
    assert model.classes_.tolist() == labels.tolist()
    assert np.array_equal(model.predict(people.X), labels[fitted(classifier(), people).predict(people.X)])


@pytest.mark.parametrize(
    "table",
    [
        lambda X: pd.DataFrame(X, columns=["u", "v", "w"]),
        lambda X: pl.DataFrame(X, schema=["u", "v", "w"]),
        lambda X: X.tolist(),
        lambda X: X.astype(object),
    ],
    ids=["pandas", "polars", "lists", "objects"],
)
@pytest.mark.parametrize("base", [None, LogisticRegression()], ids=["default", "logistic"])
def test_fit_any_container_gives_the_numpy_model(people: Any, table: Any, base: Any) -> None:
    model = fitted(classifier(base=base), people, X=table(people.X))
    expected = fitted(classifier(base=base), people).decision_function(people.X)
    assert model.decision_function(table(people.X)) == pytest.approx(expected, abs=1e-6)


def test_fit_categories_and_missing_values_are_preprocessed_for_the_default_base(people: Any) -> None:
    X = pd.DataFrame(people.X, columns=["u", "v", "w"])
    X["job"] = np.where(people.X[:, 2] > 0, "clerk", None)
    X.loc[::7, "u"] = np.nan
    model = fitted(classifier(), people, X=X)
    assert model.predict(X.head(2).assign(job=["pilot", "clerk"])).shape == (2,)


def test_fit_rows_of_more_than_one_dimension_are_laid_out_flat(people: Any) -> None:
    X = np.repeat(people.X[:, None, :, None], 2, axis=3)
    model = fitted(classifier(preprocess=None), people, X=X)
    assert model.predict(X).shape == (120,)


@pytest.mark.parametrize("positives", [1, 2, 4])
def test_fit_with_few_rows_of_a_label_works(people: Any, positives: int) -> None:
    y = (np.argsort(np.argsort(-people.X[:, 0])) < positives).astype(int)
    assert fitted(classifier(), people, y=y).predict(people.X).shape == (120,)


@pytest.mark.parametrize(
    "changes",
    [
        {"sensitive_features": [None] * 120},
        {"sensitive_features": ["f"] * 120},
        {"sensitive_features": ["unknown"] * 120},
        {"sample_weight": np.linspace(0, 2, 120)},
        {"person": np.arange(120) // 3},
        {"X": np.ones((120, 1))},
    ],
    ids=["all missing", "one group", "unknown labels", "weights", "persons", "constant"],
)
@every_notion
def test_fit_of_odd_data_works_and_costs_what_the_plan_says(people: Any, notion: str, changes: Any) -> None:
    model = fitted(classifier(notion=notion), people, **changes)
    assert np.isfinite(model.decision_function(changes.get("X", people.X))).all()
    assert Counter(model.ledger_.costs()) == model.plan_.costs()
    assert 0 < model.tolerance_ <= 1


def test_groups_that_are_inferred_are_said_not_to_be_protected(people: Any) -> None:
    model = fitted(classifier(groups="infer"), people)
    assert "not protected" in str(model.certificate_)
    assert model.groups_ == ("f", "m")


# Decisions out


def test_scores_probabilities_and_decisions_agree(people: Any) -> None:
    model = fitted(classifier(threshold=0.4, tolerance=0.05), people)
    margin, shares = model.decision_function(people.X), model.predict_proba(people.X)
    assert shares.sum(1) == pytest.approx(np.ones(120))
    assert shares[:, 1] == pytest.approx(np.clip(0.4 + margin / 2, 0, 1))
    assert np.array_equal(model.predict(people.X), (margin > 0).astype(int))
    inside = (shares[:, 1] > 0) & (shares[:, 1] < 1)
    assert np.array_equal((shares[:, 1] > 0.4)[inside], model.predict(people.X)[inside] == 1)


@every_notion
def test_tolerance_of_one_gives_the_decisions_of_the_base(notion: str) -> None:
    model = on_data(notion=notion, tolerance=1.0)
    assert np.array_equal(model.predict(DATA.X) == 1, eta_of(model, DATA.X) > 0.5)
    assert not model.dual_.to_numpy().any()
    assert model.rule_.correction.is_zero


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_threshold_where_nothing_binds_is_that_of_the_probability(threshold: float) -> None:
    model = on_data(tolerance=1.0, threshold=threshold)
    assert np.array_equal(model.predict(DATA.X) == 1, eta_of(model, DATA.X) > threshold)


def test_costs_of_errors_are_a_threshold() -> None:
    costs, threshold = on_data(class_weight={0: 1.0, 1: 4.0}), on_data(threshold=0.2)
    assert np.array_equal(costs.decision_function(DATA.X), threshold.decision_function(DATA.X))
    share = float(np.mean(DATA.y == 1))
    assert on_data(class_weight="balanced", tolerance=1.0).rule_.threshold == pytest.approx(share)


@pytest.mark.parametrize("wrong", ["heavy", {0: 0.0, 1: 1.0}, {0: -1, 1: 1}, {7: 2.0}, {0: "a"}, 3], ids=str)
def test_wrong_costs_are_refused_in_one_sentence(people: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="expected class_weight to be 'balanced' or a cost above 0 by class") as caught:
        fitted(classifier(class_weight=wrong), people)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.1, math.nan, "half", None, True], ids=str)
def test_wrong_threshold_is_refused_in_one_sentence(people: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="expected threshold to be a number between 0 and 1") as caught:
        fitted(classifier(threshold=wrong), people)
    assert "\n" not in str(caught.value)


def test_threshold_and_costs_together_are_refused(people: Any) -> None:
    with pytest.raises(ValueError, match="expected threshold or class_weight, got both"):
        fitted(classifier(threshold=0.3, class_weight="balanced"), people)


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_violation_on_training_rows_is_about_the_tolerance(notion: str, epsilon: float) -> None:
    """In a population of 3000: the rest is noise and distillation."""
    free, strict = (on_data(notion=notion, tolerance=one, epsilon=epsilon) for one in (1.0, 0.02))
    found = [
        violation(DATA.y, one.predict(DATA.X), sensitive_features=DATA.sensitive, notion=notion, groups=DATA.groups)
        for one in (free, strict)
    ]
    assert found[1] < max(0.07, 0.5 * found[0])


# History, certificate, ledger


def test_history_has_a_row_per_solution_and_public_scores(people: Any) -> None:
    history = fitted(classifier(plan=PostProcessingPlan(checks=3)), people).history_
    by_group = ["noisy_gap[f]", "noisy_gap[m]", "multiplier[f]", "multiplier[m]"]
    both = ["noisy_violation", "violation_error"]
    assert history.columns.tolist() == ["round", "loss", "accuracy", "auc", *by_group, *both]
    assert history["round"].tolist() == [0, 1, 2, 3]
    gaps = history[["noisy_gap[f]", "noisy_gap[m]"]]
    assert history["noisy_violation"].tolist() == pytest.approx((gaps.max(axis=1) - gaps.min(axis=1)).tolist())
    assert history.notna().all(axis=None)
    assert (history["multiplier[f]"] + history["multiplier[m]"]).abs().max() < 1e-9


@pytest.mark.parametrize(("epsilon", "status"), [(8.0, "noised"), (math.inf, "exact")])
def test_history_columns_by_group_are_noised_if_epsilon_is_finite(people: Any, epsilon: float, status: str) -> None:
    model = fitted(classifier(epsilon=epsilon), people)
    assert {one.status for one in model.history_columns_ if one.group} == {status}
    assert {one.status for one in model.history_columns_ if not one.group and "violation" not in one.kind} == {"public"}
    assert model.certificate_.epsilon == pytest.approx(epsilon, rel=1e-6)


def test_shared_ledger_pays_and_is_kept(people: Any) -> None:
    ledger = PrivacyLedger(epsilon=20.0, delta=1e-5)
    for _ in range(2):
        assert fitted(classifier(epsilon=2.0), people, ledger=ledger).ledger_ is ledger
    assert [one.purpose for one in ledger.releases] == 2 * ["moments", *["decisions"] * 4]


def test_progress_shows_fits_and_solutions_only(people: Any, capsys: Any) -> None:
    fitted(classifier(progress=True), people)
    shown = capsys.readouterr().err
    assert "base" in shown
    assert "/5" in shown
    fitted(classifier(progress=False), people)
    assert capsys.readouterr().err == ""


# Seeds


def test_same_seeds_give_the_same_answer_and_others_another(people: Any) -> None:
    one, same, noise, public = (
        fitted(classifier(tolerance=0.0, **seeds), people) for seeds in ({}, {}, {"noise_seed": 1}, {"random_state": 1})
    )
    scores = one.decision_function(people.X)
    assert np.array_equal(scores, same.decision_function(people.X))
    assert one.history_.equals(same.history_)
    assert not np.array_equal(scores, noise.decision_function(people.X))
    assert not np.array_equal(scores, public.decision_function(people.X))


def test_fit_leaves_global_random_states_alone(people: Any) -> None:
    import torch

    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 - the global state is the point
    fitted(classifier(random_state=None), people)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


# A curve


def test_curve_shares_the_answers_of_its_first_model_and_its_splits() -> None:
    model = classifier(groups=DATA.groups, epsilon=2.0)
    curve = tradeoff(model, DATA.X, DATA.y, sensitive_features=DATA.sensitive, tolerances=(0.0, 0.05, 0.1, 1.0))
    first = classifier(groups=DATA.groups, epsilon=2.0, tolerance=0.0)
    first.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)
    assert np.array_equal(curve.models[0].decision_function(DATA.X), first.decision_function(DATA.X))
    assert curve.certificate.releases == first.certificate_.releases
    assert curve.table["accuracy"].is_monotonic_increasing
    assert curve.table["noisy_violation"].to_numpy()[:3] == pytest.approx([0.0, 0.05, 0.1], abs=0.01)
    last = curve.models[-1]
    assert np.array_equal(last.predict(DATA.X) == 1, eta_of(last, DATA.X) > 0.5)
    accuracy = [float(np.mean(one.predict(DATA.X) == DATA.y)) for one in curve.models]
    assert (
        accuracy > curve.table["accuracy"] - 0.01
    ).all()  # the table's is that of models that have not learned from the row


def test_warnings_of_a_fit_are_sentences_of_noised_numbers(people: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)
        model = fitted(classifier(epsilon=0.2), people)
    sentences = [str(one.message) for one in caught]
    assert NoisyEstimateWarning in {one.category for one in caught}
    assert set(model.certificate_.remarks) <= set(sentences)
    assert all("\n" not in one for one in sentences)
