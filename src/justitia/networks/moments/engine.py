"""The moments engine: a handful of noised sums, from which everything else is learned in public.

1. After the public warm-up, one release: the sums of public rows (:mod:`justitia.postprocessing.features`) over
   each group.
2. Soft memberships of largest entropy that agree with them (:mod:`justitia.postprocessing.memberships`) stand in for
   the attribute: the Lagrangian dual runs on them as often as it likes, at no further cost.
3. At a few checks the sums of the model's own current decisions are released and join the moments, so that the
   memberships are right where the model is.

The network is trained on a sample that is held in memory: all rows of a table, or a public sample of rows in files.
Sums are over all rows. Memberships are fitted on the sample and corrected by a pass, and at each check a pass says how
far the gaps of the sample are off.

The memberships are differentially private statistics of public rows. They live as long as training does: they are
never stored, logged or returned.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from justitia.exceptions import Diagnostic, ViolationWarning
from justitia.networks.engine import PrimalDualEngine
from justitia.networks.moments.plan import REVEALED, MomentsPlan
from justitia.networks.moments.rows import CheckRows, EvaluateNetwork, FrozenNetwork, JoinedRows, decided_rows
from justitia.networks.primal import as_arrays, as_tensors
from justitia.postprocessing.decisions import ColumnSums, centred_table, means_of_cells, rates_of_cells
from justitia.postprocessing.dual import label_table
from justitia.postprocessing.features import PublicRows
from justitia.postprocessing.memberships import FIT_ROWS, ExpectedSums, fit_to_all_rows, memberships, product_bits
from justitia.postprocessing.run import LOUD, all_releases_stddev, noise_warnings, sum_stddev
from justitia.privacy.interface import RowFunction, Vault
from justitia.privacy.ledger import BudgetExceeded
from justitia.privacy.mechanisms import Mechanism
from justitia.privacy.noise_grid import exact_sum_step
from justitia.privacy.vault import local_vault
from justitia.rows.files import sampled, stride
from justitia.rows.source import Block, MemoryRows
from justitia.training.diagnostics import missing_diagnostics, size_diagnostics
from justitia.training.lagrangian import Problem, ascend, population_means, row_bound, shrink
from justitia.training.method import ALL_ROWS, Rows
from justitia.training.plan import calibrated

Array = NDArray[Any]
#: Rows of a dual step, a public sample where there are more.
DUAL_ROWS = 50_000
#: The largest first gap for which the dual step and the damping are made; where it is smaller, both grow with it.
USUAL_GAP, FASTEST = 0.05, 5.0


class MomentsEngine(PrimalDualEngine):
    """Lagrangian dual on maximum-entropy memberships.

    Guarantee
    ---------
    * A enters only through ``group_sums`` of the vault, once for the moments and once per check; everything else here
      is a function of public data and of their noised answers. Without noise the attribute itself is revealed.
    """

    plan: MomentsPlan

    def __init__(
        self, plan: MomentsPlan, problem: Problem, vault: Vault, *, tolerance: float | None, seed: int = 0
    ) -> None:
        super().__init__(plan, problem, vault, tolerance=tolerance, seed=seed)
        self._dead_zone = plan.dead_zone if tolerance is None else 0.0
        self._moments_noise, self._checks_noise = calibrated(plan.noise_moments), calibrated(plan.noise_checks)
        self.private = not self._moments_noise.is_exact
        self._sample = MemoryRows(problem.X, problem.y, problem.weight, plan.micro_batch)
        self._all_in_sample = problem.rows == len(problem)
        self._rows: PublicRows | None = None  # of the moments
        self._checks: list[CheckRows] = []
        self._checked: list[Array] = []  # (n, K): rows of each check, in the sample
        self._sums: list[Array] = []  # (G + 1, d) noised sums: of the moments, then of each check
        self._stddevs: list[float] = []  # of their known noise
        self._bounds: list[float] = []  # of the norms of their rows
        self._weights: Array | None = None
        self._q: Tensor | None = None
        self._shift: Array | None = None  # (G, K): gaps of all rows less those of the sample, by the memberships
        self._queries = self.private
        self._last: tuple[Array, Array] | None = None  # multipliers and noised gaps of the last dual step
        self._pace = 0.0  # of the multipliers; 0 before the first gap
        self._counted: Array | None = None  # (G,) noised sizes of the groups
        self._silence: Array | None = None  # (2, 2): share of "not given" by label, and its noise
        self._lost = 0
        self._saved: dict[str, Any] = {}

    # -- queries --------------------------------------------------------------------------------------------------

    def query_before(self, module: nn.Module, _lam: Array, k: int) -> None:
        """The moments, once, after the warm-up; a resumed run computes its public rows again."""
        if k == 0 or self._q is not None:
            return
        if not self.private:
            n = self.problem.rows
            chosen = None if self._all_in_sample else sampled(0, n, n, stride(n))
            codes = local_vault(self.vault).reveal(purpose=REVEALED, rows=chosen)
            self._use(np.eye(self.vault.n_groups + 1, dtype=np.float32)[codes])
        elif self._saved:
            self._rows = self._public_rows(self._network(module, self._saved["network"]))
            checks = self._saved["checks"]
            self._checks = [self._check_rows(self._network(module, one["network"]), one["means"]) for one in checks]
            if self._weights is None:  # the run stopped while they were fitted
                self._fit()
            else:
                self._use(self._memberships())
        elif self._lost:
            raise BudgetExceeded(
                "the run stopped after its moments were paid for and before they were saved, and the debit stands; "
                "start again in another folder with a new budget."
            )
        else:
            self._rows = rows = self._public_rows(self._network(module))
            step = exact_sum_step(2.0 * self.problem.rows)
            total = self.problem.source.run(ColumnSums(rows, step)) * step
            self._release(rows, total, 1.0, self._moments_noise, "moments")
        self._saved = {}

    def query_after(self, module: nn.Module, scores: Array, k: int) -> None:
        """A check, if one is due: the noised sums of the decisions of all rows, from which the memberships learn."""
        if not (self._queries and k in self.plan.check_rounds):
            return
        if self._lost:
            self._lost -= 1
            return
        problem, network = self.problem, self._network(module)
        if self._all_in_sample:
            means = population_means(problem.notion.h_exact(scores, problem.y), problem.events)
        else:
            means, total, bound = self._evaluate(network, scores)
        rows = decided_rows(problem.notion, scores, problem.y, problem.events, means)
        check, query = self._check_rows(network, means), rows.astype(np.float64)
        self._checks.append(check)
        self._checked.append(rows.astype(np.float32))
        if self._all_in_sample:
            self._release(query, query.sum(0), row_bound(rows), self._checks_noise, "decisions")
        else:
            self._release(check, total, bound, self._checks_noise, "decisions")

    def _release(self, rows: Array | RowFunction, total: Array, bound: float, noise: Mechanism, purpose: str) -> None:
        """Release the sums of these rows, of which the total is public, and fit the memberships anew."""
        self.problem.source.check_unchanged()
        answer = self.vault.group_sums(rows, bound=bound, noise=noise, purpose=purpose)
        stddev = sum_stddev(noise, bound * self._each, self.vault.n_groups)
        self._sums.append(np.concatenate([answer, (total - answer.sum(0))[None]]))
        self._stddevs.append(stddev)
        self._bounds.append(bound)
        if len(self._sums) == 1:
            assert self._rows is not None  # noqa: S101 - the first release is about them
            self._silence = self._rows.silence(answer, total, stddev, self.problem.rows)
            self.save_answers()
        self._fit()

    def _evaluate(self, network: FrozenNetwork, scores: Array) -> tuple[Array, Array, float]:
        """(K,) means of the decisions of all rows, (K,) total and bound of the rows of a check; a pass.

        How far the gaps of the sample are off is kept.
        """
        assert self._weights is not None  # noqa: S101 - the moments are released first
        table, source = self.problem.notion.rates(), self.problem.source
        step = exact_sum_step(2.0 * source.n * max(source.max_weight, 1e-300))
        cells: Array = source.run(EvaluateNetwork(network, self._columns(), self._weights, step)) * step
        means = means_of_cells(table, cells[None, ..., -1])[0]
        sample = self._sample_gap(scores, ALL_ROWS)
        self._shift = rates_of_cells(table, cells[None, ..., :-1])[0] - means - sample
        centred = centred_table(table, means[None])[0]
        bound = source.max_weight * float(np.linalg.norm(centred, axis=-1).max())
        return means, (cells[..., -1:] * centred).sum((0, 1)), bound

    # -- memberships ----------------------------------------------------------------------------------------------

    def _network(self, module: nn.Module, weights: dict[str, Array] | None = None) -> FrozenNetwork:
        """A copy of the network as it is, or with weights that were saved."""
        frozen = FrozenNetwork.from_module(module, self.problem.X, self.plan.micro_batch)
        if weights is not None:
            frozen.module.load_state_dict(as_tensors(weights))
        return frozen

    def _public_rows(self, network: FrozenNetwork) -> PublicRows:
        X = self.problem.X.reshape(len(self.problem), -1)
        return PublicRows.fit(network, Block(0, X, self.problem.y, self.problem.weight))

    def _check_rows(self, network: FrozenNetwork, means: Array) -> CheckRows:
        return CheckRows(network, self.problem.notion, means)

    def _columns(self) -> JoinedRows:
        """The public rows of the moments and of every check so far, of any block."""
        assert self._rows is not None  # noqa: S101 - known with the first sums
        return JoinedRows((self._rows, *self._checks))

    def _sample_columns(self, stride: int = 1) -> Iterator[Array]:
        """The same columns of the sample, or of one of every ``stride`` rows of it, a few rows at a time."""
        assert self._rows is not None  # noqa: S101 - known with the first sums
        for block in self._sample.blocks():
            checked = (part[block.first : block.first + len(block)] for part in self._checked)
            yield np.concatenate([self._rows(block), *checked], axis=1)[-block.first % stride :: stride]

    def _fit(self) -> None:
        """Fit the memberships to all sums so far, from where they were."""
        widths, n = [part.shape[1] for part in self._sums], self.problem.rows
        fresh = sum(widths) - (0 if self._weights is None else self._weights.shape[1])
        start = None if self._weights is None else np.pad(self._weights, ((0, 0), (0, fresh)))
        sample = np.concatenate(list(self._sample_columns(math.ceil(len(self.problem) / FIT_ROWS))))
        bits = product_bits(n)
        scale = np.repeat([2.0 ** math.ceil(math.log2(max(bound, 1.0))) for bound in self._bounds], widths)

        def expected(weights: Array) -> Array:
            steps = self.problem.source.run(ExpectedSums(self._columns(), weights, bits, scale))
            found: Array = steps * 4.0**-bits * scale
            return found

        sums, ridge = np.concatenate(self._sums, axis=1), self.plan.ridge * np.repeat(self._stddevs, widths) ** 2
        self._weights = fit_to_all_rows(sample, sums, ridge=ridge, n=n, expected=expected, start=start)
        self._use(self._memberships())

    def _memberships(self) -> Array:
        """(n, G + 1): memberships of the sample."""
        assert self._weights is not None  # noqa: S101 - fitted before
        return np.concatenate([memberships(self._weights, part) for part in self._sample_columns()])

    def _use(self, q: Array) -> None:
        """Take these memberships as the attribute from now on."""
        q = np.ascontiguousarray(q[:, :-1])
        self._q = torch.from_numpy(q)
        self._counted = q.sum(0, dtype=np.float64) / self._share
        self._sizes = np.maximum((q.T @ self.problem.events.astype(q.dtype)).astype(np.float64), 1.0)

    # -- a round of Algorithm 1 -----------------------------------------------------------------------------------

    def row_weights(self, lam: Array, batch: Tensor) -> Tensor | None:
        r"""Weights of h in :math:`\sum \lambda_{a,k} (\mu_q(a, k) - \mu(D_{P_k}))`; nothing during the warm-up.

        What the last gaps are beyond the tolerance is added to the multipliers, as in an augmented Lagrangian: descent
        and ascent alone go round in circles.
        """
        if self._q is None:
            return None
        if self._last is not None:
            push = self._pace * self.plan.damping * shrink(self._last[1], self._half_tolerance())
            lam = np.clip(lam + push, -self.plan.lambda_max, self.plan.lambda_max)
        events, q = self.events.index_select(0, batch), self._q.index_select(0, batch)
        population = torch.from_numpy(lam.sum(0) / np.maximum(self.problem.event_sizes, 1e-12))
        per_group = torch.from_numpy(lam / self._sizes)
        return (events * (q @ per_group.to(q.dtype) - population.to(q.dtype))).sum(1)

    def dual_rows(self, k: int) -> Rows:
        """All rows at a check or if they are not too many; otherwise a public sample, drawn anew."""
        if len(self.problem) <= DUAL_ROWS or k in self.plan.check_rounds:
            return ALL_ROWS
        return torch.randint(len(self.problem), (DUAL_ROWS,), generator=self.generator).numpy()

    def gap(self, scores: Array, rows: Rows = ALL_ROWS) -> Array | None:
        """Gaps of the hard decisions over the memberships of these rows, and how far the sample is off."""
        if self._q is None:
            return None
        found = self._sample_gap(scores, rows)
        return found if self._shift is None else found + self._shift

    def _sample_gap(self, scores: Array, rows: Rows) -> Array:
        assert self._q is not None  # noqa: S101 - the moments are released first
        notion, y, events = self.problem.notion, self.problem.y[rows], self.problem.events[rows]
        means = population_means(notion.h_exact(scores, y), events)
        decided = decided_rows(notion, scores, y, events, means)
        q = self._q.numpy()[rows].astype(np.float64).T
        found: Array = (q @ decided.astype(np.float64)) / np.maximum(q @ events.astype(np.float64), 1.0)
        return found

    def ascend(self, lam: Array, gap: Array, k: int) -> Array:
        """Signed ascent on gaps beyond the tolerance or, if none was given, beyond the dead zone.

        Small gaps would move multipliers slowly, and let them overshoot for as long: the first ones set the pace.
        """
        plan = self.plan
        if self._pace == 0:
            self._pace = min(max(1.0, USUAL_GAP / max(float(np.abs(gap).max()), 1e-12)), FASTEST)
        step = self._pace * plan.dual_step_at(k)
        moved = ascend(lam, gap, step=step, tolerance=self._half_tolerance(), limit=plan.lambda_max)
        self._last = (moved, gap)
        return moved

    def compares(self, k: int) -> bool:
        """In the last rounds: multipliers go on moving, and gaps of hard decisions move by leaps."""
        return self.plan.lambda_max > 0 and k > self.plan.rounds - self.plan.candidates

    def excess(self, scores: Array, rows: Rows = ALL_ROWS) -> float:
        """Largest gap beyond the tolerance; less than the known noise counts as none."""
        gap = self.gap(scores, rows)
        beyond = 0.0 if gap is None else (np.abs(gap) - self._half_tolerance() - self._sum_noise / self._sizes).max()
        return max(0.0, float(beyond))

    # -- what is known of noise -----------------------------------------------------------------------------------

    @property
    def tolerance(self) -> float:
        """Twice the largest distance from the population that is allowed."""
        return self.given if self._counted is None else 2 * float(np.max(self._half_tolerance()))

    def _half_tolerance(self) -> Array:
        """(G, K): distance from the population that is allowed."""
        allowed: Array = self.half + self._dead_zone * self._sum_noise / self._sizes
        return allowed

    @property
    def _each(self) -> float:
        """How many rows one person moves from group to group; 1 where a row is what is protected."""
        return float(self.vault.rows_per_person)

    @property
    def _share(self) -> float:
        """Share of all rows that are in the sample."""
        return len(self.problem) / self.problem.rows

    @cached_property
    def _sum_noise(self) -> float:
        """Standard deviation of a group's gap times its size in the sample, at most: all releases together."""
        if self._all_in_sample:
            bound = row_bound(self.problem.events)
        else:
            events = label_table(self.problem.notion)[0]
            bound = self.problem.source.max_weight * float(np.linalg.norm(events, axis=1).max())
        bounds, noises = (bound * self._each, bound * self._each), (self._moments_noise, self._checks_noise)
        return all_releases_stddev(*noises, self.plan.checks, bounds, self.vault.n_groups) * self._share

    def gap_noise(self, share: float) -> float:
        """Noise, and sampling of rows that are held out; gaps of rows that were learned from say little."""
        return math.inf if share == 1 or self._counted is None else self._difference_stddev(share)

    def violation_stddev(self) -> float:
        """Of the two least known groups."""
        return self._difference_stddev(1.0)

    def _difference_stddev(self, share: float) -> float:
        variance = ((self._sum_noise / self._sizes) ** 2 + 0.25 / (share * self._sizes)).max(1)
        return float(np.sqrt(np.sort(variance)[-2:].sum()))

    def preflight(self) -> list[Diagnostic]:
        """Whether even groups of equal sizes are too small for the noise."""
        size = float(self.problem.event_sizes[self.problem.event_sizes > 0].min() / self.vault.n_groups)
        return noise_warnings(size / self._share, self._sum_noise / size, self.given)

    def diagnostics(self) -> list[Diagnostic]:
        """Groups that may not exist, rates that are mostly noise, and constraints that were not met."""
        if self._counted is None:
            return []
        found = missing_diagnostics(self._silence)
        noise = (self._sum_noise / self._sizes).max(1)
        few = max(1.0, 2 * sum_stddev(self._moments_noise, self._each, self.vault.n_groups))
        few, loud = few if self.private else -math.inf, max(self.given, LOUD)
        found += size_diagnostics(self.vault.group_names, self._counted, noise, few, loud)
        for a, name in enumerate(self.vault.group_names):
            if self._last is not None and 0 < self.plan.lambda_max <= float(np.abs(self._last[0][a]).max()):
                gap = float(np.abs(self._last[1][a]).max())
                sentence = (
                    f"the multiplier of group {name!r} reached lambda_max={self.plan.lambda_max:g} and its noised gap "
                    f"is {gap:.2g}: the constraint is not met; raise lambda_max, or allow a larger tolerance."
                )
                found.append(Diagnostic(sentence, ViolationWarning))
        return found

    # -- later runs -----------------------------------------------------------------------------------------------

    def at(self, tolerance: float) -> Self:
        """An engine on the same memberships with this tolerance; it queries nothing."""
        follower = copy.copy(self)
        follower.given, follower._dead_zone, follower._queries = tolerance, 0.0, False
        return follower

    def state(self) -> dict[str, Any]:
        """Noised sums, public decisions and the public networks that they are about; not the memberships."""
        if self._saved:
            return self._saved  # what was restored, until the next round begins
        last = {} if self._last is None else {"lam": self._last[0], "gap": self._last[1], "pace": self._pace}
        if self._rows is None or not self._sums:
            return last
        # Networks of checks decide again about rows outside the sample; there may be none.
        checks = self._checks if self.problem.rows > min(len(self.problem), FIT_ROWS) else []
        return last | {
            "network": _weights_of(self._rows.represent),
            "checks": [{"network": _weights_of(one.network), "means": one.means} for one in checks],
            "checked": list(self._checked),
            "sums": list(self._sums),
            "stddevs": list(self._stddevs),
            "bounds": list(self._bounds),
            "counted": self._counted,
            "sizes": None if self._counted is None else self._sizes,
            "silence": self._silence,
            "shift": self._shift,
            "weights": self._weights,
        }

    def restore(self, state: dict[str, Any], lost: int) -> None:
        """Continue from noised answers; what was paid for and lost is not queried again."""
        self._lost, self._saved = lost, state
        if "gap" in state:
            self._last, self._pace = (state["lam"], state["gap"]), state["pace"]
        if "sums" in state:
            self._checked, self._sums = list(state["checked"]), list(state["sums"])
            self._stddevs, self._bounds = list(state["stddevs"]), list(state["bounds"])
            self._weights, self._silence, self._shift = state["weights"], state["silence"], state["shift"]
            if state["counted"] is not None:
                self._counted, self._sizes = state["counted"], state["sizes"]


def _weights_of(network: Any) -> dict[str, Array]:
    found: dict[str, Array] = as_arrays(network.module.state_dict())
    return found
