"""Private measurement: what it answers, what it costs, what it refuses, and what it says without enough evidence."""

import json
import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from bench.experiments.measure import answers
from justitia import BudgetExceeded, Measurement, PrivacyLedger, measure
from justitia.exceptions import LargeDeltaWarning
from justitia.metrics.bounds import NOT_ENOUGH, Verdict
from justitia.metrics.exact import rates_by_group, violation
from justitia.metrics.rates import METRICS, make_rows
from justitia.notions import NOTIONS, DemographicParity
from justitia.privacy.accounting import gaussian_mu


def people(n: int = 4000, *, seed: int = 0, missing: float = 0.1) -> tuple[Any, Any, Any]:
    """Labels, decisions and attributes of n people; women are selected less often."""
    rng = np.random.default_rng(seed)
    labels = np.array(["F", "M", None], dtype=object)
    A = labels[rng.choice(3, n, p=[0.4 * (1 - missing), 0.6 * (1 - missing), missing])]
    y = (rng.random(n) < 0.3).astype(int)
    return y, (rng.random(n) < np.where(A == "F", 0.15, 0.35) + 0.3 * y).astype(int), A


Y, D, A = people()
GROUPS = ["F", "M"]


def run(**options: Any) -> Measurement:
    return measure(Y, D, **({"sensitive_features": A, "groups": GROUPS, "noise_seed": 1} | options))


@pytest.mark.parametrize("notion", sorted(NOTIONS))
def test_measure_without_noise_gives_the_exact_rates_and_the_exact_violation(notion: str) -> None:
    found = run(notion=notion, epsilon=math.inf)
    exact = rates_by_group(Y, D, sensitive_features=A, groups=GROUPS, notion=notion)
    assert_allclose(found.table["rate"].to_numpy(), exact["rate"].to_numpy(), atol=1e-10)
    assert_allclose(found.table["count"].to_numpy(), exact["count"].to_numpy(), atol=1e-6)
    assert found.violation.estimate == pytest.approx(
        violation(Y, D, sensitive_features=A, groups=GROUPS, notion=notion)
    )
    assert "No privacy guarantee" in found.certificate.statement


def test_measure_has_the_numbers_of_fairlearns_metric_frame() -> None:
    fairlearn = pytest.importorskip("fairlearn.metrics")
    names = ("selection_rate", "true_positive_rate", "false_positive_rate", "true_negative_rate")
    given = np.array([one is not None for one in A])
    frame = fairlearn.MetricFrame(
        metrics={name: getattr(fairlearn, name) for name in names},
        y_true=Y[given],
        y_pred=D[given],
        sensitive_features=pd.Series(A[given]),
    )
    found = measure(
        Y[given], D[given], sensitive_features=A[given], groups=GROUPS, metrics=names, epsilon=math.inf, noise_seed=1
    )
    assert_allclose(found.by_group.to_numpy(), frame.by_group.to_numpy(dtype=float), atol=1e-9)
    assert_allclose(found.overall.to_numpy(), frame.overall.to_numpy(dtype=float), atol=1e-12)
    for method in ("between_groups", "to_overall"):
        assert_allclose(found.difference(method), frame.difference(method=method).astype(float), atol=1e-9)
        assert_allclose(found.ratio(method), frame.ratio(method=method).astype(float), atol=1e-9)
    assert_allclose(found.group_min(), frame.group_min().astype(float), atol=1e-9)
    assert_allclose(found.group_max(), frame.group_max().astype(float), atol=1e-9)


def test_measure_spends_all_of_epsilon_on_one_release_of_unit_rows() -> None:
    ledger = PrivacyLedger(epsilon=0.5, delta=1e-5)
    found = run(epsilon=0.5, notion=["demographic_parity", "equalized_odds"], ledger=ledger)
    (release,) = ledger.releases
    assert (release.purpose, release.sensitivity) == ("group rates", pytest.approx(math.sqrt(2), rel=1e-9))
    assert ledger.epsilon() == pytest.approx(0.5, rel=1e-9)
    assert found.certificate.epsilon == ledger.epsilon()
    with pytest.raises(BudgetExceeded):
        run(epsilon=0.1, ledger=ledger)
    assert len(ledger.releases) == 1


def test_measure_answers_as_the_simulations_of_the_experiment_assume() -> None:
    codes = np.array([GROUPS.index(one) if one in GROUPS else 2 for one in A])
    exact = np.array([[np.sum((codes == a) & (y == Y) & (d == D)) for y in (0, 1) for d in (0, 1)] for a in range(3)])
    rows = make_rows([METRICS["selection_rate"]], exact.sum(0).astype(float))
    scale = math.sqrt(2) / gaussian_mu(0.5, 1e-5)
    draws = [run(epsilon=0.5, noise_seed=seed).noisy for seed in range(200)]
    errors = np.array([[one.counts[:, 0], one.sums[:, 0]] for one in draws])
    errors -= np.array([exact[:2].sum(1), exact[:2, [1, 3]].sum(1)])
    said = rows.read(np.zeros((2, 2)), scale**2)
    # Chi-square of 200 draws: within a third of the variance; the mean within four standard errors.
    assert_allclose(errors[:, 0].var(0), said.var_count[0, 0], rtol=0.35)
    assert_allclose(errors[:, 1].var(0), said.var_sum[0, 0], rtol=0.35)
    assert np.abs(errors.mean(0)).max() < 4 * math.sqrt(said.var_count[0, 0] / 200)
    assert np.corrcoef(errors[:, 0].T)[0, 1] == pytest.approx(said.cross, abs=0.2)
    # The experiment's own answers to people who all gave their attribute have the same law.
    ((_, simulated),) = answers(np.repeat(exact[None, :2].astype(float), 400, 0), 0.5, np.random.default_rng(0))
    wrong = simulated.counts[..., 0] - exact[:2].sum(1)
    assert_allclose(wrong.var(0), simulated.var_count[0, 0, 0], rtol=0.3)
    assert abs(wrong.mean()) < 4 * math.sqrt(simulated.var_count[0, 0, 0] / 800)


def test_measure_of_income_sized_data_at_half_an_epsilon_is_narrower_than_a_twentieth() -> None:
    y, d, a = people(9_000, missing=0.0)
    found = measure(y, d, sensitive_features=a, groups=GROUPS, epsilon=0.5, noise_seed=2)
    assert found.violation.width < 0.05
    assert found.violation.lower < found.violation.estimate < found.violation.upper


def test_measure_of_crossed_columns_names_the_intersections() -> None:
    table = pd.DataFrame({"sex": A, "young": Y == 0})
    found = run(sensitive_features=table, groups={"sex": GROUPS, "young": [True, False]}, epsilon=5.0)
    assert found.by_group.index[0] == "sex=F & young=True"
    assert found.by_group.notna().all().all()


def test_group_that_nobody_is_in_is_not_enough_evidence_and_never_zero() -> None:
    found = run(groups=["F", "M", "X"], epsilon=1.0, threshold=0.9)
    assert found.unknown_groups == ("X",)
    assert np.isnan(found.by_group.loc["X", "selection_rate"])
    line = found.table.loc[("selection_rate", "X")]
    assert (line["lower"], line["upper"], line["evidence"]) == (0.0, 1.0, NOT_ENOUGH)
    assert "not enough evidence" in str(found)
    assert found.violation.upper < 0.9
    assert found.test(0.9).answer == NOT_ENOUGH  # nothing is known about X
    assert str(found.test(0.9)).endswith("each bound for itself among the groups that are known, not X.")
    assert found.test(0.01).answer == "above"
    assert run(epsilon=1.0).test(0.9).answer == "below"


def test_thirty_people_at_a_small_epsilon_are_not_enough_evidence_for_anything() -> None:
    y, d, a = people(30)
    found = measure(y, d, sensitive_features=a, groups=GROUPS, epsilon=0.1, noise_seed=0, threshold=0.1)
    assert found.by_group.isna().all().all()
    assert (found.violation.lower, found.violation.upper) == (0.0, 1.0)
    assert str(found.violation) == NOT_ENOUGH
    assert found.verdicts["demographic_parity"].answer == NOT_ENOUGH
    assert np.isnan(found.difference()["selection_rate"])
    assert json.loads(found.to_json())["violations"]["demographic_parity"]["estimate"] is None


def test_test_of_a_threshold_errs_at_most_as_often_as_it_says() -> None:
    """At a violation of exactly the threshold both "below" and "above" are mistakes."""
    rng = np.random.default_rng(5)
    a = np.repeat(["F", "M"], 600)
    told = []
    for seed in range(150):
        d = (rng.random(1200) < np.where(a == "F", 0.3, 0.45)).astype(int)
        found = measure(Y[:1200], d, sensitive_features=a, groups=GROUPS, epsilon=1.0, noise_seed=seed)
        told.append(found.test(0.15).answer)
    # Each mistake has probability 0.05 at most ("above": 0.025); 17 of 150 in one direction would be one in 10,000.
    assert told.count("below") < 17
    assert told.count("above") < 12
    assert told.count("below") > 0


def test_verdict_says_threshold_and_confidence_in_words() -> None:
    found = run(epsilon=5.0)
    below, above = found.test(0.5), found.test(0.01)
    assert str(below).startswith("demographic_parity: below 0.5 at 0.95 confidence; the one-sided upper bound is 0.2")
    assert below.at_most < found.violation.upper  # the bound that the verdict used, not the two-sided one
    assert str(above) == f"demographic_parity: above 0.01 at 0.95 confidence; the lower bound is {above.at_least:.3f}."
    assert "not enough evidence at 0.95 confidence to call it below or above" in str(
        found.test(found.violation.estimate)
    )


def test_measure_of_several_notions_asks_for_the_name_of_one() -> None:
    found = run(notion=[DemographicParity(), "equalized_odds"], metrics="precision_score")
    assert list(found.violations) == ["demographic_parity", "equalized_odds", "precision_score"]
    assert list(found.by_group) == ["selection_rate", "false_positive_rate", "true_positive_rate", "precision_score"]
    with pytest.raises(ValueError, match="expected one notion, got 3"):
        _ = found.violation
    assert found.test(0.9, "equalized_odds").answer == "below"


def test_certificate_with_training_on_other_people_states_the_larger_cost_and_the_condition() -> None:
    training = run(epsilon=2.0).certificate
    found = run(epsilon=0.5, disjoint_from=training)
    (remark,) = found.certificate.remarks
    assert "together with the other certificate: (2, 1e-05)-differentially private" in remark
    assert remark.endswith("provided that nobody is in both.")
    assert "infinite" in run(disjoint_from=run(epsilon=math.inf).certificate).certificate.remarks[0]


def test_certificate_with_earlier_looks_at_the_same_people_adds_their_costs() -> None:
    looks = [run(epsilon=1.0).certificate for _ in range(3)]
    (remark,) = run(epsilon=1.0, after=looks).certificate.remarks
    assert "together with the 3 other certificates, costs of all of them added" in remark
    assert "(2.155, 1e-05)-differentially private" in remark
    (remark,) = run(epsilon=1.0, after=looks[:1], disjoint_from=run(epsilon=2.0).certificate).certificate.remarks
    assert "(2, 1e-05)-differentially private" in remark
    assert "provided that nobody is in two" in remark


def test_measurement_as_text_and_json_shows_rates_bounds_and_certificate() -> None:
    found = run(epsilon=1.0, threshold=0.5)
    lines = str(found).splitlines()
    assert lines[0] == "4,000 rows, 2 groups; noisy, with bounds at 0.95"
    assert lines[1].split() == ["metric", "group", "rows", "rate", "gap"]
    assert lines[-3].startswith("For reproduction only: the noise was seeded, so nothing is promised.")
    assert max(map(len, lines)) <= 96
    facts = json.loads(found.to_json())
    assert facts["violations"]["demographic_parity"]["lower"] == found.violation.lower
    assert facts["certificate"]["releases"][0]["purpose"] == "group rates"
    verdict = facts["verdicts"]["demographic_parity"]
    assert (verdict["answer"], verdict["at_most"]) == ("below", facts["violations"]["demographic_parity"]["at_most"])


def test_measure_with_other_row_order_and_labels_of_another_kind_answers_alike() -> None:
    order = np.random.default_rng(0).permutation(len(Y))
    words = np.array(["no", "yes"])
    found = measure(
        words[Y[order]],
        pd.Series(words[D[order]]),
        sensitive_features=pd.Series(A[order]),
        groups=GROUPS,
        epsilon=math.inf,
    )
    assert_allclose(
        found.table.drop(columns="evidence"), run(epsilon=math.inf).table.drop(columns="evidence"), atol=1e-9
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"groups": None}, "expected the public list of groups"),
        ({"notion": "equal_odds"}, "did you mean 'equalized_odds'"),
        ({"metrics": "recall"}, "no metrics 'recall'"),
        ({"metrics": []}, "expected at least one of metrics"),
        ({"notion": ["demographic_parity"] * 2}, "expected each notion and metric once"),
        ({"epsilon": 0}, "epsilon=0 allows no question"),
        ({"delta": 0.0}, "delta=0 rules out Gaussian noise"),
        ({"confidence": 0.3}, "expected a confidence of at least 0.5"),
        ({"threshold": -1}, "expected threshold to be a finite number of at least 0"),
        ({"sensitive_features": A[:10]}, "expected the same number of rows everywhere"),
        ({"ledger": 1.0}, "expected ledger to be a PrivacyLedger"),
        ({"disjoint_from": "training"}, "expected disjoint_from to be a Certificate"),
        ({"after": ["training"]}, "expected after to be a list of Certificates"),
        ({"noise_seed": -1}, "expected noise_seed to be at least 0"),
    ],
)
def test_wrong_input_gets_one_sentence_before_anything_is_spent(options: dict[str, Any], sentence: str) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises((ValueError, TypeError), match=sentence):
        run(**({"ledger": ledger} | options))
    assert ledger.releases == ()


def test_event_without_rows_is_refused_because_labels_are_public() -> None:
    with pytest.raises(ValueError, match="expected rows in the event of 'true_positive_rate', got none"):
        measure(np.zeros(10), np.ones(10), sensitive_features=["F", "M"] * 5, groups=GROUPS, notion="equal_opportunity")


def test_large_delta_for_few_people_is_warned_of() -> None:
    with pytest.warns(LargeDeltaWarning):
        run(delta=0.01)


def test_decisions_that_are_all_alike_have_rate_zero_in_every_known_group() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = measure(Y, 0 * Y, sensitive_features=A, groups=GROUPS, notion="demographic_parity", noise_seed=1)
    assert found.by_group["selection_rate"].tolist() == [0.0, 0.0]
    assert 0 < found.violation.upper < 0.02


def test_bound_beside_its_threshold_has_as_many_decimals_as_show_its_side() -> None:
    doubt = Verdict(NOT_ENOUGH, 0.1, 0.95, 0.019, 0.100106, "demographic_parity").sentence
    assert "between 0.019 and 0.1001, each bound for itself." in doubt
    assert "upper bound is 0.0997." in Verdict("below", 0.1, 0.95, 0.0, 0.0997, "v").sentence
    nothing = Verdict(NOT_ENOUGH, 0.8, 0.95, 0.0, 1.0, "smallest impact ratio", ("a", "b")).sentence
    assert nothing.endswith("to call it below or above 0.8, or to bound it.")
