"""A small table of people and a classifier that trains on it in a blink."""

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from justitia import LagrangianDualClassifier
from justitia.privacy.mechanisms import SeededNoise
from quick import smaller_fits

#: Their engines are not in requirements.lock: `make dask-test`, `make ray-test` and `make spark-test` install them.
collect_ignore = [] if "JUSTITIA_ENGINES" in os.environ else ["engines"]
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # before anything imports it: no test talks to a network


def pytest_collection_finish() -> None:
    """Tests and libraries live until the end: later collections of garbage need not go through them again."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class People:
    """Public features and labels, and a sensitive attribute that leans towards the label."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    a: NDArray[np.str_]


@pytest.fixture(scope="session")
def people() -> People:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(120, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=120) > 0).astype(np.int64)
    a = np.where(X[:, 1] + 0.5 * X[:, 0] > 0, "f", "m")
    return People(X, y, a)


@pytest.fixture(scope="session")
def plan() -> Any:
    from justitia import PFLDPlan  # here, so that tests without networks do not need torch

    return PFLDPlan(warmup_steps=20, private_steps=3, public_steps=2, batch_size=64, warmup_learning_rate=0.02)


@pytest.fixture(scope="module")
def quick_fits() -> Iterator[None]:
    """For files of tests that are neither about the default base nor about the price list."""
    with smaller_fits():
        yield


@pytest.fixture
def make(plan: Any) -> Callable[..., LagrangianDualClassifier]:
    """A classifier with reproducible noise, small enough for 120 people, unless told otherwise."""

    def build(**changes: Any) -> LagrangianDualClassifier:
        usual = {"epsilon": 8.0, "groups": ["f", "m"], "engine": "pf-ld", "plan": plan}
        return LagrangianDualClassifier(**usual | {"random_state": 0, "noise_seed": 0} | changes)

    return build


@pytest.fixture
def noise_numbers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Release numbers that noise was drawn for, in order."""
    numbers: list[int] = []
    original = SeededNoise.words

    def record(self: Any, size: int, *, release: int, stream: str = "noise") -> Any:
        numbers.extend([release] if stream != "more bits" else [])
        return original(self, size, release=release, stream=stream)

    monkeypatch.setattr(SeededNoise, "words", record)
    return numbers
