"""Bases of other libraries saved in their own formats: the same predictions, and nothing but data is read."""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from justitia import LagrangianDualClassifier, LagrangianDualRegressor
from justitia.datasets import make_synthetic
from justitia.persistence import formats
from justitia.persistence.formats import model_from_bytes, model_to_bytes
from justitia.tasks import BINARY, NUMBER, Task

DATA = make_synthetic(400, random_state=0)
TABLE = pd.DataFrame(np.asarray(DATA.X, dtype=np.float64)).add_prefix("x")
LATER = pd.DataFrame(np.random.default_rng(1).normal(size=(200, TABLE.shape[1])), columns=list(TABLE))
THREE = np.digitize(TABLE["x0"], [-0.5, 0.5])
AMOUNT = 2.0 * TABLE["x0"].to_numpy()
TARGETS: dict[str, Any] = {"binary": np.asarray(DATA.y), "classes": THREE, "number": AMOUNT}
TASKS = {"binary": BINARY, "classes": Task("classes", (0, 1, 2)), "number": NUMBER}


def needs(library: str) -> Any:
    return pytest.mark.skipif(importlib.util.find_spec(library) is None, reason=f"{library} is not installed.")


def xgboost(kind: str) -> Any:
    module = pytest.importorskip("xgboost")
    made = module.XGBRegressor if kind == "number" else module.XGBClassifier
    return made(n_estimators=5, max_depth=3, n_jobs=1)


def catboost(kind: str) -> Any:
    module = pytest.importorskip("catboost")
    made = module.CatBoostRegressor if kind == "number" else module.CatBoostClassifier
    return made(iterations=5, depth=3, verbose=0, thread_count=1, allow_writing_files=False)


def histogram(kind: str) -> Any:
    pytest.importorskip("skops")
    return (HistGradientBoostingRegressor if kind == "number" else HistGradientBoostingClassifier)(max_iter=5)


LIBRARIES: dict[str, Callable[[str], Any]] = {"xgb": xgboost, "cbm": catboost, "skops": histogram}


@pytest.mark.parametrize("kind", list(TARGETS))
@pytest.mark.parametrize("suffix", list(LIBRARIES))
def test_cross_fitted_base_is_saved_and_predicts_the_same_when_it_is_loaded(
    suffix: str, kind: str, tmp_path: Path
) -> None:
    made = LagrangianDualRegressor if kind == "number" else LagrangianDualClassifier
    given: dict[str, Any] = {"epsilon": 8.0, "groups": list(DATA.groups), "tolerance": 0.05, "random_state": 0}
    model = made(base=LIBRARIES[suffix](kind), noise_seed=3, **given)
    model.fit(TABLE, TARGETS[kind], sensitive_features=DATA.sensitive)
    folder = model.save(tmp_path / "model")
    assert sorted(path.name for path in folder.glob("base-*")) == [f"base-{k}.{suffix}" for k in range(1, 6)]
    loaded = made.load(folder)
    assert np.array_equal(loaded.predict(LATER), model.predict(LATER))
    if kind != "number":
        assert np.array_equal(loaded.predict_proba(LATER), model.predict_proba(LATER))
    if suffix != "skops":  # scikit-learn's histograms have no importances
        assert loaded.feature_importances_ == pytest.approx(model.feature_importances_)
    again = made.load(loaded.save(tmp_path / "again"))
    assert np.array_equal(again.predict(LATER), model.predict(LATER))


@pytest.mark.parametrize("suffix", list(LIBRARIES))
def test_fitted_base_with_the_positive_class_first_keeps_its_side(suffix: str, tmp_path: Path) -> None:
    words = np.where(DATA.y == 1, "approved", "refused")
    codes = 1 - np.asarray(DATA.y)  # the positive class is the first code
    base = LIBRARIES[suffix]("binary").fit(TABLE, codes if suffix == "xgb" else words)
    y = codes if suffix == "xgb" else words
    model = LagrangianDualClassifier(
        base=base, epsilon=8.0, groups=list(DATA.groups), tolerance=0.05, random_state=0, noise_seed=3
    )
    model.fit(TABLE, y, sensitive_features=DATA.sensitive)
    loaded = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(LATER), model.predict_proba(LATER))
    assert loaded.predict(LATER).tolist() == model.predict(LATER).tolist()


@needs("xgboost")
def test_xgboost_that_its_file_would_not_describe_is_not_written() -> None:
    import xgboost as library

    odd = library.XGBClassifier(n_estimators=2, missing=-1.0).fit(TABLE, DATA.y)
    assert model_to_bytes(odd, BINARY) is None
    own = library.XGBRegressor(n_estimators=2, objective=lambda y, p: (p - y, np.ones_like(y))).fit(TABLE, AMOUNT)
    assert model_to_bytes(own, NUMBER) is None


@needs("skops")
def test_scikit_learn_models_are_read_as_they_were_and_with_types_that_are_listed_only() -> None:
    for model in (
        RandomForestClassifier(4, random_state=0),
        GradientBoostingClassifier(n_estimators=3),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ):
        model.fit(TABLE, DATA.y)
        found = model_to_bytes(model, BINARY)
        assert found is not None
        read = model_from_bytes(*found, TABLE.shape[1], BINARY)
        assert np.array_equal(read.predict_proba(LATER), model.predict_proba(LATER))
    for model in (make_pipeline(FunctionTransformer(np.abs), LogisticRegression()), KNeighborsClassifier()):
        assert model_to_bytes(model.fit(TABLE, DATA.y), BINARY) is None


@needs("skops")
def test_file_of_skops_with_another_type_or_function_is_refused_before_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import skops.io

    function = make_pipeline(FunctionTransformer(np.abs), LogisticRegression()).fit(TABLE, DATA.y)
    content = skops.io.dumps(function)
    loaded: list[Any] = []
    monkeypatch.setattr(skops.io, "loads", lambda *given, **_: loaded.append(given))
    with pytest.raises(ValueError, match="known to be data"):
        model_from_bytes("skops", content, TABLE.shape[1], BINARY)
    good = skops.io.dumps(LogisticRegression().fit(TABLE, DATA.y))
    for name, value in (("__module__", "os"), ("__class__", "system"), ("__loader__", "FunctionNode")):
        with pytest.raises(ValueError, match="known to be data"):
            model_from_bytes("skops", changed(good, {name: value}), TABLE.shape[1], BINARY)
    assert loaded == []


def changed(content: bytes, values: dict[str, Any]) -> bytes:
    """A file of skops whose outermost node has other values."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            part = old.read(name)
            new.writestr(name, json.dumps(json.loads(part) | values) if name == "schema.json" else part)
    return made.getvalue()


@needs("skops")
def test_tree_that_leads_out_of_itself_is_refused() -> None:
    forest = RandomForestClassifier(2, random_state=0).fit(TABLE, DATA.y)
    tree = forest.estimators_[0].tree_
    state = tree.__getstate__()
    whole = state["nodes"].copy()
    for name, value in (("left_child", 10**6), ("right_child", 0), ("feature", 99)):
        nodes = whole.copy()
        nodes[name][0] = value
        tree.__setstate__(state | {"nodes": nodes})
        with pytest.raises(ValueError, match="expected trees whose"):
            formats._check_tree(tree)
        assert model_to_bytes(forest, BINARY) is None
    tree.__setstate__(state | {"nodes": whole})
    assert model_to_bytes(forest, BINARY) is not None
    boosted = HistGradientBoostingClassifier(max_iter=2).fit(TABLE, DATA.y)
    nodes = boosted._predictors[0][0].nodes
    nodes["left"][0] = 10**6
    assert model_to_bytes(boosted, BINARY) is None


@needs("xgboost")
@pytest.mark.parametrize(
    ("name", "value"), [("left_children", 99), ("right_children", 0), ("left_children", -5), ("split_indices", 50)]
)
def test_tree_of_xgboost_that_leads_out_of_itself_is_refused(name: str, value: int) -> None:
    found = model_to_bytes(xgboost("binary").fit(TABLE, DATA.y), BINARY)
    assert found is not None
    facts = json.loads(found[1])
    facts["learner"]["gradient_booster"]["model"]["trees"][0][name][0] = value
    with pytest.raises(ValueError, match="expected trees whose"):
        model_from_bytes("xgb", json.dumps(facts).encode(), TABLE.shape[1], BINARY)


@pytest.mark.parametrize("suffix", list(LIBRARIES))
@pytest.mark.parametrize("content", [b"", b"{}", b"x" * 100, b"[1, 2"])
def test_damaged_file_is_refused_in_one_sentence(suffix: str, content: bytes) -> None:
    pytest.importorskip(formats.LIBRARIES[suffix])
    with pytest.raises(ValueError, match=r"^[^\n]+\.$|^[^\n]+$"):
        model_from_bytes(suffix, content, 3, BINARY)


def test_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "catboost", None)
    with pytest.raises(ImportError, match="pip install catboost"):
        model_from_bytes("cbm", b"", 3, BINARY)
