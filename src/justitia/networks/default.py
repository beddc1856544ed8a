"""The network of one ``fit``: the user's own, or the default one by the rule stated here.

The rule. Engine ``moments`` with at most 20,000 rows and 128 inputs is a small sample, on which a constraint that reads
labels is overfitted by a plain network; there the default follows from where the notion reads labels:

* nowhere (demographic parity): the multilayer network;
* in its events (equalized odds and its parts): a piecewise linear function of every feature beside it;
* in h (accuracy parity): cross-fitted networks, each scoring rows that it has not learned from.

In all other cases: the multilayer network. The evidence is in ``docs/networks.md``.
"""

from __future__ import annotations

import copy
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from justitia.networks.crossfitted import CrossFittedNetwork
from justitia.networks.multilayer import default_widths, multilayer, widths_of
from justitia.networks.piecewise import PiecewiseNetwork, SmallSampleNetwork
from justitia.networks.requirements import as_scores
from justitia.notions import FairnessNotion

#: A small sample, for this rule: at most so many rows and inputs.
SMALL_ROWS, SMALL_INPUTS = 20_000, 128
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


def default_network(
    notion: FairnessNotion, X: Tensor, *, small_samples: bool, widths: tuple[int, int] | None = None
) -> nn.Module:
    """The default network for public rows X, by the rule above; it is seeded by torch's global generator.

    Parameters
    ----------
    small_samples : bool
        Whether the engine is one that has networks of its own for them.
    widths : tuple, optional
        Hidden widths that the engine's plan has for these rows; ``default_widths`` otherwise.
    """
    n, inputs = len(X), X.shape[-1]
    widths = widths or default_widths(n)
    if small_samples and n <= SMALL_ROWS and inputs <= SMALL_INPUTS:
        if notion.reads_labels_in == "events":
            return PiecewiseNetwork(X, widths)
        if notion.reads_labels_in == "h":
            return CrossFittedNetwork(X, widths)
    return multilayer(inputs, widths)


def make_module(
    module: Any,
    X: Tensor,
    notion: FairnessNotion,
    *,
    seed: int,
    small_samples: bool = False,
    widths: tuple[int, int] | None = None,
) -> nn.Module:
    """A fresh network for one ``fit``.

    ``module`` may be None (the default), hidden widths, a module (copied, never changed), or a function of the number
    of inputs. The global random state of torch is left as it was.
    """
    inputs = X.shape[-1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if module is None:
            return default_network(notion, X, small_samples=small_samples, widths=widths)
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
    """The network as it is kept: one for small samples as the multilayer one that it is, any other as it is."""
    return module.merged() if isinstance(module, SmallSampleNetwork) else module
