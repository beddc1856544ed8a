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
from sklearn.base import clone
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

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


def _sum_that_is_not_there(facts: Any) -> None:
    facts["learner"]["gradient_booster"]["model"]["tree_info"][0] = 10**8


def _leaves_of_many_numbers(facts: Any) -> None:
    facts["learner"]["gradient_booster"]["model"]["trees"][0]["tree_param"]["size_leaf_vector"] = "1000000"


def _many_targets(facts: Any) -> None:
    facts["learner"]["learner_model_param"]["num_target"] = "100000000"


def _categories_that_are_not_there(facts: Any) -> None:
    tree = facts["learner"]["gradient_booster"]["model"]["trees"][0]
    inner = [place for place, child in enumerate(tree["left_children"]) if child != -1]
    tree["split_type"] = [int(place in inner) for place in range(len(tree["left_children"]))]
    tree |= {"categories_nodes": inner, "categories_segments": [10**9] * len(inner), "categories": [1]}
    tree["categories_sizes"] = [10**6] * len(inner)


def _category_beyond_all(facts: Any) -> None:
    _categories_that_are_not_there(facts)
    tree = facts["learner"]["gradient_booster"]["model"]["trees"][0]
    some = len(tree["categories_nodes"])
    tree |= {"categories_segments": [0] * some, "categories_sizes": [1] * some, "categories": [2**31 - 1]}


def _categories_whose_end_wraps_around(facts: Any) -> None:
    _categories_that_are_not_there(facts)
    tree = facts["learner"]["gradient_booster"]["model"]["trees"][0]
    some = len(tree["categories_nodes"])
    tree |= {"categories_segments": [2**63 - 1] * some, "categories_sizes": [1] * some}


def _another_booster(facts: Any) -> None:
    booster = facts["learner"]["gradient_booster"]
    booster |= {"name": "dart", "gbtree": {"name": "gbtree", "model": booster["model"]}, "weight_drop": []}


@needs("xgboost")
@pytest.mark.parametrize(
    "harm",
    [
        _sum_that_is_not_there,
        _leaves_of_many_numbers,
        _many_targets,
        _categories_that_are_not_there,
        _category_beyond_all,
        _categories_whose_end_wraps_around,
        _another_booster,
    ],
)
def test_file_of_xgboost_that_leads_compiled_code_out_of_its_memory_is_refused(harm: Callable[[Any], None]) -> None:
    found = model_to_bytes(xgboost("binary").fit(TABLE, DATA.y), BINARY)
    assert found is not None
    facts = json.loads(found[1])
    harm(facts)
    with pytest.raises(formats.UnfitFile, match=r"^expected"):
        model_from_bytes("xgb", json.dumps(facts).encode(), TABLE.shape[1], BINARY)


@needs("xgboost")
def test_file_of_xgboost_with_a_key_twice_is_refused() -> None:
    found = model_to_bytes(xgboost("binary").fit(TABLE, DATA.y), BINARY)
    assert found is not None
    twice = found[1].replace(b'"tree_info":', b'"tree_info":[100000000],"tree_info":', 1)
    assert twice != found[1]
    with pytest.raises(formats.UnfitFile, match="every key once"):
        model_from_bytes("xgb", twice, TABLE.shape[1], BINARY)


@needs("xgboost")
@pytest.mark.parametrize("levels", [1, 50])
def test_xgboost_with_splits_by_category_is_read_as_it_was(levels: int) -> None:
    import xgboost as library

    sorts = np.random.default_rng(2).integers(0, 6, size=len(TABLE))
    rows = TABLE.assign(sort=pd.Categorical.from_codes(sorts, list("abcdef")))
    model = library.XGBClassifier(n_estimators=5, enable_categorical=True, max_cat_to_onehot=levels, n_jobs=1)
    model.fit(rows, sorts % 2)
    found = model_to_bytes(model, BINARY)
    assert found is not None
    assert any(
        any(tree["split_type"]) for tree in json.loads(found[1])["learner"]["gradient_booster"]["model"]["trees"]
    )
    read = model_from_bytes(*found, rows.shape[1], BINARY)
    assert np.array_equal(read.predict_proba(rows), model.predict_proba(rows))


def _tree_of_more_columns(model: Any) -> None:
    from sklearn.tree._tree import Tree

    state = model.tree_.__getstate__()
    nodes = state["nodes"].copy()
    nodes["feature"][0] = 2**29
    wide = Tree(2**30, np.array([2]), 1)
    wide.__setstate__(state | {"nodes": nodes})
    model.tree_ = wide


def _tree_without_nodes(model: Any) -> None:
    state = model.tree_.__getstate__()
    model.tree_.__setstate__(state | {"nodes": state["nodes"][:0], "values": state["values"][:0], "node_count": 0})


def _columns_that_nobody_counts(model: Any) -> None:
    del model.n_features_in_


def _method_that_is_a_type(model: Any) -> None:
    model._validate_X_predict = np.ma.MaskedArray


def _histogram_of_more_columns(model: Any) -> None:
    model._predictors[0][0].nodes["feature_idx"][0] = 2**30


def _histogram_of_categories(model: Any) -> None:
    model._predictors[0][0].nodes["is_categorical"][0] = 1
    model._predictors[0][0].raw_left_cat_bitsets = np.zeros((1, 8), dtype=np.uint32)


def _more_trees_than_sums(model: Any) -> None:
    model.estimators_ = np.tile(model.estimators_, (1, 50))


def _fewer_columns_than_trees_read(model: Any) -> None:
    model.n_features_in_ = 1


@needs("skops")
@pytest.mark.parametrize(
    ("made", "harm"),
    [
        (DecisionTreeClassifier(max_depth=2), _tree_of_more_columns),
        (DecisionTreeClassifier(max_depth=2), _tree_without_nodes),
        (DecisionTreeClassifier(max_depth=2), _columns_that_nobody_counts),
        (DecisionTreeClassifier(max_depth=2), _method_that_is_a_type),
        (HistGradientBoostingClassifier(max_iter=2), _histogram_of_more_columns),
        (HistGradientBoostingClassifier(max_iter=2), _histogram_of_categories),
        (GradientBoostingClassifier(n_estimators=2), _more_trees_than_sums),
        (GradientBoostingClassifier(n_estimators=2), _fewer_columns_than_trees_read),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_file_of_skops_that_leads_compiled_code_out_of_its_memory_is_refused(
    made: Any, harm: Callable[[Any], None]
) -> None:
    import skops.io

    model = clone(made).fit(TABLE.to_numpy(), DATA.y)
    assert model_to_bytes(model, BINARY) is not None
    harm(model)
    with pytest.raises(formats.UnfitFile, match=r"^expected"):
        model_from_bytes("skops", skops.io.dumps(model), TABLE.shape[1], BINARY)


@needs("skops")
def test_tree_outside_of_a_model_of_trees_is_refused() -> None:
    import skops.io

    tree = DecisionTreeRegressor(max_depth=2).fit(TABLE.to_numpy(), AMOUNT).tree_
    alone = make_pipeline(StandardScaler(), LinearRegression()).fit(TABLE.to_numpy(), AMOUNT)
    alone.steps[-1] = ("tree", tree)  # it does not look at the columns of its rows
    with pytest.raises(formats.UnfitFile, match="belong to a model of trees"):
        model_from_bytes("skops", skops.io.dumps(alone), TABLE.shape[1], NUMBER)


@needs("skops")
def test_file_of_skops_whose_trees_have_many_targets_is_refused_before_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import skops.io

    model = DecisionTreeClassifier(max_depth=2).fit(TABLE.to_numpy(), DATA.y)
    content = skops.io.dumps(model)
    loaded: list[Any] = []
    monkeypatch.setattr(skops.io, "loads", lambda *given, **_: loaded.append(given))

    def with_targets(number: str, **others: Any) -> bytes:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            schema = json.loads(archive.read("schema.json"))
        (tree,) = (one for one in formats._nodes(schema) if one["__loader__"] == "TreeNode")
        tree["__reduce__"]["args"]["content"][2] |= {"content": number} | others
        return changed(content, schema)

    for harmful in (with_targets("1000000000", __id__=1), with_targets("1000000000")):
        for content_of_file in (harmful, with_loader(harmful, "LossNode")):
            with pytest.raises(formats.UnfitFile, match=r"one target|one description|known to be data"):
                model_from_bytes("skops", content_of_file, TABLE.shape[1], BINARY)
    assert loaded == []


def with_loader(content: bytes, loader: str) -> bytes:
    """A file of skops whose trees are made by another of its loaders."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        schema = json.loads(archive.read("schema.json"))
    for one in formats._nodes(schema):
        if one["__loader__"] == "TreeNode":
            one["__loader__"] = loader
    return changed(content, schema)


SORTS = np.array([["u", "v", "w", "w", "u", "v"] * 20, ["a", "b", "b", "a", "a", "c"] * 20], dtype=object).T
NUMBERS = np.array([[0.0, 1.0, 2.0, np.nan] * 30, [5.0, 5.0, 6.0, 7.0] * 30]).T


@needs("skops")
@pytest.mark.parametrize("rows", [SORTS, NUMBERS], ids=["text", "numbers"])
@pytest.mark.parametrize(
    "options",
    [{}, {"drop": "first"}, {"drop": "if_binary"}, {"min_frequency": 0.3, "handle_unknown": "infrequent_if_exist"}],
    ids=str,
)
def test_categories_of_an_encoder_are_read_as_they_were_and_refused_outside_of_its_columns(
    rows: Any, options: dict[str, Any]
) -> None:
    import skops.io

    y = np.arange(len(rows)) % 2
    model = make_pipeline(OneHotEncoder(sparse_output=False, **options), LogisticRegression()).fit(rows, y)
    found = model_to_bytes(model, BINARY)
    assert found is not None
    read = model_from_bytes(*found, rows.shape[1], BINARY)
    assert np.array_equal(read.predict_proba(rows), model.predict_proba(rows))
    encoder = model.steps[0][1]
    for harm in (
        {"_n_features_outs": [1, 1]},
        # where rare ones are grouped, numpy looks up the group of a code and refuses others
        {} if "min_frequency" in options else {"categories_": [np.arange(1000.0)] * 2},
        {"categories_": [np.sort(one)[::-1] for one in encoder.categories_]}
        if rows is NUMBERS
        else {"categories_": []},
        {"_n_features_outs": encoder._n_features_outs[:1]},
        {"_drop_idx_after_grouping": np.array([99, 99], dtype=object)} if options.get("drop") == "first" else {},
    ):
        if not harm:
            continue
        kept = {name: getattr(encoder, name) for name in harm}
        vars(encoder).update(harm)
        with pytest.raises(formats.UnfitFile, match="expected categories"):
            model_from_bytes("skops", skops.io.dumps(model), rows.shape[1], BINARY)
        vars(encoder).update(kept)
