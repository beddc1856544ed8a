"""Post-processing of a numeric target: noised sums of public rows, a dual, and noised checks of its predictions.

The steps are those of :mod:`justitia.postprocessing.run`. The target and its predictions are scaled to [0, 1] by a
public range; what a notion averages over groups, how multipliers are found and how a prediction follows from them is in
:mod:`justitia.postprocessing.number_notions`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.exceptions import AccuracyWarning, Diagnostic, NoisyEstimateWarning, ViolationWarning
from justitia.learners.base import Base, Inputs
from justitia.learners.calibration import AnyCalibration, calibrate_target, identity_calibration
from justitia.postprocessing.correction import NOTHING, Correction, Distillation, LearningTarget
from justitia.postprocessing.number_notions import NumberNotion, Posteriors, even_check_bound
from justitia.postprocessing.number_rows import NumberMemberships, NumberRows
from justitia.postprocessing.number_rule import NumberRule, scale
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.predictions import EvaluatePredictions, NumberEvaluation, PredictionRows, PredictionRule
from justitia.postprocessing.price import FEWEST_TOLERANCES, TOLERANCES
from justitia.postprocessing.run import LOUD, CorrectionRun, all_releases_stddev, digest_of, sum_stddev
from justitia.privacy.interface import Vault
from justitia.rows.source import Block
from justitia.tasks import NUMBER
from justitia.training.diagnostics import LOST, SHARE_LOST, unknown_group
from justitia.training.lagrangian import Problem, largest_gap
from justitia.training.method import ALL_ROWS, Bar, Method, Rows

Array = NDArray[np.float64]
#: A violation beyond the tolerance by less than this share of two standard deviations is not worth a sentence.
SLACK = 0.02


class NumberMethod(Method):
    """A base model of the number, which is learned first and in public, and a correction of its predictions.

    Parameters
    ----------
    base : Base
    inputs : Inputs
        Public features of the sample.
    problem : Problem
        With the target scaled to [0, 1].
    notion : NumberNotion
    bounds : (float, float)
        Public range of the target.
    seed : int
        Of public randomness.
    """

    def __init__(
        self,
        base: Base,
        inputs: Inputs,
        problem: Problem,
        notion: NumberNotion,
        bounds: tuple[float, float],
        seed: int,
    ) -> None:
        self.base, self.inputs, self.problem, self.notion = base, inputs, problem, notion
        self.bounds, self.seed = bounds, seed
        self.calibration: AnyCalibration = identity_calibration(NUMBER)
        self._m: Array | None = None

    def check(self) -> None:
        """Nothing is left to check: the estimator has read the target and the notion."""

    def shape(self) -> Any:
        """What the base is, and the range of the target."""
        return self.base.describe(), self.bounds

    def prepare(self, bar: Bar) -> None:
        """Cross-fit the base, calibrate it where the target shows that it needs it, and predict all rows."""
        problem, (low, high) = self.problem, self.bounds
        y, weight = low + (high - low) * problem.y.astype(np.float64), problem.weight.astype(np.float64)
        with bar(max(self.base.fits, 1), "base") as shown:
            raw = self.base.learn(self.inputs, y, weight, seed=self.seed, progress=shown.update)
        self.calibration = calibrate_target(raw, y, weight, NUMBER)
        self._m = scale(self.calibration(raw), self.bounds)
        rule = NumberRule(self.base, self.calibration, self.notion, (), self.bounds)
        problem.source.score(rule.scaled_base, self._m)

    def run(self, plan: PostProcessingPlan, vault: Vault, *, tolerance: float | None) -> NumberRun:
        """A run on the base that was prepared."""
        if self._m is None:
            raise ValueError("expected a base that has learned, got none; call prepare first.")
        return NumberRun(plan, self, vault, self._m, tolerance)


class NumberRun(CorrectionRun):
    """The dual of a notion for numbers on maximum-entropy memberships, and what is deployed of it.

    Parameters
    ----------
    plan : PostProcessingPlan
    method : NumberMethod
    vault : Vault
    m : ndarray (n,)
        E[y | x] of the sample, scaled, by models that have not learned from the row.
    tolerance : float, optional
        Largest difference between two groups that is allowed, in units of the rates; None: the plan's ``dead_zone``
        standard errors.

    Guarantee
    ---------
    * A enters only through ``group_sums`` of the vault: for sizes if the plan has them, once for the moments and once
      per check. Everything else here is a function of public data and of noised answers.
    """

    predictions_name = "m"
    _given: float | None
    _deployed: NumberRule | None

    def __init__(
        self, plan: PostProcessingPlan, method: NumberMethod, vault: Vault, m: Array, tolerance: float | None
    ) -> None:
        problem = method.problem
        sample = Block(0, problem.X.reshape(len(problem), -1), problem.y, problem.weight, m)
        super().__init__(plan, problem, vault, sample, tolerance)
        self.method, self.unit = method, (method.bounds[1] - method.bounds[0]) ** method.notion.power
        weight = problem.weight.astype(np.float64)
        alone = Posteriors(m, np.ones((1, len(m), 1)), weight / weight.sum())
        self.m, self._share = m, alone.share
        self.notion: NumberNotion = method.notion.fitted(alone, problem.y, plan.levels)
        self._rows = NumberRows.fit(
            sample, stddev=self._moments_stddev, n=self.source.n, target=self.notion.reads_target
        )
        values = self.notion.values(problem.y, m)
        self._value_variances = alone.share @ (values - alone.share @ values) ** 2  # (K,): public, of the base
        if self.notion.power == 0:
            self._value_variances = np.full(len(self._value_variances), 0.25)  # some level is near the middle
        max_weight = self.source.max_weight * self._each
        bounds = max_weight, max_weight * max(even_check_bound(self.notion, self.notion.count, values), 1e-6)
        self._sum_noise = all_releases_stddev(
            self._moments_noise, self._checks_noise, plan.checks, bounds, self._groups, vault.missing
        )
        if self.notion.power and plan.checks:  # sums of the moments are of other values than the checks'
            each = sum_stddev(self._checks_noise, bounds[1], self._groups, vault.missing)
            self._sum_noise = each / math.sqrt(plan.checks)
        self._n_rates = self.notion.count
        self._posteriors: Posteriors | None = None
        self._shift: Array = np.zeros((self.notion.count, self._groups))
        self._lams: Array = np.zeros((self.notion.count, self._groups))

    # -- checks -------------------------------------------------------------------------------------------------

    def _check_rows(self, evaluation: NumberEvaluation) -> tuple[PredictionRows, float]:
        """Values of the predictions less their means."""
        longest = max(
            self.notion.longest_row(evaluation.cells, evaluation.means), 1e-6
        )  # all predictions may be the same
        return PredictionRows(self._rule(), evaluation.means), longest

    def _note_check(self, evaluation: NumberEvaluation, measured: Array, variance: Array) -> None:  # noqa: ARG002
        """Keep the variance of the values, which is public."""
        self._value_variances = np.maximum(evaluation.variances, 1e-9)

    # -- solving ------------------------------------------------------------------------------------------------

    def _count(self, answer: Array, total: Array) -> Array:
        """(G,): sizes of the groups by the moments."""
        counted: Array = self._rows.sizes(answer, total, self.source.n)
        return counted

    def _use(self, weights: Array) -> None:
        """Take the memberships with these weights as p(a | x, y) from now on."""
        self._memberships = NumberMemberships(self._rows, weights, self._groups)
        rule = PredictionRule(self._memberships, self.notion, self._lams, np.ones(self._groups), "")
        self._posteriors = Posteriors(self.m, rule.joint(self._sample), self._share)
        self._sizes = self._evaluate().sizes

    def _solve(self, lam: Array) -> Array:
        """(G, K): the multipliers, exactly; levels first follow the predictions."""
        if lam.T.shape == self._lams.shape:  # of the run that this one follows
            self._lams = lam.T
        if self.notion.power == 0 and self._queries and not self._surprises:
            self._lams = self._solution()
            f = self.predictions()
            levels = self.notion.refined(f, self._share, self.plan.levels)
            self._put_notion(levels)
        self._lams = self._solution()
        # No check will say how far the posteriors of the sample are off.
        is_estimate = self.source.n > len(self.problem) or self.notion.reads_target
        if not self._queries and is_estimate and not self._on_sample:
            self._evaluate()
            self._lams = self._solution()
        return self._lams.T.copy()

    def _put_notion(self, notion: NumberNotion) -> None:
        """Other levels; their multipliers are those of the nearest ones before."""
        nearest = np.abs(self.notion.at - notion.at[:, None]).argmin(1)  # type: ignore[attr-defined]
        self.notion, self._lams, self._shift = notion, self._lams[nearest], self._shift[nearest]
        self._value_variances = np.full(notion.count, 0.25)

    def _solution(self) -> Array:
        start = self._lams if self._lams.any() else None
        return self.notion.solve(self._known(), self._added(), self.tolerance / self.unit, start)

    def _added(self) -> Array:
        """(K, G): what passes and checks have shown to be missing in the rates by the posteriors."""
        if not self._surprises:
            return self._shift
        # The prior standard deviation is the plan's for rates; values of other sizes have one in proportion.
        trust = self.plan.trust * 2 * np.sqrt(self._value_variances)[:, None]
        sampling = self._value_variances[:, None] / self._sizes
        noise = np.mean(self._variances, axis=0) / len(self._variances)
        weight = trust**2 / (trust**2 + noise + sampling * (noise > 0))
        found: Array = self._shift + weight * np.mean(self._surprises, axis=0)
        return found

    def _known(self) -> Posteriors:
        if self._posteriors is None:
            raise ValueError("expected moments to have been released, got none; call train first.")
        return self._posteriors

    def _rule(self) -> PredictionRule:
        """The current predictions, for any block."""
        assert self._memberships is not None  # noqa: S101 - known with the posteriors
        digest = digest_of((self._memberships.weights, self._lams, *self.notion.state().values()))
        return PredictionRule(self._memberships, self.notion, self._lams, self._known().sizes, digest)

    def _evaluate(self) -> NumberEvaluation:
        """A pass over all rows; how far the posteriors of the sample are off goes into the constraint."""
        found = NumberEvaluation.from_sums(self._pass(EvaluatePredictions), self._groups, self.notion.count)
        self._shift = found.uncut - self.notion.estimated(self._known(), self.predictions())
        return found

    # -- estimates ----------------------------------------------------------------------------------------------

    def _columns(self) -> Array:
        """(n, J): what multipliers multiply, less what groups have in common; they add up to 0."""
        known = self._known()
        columns = self.notion.columns(known.joint, known.sizes)
        parts = np.split(columns, columns.shape[1] // self._groups, axis=1)
        return np.concatenate([one - one.mean(1, keepdims=True) for one in parts], axis=1)

    def predictions(self) -> Array:
        """(n,): predictions of the sample, between 0 and 1."""
        return self.notion.predict(self.m, self.notion.mix(self._lams) @ self._columns().T)

    def scores(self) -> Array:
        """(n,): predictions of the sample in units of the target."""
        return self._unscaled(self.predictions())

    def deployed_scores(self) -> Array:
        """(n,): out-of-fold predictions with the correction as a function of x, in units of the target."""
        if self._deployed is None or self._follows:
            return self.scores()
        return self._unscaled(self._deployed.corrected(self.method.inputs.numbers, self.m))

    def base_scores(self) -> Array:
        """(n,): out-of-fold predictions of the base model, in units of the target."""
        return self._unscaled(self.m)

    def _unscaled(self, values: Array) -> Array:
        low, high = self.method.bounds
        return low + (high - low) * values

    def gap(self, scores: Array, rows: Rows = ALL_ROWS) -> Array | None:  # noqa: ARG002 - all are out of fold
        """(G, K): rates of predictions by the memberships and all checks so far, less those of the population."""
        if self._posteriors is None:
            return None
        low, high = self.method.bounds
        f = np.clip((scores - low) / (high - low), 0.0, 1.0)
        population = self._share @ self.notion.uncut(self.problem.y, f)
        rates = self.notion.estimated(self._known(), f) + self._added()
        found: Array = self.unit * (rates - population[:, None]).T
        return found

    @property
    def tolerance(self) -> float:
        """The tolerance that was given, or ``dead_zone`` standard errors once sizes are known; in the rates' units."""
        if self._given is not None:
            return self._given
        if not self._sizes.size:
            return 0.0
        return self.unit * min(
            1.0, max(self.plan.least * self._usual, self.plan.dead_zone * self._stddev(self._value_variances))
        )

    def _stddev(self, variances: Array) -> float:
        """Standard error of the difference between the two least known groups, of values with these variances."""
        each = variances[:, None] / self._sizes + (self._sum_noise / self._sizes) ** 2
        return float(np.sqrt(np.sort(each, axis=1)[:, -2:].sum(1).max()))

    def violation_stddev(self) -> float:
        """Of the difference between the two least known groups."""
        return self.unit * self._stddev(self._value_variances)

    def gap_noise(self) -> float:
        """Noise of the difference between the two least known groups."""
        return self.unit * self._stddev(np.zeros(self.notion.count))

    def distance(self) -> float | None:
        """Largest noised difference between two groups' distributions of predictions, where these are alike."""
        if self.notion.power:
            return None
        gap = self.gap(self.deployed_scores())
        return None if gap is None else largest_gap(gap)

    def priced_tolerances(self) -> tuple[float, ...]:
        """In units of the rates: shares, or two digits of what is usual there."""
        grid = TOLERANCES if self.notion.power == 1 else FEWEST_TOLERANCES
        if self.notion.power == 0:
            return grid
        return tuple(float(f"{one * self.unit * self._usual:.2g}") for one in grid)

    def quality(self, scores: Array) -> dict[str, float]:
        """R2, and the root of the mean squared error in units of the target."""
        return {"r2": self.r2(scores), "rmse": math.sqrt(self._loss(scores))}

    def estimated_violation(self, scores: Array) -> tuple[float, float]:
        """The largest difference between two groups."""
        low, high = self.method.bounds
        known = self.notion.estimated(self._known(), np.clip((scores - low) / (high - low), 0.0, 1.0))
        found = [self.unit * float(np.ptp(known + added, axis=1).max()) for added in (self._added(), self._shift)]
        return found[0], found[1]

    def distance_between(self, scores: Array, others: Array) -> float:
        """Mean absolute difference, in units of the target."""
        return float(self._share @ np.abs(scores - others))

    def rate_names(self) -> tuple[str, ...]:
        """Names of the K rates."""
        return self.notion.rate_names(*self.method.bounds)

    def preflight(self) -> list[Diagnostic]:
        """Whether even groups of equal sizes are too small for the noise."""
        size = self.source.n / self._groups
        return self._noisy(f"groups of about {size:.0f}", self._sum_noise / size)

    @property
    def _usual(self) -> float:
        """Two standard deviations of the values, what a difference between groups is compared with; 1 for shares."""
        return 1.0 if self.notion.power == 0 else max(2 * float(np.sqrt(self._value_variances.max())), 1e-6)

    def _noisy(self, what: str, noise: float) -> list[Diagnostic]:
        """A sentence if the noise in a group's value is worth one."""
        if noise <= max((self._given or 0.0) / self.unit, LOUD * self._usual):
            return []
        sentence = (
            f"with this budget and {what} the noise in a group's {self.notion.quantity} is about "
            f"{self.unit * noise:.2g}, and no smaller violation can be held; raise epsilon, or compare fewer groups."
        )
        return [Diagnostic(sentence, NoisyEstimateWarning)]

    def diagnostics(self) -> list[Diagnostic]:
        """Groups that may not exist, and noise in the values of the smallest of the others."""
        if self._counted is None:
            return []
        few = self._few
        names, there = self.vault.group_names, self._counted > few
        found = [
            unknown_group(name, float(size)) for name, size in zip(names, self._counted, strict=True) if size <= few
        ]
        if there.any():
            smallest = int(np.where(there, self._sizes, np.inf).argmin())
            what = f"about {self._sizes[smallest]:.0f} rows in group {names[smallest]!r}"
            found += self._noisy(what, self._sum_noise / float(self._sizes[smallest]))
        return found

    def learned_diagnostics(self) -> list[Diagnostic]:
        """What the public target says of the deployed predictions, and a violation beyond the tolerance."""
        found, scores = [], self.deployed_scores()
        here, before = self.r2(scores), self.r2(self.base_scores())
        if before - here > max(LOST, SHARE_LOST * before):
            sentence = (
                f"R2 is about {here:.2f} with the constraint and {before:.2f} without: most of what was learned is "
                "lost; allow a larger tolerance."
            )
            found.append(Diagnostic(sentence, AccuracyWarning))
        gap = self.gap(scores)
        slack = max(self.unit * SLACK * self._usual, 2 * self.gap_noise())
        if gap is not None and largest_gap(gap) > self.tolerance + slack:
            sentence = (
                f"the noised violation of the deployed predictions is {largest_gap(gap):.2g}, beyond the tolerance "
                f"{self.tolerance:.2g}: measure it on other rows before you rely on it."
            )
            found.append(Diagnostic(sentence, ViolationWarning))
        return found

    def public_scores(self, scores: Array, rows: Rows) -> dict[str, float]:  # noqa: ARG002 - all are out of fold
        """R2 of predictions, by the public target."""
        return {"r2": self.r2(scores)}

    def r2(self, scores: Array) -> float:
        """Share of the target's variance that predictions explain, by public rows."""
        y = self._unscaled(self.problem.y.astype(np.float64))
        residual, total = self._share @ (y - scores) ** 2, self._share @ (y - self._share @ y) ** 2
        return float(1 - residual / total) if total > 0 else math.nan

    # -- deployment ---------------------------------------------------------------------------------------------

    def fitted(self) -> NumberRule:
        """The deployed model: the correction becomes functions of x, and memberships are dropped."""
        method, mix, c = self.method, self.notion.mix(self._lams), self._columns()
        corrections: tuple[Correction, ...] = ()
        read = mix @ c.T
        if np.abs(read).max(initial=0.0) > NOTHING:
            if "network" not in self._distilled:
                parts = [LearningTarget((1 - self.m, self.m), c)]
                distance = self.notion.distance(read)
                self._distilled["network"] = Distillation(method.inputs.numbers, self.m, parts, distance)
            corrections = self._distilled["network"].corrections(mix)
        self._deployed = NumberRule(method.base, method.calibration, self.notion, corrections, method.bounds)
        return self._deployed

    # -- record and checkpoint ----------------------------------------------------------------------------------

    def _loss(self, scores: Array) -> float:
        """Mean squared error, in units of the target."""
        y = self._unscaled(self.problem.y.astype(np.float64))
        return float(self._share @ (y - scores) ** 2)

    def _solved_state(self) -> dict[str, Any]:
        return {
            "notion": self.notion.state(),
            "shift": self._shift,
            "lam": self._lams,
            "variances": self._value_variances,
            "check_variances": self._variances,
        }

    def _restore_solved(self, state: dict[str, Any]) -> None:
        self.notion, self._lams = self.notion.restored(state["notion"]), state["lam"]
        self._use(state["weights"])
        self._shift, self._value_variances = state["shift"], state["variances"]
        self._variances = state["check_variances"]
