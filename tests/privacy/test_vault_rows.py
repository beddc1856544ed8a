"""Rows that are read a few at a time give the answers that the matrix gives."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vaults import NAMES, NOISE, Capture, derandomized, exact_group_sums, neighbours, open_vault

from justitia.privacy.arrays import Array
from justitia.privacy.bounding import clipped_sum
from justitia.privacy.mechanisms import SeededNoise, Unprotected
from justitia.privacy.rows import ArrayRows, DenseBlock, FactoredRows, index_chunks


class Streamed:
    """A matrix of public rows read a few at a time, and how many were read at once."""

    def __init__(self, values: Array, chunk_rows: int) -> None:
        self.values, self.chunk_rows = values, chunk_rows
        self.most = 0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def dense(self) -> Iterator[tuple[Array, Array]]:
        for part in index_chunks(len(self), self.chunk_rows):
            self.most = max(self.most, len(part))
            yield part, self.values[part]


@derandomized
@given(neighbours(), st.sampled_from([1, 2, 3, 100]))
def test_group_sums_of_a_streamed_source_equal_those_of_the_matrix(case: dict[str, Any], chunk_rows: int) -> None:
    for labels in case["labels"]:
        arguments = (labels, case["groups"])
        whole, sensitivity = exact_group_sums(*arguments, case["values"], case["bound"])
        streamed, same = exact_group_sums(*arguments, Streamed(case["values"], chunk_rows), case["bound"])
        assert sensitivity == same
        assert np.array_equal(streamed, whole)


@derandomized
@given(neighbours(), st.sampled_from([1, 2, 3, 100]))
def test_group_sums_of_a_streamed_source_of_neighbours_differ_by_at_most_the_recorded_sensitivity(
    case: dict[str, Any], chunk_rows: int
) -> None:
    (one, sensitivity), (other, same) = (
        exact_group_sums(labels, case["groups"], Streamed(case["values"], chunk_rows), case["bound"])
        for labels in case["labels"]
    )
    assert sensitivity == same == pytest.approx(math.sqrt(2) * case["bound"], rel=1e-12)
    assert float(np.linalg.norm(one - other)) <= sensitivity


@pytest.mark.parametrize("n_groups", [2, 5])
def test_group_sums_of_a_streamed_source_reach_the_sensitivity(n_groups: int) -> None:
    source = Streamed(np.array([[30.0, 40.0], [0.1, 0.0], [0.0, 0.2]]), 2)
    groups = NAMES[:n_groups]
    one, sensitivity = exact_group_sums(["a", "a", "b"], groups, source, 5.0)
    other, _ = exact_group_sums([None, "a", "b"], groups, source, 5.0)
    assert float(np.linalg.norm(one - other)) == pytest.approx(sensitivity)


@pytest.mark.parametrize("chunk_rows", [1, 2, 100])
def test_noised_group_sums_do_not_depend_on_how_many_rows_are_read_at_once(chunk_rows: int) -> None:
    values = np.random.default_rng(0).standard_normal((20, 3))
    labels = ["a", "b", None, "a"] * 5
    ask: dict[str, Any] = {"bound": 1.0, "noise": NOISE, "purpose": "test"}
    answers = [
        open_vault(labels, source=SeededNoise(7))[0].group_sums(rows, **ask)
        for rows in (values, Streamed(values, chunk_rows), ArrayRows(values, chunk_rows))
    ]
    assert answers[0].shape == (2, 3)
    assert answers[0].dtype == np.float64
    for answer in answers[1:]:
        assert np.allclose(answer, answers[0], rtol=0, atol=1e-13)


def test_group_sums_of_a_streamed_source_read_a_few_rows_at_a_time_and_each_once() -> None:
    source = Streamed(np.ones((10, 1)), 4)
    vault, _ = open_vault(["a", "b"] * 5)
    answer = vault.group_sums(source, bound=1.0, noise=Unprotected(), purpose="test")
    assert (answer.tolist(), source.most) == ([[5.0], [5.0]], 4)


def test_public_total_that_answers_are_projected_on_does_not_depend_on_the_attribute() -> None:
    """Rows whose sum depends on the order in which it is taken: the total must still be the same to the last bit."""
    values = np.array([[1e16], [1.0], [-1e16], [1.0], [3e15], [-3e15]])

    class Silent(Capture):
        def add_gaussian(self, exact: Array, std: float, *, release: int) -> Array:
            return np.zeros_like(exact)

    for chunk_rows in (1, 4, 6):
        answers = {
            tuple(
                open_vault(labels, source=Silent())[0]
                .group_sums(Streamed(values, chunk_rows), bound=1e17, noise=NOISE, purpose="test")
                .flatten()
                .tolist()
            )
            for labels in (["a"] * 6, ["b"] * 6, ["a", "b"] * 3, ["b", "a", None] * 2, [None] * 6)
        }
        assert len(answers) == 1


@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e200])
def test_streamed_row_that_is_not_finite_counts_as_zero(odd: float) -> None:
    source = Streamed(np.array([[odd, 1.0], [1.0, 2.0], [0.5, 0.5]]), 2)
    vault, _ = open_vault(["a", "a", "b"])
    sums = vault.group_sums(source, bound=9.0, noise=Unprotected(), purpose="test")
    assert sums.tolist() == [[1.0, 2.0], [0.5, 0.5]]


def test_streamed_source_of_another_length_is_refused_in_a_sentence_before_the_debit() -> None:
    vault, ledger = open_vault(["a", "b"])
    with pytest.raises(ValueError, match=r"^Expected one public row per label \(2\); got 3\.$"):
        vault.group_sums(Streamed(np.ones((3, 1)), 2), bound=1.0, noise=NOISE, purpose="test")
    assert ledger.releases == ()


@pytest.mark.parametrize(("small", "dtype"), [(1e-250, np.float64), (1e-30, np.float32)])
@pytest.mark.parametrize("bound", [0.0, 1e-3])
def test_row_whose_square_is_too_small_for_a_float_stays_within_the_bound(
    small: float, dtype: Any, bound: float
) -> None:
    rows = FactoredRows((DenseBlock(np.full((1, 2), small, dtype=dtype)),))
    assert float(np.linalg.norm(clipped_sum(rows, np.ones(1), bound))) <= bound
    exact, _ = exact_group_sums(["a"], ("a", "b"), np.full((1, 2), small, dtype=dtype), bound)
    assert float(np.abs(exact).max()) <= bound
