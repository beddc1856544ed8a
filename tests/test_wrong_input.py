"""Wrong input, tried as a new user would: one sentence, nothing spent, nothing written, nothing changed."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from torch import nn

from justitia import BudgetExceeded, LagrangianDualClassifier, PFLDAsPublishedPlan, PFLDPlan, PrivacyLedger
from justitia.exceptions import LargeDeltaWarning

pytestmark = pytest.mark.usefixtures("quick_fits")


def assert_one_sentence(error: BaseException) -> None:
    text = str(error)
    assert "\n" not in text
    assert text.endswith((".", "?", "!")), text
    assert "Traceback" not in text
    assert " at 0x" not in text
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


def refuse(model: LagrangianDualClassifier, people: Any, folder: Path, kind: type[Exception], **changes: Any) -> str:
    """Fit twice, with a ledger and with a checkpoint; return the sentence of the error."""
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    before = dict(vars(model))
    given = {"X": people.X, "y": people.y, "sensitive_features": people.a} | changes
    X, y = given.pop("X"), given.pop("y")
    told = []
    for place in ({"ledger": ledger}, {"checkpoint": folder / "run"}):
        with pytest.raises(kind) as caught:
            model.fit(X, y, **place | given)
        assert_one_sentence(caught.value)
        told.append(str(caught.value))
    assert ledger.releases == ()
    assert list(folder.iterdir()) == []
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)
    return told[0]


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"epsilon": -1.0}, ValueError, "expected epsilon to be a number of at least 0, got -1.0"),
        ({"epsilon": math.nan}, ValueError, "expected epsilon to be a number, got nan"),
        ({"epsilon": 0}, ValueError, "epsilon=0 allows no question"),
        ({"epsilon": "1"}, TypeError, "expected epsilon to be a number, got the string '1'"),
        ({"epsilon": None}, TypeError, "expected epsilon to be a number, got None"),
        ({"epsilon": True}, TypeError, "expected epsilon to be a number, got True"),
        ({"delta": -1e-5}, ValueError, "expected delta to be at least 0 and below 1, got -1e-05"),
        ({"delta": 1.0}, ValueError, "expected delta to be at least 0 and below 1, got 1.0"),
        ({"delta": math.inf}, ValueError, "expected delta to be at least 0 and below 1, got inf"),
        ({"delta": math.nan}, ValueError, "expected delta to be a number, got nan"),
        ({"delta": 0}, ValueError, "delta=0 rules out Gaussian noise"),
        ({"delta": "1e-5"}, TypeError, "expected delta to be a number"),
        ({"tolerance": -0.1}, ValueError, "expected tolerance to be a finite number of at least 0"),
        ({"tolerance": math.inf}, ValueError, "expected tolerance to be a finite number"),
        ({"notion": "demografic_parity"}, ValueError, "did you mean 'demographic_parity'?"),
        ({"notion": 3}, TypeError, "notion"),
        ({"engine": "pf_ld"}, ValueError, "did you mean 'pf-ld'?"),
        ({"engine": 3}, TypeError, "expected engine to be one of"),
        ({"engine": None}, TypeError, "expected a PostProcessingPlan for engine 'post-processing', got PFLDPlan"),
        ({"preprocess": "Auto"}, ValueError, "did you mean 'auto'?"),
        ({"preprocess": False}, TypeError, "expected preprocess to be one of 'auto'"),
        ({"noise_seed": -1}, ValueError, "expected noise_seed to be at least 0"),
        ({"noise_seed": 1.5}, TypeError, "expected noise_seed to be an int"),
        ({"progress": "yes"}, TypeError, "expected progress to be True, False or None"),
        ({"random_state": "seven"}, ValueError, "expected random_state to be a non-negative int"),
        ({"random_state": -1}, ValueError, "expected random_state to be a non-negative int"),
        ({"plan": PFLDAsPublishedPlan()}, TypeError, "expected a PFLDPlan for engine 'pf-ld', got PFLDAsPublishedPlan"),
        ({"plan": {"warmup_steps": 3}}, TypeError, "expected a PFLDPlan for engine 'pf-ld', got dict"),
        (
            {"plan": PFLDPlan(optimizer_options={"momentun": 1})},
            ValueError,
            "unexpected keyword argument 'momentun'",
        ),
        ({"groups": ["f"]}, ValueError, "expected at least 2 labels in groups, got 1"),
        ({"groups": ["f", "f"]}, ValueError, "expected each label in groups once"),
        ({"groups": [["f"], {"m": 1}]}, ValueError, "expected labels that can be hashed in groups"),
        ({"groups": "fm"}, TypeError, "expected groups to be a list of labels"),
        ({"groups": [("f", 1), ("m", 2)], "missing_marker": "f"}, ValueError, "missing marker 'f'"),
        ({"module": nn.BatchNorm1d(3)}, ValueError, "BatchNorm1d"),
        ({"module": nn.Linear(5, 1)}, ValueError, "expected the module to accept rows of shape (3,)"),
        ({"module": nn.Linear(3, 2)}, ValueError, "end the module with one output per row."),
        ({"module": nn.Identity()}, ValueError, "end the module with one output per row."),
        ({"module": 64}, TypeError, "expected module to be None, a sequence of hidden widths"),
        ({"module": "mlp"}, TypeError, "expected module to be None, a sequence of hidden widths"),
        ({"module": [8, 0]}, TypeError, "expected module to be None, a sequence of hidden widths"),
        ({"module": lambda inputs: inputs}, TypeError, "returns a torch.nn.Module"),
    ],
    ids=lambda value: re.sub(r" at 0x\w+", "", str(value))[:40] if isinstance(value, dict) else "",
)
def test_fit_wrong_parameter_is_refused(
    people: Any, make: Any, tmp_path: Path, changes: dict[str, Any], kind: type[Exception], text: str
) -> None:
    assert text in refuse(make(**changes), people, tmp_path, kind)


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"private_steps": 0}, ValueError, "expected private_steps to be at least 1"),
        ({"batch_size": 2.5}, TypeError, "expected batch_size to be an int"),
        ({"optimizer": "adam"}, ValueError, "did you mean 'Adam'?"),
        ({"share_sizes": 0.5}, ValueError, "add up to 1"),
        ({"clip": -1.0}, ValueError, "expected clip to be a finite number above 0"),
        ({"learning_rate": math.nan}, ValueError, "expected learning_rate to be a number"),
        ({"averaging": 1.5}, ValueError, "expected averaging to be above 0 and at most 1"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_plan_wrong_value_is_refused(changes: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        PFLDPlan(**changes)
    assert text in str(caught.value)
    assert_one_sentence(caught.value)


def _with(column: Any) -> Any:
    return lambda X: np.column_stack([X[:, :2].astype(object), column(X)])


@pytest.mark.parametrize(
    ("table", "preprocess", "kind", "text"),
    [
        (lambda X: np.where(X > 2, np.nan, X), None, ValueError, "X contains NaN or infinity"),
        (lambda X: np.where(X > 2, np.inf, X), None, ValueError, "X contains NaN or infinity"),
        (lambda X: np.where(X > 2, np.inf, X), "auto", ValueError, "infinity or a value too large for float32"),
        (lambda X: np.where(X > 2, "tall", "short"), None, ValueError, "expected numbers in X because preprocess=None"),
        (lambda X: X[:, 0], None, ValueError, "Reshape your data"),
        (lambda X: X[:, 0], "auto", ValueError, "Reshape your data"),
        (lambda X: X[:, 0].tolist(), "auto", ValueError, "Reshape your data"),
        (lambda X: X[:, :, None], "auto", ValueError, "expected X to have 2 dimensions"),
        (lambda X: X[:0], None, ValueError, "0 sample(s)"),
        (lambda X: X[:0], "auto", ValueError, "0 sample(s)"),
        (lambda X: X[:, :0], None, ValueError, "0 feature(s)"),
        (lambda X: X[:, :0], "auto", ValueError, "0 feature(s)"),
        (lambda X: pd.DataFrame(), "auto", ValueError, "0 feature(s)"),
        (lambda X: pl.DataFrame(), "auto", ValueError, "0 feature(s)"),
        (sparse.csr_array, "auto", TypeError, "sparse matrix"),
        (sparse.csr_array, None, TypeError, "dense"),
        (lambda X: X + 1j, "auto", ValueError, "Complex data not supported"),
        (_with(lambda X: pd.to_datetime(["2020-01-01"] * len(X))), "auto", TypeError, "dates or times"),
        (lambda X: X[:50], "auto", ValueError, "X has 50, y has 120"),
        (lambda X: None, "auto", ValueError, "expected X to have 2 dimensions"),
        (
            lambda X: "table.csv",
            "auto",
            ValueError,
            "expected engine 'post-processing' or 'moments' where X is in files",
        ),
    ],
)
def test_fit_wrong_features_are_refused(
    people: Any, make: Any, tmp_path: Path, table: Any, preprocess: Any, kind: type[Exception], text: str
) -> None:
    assert text in refuse(make(preprocess=preprocess), people, tmp_path, kind, X=table(people.X))


@pytest.mark.parametrize(
    ("labels", "kind", "text"),
    [
        (lambda y: np.zeros(120), ValueError, "got only one class, 0.0"),
        (lambda y: np.array(["yes"] * 120), ValueError, "got only one class, 'yes'"),
        (lambda y: np.arange(120) % 3, ValueError, "Only binary classification is supported."),
        (lambda y: np.linspace(0, 1, 120), ValueError, "Unknown label type: continuous"),
        (lambda y: np.where(y, 1.0, np.nan), ValueError, "Input y contains NaN"),
        (lambda y: np.where(y, "yes", None), ValueError, "Input y contains NaN"),
        (lambda y: np.where(y, 1.0, np.inf), ValueError, "Input y contains infinity"),
        (lambda y: pd.Series(np.where(y, "yes", None), dtype="str"), ValueError, "Input y contains NaN"),
        (lambda y: np.where(y, np.array(1, dtype=object), "no"), TypeError, "expected class labels of one type in y"),
        (lambda y: y[:100], ValueError, "X has 120, y has 100"),
        (lambda y: np.column_stack([y, y]), ValueError, "y should be a 1d array"),
        (lambda y: [], ValueError, "0 sample(s)"),
        (lambda y: None, ValueError, "requires y to be passed"),
    ],
)
def test_fit_wrong_labels_are_refused(
    people: Any, make: Any, tmp_path: Path, labels: Any, kind: type[Exception], text: str
) -> None:
    assert text in refuse(make(), people, tmp_path, kind, y=labels(people.y))


@pytest.mark.parametrize(
    ("weight", "kind", "text"),
    [
        (np.r_[-1.0, np.ones(119)], ValueError, "finite and at least 0"),
        (np.r_[np.nan, np.ones(119)], ValueError, "finite and at least 0"),
        (np.ones(7), ValueError, "expected one sample_weight per row, shape (120,), got shape (7,)"),
        (np.ones((120, 2)), ValueError, "expected one sample_weight per row"),
        (np.zeros(120), ValueError, "expected some sample_weight above zero"),
        (["heavy"] * 120, TypeError, "expected sample_weight to hold one number per row"),
    ],
)
def test_fit_wrong_weights_are_refused(
    people: Any, make: Any, tmp_path: Path, weight: Any, kind: type[Exception], text: str
) -> None:
    assert text in refuse(make(), people, tmp_path, kind, sample_weight=weight)


def test_fit_weights_that_leave_one_class_are_refused(people: Any, make: Any, tmp_path: Path) -> None:
    told = refuse(make(), people, tmp_path, ValueError, sample_weight=people.y.astype(float))
    assert "in one class only" in told


@pytest.mark.parametrize(
    ("attribute", "kind", "text"),
    [
        (None, TypeError, "expected sensitive_features to be a Series, DataFrame, array, list or dict"),
        ("sex", TypeError, "expected sensitive_features to be a Series"),
        (["f", "m"], ValueError, "X has 120, sensitive_features has 2"),
        (np.empty((120, 0)), ValueError, "at least one column"),
        ({"sex": ["f"] * 120, "race": ["b"] * 3}, ValueError, "expected columns of the same length"),
        (np.full((120, 2), "f"), ValueError, "expected groups with one label for each of the 2 columns"),
    ],
)
def test_fit_wrong_container_of_the_attribute_is_refused(
    people: Any, make: Any, tmp_path: Path, attribute: Any, kind: type[Exception], text: str
) -> None:
    assert text in refuse(make(), people, tmp_path, kind, sensitive_features=attribute)


def _columns(people: Any) -> dict[str, Any]:
    return {"age": people.X[:, 0], "sex": people.X[:, 1], "pay": people.X[:, 2]}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
@pytest.mark.parametrize("preprocess", ["auto", None])
def test_fit_sensitive_name_among_features_is_refused(
    people: Any, make: Any, tmp_path: Path, frame: Any, preprocess: Any
) -> None:
    X = frame(_columns(people))
    for attribute in (pd.Series(people.a, name="sex"), pl.Series("sex", people.a), {"sex": people.a}):
        told = refuse(make(preprocess=preprocess), people, tmp_path, ValueError, X=X, sensitive_features=attribute)
        assert told.startswith("the column 'sex' is both a feature and a sensitive attribute; drop it from X")


def test_fit_one_of_several_sensitive_names_among_features_is_refused(people: Any, make: Any, tmp_path: Path) -> None:
    attribute = pd.DataFrame({"race": people.a, "sex": people.a})
    model = make(groups={"race": ["f", "m"], "sex": ["f", "m"]})
    X = pd.DataFrame(_columns(people))
    assert "'sex' is both" in refuse(model, people, tmp_path, ValueError, X=X, sensitive_features=attribute)


def test_fit_column_equal_to_the_attribute_under_another_name_is_accepted(people: Any, make: Any) -> None:
    """Comparing values would itself be a question about the attribute."""
    X = pd.DataFrame(_columns(people)).drop(columns="sex").assign(gender=people.a)
    assert make().fit(X, people.y, sensitive_features=pd.Series(people.a, name="sex")).n_features_in_ == 3


def test_fit_ledger_too_small_is_refused_before_anything_is_asked(people: Any, make: Any) -> None:
    ledger, model = PrivacyLedger(epsilon=1.0, delta=1e-5), make(epsilon=2.0)
    before = dict(vars(model))
    with pytest.raises(BudgetExceeded, match=r"would bring epsilon to 2; the budget is 1 \(spent 0\)") as caught:
        model.fit(people.X, people.y, sensitive_features=people.a, ledger=ledger)
    assert_one_sentence(caught.value)
    assert ledger.releases == ()
    assert vars(model) == before


@pytest.mark.parametrize(
    ("place", "kind", "text"),
    [
        ({"ledger": 1.0}, TypeError, "expected ledger to be a PrivacyLedger, got 'float'"),
        (
            {"ledger": PrivacyLedger(epsilon=1, delta=0), "checkpoint": "run"},
            ValueError,
            "pass either checkpoint or ledger, not both",
        ),
    ],
)
def test_fit_wrong_ledger_is_refused(people: Any, make: Any, place: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        make().fit(people.X, people.y, sensitive_features=people.a, **place)
    assert_one_sentence(caught.value)


def test_fit_delta_of_one_over_n_warns_before_anything_is_asked(people: Any, make: Any) -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    with pytest.raises(LargeDeltaWarning, match=r"delta=0\.01 is not below 1/n = 0\.0083: such a guarantee allows"):
        make(delta=0.01).fit(people.X, people.y, sensitive_features=people.a, ledger=ledger)
    assert ledger.releases == ()


def test_fit_infinite_epsilon_says_nothing_about_delta(people: Any, make: Any) -> None:
    model = make(delta=0.5, epsilon=math.inf).fit(people.X, people.y, sensitive_features=people.a)
    assert model.certificate_.statement.startswith("No privacy guarantee")


@pytest.mark.parametrize("name", ["predict", "predict_proba", "decision_function"])
def test_predict_before_fit_is_refused(people: Any, make: Any, name: str) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet") as caught:
        getattr(make(), name)(people.X)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("preprocess", ["auto", None])
def test_predict_other_table_is_refused(people: Any, make: Any, preprocess: Any) -> None:
    X = pd.DataFrame(_columns(people))
    model = make(preprocess=preprocess).fit(X, people.y, sensitive_features=people.a)
    with pytest.raises(ValueError, match="Feature names unseen at fit time:\n- wage"):
        model.predict(X.rename(columns={"pay": "wage"}))
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(X[["pay", "sex", "age"]])
    model.fit(people.X, people.y, sensitive_features=people.a)
    with pytest.raises(ValueError, match="X has 2 features, but LagrangianDualClassifier is expecting 3") as caught:
        model.predict(people.X[:, :2])
    assert_one_sentence(caught.value)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        model.predict(people.X[:0])


def test_predict_text_in_a_column_of_numbers_is_refused(people: Any, make: Any) -> None:
    model = make().fit(people.X, people.y, sensitive_features=people.a)
    with pytest.raises(TypeError, match="held numbers in training but holds text now") as caught:
        model.predict(people.X.astype(str))
    assert_one_sentence(caught.value)
