"""The edges of the promise: error reporters that keep local variables."""

import math
import traceback
from typing import Any

import numpy as np
import pytest
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
from justitia.evaluation.exact import rates_by_group, violation
from justitia.evaluation.scorer import private_scorer
from justitia.privacy.ledger import BudgetExceeded, PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, RandomizedResponse, SeededNoise
from justitia.privacy.rows import ArrayRows
from justitia.privacy.vault import SensitiveVault

pytestmark = QUIET


def kept_by_a_reporter(error: BaseException) -> str:
    """The local variables of every frame of the package, as error reporters print them."""
    came_from = [error, *(one for one in (error.__cause__, error.__context__) if one is not None)]
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


def misused(attribute: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"sensitive_features": attribute}
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
