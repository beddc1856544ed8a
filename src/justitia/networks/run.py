"""What training mutates: weights, their running average, optimizer, order of the batches, history."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from justitia.networks.engine import PrimalDualEngine
from justitia.networks.plan import Round, TrainingPlan
from justitia.networks.requirements import as_scores, trainable
from justitia.training.lagrangian import Problem
from justitia.training.method import Array, Rows
from justitia.training.public_scores import public_scores


class Run:
    """The state that training mutates: weights, their running average, optimizer, order of the batches, history."""

    def __init__(self, module: nn.Module, problem: Problem, plan: TrainingPlan, generator: torch.Generator) -> None:
        self.module, self.problem, self.plan, self.generator = module, problem, plan, generator
        self.X, self.y, self.weight = (torch.from_numpy(one) for one in (problem.X, problem.y, problem.weight))
        self.params = trainable(module)
        self.sizes = [p.numel() for p in self.params]
        self.optimizer = plan.make_optimizer(self.params, n=len(problem), inputs=problem.X[0].size)
        self.held = torch.zeros(len(problem), dtype=torch.bool)
        self.held[torch.from_numpy(plan.held_rows(len(problem)))] = True
        self.average: Tensor | None = None
        self.kept: Tensor | None = None
        self.excess = math.inf
        self.order = torch.empty(0, dtype=torch.long)
        self.done, self.total = 0, sum(r.steps for r in plan.schedule(len(problem)) if r.k > 0)
        self.history: list[dict[str, Any]] = []

    def batches(self, this: Round) -> Any:
        """The next batches of an endless sequence of shuffled passes over the rows; sets their learning rate."""
        size = self.plan.batch_rows(len(self.problem))
        learned_from = (~self.held).nonzero()[:, 0] if self.held.any() else None
        for _ in range(this.steps):
            rate = self.plan.learning_rate_at(self.done / max(self.total, 1)) if this.k else None
            for group in self.optimizer.param_groups:
                group["lr"] = self.plan.warmup_learning_rate if rate is None else rate
            if len(self.order) == 0:
                rows = len(self.problem) if learned_from is None else len(learned_from)
                order = torch.randperm(rows, generator=self.generator)
                self.order = order if learned_from is None else learned_from[order]
            batch, self.order = self.order[:size], self.order[size:]
            yield batch
            self.done += this.k > 0
            self._update_average(this)

    def primal_step(self, batch: Tensor, weights: Tensor | None = None, constraint: Tensor | None = None) -> None:
        r"""Line 4: one optimizer step on the gradient of the loss plus that of the constraint.

        The constraint's part is that of :math:`\sum_i w_i h_i` over all rows, estimated on the batch from public
        weights w, or a gradient itself.
        """
        problem = self.problem
        y = self.y[batch]
        self.module.train()
        scores = as_scores(self.module(self.X.index_select(0, batch)), len(batch))  # faster than X[batch]
        losses = F.binary_cross_entropy_with_logits(scores, y, reduction="none")
        loss = (self.weight[batch] * losses).mean()
        if weights is not None:
            loss = loss + len(problem) * (weights.to(scores.dtype) * problem.notion.h(scores, y)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        if constraint is not None:
            for p, part in zip(self.params, constraint.to(scores.dtype).split(self.sizes), strict=True):
                p.grad = part.view_as(p).clone() if p.grad is None else p.grad + part.view_as(p)
        self.optimizer.step()

    def _update_average(self, this: Round) -> None:
        if self.plan.averaging == 1 or this.k == 0:
            return
        flat = torch.cat([p.detach().flatten() for p in self.params])
        self.average = flat if self.average is None else self.average.lerp(flat, self.plan.averaging)

    def scores(self, seen: Rows) -> Array:
        """(m,) public scores of these rows at the current weights."""
        self.module.eval()
        with torch.no_grad():
            parts = [as_scores(self.module(part), len(part)) for part in self._features(seen)]
        return torch.cat(parts).numpy()

    def _features(self, seen: Rows) -> Iterator[Tensor]:
        size = self.plan.micro_batch
        if isinstance(seen, slice):
            return iter(self.X[seen].split(size))
        return (self.X.index_select(0, part) for part in torch.from_numpy(seen).split(size))

    def record(
        self,
        this: Round,
        scores: Array,
        seen: Rows,
        gap: Array | None,
        lam: Array,
        error: Callable[[], float],
    ) -> None:
        """One row of the history: public loss and accuracy on rows held out, the noised gaps, the multipliers."""
        y, weight = self.problem.y[seen], self.problem.weight[seen]
        if (held := self.held.numpy()[seen]).any():
            scores, y, weight = scores[held], y[held], weight[held]
        logits, labels, weights = (torch.from_numpy(one) for one in (scores, y, weight))
        loss = F.binary_cross_entropy_with_logits(logits, labels, weights)
        self.history.append(
            {
                "round": this.k,
                "loss": float(loss),
                **public_scores(scores, y, weight),
                "noisy_gap": None if gap is None else gap.tolist(),
                "violation_error": None if gap is None or math.isnan(error()) else error(),
                "multiplier": lam.tolist(),
            }
        )

    def keep_better(self, engine: PrimalDualEngine, seen: Rows) -> None:
        """Keep the averaged weights of now, unless those kept so far are nearer to the tolerance."""
        if self.average is None:
            return
        now = nn.utils.parameters_to_vector(self.params).detach()
        self._put(self.average)
        excess = engine.excess(self.scores(seen), seen)
        self._put(now)
        if excess <= self.excess:
            self.kept, self.excess = self.average, excess

    def use_kept_weights(self) -> None:
        """Put the weights that were kept, or else the running average, into the module."""
        self.module.eval()
        chosen = self.average if self.kept is None else self.kept
        if chosen is not None:
            self._put(chosen)

    def _put(self, flat: Tensor) -> None:
        for p, part in zip(self.params, flat.split(self.sizes), strict=True):
            p.data.copy_(part.view_as(p))

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs; nothing in it depends on A but through noised answers."""
        found: dict[str, Any] = as_arrays(
            {
                "module": self.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "average": self.average,
                "kept": self.kept,
                "excess": self.excess,
                "order": self.order,
                "done": self.done,
                "generator": self.generator.get_state(),
                "torch_generator": torch.get_rng_state(),  # dropout draws from it
                "history": self.history,
            }
        )
        return found

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        state = as_tensors(state)
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average, self.order, self.done = state["average"], state["order"], state["done"]
        self.kept, self.excess = state["kept"], state["excess"]
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["torch_generator"])
        self.history = state["history"]


def as_arrays(tree: Any) -> Any:
    """The same tree with an array in the place of every tensor."""
    if isinstance(tree, dict):
        return {name: as_arrays(one) for name, one in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(as_arrays(one) for one in tree)
    return tree.detach().numpy() if isinstance(tree, Tensor) else tree


def as_tensors(tree: Any) -> Any:
    """The same tree with a tensor in the place of every array."""
    if isinstance(tree, dict):
        return {name: as_tensors(one) for name, one in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(as_tensors(one) for one in tree)
    return torch.from_numpy(tree) if isinstance(tree, np.ndarray) else tree
