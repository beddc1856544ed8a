"""The default method: correct the decisions of a base model by post-processing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.goals import Goal
from justitia.learners.base import Base, Inputs
from justitia.learners.calibration import AnyCalibration, calibrate_target, identity_calibration
from justitia.postprocessing.coin import Coin
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.solver import PostProcessingRun
from justitia.privacy.interface import Vault
from justitia.training.lagrangian import Problem
from justitia.training.method import Bar, Method


class PostProcessing(Method):
    """A base model, which is learned first and in public, and a correction of its decisions.

    Parameters
    ----------
    base : Base
    inputs : Inputs
        Public features of the sample.
    problem : Problem
    seed : int
        Of public randomness.
    coin : Coin, optional
        For rows near the line between two decisions.
    """

    def __init__(self, base: Base, inputs: Inputs, problem: Problem, seed: int, coin: Coin | None = None) -> None:
        self.base, self.inputs, self.problem, self.seed, self.coin = base, inputs, problem, seed, coin
        self.calibration: AnyCalibration = identity_calibration(problem.task)
        self._eta: NDArray[np.float64] | None = None
        self._deployed: NDArray[np.float64] | None = None  # by the base that is deployed; a quota is exact for it

    def check(self) -> None:
        """Refuse a notion that does not compare decisions."""
        if self.problem.given_goal is None:
            Goal.from_notions([self.problem.notion], self.problem.task.classes)

    def shape(self) -> str:
        """What the base is."""
        return self.base.describe()

    def goal_facts(self) -> tuple[Any, ...]:
        """Rates and their table, ratio, quota, costs, strata, and the coin if there is one."""
        problem, goal = self.problem, self.problem.goal
        quota = None if goal.quota is None else goal.quota.tolist()
        costs = None if problem.costs is None else problem.costs.tolist()
        digest = hashlib.sha256()
        for array in (problem.codes, goal.table.events, goal.table.values):
            digest.update(np.ascontiguousarray(array).tobytes())
        coin = () if self.coin is None else (self.coin,)
        return problem.notion.name, goal.table.names, goal.ratio, quota, costs, problem.task, digest.hexdigest(), *coin

    def prepare(self, bar: Bar) -> None:
        """Cross-fit the base, calibrate it where labels show that it needs it, and score all rows."""
        problem = self.problem
        y, weight = problem.y.astype(np.float64), problem.weight.astype(np.float64)
        with bar(max(self.base.fits, 1), "base") as shown:
            raw = self.base.learn(self.inputs, y, weight, seed=self.seed, progress=shown.update)
        self.calibration = calibrate_target(raw, y, weight, problem.task)
        self._eta = self.calibration(raw).astype(np.float64)
        deployed = CalibratedBase(self.base, self.calibration)
        problem.source.score(deployed, self._eta)
        if problem.goal.quota is not None and problem.task.kind == "binary":
            # Here and not in a run: trials of a search repeat runs, and a user's base could count them.
            self._deployed = deployed(self.inputs)

    def run(
        self, plan: PostProcessingPlan, vault: Vault, *, tolerance: float | NDArray[np.float64] | None
    ) -> PostProcessingRun:
        """A run on the base that was prepared."""
        if self._eta is None:
            raise ValueError("expected a base that has learned, got none; call prepare first.")
        model = (self.base, self.calibration, self.inputs)
        return PostProcessingRun(plan, self.problem, vault, self._eta, model, tolerance, self._deployed, self.coin)


@dataclass(frozen=True, eq=False)
class CalibratedBase:
    """Calibrated predictions of new rows by a base model; picklable."""

    base: Base
    calibration: AnyCalibration

    @property
    def reads_table(self) -> bool:
        """Whether it reads the table as the user has it, and not only encoded features."""
        return self.base.reads_table

    def __call__(self, inputs: Inputs) -> NDArray[np.float64]:
        """(m,) or (m, K)."""
        return self.calibration(self.base.predict(inputs))
