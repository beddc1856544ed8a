"""What a module must be, and what is said of one that is not."""

from collections.abc import Callable

import pytest
import torch
from layer_cases import Custom, Head, Recurrent, frozen, mlp
from torch import Tensor, nn

from justitia.networks.requirements import check_module

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
