"""Base models of other libraries in these libraries' own formats: XGBoost (JSON), CatBoost (cbm), scikit-learn (skops).

None of the formats is a pickle. A file of skops names the types that it is made of: only those listed here are loaded,
no functions among them. Compiled code of scikit-learn and XGBoost checks no index: it would read and write wherever a
file leads it, outside of its memory too. So everything that such code follows is checked here first: branches and
columns of trees, the sum that a tree adds to, codes of categories. A file of CatBoost holds numbers only, and CatBoost
alone can read it: whether its reader is robust against a file that was made to harm is up to CatBoost. Libraries are
imported when such a file is there.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.tasks import Task

#: Largest file of one model.
MOST_BYTES = 2**28
#: Largest category of XGBoost, and one: it is a number in single precision, and a set has a bit for each.
MOST_CATEGORIES = 2**24
#: Ends of the names of their files, with the library that reads each.
LIBRARIES = {"xgb": "xgboost", "cbm": "catboost", "skops": "skops"}
#: First version of skops whose checks of types have no known gap.
SKOPS_SINCE = (0, 13)
#: What a file of skops may be made of: nodes of these kinds, and types of these names. Functions, methods and anything
#: that is called while it is read have other kinds.
SKOPS_NODES = {
    *("DTypeNode", "DictNode", "JsonNode", "ListNode", "LossNode", "NdArrayNode", "ObjectNode", "RandomGeneratorNode"),
    *("RandomStateNode", "SliceNode", "TreeNode", "TupleNode", "TypeNode", "DefaultDictNode", "SetNode"),
    *("MaskedArrayNode", "TreePredictorNode"),
}
SKOPS_TYPES = re.compile(
    r"builtins\.(str|dict|list|tuple|slice|set|int|float|bool)|collections\.(defaultdict|OrderedDict)"
    r"|numpy\.(dtype|ndarray|bool_?|u?int(8|16|32|64)|float(32|64)|object_|str_)"
    r"|numpy\.ma(\.core)?\.MaskedArray|numpy\.random\._generator\.Generator|numpy\.random\.mtrand\.RandomState"
    r"|sklearn\._loss\._loss\.Cy\w+|sklearn\._loss\.(link|loss)\.\w+"
    r"|sklearn\.ensemble\._(forest|gb|bagging|voting|stacking|weight_boosting)\.\w+"
    r"|sklearn\.ensemble\._hist_gradient_boosting\.(binning\._BinMapper|predictor\.TreePredictor)"
    r"|sklearn\.ensemble\._hist_gradient_boosting\.gradient_boosting\.HistGradientBoosting(Classifier|Regressor)"
    r"|sklearn\.tree\._tree\.Tree|sklearn\.tree\._classes\.\w+|sklearn\.dummy\.Dummy(Classifier|Regressor)"
    r"|sklearn\.linear_model\._(base|logistic|ridge|coordinate_descent|stochastic_gradient)\.\w+"
    r"|sklearn\.linear_model\._glm\.glm\.\w+"
    r"|sklearn\.neural_network\.(_multilayer_perceptron\.MLP\w+|_stochastic_optimizers\.\w+)"
    r"|sklearn\.calibration\.(CalibratedClassifierCV|_CalibratedClassifier|_SigmoidCalibration)"
    r"|sklearn\.isotonic\.IsotonicRegression|sklearn\.naive_bayes\.\w+"
    r"|sklearn\.pipeline\.Pipeline|sklearn\.compose\._column_transformer\.ColumnTransformer"
    r"|sklearn\.compose\._column_transformer\._RemainderColsList|sklearn\.impute\._base\.SimpleImputer"
    r"|sklearn\.preprocessing\.(_data|_label|_discretization|_polynomial)\.\w+"
    r"|sklearn\.preprocessing\._encoders\.(OneHotEncoder|OrdinalEncoder)"
)
#: Types that skops takes for untrusted and that are checked here: arrays of trees and what is between them.
CHECKED_TYPES = re.compile(
    r"sklearn\.tree\._tree\.Tree|sklearn\.ensemble\._hist_gradient_boosting\.predictor\.TreePredictor"
    r"|sklearn\.calibration\._(CalibratedClassifier|SigmoidCalibration)"
    r"|sklearn\.neural_network\._stochastic_optimizers\.(Adam|SGD)Optimizer"
    r"|sklearn\.compose\._column_transformer\._RemainderColsList"
)


class UnfitFile(ValueError):
    """A file that is not what was written; said in one sentence."""


class ForeignModel:
    """A fitted model that was read from its library's format, with classes by their codes.

    Attributes
    ----------
    classes_ : ndarray (K,)
        0 to K - 1; a regressor has none.
    content, suffix
        The file, to write it again as it is.
    """

    def __init__(self, model: Any, content: bytes, suffix: str, columns: int) -> None:
        self.model, self.content, self.suffix = model, content, suffix
        self.n_features_in_ = columns
        self.__name__ = type(model).__name__
        if hasattr(model, "predict_proba"):
            self.classes_: NDArray[Any] = np.arange(len(model.classes_))
            self.predict_proba: Callable[[Any], Any] = model.predict_proba
        if (names := getattr(model, "feature_names_in_", None)) is not None:
            self.feature_names_in_ = names

    def fit(self, *_: Any) -> ForeignModel:
        """Refuse: it is fitted, and stays as it is."""
        raise TypeError(f"expected a model to predict with, got a call of fit of a loaded {self.__name__}.")

    def predict(self, rows: Any) -> Any:
        """As the model predicts."""
        return self.model.predict(rows)

    @property
    def feature_importances_(self) -> Any:
        """Those of the model; CatBoost computes them anew for one that was loaded."""
        return self.model.get_feature_importance() if self.suffix == "cbm" else self.model.feature_importances_


def model_to_bytes(model: Any, task: Task) -> tuple[str, bytes] | None:
    """End of the file's name, and the file of a fitted model; None for a model or version that is not written."""
    if isinstance(model, ForeignModel):
        return model.suffix, model.content
    number, package = task.kind == "number", type(model).__module__.partition(".")[0]
    write = {"xgboost": _xgboost_bytes, "catboost": _catboost_bytes, "sklearn": _skops_bytes}.get(package)
    fits = hasattr(model, "predict") if number else hasattr(model, "predict_proba") and hasattr(model, "classes_")
    if write is None or not fits or number == hasattr(model, "predict_proba"):
        return None
    if not number and len(model.classes_) != task.n_classes:
        return None
    found = write(model)
    return None if found is None or len(found[1]) > MOST_BYTES else found


def model_from_bytes(suffix: str, content: bytes, columns: int, task: Task) -> ForeignModel:
    """Read a model of this target that reads so many columns.

    Raises
    ------
    ImportError
        If its library is not installed.
    ValueError
        If the file is not such a model.
    """
    read = {"xgb": _read_xgboost, "cbm": _read_catboost, "skops": _read_skops}[suffix]
    try:
        model, found = read(content, task)
    except ImportError:
        library = LIBRARIES[suffix]
        raise ImportError(
            f"expected {library} to be installed, which wrote the base of this model, found none; run: pip install "
            f"{library}."
        ) from None
    except UnfitFile:
        raise
    except Exception:  # noqa: BLE001 - a damaged file may raise anything in another library
        raise ValueError(f"expected a model of {LIBRARIES[suffix]}, got a file that it cannot read.") from None
    if found != columns:
        raise ValueError("expected a model that reads as many columns as the table has, got another.")
    if task.kind == "number":
        fits = not hasattr(model, "predict_proba")
    else:
        fits = hasattr(model, "predict_proba") and len(model.classes_) == task.n_classes
    if not fits:
        raise ValueError("expected a model of this target, got one of another.")
    return ForeignModel(model, content, suffix, columns)


# -- XGBoost


def _xgboost_bytes(model: Any) -> tuple[str, bytes] | None:
    """The booster as JSON; None where the file would lack what predictions depend on."""
    known = type(model).__name__ in {"XGBClassifier", "XGBRegressor", "XGBRFClassifier", "XGBRFRegressor"}
    if not known or callable(model.objective) or not np.isnan(model.missing):
        return None
    content = bytes(model.get_booster().save_raw("json"))
    try:
        _check_xgboost(_json(content))
    except (KeyError, TypeError, ValueError):  # linear boosters, or trees that are dropped at random
        return None
    return "xgb", content


def _read_xgboost(content: bytes, task: Task) -> tuple[Any, int]:
    import xgboost  # noqa: PLC0415 - optional

    _check_xgboost(_json(content))  # before it reaches the library
    kind = xgboost.XGBRegressor if task.kind == "number" else xgboost.XGBClassifier
    model = kind(enable_categorical=True, n_jobs=1)
    model.load_model(bytearray(content))
    return model, int(model.n_features_in_)


def _json(content: bytes) -> Any:
    """JSON without repeated keys, of which one reader takes the first and another the last."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise UnfitFile("expected every key once, got one twice.")
        return found

    return json.loads(content, object_pairs_hook=once)


def _check_xgboost(facts: Any) -> None:
    """Refuse what leads compiled code out of the trees, the columns of a row, or the sums of a prediction."""
    learner = facts["learner"]
    described, booster = learner["learner_model_param"], learner["gradient_booster"]
    model = booster["model"]
    # another booster would read another part of the file than the one below
    if booster["name"] != "gbtree" or int(described.get("num_target", 1)) != 1:
        raise UnfitFile("expected boosted trees of one target, got others.")
    columns, sums = int(described["num_feature"]), max(1, int(described["num_class"]))
    # as many as there are trees: the library counts them
    if not all(type(one) is int and 0 <= one < sums for one in model["tree_info"]):
        raise UnfitFile("expected trees that add to one of the sums, got others.")
    for tree in model["trees"]:
        left, right, feature = (
            np.array(tree[name], dtype=np.int64) for name in ("left_children", "right_children", "split_indices")
        )
        places = np.arange(len(left))
        sized = all(len(tree[name]) == len(left) for name in ("right_children", "split_indices", "split_conditions"))
        # one number per leaf: 1, and 0 of older versions
        if not sized or not len(left) or ((left == -1) != (right == -1)).any() or _leaf_size(tree) > 1:
            raise UnfitFile("expected trees whose nodes have two branches or none, got others.")
        inner = left != -1
        for branch in (left[inner], right[inner]):
            if ((branch <= places[inner]) | (branch >= len(left))).any():
                raise UnfitFile("expected trees whose branches lead downwards, got others.")
        if ((feature[inner] < 0) | (feature[inner] >= columns)).any():
            raise UnfitFile("expected trees whose splits are on columns, got others.")
        _check_categories(tree, inner)


def _leaf_size(tree: Any) -> int:
    return int(tree["tree_param"].get("size_leaf_vector", 1))


def _check_categories(tree: Any, inner: NDArray[np.bool_]) -> None:
    """Refuse splits by category whose lists of categories are not in the tree."""
    nodes, starts, sizes, listed = (
        np.array(tree[name], dtype=np.int64)
        for name in ("categories_nodes", "categories_segments", "categories_sizes", "categories")
    )
    split = np.flatnonzero(np.array(tree["split_type"], dtype=np.int64) != 0)
    alike = len(nodes) == len(starts) == len(sizes) and len(tree["split_type"]) == len(inner)
    if not alike or not np.array_equal(np.sort(nodes), split) or not inner[split].all():
        raise UnfitFile("expected a list of categories for each split by category, got others.")
    inside = (starts >= 0) & (sizes > 0) & (starts <= len(listed) - sizes)  # a sum may wrap around
    if not inside.all() or ((listed < 0) | (listed >= MOST_CATEGORIES)).any():
        raise UnfitFile("expected categories that are in the tree, got others.")


# -- CatBoost


def _catboost_bytes(model: Any) -> tuple[str, bytes] | None:
    if type(model).__name__ not in {"CatBoostClassifier", "CatBoostRegressor"}:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.cbm"
        model.save_model(str(path), format="cbm")
        return "cbm", path.read_bytes()


def _read_catboost(content: bytes, task: Task) -> tuple[Any, int]:
    import catboost  # noqa: PLC0415 - optional

    model = catboost.CatBoostRegressor() if task.kind == "number" else catboost.CatBoostClassifier()
    model.load_model(blob=content)
    return model, len(model.feature_names_)


# -- scikit-learn


def _skops_bytes(model: Any) -> tuple[str, bytes] | None:
    """The model in skops' format; None without skops, or where it holds a type that would not be loaded."""
    try:
        import skops.io  # noqa: PLC0415 - optional
    except ImportError:
        return None
    if _old_skops():
        return None
    try:
        content: bytes = skops.io.dumps(model)
        _check_skops(content)
        _read_skops(content, None)
    except Exception:  # noqa: BLE001 - a model that skops does not know, or that would be refused when it is loaded
        return None
    return "skops", content


def _read_skops(content: bytes, _task: Task | None) -> tuple[Any, int]:
    import skops.io  # noqa: PLC0415 - optional

    if _old_skops():
        raise ImportError
    _check_skops(content)
    untrusted = skops.io.get_untrusted_types(data=content)
    unknown = [one for one in untrusted if CHECKED_TYPES.fullmatch(one) is None]
    if unknown:
        raise UnfitFile(f"expected types of scikit-learn that are known to be data, got {unknown[0]!r}.")
    model = skops.io.loads(content, trusted=untrusted)
    _check_parts(model)
    return model, int(model.n_features_in_)


def _old_skops() -> bool:
    import skops  # noqa: PLC0415 - optional

    return tuple(map(int, re.findall(r"\d+", skops.__version__)[:2])) < SKOPS_SINCE


def _check_skops(content: bytes) -> None:
    """Refuse a file with a node or type that is not listed, before any of it is loaded."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(one.file_size for one in archive.infolist()) > MOST_BYTES:
            raise UnfitFile(f"expected a model of at most {MOST_BYTES} bytes, got a larger one.")
        schema = json.loads(archive.read("schema.json"))
    described: dict[Any, Any] = {}
    numbers: Counter[Any] = Counter()
    arguments: list[Any] = []
    for node in _nodes(schema):
        kind, number = node["__loader__"], node.get("__id__")
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        # a loss is made by a call with what the file says, which other types are not made for
        called = kind == "LossNode" and not name.startswith("sklearn._loss.")
        if kind not in SKOPS_NODES or SKOPS_TYPES.fullmatch(name) is None or called:
            raise UnfitFile(f"expected types of scikit-learn that are known to be data, got {name!r}.")
        # skops takes nodes of one number for one object, and reads the first of them
        numbers[number] += 1
        own = kind, node["content"] if kind == "JsonNode" else None
        if number is not None and described.setdefault(number, own) != own:
            raise UnfitFile("expected one description of each object, got several.")
        if kind == "TreeNode":
            arguments.append(node["__reduce__"]["args"])
    for one in arguments:  # how much memory a tree reads when it is made
        if numbers[one["__id__"]] != 1 or one["content"][2]["content"] != "1":
            raise UnfitFile("expected trees of one target, got others.")


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every node of a schema."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            if "__loader__" in one:
                yield one
            stack += one.values()
        elif isinstance(one, list):
            stack += one


def _check_parts(model: Any) -> None:
    """Refuse a model with a part that would lead compiled code out of its memory."""
    references = list(_references(model))
    for holder, part in references:
        kind, name = type(part), type(part).__name__
        if any(callable(getattr(kind, own, None)) for own in getattr(part, "__dict__", ())):
            raise UnfitFile("expected models with the methods of their class, got others.")
        if name == "Tree":
            _check_tree(part)
            # alone it would not look at the columns of the rows it is given
            if not _module(holder).startswith("sklearn.tree.") or vars(holder).get("tree_") is not part:
                raise UnfitFile("expected trees that belong to a model of trees, got others.")
        elif "tree_" in getattr(part, "__dict__", ()) and part.tree_.n_features != _columns_of(part):
            raise UnfitFile("expected trees whose splits are on columns, got others.")
        elif name == "OneHotEncoder":
            _check_encoder(part)
    for _, part in references:  # trees are known to be sound now
        name = type(part).__name__
        if name.startswith("GradientBoosting"):
            _check_boosting(part)
        elif name.startswith("HistGradientBoosting"):
            _check_histograms(part)


def _module(part: Any) -> str:
    return type(part).__module__


def _columns_of(part: Any) -> int:
    """Number of columns that a model checks before it predicts; without it, it would check none."""
    found = vars(part).get("n_features_in_")
    if type(found) is not int:
        raise UnfitFile("expected models that know their number of columns, got others.")
    return found


def _references(model: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a model with what holds it, once for each reference."""
    stack, seen = [(None, model)], set()
    while stack:
        holder, one = stack.pop()
        if isinstance(one, str | bytes | int | float | type):
            continue
        yield holder, one
        if id(one) in seen:
            continue
        seen.add(id(one))
        held: Sequence[Any] = list(getattr(one, "__dict__", {}).values())
        if isinstance(one, dict):
            held = [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set):
            held = list(one)
        elif isinstance(one, np.ndarray):
            held = one.ravel().tolist() if one.dtype == object else []
        stack += [(one, part) for part in held]


def _check_tree(tree: Any) -> None:
    """Refuse a tree whose nodes lead out of it or back."""
    left, right = np.asarray(tree.children_left), np.asarray(tree.children_right)
    places = np.flatnonzero(left != -1)
    used = np.asarray(tree.feature)[places]
    if ((used < 0) | (used >= tree.n_features)).any():
        raise UnfitFile("expected trees whose splits are on columns, got others.")
    _check_downwards(places, [left[places], right[places]], len(left))


def _check_downwards(places: NDArray[Any], children: Sequence[NDArray[Any]], nodes: int) -> None:
    if not nodes or any(((one.astype(np.int64) <= places) | (one.astype(np.int64) >= nodes)).any() for one in children):
        raise UnfitFile("expected trees whose branches lead downwards, got others.")


def _check_boosting(model: Any) -> None:
    """Refuse trees of other columns, and more of them than there are sums to add to."""
    trees, columns = model.estimators_, _columns_of(model)
    if any(one.tree_.n_features != columns or one.tree_.n_outputs != 1 for one in trees.ravel()):
        raise UnfitFile("expected trees whose splits are on columns, got others.")
    sums = model._raw_predict_init(np.zeros((1, columns), dtype=np.float32))
    if trees.ndim != 2 or sums.shape != (1, trees.shape[1]):
        raise UnfitFile("expected trees that add to one of the sums, got others.")


def _check_histograms(model: Any) -> None:
    """Refuse splits that are on no column, and those by category, which scikit-learn prepares by a function."""
    columns = _columns_of(model)
    if getattr(model, "_preprocessor", None) is not None:
        raise UnfitFile("expected histograms of numbers, got those of categories.")
    for predictor in itertools.chain.from_iterable(model._predictors):
        nodes = predictor.nodes
        inner, places = nodes[nodes["is_leaf"] == 0], np.flatnonzero(nodes["is_leaf"] == 0)
        used = inner["feature_idx"].astype(np.int64)
        if ((used < 0) | (used >= columns)).any() or inner["is_categorical"].any():
            raise UnfitFile("expected trees whose splits are on columns, got others.")
        _check_downwards(places, [inner["left"], inner["right"]], len(nodes))


def _check_encoder(encoder: Any) -> None:
    """Refuse categories whose codes are outside of the columns that the encoder says it has."""
    levels, widths, drops = encoder.categories_, encoder._n_features_outs, encoder._drop_idx_after_grouping
    columns = _columns_of(encoder)
    if not len(levels) == len(widths) == columns or not (drops is None or np.shape(drops) == (columns,)):
        raise UnfitFile("expected categories of each column, got others.")
    for place, (own, width) in enumerate(zip(levels, widths, strict=True)):
        # numbers are looked up by bisection, and a missing one is the last
        if (
            own.dtype.kind not in "OUS"
            and not (own[:-1] < own[1:])[: len(own) - 1 - int(pd.isna(own[-1:]).sum())].all()
        ):
            raise UnfitFile("expected categories in their order, got others.")
        codes = np.arange(len(own))
        if encoder._infrequent_enabled and (rare := encoder._default_to_infrequent_mappings[place]) is not None:
            codes = np.asarray(rare, dtype=np.int64)
        if drops is not None and drops[place] is not None:
            codes = codes[codes != drops[place]]
            codes = codes - (codes > drops[place])
        if len(codes) and not 0 <= codes.min() <= codes.max() < width:
            raise UnfitFile("expected categories of each column, got others.")
