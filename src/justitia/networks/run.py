"""Algorithm 1 (F-LD) and, with an engine that noises what it queries, PF-LD: one loop, line by line."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from justitia.exceptions import Diagnostic
from justitia.networks.default import evaluate, ordinary
from justitia.networks.engine import PrimalDualEngine
from justitia.networks.plan import Round, TrainingPlan
from justitia.networks.primal import PrimalSteps
from justitia.training.checkpoint import Checkpoint
from justitia.training.diagnostics import public_scores
from justitia.training.method import ALL_ROWS, Array, Bar, Rows, Run, Trained


class NetworkRun(Run):
    """One run of Algorithm 1.

    Parameters
    ----------
    module : nn.Module
        Trained in place.
    plan : TrainingPlan
        Calibrated; its schedule and step sizes.
    engine : PrimalDualEngine
        What the constraint adds to a primal step, and how large the violation is.
    """

    def __init__(self, module: nn.Module, plan: TrainingPlan, engine: PrimalDualEngine) -> None:
        self.module, self.plan, self.engine = module, plan, engine
        self.problem, self.vault = engine.problem, engine.vault
        held = plan.held_rows(len(self.problem))
        self._held_out: Rows = held if len(held) else ALL_ROWS
        self._kept: Tensor | None = None  # weights, and how far they are beyond the tolerance
        self._excess = math.inf
        self._history: list[dict[str, Any]] = []

    def train(self, bar: Bar, *, start: Array | None = None, checkpoint: Checkpoint | None = None) -> Trained:
        """Minimise loss + sum lambda * violation over the weights, ascend over lambda (Algorithm 1).

        Parameters
        ----------
        start : ndarray (G, K), optional
            Multipliers of a run that this one follows; 0 otherwise, as in line 1.
        checkpoint : Checkpoint, optional
            Saved after every round; if it holds a run already, that run goes on.
        """
        engine, module, rounds = self.engine, self.module, self.plan.schedule(len(self.problem))
        with bar(sum(one.steps for one in rounds), "fit") as shown, torch.random.fork_rng(devices=[]):
            torch.manual_seed(engine.seed)
            primal = PrimalSteps(module, self.problem, self.plan, engine.generator)
            zero = np.zeros((self.vault.n_groups, self.problem.events.shape[1]))
            lam, first = zero if start is None else start, 0  # line 1
            if checkpoint is not None and (saved := checkpoint.restore()) is not None:
                self._restore(saved.state, primal, saved.lost)
                lam, first = saved.lam, saved.position
            engine.query_before(module, lam, 0)
            if first == 0:
                self._save(checkpoint, primal, lam, 0)
            for position in range(first, len(rounds)):  # line 2
                this = rounds[position]
                engine.save_answers = partial(self._save, checkpoint, primal, lam, position)
                if this.k > 0:
                    engine.query_before(module, lam, this.k)
                for batch in primal.batches(this):  # line 3
                    primal.step(batch, engine.row_weights(lam, batch), engine.constraint(module, lam, batch))  # line 4
                shown.update(this.steps)
                rows = engine.dual_rows(this.k)
                scores, gap = primal.scores(rows), None
                if this.dual:
                    engine.query_after(module, scores, this.k)
                    gap = engine.gap(scores, rows)
                if gap is not None:
                    lam = engine.ascend(lam, gap, this.k)  # lines 5 and 6
                self._record(this, scores, rows, gap, lam)
                if engine.compares(this.k):
                    self._keep_better(primal, rows)
                self._save(checkpoint, primal, lam, position + 1)
            engine.save_answers = lambda: None
            primal.use(primal.average if self._kept is None else self._kept)
        return Trained(lam, self._history)

    def _record(self, this: Round, scores: Array, rows: Rows, gap: Array | None, lam: Array) -> None:
        """One row of the history: public loss and accuracy on rows held out, the noised gaps, the multipliers."""
        y, weight = self.problem.y[rows], self.problem.weight[rows]
        if not isinstance(self._held_out, slice):
            held = np.zeros(len(self.problem), dtype=np.bool_)
            held[self._held_out] = True
            if (held := held[rows]).any():
                scores, y, weight = scores[held], y[held], weight[held]
        logits, labels, weights = (torch.from_numpy(one) for one in (scores, y, weight))
        error = math.nan if gap is None else self.engine.violation_stddev()
        self._history.append(
            {
                "round": this.k,
                "loss": float(F.binary_cross_entropy_with_logits(logits, labels, weights)),
                **public_scores(scores, y, weight),
                "noisy_gap": None if gap is None else gap.tolist(),
                "violation_error": None if math.isnan(error) else error,
                "multiplier": lam.tolist(),
            }
        )

    def _keep_better(self, primal: PrimalSteps, rows: Rows) -> None:
        """Keep the averaged weights of now, unless those kept so far are nearer to the tolerance."""
        if primal.average is None:
            return
        now = nn.utils.parameters_to_vector(primal.params).detach()
        primal.put(primal.average)
        excess = self.engine.excess(primal.scores(rows), rows)
        primal.put(now)
        if excess <= self._excess:
            self._kept, self._excess = primal.average, excess

    def _save(self, checkpoint: Checkpoint | None, primal: PrimalSteps, lam: Array, position: int) -> None:
        """Save everything that a resumed run needs; nothing in it depends on A but through noised answers."""
        if checkpoint is None:
            return
        kept = None if self._kept is None else self._kept.numpy()
        own = {"kept": kept, "excess": self._excess, "history": self._history}
        checkpoint.save(own | {"primal": primal.state(), "engine": self.engine.state()}, lam, position)

    def _restore(self, state: dict[str, Any], primal: PrimalSteps, lost: int) -> None:
        self._kept = None if state["kept"] is None else torch.from_numpy(state["kept"])
        self._excess, self._history = state["excess"], state["history"]
        primal.restore(state["primal"])
        self.engine.restore(state["engine"], lost)

    # -- what a session needs of it -------------------------------------------------------------------------------

    def at(self, tolerance: float) -> Self:
        """The second half of the schedule with this tolerance, from these weights and on the same answers."""
        engine = self.engine.at(tolerance)
        return type(self)(copy.deepcopy(self.module), engine.plan.following(tolerance), engine)

    @property
    def tolerance(self) -> float:
        """The largest difference between two groups that is allowed."""
        return self.engine.tolerance

    def fitted(self) -> nn.Module:
        """The network as it is deployed."""
        return ordinary(self.module)

    def scores(self) -> Array:
        """(n,) logits of the training rows."""
        with torch.random.fork_rng(devices=[]):  # a module of one's own may draw
            return evaluate(self.module, torch.from_numpy(self.problem.X)).astype(self.problem.y.dtype)

    def held_out(self) -> Rows:
        """Rows that primal steps leave out; all where there are none."""
        return self._held_out

    def gap(self, scores: Array, rows: Rows = ALL_ROWS) -> Array | None:
        """(G, K) noised violations of the scores of these rows, by the last answers."""
        return self.engine.gap(scores, rows)

    def gap_noise(self) -> float:
        """Standard deviation of the difference of two groups in the rows that are held out; infinite if unknown."""
        held = self._held_out
        return self.engine.gap_noise(1.0 if isinstance(held, slice) else len(held) / len(self.problem))

    def violation_stddev(self) -> float:
        """Standard error, noise and sampling, of an estimated violation; NaN where it is not known."""
        return self.engine.violation_stddev()

    def preflight(self) -> list[Diagnostic]:
        """Warnings before the first query, from public numbers."""
        return self.engine.preflight()

    def diagnostics(self) -> list[Diagnostic]:
        """Warnings after training, from public and noised numbers."""
        return self.engine.diagnostics()
