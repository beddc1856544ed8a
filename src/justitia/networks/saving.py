"""The weights of a network as bytes and back, by safetensors: no pickle."""

from __future__ import annotations

import copy
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_weights
from safetensors.torch import save as save_weights
from torch import nn

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
        If there is no module to put the weights into, they are damaged, or they do not fit.
    """
    fresh: Any = copy.deepcopy(module) if widths is None else multilayer(widths[0], widths[1:-1])
    if fresh is None:
        raise ValueError(f"{place!r} was fitted with a module of its own; pass load(..., module=that module).")
    try:
        weights = load_weights(content)
    except (SafetensorError, OSError, ValueError, KeyError):
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
