"""A rule of the default engine in ONNX Runtime answers as in Python: base, calibration, correction, threshold."""

import json
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import xgboost
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from justitia import LagrangianDualClassifier, tradeoff
from justitia.learners import lightgbm_base
from justitia.learners.calibration import Calibration
from justitia.persistence.onnx import to_onnx
from justitia.postprocessing.correction import Correction, Rule


def people(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"age": rng.integers(18, 90, n), "hours": rng.normal(40, 9, n), "member": rng.random(n) < 0.5})
    table["hours"] = table["hours"].where(rng.random(n) < 0.9)
    table["job"] = rng.choice(["clerk", "nurse", "été"], n)
    return table


TRAIN, LATER = people(600, 0), people(3000, 1)
Y = (TRAIN["age"] + 20 * (TRAIN["job"] == "nurse") + 8 * np.random.default_rng(2).normal(size=600) > 58).astype(int)
GROUP = np.where(TRAIN["age"] + np.random.default_rng(3).normal(size=600) * 60 > 54, "f", "m")
NUMBERS, MORE = TRAIN.drop(columns="job"), LATER.drop(columns="job")


def fit(rows: Any = TRAIN, y: Any = Y, **changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": 8.0, "groups": ["f", "m"], "tolerance": 0.05, "random_state": 0}
    model = LagrangianDualClassifier(**usual | {"noise_seed": 0} | changes)
    return model.fit(rows, y, sensitive_features=GROUP)


def answers(path: Path, rows: Any) -> tuple[Any, Any]:
    running = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = running.get_inputs()
    if [one.name for one in inputs] == ["X"]:
        kind = np.float32 if inputs[0].type == "tensor(float)" else np.float64
        label, probabilities = running.run(None, {"X": np.asarray(rows, dtype=kind)})
        return label, probabilities
    fed = {}
    for place, one in enumerate(inputs):
        column = rows.iloc[:, [place]]
        fed[one.name] = column.to_numpy(dtype=object if one.type == "tensor(string)" else np.float64)
    label, probabilities = running.run(None, fed)
    return label, probabilities


def assert_same_answers(model: LagrangianDualClassifier, rows: Any, folder: Path) -> None:
    label, probabilities = answers(to_onnx(model, folder / "model.onnx"), rows)
    expected = model.predict_proba(rows)
    assert probabilities.shape == (len(rows), 2)
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-5)
    assert label.tolist() == model.predict(rows).tolist()
    assert 0.05 < np.mean(label == model.classes_[1]) < 0.95


@pytest.fixture(scope="module")
def model() -> LagrangianDualClassifier:
    return fit(y=np.where(Y == 1, "yes", "no"))


@pytest.mark.parametrize("rows", [1, 3000])
def test_default_base_new_people_get_the_same_answers(model: Any, rows: int, tmp_path: Path) -> None:
    assert not model.rule_.correction.is_zero
    label, probabilities = answers(to_onnx(model, tmp_path / "model.onnx"), LATER[:rows])
    np.testing.assert_allclose(probabilities, model.predict_proba(LATER[:rows]), rtol=0, atol=1e-12)
    assert label.tolist() == model.predict(LATER[:rows]).tolist()


def test_loaded_model_exports_the_same_graph(model: Any, tmp_path: Path) -> None:
    again = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    first, second = (onnx.load(to_onnx(one, tmp_path / "m.onnx")) for one in (model, again))
    assert first.graph == second.graph


def test_base_of_one_model_is_saved_loaded_and_exported(tmp_path: Path, monkeypatch: Any) -> None:
    """As where training rows are many; a folder then has one file of trees."""
    monkeypatch.setattr(lightgbm_base, "MOST_ROWS_OF_MEAN", 100)
    model = fit(missing="none", n_jobs=2)
    folder = model.save(tmp_path / "model")
    assert [path.name for path in sorted(folder.glob("base-*"))] == ["base-1.txt"]
    again = LagrangianDualClassifier.load(folder)
    assert again.rule_.base.describe() == model.rule_.base.describe() == "LGBMClassifier, one model of all rows"
    assert again.missing == "none"
    assert np.array_equal(again.predict_proba(LATER), model.predict_proba(LATER))
    assert_same_answers(model, LATER, tmp_path)


@pytest.mark.parametrize("chosen", [{"threshold": 0.3}, {"class_weight": {0: 1.0, 1: 4.0}}])
def test_label_is_decided_at_the_threshold(chosen: dict[str, Any], tmp_path: Path) -> None:
    model = fit(**chosen)
    assert_same_answers(model, LATER, tmp_path)
    _, probabilities = answers(tmp_path / "model.onnx", LATER)
    assert (model.predict(LATER) != (probabilities[:, 1] > 0.5)).mean() > 0.01


def test_scores_held_alike_get_the_same_answers_from_graph_and_folder(tmp_path: Path) -> None:
    model = fit(at="scores", threshold=0.4)
    assert model.rule_.levels is not None
    rows = LATER.copy()
    rows.loc[0, "hours"] = 1e9  # far out of range
    assert_same_answers(model, rows, tmp_path)
    loaded = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    assert loaded.distance_ == model.distance_


def test_sibling_of_a_curve_has_the_leaves_of_its_own_tolerance(tmp_path: Path) -> None:
    start = LagrangianDualClassifier(epsilon=8.0, groups=["f", "m"], random_state=0, noise_seed=0)
    curve = tradeoff(start, TRAIN, Y, sensitive_features=GROUP, tolerances=(0.05, 0.15))
    assert not np.array_equal(*(one.decision_function(LATER) for one in curve.models))
    for one in curve.models:
        assert_same_answers(one, LATER, tmp_path)


def trees(**settings: Any) -> Any:
    return lightgbm.LGBMClassifier(n_estimators=8, num_leaves=6, verbosity=-1, n_jobs=1, **settings)


FILLED, FULL = (table.fillna({"hours": 40.0}).astype(float) for table in (NUMBERS, MORE))
#: A column of whole numbers that are categories, some of them without a place on either side of a split.
CODED, LATER_CODED = (
    table.assign(code=(table["age"].fillna(0).astype(int) * 7) % 45 + 1.0) for table in (NUMBERS, MORE)
)
UNKNOWN = LATER_CODED.assign(code=np.resize([1.0, 3.0, 44.0, 99.0, np.nan, 0.0], len(LATER_CODED)))


def by_category() -> Any:
    """Splits on which categories go left."""
    found = trees(min_data_per_group=1, cat_smooth=0.0, max_cat_to_onehot=1)
    y = np.where(np.isin(CODED["code"], [2, 5, 8, 33, 40, 41]) ^ (Y == 1), 1, 0)
    return found.fit(CODED, y, categorical_feature=["code"])


def xgboost_trees(**settings: Any) -> Any:
    return xgboost.XGBClassifier(n_estimators=8, max_depth=4, n_jobs=1, **settings)


def stopped_early() -> Any:
    found = xgboost_trees(early_stopping_rounds=1, learning_rate=1.5)
    return found.fit(NUMBERS, Y, eval_set=[(NUMBERS[:60], 1 - Y[:60])], verbose=False)


BASES: dict[str, tuple[Any, Any, Any]] = {
    "LightGBM by category": (by_category(), CODED, LATER_CODED),
    "LightGBM by category with unknown ones": (by_category(), CODED, UNKNOWN),
    "XGBoost with missing numbers": (xgboost_trees(), NUMBERS, MORE),
    "XGBoost stopped early": (stopped_early(), NUMBERS, MORE),
    "XGBoost of one leaf": (xgboost_trees(min_child_weight=1e9), NUMBERS, MORE),
    "LightGBM with missing numbers": (trees(), NUMBERS, MORE),
    "LightGBM that has seen none missing": (trees(), FILLED, MORE),
    "LightGBM as a forest": (trees(boosting_type="rf", bagging_freq=1, bagging_fraction=0.5), NUMBERS, MORE),
    "LightGBM fitted for the other answer": (trees().fit(NUMBERS, np.where(Y == 1, 1, 7)), NUMBERS, MORE),
    "LightGBM of one leaf": (trees(min_child_samples=10_000), NUMBERS, MORE),
    "logistic regression": (LogisticRegression(max_iter=2000), FILLED, FULL),
    "column": ("score", TRAIN.assign(score=TRAIN["age"] / 100), LATER.assign(score=LATER["age"] / 100)),
}


@pytest.mark.parametrize("name", list(BASES))
def test_base_of_ones_own_gets_the_same_answers(name: str, tmp_path: Path) -> None:
    base, rows, later = BASES[name]
    model = fit(rows, base=base)
    label, probabilities = answers(to_onnx(model, tmp_path / "model.onnx"), later)
    np.testing.assert_allclose(probabilities, model.predict_proba(later), rtol=0, atol=1e-5)
    assert label.tolist() == model.predict(later).tolist()
    assert ("category" in name) == (b"membership_values" in (tmp_path / "model.onnx").read_bytes())


@pytest.mark.parametrize("base", [None, trees(), LogisticRegression(max_iter=2000)], ids=["default", "trees", "logit"])
def test_matrix_without_preprocessing_gets_the_same_answers(base: Any, tmp_path: Path) -> None:
    model = fit(FILLED.to_numpy(), base=base, preprocess=None)
    assert_same_answers(model, FULL.to_numpy(), tmp_path)


def test_column_without_preprocessing_is_found_by_its_name(tmp_path: Path) -> None:
    model = fit(FILLED.assign(score=FILLED["age"] / 100), base="score", preprocess=None)
    assert_same_answers(model, FULL.assign(score=FULL["age"] / 100), tmp_path)


@pytest.mark.parametrize("mend", [Calibration(), Calibration(1.5, 0.7, -0.2)])
def test_calibration_without_a_correction_gets_the_same_answers(model: Any, mend: Calibration, tmp_path: Path) -> None:
    plain = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    plain.rule_ = Rule(model.rule_.base, mend, Correction(), 0.5)
    assert_same_answers(plain, LATER, tmp_path)


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "forest": (RandomForestClassifier(5, random_state=0), NUMBERS.fillna(0.0), "got 'RandomForestClassifier'; export"),
    "function": (lambda table: np.asarray(table)[:, 0] / 100, NUMBERS, "got '<lambda>'; export that model by itself"),
    "categories": (
        trees(),
        NUMBERS.assign(job=TRAIN["job"].astype("category")),
        "expected a base that reads columns of numbers to export",
    ),
    "zero is missing": (trees(zero_as_missing=True), NUMBERS, "got one that takes 0 for missing; fit one on numbers"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_base_without_a_form_in_onnx_is_told_in_one_sentence_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    base, rows, sentence = REFUSED[name]
    with pytest.raises(ValueError, match=sentence) as told:
        to_onnx(fit(rows, base=base), tmp_path / "model.onnx")
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_file_holds_certificate_and_classes_and_no_seed(tmp_path: Path) -> None:
    model = fit(noise_seed=987654321987)
    path = to_onnx(model, tmp_path / "model.onnx")
    facts = {one.key: one.value for one in onnx.load(path).metadata_props}
    assert json.loads(facts["justitia.certificate"]) == model.certificate_.to_dict()
    assert json.loads(facts["justitia.classes"]) == [0, 1]
    assert b"987654321987" not in path.read_bytes()
