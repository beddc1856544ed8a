"""Post-processing of a target with classes: base model, noised sums of public rows, the dual, and noised checks.

The steps are those of :mod:`justitia.postprocessing.run`. Rows of the first release have features, label, and the base
model's score. With the base model's p(y | x) the memberships give p(a, y | x), and the best rule under the constraint
has a closed form whose unknowns are a few multipliers (:mod:`justitia.postprocessing.dual`).

The dual is solved on a sample that is held in memory: all rows of a table, or a public sample of rows in files. Passes
over all rows say how far rates of the sample are off, and that difference goes into the constraint too.

With ``at="scores"`` the constraint holds at T thresholds ("levels") for the same number of releases: a check releases
the decisions at all levels as one row per individual, and the dual is solved once per level.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.exceptions import Diagnostic, Notice
from justitia.goals import Goal, population_rates
from justitia.learners.base import Base, Inputs
from justitia.learners.calibration import AnyCalibration, calibrate_target, identity_calibration
from justitia.postprocessing.coin import Coin
from justitia.postprocessing.correction import (
    MOST_UNITS,
    NOTHING,
    UNITS,
    UNITS_EACH,
    ClassRule,
    Correction,
    Distillation,
    LearningTarget,
    Levels,
    Rule,
    levels_of,
    moved_classes,
    moved_probability,
)
from justitia.postprocessing.decisions import (
    DecisionRows,
    DecisionRule,
    EvaluateDecisions,
    Evaluation,
    Gains,
    centred_table,
    means_of_cells,
    rates_of_cells,
)
from justitia.postprocessing.dual import (
    DEFAULT_WORTH_PER_SHARE,
    MOST_WORTH,
    WORTH_PER_SHARE,
    Constraints,
    clip_to_decision_side,
    joint_of,
    reach,
    utilities,
)
from justitia.postprocessing.features import Layout, PublicRows, base_scores
from justitia.postprocessing.memberships import (
    Memberships,
)
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.prefix_sums import even_bounds
from justitia.postprocessing.price import FEW_TOLERANCES, FEWEST_TOLERANCES, TOLERANCES
from justitia.postprocessing.proxies import average_over_proxies
from justitia.postprocessing.run import LOUD, CorrectionRun, all_releases_stddev, digest_of, noise_warnings
from justitia.privacy.interface import Vault
from justitia.rows.source import Block
from justitia.training.diagnostics import (
    budget_diagnostics,
    cell_diagnostics,
    constant_accuracy,
    decided,
    missing_diagnostics,
    size_diagnostics,
    weighted_accuracy,
    worth_diagnostics,
)
from justitia.training.lagrangian import Problem
from justitia.training.method import ALL_ROWS, Bar, Method, Rows

Array = NDArray[np.float64]
#: Violations differ if they do by more than this and by so many standard deviations of the known noise.
SLACK, DEVIATIONS = 0.01, 3.0
#: Variance of the noise times the number of features, per row, up to which memberships have weights of their own for
#: each label.
FEW = 0.005
#: A tolerance that is raised for the sake of accuracy is found to this precision.
RAISED = 0.005
#: Of classes: an error in memberships of a label counts at least this share of the one that counts most.
LEAST_IMPORTANCE = 0.1


def default_tolerance(least: float, dead_zone: float, rates: Array, sizes: Array, sum_noise: float) -> float:
    """The tolerance where none is given: standard errors of the difference between the two least known groups.

    Parameters
    ----------
    rates : ndarray (K,)
        Of the population.
    sizes : ndarray (G, K)
        Of the groups.
    sum_noise : float
        Standard deviation of the noise in the sum of a group.
    """
    return min(1.0, max(least, dead_zone * rates_stddev(rates, sizes, sum_noise)))


def rates_stddev(rates: Array, sizes: Array, sum_noise: float) -> float:
    """Standard error, sampling and noise, of the difference between the two least known groups; as above."""
    rates = np.clip(rates, 0.0, 1.0)
    variance = rates * (1 - rates) / sizes + (sum_noise / sizes) ** 2
    return float(np.sqrt(np.sort(variance, axis=0)[-2:].sum(0).max()))


def check_weight(noise_variance: Array, sampling_variance: Array, prior_stddev: float) -> Array:
    """(G, K): weight of the checks against the membership estimate; 0 ignores them, 1 trusts them fully.

    The two are combined like a normal prior and a normal observation: the membership estimate is taken to be wrong by
    ``prior_stddev``, a check by its known noise and by the sampling error of its cell.
    """
    # Without the sampling term a cell of 20 rows is trusted fully where there is no noise, and multipliers run away.
    observed = noise_variance + sampling_variance
    prior = max(prior_stddev, math.sqrt(np.finfo(float).tiny)) ** 2
    weight: Array = np.where(observed > 0, prior / (prior + observed), 1.0)
    return weight


def threshold_for(margin: Array, weight: Array, share: float) -> float:
    """What margins have to exceed so that this share of rows is above it, to one row; equal margins stay together."""
    order = np.argsort(-margin, kind="stable")
    above = np.cumsum(weight[order])
    count = int(np.abs(np.concatenate([[0.0], above]) - share * above[-1]).argmin())
    if count == 0:
        return float(margin[order[0]]) + NOTHING
    if count == len(margin):
        return float(margin[order[-1]]) - NOTHING
    return float(margin[order[count - 1]] + margin[order[count]]) / 2


@dataclass(frozen=True, eq=False)
class CheckResult:
    """Multipliers and what a check measured of their decisions.

    Attributes
    ----------
    lam : ndarray (G, K)
    rates : ndarray (G, K)
        Noised.
    variance : ndarray (G, K)
        Of their known noise.
    quota : ndarray (D,)
        What every row paid for an action.
    raised : float
        The tolerance, if it was raised for the sake of accuracy.
    """

    lam: Array
    rates: Array
    variance: Array
    quota: Array = field(default_factory=lambda: np.zeros(1))
    raised: float = 0.0


def best_iterate(
    checks: Sequence[CheckResult],
    tolerance: float | Array,
    excess: Callable[[Array, Any], float] | None = None,
) -> int | None:
    """The check to go back to; None where the last one shows no more than the best, or than the tolerance.

    Each correction assumes that memberships are wrong about the next decisions as they were about the last ones. Where
    the features say little about a group that need not hold, and corrections may run away.

    Parameters
    ----------
    tolerance : float or ndarray (K,)
    excess : callable, optional
        How far (G, K) rates are beyond what this tolerance allows; by default largest differences beyond it.
    """
    if not checks:
        return None
    beyond = []
    for one in checks:
        largest = (np.ptp(one.rates, axis=0) - tolerance).max()
        beyond.append(float(largest) if excess is None else excess(one.rates, tolerance))
    best = int(np.argmin(beyond))
    # Of the difference between the two least known groups.
    stddev = float(np.sort(checks[-1].variance, axis=0)[-2:].sum(0).max() ** 0.5)
    return best if beyond[-1] - max(0.0, beyond[best]) > max(SLACK, DEVIATIONS * stddev) else None


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


class PostProcessingRun(CorrectionRun):
    """Closed-form dual on maximum-entropy memberships, and what is deployed of it.

    Parameters
    ----------
    plan : PostProcessingPlan
    problem : Problem
        The sample.
        Its source has all rows, with scores of the base model.
    vault : Vault
    eta : ndarray (n,) or (n, K)
        p(y = 1 | x), or probabilities of K classes, of the sample, by models that have not learned from the row.
    model : (Base, calibration, Inputs)
        The base model, its calibration, and the features of the sample.
    tolerance : float or ndarray (K,), optional
        Largest difference between two groups that is allowed, of each rate; None or NaN: the plan's ``dead_zone``
        standard errors.
    deployed : ndarray (n,), optional
        p(y = 1 | x) of the sample by the base that is deployed, for which a quota is exact.
    coin : Coin, optional
        For rows near the line between two decisions.

    Guarantee
    ---------
    * A enters only through ``group_sums`` of the vault: for sizes if the plan has them, once for the moments and once
      per check. Everything else here, a run that stops included, is a function of public data and of noised answers.
    """

    predictions_name = "eta"
    _deployed: Rule | ClassRule | None

    def __init__(
        self,
        plan: PostProcessingPlan,
        problem: Problem,
        vault: Vault,
        eta: Array,
        model: tuple[Base, Any, Inputs],
        tolerance: float | Array | None,
        deployed: Array | None = None,
        coin: Coin | None = None,
    ) -> None:
        sample = Block(0, problem.X.reshape(len(problem), -1), problem.codes, problem.weight, eta, proxy=problem.proxy)
        super().__init__(plan, problem, vault, sample, tolerance)
        self._coin = coin
        self._tossed: Array = np.zeros(len(eta)) if coin is None else coin(sample.X)  # what it adds to the line
        self._goal, self.model, self.eta, self._deployed_eta = problem.goal, model, eta, deployed
        self._table, source = self._goal.table, self.source
        self._n_rates = len(self._table.names)
        self.at_scores = plan.at == "scores"
        self._several = eta.ndim == 2  # more than two classes
        # Memberships have weights of their own for each label where there are many rows for the noise.
        columns, labels = math.prod(problem.X.shape[1:]), problem.task.n_classes
        many = self._moments_stddev**2 * columns * (labels / 2) <= FEW * source.n
        layout = Layout.for_noise(self._moments_stddev, source.n, blocks=many)
        self._rows = PublicRows.fit(base_scores, sample, blocks=many, labels=labels, layout=layout)
        if problem.proxy is not None:  # useless ones would only make memberships noisy
            self._optional = self._rows.proxies()
        self._constraints: Constraints | None = None
        self._silence: Array | None = None  # (Y, 2): share of "not given" by label, and its noise
        self._shift: Array = np.zeros(1)  # (T, G, K): rates of all rows less those of the sample, by the memberships
        self._checked: list[CheckResult] = []
        self._lams: Array = np.zeros((0, 0, 0))  # (T, G, K)
        self._quota: Array = np.zeros(self._table.values.shape[1] - 1)  # (D,): what every row pays for an action
        self._raised = 0.0  # the tolerance, if it was raised for the sake of accuracy
        self._default_tolerance, self._violation_stddev = 0.0, math.nan  # until sizes are known
        self._put_levels(
            levels_of(eta, problem.threshold, plan.levels) if self.at_scores else np.array([problem.threshold])
        )
        # Public invariants: rates of the base model's decisions, and the longest row of the moments and of a check.
        plain = decided(self._plain_scores())
        rates = population_rates(self._table, problem.codes, plain, problem.weight.astype(np.float64))
        self._population_rates = np.full_like(rates, 0.5) if self.at_scores else rates  # some level is near 0.5
        longest = float(np.linalg.norm(self._table.events, axis=1).max())
        if self._several:
            longest = float(np.linalg.norm(centred_table(self._table, rates[None]), axis=3).max())
        max_weight = source.max_weight * self._each * longest
        decoding = math.prod(even_bounds(len(self._levels))) if self.at_scores else 1.0
        longer = max_weight * max(1.0, decoding)  # with decoded noise
        self._sum_noise = all_releases_stddev(
            self._moments_noise, self._checks_noise, plan.checks, (max_weight, longer), self._groups, vault.missing
        )

    # -- checks -------------------------------------------------------------------------------------------------

    def _check_rows(self, evaluation: Evaluation) -> tuple[DecisionRows, float]:
        """Decisions less the means of the population, by label and action."""
        rows = DecisionRows(self._rule(), centred_table(self._table, evaluation.means))
        return rows, rows.longest(evaluation.cells)

    def _note_check(self, evaluation: Evaluation, measured: Array, variance: Array) -> None:  # noqa: ARG002 - numbers
        """Keep multipliers and rates, to which the run may go back."""
        if not self.at_scores:
            checked = CheckResult(self._lams[0], measured[0], variance[0], self._quota, self._raised)
            self._checked.append(checked)

    def _choose_multipliers(self, lam: Array) -> Array:
        """(G, K): the last multipliers, or those of an earlier check where corrections have run away since."""
        back = best_iterate(self._checked, self.tolerances, self._goal.excess)
        if back is None:
            return lam
        self._surprises, self._variances = [self._surprises[back]], [self._variances[back]]
        lam, self._quota, self._raised = (getattr(self._checked[back], name) for name in ("lam", "quota", "raised"))
        self._lams, self._checked = lam[None], []
        self._evaluate()
        last = self._history.pop()  # the last row is about what is deployed
        self._record(last["round"], lam)
        return lam

    # -- solving ------------------------------------------------------------------------------------------------

    def _count(self, answer: Array, total: Array) -> Array:
        """(G,): sizes of the groups by the moments; and how many have not given the attribute, by label."""
        n = self.source.n
        if self.vault.missing != "none":
            self._silence = self._rows.silence(answer, total, self._moments_stddev, n)
        counted: Array = self._rows.sizes(answer, total, n).sum(1)
        return counted

    def _use(self, weights: Array) -> None:
        """Take the memberships with these weights as p(a | x, y) from now on."""
        made = Memberships(self._rows, weights, self._groups)
        # Not where the noised sums do not show that proxies say something.
        if self._optional is not None and weights[:, self._optional].any():
            all_rows = self.source.n == len(self.problem)
            self._memberships, q = average_over_proxies(made, self._sample, all_rows=all_rows)
        else:
            self._memberships, q = made, made.by_label(self._sample)
        joint = self._joint(q)
        self._constraints = Constraints.from_table(self._table, joint, self.problem.weight.astype(np.float64))
        self._lams = np.zeros((len(self._levels), *self._constraints.b.shape))
        own = self._pass(EvaluateDecisions)[0][:, :, self._groups : 2 * self._groups].sum(1)  # (S Y, G)
        self._sizes = np.maximum(own.T @ self._table.events, 1.0)
        known = self._population_rates, self._sizes, self._sum_noise
        self._violation_stddev = rates_stddev(*known)
        # Of classes the largest of many differences is compared, which chance makes larger than one of them.
        several = math.sqrt(math.log(2 * len(self._table.names)) / math.log(2)) if self._several else 1.0
        self._default_tolerance = default_tolerance(self.plan.least, several * self.plan.dead_zone, *known)
        self._shift = np.zeros_like(self._lams)

    def _joint(self, q: Array) -> Array:
        """(S Y, n, G): p(a, y | x) of the sample; rows of a stratum have its labels only."""
        joint, labels = joint_of(self.eta, q), self.problem.task.n_classes
        count = len(self._table.events) // labels
        if count == 1:
            return joint
        stratum = self.problem.codes.astype(np.int64) // labels
        return np.concatenate([joint * (stratum == s)[:, None] for s in range(count)])

    def _solve(self, lam: Array) -> Array:
        """(G, K): the multipliers, exactly; those where decisions are made."""
        if self.at_scores and not self._lams.any() and not self._surprises:
            # Quantiles of eta say where to look; quantiles of the corrected score are then evenly spaced.
            self._lams = self._solutions(lam)
            self._put_levels(levels_of(self._probability(), self.problem.threshold, self.plan.levels))
        self._raised = 0.0
        self._lams = self._solutions(lam)
        sample_only = self.source.n == len(self.problem) or self._on_sample
        if not self._queries and not sample_only:  # no check will say how far the sample is off
            self._evaluate()
            self._lams = self._solutions(lam)
        if self._spares_accuracy():
            self._raise_tolerance(lam)
        decides: Array = self._lams[self._decides]
        return decides.copy()

    def _solutions(self, lam: Array) -> Array:
        """(T, G, K): multipliers at all levels, each from a solution nearby.

        Of more than two classes no rate is held to less than the known noise of its differences: in small cells noise
        would be corrected at the cost of accuracy, and nothing would be more alike on other rows.
        """
        found: list[Array] = []
        tolerances = self.tolerances
        if self._several:
            known = np.sort((self._sum_noise / self._sizes) ** 2, axis=0)[-2:].sum(0) ** 0.5
            tolerances = np.minimum(np.maximum(tolerances, known), 1.0)
        for t, gain in enumerate(Gains(self._levels, self.problem.costs)(self.eta) - self._tossed[:, None]):
            start = self._lams[t] if self.at_scores and self._lams.any() else found[-1] if found else lam
            start = start if start.any() else None
            solved = reach(self._goal, gain, self._constraint(t), tolerances, start, worth=self._worth())
            found.append(solved.lam)
            self._quota = solved.quota
        return np.stack(found)

    def _worth(self) -> float | Array:
        """Beyond which multipliers are held back: few rows cannot be worth the accuracy of all."""
        sizes = self._estimated().sizes
        if not (self._several or self._limit_is_default):
            return MOST_WORTH
        worth: Array = WORTH_PER_SHARE * sizes.min(0) if self._several else DEFAULT_WORTH_PER_SHARE * sizes
        return np.minimum(worth, MOST_WORTH)

    def _is_held_back(self) -> bool:
        """Whether a multiplier of a default tolerance is beyond what is worth it."""
        return self._limit_is_default and not self._several and bool((np.abs(self._lams) > self._worth()).any())

    @property
    def _limit_is_default(self) -> bool:
        """Whether neither a tolerance nor a ratio was given."""
        return self._goal.ratio is None and (self._given is None or bool(np.isnan(self._given).all()))

    def _spares_accuracy(self) -> bool:
        """Whether the correction may cost little accuracy only: by noised and public numbers.

        No tolerance was given, and the budget is small or the noise of differences exceeds what is to be corrected.
        """
        if not self._limit_is_default:
            return False
        if self.plan.small_budget:
            return True
        violation, allowed = self.worst(self._plain_scores()) or (0.0, 0.0)
        return violation - allowed < self.gap_noise()

    def _raise_tolerance(self, lam: Array) -> None:
        """Raise the default tolerance until the correction costs at most ``most_lost`` and one decision is no better.

        Accuracy is known exactly: labels and decisions out of fold are public.
        """
        corrected, quota = self._lams, self._quota
        here = self._accuracy()
        low, high = self.tolerance, 1.0
        self._raised = high
        self._lams = self._solutions(lam)  # without a correction
        free, constant = self._accuracy(), constant_accuracy(self.problem, self._plain_scores())
        least = min(free, max(free - self.plan.most_lost, constant))
        if here >= least:
            self._raised, self._lams, self._quota = 0.0, corrected, quota
            return
        kept = self._lams, self._quota
        while high - low > RAISED:
            self._raised = (low + high) / 2
            self._lams = self._solutions(lam)
            if self._accuracy() >= least:
                high, kept = self._raised, (self._lams, self._quota)
            else:
                low = self._raised
        self._raised, (self._lams, self._quota) = high, kept

    def _accuracy(self) -> float:
        """Of the current decisions about the sample, out of fold."""
        return weighted_accuracy(self.problem, self.scores())

    def _constraint(self, t: int) -> Constraints:
        """The constraint at level t, with what passes and checks have shown."""
        used = self._estimated()
        b = used.b + (self._shift[t] if len(self._shift) > t else 0.0)
        if self._surprises:
            noise = np.mean(self._variances, axis=0)[t] / len(self._variances)
            weight = check_weight(noise, self._sampling_variance(), self.plan.trust)
            b = b + weight * np.mean(self._surprises, axis=0)[t]
        return used.with_b(b)

    def _sampling_variance(self) -> Array:
        """(G, K): of rates of the rows in each cell, which further checks do not make smaller."""
        rates: Array = np.clip(self._population_rates, 0.0, 1.0)
        return rates * (1 - rates) / self._sizes

    def _estimated(self) -> Constraints:
        if self._constraints is None:
            raise ValueError("expected moments to have been released, got none; call train first.")
        return self._constraints

    def _rule(self) -> DecisionRule:
        """The current decisions, for any block."""
        assert self._memberships is not None  # noqa: S101 - known with the constraints
        prices = np.stack([self._prices(lam) for lam in self._lams])
        digest = digest_of((self._memberships.weights, prices, self._levels, self._quota))
        gains = Gains(self._levels, self.problem.costs)
        return DecisionRule(self._memberships, prices, gains, self._quota, digest, self._coin)

    def _prices(self, lam: Array) -> Array:
        """(S Y, G, D): what p(a, y | x) is multiplied by in the correction."""
        used = self._estimated()
        prices: Array = np.einsum("yk,ydk,ak->yad", used.events, used.change, lam / used.sizes)
        return prices

    def _evaluate(self) -> Evaluation:
        """Rates (T, G, K) by the memberships, means (T, K) and cells (T, S Y, L) of the current decisions; a pass.

        How far the sample is off goes into the constraint.
        """
        evaluated = self._pass(EvaluateDecisions)
        rates, cells = rates_of_cells(self._table, evaluated[..., : self._groups]), evaluated[..., -1]
        self._shift = rates - np.stack([self._estimated().rates(one) for one in self._decisions(self.scores())])
        return Evaluation(rates, means_of_cells(self._table, cells), cells)

    def _put_levels(self, levels: Array) -> None:
        """Other levels; their multipliers are those of the nearest ones before."""
        if len(self._lams):
            nearest = np.abs(self._levels - levels[:, None]).argmin(1)
            self._lams, self._shift = self._lams[nearest], self._shift[nearest]
        self._levels: Array = levels
        self._decides = int(np.abs(levels - self.problem.threshold).argmin())

    # -- estimates ----------------------------------------------------------------------------------------------

    def _multiplied(self) -> Array:
        """(n, G K): the c that multipliers multiply; where these add up to 0, less what groups have in common."""
        c = self._estimated().c
        if self._goal.ratio is not None or self._goal.is_fraction:  # groups are held to a common value
            return c.reshape(len(c), -1)
        return (c - c.mean(1)[:, None]).reshape(len(c), -1)  # type: ignore[no-any-return]

    def _probability(self) -> Array:
        """(n,): the corrected score of the sample, with ``at="scores"``."""
        lams = self._lams.reshape(len(self._lams), -1)
        return moved_probability(2 * (self.eta - self._levels[:, None]) - lams @ self._multiplied().T, self._levels)

    def scores(self) -> Array:
        """(n,) scores of the sample, positive is a positive decision; of classes (n, K), the largest decides."""
        if self._several:
            margin = utilities(self.eta, self.problem.costs)
            margin[:, 1:] -= self._estimated().correction(self._lams[0]) + self._quota
            return margin
        if self.at_scores:
            return (2 * (self._probability() - self.problem.threshold)).astype(self.problem.y.dtype)
        margin = 2 * (self.eta - self.problem.threshold)
        corrected = margin - self._estimated().correction(self._lams[0]) - self._quota[0] - self._tossed
        return clip_to_decision_side(margin, corrected).astype(self.problem.y.dtype)

    def _plain_scores(self) -> Array:
        """Scores of the base model's own decisions."""
        if self._several:
            return utilities(self.eta, self.problem.costs)
        return 2 * (self.eta - self.problem.threshold)

    def _decisions(self, scores: Array) -> NDArray[np.int64]:
        """(T, n): actions at every level."""
        if self._several:
            return decided(scores)[None]
        return (scores > 2 * (self._levels[:, None] - self.problem.threshold)).astype(np.int64)

    def gap(self, scores: Array, rows: Rows = ALL_ROWS) -> Array | None:  # noqa: ARG002 - all scores are out of fold
        """(G, K): rates of the decisions by the memberships and all checks so far, less those of the population."""
        if self._constraints is None:
            return None
        actions, problem = decided(scores), self.problem
        population = population_rates(self._table, problem.codes, actions, problem.weight.astype(np.float64))
        found: Array = self._constraint(self._decides).rates(actions) - population
        return found

    def worst(self, scores: Array, rows: Rows = ALL_ROWS) -> tuple[float, float] | None:  # noqa: ARG002 - as above
        """The noised violation that is farthest beyond what is allowed, and what is allowed."""
        if self._constraints is None:
            return None
        violations = self._goal.violations(self._constraint(self._decides).rates(decided(scores)))
        allowed = self._goal.allowed(self.tolerances)
        k = int((violations - allowed).argmax())
        return float(violations[k]), float(allowed[k])

    @property
    def tolerance(self) -> float:
        """The largest of the tolerances."""
        return float(self.tolerances.max())

    @property
    def tolerances(self) -> Array:
        """(K,): those that were given, or ``dead_zone`` standard errors; more where that spares accuracy."""
        given = np.full(len(self._table.names), np.nan) if self._given is None else self._given
        given = np.broadcast_to(np.asarray(given, dtype=np.float64), (len(self._table.names),))
        missing = np.isnan(given)
        if not missing.any():
            return given
        return np.where(missing, max(self._default_tolerance, self._raised), given)

    def violation_stddev(self) -> float:
        """Of the difference between the two least known groups."""
        return self._violation_stddev

    def gap_noise(self) -> float:
        """Noise of the difference between the two least known groups; all decisions are out of fold."""
        return rates_stddev(np.zeros(self._sizes.shape[1]), self._sizes, self._sum_noise)

    def distance(self) -> float | None:
        """Largest noised difference over all levels, with ``at="scores"``: that of the scores' distributions."""
        if not self.at_scores:
            return None
        rates = [self._constraint(t).rates(one) for t, one in enumerate(self._decisions(self.deployed_scores()))]
        return float(max(np.ptp(one, axis=0).max() for one in rates))

    # -- the price list -----------------------------------------------------------------------------------------

    def priced_tolerances(self) -> tuple[float, ...]:
        """Fewer where a point is a problem for every level or action, or a search; none with a ratio."""
        if self._goal.ratio is not None:
            return ()
        if self._goal.is_fraction:  # a search would find prices, however small, where the base is within the tolerance
            most, _ = self.estimated_violation(self.base_scores())
            return tuple(one for one in FEWEST_TOLERANCES if one < most)
        return FEW_TOLERANCES if self.at_scores or self._several else TOLERANCES

    def tolerances_at(self, tolerance: float) -> Array:
        """(K,): with tolerances of their own, rates keep the proportions between these; this one is the largest."""
        given = self.tolerances
        if given.min() == given.max():
            return np.full(len(given), tolerance)
        found: Array = given * (tolerance / given.max())
        return found

    @property
    def listed_tolerance(self) -> float:
        """NaN with a ratio."""
        return self.tolerance if self._goal.ratio is None else math.nan

    @property
    def corrects(self) -> bool:
        """Whether anything is corrected, for groups or for a quota."""
        return bool(self._lams.any() or self._quota.any())

    def quality(self, scores: Array) -> dict[str, float]:
        """Accuracy and, of two classes, AUC and the share of positive decisions."""
        weight = self.problem.weight
        found = self.public_scores(scores, ALL_ROWS)
        if self._several:
            return {"accuracy": found["accuracy"]}
        return found | {"positive_rate": float(np.average(decided(scores), weights=weight.astype(np.float64)))}

    def estimated_violation(self, scores: Array) -> tuple[float, float]:
        """The one that is farthest beyond what is allowed; with ``at="scores"`` the largest at any level."""
        found = []
        allowed = self._goal.allowed(self.tolerances)
        for t, actions in enumerate(self._decisions(scores)):
            known = self._estimated()
            checked = self._goal.violations(self._constraint(t).rates(actions))
            unchecked = self._goal.violations(known.with_b(known.b + self._shift[t]).rates(actions))
            k = int((checked - allowed).argmax())
            found.append((float(checked[k]), float(unchecked[k])))
        return max(found)

    def distance_between(self, scores: Array, others: Array) -> float:
        """Share of rows with other decisions; with ``at="scores"`` of decisions at all levels."""
        return float((self._decisions(scores) != self._decisions(others)).mean())

    def preflight(self) -> list[Diagnostic]:
        """Whether even groups of equal sizes are too small for the noise."""
        codes, weight = self.problem.codes.astype(np.int64), self.problem.weight.astype(np.float64)
        rows = (weight @ self._table.events[codes]) * self.source.n / len(self.problem)
        size = float(rows[rows > 0].min() / self._groups)
        return noise_warnings(size, self._sum_noise / size, self._least_given)

    @property
    def _least_given(self) -> float:
        """The largest tolerance that was given; 0 where none was."""
        return 0.0 if self._given is None else float(np.nan_to_num(self._given).max())

    def diagnostics(self) -> list[Diagnostic]:
        """Missing attributes that differ by label, small cells, groups that may not exist, and noisy rates."""
        if self._counted is None:
            return []
        a, k = divmod(int(self._sizes.argmin()), self._sizes.shape[1])
        cell = f"group {self.vault.group_names[a]!r}"
        cell += f" and {self._table.names[k]!r}" if self._sizes.shape[1] > 1 else ""
        smallest, given = float(self._sizes[a, k]), self._given is not None
        found = missing_diagnostics(self._silence)
        gap, _ = self.worst(self.deployed_scores()) or (0.0, 0.0)
        if self._raised and gap > self._default_tolerance:
            found += budget_diagnostics(self.plan.most_lost, self._raised, gap, self.violation_stddev())
        elif self._is_held_back() and gap > self._default_tolerance + SLACK:
            found += worth_diagnostics(DEFAULT_WORTH_PER_SHARE, gap, self.violation_stddev())
        found += cell_diagnostics(smallest, cell, self.tolerance, self.violation_stddev(), given=given)
        if self._coin is not None:
            found.append(self._coin_notice(self._coin.width))
        noise, loud = (self._sum_noise / self._sizes).max(1), max(self._least_given, LOUD)
        return found + size_diagnostics(self.vault.group_names, self._counted, noise, self._few, loud)

    def _coin_notice(self, width: float) -> Notice:
        """How many decisions follow the coin: a public number, as the correction is by now."""
        margin = 2 * (self.eta - self.problem.threshold) - self._estimated().correction(self._lams[0])
        share = float(np.average(np.abs(margin) < width, weights=self.problem.weight.astype(np.float64)))
        return Notice(
            f"about {share:.1%} of decisions follow a public coin (randomize={width:g}): those of rows near the line; "
            "the same row always gets the same decision."
        )

    # -- deployment ---------------------------------------------------------------------------------------------

    def fitted(self) -> Rule | ClassRule:
        """The deployed model: the correction becomes a function of x, and memberships are dropped."""
        self._deployed = self._class_rule() if self._several else self._binary_rule()
        if isinstance(self._deployed, Rule) and self._goal.quota is not None:
            self._deployed = self._at_quota(self._deployed, float(self._goal.quota[0]))
        return self._deployed

    def _binary_rule(self) -> Rule:
        base, calibration, inputs = self.model
        threshold, c, lams = self.problem.threshold, self._multiplied(), self._lams.reshape(len(self._lams), -1)
        largest = lams[int(np.abs(lams).sum(1).argmax())]
        if np.abs(c @ largest).max(initial=0.0) <= NOTHING:
            return Rule(base, calibration, Correction(), threshold, coin=self._coin)
        if "network" not in self._distilled:
            # Rows near the line are learned best; with many levels each row is near one of the lines.
            margin = c @ largest if self.at_scores else 2 * (self.eta - threshold) - self._quota[0]
            self._distilled["network"] = Distillation.of_two_classes(inputs.numbers, self.eta, c, largest, margin)
        network = self._distilled["network"]
        if not self.at_scores:
            return Rule(base, calibration, network.correction(lams[0]), threshold, coin=self._coin)
        levels = Levels(self._levels, network.corrections(lams))
        return Rule(base, calibration, levels.corrections[self._decides], threshold, levels)

    def _at_quota(self, rule: Rule, share: float) -> Rule:
        """Move the correction by a constant, so that this share of the training rows is decided for."""
        inputs, weight = self.model[2], self.problem.weight.astype(np.float64)
        eta = rule.base_probability(inputs) if self._deployed_eta is None else self._deployed_eta
        margin = 2 * (eta - rule.threshold) - rule.correction(inputs.numbers, eta)
        price = threshold_for(margin, weight, share)
        return Rule(rule.base, rule.calibration, rule.correction.plus(price, inputs.numbers.shape[1]), rule.threshold)

    def _class_rule(self) -> ClassRule:
        base, calibration, _ = self.model
        used, prices = self._estimated(), self._prices(self._lams[0])
        quota = None if self._goal.quota is None else self._quota
        if np.abs(used.correction(self._lams[0])).max(initial=0.0) <= NOTHING:
            return ClassRule(base, calibration, Correction(), self.problem.costs, quota)
        labels = self.problem.task.n_classes
        kinds, kind = used.kinds
        own = [np.unique(np.flatnonzero(kind == j) % labels) for j in range(len(kinds))]
        if "network" not in self._distilled:
            self._distilled["network"] = self._distil_classes(own, prices[kinds])
        parts_of_label = [[j for j, ys in enumerate(own) if y in ys] for y in range(labels)]
        correction = self._distilled["network"].class_correction(list(prices[kinds]), parts_of_label)
        return ClassRule(base, calibration, correction, self.problem.costs, quota)

    def _distil_classes(self, own: list[NDArray[np.int64]], prices: Array) -> Distillation:
        """Learn the memberships, one part for the labels that the rates do not tell apart.

        Parameters
        ----------
        own : list of ndarray
            Labels of each part.
        prices : ndarray (Y', G, D)
            What memberships of each part are multiplied by: those that matter more are learned better.
        """
        columns = np.split(self._estimated().merged[0], len(own), axis=1)
        worth = np.array(
            [
                np.abs(one - one.mean(0)).mean(0) @ np.abs(price).max(1)
                for one, price in zip(columns, prices, strict=True)
            ]
        )
        parts = []
        for labels, target, share in zip(own, columns, worth / worth.max(), strict=True):
            total = self.eta[:, labels].sum(1)
            parts.append(LearningTarget((total,), target, total, max(float(share), LEAST_IMPORTANCE)))
        top = np.sort(self.scores(), axis=1)
        units = int(np.clip(UNITS_EACH * len(own) * (self._groups - 1), UNITS, MOST_UNITS))
        return Distillation(self.model[2].numbers, self.eta, parts, top[:, -1] - top[:, -2], units)

    def deployed_scores(self) -> Array:
        """(n,), or (n, K): out-of-fold margin less the correction as a function of x."""
        numbers, rule, threshold = self.model[2].numbers, self._deployed, self.problem.threshold
        if rule is None or self._follows:
            return self.scores()
        if isinstance(rule, ClassRule):
            return rule.margin_of(numbers, self.eta)
        if rule.levels is not None:
            found = 2 * (rule.levels.probability(numbers, self.eta) - threshold)
        else:
            found = rule.corrected(numbers, self.eta)
        return found.astype(self.problem.y.dtype)

    def base_scores(self) -> Array:
        """(n,), or (n, K): out-of-fold margin of the base model."""
        return self._plain_scores().astype(self.problem.y.dtype)

    # -- record and checkpoint ----------------------------------------------------------------------------------
    def _loss(self, scores: Array) -> float:
        """Mean negative log-likelihood of the labels, with probabilities that the correction has moved."""
        problem = self.problem
        if self._several:
            p = moved_classes(self.eta, scores, problem.costs)[np.arange(len(problem)), problem.y.astype(np.int64)]
            loss = -np.log(np.clip(p, 1e-6, 1.0))
        else:
            p = np.clip(problem.threshold + scores.astype(np.float64) / 2, 1e-6, 1 - 1e-6)
            loss = -np.log(np.where(problem.y > 0.5, p, 1 - p))
        return float(np.average(loss, weights=problem.weight.astype(np.float64)))

    def _solved_state(self) -> dict[str, Any]:
        return {
            "silence": self._silence,
            "shift": self._shift,
            "levels": self._levels,
            "lams": self._lams,
            "quota": self._quota,
            "variances": self._variances,
            "checked": [
                {"lam": one.lam, "rates": one.rates, "variance": one.variance, "quota": one.quota}
                for one in self._checked
            ],
        }

    def _restore_solved(self, state: dict[str, Any]) -> None:
        self._use(state["weights"])
        self._silence, self._shift, self._variances = state["silence"], state["shift"], state["variances"]
        self._levels, self._lams, self._quota = state["levels"], state["lams"], state["quota"]
        self._decides = int(np.abs(self._levels - self.problem.threshold).argmin())
        self._checked = [CheckResult(**one) for one in state["checked"]]
