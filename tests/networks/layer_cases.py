"""One module per kind of layer, and some that cannot be told apart."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Head(nn.Module):
    """A body, the mean over positions, one score."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.score = body, nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.tanh(self.body(x))
        return self.score(out.flatten(1, -2).mean(1) if out.ndim > 2 else out)


class Custom(nn.Module):
    """A parameter directly on the module, and a layer called by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
        self.hidden = nn.Linear(3, 3)
        self.score = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.sin(self.hidden(input=x * self.slope)))[:, 0]


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.body, self.score = kind(3, 2, batch_first=True), nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(self.body(x)[0][:, -1])


def frozen(module: nn.Module, *names: str) -> nn.Module:
    for name, p in module.named_parameters():
        p.requires_grad_(name not in names)
    return module


def mlp(**first: bool) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4, **first), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 1))


class ChannelHead(nn.Module):
    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.score = body, nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(self.body(x)).flatten(2).pow(2).mean(2))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.score = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


class Tied(nn.Module):
    """The second layer shares the first one's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.score = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(self.second(torch.tanh(self.first(x)))))


class TiedToUnused(nn.Module):
    """The weight belongs first to a layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.used, self.score = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
        self.used.weight = self.unused.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(self.used(x)))


class ReadElsewhere(nn.Module):
    """The layer is called once, but its weight is also read by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.score = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(self.layer(x)) @ self.layer.weight)


class Places(nn.Module):
    """An embedding of the place, whose input has no axis of rows but may be as long as the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.score = nn.Embedding(5, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(x + self.place(torch.arange(5))).mean(1))


class SequenceFirst(nn.Module):
    """Rows are on the second axis, which here is as long as the first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.score = nn.Linear(3, 2), nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(self.layer(x.transpose(0, 1))).mean(0))


class Overwrites(nn.Module):
    """The layer's input is changed after the call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.score = nn.Linear(3, 3, bias=False), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        copy = x.clone()
        out = self.layer(copy)
        copy.mul_(2)
        return self.score(torch.tanh(out))


def shared_activation() -> nn.Module:
    act = nn.Tanh()
    return nn.Sequential(nn.Linear(3, 4), act, nn.Linear(4, 4), act, nn.Linear(4, 1))


def unused() -> nn.Module:
    module = Head(nn.Linear(3, 4), 4)
    module.register_module("spare", nn.Linear(2, 2))
    return module


FLAT, SEQUENCE, SIGNAL, IMAGE = (5, 3), (5, 4, 3), (5, 4, 9), (5, 4, 6, 5)


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(3, 1), FLAT),
    "plain network": (mlp, FLAT),
    "plain network without bias": (lambda: mlp(bias=False), FLAT),
    "plain network, one activation twice": (shared_activation, FLAT),
    "plain network, sigmoid and identity first": (
        lambda: nn.Sequential(nn.Identity(), nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 1)),
        FLAT,
    ),
    "plain network, activation first": (
        lambda: nn.Sequential(nn.Tanh(), nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 1)),
        FLAT,
    ),
    "other activations": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 4), nn.ELU(inplace=True), nn.Linear(4, 1)),
        FLAT,
    ),
    "in-place relu": (
        lambda: Head(nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)), 2),
        FLAT,
    ),
    "no bias": (lambda: Head(nn.Linear(3, 4, bias=False), 4), FLAT),
    "frozen weight": (lambda: frozen(mlp(), "0.weight"), FLAT),
    "frozen bias": (lambda: frozen(mlp(), "0.bias", "3.bias"), FLAT),
    "frozen first layer": (lambda: frozen(mlp(), "0.weight", "0.bias"), FLAT),
    "unused layer": (unused, FLAT),
    "sequence linear": (lambda: Head(nn.Linear(3, 4), 4), SEQUENCE),
    "sequence linear, frozen weight": (lambda: frozen(Head(nn.Linear(3, 4), 4), "body.weight"), SEQUENCE),
    "grid linear": (lambda: Head(nn.Linear(5, 2), 2), IMAGE),
    "conv1d": (lambda: ChannelHead(nn.Conv1d(4, 6, 3), 6), SIGNAL),
    "conv1d all options": (
        lambda: ChannelHead(nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), 6),
        SIGNAL,
    ),
    "conv1d same, circular": (
        lambda: ChannelHead(nn.Conv1d(4, 6, 4, padding="same", padding_mode="circular", bias=False), 6),
        SIGNAL,
    ),
    "conv2d": (lambda: ChannelHead(nn.Conv2d(4, 2, 3, padding=1), 2), IMAGE),
    "conv2d all options": (
        lambda: ChannelHead(nn.Conv2d(4, 4, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1), groups=4), 4),
        IMAGE,
    ),
    "conv2d groups, frozen weight": (
        lambda: frozen(ChannelHead(nn.Conv2d(4, 4, 3, groups=2), 4), "body.weight"),
        IMAGE,
    ),
    "conv3d": (lambda: ChannelHead(nn.Conv3d(2, 3, 2, stride=2, padding=1), 3), (5, 2, 3, 4, 3)),
    "layer norm": (lambda: Head(nn.LayerNorm(3), 3), FLAT),
    "layer norm on sequences": (lambda: Head(nn.LayerNorm(3), 3), SEQUENCE),
    "layer norm of two axes": (lambda: Head(nn.LayerNorm([4, 3], bias=False), 3), SEQUENCE),
    "group norm": (lambda: ChannelHead(nn.GroupNorm(2, 4), 4), IMAGE),
    "group norm, frozen weight": (lambda: frozen(ChannelHead(nn.GroupNorm(2, 4), 4), "body.weight"), IMAGE),
    "custom": (Custom, FLAT),
    "called twice": (Twice, FLAT),
    "tied": (Tied, FLAT),
    "tied to an unused layer": (TiedToUnused, FLAT),
    "read elsewhere": (ReadElsewhere, FLAT),
    "places": (Places, (5, 5, 3)),
    "sequence first": (SequenceFirst, (5, 5, 3)),
    "weight norm": (lambda: Head(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), 4), FLAT),
    "lstm": (lambda: Recurrent(nn.LSTM), SEQUENCE),
    "gru": (lambda: Recurrent(nn.GRU), SEQUENCE),
}


EMBEDDINGS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: Head(nn.Embedding(7, 3), 3),
    "embedding with padding": lambda: Head(nn.Embedding(7, 3, padding_idx=0), 3),
    "small table": lambda: Head(nn.Embedding(3, 3, padding_idx=-1), 3),
    "limited norm": lambda: Head(nn.Embedding(7, 3, max_norm=0.5), 3),
    "scaled by frequency": lambda: Head(nn.Embedding(7, 3, scale_grad_by_freq=True), 3),
}


SHORTCUTS = {
    "conv1d all options",
    "conv2d",
    "conv3d",
    "layer norm",
    "group norm",
    "sequence linear",
    "in-place relu",
}
