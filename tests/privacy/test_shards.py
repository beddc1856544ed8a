"""Rows in several places: the same exact sums and the same noised answer, however they are split."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Any

import numpy as np
import pytest
from justitia.privacy.shards import Drawn, Together

from justitia.privacy.accounting import GaussianCost
from justitia.privacy.arrays import Array
from justitia.privacy.attribute import AttributeStream
from justitia.privacy.ledger import BudgetExceeded, PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, SeededNoise, Unprotected
from justitia.privacy.rows import ArrayRows, DenseSource
from justitia.privacy.vault import SensitiveVault

N, WIDTH, BOUND = 997, 5, 1.5
GROUPS = ("f", "m")
SPLITS = {"even": (0, 250, 500, 750, N), "uneven": (0, 1, 17, 900, N), "empty": (0, 0, 400, 400, N)}


class Places:
    """Several vaults in threads; sums are added in the order in which they arrive."""

    def __init__(self, number: int) -> None:
        self.told, self.done, self.lock = Barrier(number), Barrier(number), Lock()
        self.debited: list[dict[str, Any]] = []
        self.total: Array | None = None


class Place(Together):
    def __init__(self, places: Places, *, leads: bool) -> None:
        self._places, self._leads = places, leads

    @property
    def rows(self) -> int:
        return N

    def begin(self, source: DenseSource, **question: Any) -> None:
        self._places.debited.append(question)
        self._places.told.wait(10)

    def add(self, steps: Array) -> Array:
        with self._places.lock:
            known = self._places.total
            self._places.total = steps.copy() if known is None else known + steps
        self._places.done.wait(10)
        return self._places.total if self._leads else np.zeros_like(steps)

    def gather(self, codes: Array) -> Array:
        self._places.told.wait(10)
        return self.add(codes)


def people() -> tuple[Array, list[Any]]:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(N, WIDTH)) * rng.choice([1e-9, 1.0, 30.0], size=(N, 1))
    return rows, [(*GROUPS, None)[code] for code in rng.integers(3, size=N)]


def vault(labels: Any, ledger: PrivacyLedger | None = None, **more: Any) -> SensitiveVault:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5) if ledger is None else ledger
    return SensitiveVault(labels, groups=GROUPS, ledger=ledger, noise_source=SeededNoise(3), **more)


def endless() -> PrivacyLedger:
    return PrivacyLedger(epsilon=np.inf, delta=1e-5)


def answer_in_parts(split: tuple[int, ...], noise: Any, ledger: PrivacyLedger) -> tuple[Array, Array]:
    rows, labels = people()
    shared = Places(len(split) - 1)

    def work(place: int) -> Array:
        start, end = split[place : place + 2]
        together = Place(shared, leads=place == 0)
        mine = vault(labels[start:end], ledger, together=together)
        source = ArrayRows(rows[start:end], chunk_rows=100)
        if place == 0:
            return mine.group_sums(source, bound=BOUND, noise=noise, purpose="sums")
        shared.told.wait(10)
        mine.contribute(source, **shared.debited[0])
        return np.empty(0)

    with ThreadPoolExecutor(len(split) - 1) as pool:
        answers = list(pool.map(work, range(len(split) - 1)))
    assert shared.total is not None
    return answers[0], shared.total


@pytest.mark.parametrize("noise", [Gaussian(5.0), Unprotected()], ids=["noise", "no noise"])
def test_answer_of_rows_in_several_places_is_the_same_to_the_last_bit_however_they_are_split(noise: Any) -> None:
    first, steps = answer_in_parts((0, N), noise, endless())
    assert np.isfinite(first).all()
    for split in SPLITS.values():
        answer, exact = answer_in_parts(split, noise, endless())
        assert np.array_equal(answer, first)
        assert np.array_equal(exact, steps)


def test_sums_without_noise_are_the_same_in_any_order_and_in_one_place() -> None:
    rows, labels = people()
    question: dict[str, Any] = {"bound": BOUND, "noise": Unprotected(), "purpose": "sums"}
    forward = vault(labels, endless()).group_sums(rows, **question)
    assert np.array_equal(vault(labels[::-1], endless()).group_sums(rows[::-1], **question), forward)
    assert np.array_equal(answer_in_parts(SPLITS["uneven"], Unprotected(), endless())[0], forward)


def test_others_are_told_after_the_debit_and_never_if_it_is_refused() -> None:
    shared = Places(2)
    _, labels = people()
    mine = vault(labels, PrivacyLedger(epsilon=1e-3, delta=1e-5), together=Place(shared, leads=True))
    with pytest.raises(BudgetExceeded):
        mine.group_sums(people()[0], bound=BOUND, noise=Gaussian(0.1), purpose="sums")
    assert shared.debited == []
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    seen: list[Any] = []

    class Watching(Place):
        def begin(self, source: DenseSource, **question: Any) -> None:
            seen.append(dict(ledger.own_costs()))

        def add(self, steps: Array) -> Array:
            return steps

    vault(labels, ledger, together=Watching(shared, leads=True)).group_sums(
        people()[0], bound=BOUND, noise=Gaussian(9.0), purpose="sums"
    )
    assert seen == [{GaussianCost(9.0): 1}]


def test_attribute_of_drawn_rows_is_revealed_from_all_places_and_by_none_that_promises_privacy() -> None:
    _, labels = people()
    codes = np.array([(*GROUPS, None).index(label) for label in labels])
    drawn = [np.array([1, 5, 6]), np.array([300, 996])]
    places = [Drawn(drawn[0], slice(0, 3), 5), Drawn(drawn[1] - 300, slice(3, 5), 5)]
    shared = Places(2)
    vaults = [
        vault(labels[:300], endless(), together=Place(shared, leads=True)),
        vault(labels[300:], endless(), together=Place(shared, leads=False)),
    ]

    def reveal(place: int) -> Any:
        if place == 0:
            return vaults[0].reveal(purpose="a test", drawn=places[0])
        shared.told.wait(10)
        vaults[1].hand_over(places[1])
        return None

    with ThreadPoolExecutor(2) as pool:
        found, _ = pool.map(reveal, range(2))
    assert np.array_equal(found, codes[np.concatenate(drawn)])
    private = vault(labels[300:], together=Place(Places(1), leads=False))
    with pytest.raises(BudgetExceeded):
        private.hand_over(places[1])


def test_source_that_ends_early_is_refused() -> None:
    class Short(ArrayRows):
        def dense(self) -> Iterator[tuple[Array, Array]]:
            yield from list(super().dense())[:-1]

    rows, labels = people()
    with pytest.raises(ValueError, match="everybody's row once; got 900 of 997"):
        vault(labels).group_sums(Short(rows, chunk_rows=900), bound=BOUND, noise=Gaussian(9.0), purpose="sums")


def test_attribute_read_a_few_rows_at_a_time_gives_the_answer_of_one_read_at_once() -> None:
    rows, labels = people()

    def parts() -> Iterator[list[Any]]:
        for start in range(0, N, 300):
            yield [np.array(labels[start : start + 300], dtype=object)]

    stream = AttributeStream(("sex",), N, parts)
    question: dict[str, Any] = {"bound": BOUND, "noise": Gaussian(9.0), "purpose": "sums"}
    expected = vault({"sex": labels}).group_sums(rows, **question)
    assert np.array_equal(vault(stream).group_sums(rows, **question), expected)
    assert repr(stream) == f"<sensitive attribute of {N} rows>"
    with pytest.raises(TypeError, match="cannot be pickled"):
        stream.__reduce__()
    with pytest.raises(ValueError, match="name the groups"):
        SensitiveVault(stream, groups="infer", ledger=PrivacyLedger(epsilon=1.0, delta=1e-5))
