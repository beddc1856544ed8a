"""Sums over groups and weighted sums: neighbours differ by at most the recorded sensitivity, and some reach it."""

import math
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vaults import NAMES, NOISE, Capture, derandomized, exact_group_sums, neighbours, open_vault

from justitia.postprocessing.run import sum_stddev
from justitia.privacy.arrays import Array
from justitia.privacy.certificate import Certificate
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import SeededNoise, Unprotected
from justitia.privacy.persons import Persons
from justitia.privacy.vault import SensitiveVault


class SameForAll(SeededNoise):
    """Seeded noise that does not listen to the question, so that a test can draw it again."""

    def about(self, *query: object) -> Self:
        return self


def exact_weighted_sum(labels: Any, groups: Any, values: Array, weights: Array, bound: float) -> tuple[Array, float]:
    source = Capture()
    vault, ledger = open_vault(labels, groups, source=source)
    vault.weighted_sum(values, weights, bound=bound, noise=NOISE, purpose="test")
    sensitivity = ledger.releases[0].sensitivity
    assert source.std == [2.0 * sensitivity]
    return source.exact[0], sensitivity


@derandomized
@given(neighbours())
def test_group_sums_of_neighbours_differ_by_at_most_the_recorded_sensitivity(case: dict[str, Any]) -> None:
    (one, sensitivity), (other, same) = (
        exact_group_sums(labels, case["groups"], case["values"], case["bound"]) for labels in case["labels"]
    )
    assert sensitivity == same == pytest.approx(math.sqrt(2) * case["bound"], rel=1e-12)
    assert float(np.linalg.norm(one - other)) <= sensitivity


@derandomized
@given(neighbours())
def test_weighted_sums_of_neighbours_differ_by_at_most_the_recorded_sensitivity(case: dict[str, Any]) -> None:
    (one, sensitivity), (other, same) = (
        exact_weighted_sum(labels, case["groups"], case["values"], case["weights"], case["bound"])
        for labels in case["labels"]
    )
    assert sensitivity == same
    assert float(np.linalg.norm(one - other)) <= sensitivity


@derandomized
@given(st.lists(st.tuples(st.sampled_from(["F", "M", None]), st.sampled_from(["B", "W", None])), min_size=2), st.data())
def test_crossed_columns_of_neighbours_differ_by_at_most_the_recorded_sensitivity(
    rows: list[tuple[Any, Any]], data: st.DataObject
) -> None:
    person = data.draw(st.integers(0, len(rows) - 1))
    changed = list(rows)
    changed[person] = data.draw(st.sampled_from([("F", "B"), ("M", "W"), (None, "W"), ("X", "B")]))
    groups = {"sex": ["F", "M"], "race": ["B", "W"]}
    values = np.ones((len(rows), 1))
    one, other = (
        exact_group_sums(pd.DataFrame(table, columns=["sex", "race"], dtype=object), groups, values, 1.0)[0]
        for table in (rows, changed)
    )
    assert one.shape == (5, 1)
    assert float(np.linalg.norm(one - other)) in {0.0, math.sqrt(2)}


@pytest.mark.parametrize("n_groups", [2, 5])
@pytest.mark.parametrize("goal", ["b", None])
def test_group_sums_when_a_long_row_changes_its_group_reach_the_sensitivity(n_groups: int, goal: str | None) -> None:
    values = np.array([[30.0, 40.0], [0.1, 0.0], [0.0, 0.2]])
    groups = NAMES[:n_groups]
    one, sensitivity = exact_group_sums(["a", "a", "b"], groups, values, 5.0)
    other, _ = exact_group_sums([goal, "a", "b"], groups, values, 5.0)
    assert sensitivity == pytest.approx(math.sqrt(2) * 5)
    assert float(np.linalg.norm(one - other)) == pytest.approx(sensitivity)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [([1.0, -2.0, 0.5], 3.0), ([1.0, 2.0, 0.0], 2.0), ([4.0, 4.0, 4.0], 0.0)],
    ids=["between two groups", "to not given", "all alike"],
)
def test_weighted_sum_when_a_long_row_changes_its_group_reaches_the_sensitivity(
    weights: list[float], expected: float
) -> None:
    values = np.array([[30.0, 40.0], [0.1, 0.0]])
    omega = np.array([weights, weights])
    highest, lowest = (("a", "b", None)[f(range(3), key=weights.__getitem__)] for f in (max, min))
    one, sensitivity = exact_weighted_sum([highest, "a"], ("a", "b"), values, omega, 5.0)
    other, _ = exact_weighted_sum([lowest, "a"], ("a", "b"), values, omega, 5.0)
    assert sensitivity == pytest.approx(5 * expected)
    assert float(np.linalg.norm(one - other)) == pytest.approx(sensitivity)


def test_group_sums_without_noise_are_plain_sums_in_the_order_of_the_groups() -> None:
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])
    vault, _ = open_vault(["b", "a", None, "b"])
    answer = vault.group_sums(values, bound=1e6, noise=Unprotected(), purpose="test")
    assert answer.tolist() == [[2.0, 20.0], [5.0, 50.0]]
    assert answer.dtype == np.float64


def test_group_sums_of_one_number_per_person_are_a_column() -> None:
    vault, _ = open_vault(["b", "a", None, "b"])
    answer = vault.group_sums(np.ones(4), bound=1.0, noise=Unprotected(), purpose="test")
    assert answer.tolist() == [[1.0], [2.0]]


def test_weighted_sum_without_noise_and_clip_is_the_plain_weighted_sum() -> None:
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    omega = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [100.0, 200.0, 300.0]])
    vault, _ = open_vault(["b", "a", None])
    answer = vault.weighted_sum(values, omega, bound=1e6, noise=Unprotected(), purpose="test")
    assert answer.tolist() == [2.0 + 20.0 + 900.0, 20.0 + 200.0 + 9000.0]


def test_weighted_sum_clips_each_row_before_its_weight() -> None:
    vault, _ = open_vault(["a", "a"])
    values, omega = np.array([[3.0, 4.0], [0.3, 0.4]]), np.array([[10.0, 0.0, 0.0]] * 2)
    answer = vault.weighted_sum(values, omega, bound=1.0, noise=Unprotected(), purpose="test")
    assert answer.tolist() == pytest.approx([10 * (0.6 + 0.3), 10 * (0.8 + 0.4)])


@pytest.mark.parametrize("n_groups", [2, 5])
def test_projection_onto_the_public_total_removes_its_share_of_the_noise(n_groups: int) -> None:
    columns = 20_000
    vault, _ = open_vault(["a", "b"], NAMES[:n_groups], source=SeededNoise(1))
    answer = vault.group_sums(np.zeros((2, columns)), bound=3.0, noise=NOISE, purpose="test")
    expected = 2 * (2.0 * 3.0) ** 2 * (1 - 1 / (n_groups + 1))
    assert answer.shape == (n_groups, columns)
    # a variance from 20,000 draws is within 6 * sqrt(2 / 20,000) = 6% of the truth
    assert answer.var(axis=1).tolist() == pytest.approx([expected] * n_groups, rel=0.06)


def test_projection_keeps_the_public_total_over_the_groups_and_not_given() -> None:
    source = SameForAll(1)
    values = np.array([[1.0], [2.0], [4.0]])
    vault, _ = open_vault(["a", "b", None], source=source)
    answer = vault.group_sums(values, bound=4.0, noise=NOISE, purpose="test")
    raw = source.add_gaussian(np.array([[1.0], [2.0], [4.0]]), 8 * math.sqrt(2), release=0)
    assert np.allclose(answer, (raw + (7.0 - raw.sum()) / 3)[:2])


# missing="none": every row has one of the groups


@pytest.mark.parametrize("n_groups", [2, 5])
def test_projection_without_missing_removes_one_group_of_the_noise(n_groups: int) -> None:
    columns = 20_000
    vault, ledger = open_vault(["a", "b"], NAMES[:n_groups], source=SeededNoise(1), missing="none")
    answer = vault.group_sums(np.zeros((2, columns)), bound=3.0, noise=NOISE, purpose="test")
    expected = 2 * (2.0 * 3.0) ** 2 * (1 - 1 / n_groups)
    assert answer.shape == (n_groups, columns)
    assert answer.var(axis=1).tolist() == pytest.approx([expected] * n_groups, rel=0.06)
    assert ledger.releases[0].sensitivity == pytest.approx(3.0 * math.sqrt(2))  # as with "not given"
    assert answer.sum(axis=0) == pytest.approx(np.zeros(columns), abs=1e-9)
    assert sum_stddev(NOISE, 3.0, n_groups, "none") ** 2 == pytest.approx(expected)


@pytest.mark.parametrize("odd", [None, math.nan, "no group", (), 3])
def test_entry_that_is_no_group_counts_as_the_first_group_without_missing(odd: Any) -> None:
    values = np.array([[1.0], [2.0], [4.0]])
    found, costs = [], []
    for label in ("a", odd):
        source = Capture()
        vault, ledger = open_vault(["b", label, "b"], source=source, missing="none")
        vault.group_sums(values, bound=4.0, noise=NOISE, purpose="test")
        vault.weighted_sum(values, np.arange(9.0).reshape(3, 3), bound=4.0, noise=NOISE, purpose="test")
        found.append([one.tolist() for one in source.exact])
        costs.append([(one.cost, one.sensitivity) for one in ledger.releases])
    assert found[0] == found[1] == [[[2.0], [5.0]], [1.0 * 1 + 3.0 * 2 + 7.0 * 4]]
    assert costs[0] == costs[1]


@derandomized
@given(neighbours())
def test_group_sums_without_missing_of_neighbours_differ_by_at_most_the_recorded_sensitivity(case: Any) -> None:
    exact = []
    for labels in case["labels"]:
        source = Capture()
        vault, ledger = open_vault(labels, case["groups"], source=source, missing="none")
        vault.group_sums(case["values"], bound=case["bound"], noise=NOISE, purpose="test")
        exact.append(source.exact[0])
    assert np.linalg.norm(exact[0] - exact[1]) <= ledger.releases[0].sensitivity


def test_group_sums_without_missing_reach_the_sensitivity() -> None:
    values, exact = np.array([[3.0, 4.0]]), []
    for label in ("a", "b"):
        source = Capture()
        vault, ledger = open_vault([label], source=source, missing="none")
        vault.group_sums(values, bound=5.0, noise=NOISE, purpose="test")
        exact.append(source.exact[0])
    assert np.linalg.norm(exact[0] - exact[1]) >= 0.999 * ledger.releases[0].sensitivity


def test_certificate_without_missing_says_what_neighbours_are() -> None:
    known, usual = (open_vault(["a"], epsilon=1.0, missing=one)[0].certificate() for one in ("none", "allowed"))
    assert "missing='none': an entry that is missing or not listed counts as the first group" in known.adjacency
    assert "'not given'" in usual.adjacency
    assert Certificate.from_dict(known.to_dict()) == known
    assert known.adjacency in " ".join(str(known).split())


def test_persons_with_rows_that_do_not_count_are_refused_without_missing() -> None:
    ids = ["one"] * 1000 + [f"p{i}" for i in range(100)]
    people = Persons.from_ids(ids)
    assert not people.counted.all()
    with pytest.raises(ValueError, match="expected rows that all count with missing='none'"):
        SensitiveVault(
            ["a"] * 1100,
            groups=("a", "b"),
            ledger=PrivacyLedger(epsilon=1.0, delta=1e-5),
            people=people,
            missing="none",
        )


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e200])
def test_row_that_is_not_finite_counts_as_zero(odd: float) -> None:
    values = np.array([[odd, 1.0], [1.0, 2.0]])
    vault, _ = open_vault(["a", "a"])
    sums = vault.group_sums(values, bound=9.0, noise=Unprotected(), purpose="test")
    weighted = vault.weighted_sum(values, np.ones((2, 3)), bound=9.0, noise=Unprotected(), purpose="test")
    assert (sums.tolist(), weighted.tolist()) == ([[1.0, 2.0], [0.0, 0.0]], [1.0, 2.0])
