"""What the frontier's claims count, on hand-made results: matched rivals, chance, and the price of privacy."""

import json
import math
from typing import Any

import pandas as pd
import pytest
from experiments.frontier import METHOD, SHARED, claims, matched, pareto, shortfall, summarise
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


def test_price_compares_default_points_and_points_of_one_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "FREE", 1)
    private = [[None, 0.84, 0.05], [SHARED[0], 0.80, 0.05], [SHARED[1], 0.83, 0.2]]
    without = [[None, 0.83, 0.05], [SHARED[0], 0.83, 0.05], [SHARED[1], 0.83, 0.2]]

    def moved(points: list[list[Any]], by: float) -> list[list[Any]]:
        return [[tolerance, accuracy + by, violated + by] for tolerance, accuracy, violated in points]

    rows = [row(fold, 1.0, moved(private, by)) for fold, by in enumerate((-0.005, 0.005))]
    rows += [row(fold, math.inf, moved(without, by)) for fold, by in enumerate((-0.005, 0.005))]
    found = [claim for claim in claims(pd.DataFrame(rows)) if claim.sentence.startswith("Accuracy and violation")]
    assert [(claim.sentence, claim.confirmed) for claim in found] == [
        (sentence("by default", "within one standard deviation of"), False),  # more accurate with privacy
        (sentence("by default", "no more than one standard deviation worse than"), True),
        (sentence(f"at tolerance {SHARED[0]:g}", "within one standard deviation of"), False),
        (sentence(f"at tolerance {SHARED[0]:g}", "no more than one standard deviation worse than"), False),
        (sentence(f"at tolerance {SHARED[1]:g}", "within one standard deviation of"), True),
        (sentence(f"at tolerance {SHARED[1]:g}", "no more than one standard deviation worse than"), True),
    ]


def test_pareto_keeps_what_no_point_beats() -> None:
    curve = curve_of((None, 0.80, 0.05), (0.0, 0.70, 0.03), (0.1, 0.79, 0.06), (0.2, 0.80, 0.07), (0.3, 0.85, 0.2))
    assert pareto(curve)["tolerance"].fillna(-1).tolist() == [0.0, -1, 0.3]


@pytest.mark.parametrize(
    ("private", "reached", "lost"),
    [
        ([[None, 0.80, 0.05], [0.2, 0.84, 0.20]], True, "from 0.000 to 0.000"),
        ([[None, 0.796, 0.054], [0.2, 0.836, 0.20]], True, "from 0.004 to 0.004"),  # no more than 0.005 worse
        ([[None, 0.79, 0.05], [0.2, 0.84, 0.20]], False, "from 0.005 to 0.005"),  # one end is twice as far
        ([[None, 0.78, 0.05], [0.2, 0.82, 0.20]], False, "from 0.020 to 0.020"),
    ],
)
def test_whole_curves_are_held_against_those_without_privacy(
    monkeypatch: pytest.MonkeyPatch, private: list[list[Any]], reached: bool, lost: str
) -> None:
    monkeypatch.setattr(frontier, "FREE", 1)
    without = [[None, 0.80, 0.05], [0.1, 0.79, 0.1], [0.2, 0.84, 0.20]]  # the second is beaten by the first
    rows = [
        row(fold, epsilon, [[one, acc + by, violated + by] for one, acc, violated in points])
        for epsilon, points in ((1.0, private), (math.inf, without))
        for fold, by in enumerate((-0.005, 0.005))
    ]
    found = {claim.sentence: claim for claim in claims(pd.DataFrame(rows))}
    reach = next(claim for name, claim in found.items() if name.startswith("Each point of the curve without privacy"))
    price = next(claim for name, claim in found.items() if name.startswith("At the same violation"))
    assert reach.confirmed is reached
    assert price.numbers.startswith(lost)
    assert price.confirmed is (lost < "from 0.01")


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


def test_repeats_leave_the_frontiers_own_folds_out() -> None:
    assert {cell.seed for cell in repeats.cells(quick=False)} == set(repeats.SHUFFLES)
    assert 0 not in repeats.SHUFFLES
