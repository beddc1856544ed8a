"""The run of the default engine, for every target: release, solve, then check and solve again.

0. If the plan has it, a small first release: sizes of the groups. A run that they show cannot work stops here.
1. One release: the sums of public rows over each group. Soft memberships p(a | x, y) of maximum entropy agree with them
   (:mod:`justitia.postprocessing.memberships`).
2. Multipliers of the constraint, in closed form.
3. Each check releases the group sums of the current decisions or predictions. The difference between the answer and the
   membership estimate, weighted by its known noise, goes into the constraint, and the multipliers are solved for again.

A target says what its rows are, how multipliers are found and what follows from them:
``postprocessing/solver.py`` for classes and ``postprocessing/regression.py`` for a number.
"""

from __future__ import annotations

import copy
import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.exceptions import Diagnostic, NoisyEstimateWarning
from justitia.postprocessing.association import association_table
from justitia.postprocessing.correction import Distillation
from justitia.postprocessing.decisions import ColumnSums, Ones
from justitia.postprocessing.memberships import (
    FIT_ROWS,
    ExpectedSums,
    fit_to_all_rows,
    product_bits,
    ridges,
)
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.price import PricedPoints
from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Mechanism
from justitia.privacy.noise_grid import exact_sum_step
from justitia.rows.source import Block, Pass
from justitia.training.checkpoint import Checkpoint
from justitia.training.lagrangian import Problem
from justitia.training.method import ALL_ROWS, AnswersRefuse, Bar, Run, Trained
from justitia.training.plan import calibrated

Array = NDArray[np.float64]
#: Noise in a group's rate that is worth a warning, whatever the tolerance.
LOUD = 0.05
#: Sizes are judged where all rows, or the mean of a group, are so many standard deviations of their noise.
TELLING = 8.0
#: All groups together are empty if their noised sizes add up to less than so many standard deviations.
NOBODY = 3.0
#: A group is too small to be compared if its noised size is at most so many: an empty one is noticed 98 times in 100,
#: one of four standard deviations is stopped for it twice in 100 times, one of five about once in 1,000.
EMPTY = 2.0
GO_ON = "or pass --small-groups (in Python, share_sizes=0) to train anyway"
#: Probabilities of one base model differ by less, whatever machine they were computed on.
SAME_BASE = 1e-4


def digest_of(arrays: Iterable[NDArray[Any]]) -> str:
    """A name of these arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def sum_stddev(noise: Mechanism, bound: float, n_groups: int, missing: str = "allowed") -> float:
    """Standard deviation of the noise in a group's sum, after the projection onto the public total.

    The sums of all groups and of "not given" add up to it; with ``missing="none"`` those of the groups alone.
    """
    return noise.stddev(math.sqrt(2) * bound) * math.sqrt(1 - 1 / (n_groups + (missing != "none")))


def all_releases_stddev(
    moments: Mechanism,
    checks: Mechanism,
    count: int,
    bounds: tuple[float, float],
    n_groups: int,
    missing: str = "allowed",
) -> float:
    """Standard deviation of the noise in a group's sum if moments and checks were one release; at most.

    Parameters
    ----------
    count : int
        Number of checks.
    bounds : (float, float)
        Norms of the rows of the moments and of a check.
    """
    if moments.is_exact:
        return 0.0
    precision = sum_stddev(moments, bounds[0], n_groups, missing) ** -2
    if count:
        precision += count * sum_stddev(checks, bounds[1], n_groups, missing) ** -2
    return 1 / math.sqrt(precision)


def noise_warnings(size: float, noise: float, tolerance: float) -> list[Diagnostic]:
    """A sentence if groups of this size are too small for this noise in their rates."""
    if noise <= max(tolerance, LOUD):
        return []
    sentence = (
        f"with this budget and groups of about {size:.0f} the noise in a group's rate is about {noise:.2g}, "
        "and no smaller violation can be held; raise epsilon, or compare fewer groups."
    )
    return [Diagnostic(sentence, NoisyEstimateWarning)]


def refusal(sizes: NDArray[np.float64], stddev: float, n: int, names: Sequence[str]) -> str | None:
    """Why a run with these groups cannot work; None if nothing speaks against it.

    Parameters
    ----------
    sizes : ndarray (G,)
        Noised.
    stddev : float
        Known standard deviation of each.
    n : int
        Rows, public.
    """
    total = float(sizes.sum())
    if n >= TELLING * stddev and total <= min(NOBODY * stddev, n / TELLING):
        return (
            f"the noised sizes of all {len(sizes)} groups add up to about {max(total, 0):.0f} of {n:,} rows; "
            f"check the names of the groups, where capital letters count, {GO_ON}."
        )
    empty = [name for name, size in zip(names, sizes, strict=True) if size <= EMPTY * stddev]
    if n < TELLING * stddev * len(sizes) or not empty:
        return None
    listed = ", ".join(repr(name) for name in empty[:3]) + (", ..." if len(empty) > 3 else "")
    return (
        f"{len(empty)} of {len(sizes)} groups ({listed}) have a noised size of at most {EMPTY * stddev:.0f} "
        f"rows; merge them with others (--bins cuts a number), correct or leave out their names, {GO_ON}."
    )


def check_sizes(vault: Vault, noise: Mechanism, n: int) -> None:
    """Release noised sizes of the groups, and stop by them alone before more is spent.

    Raises
    ------
    AnswersRefuse
        If they show that the run cannot work.
    """
    answer = vault.group_sums(Ones(), bound=1.0, noise=noise, purpose="sizes")[:, 0]
    stddev = sum_stddev(noise, float(vault.rows_per_person), vault.n_groups, vault.missing)
    sentence = refusal(answer, stddev, n, vault.group_names)
    if sentence is not None:
        raise AnswersRefuse(sentence)


class CorrectionRun(Run):
    """What runs of every target share: their queries, the loop of solving and checking, the record, the checkpoint.

    Parameters
    ----------
    plan : PostProcessingPlan
    problem : Problem
        The sample. Its source has all rows, with scores of the base model.
    vault : Vault
    sample : Block
        The sample as a block, with predictions by models that have not learned from the row.
    tolerance : float or ndarray (K,), optional
        Largest difference between two groups that is allowed.

    Guarantee
    ---------
    * A enters only through ``group_sums`` of the vault: for sizes if the plan has them, once for the moments and once
      per check. Everything else here, a run that stops included, is a function of public data and of noised answers.
    """

    #: What predictions of the base model are called in a checkpoint.
    predictions_name: ClassVar[str]
    _lams: Array  # of all levels or rates

    def __init__(self, plan: PostProcessingPlan, problem: Problem, vault: Vault, sample: Block, tolerance: Any) -> None:
        self.plan, self.problem, self.source, self.vault = plan, problem, problem.source, vault
        self._sample, self._given = sample, tolerance
        self._groups, self._each = vault.n_groups, float(vault.rows_per_person)
        self._moments_noise, self._checks_noise = calibrated(plan.noise_moments), calibrated(plan.noise_checks)
        self._moments_stddev = sum_stddev(self._moments_noise, self._each, self._groups, vault.missing)
        #: Noised number of rows up to which a group may not exist.
        self._few = -math.inf if self._moments_noise.is_exact else max(1.0, 2 * self._moments_stddev)
        self._queries, self._follows, self._lost = True, False, 0  # a run of a curve follows and makes no queries
        self._rows: Any = None  # row function of the moments
        #: (width,): columns of the moments that memberships leave out where noise may explain their sums.
        self._optional: NDArray[np.bool_] | None = None
        self._n_rates = 0  # K
        self._answer: Array | None = None  # (G, width), noised: the moments
        self._total: Array | None = None  # (width,), public: the same sums over all rows
        self._memberships: Any = None
        self._counted: Array | None = None  # (G,), noised, by the sums themselves
        self._sizes: Array = np.ones((0, 0))  # (G, ...), noised, by the memberships
        self._surprises: list[Array] = []  # answer of each check less the membership estimate
        self._variances: list[Array] = []  # of their known noise
        self._history: list[dict[str, Any]] = []
        self._distilled: dict[str, Distillation] = {}  # shared by the runs of a curve
        self._deployed: Any = None
        self._on_sample = False  # a point of the price list makes no pass over the other rows
        self._points: PricedPoints | None = None  # of the price list, shared by the runs of a curve

    # -- queries ------------------------------------------------------------------------------------------------

    def train(self, bar: Bar, *, start: Array | None = None, checkpoint: Checkpoint | None = None) -> Trained:
        """Release, solve; then check and solve again as often as the plan says."""
        lam = np.zeros((self._groups, self._n_rates)) if start is None else start
        first = 0
        if checkpoint is not None and (saved := checkpoint.restore()) is not None:
            self._restore(saved.state, saved.lost)
            lam, first = saved.lam, saved.position
        checks = self.plan.checks if self._queries else 0
        with bar(checks + 1, "dual") as shown:
            if self._answer is None:
                self._release_moments()
                if checkpoint is not None:  # before memberships are fitted, which takes time
                    checkpoint.save(self._state(), lam, 0)
            if self._memberships is None:
                self._fit_memberships()
                if checkpoint is not None:
                    checkpoint.save(self._state(), lam, 1)
            for k in range(max(first - 1, 0), checks + 1):
                lam = self._solve(lam)
                self._record(k, lam)
                if k < checks:
                    self._check()
                    if checkpoint is not None:
                        checkpoint.save(self._state(), lam, k + 2)
                shown.update()
            if self._queries:
                lam = self._choose_multipliers(lam)
        return Trained(lam, self._history)

    def _release_moments(self) -> None:
        """Sizes, if the plan has them, and the moments."""
        if self.plan.noise_sizes is not None:
            self.source.check_unchanged()
            check_sizes(self.vault, self.plan.noise_sizes, self.source.n)
        self.source.check_unchanged()
        self._answer = self.vault.group_sums(self._rows, bound=1.0, noise=self._moments_noise, purpose="moments")

    def _fit_memberships(self) -> None:
        """Soft memberships that agree with the moments."""
        assert self._answer is not None  # noqa: S101 - released before
        answer, n, total = self._answer, self.source.n, self._moments_total()
        self._counted = self._count(answer, total)
        chosen = np.arange(0, len(self.problem), math.ceil(len(self.problem) / FIT_ROWS))
        sample = self._rows(self._sample if len(chosen) == len(self.problem) else self._sample.take(chosen))
        found = answer, total, sample, self._rows.constants()
        ridge = ridges(*found, n, self._moments_stddev, self.plan.ridge, self._optional)
        bits, silent = product_bits(n), self.vault.missing != "none"
        sums = np.concatenate([answer, (total - answer.sum(0))[None]]) if silent else answer

        def expected(weights: Array) -> Array:
            return self.source.run(ExpectedSums(self._rows, weights, bits)).astype(np.float64) * 4.0**-bits

        self._use(fit_to_all_rows(sample, sums, ridge=ridge, n=n, expected=expected))

    def _moments_total(self) -> Array:
        """(width,): public sums of the rows of the moments over all rows; computed once."""
        if self._total is None:
            step = exact_sum_step(2.0 * self.source.n)
            self._total = self.source.run(ColumnSums(self._rows, step)).astype(np.float64) * step
        return self._total

    def association(self, names: Sequence[str]) -> pd.DataFrame | None:
        """How far groups differ in each feature, from the moments that were released; None before the release."""
        if self._answer is None or self._counted is None:
            return None
        n, total = self.source.n, self._moments_total()
        difference, noise = self._rows.feature_columns().differences(self._answer, total, self._moments_stddev)
        if len(names) != difference.shape[1]:  # rows of more than one dimension
            names = [f"x{j}" for j in range(difference.shape[1])]
        return association_table(difference, noise, self._counted, n, self.vault.group_names, names)

    def _check(self) -> None:
        """Release the group sums of the current decisions, and compare them with the membership estimate."""
        if self._lost:  # paid for by a run that was interrupted
            self._lost -= 1
            return
        evaluation = self._evaluate()
        rows, longest = self._check_rows(evaluation)
        bound = self.source.max_weight * longest
        self.source.check_unchanged()
        answer = self.vault.group_sums(rows, bound=bound, noise=self._checks_noise, purpose="decisions")
        measured = rows.decoded(answer) / self._sizes + evaluation.means[:, None]
        noise = sum_stddev(self._checks_noise, bound * self._each, self._groups, self.vault.missing) * rows.noise
        variance = (noise / self._sizes) ** 2
        self._surprises.append(measured - evaluation.rates)
        self._variances.append(variance)
        self._note_check(evaluation, measured, variance)

    def _pass(self, work: Callable[[Any, float], Pass]) -> Array:
        """Sums over all rows of what a pass finds of the current decisions."""
        step = exact_sum_step(2.0 * self.source.n * max(self.source.max_weight, 1e-300))
        return self.source.run(work(self._rule(), step)).astype(np.float64) * step

    def at(self, tolerance: Any) -> Self:
        """A run on the same answers with this tolerance; it queries nothing."""
        follower = copy.copy(self)
        follower._given, follower._queries, follower._history = tolerance, False, []
        follower._deployed, follower._follows = None, True
        return follower

    def solved_at(self, tolerance: float, start: Array | None) -> tuple[Self, Array]:
        """A run on the same answers with this tolerance, and its multipliers; solved on the sample alone."""
        point = self.at(self.tolerances_at(tolerance))
        point._on_sample = True
        lam = point._solve(np.zeros((self._groups, self._n_rates)) if start is None else start)
        return point, lam

    def price(self) -> pd.DataFrame | None:
        """Quality against violation along a grid of tolerances; it queries nothing."""
        if self._points is None:
            empty = PricedPoints((), self.scores(), self.base_scores())
            rows = [self.priced_row(empty, empty.base, math.nan, corrected=False)]
            point, lam = self, None
            for tolerance in self.priced_tolerances():
                point, lam = point.solved_at(tolerance, lam)
                if point.corrects:
                    rows.append(point.priced_row(empty, point.scores(), tolerance, corrected=True))
            self._points = replace(empty, rows=tuple(rows))
        deployed = self.priced_row(self._points, self.scores(), self.listed_tolerance, corrected=self.corrects)
        others = [one for one in self._points.rows[1:] if one["tolerance"] != deployed["tolerance"]]
        corrected = sorted([*others, deployed | {"deployed": True}], key=itemgetter("tolerance"), reverse=True)
        return pd.DataFrame([self._points.rows[0], *corrected])

    def priced_row(self, points: PricedPoints, scores: Array, tolerance: float, *, corrected: bool) -> dict[str, Any]:
        """One row of the price list: quality and violation of these scores, with this tolerance."""
        violation, unchecked = self.estimated_violation(scores)
        apart = self.distance_between(scores, points.checked)
        if apart:
            apart = min(1.0, apart / max(self.distance_between(points.base, points.checked), 1e-12))
        return {
            "tolerance": tolerance,
            **self.quality(scores),
            "violation": violation,
            "violation_stderr": math.hypot(self.violation_stddev(), apart * (violation - unchecked)),
            "corrected": corrected,
            "deployed": False,
        }

    @property
    def corrects(self) -> bool:
        """Whether anything is corrected."""
        return bool(self._lams.any())

    @property
    def listed_tolerance(self) -> float:
        """The tolerance in force, as the price list has it."""
        return self.tolerance

    # -- what a target says -------------------------------------------------------------------------------------

    @abstractmethod
    def _count(self, answer: Array, total: Array) -> Array:
        """(G,): sizes of the groups by the moments."""

    @abstractmethod
    def _use(self, weights: Array) -> None:
        """Take the memberships with these weights as p(a | x, y) from now on."""

    @abstractmethod
    def _solve(self, lam: Array) -> Array:
        """(G, K): the multipliers, exactly."""

    @abstractmethod
    def _rule(self) -> Any:
        """The current decisions or predictions, for any block."""

    @abstractmethod
    def _evaluate(self) -> Any:
        """An :class:`Evaluation` of the current decisions; how far the sample is off goes into the constraint."""

    @abstractmethod
    def _check_rows(self, evaluation: Any) -> tuple[Any, float]:
        """Row function of a check, and the norm of its longest row of weight 1."""

    def _note_check(self, evaluation: Any, measured: Array, variance: Array) -> None:
        """Keep what else a check has shown."""

    def _choose_multipliers(self, lam: Array) -> Array:
        """(G, K): the multipliers that are deployed; by default the last ones."""
        return lam

    @abstractmethod
    def _loss(self, scores: Array) -> float:
        """Public loss of scores of the sample."""

    @abstractmethod
    def base_scores(self) -> Array:
        """Scores or predictions of the sample by the base model, out of fold."""

    @abstractmethod
    def priced_tolerances(self) -> Sequence[float]:
        """Tolerances of the price list, loosest first; none where a point takes too long."""

    def tolerances_at(self, tolerance: float) -> Any:
        """What a tolerance of the price list is for every rate."""
        return tolerance

    @abstractmethod
    def quality(self, scores: Array) -> dict[str, float]:
        """How good scores of the sample are, by public targets."""

    @abstractmethod
    def estimated_violation(self, scores: Array) -> tuple[float, float]:
        """By memberships and checks, and by memberships alone; of several rates, the one farthest beyond its limit."""

    @abstractmethod
    def distance_between(self, scores: Array, others: Array) -> float:
        """How much decisions or predictions of the sample differ; 0 where they are the same."""

    # -- record and checkpoint ----------------------------------------------------------------------------------

    def _record(self, k: int, lam: Array) -> None:
        """One row of the history: public loss and scores out of fold, the noised gaps, the multipliers."""
        scores = self.scores()
        gap = self.gap(scores)
        self._history.append(
            {
                "round": k,
                "loss": self._loss(scores),
                **self.public_scores(scores, ALL_ROWS),
                "noisy_gap": None if gap is None else gap.tolist(),
                "violation_error": self.violation_stddev(),
                "multiplier": lam.tolist(),
            }
        )

    def _state(self) -> dict[str, Any]:
        """Noised answers, predictions of the base model and weights of the memberships; no memberships."""
        state = {self.predictions_name: self._sample.prediction, "answer": self._answer, "history": self._history}
        if self._memberships is None:
            return state
        solved = {"weights": self._memberships.weights, "counted": self._counted, "surprises": self._surprises}
        return state | solved | self._solved_state()

    @abstractmethod
    def _solved_state(self) -> dict[str, Any]:
        """What else a run that has released its moments goes on from."""

    def _restore(self, state: dict[str, Any], lost: int) -> None:
        """Continue from noised answers; what was paid for and lost is not queried again.

        Raises
        ------
        ValueError
            If the answers are about the predictions of another base model.
        """
        if not np.allclose(state[self.predictions_name], self._sample.prediction, rtol=0.0, atol=SAME_BASE):
            raise ValueError(
                "expected the base that the checkpoint was begun with, got one with other predictions of the same "
                "rows; pass that base, or choose another folder."
            )
        self._lost, self._answer, self._history = lost, state["answer"], state["history"]
        if "weights" in state:
            self._restore_solved(state)
            self._counted, self._surprises = state["counted"], state["surprises"]

    @abstractmethod
    def _restore_solved(self, state: dict[str, Any]) -> None:
        """Use the memberships of this state, and the rest of what ``_solved_state`` has put into it."""
