"""Save and load a fitted classifier as JSON and numbers: no pickle, no code executed on load.

A saved model is a folder: ``model.json``, and beside it ``weights.safetensors`` of a network, or the trees of a rule as
text (``justitia.saving.rule``), whose hashes ``model.json`` holds. They are what ``fit`` released and public facts;
the sensitive attribute is long gone by then, and a noise seed is not written. Of a model without a finite epsilon,
history, multipliers and correction are exact; each column of the history says so.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_weights
from safetensors.torch import save as weights_of
from sklearn.base import BaseEstimator
from torch import nn

from justitia._files import check_folder, foreign_entry, replace_folder, stage_beside
from justitia.engines import DEFAULT_PLANS, engine_of, name_of
from justitia.engines.plugin.learner import Rule
from justitia.inputs.encoding import TabularEncoder
from justitia.learners.base import base_of
from justitia.networks.multilayer import multilayer, widths_of
from justitia.notions import notion_name
from justitia.privacy.ledger import Certificate
from justitia.saving.json_values import plain, read, refuse, written
from justitia.saving.rule import MOST_BYTES, BaseMismatch, read_rule, written_rule
from justitia.training.history import Column
from justitia.training.plan import Plan

Model = TypeVar("Model", bound=BaseEstimator)

FORMAT = 3
MODEL, WEIGHTS = "model.json", "weights.safetensors"
#: Files of ours that are JSON, and names that each of them holds: others have files of the same name.
MARKS = {
    re.compile(r"model\.json"): {"format", "certificate", "parameters", "plan", "widths"},
    re.compile(r"training\.json"): {"target", "sensitive", "command", "justitia"},
    re.compile(r"tradeoff\.json"): {"points", "chosen"},
    re.compile(r"measurement-\d+\.json"): {"people", "by_group", "certificate"},
}


def save(model: BaseEstimator, folder: Path | str) -> Path:
    """Write the fitted ``model`` to ``folder``, completely or not at all.

    An earlier model there is replaced, with what commands kept beside it (its training facts and measurements), if the
    folder holds nothing else.

    Raises
    ------
    FileExistsError
        If ``folder`` exists and is not a saved model, or holds a file that does not belong to one.
    TypeError
        If a class label or an optimizer option is neither text nor a number.
    """
    target = Path(folder)
    _check_replaceable(target)
    rule, files = (None, _weights(model)) if hasattr(model, "module_") else written_rule(model.rule_)
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
        warnings.warn(f"{str(target)!r} held files of others; they are kept in {str(kept)!r}.", stacklevel=3)
    return target


def _weights(model: BaseEstimator) -> dict[str, bytes]:
    state = {name: tensor.contiguous().clone() for name, tensor in model.module_.state_dict().items()}
    return {WEIGHTS: weights_of(state)}


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
    return _is_weights(path) if path.name == WEIGHTS else holds_marks(path) or _is_recorded(path)


def _is_recorded(path: Path) -> bool:
    """Whether the model beside it says that it wrote this very file."""
    try:
        recorded = json.loads((path.parent / MODEL).read_text(encoding="utf-8"))["files"][path.name]
        return bool(recorded == _digest(path.read_bytes()))
    except (ValueError, OSError, KeyError, TypeError):
        return False


def holds_marks(path: Path) -> bool:
    """Whether a JSON file says of itself what :func:`save` or a command of ours writes under its name."""
    marks = next((held for name, held in MARKS.items() if name.fullmatch(path.name)), None)
    if marks is None:
        return False
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return False
    return isinstance(facts, dict) and marks <= facts.keys()


def _is_weights(path: Path) -> bool:
    try:
        with safe_open(path, framework="pt"):
            return True
    except (SafetensorError, OSError):
        return False


def _facts(model: BaseEstimator) -> dict[str, Any]:
    encoder = getattr(model, "encoder_", None)
    names = getattr(model, "feature_names_in_", None)
    return {
        "format": FORMAT,
        "classes": {"dtype": model.classes_.dtype.str, "labels": [plain(label) for label in model.classes_]},
        "n_features": int(model.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "widths": widths_of(model.module_) if hasattr(model, "module_") else None,
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


def load(folder: Path | str, *, module: nn.Module | None, base: Any = None, kind: type[Model]) -> Model:
    """Read a model that :func:`save` wrote.

    Parameters
    ----------
    module : torch.nn.Module, optional
        Needed if the model was fitted with a module of your own: one of the same shape; it is copied.
    base : classifier or callable, optional
        Needed if the model was fitted with a base that ``justitia.saving.rule`` cannot write: that base, fitted.
    kind : type
        The class of the model.

    Raises
    ------
    FileNotFoundError
        If ``folder`` is not a saved model.
    ValueError
        If it was saved in another format, its files are damaged, or the module or base does not fit.
    """
    source = Path(folder)
    facts = _read_facts(source)
    parameters = {name: read(value) for name, value in facts["parameters"].items()}
    if base is not None:
        parameters["base"] = base
    model: Model = kind(**parameters, module=module)
    model.classes_ = np.array(facts["classes"]["labels"], dtype=np.dtype(facts["classes"]["dtype"]))
    model.n_features_in_ = facts["n_features"]
    if facts["feature_names"] is not None:
        model.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    if facts["encoder"] is not None:
        model.encoder_ = TabularEncoder.from_state(facts["encoder"])
    if facts["rule"] is None:
        _refuse_base(source, base)
        model.module_ = _load_module(source, facts, module)
    else:
        model.rule_ = _load_rule(source, facts, model, base)
    model.tolerance_ = read(facts["tolerance"])
    model.distance_ = None if facts["distance"] is None else read(facts["distance"])
    model.groups_ = read(facts["groups"])
    model.plan_ = _load_plan(**facts["plan"])
    model.certificate_ = Certificate.from_dict(facts["certificate"])
    dual = facts["dual"]
    shape = (len(dual["groups"]), len(dual["events"]))
    multipliers = np.array(dual["values"], dtype=np.float64).reshape(shape)
    model.dual_ = pd.DataFrame(multipliers, index=pd.Index(dual["groups"], name="group"), columns=dual["events"])
    values = {column["name"]: [read(value) for value in column.pop("values")] for column in facts["history"]}
    model.history_ = pd.DataFrame(values)
    model.history_columns_ = tuple(Column(**column) for column in facts["history"])
    return model


def _read_facts(source: Path) -> dict[str, Any]:
    path = source / MODEL
    if not path.exists():
        raise FileNotFoundError(f"{str(source)!r} is not a saved model: it has no model.json.")
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = facts.get("format")
    except (ValueError, AttributeError):
        raise ValueError(f"the model.json of {str(source)!r} is damaged; save the model again.") from None
    if version != FORMAT:
        raise ValueError(
            f"{str(source)!r} has model format {version!r}; this version reads format {FORMAT}: "
            "load it with the version of justitia that saved it."
        )
    return facts


def _load_module(source: Path, facts: Mapping[str, Any], module: nn.Module | None) -> nn.Module:
    widths = facts["widths"]
    fresh = copy.deepcopy(module) if widths is None else multilayer(widths[0], widths[1:-1])
    if fresh is None:
        raise ValueError(f"{str(source)!r} was fitted with a module of its own; pass load(..., module=that module).")
    try:
        weights = load_weights(_read_files(source, facts["files"])[WEIGHTS])
    except (SafetensorError, OSError, ValueError, KeyError):
        raise ValueError(f"the weights of {str(source)!r} are damaged; save the model again.") from None
    try:
        fresh.load_state_dict(weights)
    except RuntimeError:
        raise ValueError(
            f"expected a module with the layers that were saved in {str(source)!r}, got another one; "
            "pass one of the same shape."
        ) from None
    return fresh.eval()


def _load_rule(source: Path, facts: Mapping[str, Any], model: BaseEstimator, base: Any) -> Rule:
    columns, encoder = int(model.n_features_in_), getattr(model, "encoder_", None)
    numbers = columns if encoder is None else len(encoder.get_feature_names_out())
    given = base_of(base, model.classes_[1])
    try:
        files = _read_files(source, facts["files"])
        return read_rule(facts["rule"], files, given, columns=columns, numbers=numbers)
    except BaseMismatch as error:
        raise ValueError(f"{str(source)!r}: {error}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise ValueError(
            f"the trees of {str(source)!r} are damaged, or of another model; save the model again."
        ) from None


def _refuse_base(source: Path, base: Any) -> None:
    if base is not None:
        raise ValueError(f"expected no base, since {str(source)!r} holds a network, got one; leave it out.")


def _read_files(source: Path, recorded: Mapping[str, str]) -> dict[str, bytes]:
    """Contents of the files that the model names, each with the hash that it names."""
    found = {}
    for name, digest in recorded.items():
        path = source / Path(name).name
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"expected {name!r} to be smaller.")
        found[name] = path.read_bytes()
        if _digest(found[name]) != digest:
            raise ValueError(f"expected {name!r} to be as it was written.")
    return found


def _load_plan(engine: str, settings: dict[str, Any]) -> Plan:
    return type(DEFAULT_PLANS[engine])(**{name: read(value) for name, value in settings.items()})


__all__ = ["load", "save"]
