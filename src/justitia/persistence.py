"""Save and load a fitted classifier as safetensors plus JSON: no pickle, no code executed on load.

A saved model is a folder: ``weights.safetensors`` and ``model.json``. Both hold what ``fit`` released and public facts;
the sensitive attribute, and everything computed from it without noise, is long gone by then.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from safetensors.torch import load_file, save_file
from torch import nn

from justitia.encoding import TabularEncoder
from justitia.network import multilayer
from justitia.privacy.ledger import Certificate

if TYPE_CHECKING:
    from justitia.estimator import LagrangianDualClassifier

FORMAT = 1


def save(model: LagrangianDualClassifier, folder: Path | str) -> Path:
    """Write the fitted ``model`` to ``folder``, completely or not at all.

    Raises
    ------
    FileExistsError
        If ``folder`` exists and is not a saved model.
    """
    target = Path(folder)
    if target.exists() and not (target / "model.json").exists():
        raise FileExistsError(f"{str(target)!r} exists and is not a saved model; choose another folder.")
    facts = json.dumps(_facts(model), indent=2, allow_nan=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        state = {name: tensor.contiguous().clone() for name, tensor in model.module_.state_dict().items()}
        save_file(state, fresh / "weights.safetensors")
        (fresh / "model.json").write_text(facts, encoding="utf-8")
        _swap(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _swap(fresh: Path, target: Path) -> None:
    """Put the complete folder in place of an earlier one."""
    if target.exists():
        retired = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        target.replace(retired / "old")
        fresh.replace(target)
        shutil.rmtree(retired, ignore_errors=True)
    else:
        fresh.replace(target)


def _facts(model: LagrangianDualClassifier) -> dict[str, Any]:
    encoder = getattr(model, "encoder_", None)
    return {
        "format": FORMAT,
        "classes": [_plain(label) for label in model.classes_],
        "n_features": int(model.n_features_in_),
        "feature_names": [str(name) for name in getattr(model, "feature_names_in_", [])],
        "widths": _widths(model.module_),
        "encoder": None if encoder is None else encoder.to_state(),
        "parameters": {
            "notion": model.notion if isinstance(model.notion, str) else model.notion.name,
            "epsilon": _number(model.epsilon),
            "delta": model.delta,
            "tolerance": model.tolerance,
            "engine": model.engine,
            "preprocess": model.preprocess,
        },
        "plan": {"engine": model.engine, "settings": _plain_tree(model.plan_.to_dict())},
        "certificate": model.certificate_.to_dict(),
        "dual": {
            "groups": list(model.dual_.index),
            "events": list(model.dual_),
            "values": model.dual_.to_numpy().tolist(),
        },
        "history": json.loads(model.history_.to_json(orient="split", double_precision=15)),
    }


def _widths(module: nn.Module) -> list[int] | None:
    """Layer sizes if the network is the default kind, which can be rebuilt from them; None for a user's module."""
    if type(module) is not nn.Sequential:
        return None
    linear = [layer for layer in module if isinstance(layer, nn.Linear)]
    sizes = [linear[0].in_features, *(layer.out_features for layer in linear)] if linear else [1]
    rebuilt = multilayer(sizes[0], sizes[1:-1])
    return sizes if str(rebuilt) == str(module) else None


def load(folder: Path | str, *, module: nn.Module | None = None) -> LagrangianDualClassifier:
    """Read a model that :func:`save` wrote.

    Parameters
    ----------
    module : torch.nn.Module, optional
        Needed if the model was fitted with a module of your own: one of the same shape, whose weights are replaced.
    """
    from justitia.estimator import LagrangianDualClassifier  # noqa: PLC0415 - the estimator saves through this module

    source = Path(folder)
    facts = _read_facts(source)
    parameters = facts["parameters"] | {"epsilon": _number_back(facts["parameters"]["epsilon"])}
    model = LagrangianDualClassifier(**parameters, groups=facts["dual"]["groups"], module=module)
    model.classes_ = np.array(facts["classes"])
    model.n_features_in_ = facts["n_features"]
    if facts["feature_names"]:
        model.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    if facts["encoder"] is not None:
        model.encoder_ = TabularEncoder.from_state(facts["encoder"])
    model.module_ = _load_module(source, facts["widths"], module)
    model.certificate_ = Certificate.from_dict(facts["certificate"])
    dual = facts["dual"]
    index = pd.Index(dual["groups"], name="group")
    model.dual_ = pd.DataFrame(np.array(dual["values"], ndmin=2), index=index, columns=dual["events"])
    history = facts["history"]
    model.history_ = pd.DataFrame(history["data"], columns=history["columns"])
    model.plan_settings_ = facts["plan"]
    return model


def _read_facts(source: Path) -> dict[str, Any]:
    path = source / "model.json"
    if not path.exists():
        raise FileNotFoundError(f"{str(source)!r} is not a saved model: it has no model.json.")
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if facts.get("format") != FORMAT:
        raise ValueError(
            f"{str(source)!r} has model format {facts.get('format')!r}; this version reads format {FORMAT}: "
            "load it with the version of justitia that saved it."
        )
    return facts


def _load_module(source: Path, widths: list[int] | None, module: nn.Module | None) -> nn.Module:
    if widths is not None:
        module = multilayer(widths[0], widths[1:-1])
    if module is None:
        raise ValueError(f"{str(source)!r} was fitted with a module of its own; pass load(..., module=that module).")
    try:
        module.load_state_dict(load_file(source / "weights.safetensors"))
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise ValueError(
            f"The given module does not fit the saved weights ({first}); pass one of the same shape."
        ) from None
    return module.eval()


def _plain(label: Any) -> str | int | float | bool:
    value = label.item() if hasattr(label, "item") else label
    if not isinstance(value, str | int | float | bool):
        raise TypeError(
            f"Expected class labels that are text or numbers; got {type(value).__name__}, which JSON has not."
        )
    return value


def _plain_tree(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain_tree(item) for key, item in value.items()}
    return _number(value) if isinstance(value, float) else value


def _number(value: float) -> float | str:
    return "infinity" if math.isinf(value) else float(value)


def _number_back(value: float | str) -> float:
    return math.inf if value == "infinity" else float(value)


__all__ = ["load", "save"]
