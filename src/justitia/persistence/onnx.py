"""ONNX export of a fitted model, for runtimes without Python, torch or LightGBM."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from justitia._files import staged_file
from justitia.notions import notion_name
from justitia.preprocessing.encoding import CategoryColumn, TabularEncoder
from justitia.privacy.ledger import Certificate
from justitia.tabular import TabularEstimator

_MISSING = (
    "expected onnx and onnxscript to be installed for this export, found none; run: pip install 'justitia[onnx]'."
)
#: Rows that a module of one's own is traced with.
TRACED_ROWS = 3


def to_onnx(model: TabularEstimator, path: Path | str, *, missing: str = "", example: Any = None) -> Path:
    """Write a fitted classifier or regressor to one ONNX file that answers as ``predict`` and ``predict_proba`` do.

    With ``preprocess="auto"`` the encoder is part of the graph, which has one input of shape (N, 1) per column of the
    training table, under the column's name: ``double`` for numbers and booleans, with NaN for a missing one, and
    ``string`` for text and categories, with ``missing`` for a missing one. With ``preprocess=None`` there is one
    ``float`` input "X" (``double`` where a base of your own reads it). The outputs of a classifier are "label" (N,) and
    "probabilities" (N, K) in the order of ``classes_``, that of a regressor is "prediction" (N,); a name that a column
    has already gets an underscore behind it. Session objects list inputs and outputs in this order.

    Networks of ours and rules of engine "post-processing" are computed in double precision, as in ``predict_proba``; a
    base may be the default one, one of LightGBM, logistic, linear or ridge regression on columns of numbers, or columns
    of scores. A module of your own goes through ``torch.onnx.export`` and is compared with torch before anything is
    written.

    Parameters
    ----------
    model : LagrangianDualClassifier, LagrangianDualRegressor, or another classifier of ours
    path : path
        The file; its folder has to exist. It is written completely or not at all.
    missing : str
        Text that means "not given" in columns of text, since ONNX has text but no None.
    example : array-like, optional
        A few public rows, needed where rows of X have more than one dimension, to know their shape.

    Returns
    -------
    Path

    Raises
    ------
    ImportError
        If the extra is not installed.
    NotFittedError, TypeError, ValueError
        If ``model`` is not a fitted model of ours, cannot be exported, or ``missing`` is one of its levels.
    OSError
        If the file cannot be written.

    Notes
    -----
    A graph cannot refuse: where ``predict`` raises an error for an infinite number, the graph takes the largest one
    that it can represent.

    Guarantee
    ---------
    * The file holds the released weights or trees, what the encoder learned from public features, and the certificate:
      it is post-processing of what ``fit`` released. The attribute is not an input.
    """
    if not isinstance(model, TabularEstimator):
        raise TypeError(
            f"expected a classifier or regressor of justitia, got {type(model).__name__!r}; "
            "pass, for example, a LagrangianDualClassifier (the last step of a pipeline)."
        )
    check_is_fitted(model, ["module_", "rule_"], all_or_any=any)
    try:
        from justitia.persistence import onnx_graph  # noqa: PLC0415 - imports the optional dependency
    except ImportError:
        raise ImportError(_MISSING) from None
    if not isinstance(missing, str):
        raise TypeError(f"expected missing to be text, got {type(missing).__name__!r}; pass, for example, missing=''.")
    if getattr(getattr(model, "rule_", None), "coin", None) is not None:
        raise ValueError(
            f"expected a model with randomize=0, got {model.randomize:g}: its coin is a hash that ONNX cannot compute; "
            "fit without it, or use predict."
        )
    graph = onnx_graph.Graph()
    encoder: TabularEncoder | None = getattr(model, "encoder_", None)
    if encoder is not None:
        _check_missing(encoder, missing)
    if hasattr(model, "module_"):
        _add_network(onnx_graph, graph, model, encoder, missing, example)
    else:
        _add_rule(onnx_graph, graph, model, encoder, missing)
    names = [one.name for one in graph.inputs]
    return _write(Path(path), graph.model(_facts(model, encoder, names, missing)).SerializeToString())


def _add_network(
    parts: ModuleType, graph: Any, model: Any, encoder: TabularEncoder | None, missing: str, example: Any
) -> None:
    try:
        import onnxscript  # noqa: F401, PLC0415 - what torch's exporter needs
    except ImportError:
        raise ImportError(_MISSING) from None
    from justitia.networks.onnx import add_module  # noqa: PLC0415 - needs torch, which a network has

    rows = _example_rows(model, example)
    if encoder is None:
        encoded = graph.input("X", parts.TensorProto.FLOAT, (parts.ROWS, *rows.shape[1:]))
    else:
        encoded = parts.add_encoder(graph, encoder, parts.add_columns(graph, encoder), missing)
    scores = add_module(graph, model.module_, encoded, rows)
    parts.add_outputs(graph, scores, graph.add("Sigmoid", scores), model.classes_)


def _add_rule(parts: ModuleType, graph: Any, model: Any, encoder: TabularEncoder | None, missing: str) -> None:
    from justitia.persistence.onnx_base import TableInputs, reads_table  # noqa: PLC0415 - import the optional dependency
    from justitia.persistence.onnx_rules import add_rule  # noqa: PLC0415

    if encoder is None:
        # A base model of the user's own reads the table as it is passed; the default one reads preprocessed numbers.
        own = reads_table(model.rule_.base)
        kind = parts.TensorProto.DOUBLE if own else parts.TensorProto.FLOAT
        inputs = [graph.input("X", kind, (parts.ROWS, int(model.n_features_in_)))]
        numbers = graph.add("Cast", inputs[0], to=parts.TensorProto.FLOAT)
        names, texts = [str(name) for name in getattr(model, "feature_names_in_", ())], []
    else:
        inputs = parts.add_columns(graph, encoder)
        numbers = parts.add_encoder(graph, encoder, inputs, missing)
        names = [how.name for how in encoder.columns_]
        texts = [isinstance(how, CategoryColumn) for how in encoder.columns_]
    add_rule(graph, model, TableInputs(inputs, names, texts), numbers)


def _example_rows(model: TabularEstimator, example: Any) -> NDArray[np.float32]:
    """A few public rows of the right shape; their values do not matter."""
    if example is not None:
        rows = model._features(example, reset=False)
        return rows[np.arange(TRACED_ROWS) % len(rows)]
    encoder = getattr(model, "encoder_", None)
    width = int(model.n_features_in_) if encoder is None else len(encoder.get_feature_names_out())
    return np.linspace(-1, 1, TRACED_ROWS * width, dtype=np.float32).reshape(TRACED_ROWS, width)


def _check_missing(encoder: TabularEncoder, missing: str) -> None:
    for how in encoder.columns_:
        if isinstance(how, CategoryColumn) and missing in how.levels:
            raise ValueError(
                f"expected missing to be text that is no level of a column, but {missing!r} is one of {how.name!r}; "
                "pass another one, for example missing='(missing)'."
            )


def _facts(model: TabularEstimator, encoder: TabularEncoder | None, inputs: list[str], missing: str) -> dict[str, str]:
    """Metadata of the file: public and released facts."""
    kept = {
        "justitia.version": metadata.version("justitia"),
        "justitia.model": type(model).__name__,
        **_target(model),
        "justitia.preprocessing": json.dumps(_inputs(encoder, inputs, missing)),
        "justitia.sensitive_attribute": "not an input",
    }
    notion = getattr(model, "notion", None)
    if notion is not None:
        kept["justitia.notion"] = notion_name(notion)
    certificate = getattr(model, "certificate_", None)
    if isinstance(certificate, Certificate):
        shown = certificate.without_exact_remarks()
        kept |= {"justitia.certificate": shown.to_json(), "justitia.statement": shown.statement}
    return kept


def _target(model: Any) -> dict[str, str]:
    """The classes of a classifier, or the public range of a regressor."""
    if hasattr(model, "classes_"):
        return {"justitia.classes": json.dumps(model.classes_.tolist())}
    return {"justitia.bounds": json.dumps(list(model.bounds_))}


def _inputs(encoder: TabularEncoder | None, inputs: list[str], missing: str) -> list[dict[str, str | None]]:
    if encoder is None:
        return [{"input": inputs[0], "column": None, "kind": "matrix of numbers", "missing": None}]
    texts = [isinstance(how, CategoryColumn) for how in encoder.columns_]
    return [
        {
            "input": name,
            "column": how.name,
            "kind": "text" if text else "number",
            "missing": missing if text else "NaN",
        }
        for name, how, text in zip(inputs, encoder.columns_, texts, strict=True)
    ]


def _write(path: Path, content: bytes) -> Path:
    """Write the file completely or not at all; a replaced file keeps its permissions."""
    try:
        with staged_file(path) as stage:
            stage.write_bytes(content)
    except OSError as error:
        raise type(error)(
            f"expected to write {str(path)!r}, but: {error.strerror or error}; choose a file in a folder that exists "
            "and that you may write to."
        ) from None
    return path
