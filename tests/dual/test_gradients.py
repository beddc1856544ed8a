"""Per-example gradients equal one row at a time, for every kind of layer."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from justitia.networks.requirements import check_module, trainable
from justitia.networks.row_gradients import (
    ScoreRows,
    find_layout,
    score_rows,
)
from justitia.privacy.rows import FactoredRows


class Head(nn.Module):
    """A body, the mean over positions, one score."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.score = body, nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.tanh(self.body(x))
        return self.score(out.flatten(1, -2).mean(1) if out.ndim > 2 else out)


class ChannelHead(nn.Module):
    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.score = body, nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.tanh(self.body(x)).flatten(2).pow(2).mean(2))


class Custom(nn.Module):
    """A parameter directly on the module, and a layer called by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
        self.hidden = nn.Linear(3, 3)
        self.score = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(torch.sin(self.hidden(input=x * self.slope)))[:, 0]


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


def one_at_a_time(module: nn.Module, X: Tensor) -> Tensor:
    """The reference: an ordinary backward pass per row, in evaluation mode."""
    params, was_training = trainable(module), module.training
    module.eval()
    rows = []
    for x in X:
        grads = torch.autograd.grad(module(x[None]).sum(), params, allow_unused=True)
        rows.append(
            torch.cat(
                [p.detach().mul(0).flatten() if g is None else g.flatten() for p, g in zip(params, grads, strict=True)]
            )
        )
    module.train(was_training)
    return torch.stack(rows)


def build(make: Callable[[], nn.Module], shape: tuple[int, ...] = FLAT) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    module = make().double()
    return module, torch.randn(shape, dtype=torch.float64)


def assert_same_rows(rows: FactoredRows, expected: Tensor) -> None:
    units = torch.eye(len(expected), dtype=expected.dtype)
    torch.testing.assert_close(torch.stack([rows.weighted_sum(unit) for unit in units]), expected)
    torch.testing.assert_close(rows.norms(), expected.norm(dim=1))
    c = torch.linspace(-1, 2, len(expected), dtype=expected.dtype)
    torch.testing.assert_close(rows.weighted_sum(c), c @ expected)


@pytest.mark.parametrize("case", CASES)
def test_score_rows_every_layer_equal_one_row_at_a_time(case: str) -> None:
    module, X = build(*CASES[case])
    scores, rows = score_rows(module, X)
    assert not scores.requires_grad
    torch.testing.assert_close(scores, module.eval()(X).detach().reshape(5))
    assert rows.width == sum(p.numel() for p in trainable(module))
    assert_same_rows(rows, one_at_a_time(module, X))


@pytest.mark.parametrize("case", EMBEDDINGS)
def test_score_rows_embedding_with_repeated_ids_equal_one_row_at_a_time(case: str) -> None:
    module, _ = build(EMBEDDINGS[case])
    X = torch.tensor([[1, 1, 2, 0], [0, 0, 0, 0], [2, 1, 2, 2], [1, 0, 2, 1]])
    assert_same_rows(score_rows(module, X)[1], one_at_a_time(module, X))


def test_score_rows_embedding_of_single_ids_equal_one_row_at_a_time() -> None:
    module, _ = build(EMBEDDINGS["embedding"])
    X = torch.tensor([3, 6, 3])
    assert_same_rows(score_rows(module, X)[1], one_at_a_time(module, X))


@pytest.mark.parametrize("case", sorted(SHORTCUTS))
def test_find_layout_known_layer_has_a_shortcut(case: str) -> None:
    module, X = build(*CASES[case])
    assert all(layer is not None for layer, _ in find_layout(module, X).pieces)


@pytest.mark.parametrize("case", ["called twice", "tied", "read elsewhere", "places", "sequence first", "weight norm"])
def test_find_layout_layer_that_cannot_be_told_apart_has_no_shortcut(case: str) -> None:
    module, X = build(*CASES[case])
    assert find_layout(module, X).pieces[0][0] is None


def test_score_rows_hooked_layer_follows_the_hook() -> None:
    module, X = build(mlp)
    handle = module.get_submodule("0").register_forward_hook(lambda layer, args, out: 3 * out)
    assert_same_rows(score_rows(module, X)[1], one_at_a_time(module, X))
    handle.remove()


def test_score_rows_input_overwritten_after_the_call_is_refused_as_by_autograd() -> None:
    module, X = build(Overwrites)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        score_rows(module, X)


def test_score_rows_rows_in_single_precision_are_close() -> None:
    torch.manual_seed(0)
    module, X = mlp(), torch.randn(5, 3)
    assert_same_rows(score_rows(module, X)[1], one_at_a_time(module, X))


@pytest.mark.parametrize("case", ["plain network", "in-place relu", "custom", "lstm"])
def test_score_rows_no_rows_gives_zero_sum(case: str) -> None:
    module, X = build(*CASES[case])
    scores, rows = score_rows(module, X[:0])
    d = sum(p.numel() for p in trainable(module))
    assert scores.shape == rows.norms().shape == (0,)
    assert torch.equal(rows.weighted_sum(scores), torch.zeros(d, dtype=torch.float64))


@pytest.mark.parametrize("case", CASES)
def test_score_rows_one_row_equals_first_of_many(case: str) -> None:
    module, X = build(*CASES[case])
    assert_same_rows(score_rows(module, X[:1])[1], one_at_a_time(module, X[:1]))


def test_score_rows_flat_layout_equals_parameters_to_vector() -> None:
    # With f(x) = <theta, phi(x)> a step along the row raises the score by the row's squared norm.
    module, X = build(lambda: nn.Linear(3, 1))
    _, rows = score_rows(module, X[:1])
    expected = torch.cat([X[0], torch.ones(1, dtype=torch.float64)])
    assert torch.equal(rows.weighted_sum(torch.ones(1, dtype=torch.float64)), expected)
    assert expected.shape == parameters_to_vector(trainable(module)).shape


@pytest.mark.parametrize("case", ["plain network", "in-place relu", "custom"])
def test_score_rows_leaves_flags_hooks_and_gradients_as_they_were(case: str) -> None:
    module, X = build(*CASES[case])
    module.train()
    list(module.modules())[-1].eval()
    flags = [part.training for part in module.modules()]
    score_rows(module, X)
    assert [part.training for part in module.modules()] == flags
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert all(p.grad is None for p in module.parameters())


def test_score_rows_failing_module_restores_flags_and_removes_hooks() -> None:
    module = Head(nn.Linear(3, 4), 5).train()
    with pytest.raises(RuntimeError):
        score_rows(module, torch.randn(5, 3))
    assert all(part.training and not part._forward_hooks for part in module.modules())


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("case", ["plain network", "in-place relu", "custom"])
def test_score_rows_where_gradients_are_off_same_rows(case: str, context: Callable[[], torch.no_grad]) -> None:
    module, X = build(*CASES[case])
    expected = one_at_a_time(module, X)
    with context():
        rows = score_rows(module, X)[1]
    assert_same_rows(rows, expected)


@pytest.mark.parametrize("width", [2, 0])
def test_score_rows_wrong_output_shape_says_so(width: int) -> None:
    module = nn.Linear(3, 2) if width else nn.Sequential(nn.Linear(3, 1), nn.Flatten(0), nn.Unflatten(0, (1, -1)))
    with pytest.raises(ValueError, match="expected one score per row"):
        score_rows(module, torch.randn(5, 3))


@pytest.mark.parametrize("chunk_rows", [1, 7, 20])
@pytest.mark.parametrize("case", ["plain network", "in-place relu", "custom", "lstm"])
def test_score_rows_source_any_chunk_size_same_answer(case: str, chunk_rows: int) -> None:
    make, shape = CASES[case]
    module, X = build(make, (20, *shape[1:]))
    c = torch.linspace(-1, 1, 20, dtype=torch.float64)
    source = ScoreRows(module, X, scale=lambda s, index: torch.sigmoid(s) * index, chunk_rows=chunk_rows)
    factors = torch.sigmoid(score_rows(module, X)[0]) * torch.arange(20)
    expected = factors[:, None] * one_at_a_time(module, X)
    chunks = list(source.chunks())
    assert (len(source), source.width) == (20, expected.shape[1])
    assert torch.cat([index for index, _ in chunks]).tolist() == list(range(20))
    torch.testing.assert_close(torch.cat([rows.norms() for _, rows in chunks]), expected.norm(dim=1))
    torch.testing.assert_close(
        torch.stack([rows.weighted_sum(c[index]) for index, rows in chunks]).sum(0), c @ expected
    )


def test_score_rows_source_follows_the_weights_of_the_moment() -> None:
    module, X = build(mlp)
    source = ScoreRows(module, X)
    with torch.no_grad():
        module.get_parameter("3.weight").mul_(2)
    ((index, rows),) = source.chunks()
    assert index.tolist() == list(range(len(X)))
    assert_same_rows(rows, one_at_a_time(module, X))
    assert_same_rows(source.take(torch.tensor([4, 1])), one_at_a_time(module, X[[4, 1]]))


@pytest.mark.parametrize("case", ["plain network", "in-place relu", "custom"])
def test_score_rows_source_in_inference_mode_same_rows(case: str) -> None:
    module, X = build(*CASES[case])
    source = ScoreRows(module, X)
    with torch.inference_mode():
        ((_, rows),) = source.chunks()
    assert_same_rows(rows, one_at_a_time(module, X))


def test_score_rows_source_without_rows_yields_nothing() -> None:
    assert list(ScoreRows(nn.Linear(3, 1), torch.empty(0, 3)).chunks()) == []


@pytest.mark.parametrize("case", ["plain network", "in-place relu", "custom", "layer norm"])
def test_score_rows_non_finite_row_zeroed_leaves_the_others(case: str) -> None:
    module, X = build(*CASES[case])
    broken = X.clone()
    broken[2] = float("nan")
    rows = score_rows(module, broken)[1]
    bad = ~rows.norms().isfinite()
    assert bad.tolist() == [False, False, True, False, False]
    expected = one_at_a_time(module, X)
    expected[2] = 0
    assert_same_rows(rows.zeroed(bad), expected)


# ------------------------------------------------------------------ check_module


class MixesInTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(3, 1)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
            x = x - x.mean(0)
        return self.score(x)


class Squeezes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(x).squeeze()


class SpoilsInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(x.mul_(2))


def sample() -> Tensor:
    return torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "make",
    [
        mlp,
        lambda: Head(nn.LayerNorm(3), 3),
        Custom,
        lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 1)),
    ],
    ids=["dropout", "layer norm", "custom", "lazy"],
)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_check_module_good_module_passes_and_keeps_flags(make: Callable[[], nn.Module]) -> None:
    module = make().train()
    check_module(module, sample())
    assert all(part.training for part in module.modules())


def test_check_module_recurrent_dropout_passes_and_keeps_its_rate() -> None:
    module = Recurrent(lambda *sizes, **options: nn.LSTM(*sizes, num_layers=2, dropout=0.5, **options))
    check_module(module, torch.randn(4, 5, 3))
    assert module.body.dropout == 0.5


@pytest.mark.parametrize("norm", [lambda: nn.BatchNorm1d(4), nn.LazyBatchNorm1d, lambda: nn.SyncBatchNorm(4)])
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_check_module_batch_norm_names_the_alternatives(norm: Callable[[], nn.Module]) -> None:
    module = nn.Sequential(nn.Linear(3, 4), norm(), nn.Linear(4, 1))
    with pytest.raises(ValueError, match=r"BatchNorm.* at '1'; use nn\.GroupNorm or nn\.LayerNorm instead"):
        check_module(module, sample())


def test_check_module_rows_that_interact_are_refused_in_either_mode() -> None:
    class Softmax(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.score(x).softmax(0)

    with pytest.raises(ValueError, match=r"depend on that row alone.*\(evaluation mode\)"):
        check_module(Softmax(), sample())
    module = MixesInTraining()
    with pytest.raises(ValueError, match=r"depend on that row alone.*\(training mode\)"):
        check_module(module, sample())
    assert module.seen.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: nn.Linear(4, 1), r"expected the module to accept rows of shape \(3,\)"),
        (
            lambda: nn.Linear(3, 2),
            r"expected one score per row, shape \(6,\) or \(6, 1\) for 6 rows, got \(6, 2\)",
        ),
        (Squeezes, r"shape \(1,\) or \(1, 1\) for 1 rows, got \(\)"),
        (SpoilsInput, "expected the module to leave its input alone"),
        (
            lambda: frozen(nn.Linear(3, 1), "weight", "bias"),
            "expected a module with trainable parameters, got none",
        ),
    ],
    ids=["width", "outputs", "squeeze", "input", "frozen"],
)
def test_check_module_unusable_module_says_so_in_one_sentence(make: Callable[[], nn.Module], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        check_module(make(), sample())
    assert "\n" not in str(caught.value)


def test_check_module_infinite_scores_are_refused() -> None:
    module = nn.Linear(3, 1)
    with torch.no_grad():
        module.weight.fill_(float("inf"))
    with pytest.raises(ValueError, match="expected finite scores, got nan or inf"):
        check_module(module, sample())
