"""Measurement of decisions among several classes and of numeric predictions: numbers, cost, refusals and coverage."""

import json
import math
from typing import Any

import fairlearn.metrics as fairlearn
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom, ks_2samp
from sklearn.metrics import mean_absolute_error, mean_squared_error

from bench.experiments.target_bounds import answer, coverage, population
from justitia import Measurement, PrivacyLedger, measure
from justitia.metrics import exact as metrics
from justitia.metrics.bounds import NOT_ENOUGH
from justitia.metrics.exact import rates_by_group, violation
from justitia.metrics.means import ComparedNumberQuery, NumberQuery, means_by_name, public_levels
from justitia.metrics.measure import MeasurementQuery
from justitia.metrics.rates import class_metrics
from justitia.metrics.targets import kind_of_target
from justitia.privacy.accounting import gaussian_mu

GROUPS = ["F", "M", "X"]
CLASSES = np.array(["clerk", "exec", "sales"])
rng = np.random.default_rng(0)
N = 3000
A = np.array([*GROUPS, None], dtype=object)[rng.choice(4, N, p=[0.3, 0.4, 0.2, 0.1])]
GIVEN = np.array([one is not None for one in A])
Y = CLASSES[rng.integers(0, 3, N)]
D = np.where(rng.random(N) < 0.6, Y, CLASSES[np.where(A == "F", 0, 1)])
TARGET = rng.gamma(2.0, 20.0, N)
PREDICTED = 0.5 * TARGET + rng.normal(0, 8, N) + np.where(A == "F", 5.0, 0.0)


def run(y: Any = Y, d: Any = D, **options: Any) -> Measurement:
    return measure(y, d, **({"sensitive_features": A, "groups": GROUPS, "noise_seed": 1} | options))


def numbers(**options: Any) -> Measurement:
    return run(TARGET, PREDICTED, **options)


# --- which task


@pytest.mark.parametrize(
    ("y", "d", "task", "found"),
    [
        ([0, 1, 0], [1, 1, 0], "auto", "binary"),
        (["a", "b", "c"], ["a", "a", "b"], "auto", "classes"),
        ([0, 1, 2], [0, 0, 1], "classes", "classes"),
        ([0, 1, 2], [0, 0, 1], "number", "number"),
        ([0, 1, 0], [0, 1, 1], "number", "number"),
        (np.arange(40.0), np.zeros(40), "auto", "number"),
        (np.arange(40), np.arange(40), "auto", "number"),
        (None, np.arange(40.0), "auto", "number"),
        (None, np.linspace(0, 1, 40), "auto", "binary"),  # then refused: decisions, not probabilities
        ([0, 1] * 20, np.linspace(-3, 3, 40), "auto", "binary"),
        ([True, False], [True, True], "auto", "binary"),
    ],
)
def test_kind_of_target_is_seen_from_the_values_unless_that_is_a_guess(y: Any, d: Any, task: str, found: str) -> None:
    assert kind_of_target(y, d, task) == found


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"y": np.arange(N) % 5, "d": np.arange(N) % 4}, "expected task='classes' or task='number' for numbers with 5"),
        ({"y": None, "d": np.linspace(0, 1, N)}, "pass decisions, not probabilities"),
        ({"task": "regression"}, "no task 'regression'"),
        ({"notion": "predictive_equality"}, "expected a notion of several classes"),
        ({"notion": "mean_parity"}, "expected y_true to be numbers|expected y_pred to be numbers"),
        ({"metrics": "true_positive_rate"}, "no metrics 'true_positive_rate'"),
        ({"notion": ["demographic_parity"] * 2}, "expected each notion and metric once"),
        ({"scores": np.arange(N)}, "expected decisions between two classes with scores"),
        ({"y": None, "notion": "equalized_odds"}, "expected labels in y_true for 'equalized_odds'"),
        ({"y": np.arange(N).astype(str), "d": np.arange(N).astype(str)}, "expected at most 100 classes, got 3000"),
        (
            {"y": np.arange(N) % 30, "d": np.arange(N) % 29, "task": "classes", "notion": "equalized_odds"},
            "at most 400",
        ),
        ({"y": [0, "a", 1.5] * (N // 3), "d": [0] * N}, "expected class labels of one type"),
        ({"y": TARGET, "d": PREDICTED, "notion": "accuracy_parity"}, "pass 'equal_error'"),
        ({"y": TARGET, "d": PREDICTED, "notion": "equalized_odds"}, "no notion of numbers 'equalized_odds'"),
        ({"y": TARGET, "d": PREDICTED, "before": PREDICTED[:-1]}, "expected the same number of rows everywhere"),
        ({"y": TARGET, "d": PREDICTED, "before": 0 * PREDICTED}, "expected predictions that differ"),
        ({"y": TARGET, "d": PREDICTED, "before": np.where(GIVEN, PREDICTED, np.nan)}, "a finite number in every row"),
        ({"y": TARGET, "d": PREDICTED, "levels": 0}, "expected levels to be at least 1"),
        ({"y": TARGET, "d": PREDICTED, "value_range": (1, 0)}, "expected value_range to be"),
        ({"y": TARGET, "d": PREDICTED, "value_range": 3}, "expected value_range to be two numbers"),
        ({"y": TARGET, "d": PREDICTED, "task": "number", "pos_label": 1}, "expected no pos_label"),
        ({"y": TARGET, "d": np.where(GIVEN, PREDICTED, np.inf)}, "expected a finite number in every row of y_pred"),
        ({"y": TARGET[:-1], "d": PREDICTED}, "expected the same number of rows everywhere"),
        ({"y": TARGET, "d": 0 * PREDICTED, "task": "number"}, "expected predictions that differ"),
        ({"y": None, "d": PREDICTED, "notion": "equal_error"}, "expected labels in y_true for 'mean_squared_error'"),
    ],
)
def test_wrong_input_gets_one_sentence_before_anything_is_spent(options: dict[str, Any], sentence: str) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises((ValueError, TypeError), match=sentence):
        run(**({"ledger": ledger} | options))
    assert ledger.releases == ()


# --- exact numbers


def frame(metric: Any, y: Any, d: Any) -> fairlearn.MetricFrame:
    return fairlearn.MetricFrame(
        metrics=metric, y_true=y[GIVEN], y_pred=d[GIVEN], sensitive_features=pd.Series(A[GIVEN])
    )


@pytest.mark.parametrize("name", CLASSES)
def test_exact_rate_of_every_class_equals_fairlearns_metric_frame(name: str) -> None:
    expected = frame(lambda _, d: np.mean(d == name), Y, D)
    found = rates_by_group(Y, D, sensitive_features=A)
    assert_allclose(found.loc[f"selection_rate[{name}]", "rate"], expected.by_group, atol=1e-12)
    among = frame(lambda y, d: np.mean(d[y == "exec"] == name), Y, D)
    found = rates_by_group(Y, D, sensitive_features=A, notion="equalized_odds")
    assert_allclose(found.loc[f"selection_rate[{name} | y=exec]", "rate"], among.by_group, atol=1e-12)


def test_exact_violation_of_classes_is_the_largest_difference_of_fairlearns_metric_frame() -> None:
    by_class = [frame(lambda _, d, name=name: np.mean(d == name), Y, D).difference() for name in CLASSES]
    assert violation(Y, D, sensitive_features=A) == pytest.approx(max(by_class))
    assert metrics.demographic_parity_difference(Y, D, sensitive_features=A) == pytest.approx(max(by_class))
    recalls = [frame(lambda y, d, name=name: np.mean(d[y == name] == name), Y, D).difference() for name in CLASSES]
    assert metrics.equal_opportunity_difference(Y, D, sensitive_features=A) == pytest.approx(max(recalls))
    wrong = frame(lambda y, d: np.mean(y != d), Y, D).difference()
    assert metrics.accuracy_parity_difference(Y, D, sensitive_features=A) == pytest.approx(wrong)


def test_exact_rates_of_three_classes_equal_counting_by_hand() -> None:
    y, d, sex = list("aabbcc"), list("abbbca"), ["F", "M"] * 3
    table = rates_by_group(y, d, sensitive_features=sex)
    assert table.loc["selection_rate[b]", "rate"].to_dict() == {"F": 1 / 3, "M": 2 / 3}
    assert table.loc["selection_rate[b]", "count"].tolist() == [3, 3]
    assert violation(y, d, sensitive_features=sex) == pytest.approx(1 / 3)
    assert violation(y, d, sensitive_features=sex, notion="accuracy_parity") == pytest.approx(2 / 3)
    # Of label a: F got a, M got b; of label c: F got c, M got a.
    assert violation(y, d, sensitive_features=sex, notion="equalized_odds") == 1.0


def test_exact_means_and_errors_equal_fairlearns_metric_frame() -> None:
    for notion, metric in (("mean_parity", fairlearn.mean_prediction), ("equal_error", mean_squared_error)):
        expected = frame(metric, TARGET, PREDICTED)
        found = rates_by_group(TARGET, PREDICTED, sensitive_features=A, notion=notion)
        assert_allclose(found["rate"], expected.by_group, rtol=1e-12)
        assert violation(TARGET, PREDICTED, sensitive_features=A, notion=notion) == pytest.approx(expected.difference())
    assert metrics.equal_error_difference(TARGET, PREDICTED, sensitive_features=A) == pytest.approx(
        expected.difference()
    )
    assert found["lower"].lt(found["rate"]).all()
    assert metrics.mean_parity_difference([0, 1, 2], [0, 1, 3], sensitive_features=list("aab")) == 2.5


def test_exact_violation_of_numbers_is_the_largest_kolmogorov_smirnov_distance() -> None:
    pairs = [("F", "M"), ("F", "X"), ("M", "X")]
    expected = max(ks_2samp(*(PREDICTED[one == A] for one in pair)).statistic for pair in pairs)
    assert violation(None, PREDICTED, sensitive_features=A) == pytest.approx(expected)
    assert violation(None, [1, 1, 2, 3], sensitive_features=list("aabb"), task="number") == 1.0
    assert math.isnan(violation(None, PREDICTED, sensitive_features=A, groups=["F", "nobody"]))
    with pytest.raises(ValueError, match="expected decisions for a ratio"):
        metrics.demographic_parity_ratio(TARGET, PREDICTED, sensitive_features=A)


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "equal_opportunity", "accuracy_parity"])
def test_measure_of_classes_without_noise_gives_the_exact_rates_and_violation(notion: str) -> None:
    found = run(notion=notion, epsilon=math.inf)
    expected = rates_by_group(Y, D, sensitive_features=A, groups=GROUPS, notion=notion)
    assert found.table.index.tolist() == expected.index.tolist()
    assert_allclose(found.table["rate"], expected["rate"], atol=1e-9)
    assert_allclose(found.table["count"], expected["count"], atol=1e-6)
    exact = violation(Y, D, sensitive_features=A, groups=GROUPS, notion=notion)
    assert found.violation.estimate == pytest.approx(exact)
    assert found.violation.lower <= exact <= found.violation.upper


@pytest.mark.parametrize("options", [{}, {"value_range": (0.0, 60.0)}])
def test_measure_of_numbers_without_noise_gives_the_exact_means_and_violations(options: dict[str, Any]) -> None:
    names = ("mean_prediction", "mean_squared_error", "mean_absolute_error")
    found = numbers(notion="demographic_parity", metrics=names, epsilon=math.inf, **options)
    low, high = options.get("value_range", (-math.inf, math.inf))
    y, f = TARGET.clip(low, high), PREDICTED.clip(low, high)
    parts = dict(zip(names, (fairlearn.mean_prediction, mean_squared_error, mean_absolute_error), strict=True))
    expected = frame(parts, y, f)
    assert_allclose(found.by_group[list(names)], expected.by_group.to_numpy(dtype=float), rtol=1e-8)
    assert_allclose(found.overall[list(names)], [one(y, f) for one in parts.values()], rtol=1e-10)
    for name in names:
        assert found.violations[name].estimate == pytest.approx(float(expected.difference()[name]))
    # Between public levels the distance may be a little larger.
    exact = violation(y, f, sensitive_features=A, groups=GROUPS)
    assert exact - 0.02 < found.violations["demographic_parity"].estimate <= exact + 1e-9


def test_distance_of_tied_predictions_is_exact_because_every_value_is_a_level() -> None:
    tied = np.round(PREDICTED, -1)
    found = run(TARGET, tied, epsilon=math.inf)
    assert found.violation.estimate == pytest.approx(violation(TARGET, tied, sensitive_features=A, groups=GROUPS))


def test_public_levels_are_quantiles_and_either_side_of_a_value_that_many_share() -> None:
    assert public_levels(np.arange(1.0, 101), 3).tolist() == [25, 50, 75]
    assert public_levels(np.array([1.0, 1, 2, 5]), 20).tolist() == [1, 2]
    half = np.concatenate([np.linspace(0, 1, 50), np.full(50, 2.0)])
    assert public_levels(half, 9).max() == 1.0  # nobody is above 2
    middle = np.concatenate([np.linspace(0, 1, 30), np.full(40, 2.0), np.linspace(3, 4, 30)])
    assert {1.0, 2.0} <= set(public_levels(middle, 9).tolist())


# --- cost and privacy


OPTIONS: dict[str, dict[str, Any]] = {
    "classes": {},
    "odds": {"notion": ["demographic_parity", "equalized_odds", "accuracy_parity"], "before": Y},
    "distribution": {"y": TARGET, "d": PREDICTED},
    "means": {"y": TARGET, "d": PREDICTED, "notion": ["mean_parity", "equal_error"], "metrics": "mean_absolute_error"},
    "both": {"y": TARGET, "d": PREDICTED, "notion": ["demographic_parity", "equal_error"], "levels": 5},
    "compared": {"y": TARGET, "d": PREDICTED, "before": TARGET + 1, "notion": ["demographic_parity", "mean_parity"]},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_measure_spends_all_of_epsilon_on_one_release_of_unit_rows(case: str) -> None:
    ledger = PrivacyLedger(epsilon=0.5, delta=1e-5)
    found = run(epsilon=0.5, ledger=ledger, **OPTIONS[case])
    (release,) = ledger.releases
    assert (release.purpose, release.sensitivity) == ("group rates", pytest.approx(math.sqrt(2), rel=1e-9))
    assert ledger.epsilon() == pytest.approx(0.5, rel=1e-9)
    assert found.certificate.epsilon == ledger.epsilon()


def test_query_rows_are_at_most_of_length_one_and_the_farthest_row_attains_it() -> None:
    codes = {label: code for code, label in enumerate(CLASSES)}
    y, d = (np.array([codes[one] for one in column]) for column in (Y, D))
    known = class_metrics(CLASSES, y, d)
    rates = {"a": known["selection_rate"], "b": known["selection_rate_by_label"]}
    rows = MeasurementQuery.from_rows(rates, y, d, None, None, classes=3).values()
    assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-12)
    for asked in (["demographic_parity"], ["mean_parity"], ["demographic_parity", "mean_parity"]):
        query = NumberQuery.from_rows(means_by_name(asked, []), TARGET, PREDICTED, 20)
        lengths = np.linalg.norm(query.values(), axis=1)
        farthest = np.argmax(np.abs(PREDICTED - PREDICTED.mean()))
        assert lengths.max() == lengths[farthest] == pytest.approx(1.0, abs=1e-12)


def test_query_rows_about_two_models_are_at_most_of_length_one_and_some_row_nearly_attains_it() -> None:
    asked = means_by_name(["demographic_parity", "equal_error"], [])
    one, other = (NumberQuery.from_rows(asked, TARGET, d, 20) for d in (PREDICTED, TARGET + 1))
    lengths = np.linalg.norm(ComparedNumberQuery(one, other).values(), axis=1)
    assert 0.5 < lengths.max() <= 1 + 1e-12
    same = np.linalg.norm(ComparedNumberQuery(one, one).values(), axis=1)
    assert same == pytest.approx(np.linalg.norm(one.values(), axis=1))


def test_numbers_before_are_what_a_measurement_of_them_alone_gives_without_noise() -> None:
    options = {"y": TARGET, "epsilon": math.inf, "notion": ["demographic_parity", "equal_error"]}
    both = run(d=PREDICTED, before=TARGET + 1, **options)
    for found, alone in ((both, run(d=PREDICTED, **options)), (both.before, run(d=TARGET + 1, **options))):
        assert_allclose(found.table.drop(columns="evidence"), alone.table.drop(columns="evidence"), atol=1e-9)
        assert_allclose(found.distribution.table, alone.distribution.table, atol=1e-9)
        for name, gap in found.violations.items():
            assert gap.estimate == pytest.approx(alone.violations[name].estimate)
    assert both.to_dict()["before"]["distribution"] == both.before.distribution.to_dict()
    assert both.before.before is None


def test_numbers_before_cost_a_quarter_of_the_query() -> None:
    y = np.arange(2100.0)
    alone = NumberQuery.from_rows({"mean_parity": "mean_prediction"}, None, y, 20)
    both = ComparedNumberQuery(alone, alone)
    width = alone.values().shape[1]
    (noisy, _), found = alone.read(np.zeros((2, width)), 1.5), both.results(np.zeros((2, 2 * width)), 1.5)
    assert_allclose(found["noisy"].var_sum / noisy.var_sum, 4 / 3)
    assert_allclose(found["noisy_before"].var_sum / noisy.var_sum, 4.0)


def test_noise_of_class_rates_is_that_of_centred_rows_and_of_levels_that_of_factorised_prefix_sums() -> None:
    """Standard deviation in a group's sum: sqrt(1 - 1/L) of that of rows of length 1; less than 1.63 at 20 levels."""
    y = np.repeat(np.arange(6), 500)
    query = MeasurementQuery.from_rows(
        {"a": class_metrics(range(6), y, y)["selection_rate"]}, y, y, None, None, None, 6
    )
    noisy, _, _ = query.read(np.zeros((2, 6)), 1.5)  # the projection leaves 2/3 of it
    p = noisy.overall
    assert_allclose(np.sqrt(noisy.noise_covariance(p, p)), math.sqrt(1 - 1 / 6), rtol=2e-3)
    query = NumberQuery.from_rows({"demographic_parity": None}, None, np.arange(2100.0), 20)
    _, distribution = query.read(np.zeros((2, 23)), 1.5)
    assert distribution is not None
    curve = distribution.curve
    noise = np.sqrt(curve.noise_covariance(curve.overall, curve.overall))
    assert noise.max() < 1.63


def test_measure_answers_as_the_simulations_of_the_experiment_assume() -> None:
    codes = np.array([GROUPS.index(one) if one in GROUPS else 3 for one in A])
    query = NumberQuery.from_rows(means_by_name(["demographic_parity", "mean_parity"], []), TARGET, PREDICTED, 4)
    variance = 2 / gaussian_mu(1.0, 1e-5) ** 2
    drawn = [numbers(notion=["demographic_parity", "mean_parity"], levels=4, noise_seed=s) for s in range(200)]
    sums = np.array([one.noisy.sums[:, 0] for one in drawn])
    curves = np.array([one.noisy_distribution.curve.sums for one in drawn if one.noisy_distribution is not None])
    generator = np.random.default_rng(0)
    own = [query.read(answer(query.values(), codes, 3, 1.0, generator), variance) for _ in range(200)]
    said, distribution = own[0]
    assert distribution is not None
    # Chi-square of 200 draws: within a third of the variance; means within four standard errors.
    assert_allclose(sums.var(0), said.var_sum[0, 0], rtol=0.35)
    assert_allclose(curves.var(0), np.broadcast_to(distribution.curve.var_sum, curves.shape[1:]), rtol=0.4)
    apart = sums.mean(0) - np.mean([one.sums[:, 0] for one, _ in own], axis=0)
    assert np.abs(apart).max() < 4 * math.sqrt(2 * said.var_sum[0, 0] / 200)


# --- results


@pytest.mark.parametrize("case", OPTIONS)
def test_measurement_as_text_and_json_works_for_every_task(case: str) -> None:
    found = run(threshold=0.5, reference="M" if case != "means" else None, **OPTIONS[case])
    lines = str(found).splitlines()
    assert lines[0] == "3,000 rows, 3 groups; noisy, with bounds at 0.95"
    facts = json.loads(found.to_json())
    assert set(facts["violations"]) == set(found.violations)
    assert ("distribution" in facts) == (case in {"distribution", "both", "compared"})
    for name, one in found.violations.items():
        assert one.lower <= one.estimate <= one.upper
        assert found.test(0.0, name).answer in {"above", NOT_ENOUGH}
    if found.distribution is not None:
        assert found.distribution.compared_with == "M"
        assert found.distribution.table.loc["F", "ks_distance"] > 0
        assert len(found.distribution.curve) == 3 * (5 if case == "both" else 20)


def test_text_of_many_rates_shows_those_that_differ_most() -> None:
    labels = np.array(list("abcdef"))
    y = labels[np.arange(N) % 6]
    d = np.where(A == "F", "a", y)
    text = str(run(y, d, notion="equalized_odds"))
    assert "24 more rates, whose noisy differences are smaller, are in the table" in text
    assert "selection_rate[a | y=b]" in text
    assert max(map(len, text.splitlines())) <= 96


def test_means_are_shown_in_their_own_units_with_a_sensible_number_of_decimals() -> None:
    found = run(1000 * TARGET, 1000 * PREDICTED, notion="mean_parity", epsilon=math.inf)
    small = run(TARGET / 1000, PREDICTED / 1000, notion="mean_parity", epsilon=math.inf)
    assert found.violation.estimate == pytest.approx(1e6 * small.violation.estimate)
    assert f"violation, mean_parity: {found.violation.estimate:.0f} [" in str(found)
    assert f"violation, mean_parity: {small.violation.estimate:.4f} [" in str(small)
    assert found.test(1e6).answer == "below"
    with pytest.raises(ValueError, match="an impact ratio is about decisions"):
        found.impact("mean_prediction")


def test_group_that_nobody_is_in_is_not_enough_evidence_for_numbers() -> None:
    found = numbers(groups=["F", "M", "nobody"], notion=["demographic_parity", "mean_parity"], threshold=1000.0)
    assert found.unknown_groups == ("nobody",)
    assert found.not_compared("demographic_parity") == found.not_compared("mean_parity") == ("nobody",)
    assert found.test(1000.0, "mean_parity").answer == NOT_ENOUGH
    few = measure(TARGET[:30], PREDICTED[:30], sensitive_features=A[:30], groups=GROUPS, epsilon=0.1, noise_seed=0)
    assert (few.violation.lower, few.violation.upper) == (0.0, 1.0)
    assert str(few.violation) == NOT_ENOUGH


def test_impact_of_one_class_is_that_of_deciding_for_it_or_not() -> None:
    found = run(epsilon=math.inf).impact("selection_rate[exec]")
    alone = run(Y == "exec", D == "exec", epsilon=math.inf).impact()
    assert_allclose(found.table["impact_ratio"], alone.table["impact_ratio"])


def test_class_that_is_never_a_label_has_no_event_of_its_own() -> None:
    d = np.where(np.arange(N) % 9 == 0, "other", D)
    found = run(Y, d, notion="equalized_odds", epsilon=5.0)
    assert not any("y=other" in name for name in found.rate_names)
    assert "selection_rate[other | y=exec]" in found.rate_names


def test_margins_of_crossed_columns_have_the_numbers_of_each_column_alone() -> None:
    table = pd.DataFrame({"sex": A, "young": np.arange(N) % 2 == 0})
    groups = {"sex": GROUPS, "young": [True, False]}
    crossed = numbers(
        sensitive_features=table, groups=groups, notion=["demographic_parity", "equal_error"], epsilon=math.inf
    )
    alone = numbers(notion=["demographic_parity", "equal_error"], epsilon=math.inf)
    assert_allclose(crossed.margins["sex"].by_group, alone.by_group, rtol=1e-9)
    for name in alone.violations:
        assert crossed.margins["sex"].violations[name].upper == pytest.approx(alone.violations[name].upper, rel=1e-6)


def test_rows_of_one_person_widen_the_bounds_of_numbers() -> None:
    twice = np.repeat(np.arange(N // 2), 2)
    wide = numbers(notion=["demographic_parity", "mean_parity"], person=twice, epsilon=math.inf)
    narrow = numbers(notion=["demographic_parity", "mean_parity"], epsilon=math.inf)
    for name, one in narrow.violations.items():
        assert wide.violations[name].width > 1.2 * one.width


def test_measure_of_classes_and_numbers_in_another_row_order_answers_alike() -> None:
    order = np.random.default_rng(1).permutation(N)
    for y, d in ((Y, D), (TARGET, PREDICTED)):
        first, second = (
            measure(y[rows], d[rows], sensitive_features=A[rows], groups=GROUPS, epsilon=math.inf).violation
            for rows in (np.arange(N), order)
        )
        assert first.upper == pytest.approx(second.upper, abs=1e-9)


# --- coverage

TIMES = 120
#: Fewer hits than this happen once in 10,000 times if the coverage is 0.95.
FEWEST = binom.ppf(1e-4, TIMES, 0.95) / TIMES


@pytest.mark.parametrize(
    ("kind", "sizes", "notion", "epsilon"),
    [
        ("6 classes, rare", "2 uneven", "demographic_parity", 1.0),
        ("3 classes, unequal", "2 small", "equalized_odds", 0.5),
        ("normal, equal", "5 uneven", "demographic_parity", 1.0),
        ("tied", "2 small", "demographic_parity", 0.5),
        ("skewed", "2 uneven", "mean_parity", 1.0),
        ("normal, unequal", "2 small", "equal_error", 1.0),
    ],
)
def test_bounds_of_95_percent_hold_the_truth_in_95_percent_of_simulations(
    kind: str, sizes: str, notion: str, epsilon: float
) -> None:
    found = coverage(population(kind, sizes, notion), epsilon, TIMES, seed=1)
    for name in ("violation", "at_most", "largest_gap", "rates"):
        assert found[name] >= FEWEST, name


def test_variance_of_a_group_that_varies_more_than_others_is_not_taken_from_all_rows() -> None:
    """Ten times the standard deviation in a tenth of the rows: bounds from that of all rows would be too narrow."""
    generator = np.random.default_rng(3)
    group = np.repeat(["a", "b"], [4500, 500])
    values = generator.standard_normal(5000) * np.where(group == "b", 10.0, 1.0)
    found = measure(
        None, values, sensitive_features=group, groups=["a", "b"], notion="mean_parity", epsilon=math.inf, noise_seed=1
    )
    line = found.table.loc[("mean_prediction", "b")]
    assert line["upper"] - line["lower"] > 2 * 1.96 * 9.0 / math.sqrt(500)
