r"""Per-example gradients of the score at the price of ordinary ones.

The network gives one score per row, s_i = f_theta(x_i), and every gradient the Lagrangian needs is a
multiple of the score's: the loss has l'(s_i) grad s_i, the fairness term h'(s_i) grad s_i. One backward pass
of sum_i s_i therefore serves them all: at each layer it leaves the layer's input and the gradient of its
output, whose products are the rows. Nothing here knows the sensitive attribute.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap

from justitia.networks.layers import ACTIVATIONS, SHORTCUTS, as_array
from justitia.networks.requirements import as_scores, evaluating, trainable
from justitia.privacy.arrays import Index
from justitia.privacy.rows import ColumnBlock, DenseBlock, FactoredRows, index_chunks

# ------------------------------------------------------------------ which layers have a shortcut


class _Call(NamedTuple):
    """What one call of a layer leaves; its edge survives an in-place activation, its output does not."""

    x: Tensor
    version: int
    edge: GradientEdge


@dataclass(frozen=True, eq=False)
class ModuleLayout:
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
    plain = type(layer) in SHORTCUTS and list(layer._parameters) in (["weight"], ["weight", "bias"])
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
        part in layers if type(part) is nn.Linear else type(part) in ACTIVATIONS and not _touched(part)
        for part in module
    ]
    return tuple(module) if all(known) else ()


def find_layout(module: nn.Module, X: Tensor) -> ModuleLayout:
    """Decide, from the module's structure and two tiny forward passes, which layers have a shortcut.

    A layer has one if it is called once with one input per row, and nothing else reads its parameters. Two
    batch sizes tell an axis of rows from an axis that happens to be as long.
    """
    owners = Counter(id(p) for part in module.modules() for p in part._parameters.values() if p is not None)
    layers = [part for part in module.modules() if _has_shortcut(part, owners)]
    with evaluating(module), torch.inference_mode(mode=False), torch.enable_grad():
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
    return ModuleLayout(tuple(pieces.values()), tuple(layers), _as_chain(module, layers))


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


def _blocks(
    module: nn.Module, X: Tensor, layout: ModuleLayout, found: dict[nn.Module, tuple[Tensor, Tensor]]
) -> list[ColumnBlock]:
    rest = [name for layer, names in layout.pieces if layer not in found for name in names]
    general = _general_rows(module, rest, X) if rest else {}
    blocks: list[ColumnBlock] = []
    for layer, names in layout.pieces:
        if layer is not None and layer in found:
            blocks += SHORTCUTS[type(layer)](layer, *found[layer])
        else:
            blocks += [DenseBlock(as_array(general[name])) for name in names]
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
            values.append(ACTIVATIONS[type(part)][0](values[-1]))
    scores, g = as_scores(values[-1], X.shape[0]), torch.ones_like(values[-1])
    found: dict[nn.Module, tuple[Tensor, Tensor]] = {}
    for part, x, out in zip(reversed(parts), values[-2::-1], values[::-1], strict=False):
        if not isinstance(part, nn.Linear):
            g = ACTIVATIONS[type(part)][1](g, out)
            continue
        found[part] = x, g
        g = g if x is X else g @ part.weight
    return scores, found


def score_rows(module: nn.Module, X: Tensor, layout: ModuleLayout | None = None) -> tuple[Tensor, FactoredRows]:
    r"""Scores and, in factored form, the gradient of each row's score.

    .. math:: row_i = \nabla_\theta f_\theta(x_i)

    The module runs in evaluation mode (dropout off); its flags are restored. Layers without a shortcut
    (custom, recurrent, shared or called twice) get one vectorised gradient per row.

    Parameters
    ----------
    module : nn.Module
        Maps (m, ...) to (m,) or (m, 1), each row on its own.
    X : Tensor of shape (m, ...)
    layout : ModuleLayout, optional
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
        return empty.sum(1), FactoredRows((DenseBlock(as_array(empty)),))
    layout = layout or find_layout(module, X)
    if layout.chain:
        with torch.no_grad():
            scores, found = _chain(layout.chain, X)
            return scores, FactoredRows(tuple(_blocks(module, X, layout, found)))
    with evaluating(module), torch.inference_mode(mode=False), torch.enable_grad():
        X = X.clone() if X.is_inference() else X  # autograd saves no tensor made in inference mode
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
        self.layout = find_layout(module, X) if len(X) else None
        self.centring: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.X)

    @property
    def width(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in trainable(self.module))

    def chunks(self) -> Iterator[tuple[Index, FactoredRows]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        for part in index_chunks(len(self), self.chunk_rows):
            yield part, self.take(torch.from_numpy(part))

    def take(self, index: Tensor) -> FactoredRows:
        """The rows at ``index``, all at once."""
        scores, rows = score_rows(self.module, self.X[index], self.layout)
        rows = rows if self.scale is None else rows.scaled(as_array(self.scale(scores, index)))
        if self.centring is None:
            return rows
        member, centres = self.centring
        return rows.centred(as_array(member[index]), as_array(centres))

    def centred(self, member: Tensor, centres: Tensor) -> ScoreRows:
        """The same rows with ``member_i @ centres`` taken off row i."""
        other = copy.copy(self)
        other.centring = (member, centres)
        return other


def h_slope(h: Callable[[Tensor, Tensor], Tensor], scores: Tensor, y: Tensor) -> Tensor:
    """(n,): derivative of h with respect to the score, so that grad h_i = h'(s_i) grad s_i."""
    with torch.enable_grad():
        s = scores.detach().requires_grad_()
        return torch.autograd.grad(h(s, y).sum(), s)[0]
