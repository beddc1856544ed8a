"""Trees of LightGBM as text: the same answers, nothing that is not needed, and no index that leads nowhere."""

import re
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest

from justitia.learners.trees import TreesClassifier, TreesRegressor, read_trees

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
X[::7, 1] = np.nan
Y = (X[:, 0] + 0.5 * RNG.normal(size=400) > 0).astype(int)
THREE = Y + (X[:, 2] > 0.5)
TABLE = pd.DataFrame({"x": X[:, 0], "kind": pd.Categorical(RNG.choice(["a", "b", "c", "d"], 400)), "z": X[:, 2]})


def trained(rows: Any = X, y: Any = Y, **settings: Any) -> Any:
    usual = {"n_estimators": 8, "num_leaves": 6, "verbosity": -1, "min_child_samples": 5, "n_jobs": 1}
    return lightgbm.LGBMClassifier(**usual | settings).fit(rows, y)


MODELS = {
    "numbers": (X, {}),
    "float32": (X.astype(np.float32), {}),
    "categories": (TABLE, {"min_data_per_group": 5, "cat_smooth": 0.1}),
    "forest": (X, {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
    "zero is missing": (np.nan_to_num(X), {"zero_as_missing": True}),
    "scaled": (X, {"sigmoid": 0.7}),
    "one leaf": (X, {"min_child_samples": 300}),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_trees_written_and_read_again_give_the_same_bits(name: str) -> None:
    rows, settings = MODELS[name]
    y = (TABLE["kind"].isin(["a", "c"]) ^ (Y == 1)).astype(int) if name == "categories" else Y
    model = trained(rows, y, **settings)
    trees = read_trees(model.booster_.model_to_string())
    assert any(len(tree.boundaries) for tree in trees.trees) == (name == "categories")
    again = read_trees(trees.text())
    assert again.text() == trees.text()
    assert np.array_equal(TreesClassifier(again).predict_proba(rows), model.predict_proba(rows))


@pytest.mark.parametrize("name", ["numbers", "categories", "forest", "one leaf"])
def test_trees_of_classes_written_and_read_again_give_the_same_bits(name: str) -> None:
    rows, settings = MODELS[name]
    model = trained(rows, THREE, **settings)
    trees = read_trees(model.booster_.model_to_string())
    assert (trees.sums, trees.sigmoid, len(trees.trees)) == (3, None, 3 * model.booster_.current_iteration())
    again = read_trees(trees.text())
    assert again.text() == trees.text()
    kept = TreesClassifier(again)
    assert kept.classes_.tolist() == [0, 1, 2]
    assert np.array_equal(kept.predict_proba(rows), model.predict_proba(rows))


@pytest.mark.parametrize("name", ["numbers", "categories", "forest", "one leaf"])
def test_trees_of_a_number_written_and_read_again_give_the_same_bits(name: str) -> None:
    rows, settings = MODELS[name]
    usual = {"n_estimators": 8, "num_leaves": 6, "verbosity": -1, "min_child_samples": 5, "n_jobs": 1}
    model = lightgbm.LGBMRegressor(**usual | settings).fit(rows, 5 + X[:, 0])
    trees = read_trees(model.booster_.model_to_string())
    assert (trees.sums, trees.sigmoid) == (1, None)
    again = read_trees(trees.text())
    assert again.text() == trees.text()
    assert np.array_equal(TreesRegressor(again).predict(rows), model.predict(rows))


def test_trees_of_classes_keep_the_iterations_that_were_chosen() -> None:
    model = trained(X, THREE)
    model.booster_.best_iteration = 3
    trees = read_trees(model.booster_.model_to_string())
    assert len(trees.trees) == 9
    assert np.array_equal(TreesClassifier(trees).predict_proba(X), model.predict_proba(X))


#: Nothing but a head that speaks of so many classes that an array of them fills the memory.
MANY = (
    "num_class=1000000000000\\nnum_tree_per_iteration=1000000000000\\nmax_feature_idx=0\\n"
    "objective=multiclass num_class:1000000000000\\nfeature_names=a\\nend of trees"
)
DAMAGE_OF_CLASSES = {
    "another number of classes": (r"^num_class=3", "num_class=4"),
    "another number of trees per iteration": (r"^num_tree_per_iteration=3", "num_tree_per_iteration=1"),
    "an objective of more classes": (r"^objective=.*$", "objective=multiclass num_class:4"),
    "an objective of two classes": (r"^objective=.*$", "objective=multiclass num_class:2"),
    "one sigmoid per class": (r"^objective=.*$", "objective=multiclassova num_class:3 sigmoid:1"),
    "a tree is missing": (r"^Tree=0\n(?:.+\n)*", ""),
    "no trees of very many classes": (r"(?s)^num_class=.*\nend of trees", MANY),
}


@pytest.mark.parametrize("name", list(DAMAGE_OF_CLASSES))
def test_trees_of_classes_with_damage_are_refused_in_one_sentence(name: str) -> None:
    pattern, by = DAMAGE_OF_CLASSES[name]
    text, count = re.subn(pattern, by, read_trees(trained(X, THREE).booster_.model_to_string()).text(), flags=re.M)
    assert count == 1
    with pytest.raises(ValueError, match=r"^expected trees of one label as LightGBM writes them, got another text\.$"):
        read_trees(text)


def test_text_of_trees_holds_nothing_but_what_predictions_need() -> None:
    table = pd.DataFrame(X, columns=["wage of zanzibar", "b", "c"])
    text = read_trees(trained(table, forcedsplits_filename="").booster_.model_to_string()).text()
    names = {line.partition("=")[0] for line in text.splitlines() if "=" in line}
    head = {"version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "objective"}
    nodes = {"split_feature", "threshold", "decision_type", "left_child", "right_child", "leaf_value"}
    assert names == head | nodes | {"feature_names", "feature_infos", "Tree", "num_leaves", "num_cat"}
    assert "feature_infos=none none none\n" in text
    assert "zanzibar" not in text
    assert "parameters" not in text


def test_tree_of_trees_that_never_learned_is_read() -> None:
    trees = read_trees(trained(min_child_samples=300).booster_.model_to_string())
    assert [len(tree.value) for tree in trees.trees] == [1] * len(trees.trees)
    assert trees.features == 3


def changed(pattern: str, by: str) -> str:
    text = read_trees(trained().booster_.model_to_string()).text()
    found, count = re.subn(pattern, by, text, count=1, flags=re.MULTILINE)
    assert count == 1
    return found


DAMAGE = {
    "node that is its own child": (r"^left_child=\S+", "left_child=0"),
    "child beyond the nodes": (r"^left_child=\S+", "left_child=99"),
    "leaf beyond the leaves": (r"^right_child=\S+", "right_child=-99"),
    "leaf twice": (r"^right_child=.*$", "right_child=-1 -1 -1 -1 -1"),
    "feature beyond the columns": (r"^split_feature=\S+", "split_feature=3"),
    "feature below 0": (r"^split_feature=\S+", "split_feature=-1"),
    "feature that is no number": (r"^split_feature=\S+", "split_feature=x"),
    "number that no integer holds": (r"^split_feature=\S+", "split_feature=99999999999999999999"),
    "threshold not finite": (r"^threshold=\S+", "threshold=nan"),
    "leaf not finite": (r"^leaf_value=\S+", "leaf_value=inf"),
    "leaf missing": (r"^leaf_value=\S+ ", "leaf_value="),
    "unknown decision": (r"^decision_type=\S+", "decision_type=12"),
    "category without categories": (r"^decision_type=\S+", "decision_type=1"),
    "linear leaves": (r"^num_cat=0", "num_cat=0\nis_linear=1"),
    "bits without boundaries": (r"^num_cat=0", "num_cat=0\ncat_threshold=4"),
    "boundaries beyond the bits": (r"^num_cat=0", "num_cat=0\ncat_boundaries=0 9\ncat_threshold=4"),
    "another number of columns": (r"^max_feature_idx=2", "max_feature_idx=1000000000000"),
    "several classes": (r"^num_class=1", "num_class=3"),
    "another objective": (r"^objective=.*$", "objective=poisson"),
    "no end": (r"^end of trees", "the end"),
    "no leaves": (r"^num_leaves=\d+\n", ""),
    "categories that are no lists": (r"^pandas_categorical:.*$", 'pandas_categorical:{"a": 1}'),
    "categories that are no JSON": (r"^pandas_categorical:.*$", "pandas_categorical:["),
}


@pytest.mark.parametrize("name", list(DAMAGE))
def test_trees_with_damage_are_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=r"^expected trees of one label as LightGBM writes them, got another text\.$"):
        read_trees(changed(*DAMAGE[name]))


@pytest.mark.parametrize("text", ["", "mine", "tree\n", "\0" * 99, "tree\nend of trees\n"])
def test_text_that_is_no_tree_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected trees of one label"):
        read_trees(text)
