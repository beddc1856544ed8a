"""Post-processing solver: noised sums of public rows, the dual in closed form, and noised checks of its decisions.

0. If the plan has it, a small first release: sizes of the groups. A run that they say cannot work stops here.
1. One release: the sums of public rows (features, label and what the base says of the label) over each group. Soft
   memberships p(a | x, y) of largest entropy agree with them, as in engine ``moments``.
2. With p(y = 1 | x) of the base they give p(a, y | x), and the best rule under the constraint has a closed form whose
   unknowns are a few multipliers (:mod:`justitia.postprocessing.dual`).
3. At each check the sums of the current decisions are released. What they say differs from what the memberships say;
   the difference, weighed by its known noise, goes into the constraint, and the dual is solved again.

`ScoresEngine` is the solver for ``at="scores"``: the constraint holds at many thresholds, for the same releases. A
check asks for the indicators of all thresholds as one row per individual, whose norm is bounded like any other's; the
dual is solved once per threshold, each a convex problem in a few numbers.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from justitia.exceptions import Diagnostic, NoisyEstimateWarning
from justitia.postprocessing.correction import levels_of, moved_probability
from justitia.postprocessing.dual import Constraints, clip_to_decision_side, constraints_of, solve
from justitia.postprocessing.features import PublicRows
from justitia.postprocessing.memberships import Everybody, memberships, ridges
from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Noise, Unprotected
from justitia.privacy.rows import ArrayRows, DenseSource, index_chunks
from justitia.training.engine import ALL_ROWS, AnswersRefuse, Engine, Rows, calibrated
from justitia.training.lagrangian import Problem, centred_rows, population_means, row_bound
from justitia.training.remarks import cell_remark, silence_remark, size_remarks

if TYPE_CHECKING:
    from justitia.networks.moments.plan import MomentsPlan
    from justitia.postprocessing.plan import PostProcessingPlan
    from justitia.privacy.interface import Vault

Array = NDArray[np.float64]
#: Noise in a group's rate that is worth a sentence, whatever the tolerance.
LOUD = 0.05
#: Sizes are judged where all rows, or the mean of a group, are so many standard deviations of their noise.
TELLING = 8.0
#: All groups together are not there if their noised sizes add up to less than so many standard deviations.
NOBODY = 3.0
#: A group is too small to be compared if its noised size is at most so many: an empty one is noticed 98 times in 100,
#: one of four standard deviations is stopped for it twice in 100 times, one of five about once in 1,000.
EMPTY = 2.0
GO_ON = "or pass --small-groups (in Python, share_sizes=0) to train anyway"
#: Violations differ if they do by more than this and by so many standard deviations of the known noise.
SLACK, DEVIATIONS = 0.01, 3.0
#: Variance of the noise times the number of features, per row, up to which memberships have weights of their own for
#: each label.
FEW = 0.005
#: Probabilities of one base differ by less, whatever machine they were computed on.
SAME_BASE = 1e-4


def sum_stddev(noise: Noise, bound: float, n_groups: int) -> float:
    """Known standard deviation of a group's sum: sqrt(2) * bound * sigma, less what the public total takes off."""
    if isinstance(noise, Unprotected):
        return 0.0
    return noise.noise_multiplier * math.sqrt(2 * (1 - 1 / (n_groups + 1))) * bound


def gap_stddev(plan: MomentsPlan | PostProcessingPlan, heaviest: float, n_groups: int) -> float:
    """Known standard deviation of a group's gap times its size, at most: all releases of the plan taken together."""
    noises = [calibrated(plan.noise_moments), *[calibrated(plan.noise_checks)] * plan.checks]
    if isinstance(noises[0], Unprotected):
        return 0.0
    return math.sqrt(1 / sum(sum_stddev(noise, heaviest, n_groups) ** -2 for noise in noises))


def noise_warnings(size: float, noise: float, tolerance: float) -> list[Diagnostic]:
    """A sentence if groups of this size are too small for this noise in their rates."""
    if noise <= max(tolerance, LOUD):
        return []
    sentence = (
        f"with this budget and groups of about {size:.0f} the noise in a group's rate is about {noise:.2g}, "
        "and no smaller violation can be held; raise epsilon, or compare fewer groups."
    )
    return [Diagnostic(sentence, NoisyEstimateWarning)]


def refusal(sizes: NDArray[np.float64], spread: float, n: int, names: Sequence[str]) -> str | None:
    """Why a run with these groups cannot work; None if nothing speaks against it.

    Parameters
    ----------
    sizes : ndarray (G,)
        Noised.
    spread : float
        Known standard deviation of each.
    n : int
        Rows, public.
    """
    total = float(sizes.sum())
    if n >= TELLING * spread and total <= min(NOBODY * spread, n / TELLING):
        return (
            f"the noised sizes of all {len(sizes)} groups add up to about {max(total, 0):.0f} of {n:,} rows; "
            f"check the names of the groups, where capital letters count, {GO_ON}."
        )
    empty = [name for name, size in zip(names, sizes, strict=True) if size <= EMPTY * spread]
    if n < TELLING * spread * len(sizes) or not empty:
        return None
    listed = ", ".join(repr(name) for name in empty[:3]) + (", ..." if len(empty) > 3 else "")
    return (
        f"{len(empty)} of {len(sizes)} groups ({listed}) have a noised size of at most {EMPTY * spread:.0f} "
        f"rows; merge them with others (--bins cuts a number), correct or leave out their names, {GO_ON}."
    )


def ask_sizes(vault: Vault, ones: DenseSource, noise: Noise, n: int) -> None:
    """Ask for noised sizes, a sum of ones, and stop by them alone, before more is spent.

    Raises
    ------
    AnswersRefuse
        If they say that the run cannot work.
    """
    answer = vault.group_sums(ones, bound=1.0, noise=noise, purpose="sizes")[:, 0]
    spread = sum_stddev(noise, float(vault.rows_per_person), vault.n_groups)
    sentence = refusal(answer, spread, n, [str(name) for name in vault.group_names])
    if sentence is not None:
        raise AnswersRefuse(sentence)


def default_tolerance(plan: PostProcessingPlan, rates: Array, sizes: Array, sum_noise: float) -> float:
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
    return min(1.0, max(plan.least, plan.dead_zone * rates_stddev(rates, sizes, sum_noise)))


def rates_stddev(rates: Array, sizes: Array, sum_noise: float) -> float:
    """Standard error, sampling and noise, of the difference between the two least known groups; as above."""
    rates = np.clip(rates, 0.0, 1.0)
    variance = rates * (1 - rates) / sizes + (sum_noise / sizes) ** 2
    return float(np.sqrt(np.sort(variance, axis=0)[-2:].sum(0).max()))


def check_weight(trust: float, variance: Array) -> Array:
    """(G, K): how much of what the checks say is believed, by their known variance; all of it without noise."""
    prior = max(trust, math.sqrt(np.finfo(float).tiny)) ** 2
    weight: Array = np.where(variance > 0, prior / (prior + variance), 1.0)
    return weight


@dataclass(frozen=True, eq=False)
class Seen:
    """Decisions at a check: centred public rows with their bound, means of the population, rates by the memberships."""

    rows: DenseSource
    bound: float
    means: Array
    rates: Array


@dataclass(frozen=True, eq=False)
class Checked:
    """Multipliers and what a check said of their decisions.

    Attributes
    ----------
    lam : ndarray (G, K)
    told : ndarray (G, K)
        Noised rates.
    variance : ndarray (G, K)
        Of their known noise.
    """

    lam: Array
    told: Array
    variance: Array

    @property
    def violation(self) -> float:
        """Largest noised difference between two groups."""
        return float(np.ptp(self.told, axis=0).max())

    @property
    def noise(self) -> float:
        """Standard deviation of the difference between the two least known groups."""
        return float(np.sort(self.variance, axis=0)[-2:].sum(0).max() ** 0.5)


def settled(checks: Sequence[Checked], allowed: float) -> int | None:
    """Which check to go back to; None where the last one shows no more than the best, or than is allowed.

    Each correction assumes that memberships are wrong about the next decisions as they were about the last ones. Where
    they know little of a group that need not be, and corrections may run away.
    """
    if not checks:
        return None
    best, last = int(np.argmin([one.violation for one in checks])), checks[-1]
    beyond = last.violation - max(allowed, checks[best].violation)
    return best if beyond > max(SLACK, DEVIATIONS * last.noise) else None


def represented(eta: Array) -> Callable[[NDArray[np.int64]], tuple[NDArray[Any], NDArray[Any]]]:
    """What the base says of rows, by their positions: probability and log-odds."""
    single = eta.astype(np.float32)

    def represent(index: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        some = single[index]
        return (2 * some - 1)[:, None], logit(some)

    return represent


class PostProcessingEngine(Engine):
    """Closed-form dual on maximum-entropy memberships.

    Guarantee
    ---------
    * A enters only through ``group_sums`` of the vault: for sizes if the plan has them, once for the moments and once
      per check; everything else here, a run that stops included, is a function of public data and of their noised
      answers.
    """

    def __init__(
        self,
        plan: PostProcessingPlan,
        problem: Problem,
        vault: Vault,
        *,
        tolerance: float | None,
        seed: int = 0,
    ) -> None:
        super().__init__(problem, vault, tolerance=tolerance, seed=seed)
        if problem.eta is None:
            raise ValueError("expected a problem with eta, got none; learn a base first.")
        self.plan = plan
        self.asks = True
        self._given = tolerance is not None
        self._eta: Array = problem.eta.astype(np.float64)
        self.gain = 2 * (self._eta - problem.threshold)
        self._rows = PublicRows(
            self._represented, problem.X, problem.y, chunk_rows=plan.micro_batch, blocks=self._in_blocks()
        )
        self._everybody = self._make_everybody()
        self._answer: Array | None = None  # (G, width), noised: the moments
        self._weights: Array | None = None  # of the memberships
        self._constraints: Constraints | None = None
        self._surprises: list[Array] = []  # (G, K): what each check said beyond the memberships
        self._variances: list[Array] = []  # (G, K): of their known noise
        self._lam: Array | None = None  # (G, K): the last solution
        self._checked: list[Checked] = []
        self._sizes: Array | None = None  # (G, K), noised, by the memberships
        self._counted: Array | None = None  # (G,), noised, by the sums themselves
        self._silence: Array | None = None  # (2, 2): share of "not given" by label, and its noise
        self._lost = 0

    def _in_blocks(self) -> bool:
        """Whether what tells the groups apart may differ by label: where there are many rows for the noise."""
        noise = sum_stddev(calibrated(self.plan.noise_moments), self._each, self.vault.n_groups)
        columns = math.prod(self.problem.X.shape[1:])
        return noise**2 * columns <= FEW * self.problem.rows

    def _make_everybody(self) -> Everybody:
        """Whose memberships are fitted."""
        return Everybody(self._rows.take, len(self.problem), self.plan.micro_batch)

    def _represented(self, index: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """What the base says of these rows: probability and log-odds."""
        return represented(self._eta)(index)

    def ask_before(self, module: Any, lam: Array, k: int) -> None:
        """Sizes, if the plan has them, and the moments, once."""
        del module, lam
        if k or self._constraints is not None:
            return
        noise = calibrated(self.plan.noise_moments)
        if self._answer is None:
            if self.plan.noise_sizes is not None:
                ask_sizes(self.vault, self._size_rows(), self.plan.noise_sizes, self.problem.rows)
            self._answer = self.vault.group_sums(self._moment_rows(), bound=1.0, noise=noise, purpose="moments")
            self.keep(self)
        answer, total = self._answer, self._total()
        sums = np.concatenate([answer, (total - answer.sum(0))[None]])
        self._counted = self._rows.sizes(answer, total, self.problem.rows).sum(1)
        spread = sum_stddev(noise, self._each, self.vault.n_groups)
        self._silence = self._rows.silence(answer, total, spread, self.problem.rows)
        rows, constant = self._everybody.sample(), self._rows.constants()
        ridge = ridges(answer, total, rows, constant, self.problem.rows, spread, self.plan.ridge)
        self._use(self._everybody.fit(sums, ridge=ridge))

    def _size_rows(self) -> DenseSource:
        """A one for everybody."""
        return ArrayRows(np.ones((len(self.problem), 1)))

    def _moment_rows(self) -> DenseSource:
        """Everybody's public rows."""
        return self._rows

    def _total(self) -> Array:
        """(width,): their sum."""
        total: Array = np.sum([part.sum(0, dtype=np.float64) for _, part in self._rows.dense()], axis=0)
        return total

    def _use(self, weights: Array) -> None:
        """Take the memberships with these weights as p(a | x, y) from now on."""
        self._weights = weights
        problem, parts = self.problem, list(index_chunks(len(self.problem), self.plan.micro_batch))
        q0, q1 = (
            np.concatenate([memberships(weights, self._rows.take(part, label))[:, :-1] for part in parts]).astype(float)
            for label in (0.0, 1.0)
        )
        own = np.where(problem.y[:, None] > 0.5, q1, q0)
        self._sizes = np.maximum(own.T @ problem.events.astype(np.float64), 1.0)
        self._constraints = constraints_of(problem.notion, self._eta, q0, q1, problem.weight.astype(np.float64))

    def ask_after(self, scores: Array, k: int) -> None:
        """A check: the noised sums of everybody's decisions, held against what the memberships say of them."""
        del k
        if not self.asks:
            return
        if self._lost:
            self._lost -= 1
            return
        noise = calibrated(self.plan.noise_checks)
        seen = self._seen(scores)
        answer = self.vault.group_sums(seen.rows, bound=seen.bound, noise=noise, purpose="decisions")
        told = answer / self.sizes + seen.means
        spread = sum_stddev(noise, seen.bound * self._each, self.vault.n_groups) / self.sizes
        self._surprises.append(told - seen.rates)
        self._variances.append(spread**2)
        if self._lam is not None:
            self._checked.append(Checked(self._lam, told, spread**2))

    def settle(self, lam: Array) -> Array:
        """The last multipliers, or those of an earlier check where further ones have made the violation larger."""
        back = settled(self._checked, self.allowed()) if self.asks else None  # checks of a curve are of its first point
        if back is None:
            return lam
        self._surprises, self._variances = [self._surprises[back]], [self._variances[back]]
        self._lam, self._checked = self._checked[back].lam, []
        return self._lam

    def _seen(self, scores: Array) -> Seen:
        """What the vault is asked about the decisions, and what the memberships say of them."""
        problem = self.problem
        h = problem.notion.h_exact(scores, problem.y)
        rows, means = centred_rows(h, problem.events), population_means(h, problem.events)
        rates = self._used().rates((scores > 0).astype(np.float64))
        return Seen(ArrayRows(rows.astype(np.float64)), row_bound(rows), means, rates)

    def solve(self, lam: Array) -> Array:
        """The multipliers, exactly; from where they were if they are not 0."""
        start = lam if lam.any() else None
        self._lam = solve(self.gain, self._corrected(), self.allowed(), start)
        return self._lam

    def correction(self, lam: Array) -> Array:
        """(n,): t = lambda . c of the training rows."""
        return self._used().correction(lam)

    def multiplied(self) -> Array:
        """(n, G K): the c that multipliers, which add up to 0, multiply, less what groups have in common."""
        c = self._used().c
        return (c - c.mean(1)[:, None]).reshape(len(c), -1)  # type: ignore[no-any-return]

    def scores(self, lam: Array) -> Array:
        """(n,): positive is a positive decision."""
        return clip_to_decision_side(self.gain, self.gain - self.correction(lam)).astype(self.problem.y.dtype)

    def gap(self, scores: Array, seen: Rows = ALL_ROWS) -> Array | None:
        """Rates of the decisions by the memberships and all checks so far, less those of the population."""
        del seen
        if self._constraints is None:
            return None
        h = self.problem.notion.h_exact(scores, self.problem.y)
        rates = self._corrected().rates((scores > 0).astype(np.float64))
        return rates - population_means(h, self.problem.events)

    def allowed(self) -> float:
        """The largest difference between two groups that is allowed."""
        if self._given:
            return self.tolerance
        return default_tolerance(self.plan, self._population_rates(), self.sizes, self._sum_noise)

    def _population_rates(self) -> Array:
        """(K,): of everybody, by the base's decisions."""
        h = self.problem.notion.h_exact(self.gain, self.problem.y)
        return population_means(h.astype(self.problem.y.dtype), self.problem.events)

    def _used(self) -> Constraints:
        if self._constraints is None:
            raise ValueError("expected moments to have been asked for, got none; call ask_before first.")
        return self._constraints

    def _corrected(self) -> Constraints:
        """The constraint with what the checks have said."""
        used = self._used()
        if not self._surprises:
            return used
        weight = check_weight(self.plan.trust, np.mean(self._variances, axis=0) / len(self._variances))
        return replace(used, b=used.b + weight * np.mean(self._surprises, axis=0))

    @property
    def sizes(self) -> Array:
        """(G, K): noised sizes of the groups in each event."""
        self._used()
        assert self._sizes is not None  # noqa: S101 - known with the constraints
        return self._sizes

    @property
    def _each(self) -> float:
        """One person moves a sum by as many rows; 1 where a row is what is protected."""
        return float(self.vault.rows_per_person)

    @property
    def _sum_noise(self) -> float:
        return gap_stddev(self.plan, self._row_bound() * self._each, self.vault.n_groups)

    def _row_bound(self) -> float:
        """How much one row may count."""
        return row_bound(self.problem.events)

    def outlook(self) -> list[Diagnostic]:
        """Says so if even groups of equal sizes are too small for the noise."""
        rows = self.problem.event_sizes * self.problem.rows / len(self.problem)
        size = float(rows[rows > 0].min() / self.vault.n_groups)
        return noise_warnings(size, self._sum_noise / size, self.tolerance)

    def remarks(self) -> list[Diagnostic]:
        """Silence that differs by label, small cells, groups that may not exist, and rates that are mostly noise."""
        if self._sizes is None or self._counted is None:
            return []
        found = [*silence_remark(self._silence), *self._cell_remark()]
        noise = (self._sum_noise / self.sizes).max(1)
        few = max(1.0, 2 * sum_stddev(calibrated(self.plan.noise_moments), self._each, self.vault.n_groups))
        few = -math.inf if isinstance(self.plan.noise_moments, Unprotected) else few
        return found + size_remarks(self.vault.group_names, self._counted, noise, few, max(self.tolerance, LOUD))

    def _cell_remark(self) -> list[Diagnostic]:
        """Whether the smallest cell lets the constraint constrain."""
        a, k = divmod(int(self.sizes.argmin()), self.sizes.shape[1])
        cell = f"group {self.vault.group_names[a]!r}"
        cell += f" and {self.problem.notion.event_names[k]!r}" if self.sizes.shape[1] > 1 else ""
        return cell_remark(float(self.sizes[a, k]), cell, self.allowed(), self.violation_stddev(), given=self._given)

    def violation_stddev(self) -> float:
        """Of the two least known groups."""
        return rates_stddev(self._population_rates(), self.sizes, self._sum_noise)

    def gap_noise(self, share: float) -> float:
        """Noise, of the two least known groups: everybody's decisions are out of fold."""
        del share
        return rates_stddev(np.zeros(self.sizes.shape[1]), self.sizes, self._sum_noise)

    def at(self, tolerance: float) -> Self:
        """An engine on the same answers with this tolerance; it asks nothing."""
        follower = copy.copy(self)
        follower.tolerance, follower._given, follower.asks = tolerance, True, False
        return follower

    def state(self) -> dict[str, Array]:
        """What the base says, weights of the memberships and what the checks have said; no memberships.

        Until these weights are known, the answer that they are made from.
        """
        eta = {"eta": self._eta}
        if self._weights is None or self._counted is None:
            return {} if self._answer is None else eta | {"answer": self._answer}
        saved = eta | {"weights": self._weights, "counted": self._counted}
        saved |= {} if self._silence is None else {"silence": self._silence}
        for j, (surprise, variance) in enumerate(zip(self._surprises, self._variances, strict=True)):
            saved |= {f"surprise.{j}": surprise, f"variance.{j}": variance}
        for j, one in enumerate(self._checked):
            saved |= {f"lam.{j}": one.lam, f"told.{j}": one.told}
        return saved

    def restore(self, state: dict[str, Array], *, lost: int) -> None:
        """Continue from noised answers; what was paid for and lost is not asked again.

        Raises
        ------
        ValueError
            If the answers are about what another base says.
        """
        self._lost = lost
        if "eta" not in state:
            return
        if not np.allclose(state["eta"], self._eta, rtol=0.0, atol=SAME_BASE):
            raise ValueError(
                "expected the base that the checkpoint was begun with, got one that says something else of the same "
                "rows; pass that base, or choose another folder."
            )
        self._answer = state.get("answer")
        if self._answer is not None:
            return
        self._use(state["weights"])
        self._counted, self._silence = state["counted"], state.get("silence")
        checks = range(sum(name.startswith("surprise.") for name in state))
        self._surprises = [state[f"surprise.{j}"] for j in checks]
        self._variances = [state[f"variance.{j}"] for j in checks]
        self._checked = [
            Checked(state[f"lam.{j}"], state[f"told.{j}"], variance)
            for j, variance in enumerate(self._variances)
            if f"lam.{j}" in state
        ]


class ScoresEngine(PostProcessingEngine):
    """Closed-form duals at many thresholds on one set of memberships.

    Guarantee
    ---------
    * That of :class:`PostProcessingEngine`: the same calls of ``group_sums``, with rows of T
      times as many columns and a bound on their norm.
    """

    levels: Array

    def __init__(self, plan: PostProcessingPlan, problem: Problem, vault: Vault, **public: Any) -> None:
        super().__init__(plan, problem, vault, **public)
        self._lams: Array | None = None  # (T, G, K)
        self._put_levels(levels_of(self._eta, problem.threshold, plan.levels))

    def solve(self, lam: Array) -> Array:
        """The multipliers at all thresholds; those where decisions are made are returned."""
        del lam
        if self._lams is None:  # levels of eta say where to look; those of the score are then evenly filled
            self._lams = self._solutions()
            self._put_levels(levels_of(self.probability(), self.problem.threshold, self.plan.levels))
        self._lams = self._solutions()
        decides: Array = self._lams[self._decides]
        return decides.copy()

    def _put_levels(self, levels: Array) -> None:
        """Other thresholds; multipliers are those of the nearest ones before."""
        if self._lams is not None:
            self._lams = self._lams[np.abs(self.levels - levels[:, None]).argmin(1)]
        self.levels, self._decides = levels, int(np.abs(levels - self.problem.threshold).argmin())

    def _solutions(self) -> Array:
        """(T, G, K): multipliers at all thresholds."""
        found: list[Array] = []
        allowed = self.allowed()
        for t, level in enumerate(self.levels):
            start = self._lams[t] if self._lams is not None else found[-1] if found else None
            start = None if start is None or not start.any() else start
            found.append(solve(2 * (self._eta - level), self._constraint_at(t), allowed, start))
        return np.stack(found)

    @property
    def multipliers(self) -> Array:
        """(T, G K): of every threshold."""
        if self._lams is None:
            raise ValueError("expected a solution, got none; call solve first.")
        return self._lams.reshape(len(self._lams), -1)

    def probability(self) -> Array:
        """(n,): the moved probability of the training rows."""
        margins = 2 * (self._eta - self.levels[:, None]) - self.multipliers @ self.multiplied().T
        return moved_probability(margins, self.levels)

    def scores(self, lam: Array) -> Array:
        """(n,): positive is a positive decision."""
        del lam
        return (2 * (self.probability() - self.problem.threshold)).astype(self.problem.y.dtype)

    def _at(self, scores: Array, t: int) -> Array:
        """(n,): scores whose sign is the decision at threshold t."""
        return scores - 2 * float(self.levels[t] - self.problem.threshold)

    def ask_after(self, scores: Array, k: int) -> None:
        """A check: the noised sums of everybody's decisions at all thresholds."""
        del k
        if not self.asks:
            return
        if self._lost:
            self._lost -= 1
            return
        problem, noise, sizes = self.problem, calibrated(self.plan.noise_checks), self.sizes
        at = [self._at(scores, t) for t in range(len(self.levels))]
        h = [problem.notion.h_exact(one, problem.y) for one in at]
        rows = np.concatenate([centred_rows(one, problem.events) for one in h], axis=1)
        bound = row_bound(rows)
        answer = self.vault.group_sums(rows.astype(np.float64), bound=bound, noise=noise, purpose="decisions")
        parts = np.split(answer, len(at), axis=1)
        means = [population_means(one, problem.events) for one in h]
        asked = np.stack([part / sizes + mean for part, mean in zip(parts, means, strict=True)])
        held = np.stack([self._used().rates((one > 0).astype(np.float64)) for one in at])
        self._surprises.append(asked - held)
        self._variances.append((sum_stddev(noise, bound * self._each, self.vault.n_groups) / sizes) ** 2)

    def _constraint_at(self, t: int) -> Constraints:
        """The constraint at threshold t with what the checks have said."""
        used = self._used()
        if not self._surprises:
            return used
        weight = check_weight(self.plan.trust, np.mean(self._variances, axis=0) / len(self._variances))
        return Constraints(used.c, used.b + weight * np.mean([one[t] for one in self._surprises], axis=0), used.weight)

    def _corrected(self) -> Constraints:
        return self._constraint_at(self._decides)

    def distance(self, scores: Array) -> float | None:
        """Largest noised difference between two groups over all thresholds: that of their scores' distributions."""
        if self._constraints is None:
            return None
        rates = [
            self._constraint_at(t).rates((self._at(scores, t) > 0).astype(np.float64)) for t in range(len(self.levels))
        ]
        return float(max(np.ptp(one, axis=0).max() for one in rates))

    def _population_rates(self) -> Array:
        """(K,): where sampling error is largest, some threshold is near."""
        return np.full(self.problem.events.shape[1], 0.5)

    @property
    def _sum_noise(self) -> float:
        """Noise of the moments and of checks whose rows are longer, taken together."""
        moments, checks = calibrated(self.plan.noise_moments), calibrated(self.plan.noise_checks)
        if isinstance(moments, Unprotected):
            return 0.0
        heaviest, groups = row_bound(self.problem.events) * self._each, self.vault.n_groups
        # indicators of evenly spaced quantiles, less their means: T / 3 is the mean square of the longest row
        longer = heaviest * math.sqrt(max(1.0, len(self.levels) / 3))
        known = sum_stddev(moments, heaviest, groups) ** -2
        known += self.plan.checks * sum_stddev(checks, longer, groups) ** -2
        return 1 / math.sqrt(known)

    def state(self) -> dict[str, Array]:
        """And the multipliers of every threshold, where the next solutions start."""
        saved = super().state()
        return saved if self._lams is None or not saved else saved | {"lams": self._lams, "levels": self.levels}

    def restore(self, state: dict[str, Array], *, lost: int) -> None:
        """Inverse of :meth:`state`."""
        super().restore(state, lost=lost)
        if "levels" in state:
            self._put_levels(state["levels"])
            self._lams = state["lams"]
