"""What engine ``post-processing`` trains: a base of the label, and a correction of its decisions."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from justitia.learners.base import Base, Inputs
from justitia.learners.calibration import Calibration, calibrate
from justitia.postprocessing.correction import NOTHING, Correction, Distillation, Levels, moved_probability
from justitia.postprocessing.dual import clip_to_decision_side, label_table
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.solver import PostProcessingEngine, ScoresEngine
from justitia.training.checkpoint import Checkpoint
from justitia.training.lagrangian import Problem
from justitia.training.learner import Bar, Learner, Trained
from justitia.training.public_scores import public_scores

Array = NDArray[np.float64]


class Rule:
    r"""The deployed model: decisions 2 (eta(x) - threshold) > t(x), and a probability on their side of the threshold.

    Where the correction does not change a decision the probability is the base's, eta. Where it does, it is next to the
    threshold, on the side of the decision.

    Parameters
    ----------
    base : Base
    calibration : Calibration
        Of the base.
    correction : Correction
        t.
    threshold : float
    levels : Levels, optional
        Corrections at many thresholds, of a model with ``at="scores"``.
    """

    def __init__(
        self,
        base: Base,
        calibration: Calibration,
        correction: Correction,
        threshold: float,
        levels: Levels | None = None,
    ) -> None:
        self.base, self.calibration, self.correction, self.threshold = base, calibration, correction, threshold
        self.levels = levels

    def base_probability(self, inputs: Inputs) -> Array:
        """(m,): eta, before the correction."""
        return self.calibration(self.base.probability(inputs))

    def margin(self, inputs: Inputs) -> Array:
        """(m,): twice the probability less the threshold; positive is a positive decision."""
        eta = self.base_probability(inputs)
        if self.levels is not None:
            return 2 * (self.levels.probability(inputs.numbers, eta) - self.threshold)
        gain = 2 * (eta - self.threshold)
        return clip_to_decision_side(gain, gain - self.correction(inputs.numbers, eta))

    def probability(self, margin: Array) -> Array:
        """(m,): between 0 and 1, from the margin."""
        moved: Array = np.clip(self.threshold + margin / 2, 0.0, 1.0)
        return moved


class RuleLearner(Learner[PostProcessingPlan]):
    """A base that is learned first, in public, and a correction.

    Parameters
    ----------
    base : Base
    inputs : Inputs
        Public features of the training rows.
    seed : int
        Of public randomness.
    """

    def __init__(self, base: Base, inputs: Inputs, seed: int) -> None:
        self.base, self.inputs, self.seed = base, inputs, seed
        self.calibration = Calibration()
        self._of_levels: tuple[Array, Array] | None = None  # thresholds, and (T, G K) multipliers
        self._follows = False
        self.lam: Array = np.zeros(0)
        self.c: Array = np.zeros((len(inputs), 0))
        self._shared: dict[str, Distillation] = {}
        self._levels: Levels | None = None
        self._correction: Correction | None = None  # as deployed; not evaluated for all models of a curve

    def check(self, problem: Problem, plan: PostProcessingPlan) -> None:
        """A notion that compares decisions."""
        del plan
        label_table(problem.notion)

    def shape(self) -> str:
        """What the base is."""
        return self.base.describe()

    def prepare(self, problem: Problem, plan: PostProcessingPlan, bar: Bar) -> Problem:
        """Cross-fit the base, and mend its calibration where labels show that it needs it."""
        del plan
        y, weight = problem.y.astype(np.float64), problem.weight.astype(np.float64)
        with bar(max(self.base.fits, 1), "base") as shown:
            raw = self.base.learn(self.inputs, y, weight, seed=self.seed, progress=shown.update)
        self.calibration = calibrate(raw, y, weight)
        return replace(problem, eta=self.calibration(raw))

    def train(
        self,
        problem: Problem,
        plan: PostProcessingPlan,
        engine: PostProcessingEngine,
        bar: Bar,
        *,
        start: Array | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Trained:
        """Ask, solve; then check and solve again as often as the plan says."""
        record = _Record(problem)
        zero = np.zeros((engine.vault.n_groups, problem.events.shape[1]))
        lam = zero if start is None else start
        lam, first = (lam, 0) if checkpoint is None else checkpoint.restore(record, engine, lam)
        if checkpoint is not None:
            engine.keep = partial(checkpoint.save, record, lam=lam, position=0)
        checks = plan.checks if engine.asks else 0
        with bar(checks + 1, "dual") as shown:
            engine.ask_before(None, lam, 0)
            if checkpoint is not None and first == 0:
                checkpoint.save(record, engine, lam, 1)
            for k in range(max(first - 1, 0), checks + 1):
                lam = engine.solve(lam)
                record.add(k, engine, lam)
                if k < checks:
                    engine.ask_after(engine.scores(lam), k + 1)
                    if checkpoint is not None:
                        checkpoint.save(record, engine, lam, k + 2)
                shown.update()
            if (back := engine.settle(lam)) is not lam:
                lam = back
                record.history.pop()  # its last row is about what is deployed
                record.add(checks, engine, lam)
        self.lam, self.c = lam.ravel(), engine.multiplied()
        if isinstance(engine, ScoresEngine):
            self._of_levels = engine.levels, engine.multipliers
        return Trained(lam, record.history)

    def scores(self, problem: Problem) -> Array:
        """Positive is a positive decision; by models that have not seen the row."""
        eta = self._eta(problem)
        if self._of_levels is not None:
            levels, lams = self._of_levels
            p = moved_probability(2 * (eta - levels[:, None]) - lams @ self.c.T, levels)
            return (2 * (p - problem.threshold)).astype(problem.y.dtype)
        gain = 2 * (eta - problem.threshold)
        return clip_to_decision_side(gain, gain - self.c @ self.lam).astype(problem.y.dtype)

    def rule(self, problem: Problem) -> Rule:
        """What is deployed: the correction becomes a function of x, and memberships are dropped."""
        if self._of_levels is not None:
            return self._rule_of_levels(problem, *self._of_levels)
        correction = Correction()
        if np.abs(self.c @ self.lam).max(initial=0.0) > NOTHING:
            if "network" not in self._shared:
                numbers, eta = self.inputs.numbers, self._eta(problem)
                self._shared["network"] = Distillation(numbers, eta, self.c, self.lam, 2 * (eta - problem.threshold))
            correction = self._shared["network"].correction(self.lam)
        self._correction = correction
        return Rule(self.base, self.calibration, correction, problem.threshold)

    def _rule_of_levels(self, problem: Problem, at: Array, lams: Array) -> Rule:
        """A correction at every threshold; all rows count alike, since each is near one of the lines."""
        numbers, eta = self.inputs.numbers, self._eta(problem)
        largest = lams[int(np.abs(lams).sum(1).argmax())]
        if np.abs(self.c @ largest).max(initial=0.0) <= NOTHING:
            return Rule(self.base, self.calibration, Correction(), problem.threshold)
        if "levels" not in self._shared:
            self._shared["levels"] = Distillation(numbers, eta, self.c, largest, self.c @ largest)
        levels = Levels(at, tuple(self._shared["levels"].correction(lam) for lam in lams))
        here = levels.corrections[int(np.abs(at - problem.threshold).argmin())]
        self._levels = levels
        return Rule(self.base, self.calibration, here, problem.threshold, levels)

    def deployed(self, problem: Problem) -> Array:
        """Gain by models that have not seen the row, less the correction as a function of x."""
        if self._levels is not None and not self._follows:
            p = self._levels.probability(self.inputs.numbers, self._eta(problem))
            return (2 * (p - problem.threshold)).astype(problem.y.dtype)
        if self._correction is None or self._follows:
            return self.scores(problem)
        eta = self._eta(problem)
        t = self._correction(self.inputs.numbers, eta)
        return (2 * (eta - problem.threshold) - t).astype(problem.y.dtype)

    def plain(self, problem: Problem) -> Array:
        """Gain."""
        return (2 * (self._eta(problem) - problem.threshold)).astype(problem.y.dtype)

    def follower(self) -> Self:
        """The same base, for another correction by the same network."""
        twin = copy.copy(self)
        twin._follows = True
        return twin

    def untrained(self) -> Self:
        """The same base and calibration, without a correction."""
        twin = type(self)(self.base, self.inputs, self.seed)
        twin.calibration = self.calibration
        return twin

    @staticmethod
    def _eta(problem: Problem) -> Array:
        if problem.eta is None:
            raise ValueError("expected a problem with eta, got none; learn a base first.")
        eta: Array = problem.eta.astype(np.float64)
        return eta


class _Record:
    """The history of a run: all that it mutates besides the engine."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.history: list[dict[str, Any]] = []

    def add(self, k: int, engine: PostProcessingEngine, lam: Array) -> None:
        """One solution: public loss, accuracy and AUC out of fold, the noised gaps, the multipliers."""
        problem = self._problem
        y, weight = problem.y.astype(np.float64), problem.weight.astype(np.float64)
        scores = engine.scores(lam)
        gap = engine.gap(scores)
        p = np.clip(problem.threshold + scores.astype(np.float64) / 2, 1e-6, 1 - 1e-6)
        loss = -np.log(np.where(y > 0.5, p, 1 - p))
        self.history.append(
            {
                "round": k,
                "loss": float(np.average(loss, weights=weight)),
                **public_scores(scores, problem.y, problem.weight),
                "noisy_gap": None if gap is None else gap.tolist(),
                "violation_error": engine.violation_stddev(),
                "multiplier": lam.tolist(),
            }
        )

    def state(self) -> dict[str, Any]:
        """What a resumed run needs."""
        return {"history": self.history}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self.history = state["history"]
