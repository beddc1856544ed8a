"""A copy of the network as it is at one moment, whose last hidden layer represents rows."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from justitia.networks.requirements import as_scores


class FrozenNetwork:
    """A copy of the network as it is now: its score, and what it computes before its last linear layer.

    A network that does not use exactly one linear layer with a single output exposes no representation.
    """

    def __init__(self, module: nn.Module, X: Tensor) -> None:
        self._X = X
        self.module = copy.deepcopy(module).eval()
        self._seen: list[Tensor] = []
        for part in self.module.modules():
            if isinstance(part, nn.Linear) and part.out_features == 1:
                part.register_forward_pre_hook(lambda _layer, inputs: self._seen.append(inputs[0].detach()))

    def of(self, X: Tensor) -> FrozenNetwork:
        """The same network, and other rows."""
        others = copy.copy(self)
        others._X = X
        return others

    def __call__(self, index: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """(m, width) representation of these rows, width 0 if there is none, and (m,) scores."""
        X = self._X[torch.from_numpy(index)]
        self._seen.clear()
        with torch.no_grad():
            scores = as_scores(self.module(X), len(X)).detach()
        exposed = len(self._seen) == 1 and self._seen[0].ndim == 2 and len(self._seen[0]) == len(X)
        hidden = self._seen[0] if exposed else scores.new_zeros(len(X), 0)
        return hidden.numpy(), scores.numpy()
