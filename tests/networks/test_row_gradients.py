"""Per-example gradients: every layer equals one row at a time, in any chunk size and mode."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from layer_cases import (
    CASES,
    EMBEDDINGS,
    FLAT,
    SHORTCUTS,
    Head,
    Overwrites,
    mlp,
)
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from justitia.networks.requirements import trainable
from justitia.networks.row_gradients import (
    ScoreRows,
    find_layout,
    score_rows,
)
from justitia.privacy.rows import FactoredRows


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


def summed(rows: FactoredRows, c: Tensor) -> Tensor:
    return torch.from_numpy(rows.weighted_sum(c.numpy()))


def assert_same_rows(rows: FactoredRows, expected: Tensor) -> None:
    units = torch.eye(len(expected), dtype=expected.dtype)
    torch.testing.assert_close(torch.stack([summed(rows, unit) for unit in units]), expected)
    torch.testing.assert_close(torch.from_numpy(rows.norms()), expected.norm(dim=1))
    c = torch.linspace(-1, 2, len(expected), dtype=expected.dtype)
    torch.testing.assert_close(summed(rows, c), c @ expected)


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
    assert torch.equal(summed(rows, scores), torch.zeros(d, dtype=torch.float64))


@pytest.mark.parametrize("case", CASES)
def test_score_rows_one_row_equals_first_of_many(case: str) -> None:
    module, X = build(*CASES[case])
    assert_same_rows(score_rows(module, X[:1])[1], one_at_a_time(module, X[:1]))


def test_score_rows_flat_layout_equals_parameters_to_vector() -> None:
    # With f(x) = <theta, phi(x)> a step along the row raises the score by the row's squared norm.
    module, X = build(lambda: nn.Linear(3, 1))
    _, rows = score_rows(module, X[:1])
    expected = torch.cat([X[0], torch.ones(1, dtype=torch.float64)])
    assert torch.equal(summed(rows, torch.ones(1, dtype=torch.float64)), expected)
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
    assert np.concatenate([index for index, _ in chunks]).tolist() == list(range(20))
    norms = np.concatenate([rows.norms() for _, rows in chunks])
    torch.testing.assert_close(torch.from_numpy(norms), expected.norm(dim=1))
    torch.testing.assert_close(
        torch.stack([summed(rows, c[torch.from_numpy(index)]) for index, rows in chunks]).sum(0), c @ expected
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
    bad = ~np.isfinite(rows.norms())
    assert bad.tolist() == [False, False, True, False, False]
    expected = one_at_a_time(module, X)
    expected[2] = 0
    assert_same_rows(rows.zeroed(bad), expected)
