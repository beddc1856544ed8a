"""What is common to data frames of all engines, with an engine that holds partitions in a list."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from justitia import BudgetExceeded, LagrangianDualClassifier, PrivacyLedger, measure
from justitia.rows.frames import Frame, Kept, KeptBlock, Outcome, Part, answered, computed, part_of

N = 600
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"a": RNG.normal(size=N), "label": np.arange(N) % 2, "sex": RNG.choice(["f", "m"], N)})


class ListFrame(Frame):
    """Partitions in a list. ``held`` are the columns, and ``kept`` the blocks, that the engine has put away."""

    engine = "List"

    def __init__(self, *partitions: pd.DataFrame) -> None:
        self.partitions, self.names = partitions, tuple(partitions[0].columns)
        self.held: tuple[str, ...] = ()
        self.kept: list[list[KeptBlock]] = []
        self.failing: Callable[[], None] = lambda: None

    def select(self, public: Sequence[str], private: Sequence[str]) -> None:
        self._public, self._private = list(public), list(private)
        self.held = (*public, *private)

    def each(self, task: Callable[[int, Iterable[Part]], Any]) -> list[Outcome]:
        def run() -> list[Outcome]:
            self.failing()
            parts = [part_of(one, self._public, self._private) for one in self.partitions]
            return [answered(task, k, [part]) for k, part in enumerate(parts)]

        return computed(self.engine, run)

    def keep(self, task: Callable[[int, Iterable[Part]], Iterator[KeptBlock]]) -> Kept:
        kept = [list(task(k, [part_of(one, self._public, self._private)])) for k, one in enumerate(self.partitions)]
        self.kept += kept
        held = self.kept

        class InList(Kept):
            def each(self, task: Callable[[Iterable[KeptBlock]], Any]) -> list[Outcome]:
                return [answered(task, blocks) for blocks in kept]

            def close(self) -> None:
                held.clear()

        return InList()

    def with_columns(self, work: Any, features: list[str], like: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self.held = ()


def fitted(frame: ListFrame) -> LagrangianDualClassifier:
    model = LagrangianDualClassifier(epsilon=2.0, groups=["f", "m"], tolerance=0.1, random_state=0, noise_seed=1)
    return model.fit(frame, "label", sensitive_features="sex")


def test_engine_holds_no_column_after_a_fit() -> None:
    frame = ListFrame(TABLE[:200], TABLE[200:])
    fitted(frame)
    assert frame.held == ()
    assert frame.kept == []


def test_engine_holds_no_column_after_a_measurement_or_its_refusal() -> None:
    frame = ListFrame(TABLE[:200], TABLE[200:])
    how: dict[str, Any] = {"sensitive_features": "sex", "groups": ["f", "m"], "data": frame, "epsilon": 1.0}
    assert measure(None, "label", **how).people == N
    assert frame.held == ()
    assert frame.kept == []
    for wrong in ({"pos_label": "neither"}, {"ledger": PrivacyLedger(epsilon=0.5, delta=1e-5)}, {"reference": "x"}):
        with pytest.raises((ValueError, BudgetExceeded)):
            measure(None, "label", **how | wrong)
        assert frame.held == ()
        assert frame.kept == []


@pytest.mark.parametrize(
    ("partitions", "match"),
    [
        ((TABLE[:0], TABLE[:0]), "expected rows in the data frame of List, got none"),
        ((TABLE[:200], TABLE[200:].assign(a="text")), "expected one type in column 'a'"),
        ((TABLE[:200], TABLE[200:].drop(columns="sex")), "List could not compute a pass"),
    ],
    ids=["no rows", "types", "no column"],
)
def test_engine_holds_no_column_after_a_refusal(partitions: tuple[pd.DataFrame, ...], match: str) -> None:
    frame = ListFrame(*partitions)
    with pytest.raises((ValueError, RuntimeError), match=match):
        fitted(frame)
    assert frame.held == ()


def test_error_of_an_engine_keeps_neither_rows_nor_its_text() -> None:
    """An engine that runs tasks in this process raises through frames that hold rows and their attribute."""
    frame = ListFrame(TABLE)
    calls: list[int] = []

    def failing() -> None:
        rows = TABLE
        calls.append(len(rows))
        if len(calls) > 1:  # not when rows are counted
            raise RuntimeError(f"the first is {rows['sex'].iloc[0]}")

    frame.failing = failing
    with pytest.raises(RuntimeError, match="List could not compute a pass") as caught:
        fitted(frame)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    for one, _ in traceback.walk_tb(caught.value.__traceback__):
        if "justitia" in one.f_code.co_filename and "tests" not in one.f_code.co_filename:
            assert not any(isinstance(value, pd.DataFrame | BaseException) for value in one.f_locals.values())
