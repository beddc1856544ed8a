"""Steps that commands share which train: read the rows, make the estimator, save the model with its facts."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from justitia import regressor
from justitia.cli.errors import Refusal, describe_error, shown_path
from justitia.cli.files.attribute import Where
from justitia.cli.files.columns import FeatureColumns, warn_about
from justitia.cli.files.metadata import FACTS, ROWS, Model, training_metadata
from justitia.cli.files.rows import LabelledRows, read_rows
from justitia.cli.files.streamed import AT_ONCE, StreamedRows, is_streamed, read_streamed
from justitia.cli.goal import GoalOptions
from justitia.cli.options import LimitOptions, command_plan, make_base
from justitia.cli.output import json_text, warn
from justitia.engines import MOMENTS, POST_PROCESSING, engine_of
from justitia.estimator import LagrangianDualClassifier, check_parameters
from justitia.metrics.planning import PublicCounts, rate_noise
from justitia.notions import get_notions
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.privacy.vault import INFER
from justitia.regressor import LagrangianDualRegressor

NO_GROUPS = (
    "expected the public list of groups, got none; pass --groups A,B, or --groups infer to read the list off the data, "
    "which does not protect it."
)
#: Standard deviation of the noise in a group's rate above which training is refused: nothing could be learned from it.
MAX_RATE_NOISE = 0.15
#: Engines that compare rates, which differ by at most 1; other engines may compare scores.
RATE_ENGINES = (POST_PROCESSING, MOMENTS)
NOT_PROTECTED = "the list of groups is read off the data and is not protected; name it with --groups."


def read_training_rows(data: Path, settings: dict[str, Any]) -> LabelledRows | StreamedRows:
    """The rows of a command that trains; of files that are read a few rows at a time, only the names of columns."""
    if settings["target"] is None:
        raise Refusal("expected the name of the column to predict, got none; pass --target NAME.")
    where = Where.from_options(settings)
    workers = settings.pop("workers", 1)
    named = {
        "target": settings["target"],
        "positive": settings.pop("positive"),
        "columns": FeatureColumns.from_options(settings),
        "base_columns": settings["base_columns"],
        "task": settings.pop("task"),
    }
    rows: LabelledRows | StreamedRows
    if is_streamed(data, asked=settings.pop("stream") or workers > 1):
        rows = read_streamed(data, where, workers=workers, **named)
    else:
        rows = read_rows(data, where, **named)
    if rows.attribute.groups is None:
        if not rows.attribute.infer and math.isfinite(settings["epsilon"]):
            raise Refusal(NO_GROUPS)
        warn(NOT_PROTECTED)
    warn_about(rows.readings)
    return rows


def make_estimator(rows: LabelledRows | StreamedRows, settings: dict[str, Any], goal: GoalOptions) -> Model:
    """An unfitted model with the settings of the command line, which are checked before a ledger is opened."""
    engine = engine_of(settings["engine"], settings["hidden"])
    goal.check_task(rows.task, engine, settings)
    if engine == POST_PROCESSING and settings["hidden"] is not None:
        raise Refusal(f"expected --hidden with an engine that trains a network, got engine {engine!r}; leave out one.")
    based = settings["base"] is not None or bool(settings["base_columns"]) or settings["threshold"] != 0.5
    if engine != POST_PROCESSING and based:
        raise Refusal(
            f"expected engine 'post-processing' beside --base, --base-column and --threshold, got {engine!r}, which "
            "trains a network; leave out --engine and --hidden."
        )
    check_tolerances(engine, goal.tolerances if goal.are_shares else ())
    n_jobs = settings.get("n_jobs")
    shared: dict[str, Any] = {
        "epsilon": settings["epsilon"],
        "delta": settings["delta"],
        "tolerance": goal.tolerance,
        "groups": INFER if rows.attribute.infer else rows.attribute.groups,
        "base": make_base(settings["base"], settings["base_columns"], rows.task, n_jobs=n_jobs),
        "plan": command_plan(settings["plan_file"], engine, small_groups=settings["small_groups"]),
        "random_state": settings["seed"],
        "missing": "none" if settings.get("no_missing") else "allowed",
        "n_jobs": n_jobs,
        **goal.arguments(rows.task),
    }
    model: Model
    if rows.task.kind == "number":
        model = LagrangianDualRegressor(**shared)
        regressor.check_parameters(model)
    else:
        network = {"engine": engine, "module": settings["hidden"], "threshold": settings["threshold"]}
        network["randomize"] = settings.get("randomize", 0.0)
        model = LagrangianDualClassifier(**shared, **network)
        check_parameters(model)
        if not settings["small_groups"] and isinstance(rows, LabelledRows):
            _check_rate_noise(model, rows)
    return model


def fit_arguments(rows: LabelledRows | StreamedRows, goal: GoalOptions) -> dict[str, Any]:
    """What a model is fitted to, with the strata if there are any.

    Raises
    ------
    Refusal
        If the column of the strata is not public, or rows are read a few at a time.
    """
    data: dict[str, Any] = {"X": rows.X, "y": rows.labels, "sensitive_features": rows.sensitive, "person": rows.person}
    if rows.proxy is not None:
        if rows.task.kind == "number":
            raise Refusal("expected no --proxy because the target has numbers, got one; leave it out.")
        data["proxy"] = rows.proxy
    name = goal.stratum
    if name is None:
        return data
    if isinstance(rows, StreamedRows):
        raise Refusal(f"expected --stratum with {AT_ONCE}")
    rows.table.check_columns([name])
    if name in rows.attribute.hidden():
        raise Refusal(f"the column {name!r} is sensitive, key or id and cannot be a public stratum; name another one.")
    return data | {"strata": rows.public_column(name).to_numpy()}


def _check_rate_noise(model: LagrangianDualClassifier, rows: LabelledRows) -> None:
    """Refuse a budget whose noise hides every rate even if groups have equal sizes; only public numbers are used."""
    groups = rows.attribute.groups
    if groups is None or math.isinf(model.epsilon) or not isinstance(model.plan, PostProcessingPlan):
        return
    by_class = np.bincount(rows.y, minlength=len(rows.classes)).tolist()
    counts = PublicCounts.of_classes(by_class, math.prod(map(len, groups.values())), rows.task.classes)
    plan = model.plan.calibrate(model.epsilon, model.delta, n=counts.rows)
    size = counts.rows // counts.groups
    noise = rate_noise(size, counts, plan, get_notions(model.notion))
    if noise is not None and noise > MAX_RATE_NOISE:
        raise Refusal(
            f"{counts.groups} groups of {counts.rows:,} rows have about {size} rows each, and the noise in their rates "
            f"is then about {noise:.2g}; merge groups (--bins cuts a number), raise --epsilon, or pass --small-groups."
        )


def check_tolerances(engine: str, tolerances: Sequence[float]) -> None:
    """Refuse a tolerance that no difference of rates exceeds, because users who write 5 mean 5%."""
    largest = max(tolerances, default=0.0)
    if largest > 1 and engine in RATE_ENGINES:
        raise Refusal(f"expected a tolerance of at most 1, got {largest:g}; 5% is written 0.05.")


def save_or_rescue(save_to: Callable[[Path], dict[str, Any]], stage: Path, out: Path) -> dict[str, Any]:
    """Save a result that was paid for; if its disk is full, save it elsewhere.

    Raises
    ------
    Refusal
        If it was saved elsewhere; the message says where.
    OSError
        If it could be saved nowhere.
    """
    try:
        return save_to(stage)
    except OSError as error:
        reason = describe_error(error)[1].partition(";")[0]
        for place in (Path(tempfile.gettempdir()), Path.home()):
            with suppress(OSError):
                kept = Path(tempfile.mkdtemp(prefix=f"{out.name}.kept-", dir=place))
                try:
                    save_to(kept / out.name)
                except OSError:
                    shutil.rmtree(kept, ignore_errors=True)
                    continue
                raise Refusal(
                    f"{reason}; the trained model is paid for and kept in {shown_path(kept / out.name)}; move it."
                ) from None
        raise


def save_model(
    model: Model,
    rows: LabelledRows | StreamedRows,
    folder: Path,
    *,
    target: str,
    sketch: dict[str, Any] | None,
    limits: LimitOptions | None = None,
) -> dict[str, Any]:
    """Write a model that predicts the target's own values, and its facts.

    Parameters
    ----------
    limits : LimitOptions, optional
        What it has to show when it is measured.
    sketch : dict or None
        Summary of the public rows, from which later measurements see whether they use the same individuals.
    """
    if isinstance(rows, LabelledRows) and rows.task.kind == "binary":
        model.classes_ = np.array(rows.classes)
    limits = limits or LimitOptions()
    model.save(folder, limit=limits.limit, limit_ratio=limits.limit_ratio)
    facts = training_metadata(model, rows, target=target)
    facts |= limits.to_dict()
    facts |= rows.columns.to_dict(rows.readings) if isinstance(rows, LabelledRows) else {}
    (folder / FACTS).write_text(json_text(facts | {ROWS: sketch}), encoding="utf-8")
    return facts
