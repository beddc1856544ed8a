"""A network as what a fit trains."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from justitia.networks.algorithm import train
from justitia.networks.default import evaluate, learned_inputs, learns_first, make_module, ordinary
from justitia.networks.engine import PrimalDualEngine
from justitia.networks.plan import TrainingPlan
from justitia.networks.requirements import as_scores, check_module, trainable
from justitia.networks.row_gradients import score_rows
from justitia.notions import FairnessNotion, check_differentiable
from justitia.training.checkpoint import Checkpoint
from justitia.training.lagrangian import Problem
from justitia.training.method import ALL_ROWS, Array, Bar, Learner, Rows, Trained

#: Public rows that a module is tried on before training.
TRIAL_ROWS = 16


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
        check_differentiable(problem.notion)
        rehearse(self.module, torch.from_numpy(problem.X), torch.from_numpy(problem.y), plan)

    def shape(self) -> list[tuple[int, ...]]:
        """Shapes of all parameters."""
        return [tuple(parameter.shape) for parameter in self.module.parameters()]

    def prepare(self, problem: Problem, plan: TrainingPlan, bar: Bar) -> Problem:
        """What a cross-fitted network learns from labels first."""
        if not learns_first(self.module):
            return problem
        with bar(plan.warmup_steps, "networks") as shown:
            seen = (torch.from_numpy(one) for one in (problem.X, problem.y, problem.weight))
            learned = learned_inputs(self.module, *seen, steps=plan.warmup_steps, progress=shown.update)
        return replace(problem, X=learned.numpy())

    def train(
        self,
        problem: Problem,
        plan: TrainingPlan,
        engine: PrimalDualEngine,
        bar: Bar,
        *,
        start: Array | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Trained:
        """Algorithm 1."""
        steps = sum(one.steps for one in plan.schedule(len(problem)))
        with bar(steps, "fit") as shown, torch.random.fork_rng(devices=[]):
            torch.manual_seed(engine.seed)
            return train(self.module, problem, plan, engine, start=start, checkpoint=checkpoint, progress=shown.update)

    def scores(self, problem: Problem) -> Array:
        """Logits."""
        with torch.random.fork_rng(devices=[]):  # a module of one's own may draw
            return evaluate(self.module, torch.from_numpy(problem.X)).astype(problem.y.dtype)

    def fitted(self) -> nn.Module:
        """The network as it is kept."""
        return ordinary(self.module)

    def unseen(self, problem: Problem, plan: TrainingPlan) -> Rows:
        """Rows that are held out; everybody where there are none."""
        held = plan.held_rows(len(problem))
        return held if len(held) else ALL_ROWS

    def follower(self) -> Self:
        """The same network once more."""
        return type(self)(copy.deepcopy(self.module))


def network_learner(module: Any, problem: Problem, plan: TrainingPlan, seed: int) -> NetworkLearner:
    """The network of one fit, by what the user passed as ``module``."""
    X = torch.from_numpy(problem.X)
    small = plan.small_samples and problem.rows == len(problem)  # a sample of many is no small sample
    widths = plan.widths(X.shape[-1])
    return NetworkLearner(make_module(module, X, problem.notion, seed=seed, small_samples=small, widths=widths))


def module_of_shape(module: Any, notion: FairnessNotion, seed: int, shape: dict[str, Any]) -> nn.Module:
    """A network without weights for a worker process, of the shape that the first process has."""
    X = torch.from_numpy(shape["X"])
    return make_module(module, X, notion, seed=seed, small_samples=shape["small"], widths=shape["widths"])


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
