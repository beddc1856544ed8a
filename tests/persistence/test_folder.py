"""Save and load: safetensors plus JSON, the same predictions, no code executed."""

import builtins
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

from justitia import LagrangianDualClassifier, MomentsPlan, PFLDAsPublishedPlan, PFLDPlan
from justitia.engines import engine_of


def saved_and_loaded(model: Any, people: Any, folder: Path, **changes: Any) -> tuple[Any, Any]:
    given = {"X": people.X, "y": people.y, "sensitive_features": people.a} | changes
    model.fit(given.pop("X"), given.pop("y"), **given)
    model.save(folder / "model")
    return model, LagrangianDualClassifier.load(folder / "model")


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array([0, 1], dtype=object),
        np.array([False, True], dtype=object),
        np.array([-1, 1]),
        np.array([3, 7], dtype=np.uint8),
        np.array([False, True]),
        np.array([0.1, 1.5]),
        np.array([0.1, 1.5], dtype=np.float32),
    ],
    ids=lambda labels: f"{labels.dtype} {labels[1]}",
)
def test_load_any_labels_predicts_bit_identically(people: Any, make: Any, tmp_path: Path, labels: Any) -> None:
    model, again = saved_and_loaded(make(), people, tmp_path, y=labels[people.y])
    assert again.classes_.dtype == labels.dtype
    assert again.classes_.tolist() == labels.tolist()
    assert np.array_equal(again.decision_function(people.X), model.decision_function(people.X))
    assert np.array_equal(again.predict(people.X), model.predict(people.X))


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
@pytest.mark.parametrize("engine", ["moments", "pf-ld", "pf-ld-as-published"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # few rows, large noise: fit says so
def test_load_gives_back_everything_that_fit_released(
    people: Any, make: Any, tmp_path: Path, engine: str, epsilon: float
) -> None:
    options = {"optimizer_options": {"betas": (0.8, 0.99)}, "batch_size": 64}
    plans = {
        "moments": MomentsPlan(warmup_steps=5, rounds=3, public_steps=1, checks=1, **options),
        "pf-ld": PFLDPlan(private_steps=2, warmup_steps=5, **options),
        "pf-ld-as-published": PFLDAsPublishedPlan(epochs=1, **options),
    }
    start = make(engine=engine, plan=plans[engine], epsilon=epsilon, notion="equalized_odds", tolerance=0.01)
    model, again = saved_and_loaded(start, people, tmp_path)
    assert again.certificate_ == model.certificate_
    assert again.plan_ == model.plan_
    pd.testing.assert_frame_equal(again.dual_, model.dual_, check_exact=True)
    pd.testing.assert_frame_equal(again.history_, model.history_, check_exact=True)
    assert again.history_columns_ == model.history_columns_
    kept = {**model.get_params(), "engine": engine_of(engine, None), "plan": None, "noise_seed": None}
    assert again.get_params() == kept


@pytest.mark.parametrize(
    "groups",
    ["infer", ["f", "m"], np.array(["f", "m"]), {"sex": ["f", "m"]}, [0, 1], [True, False]],
    ids=["infer", "list", "array", "mapping", "ints", "bools"],
)
def test_load_groups_are_labels_not_printed_names(people: Any, make: Any, tmp_path: Path, groups: Any) -> None:
    attribute = pd.Series(people.a if "f" in str(groups) else people.a == "f", name="sex")
    model, again = saved_and_loaded(make(groups=groups), people, tmp_path, sensitive_features=attribute)
    assert again.groups == (groups.tolist() if isinstance(groups, np.ndarray) else groups)
    refit = again.set_params(plan=model.plan, noise_seed=0).fit(people.X, people.y, sensitive_features=attribute)
    assert np.array_equal(refit.decision_function(people.X), model.decision_function(people.X))


def test_load_crossed_groups_stay_tuples(people: Any, make: Any, tmp_path: Path) -> None:
    attribute = pd.DataFrame({"sex": people.a, "old": people.X[:, 2] > 0})
    groups = [("f", True), ("f", False), ("m", True), ("m", False)]
    _, again = saved_and_loaded(make(groups=groups, epsilon=50.0), people, tmp_path, sensitive_features=attribute)
    assert again.groups == groups
    assert again.dual_.index[0] == "sex=f & old=True"


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_load_preprocessing_and_names_survive(people: Any, make: Any, tmp_path: Path, frame: Any) -> None:
    X = frame(
        {"age": [None, *people.X[1:, 0]], "job": np.where(people.X[:, 1] > 0, "clerk", "baker"), "x": people.X[:, 2]}
    )
    model, again = saved_and_loaded(make(), people, tmp_path, X=X)
    assert np.array_equal(again.decision_function(X), model.decision_function(X))
    assert again.feature_names_in_.tolist() == ["age", "job", "x"]
    with pytest.raises(ValueError, match="same order"):
        again.predict(X[["x", "job", "age"]])


def test_load_without_preprocessing(people: Any, make: Any, tmp_path: Path) -> None:
    model, again = saved_and_loaded(make(preprocess=None), people, tmp_path)
    assert np.array_equal(again.predict_proba(people.X), model.predict_proba(people.X))
    assert not hasattr(again, "encoder_")


def own_module() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.LayerNorm(4), nn.Linear(4, 1))


def test_load_own_module_is_asked_for_and_copied(people: Any, make: Any, tmp_path: Path) -> None:
    model = make(module=own_module()).fit(people.X, people.y, sensitive_features=people.a)
    assert model.save(tmp_path / "model") == tmp_path / "model"
    with pytest.raises(ValueError, match="was fitted with a module of its own; pass load"):
        LagrangianDualClassifier.load(tmp_path / "model")
    with pytest.raises(ValueError, match="pass one of the same shape"):
        LagrangianDualClassifier.load(tmp_path / "model", module=nn.Linear(3, 1))
    given = own_module()
    before = given[0].weight.clone()
    again = LagrangianDualClassifier.load(tmp_path / "model", module=given)
    assert np.array_equal(again.decision_function(people.X), model.decision_function(people.X))
    assert torch.equal(given[0].weight, before)


def test_load_subclass_gives_the_subclass(people: Any, make: Any, tmp_path: Path) -> None:
    class Mine(LagrangianDualClassifier):
        pass

    make().fit(people.X, people.y, sensitive_features=people.a).save(tmp_path / "model")
    assert type(Mine.load(tmp_path / "model")) is Mine


def test_save_writes_two_files_without_the_attribute(people: Any, make: Any, tmp_path: Path) -> None:
    labels = people.a.astype(object)
    labels[3] = "zanzibar-7319"
    saved_and_loaded(make(), people, tmp_path, sensitive_features=pd.Series(labels, name="origin"))
    files = sorted((tmp_path / "model").iterdir())
    assert [file.name for file in files] == ["model.json", "weights.safetensors"]
    assert all(b"zanzibar" not in file.read_bytes() for file in files)
    assert all(len(column["values"]) != 120 for column in json.loads(files[0].read_text())["history"])
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_load_runs_no_pickle_and_no_code(people: Any, make: Any, tmp_path: Path, monkeypatch: Any) -> None:
    make().fit(people.X, people.y, sensitive_features=people.a).save(tmp_path / "model")

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("load must not run code")

    for owner, name in (
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (torch, "load"),
        (builtins, "eval"),
    ):
        monkeypatch.setattr(owner, name, forbidden)
    assert LagrangianDualClassifier.load(tmp_path / "model").n_features_in_ == 3


def test_save_over_an_earlier_model_replaces_it(people: Any, make: Any, tmp_path: Path) -> None:
    first, _ = saved_and_loaded(make(), people, tmp_path)
    second, again = saved_and_loaded(make(random_state=9), people, tmp_path)
    assert np.array_equal(again.predict_proba(people.X), second.predict_proba(people.X))
    assert not np.array_equal(again.predict_proba(people.X), first.predict_proba(people.X))
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_save_folder_of_something_else_is_refused(people: Any, make: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    model = make().fit(people.X, people.y, sensitive_features=people.a)
    with pytest.raises(FileExistsError, match="exists and is not a saved model; choose another folder"):
        model.save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["notes.txt", "people.ledger", "weights.safetensors", "weights.safetensors/mine", "training.json"]
)
def test_save_over_a_model_with_a_foreign_file_is_refused(people: Any, make: Any, tmp_path: Path, name: str) -> None:
    model, _ = saved_and_loaded(make(), people, tmp_path)
    file = tmp_path / "model" / name
    if not file.parent.is_dir():
        file.parent.unlink()
        file.parent.mkdir()
    file.write_text("mine")
    with pytest.raises(
        FileExistsError, match=f"holds {name.partition('/')[0]!r}, which does not belong to a saved model"
    ):
        model.save(tmp_path / "model")
    assert file.read_text() == "mine"


def test_save_over_a_model_json_of_another_program_is_refused(people: Any, make: Any, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"format": 1}')
    model = make().fit(people.X, people.y, sensitive_features=people.a)
    with pytest.raises(FileExistsError, match=r"holds 'model.json', which does not belong"):
        model.save(tmp_path)
    assert (tmp_path / "model.json").read_text() == '{"format": 1}'


def test_save_over_a_link_is_refused_and_its_target_stays(people: Any, make: Any, tmp_path: Path) -> None:
    model, _ = saved_and_loaded(make(), people, tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "model")
    with pytest.raises(FileExistsError, match="is a symbolic link; choose another name"):
        model.save(tmp_path / "link")
    assert sorted(one.name for one in (tmp_path / "model").iterdir()) == ["model.json", "weights.safetensors"]


def test_save_over_a_model_with_what_commands_keep_beside_it_replaces_all(
    people: Any, make: Any, tmp_path: Path
) -> None:
    model, _ = saved_and_loaded(make(), people, tmp_path)
    kept = {
        "training.json": {"target": "y", "sensitive": ["a"], "command": "justitia train", "justitia": "1", "rows": 3},
        "measurement-001.json": {"people": 3, "by_group": [], "certificate": {}},
        "tradeoff.json": {"points": [], "chosen": None},
    }
    for name, facts in kept.items():
        (tmp_path / "model" / name).write_text(json.dumps(facts))
    model.save(tmp_path / "model")
    assert sorted(one.name for one in (tmp_path / "model").iterdir()) == ["model.json", "weights.safetensors"]


def test_save_label_that_json_lacks_is_refused_and_writes_nothing(people: Any, make: Any, tmp_path: Path) -> None:
    days = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")
    model = make().fit(people.X, days[people.y], sensitive_features=people.a)
    with pytest.raises(TypeError, match="got 'date', which JSON has not"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_save_before_fit_is_refused(make: Any, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        make().save(tmp_path / "model")


def test_load_damaged_folder_is_refused_in_one_sentence(people: Any, make: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"it has no model\.json"):
        LagrangianDualClassifier.load(tmp_path)
    folder = make().fit(people.X, people.y, sensitive_features=people.a).save(tmp_path / "model")
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(facts | {"format": 99}))
    with pytest.raises(ValueError, match="has model format 99; this version reads formats 3 and 4"):
        LagrangianDualClassifier.load(folder)
    (folder / "model.json").write_text("{")
    with pytest.raises(ValueError, match=r"the model\.json of .* is damaged"):
        LagrangianDualClassifier.load(folder)
    (folder / "model.json").write_text(json.dumps(facts))
    (folder / "weights.safetensors").write_bytes(b"garbage")
    with pytest.raises(ValueError, match=r"the weights of .* are damaged"):
        LagrangianDualClassifier.load(folder)


# --- folders that somebody made to harm


@pytest.fixture
def folder(people: Any, make: Any, tmp_path: Path) -> Path:
    return make().fit(people.X, people.y, sensitive_features=people.a).save(tmp_path / "model")


def assert_refused(folder: Path, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as told:
        LagrangianDualClassifier.load(folder)
    assert str(told.value).count("\n") == 0


#: Columns of an encoder; the first would make a list of 10^10 names.
COLUMNS: list[dict[str, Any]] = [
    {"kind": "category", "name": "c", "levels": ["a"], "other": 10**10, "missing": False},
    {"kind": "category", "name": "c", "levels": ["a"], "other": False, "missing": 10**10},
    {"kind": "category", "name": "c", "levels": [["a"]], "other": False, "missing": False},
    {"kind": "number", "name": "c", "median": "0", "mean": 0.0, "scale": 1.0, "missing": False},
    {"kind": "number", "name": 7, "median": 0.0, "mean": 0.0, "scale": 1.0, "missing": False},
]
DAMAGED = r"^the model\.json of .* is damaged; save the model again\.$"


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes of POSIX")
@pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
def test_load_file_that_is_no_regular_one_is_refused_and_not_read(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name).replace(tmp_path / "aside")
    for target in ("/dev/zero", tmp_path / "aside", tmp_path / "nothing"):
        (folder / name).symlink_to(target)
        assert_refused(folder, rf"^expected '.*{name}' to be a regular file, got a link; copy the file")
        (folder / name).unlink()
    os.mkfifo(folder / name)
    assert_refused(folder, rf"^expected '.*{name}' to be a regular file, got a device, pipe or folder")
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises((ValueError, IsADirectoryError)):
        LagrangianDualClassifier.load(folder)


def test_load_description_larger_than_any_of_ours_is_refused_and_not_read(folder: Path) -> None:
    with (folder / "model.json").open("r+b") as file:
        file.truncate(2**26 + 1)  # a hole: it takes no room on the disk
    assert_refused(folder, r"model\.json' to have at most 67,108,864 bytes, got more; write it again\.$")


@pytest.mark.parametrize("depth", [40, 2_000, 1_000_000])
def test_load_description_that_is_nested_deeply_is_refused(folder: Path, depth: int) -> None:
    facts = json.loads((folder / "model.json").read_text())
    text = json.dumps(facts | {"groups": 0}).replace('"groups": 0', f'"groups": {"[" * depth}{"]" * depth}')
    (folder / "model.json").write_text(text)
    assert_refused(folder, "to be nested at most 32 levels deep, got more; write it again")


@pytest.mark.parametrize(
    "widths",
    [[3, 10**9, 1], [3, 10**9, 10**9, 1], [3] * 100_000, [3, -4, 1], [], [3], "wide", [3, "x", 1], {"a": 1}, 7],
)
def test_load_widths_that_are_not_those_of_the_weights_are_refused_before_a_network_is_made(
    folder: Path, widths: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("justitia.networks.saving.multilayer", lambda *_: pytest.fail("a network was made"))
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(facts | {"widths": widths}))
    assert_refused(folder, r"^the weights of .* are damaged; save the model again\.$")


@pytest.mark.parametrize(
    "classes",
    [
        {"dtype": "|O", "labels": [["a"], ["b"]]},
        {"dtype": "|O", "labels": ["a", None]},
        {"dtype": "|O", "labels": [0, "b"]},
        {"dtype": "|O", "labels": [{"a": 1}, None]},
        {"dtype": "<U1000000000", "labels": ["a", "b"]},
        {"dtype": "|V1000000000", "labels": [0, 1]},
        {"dtype": "<M8[ns]", "labels": [0, 1]},
        {"dtype": "i4,(100000,100000)f8", "labels": [0, 1]},
        {"dtype": "no type", "labels": [0, 1]},
        {"dtype": 5, "labels": [0, 1]},
        {"dtype": "<i8", "labels": [0, 1, 2]},
        {"dtype": "<i8", "labels": [1, 1]},
        {"dtype": "<i8", "labels": [0, 10**30]},
        {"dtype": "<i8", "labels": "ab"},
    ],
    ids=str,
)
def test_load_class_labels_of_another_type_are_refused(folder: Path, classes: dict[str, Any]) -> None:
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(facts | {"classes": classes}))
    assert_refused(folder, DAMAGED)


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"unheard_of": 1}},
        {"parameters": []},
        {"plan": {"engine": "unheard of", "settings": {}}},
        {"plan": {"engine": "moments", "settings": {"unheard_of": 1}}},
        {"dual": {"groups": ["a"], "events": ["b"], "values": [1, 2, 3]}},
        {"history": [{"name": "a", "values": 5}]},
        {"groups": {"unheard of": 1}},
        {"encoder": {"max_levels": 3}},
        *({"encoder": {"max_levels": 3, "feature_names": None, "columns": [one]}} for one in COLUMNS),
        {"n_features": "many"},
        {"certificate": []},
    ],
    ids=str,
)
def test_load_description_of_another_shape_is_refused_in_one_sentence(folder: Path, change: dict[str, Any]) -> None:
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(facts | change))
    assert_refused(folder, DAMAGED)


@pytest.mark.parametrize("files", [{"../../secret": "0"}, {"/etc/passwd": "0"}, {"notes.txt": "0"}, [], None, {}])
def test_load_names_of_other_files_are_refused(folder: Path, files: Any) -> None:
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(facts | {"files": files}))
    assert_refused(folder, r"^the weights of .* are damaged; save the model again\.$")


@pytest.mark.skipif(os.name != "posix", reason="devices of POSIX")
def test_save_over_a_folder_whose_description_is_a_device_does_not_read_it(folder: Path) -> None:
    model = LagrangianDualClassifier.load(folder)
    (folder / "model.json").unlink()
    (folder / "model.json").symlink_to("/dev/zero")
    with pytest.raises(FileExistsError, match="which does not belong to a saved model"):
        model.save(folder)
