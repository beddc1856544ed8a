"""The contract of every cost: what the accountant, the ledger and its files may rely on.

A new class of cost joins with one entry of :data:`SAMPLES`. Its copies are then compared with a composition that this
file computes on its own, from the curve of a single release.
"""

import copy
import json
import math
import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import FrozenInstanceError, fields
from functools import cache
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from justitia.privacy.accounting import (
    COST_KINDS,
    Cost,
    GaussianCost,
    RandomizedResponseCost,
    SelectionCost,
    UnboundedCost,
    cost_from_dict,
    cost_to_dict,
    delta_spent,
    epsilon_left,
    epsilon_spent,
)
from justitia.privacy.ledger import PrivacyLedger, Release

#: Costs of each kind, none of which is above epsilon 2 at DELTA if it is bounded at all.
SAMPLES: dict[str, tuple[Cost, ...]] = {
    "gaussian": (GaussianCost(2.1), GaussianCost(7 / 3)),
    "randomized response": (RandomizedResponseCost(0.3, 3), RandomizedResponseCost(0.5, 2)),
    "best of several trials": (SelectionCost(20 / 3, 0.2), SelectionCost(5.0, 0.1, 1 / 9)),
    "unprotected": (UnboundedCost(),),
}
ALL = [cost for kind in SAMPLES.values() for cost in kind]
BOUNDED = [cost for cost in ALL if not isinstance(cost, UnboundedCost)]
DELTA = 1e-5
every_cost = pytest.mark.parametrize("cost", ALL, ids=repr)
every_bounded_cost = pytest.mark.parametrize("cost", BOUNDED, ids=repr)


def test_contract_samples_hold_every_kind_of_cost() -> None:
    assert {kind: {type(cost) for cost in costs} for kind, costs in SAMPLES.items()} == {
        kind: {cls} for kind, cls in COST_KINDS.items()
    }


# What a value is


@every_cost
def test_contract_cost_is_immutable_hashable_and_equal_to_its_copies(cost: Cost) -> None:
    for twin in (copy.copy(cost), copy.deepcopy(cost), pickle.loads(pickle.dumps(cost))):
        assert twin == cost
        assert Counter([twin, cost]) == {cost: 2}
    for field in fields(cost):
        with pytest.raises(FrozenInstanceError):
            setattr(cost, field.name, 1.0)
    assert len(set(ALL)) == len(ALL)


@every_cost
def test_contract_cost_as_plain_data_comes_back_to_the_last_bit(cost: Cost) -> None:
    written = json.dumps(cost_to_dict(cost), allow_nan=False)
    assert cost_from_dict(json.loads(written)) == cost
    assert json.loads(written)["kind"] == cost.kind


@every_cost
def test_contract_plain_data_with_a_number_missing_or_unknown_is_refused(cost: Cost) -> None:
    facts = cost_to_dict(cost)
    required = [name for name in facts if name not in {"kind", "shape"}]
    broken = [facts | {"more": 1.0}, *({k: v for k, v in facts.items() if k != name} for name in required)]
    for one in broken:
        with pytest.raises(ValueError, match="expected the numbers of a"):
            cost_from_dict(one)


NUMBERS = [
    pytest.param(cost, field.name, id=f"{type(cost).__name__}.{field.name}")
    for cost in (costs[0] for costs in SAMPLES.values())
    for field in fields(cost)
]


@pytest.mark.parametrize(("cost", "name"), NUMBERS)
def test_contract_number_below_its_range_is_refused(cost: Cost, name: str) -> None:
    with pytest.raises(ValueError, match="must"):
        cost_from_dict(cost_to_dict(cost) | {name: -2.0})


@pytest.mark.parametrize(("cost", "name"), NUMBERS)
def test_contract_number_that_is_none_or_infinite_is_refused(cost: Cost, name: str) -> None:
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="must"):
            cost_from_dict(cost_to_dict(cost) | {name: wrong})


@every_cost
def test_contract_cost_comes_back_from_a_journal_and_costs_the_same(cost: Cost, tmp_path: Path) -> None:
    file = tmp_path / "journal"
    first = PrivacyLedger(epsilon=math.inf, delta=DELTA, journal=file)
    for _ in range(3):
        first.debit(Release("purpose", cost, 1.0))
    again = PrivacyLedger(epsilon=math.inf, delta=DELTA, journal=file)
    assert again.costs() == first.costs() == {cost: 3}
    assert again.epsilon() == epsilon_spent({cost: 3}, DELTA)
    assert {one.mechanism for one in again.releases} == {cost.kind}


# What copies cost


def convex(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """(2, m): corners of the largest convex curve below these points and (0, 1), where every curve begins."""
    kept: list[tuple[float, float]] = [(0.0, 1.0)]
    for point in zip(x.tolist(), y.tolist(), strict=True):
        while len(kept) > 1 and _slope(kept[-2], kept[-1]) >= _slope(kept[-1], point):
            kept.pop()
        kept.append(point)
    return np.array(kept).T


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


@cache
def losses(cost: Cost, step: float, reach: int) -> tuple[NDArray[np.float64], float]:
    """Masses of the privacy loss at multiples of ``step`` up to +- ``reach``, and at infinity.

    They belong to the largest convex curve below the points (e^epsilon, delta) of one release. A cost is about an
    unordered pair, so the curve is its own mirror image.
    """
    positive = step * np.arange(reach + 1)
    curve = np.array([delta_spent({cost: 1}, float(epsilon)) for epsilon in positive])
    mirrored = 1 - np.exp(-positive[:0:-1]) * (1 - curve[:0:-1])
    ratios = np.exp(step * np.arange(-reach, reach + 1))
    deltas = np.interp(ratios, *convex(ratios, np.concatenate([mirrored, curve])))
    slopes = np.concatenate([[-1.0], np.diff(deltas) / np.diff(ratios), [0.0]])
    masses = ratios * np.diff(slopes).clip(min=0.0)
    return masses, max(0.0, 1 - float(masses.sum()))


def composed_delta(costs: Iterable[Cost], epsilon: float, *, step: float = 0.01, reach: int = 800) -> float:
    """Delta of these releases together: the losses add up, so their distributions are convolved."""
    total, finite, width = np.ones(1), 1.0, 0
    for cost in costs:
        masses, infinite = losses(cost, step, reach)
        total, finite, width = fftconvolve(total, masses), finite * (1 - infinite), width + reach
    loss = step * np.arange(-width, width + 1)
    beyond = loss > epsilon
    return 1 - finite + float(((1 - np.exp(epsilon - loss[beyond])) * total[beyond]).sum())


@every_bounded_cost
@pytest.mark.parametrize("n", [1, 2, 5])
def test_contract_copies_cost_what_copies_cost(cost: Cost, n: int) -> None:
    epsilon = epsilon_spent({cost: n}, 1e-3)
    expected = composed_delta([cost] * n, epsilon)
    assert delta_spent({cost: n}, epsilon) == pytest.approx(expected, rel=0.02)


def test_contract_one_of_each_kind_costs_what_their_composition_costs() -> None:
    each = [costs[0] for kind, costs in SAMPLES.items() if kind != "unprotected"]
    epsilon = epsilon_spent(Counter(each), 1e-3)
    assert delta_spent(Counter(each), epsilon) == pytest.approx(composed_delta(each, epsilon), rel=0.02)


def rises(values: list[float]) -> bool:
    """Whether no value is below the one before, but for round-off."""
    return all(later >= earlier * (1 - 1e-9) for earlier, later in pairwise(values))


@every_cost
def test_contract_more_copies_never_cost_less_than_fewer(cost: Cost) -> None:
    for delta in (1e-8, DELTA, 1e-2):
        spent = [epsilon_spent({cost: n}, delta) for n in (0, 1, 2, 3, 10, 30)]
        assert spent[0] == 0.0
        assert spent[1] > 0.0
        assert rises(spent)
    usual = min(epsilon_spent({cost: 1}, 1e-2), 1.0)
    for epsilon in (usual, usual + 1.0):
        failing = [delta_spent({cost: n}, epsilon) for n in (0, 1, 2, 3, 10, 30)]
        assert failing[0] == 0.0
        assert rises(failing)


@pytest.mark.parametrize("cost", [cost for cost in ALL if not isinstance(cost, SelectionCost)], ids=repr)
def test_contract_more_copies_never_cost_less_where_delta_is_large(cost: Cost) -> None:
    """Not for searches: the closed form of one is sound but not convex, so it may exceed the grid's bound of two."""
    assert rises([epsilon_spent({cost: n}, 0.5) for n in (0, 1, 2, 3, 10)])
    assert rises([delta_spent({cost: n}, 0.0) for n in (0, 1, 2, 3, 10)])


@every_bounded_cost
def test_contract_ten_copies_cost_more_than_one_and_at_most_ten_times_one(cost: Cost) -> None:
    ten = epsilon_spent({cost: 10}, DELTA)
    assert 2 * epsilon_spent({cost: 1}, DELTA) < ten
    assert ten <= 10 * epsilon_spent({cost: 1}, DELTA / 10) * (1 + 1e-3)


@every_cost
def test_contract_anything_beside_a_cost_costs_no_less_than_that_cost(cost: Cost) -> None:
    alone = epsilon_spent({cost: 1}, DELTA)
    for other in ALL:
        assert epsilon_spent(Counter([cost, other]), DELTA) >= alone


def test_contract_order_of_composition_does_not_matter() -> None:
    spent = {
        (
            epsilon_spent(Counter(order), DELTA),
            delta_spent(Counter(order), 1.0),
            epsilon_left(Counter(order), 9.0, DELTA),
        )
        for order in permutations([BOUNDED[0], BOUNDED[2], BOUNDED[4], BOUNDED[2]])
    }
    assert len(spent) == 1


# Both directions of one curve


@every_cost
def test_contract_epsilon_falls_as_delta_grows_and_delta_as_epsilon_grows(cost: Cost) -> None:
    for n in (1, 4):
        epsilons = [epsilon_spent({cost: n}, delta) for delta in (1e-12, 1e-8, 1e-5, 1e-3, 0.1, 0.5)]
        assert epsilons == sorted(epsilons, reverse=True)
        deltas = [delta_spent({cost: n}, epsilon) for epsilon in (0.0, 0.05, 0.2, 1.0, 3.0)]
        assert deltas == sorted(deltas, reverse=True)
        assert all(0.0 <= delta <= 1.0 for delta in deltas)


@every_bounded_cost
@pytest.mark.parametrize("n", [1, 6])
def test_contract_delta_at_the_epsilon_of_a_delta_is_that_delta(cost: Cost, n: int) -> None:
    for delta in (1e-8, 1e-5, 1e-2):
        epsilon = epsilon_spent({cost: n}, delta)
        if epsilon > 0:
            assert delta_spent({cost: n}, epsilon) <= delta * (1 + 1e-3)
            assert delta_spent({cost: n}, 0.98 * epsilon) > delta


@every_bounded_cost
def test_contract_what_is_left_beside_a_cost_fits_and_a_little_more_does_not(cost: Cost) -> None:
    budget = epsilon_spent({cost: 1}, DELTA) + 1.0
    left = epsilon_left({cost: 1}, budget, DELTA)
    assert 0.0 < left < budget
    ledger = PrivacyLedger(epsilon=budget, delta=DELTA)
    ledger.debit(Release("first", cost, 1.0))
    assert ledger.remaining() == left


def test_contract_unprotected_release_has_no_finite_price() -> None:
    assert epsilon_spent({UnboundedCost(): 1}, 0.5) == math.inf
    assert delta_spent({UnboundedCost(): 1}, 1e9) == 1.0
    assert epsilon_left({UnboundedCost(): 1}, 5.0, DELTA) == 0.0
