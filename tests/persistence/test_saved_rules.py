"""Rules of engine "post-processing" saved and loaded: the same bits, no pickle, and nothing that is not needed."""

import builtins
import hashlib
import json
import math
import pickle
import re
import stat
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from justitia import LagrangianDualClassifier, MomentsPlan, tradeoff
from justitia.datasets import make_synthetic
from justitia.postprocessing.correction import UNITS, Correction, Rule

DATA = make_synthetic(400, random_state=0)
X = np.asarray(DATA.X, dtype=np.float64)
TABLE = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
LATER = pd.DataFrame(np.random.default_rng(1).normal(size=(500, X.shape[1])), columns=list(TABLE))
SEED = 987654321987
NETWORK = MomentsPlan(warmup_steps=20, rounds=4, public_steps=2, checks=1, batch_size=64)
DEFAULT_FILES = [*(f"base-{k}.txt" for k in range(1, 6)), "correction.safetensors", "model.json"]


def fit(rows: Any = TABLE, y: Any = DATA.y, **changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"epsilon": 8.0, "groups": list(DATA.groups), "tolerance": 0.02, "random_state": 0}
    model = LagrangianDualClassifier(**usual | {"noise_seed": SEED} | changes)
    return model.fit(rows, y, sensitive_features=DATA.sensitive)


@pytest.fixture(scope="module")
def model() -> LagrangianDualClassifier:
    return fit()


@pytest.fixture
def folder(model: LagrangianDualClassifier, tmp_path: Path) -> Path:
    return model.save(tmp_path / "model")


def load(folder: Path, **given: Any) -> LagrangianDualClassifier:
    return LagrangianDualClassifier.load(folder, **given)


def assert_same(again: LagrangianDualClassifier, model: LagrangianDualClassifier, rows: Any = LATER) -> None:
    assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows))
    assert np.array_equal(again.decision_function(rows), model.decision_function(rows))
    assert again.predict(rows).tolist() == model.predict(rows).tolist()


def trees(**settings: Any) -> Any:
    return lightgbm.LGBMClassifier(n_estimators=6, num_leaves=5, verbosity=-1, n_jobs=1, **settings)


# --- the same bits


def test_load_default_rule_gives_back_everything_that_fit_released(model: Any, folder: Path) -> None:
    again = load(folder)
    assert_same(again, model)
    assert not model.rule_.correction.is_zero
    assert again.certificate_ == model.certificate_
    assert again.plan_ == model.plan_
    assert again.tolerance_ == model.tolerance_
    pd.testing.assert_frame_equal(again.dual_, model.dual_, check_exact=True)
    pd.testing.assert_frame_equal(again.history_, model.history_, check_exact=True)
    assert again.get_params() == {**model.get_params(), "engine": "post-processing", "noise_seed": None}
    assert again.rule_.base.describe() == model.rule_.base.describe()


def test_load_saved_once_more_is_the_same_to_the_byte(folder: Path, tmp_path: Path) -> None:
    twice = load(folder).save(tmp_path / "twice")
    assert {one.name: one.read_bytes() for one in twice.iterdir()} == {
        one.name: one.read_bytes() for one in folder.iterdir()
    }


def test_load_table_with_words_and_missing_numbers_predicts_bit_identically(tmp_path: Path) -> None:
    rows = TABLE.assign(job=np.where(X[:, 1] > 0, "clerk", "baker"), x0=TABLE["x0"].where(X[:, 2] > -1))
    model = fit(rows)
    assert_same(load(model.save(tmp_path / "model")), model, rows)


@pytest.mark.parametrize("plan", [None, NETWORK], ids=["post-processing", "moments"])
def test_load_without_a_tolerance_knows_the_one_in_force(plan: Any, tmp_path: Path) -> None:
    model = fit(tolerance=None, plan=plan, module=None if plan is None else (4,))
    again = load(model.save(tmp_path / "model"))
    assert again.tolerance is None
    assert again.tolerance_ == model.tolerance_ > 0


def test_load_base_within_the_tolerance_has_no_correction(tmp_path: Path) -> None:
    model = fit()
    model.rule_ = Rule(model.rule_.base, model.rule_.calibration, Correction(), 0.5)
    folder = model.save(tmp_path / "model")
    assert not (folder / "correction.safetensors").exists()
    assert_same(load(folder), model)


@pytest.mark.parametrize(
    "chosen", [{"threshold": 0.3}, {"class_weight": {"no": 1.0, "yes": 3.0}}, {"class_weight": "balanced"}]
)
def test_load_keeps_where_it_decides(chosen: dict[str, Any], tmp_path: Path) -> None:
    model = fit(y=np.where(DATA.y == 1, "yes", "no"), **chosen)
    again = load(model.save(tmp_path / "model"))
    assert again.rule_.threshold == model.rule_.threshold != 0.5
    assert again.get_params() | {"noise_seed": SEED} == model.get_params() | {"engine": "post-processing"}
    assert_same(again, model)


def test_load_sibling_of_a_curve_has_the_leaves_of_its_own_tolerance(tmp_path: Path) -> None:
    start = LagrangianDualClassifier(epsilon=8.0, groups=DATA.groups, random_state=0, noise_seed=SEED)
    curve = tradeoff(start, TABLE, DATA.y, sensitive_features=DATA.sensitive, tolerances=(0.0, 0.1, 0.2))
    scores = []
    for place, one in enumerate(curve.models):
        again = load(one.save(tmp_path / str(place)))
        assert_same(again, one)
        assert again.tolerance_ == (0.0, 0.1, 0.2)[place]
        scores.append(again.decision_function(LATER))
    assert not np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[1], scores[2])


CATEGORIES = TABLE.assign(x1=pd.cut(TABLE["x1"], 4, labels=["a", "b", "c", "d"]))
WRITTEN: dict[str, tuple[Any, Any]] = {
    "LightGBM": (trees(), TABLE),
    "LightGBM on an array": (trees(), X),
    "LightGBM with categories": (trees(min_data_per_group=5), CATEGORIES),
    "LightGBM fitted": (trees().fit(X, DATA.y), X),
    "LightGBM fitted on words": (trees().fit(X, np.where(DATA.y == 1, "1", "0")), X),
    "LightGBM fitted for the other answer": (trees().fit(X, np.where(DATA.y == 1, 1, 7)), X),
    "logistic regression": (LogisticRegression(), TABLE),
    "logistic regression fitted": (LogisticRegression().fit(X, np.where(DATA.y == 1, 1, 7)), X),
    "logistic regression in float32": (LogisticRegression(), X.astype(np.float32)),
    "column": ("score", TABLE.assign(score=1 / (1 + np.exp(-X[:, 0])))),
}


@pytest.mark.parametrize("name", list(WRITTEN))
def test_load_base_that_can_be_written_predicts_bit_identically(name: str, tmp_path: Path) -> None:
    base, rows = WRITTEN[name]
    model = fit(rows, base=base)
    again = load(model.save(tmp_path / "model"))
    assert_same(again, model, rows)
    assert again.rule_.base.describe() == model.rule_.base.describe()
    assert again.base == (base if isinstance(base, str) else None)
    assert_same(load(again.save(tmp_path / "twice")), model, rows)


def by_hand(table: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(table)[:, 0]))


KEPT = {
    "neighbours": KNeighborsClassifier(10).fit(X, DATA.y),
    "pipeline": make_pipeline(StandardScaler(), KNeighborsClassifier(10)).fit(X, DATA.y),
    "function": by_hand,
    "linear leaves": trees(linear_tree=True).fit(X, DATA.y),
    "option of predictions": trees(pred_early_stop=True).fit(X, DATA.y),
}


@pytest.mark.parametrize("name", list(KEPT))
def test_load_base_that_cannot_be_written_is_asked_for(name: str, tmp_path: Path) -> None:
    model = fit(X, base=KEPT[name])
    folder = model.save(tmp_path / "model", without_base=True)
    assert sorted(one.name for one in folder.iterdir()) == ["correction.safetensors", "model.json"]
    with pytest.raises(ValueError, match=r"which is not in the folder, got none; pass load\(\.\.\., base=that") as told:
        load(folder)
    assert model.rule_.base.describe() in str(told.value)
    assert_same(load(folder, base=KEPT[name]), model, X)


@pytest.mark.parametrize("name", list(KEPT))
def test_save_base_that_cannot_be_written_is_refused_before_anything_is_written(
    name: str, model: Any, tmp_path: Path
) -> None:
    mine = fit(X, base=KEPT[name])
    with pytest.raises(
        ValueError, match=r"^expected a base that can be saved \(a LightGBM classifier, .*\), got"
    ) as told:
        mine.save(tmp_path / "new" / "model")
    assert mine.rule_.base.describe() in str(told.value)
    assert "save(folder, without_base=True), then load(folder, base=that base)." in str(told.value)
    assert list(tmp_path.iterdir()) == []
    before = model.save(tmp_path / "earlier")
    held = {one.name: one.read_bytes() for one in before.iterdir()}
    with pytest.raises(ValueError, match="expected a base that can be saved"):
        mine.save(before)
    assert {one.name: one.read_bytes() for one in before.iterdir()} == held


def test_load_base_that_was_cross_fitted_is_the_one_of_the_rule(tmp_path: Path) -> None:
    neighbours = KNeighborsClassifier(10)
    model = fit(X, base=neighbours)
    folder = model.save(tmp_path / "model", without_base=True)
    with pytest.raises(ValueError, match="got one that is not fitted; pass load"):
        load(folder, base=neighbours)
    assert_same(load(folder, base=model.rule_.base), model, X)


def test_load_base_where_none_is_needed_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected no base, since this model holds its own \(LGBMClassifier, "):
        load(folder, base=by_hand)
    network = fit(plan=NETWORK, module=(4,)).save(tmp_path / "network")
    with pytest.raises(ValueError, match="holds a network, got one; leave it out"):
        load(network, base=by_hand)


def test_load_base_that_is_no_model_is_refused(tmp_path: Path) -> None:
    folder = fit(X, base=by_hand).save(tmp_path / "model", without_base=True)
    with pytest.raises(TypeError, match="expected base to be a classifier"):
        load(folder, base=3)


# --- what is written


def test_save_writes_trees_without_attribute_seed_or_a_number_per_row(model: Any, folder: Path) -> None:
    assert sorted(one.name for one in folder.iterdir()) == DEFAULT_FILES
    correction = folder / "correction.safetensors"
    written = "\n".join(one.read_text() for one in folder.iterdir() if one != correction)
    assert str(SEED) not in written
    facts = json.loads((folder / "model.json").read_text())
    assert set(facts["rule"]) == {"base", "calibration", "threshold", "correction"}
    assert set(facts["rule"]["base"]) == {"kind", "words", "written", "encoded", "second", "files"}
    # Arrays of more numbers than a tree has leaves would be rows, memberships or their weights.
    lists = re.findall(r"=((?:-?[\d.e+-]+ ?)+)$", written, re.MULTILINE)
    assert max(len(one.split()) for one in lists) <= 31
    assert len(model.rule_.__dict__) == 6
    assert model.rule_.levels is None
    parts = safetensors.numpy.load_file(correction)
    assert {name: part.shape for name, part in parts.items()} == {
        "centre": (5,),
        "spread": (5,),
        "hidden": (8, UNITS),
        "out": (UNITS + 1, 2),
    }


def test_save_gives_files_the_permissions_of_other_files(model: Any, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    folder = model.save(tmp_path / "model")
    assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {stat.S_IMODE(plain.stat().st_mode)}


def test_load_runs_no_pickle_and_no_code(model: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.predict_proba(LATER)

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("load must not run code")

    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (joblib, "load")):
        monkeypatch.setattr(owner, name, forbidden)
    monkeypatch.setattr(builtins, "eval", forbidden)
    assert np.array_equal(load(folder).predict_proba(LATER), expected)


def test_save_without_privacy_is_read_again(tmp_path: Path) -> None:
    model = fit(epsilon=math.inf)
    assert_same(load(model.save(tmp_path / "model")), model)


# --- folders of others, and earlier models


def test_save_rule_over_a_network_and_back_leaves_no_file_of_the_other(model: Any, tmp_path: Path) -> None:
    network = fit(plan=NETWORK, module=(4,))
    for one, files in ((network, ["model.json", "weights.safetensors"]), (model, DEFAULT_FILES)) * 2:
        folder = one.save(tmp_path / "model")
        assert sorted(file.name for file in folder.iterdir()) == files


@pytest.mark.parametrize("name", ["base-1.txt", "base-9.txt", "correction.safetensors", "base-1.json"])
def test_save_over_a_rule_with_a_file_of_others_is_refused(model: Any, folder: Path, name: str) -> None:
    mine = lightgbm.train({"verbosity": -1}, lightgbm.Dataset(X, DATA.y), 2).model_to_string()
    (folder / name).write_text(mine)
    with pytest.raises(FileExistsError, match=f"holds {name!r}, which does not belong to a saved model"):
        model.save(folder)
    assert (folder / name).read_text() == mine


# --- files that are damaged, mixed up or made to harm


def refused(folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^the trees of '.*' are damaged, or of another model; save the model again\.$"
    ):
        load(folder)


@pytest.mark.parametrize("name", ["base-3.txt", "correction.safetensors"])
def test_load_file_that_is_cut_or_gone_is_refused_in_one_sentence(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    refused(folder)
    (folder / name).unlink()
    refused(folder)


def test_load_files_that_are_mixed_up_are_refused(model: Any, folder: Path, tmp_path: Path) -> None:
    other = fit(random_state=9).save(tmp_path / "other")
    (folder / "correction.safetensors").write_bytes((other / "correction.safetensors").read_bytes())
    refused(folder)
    model.save(folder.with_name("again"))
    first, second = (folder.with_name("again") / f"base-{k}.txt" for k in (1, 2))
    first.replace(tmp_path / "aside")
    second.replace(first)
    (tmp_path / "aside").replace(second)
    refused(folder.with_name("again"))


def forged(folder: Path, name: str, content: bytes) -> None:
    """Change a file and its hash."""
    (folder / name).write_bytes(content)
    facts = json.loads((folder / "model.json").read_text())
    facts["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "model.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("name", "pattern", "by"),
    [
        ("base-1.txt", r"(?m)^left_child=\S+", "left_child=99999"),
        ("base-1.txt", r"(?m)^split_feature=\S+", "split_feature=99999"),
        ("base-1.txt", r"objective=.*", "objective=regression"),
        ("base-1.txt", r"(?s)^.*$", "\udcff"),
    ],
)
def test_load_trees_that_lead_nowhere_are_refused_though_their_hash_is_right(
    folder: Path, name: str, pattern: str, by: str
) -> None:
    text = re.sub(pattern, by, (folder / name).read_text(), count=1)
    forged(folder, name, text.encode(errors="surrogateescape"))
    refused(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": np.zeros((4, 12))},
        {"out": np.zeros((13, 3))},
        {"out": np.full((13, 2), np.nan)},
        {"spread": np.ones(5, dtype=np.float32)},
        {"more": np.ones(5)},
    ],
)
def test_load_correction_of_another_shape_is_refused_though_its_hash_is_right(folder: Path, change: Any) -> None:
    name = "correction.safetensors"
    parts = safetensors.numpy.load((folder / name).read_bytes())
    forged(folder, name, safetensors.numpy.save(parts | change))
    refused(folder)


def test_load_correction_that_is_no_array_is_refused_though_its_hash_is_right(folder: Path) -> None:
    forged(folder, "correction.safetensors", b"not arrays")
    refused(folder)


def test_load_trees_of_another_number_of_columns_are_refused_though_their_hash_is_right(
    folder: Path, tmp_path: Path
) -> None:
    wider = fit(TABLE.assign(more=X[:, 0])).save(tmp_path / "wider")
    forged(folder, "base-1.txt", (wider / "base-1.txt").read_bytes())
    refused(folder)


def test_load_file_larger_than_any_of_ours_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("justitia.persistence.folder.MAX_BYTES", 1000)
    monkeypatch.setattr("justitia.persistence.folder._digest", lambda _: pytest.fail("the file was read"))
    with pytest.raises(ValueError, match=r"'.*base-1\.txt' to have at most 1,000 bytes, got more; write it again\.$"):
        load(folder)


@pytest.mark.parametrize("part", ["base", "calibration", "threshold", "correction"])
@pytest.mark.parametrize("by", [None, "x", {}, []])
def test_load_facts_of_a_rule_that_are_damaged_are_refused(folder: Path, part: str, by: Any) -> None:
    facts = json.loads((folder / "model.json").read_text())
    facts["rule"][part] = by
    if part == "correction":
        facts["files"].pop("correction.safetensors")
        facts["rule"][part] = True
    (folder / "model.json").write_text(json.dumps(facts))
    refused(folder)


def test_load_logistic_regression_of_other_columns_is_refused_though_its_hash_is_right(tmp_path: Path) -> None:
    folder = fit(base=LogisticRegression()).save(tmp_path / "model")
    assert "base-1.json" in {one.name for one in folder.iterdir()}
    facts = json.loads((folder / "base-1.json").read_text())
    for wrong in ({"coef": [1.0]}, {"dtype": "object"}, {"intercept": "x"}, {"coef": [math.nan] * X.shape[1]}):
        forged(folder, "base-1.json", json.dumps(facts | wrong).encode())
        refused(folder)


def test_load_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    one, other = (fit(plan=NETWORK, module=(4,), random_state=k).save(tmp_path / str(k)) for k in (0, 1))
    (one / "weights.safetensors").write_bytes((other / "weights.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"the weights of .* are damaged"):
        load(one)


def test_load_coefficients_of_another_type_or_number_are_refused_though_their_hash_is_right(tmp_path: Path) -> None:
    folder = fit(base=LogisticRegression()).save(tmp_path / "model")
    held = json.loads((folder / "base-1.json").read_text())
    for change in ({"dtype": "|O"}, {"dtype": "V1000000000"}, {"dtype": "<U100000000"}, {"coef": [1.0] * 4}):
        forged(folder, "base-1.json", json.dumps(held | change).encode())
        refused(folder)
    forged(folder, "base-1.json", b"[" * 100_000)
    refused(folder)
