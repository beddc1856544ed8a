"""The method of a fit that trains a network: its public checks, what it learns first, and its runs."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from justitia.networks.crossfitted import CrossFittedNetwork
from justitia.networks.default import make_module
from justitia.networks.engine import PrimalDualEngine
from justitia.networks.moments.engine import MomentsEngine
from justitia.networks.moments.plan import MomentsPlan
from justitia.networks.pf_ld.engine import PFLDEngine
from justitia.networks.pf_ld.plan import PFLDPlan
from justitia.networks.pf_ld_as_published.engine import PFLDAsPublishedEngine
from justitia.networks.pf_ld_as_published.plan import PFLDAsPublishedPlan
from justitia.networks.plan import TrainingPlan
from justitia.networks.requirements import as_scores, check_module, trainable
from justitia.networks.row_gradients import score_rows
from justitia.networks.run import NetworkRun
from justitia.notions import check_differentiable
from justitia.privacy.interface import Vault
from justitia.rows.files import FileRows
from justitia.rows.source import MemoryRows
from justitia.training.lagrangian import Problem
from justitia.training.method import Bar, Method
from justitia.training.plan import Plan

#: The engine that carries out a plan of each kind.
ENGINES: dict[type[TrainingPlan], type[PrimalDualEngine]] = {
    MomentsPlan: MomentsEngine,
    PFLDPlan: PFLDEngine,
    PFLDAsPublishedPlan: PFLDAsPublishedEngine,
}
#: Public rows that a module is tried on before training.
TRIAL_ROWS = 16


class NetworkMethod(Method):
    """A network that is trained by Algorithm 1.

    Parameters
    ----------
    module : nn.Module
        Copied by each run.
    problem : Problem
    plan : TrainingPlan
    engine : type
        Of the engine that carries the plan out.
    seed : int
        Of public randomness.
    """

    def __init__(
        self, module: nn.Module, problem: Problem, plan: TrainingPlan, engine: type[PrimalDualEngine], seed: int
    ) -> None:
        self.module, self.problem, self.plan, self.engine, self.seed = module, problem, plan, engine, seed

    def check(self) -> None:
        """Take one public step on a copy."""
        check_differentiable(self.problem.notion)
        rehearse(self.module, torch.from_numpy(self.problem.X), torch.from_numpy(self.problem.y), self.plan)

    def shape(self) -> list[tuple[int, ...]]:
        """Shapes of all parameters."""
        return [tuple(parameter.shape) for parameter in self.module.parameters()]

    def prepare(self, bar: Bar) -> None:
        """Read rows in files, and let a cross-fitted network learn from labels, which adds a column to the rows."""
        problem, source = self.problem, self.problem.source
        if isinstance(source, FileRows):
            source.load()
        if isinstance(self.module, CrossFittedNetwork) and isinstance(source, MemoryRows):
            with bar(self.plan.warmup_steps, "networks") as shown:
                X, y, weight = (torch.from_numpy(one) for one in (problem.X, problem.y, problem.weight))
                learned = self.module.learn(X, y, weight, steps=self.plan.warmup_steps, progress=shown.update).numpy()
            source.replace_features(learned)
            self.problem = replace(problem, X=learned)

    def run(self, plan: TrainingPlan, vault: Vault, *, tolerance: float | None) -> NetworkRun:
        """A run on a copy of the network."""
        engine = self.engine(plan, self.problem, vault, tolerance=tolerance, seed=self.seed)
        return NetworkRun(copy.deepcopy(self.module), plan, engine)


def network_method(module: Any, problem: Problem, plan: Plan, seed: int) -> NetworkMethod:
    """The network of one fit, by what the user passed as ``module``."""
    if not isinstance(plan, TrainingPlan):
        raise TypeError(f"expected the plan of an engine that trains a network, got {type(plan).__name__!r}.")
    X = torch.from_numpy(problem.X)
    small = plan.small_samples and problem.rows == len(problem)  # a sample of many rows is no small sample
    made = make_module(module, X, problem.notion, seed=seed, small_samples=small, widths=plan.widths(X.shape[-1]))
    engine = next(engine for kind, engine in ENGINES.items() if isinstance(plan, kind))
    return NetworkMethod(made, problem, plan, engine, seed)


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
