"""What the frontier's claims count, on hand-made results: matched rivals, chance, and the price of privacy."""

import json
import math
from typing import Any

import pandas as pd
import pytest
from experiments.frontier import METHOD, SHARED, claims, dominates, matched, summarise
from experiments.runner import Cell

from experiments import frontier, repeats


def row(fold: int, epsilon: float, curve: list[list[Any]], *, floor: float = 0.02, **where: Any) -> dict[str, Any]:
    cell = {"dataset": "bank", "notion": "demographic_parity", "method": METHOD}
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
def test_dominates_asks_one_point_for_both_and_counts_chance_as_met(
    accuracy: float, violated: float, expected: bool
) -> None:
    curve = curve_of((None, 0.80, 0.05), (0.0, 0.70, 0.019))
    assert dominates(curve, accuracy, violated) is expected


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


def test_price_compares_default_points_and_points_of_one_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "FREE", 1)
    private = [[None, 0.84, 0.05], [SHARED[0], 0.80, 0.05], [SHARED[1], 0.83, 0.2]]
    without = [[None, 0.83, 0.05], [SHARED[0], 0.83, 0.05], [SHARED[1], 0.83, 0.2]]

    def moved(points: list[list[Any]], by: float) -> list[list[Any]]:
        return [[tolerance, accuracy + by, violated + by] for tolerance, accuracy, violated in points]

    rows = [row(fold, 1.0, moved(private, by)) for fold, by in enumerate((-0.005, 0.005))]
    rows += [row(fold, math.inf, moved(without, by)) for fold, by in enumerate((-0.005, 0.005))]
    found = {claim.sentence: claim.confirmed for claim in claims(pd.DataFrame(rows)) if "privacy" in claim.sentence}
    assert [(name, found[name]) for name in found] == [
        (sentence("by default", "within one standard deviation of"), False),  # more accurate with privacy
        (sentence("by default", "no more than one standard deviation worse than"), True),
        (sentence(f"at tolerance {SHARED[0]:g}", "within one standard deviation of"), False),
        (sentence(f"at tolerance {SHARED[0]:g}", "no more than one standard deviation worse than"), False),
        (sentence(f"at tolerance {SHARED[1]:g}", "within one standard deviation of"), True),
        (sentence(f"at tolerance {SHARED[1]:g}", "no more than one standard deviation worse than"), True),
    ]


def sentence(where: str, how: str) -> str:
    return f"Accuracy and violation at epsilon 1, {where}, are {how} those without privacy, in at least 1 cells."


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
    assert "| 0.805 / 0.200 | 0.800 / 0.300 | - | 0.020 | 2 |" in repeats.markdown(results)


def test_repeats_measure_curves_of_ours_and_points_of_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "measure_curve", lambda cell: {"curve": cell.method})
    monkeypatch.setattr(repeats, "measure", lambda cell: {"accuracy": 0.5, "violation": float(cell.fold)})
    assert repeats.measure_again(Cell("repeats", "bank", "x", METHOD, 3)) == {"curve": METHOD}
    theirs = repeats.measure_again(Cell("repeats", "bank", "x", "M", 3))
    assert (theirs["accuracy"], theirs["violation"], theirs["curve"]) == (0.5, 3.0, "[]")


def test_repeats_leave_the_frontiers_own_folds_out() -> None:
    assert {cell.seed for cell in repeats.cells(quick=False)} == set(repeats.SHUFFLES)
    assert 0 not in repeats.SHUFFLES
