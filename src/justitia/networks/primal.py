"""Primal steps of Algorithm 1: the weights, their running average, the optimizer and the order of the batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from justitia.networks.plan import Round, TrainingPlan
from justitia.networks.requirements import as_scores, trainable
from justitia.training.lagrangian import Problem
from justitia.training.method import Array, Rows


class PrimalSteps:
    """What primal steps change: weights, their running average, optimizer, and the order of the batches.

    Parameters
    ----------
    module : nn.Module
        Trained in place.
    problem : Problem
    plan : TrainingPlan
    generator : torch.Generator
        Orders the batches.
    """

    def __init__(self, module: nn.Module, problem: Problem, plan: TrainingPlan, generator: torch.Generator) -> None:
        self.module, self.problem, self.plan, self.generator = module, problem, plan, generator
        self.X, self.y, self.weight = (torch.from_numpy(one) for one in (problem.X, problem.y, problem.weight))
        self.params = trainable(module)
        self.sizes = [p.numel() for p in self.params]
        self.optimizer = plan.make_optimizer(self.params, n=len(problem), inputs=problem.X[0].size)
        held = torch.zeros(len(problem), dtype=torch.bool)
        held[torch.from_numpy(plan.held_rows(len(problem)))] = True
        self._learned_from = (~held).nonzero()[:, 0] if held.any() else None
        self.average: Tensor | None = None
        self.order = torch.empty(0, dtype=torch.long)
        self.done, self.total = 0, sum(r.steps for r in plan.schedule(len(problem)) if r.k > 0)

    def batches(self, this: Round) -> Iterator[Tensor]:
        """The next batches of an endless sequence of shuffled passes over the rows; sets their learning rate."""
        size, learned_from = self.plan.batch_rows(len(self.problem)), self._learned_from
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
            if self.plan.averaging < 1 and this.k > 0:
                flat = torch.cat([p.detach().flatten() for p in self.params])
                self.average = flat if self.average is None else self.average.lerp(flat, self.plan.averaging)

    def step(self, batch: Tensor, weights: Tensor | None = None, constraint: Tensor | None = None) -> None:
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

    def scores(self, rows: Rows) -> Array:
        """(m,) public scores of these rows at the current weights."""
        self.module.eval()
        size = self.plan.micro_batch
        if isinstance(rows, slice):
            inputs = iter(self.X[rows].split(size))
        else:
            inputs = (self.X.index_select(0, part) for part in torch.from_numpy(rows).split(size))
        with torch.no_grad():
            return torch.cat([as_scores(self.module(part), len(part)) for part in inputs]).numpy()

    def put(self, flat: Tensor) -> None:
        """Put weights into the module."""
        for p, part in zip(self.params, flat.split(self.sizes), strict=True):
            p.data.copy_(part.view_as(p))

    def use(self, chosen: Tensor | None) -> None:
        """End training with these weights, or with those of the last step."""
        self.module.eval()
        if chosen is not None:
            self.put(chosen)

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain values and arrays."""
        found: dict[str, Any] = as_arrays(
            {
                "module": self.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "average": self.average,
                "order": self.order,
                "done": self.done,
                "generator": self.generator.get_state(),
                "torch_generator": torch.get_rng_state(),  # dropout draws from it
            }
        )
        return found

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        state = as_tensors(state)
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average, self.order, self.done = state["average"], state["order"], state["done"]
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["torch_generator"])


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
