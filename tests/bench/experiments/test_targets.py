"""The experiment with classes, numbers, several notions, ratios and quotas: its cells, measures and claims."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from bench.experiments import targets
from bench.experiments.runner import Cell
from bench.experiments.target_measures import (
    by_chance,
    counts_of,
    determination,
    difference_and_error,
    largest_difference,
    largest_distance,
    rates_of,
    ratio_lower_bound,
    smallest_ratio,
)
from bench.experiments.target_methods import CASES, OURS, TARGET_METHODS, case_of, make, our_arguments, recipe
from justitia.datasets import Dataset
from justitia.metrics.exact import violation

#: By group, class and decision.
COUNTS = np.array([[[6.0, 2.0], [1.0, 1.0]], [[4.0, 0.0], [2.0, 4.0]]])


class TestMeasures:
    def test_counts_are_by_group_class_and_decision_and_leave_out_rows_without_a_group(self):
        y, decided = np.array(["a", "a", "b", "b"]), np.array(["a", "b", "b", "b"])
        found = counts_of(y, decided, np.array([0, 0, 1, -1]), np.array(["a", "b"]), 2)
        assert found.tolist() == [[[1, 1], [0, 0]], [[0, 0], [0, 1]]]

    @pytest.mark.parametrize(
        ("notion", "expected"),
        [
            ("demographic_parity", [[0.7, 0.3], [0.6, 0.4]]),
            ("equalized_odds", [[0.75, 0.25, 0.5, 0.5], [1.0, 0.0, 1 / 3, 2 / 3]]),
            ("equal_opportunity", [[0.5], [2 / 3]]),
            ("predictive_parity", [[1 / 3], [1.0]]),
            ("accuracy_parity", [[0.7], [0.8]]),
        ],
    )
    def test_rates_by_hand(self, notion, expected):
        np.testing.assert_allclose(rates_of(notion, COUNTS), expected)

    @pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
    def test_largest_difference_of_two_classes_is_the_violation_of_the_library(self, notion):
        generator = np.random.default_rng(0)
        y, decided, codes = (generator.integers(0, k, 400) for k in (2, 2, 3))
        found = largest_difference(rates_of(notion, counts_of(y, decided, codes, np.arange(2), 3)))
        assert found == pytest.approx(
            violation(y, decided, sensitive_features=codes, notion=notion, groups=(0, 1, 2)), abs=1e-12
        )

    def test_difference_of_predictive_parity_has_the_error_of_two_shares(self):
        apart, error = difference_and_error("predictive_parity", COUNTS)
        assert apart == pytest.approx(2 / 3)
        assert error == pytest.approx(math.sqrt(1 / 3 * 2 / 3 / 3))

    def test_ratio_and_its_lower_bound_by_hand(self):
        assert smallest_ratio(COUNTS) == pytest.approx(0.75)
        selected, sizes = np.array([80.0, 100.0]), np.array([1000.0, 1000.0])
        error = math.sqrt(0.92 / 80 + 0.9 / 100)
        assert ratio_lower_bound(selected, sizes) == pytest.approx(0.8 * math.exp(-1.644854 * error), rel=1e-5)

    def test_largest_distance_is_the_largest_of_all_pairs(self):
        predicted, codes = np.array([0.0, 1.0, 0.0, 1.0, 5.0, 6.0]), np.array([0, 0, 1, 1, 2, 2])
        assert largest_distance(predicted, codes, 3) == 1.0
        assert largest_distance(predicted[:4], codes[:4], 3) == 0.0

    def test_determination_of_the_mean_is_zero_and_of_the_truth_one(self):
        y = np.array([1.0, 2.0, 6.0])
        assert [determination(y, np.full(3, 3.0)), determination(y, y)] == [0.0, 1.0]

    def test_by_chance_permutes_the_groups(self):
        codes = np.array([0, 1] * 50)
        assert by_chance(lambda groups: float(sorted(groups) == sorted(codes)), codes) == 1.0


class TestCells:
    def test_every_case_has_ours_with_and_without_privacy_and_its_rivals_on_five_folds(self):
        found = {
            (cell.dataset, cell.notion, cell.method, cell.epsilon, cell.fold) for cell in targets.cells(quick=False)
        }
        assert len(found) == 5 * sum(2 + len(case.beside) for case in CASES)
        assert ("occupation", "equalized_odds", OURS, 1.0, 4) in found
        assert ("hours", "demographic_parity", "Chzhen 2020", math.inf, 0) in found
        assert ("hours", "demographic_parity", "Xian 2024", 1.0, 0) in found

    def test_quick_form_is_one_fold_of_the_small_datasets(self):
        assert {(cell.dataset, cell.fold) for cell in targets.cells(quick=True)} == {
            ("compas_score", 0),
            ("communities", 0),
        }

    @pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.dataset} {case.notion}")
    def test_ours_is_asked_for_a_ratio_or_a_tolerance(self, case):
        asked = our_arguments(case)
        assert ("ratio" in asked) != ("tolerance" in asked)

    def test_methods_say_of_themselves_what_the_table_says_of_them(self):
        for case in CASES:
            for name in case.beside:
                model = make(Cell("targets", case.dataset, case.notion, name, 0), ("a", "b"))
                method = TARGET_METHODS[name]
                assert (model.is_private, model.reads_attribute) == (method.private, method.reads_attribute)

    def test_recipe_of_ours_names_what_is_asked(self):
        cell = Cell("targets", "income", "two notions", OURS, 0)
        assert "equal_opportunity" in recipe(cell)
        assert "0.02" in recipe(cell)


def tiny(task: str) -> Dataset:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 2))
    number = x[:, 0] + 0.1 * generator.normal(size=400)
    words = np.array(["Low", "Medium", "High"])[np.digitize(number, [-0.5, 0.5])]
    return Dataset(
        name="tiny",
        X=pd.DataFrame(x, columns=["x0", "x1"]),
        y=pd.Series(number if task == "number" else words, name="target"),
        sensitive=pd.Series(np.where(x[:, 0] + generator.normal(size=400) > 0, "a", "b"), name="group"),
        groups=("a", "b"),
        description="made here",
        task=task,
    )


@pytest.mark.parametrize(
    ("dataset", "task", "method"),
    [("compas_score", "classes", "LinearPost, classes"), ("communities", "number", "Chzhen 2020")],
)
def test_work_measures_a_rival_on_its_test_rows(monkeypatch, dataset, task, method):
    monkeypatch.setattr(targets, "dataset", lambda _: tiny(task))
    found = targets.work(Cell("targets", dataset, "demographic_parity", method, 0, epsilon=math.inf))
    assert set(found) == set(targets.MEASURES)
    assert found["quality"] > 0.2
    assert 0 <= found["violation"] <= 0.5
    assert found["epsilon_spent"] == math.inf


class Selector:
    """Decides 1 for the rows with the largest x0."""

    def __init__(self, share: float) -> None:
        self.share = share

    def fit(self, X, y, *, sensitive_features):
        self.edge = np.quantile(X["x0"], 1 - self.share)
        return self

    def predict(self, X):
        return (X["x0"] > self.edge).astype(int).to_numpy()


def test_work_of_a_quota_tells_rows_beyond_it_in_training_and_the_drift_on_new_rows(monkeypatch):
    data = tiny("number")
    yes_or_no = Dataset(data.name, data.X, (data.y > 0).astype(int), data.sensitive, data.groups, data.description)
    monkeypatch.setattr(targets, "dataset", lambda _: yes_or_no)
    monkeypatch.setattr(targets, "make", lambda _cell, _groups: Selector(0.2))
    found = targets.work(Cell("targets", "income", "quota", OURS, 0))
    detail = json.loads(found["detail"])
    assert detail["beyond_quota_rows"] == 0.0
    assert abs(detail["drift"]) < 0.1


def rows(dataset: str, notion: str, quality: list[float], apart: list[float], detail: dict, **of) -> pd.DataFrame:
    known = {"dataset": dataset, "notion": notion, "method": OURS, "epsilon": 1.0} | of
    measured = {"floor": 0.01, "seconds": 1.0, "detail": json.dumps(detail)}
    return pd.DataFrame(
        [known | {"quality": q, "violation": v} | measured for q, v in zip(quality, apart, strict=True)]
    )


class TestTable:
    @pytest.mark.parametrize(("quality", "met"), [([0.50, 0.51], True), ([0.49, 0.509], True), ([0.49, 0.491], False)])
    def test_claim_counts_a_miss_below_one_standard_error_as_met(self, quality, met):
        results = rows("occupation", "demographic_parity", quality, [0.03, 0.03], {"counts": COUNTS.tolist()})
        (claim,) = targets.claims(results)
        assert claim.confirmed is met

    @pytest.mark.parametrize(("selected", "met"), [(510, True), (1200, False)])
    def test_claim_of_two_notions_adds_up_the_folds(self, selected, met):
        counts = [[[4500, 500], [500, 4500]], [[5000 - selected, selected], [500, 4500]]]
        detail = {"counts": counts, "differences": {}}
        results = rows("income", "two notions", [0.8, 0.8], [0.01, 0.02], detail)
        (claim,) = targets.claims(results)
        assert claim.confirmed is met

    def test_table_marks_who_reads_the_attribute_and_names_the_ratio(self):
        detail = {"mean_difference": 0.1, "error_difference": 0.1}
        reads = rows("hours", "demographic_parity", [0.1], [0.02], detail, method="Xian 2024")
        ratio = rows("bank", "four_fifths", [0.8], [0.1], {"counts": (100 * COUNTS).tolist()})
        text = targets.markdown(pd.concat([reads, ratio]))
        assert "| Xian 2024 | yes | **yes** |" in text
        assert "all folds: ratio 0.750, at least 0.6" in text
        assert "Bank, four-fifths ratio, ratio 0.8" in text

    def test_publish_writes_the_table_and_no_results_make_no_claim(self, tmp_path):
        detail = {"counts": COUNTS.tolist(), "differences": {}}
        results = rows("compas_score", "demographic_parity", [0.6], [0.05], detail)
        assert "compas_score" in targets.publish(results, tmp_path)
        assert (tmp_path / "targets.md").read_text().startswith("| data, notion, tolerance |")
        assert targets.claims(results.iloc[:0]) == []


def test_case_of_a_cell_is_found_by_dataset_and_notion():
    assert case_of(Cell("targets", "bank", "four_fifths", OURS, 0)).asked["ratio"] == 0.8
