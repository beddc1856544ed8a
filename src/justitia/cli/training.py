"""What commands that train share: the file, an unfitted model, and what is kept of a fitted one."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from justitia.cli.bases import base_of
from justitia.cli.errors import Refusal, shown_path, told
from justitia.cli.files.columns import Columns, warn_of
from justitia.cli.files.looks import ROWS
from justitia.cli.files.metadata import FACTS, training_metadata
from justitia.cli.files.public_rows import public_rows
from justitia.cli.files.rows import Rows, read_rows
from justitia.cli.files.streamed import StreamedRows, is_streamed, read_streamed
from justitia.cli.output import json_text, warn
from justitia.cli.plan_file import command_plan
from justitia.engines import MOMENTS, POST_PROCESSING, engine_of
from justitia.estimator import LagrangianDualClassifier, check_parameters
from justitia.metrics.planning import PublicCounts, rate_noise
from justitia.notions import get_notion
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.privacy.vault import INFER

NO_GROUPS = (
    "expected the public list of groups, got none; pass --groups A,B, or --groups infer to read the list off the data, "
    "which does not protect it."
)
#: A rate with so much noise says nothing about a group, whatever its size turns out to be.
HOPELESS = 0.15
#: Engines that compare rates; others may compare scores.
RATES = (POST_PROCESSING, MOMENTS)
NOT_PROTECTED = "the list of groups is read off the data and is not protected; name it with --groups."


def rows_of(data: Path, settings: dict[str, Any]) -> Rows | StreamedRows:
    """The file, by the options of a command that trains; files that are to be read a few rows at a time by name."""
    if settings["target"] is None:
        raise Refusal("expected the name of the column to predict, got none; pass --target NAME.")
    read = read_streamed if is_streamed(data, asked=settings.pop("stream")) else read_rows
    rows = read(
        data,
        settings.pop("where"),
        target=settings["target"],
        positive=settings.pop("positive"),
        columns=Columns.taken(settings),
        base_column=settings["base_column"],
    )
    if rows.attribute.groups is None:
        if not rows.attribute.infer and math.isfinite(settings["epsilon"]):
            raise Refusal(NO_GROUPS)
        warn(NOT_PROTECTED)
    warn_of(rows.readings)
    return rows


def unfitted(
    rows: Rows | StreamedRows, settings: dict[str, Any], *, tolerance: float | None = None
) -> LagrangianDualClassifier:
    """A model with the settings of the command line, which are checked before a ledger is opened."""
    engine = engine_of(settings["engine"], settings["hidden"])
    _check_deciding(engine, settings)
    check_tolerances(engine, [] if tolerance is None else [tolerance])
    model = LagrangianDualClassifier(
        settings["notion"],
        epsilon=settings["epsilon"],
        delta=settings["delta"],
        tolerance=tolerance,
        groups=INFER if rows.attribute.infer else rows.attribute.groups,
        engine=engine,
        base=base_of(settings["base"], settings["base_column"]),
        module=settings["hidden"],
        plan=command_plan(settings["plan_file"], engine, small_groups=settings["small_groups"]),
        threshold=settings["threshold"],
        random_state=settings["seed"],
    )
    check_parameters(model)
    if not settings["small_groups"] and isinstance(rows, Rows):
        _check_workable(model, rows)
    return model


def _check_workable(model: LagrangianDualClassifier, rows: Rows) -> None:
    """Refuse what public numbers alone show to be hopeless: rates that are noise even in groups of equal sizes."""
    groups = rows.attribute.groups
    if groups is None or math.isinf(model.epsilon) or not isinstance(model.plan, PostProcessingPlan):
        return
    counts = PublicCounts(len(rows), int(rows.y.sum()), math.prod(len(labels) for labels in groups.values()))
    made = model.plan.calibrate(model.epsilon, model.delta, n=counts.rows)
    size = counts.rows // counts.groups
    noise = rate_noise(size, counts, made, get_notion(model.notion))
    if noise is not None and noise > HOPELESS:
        raise Refusal(
            f"{counts.groups} groups of {counts.rows:,} rows have about {size} rows each, and the noise in their rates "
            f"is then about {noise:.2g}; merge groups (--bins cuts a number), raise --epsilon, or pass --small-groups."
        )


def _check_deciding(engine: str, settings: dict[str, Any]) -> None:
    """Refuse options of a network beside those of a base, in the words of the command line."""
    if engine == POST_PROCESSING and settings["hidden"] is not None:
        raise Refusal(f"expected --hidden with an engine that trains a network, got engine {engine!r}; leave out one.")
    based = settings["base"] is not None or settings["base_column"] is not None or settings["threshold"] != 0.5
    if engine != POST_PROCESSING and based:
        raise Refusal(
            f"expected engine 'post-processing' beside --base, --base-column and --threshold, got {engine!r}, which "
            "trains a network; leave out --engine and --hidden."
        )


def check_tolerances(engine: str, tolerances: Sequence[float]) -> None:
    """Refuse a difference between rates that there cannot be: whoever writes 5 means 5%, and would pay for nothing."""
    large = [one for one in tolerances if one > 1]
    if large and engine in RATES:
        raise Refusal(f"expected a tolerance of at most 1, got {large[0]:g}; 5% is written 0.05.")


def kept_of(rows: Rows | StreamedRows, target: str) -> dict[str, Any]:
    """What later measurements need to tell whether the same people are looked at again."""
    sketch = None if isinstance(rows, StreamedRows) else public_rows(rows, target).sketch.to_dict()
    return {ROWS: sketch}


def save_somewhere(save_to: Callable[[Path], dict[str, Any]], stage: Path, out: Path) -> dict[str, Any]:
    """Save what was paid for; if its place has no room, where there is some.

    Raises
    ------
    Refusal
        Which says where it is now.
    OSError
        If there is no room anywhere.
    """
    try:
        return save_to(stage)
    except OSError as error:
        reason = told(error)[1].partition(";")[0]
        for place in (Path(tempfile.gettempdir()), Path.home()):
            with suppress(OSError):
                kept = Path(tempfile.mkdtemp(prefix=f"{out.name}.kept-", dir=place))
                try:
                    save_to(kept / out.name)
                except OSError:
                    shutil.rmtree(kept, ignore_errors=True)
                    continue
                raise Refusal(
                    f"{reason}; what was trained is paid for and kept in {shown_path(kept / out.name)}: move it."
                ) from None
        raise


def save(
    model: LagrangianDualClassifier, rows: Rows | StreamedRows, folder: Path, *, target: str, kept: dict[str, Any]
) -> dict[str, Any]:
    """Write model, facts and what else is ``kept``; the model answers in the target's own words."""
    if isinstance(rows, Rows):
        model.classes_ = np.array(rows.classes)
    model.save(folder)
    facts = training_metadata(model, rows, target=target)
    facts |= rows.columns.to_keep(rows.readings) if isinstance(rows, Rows) else {}
    (folder / FACTS).write_text(json_text(facts | kept), encoding="utf-8")
    return facts
