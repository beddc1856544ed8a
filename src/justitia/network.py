"""The default network (two hidden ReLU layers, as in the paper, sized by public numbers) and users' own."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from justitia.dual.gradients import score_rows
from justitia.dual.modules import as_scores, check_module, trainable
from justitia.dual.plan import TrainingPlan

#: Public rows that a module is tried on before training.
TRIAL_ROWS = 16
#: Rows scored at once; bounds memory.
CHUNK_ROWS = 65536


def default_widths(n: int) -> tuple[int, int]:
    """Hidden widths for n rows: small networks on small data, since noise grows with the number of weights."""
    first = min(40, max(8, round(n**0.5 / 5)))
    return first, max(6, round(0.75 * first))


def multilayer(inputs: int, widths: Sequence[int]) -> nn.Sequential:
    """ReLU network with the given hidden widths and one score."""
    sizes = [inputs, *widths]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 1))


def widths_of(module: nn.Module) -> list[int] | None:
    """Layer sizes if the network is of the default kind, which can be rebuilt from them; None for any other."""
    if type(module) is not nn.Sequential:
        return None
    linear = [layer for layer in module if isinstance(layer, nn.Linear)]
    sizes = [linear[0].in_features, *(layer.out_features for layer in linear)] if linear else [1]
    rebuilt = multilayer(sizes[0], sizes[1:-1])
    return sizes if str(rebuilt) == str(module) else None


def evaluate(module: nn.Module, X: Tensor) -> NDArray[np.float64]:
    """(n,) scores for prediction.

    The default network is evaluated in double precision, so that a row's score does not depend on how many rows are
    scored together; any other module in its own precision.
    """
    exact = widths_of(module) is not None
    network, rows = (copy.deepcopy(module).double(), X.double()) if exact else (module, X)
    network.eval()
    with torch.no_grad():
        parts = [as_scores(network(part), len(part)) for part in rows.split(CHUNK_ROWS)]
    scores: NDArray[np.float64] = torch.cat(parts).double().numpy()
    return scores


def make_module(module: Any, *, inputs: int, n: int, seed: int) -> nn.Module:
    """A fresh network for one ``fit``.

    ``module`` may be None (default widths), hidden widths, a module (copied, never changed), or a function of the
    number of inputs. The global random state of torch is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if module is None:
            return multilayer(inputs, default_widths(n))
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
