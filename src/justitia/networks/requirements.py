"""What a module must be: one score per row, rows that do not see each other, something to train."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """Parameters that require a gradient, in the order of ``parameters_to_vector``."""
    return [p for p in module.parameters() if p.requires_grad]


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
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode inside, restore each submodule's own flag afterwards."""
    training = [part for part in module.modules() if part.training]
    if training:
        module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


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
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
        raise ValueError(
            f"expected the module to accept rows of shape {tuple(X.shape[1:])} and type {X.dtype}, "
            "got one that does not; make its first layer as wide as the data."
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
        with evaluating(module):
            _check_rows_apart(module, X, "evaluation")
        with torch.random.fork_rng(devices=[]), _training_without_dropout(module):
            _check_rows_apart(module, X, "training")
    if not trainable(module):
        raise ValueError("expected a module with trainable parameters, got none; set requires_grad on some.")
