"""The weights of a network as bytes and back, by safetensors: no pickle."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_weights
from safetensors.torch import save as save_weights
from torch import Tensor, nn

from justitia.networks.multilayer import multilayer, widths_of


def module_bytes(module: nn.Module) -> bytes:
    """Every weight and buffer of the module."""
    return save_weights({name: tensor.contiguous().clone() for name, tensor in module.state_dict().items()})


def module_widths(module: nn.Module) -> list[int] | None:
    """Widths of a multilayer network from its inputs to its output; None of another module."""
    return widths_of(module)


def read_module(content: bytes, widths: list[int] | None, module: nn.Module | None, place: str) -> nn.Module:
    """A network with these weights: a multilayer one of these widths, or a copy of ``module``.

    Raises
    ------
    ValueError
        If they are damaged, or do not fit the module.
    """
    try:
        weights = load_weights(content)
        fresh: Any = copy.deepcopy(module) if widths is None else _network(widths, weights)
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, AttributeError):
        raise ValueError(f"the weights of {place!r} are damaged; save the model again.") from None
    try:
        fresh.load_state_dict(weights)
    except RuntimeError:
        raise ValueError(
            f"expected a module with the layers that were saved in {place!r}, got another one; pass one of the same "
            "shape."
        ) from None
    network: nn.Module = fresh.eval()
    return network


def _network(widths: Any, weights: Mapping[str, Tensor]) -> nn.Module:
    """A network of these widths, made only where the weights that were read have exactly its shapes."""
    inner = [tuple(weight.shape) for weight in weights.values() if weight.ndim == 2]
    written = [(after, before) for before, after in pairwise(int(width) for width in widths)]
    if sorted(inner) != sorted(written):
        raise ValueError("expected weights of the widths that are written, got others.")
    return multilayer(int(widths[0]), [int(width) for width in widths[1:-1]])
