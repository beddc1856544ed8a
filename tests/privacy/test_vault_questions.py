"""What a vault refuses, records, shows and reveals."""

import copy
import math
import pickle
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pytest
from vaults import NOISE, Capture, open_vault

from justitia.privacy.accounting import GaussianCost, RandomizedResponseCost, UnboundedCost
from justitia.privacy.arrays import Array
from justitia.privacy.ledger import BudgetExceeded, PrivacyLedger
from justitia.privacy.mechanisms import RandomizedResponse, SeededNoise
from justitia.privacy.rows import FactoredRows
from justitia.privacy.vault import SensitiveVault


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
    values, omega = np.ones((4, 3)), np.ones((4, 3))
    shapes = [
        vault.group_sums(values, bound=2.0, noise=NOISE, purpose="sums").shape,
        vault.weighted_sum(values, omega, bound=2.0, noise=NOISE, purpose="equal weights").shape,
        vault.weighted_sum(values, omega * np.array([2.0, 1.0, 0.0]), bound=2.0, noise=NOISE, purpose="sum").shape,
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

    def chunks(self) -> Iterator[tuple[Array, FactoredRows]]:
        raise AssertionError("rows were read before the debit")

    def dense(self) -> Iterator[tuple[Array, Array]]:
        raise AssertionError("rows were read before the debit")


class UntouchableNoise(Capture):
    def words(self, size: int, *, release: int, stream: str = "noise") -> NoReturn:
        raise AssertionError("noise was drawn before the debit")

    def add_gaussian(self, exact: Array, std: float, *, release: int) -> NoReturn:
        raise AssertionError("an answer was computed before the debit")


def test_weighted_sum_without_budget_reads_no_row() -> None:
    vault, ledger = open_vault(["a", "b"], source=UntouchableNoise(), epsilon=0.0)
    with pytest.raises(BudgetExceeded, match="'group gradient' would bring epsilon to"):
        vault.weighted_sum(Untouchable(), np.ones((2, 3)), bound=1.0, noise=NOISE, purpose="group gradient")
    assert ledger.releases == ()


def test_every_other_question_without_budget_is_refused_before_anything_is_drawn() -> None:
    vault, ledger = open_vault(["a", "b"], source=UntouchableNoise(), epsilon=0.0)
    questions = [
        lambda: vault.group_sums(np.ones((2, 1)), bound=1.0, noise=NOISE, purpose="test"),
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
    vault.group_sums(np.ones((2, 1)), bound=1.0, noise=NOISE, purpose="sizes")
    vault.weighted_sum(np.ones((2, 1)), np.ones((2, 3)), bound=1.0, noise=NOISE, purpose="gradient")
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
    assert not np.array_equal(vault.group_sums(np.ones((2, 1)), **ask), vault.group_sums(np.ones((2, 1)), **ask))


def test_rows_of_another_length_are_refused_in_a_sentence() -> None:
    vault, ledger = open_vault(["a", "b"])
    with pytest.raises(ValueError, match=r"^Expected one public row per label \(2\); got shape \(3, 1\)\.$"):
        vault.group_sums(np.ones((3, 1)), bound=1.0, noise=NOISE, purpose="test")
    with pytest.raises(ValueError, match=r"Expected 2 rows and weights of shape \(2, 3\); got 2 rows and weights of "):
        vault.weighted_sum(np.ones((2, 1)), np.ones((2, 2)), bound=1.0, noise=NOISE, purpose="test")
    assert ledger.releases == ()


@pytest.mark.parametrize("bound", [math.inf, math.nan, -1.0])
def test_bound_that_bounds_nothing_is_refused_before_the_debit(bound: float) -> None:
    vault, ledger = open_vault(["a", "b"])
    with pytest.raises(ValueError, match="Expected a finite bound of at least 0 on the rows; got "):
        vault.group_sums(np.ones((2, 1)), bound=bound, noise=NOISE, purpose="test")
    with pytest.raises(ValueError, match="Expected a finite bound of at least 0 on the rows; got "):
        vault.weighted_sum(np.ones((2, 1)), np.ones((2, 3)), bound=bound, noise=NOISE, purpose="test")
    assert ledger.releases == ()


@pytest.mark.parametrize("odd", [math.inf, math.nan])
def test_weights_that_are_not_finite_are_refused_before_the_debit(odd: float) -> None:
    vault, ledger = open_vault(["a", "b"])
    with pytest.raises(ValueError, match=r"^Expected finite weights; some are NaN or infinite\.$"):
        vault.weighted_sum(np.ones((2, 1)), np.full((2, 3), odd), bound=1.0, noise=NOISE, purpose="test")
    assert ledger.releases == ()


@pytest.mark.parametrize("attempt", [copy.copy, copy.deepcopy, pickle.dumps, lambda v: pickle.dumps(v, protocol=0)])
def test_vault_refuses_to_be_copied_or_pickled(attempt: Any) -> None:
    vault, _ = open_vault(["a", "b"])
    for thing in (vault, [vault], {"vault": vault}):
        if attempt is copy.copy and thing is not vault:
            continue  # a shallow copy of a list does not copy what is in it
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
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


def test_forget_overwrites_every_code_with_not_given() -> None:
    vault, _ = open_vault(["b", "a", None])
    vault.forget()
    assert vault.reveal(purpose="after it was forgotten").tolist() == [2, 2, 2]


def test_reveal_within_a_finite_budget_is_refused() -> None:
    vault, _ = open_vault(["b", "a", None], epsilon=50.0)
    with pytest.raises(BudgetExceeded):
        vault.reveal(purpose="test")


def test_randomized_labels_follow_the_law_over_the_groups_and_not_given() -> None:
    n = 30_000
    vault, ledger = open_vault(["a"] * n + [None] * n, source=SeededNoise(4))
    told = vault.randomized_labels(RandomizedResponse(1.0), purpose="labels")
    truth, other = math.e / (math.e + 2), 1 / (math.e + 2)
    counts = np.concatenate([np.bincount(told[:n], minlength=3), np.bincount(told[n:], minlength=3)]) / n
    assert counts.tolist() == pytest.approx([truth, other, other, other, other, truth], abs=0.015)
    assert ledger.epsilon() == pytest.approx(1.0, abs=1e-3)


def test_randomized_labels_without_the_category_let_the_missing_answer_with_any_group() -> None:
    n = 30_000
    vault, ledger = open_vault(["a"] * n + [None] * n, source=SeededNoise(4))
    told = vault.randomized_labels(RandomizedResponse(1.0), purpose="labels", not_given=False)
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
