"""The moments engine: ask A for a handful of noised sums, and learn the rest from what is public.

1. After the public warm-up, one release: the sums of public rows (:mod:`justitia.postprocessing.features`) over
   each group.
2. Soft memberships of largest entropy that agree with them (:mod:`justitia.postprocessing.memberships`) stand in for
   the attribute: the Lagrangian dual runs on them as often as it likes, at no further cost.
3. At a few checks the sums of the model's own current decisions are released and join the moments, so that the
   memberships are right where the model is.

The memberships are differentially private statistics of public rows. They live as long as training does: they are
never stored, logged or returned.
"""

from __future__ import annotations

import copy
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from justitia.exceptions import Diagnostic, ViolationWarning
from justitia.networks.engine import PrimalDualEngine
from justitia.networks.moments.frozen import FrozenNetwork
from justitia.networks.run import as_arrays, as_tensors
from justitia.postprocessing.features import PublicRows
from justitia.postprocessing.memberships import Everybody
from justitia.postprocessing.solver import LOUD, gap_stddev, noise_warnings, sum_stddev
from justitia.privacy.interface import Vault
from justitia.privacy.ledger import BudgetExceeded
from justitia.privacy.mechanisms import Noise, Unprotected
from justitia.privacy.rows import ArrayRows, DenseSource
from justitia.privacy.shards import Drawn
from justitia.training.lagrangian import Problem, ascend, centred_rows, row_bound, shrink
from justitia.training.method import ALL_ROWS, Rows, calibrated
from justitia.training.remarks import silence_remark, size_remarks

if TYPE_CHECKING:
    from justitia.networks.moments.plan import MomentsPlan

Array = NDArray[Any]
#: Rows that a dual step looks at, a public sample where there are more.
WATCHED = 50_000
#: The largest first gap for which the dual step and the damping are made; where it is smaller, both grow with it.
USUAL_GAP, FASTEST = 0.05, 5.0


#: The purpose of asking for the attribute itself.
REVEALED = "exact attribute, no privacy asked for"


class MomentsEngine(PrimalDualEngine):
    """Lagrangian dual on maximum-entropy memberships.

    Guarantee
    ---------
    * A enters only through ``group_sums`` of the vault, once for the moments and once per check; everything else here
      is a function of public data and of their noised answers. Without noise the attribute itself is asked for.
    """

    def __init__(
        self,
        plan: MomentsPlan,
        problem: Problem,
        vault: Vault,
        *,
        tolerance: float | None,
        seed: int = 0,
    ) -> None:
        super().__init__(problem, vault, tolerance=tolerance, seed=seed)
        self.plan = plan
        self._dead_zone = plan.dead_zone if tolerance is None else 0.0
        self.private = not isinstance(calibrated(plan.noise_moments), Unprotected)
        self._rows: PublicRows | None = None
        self._network: FrozenNetwork | None = None
        self._decisions: list[Array] = []  # (n, K) public rows of each check
        self._sums: list[Array] = []  # (G + 1, d) noised sums: of the moments, then of each check
        self._spreads: list[float] = []  # known standard deviation of their noise
        self._weights: Array | None = None
        self._q: Tensor | None = None
        self._asks = self.private
        self._last: tuple[Array, Array] | None = None  # multipliers and noised gaps of the last dual step
        self._pace = 0.0  # of the multipliers; 0 before the first gap
        self._people: Array | None = None  # (G,) noised sizes of the groups
        self._silence: Array | None = None  # (2, 2): share of "not given" by label, and its noise
        self._lost = 0
        self._saved: dict[str, Array] = {}

    def ask_before(self, module: nn.Module, lam: Array, k: int) -> None:
        """The moments, once, after the warm-up; a resumed run computes its public rows again."""
        del lam
        if k == 0 or self._q is not None:
            return
        if not self.private:
            codes = self.vault.reveal(purpose=REVEALED, drawn=self._drawn())
            self._use(np.eye(self.vault.n_groups + 1, dtype=np.float32)[codes])
        elif self._saved:
            self._rows = self._public_rows(_with_state(module, self._saved))
            if self._weights is None:  # the run stopped while they were fitted
                self._fit()
            else:
                self._use(self._everybody().memberships(self._weights))
        elif self._lost:
            raise BudgetExceeded(
                "the run stopped after its moments were paid for and before they were saved, and the debit stands; "
                "start again in another folder with a new budget."
            )
        else:
            self._rows = self._public_rows(module)
            self._learn(self._moment_rows(self._rows), 1.0, self.plan.noise_moments, "moments")

    def _drawn(self) -> Drawn | None:
        """Which of everybody's rows these are; None for all."""
        return None

    def _public_rows(self, module: nn.Module) -> PublicRows:
        self._network = FrozenNetwork(module, self.X)
        return PublicRows(self._network, self.problem.X, self.problem.y, chunk_rows=self.plan.micro_batch)

    def _moment_rows(self, rows: PublicRows) -> DenseSource:
        """Everybody's public rows, for the vault."""
        return rows

    def _everybody(self) -> Everybody:
        """Whose memberships are fitted."""
        return Everybody(self._columns, len(self.problem), self.plan.micro_batch)

    def _total(self, rows: DenseSource) -> Array:
        """(d,): the public sum of these rows."""
        total: Array = np.sum([part.sum(0, dtype=np.float64) for _, part in rows.dense()], axis=0)
        return total

    def _learn(self, rows: DenseSource, bound: float, noise: Noise | None, purpose: str) -> None:
        """Release the sums of these rows, keep the first, and fit the memberships anew."""
        answer = self.vault.group_sums(rows, bound=bound, noise=calibrated(noise), purpose=purpose)
        total = self._total(rows)
        spread = sum_stddev(calibrated(noise), bound * self._each, self.vault.n_groups)
        if not self._sums and self._rows is not None:
            self._silence = self._rows.silence(answer, total, spread, self.problem.rows)
        self._sums.append(np.concatenate([answer, (total - answer.sum(0))[None]]))
        self._spreads.append(spread)
        if len(self._sums) == 1:
            self.keep(self)
        self._fit()

    def _fit(self) -> None:
        """Fit the memberships to all sums so far, from where they were."""
        widths = [part.shape[1] for part in self._sums]
        spreads = np.repeat(self._spreads, widths)
        fresh = sum(widths) - (0 if self._weights is None else self._weights.shape[1])
        start = None if self._weights is None else np.pad(self._weights, ((0, 0), (0, fresh)))
        everybody = self._everybody()
        ridge = self.plan.ridge * spreads**2
        self._weights = everybody.fit(np.concatenate(self._sums, axis=1), ridge=ridge, start=start)
        self._use(everybody.memberships(self._weights))

    def _columns(self, index: NDArray[np.int64]) -> Array:
        """(m, d): the public rows of the moments and of every check so far."""
        moments = [] if self._rows is None else [self._rows.take(index)]
        return np.concatenate([*moments, *(part[index] for part in self._decisions)], axis=1)

    def _use(self, q: Array) -> None:
        """Take these memberships as the attribute from now on."""
        q = np.ascontiguousarray(q[:, :-1])
        self._q = torch.from_numpy(q)
        self._people = q.sum(0, dtype=np.float64) / self._share
        self._sizes = np.maximum((q.T @ self.problem.events.astype(q.dtype)).astype(np.float64), 1.0)

    def row_weights(self, lam: Array, batch: Tensor) -> Tensor | None:
        r"""Weights of h in :math:`\sum \lambda_{a,k} (\mu_q(a, k) - \mu(D_{P_k}))`; nothing during the warm-up.

        What the last gaps are beyond the tolerance is added to the multipliers, as in an augmented Lagrangian: descent
        and ascent alone go round in circles.
        """
        if self._q is None:
            return None
        if self._last is not None:
            push = self._pace * self.plan.damping * shrink(self._last[1], self._allowed())
            lam = np.clip(lam + push, -self.plan.lambda_max, self.plan.lambda_max)
        events, q = self.events.index_select(0, batch), self._q.index_select(0, batch)
        population = torch.from_numpy(lam.sum(0) / np.maximum(self.problem.event_sizes, 1e-12))
        per_group = torch.from_numpy(lam / self._sizes)
        return (events * (q @ per_group.to(q.dtype) - population.to(q.dtype))).sum(1)

    def watched(self, k: int) -> Rows:
        """Everybody at a check or if they are not too many; otherwise a public sample, drawn anew."""
        if len(self.problem) <= WATCHED or k in self.plan.check_rounds:
            return ALL_ROWS
        return torch.randint(len(self.problem), (WATCHED,), generator=self.generator).numpy()

    def ask_after(self, scores: Array, k: int) -> None:
        """A check, if one is due: the noised sums of everybody's decisions, from which the memberships learn."""
        if not (self._asks and k in self.plan.check_rounds):
            return
        if self._lost:
            self._lost -= 1
        else:
            self._check(scores)

    def _decided(self, scores: Array, seen: Rows) -> Array:
        """(m, K) hard decisions of the rows seen, less their mean."""
        problem = self.problem
        return centred_rows(problem.notion.h_exact(scores, problem.y[seen]), problem.events[seen])

    def gap(self, scores: Array, seen: Rows = ALL_ROWS) -> Array | None:
        """Gaps of the hard decisions over the memberships of the rows seen."""
        if self._q is None:
            return None
        rows, events = self._decided(scores, seen), self.problem.events[seen]
        q = self._q.numpy()[seen].astype(np.float64).T
        found: Array = (q @ rows.astype(np.float64)) / np.maximum(q @ events.astype(np.float64), 1.0)
        return found

    def _check(self, scores: Array) -> None:
        rows = self._decided(scores, ALL_ROWS)
        self._decisions.append(rows.astype(np.float32))
        self._learn(ArrayRows(rows.astype(np.float64)), row_bound(rows), self.plan.noise_checks, "decisions")

    def ascend(self, lam: Array, gap: Array, k: int) -> Array:
        """Signed ascent on gaps beyond the tolerance or, if none was given, beyond the dead zone.

        Small gaps would move multipliers slowly, and let them overshoot for as long: the first ones set the pace.
        """
        plan, allowed = self.plan, self._allowed()
        if self._pace == 0:
            self._pace = min(max(1.0, USUAL_GAP / max(float(np.abs(gap).max()), 1e-12)), FASTEST)
        step = self._pace * plan.dual_step_at(k)
        self._last = (ascend(lam, gap, step=step, tolerance=allowed, limit=plan.lambda_max), gap)
        return self._last[0]

    def allowed(self) -> float:
        """Twice the largest distance from the population that is allowed."""
        return 2 * float(np.max(self._allowed())) if self._people is not None else self.tolerance

    def _allowed(self) -> Array:
        return self.half + self._dead_zone * self._gap_noise(self._sizes)

    def compares(self, k: int) -> bool:
        """In the last rounds: multipliers go on moving, and gaps of hard decisions move by leaps."""
        return self.plan.lambda_max > 0 and k > self.plan.rounds - self.plan.candidates

    def excess(self, scores: Array, seen: Rows = ALL_ROWS) -> float:
        """Largest gap beyond what is allowed; less than the known noise counts as none."""
        gap = self.gap(scores, seen)
        beyond = 0.0 if gap is None else (np.abs(gap) - self._allowed() - self._gap_noise(self._sizes)).max()
        return max(0.0, float(beyond))

    def _gap_noise(self, sizes: Array) -> Array:
        """Known standard deviation of the gaps of groups of these sizes, at most: all releases taken together."""
        return self._sum_noise / sizes

    def gap_noise(self, share: float) -> float:
        """Noise, and sampling of rows that are held out; gaps of rows that were learned from tell little."""
        return math.inf if share == 1 or self._people is None else self._spread(share)

    def violation_stddev(self) -> float:
        """Of the two least known groups."""
        return self._spread(1.0)

    def _spread(self, share: float) -> float:
        variance = (self._gap_noise(self._sizes) ** 2 + 0.25 / (share * self._sizes)).max(1)
        return float(np.sqrt(np.sort(variance)[-2:].sum()))

    @property
    def _each(self) -> float:
        """One person moves a sum by as many rows; 1 where a row is what is protected."""
        return float(self.vault.rows_per_person)

    @cached_property
    def _sum_noise(self) -> float:
        """Of sums over these rows, in units of which sizes are counted: noise is that of everybody's sums."""
        return gap_stddev(self.plan, self._row_bound() * self._each, self.vault.n_groups) * self._share

    @property
    def _share(self) -> float:
        """How many of the rows that are asked about are these."""
        return len(self.problem) / self.problem.rows

    def _row_bound(self) -> float:
        """How much one row may count."""
        return row_bound(self.problem.events)

    def outlook(self) -> list[Diagnostic]:
        """Says so if even groups of equal sizes are too small for the noise."""
        size = self.problem.event_sizes[self.problem.event_sizes > 0].min() / self.vault.n_groups
        return noise_warnings(float(size) / self._share, float(self._gap_noise(size)), self.tolerance)

    def remarks(self) -> list[Diagnostic]:
        """Groups that may not exist, rates that are mostly noise, and constraints that were not met."""
        if self._people is None:
            return []
        found = silence_remark(self._silence)
        noise = self._gap_noise(self._sizes).max(1)
        few = max(1.0, 2 * sum_stddev(calibrated(self.plan.noise_moments), self._each, self.vault.n_groups))
        few, loud = few if self.private else -math.inf, max(self.tolerance, LOUD)
        found += size_remarks(self.vault.group_names, self._people, noise, few, loud)
        for a, name in enumerate(self.vault.group_names):
            if self._last is not None and 0 < self.plan.lambda_max <= float(np.abs(self._last[0][a]).max()):
                gap = float(np.abs(self._last[1][a]).max())
                sentence = (
                    f"the multiplier of group {name!r} reached lambda_max={self.plan.lambda_max:g} and its noised gap "
                    f"is {gap:.2g}: the constraint is not met; raise lambda_max, or allow a larger tolerance."
                )
                found.append(Diagnostic(sentence, ViolationWarning))
        return found

    def at(self, tolerance: float) -> MomentsEngine:
        """An engine on the same memberships with this tolerance; it asks nothing."""
        follower = copy.copy(self)
        follower.tolerance, follower._dead_zone, follower._asks = tolerance, 0.0, False
        return follower

    def state(self) -> dict[str, Array]:
        """Noised sums, public decisions and the public network of the first release; not the memberships."""
        pace = np.asarray(self._pace)
        saved: dict[str, Array] = (
            {} if self._last is None else {"lam": self._last[0], "gap": self._last[1], "pace": pace}
        )
        if self._network is None or not self._sums:
            return self._saved or saved  # what was restored, until the next round begins
        saved |= {f"network.{name}": value for name, value in as_arrays(self._network.module.state_dict()).items()}
        for j, sums in enumerate(self._sums):
            saved |= {f"sums.{j}": sums, f"spread.{j}": np.asarray(self._spreads[j])}
        for j, rows in enumerate(self._decisions):
            saved[f"decisions.{j}"] = rows
        if self._people is not None:
            saved |= {"people": self._people, "sizes": self._sizes}
        if self._silence is not None:
            saved["silence"] = self._silence
        return saved if self._weights is None else saved | {"weights": self._weights}

    def restore(self, state: dict[str, Array], *, lost: int) -> None:
        """Continue from noised answers; what was paid for and lost is not asked again."""
        self._lost, self._saved = lost, state
        checks = [name for name in state if name.startswith("sums.")]
        self._sums = [state[f"sums.{j}"] for j in range(len(checks))]
        self._spreads = [float(state[f"spread.{j}"]) for j in range(len(checks))]
        self._decisions = [state[f"decisions.{j}"] for j in range(len(checks) - 1)]
        self._weights, self._silence = state.get("weights"), state.get("silence")
        if "people" in state:
            self._people, self._sizes = state["people"], state["sizes"]
        if "gap" in state:
            self._last, self._pace = (state["lam"], state["gap"]), float(state["pace"])


def _with_state(module: nn.Module, saved: dict[str, Array]) -> nn.Module:
    twin = copy.deepcopy(module)
    twin.load_state_dict(as_tensors(with_prefix(saved, "network.")))
    return twin


def with_prefix(saved: dict[str, Array], prefix: str) -> dict[str, Array]:
    """What is saved under names that begin like this, by the rest of the name."""
    return {name.removeprefix(prefix): value for name, value in saved.items() if name.startswith(prefix)}
