import math
from typing import Any

import fairlearn.metrics as fairlearn
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, cross_validate

from justitia.metrics import exact as metrics
from justitia.metrics.exact import rates_by_group, violation, wilson_interval
from justitia.notions import NOTIONS

# Group F: decisions 1 1 0 0, group M: 1 0 0 1 (two rows of each label in each group).
TRUTH = [1, 1, 0, 0, 1, 1, 0, 0]
DECIDED = [1, 1, 0, 0, 1, 0, 0, 1]
SEX = ["F"] * 4 + ["M"] * 4


@pytest.fixture
def random_rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return (
        rng.integers(0, 2, 300),
        rng.integers(0, 2, 300),
        rng.choice(["a", "b", "c"], 300, p=[0.7, 0.2, 0.1]),
    )


def test_rates_by_group_small_table_equals_counting_by_hand() -> None:
    table = rates_by_group(TRUTH, DECIDED, sensitive_features=SEX, notion="equalized_odds")
    assert table.index.tolist() == [("y=0", "F"), ("y=0", "M"), ("y=1", "F"), ("y=1", "M")]
    assert table.index.names == ["event", "group"]
    assert table["count"].tolist() == [2, 2, 2, 2]
    assert table["rate"].tolist() == [0.0, 0.5, 1.0, 0.5]


@pytest.mark.parametrize(
    ("notion", "expected"),
    [
        ("demographic_parity", 0.0),
        ("equalized_odds", 0.5),
        ("equal_opportunity", 0.5),
        ("predictive_equality", 0.5),
        ("accuracy_parity", 0.5),
    ],
)
def test_violation_small_rows_equals_counting_by_hand(notion: str, expected: float) -> None:
    assert violation(TRUTH, DECIDED, sensitive_features=SEX, notion=notion) == expected


def test_violation_three_groups_is_the_largest_gap() -> None:
    decided = [1, 1, 1, 0, 0, 0]
    assert violation([0] * 6, decided, sensitive_features=[0, 0, 1, 1, 2, 2]) == 1.0


def test_violation_two_events_is_the_larger_one() -> None:
    # False positive rates 0 and 1/2, true positive rates 1 and 1.
    assert (
        violation(
            [1, 0, 0, 1, 0, 0],
            [1, 0, 0, 1, 1, 0],
            sensitive_features=[0] * 3 + [1] * 3,
            notion="equalized_odds",
        )
        == 0.5
    )


def test_wilson_interval_known_case_equals_the_textbook() -> None:
    lower, upper = wilson_interval(np.array([0.5, 0.0]), np.array([10, 10]), 0.95)
    assert lower == pytest.approx([0.2366, 0.0], abs=1e-4)
    assert upper == pytest.approx([0.7634, 0.2775], abs=1e-4)


def test_rates_by_group_higher_confidence_gives_a_wider_interval() -> None:
    narrow = rates_by_group(TRUTH, DECIDED, sensitive_features=SEX, confidence=0.5)
    wide = rates_by_group(TRUTH, DECIDED, sensitive_features=SEX, confidence=0.99)
    assert (wide["lower"] < narrow["lower"]).all()
    assert (wide["upper"] > narrow["upper"]).all()
    assert narrow["rate"].between(narrow["lower"], narrow["upper"]).all()


@pytest.mark.parametrize(
    "name",
    [
        "demographic_parity_difference",
        "demographic_parity_ratio",
        "equalized_odds_difference",
        "equalized_odds_ratio",
        "equal_opportunity_difference",
        "equal_opportunity_ratio",
    ],
)
def test_named_metric_random_rows_equals_fairlearn(name: str, random_rows: Any) -> None:
    truth, decided, group = random_rows
    ours = getattr(metrics, name)(truth, decided, sensitive_features=group)
    assert ours == pytest.approx(getattr(fairlearn, name)(truth, decided, sensitive_features=group), abs=1e-12)


def test_accuracy_parity_difference_random_rows_equals_fairlearn(random_rows: Any) -> None:
    truth, decided, group = random_rows
    theirs = fairlearn.accuracy_score_difference(truth, decided, sensitive_features=group)
    assert metrics.accuracy_parity_difference(truth, decided, sensitive_features=group) == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("notion", "event", "metric"),
    [
        ("demographic_parity", "all", fairlearn.selection_rate),
        ("equalized_odds", "y=0", fairlearn.false_positive_rate),
        ("equalized_odds", "y=1", fairlearn.true_positive_rate),
        ("predictive_equality", "y=0", fairlearn.false_positive_rate),
        ("accuracy_parity", "all", sklearn.metrics.zero_one_loss),
    ],
)
def test_rates_by_group_random_rows_equal_fairlearn(notion: str, event: str, metric: Any, random_rows: Any) -> None:
    truth, decided, group = random_rows
    frame = fairlearn.MetricFrame(metrics=metric, y_true=truth, y_pred=decided, sensitive_features=group)
    ours = rates_by_group(truth, decided, sensitive_features=group, notion=notion).loc[event]
    assert ours["rate"].to_dict() == pytest.approx(frame.by_group.to_dict())


def test_rates_by_group_crossed_columns_equal_fairlearn(random_rows: Any) -> None:
    truth, decided, group = random_rows
    features = pd.DataFrame({"group": group, "half": np.arange(300) % 2})
    frame = fairlearn.MetricFrame(
        metrics=fairlearn.selection_rate, y_true=truth, y_pred=decided, sensitive_features=features
    )
    ours = rates_by_group(truth, decided, sensitive_features=features).loc["all"]
    assert ours.index[0] == "group=a & half=0"
    assert ours["rate"].tolist() == pytest.approx(frame.by_group.tolist())


def test_ratio_without_any_positive_decision_is_nan_as_in_fairlearn() -> None:
    rows: dict[str, Any] = {"sensitive_features": [0, 0, 1, 1]}
    assert math.isnan(fairlearn.demographic_parity_ratio([0, 1, 0, 1], [0] * 4, **rows))
    assert math.isnan(metrics.demographic_parity_ratio([0, 1, 0, 1], [0] * 4, **rows))


def test_rates_by_group_empty_group_is_not_estimable() -> None:
    table = rates_by_group(TRUTH, DECIDED, sensitive_features=SEX, groups=["F", "M", "X"])
    assert table.loc[("all", "X"), "count"] == 0
    assert table.loc[("all", "X"), ["rate", "lower", "upper"]].isna().all()
    assert violation(TRUTH, DECIDED, sensitive_features=SEX, groups=["F", "M", "X"]) == 0.0


def test_rates_by_group_one_member_has_a_wide_interval() -> None:
    table = rates_by_group([1, 0], [1, 0], sensitive_features=["F", "M"])
    assert table["rate"].tolist() == [1.0, 0.0]
    assert table["lower"].tolist() == pytest.approx([0.2065, 0.0], abs=1e-4)
    assert table["upper"].tolist() == pytest.approx([1.0, 0.7935], abs=1e-4)


def test_violation_event_with_one_estimable_group_is_left_out() -> None:
    # Only F has positives, and the false positive rates are 0 and 1.
    assert violation([1, 0, 0], [0, 0, 1], sensitive_features=["F", "F", "M"], notion="equalized_odds") == 1.0


@pytest.mark.parametrize("sex", [["F", "F"], ["F", None], [None, None]])
def test_violation_fewer_than_two_groups_is_nan(sex: list[Any]) -> None:
    for notion in NOTIONS:
        assert math.isnan(violation([0, 1], [0, 1], sensitive_features=sex, notion=notion))


def test_violation_no_rows_is_nan() -> None:
    assert math.isnan(violation([], [], sensitive_features=[]))


def test_violation_one_class_of_the_usual_numbers_is_computed() -> None:
    assert violation([0, 0], [0, 0], sensitive_features=["F", "M"], notion="accuracy_parity") == 0.0
    assert math.isnan(violation([0, 0], [0, 1], sensitive_features=["F", "M"], notion="equal_opportunity"))


def test_violation_missing_attribute_belongs_to_no_group() -> None:
    with_missing = violation([*TRUTH, 1], [*DECIDED, 1], sensitive_features=[*SEX, None])
    assert with_missing == violation(TRUTH, DECIDED, sensitive_features=SEX)


@pytest.mark.parametrize("notion", NOTIONS)
def test_violation_row_order_and_group_names_do_not_matter(notion: str, random_rows: Any) -> None:
    truth, decided, group = random_rows
    order = np.random.default_rng(1).permutation(300)
    renamed = pd.Series(group).map({"a": 9, "b": 1, "c": 4})
    expected = violation(truth, decided, sensitive_features=group, notion=notion)
    assert violation(truth[order], decided[order], sensitive_features=group[order], notion=notion) == expected
    assert violation(truth, decided, sensitive_features=renamed, notion=notion) == expected


@pytest.mark.parametrize(
    "convert",
    [list, np.array, pd.Series, pl.Series, lambda rows: np.array(rows)[:, None]],
    ids=["list", "array", "pandas", "polars", "column"],
)
def test_rates_by_group_any_container_gives_the_same_table(convert: Any) -> None:
    expected = rates_by_group(TRUTH, DECIDED, sensitive_features=SEX, notion="equalized_odds")
    table = rates_by_group(convert(TRUTH), convert(DECIDED), sensitive_features=convert(SEX), notion="equalized_odds")
    pd.testing.assert_frame_equal(table, expected)


def test_rates_by_group_text_labels_take_the_second_as_positive() -> None:
    words = {0: "no", 1: "yes"}
    truth, decided = [words[y] for y in TRUTH], [words[y] for y in DECIDED]
    expected = rates_by_group(TRUTH, DECIDED, sensitive_features=SEX, notion="equalized_odds")
    table = rates_by_group(truth, decided, sensitive_features=SEX, notion="equalized_odds")
    pd.testing.assert_frame_equal(table, expected)


def test_rates_by_group_pos_label_chooses_the_positive_class() -> None:
    table = rates_by_group(["a", "b"], ["a", "a"], sensitive_features=[0, 1], pos_label="a")
    assert table["rate"].tolist() == [1.0, 1.0]


def test_rates_by_group_minus_one_and_one_take_one_as_positive() -> None:
    assert rates_by_group([-1, -1], [-1, -1], sensitive_features=[0, 1])["rate"].tolist() == [0.0, 0.0]


def test_rates_by_group_mixed_group_types_are_kept_apart() -> None:
    table = rates_by_group([0, 0, 1], [0, 1, 1], sensitive_features=["x", 1, "x"])
    assert table["rate"].to_dict() == {("all", 1): 1.0, ("all", "x"): 0.5}


@pytest.mark.parametrize(
    ("truth", "decided", "sex", "message"),
    [
        ([0, 1], [0], ["F", "M"], "y_true has 2, y_pred has 1"),
        ([0, 1], [0, 1], ["F"], "y_true has 2, sensitive_features has 1"),
        (
            [0, 1],
            [0.2, 0.7],
            ["F", "M"],
            "expected two class labels .* got 4; pass decisions, not probabilities",
        ),
        (["a", "a"], ["a", "a"], ["F", "M"], "got one; pass pos_label"),
        ([0, None], [0, 1], ["F", "M"], "a label in every row of y_true"),
        ([[0, 1]], [[0, 1]], ["F"], "expected y_true to have one dimension, got 2"),
    ],
)
def test_rates_by_group_impossible_input_is_refused(truth: Any, decided: Any, sex: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rates_by_group(truth, decided, sensitive_features=sex)


def test_rates_by_group_pos_label_that_is_no_class_is_refused() -> None:
    with pytest.raises(ValueError, match="a pos_label that occurs"):
        rates_by_group(["a", "b"], ["a", "b"], sensitive_features=[0, 1], pos_label="c")


def test_violation_as_scorer_receives_the_routed_attribute() -> None:
    X = np.arange(40.0).reshape(-1, 1)
    y = (X[:, 0] % 10 >= 5).astype(int)
    sex = np.array(["F", "M"] * 20)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(violation, greater_is_better=False).set_score_request(sensitive_features=True)
        scored = cross_validate(
            DummyClassifier(strategy="prior"), X, y, cv=2, scoring=scorer, params={"sensitive_features": sex}
        )
        search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, scoring=scorer, cv=2)
        search.fit(X, y, sensitive_features=sex)
    assert scored["test_score"].tolist() == [0.0, 0.0]
    assert -1 <= search.best_score_ <= 0
