"""Logging of a fitted model, its certificate and its measurement to MLflow: public and noisy facts only."""

from __future__ import annotations

import math
import numbers
import platform
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from justitia.engines import name_of
from justitia.estimator import LagrangianDualClassifier
from justitia.metrics.measurement import Measurement
from justitia.notions import notion_name
from justitia.persistence.folder import saved_task
from justitia.preprocessing.encoding import CategoryColumn, NumberColumn
from justitia.regressor import LagrangianDualRegressor
from justitia.tasks import NUMBER, Task
from justitia.training.history import Column

#: Constructor arguments that are logged, as far as a model has them. Not the noise seed: whoever knows it can subtract
#: the noise.
PARAMETERS = ("notion", "epsilon", "delta", "tolerance", "ratio", "costs", "quota", "preprocess", "random_state")
#: Metrics per request to a tracking server.
BATCH = 1000
Model = LagrangianDualClassifier | LagrangianDualRegressor


def log_to_mlflow(
    model: Model,
    *,
    measurement: Measurement | None = None,
    report: Path | str | None = None,
    run_name: str | None = None,
    save_model: bool = False,
    input_example: Any = None,
) -> str:
    """Log a fitted model to the active MLflow run, or to a new one.

    ========== =========================================================================================
    parameters the constructor's (without the noise seed), the target, the plan's (``plan.*``), the network's or the
               base's
    metrics    epsilon and delta spent, the history by round, violations and bounds of ``measurement``
    tags       version, statement of the certificate, source of the noise
    artifacts  ``certificate.json``, ``certificate.txt``; ``measurement.json``; the report; ``model/``, which
               ``mlflow.pyfunc.load_model`` reads: without pickle, with a signature of the columns of ``X``
    ========== =========================================================================================

    If the certificate has no finite epsilon, numbers by group are exact. Then the history is logged without them, the
    certificate without its remarks, the tolerance in force only if it was given, and ``save_model`` is refused, since
    the folder holds history and multipliers. A ``measurement`` without a finite epsilon is refused too.

    MLflow decides where runs are kept (``mlflow.set_tracking_uri``, ``mlflow.set_experiment``).

    Parameters
    ----------
    model : LagrangianDualClassifier or LagrangianDualRegressor
        Fitted.
    measurement : Measurement, optional
        Result of :func:`justitia.measure` on evaluation data.
    report : path, optional
        A file, such as the HTML report (which leaves out exact numbers by itself); it is logged as it is.
    run_name : str, optional
        Name of a new run.
    save_model : bool
        Whether to log the folder that ``model.save`` writes, too, as a model of MLflow's generic flavour.
    input_example : data frame, optional
        A few rows of ``X`` that are kept beside the model as they are; whoever reads the run sees them. Made-up rows
        serve as well.

    Returns
    -------
    str
        The run's identifier.

    Raises
    ------
    ImportError
        If the extra is not installed.
    NotFittedError, TypeError, FileNotFoundError
        If an argument has another type or there is no such file; then nothing is logged.
    ValueError
        If the measurement, or the model whose folder was asked for, has no finite epsilon, or that model has a base
        that cannot be saved; then nothing is logged.

    Guarantee
    ---------
    * Everything logged, except the file ``report``, is public, or was released with noise by ``fit`` or ``measure``
      and is on their ledgers: no attribute, no exact number by group, no noise seed.
    """
    _check(model, measurement, report)
    _check_private(model, measurement, save_model=save_model)
    mlflow = _import_mlflow()
    with tempfile.TemporaryDirectory() as folder:
        files = _files(model, measurement, Path(folder))
        if save_model:  # before the run: not every model can be saved
            model.save(files / "model")
            _add_flavour(model, files / "model", input_example)
        with _run(mlflow, run_name) as run_id:
            client = mlflow.MlflowClient()
            mlflow.log_params(_parameters(model))
            mlflow.set_tags(_tags(model))
            mlflow.log_metrics(_spent(model) | ({} if measurement is None else _measured(measurement)))
            for batch in _history(mlflow, model):
                client.log_batch(run_id, metrics=batch)
            mlflow.log_artifacts(str(files))
            if report is not None:
                mlflow.log_artifact(str(report))
    return run_id


def _check(model: Any, measurement: Any, report: Any) -> None:
    if not isinstance(model, Model):
        raise TypeError(
            f"expected a LagrangianDualClassifier or a LagrangianDualRegressor, got {type(model).__name__!r}; pass a "
            "fitted one."
        )
    check_is_fitted(model, "plan_")
    if not (measurement is None or isinstance(measurement, Measurement)):
        raise TypeError(
            f"expected measurement to be a Measurement, got {type(measurement).__name__!r}; pass what measure returns."
        )
    if not (report is None or isinstance(report, str | Path)):
        raise TypeError(f"expected report to be the path of a file, got {type(report).__name__!r}; write it first.")
    if report is not None and not Path(report).is_file():
        raise FileNotFoundError(f"expected report to be a file, but there is none at {str(report)!r}; write it first.")


def _check_private(model: Model, measurement: Measurement | None, *, save_model: bool) -> None:
    """Refuse models and measurements with exact numbers by group."""
    if save_model and math.isinf(model.certificate_.epsilon):
        raise ValueError(
            "expected a model with a finite epsilon for save_model=True, got one whose history and multipliers are "
            "exact; pass save_model=False."
        )
    if measurement is not None and math.isinf(measurement.certificate.epsilon):
        raise ValueError(
            "expected a measurement with a finite epsilon, got one whose numbers by group are exact; leave it out, or "
            "measure with a finite epsilon."
        )


def _import_mlflow() -> ModuleType:
    """MLflow, imported when it is needed."""
    try:
        import mlflow  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise ImportError(
            "expected mlflow to be installed for tracking, found none; run: pip install 'justitia[mlflow]'."
        ) from None
    module: ModuleType = mlflow
    return module


@contextmanager
def _run(mlflow: ModuleType, name: str | None) -> Iterator[str]:
    """The active run, or a new one that ends here."""
    active = mlflow.active_run()
    if active is not None:
        yield str(active.info.run_id)
        return
    with mlflow.start_run(run_name=name) as run:
        yield str(run.info.run_id)


def _parameters(model: Model) -> dict[str, str]:
    kept = {name: getattr(model, name) for name in PARAMETERS if hasattr(model, name)}
    kept["notion"] = notion_name(model.notion)
    kept["target"] = _task(model).describe()
    kept["engine"] = name_of(model.plan_)
    kept["random_state"] = model.random_state if isinstance(model.random_state, int) else None
    # A tolerance that was not given, of all rates or of one, follows from exact group sizes without privacy.
    if isinstance(model.tolerance, numbers.Real) or math.isfinite(model.certificate_.epsilon):
        kept["tolerance_in_force"] = model.tolerance_
    kept |= {"module": _module(model)} if hasattr(model, "module_") else _rule(model)
    kept |= {f"plan.{field.name}": getattr(model.plan_, field.name) for field in fields(model.plan_)}
    return {name: str(value) for name, value in kept.items()}


def _task(model: Model) -> Task:
    return NUMBER if isinstance(model, LagrangianDualRegressor) else Task.of_classes(model.classes_.tolist())


def _module(model: LagrangianDualClassifier) -> str:
    from justitia.networks.multilayer import widths_of  # noqa: PLC0415 - needs torch, which a network has

    widths = widths_of(model.module_)
    return type(model.module_).__name__ if widths is None else "-".join(map(str, widths))


def _rule(model: Model) -> dict[str, Any]:
    rule = model.rule_
    kept = {"base": rule.base.describe(), "calibration": rule.calibration.describe()}
    own = {"binary": "threshold", "number": "bounds"}.get(_task(model).kind)
    return kept if own is None else kept | {own: getattr(rule, own)}


def _tags(model: Model) -> dict[str, str]:
    certificate = model.certificate_
    return {
        "justitia.version": metadata.version("justitia"),
        "justitia.statement": certificate.statement,
        "justitia.noise": certificate.noise,
    }


def _spent(model: Model) -> dict[str, float]:
    """Epsilon and delta of the certificate; an infinite epsilon is in its statement, which is a tag."""
    paid = model.certificate_
    numbers = {"epsilon": paid.epsilon, "epsilon_spent": paid.spent_epsilon, "delta": paid.delta}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def _measured(measurement: Measurement) -> dict[str, float]:
    numbers = {"measured.people": float(measurement.people), "measured.epsilon": measurement.certificate.epsilon}
    for name, one in measurement.violations.items():
        numbers |= {
            f"measured.{name}.noisy_violation": one.estimate,
            f"measured.{name}.lower": one.lower,
            f"measured.{name}.upper": one.upper,
            f"measured.{name}.groups": len(measurement.groups),
            f"measured.{name}.groups_compared": len(measurement.groups) - len(measurement.not_compared(name)),
        }
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def _history(mlflow: ModuleType, model: Model) -> Iterator[list[Any]]:
    """Public and noisy numbers by round, under names that MLflow accepts, in batches."""
    history, now = model.history_, int(1000 * time.time())
    columns = [column for column in model.history_columns_ if column.released and column.kind != "round"]
    metrics = [
        mlflow.entities.Metric(name, float(value), now, int(step))
        for column, name in zip(columns, _metric_names(columns), strict=True)
        for step, value in zip(history["round"], history[column.name], strict=True)
        if math.isfinite(value)
    ]
    for start in range(0, len(metrics), BATCH):
        yield metrics[start : start + BATCH]


def _metric_names(columns: Sequence[Column]) -> list[str]:
    """Names such as ``noisy_gap/f``, with underscores for characters that MLflow refuses; duplicates get a number."""
    several = len({column.event for column in columns if column.event is not None}) > 1
    names: list[str] = []
    for column in columns:
        parts = [column.event if several else None, column.group]
        inner = ", ".join(part for part in parts if part is not None)
        cleaned = "".join(letter if letter.isalnum() or letter in "_- " else "_" for letter in inner)
        name = column.kind if column.group is None else f"{column.kind}/{cleaned or '_'}"
        tries = (name, *(f"{name}_{number}" for number in range(2, len(columns) + 2)))
        names.append(next(one for one in tries if one not in names))
    return names


def _files(model: Model, measurement: Measurement | None, folder: Path) -> Path:
    target = folder / "artifacts"
    target.mkdir()
    certificate = model.certificate_.without_exact_remarks()
    (target / "certificate.json").write_text(certificate.to_json(), encoding="utf-8")
    (target / "certificate.txt").write_text(f"{certificate}\n", encoding="utf-8")
    if measurement is not None:
        (target / "measurement.json").write_text(measurement.to_json(), encoding="utf-8")
    return target


# ------------------------------------------------------------------ MLflow's generic flavour


def _add_flavour(model: Model, folder: Path, input_example: Any) -> None:
    """What ``mlflow.pyfunc.load_model`` reads, written beside the files of ``model.save``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing mlflow.pyfunc warns of type hints of its own
        models, pyfunc = import_module("mlflow.models"), import_module("mlflow.pyfunc")
        described = models.Model(signature=_signature(model))
        pyfunc.add_to_model(described, loader_module=__name__, python_env="python_env.yaml")
    (folder / "requirements.txt").write_text(f"justitia=={metadata.version('justitia')}\n", encoding="utf-8")
    environment = f"python: {platform.python_version()}\ndependencies:\n- -r requirements.txt\n"
    (folder / "python_env.yaml").write_text(environment, encoding="utf-8")
    if input_example is not None:
        rows = _as_signed(pd.DataFrame(input_example), described.signature)
        rows.to_json(folder / "input_example.json", orient="split")
        described.saved_input_example_info = {
            "artifact_path": "input_example.json",
            "type": "dataframe",
            "pandas_orient": "split",
        }
    described.save(str(folder / "MLmodel"))


def _load_pyfunc(path: str) -> Model:
    """Read the model of a run; MLflow calls this by its name, with the folder of ``model.save``."""
    kind = LagrangianDualRegressor if saved_task(path) == NUMBER.kind else LagrangianDualClassifier
    model: Model = kind.load(path)
    return model


def _signature(model: Model) -> Any:
    """Columns of ``X`` with their types, and the type of a prediction."""
    models, types = import_module("mlflow.models"), import_module("mlflow.types")
    encoder = getattr(model, "encoder_", None)
    if encoder is None:
        columns: list[Any] = [types.TensorSpec(np.dtype(np.float64), (-1, int(model.n_features_in_)))]
    else:
        names = [str(name) for name in getattr(model, "feature_names_in_", range(model.n_features_in_))]
        kinds = [_column_type(column) for column in encoder.columns_]
        columns = [types.ColSpec(kind, name) for kind, name in zip(kinds, names, strict=True)]
    answers = pd.Series([0.0] if isinstance(model, LagrangianDualRegressor) else model.classes_, name="prediction")
    return models.ModelSignature(types.Schema(columns), models.infer_signature(None, answers.to_frame()).outputs)


def _as_signed(rows: pd.DataFrame, signature: Any) -> pd.DataFrame:
    """Rows with whole numbers and truth values as doubles, which MLflow does not convert by itself."""
    doubles = {one.name for one in signature.inputs if str(one.type) == "DataType.double"}
    return rows.astype({name: float for name in rows.columns if str(name) in doubles})


def _column_type(column: NumberColumn | CategoryColumn) -> Any:
    """The type in MLflow's terms; a category whose levels look like numbers may come as either."""
    if isinstance(column, NumberColumn):
        return "double"
    text = not any(level.replace(".", "", 1).lstrip("-").isdigit() for level in column.levels)
    return "string" if text else import_module("mlflow.types.schema").AnyType()
