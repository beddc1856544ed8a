"""Algorithm 1 (F-LD) and, with an engine that noises what it asks, PF-LD: one loop, line by line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from torch import nn

from justitia.networks.engine import PrimalDualEngine
from justitia.networks.plan import TrainingPlan
from justitia.networks.run import Run
from justitia.training.checkpoint import Checkpoint
from justitia.training.lagrangian import Problem
from justitia.training.method import Array, Trained


def train(
    module: nn.Module,
    problem: Problem,
    plan: TrainingPlan,
    engine: PrimalDualEngine,
    *,
    start: Array | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> Trained:
    """Minimise loss + sum lambda * violation over the weights, ascend over lambda (Algorithm 1).

    Parameters
    ----------
    module : nn.Module
        Trained in place.
    engine : PrimalDualEngine
        What the constraint adds to a primal step, and how large the violation is; its generator also orders the
        mini-batches.
    start : ndarray (G, K), optional
        Multipliers of a run that this one follows; 0 otherwise, as in line 1.
    checkpoint : Checkpoint, optional
        Saved after every round; if it holds a run already, that run goes on.
    progress : callable
        Told how many primal steps were done.
    """
    rounds = plan.schedule(len(problem))
    run = Run(module, problem, plan, engine.generator)
    zero = np.zeros((engine.vault.n_groups, problem.events.shape[1]))
    lam = zero if start is None else start  # line 1
    lam, first = (lam, 0) if checkpoint is None else checkpoint.restore(run, engine, lam)
    engine.ask_before(module, lam, 0)
    if checkpoint is not None and first == 0:
        checkpoint.save(run, engine, lam, 0)
    for position in range(first, len(rounds)):  # line 2
        this = rounds[position]
        if checkpoint is not None:
            engine.keep = partial(checkpoint.save, run, lam=lam, position=position)
        if this.k > 0:
            engine.ask_before(module, lam, this.k)
        for batch in run.batches(this):  # line 3
            run.primal_step(batch, engine.row_weights(lam, batch), engine.constraint(module, lam, batch))  # line 4
        progress(this.steps)
        seen = engine.watched(this.k)
        scores = run.scores(seen)
        if this.dual:
            engine.ask_after(scores, this.k)
        gap = engine.gap(scores, seen) if this.dual else None
        if gap is not None:
            lam = engine.ascend(lam, gap, this.k)  # lines 5 and 6
        run.record(this, scores, seen, gap, lam, engine.violation_stddev)
        if engine.compares(this.k):
            run.keep_better(engine, seen)
        if checkpoint is not None:
            checkpoint.save(run, engine, lam, position + 1)
    run.use_kept_weights()
    return Trained(lam, run.history)
