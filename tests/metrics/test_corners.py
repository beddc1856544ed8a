"""Bounds and verdicts in corners: rates of 0 and 1, scores that a bin hides, several rows per person, no labels."""

import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score

from bench.experiments.corners import AUC, PERSONS, RATES, of_auc, of_persons, of_rates
from justitia import Measurement, PrivacyLedger, measure
from justitia.metrics.bounds import Repeats
from justitia.metrics.person_rows import PersonRows
from justitia.metrics.quantiles import normal_quantile

TIMES = 600
#: Four standard errors of a share of 0.05 among as many simulations.
SLACK = 4 * math.sqrt(0.05 * 0.95 / TIMES)

# --- rates of exactly 0 and 1


@pytest.mark.parametrize(
    ("case", "epsilon"),
    [
        ("100 at 1, 3,000 at 0.9", 1.0),
        ("50 at 1, 3,000 at 0.9", 1.0),
        ("15 at 1, 3,000 at 0.9", 1.0),
        ("100 at 1, 3,000 at 0.8", 0.5),
        ("100 at 0, 3,000 at 1", 1.0),
        ("100 at 0, 3,000 at 1", math.inf),
        ("15 at 0, 3,000 at 0.1", math.inf),
        ("15 to 3,000 in ten, 3,000 at 0.9, others at 1", 0.5),
        ("ten of 100, five at 1, five at 0.8", 1.0),
    ],
)
def test_bounds_and_verdicts_hold_where_a_rate_is_exactly_zero_or_one(case: str, epsilon: float) -> None:
    """With rates and bounds clipped to [0, 1], the first two said "below" wrongly in 19% and 27%."""
    found = of_rates(RATES[case], epsilon, TIMES, seed=1)
    assert found["coverage"] >= 0.95 - SLACK
    assert found["largest_gap"] >= 0.95 - SLACK
    for name in ("wrong_below", "wrong_above", "wrong_four_fifths"):
        assert math.isnan(found[name]) or found[name] <= 0.05 + SLACK, name


def test_bounds_of_five_groups_hold_where_one_rate_is_one() -> None:
    found = of_rates(RATES["five of 100, one at 1, others at 0.9"], 1.0, 150, seed=1)
    assert found["coverage"] >= 0.95 - 2 * SLACK
    assert max(found["wrong_below"], found["wrong_above"]) <= 0.05 + 2 * SLACK


def test_verdict_of_a_measurement_errs_in_at_most_five_percent_at_a_rate_of_one() -> None:
    """The same with ``justitia.measure``: 50 people at 1 and 3,000 at 0.9 are 0.1 apart."""
    rng = np.random.default_rng(5)
    group = np.repeat(["small", "large"], [50, 3000])
    answers = []
    for seed in range(150):
        decided = (rng.random(3050) < np.where(group == "small", 1.0, 0.9)).astype(int)
        found = measure(
            decided, decided, sensitive_features=group, groups=["small", "large"], epsilon=1.0, noise_seed=seed
        )
        answers.append(found.test(0.1).answer)
    assert answers.count("below") / 150 <= 0.12  # four standard errors are 0.071; clipped, it was 0.27


def test_estimate_between_clipped_rates_lies_within_its_bounds() -> None:
    group, decided = np.repeat(["a", "b"], [60, 60]), np.repeat([1, 0], [60, 60])
    for seed in range(40):
        found = measure(decided, decided, sensitive_features=group, groups=["a", "b"], epsilon=1.0, noise_seed=seed)
        one, ratio = found.violation, found.impact().table
        assert 0 <= one.lower <= one.estimate <= one.upper <= 1 or math.isnan(one.estimate)
        known = ratio["impact_ratio"].notna()
        assert (ratio["lower"] <= ratio["impact_ratio"])[known].all()
        assert (ratio["impact_ratio"] <= ratio["upper"])[known].all()


# --- AUC


def hidden_in_a_bin(*, rightly: bool) -> tuple[Any, Any, Any]:
    """60,000 people with even scores, of whom 1,500 in the top decile are a group: scores, labels, groups."""
    scores = (np.arange(60_000) + 0.5) / 60_000
    group = np.full(60_000, "others", dtype=object)
    group[57_000:58_500] = "hidden"
    y = np.arange(60_000) % 2
    y[57_000:58_500] = np.repeat([0, 1] if rightly else [1, 0], 750)
    return scores, y, group


@pytest.mark.parametrize("rightly", [False, True])
def test_auc_bounds_hold_however_people_are_ranked_within_a_bin(rightly: bool) -> None:
    """Ranks within a bin were taken to be everybody's: 0.22 [0.18, 0.26] was printed for an AUC of 0."""
    scores, y, group = hidden_in_a_bin(rightly=rightly)
    here = group == "hidden"
    assert roc_auc_score(y[here], scores[here]) == float(rightly)
    found = measure(
        y,
        (scores > 0.5).astype(int),
        sensitive_features=group,
        groups=["hidden", "others"],
        scores=scores,
        epsilon=1.0,
        noise_seed=0,
    )
    assert found.scores is not None
    line = found.scores.table.loc["hidden"]
    assert line["auc_lower"] <= float(rightly) <= line["auc_upper"]
    assert line["binned_auc_lower"] <= 0.5 <= line["binned_auc_upper"]  # ties count one half
    assert "roc_auc_score" not in line.index


@pytest.mark.parametrize("epsilon", [0.5, 1.0, math.inf])
@pytest.mark.parametrize("case", AUC)
def test_bounds_of_binned_and_exact_auc_hold_in_corners(case: str, epsilon: float) -> None:
    found = of_auc(AUC[case], epsilon, TIMES, seed=2)
    assert found["coverage"] >= 0.95 - SLACK
    assert found["exact_auc"] >= 0.95 - SLACK


# --- several rows per person


def test_design_effect_is_the_largest_that_so_many_rows_may_have() -> None:
    alike = Repeats.from_codes(np.repeat(np.arange(50), 10))
    assert_allclose(alike.design_effect(np.array([5.0, 100.0, 500.0, 900.0])), 10.0)
    mixed = Repeats.from_codes(np.concatenate([np.repeat(np.arange(10), 10), 10 + np.arange(900)]))
    # 100 rows may be those of ten persons; of 1,000 rows these are a tenth.
    assert_allclose(mixed.design_effect(np.array([100.0, 1000.0])), [10.0, (10 * 100 + 900) / 1000])
    assert_allclose(Repeats.from_codes(np.arange(40)).design_effect(np.array([-3.0, 7.0, 400.0])), 1.0)
    assert np.isnan(mixed.design_effect(np.array([np.nan]))[0])


def test_design_effect_counts_the_rows_of_an_event_and_of_those_the_ones_that_groups_hold() -> None:
    rows = PersonRows.from_ids(["a"] * 6 + ["b", "c", "d", "e", "f", "g"], 12)
    assert rows.persons.rows_each == 1
    own, rest = rows.repeats(np.arange(12) < 8)
    assert own.design_effect(np.array([3.0])) == 1.0  # one row of each person
    assert_allclose(rest.design_effect(np.array([8.0])), (36 + 1 + 1) / 8)


def persons_measured(rng: np.random.Generator, *, alike: bool, epsilon: float, ids: bool = True) -> Measurement:
    person = np.repeat(np.arange(200), 10)
    group = np.where(person < 100, "a", "b")
    chance = np.where(group == "a", 0.3, 0.5)
    decided = (rng.random(200)[person] if alike else rng.random(2000)) < chance
    d = decided.astype(int)
    given = {"person": person} if ids else {}
    return measure(d, d, sensitive_features=group, groups=["a", "b"], epsilon=epsilon, **given)


def test_bounds_with_ids_hold_where_all_rows_of_a_person_are_alike() -> None:
    rng = np.random.default_rng(7)
    found = [persons_measured(rng, alike=True, epsilon=math.inf).violation for _ in range(150)]
    held = np.mean([one.lower <= 0.2 <= one.upper for one in found])
    assert held >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / 150)  # without the design effect: about one half


def test_bounds_with_ids_of_one_row_each_are_those_without_ids() -> None:
    rng = np.random.default_rng(8)
    group, d = rng.choice(["a", "b"], 900), (rng.random(900) < 0.3).astype(int)
    options: Any = {"sensitive_features": group, "groups": ["a", "b"], "epsilon": math.inf, "scores": rng.random(900)}
    without, given = (measure(d, d, **options, **more) for more in ({}, {"person": np.arange(900)}))
    first, second = (json.loads(one.to_json()) for one in (without, given))
    for name in ("by_group", "violations", "largest_gaps", "impact", "scores"):
        assert first[name] == second[name]


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_bounds_of_ten_rows_per_person_hold_and_are_too_wide_for_independent_rows(alike: bool, epsilon: float) -> None:
    found = of_persons(PERSONS["300 persons at 0.3, 300 at 0.5"], epsilon, TIMES, seed=3, alike=alike)
    assert found["coverage"] >= (0.95 - SLACK if alike else 0.99)
    assert max(found["wrong_below"], found["wrong_above"]) <= 0.05 + SLACK


def test_every_bound_is_wider_with_ids_of_several_rows() -> None:
    rng = np.random.default_rng(9)
    person = np.repeat(np.arange(300), 10)
    group = rng.choice(["a", "b"], 300)[person]
    s = rng.normal(size=300)[person] + 0.3 * (group == "a")
    y, d = (rng.random(300) < 0.4).astype(int)[person], (s > 0.4).astype(int)
    options: Any = {"sensitive_features": group, "groups": ["a", "b"], "epsilon": math.inf, "scores": s, "before": y}
    narrow, wide = (measure(y, d, **options, **more) for more in ({}, {"person": person}))
    assert narrow.scores is not None
    assert wide.scores is not None
    assert narrow.before is not None
    assert wide.before is not None
    assert wide.violation.width > 2 * narrow.violation.width
    assert wide.before.violation.width > 1.5 * narrow.before.violation.width
    for name in ("standardized_mean_difference", "ks_distance", "binned_auc"):
        first, second = (
            (one.scores.table[f"{name}_upper"] - one.scores.table[f"{name}_lower"])
            for one in (narrow, wide)
            if one.scores
        )
        assert (second > 1.5 * first).all(), name
    tables = [one.impact().table for one in (narrow, wide)]
    assert (tables[1]["z"].abs() < 0.5 * tables[0]["z"].abs()).all()
    quantile = normal_quantile(0.95)
    assert (np.diff(wide.noisy.gaps(quantile)[1:], axis=0) > np.diff(narrow.noisy.gaps(quantile)[1:], axis=0)).all()


@pytest.mark.parametrize(("ids", "sentence"), [([1, 2], "expected one id per row"), ("abc", "one column of ids")])
def test_wrong_ids_are_refused_before_anything_is_spent(ids: Any, sentence: str) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    d = np.tile([0, 1], 50)
    with pytest.raises((ValueError, TypeError), match=sentence):
        measure(d, d, sensitive_features=d, groups=[0, 1], person=ids, ledger=ledger)
    assert ledger.releases == ()


# --- no labels


def test_measurement_without_labels_has_selection_rates_and_scores_without_auc_or_calibration() -> None:
    rng = np.random.default_rng(10)
    group, s = rng.choice(["a", "b"], 600), rng.normal(size=600)
    options: Any = {"sensitive_features": group, "groups": ["a", "b"], "noise_seed": 0, "scores": s}
    found = measure(None, (s > 0).astype(int), **options)
    assert list(found.by_group) == ["selection_rate"]
    assert found.scores is not None
    assert not [name for name in found.scores.table if "auc" in name]
    assert found.scores.calibration.empty
    facts = json.loads(found.to_json())["scores"]
    assert (facts["labelled"], facts["calibration"]) == (False, [])
    assert facts["by_group"][0]["ks_distance"] is not None


def test_measurement_without_labels_refuses_notions_that_need_them_before_anything_is_spent() -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    d = np.tile([0, 1], 50)
    for asked in ({"notion": "equalized_odds"}, {"metrics": ["selection_rate", "accuracy_score"]}):
        with pytest.raises(ValueError, match="expected labels in y_true for"):
            measure(None, d, sensitive_features=d, groups=[0, 1], ledger=ledger, **asked)
    assert ledger.releases == ()
