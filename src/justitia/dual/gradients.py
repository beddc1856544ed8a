r"""Per-example gradients of the score at the price of ordinary ones.

The network gives one score per row, s_i = f_theta(x_i), and every gradient the Lagrangian needs is a
multiple of the score's: the loss has l'(s_i) grad s_i, the fairness term h'(s_i) grad s_i. One backward pass
of sum_i s_i therefore serves them all: at each layer it leaves the layer's input and the gradient of its
output, whose products are the rows. Nothing here knows the sensitive attribute.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap

from justitia.privacy.rows import Block, DenseBlock, FactoredRows, OuterBlock, ScatterBlock, index_chunks

# ------------------------------------------------------------------ flat view of the parameters


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """Parameters that require a gradient, in the order of ``parameters_to_vector``."""
    return [p for p in module.parameters() if p.requires_grad]


def assign_gradient(params: Sequence[nn.Parameter], flat: Tensor) -> None:
    """Set each ``.grad`` to its part (a view) of one flat vector, so that any optimizer can step."""
    sizes = [p.numel() for p in params]
    if sum(sizes) != len(flat):
        raise ValueError(f"expected a gradient of length {sum(sizes)}, got {len(flat)}; use the same parameters.")
    for p, part in zip(params, torch.split_with_sizes(flat, sizes), strict=True):
        p.grad = part.view(p.shape)


def loss_gradient(rows: FactoredRows, slopes: Tensor) -> Tensor:
    """Gradient of the mean loss, ``1/m sum_i l'(s_i) grad s_i``, from the rows of the score."""
    return rows.weighted_sum(slopes / max(len(rows), 1))


# ------------------------------------------------------------------ rows of one layer


def _trains(parameter: Tensor | None) -> bool:
    return parameter is not None and parameter.requires_grad


def _affine(layer: Any, left: Tensor, right: Tensor) -> list[Block]:
    if layer.weight.requires_grad:
        return [OuterBlock(left, right, _trains(layer.bias))]
    return [DenseBlock(left if left.ndim == 2 else left.sum(1))]


def _linear(layer: nn.Linear, x: Tensor, g: Tensor) -> list[Block]:
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


def _convolution(layer: Any, x: Tensor, g: Tensor) -> list[Block]:
    m, groups, dims = len(x), layer.groups, len(layer.kernel_size)
    left = g.flatten(2).mT
    patches = _patches(layer, x).movedim(1, 1 + dims).flatten(1, dims)  # (m, L, C, k_1, ..)
    if groups == 1:
        return _affine(layer, left, patches.flatten(2))
    blocks: list[Block] = []
    if layer.weight.requires_grad:
        left, right = (t.reshape(*t.shape[:2], groups, -1) for t in (left, patches))
        blocks.append(DenseBlock(torch.einsum("mlgo,mlgi->mgoi", left, right).reshape(m, -1)))
    if _trains(layer.bias):
        blocks.append(DenseBlock(g.flatten(2).sum(2)))
    return blocks


def _embedding(layer: nn.Embedding, x: Tensor, g: Tensor) -> list[Block]:
    index, values = x.reshape(len(x), -1), g.reshape(len(x), -1, g.shape[-1])
    if layer.padding_idx is not None:
        values = values.masked_fill((index == layer.padding_idx).unsqueeze(2), 0)
    return [ScatterBlock(index, values, layer.num_embeddings)]


def _layer_norm(layer: nn.LayerNorm, x: Tensor, g: Tensor) -> list[Block]:
    shape = list(layer.normalized_shape)
    start = x.ndim - len(shape)
    unit = nn.functional.layer_norm(x, shape, eps=layer.eps)
    return _elementwise(layer, unit * g, g, lambda t: t.flatten(start).reshape(len(x), -1, layer.weight.numel()).sum(1))


def _group_norm(layer: nn.GroupNorm, x: Tensor, g: Tensor) -> list[Block]:
    unit = nn.functional.group_norm(x, layer.num_groups, eps=layer.eps)
    return _elementwise(layer, unit * g, g, lambda t: t.reshape(len(x), layer.num_channels, -1).sum(2))


def _elementwise(layer: Any, weight: Tensor, bias: Tensor, fold: Callable[[Tensor], Tensor]) -> list[Block]:
    return [DenseBlock(fold(t)) for p, t in ((layer.weight, weight), (layer.bias, bias)) if _trains(p)]


_SHORTCUTS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], list[Block]]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
}

#: Activations and their backward pass, from the gradient and the activation's own output.
_ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    nn.ReLU: (torch.relu, lambda g, out: torch.ops.aten.threshold_backward(g, out, 0)),
    nn.Tanh: (torch.tanh, torch.ops.aten.tanh_backward),
    nn.Sigmoid: (torch.sigmoid, torch.ops.aten.sigmoid_backward),
    nn.Dropout: (lambda x: x, lambda g, _: g),
    nn.Identity: (lambda x: x, lambda g, _: g),
}

# ------------------------------------------------------------------ which layers have a shortcut


class _Call(NamedTuple):
    """What one call of a layer leaves; its edge survives an in-place activation, its output does not."""

    x: Tensor
    version: int
    edge: GradientEdge


@dataclass(frozen=True, eq=False)
class Layout:
    """What is known about a module before the first row.

    Parameters
    ----------
    pieces : tuple of (layer or None, names)
        The trainable parameters in order: a layer with a shortcut and its names, or ``None`` and one name.
    layers : tuple of nn.Module
        The layers with a shortcut.
    chain : tuple of nn.Module
        All parts, if the module is affine maps and simple activations one after the other; else empty.
    """

    pieces: tuple[tuple[nn.Module | None, tuple[str, ...]], ...]
    layers: tuple[nn.Module, ...]
    chain: tuple[nn.Module, ...]


def _touched(part: nn.Module) -> bool:
    hooks = part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks
    return any(hooks) or "forward" in vars(part)


def _has_shortcut(layer: nn.Module, owners: Counter[int]) -> bool:
    """Whether the layer is exactly torch's own: not overridden, hooked, re-parametrised or shared."""
    plain = type(layer) in _SHORTCUTS and list(layer._parameters) in (["weight"], ["weight", "bias"])
    special = getattr(layer, "max_norm", None) is not None or getattr(layer, "scale_grad_by_freq", False)
    own = [p for p in layer._parameters.values() if p is not None]
    return plain and not special and not _touched(layer) and all(owners[id(p)] == 1 for p in own)


def _uses(scores: Tensor) -> Counter[int]:
    """How many operations read each parameter directly, from the graph behind the scores."""
    uses: Counter[int] = Counter()
    seen, stack = set(), [scores.grad_fn]
    while stack:
        node = stack.pop()
        for following, _ in node.next_functions if node is not None else ():
            parameter = getattr(following, "variable", None)
            if parameter is not None:
                uses[id(parameter)] += 1
            elif following not in seen:
                seen.add(following)
                stack.append(following)
    return uses


def as_scores(output: object, m: int) -> Tensor:
    """Check that a module's output is one score per row, and give it shape (m,)."""
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if not isinstance(output, Tensor) or shape not in {(m,), (m, 1)}:
        raise ValueError(
            f"expected one score per row, shape ({m},) or ({m}, 1) for {m} rows, got {shape}; "
            "end the module with one output per row."
        )
    return output if output.ndim == 1 else output.squeeze(1)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode inside, restore each submodule's own flag afterwards."""
    training = [part for part in module.modules() if part.training]
    if training:
        module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _forward(module: nn.Module, X: Tensor, layers: Sequence[nn.Module]) -> tuple[Tensor, dict[nn.Module, _Call]]:
    """Scores, and the calls of those layers that were called exactly once on one input per row."""
    m = len(X)
    calls: dict[nn.Module, list[_Call | None]] = {layer: [] for layer in layers}

    def record(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        known = len(args) == 1 and output.requires_grad
        calls[layer].append(_Call(args[0], args[0]._version, get_gradient_edge(output)) if known else None)

    hooks = [layer.register_forward_hook(record) for layer in layers]
    try:
        scores = as_scores(module(X), m)
    finally:
        for hook in hooks:
            hook.remove()
    once = {layer: made[0] for layer, made in calls.items() if len(made) == 1 and made[0] is not None}
    # An input that changed after the call is not what the layer saw.
    return scores, {
        layer: call for layer, call in once.items() if call.x.shape[0] == m and call.x._version == call.version
    }


def _as_chain(module: nn.Module, layers: Sequence[nn.Module]) -> tuple[nn.Module, ...]:
    if type(module) is not nn.Sequential or _touched(module):
        return ()
    known = [
        part in layers if type(part) is nn.Linear else type(part) in _ACTIVATIONS and not _touched(part)
        for part in module
    ]
    return tuple(module) if all(known) else ()


def find_layout(module: nn.Module, X: Tensor) -> Layout:
    """Decide, from the module's structure and two tiny forward passes, which layers have a shortcut.

    A layer has one if it is called once with one input per row, and nothing else reads its parameters. Two
    batch sizes tell an axis of rows from an axis that happens to be as long.
    """
    owners = Counter(id(p) for part in module.modules() for p in part._parameters.values() if p is not None)
    layers = [part for part in module.modules() if _has_shortcut(part, owners)]
    with _evaluating(module), torch.inference_mode(mode=False), torch.enable_grad():
        for m in (2, 3):
            scores, calls = _forward(module, X[:1].repeat_interleave(m, 0), layers)
            uses = _uses(scores)
            layers = [layer for layer in calls if all(uses[id(p)] == 1 for p in trainable(layer))]
    owner = {id(p): layer for layer in layers for p in trainable(layer)}
    pieces: dict[object, tuple[nn.Module | None, tuple[str, ...]]] = {}
    for name, p in module.named_parameters():
        if p.requires_grad:
            layer = owner.get(id(p))
            key = name if layer is None else layer
            pieces[key] = (layer, (*pieces.get(key, (None, ()))[1], name))
    return Layout(tuple(pieces.values()), tuple(layers), _as_chain(module, layers))


# ------------------------------------------------------------------ rows of a module


def _general_rows(module: nn.Module, names: Sequence[str], X: Tensor) -> dict[str, Tensor]:
    """Rows of any parameters: one vectorised gradient per row or, where torch cannot vectorise, a loop."""
    known = dict(module.named_parameters())
    params = {name: known[name].detach() for name in names}

    def score(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return as_scores(functional_call(module, params, (x.unsqueeze(0),)), 1).squeeze(0)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        try:
            rows = vmap(grad(score), in_dims=(None, 0))(params, X)
        except RuntimeError:
            each = [grad(score)(params, x) for x in X]
            rows = {name: torch.stack([row[name] for row in each]) for name in names}
    return {name: row.detach().reshape(len(X), -1) for name, row in rows.items()}


def _blocks(module: nn.Module, X: Tensor, layout: Layout, found: dict[nn.Module, tuple[Tensor, Tensor]]) -> list[Block]:
    rest = [name for layer, names in layout.pieces if layer not in found for name in names]
    general = _general_rows(module, rest, X) if rest else {}
    blocks: list[Block] = []
    for layer, names in layout.pieces:
        if layer is not None and layer in found:
            blocks += _SHORTCUTS[type(layer)](layer, *found[layer])
        else:
            blocks += [DenseBlock(general[name]) for name in names]
    return blocks


def _backward(scores: Tensor, calls: dict[nn.Module, _Call]) -> dict[nn.Module, tuple[Tensor, Tensor]]:
    """Input, and gradient of sum_i s_i in the output, of each layer that the scores depend on."""
    edges = [call.edge for call in calls.values()]
    grads = torch.autograd.grad(scores, edges, torch.ones_like(scores), allow_unused=True)
    pairs = zip(calls.items(), grads, strict=True)
    return {layer: (call.x.detach(), g) for (layer, call), g in pairs if g is not None}


def _chain(parts: Sequence[nn.Module], X: Tensor) -> tuple[Tensor, dict[nn.Module, tuple[Tensor, Tensor]]]:
    """Forward and backward of a plain network by hand: for a small one, a graph costs as much again."""
    values = [X]
    for part in parts:
        if isinstance(part, nn.Linear):
            values.append(nn.functional.linear(values[-1], part.weight, part.bias))
        else:
            values.append(_ACTIVATIONS[type(part)][0](values[-1]))
    scores, g = as_scores(values[-1], X.shape[0]), torch.ones_like(values[-1])
    found: dict[nn.Module, tuple[Tensor, Tensor]] = {}
    for part, x, out in zip(reversed(parts), values[-2::-1], values[::-1], strict=False):
        if not isinstance(part, nn.Linear):
            g = _ACTIVATIONS[type(part)][1](g, out)
            continue
        found[part] = x, g
        g = g if x is X else g @ part.weight
    return scores, found


def score_rows(module: nn.Module, X: Tensor, layout: Layout | None = None) -> tuple[Tensor, FactoredRows]:
    r"""Scores and, in factored form, the gradient of each row's score.

    .. math:: row_i = \nabla_\theta f_\theta(x_i)

    The module runs in evaluation mode (dropout off); its flags are restored. Layers without a shortcut
    (custom, recurrent, shared or called twice) get one vectorised gradient per row.

    Parameters
    ----------
    module : nn.Module
        Maps (m, ...) to (m,) or (m, 1), each row on its own.
    X : Tensor of shape (m, ...)
    layout : Layout, optional
        Result of `find_layout`; saves two tiny forward passes when many calls follow.

    Returns
    -------
    scores : Tensor of shape (m,)
    rows : FactoredRows
        Columns in the order of ``parameters_to_vector`` over the trainable parameters.

    Raises
    ------
    ValueError
        If the module does not give one score per row.
    """
    if len(X) == 0:
        params = trainable(module)
        empty = params[0].detach().new_zeros(0, sum(p.numel() for p in params))
        return empty.sum(1), FactoredRows((DenseBlock(empty),))
    layout = layout or find_layout(module, X)
    if layout.chain:
        with torch.no_grad():
            scores, found = _chain(layout.chain, X)
            return scores, FactoredRows(tuple(_blocks(module, X, layout, found)))
    with _evaluating(module), torch.inference_mode(mode=False), torch.enable_grad():
        scores, calls = _forward(module, X, layout.layers)
        found = _backward(scores, calls) if calls and scores.requires_grad else {}
        with torch.no_grad():
            return scores.detach(), FactoredRows(tuple(_blocks(module, X, layout, found)))


class ScoreRows:
    """Score gradients of a data matrix, a few rows at a time, at the module's weights of that moment.

    Parameters
    ----------
    module : nn.Module
        Which parameters are trainable is read here, once.
    X : Tensor of shape (n, ...)
    scale : callable, optional
        ``scale(scores, index) -> (m,)``, the public factor of each row, such as h'(s_i); 1 if absent.
    chunk_rows : int, default 4096
        Rows per pass: bounds memory, never changes the answer beyond round-off.
    """

    def __init__(
        self,
        module: nn.Module,
        X: Tensor,
        *,
        scale: Callable[[Tensor, Tensor], Tensor] | None = None,
        chunk_rows: int = 4096,
    ) -> None:
        self.module, self.X, self.scale, self.chunk_rows = module, X, scale, chunk_rows
        self._layout = find_layout(module, X) if len(X) else None

    def __len__(self) -> int:
        return len(self.X)

    @property
    def width(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in trainable(self.module))

    def chunks(self, index: Tensor | None = None) -> Iterator[tuple[Tensor, FactoredRows]]:
        """Yield ``(positions, rows)`` for ``index``, or for all rows in order."""
        for part in index_chunks(len(self), self.chunk_rows, index):
            scores, rows = score_rows(self.module, self.X[part], self._layout)
            yield part, rows if self.scale is None else rows.scaled(self.scale(scores, part))


# ------------------------------------------------------------------ what a module must be


@contextmanager
def _training_without_dropout(module: nn.Module) -> Iterator[None]:
    """Training mode with dropout off; flags, dropout rates and buffers are put back."""
    flags = [(part, part.training) for part in module.modules()]
    rates = [(part, part.dropout) for part, _ in flags if isinstance(getattr(part, "dropout", None), float)]
    buffers = [(b, b.clone()) for b in module.buffers()]
    module.train()
    for part, _ in flags:
        part.training = part.training and not isinstance(part, nn.modules.dropout._DropoutNd)
    for part, _ in rates:
        part.__dict__["dropout"] = 0.0
    try:
        yield
    finally:
        for part, flag in flags:
            part.training = flag
        for part, rate in rates:
            part.__dict__["dropout"] = rate
        for buffer, value in buffers:
            buffer.copy_(value)


def _scores_or_sentence(module: nn.Module, X: Tensor) -> Tensor:
    before = X.clone()
    try:
        output = module(X)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        raise ValueError(
            f"expected the module to accept rows of shape {tuple(X.shape[1:])} and type {X.dtype}, "
            f"got '{str(error).splitlines()[0] if str(error) else type(error).__name__}'; "
            "make its first layer as wide as the data."
        ) from None
    if not torch.equal(before, X):
        raise ValueError("expected the module to leave its input alone, got one that overwrites it; copy it first.")
    scores = as_scores(output, len(X))
    if not torch.isfinite(scores).all():
        raise ValueError("expected finite scores, got nan or inf; scale the features or the module's initial weights.")
    return scores


def _check_rows_apart(module: nn.Module, X: Tensor, mode: str) -> None:
    together = _scores_or_sentence(module, X)
    alone = torch.cat([_scores_or_sentence(module, x) for x in torch.split(X, 1)])
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-4 * float(alone.abs().max()) + 1e-6):
        raise ValueError(
            "expected each row's score to depend on that row alone, got scores that change with others of "
            f"the batch ({mode} mode); remove what mixes rows (batch statistics, attention over rows)."
        )


def check_module(module: nn.Module, X_sample: Tensor) -> None:
    """Refuse, in one sentence, a module whose rows cannot be bounded one by one.

    Parameters
    ----------
    module : nn.Module
    X_sample : Tensor of shape (m, ...)
        A few public rows; at most 16 are used.

    Raises
    ------
    ValueError
        For batch normalisation, rows that interact, a wrong input width or output shape, scores that are not
        finite, or nothing to train.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"expected a module whose rows do not mix, got {type(part).__name__} at '{name}'; "
                "use nn.GroupNorm or nn.LayerNorm instead."
            )
    X = X_sample[:16]
    with torch.no_grad():
        with _evaluating(module):
            _check_rows_apart(module, X, "evaluation")
        with torch.random.fork_rng(devices=[]), _training_without_dropout(module):
            _check_rows_apart(module, X, "training")
    if not trainable(module):
        raise ValueError("expected a module with trainable parameters, got none; set requires_grad on some.")
