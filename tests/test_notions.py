import dataclasses
import math

import numpy as np
import pytest
import torch

from justitia import LagrangianDualClassifier
from justitia.metrics.exact import violation
from justitia.notions import (
    FAIRLEARN_NAMES,
    NOTIONS,
    AccuracyParity,
    Array,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    FairnessNotion,
    PredictiveEquality,
    decision,
    get_notion,
    notion_name,
)

pytestmark = pytest.mark.usefixtures("quick_fits")

Y = np.array([0.0, 1.0, 1.0, 0.0])
SCORES = np.array([-1.0, 2.0, -3.0, 4.0])
TENSORS = torch.from_numpy(SCORES), torch.from_numpy(Y)
SIGMOIDS = [1 / (1 + math.e), 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(3)), 1 / (1 + math.exp(-4))]


def test_decision_at_the_threshold_is_negative() -> None:
    assert decision(np.array([-0.1, 0.0, 0.1])).tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("notion", "expected"),
    [
        (DemographicParity(), [[1], [1], [1], [1]]),
        (AccuracyParity(), [[1], [1], [1], [1]]),
        (EqualizedOdds(), [[1, 0], [0, 1], [0, 1], [1, 0]]),
        (EqualOpportunity(), [[0], [1], [1], [0]]),
        (PredictiveEquality(), [[1], [0], [0], [1]]),
    ],
)
def test_events_small_labels_equal_the_definition(notion: FairnessNotion, expected: list[list[int]]) -> None:
    assert notion.events(Y).tolist() == expected


@pytest.mark.parametrize("notion", [DemographicParity(), EqualizedOdds(), EqualOpportunity(), PredictiveEquality()])
def test_h_of_rate_notions_is_the_sigmoid_and_h_exact_the_decision(notion: FairnessNotion) -> None:
    assert notion.h(*TENSORS).tolist() == pytest.approx(SIGMOIDS)
    assert notion.h_exact(SCORES, Y).tolist() == [0, 1, 0, 1]


def test_accuracy_parity_loss_is_the_binary_cross_entropy() -> None:
    expected = [math.log1p(math.exp(s)) for s in (-1, -2, 3, 4)]
    assert AccuracyParity().h(*TENSORS).tolist() == pytest.approx(expected)


def test_accuracy_parity_error_is_the_expected_error() -> None:
    expected = [abs(y - p) for y, p in zip([0, 1, 1, 0], SIGMOIDS, strict=True)]
    assert AccuracyParity(surrogate="error").h(*TENSORS).tolist() == pytest.approx(expected)


def test_accuracy_parity_exact_is_the_wrong_decision() -> None:
    assert AccuracyParity().h_exact(SCORES, Y).tolist() == [0, 0, 1, 1]


def test_accuracy_parity_unknown_surrogate_suggests_a_name() -> None:
    with pytest.raises(ValueError, match="no surrogate 'losses'; did you mean 'loss'"):
        AccuracyParity(surrogate="losses")  # type: ignore[arg-type]


def test_accuracy_parity_integer_labels_are_accepted() -> None:
    assert np.array_equal(AccuracyParity().h_exact(SCORES, Y.astype(int)), AccuracyParity().h_exact(SCORES, Y))
    assert torch.equal(AccuracyParity().h(TENSORS[0], TENSORS[1].long()), AccuracyParity().h(*TENSORS))


def test_equalized_odds_events_are_the_two_one_sided_notions_side_by_side() -> None:
    both = np.concatenate([PredictiveEquality().events(Y), EqualOpportunity().events(Y)], axis=1)
    assert np.array_equal(EqualizedOdds().events(Y), both)


@pytest.mark.parametrize("name", NOTIONS)
def test_h_of_confident_scores_approaches_h_exact(name: str) -> None:
    notion = AccuracyParity(surrogate="error") if name == "accuracy_parity" else get_notion(name)
    assert np.allclose(notion.h(1000 * TENSORS[0], TENSORS[1]).numpy(), notion.h_exact(SCORES, Y))


@pytest.mark.parametrize("name", NOTIONS)
def test_notions_table_name_equals_the_class_name_attribute(name: str) -> None:
    assert get_notion(name).name == name


@pytest.mark.parametrize("name", NOTIONS)
def test_notion_attribute_cannot_be_changed(name: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_notion(name).name = "other"


def test_notion_equal_settings_are_equal_and_hash_alike() -> None:
    assert AccuracyParity() == AccuracyParity("loss") != AccuracyParity("error")
    assert hash(DemographicParity()) == hash(DemographicParity())


def test_get_notion_instance_is_returned_unchanged() -> None:
    notion = AccuracyParity("error")
    assert get_notion(notion) is notion


def test_get_notion_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="no notion 'equal_odds'; did you mean 'equalized_odds'"):
        get_notion("equal_odds")


@pytest.mark.parametrize("value", [DemographicParity, None, 3])
def test_get_notion_of_another_type_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="expected notion to be one of 'demographic_parity'"):
        get_notion(value)  # type: ignore[arg-type]


def test_get_notion_own_notion_that_breaks_the_contract_is_refused() -> None:
    class Unnamed(FairnessNotion):
        def events(self, y: Array) -> Array:
            return y[:, None]

        def h_exact(self, scores: Array, y: Array) -> Array:
            return decision(scores)

    with pytest.raises(ValueError, match="the notion Unnamed cannot be used: name has to be a non-empty string"):
        get_notion(Unnamed())


def test_fairness_notion_without_methods_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        FairnessNotion()  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("demographic_parity", DemographicParity),
        ("selection_rate_parity", DemographicParity),
        ("equalized_odds", EqualizedOdds),
        ("true_positive_rate_parity", EqualOpportunity),
        ("false_negative_rate_parity", EqualOpportunity),
        ("false_positive_rate_parity", PredictiveEquality),
        ("true_negative_rate_parity", PredictiveEquality),
        ("error_rate_parity", AccuracyParity),
    ],
)
def test_names_of_fairlearn_are_ours(name: str, kind: type[FairnessNotion]) -> None:
    assert type(get_notion(name)) is kind
    assert notion_name(name) == notion_name(get_notion(name)) == kind.name


def test_names_of_fairlearn_are_about_the_same_difference_as_theirs() -> None:
    """By their own metrics, on decisions that no two notions judge alike."""
    fairlearn = pytest.importorskip("fairlearn.metrics")
    rng = np.random.default_rng(0)
    y, decided, a = rng.random(400) < 0.4, rng.random(400) < 0.5, np.where(rng.random(400) < 0.3, "f", "m")
    decided |= (a == "f") & y & (rng.random(400) < 0.5)
    rates = {
        "selection_rate_parity": fairlearn.selection_rate,
        "true_positive_rate_parity": fairlearn.true_positive_rate,
        "false_negative_rate_parity": fairlearn.false_negative_rate,
        "false_positive_rate_parity": fairlearn.false_positive_rate,
        "true_negative_rate_parity": fairlearn.true_negative_rate,
        "error_rate_parity": lambda y_true, y_pred: float((y_true != y_pred).mean()),
    }
    assert set(rates) == set(FAIRLEARN_NAMES)
    for name, rate in rates.items():
        theirs = fairlearn.MetricFrame(metrics=rate, y_true=y, y_pred=decided, sensitive_features=a).difference()
        assert violation(y, decided, sensitive_features=a, notion=name) == pytest.approx(theirs)


def test_slip_in_a_name_of_a_rate_is_not_answered_with_another_rate() -> None:
    with pytest.raises(ValueError, match="no notion 'true_positive_parity'") as refused:
        get_notion("true_positive_parity")
    assert "predictive_equality'?" not in str(refused.value)


class NoGradient(FairnessNotion):
    """A notion without h: the default engine needs none."""

    name, event_names = "no_gradient", ("all",)
    events = DemographicParity.events
    h_exact = DemographicParity.h_exact


@pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise
def test_notion_without_h_is_enough_for_the_default_engine_and_refused_where_a_network_is_trained() -> None:
    rng = np.random.default_rng(0)
    X, a = rng.normal(size=(120, 2)), rng.choice(["f", "m"], 120)
    given = {"X": X, "y": (X[:, 0] > 0).astype(int), "sensitive_features": a}
    usual = {"notion": NoGradient(), "groups": ["f", "m"], "random_state": 0, "noise_seed": 0}
    assert LagrangianDualClassifier(**usual).fit(**given).predict(X).shape == (120,)
    model = LagrangianDualClassifier(**usual, engine="moments")
    with pytest.raises(TypeError, match="the notion NoGradient has no differentiable h"):
        model.fit(**given)
    assert not hasattr(model, "ledger_")
