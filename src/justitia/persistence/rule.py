"""Files of the model that engine ``post-processing`` deploys: numbers as JSON, arrays as safetensors, no pickle.

A rule has a base model (``justitia.persistence.base``), a calibration and a correction; it decides between two classes
(:class:`Rule`) or several (:class:`ClassRule`), or predicts a number (:class:`NumberRule`).

The files may come from anyone. No size is taken from them: an array has to have the shape that follows from the columns
of the table, the classes and the other arrays, and every number has to be finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from justitia.learners.base import Base
from justitia.learners.calibration import AnyCalibration, Calibration, LinearCalibration, VectorScaling
from justitia.persistence.base import Files, base_from_files, base_to_files
from justitia.postprocessing.coin import KEY_BYTES, Coin
from justitia.postprocessing.correction import ClassRule, Correction, Levels, Rule
from justitia.postprocessing.number_notions import NUMBER_NOTIONS, EqualDistributions, NumberNotion
from justitia.postprocessing.number_rule import NumberRule
from justitia.tasks import Task

CORRECTION = "correction.safetensors"
#: Limits of what is read: levels of scores or of numbers, and bytes of one file.
MAX_LEVELS, MAX_BYTES = 10_000, 2**28
#: Arrays of a correction.
CORRECTION_ARRAYS = ("centre", "spread", "hidden", "out")
Array = NDArray[np.float64]
Arrays = dict[str, Array]
AnyRule = Rule | ClassRule | NumberRule


def rule_to_files(rule: AnyRule) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Public numbers and a description of the base for ``model.json``, and the contents of all files by name."""
    base, files = base_to_files(rule.base)
    if isinstance(rule, NumberRule):
        facts, arrays = _number_parts(rule)
    elif isinstance(rule, ClassRule):
        facts, arrays = _class_parts(rule)
    else:
        facts, arrays = _binary_parts(rule)
    if arrays:
        files[CORRECTION] = safetensors.numpy.save(arrays)
    return {"base": base, "correction": bool(arrays)} | facts, files


def _binary_parts(rule: Rule) -> tuple[dict[str, Any], Arrays]:
    mend, arrays = rule.calibration, _arrays(rule.correction)
    if rule.levels is not None and arrays:  # a model of scores
        arrays |= {"levels": rule.levels.at, "each": _outputs(rule.levels.corrections)}
    facts: dict[str, Any] = {"calibration": [mend.alpha, mend.beta, mend.gamma], "threshold": rule.threshold}
    if rule.coin is not None:
        facts["coin"] = {"width": rule.coin.width, "key": rule.coin.key.hex()}
    return facts, arrays


def _class_parts(rule: ClassRule) -> tuple[dict[str, Any], Arrays]:
    mend = rule.calibration
    facts: dict[str, Any] = {"calibration": {"scale": list(mend.scale), "shift": list(mend.shift)}}
    optional = {"costs": rule.costs, "quota": rule.quota}
    facts |= {name: None if part is None else np.asarray(part).tolist() for name, part in optional.items()}
    return facts, _arrays(rule.correction)


def _number_parts(rule: NumberRule) -> tuple[dict[str, Any], Arrays]:
    """Distributions that a notion has learned are left out: predictions do not need them."""
    mend, notion = rule.calibration, rule.notion
    if not isinstance(mend, LinearCalibration):
        raise TypeError(f"expected the calibration of a number to be a line, got {type(mend).__name__!r}.")
    facts: dict[str, Any] = {"calibration": [mend.intercept, mend.slope], "notion": notion.name}
    facts["bounds"] = list(rule.bounds)
    levels = notion.levels if isinstance(notion, EqualDistributions) else None
    facts["levels"] = None if levels is None else levels.tolist()
    if not rule.corrections:
        return facts, {}
    arrays = _arrays(rule.corrections[0])
    del arrays["out"]
    return facts, arrays | {"each": _outputs(rule.corrections)}


def _arrays(correction: Correction) -> Arrays:
    """Arrays by name; empty if nothing is corrected."""
    if correction.is_zero:
        return {}
    return {name: np.ascontiguousarray(getattr(correction, name)) for name in CORRECTION_ARRAYS}


def _outputs(corrections: Sequence[Correction]) -> Array:
    """(R, H + 1, 2): corrections of one rule differ only after the hidden units."""
    return np.stack([np.asarray(one.out) for one in corrections])


def rule_from_files(
    facts: Mapping[str, Any], files: Files, given: Base | None, task: Task, *, columns: int, numbers: int
) -> AnyRule:
    """Read the model that :func:`rule_to_files` wrote.

    Parameters
    ----------
    facts : mapping
        The part of ``model.json``.
    files : mapping
        Contents by name.
    given : Base, optional
        The base model, if it was not written.
    task : Task
    columns, numbers : int
        Number of columns of a table before and after preprocessing.

    Raises
    ------
    BaseMismatch
        If the base is missing or not needed.
    ValueError
        If a file is not what was written.
    """
    arrays = _read_arrays(files[CORRECTION], numbers) if facts["correction"] else {}
    base = base_from_files(facts["base"], files, given, task, columns=columns, numbers=numbers)
    if task.kind == "number":
        return _number_rule(facts, arrays, base)
    if task.kind == "classes":
        return _class_rule(facts, arrays, base, task.n_classes)
    return _binary_rule(facts, arrays, base)


def _read_arrays(content: bytes, numbers: int) -> Arrays:
    """Arrays of finite numbers in double precision, those that read the features with one entry per column."""
    try:
        arrays = safetensors.numpy.load(content)
    except safetensors.SafetensorError:
        raise ValueError("expected arrays of numbers, got something else.") from None
    if any(part.dtype != np.float64 or not np.isfinite(part).all() for part in arrays.values()):
        raise ValueError("expected finite numbers in double precision, got others.")
    read = (arrays["centre"], arrays["spread"])
    if any(part.shape != (numbers,) for part in read) or not (arrays["spread"] > 0).all():
        raise ValueError("expected a correction that reads as many columns as the table has, got another.")
    return arrays


def _check_shapes(arrays: Arrays, inputs: int, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse arrays of other names or shapes; hidden units read the features and so many further ``inputs``."""
    numbers, units = len(arrays["centre"]), arrays["hidden"].shape[-1]
    expected = {"centre": (numbers,), "spread": (numbers,), "hidden": (numbers + inputs, units)} | shapes
    if {name: part.shape for name, part in arrays.items()} != expected:
        raise ValueError("expected a correction of this target and table, got another.")


def _binary_rule(facts: Mapping[str, Any], arrays: Arrays, base: Base) -> Rule:
    calibration = Calibration(*_finite(facts["calibration"], (3,)).tolist())
    threshold = float(facts["threshold"])
    if not 0 < threshold < 1:
        raise ValueError("expected a threshold between 0 and 1, got another.")
    coin = _coin(facts.get("coin"))
    if not arrays:
        return Rule(base, calibration, Correction(), threshold, coin=coin)
    units, count = arrays["hidden"].shape[-1], len(arrays.get("levels", ()))
    of_levels = {"levels": (count,), "each": (count, units + 1, 2)} if count else {}
    _check_shapes(arrays, 3, {"out": (units + 1, 2), **of_levels})
    levels = None
    if count:
        at = _rising(arrays.pop("levels"))
        levels = Levels(at, _corrections(arrays, arrays.pop("each")))
    return Rule(base, calibration, Correction(**arrays), threshold, levels, coin)


def _coin(facts: Mapping[str, Any] | None) -> Coin | None:
    if facts is None:
        return None
    (width,), key = _finite([facts["width"]], (1,)).tolist(), bytes.fromhex(facts["key"])
    if not 0 < width <= 1 or len(key) != KEY_BYTES:
        raise ValueError("expected the width of a band and a key of its length, got others.")
    return Coin(width, key)


def _class_rule(facts: Mapping[str, Any], arrays: Arrays, base: Base, classes: int) -> ClassRule:
    scale, shift = (_finite(facts["calibration"][name], (classes,)) for name in ("scale", "shift"))
    calibration = VectorScaling(tuple(scale.tolist()), tuple(shift.tolist()))
    shapes = {"costs": (classes, classes), "quota": (classes - 1,)}
    costs, quota = (None if facts[name] is None else _finite(facts[name], shape) for name, shape in shapes.items())
    if arrays:
        _check_shapes(arrays, 2 * classes + 1, {"out": (arrays["hidden"].shape[-1] + 1, classes, classes - 1)})
    return ClassRule(base, calibration, Correction(**arrays), costs, quota)


def _number_rule(facts: Mapping[str, Any], arrays: Arrays, base: Base) -> NumberRule:
    calibration: AnyCalibration = LinearCalibration(*_finite(facts["calibration"], (2,)).tolist())
    low, high = _finite(facts["bounds"], (2,)).tolist()
    if not low < high:
        raise ValueError("expected the smaller end of the range first, got another order.")
    notion: NumberNotion = NUMBER_NOTIONS[facts["notion"]]()
    if isinstance(notion, EqualDistributions) and facts["levels"] is not None:
        levels = _rising(_finite(facts["levels"], (len(facts["levels"]),)))
        if levels[0] < 0 or levels[-1] > 1:
            raise ValueError("expected levels between 0 and 1, got others.")
        notion = EqualDistributions(levels)
    elif facts["levels"] is not None or (isinstance(notion, EqualDistributions) and arrays):
        raise ValueError("expected levels where distributions are compared, and only there.")
    corrections: tuple[Correction, ...] = ()
    if arrays:
        count = len(notion.mix(np.zeros((notion.count, 1))))
        _check_shapes(arrays, 3, {"each": (count, arrays["hidden"].shape[-1] + 1, 2)})
        corrections = _corrections(arrays, arrays.pop("each"))
    return NumberRule(base, calibration, notion, corrections, (low, high))


def _corrections(arrays: Arrays, each: Array) -> tuple[Correction, ...]:
    return tuple(Correction(**arrays | {"out": np.ascontiguousarray(out)}) for out in each)


def _finite(values: Any, shape: tuple[int, ...]) -> Array:
    """Numbers of ``model.json`` as an array of this shape; text and truth values are not numbers."""
    wrong = f"expected finite numbers of shape {shape}, got others."
    flat = values if len(shape) == 1 else [one for row in values for one in row]
    if not all(type(one) in (int, float) for one in flat):
        raise ValueError(wrong)
    found: Array = np.array(values, dtype=np.float64)
    if found.shape != shape or not np.isfinite(found).all():
        raise ValueError(wrong)
    return found


def _rising(levels: Array) -> Array:
    if not 0 < len(levels) <= MAX_LEVELS or (np.diff(levels) <= 0).any():
        raise ValueError("expected rising levels, got others.")
    return levels


__all__ = ["AnyRule", "rule_from_files", "rule_to_files"]
