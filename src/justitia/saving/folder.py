"""Save and load a fitted classifier as safetensors plus JSON: no pickle, no code executed on load.

A saved model is a folder: ``weights.safetensors`` and ``model.json``. Both hold what ``fit`` released and public facts;
the sensitive attribute is long gone by then, and a noise seed is not written. Of a model without a finite epsilon,
history and multipliers are exact; each column of the history says so.
"""

from __future__ import annotations

import copy
import json
import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import pandas as pd
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from sklearn.base import BaseEstimator
from torch import nn

from justitia._files import check_folder, foreign_entry, replace_folder, stage_beside
from justitia.engines import DEFAULT_PLANS
from justitia.inputs.encoding import TabularEncoder
from justitia.networks.multilayer import multilayer, widths_of
from justitia.privacy.ledger import Certificate
from justitia.privacy.mechanisms import Gaussian, Unprotected
from justitia.training.history import Column
from justitia.training.plan import Plan

Model = TypeVar("Model", bound=BaseEstimator)

FORMAT = 2
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
    facts = json.dumps(_facts(model), indent=2, allow_nan=False, default=_refuse)
    target.parent.mkdir(parents=True, exist_ok=True)
    with stage_beside(target) as stage:
        fresh = stage / "new"
        fresh.mkdir()
        state = {name: tensor.contiguous().clone() for name, tensor in model.module_.state_dict().items()}
        save_file(state, fresh / WEIGHTS)
        (fresh / MODEL).write_text(facts, encoding="utf-8")
        kept = replace_folder(fresh, target, stage, foreign_in_model)
    if kept is not None:
        warnings.warn(f"{str(target)!r} held files of others; they are kept in {str(kept)!r}.", stacklevel=3)
    return target


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
    return path.is_file() and (_is_weights(path) if path.name == WEIGHTS else holds_marks(path))


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
        "classes": {"dtype": model.classes_.dtype.str, "labels": [_plain(label) for label in model.classes_]},
        "n_features": int(model.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "widths": widths_of(model.module_),
        "encoder": None if encoder is None else encoder.to_state(),
        "parameters": _parameters(model),
        "groups": _written(model.groups_),
        "plan": _plan_facts(model.plan_),
        "certificate": model.certificate_.to_dict(),
        "dual": {
            "groups": list(model.dual_.index),
            "events": list(model.dual_),
            "values": model.dual_.to_numpy().tolist(),
        },
        "history": [
            asdict(column) | {"values": [_written(value) for value in model.history_[column.name].tolist()]}
            for column in model.history_columns_
        ],
    }


def _plan_facts(plan: Plan) -> dict[str, Any]:
    engine = next(name for name, default in DEFAULT_PLANS.items() if isinstance(plan, type(default)))
    settings = {field.name: _written(getattr(plan, field.name)) for field in fields(plan)}
    return {"engine": engine, "settings": settings}


def _parameters(model: BaseEstimator) -> dict[str, Any]:
    """Constructor arguments that can be written down; others (a module, a generator) start from their default.

    So does the noise seed: with the file and the seed, whoever has the file could subtract the noise.
    """
    chosen = model.get_params(deep=False)
    notion, groups = chosen["notion"], chosen["groups"]
    kept = {name: chosen[name] for name in ("engine", "preprocess", "progress")}
    kept |= {name: float(chosen[name]) for name in ("epsilon", "delta")}
    kept["tolerance"] = None if chosen["tolerance"] is None else float(chosen["tolerance"])
    kept["notion"] = notion if isinstance(notion, str) else notion.name
    kept["random_state"] = chosen["random_state"] if isinstance(chosen["random_state"], int) else None
    kept["missing_marker"] = chosen["missing_marker"]
    kept["groups"] = groups if groups is None or isinstance(groups, str | Mapping) else list(groups)
    return {name: _written(value) for name, value in kept.items()}


def load(folder: Path | str, *, module: nn.Module | None, kind: type[Model]) -> Model:
    """Read a model that :func:`save` wrote.

    Parameters
    ----------
    module : torch.nn.Module, optional
        Needed if the model was fitted with a module of your own: one of the same shape; it is copied.
    kind : type
        The class of the model.

    Raises
    ------
    FileNotFoundError
        If ``folder`` is not a saved model.
    ValueError
        If it was saved in another format, its files are damaged, or the module does not fit.
    """
    source = Path(folder)
    facts = _read_facts(source)
    parameters = {name: _read(value) for name, value in facts["parameters"].items()}
    model: Model = kind(**parameters, module=module)
    model.classes_ = np.array(facts["classes"]["labels"], dtype=np.dtype(facts["classes"]["dtype"]))
    model.n_features_in_ = facts["n_features"]
    if facts["feature_names"] is not None:
        model.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    if facts["encoder"] is not None:
        model.encoder_ = TabularEncoder.from_state(facts["encoder"])
    model.module_ = _load_module(source, facts["widths"], module)
    model.groups_ = _read(facts["groups"])
    model.plan_ = _load_plan(**facts["plan"])
    model.certificate_ = Certificate.from_dict(facts["certificate"])
    dual = facts["dual"]
    shape = (len(dual["groups"]), len(dual["events"]))
    multipliers = np.array(dual["values"], dtype=np.float64).reshape(shape)
    model.dual_ = pd.DataFrame(multipliers, index=pd.Index(dual["groups"], name="group"), columns=dual["events"])
    values = {column["name"]: [_read(value) for value in column.pop("values")] for column in facts["history"]}
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


def _load_module(source: Path, widths: list[int] | None, module: nn.Module | None) -> nn.Module:
    fresh = copy.deepcopy(module) if widths is None else multilayer(widths[0], widths[1:-1])
    if fresh is None:
        raise ValueError(f"{str(source)!r} was fitted with a module of its own; pass load(..., module=that module).")
    try:
        weights = load_file(source / WEIGHTS)
    except SafetensorError:
        raise ValueError(f"the weights of {str(source)!r} are damaged; save the model again.") from None
    try:
        fresh.load_state_dict(weights)
    except RuntimeError:
        raise ValueError(
            f"expected a module with the layers that were saved in {str(source)!r}, got another one; "
            "pass one of the same shape."
        ) from None
    return fresh.eval()


def _load_plan(engine: str, settings: dict[str, Any]) -> Plan:
    return type(DEFAULT_PLANS[engine])(**{name: _read(value) for name, value in settings.items()})


def _plain(label: Any) -> str | int | float | bool:
    value = label.item() if hasattr(label, "item") else label
    return value if isinstance(value, str | int | float | bool) else _refuse(value)


def _refuse(value: Any) -> NoReturn:
    raise TypeError(f"expected text, numbers and lists of them, got {type(value).__name__!r}, which JSON has not.")


def _written(value: Any) -> Any:
    """A value as JSON: what JSON lacks becomes an object with one key that names its type."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Gaussian | Unprotected):
        return {"noise": getattr(value, "noise_multiplier", None)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, list | tuple):
        items = [_written(item) for item in value]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        return {"mapping": [[_written(key), _written(item)] for key, item in value.items()]}
    return value


def _read(value: Any) -> Any:
    """Inverse of :func:`_written`."""
    if isinstance(value, list):
        return [_read(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    readers: dict[str, Callable[[Any], Any]] = {
        "noise": lambda multiplier: Unprotected() if multiplier is None else Gaussian(multiplier),
        "float": float,
        "tuple": lambda items: tuple(_read(item) for item in items),
        "mapping": lambda pairs: {_read(key): _read(item) for key, item in pairs},
    }
    return readers[kind](inner)


__all__ = ["load", "save"]
