"""What a fit trains: a network by descent, or, in an engine of its own, what corrects a model that is given.

A session holds a learner and knows nothing else about what is trained. Everything a learner does before the engine
asks is public.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from justitia.networks.default import evaluate, learned_inputs, learns_first
from justitia.networks.requirements import as_scores, check_module, trainable
from justitia.networks.row_gradients import score_rows
from justitia.training.algorithm import train
from justitia.training.checkpoint import Checkpoint
from justitia.training.engine import EVERYBODY, PrimalDualEngine
from justitia.training.lagrangian import Problem
from justitia.training.plan import Plan, TrainingPlan
from justitia.training.run import Trained

#: Public rows that a module is tried on before training.
TRIAL_ROWS = 16
#: ``bar(total, name)`` gives a progress bar.
Bar = Callable[[int, str], "AbstractContextManager[tqdm[Any]]"]
PlanKind = TypeVar("PlanKind", bound=Plan)


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
        start: Tensor | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Trained:
        """Carry the plan out; a run that follows another one starts from its multipliers."""

    @abstractmethod
    def scores(self, problem: Problem) -> Tensor:
        """(n,) scores of the training rows; positive is a positive decision."""

    def unseen(self, problem: Problem, plan: PlanKind) -> Tensor | slice:
        """Rows whose scores come from models that have not learned from them; everybody, unless said otherwise."""
        del problem, plan
        return EVERYBODY

    def deployed(self, problem: Problem) -> Tensor:
        """(n,) scores of the training rows by what is deployed; the same, unless said otherwise."""
        return self.scores(problem)

    def plain(self, problem: Problem) -> Tensor | None:
        """(n,) scores without a constraint, where they are known."""
        del problem
        return None

    @abstractmethod
    def follower(self) -> Self:
        """A copy that goes on from here without changing this one."""

    def untrained(self) -> Self:
        """A copy of a prepared learner before it is trained; what it learned in public is shared, not learned again."""
        return self.follower()


class NetworkLearner(Learner[TrainingPlan]):
    """A network, trained in place by Algorithm 1.

    Parameters
    ----------
    module : nn.Module
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def check(self, problem: Problem, plan: TrainingPlan) -> None:
        """One public step on a copy."""
        rehearse(self.module, problem.X, problem.y, plan)

    def shape(self) -> list[tuple[int, ...]]:
        """Shapes of all parameters."""
        return [tuple(parameter.shape) for parameter in self.module.parameters()]

    def prepare(self, problem: Problem, plan: TrainingPlan, bar: Bar) -> Problem:
        """What a cross-fitted network learns from labels first."""
        if not learns_first(self.module):
            return problem
        with bar(plan.warmup_steps, "networks") as shown:
            seen = problem.X, problem.y, problem.weight
            learned = learned_inputs(self.module, *seen, steps=plan.warmup_steps, progress=shown.update)
        return replace(problem, X=learned)

    def train(
        self,
        problem: Problem,
        plan: TrainingPlan,
        engine: PrimalDualEngine,
        bar: Bar,
        *,
        start: Tensor | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Trained:
        """Algorithm 1."""
        with bar(sum(one.steps for one in plan.schedule(len(problem))), "fit") as shown:
            return train(self.module, problem, plan, engine, start=start, checkpoint=checkpoint, progress=shown.update)

    def scores(self, problem: Problem) -> Tensor:
        """Logits."""
        return torch.from_numpy(evaluate(self.module, problem.X)).to(problem.y.dtype)

    def unseen(self, problem: Problem, plan: TrainingPlan) -> Tensor | slice:
        """Rows that are held out; everybody where there are none."""
        held = plan.held_rows(len(problem))
        return held if len(held) else EVERYBODY

    def follower(self) -> Self:
        """The same network once more."""
        return type(self)(copy.deepcopy(self.module))


def rehearse(module: nn.Module, X: Tensor, y: Tensor, plan: TrainingPlan) -> None:
    """Take one public step on a copy, so that what cannot be trained fails before any budget is spent.

    Raises
    ------
    ValueError
        If the module is not one whose rows can be bounded, or the optimizer cannot take a step on it.
    """
    check_module(module, X[:TRIAL_ROWS])
    twin, rows, labels = copy.deepcopy(module), X[:TRIAL_ROWS], y[:TRIAL_ROWS]
    try:
        with torch.random.fork_rng(devices=[]):
            optimizer = plan.make_optimizer(trainable(twin), n=len(X), inputs=X[0].numel())
            scores = as_scores(twin.train()(rows), len(rows))
            F.binary_cross_entropy_with_logits(scores, labels).backward()
            optimizer.step()
            score_rows(twin.eval(), rows)
    except Exception as error:  # noqa: BLE001 - a user's module and torch's optimizers may raise anything
        first = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise ValueError(
            f"expected {plan.optimizer} to take a step on the module, got '{first}'; "
            "change the plan's optimizer and its options, or the module."
        ) from None
