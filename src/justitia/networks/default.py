"""A network for one ``fit``, the default or a user's own: made, tried before any budget is spent, evaluated."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from justitia.engines.gradients.score_rows import score_rows
from justitia.networks.crossfitted import CrossFittedNetwork
from justitia.networks.multilayer import default_widths, multilayer, widths_of
from justitia.networks.piecewise import FewPeopleNetwork, PiecewiseNetwork
from justitia.networks.requirements import as_scores, check_module, trainable
from justitia.training.plan import TrainingPlan

#: Default networks by name, made of public rows and hidden widths.
NETWORKS: dict[str, Callable[[Tensor, Sequence[int]], nn.Module]] = {
    "multilayer": lambda X, widths: multilayer(X.shape[-1], widths),
    "piecewise": PiecewiseNetwork,
    "cross-fitted": CrossFittedNetwork,
}
#: Public rows that a module is tried on before training.
TRIAL_ROWS = 16
#: Rows scored at once; bounds memory.
CHUNK_ROWS = 65536


def evaluate(module: nn.Module, X: Tensor) -> NDArray[np.float64]:
    """(n,) scores for prediction.

    A multilayer network is evaluated in double precision, so that a row's score does not depend on how many rows are
    scored together; any other module in its own precision.
    """
    exact = widths_of(module) is not None
    network, rows = (copy.deepcopy(module).double(), X.double()) if exact else (module, X)
    network.eval()
    with torch.no_grad():
        parts = [as_scores(network(part), len(part)) for part in rows.split(CHUNK_ROWS)]
    scores: NDArray[np.float64] = torch.cat(parts).double().numpy()
    return scores


def make_module(
    module: Any, *, inputs: int, n: int, seed: int, default: str = "multilayer", X: Tensor | None = None
) -> nn.Module:
    """A fresh network for one ``fit``.

    ``module`` may be None (default widths; the default network has a name of :data:`NETWORKS`, and may cut the numbers
    of X), hidden widths, a module (copied, never changed), or a function of the number of inputs. The global random
    state of torch is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if module is None:
            rows = torch.empty(0, inputs) if X is None else X
            return NETWORKS[default](rows, default_widths(n))
        if isinstance(module, nn.Module):
            return copy.deepcopy(module)
        if isinstance(module, Sequence) and all(isinstance(w, numbers.Integral) and int(w) > 0 for w in module):
            return multilayer(inputs, [int(width) for width in module])
        made = module(inputs) if callable(module) else None
    if not isinstance(made, nn.Module):
        raise TypeError(
            "expected module to be None, a sequence of hidden widths, a torch.nn.Module, or a function that takes "
            f"the number of inputs and returns a torch.nn.Module; got {type(module).__name__}."
        )
    return made


def ordinary(module: nn.Module) -> nn.Module:
    """The network as it is kept: one for few people as the multilayer one that it is, any other as it is."""
    return module.merged() if isinstance(module, FewPeopleNetwork) else module


def rehearse(module: nn.Module, X: Tensor, y: Tensor, plan: TrainingPlan) -> None:
    """Take one public step on a copy, so that what cannot be trained fails before any budget is spent.

    Raises
    ------
    ValueError
        If the module is not one whose rows can be bounded, or the optimizer cannot take a step on it.
    """
    check_module(module, X[:TRIAL_ROWS])
    twin, rows, labels = copy.deepcopy(module), X[:TRIAL_ROWS], y[:TRIAL_ROWS]
    try:
        with torch.random.fork_rng(devices=[]):
            optimizer = plan.make_optimizer(trainable(twin), n=len(X))
            scores = as_scores(twin.train()(rows), len(rows))
            F.binary_cross_entropy_with_logits(scores, labels).backward()
            optimizer.step()
            score_rows(twin.eval(), rows)
    except Exception as error:  # noqa: BLE001 - a user's module and torch's optimizers may raise anything
        first = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise ValueError(
            f"expected {plan.optimizer} to take a step on the module, got '{first}'; "
            "change the plan's optimizer and its options, or the module."
        ) from None
