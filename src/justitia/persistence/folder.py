"""Save and load a fitted classifier as JSON and numbers: no pickle, no code executed on load.

A saved model is a folder: ``model.json``, and beside it ``weights.safetensors`` of a network, or the trees of a rule
as text (``justitia.persistence.rule``), whose hashes ``model.json`` holds. They are what ``fit`` released and public
facts; the sensitive attribute is long gone by then, and a noise seed is not written. Of a model without a finite
epsilon, history, multipliers and correction are exact; each column of the history says so.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from justitia._files import check_folder, foreign_entry, read_bounded, read_object, replace_folder, stage_beside
from justitia.engines import engine_of, name_of, plan_class
from justitia.exceptions import JustitiaWarning
from justitia.learners.base import base_of
from justitia.notions import notion_name
from justitia.persistence.json_values import plain, read, refuse, written
from justitia.persistence.rule import MOST_BYTES, BaseMismatch, read_rule, written_rule
from justitia.postprocessing.correction import Rule
from justitia.preprocessing.encoding import TabularEncoder
from justitia.privacy.ledger import Certificate
from justitia.training.history import Column
from justitia.training.plan import Plan

Model = TypeVar("Model", bound=BaseEstimator)

FORMAT = 3
MODEL, WEIGHTS = "model.json", "weights.safetensors"
#: Files beside ``model.json`` that a model may name, and bytes of all of them at most.
OURS = re.compile(r"(weights|correction)\.safetensors|base-[1-9][0-9]{0,2}\.(txt|json)")
MOST_TOGETHER = 2**30
#: Letters of a class label at most.
MOST_LETTERS = 10_000
#: Files of ours that are JSON, and names that each of them holds: others have files of the same name.
MARKS = {
    re.compile(r"model\.json"): {"format", "certificate", "parameters", "plan", "widths"},
    re.compile(r"training\.json"): {"target", "sensitive", "command", "justitia"},
    re.compile(r"tradeoff\.json"): {"points", "chosen"},
    re.compile(r"measurement-\d+\.json"): {"people", "by_group", "certificate"},
}
#: Names of all files that :func:`save` writes.
_NAMES = re.compile(r"model\.json|(weights|correction)\.safetensors|base-[0-9]{1,3}\.(txt|json)")


def is_saved_name(name: Any) -> bool:
    """Whether :func:`save` writes a file of this name; a name that leads out of the folder is none."""
    return isinstance(name, str) and _NAMES.fullmatch(name) is not None


def save(model: BaseEstimator, folder: Path | str, *, without_base: bool = False) -> Path:
    """Write the fitted ``model`` to ``folder``, completely or not at all.

    An earlier model there is replaced, with what commands kept beside it (its training facts and measurements), if the
    folder holds nothing else.

    Parameters
    ----------
    without_base : bool
        Whether a base that cannot be written may stay with its owner, who passes it again to :func:`load`.

    Raises
    ------
    FileExistsError
        If ``folder`` exists and is not a saved model, or holds a file that does not belong to one.
    TypeError
        If a class label or an optimizer option is neither text nor a number.
    ValueError
        If the base cannot be written and ``without_base`` does not say that this is known.
    """
    target = Path(folder)
    _check_replaceable(target)
    rule, files = (None, _weights(model)) if hasattr(model, "module_") else written_rule(model.rule_)
    if rule is not None and not rule["base"]["written"] and not without_base:
        raise ValueError(
            f"expected a base that can be saved (a LightGBM classifier, a logistic regression of two classes, or a "
            f"column of scores), got {rule['base']['words']}; keep model.rule_.base yourself and pass "
            "save(folder, without_base=True), then load(folder, base=that base)."
        )
    described = _facts(model) | {"rule": rule, "files": {name: _digest(content) for name, content in files.items()}}
    facts = json.dumps(described, indent=2, allow_nan=False, default=refuse)
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
    """First entry of a model's folder that neither :func:`save` nor a command of ours wrote: not ours to delete."""
    return foreign_entry(folder, _is_ours)


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    return holds_marks(path) or _is_recorded(path)


def _is_recorded(path: Path) -> bool:
    """Whether the model beside it says that it wrote this very file."""
    try:
        recorded = read_object(path.parent / MODEL)["files"][path.name]
        return bool(recorded == _digest(read_bounded(path, MOST_BYTES)))
    except (ValueError, OSError, KeyError, TypeError):
        return False


def holds_marks(path: Path) -> bool:
    """Whether a JSON file says of itself what :func:`save` or a command of ours writes under its name."""
    marks = next((held for name, held in MARKS.items() if name.fullmatch(path.name)), None)
    if marks is None:
        return False
    try:
        return marks <= read_object(path).keys()
    except (ValueError, OSError):
        return False


def _facts(model: BaseEstimator) -> dict[str, Any]:
    encoder = getattr(model, "encoder_", None)
    names = getattr(model, "feature_names_in_", None)
    return {
        "format": FORMAT,
        "classes": {"dtype": model.classes_.dtype.str, "labels": [plain(label) for label in model.classes_]},
        "n_features": int(model.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "widths": _widths(model),
        "encoder": None if encoder is None else encoder.to_state(),
        "parameters": _parameters(model),
        "tolerance": written(float(model.tolerance_)),
        "distance": None if model.distance_ is None else written(float(model.distance_)),
        "groups": written(model.groups_),
        "plan": _plan_facts(model.plan_),
        "certificate": model.certificate_.to_dict(),
        "dual": {
            "groups": list(model.dual_.index),
            "events": list(model.dual_),
            "values": model.dual_.to_numpy().tolist(),
        },
        "history": [
            asdict(column) | {"values": [written(value) for value in model.history_[column.name].tolist()]}
            for column in model.history_columns_
        ],
    }


def _plan_facts(plan: Plan) -> dict[str, Any]:
    settings = {field.name: written(getattr(plan, field.name)) for field in fields(plan)}
    return {"engine": name_of(plan), "settings": settings}


def _parameters(model: BaseEstimator) -> dict[str, Any]:
    """Constructor arguments that can be written down; others (a module, a base, a generator) start from their default.

    So does the noise seed: with the file and the seed, whoever has the file could subtract the noise.
    """
    chosen = model.get_params(deep=False)
    notion, groups = chosen["notion"], chosen["groups"]
    kept = {name: chosen[name] for name in ("preprocess", "progress", "class_weight")}
    kept |= {name: float(chosen[name]) for name in ("epsilon", "delta", "threshold")}
    kept["engine"] = engine_of(chosen["engine"], chosen["module"])  # the module that decides it is not written
    kept["base"] = chosen["base"] if isinstance(chosen["base"], str) else None
    kept["tolerance"] = None if chosen["tolerance"] is None else float(chosen["tolerance"])
    kept["notion"] = notion_name(notion)
    kept["random_state"] = chosen["random_state"] if isinstance(chosen["random_state"], int) else None
    kept["missing_marker"] = chosen["missing_marker"]
    kept["groups"] = groups if groups is None or isinstance(groups, str | Mapping) else list(groups)
    return {name: written(value) for name, value in kept.items()}


def load(folder: Path | str, *, module: Any, base: Any = None, kind: type[Model]) -> Model:
    """Read a model that :func:`save` wrote.

    Parameters
    ----------
    module : torch.nn.Module, optional
        Needed if the model was fitted with a module of your own: one of the same shape; it is copied.
    base : classifier or callable, optional
        Needed if the model was fitted with a base that ``justitia.persistence.rule`` cannot write: that base, fitted.
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
    The folder may come from anybody: only regular files of bounded sizes are read, no type of values and no size of an
    array is taken from ``model.json`` without a check, and whatever does not fit is refused in one sentence.
    """
    source = Path(folder)
    facts = _read_facts(source)
    with _described(source):
        parameters = {name: read(value) for name, value in facts["parameters"].items()}
        parameters["engine"] = engine_of(parameters["engine"], module)  # files of version 0.1 have its names
        described = _fitted(facts)
        if parameters.keys() - set(kind._get_param_names()):
            raise ValueError("expected parameters of the model, got others.")
        is_network, widths, files = facts["rule"] is None, facts["widths"], facts["files"]
    if base is not None:
        parameters["base"] = base
    model: Model = kind(**parameters, module=module)
    vars(model).update(described)
    if is_network:
        _refuse_base(source, base)
        model.module_ = _load_module(source, widths, files, module)
    else:
        model.rule_ = _load_rule(source, facts, model, base)
    return model


@contextmanager
def _described(source: Path) -> Iterator[None]:
    """Whatever is wrong with the description of a model becomes one sentence."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise ValueError(f"the model.json of {str(source)!r} is damaged; save the model again.") from None


def _fitted(facts: dict[str, Any]) -> dict[str, Any]:
    """What ``fit`` left behind, but for network or rule."""
    found: dict[str, Any] = {"classes_": _read_classes(**facts["classes"]), "n_features_in_": int(facts["n_features"])}
    if facts["feature_names"] is not None:
        found["feature_names_in_"] = np.array([str(name) for name in facts["feature_names"]], dtype=object)
    if facts["encoder"] is not None:
        found["encoder_"] = TabularEncoder.from_state(facts["encoder"])
    dual = facts["dual"]
    shape = (len(dual["groups"]), len(dual["events"]))
    multipliers = np.array(dual["values"], dtype=np.float64).reshape(shape)
    values = {column["name"]: [read(value) for value in column.pop("values")] for column in facts["history"]}
    return found | {
        "tolerance_": read(facts["tolerance"]),
        "distance_": None if facts["distance"] is None else read(facts["distance"]),
        "groups_": read(facts["groups"]),
        "plan_": _load_plan(**facts["plan"]),
        "certificate_": Certificate.from_dict(facts["certificate"]),
        "dual_": pd.DataFrame(multipliers, index=pd.Index(dual["groups"], name="group"), columns=dual["events"]),
        "history_": pd.DataFrame(values),
        "history_columns_": tuple(Column(**column) for column in facts["history"]),
    }


def _read_classes(labels: list[Any], dtype: str) -> NDArray[Any]:
    """The two class labels.

    A type of values is an instruction to allocate: ``<U1000000000`` makes 4 GB of one letter, and ``|O`` takes any
    object for a label. So every label has to be text or a number of its own, whatever type is written; numbers have a
    plain type, and text is hardly longer than the labels are.
    """
    kind = np.dtype(str(dtype))
    if not isinstance(labels, list) or len(labels) != 2 or labels[0] == labels[1]:
        raise ValueError("expected two class labels, got others.")
    text = all(isinstance(label, str) for label in labels)
    if not text and not all(isinstance(label, bool | int | float) for label in labels):
        raise ValueError("expected class labels that are text or numbers, got others.")
    if kind.kind == "O":
        return np.fromiter(labels, dtype=object, count=2)
    if kind.kind not in ("U" if text else "biuf"):
        raise ValueError("expected class labels of a plain type, got another.")
    if text and not max(map(len, labels)) <= kind.itemsize // 4 <= MOST_LETTERS:
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
    if version != FORMAT:
        raise ValueError(
            f"{str(source)!r} has model format {version!r}; this version reads format {FORMAT}: "
            "load it with the version of justitia that saved it."
        )
    return facts


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


def _load_rule(source: Path, facts: Mapping[str, Any], model: BaseEstimator, base: Any) -> Rule:
    columns, encoder = int(model.n_features_in_), getattr(model, "encoder_", None)
    numbers = columns if encoder is None else len(encoder.get_feature_names_out())
    given = base_of(base, model.classes_[1])
    try:
        files = _read_files(source, facts["files"])
        return read_rule(facts["rule"], files, given, columns=columns, numbers=numbers)
    except BaseMismatch as error:
        raise ValueError(f"{str(source)!r}: {error}") from None
    except _UnreadableFile as error:
        raise ValueError(str(error)) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise ValueError(
            f"the trees of {str(source)!r} are damaged, or of another model; save the model again."
        ) from None


def _refuse_base(source: Path, base: Any) -> None:
    if base is not None:
        raise ValueError(f"expected no base, since {str(source)!r} holds a network, got one; leave it out.")


class _UnreadableFile(ValueError):
    """A file beside ``model.json`` is a link, no regular file, or too large."""


def _read_files(source: Path, recorded: Mapping[str, str]) -> dict[str, bytes]:
    """Contents of the files that the model names, each with the hash that it names."""
    found: dict[str, bytes] = {}
    left = MOST_TOGETHER
    for name, digest in recorded.items():
        if not OURS.fullmatch(name):
            raise ValueError(f"expected the name of a file of ours, got {name!r}.")
        try:
            found[name] = read_bounded(source / name, min(left, MOST_BYTES))
        except ValueError as error:
            raise _UnreadableFile(str(error)) from None
        left -= len(found[name])
        if _digest(found[name]) != digest:
            raise ValueError(f"expected {name!r} to be as it was written.")
    return found


def _load_plan(engine: str, settings: dict[str, Any]) -> Plan:
    return plan_class(engine)(**{name: read(value) for name, value in settings.items()})


__all__ = ["load", "save"]
