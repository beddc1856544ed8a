"""Impact ratios, significance, shortfall and score metrics: exact without noise, sound with it."""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import ks_2samp, norm
from sklearn.metrics import roc_auc_score

from bench.experiments.coverage import CONFIDENCE, RATES, SIZES, Population, answers, coverage
from justitia import Measurement, PrivacyLedger, measure
from justitia.metrics.bounds import NOT_ENOUGH
from justitia.metrics.impact import pairwise_ratios
from justitia.metrics.quantiles import KS_LOWER_SHARE, conservative, ks_quantiles, sidak_quantile

N = 4000
RNG = np.random.default_rng(0)
A = np.where(RNG.random(N) < 0.3, "F", "M")
Y = (RNG.random(N) < 0.4).astype(int)
S = RNG.standard_normal(N) + Y + 0.3 * (A == "M")
D, D0 = (S > 1).astype(int), (S > 0.7).astype(int)
GROUPS = ["F", "M"]


def run(**options: Any) -> Measurement:
    given = {"sensitive_features": A, "groups": GROUPS, "scores": S, "before": D0, "noise_seed": 1}
    return measure(Y, D, **given | options)


@pytest.fixture(scope="module")
def exact() -> Measurement:
    return run(epsilon=math.inf, reference="M")


# --- without noise: the usual numbers


def test_impact_without_noise_has_the_usual_ratio_z_and_shortfall(exact: Measurement) -> None:
    line = exact.impact().table.loc["F"]
    f, m = D[A == "F"], D[A == "M"]
    pooled = D.mean()
    assert line["impact_ratio"] == pytest.approx(f.mean() / m.mean())
    assert line["z"] == pytest.approx(
        (f.mean() - m.mean()) / math.sqrt(pooled * (1 - pooled) * (1 / len(f) + 1 / len(m)))
    )
    assert line["shortfall"] == pytest.approx(len(f) * (m.mean() - f.mean()))
    assert line["lower"] < line["impact_ratio"] < line["upper"]
    assert (line["practically_significant"], line["statistically_significant"]) == (True, True)
    assert exact.impact().table.loc["M", ["impact_ratio", "lower", "upper"]].tolist() == [1.0, 1.0, 1.0]
    assert exact.impact().not_given == pytest.approx(0.0, abs=1e-6)


def test_ratio_bounds_of_large_samples_are_those_of_the_delta_method(exact: Measurement) -> None:
    (p, q), n = exact.by_group["selection_rate"], [(g == A).sum() for g in GROUPS]
    spread = math.sqrt((1 - p) / (p * n[0]) + (1 - q) / (q * n[1]))
    value, lower, upper = (one[0, 1, 0] for one in pairwise_ratios(exact.noisy.select([0]), 1.96))
    assert value == pytest.approx(p / q)
    assert_allclose([lower, upper], [value * math.exp(-1.96 * spread), value * math.exp(1.96 * spread)], rtol=0.01)


def test_scores_without_noise_have_the_usual_metrics(exact: Measurement) -> None:
    assert exact.scores is not None
    table = exact.scores.table
    f, m = S[A == "F"], S[A == "M"]
    assert table.loc["F", "mean_score"] == pytest.approx(f.mean())
    assert table.loc["F", "standardized_mean_difference"] == pytest.approx((f.mean() - m.mean()) / S.std())
    cuts = np.quantile(S, np.arange(1, 10) / 10)
    at_cuts = max(abs((f > cut).mean() - (m > cut).mean()) for cut in cuts)
    assert table.loc["F", "ks_distance"] == pytest.approx(at_cuts)
    assert at_cuts <= ks_2samp(f, m).statistic
    bins = np.searchsorted(cuts, S, side="left")
    for group in GROUPS:
        line, here = table.loc[group], group == A
        assert line["binned_auc"] == pytest.approx(roc_auc_score(Y[here], bins[here]))  # ties count one half
        assert line["auc_lower"] < line["binned_auc_lower"] < line["binned_auc_upper"] < line["auc_upper"]
        assert line["auc_lower"] < roc_auc_score(Y[here], S[here]) < line["auc_upper"]
    rate = exact.scores.scoring.table["rate"]
    assert rate["F"] == pytest.approx((f > np.median(S)).mean())
    calibration = exact.scores.calibration
    here = (cuts[-1] < S) & (A == "F")
    assert calibration.loc[(10, "F"), "rate"] == pytest.approx(Y[here].mean())
    assert exact.scores.curve.loc[(cuts[0], "F"), "rate"] == pytest.approx((f > cuts[0]).mean())


def test_decisions_before_are_measured_in_the_same_release(exact: Measurement) -> None:
    assert exact.before is not None
    assert exact.before.by_group["selection_rate"].tolist() == pytest.approx([D0[g == A].mean() for g in GROUPS])
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    found = run(epsilon=1.0, ledger=ledger)
    assert len(ledger.releases) == 1
    assert ledger.epsilon() == pytest.approx(1.0, rel=1e-9)
    assert found.before is not None
    assert found.before.violation.lower < abs(np.diff([D0[g == A].mean() for g in GROUPS])[0]) + 0.1


# --- with noise


def test_best_group_is_the_reference_where_none_is_named() -> None:
    impact = run(epsilon=5.0).impact()
    assert (impact.ratio_to, impact.compared_with) == ("the highest rate", "everybody else")
    assert impact.table["impact_ratio"].max() == 1.0
    assert impact.table.loc["M", "upper"] == 1.0
    assert impact.table["z"].prod() < 0  # one above and one below everybody else


def test_small_groups_and_rows_without_a_group_are_counted_with_noise() -> None:
    labels = [None if i % 10 == 0 else "X" if i % 100 == 1 else str(one) for i, one in enumerate(A)]
    impact = run(sensitive_features=labels, groups=[*GROUPS, "X"], epsilon=5.0).impact()
    assert impact.not_given == pytest.approx(N / 10, abs=5 * impact.count_deviation)
    assert impact.table["small"].tolist() == [False, False, True]


def test_nobody_in_a_group_is_not_enough_evidence_for_anything() -> None:
    found = run(groups=[*GROUPS, "X"], epsilon=1.0, reference="X")
    table = found.impact().table
    assert table["impact_ratio"].isna().all()
    assert set(table["four_fifths"]) == {NOT_ENOUGH}
    assert found.impact().verdict.answer == NOT_ENOUGH
    assert found.scores is not None
    assert found.scores.table["ks_distance"].isna().all()
    facts = json.loads(found.to_json())
    assert facts["impact"]["by_group"][0]["impact_ratio"] is None
    assert facts["scores"]["by_group"][2]["binned_auc"] is None


def test_noise_is_in_the_variance_of_z() -> None:
    quiet = abs(run(epsilon=50.0, reference="M").impact().table.loc["F", "z"])
    loud = [abs(run(epsilon=0.05, reference="M", noise_seed=k).impact().table.loc["F", "z"]) for k in range(8)]
    assert np.nanmean(loud) < 0.8 * quiet


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"scores": S[:10]}, "expected one score per row"),
        ({"scores": np.full(N, 0.5)}, "expected scores that differ"),
        ({"scores": np.where(Y == 1, np.nan, S)}, "expected a finite score in every row"),
        ({"scores": np.where(np.arange(len(S)) == 3, 1e300, S)}, r"expected scores between -1e\+100 and 1e\+100, got"),
        ({"scores": ["high"] * N}, "expected scores to be numbers"),
        ({"score_bins": 7}, "expected an even score_bins"),
        ({"reference": "K"}, "no reference 'K'"),
        ({"before": D0[:5]}, "expected the same number of rows"),
    ],
)
def test_wrong_scores_and_references_are_refused_before_anything_is_spent(options: Any, sentence: str) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises((ValueError, TypeError), match=sentence):
        run(**options, ledger=ledger)
    assert ledger.releases == ()


def test_scores_with_few_values_have_fewer_bins() -> None:
    found = run(scores=D, epsilon=math.inf)
    assert found.scores is not None
    assert len(found.scores.curve) <= 4
    assert found.scores.table["binned_auc"].tolist() == pytest.approx(
        [roc_auc_score(Y[g == A], D[g == A]) for g in GROUPS]
    )


# --- coverage: a small version of results/coverage.csv


def test_bounds_hold_the_truth_as_often_as_they_say() -> None:
    population = Population(np.array(SIZES["300"][2]), np.array(RATES["boundary"][2]))
    found = coverage(population, 1.0, 500, seed=3)
    # Four standard errors of a share of 0.95 among 500 are 0.039.
    for name in ("ratio", "ratio_to_best", "shortfall", "ks_distance", "auc"):
        assert found[f"{name}_told"] > 0.9
        assert found[f"{name}_holds"] > 0.911, name
    assert max(found[name] for name in found if name.startswith("wrong")) < 0.089
    equal = coverage(Population(np.array([300, 300]), np.array([0.3, 0.3])), 1.0, 500, seed=4)
    assert 0.911 < equal["z_holds"] < 0.99


def test_bounds_without_the_noise_in_them_would_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above can fail: with bounds for a tenth of the noise it does."""
    population = Population(np.array([300, 300]), np.array([0.35, 0.28]))
    real = answers

    def understated(*given: Any) -> Any:
        for noisy, scores, size in real(*given):
            quiet = {name: getattr(noisy, name) / 100 for name in ("var_sum", "cov", "var_count")}
            yield type(noisy)(**vars(noisy) | quiet), scores, size

    monkeypatch.setattr("bench.experiments.coverage.answers", understated)
    assert coverage(population, 0.1, 200, seed=3)["ratio_holds"] < 0.85


def test_simulated_answers_have_the_law_of_the_release() -> None:
    """One population of the experiment against ``measure`` on people drawn from it."""
    population = Population(np.array([400, 400]), np.array([0.4, 0.3]))
    rng = np.random.default_rng(2)
    ((simulated, _, _),) = answers(population, 1.0, 200, rng)
    a = np.repeat([0, 1], 400)
    bins = np.array([rng.choice(10, p=population.bins[one]) for one in a])
    y = (rng.random(800) < 0.05 + 0.09 * bins).astype(int)
    found = measure(
        y, bins >= 7, sensitive_features=a, groups=[0, 1], scores=bins + 0.0, epsilon=1.0, noise_seed=0, pos_label=1
    )
    assert_allclose(found.noisy.var_count[0, 0], simulated.var_count[0, 0], rtol=0.15)
    assert_allclose(found.noisy.var_sum[0, 0], simulated.var_sum[0, 0], rtol=0.15)
    assert norm.sf(3) < 0.01


# --- where bounds are least sure


def test_auc_bounds_hold_where_scores_nearly_tell_the_label() -> None:
    """An AUC of 0.98: bounds that are symmetric on the logit scale held about 65% here."""
    steep = 1 / (1 + np.exp(-2 * (np.arange(10) - 4.5)))
    population = Population(np.full(5, 300), np.full(5, 0.3), steep)
    assert population.aucs[0] > 0.97
    assert 0.911 < coverage(population, 1.0, 500, seed=3)["auc_holds"] < 0.99


@dataclass(frozen=True)
class Apart(Population):
    """The second group differs from the first by these numbers at the nine cut points."""

    shape: Any = 0.0

    @property
    def bins(self) -> Any:
        above = np.stack([1 - np.arange(11) / 10] * 2)
        above[1, 1:-1] += self.shape
        return -np.diff(above, axis=1)


@pytest.mark.parametrize(
    ("shape", "size", "epsilon"),
    [
        (0.05 * (np.arange(9) == 4), 30000, 0.5),  # one cut point alone: the upper bound
        (0.05 * np.ones(9), 3000, 1.0),  # all of them: the lower bound
        (0.04 * np.where(np.arange(9) < 4, -1, 1), 300, 5.0),  # on both sides, with few people
        (0.02 * (-1.0) ** np.arange(9), 3000, 1.0),  # on both sides in turn, at twice the error
    ],
)
def test_distance_bounds_hold_where_they_fail_most_often(shape: Any, size: int, epsilon: float) -> None:
    population = Apart(np.array([size, size]), np.array([0.3, 0.3]), shape=shape)
    assert_allclose(population.distances[1], np.abs(shape).max())
    found = coverage(population, epsilon, 1000, seed=5)["ks_distance_holds"]
    assert 0.922 < found < 0.98  # four standard errors of a share of 0.95 among 1,000 are 0.028


def test_reach_of_a_distance_is_that_of_the_sides_that_may_be_largest() -> None:
    each = np.array(conservative(CONFIDENCE) ** (1 / 4))  # of four comparisons
    nothing, all_above = (float(ks_quantiles(apart, np.eye(9), each)[0]) for apart in (np.zeros(9), np.full(9, 20.0)))
    assert nothing == pytest.approx(sidak_quantile(float(each), 9), abs=0.03)
    assert all_above == pytest.approx(norm.ppf(each ** (1 / 9)), abs=0.03)
    alone, above = (float(one) for one in ks_quantiles(20.0 * (np.arange(9) == 3), np.eye(9), each))
    assert norm.sf(alone) == pytest.approx(KS_LOWER_SHARE * (1 - each))
    assert norm.sf(alone) + norm.sf(above) == pytest.approx(1 - each)
