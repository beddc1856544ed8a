"""What the frontier's claims count, on hand-made results: matched rivals, chance, and the price of privacy."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.experiments import curves, frontier, repeats
from bench.experiments.curves import advantage, by_chance, matched, most_accurate, pareto, shortfall, summarise
from bench.experiments.folds import dataset as load_dataset
from bench.experiments.frontier import (
    AUC_LOSS,
    BEFORE,
    BOOSTED,
    FEW_TOLERANCES,
    LOCAL_OPTIMAL,
    METHOD,
    NOT_PRIVATE,
    TARGETS,
    along,
    cells,
    claims,
    scores_along,
)
from bench.experiments.methods import SMALLER, make
from bench.experiments.runner import Cell
from justitia.datasets import make_synthetic
from justitia.metrics.exact import violation


def row(fold: int, epsilon: float, curve: list[list[Any]], *, floor: float = 0.02, **where: Any) -> dict[str, Any]:
    cell = {"dataset": "bank", "notion": "demographic_parity", "method": METHOD, "seed": 0}
    return cell | {"fold": fold, "epsilon": epsilon, "curve": json.dumps(curve), "floor": floor} | where


def curve_of(*points: tuple[float | None, float, float], floor: float = 0.02) -> pd.DataFrame:
    return summarise(pd.DataFrame([row(0, 1.0, [list(point) for point in points], floor=floor)]))


@pytest.mark.parametrize(
    ("accuracy", "violated", "expected"),
    [
        (0.80, 0.05, True),  # the point itself
        (0.80, 0.049, False),
        (0.801, 0.05, False),
        (0.70, 0.001, True),  # the stricter point is below chance, which counts as none
        (0.701, 0.001, False),
    ],
)
def test_shortfall_asks_one_point_for_both_and_counts_chance_as_met(
    accuracy: float, violated: float, expected: bool
) -> None:
    curve = curve_of((None, 0.80, 0.05), (0.0, 0.70, 0.019))
    assert (shortfall(curve, accuracy, violated) == 0) is expected


def test_shortfall_is_in_standard_errors_of_the_nearest_point() -> None:
    points = [[None, 0.80, 0.05], [0.0, 0.70, 0.03]]
    moved = [[[one, acc + by, violated + by] for one, acc, violated in points] for by in (-0.02, 0.02)]  # errors 0.014
    curve = summarise(pd.DataFrame([row(fold, 1.0, one) for fold, one in enumerate(moved)]))
    error = 0.02 / math.sqrt(2)
    assert shortfall(curve, 0.81, 0.05) == pytest.approx(0.01 / error)
    assert shortfall(curve, 0.80, 0.02) == pytest.approx(0.03 / error)  # 0.03 too much beats 0.1 too little
    assert shortfall(curve, 0.72, 0.001) == pytest.approx(0.02 / error)  # below chance: held against chance, 0.02
    found = matched(curve, lambda _dataset, _notion: {"near": (0.81, 0.05)})
    assert found[0].numbers == "0 of 1 cells, not Bank demographic parity by 0.7 SE"


def test_matched_counts_cells_and_names_the_others() -> None:
    curve = curve_of((None, 0.80, 0.05))
    found = matched(
        curve, lambda _dataset, _notion: {"weak": (0.7, 0.1), "strong": (0.9, 0.01), "A, rerun": (0.9, 0.0)}
    )
    assert [(claim.confirmed, claim.numbers) for claim in found] == [
        (True, "1 of 1 cells"),
        (False, "0 of 1 cells, not Bank demographic parity"),
        (False, "0 of 1 cells, not Bank demographic parity"),
    ]
    assert "in at least" not in found[2].sentence  # ten of fifteen are asked, of one it is one


def found_of(*rows: dict[str, Any]) -> dict[str, Any]:
    return {claim.sentence: claim for claim in claims(pd.DataFrame(list(rows)))}


@pytest.mark.parametrize(
    ("accuracies", "violated", "confirmed", "said"),
    [
        ((0.83, 0.83), 0.04, True, "0.8300 ± 0.0000 and 0.0400 ± 0.0000"),
        ((0.80, 0.83), 0.04, True, "0.8150 ± 0.0106 and 0.0400 ± 0.0000 (missed by less than one standard error)"),
        ((0.81, 0.81), 0.04, False, "0.8100 ± 0.0000 and 0.0400 ± 0.0000"),
        ((0.83, 0.83), 0.05, False, "0.8300 ± 0.0000 and 0.0500 ± 0.0000"),
    ],
)
def test_default_point_meets_its_target_up_to_one_standard_error(
    accuracies: tuple[float, float], violated: float, confirmed: bool, said: str
) -> None:
    assert TARGETS["bank", "demographic_parity"] == (0.82, 0.045)
    rows = [row(fold, 1.0, [[None, one, violated, 0.9]]) for fold, one in enumerate(accuracies)]
    claim = next(one for name, one in found_of(*rows).items() if name.startswith("Default on Bank"))
    assert (claim.confirmed, claim.numbers) == (confirmed, said)


def test_advantage_is_the_mean_at_the_same_violation_where_both_curves_go() -> None:
    ours = np.array([[[0.80, 0.05], [0.84, 0.25]]])
    theirs = np.array([[[0.70, 0.15], [0.84, 0.35]]])
    # where both go: at 0.15 0.82 against 0.70, at 0.25 0.84 against 0.77, at 0.35 0.84 against 0.84
    assert advantage(ours, theirs).value == pytest.approx((0.12 + 0.07 + 0.0) / 3)
    assert math.isnan(advantage(ours, theirs).error)


def test_advantage_of_single_points_has_the_standard_error_of_paired_folds() -> None:
    ours, theirs = (np.array([[[one, 0.1]] for one in values]) for values in ((0.8, 0.9, 0.7), (0.7, 0.7, 0.7)))
    found = advantage(ours, theirs)
    assert found.value == pytest.approx(0.1)
    assert found.error == pytest.approx(np.std([0.1, 0.2, 0.0], ddof=1) / math.sqrt(3))


@pytest.mark.parametrize(
    ("by", "no_worse", "numbers"),
    [(0.02, True, "1 of 1 cells; "), (0.0, True, "0 of 1 cells; "), (-0.02, False, "0 of 1 cells; ")],
)
def test_curves_are_held_against_those_before_beyond_one_standard_error(
    by: float, no_worse: bool, numbers: str
) -> None:
    rows = [row(fold, 1.0, [[None, 0.8 + by + fold / 1000, 0.1]], seed=0) for fold in (0, 1)]
    rows += [row(fold, 1.0, [[None, 0.8, 0.1]], seed=0, method=BEFORE) for fold in (0, 1)]
    rows[0]["curve"] = json.dumps([[None, 0.8 + by - 0.001, 0.1]])
    found = found_of(*rows)
    first = next(one for name, one in found.items() if name.startswith("At the same violation no curve"))
    second = next(one for name, one in found.items() if name.startswith("At least 10 curves"))
    assert first.confirmed is no_worse
    assert second.numbers.startswith(numbers)


def test_price_is_what_the_private_curve_lacks_at_the_same_violation() -> None:
    rows = [row(0, epsilon, [[None, value, 0.1]], seed=0) for epsilon, value in ((1.0, 0.78), (math.inf, 0.80))]
    rows.append(row(0, math.inf, [[None, 0.79, 0.1]], seed=0, method=NOT_PRIVATE))
    found = found_of(*rows)
    median = next(one for name, one in found.items() if "in the median cell" in name)
    beside = next(one for name, one in found.items() if "than LinearPost's" in name)
    assert (median.confirmed, median.numbers) == (False, "median 0.0200, from 0.0200 to 0.0200")
    assert (beside.confirmed, beside.numbers) == (False, "Bank demographic parity +0.0100 ± nan")


def test_curves_of_rivals_are_where_they_are_defined() -> None:
    found = {(cell.method, cell.dataset, cell.notion) for cell in cells(quick=False)}
    assert {notion for method, _, notion in found if method == BOOSTED} == {"equalized_odds"}
    assert {dataset for method, dataset, _ in found if method == LOCAL_OPTIMAL} == set(SMALLER)


@pytest.mark.parametrize("dataset", SMALLER)
def test_smaller_group_is_one_of_the_names_and_the_smaller(dataset: str) -> None:
    data = load_dataset(dataset)
    assert data.sensitive.value_counts().idxmin() == SMALLER[dataset]
    assert make(Cell("toy", dataset, "equalized_odds", LOCAL_OPTIMAL, 0), data.groups).minority == SMALLER[dataset]


def test_curve_of_trees_has_a_fit_per_tolerance_and_the_default_first() -> None:
    data = make_synthetic(400, random_state=0)
    cell = Cell("toy", "bank", "equalized_odds", BOOSTED, 0, settings={"n_estimators": 10})
    models = along(cell, make(cell, data.groups), data.X, data.y, data.sensitive)
    assert [model.tolerance for model in models] == [0.01, *FEW_TOLERANCES[1:]]
    scores = scores_along(models, data.X)
    assert np.array_equal(scores[0], models[0].decision_function(data.X))
    assert not np.array_equal(scores[0], scores[-1])


def test_curve_beside_a_rival_counts_the_cells_ahead_and_behind() -> None:
    where = {"notion": "equalized_odds", "seed": 0}
    rows = [row(fold, 1.0, [[None, 0.80 + fold / 1000, 0.1]], **where) for fold in (0, 1)]
    rows += [row(fold, math.inf, [[None, 0.85, 0.1]], method=BOOSTED, **where) for fold in (0, 1)]
    claim = next(one for name, one in found_of(*rows).items() if "than FairGBM's" in name)
    assert not claim.confirmed
    assert claim.numbers.startswith("ahead in 0 of 1 cells, behind in 1 (Bank equalized odds -0.0495")


@pytest.mark.parametrize(("auc", "confirmed"), [(0.9 - AUC_LOSS + 0.001, True), (0.9 - AUC_LOSS - 0.001, False)])
def test_auc_given_up_is_counted_where_the_plain_base_is_nearly_fair(auc: float, confirmed: bool) -> None:
    fair = row(0, 1.0, [[None, 0.8, 0.01, auc], [1.0, 0.8, 0.04, 0.9]])
    unfair = row(0, 1.0, [[None, 0.8, 0.01, 0.5], [1.0, 0.8, 0.3, 0.9]], notion="equalized_odds")
    claim = next(one for name, one in found_of(fair, unfair).items() if "of AUC" in name)
    assert claim.confirmed is confirmed
    assert "equalized odds" not in claim.numbers


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_violation_by_chance_is_the_exact_one_of_dealt_groups(notion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    scores, truth, codes = rng.normal(size=400), rng.integers(0, 2, 400), rng.integers(0, 3, 400)
    monkeypatch.setattr(curves, "PERMUTATIONS", 1)
    dealt = np.random.default_rng(7).permutation(codes)
    decided = (scores > 0).astype(int)
    expected = violation(truth, decided, sensitive_features=dealt, notion=notion, groups=(0, 1, 2))
    assert by_chance(notion, scores, truth, codes, seed=7) == pytest.approx(expected)


def test_most_accurate_point_violates_no_more_than_allowed() -> None:
    curve = curve_of((None, 0.80, 0.05), (0.0, 0.70, 0.03), (0.3, 0.85, 0.2))
    best = most_accurate(curve, 0.06)
    assert best is not None
    assert best["accuracy_mean"] == 0.8
    assert most_accurate(curve, 0.02) is None


def test_pareto_keeps_what_no_point_beats() -> None:
    curve = curve_of((None, 0.80, 0.05), (0.0, 0.70, 0.03), (0.1, 0.79, 0.06), (0.2, 0.80, 0.07), (0.3, 0.85, 0.2))
    assert pareto(curve)["tolerance"].fillna(-1).tolist() == [0.0, -1, 0.3]


def test_repeats_hold_the_curve_against_rivals_of_the_same_folds() -> None:
    ours = [row(fold, 1.0, [[None, 0.80 + fold / 100, 0.2]], seed=1) for fold in (0, 1)]
    theirs = [
        row(fold, 1.0, [], seed=1, method="M", accuracy=accuracy, violation=0.3)
        for fold, accuracy in enumerate((0.70, 0.90))
    ]
    results = pd.DataFrame([*ours, *theirs])
    assert repeats.points(repeats.reruns(results), "bank", "demographic_parity")["M, rerun"] == pytest.approx(
        (0.8, 0.3)
    )
    verdicts = {claim.sentence: claim.confirmed for claim in repeats.claims(results)}
    assert verdicts["A point of the private curve is at least as good as M, rerun."]
    expected = "| 0.805 (0.005) / 0.200 (0.000) | 0.800 (0.100) / 0.300 (0.000) | - | 0.020 | 2 |"
    assert expected in repeats.markdown(results)


def test_repeats_count_every_shuffle_by_itself() -> None:
    ours = [row(0, 1.0, [[None, accuracy, 0.2]], seed=seed) for seed, accuracy in ((1, 0.7), (2, 0.9))]
    theirs = [row(0, 1.0, [], seed=seed, method="M", accuracy=0.75, violation=0.3) for seed in (1, 2)]
    found = {claim.sentence: claim.numbers for claim in repeats.claims(pd.DataFrame([*ours, *theirs]))}
    numbers = found["A point of the private curve is at least as good as M, rerun."]
    assert numbers == "1 of 1 cells; shuffle by shuffle 0, 1"


def test_repeats_measure_curves_of_ours_and_points_of_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "measure_curve", lambda cell: {"curve": cell.method})
    monkeypatch.setattr(repeats, "measure", lambda cell: {"accuracy": 0.5, "violation": float(cell.fold)})
    assert repeats.measure_again(Cell("repeats", "bank", "x", METHOD, 3)) == {"curve": METHOD}
    theirs = repeats.measure_again(Cell("repeats", "bank", "x", "M", 3))
    assert (theirs["accuracy"], theirs["violation"], theirs["curve"]) == (0.5, 3.0, "[]")


def test_repeats_print_the_best_point_of_equalized_odds_beside_the_rule_without_privacy() -> None:
    where = {"notion": "equalized_odds", "seed": 1}
    ours = [row(fold, 1.0, [[None, 0.70, 0.05], [0.1, 0.78, 0.10], [0.2, 0.8, 0.2]], **where) for fold in (0, 1)]
    free = [row(fold, math.inf, [[None, 0.82, 0.12]], **where) for fold in (0, 1)]
    claim = repeats.odds(pd.DataFrame([*ours, *free]))[0]
    assert claim.confirmed
    assert claim.numbers == (
        "Bank, epsilon 1: 0.780 ± 0.000 / 0.100 ± 0.000; "
        "Bank, no privacy: none, its least violation is at 0.820 ± 0.000 / 0.120 ± 0.000"
    )
    assert not repeats.odds(pd.DataFrame(free))[0].confirmed


def test_repeats_leave_the_frontiers_own_folds_out() -> None:
    assert {cell.seed for cell in repeats.cells(quick=False)} == set(repeats.SHUFFLES)
    assert 0 not in repeats.SHUFFLES


@pytest.mark.parametrize(
    ("peer", "reduction", "entry", "sentence"),
    [
        ((0.85, 0.02), (0.79, 0.01), "0.850 / 0.020", "is 2.0 points more accurate, at a violation 1.0 points smaller"),
        ((0.85, 0.05), (0.79, 0.01), "0.850 / 0.050", "is 2.0 points more accurate, at a violation 2.0 points larger"),
        ((0.80, 0.01), (0.83, 0.01), "0.830 / 0.010", "has a violation 2.0 points smaller"),
        ((0.82, 0.03), (0.79, 0.01), "0.820 / 0.030", "is not better"),
    ],
    ids=["better", "at-a-price", "fairer", "no-better"],
)
def test_summary_of_the_readme_names_the_most_accurate_peer_and_says_what_it_does_better(
    peer: tuple[float, float],
    reduction: tuple[float, float],
    entry: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, name = 0.83, "LinearPost" if peer > reduction else "fairlearn's reduction"
    monkeypatch.setattr(frontier, "rivals", lambda *_: {"A, rerun": reduction, "PF-LD printed, rerun": (0.8, 0.1)})
    results = [
        row(0, 1.0, [[None, ours, 0.03], [0.0, 0.7, 0.0], [1.0, 0.86, 0.3]]),
        row(0, math.inf, [[None, *peer], [1.0, 0.9, 0.4]], method=NOT_PRIVATE),
    ]
    lines = frontier.summary(pd.DataFrame(results)).splitlines()
    assert lines[2] == f"| Bank | 0.860 / 0.300 | 0.830 / 0.030 | {entry} ({name}) | 0.800 / 0.100 |"
    assert lines[-1] == f"* Bank: 3.0 points of accuracy less than uncorrected trees; {name} {sentence}."
