"""Models of several classes and of numbers saved and loaded: the same bits, nothing by row, and no harm by folders."""

import hashlib
import json
import math
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from targets import CLASSES, CODES, LATER, NUMBER, SEED, TABLE, N, X, fit_classes, fit_number, turned

from justitia import LagrangianDualClassifier, LagrangianDualRegressor
from justitia.learners.calibration import LinearCalibration, VectorScaling
from justitia.persistence.folder import saved_task
from justitia.postprocessing.correction import ClassRule, Correction
from justitia.postprocessing.number_rule import NumberRule

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few rows, large noise


def assert_same(again: Any, model: Any, rows: Any = LATER) -> None:
    if isinstance(model, LagrangianDualRegressor):
        assert np.array_equal(again.predict(rows), model.predict(rows))
        assert np.array_equal(again.base_predict(rows), model.base_predict(rows))
        return
    assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows))
    assert np.array_equal(again.decision_function(rows), model.decision_function(rows))
    assert again.predict(rows).tolist() == model.predict(rows).tolist()


def assert_all_given_back(again: Any, model: Any) -> None:
    assert again.certificate_ == model.certificate_
    assert again.plan_ == model.plan_
    assert (again.tolerance_, again.distance_, again.groups_) == (model.tolerance_, model.distance_, model.groups_)
    pd.testing.assert_frame_equal(again.dual_, model.dual_, check_exact=True)
    pd.testing.assert_frame_equal(again.history_, model.history_, check_exact=True)
    assert again.history_columns_ == model.history_columns_
    expected = model.get_params() | {"noise_seed": None, "plan": None}
    assert again.get_params() == expected | ({"engine": "post-processing"} if "engine" in expected else {})


@pytest.fixture(scope="module")
def classes() -> LagrangianDualClassifier:
    return fit_classes()


@pytest.fixture(scope="module")
def number() -> LagrangianDualRegressor:
    return fit_number()


@pytest.fixture
def class_folder(classes: LagrangianDualClassifier, tmp_path: Path) -> Path:
    return classes.save(tmp_path / "classes")


@pytest.fixture
def number_folder(number: LagrangianDualRegressor, tmp_path: Path) -> Path:
    return number.save(tmp_path / "number")


# --- the same bits


STRATA = np.where(X[:, 2] > 0, "old", "young")
CLASS_OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "equalized odds": {"notion": "equalized_odds", "tolerance": 0.1},
    "several notions": {"notion": ["demographic_parity", "accuracy_parity"], "tolerance": [0.05, 0.1]},
    "tolerance of a rate": {"tolerance": {"low": 0.02, "top": 0.2}},
    "quota": {"quota": {"middle": 0.25}},
    "costs": {"costs": [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [3.0, 1.0, 0.0]]},
    "class weight": {"class_weight": {"low": 1.0, "middle": 2.0, "top": 3.0}},
    "strata": {"notion": "conditional_demographic_parity", "strata": STRATA, "tolerance": 0.2},
    "without privacy": {"epsilon": math.inf},
    "without preprocessing": {"preprocess": None},
}


@pytest.mark.parametrize("name", list(CLASS_OPTIONS))
def test_load_classes_gives_back_everything_that_fit_released(name: str, tmp_path: Path) -> None:
    model = fit_classes(**CLASS_OPTIONS[name])
    again = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    assert isinstance(again.rule_, ClassRule)
    assert again.classes_.tolist() == ["low", "middle", "top"]
    assert_same(again, model)
    assert_all_given_back(again, model)
    pd.testing.assert_series_equal(again.tolerances_, model.tolerances_, check_exact=True)
    twice = again.save(tmp_path / "twice")
    assert {one.name: one.read_bytes() for one in twice.iterdir()} == {
        one.name: one.read_bytes() for one in (tmp_path / "model").iterdir()
    }


BINARY_OPTIONS: dict[str, dict[str, Any]] = {
    "several notions": {"notion": ["demographic_parity", "equal_opportunity"], "tolerance": (0.05, 0.1)},
    "ratio": {"ratio": 0.8},
    "quota": {"quota": 0.25},
    "costs": {"costs": np.array([[0.0, 1.0], [3.0, 0.0]])},
    "precision": {"notion": "predictive_parity", "tolerance": 0.2},
    "scores": {"at": "scores"},
}


@pytest.mark.parametrize("name", list(BINARY_OPTIONS))
def test_load_two_classes_with_new_options_gives_back_everything(name: str, tmp_path: Path) -> None:
    model = fit_classes(y=CODES > 0, **BINARY_OPTIONS[name])
    again = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    assert_same(again, model)
    if name == "costs":
        model.costs, again.costs = (np.asarray(one.costs).tolist() for one in (model, again))
    assert_all_given_back(again, model)
    pd.testing.assert_series_equal(again.tolerances_, model.tolerances_, check_exact=True)


NUMBER_OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "mean parity": {"notion": "mean_parity"},
    "equal error": {"notion": "equal_error", "tolerance": 0.0},
    "range": {"bounds": (-6.0, 6)},
    "loose": {"tolerance": 1.0},
    "without privacy": {"epsilon": math.inf},
    "without preprocessing": {"preprocess": None},
}


@pytest.mark.parametrize("name", list(NUMBER_OPTIONS))
def test_load_number_gives_back_everything_that_fit_released(name: str, tmp_path: Path) -> None:
    model = fit_number(**NUMBER_OPTIONS[name])
    assert (len(model.rule_.corrections) == 0) == (name == "loose")
    again = LagrangianDualRegressor.load(model.save(tmp_path / "model"))
    assert isinstance(again.rule_, NumberRule)
    assert again.bounds_ == model.bounds_
    assert_same(again, model)
    assert_all_given_back(again, model)
    twice = again.save(tmp_path / "twice")
    assert {one.name: one.read_bytes() for one in twice.iterdir()} == {
        one.name: one.read_bytes() for one in (tmp_path / "model").iterdir()
    }


def test_load_calibration_of_classes_and_numbers_predicts_bit_identically(
    classes: Any, number: Any, class_folder: Path, number_folder: Path, tmp_path: Path
) -> None:
    mine, other = LagrangianDualClassifier.load(class_folder), LagrangianDualRegressor.load(number_folder)
    mine.rule_.calibration = VectorScaling((1.5, 0.7, 1.0), (0.1, -0.2, 0.1))
    other.rule_.calibration = LinearCalibration(0.25, 0.75)
    assert not np.array_equal(mine.predict_proba(LATER), classes.predict_proba(LATER))
    assert not np.array_equal(other.predict(LATER), number.predict(LATER))
    assert_same(LagrangianDualClassifier.load(mine.save(tmp_path / "one")), mine)
    assert_same(LagrangianDualRegressor.load(other.save(tmp_path / "two")), other)


def test_load_classes_within_the_tolerance_have_no_correction(class_folder: Path, tmp_path: Path) -> None:
    model = LagrangianDualClassifier.load(class_folder)
    model.rule_.correction = Correction()
    folder = model.save(tmp_path / "model")
    assert not (folder / "correction.safetensors").exists()
    assert_same(LagrangianDualClassifier.load(folder), model)


@pytest.mark.parametrize(
    "labels",
    [np.array(["a", "b", "c"], dtype=object), np.array([3, 7, 9], dtype=np.uint8), np.array([0.0, 1.0, 2.0])],
    ids=lambda labels: str(labels.dtype),
)
def test_load_classes_have_their_type(labels: Any, tmp_path: Path) -> None:
    model = fit_classes(y=labels[CODES])
    again = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    assert again.classes_.dtype == labels.dtype
    assert again.predict(LATER).tolist() == model.predict(LATER).tolist()


SCORES = np.column_stack([np.exp(-X[:, 0]), np.ones(N), np.exp(X[:, 0])])
SCORED = TABLE.assign(**dict(zip("pqr", (SCORES / SCORES.sum(1, keepdims=True)).T, strict=True)))


def trees(**settings: Any) -> Any:
    return lightgbm.LGBMClassifier(n_estimators=4, num_leaves=4, verbosity=-1, n_jobs=1, **settings)


def regression_trees(**settings: Any) -> Any:
    return lightgbm.LGBMRegressor(n_estimators=4, num_leaves=4, verbosity=-1, n_jobs=1, **settings)


CLASS_BASES: dict[str, tuple[Any, Any, Any]] = {
    "LightGBM": (trees(), TABLE, CLASSES),
    "LightGBM as a forest": (trees(boosting_type="rf", bagging_freq=1, bagging_fraction=0.5), X, CLASSES),
    "LightGBM fitted": (trees().fit(X, CLASSES), X, CLASSES),
    "LightGBM fitted on codes": (trees().fit(X, CODES), X, CLASSES),
    "logistic regression": (LogisticRegression(), TABLE, CLASSES),
    "logistic regression fitted": (LogisticRegression().fit(X, CLASSES), X, CLASSES),
    "logistic regression with classes in another order": (turned(X), X, CLASSES),
    "logistic regression in float32": (LogisticRegression(), X.astype(np.float32), CLASSES),
    "columns": (["p", "q", "r"], SCORED, CLASSES),
    "columns by class": ({"top": "r", "low": "p", "middle": "q"}, SCORED, CLASSES),
}
NUMBER_BASES: dict[str, tuple[Any, Any]] = {
    "LightGBM": (regression_trees(), TABLE),
    "LightGBM fitted": (regression_trees().fit(X, NUMBER), X),
    "linear regression": (LinearRegression(), TABLE),
    "linear regression without intercept": (LinearRegression(fit_intercept=False).fit(X, NUMBER), X),
    "ridge in float32": (Ridge(), X.astype(np.float32)),
    "column": ("score", TABLE.assign(score=X[:, 0] + 0.5 * X[:, 1])),
}


@pytest.mark.parametrize("name", list(CLASS_BASES))
def test_load_base_of_classes_that_can_be_written_predicts_bit_identically(name: str, tmp_path: Path) -> None:
    base, rows, y = CLASS_BASES[name]
    model = fit_classes(rows, y, base=base)
    again = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    assert_same(again, model, rows)
    assert again.rule_.base.describe() == model.rule_.base.describe()
    assert again.base == (base if isinstance(base, list | dict) else None)
    assert_same(LagrangianDualClassifier.load(again.save(tmp_path / "twice")), model, rows)


@pytest.mark.parametrize("name", list(NUMBER_BASES))
def test_load_base_of_a_number_that_can_be_written_predicts_bit_identically(name: str, tmp_path: Path) -> None:
    base, rows = NUMBER_BASES[name]
    model = fit_number(rows, base=base)
    again = LagrangianDualRegressor.load(model.save(tmp_path / "model"))
    assert_same(again, model, rows)
    assert again.rule_.base.describe() == model.rule_.base.describe()
    assert again.base == (base if isinstance(base, str) else None)
    assert_same(LagrangianDualRegressor.load(again.save(tmp_path / "twice")), model, rows)


def by_hand(rows: Any) -> Any:
    found = np.column_stack([np.exp(-np.asarray(rows)[:, 0]), np.ones(len(rows)), np.exp(np.asarray(rows)[:, 0])])
    return found / found.sum(1, keepdims=True)


KEPT: dict[str, tuple[Callable[..., Any], Any]] = {
    "neighbours of classes": (fit_classes, KNeighborsClassifier(5).fit(X, CLASSES)),
    "function of classes": (fit_classes, by_hand),
    "linear leaves": (fit_classes, trees(linear_tree=True).fit(X, CLASSES)),
    "neighbours of a number": (fit_number, KNeighborsRegressor(5).fit(X, NUMBER)),
    "function of a number": (fit_number, lambda rows: np.asarray(rows)[:, 0]),
    "another loss": (fit_number, regression_trees(objective="huber").fit(X, NUMBER)),
}


@pytest.mark.parametrize("name", list(KEPT))
def test_base_that_cannot_be_written_is_refused_and_asked_for(name: str, tmp_path: Path) -> None:
    fit, base = KEPT[name]
    model = fit(X, base=base)
    kind = "regressor" if fit is fit_number else "classifier"
    with pytest.raises(ValueError, match=rf"^expected a base that can be saved \(a LightGBM {kind}.*\), got") as said:
        model.save(tmp_path / "model")
    assert "\n" not in str(said.value)
    assert list(tmp_path.iterdir()) == []
    folder = model.save(tmp_path / "model", without_base=True)
    with pytest.raises(ValueError, match=r"which is not in the folder, got none; pass load\("):
        type(model).load(folder)
    assert_same(type(model).load(folder, base=base), model, X)


def test_load_base_of_another_target_is_refused(tmp_path: Path) -> None:
    folder = fit_number(X, base=KEPT["neighbours of a number"][1]).save(tmp_path / "model", without_base=True)
    with pytest.raises(TypeError, match="expected base to be a regressor because y holds numbers"):
        LagrangianDualRegressor.load(folder, base=KEPT["neighbours of classes"][1])


def test_load_with_the_class_of_another_target_is_refused_in_one_sentence(
    class_folder: Path, number_folder: Path
) -> None:
    assert (saved_task(class_folder), saved_task(number_folder)) == ("classes", "number")
    with pytest.raises(ValueError, match=r"^expected a saved regressor in '.*', got a classifier; load it with Lag"):
        LagrangianDualRegressor.load(class_folder)
    with pytest.raises(ValueError, match=r"^expected a saved classifier in '.*', got a regressor; load it with Lag"):
        LagrangianDualClassifier.load(number_folder)


# --- folders of format 3, which versions before several classes wrote


ROWS = [[0.0, 0.0], [1.0, -1.0], [-0.3, 0.4], [0.2, -0.5], [-1.5, 2.0]]
OLD = {
    "logistic": [0.4374188089213905, 0.5922748911359421, 0.42927204605153624, 0.5000426723441673, 0.39710757106394995],
    "scores": [0.5882939156592186, 0.7528001426924872, 0.08363324711786863, 0.21596455016450378, 0.19620642673303373],
}


@pytest.mark.parametrize("name", list(OLD))
def test_load_folder_of_format_3_predicts_as_when_it_was_saved(name: str, tmp_path: Path) -> None:
    folder = Path(__file__).parent / "format_3" / name
    assert json.loads((folder / "model.json").read_text())["format"] == 3
    assert saved_task(folder) == "binary"
    model = LagrangianDualClassifier.load(folder)
    assert model.predict_proba(ROWS)[:, 1] == pytest.approx(OLD[name], abs=1e-12)
    assert model.tolerances_.to_dict() == {"all": 0.05}
    again = LagrangianDualClassifier.load(model.save(tmp_path / "again"))
    assert np.array_equal(again.predict_proba(ROWS), model.predict_proba(ROWS))


def test_load_folder_of_format_3_with_several_classes_is_refused(class_folder: Path) -> None:
    change(class_folder, format=3)
    with pytest.raises(ValueError, match=DAMAGED):
        LagrangianDualClassifier.load(class_folder)


# --- what is written


@pytest.mark.parametrize(
    ("fit", "notion"),
    [
        (fit_classes, "demographic_parity"),
        (fit_classes, "equalized_odds"),
        (fit_number, "demographic_parity"),
        (fit_number, "mean_parity"),
        (fit_number, "equal_error"),
    ],
)
def test_save_writes_neither_attribute_seed_nor_anything_by_row(fit: Any, notion: str, tmp_path: Path) -> None:
    folder = fit(notion=notion, tolerance=0.0).save(tmp_path / "model")
    content = {one.name: one.read_bytes() for one in folder.iterdir()}
    assert sorted(content) == [*(f"base-{k}.txt" for k in range(1, 6)), "correction.safetensors", "model.json"]
    assert all(str(SEED).encode() not in one for one in content.values())
    facts = json.loads(content["model.json"])
    assert lengths_of_lists(facts).isdisjoint({N, 2 * N, 3 * N})
    assert all(N not in part.shape for part in safetensors.numpy.load(content["correction.safetensors"]).values())
    lists = re.findall(rb"=((?:-?[\d.e+-]+ ?)+)$", b"\n".join(content.values()), re.MULTILINE)
    assert max(len(one.split()) for one in lists) <= 31


def lengths_of_lists(thing: Any) -> set[int]:
    if isinstance(thing, dict):
        return set().union(*map(lengths_of_lists, thing.values()))
    if isinstance(thing, list):
        return {len(thing)}.union(*map(lengths_of_lists, thing))
    return set()


def test_correction_of_classes_holds_outputs_by_label_and_action_and_no_memberships(class_folder: Path) -> None:
    parts = safetensors.numpy.load_file(class_folder / "correction.safetensors")
    units = parts["hidden"].shape[1]
    assert {name: part.shape for name, part in parts.items()} == {
        "centre": (3,),
        "spread": (3,),
        "hidden": (3 + 7, units),
        "out": (units + 1, 3, 2),
    }
    facts = json.loads((class_folder / "model.json").read_text())["rule"]
    assert set(facts) == {"base", "calibration", "costs", "quota", "correction"}
    assert set(facts["base"]) == {"kind", "words", "written", "encoded", "order", "files"}


def test_correction_of_a_number_holds_one_output_per_level_and_no_memberships(number_folder: Path) -> None:
    parts = safetensors.numpy.load_file(number_folder / "correction.safetensors")
    facts = json.loads((number_folder / "model.json").read_text())["rule"]
    units, levels = parts["hidden"].shape[1], len(facts["levels"])
    assert {name: part.shape for name, part in parts.items()} == {
        "centre": (3,),
        "spread": (3,),
        "hidden": (6, units),
        "each": (levels, units + 1, 2),
    }
    assert set(facts) == {"base", "calibration", "notion", "bounds", "levels", "correction"}
    assert set(facts["base"]) == {"kind", "words", "written", "encoded", "files"}


# --- folders that somebody made to harm


DAMAGED = r"^the model\.json of .* is damaged; save the model again\.$"
REFUSED = r"^the trees of '.*' are damaged, or of another model; save the model again\.$"


def change(folder: Path, **by: Any) -> None:
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(facts | by))


def change_rule(folder: Path, **by: Any) -> None:
    facts = json.loads((folder / "model.json").read_text())
    change(folder, rule=facts["rule"] | by)


def forge(folder: Path, name: str, content: bytes) -> None:
    """Change a file and its hash."""
    (folder / name).write_bytes(content)
    facts = json.loads((folder / "model.json").read_text())
    change(folder, files=facts["files"] | {name: hashlib.sha256(content).hexdigest()})


def assert_refused(kind: Any, folder: Path, sentence: str) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match=sentence) as said:
        kind.load(folder)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in str(said.value)
    assert most < 2**27


def deep(value: Any) -> Any:
    return [value] * 3


@pytest.mark.parametrize(
    "by",
    [
        {"calibration": [1.0, 1.0, 0.0]},
        {"calibration": {"scale": [1.0, 1.0], "shift": [0.0, 0.0]}},
        {"calibration": {"scale": [1.0, 1.0, math.nan], "shift": [0.0] * 3}},
        {"calibration": {"scale": [1.0] * 3, "shift": [math.inf] * 3}},
        {"calibration": {"scale": ["1"] * 3, "shift": [0.0] * 3}},
        {"calibration": {"scale": [1.0] * 10**5, "shift": [0.0] * 10**5}},
        {"calibration": {"scale": [deep(1.0)] * 3, "shift": [0.0] * 3}},
        {"costs": deep([0.0, 1.0])},
        {"costs": deep([0.0, math.nan, 1.0])},
        {"costs": deep(deep([0.0, 1.0, 2.0]))},
        {"costs": deep([0.0, True, 1.0])},
        {"costs": 3},
        {"costs": "costs"},
        {"quota": [0.1, 0.2, 0.3]},
        {"quota": [0.1, math.inf]},
        {"quota": [0.1, 10**400]},
        {"quota": [0.1, None]},
        {"base": None},
        {"base": {"kind": "Columns", "words": "", "written": True, "columns": ["a", "b"]}},
        {"base": {"kind": "Columns", "words": "", "written": True, "columns": ["a", "b", 3]}},
        {"base": {"kind": "Columns", "words": "", "written": True, "columns": "abc"}},
        {"base": {"kind": "Column", "words": "", "written": True, "column": "a"}},
        {"correction": True, "base": {"kind": "CrossFitted", "written": True, "encoded": True, "files": []}},
        {"base": {"kind": "CrossFitted", "written": True, "encoded": True, "files": ["base-1.txt"] * 10**5}},
        {"base": {"kind": "CrossFitted", "written": True, "encoded": True, "files": ["model.json"]}},
        *(
            {"base": {"kind": "Fitted", "written": True, "encoded": True, "files": ["base-1.txt"], "order": order}}
            for order in ([0, 1], [0, 1, 1], [0, 1, 3], "012", [0, 1, None], None)
        ),
    ],
    ids=lambda by: str(by)[:70],
)
def test_load_rule_of_classes_with_other_numbers_is_refused(class_folder: Path, by: dict[str, Any]) -> None:
    change_rule(class_folder, **by)
    assert_refused(LagrangianDualClassifier, class_folder, REFUSED)


@pytest.mark.parametrize(
    "by",
    [
        {"calibration": [1.0, 1.0, 0.0]},
        {"calibration": [math.nan, 1.0]},
        {"calibration": None},
        {"bounds": [1.0, 0.0]},
        {"bounds": [0.0, math.inf]},
        {"bounds": [0.0, 1.0, 2.0]},
        {"bounds": "01"},
        {"bounds": None},
        {"notion": "equalized_odds"},
        {"notion": "mean_parity"},
        {"notion": ["mean_parity"]},
        {"levels": None},
        {"levels": []},
        {"levels": [0.1, 0.2]},
        {"levels": [0.5] * 19},
        {"levels": [math.nan] * 19},
        {"levels": (np.arange(19) / 10).tolist()},
        {"levels": np.linspace(0, 1, 10**5).tolist()},
        {"levels": "levels"},
        {"base": {"kind": "Columns", "words": "", "written": True, "columns": ["a", "b"]}},
        {"base": {"kind": "CrossFitted", "written": True, "encoded": True, "files": ["base-1.txt"] * 101}},
    ],
    ids=lambda by: str(by)[:70],
)
def test_load_rule_of_a_number_with_other_numbers_is_refused(number_folder: Path, by: dict[str, Any]) -> None:
    change_rule(number_folder, **by)
    assert_refused(LagrangianDualRegressor, number_folder, REFUSED)


@pytest.mark.parametrize(
    "by",
    [
        {"calibration": [1.0, 1.0]},
        {"calibration": [1.0, 1.0, math.nan]},
        {"threshold": math.nan},
        {"threshold": 7.0},
    ],
    ids=str,
)
def test_load_rule_of_two_classes_with_other_numbers_is_refused(tmp_path: Path, by: dict[str, Any]) -> None:
    folder = fit_classes(y=CODES > 0).save(tmp_path / "model")
    change_rule(folder, **by)
    assert_refused(LagrangianDualClassifier, folder, REFUSED)


@pytest.mark.parametrize(
    "by",
    [
        {"hidden": np.zeros((6, 12))},
        {"hidden": np.zeros(10)},
        {"hidden": np.zeros(())},
        {"out": np.zeros((13, 2))},
        {"out": np.zeros((13, 3, 3))},
        {"out": np.full((13, 3, 2), np.inf)},
        {"centre": np.zeros(4)},
        {"spread": np.zeros(3)},
        {"spread": np.ones(3, dtype=np.float32)},
        {"each": np.zeros((2, 13, 2))},
        {"levels": np.array([0.2, 0.4])},
    ],
    ids=lambda by: ", ".join(f"{name} {part.shape}" for name, part in by.items()),
)
@pytest.mark.parametrize("target", ["classes", "number"])
def test_load_correction_of_another_shape_is_refused_though_its_hash_is_right(
    request: pytest.FixtureRequest, target: str, by: dict[str, Any]
) -> None:
    folder = request.getfixturevalue("class_folder" if target == "classes" else "number_folder")
    name = "correction.safetensors"
    parts = safetensors.numpy.load((folder / name).read_bytes())
    if target == "number" and "hidden" in by and by["hidden"].ndim == 2:
        by = {"hidden": np.zeros((10, 12))}  # of three classes
    forge(folder, name, safetensors.numpy.save(parts | by))
    assert_refused(LagrangianDualClassifier if target == "classes" else LagrangianDualRegressor, folder, REFUSED)


@pytest.mark.parametrize(
    ("pattern", "by"),
    [
        ("num_class:3", "num_class:4"),
        ("num_class:3", "num_class:1000000000"),
        (r"multiclass num_class:3", "regression"),
        (r"(?m)^split_feature=\S+", "split_feature=99999"),
        (r"(?m)^leaf_value=\S+", "leaf_value=nan"),
    ],
)
def test_load_trees_of_another_target_are_refused_though_their_hash_is_right(
    class_folder: Path, pattern: str, by: str
) -> None:
    text = re.sub(pattern, by, (class_folder / "base-1.txt").read_text(), count=1)
    forge(class_folder, "base-1.txt", text.encode())
    assert_refused(LagrangianDualClassifier, class_folder, REFUSED)


def test_load_trees_of_classes_in_place_of_those_of_a_number_are_refused(
    class_folder: Path, number_folder: Path, tmp_path: Path
) -> None:
    of_classes, of_number = ((folder / "base-1.txt").read_bytes() for folder in (class_folder, number_folder))
    two = fit_classes(y=CODES > 0).save(tmp_path / "two")
    of_two = (two / "base-1.txt").read_bytes()
    for folder, kind, others in (
        (class_folder, LagrangianDualClassifier, (of_number, of_two)),
        (number_folder, LagrangianDualRegressor, (of_classes, of_two)),
        (two, LagrangianDualClassifier, (of_classes, of_number)),
    ):
        for content in others:
            forge(folder, "base-1.txt", content)
            assert_refused(kind, folder, REFUSED)


@pytest.mark.parametrize(
    "by",
    [
        {"coef": [[1.0] * 3] * 2},
        {"coef": [[1.0] * 4] * 3},
        {"coef": [[1.0] * 3, [1.0] * 3, [1.0] * 2]},
        {"coef": [[math.nan] * 3] * 3},
        {"coef": [1.0] * 3},
        {"intercept": 0.0},
        {"intercept": [0.0, 0.0]},
        {"intercept": [math.inf] * 3},
        {"dtype": "V1000000000"},
    ],
    ids=str,
)
def test_load_coefficients_of_classes_of_another_shape_are_refused(tmp_path: Path, by: dict[str, Any]) -> None:
    folder = fit_classes(base=LogisticRegression()).save(tmp_path / "model")
    held = json.loads((folder / "base-1.json").read_text())
    forge(folder, "base-1.json", json.dumps(held | by).encode())
    assert_refused(LagrangianDualClassifier, folder, REFUSED)


@pytest.mark.parametrize(
    "by",
    [{"model": "RandomForestRegressor"}, {"model": ["Ridge"]}, {"intercept": math.nan}, {"coef": [[1.0] * 3]}],
    ids=str,
)
def test_load_coefficients_of_a_number_of_another_shape_are_refused(tmp_path: Path, by: dict[str, Any]) -> None:
    folder = fit_number(base=LinearRegression()).save(tmp_path / "model")
    held = json.loads((folder / "base-1.json").read_text())
    forge(folder, "base-1.json", json.dumps(held | by).encode())
    assert_refused(LagrangianDualRegressor, folder, REFUSED)


@pytest.mark.parametrize(
    "by",
    [
        {"task": "ranking"},
        {"task": None},
        {"task": ["classes"]},
        {"task": "binary"},
        {"rule": None},
        {"tolerances": [0.1]},
        {"tolerances": ["x", "y", "z"]},
        {"tolerance": "x"},
        {"parameters": {"noise_seed": 1}},
        {"parameters": {"plan": None}},
        {"classes": {"dtype": "<i8", "labels": [0, 1]}},
        {"classes": {"dtype": "<i8", "labels": [0, 1, 1]}},
        {"classes": {"dtype": "<f8", "labels": [0.0, 1.0, math.nan]}},
        {"classes": {"dtype": "<U10000", "labels": [str(k) for k in range(10_000)]}},
        {"classes": {"dtype": "|O", "labels": [["a"], ["b"], ["c"]]}},
        {"classes": None},
    ],
    ids=lambda by: str(by)[:70],
)
def test_load_description_of_classes_of_another_shape_is_refused(class_folder: Path, by: dict[str, Any]) -> None:
    change(class_folder, **by)
    assert_refused(LagrangianDualClassifier, class_folder, DAMAGED)


def test_load_more_classes_than_the_trees_have_is_refused(class_folder: Path) -> None:
    change(class_folder, classes={"dtype": "<i8", "labels": list(range(100_000))})
    assert_refused(LagrangianDualClassifier, class_folder, REFUSED)


@pytest.mark.parametrize("by", [{"task": "ranking"}, {"rule": None}, {"parameters": {"threshold": 0.5}}], ids=str)
def test_load_description_of_a_number_of_another_shape_is_refused(number_folder: Path, by: dict[str, Any]) -> None:
    change(number_folder, **by)
    assert_refused(LagrangianDualRegressor, number_folder, DAMAGED)
