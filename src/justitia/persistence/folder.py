"""Saving and loading of a fitted model as JSON and arrays: no pickle, and loading runs no code from the files.

A saved classifier or regressor is a folder with ``model.json`` and, beside it, ``weights.safetensors`` of a network, or
the base model and correction of engine ``post-processing`` (``justitia.persistence.rule``); ``model.json`` holds the
hashes of the others.
The folder holds public facts and what ``fit`` released: neither the sensitive attribute nor a noise seed is written. If
the model has no finite epsilon, its history, prices, multipliers and correction are exact; each column of the history
says so.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from justitia._files import check_folder, foreign_entry, read_bounded, read_object, replace_folder, stage_beside
from justitia._validate import check_nonnegative
from justitia.engines import engine_of, name_of, plan_class
from justitia.exceptions import JustitiaWarning
from justitia.learners.base import base_of
from justitia.notions import notion_name
from justitia.persistence.base import WRITTEN_BASES, BaseMismatch
from justitia.persistence.rule import MAX_BYTES, AnyRule, rule_from_files, rule_to_files
from justitia.preprocessing.encoding import TabularEncoder
from justitia.privacy.bins import Range
from justitia.privacy.ledger import Certificate
from justitia.privacy.mechanisms import Gaussian, Unprotected
from justitia.tasks import KINDS, NUMBER, Task
from justitia.training.history import Column
from justitia.training.plan import Plan

Model = TypeVar("Model", bound=BaseEstimator)

#: The format that is written, and those that are read; format 3 has models of two classes only.
FORMAT, READABLE = 4, (3, 4)
MODEL, WEIGHTS = "model.json", "weights.safetensors"
#: Files beside ``model.json`` that a model may name, and bytes of all of them at most.
FILE_NAMES = re.compile(r"(weights|correction)\.safetensors|base-[1-9][0-9]{0,2}\.(txt|json|xgb|cbm|skops)")
MAX_TOTAL_BYTES = 2**30
#: Longest class label, and bytes of all of them at most.
MAX_LABEL_LENGTH, MAX_LABEL_BYTES = 10_000, 2**26
#: Columns of price lists: of two classes, of more, and of numbers; and rows of one at most.
_PRICE_ENDS = ["violation", "violation_stderr", "corrected", "deployed"]
PRICE_COLUMNS = tuple(
    ["tolerance", *quality, *_PRICE_ENDS]
    for quality in (("accuracy", "auc", "positive_rate"), ("accuracy",), ("r2", "rmse"))
)
MAX_PRICES = 1_000
#: Constructor arguments that are written, as far as a model has them; a loaded model has the default of others (module,
#: plan). The noise seed is never written: whoever had the file and the seed could subtract the noise.
PARAMETERS = (
    *("notion", "epsilon", "delta", "tolerance", "ratio", "groups", "engine", "base", "threshold", "class_weight"),
    *("costs", "quota", "at", "randomize", "bounds", "random_state", "preprocess", "missing_marker", "missing"),
    "progress",
)
#: Policy limits that a model may be saved with.
LIMITS = ("limit", "limit_ratio")
#: JSON files that this package writes, and keys that each holds: other programs have files of the same names.
REQUIRED_KEYS = {
    re.compile(r"model\.json"): {"format", "certificate", "parameters", "plan", "widths"},
    re.compile(r"training\.json"): {"target", "sensitive", "command", "justitia"},
    re.compile(r"tradeoff\.json"): {"points", "chosen"},
    re.compile(r"measurement-\d+\.json"): {"people", "by_group", "certificate"},
}


def save(
    model: BaseEstimator, folder: Path | str, *, without_base: bool = False, limits: Mapping[str, float] | None = None
) -> Path:
    """Write the fitted ``model`` to ``folder``, completely or not at all.

    An earlier model there is replaced, with what commands kept beside it (its training facts and measurements), if the
    folder holds nothing else.

    Parameters
    ----------
    without_base : bool
        Whether to leave out a base that cannot be written; its owner passes it again to :func:`load`.
    limits : mapping, optional
        Policy limits by the names in ``LIMITS``.

    Raises
    ------
    FileExistsError
        If ``folder`` exists and is not a saved model, or holds a file that does not belong to one.
    TypeError
        If a class label or an optimizer option is neither text nor a number.
    ValueError
        If the base cannot be written and ``without_base`` is false.
    """
    target = Path(folder)
    _check_replaceable(target)
    rule, files = (None, _weights(model)) if hasattr(model, "module_") else rule_to_files(model.rule_)
    if rule is not None and not rule["base"]["written"] and not without_base:
        raise ValueError(
            f"expected a base that can be saved ({WRITTEN_BASES[_task(model).kind]}), got {rule['base']['words']}; "
            "keep model.rule_.base yourself and pass save(folder, without_base=True), then load(folder, base=that "
            "base)."
        )
    digests = dict(zip(files, map(_digest, files.values()), strict=True))
    described = _facts(model) | {"rule": rule, "files": digests, "limits": dict(limits or {})}
    facts = json.dumps(described, indent=2, allow_nan=False, default=_refuse)
    target.parent.mkdir(parents=True, exist_ok=True)
    with stage_beside(target) as stage:
        fresh = stage / "new"
        fresh.mkdir()
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        (fresh / MODEL).write_text(facts, encoding="utf-8")
        kept = replace_folder(fresh, target, stage, foreign_in_model)
    if kept is not None:
        warnings.warn(
            f"{str(target)!r} held files of others; they are kept in {str(kept)!r}.", JustitiaWarning, stacklevel=3
        )
    return target


def _task(model: BaseEstimator) -> Task:
    return NUMBER if isinstance(model, RegressorMixin) else Task.of_classes(model.classes_.tolist())


def _weights(model: BaseEstimator) -> dict[str, bytes]:
    from justitia.networks.saving import module_bytes  # noqa: PLC0415 - needs torch, which a network has

    return {WEIGHTS: module_bytes(model.module_)}


def _widths(model: BaseEstimator) -> list[int] | None:
    if not hasattr(model, "module_"):
        return None
    from justitia.networks.saving import module_widths  # noqa: PLC0415 - needs torch, which a network has

    return module_widths(model.module_)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _check_replaceable(target: Path) -> None:
    check_folder(target)
    if not target.exists():
        return
    if not (target / MODEL).exists():
        raise FileExistsError(f"{str(target)!r} exists and is not a saved model; choose another folder.")
    foreign = foreign_in_model(target)
    if foreign is not None:
        raise FileExistsError(
            f"{str(target)!r} holds {foreign.name!r}, which does not belong to a saved model; move it away or choose "
            "another folder."
        )


def foreign_in_model(folder: Path) -> Path | None:
    """First entry of a model's folder that neither :func:`save` nor a command of this package wrote, or None."""
    return foreign_entry(folder, lambda path: path.is_file() and (has_required_keys(path) or _is_recorded(path)))


def _is_recorded(path: Path) -> bool:
    """Whether the ``model.json`` beside a file names it with the hash that it has."""
    try:
        recorded = read_object(path.parent / MODEL)["files"][path.name]
        return bool(recorded == _digest(read_bounded(path, MAX_BYTES)))
    except (ValueError, OSError, KeyError, TypeError):
        return False


def has_required_keys(path: Path) -> bool:
    """Whether a JSON file has the keys that this package writes under its name."""
    keys = next((keys for name, keys in REQUIRED_KEYS.items() if name.fullmatch(path.name)), None)
    if keys is None:
        return False
    try:
        return keys <= read_object(path).keys()
    except (ValueError, OSError):
        return False


def _label(label: Any) -> str | int | float | bool:
    """A class label as JSON."""
    value = label.item() if hasattr(label, "item") else label
    return value if isinstance(value, str | int | float | bool) else _refuse(value)


def _refuse(value: Any) -> NoReturn:
    raise TypeError(f"expected text, numbers and lists of them, got {type(value).__name__!r}, which JSON has not.")


def to_json_value(value: Any) -> Any:
    """A value as JSON; a value that JSON lacks becomes an object with one key that names its type."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Gaussian | Unprotected):
        return {"noise": getattr(value, "noise_multiplier", None)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, Range):
        return {"range": [str(value), to_json_value(value.low), to_json_value(value.high)]}
    if isinstance(value, list | tuple):
        items = list(map(to_json_value, value))
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        return {"mapping": [[to_json_value(key), to_json_value(item)] for key, item in value.items()]}
    return value


def from_json_value(value: Any) -> Any:
    """Inverse of :func:`to_json_value`."""
    if isinstance(value, list):
        return [from_json_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    readers: dict[str, Callable[[Any], Any]] = {
        "noise": lambda multiplier: Unprotected() if multiplier is None else Gaussian(multiplier),
        "float": float,
        "range": lambda parts: Range(parts[0], from_json_value(parts[1]), from_json_value(parts[2])),
        "tuple": lambda items: tuple(from_json_value(item) for item in items),
        "mapping": lambda pairs: {from_json_value(key): from_json_value(item) for key, item in pairs},
    }
    return readers[kind](inner)


def _facts(model: BaseEstimator) -> dict[str, Any]:
    encoder = getattr(model, "encoder_", None)
    names = getattr(model, "feature_names_in_", None)
    task, tolerances = _task(model), getattr(model, "tolerances_", None)
    settings, history = {}, []
    for field in fields(model.plan_):
        value = getattr(model.plan_, field.name)
        settings[field.name] = to_json_value(value)
    for column in model.history_columns_:
        values = model.history_[column.name].tolist()
        history.append(asdict(column) | {"values": to_json_value(values)})
    association = getattr(model, "feature_association_", None)
    return {
        "format": FORMAT,
        "association": None if association is None else _association(association),
        "task": task.kind,
        "classes": None if task == NUMBER else _classes(model.classes_),
        "n_features": int(model.n_features_in_),
        "feature_names": None if names is None else list(map(str, names)),
        "widths": _widths(model),
        "encoder": None if encoder is None else encoder.to_state(),
        "parameters": _parameters(model),
        "tolerance": to_json_value(float(model.tolerance_)),
        "tolerances": None if tolerances is None else to_json_value(tolerances.to_numpy(dtype=np.float64)),
        "distance": None if model.distance_ is None else to_json_value(float(model.distance_)),
        "groups": to_json_value(model.groups_),
        "plan": {"engine": name_of(model.plan_), "settings": settings},
        "certificate": model.certificate_.to_dict(),
        "dual": {
            "groups": list(model.dual_.index),
            "events": list(model.dual_),
            "values": model.dual_.to_numpy().tolist(),
        },
        "history": history,
        "price": _price_columns(model),
    }


def _association(table: pd.DataFrame) -> dict[str, Any]:
    """How far groups differ in each feature: names, and numbers by feature and group."""
    features, groups = (list(dict.fromkeys(table.index.get_level_values(name))) for name in ("feature", "group"))
    columns = {name: to_json_value(table[name].tolist()) for name in ("difference", "stderr")}
    return {"features": features, "groups": groups, **columns}


def _read_association(facts: Any) -> pd.DataFrame | None:
    if facts is None:
        return None
    names = [list(map(str, facts[name])) for name in ("features", "groups")]
    if any(len(facts[name]) != len(names[0]) * len(names[1]) for name in ("difference", "stderr")):
        raise ValueError("expected one difference for each feature and group, got others.")
    index = pd.MultiIndex.from_product(names, names=["feature", "group"])
    columns = {name: np.array(from_json_value(facts[name]), dtype=np.float64) for name in ("difference", "stderr")}
    return pd.DataFrame(columns, index=index)


def _price_columns(model: BaseEstimator) -> dict[str, list[Any]] | None:
    """The price list by column; None of a model without one."""
    table: pd.DataFrame | None = getattr(model, "price_", None)
    return None if table is None else {str(name): to_json_value(table[name].tolist()) for name in table}


def _read_price(columns: Any) -> pd.DataFrame:
    """The price list of a file, after its columns were checked."""
    if list(columns) not in PRICE_COLUMNS or len({len(values) for values in columns.values()}) != 1:
        raise ValueError("expected the columns of a price list, got others.")
    read = {name: [from_json_value(one) for one in values] for name, values in columns.items()}
    for name, values in read.items():
        kind = bool if name in ("corrected", "deployed") else float
        if len(values) > MAX_PRICES or not all(type(one) is kind for one in values):
            raise ValueError("expected numbers and truth values in a price list, got others.")
    if sum(read["deployed"]) != 1:
        raise ValueError("expected one deployed row in a price list, got another number.")
    return pd.DataFrame(read)


def _classes(labels: NDArray[Any]) -> dict[str, Any]:
    return {"dtype": labels.dtype.str, "labels": list(map(_label, labels))}


def _parameters(model: BaseEstimator) -> dict[str, Any]:
    """Constructor arguments that can be written."""
    chosen = model.get_params(deep=False)
    kept = {name: chosen[name] for name in PARAMETERS if name in chosen}
    if kept["missing"] == "allowed":  # older versions read such a model, too
        del kept["missing"]
    if "engine" in chosen:
        kept["engine"] = engine_of(chosen["engine"], chosen["module"])  # the module that decides it is not written
    notion, groups, costs = chosen["notion"], chosen["groups"], chosen.get("costs")
    kept["notion"] = list(map(notion_name, notion)) if isinstance(notion, list | tuple) else notion_name(notion)
    kept["groups"] = groups if groups is None or isinstance(groups, str | Mapping) else list(groups)
    kept["base"] = _column_names(chosen["base"])
    if costs is not None:
        kept["costs"] = np.asarray(costs, dtype=np.float64)
    kept["random_state"] = chosen["random_state"] if isinstance(chosen["random_state"], int) else None
    for name in ("epsilon", "delta", "threshold", "tolerance", "ratio", "quota", "randomize"):
        if isinstance(kept.get(name), numbers.Real):
            kept[name] = float(kept[name])
    return {name: to_json_value(value) for name, value in kept.items()}


def _column_names(base: Any) -> Any:
    """A base that is one column or several, by their names; None for another one."""
    names = list(base.values()) if isinstance(base, Mapping) else base
    several = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return base if several or isinstance(base, str) else None


def load(folder: Path | str, *, module: Any, base: Any = None, kind: type[Model]) -> Model:
    """Read a model that :func:`save` wrote.

    Parameters
    ----------
    module : torch.nn.Module, optional
        Needed if the model was fitted with a module of your own: one of the same shape; it is copied.
    base : classifier, regressor or callable, optional
        Needed if the model was fitted with a base that ``justitia.persistence.base`` cannot write: that base, fitted.
    kind : type
        The class of the model.

    Raises
    ------
    FileNotFoundError
        If ``folder`` is not a saved model.
    ValueError
        If it was saved in another format, its files are damaged, or the module or base does not fit.

    Notes
    -----
    The folder may come from anyone: only regular files of bounded sizes are read, no type of values and no size of an
    array is taken from ``model.json`` without a check, and whatever does not fit is refused in one sentence.
    """
    source = Path(folder)
    facts = _read_facts(source)
    _check_kind(source, facts["task"], kind)
    with _described(source):
        parameters = {name: from_json_value(value) for name, value in facts["parameters"].items()}
        if not parameters.keys() <= set(PARAMETERS) & set(kind._get_param_names()):
            raise ValueError("expected parameters of the model, got others.")
        if "module" in kind._get_param_names():
            parameters["engine"] = engine_of(parameters["engine"], module)  # files of version 0.1 have its names
            parameters["module"] = module
        described, task = _fitted(facts)
        is_network, widths, files = facts["rule"] is None, facts["widths"], facts["files"]
        if is_network and task.kind != "binary":
            raise ValueError("expected a network of two classes, got one of another target.")
    if base is not None:
        parameters["base"] = base
    model: Model = kind(**parameters)
    vars(model).update(described)
    if is_network:
        if base is not None:
            raise ValueError(f"expected no base, since {str(source)!r} holds a network, got one; leave it out.")
        model.module_ = _load_module(source, widths, files, module)
        return model
    model.rule_ = _load_rule(source, facts, model, task, base)
    if task == NUMBER:
        model.bounds_ = model.rule_.bounds
    return model


def saved_task(folder: Path | str) -> str:
    """Kind of target of a saved model: "binary", "classes" or "number"; the last one is loaded as a regressor.

    Raises
    ------
    FileNotFoundError, ValueError
        As :func:`load`.
    """
    kind: str = _read_facts(Path(folder))["task"]
    return kind


def _check_kind(source: Path, task: str, kind: type[BaseEstimator]) -> None:
    """Refuse to load a regressor as a classifier, and the other way round."""
    if issubclass(kind, RegressorMixin) != (task == NUMBER.kind):
        here, there = ("regressor", "classifier") if issubclass(kind, RegressorMixin) else ("classifier", "regressor")
        raise ValueError(
            f"expected a saved {here} in {str(source)!r}, got a {there}; load it with LagrangianDual{there.title()}."
        )


@contextmanager
def _described(source: Path) -> Iterator[None]:
    """Turn any error in the description of a model into one sentence."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise ValueError(f"the model.json of {str(source)!r} is damaged; save the model again.") from None


def _fitted(facts: dict[str, Any]) -> tuple[dict[str, Any], Task]:
    """Fitted attributes, without the network or rule, and the target."""
    found: dict[str, Any] = {"n_features_in_": int(facts["n_features"])}
    task = NUMBER
    if facts["task"] != NUMBER.kind:
        found["classes_"] = _read_classes(**facts["classes"])
        task = Task(facts["task"], tuple(found["classes_"].tolist()))
    if facts["feature_names"] is not None:
        found["feature_names_in_"] = np.array([str(name) for name in facts["feature_names"]], dtype=object)
    if facts["encoder"] is not None:
        found["encoder_"] = TabularEncoder.from_state(facts["encoder"])
    dual = facts["dual"]
    shape = (len(dual["groups"]), len(dual["events"]))
    multipliers = np.array(dual["values"], dtype=np.float64).reshape(shape)
    values = {column["name"]: [from_json_value(value) for value in column.pop("values")] for column in facts["history"]}
    tolerance, tolerances = float(from_json_value(facts["tolerance"])), facts.get("tolerances")
    if task != NUMBER:  # one for every rate; format 3 has one for all
        each = tolerance if tolerances is None else [float(from_json_value(one)) for one in tolerances]
        found["tolerances_"] = pd.Series(each, index=dual["events"])
    if facts.get("price") is not None:  # not of a network, nor of an earlier version
        found["price_"] = _read_price(facts["price"])
    if limits := facts.get("limits"):  # earlier versions have none
        found["limits_"] = {name: check_nonnegative(name, limits[name]) for name in LIMITS if name in limits}
    return found | {
        "tolerance_": tolerance,
        "feature_association_": _read_association(facts.get("association")),
        "distance_": None if facts["distance"] is None else from_json_value(facts["distance"]),
        "groups_": from_json_value(facts["groups"]),
        "plan_": _load_plan(**facts["plan"]),
        "certificate_": Certificate.from_dict(facts["certificate"]),
        "dual_": pd.DataFrame(multipliers, index=pd.Index(dual["groups"], name="group"), columns=dual["events"]),
        "history_": pd.DataFrame(values),
        "history_columns_": tuple(Column(**column) for column in facts["history"]),
    }, task


def _read_classes(labels: list[Any], dtype: str) -> NDArray[Any]:
    """Class labels, all different.

    The dtype in the file decides how much memory is allocated: ``<U1000000000`` makes 4 GB of one letter, and ``|O``
    accepts any object as a label. So every label has to be text or a number whatever the dtype says, numbers need a
    numeric dtype, and the length in a text dtype is bounded, as are the bytes of all labels.
    """
    kind = np.dtype(str(dtype))
    if not isinstance(labels, list) or len(labels) < 2 or len(set(labels)) < len(labels):
        raise ValueError("expected different class labels, got others.")
    text = all(isinstance(label, str) for label in labels)
    if not text and not all(isinstance(label, bool | int | float) and math.isfinite(label) for label in labels):
        raise ValueError("expected class labels that are text or numbers, got others.")
    if kind.kind == "O":
        return np.fromiter(labels, dtype=object, count=len(labels))
    if kind.kind not in ("U" if text else "biuf"):
        raise ValueError("expected class labels of a plain type, got another.")
    bounded = kind.itemsize * len(labels) <= MAX_LABEL_BYTES
    if text and not (bounded and max(map(len, labels)) <= kind.itemsize // 4 <= MAX_LABEL_LENGTH):
        raise ValueError("expected class labels of bounded lengths, got others.")
    return np.array(labels, dtype=kind)


def _read_facts(source: Path) -> dict[str, Any]:
    path = source / MODEL
    if not path.exists() and not path.is_symlink():
        raise FileNotFoundError(f"{str(source)!r} is not a saved model: it has no model.json.")
    try:
        facts = read_object(path)
        version = facts.get("format")
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ValueError(f"the model.json of {str(source)!r} is damaged; save the model again.") from None
    if version not in READABLE:
        raise ValueError(
            f"{str(source)!r} has model format {version!r}; this version reads formats "
            f"{' and '.join(map(str, READABLE))}: load it with the version of justitia that saved it."
        )
    task = "binary" if version == 3 else facts.get("task")
    if task not in KINDS:
        raise ValueError(f"the model.json of {str(source)!r} is damaged; save the model again.")
    return facts | {"task": task}


def _load_module(source: Path, widths: Any, files: Any, module: Any) -> Any:
    if widths is None and module is None:
        raise ValueError(f"{str(source)!r} was fitted with a module of its own; pass load(..., module=that module).")
    from justitia.networks.saving import read_module  # noqa: PLC0415 - needs torch

    try:
        content = _read_files(source, files)[WEIGHTS]
    except _UnreadableFile as error:
        raise ValueError(str(error)) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise ValueError(f"the weights of {str(source)!r} are damaged; save the model again.") from None
    return read_module(content, widths, module, str(source))


def _load_rule(source: Path, facts: Mapping[str, Any], model: BaseEstimator, task: Task, base: Any) -> AnyRule:
    columns, encoder = int(model.n_features_in_), getattr(model, "encoder_", None)
    numbers = columns if encoder is None else len(encoder.get_feature_names_out())
    given = base_of(base, task)
    try:
        files = _read_files(source, facts["files"])
        return rule_from_files(facts["rule"], files, given, task, columns=columns, numbers=numbers)
    except BaseMismatch as error:
        raise ValueError(f"{str(source)!r}: {error}") from None
    except _UnreadableFile as error:
        raise ValueError(str(error)) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise ValueError(
            f"the trees of {str(source)!r} are damaged, or of another model; save the model again."
        ) from None


class _UnreadableFile(ValueError):
    """A file beside ``model.json`` is a link, no regular file, or too large."""


def _read_files(source: Path, recorded: Mapping[str, str]) -> dict[str, bytes]:
    """Contents of the files that ``model.json`` names, after their hashes were checked."""
    found: dict[str, bytes] = {}
    left = MAX_TOTAL_BYTES
    for name, digest in recorded.items():
        if not FILE_NAMES.fullmatch(name):
            raise ValueError(f"expected the name of a file of a saved model, got {name!r}.")
        try:
            found[name] = read_bounded(source / name, min(left, MAX_BYTES))
        except ValueError as error:
            raise _UnreadableFile(str(error)) from None
        left -= len(found[name])
        if _digest(found[name]) != digest:
            raise ValueError(f"expected {name!r} to be as it was written.")
    return found


def _load_plan(engine: str, settings: dict[str, Any]) -> Plan:
    return plan_class(engine)(**{name: from_json_value(value) for name, value in settings.items()})


__all__ = ["load", "save", "saved_task"]
