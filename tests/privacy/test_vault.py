import copy
import math
import pickle
from collections.abc import Iterator
from typing import Any, NoReturn, Self

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from justitia.privacy.accounting import GaussianCost, RandomizedResponseCost, UnboundedCost
from justitia.privacy.bounding import clipped_sum
from justitia.privacy.ledger import BudgetExceeded, PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, NoiseSource, RandomizedResponse, SeededNoise, Unprotected
from justitia.privacy.rows import DenseBlock, FactoredRows, TensorRows, index_chunks
from justitia.privacy.vault import SensitiveVault

NAMES = ("a", "b", "c", "d", "e")
NOISE = Gaussian(2.0)
derandomized = settings(derandomize=True, deadline=None, max_examples=40, database=None)


class Capture(NoiseSource):
    """Keeps the exact answer and adds nothing."""

    description = "capture"

    def __init__(self, seed: int = 0) -> None:
        self.exact: list[Tensor] = []
        self.std: list[float] = []
        self._seeded = SeededNoise(seed)

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        return self._seeded.words(size, release=release, stream=stream)

    def add_gaussian(self, exact: Tensor, std: float, *, release: int) -> Tensor:
        self.exact.append(exact.clone())
        self.std.append(std)
        return exact


class SameForAll(SeededNoise):
    """Seeded noise that does not listen to the question, so that a test can draw it again."""

    def about(self, question: bytes) -> Self:
        return self


def open_vault(
    labels: Any, groups: Any = ("a", "b"), *, source: NoiseSource | None = None, epsilon: float = math.inf
) -> tuple[SensitiveVault, PrivacyLedger]:
    ledger = PrivacyLedger(epsilon=epsilon, delta=1e-5)
    return SensitiveVault(labels, groups=groups, ledger=ledger, noise_source=source or Capture()), ledger


def exact_group_sums(labels: Any, groups: Any, values: Any, bound: float) -> tuple[Tensor, float]:
    source = Capture()
    vault, ledger = open_vault(labels, groups, source=source)
    vault.group_sums(values, bound=bound, noise=NOISE, purpose="test")
    sensitivity = ledger.releases[0].sensitivity
    assert source.std == [2.0 * sensitivity]
    return source.exact[0], sensitivity


def exact_weighted_sum(labels: Any, groups: Any, values: Tensor, weights: Tensor, bound: float) -> tuple[Tensor, float]:
    source = Capture()
    vault, ledger = open_vault(labels, groups, source=source)
    vault.weighted_sum(values, weights, bound=bound, noise=NOISE, purpose="test")
    sensitivity = ledger.releases[0].sensitivity
    assert source.std == [2.0 * sensitivity]
    return source.exact[0], sensitivity


numbers = st.floats(-1e3, 1e3) | st.sampled_from([0.0, math.nan, math.inf, -math.inf, 1e200])


@st.composite
def neighbours(draw: st.DrawFn) -> dict[str, Any]:
    """Public rows and two lists of labels that differ in one entry; the code G stands for "not given"."""
    n_groups = draw(st.sampled_from([2, 5]))
    n, d = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    code = st.integers(0, n_groups)
    codes = draw(st.lists(code, min_size=n, max_size=n))
    person, other = draw(st.integers(0, n - 1)), draw(code)
    names = [*NAMES[:n_groups], None]
    changed = [*codes[:person], other, *codes[person + 1 :]]
    return {
        "groups": NAMES[:n_groups],
        "labels": ([names[c] for c in codes], [names[c] for c in changed]),
        "person": person,
        "values": torch.tensor(draw(st.lists(numbers, min_size=n * d, max_size=n * d)), dtype=torch.float64).view(n, d),
        "weights": torch.tensor(
            draw(st.lists(st.floats(-9, 9), min_size=n * (n_groups + 1), max_size=n * (n_groups + 1))),
            dtype=torch.float64,
        ).view(n, n_groups + 1),
        "bound": draw(st.sampled_from([0.0, 0.1, 1.0, 700.0])),
    }


@derandomized
@given(neighbours())
def test_group_sums_of_neighbours_differ_by_at_most_the_recorded_sensitivity(case: dict[str, Any]) -> None:
    (one, sensitivity), (other, same) = (
        exact_group_sums(labels, case["groups"], case["values"], case["bound"]) for labels in case["labels"]
    )
    assert sensitivity == same == pytest.approx(math.sqrt(2) * case["bound"], rel=1e-12)
    assert float((one - other).norm()) <= sensitivity


@derandomized
@given(neighbours())
def test_weighted_sums_of_neighbours_differ_by_at_most_the_recorded_sensitivity(case: dict[str, Any]) -> None:
    (one, sensitivity), (other, same) = (
        exact_weighted_sum(labels, case["groups"], case["values"], case["weights"], case["bound"])
        for labels in case["labels"]
    )
    assert sensitivity == same
    assert float((one - other).norm()) <= sensitivity


@derandomized
@given(st.lists(st.tuples(st.sampled_from(["F", "M", None]), st.sampled_from(["B", "W", None])), min_size=2), st.data())
def test_crossed_columns_of_neighbours_differ_by_at_most_the_recorded_sensitivity(
    rows: list[tuple[Any, Any]], data: st.DataObject
) -> None:
    person = data.draw(st.integers(0, len(rows) - 1))
    changed = list(rows)
    changed[person] = data.draw(st.sampled_from([("F", "B"), ("M", "W"), (None, "W"), ("X", "B")]))
    groups = {"sex": ["F", "M"], "race": ["B", "W"]}
    values = torch.ones(len(rows), 1)
    one, other = (
        exact_group_sums(pd.DataFrame(table, columns=["sex", "race"], dtype=object), groups, values, 1.0)[0]
        for table in (rows, changed)
    )
    assert one.shape == (5, 1)
    assert float((one - other).norm()) in {0.0, math.sqrt(2)}


@pytest.mark.parametrize("n_groups", [2, 5])
@pytest.mark.parametrize("goal", ["b", None])
def test_group_sums_when_a_long_row_changes_its_group_reach_the_sensitivity(n_groups: int, goal: str | None) -> None:
    values = torch.tensor([[30.0, 40.0], [0.1, 0.0], [0.0, 0.2]])
    groups = NAMES[:n_groups]
    one, sensitivity = exact_group_sums(["a", "a", "b"], groups, values, 5.0)
    other, _ = exact_group_sums([goal, "a", "b"], groups, values, 5.0)
    assert sensitivity == pytest.approx(math.sqrt(2) * 5)
    assert float((one - other).norm()) == pytest.approx(sensitivity)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [([1.0, -2.0, 0.5], 3.0), ([1.0, 2.0, 0.0], 2.0), ([4.0, 4.0, 4.0], 0.0)],
    ids=["between two groups", "to not given", "all alike"],
)
def test_weighted_sum_when_a_long_row_changes_its_group_reaches_the_sensitivity(
    weights: list[float], expected: float
) -> None:
    values = torch.tensor([[30.0, 40.0], [0.1, 0.0]])
    omega = torch.tensor([weights, weights])
    highest, lowest = (("a", "b", None)[f(range(3), key=weights.__getitem__)] for f in (max, min))
    one, sensitivity = exact_weighted_sum([highest, "a"], ("a", "b"), values, omega, 5.0)
    other, _ = exact_weighted_sum([lowest, "a"], ("a", "b"), values, omega, 5.0)
    assert sensitivity == pytest.approx(5 * expected)
    assert float((one - other).norm()) == pytest.approx(sensitivity)


def test_group_sums_without_noise_are_plain_sums_in_the_order_of_the_groups() -> None:
    values = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])
    vault, _ = open_vault(["b", "a", None, "b"])
    answer = vault.group_sums(values, bound=1e6, noise=Unprotected(), purpose="test")
    assert answer.tolist() == [[2.0, 20.0], [5.0, 50.0]]
    assert answer.dtype == torch.float64


def test_group_sums_of_one_number_per_person_are_a_column() -> None:
    vault, _ = open_vault(["b", "a", None, "b"])
    answer = vault.group_sums(torch.ones(4), bound=1.0, noise=Unprotected(), purpose="test")
    assert answer.tolist() == [[1.0], [2.0]]


def test_weighted_sum_without_noise_and_clip_is_the_plain_weighted_sum() -> None:
    values = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    omega = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [100.0, 200.0, 300.0]])
    vault, _ = open_vault(["b", "a", None])
    answer = vault.weighted_sum(values, omega, bound=1e6, noise=Unprotected(), purpose="test")
    assert answer.tolist() == [2.0 + 20.0 + 900.0, 20.0 + 200.0 + 9000.0]


def test_weighted_sum_clips_each_row_before_its_weight() -> None:
    vault, _ = open_vault(["a", "a"])
    values, omega = torch.tensor([[3.0, 4.0], [0.3, 0.4]]), torch.tensor([[10.0, 0.0, 0.0]] * 2)
    answer = vault.weighted_sum(values, omega, bound=1.0, noise=Unprotected(), purpose="test")
    assert answer.tolist() == pytest.approx([10 * (0.6 + 0.3), 10 * (0.8 + 0.4)])


@pytest.mark.parametrize("n_groups", [2, 5])
def test_projection_onto_the_public_total_removes_its_share_of_the_noise(n_groups: int) -> None:
    columns = 20_000
    vault, _ = open_vault(["a", "b"], NAMES[:n_groups], source=SeededNoise(1))
    answer = vault.group_sums(torch.zeros(2, columns), bound=3.0, noise=NOISE, purpose="test")
    expected = 2 * (2.0 * 3.0) ** 2 * (1 - 1 / (n_groups + 1))
    assert answer.shape == (n_groups, columns)
    # a variance from 20,000 draws is within 6 * sqrt(2 / 20,000) = 6% of the truth
    assert answer.var(dim=1).tolist() == pytest.approx([expected] * n_groups, rel=0.06)


def test_projection_keeps_the_public_total_over_the_groups_and_not_given() -> None:
    source = SameForAll(1)
    values = torch.tensor([[1.0], [2.0], [4.0]])
    vault, _ = open_vault(["a", "b", None], source=source)
    answer = vault.group_sums(values, bound=4.0, noise=NOISE, purpose="test")
    raw = source.add_gaussian(torch.tensor([[1.0], [2.0], [4.0]]).double(), 8 * math.sqrt(2), release=0)
    assert torch.allclose(answer, (raw + (7.0 - raw.sum()) / 3)[:2])


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e200])
def test_row_that_is_not_finite_counts_as_zero(odd: float) -> None:
    values = torch.tensor([[odd, 1.0], [1.0, 2.0]], dtype=torch.float64)
    vault, _ = open_vault(["a", "a"])
    sums = vault.group_sums(values, bound=9.0, noise=Unprotected(), purpose="test")
    weighted = vault.weighted_sum(values, torch.ones(2, 3), bound=9.0, noise=Unprotected(), purpose="test")
    assert (sums.tolist(), weighted.tolist()) == ([[1.0, 2.0], [0.0, 0.0]], [1.0, 2.0])


class Streamed:
    """A matrix of public rows read a few at a time, and how many were read at once."""

    def __init__(self, values: Tensor, chunk_rows: int) -> None:
        self.values, self.chunk_rows = values, chunk_rows
        self.most = 0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        return self.values.shape[1]

    def dense(self) -> Iterator[tuple[Tensor, Tensor]]:
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
        assert torch.equal(streamed, whole)


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
    assert float((one - other).norm()) <= sensitivity


@pytest.mark.parametrize("n_groups", [2, 5])
def test_group_sums_of_a_streamed_source_reach_the_sensitivity(n_groups: int) -> None:
    source = Streamed(torch.tensor([[30.0, 40.0], [0.1, 0.0], [0.0, 0.2]]), 2)
    groups = NAMES[:n_groups]
    one, sensitivity = exact_group_sums(["a", "a", "b"], groups, source, 5.0)
    other, _ = exact_group_sums([None, "a", "b"], groups, source, 5.0)
    assert float((one - other).norm()) == pytest.approx(sensitivity)


@pytest.mark.parametrize("chunk_rows", [1, 2, 100])
def test_noised_group_sums_do_not_depend_on_how_many_rows_are_read_at_once(chunk_rows: int) -> None:
    values = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = ["a", "b", None, "a"] * 5
    ask: dict[str, Any] = {"bound": 1.0, "noise": NOISE, "purpose": "test"}
    answers = [
        open_vault(labels, source=SeededNoise(7))[0].group_sums(rows, **ask)
        for rows in (values, Streamed(values, chunk_rows), TensorRows(values, chunk_rows))
    ]
    assert answers[0].shape == (2, 3)
    assert answers[0].dtype == torch.float64
    for answer in answers[1:]:
        assert torch.allclose(answer, answers[0], rtol=0, atol=1e-13)


def test_group_sums_of_a_streamed_source_read_a_few_rows_at_a_time_and_each_once() -> None:
    source = Streamed(torch.ones(10, 1), 4)
    vault, _ = open_vault(["a", "b"] * 5)
    answer = vault.group_sums(source, bound=1.0, noise=Unprotected(), purpose="test")
    assert (answer.tolist(), source.most) == ([[5.0], [5.0]], 4)


def test_public_total_that_answers_are_projected_on_does_not_depend_on_the_attribute() -> None:
    """Rows whose sum depends on the order in which it is taken: the total must still be the same to the last bit."""
    values = torch.tensor([[1e16], [1.0], [-1e16], [1.0], [3e15], [-3e15]], dtype=torch.float64)

    class Silent(Capture):
        def add_gaussian(self, exact: Tensor, std: float, *, release: int) -> Tensor:
            return torch.zeros_like(exact)

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
    source = Streamed(torch.tensor([[odd, 1.0], [1.0, 2.0], [0.5, 0.5]], dtype=torch.float64), 2)
    vault, _ = open_vault(["a", "a", "b"])
    sums = vault.group_sums(source, bound=9.0, noise=Unprotected(), purpose="test")
    assert sums.tolist() == [[1.0, 2.0], [0.5, 0.5]]


def test_streamed_source_of_rows_that_need_a_gradient_gives_an_answer_without_one() -> None:
    source = Streamed(torch.ones(2, 1, requires_grad=True), 1)
    vault, _ = open_vault(["a", "b"])
    assert not vault.group_sums(source, bound=1.0, noise=Unprotected(), purpose="test").requires_grad


def test_streamed_source_of_another_length_is_refused_in_a_sentence_before_the_debit() -> None:
    vault, ledger = open_vault(["a", "b"])
    with pytest.raises(ValueError, match=r"^Expected one public row per label \(2\); got 3\.$"):
        vault.group_sums(Streamed(torch.ones(3, 1), 2), bound=1.0, noise=NOISE, purpose="test")
    assert ledger.releases == ()


@pytest.mark.parametrize(("small", "dtype"), [(1e-250, torch.float64), (1e-30, torch.float32)])
@pytest.mark.parametrize("bound", [0.0, 1e-3])
def test_row_whose_square_is_too_small_for_a_float_stays_within_the_bound(
    small: float, dtype: torch.dtype, bound: float
) -> None:
    rows = FactoredRows((DenseBlock(torch.full((1, 2), small, dtype=dtype)),))
    assert float(clipped_sum(rows, torch.ones(1), bound).norm()) <= bound
    exact, _ = exact_group_sums(["a"], ("a", "b"), torch.full((1, 2), small, dtype=dtype), bound)
    assert float(exact.abs().max()) <= bound


class Hostile:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("secret")

    def __hash__(self) -> int:
        raise RuntimeError("secret")


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b", "a", "b"],
        ["a", "a", "a", "a"],
        ["a", "b", "b", "b"],
        [None, None, None, None],
        ["secret", "?", "", "A"],
        [1, 2.5, math.nan, pd.NA],
        [Hostile(), Hostile(), [], {}],
    ],
    ids=["ordinary", "empty group", "one member", "everyone missing", "unknown", "numbers", "hostile"],
)
def test_labels_of_any_kind_give_the_same_shapes_costs_and_scales(labels: list[Any]) -> None:
    source = Capture()
    vault, ledger = open_vault(labels, source=source)
    values, omega = torch.ones(4, 3), torch.ones(4, 3)
    shapes = [
        vault.group_sums(values, bound=2.0, noise=NOISE, purpose="sums").shape,
        vault.weighted_sum(values, omega, bound=2.0, noise=NOISE, purpose="equal weights").shape,
        vault.weighted_sum(values, omega * torch.tensor([2.0, 1.0, 0.0]), bound=2.0, noise=NOISE, purpose="sum").shape,
        vault.randomized_labels(RandomizedResponse(1.0), purpose="labels").shape,
    ]
    assert shapes == [(2, 3), (3,), (3,), (4,)]
    assert [release.sensitivity for release in ledger.releases] == pytest.approx([math.sqrt(8), 0.0, 4.0, 1.0])
    assert source.std == pytest.approx([2 * math.sqrt(8), 0.0, 8.0])
    assert repr(vault) == "SensitiveVault(n=4, groups=['a', 'b'])"


class Untouchable:
    """A source of rows that must never be asked for one."""

    width = 2

    def __len__(self) -> int:
        return 2

    def chunks(self) -> Iterator[tuple[Tensor, FactoredRows]]:
        raise AssertionError("rows were read before the debit")

    def dense(self) -> Iterator[tuple[Tensor, Tensor]]:
        raise AssertionError("rows were read before the debit")


class UntouchableNoise(Capture):
    def words(self, size: int, *, release: int, stream: str = "noise") -> NoReturn:
        raise AssertionError("noise was drawn before the debit")

    def add_gaussian(self, exact: Tensor, std: float, *, release: int) -> NoReturn:
        raise AssertionError("an answer was computed before the debit")


def test_weighted_sum_without_budget_reads_no_row() -> None:
    vault, ledger = open_vault(["a", "b"], source=UntouchableNoise(), epsilon=0.0)
    with pytest.raises(BudgetExceeded, match="'group gradient' would bring epsilon to"):
        vault.weighted_sum(Untouchable(), torch.ones(2, 3), bound=1.0, noise=NOISE, purpose="group gradient")
    assert ledger.releases == ()


def test_every_other_question_without_budget_is_refused_before_anything_is_drawn() -> None:
    vault, ledger = open_vault(["a", "b"], source=UntouchableNoise(), epsilon=0.0)
    questions = [
        lambda: vault.group_sums(torch.ones(2, 1), bound=1.0, noise=NOISE, purpose="test"),
        lambda: vault.group_sums(Untouchable(), bound=1.0, noise=NOISE, purpose="test"),
        lambda: vault.randomized_labels(RandomizedResponse(1.0), purpose="test"),
        lambda: vault.reveal(purpose="test"),
    ]
    for question in questions:
        with pytest.raises(BudgetExceeded):
            question()
    assert ledger.releases == ()


def test_questions_are_recorded_with_their_purpose_and_cost() -> None:
    vault, ledger = open_vault(["a", "b"])
    vault.group_sums(torch.ones(2, 1), bound=1.0, noise=NOISE, purpose="sizes")
    vault.weighted_sum(torch.ones(2, 1), torch.ones(2, 3), bound=1.0, noise=NOISE, purpose="gradient")
    vault.randomized_labels(RandomizedResponse(0.7), purpose="labels")
    vault.reveal(purpose="reveal")
    assert [(release.purpose, release.cost) for release in ledger.releases] == [
        ("sizes", GaussianCost(2.0)),
        ("gradient", GaussianCost(2.0)),
        ("labels", RandomizedResponseCost(0.7, 3)),
        ("reveal", UnboundedCost()),
    ]


def test_each_release_of_a_seeded_vault_gets_noise_of_its_own() -> None:
    vault, _ = open_vault(["a", "b"], source=SeededNoise(0))
    ask: dict[str, Any] = {"bound": 1.0, "noise": NOISE, "purpose": "test"}
    assert not torch.equal(vault.group_sums(torch.ones(2, 1), **ask), vault.group_sums(torch.ones(2, 1), **ask))


def test_rows_of_another_length_are_refused_in_a_sentence() -> None:
    vault, ledger = open_vault(["a", "b"])
    with pytest.raises(ValueError, match=r"^Expected one public row per label \(2\); got shape \(3, 1\)\.$"):
        vault.group_sums(torch.ones(3, 1), bound=1.0, noise=NOISE, purpose="test")
    with pytest.raises(ValueError, match=r"Expected 2 rows and weights of shape \(2, 3\); got 2 rows and weights of "):
        vault.weighted_sum(torch.ones(2, 1), torch.ones(2, 2), bound=1.0, noise=NOISE, purpose="test")
    assert ledger.releases == ()


@pytest.mark.parametrize("bound", [math.inf, math.nan, -1.0])
def test_bound_that_bounds_nothing_is_refused_before_the_debit(bound: float) -> None:
    vault, ledger = open_vault(["a", "b"])
    with pytest.raises(ValueError, match="Expected a finite bound of at least 0 on the rows; got "):
        vault.group_sums(torch.ones(2, 1), bound=bound, noise=NOISE, purpose="test")
    with pytest.raises(ValueError, match="Expected a finite bound of at least 0 on the rows; got "):
        vault.weighted_sum(torch.ones(2, 1), torch.ones(2, 3), bound=bound, noise=NOISE, purpose="test")
    assert ledger.releases == ()


@pytest.mark.parametrize("odd", [math.inf, math.nan])
def test_weights_that_are_not_finite_are_refused_before_the_debit(odd: float) -> None:
    vault, ledger = open_vault(["a", "b"])
    with pytest.raises(ValueError, match=r"^Expected finite weights; some are NaN or infinite\.$"):
        vault.weighted_sum(torch.ones(2, 1), torch.full((2, 3), odd), bound=1.0, noise=NOISE, purpose="test")
    assert ledger.releases == ()


@pytest.mark.parametrize("attempt", [copy.copy, copy.deepcopy, pickle.dumps, lambda v: pickle.dumps(v, protocol=0)])
def test_vault_refuses_to_be_copied_or_pickled(attempt: Any) -> None:
    vault, _ = open_vault(["a", "b"])
    for thing in (vault, [vault], {"vault": vault}):
        if attempt is copy.copy and thing is not vault:
            continue  # a shallow copy of a list does not copy what is in it
        with pytest.raises(TypeError, match="cannot be pickled or copied: it holds people's sensitive attributes"):
            attempt(thing)


def test_text_forms_of_a_vault_show_public_facts_only() -> None:
    vault, _ = open_vault(["a", "secret", "a", None, "b"], ("a", "b"))
    assert repr(vault) == str(vault) == f"{vault}" == "SensitiveVault(n=5, groups=['a', 'b'])"
    assert not hasattr(vault, "__dict__")
    assert not [name for name in dir(vault) if "label" in name and name != "randomized_labels"]


def test_reveal_returns_the_codes_and_debits_infinity() -> None:
    vault, ledger = open_vault(["b", "a", None])
    codes = vault.reveal(purpose="baseline that is not private")
    assert codes.tolist() == [1, 0, 2]
    assert ledger.epsilon() == math.inf
    codes[:] = 9
    assert vault.reveal(purpose="again").tolist() == [1, 0, 2]


def test_reveal_within_a_finite_budget_is_refused() -> None:
    vault, _ = open_vault(["b", "a", None], epsilon=50.0)
    with pytest.raises(BudgetExceeded):
        vault.reveal(purpose="test")


def test_randomized_labels_follow_the_law_over_the_groups_and_not_given() -> None:
    n = 30_000
    vault, ledger = open_vault(["a"] * n + [None] * n, source=SeededNoise(4))
    told = vault.randomized_labels(RandomizedResponse(1.0), purpose="labels").numpy()
    truth, other = math.e / (math.e + 2), 1 / (math.e + 2)
    counts = np.concatenate([np.bincount(told[:n], minlength=3), np.bincount(told[n:], minlength=3)]) / n
    assert counts.tolist() == pytest.approx([truth, other, other, other, other, truth], abs=0.015)
    assert ledger.epsilon() == pytest.approx(1.0, abs=1e-3)


def test_randomized_labels_without_the_category_let_the_missing_answer_with_any_group() -> None:
    n = 30_000
    vault, ledger = open_vault(["a"] * n + [None] * n, source=SeededNoise(4))
    told = vault.randomized_labels(RandomizedResponse(1.0), purpose="labels", not_given=False).numpy()
    truth = math.e / (math.e + 1)
    counts = np.concatenate([np.bincount(told[:n], minlength=2), np.bincount(told[n:], minlength=2)]) / n
    assert counts.tolist() == pytest.approx([truth, 1 - truth, 0.5, 0.5], abs=0.015)
    assert ledger.releases[0].cost == RandomizedResponseCost(1.0, 2)


def test_missing_marker_means_not_given() -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=0.0)
    vault = SensitiveVault(["a", "?", "b"], groups=("a", "b"), ledger=ledger, missing_marker="?")
    assert vault.reveal(purpose="test").tolist() == [0, 2, 1]


def test_certificate_says_whether_the_list_of_groups_was_given() -> None:
    given_list, _ = open_vault(["a", "b"])
    inferred, _ = open_vault(["a", "b"], "infer")
    assert given_list.certificate().groups_source == "given"
    assert inferred.certificate().groups_source == "read off the data, the list is not protected"
    assert given_list.certificate().groups == inferred.certificate().groups == ("a", "b")
    assert given_list.certificate().noise == "capture"


def test_public_facts_of_a_vault_with_crossed_columns() -> None:
    table = pd.DataFrame({"sex": ["F", "M"], "race": ["B", None]})
    vault, _ = open_vault(table, {"sex": ["F", "M"], "race": ["B", "W"]})
    assert (len(vault), vault.n_groups, vault.column_names) == (2, 4, ("sex", "race"))
    assert vault.group_names == ("sex=F & race=B", "sex=F & race=W", "sex=M & race=B", "sex=M & race=W")
    assert vault.reveal(purpose="test").tolist() == [0, 4]
