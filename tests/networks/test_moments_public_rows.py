"""Public rows of the moments engine: bounded by 1, one block per label, the same however they are split."""

import copy
import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from moments_setting import block_of, said, seeded
from numpy.typing import NDArray
from torch import Tensor, nn

import justitia.postprocessing.features as module
from justitia.networks.moments.rows import FrozenNetwork
from justitia.networks.multilayer import multilayer
from justitia.postprocessing.features import PublicRows
from justitia.privacy.rows import index_chunks
from justitia.rows.source import Block, MemoryRows

Array = NDArray[Any]


class Halves(nn.Module):
    """A module of the user's own: two branches, one last linear layer, scores of shape (m,)."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(2, 3)
        self.last = nn.Linear(6, 1)

    def forward(self, X: Tensor) -> Tensor:
        """Each branch sees two columns."""
        both = torch.cat([self.left(X[:, :2]).relu(), self.right(X[:, 2:]).tanh()], dim=1)
        out: Tensor = self.last(both)
        return out.squeeze(1)


class Quadratic(nn.Module):
    """No linear layer at all."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, X: Tensor) -> Tensor:
        """(m,)."""
        return (X**2) @ self.weight


class Twice(nn.Module):
    """Its last linear layer is called twice: no single representation."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 1)

    def forward(self, X: Tensor) -> Tensor:
        """(m, 1)."""
        out: Tensor = self.last(X) * self.last(-X)
        return out


class Lookup(nn.Module):
    """Whole numbers in, an embedding of each column."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(10, 3), nn.Linear(6, 1)

    def forward(self, X: Tensor) -> Tensor:
        """(m, 1)."""
        out: Tensor = self.last(self.table(X).flatten(1))
        return out


class Constant(nn.Module):
    """The same score for all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(1))

    def forward(self, X: Tensor) -> Tensor:
        """(m,)."""
        return self.bias * torch.ones(len(X))


def table(n: int = 60, p: int = 4, *, seed: int = 0) -> tuple[Array, Array]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, p, generator=generator) * torch.logspace(-2, 3, p) + 5.0
    return X.numpy(), (torch.rand(n, generator=generator) < 0.4).float().numpy()


@dataclass(frozen=True)
class Made:
    """A row function, and the rows that it was fitted on."""

    rows: PublicRows
    source: MemoryRows
    sample: Block

    def __len__(self) -> int:
        return self.source.n

    @property
    def width(self) -> int:
        return self.rows.width


def rows_of(network: nn.Module, X: Array, y: Array, *, chunk_rows: int) -> Made:
    sample = block_of(X, y)
    rows = PublicRows.fit(FrozenNetwork.from_module(network, X, chunk_rows), sample)
    return Made(rows, MemoryRows(sample.X, y, sample.weight, chunk_rows), sample)


def all_rows(made: Made) -> Array:
    return np.concatenate(list(made.source.map(made.rows)))


def labels(of: Any) -> Array:
    return np.asarray(of, dtype=np.float32)


CASES: dict[str, Any] = {
    "default network": (lambda: multilayer(4, [5, 3]), table()),
    "logistic regression": (lambda: nn.Linear(4, 1), table()),
    "module of the user's own": (Halves, table()),
    "no linear layer": (Quadratic, table()),
    "last layer used twice": (Twice, table()),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 1)), table()),
    "image": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 4 * 4, 1)),
        (np.random.default_rng(1).standard_normal((40, 2, 6, 6), dtype=np.float32), labels(np.arange(40) % 2)),
    ),
    "whole numbers": (
        Lookup,
        (np.random.default_rng(1).integers(0, 10, (50, 2)), labels(np.arange(50) % 3 > 0)),
    ),
    "many features": (lambda: multilayer(300, [4]), table(80, 300)),
    "more features than rows": (lambda: multilayer(300, [4]), table(9, 300)),
    "one row": (lambda: multilayer(4, [5, 3]), table(1)),
    "zero everywhere": (lambda: multilayer(4, [5]), (np.zeros((30, 4), dtype=np.float32), labels(np.arange(30) % 2))),
    "an outlier": (
        lambda: multilayer(1, [5]),
        (np.array([[0.0]] * 29 + [[1e6]], dtype=np.float32), labels(np.ones(30))),
    ),
}


@pytest.fixture(params=CASES, ids=str)
def made(request: pytest.FixtureRequest) -> Made:
    make, (X, y) = CASES[request.param]
    return rows_of(seeded(make), X, y, chunk_rows=16)


def test_rows_are_at_most_of_length_one_and_finite(made: Made) -> None:
    found = all_rows(made)
    assert bool(np.isfinite(found).all())
    assert float(np.linalg.norm(found.astype(np.float64), axis=1).max()) <= 1 + 1e-6


def test_rows_have_one_block_per_label_and_zeros_in_the_other(made: Made) -> None:
    found, positive = all_rows(made), made.sample.y > 0.5
    half = made.width // 2
    assert found.shape == (len(made), made.width)
    assert bool((found[positive, :half] == 0).all())
    assert bool((found[~positive, half:] == 0).all())
    # the constant is never zero, so its two sums are the sizes of the classes up to the lengths of the rows
    assert bool((found[positive, half] > 0).all())
    assert bool((found[~positive, 0] > 0).all())


@pytest.mark.parametrize("chunk_rows", [1, 7, 10_000])
@pytest.mark.parametrize("case", CASES)
def test_rows_do_not_depend_on_how_many_are_computed_at_once(case: str, chunk_rows: int) -> None:
    make, (X, y) = CASES[case]
    one, other = (all_rows(rows_of(seeded(make), X, y, chunk_rows=c)) for c in (16, chunk_rows))
    assert np.allclose(one, other, atol=2e-6)


@pytest.mark.parametrize("block_rows", [1, 7, 40])
def test_rows_are_the_same_to_the_last_bit_in_blocks_of_any_size(made: Made, block_rows: int) -> None:
    sample = made.sample
    split = MemoryRows(sample.X, sample.y, sample.weight, block_rows)
    assert np.array_equal(np.concatenate(list(split.map(made.rows))), made.rows(sample))


def test_some_of_the_rows_are_these_rows(made: Made) -> None:
    index = np.random.default_rng(0).permutation(len(made))[:5]
    assert np.allclose(made.rows(made.sample.take(index)), all_rows(made)[index], atol=2e-6)


@pytest.mark.parametrize("label", [0, 1])
def test_weights_by_label_multiply_rows_before_the_label_is_put_in(made: Made, label: int) -> None:
    weights = np.random.default_rng(0).normal(size=(3, made.width))
    relabelled = replace(made.sample, y=np.full_like(made.sample.y, label))
    found = made.rows.label_free(made.sample) @ made.rows.by_label(weights)[label].T
    assert np.allclose(found, made.rows(relabelled) @ weights.T, atol=1e-5)


def test_rows_made_again_or_sent_to_another_process_are_the_same_to_the_last_bit(
    made: Made, request: pytest.FixtureRequest
) -> None:
    make, (X, y) = CASES[request.node.callspec.params["made"]]
    assert np.array_equal(all_rows(rows_of(seeded(make), X, y, chunk_rows=16)), all_rows(made))
    assert np.array_equal(pickle.loads(pickle.dumps(made.rows))(made.sample), made.rows(made.sample))


def test_making_rows_leaves_the_global_random_state_and_the_data_alone() -> None:
    X, y = table(80, 300)
    before, state = X.copy(), torch.get_rng_state()
    all_rows(rows_of(seeded(lambda: multilayer(300, [4])), X, y, chunk_rows=16))
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(X, before)


@pytest.mark.parametrize("case", CASES)
def test_training_the_module_later_does_not_change_the_rows(case: str) -> None:
    make, (X, y) = CASES[case]
    network = seeded(make)
    made = rows_of(network, X, y, chunk_rows=16)
    before = all_rows(made)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    assert np.array_equal(all_rows(made), before)


def test_making_rows_leaves_the_module_without_hooks_and_in_its_mode() -> None:
    network = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 1))).train()
    before = copy.deepcopy(network.state_dict())
    all_rows(rows_of(network, *table(), chunk_rows=16))
    assert network.training
    assert not any(part._forward_pre_hooks for part in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_rows_are_arrays_of_single_precision(made: Made) -> None:
    found = all_rows(made)
    assert type(found) is np.ndarray
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("case", "columns"),
    [
        ("default network", 1 + 4 + 3 + 1),
        ("module of the user's own", 1 + 4 + 6 + 1),
        ("no linear layer", 1 + 4 + 1),
        ("last layer used twice", 1 + 4 + 1),
        ("image", 1 + 72 + 48 + 1),
        ("whole numbers", 1 + 2 + 6 + 1),
        ("many features", 1 + 80 + 4 + 1),  # of 80 rows no more than 80 components
    ],
)
def test_width_counts_a_constant_features_representation_and_score_for_each_label(case: str, columns: int) -> None:
    make, (X, y) = CASES[case]
    made = rows_of(seeded(make), X, y, chunk_rows=16)
    assert made.width == 2 * columns == all_rows(made).shape[1]


def test_features_beyond_the_limit_become_as_many_components(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table(200, 30)
    network = seeded(lambda: multilayer(30, [4]))
    before = rows_of(network, X, y, chunk_rows=64)
    monkeypatch.setattr(module, "MOST_FEATURES", 6)
    assert rows_of(network, X, y, chunk_rows=64).width == before.width - 2 * (30 - 6)


def test_components_keep_what_few_directions_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features that live on a plane: two components say as much as all of them, for every linear function."""
    generator = torch.Generator().manual_seed(0)
    X = (torch.randn(200, 2, generator=generator) @ torch.randn(2, 30, generator=generator)).numpy()
    y = labels(X[:, 0] > 0)
    monkeypatch.setattr(module, "MOST_FEATURES", 2)
    monkeypatch.setattr(module, "CUT", 100.0)  # so that cutting off bends no plane
    made = rows_of(seeded(Constant), X, y, chunk_rows=64)
    base = made.rows._base(made.sample)
    assert base.shape[1] == 1 + 2 + 1
    residual = X - base @ np.linalg.lstsq(base, X)[0]
    assert float(np.abs(residual).max()) < 1e-4


def test_features_are_standardised_so_that_units_do_not_matter() -> None:
    X, y = table()
    one = all_rows(rows_of(seeded(Constant), X, y, chunk_rows=16))
    other = all_rows(rows_of(seeded(Constant), 64.0 * X - 128.0, y, chunk_rows=16))
    assert np.allclose(one, other, atol=1e-3)


def test_constant_columns_of_features_are_constants_of_the_rows() -> None:
    X, y = table(1000, 4)
    X[:, 1], X[:, 2] = 7.0, 0.0
    made = rows_of(seeded(Constant), X, y, chunk_rows=16)
    base = made.rows._base(made.sample)
    for column in (2, 3):
        assert float(base[:, column].std()) < 1e-6
        assert float(np.abs(base[:, column]).max()) < 1e-6
    assert float(base[:, 1].std()) > 0.1


def test_one_far_outlier_does_not_make_the_other_rows_small() -> None:
    X, y = table(200)
    usual = all_rows(rows_of(seeded(Constant), X, y, chunk_rows=64))
    X[0] = 1e6
    rows = all_rows(rows_of(seeded(Constant), X, y, chunk_rows=64))
    assert float(np.linalg.norm(rows[1:], axis=1).mean()) > 0.8 * float(np.linalg.norm(usual[1:], axis=1).mean())
    assert float(np.linalg.norm(rows[0])) <= 1 + 1e-6


def test_most_rows_keep_their_length_and_long_ones_are_shortened_to_one() -> None:
    X, y = table(500)
    lengths = np.linalg.norm(all_rows(rows_of(seeded(lambda: multilayer(4, [5])), X, y, chunk_rows=64)), axis=1)
    at_bound = float((np.abs(lengths - 1) < 1e-5).mean())
    assert 0.1 < at_bound < 0.5
    assert float(lengths.max()) == pytest.approx(1.0, abs=1e-6)


def test_whole_numbers_of_features_give_the_same_rows_as_the_same_numbers_in_float() -> None:
    X = np.random.default_rng(0).integers(-3, 4, (50, 4))
    y = labels(np.arange(50) % 2)

    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 1)

        def forward(self, X: Tensor) -> Tensor:
            out: Tensor = self.last(X.float())
            return out

    one, other = (all_rows(rows_of(seeded(Cast), each, y, chunk_rows=16)) for each in (X, X.astype(np.float32)))
    assert np.array_equal(one, other)


def test_rows_of_a_table_beyond_the_sample_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means, scales and lengths come from a few rows; all others have the same bound."""
    monkeypatch.setattr(module, "SAMPLE", 20)
    X, y = table(300)
    X[7] = 1e5  # not in the sample
    found = all_rows(rows_of(seeded(lambda: multilayer(4, [5])), X, y, chunk_rows=64))
    assert bool(np.isfinite(found).all())
    assert float(np.linalg.norm(found.astype(np.float64), axis=1).max()) <= 1 + 1e-6


def test_frozen_network_gives_what_enters_the_last_layer_and_the_score() -> None:
    network: Any = seeded(lambda: multilayer(4, [5, 3])).eval()
    X, _ = table()
    hidden, scores = said(network, X)
    with torch.no_grad():
        expected = network[:-1](torch.from_numpy(X)).numpy(), network(torch.from_numpy(X)).squeeze(1).numpy()
        weight, bias = network[-1].weight[0].numpy(), network[-1].bias.numpy()
    assert np.allclose(hidden, expected[0], rtol=1e-5, atol=1e-5)
    assert np.allclose(scores, expected[1], rtol=1e-5, atol=1e-4)
    assert np.allclose(hidden @ weight + bias, scores, atol=1e-4)


def test_frozen_network_of_dropout_is_deterministic() -> None:
    network = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 1))).train()
    X, _ = table()
    frozen = FrozenNetwork.from_module(network, X, 4096)
    assert np.array_equal(frozen(block_of(X))[1], frozen(block_of(X))[1])


@pytest.mark.parametrize("make", [Quadratic, Twice, lambda: nn.Sequential(nn.Linear(4, 2), Columns())])
def test_frozen_network_without_one_last_linear_layer_exposes_no_representation(make: Any) -> None:
    hidden, scores = said(seeded(make), table()[0])
    assert hidden.shape == (60, 0)
    assert scores.shape == (60,)


class Columns(nn.Module):
    """Difference of two outputs."""

    def forward(self, X: Tensor) -> Tensor:
        """(m,)."""
        return X[:, 0] - X[:, 1]


def test_frozen_network_of_a_layer_over_positions_exposes_no_representation() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(2, 1)

        def forward(self, X: Tensor) -> Tensor:
            out: Tensor = self.last(X.view(-1, 2, 2)).sum((1, 2))
            return out

    assert said(seeded(Positions), table()[0])[0].shape == (60, 0)


def test_frozen_network_of_two_outputs_per_row_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="expected one score per row") as caught:
        said(nn.Linear(4, 2), table()[0])
    assert "\n" not in str(caught.value)


def test_chunks_cover_all_positions_whatever_their_size() -> None:
    for chunk_rows in (1, 3, 10, 11):
        assert np.concatenate(list(index_chunks(10, chunk_rows))).tolist() == list(range(10))
