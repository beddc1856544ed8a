"""The edges of the promise: error reporters that keep local variables."""

import math
import traceback
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from edge_cases import GROUPS, QUIET, SECRET, N, X, Y, classifier

from bench.rivals import (
    AgarwalClassifier,
    FairGBMClassifier,
    FermiClassifier,
    HistogramClassifier,
    LinearPostClassifier,
    LocalClassifier,
    MozannarClassifier,
    ZafarClassifier,
)
from justitia import measure, private_search, tradeoff
from justitia.audit import audit
from justitia.metrics.exact import rates_by_group, violation
from justitia.metrics.scorer import private_scorer
from justitia.privacy.ledger import BudgetExceeded, PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, RandomizedResponse, SeededNoise
from justitia.privacy.rows import ArrayRows
from justitia.privacy.vault import SensitiveVault

pytestmark = QUIET


def kept_by_a_reporter(error: BaseException) -> str:
    """The local variables of every frame of the package, as error reporters print them."""
    came_from, pending = [], [error]
    while pending:
        one = pending.pop()
        if one not in came_from:
            came_from.append(one)
            pending += [other for other in (one.__cause__, one.__context__) if other is not None]
    frames = [frame for one in came_from for frame, _ in traceback.walk_tb(one.__traceback__)]
    ours = [frame for frame in frames if str(frame.f_globals.get("__name__", "")).startswith("justitia")]
    assert ours
    return "\n".join(f"{name} = {value!r}" for frame in ours for name, value in frame.f_locals.items())


def refused_runs() -> dict[str, Any]:
    def poor() -> PrivacyLedger:
        return PrivacyLedger(epsilon=0.1, delta=1e-3)

    anonymous = ["a", "b"]
    model = classifier(groups=anonymous)
    given: dict[str, Any] = {"sensitive_features": SECRET}
    return {
        "fit": lambda: model.fit(X, Y, ledger=poor(), **given),
        "tradeoff": lambda: tradeoff(model, X, Y, ledger=poor(), **given),
        "search": lambda: private_search(model, [{"module": (3,)}], X, Y, ledger=poor(), **given),
        "measure": lambda: measure(Y, Y, groups=anonymous, ledger=poor(), **given),
        "mozannar": lambda: MozannarClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, ledger=poor(), **given),
        "local": lambda: LocalClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, ledger=poor(), **given),
        "fermi": lambda: FermiClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, ledger=poor(), **given),
        "histogram": lambda: HistogramClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, ledger=poor(), **given),
    }


@pytest.mark.parametrize("way", refused_runs())
def test_local_variables_of_a_refused_run_hold_no_readable_attribute(way: str) -> None:
    with pytest.raises(BudgetExceeded) as refused:
        refused_runs()[way]()
    kept = kept_by_a_reporter(refused.value)
    assert not any(label in kept for label in GROUPS)


class Interrupted:
    """Public rows of which the second half is never given."""

    width = 1

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __len__(self) -> int:
        return N

    def dense(self) -> Any:
        yield np.arange(N // 2), np.ones((N // 2, 1))
        raise self.error

    def chunks(self) -> Any:
        for part in ArrayRows(np.ones((N, 1)), chunk_rows=N // 2).chunks():
            yield part
            raise self.error


class Broken(SeededNoise):
    """A source whose generator fails."""

    def words(self, size: int, *, release: int, stream: str = "noise") -> Any:
        raise KeyboardInterrupt


ERRORS = (RuntimeError("a module failed"), KeyboardInterrupt())


def interrupted_questions() -> dict[str, Any]:
    how: dict[str, Any] = {"bound": 1.0, "noise": Gaussian(1.0), "purpose": "test"}
    weights = np.array([[1.0, 2.0, 0.0]] * N)

    def vault(source: SeededNoise | None = None) -> SensitiveVault:
        ledger = PrivacyLedger(epsilon=math.inf, delta=1e-3)
        return SensitiveVault(SECRET, groups=GROUPS, ledger=ledger, noise_source=source)

    response = RandomizedResponse(1.0)
    found: dict[str, Any] = {}
    for error in ERRORS:
        rows, name = Interrupted(error), type(error).__name__
        found[f"group_sums, {name}"] = lambda rows=rows: vault().group_sums(rows, **how)
        found[f"weighted_sum, {name}"] = lambda rows=rows: vault().weighted_sum(rows, weights, **how)
    return found | {
        "group_sums, noise": lambda: vault(Broken(1)).group_sums(np.ones(N), **how),
        "weighted_sum, noise": lambda: vault(Broken(1)).weighted_sum(np.ones(N), weights, **how),
        "randomized_labels, noise": lambda: vault(Broken(1)).randomized_labels(response, purpose="test"),
    }


@pytest.mark.parametrize("way", interrupted_questions())
def test_error_in_the_middle_of_a_question_holds_no_variable_of_it(way: str) -> None:
    """Exact sums, and everybody's weight or code, are local variables until there is noise on them."""
    with pytest.raises((RuntimeError, KeyboardInterrupt)) as stopped:
        interrupted_questions()[way]()
    kept = kept_by_a_reporter(stopped.value)
    assert not any(name in kept for name in ("exact", "selected", "codes", "tensor"))


def misshapen() -> dict[str, Any]:
    return {
        "three dimensions": np.array(SECRET).reshape(N, 1, 1),
        "columns of two lengths": {"one": SECRET, "two": SECRET[:-1]},
        "no container": iter(SECRET),
        "too few rows": SECRET[:-1],
    }


def misused(attribute: Any, X: Any = X, Y: Any = Y, name: str = "sensitive_features") -> dict[str, Any]:
    given: dict[str, Any] = {name: attribute}
    anonymous = ["a", "b"]
    model = classifier(groups=anonymous)
    scorer = private_scorer(groups=anonymous, ledger=PrivacyLedger(epsilon=1.0, delta=1e-3), epsilon=0.5)
    return {
        "fit": lambda: model.fit(X, Y, **given),
        "tradeoff": lambda: tradeoff(model, X, Y, **given),
        "search": lambda: private_search(model, [{"module": (3,)}], X, Y, **given),
        "measure": lambda: measure(Y, Y, groups=anonymous, **given),
        "scorer": lambda: scorer._score_func(Y, Y, **given),
        "mozannar": lambda: MozannarClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, **given),
        "local": lambda: LocalClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, **given),
        "fairgbm": lambda: FairGBMClassifier(groups=anonymous).fit(X, Y, **given),
        "linear post": lambda: LinearPostClassifier(groups=anonymous).fit(X, Y, **given),
        "fermi": lambda: FermiClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, **given),
        "histogram": lambda: HistogramClassifier(epsilon=1.0, groups=anonymous).fit(X, Y, **given),
        "agarwal": lambda: AgarwalClassifier(groups=anonymous).fit(X, Y, **given),
        "zafar": lambda: ZafarClassifier(groups=anonymous).fit(X, Y, **given),
        "audit": lambda: audit(model, X, Y, runs=8, **given),
        "rates_by_group": lambda: rates_by_group(Y, Y, **given),
        "violation": lambda: violation(Y, Y, **given),
    }


@pytest.mark.parametrize("shape", misshapen())
@pytest.mark.parametrize("way", misused(None))
def test_error_about_the_container_holds_none_of_its_entries(way: str, shape: str) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        misused(misshapen()[shape])[way]()
    kept = kept_by_a_reporter(refused.value)
    assert not any(label in kept for label in GROUPS)


@pytest.mark.parametrize("form", ["series", "frame", "columns"])
@pytest.mark.parametrize("way", misused(None))
def test_error_about_the_index_holds_none_of_the_entries(way: str, form: str) -> None:
    series = pd.Series(SECRET, index=range(7, N + 7), name="a")
    attribute = {"series": series, "frame": series.to_frame(), "columns": {"a": series}}[form]
    with pytest.raises(ValueError, match="to have the index of the rows") as refused:
        misused(attribute, pd.DataFrame(X), pd.Series(Y))[way]()
    kept = kept_by_a_reporter(refused.value)
    assert not any(label in kept for label in GROUPS)


@pytest.mark.parametrize("way", misused(None))
def test_error_about_a_name_with_a_slip_holds_none_of_the_entries(way: str) -> None:
    with pytest.raises(
        TypeError, match=r"unexpected keyword argument 'sensitive_feature'; did you mean 'sensi"
    ) as refused:
        misused(SECRET, name="sensitive_feature")[way]()
    kept = kept_by_a_reporter(refused.value)
    assert not any(label in kept for label in GROUPS)


def by_position() -> dict[str, Any]:
    model = classifier(groups=["a", "b"])
    return {
        "fit": lambda: model.fit(X, Y, SECRET),
        "tradeoff": lambda: tradeoff(model, X, Y, SECRET),
        "search": lambda: private_search(model, [{}], X, Y, SECRET),
        "measure": lambda: measure(Y, Y, SECRET),
        "zafar": lambda: ZafarClassifier(groups=["a", "b"]).fit(X, Y, SECRET),
        "rates_by_group": lambda: rates_by_group(Y, Y, SECRET),
    }


@pytest.mark.parametrize("way", by_position())
def test_error_about_an_attribute_without_a_name_holds_none_of_its_entries(way: str) -> None:
    with pytest.raises(TypeError, match=r"and all else by name, got 1 more") as refused:
        by_position()[way]()
    kept = kept_by_a_reporter(refused.value)
    assert not any(label in kept for label in GROUPS)


def wrong_public_input() -> dict[str, Any]:
    """Whatever else can be wrong about a call that was given the attribute as it should be."""
    given: dict[str, Any] = {"sensitive_features": SECRET}
    anonymous = ["a", "b"]

    def fit(X: Any = X, Y: Any = Y, options: Any = None, **changes: Any) -> Any:
        return lambda: classifier(**{"groups": anonymous} | changes).fit(X, Y, **given, **(options or {}))

    def measured(**changes: Any) -> Any:
        return lambda: measure(**{"y_true": Y, "y_pred": Y, "groups": anonymous} | given | changes)

    return {
        "X is text": fit(X="nowhere.csv"),
        "X has one dimension": fit(X=X[:, 0]),
        "X has other rows": fit(X=X[:-1]),
        "y is None": fit(Y=None),
        "y has three classes": fit(Y=np.arange(N) % 3),
        "weights": fit(options={"sample_weight": [-1.0] * N}),
        "person": fit(options={"person": [None] * N}),
        "ledger": fit(options={"ledger": "ledger"}),
        "groups": fit(groups="a"),
        "groups None": fit(groups=None),
        "notion": fit(notion="parity"),
        "epsilon": fit(epsilon=-1.0),
        "engine": fit(engine="magic"),
        "plan": fit(plan="plan"),
        "module": fit(module=torch.nn.Linear(7, 1)),
        "missing marker": fit(missing_marker="a"),
        "noise seed": fit(noise_seed=-1),
        "measure y": measured(y_pred=Y[:-1]),
        "measure groups": measured(groups=None),
        "measure metrics": measured(metrics=["nothing"]),
        "measure scores": measured(scores=[1e300] * N),
        "measure reference": measured(reference="c"),
        "measure epsilon": measured(epsilon=0.0),
        "measure person": measured(person=[1]),
    }


@pytest.mark.parametrize("way", wrong_public_input())
def test_error_about_anything_else_holds_no_readable_attribute(way: str) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        wrong_public_input()[way]()
    kept = kept_by_a_reporter(refused.value)
    assert not any(label in kept for label in GROUPS)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function", "base_proba"])
@pytest.mark.parametrize("fitted", [False, True])
def test_prediction_says_that_the_attribute_is_no_input_and_keeps_none_of_it(method: str, fitted: bool) -> None:
    model = classifier(epsilon=math.inf)
    if fitted:
        model.fit(X, Y, sensitive_features=SECRET)
    for call in (
        lambda: getattr(model, method)(X, sensitive_features=SECRET),
        lambda: getattr(model, method)(X=X, sensitive_feature=SECRET),
        lambda: getattr(model, method)(X, SECRET),
    ):
        with pytest.raises(TypeError, match=rf"never an input at prediction: call {method}\(X\)\.$") as refused:
            call()
        assert not any(label in kept_by_a_reporter(refused.value) for label in GROUPS)
