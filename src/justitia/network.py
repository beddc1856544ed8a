"""The default network: two hidden ReLU layers, as in the paper, sized by public numbers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn


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
        if isinstance(module, Sequence) and all(isinstance(w, int) and w > 0 for w in module):
            return multilayer(inputs, module)
        made = module(inputs) if callable(module) else None
    if not isinstance(made, nn.Module):
        raise TypeError(
            "Expected module to be None, a sequence of hidden widths, a torch.nn.Module, or a function that takes "
            f"the number of inputs and returns a torch.nn.Module; got {type(module).__name__}."
        )
    return made
