"""Interface of what a fit trains: a network, or the correction of a base model.

A session holds a learner and knows nothing else about what is trained. Everything a learner does before the engine
asks is public.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from tqdm.auto import tqdm

from justitia.training.checkpoint import Checkpoint
from justitia.training.engine import ALL_ROWS, Array, Rows
from justitia.training.lagrangian import Problem
from justitia.training.plan import Plan

#: ``bar(total, name)`` gives a progress bar.
Bar = Callable[[int, str], "AbstractContextManager[tqdm[Any]]"]
PlanKind = TypeVar("PlanKind", bound=Plan)


@dataclass(frozen=True)
class Trained:
    """What training leaves: the multipliers and a history of public or noised numbers."""

    lam: Array
    history: list[dict[str, Any]]


class Learner(ABC, Generic[PlanKind]):
    """What a session trains."""

    @abstractmethod
    def check(self, problem: Problem, plan: PlanKind) -> None:
        """Raise ``ValueError`` for whatever public rows show to be wrong, before anything is asked."""

    @abstractmethod
    def shape(self) -> Any:
        """A public value whose text form differs between learners that cannot resume each other's run."""

    @abstractmethod
    def prepare(self, problem: Problem, plan: PlanKind, bar: Bar) -> Problem:
        """Learn what is public and needs no question; the problem that the engine sees."""

    @abstractmethod
    def train(
        self,
        problem: Problem,
        plan: PlanKind,
        engine: Any,
        bar: Bar,
        *,
        start: Array | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Trained:
        """Carry the plan out; a run that follows another one starts from its multipliers."""

    @abstractmethod
    def scores(self, problem: Problem) -> Array:
        """(n,) scores of the training rows; positive is a positive decision."""

    def unseen(self, problem: Problem, plan: PlanKind) -> Rows:
        """Rows whose scores come from models that have not learned from them; everybody, unless said otherwise."""
        del problem, plan
        return ALL_ROWS

    def deployed(self, problem: Problem) -> Array:
        """(n,) scores of the training rows by what is deployed; the same, unless said otherwise."""
        return self.scores(problem)

    def plain(self, problem: Problem) -> Array | None:
        """(n,) scores without a constraint, where they are known."""
        del problem
        return None

    def fitted(self) -> Any:
        """What was trained, where that is one object such as a network."""
        raise TypeError(f"{type(self).__name__} trains no network.")

    @abstractmethod
    def follower(self) -> Self:
        """A copy that goes on from here without changing this one."""

    def untrained(self) -> Self:
        """A copy of a prepared learner before it is trained; what it learned in public is shared, not learned again."""
        return self.follower()
