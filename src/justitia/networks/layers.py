"""Rows of one layer: how each kind of torch layer turns its input and the gradient of its output into factored rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from justitia.privacy.rows import ColumnBlock, DenseBlock, OuterBlock, ScatterBlock


def as_array(tensor: Tensor) -> NDArray[Any]:
    """The same numbers in the same memory."""
    return tensor.detach().numpy()


def _trains(parameter: Tensor | None) -> bool:
    return parameter is not None and parameter.requires_grad


def _affine(layer: Any, left: Tensor, right: Tensor) -> list[ColumnBlock]:
    if layer.weight.requires_grad:
        return [OuterBlock(as_array(left), as_array(right), _trains(layer.bias))]
    return [DenseBlock(as_array(left if left.ndim == 2 else left.sum(1)))]


def _linear(layer: nn.Linear, x: Tensor, g: Tensor) -> list[ColumnBlock]:
    if x.ndim > 3:
        x, g = x.flatten(1, -2), g.flatten(1, -2)
    return _affine(layer, g, x)


def _patches(layer: Any, x: Tensor) -> Tensor:
    """Cut out what each output position of a convolution sees, shape (m, C, L_1, .., k_1, ..)."""
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    x = nn.functional.pad(x, layer._reversed_padding_repeated_twice, mode=mode)
    for axis, (k, stride, dilation) in enumerate(
        zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), start=2
    ):
        x = x.unfold(axis, dilation * (k - 1) + 1, stride)[..., ::dilation]
    return x


def _convolution(layer: Any, x: Tensor, g: Tensor) -> list[ColumnBlock]:
    m, groups, dims = len(x), layer.groups, len(layer.kernel_size)
    left = g.flatten(2).mT
    patches = _patches(layer, x).movedim(1, 1 + dims).flatten(1, dims)  # (m, L, C, k_1, ..)
    if groups == 1:
        return _affine(layer, left, patches.flatten(2))
    blocks: list[ColumnBlock] = []
    if layer.weight.requires_grad:
        left, right = (t.reshape(*t.shape[:2], groups, -1) for t in (left, patches))
        blocks.append(DenseBlock(as_array(torch.einsum("mlgo,mlgi->mgoi", left, right).reshape(m, -1))))
    if _trains(layer.bias):
        blocks.append(DenseBlock(as_array(g.flatten(2).sum(2))))
    return blocks


def _embedding(layer: nn.Embedding, x: Tensor, g: Tensor) -> list[ColumnBlock]:
    index, values = x.reshape(len(x), -1), g.reshape(len(x), -1, g.shape[-1])
    if layer.padding_idx is not None:
        values = values.masked_fill((index == layer.padding_idx).unsqueeze(2), 0)
    return [ScatterBlock(as_array(index), as_array(values), layer.num_embeddings)]


def _layer_norm(layer: nn.LayerNorm, x: Tensor, g: Tensor) -> list[ColumnBlock]:
    shape = list(layer.normalized_shape)
    start = x.ndim - len(shape)
    unit = nn.functional.layer_norm(x, shape, eps=layer.eps)
    return _elementwise(layer, unit * g, g, lambda t: t.flatten(start).reshape(len(x), -1, layer.weight.numel()).sum(1))


def _group_norm(layer: nn.GroupNorm, x: Tensor, g: Tensor) -> list[ColumnBlock]:
    unit = nn.functional.group_norm(x, layer.num_groups, eps=layer.eps)
    return _elementwise(layer, unit * g, g, lambda t: t.reshape(len(x), layer.num_channels, -1).sum(2))


def _elementwise(layer: Any, weight: Tensor, bias: Tensor, fold: Callable[[Tensor], Tensor]) -> list[ColumnBlock]:
    return [DenseBlock(as_array(fold(t))) for p, t in ((layer.weight, weight), (layer.bias, bias)) if _trains(p)]


SHORTCUTS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], list[ColumnBlock]]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
}

#: Activations and their backward pass, from the gradient and the activation's own output.
ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    nn.ReLU: (torch.relu, lambda g, out: torch.ops.aten.threshold_backward(g, out, 0)),
    nn.Tanh: (torch.tanh, torch.ops.aten.tanh_backward),
    nn.Sigmoid: (torch.sigmoid, torch.ops.aten.sigmoid_backward),
    nn.Dropout: (lambda x: x, lambda g, _: g),
    nn.Identity: (lambda x: x, lambda g, _: g),
}
