"""A fitted classifier in ONNX Runtime answers as it does in Python."""

import copy
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from torch import nn

from bench.rivals import PlainClassifier
from justitia import Certificate, LagrangianDualClassifier, PFLDPlan
from justitia.persistence import onnx_graph
from justitia.persistence.onnx import to_onnx
from justitia.preprocessing.encoding import TabularEncoder

QUICK = PFLDPlan(warmup_steps=30, private_steps=2, public_steps=2, batch_size=64, warmup_learning_rate=0.02)


def people(n: int, seed: int) -> pd.DataFrame:
    """Numbers large and small, a constant, truth values, words that are missing, and more words than are kept."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "balance": 1e6 + 300 * rng.normal(size=n),
            "age": rng.integers(18, 90, n),
            "hours": np.where(rng.random(n) < 0.2, np.nan, rng.normal(40, 9, n)),
            "country": 1.0,
            "member": rng.random(n) < 0.5,
            "job": rng.choice(["clerk", "nurse", "été", "a b"], n),
            "town": [f"town {number}" for number in rng.integers(0, 60, n)],
        }
    )
    table["plan"] = pd.Series(rng.choice(["basic", "gold"], n), dtype=object).where(rng.random(n) < 0.8, None)
    return table


TRAIN = people(300, 0)
LABEL = np.where(TRAIN["balance"] + 40 * TRAIN["age"] > 1e6 + 2200, 1, 0)
GROUP = np.where(TRAIN["hours"].fillna(40) > 40, "f", "m")
#: New people, with values that training has not seen, and missing where training had none missing.
LATER = people(1000, 1).astype({"job": object, "age": float})
LATER.loc[3:9, "job"] = "acrobat"
LATER.loc[10:15, "job"] = None
LATER.loc[20:25, "town"] = None
LATER.loc[30:35, "plan"] = "platinum"
LATER.loc[40:45, "age"] = np.nan


def fit(y: Any = LABEL, X: Any = TRAIN, **changes: Any) -> LagrangianDualClassifier:
    usual = {"epsilon": 8.0, "groups": ["f", "m"], "engine": "pf-ld", "plan": QUICK}
    model = LagrangianDualClassifier(**usual | {"random_state": 0, "noise_seed": 0} | changes)
    return model.fit(X, y, sensitive_features=GROUP)


@pytest.fixture(scope="module")
def model() -> LagrangianDualClassifier:
    return fit()


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def feed(running: onnxruntime.InferenceSession, X: pd.DataFrame, missing: str = "") -> dict[str, Any]:
    """What a deployer writes: one column per input, in order."""
    columns = {}
    for place, one in enumerate(running.get_inputs()):
        column = X.iloc[:, [place]]
        if one.type == "tensor(string)":
            columns[one.name] = column.astype(object).where(column.notna(), missing).to_numpy()
        else:
            columns[one.name] = column.to_numpy(dtype=np.float64)
    return columns


def assert_same_answers(path: Path, model: Any, X: Any, fed: dict[str, Any]) -> None:
    label, probabilities = session(path).run(None, fed)
    assert probabilities.shape == (len(X), 2)
    np.testing.assert_allclose(probabilities, model.predict_proba(X), rtol=0, atol=1e-5)
    assert label.tolist() == model.predict(X).tolist()


@pytest.mark.parametrize("rows", [1, 1000])
def test_default_network_new_people_get_the_same_answers(model: Any, rows: int, tmp_path: Path) -> None:
    path = to_onnx(model, tmp_path / "model.onnx")
    later = LATER[:rows]
    assert 0 < model.predict(LATER).mean() < 1
    assert_same_answers(path, model, later, feed(session(path), later))


def test_inputs_are_the_columns_of_the_training_table(model: Any, tmp_path: Path) -> None:
    inputs = session(to_onnx(model, tmp_path / "model.onnx")).get_inputs()
    assert [one.name for one in inputs] == list(TRAIN)
    assert [one.type for one in inputs] == ["tensor(double)"] * 5 + ["tensor(string)"] * 3
    assert [one.shape for one in inputs] == [["N", 1]] * 8


@pytest.mark.parametrize("seed", range(4))
def test_encoder_in_the_graph_equals_the_encoder_bit_for_bit(seed: int, tmp_path: Path) -> None:
    encoder = TabularEncoder(max_levels=2 + 3 * seed).fit(people(40, seed))
    graph = onnx_graph.Graph()
    encoded = onnx_graph.add_encoder(graph, encoder, onnx_graph.add_columns(graph, encoder), "?")
    width = len(encoder.get_feature_names_out())
    graph.output("encoded", encoded, onnx.TensorProto.FLOAT, ("N", width))
    path = tmp_path / "encoder.onnx"
    onnx.save(graph.model({}), path)
    running = session(path)
    (found,) = running.run(None, feed(running, LATER, "?"))
    assert np.array_equal(found, encoder.transform(LATER))


def test_numbers_beyond_float32_are_taken_as_the_largest(model: Any, tmp_path: Path) -> None:
    running = session(to_onnx(model, tmp_path / "model.onnx"))
    infinite, largest = LATER[:1].copy(), LATER[:1].copy()
    infinite["hours"], largest["hours"] = math.inf, float(np.finfo(np.float32).max)
    found = [running.run(None, feed(running, table))[1] for table in (infinite, largest)]
    assert np.array_equal(*found)
    np.testing.assert_allclose(found[1], model.predict_proba(largest), atol=1e-5)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["no", "yes"], "tensor(string)"),
        ([-1, 1], "tensor(int64)"),
        ([False, True], "tensor(bool)"),
        ([0.5, 2.5], "tensor(double)"),
    ],
    ids=["text", "int", "bool", "float"],
)
def test_labels_keep_their_type(labels: list[Any], kind: str, tmp_path: Path) -> None:
    model = fit(np.array(labels)[LABEL])
    path = to_onnx(model, tmp_path / "model.onnx")
    assert session(path).get_outputs()[0].type == kind
    assert_same_answers(path, model, LATER, feed(session(path), LATER))


def test_labels_that_onnx_has_not_are_refused(model: Any, tmp_path: Path) -> None:
    odd = LagrangianDualClassifier.load(model.save(tmp_path / "saved"))
    odd.classes_ = np.array([b"no", b"yes"])
    with pytest.raises(TypeError, match="expected class labels that are text, numbers or booleans"):
        to_onnx(odd, tmp_path / "model.onnx")


def test_columns_with_the_names_of_outputs_and_parts_still_work(tmp_path: Path) -> None:
    names = ["label", "probabilities", "constant_0", "isnan_0", "module/x", "label_", "", "module"]
    renamed, later = TRAIN.set_axis(names, axis=1), LATER.set_axis(names, axis=1)
    model = fit(X=renamed)
    path = to_onnx(model, tmp_path / "model.onnx")
    running = session(path)
    assert [one.name for one in running.get_inputs()] == [*names[:6], "_", "module"]
    assert [one.name for one in running.get_outputs()] == ["label__", "probabilities_"]
    assert_same_answers(path, model, later, feed(running, later))


def test_matrix_without_preprocessing_is_one_input(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = fit(X=X, preprocess=None)
    path = to_onnx(model, tmp_path / "model.onnx")
    assert_same_answers(path, model, X, {"X": X.astype(np.float32)})


class Gated(nn.Module):
    """A network that is not of the default kind."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(inputs, 6), nn.LayerNorm(6)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.drop(nn.functional.gelu(self.norm(self.first(x))))
        return self.last(hidden * torch.sigmoid(hidden))[:, 0]


def test_module_of_ones_own_gets_the_same_answers_and_tells_no_paths(tmp_path: Path) -> None:
    model = fit(module=Gated)
    path = to_onnx(model, tmp_path / "model.onnx")
    for rows in (1, 1000):
        assert_same_answers(path, model, LATER[:rows], feed(session(path), LATER[:rows]))
    content = path.read_bytes()
    assert b"Gemm" in content
    assert not [told for told in (Path(torch.__file__).parent, Path(__file__)) if str(told).encode() in content]


class Program:
    """What torch's exporter returns, made by hand: the exporter itself takes seconds."""

    def __init__(self, body: str, **constants: torch.Tensor) -> None:
        self.model_proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> other {body}')
        for name, value in constants.items():
            self.model_proto.graph.initializer.append(onnx.numpy_helper.from_array(value.detach().numpy(), name))


def test_rows_of_several_dimensions_take_their_shape_from_an_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(module: nn.Module, rows: tuple[torch.Tensor], **rest: Any) -> Program:
        assert rows[0].shape[1:] == (2, 5)
        body = "(float[N, 2, 5] x) => (float[N, 1] y) { f = Flatten(x) y = Gemm<transB = 1>(f, weight, bias) }"
        return Program(body, **dict(module[1].named_parameters()))  # type: ignore[index]

    monkeypatch.setattr(torch.onnx, "export", export)
    X = np.random.default_rng(0).normal(size=(300, 2, 5))
    model = fit(X=X, preprocess=None, module=nn.Sequential(nn.Flatten(), nn.Linear(10, 1)))
    path = to_onnx(model, tmp_path / "model.onnx", example=X[:1])
    assert_same_answers(path, model, X, {"X": X.astype(np.float32)})


def test_module_that_cannot_be_exported_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no such operator.\nand a long story")

    monkeypatch.setattr(torch.onnx, "export", failing)
    with pytest.raises(ValueError, match=r"^expected a module that torch.onnx can export, got 'no such operator'; use"):
        to_onnx(fit(module=Gated), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_module_that_is_exported_wrongly_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Program(
        "(float[N, d] x) => (float[N] y) { a = Constant<value_ints = [1]>() y = ReduceSum<keepdims = 0>(x, a) }"
    )
    monkeypatch.setattr(torch.onnx, "export", lambda *args, **kwargs: wrong)
    with pytest.raises(ValueError, match="to agree with torch to 1e-05, got scores further apart"):
        to_onnx(fit(module=Gated), tmp_path / "model.onnx")


def test_metadata_hold_certificate_and_inputs(model: Any, tmp_path: Path) -> None:
    facts = session(to_onnx(model, tmp_path / "model.onnx", missing="?")).get_modelmeta().custom_metadata_map
    assert Certificate.from_dict(json.loads(facts["justitia.certificate"])).to_dict() == model.certificate_.to_dict()
    assert facts["justitia.statement"] == model.certificate_.statement
    assert facts["justitia.notion"] == "demographic_parity"
    inputs = json.loads(facts["justitia.preprocessing"])
    assert inputs[0] == {"input": "balance", "column": "balance", "kind": "number", "missing": "NaN"}
    assert inputs[-1] == {"input": "plan", "column": "plan", "kind": "text", "missing": "?"}


def test_metadata_of_a_model_without_privacy_hold_no_remark_about_groups(model: Any, tmp_path: Path) -> None:
    model = copy.copy(model)
    model.certificate_ = replace(model.certificate_, epsilon=math.inf, remarks=("group 'f' has 123454321 people",))
    assert b"123454321" not in to_onnx(model, tmp_path / "model.onnx").read_bytes()


def test_loaded_model_and_baseline_are_exported_too(model: Any, tmp_path: Path) -> None:
    loaded = LagrangianDualClassifier.load(model.save(tmp_path / "saved"))
    plain = PlainClassifier(steps=20, random_state=0).fit(TRAIN, LABEL)
    for one in (loaded, plain):
        path = to_onnx(one, tmp_path / "model.onnx")
        assert_same_answers(path, one, LATER, feed(session(path), LATER))


@pytest.mark.parametrize(
    ("what", "error", "sentence"),
    [
        (
            LogisticRegression(),
            TypeError,
            "expected a classifier or regressor of justitia, got 'Logist",
        ),
        (LagrangianDualClassifier(), NotFittedError, "not fitted yet"),
    ],
)
def test_export_of_something_else_is_refused(what: Any, error: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=sentence):
        to_onnx(what, tmp_path / "model.onnx")


def test_missing_marker_that_is_a_level_or_no_text_is_refused(model: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="but 'gold' is one of 'plan'; pass another one"):
        to_onnx(model, tmp_path / "model.onnx", missing="gold")
    with pytest.raises(TypeError, match="expected missing to be text, got 'NoneType'"):
        to_onnx(model, tmp_path / "model.onnx", missing=None)  # type: ignore[arg-type]


def test_path_that_cannot_be_written_is_one_sentence_and_leaves_nothing(model: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="choose a file in a folder that exists"):
        to_onnx(model, tmp_path / "nowhere" / "model.onnx")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="choose a file in a folder that exists"):
        to_onnx(model, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_closed_file_that_is_replaced_stays_closed(model: Any, tmp_path: Path) -> None:
    path = to_onnx(model, tmp_path / "model.onnx")
    path.chmod(0o600)
    to_onnx(model, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_extra_not_installed_says_what_to_install(
    package: str, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "justitia.persistence.onnx_graph")  # as in a process that has exported nothing yet
    monkeypatch.delattr("justitia.persistence.onnx_graph")
    with pytest.raises(ImportError, match=r"pip install 'justitia\[onnx\]'"):
        to_onnx(model, tmp_path / "model.onnx")
