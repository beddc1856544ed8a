"""Models of several classes and of numbers in ONNX Runtime answer as in Python."""

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
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from targets import CLASSES, CODES, LATER, NUMBER, SEED, TABLE, X, fit_classes, fit_number, turned

from justitia import LagrangianDualClassifier, LagrangianDualRegressor
from justitia.learners.calibration import LinearCalibration, VectorScaling
from justitia.persistence.onnx import to_onnx
from justitia.postprocessing.correction import Correction

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few rows, large noise
#: New rows, a few of them far out of range.
ROWS = pd.concat([LATER, LATER[:20] * 1e6], ignore_index=True)


def answers(path: Path, rows: Any) -> list[Any]:
    running = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = running.get_inputs()
    if [one.name for one in inputs] == ["X"]:
        kind = np.float32 if inputs[0].type == "tensor(float)" else np.float64
        return list(running.run(None, {"X": np.asarray(rows, dtype=kind)}))
    fed = {one.name: np.asarray(rows, dtype=np.float64)[:, [place]] for place, one in enumerate(inputs)}
    return list(running.run(None, fed))


def assert_same_answers(model: Any, rows: Any, folder: Path) -> None:
    path = to_onnx(model, folder / "model.onnx")
    if isinstance(model, LagrangianDualRegressor):
        (prediction,) = answers(path, rows)
        assert prediction.shape == (len(rows),)
        np.testing.assert_allclose(prediction, model.predict(rows), rtol=0, atol=1e-6)
        assert np.ptp(prediction) > 0.5
        return
    label, probabilities = answers(path, rows)
    np.testing.assert_allclose(probabilities, model.predict_proba(rows), rtol=0, atol=1e-6)
    assert label.tolist() == model.predict(rows).tolist()
    assert len(set(label.tolist())) > 1


CLASS_OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "equalized odds": {"notion": "equalized_odds", "tolerance": 0.1},
    "quota": {"quota": {"middle": 0.25}},
    "costs": {"costs": [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [3.0, 1.0, 0.0]], "quota": {"top": 0.3}},
}
NUMBER_OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "mean parity": {"notion": "mean_parity"},
    "equal error": {"notion": "equal_error", "tolerance": 0.0},
    "within the tolerance": {"tolerance": 1.0},
    "range": {"bounds": (-8.0, 7.0)},
}


@pytest.mark.parametrize("name", list(CLASS_OPTIONS))
def test_classes_get_the_same_answers_and_the_correction_changes_some(name: str, tmp_path: Path) -> None:
    model = fit_classes(**CLASS_OPTIONS[name])
    assert not model.rule_.correction.is_zero
    assert_same_answers(model, ROWS, tmp_path)
    changed = model.predict(ROWS) != model.classes_[model.base_proba(ROWS).argmax(1)]
    assert 0.005 < changed.mean() < 0.9


@pytest.mark.parametrize("name", list(NUMBER_OPTIONS))
def test_numbers_get_the_same_answers_and_the_correction_changes_some(name: str, tmp_path: Path) -> None:
    model = fit_number(**NUMBER_OPTIONS[name])
    assert_same_answers(model, ROWS, tmp_path)
    moved = np.abs(model.predict(ROWS) - model.base_predict(ROWS)).max()
    assert (moved > 0.05) == (name != "within the tolerance")


@pytest.mark.parametrize("rows", [1, 500])
def test_any_number_of_rows_gets_answers(rows: int, tmp_path: Path) -> None:
    for model in (fit_classes(preprocess=None), fit_number(preprocess=None)):
        found = answers(to_onnx(model, tmp_path / "model.onnx"), LATER[:rows])
        assert len(found[0]) == rows


def test_levels_that_are_not_nested_get_the_same_answers(tmp_path: Path) -> None:
    model = fit_number()
    rng = np.random.default_rng(0)  # corrections that no training gives: margins rise and fall with the level
    corrections = [
        Correction(one.centre, one.spread, one.hidden, one.out + rng.normal(size=one.out.shape))
        for one in model.rule_.corrections
    ]
    model.rule_.corrections = tuple(corrections)
    assert_same_answers(model, ROWS, tmp_path)


def test_calibration_gets_the_same_answers(tmp_path: Path) -> None:
    classes, number = fit_classes(), fit_number()
    classes.rule_.calibration = VectorScaling((1.5, 0.7, 1.0), (0.1, -0.2, 0.1))
    number.rule_.calibration = LinearCalibration(0.25, 0.75)
    assert_same_answers(classes, ROWS, tmp_path)
    assert_same_answers(number, ROWS, tmp_path)
    classes.rule_.correction = Correction()
    assert_same_answers(classes, ROWS, tmp_path)


def test_loaded_models_export_the_same_graph(tmp_path: Path) -> None:
    for model in (fit_classes(), fit_number()):
        again = type(model).load(model.save(tmp_path / "model"))
        first, second = (onnx.load(to_onnx(one, tmp_path / "m.onnx")) for one in (model, again))
        assert first.graph == second.graph


TEXTS = TABLE.assign(job=np.where(X[:, 2] > 0, "clerk", "nurse"), b=TABLE["b"].where(X[:, 0] > -1))


def test_table_with_text_and_missing_numbers_gets_the_same_answers(tmp_path: Path) -> None:
    for model in (fit_classes(TEXTS), fit_number(TEXTS)):
        path = to_onnx(model, tmp_path / "model.onnx")
        running = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        fed = {name: TEXTS[[name]].to_numpy(dtype=object if name == "job" else np.float64) for name in TEXTS}
        first = running.run(None, fed)[0]
        if isinstance(model, LagrangianDualRegressor):
            np.testing.assert_allclose(first, model.predict(TEXTS), rtol=0, atol=1e-6)
        else:
            assert first.tolist() == model.predict(TEXTS).tolist()


def trees(**settings: Any) -> Any:
    return lightgbm.LGBMClassifier(n_estimators=6, num_leaves=5, verbosity=-1, n_jobs=1, **settings)


def regression_trees(**settings: Any) -> Any:
    return lightgbm.LGBMRegressor(n_estimators=6, num_leaves=5, verbosity=-1, n_jobs=1, **settings)


FOREST = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}
HOLES, MORE_HOLES = TABLE.mask(np.abs(TABLE) > 2), LATER.mask(np.abs(LATER) > 2)
CLASS_BASES: dict[str, tuple[Any, Any, Any, Any]] = {
    "XGBoost with missing numbers": (
        xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1),
        HOLES,
        CLASSES,
        MORE_HOLES,
    ),
    "LightGBM with missing numbers": (trees(), HOLES, CLASSES, MORE_HOLES),
    "LightGBM as a forest": (trees(**FOREST), TABLE, CLASSES, LATER),
    "LightGBM fitted on codes": (trees().fit(TABLE, CODES), TABLE, CLASSES, LATER),
    "logistic regression": (LogisticRegression(), TABLE, CLASSES, LATER),
    "logistic regression with classes in another order": (turned(TABLE), TABLE, CLASSES, LATER),
}
NUMBER_BASES: dict[str, tuple[Any, Any, Any]] = {
    "XGBoost": (xgboost.XGBRegressor(n_estimators=5, max_depth=3, n_jobs=1), HOLES, MORE_HOLES),
    "LightGBM with missing numbers": (regression_trees(), HOLES, MORE_HOLES),
    "LightGBM as a forest": (regression_trees(**FOREST), TABLE, LATER),
    "LightGBM fitted": (regression_trees().fit(TABLE, NUMBER), TABLE, LATER),
    "linear regression": (LinearRegression(), TABLE, LATER),
    "ridge without intercept": (Ridge(fit_intercept=False).fit(TABLE, NUMBER), TABLE, LATER),
}


@pytest.mark.parametrize("name", list(CLASS_BASES))
def test_base_of_classes_of_ones_own_gets_the_same_answers(name: str, tmp_path: Path) -> None:
    base, rows, y, later = CLASS_BASES[name]
    assert_same_answers(fit_classes(rows, y, base=base), later, tmp_path)


@pytest.mark.parametrize("name", list(NUMBER_BASES))
def test_base_of_a_number_of_ones_own_gets_the_same_answers(name: str, tmp_path: Path) -> None:
    base, rows, later = NUMBER_BASES[name]
    assert_same_answers(fit_number(rows, base=base), later, tmp_path)


def scored(table: Any) -> Any:
    scores = np.exp(np.column_stack([-2 * table["a"], 0 * table["a"] + 0.5, 2 * table["a"]]))
    shares = scores / scores.sum(1, keepdims=True)
    return table.assign(p=shares[:, 0], q=shares[:, 1], r=shares[:, 2], m=table["a"] + 0.5 * table["b"])


def test_columns_of_scores_get_the_same_answers(tmp_path: Path) -> None:
    rows, later = scored(TABLE), scored(LATER)
    assert_same_answers(fit_classes(rows, base=["p", "q", "r"]), later, tmp_path)
    assert_same_answers(fit_number(rows, base="m"), later, tmp_path)


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "forest of classes": (
        fit_classes,
        RandomForestClassifier(5, random_state=0).fit(X, CLASSES),
        "expected a base of boosted trees .LightGBM, XGBoost., of logistic regression or columns of scores to",
    ),
    "forest of a number": (
        fit_number,
        RandomForestRegressor(5, random_state=0).fit(X, NUMBER),
        "expected a base of boosted trees .LightGBM, XGBoost., of linear or ridge regression or a column of pred",
    ),
    "another loss": (
        fit_number,
        regression_trees(objective="huber").fit(X, NUMBER),
        "got 'LGBMRegressor'; export that model by itself",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_base_without_a_form_in_onnx_is_refused_in_one_sentence_and_nothing_is_written(
    name: str, tmp_path: Path
) -> None:
    fit, base, sentence = REFUSED[name]
    with pytest.raises(ValueError, match=sentence) as said:
        to_onnx(fit(X, base=base), tmp_path / "model.onnx")
    assert "\n" not in str(said.value)
    assert list(tmp_path.iterdir()) == []


def test_file_holds_classes_or_range_certificate_and_no_seed(tmp_path: Path) -> None:
    for model in (fit_classes(), fit_number(bounds=(-8.0, 7.0))):
        path = to_onnx(model, tmp_path / "model.onnx")
        facts = {one.key: one.value for one in onnx.load(path).metadata_props}
        assert json.loads(facts["justitia.certificate"]) == model.certificate_.to_dict()
        assert facts["justitia.notion"] == "demographic_parity"
        assert str(SEED).encode() not in path.read_bytes()
        if isinstance(model, LagrangianDualClassifier):
            assert json.loads(facts["justitia.classes"]) == ["low", "middle", "top"]
        else:
            assert json.loads(facts["justitia.bounds"]) == [-8.0, 7.0]
