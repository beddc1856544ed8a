"""Post-processing of a numeric target: noised sums of public rows, a dual, and noised checks of its predictions.

The steps are those of :mod:`justitia.postprocessing.solver`. The target and its predictions are scaled to [0, 1] by a
public range; what a notion averages over groups, how multipliers are found and how a prediction follows from them is in
:mod:`justitia.postprocessing.number_notions`.
"""

from __future__ import annotations

import copy
import hashlib
import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from justitia.exceptions import AccuracyWarning, Diagnostic, NoisyEstimateWarning, ViolationWarning
from justitia.learners.base import Base, Inputs
from justitia.learners.calibration import AnyCalibration, calibrate_target, identity_calibration
from justitia.postprocessing.correction import NOTHING, Correction, Distillation, Part
from justitia.postprocessing.decisions import ColumnSums
from justitia.postprocessing.memberships import FIT_ROWS, ExpectedSums, fit_to_all_rows, product_bits, ridges, sums_of_all
from justitia.postprocessing.number_notions import NumberNotion, Posteriors, even_check_bound
from justitia.postprocessing.number_rows import NumberMemberships, NumberRows
from justitia.postprocessing.number_rule import NumberRule, scale
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.predictions import EvaluatePredictions, Evaluation, PredictionRows, PredictionRule
from justitia.postprocessing.solver import LOUD, SAME_BASE, all_releases_stddev, check_sizes, sum_stddev
from justitia.privacy.interface import Vault
from justitia.privacy.noise_grid import exact_sum_step
from justitia.rows.source import Block
from justitia.tasks import NUMBER
from justitia.training.checkpoint import Checkpoint
from justitia.training.diagnostics import LOST, SHARE_LOST, unknown_group
from justitia.training.lagrangian import Problem, largest_gap
from justitia.training.method import ALL_ROWS, Bar, Method, Rows, Run, Trained, calibrated

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


class NumberRun(Run):
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

    def __init__(
        self, plan: PostProcessingPlan, method: NumberMethod, vault: Vault, m: Array, tolerance: float | None
    ) -> None:
        problem = method.problem
        self.plan, self.method, self.problem, self.vault = plan, method, problem, vault
        self.source, self._given = problem.source, tolerance
        self.unit = (method.bounds[1] - method.bounds[0]) ** method.notion.power
        self._groups, self._each = vault.n_groups, float(vault.rows_per_person)
        self._moments_noise, self._checks_noise = calibrated(plan.noise_moments), calibrated(plan.noise_checks)
        self._moments_stddev = sum_stddev(self._moments_noise, self._each, self._groups, vault.missing)
        self._sample = Block(0, problem.X.reshape(len(problem), -1), problem.y, problem.weight, m)
        weight = problem.weight.astype(np.float64)
        alone = Posteriors(m, np.ones((1, len(m), 1)), weight / weight.sum())
        self.m, self._share = m, alone.share
        self.notion: NumberNotion = method.notion.fitted(alone, problem.y, plan.levels)
        self._rows = NumberRows.fit(
            self._sample, stddev=self._moments_stddev, n=self.source.n, target=self.notion.reads_target
        )
        values = self.notion.values(problem.y, m)
        self._variances = alone.share @ (values - alone.share @ values) ** 2  # (K,): public, of the base
        if self.notion.power == 0:
            self._variances = np.full(len(self._variances), 0.25)  # some level is near the middle
        max_weight = self.source.max_weight * self._each
        bounds = max_weight, max_weight * max(even_check_bound(self.notion, self.notion.count, values), 1e-6)
        self._sum_noise = all_releases_stddev(
            self._moments_noise, self._checks_noise, plan.checks, bounds, self._groups, vault.missing
        )
        if self.notion.power and plan.checks:  # sums of the moments are of other values than the checks'
            each = sum_stddev(self._checks_noise, bounds[1], self._groups, vault.missing)
            self._sum_noise = each / math.sqrt(plan.checks)
        self._queries, self._follows, self._lost = True, False, 0
        self._answer: Array | None = None  # (G, width), noised: the moments
        self._memberships: NumberMemberships | None = None
        self._posteriors: Posteriors | None = None
        self._counted: Array | None = None  # (G,), noised, by the sums themselves
        self._sizes: Array = np.ones(0)  # (G,), noised, by the memberships
        self._shift: Array = np.zeros((self.notion.count, self._groups))
        self._surprises: list[Array] = []  # (K, G): answer of each check less the membership estimate
        self._check_variances: list[Array] = []  # (K, G)
        self._lam: Array = np.zeros((self.notion.count, self._groups))
        self._history: list[dict[str, Any]] = []
        self._distilled: dict[str, Distillation] = {}
        self._rule: NumberRule | None = None  # as deployed

    # -- queries ------------------------------------------------------------------------------------------------

    def train(self, bar: Bar, *, start: Array | None = None, checkpoint: Checkpoint | None = None) -> Trained:
        """Release, solve; then check and solve again as often as the plan says."""
        if start is not None and start.T.shape == self._lam.shape:
            self._lam = start.T
        first = 0
        if checkpoint is not None and (saved := checkpoint.restore()) is not None:
            self._restore(saved.state, saved.lost)
            first = saved.position
        checks = self.plan.checks if self._queries else 0
        with bar(checks + 1, "dual") as shown:
            if self._answer is None:
                self._release_moments()
                self._save(checkpoint, 0)  # before memberships are fitted, which takes time
            if self._posteriors is None:
                self._fit_memberships()
                self._save(checkpoint, 1)
            for k in range(max(first - 1, 0), checks + 1):
                self._solve()
                self._record(k)
                if k < checks:
                    self._check()
                    self._save(checkpoint, k + 2)
                shown.update()
        return Trained(self._lam.T.copy(), self._history)

    def _save(self, checkpoint: Checkpoint | None, position: int) -> None:
        if checkpoint is not None:
            checkpoint.save(self._state(), self._lam.T.copy(), position)

    def _release_moments(self) -> None:
        """Sizes, if the plan has them, and the moments."""
        if self.plan.noise_sizes is not None:
            self.source.check_unchanged()
            check_sizes(self.vault, self.plan.noise_sizes, self.source.n)
        self.source.check_unchanged()
        self._answer = self.vault.group_sums(self._rows, bound=1.0, noise=self._moments_noise, purpose="moments")

    def _check(self) -> None:
        """Release the group sums of the current predictions, and compare them with the membership estimate."""
        if self._lost:  # paid for by a run that was interrupted
            self._lost -= 1
            return
        seen, factor = self._evaluate(), self.notion.factor
        rows = PredictionRows(self._prediction_rule(), seen.means)
        longest = max(self.notion.longest_row(seen.cells, seen.means), 1e-6)  # all predictions may be the same
        bound = self.source.max_weight * longest
        self.source.check_unchanged()
        answer = self.vault.group_sums(rows, bound=bound, noise=self._checks_noise, purpose="decisions")
        measured = factor.decoded(answer.T) / self._sizes + seen.means[:, None]
        each = sum_stddev(self._checks_noise, bound * self._each, self._groups, self.vault.missing)
        noise = each * factor.noise[:, None]
        self._surprises.append(measured - seen.rates)
        self._check_variances.append((noise / self._sizes) ** 2)
        self._variances = np.maximum(seen.variances, 1e-9)

    # -- solving ------------------------------------------------------------------------------------------------

    def _fit_memberships(self) -> None:
        """Soft memberships that agree with the moments."""
        assert self._answer is not None  # noqa: S101 - released before
        answer, n, step = self._answer, self.source.n, exact_sum_step(2.0 * self.source.n)
        total = self.source.run(ColumnSums(self._rows, step)) * step
        self._counted = self._rows.sizes(answer, total, n)
        chosen = np.arange(0, len(self.problem), math.ceil(len(self.problem) / FIT_ROWS))
        sample = self._rows(self._sample if len(chosen) == len(self.problem) else self._sample.take(chosen))
        ridge = ridges(answer, total, sample, self._rows.constants(), n, self._moments_stddev, self.plan.ridge)
        sums, bits = sums_of_all(answer, total, self.vault.missing), product_bits(n)

        def expected(weights: Array) -> Array:
            return self.source.run(ExpectedSums(self._rows, weights, bits)).astype(np.float64) * 4.0**-bits

        self._use(fit_to_all_rows(sample, sums, ridge=ridge, n=n, expected=expected))

    def _use(self, weights: Array) -> None:
        """Take the memberships with these weights as p(a | x, y) from now on."""
        self._memberships = NumberMemberships(self._rows, weights, self._groups)
        rule = PredictionRule(self._memberships, self.notion, self._lam, np.ones(self._groups), "")
        self._posteriors = Posteriors(self.m, rule.joint(self._sample), self._share)
        self._sizes = self._evaluate().sizes

    def _solve(self) -> None:
        """The multipliers, exactly; levels first follow the predictions."""
        if self.notion.power == 0 and self._queries and not self._surprises:
            self._lam = self._solution()
            f = self.predictions()
            levels = self.notion.refined(f, self._share, self.plan.levels)
            self._put_notion(levels)
        self._lam = self._solution()
        is_estimate = self.source.n > len(self.problem) or self.notion.reads_target
        if not self._queries and is_estimate:  # no check will say how far the posteriors of the sample are off
            self._evaluate()
            self._lam = self._solution()

    def _put_notion(self, notion: NumberNotion) -> None:
        """Other levels; their multipliers are those of the nearest ones before."""
        nearest = np.abs(self.notion.at - notion.at[:, None]).argmin(1)  # type: ignore[attr-defined]
        self.notion, self._lam, self._shift = notion, self._lam[nearest], self._shift[nearest]
        self._variances = np.full(notion.count, 0.25)

    def _solution(self) -> Array:
        start = self._lam if self._lam.any() else None
        return self.notion.solve(self._known(), self._added(), self.tolerance / self.unit, start)

    def _added(self) -> Array:
        """(K, G): what passes and checks have shown to be missing in the rates by the posteriors."""
        if not self._surprises:
            return self._shift
        # The prior standard deviation is the plan's for rates; values of other sizes have one in proportion.
        trust = self.plan.trust * 2 * np.sqrt(self._variances)[:, None]
        sampling = self._variances[:, None] / self._sizes
        noise = np.mean(self._check_variances, axis=0) / len(self._check_variances)
        weight = trust**2 / (trust**2 + noise + sampling * (noise > 0))
        found: Array = self._shift + weight * np.mean(self._surprises, axis=0)
        return found

    def _known(self) -> Posteriors:
        if self._posteriors is None:
            raise ValueError("expected moments to have been released, got none; call train first.")
        return self._posteriors

    def _prediction_rule(self) -> PredictionRule:
        """The current predictions, for any block."""
        assert self._memberships is not None  # noqa: S101 - known with the posteriors
        digest = hashlib.sha256()
        for array in (self._memberships.weights, self._lam, *self.notion.state().values()):
            digest.update(np.ascontiguousarray(array).tobytes())
        return PredictionRule(self._memberships, self.notion, self._lam, self._known().sizes, digest.hexdigest())

    def _evaluate(self) -> Evaluation:
        """A pass over all rows; how far the posteriors of the sample are off goes into the constraint."""
        step = exact_sum_step(2.0 * self.source.n * max(self.source.max_weight, 1e-300))
        sums = self.source.run(EvaluatePredictions(self._prediction_rule(), step)).astype(np.float64) * step
        found = Evaluation.from_sums(sums, self._groups, self.notion.count)
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
        return self.notion.predict(self.m, self.notion.mix(self._lam) @ self._columns().T)

    def scores(self) -> Array:
        """(n,): predictions of the sample in units of the target."""
        return self._unscaled(self.predictions())

    def deployed_scores(self) -> Array:
        """(n,): out-of-fold predictions with the correction as a function of x, in units of the target."""
        if self._rule is None or self._follows:
            return self.scores()
        return self._unscaled(self._rule.corrected(self.method.inputs.numbers, self.m))

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
            1.0, max(self.plan.least * self._usual, self.plan.dead_zone * self._stddev(self._variances))
        )

    def _stddev(self, variances: Array) -> float:
        """Standard error of the difference between the two least known groups, of values with these variances."""
        each = variances[:, None] / self._sizes + (self._sum_noise / self._sizes) ** 2
        return float(np.sqrt(np.sort(each, axis=1)[:, -2:].sum(1).max()))

    def violation_stddev(self) -> float:
        """Of the difference between the two least known groups."""
        return self.unit * self._stddev(self._variances)

    def gap_noise(self) -> float:
        """Noise of the difference between the two least known groups."""
        return self.unit * self._stddev(np.zeros(self.notion.count))

    def distance(self) -> float | None:
        """Largest noised difference between two groups' distributions of predictions, where these are alike."""
        if self.notion.power:
            return None
        gap = self.gap(self.deployed_scores())
        return None if gap is None else largest_gap(gap)

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
        return 1.0 if self.notion.power == 0 else max(2 * float(np.sqrt(self._variances.max())), 1e-6)

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
        few = -math.inf if self._moments_noise.is_exact else max(1.0, 2 * self._moments_stddev)
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

    def at(self, tolerance: float) -> Self:
        """A run on the same answers with this tolerance; it queries nothing."""
        follower = copy.copy(self)
        follower._given, follower._queries, follower._history = tolerance, False, []
        follower._rule, follower._follows = None, True
        return follower

    # -- deployment ---------------------------------------------------------------------------------------------

    def fitted(self) -> NumberRule:
        """The deployed model: the correction becomes functions of x, and memberships are dropped."""
        method, mix, c = self.method, self.notion.mix(self._lam), self._columns()
        corrections: tuple[Correction, ...] = ()
        read = mix @ c.T
        if np.abs(read).max(initial=0.0) > NOTHING:
            if "network" not in self._distilled:
                parts = [Part((1 - self.m, self.m), c)]
                distance = self.notion.distance(read)
                self._distilled["network"] = Distillation(method.inputs.numbers, self.m, parts, distance)
            corrections = tuple(self._distilled["network"].correction(one) for one in mix)
        self._rule = NumberRule(method.base, method.calibration, self.notion, corrections, method.bounds)
        return self._rule

    # -- record and checkpoint ----------------------------------------------------------------------------------

    def _record(self, k: int) -> None:
        """One row of the history: public loss and R2 out of fold, the noised gaps, the multipliers."""
        scores = self.scores()
        y = self._unscaled(self.problem.y.astype(np.float64))
        gap = self.gap(scores)
        self._history.append(
            {
                "round": k,
                "loss": float(self._share @ (y - scores) ** 2),
                "r2": self.r2(scores),
                "noisy_gap": None if gap is None else gap.tolist(),
                "violation_error": self.violation_stddev(),
                "multiplier": self._lam.T.tolist(),
            }
        )

    def _state(self) -> dict[str, Any]:
        """Noised answers, predictions of the base model and weights of the memberships; no memberships."""
        state: dict[str, Any] = {"m": self.m, "answer": self._answer, "history": self._history}
        if self._memberships is None:
            return state
        return state | {
            "weights": self._memberships.weights,
            "counted": self._counted,
            "notion": self.notion.state(),
            "shift": self._shift,
            "lam": self._lam,
            "variances": self._variances,
            "surprises": self._surprises,
            "check_variances": self._check_variances,
        }

    def _restore(self, state: dict[str, Any], lost: int) -> None:
        """Continue from noised answers; what was paid for and lost is not queried again.

        Raises
        ------
        ValueError
            If the answers are about the predictions of another base model.
        """
        if not np.allclose(state["m"], self.m, rtol=0.0, atol=SAME_BASE):
            raise ValueError(
                "expected the base that the checkpoint was begun with, got one with other predictions of the same "
                "rows; pass that base, or choose another folder."
            )
        self._lost, self._answer, self._history = lost, state["answer"], state["history"]
        if "weights" in state:
            self.notion = self.notion.restored(state["notion"])
            self._lam = state["lam"]
            self._use(state["weights"])
            self._counted, self._shift, self._variances = state["counted"], state["shift"], state["variances"]
            self._surprises, self._check_variances = state["surprises"], state["check_variances"]
