"""Group sums of a function of blocks: exact however rows are split, debited first, bounded, and closed."""

import copy
import math
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from vaults import NAMES, NOISE, Capture, derandomized, exact_group_sums, neighbours

from justitia.privacy.accounting import GaussianCost
from justitia.privacy.arrays import Array, Floats
from justitia.privacy.attribute import AttributeStream
from justitia.privacy.ledger import BudgetExceeded, PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, SeededNoise, Unprotected
from justitia.privacy.persons import Persons
from justitia.privacy.rows import ArrayRows
from justitia.privacy.vault import GroupSums, MemoryCodes, SensitiveVault

N, WIDTH, BOUND = 997, 5, 1.5
GROUPS = ("f", "m")
SPLITS = {"whole": (), "even": (250, 500, 750), "uneven": (1, 17, 900), "empty": (0, 400, 400)}


@dataclass(frozen=True)
class Block:
    first: int
    rows: int

    def __len__(self) -> int:
        return self.rows


@dataclass(frozen=True, eq=False)
class Given:
    """A row function that looks rows up."""

    values: Floats

    @property
    def width(self) -> int:
        return int(self.values.shape[1])

    def __call__(self, block: Block) -> Floats:
        return self.values[block.first : block.first + len(block)]


class Split:
    """A source with these cuts, which remembers what was run."""

    def __init__(self, n: int, cuts: tuple[int, ...] = ()) -> None:
        self.ends, self.ran = [0, *cuts, n], 0

    def blocks(self) -> list[Block]:
        return [Block(a, b - a) for a, b in zip(self.ends[:-1], self.ends[1:], strict=True)]

    def run(self, work: Any) -> Any:
        self.ran += 1
        return sum(work.run(block) for block in reversed(self.blocks()))  # in any order

    def map(self, function: Any) -> Iterator[Any]:
        return map(function, self.blocks())

    def read_codes(self, codes: Any) -> None:
        codes.take(0, self.ends[-1])


def people() -> tuple[Array, list[Any]]:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(N, WIDTH)) * rng.choice([1e-9, 1.0, 30.0], size=(N, 1))
    return rows, [(*GROUPS, None)[code] for code in rng.integers(3, size=N)]


def open_vault(labels: Any, source: Any = None, groups: Any = GROUPS, **more: Any) -> SensitiveVault:
    usual: dict[str, Any] = {"ledger": PrivacyLedger(epsilon=math.inf, delta=1e-5), "noise_source": SeededNoise(3)}
    return SensitiveVault(labels, groups=groups, source=source, **usual | more)


# --- the sums


@pytest.mark.parametrize("noise", [Gaussian(5.0), Unprotected()], ids=["noise", "no noise"])
@pytest.mark.parametrize("split", SPLITS)
def test_answer_of_a_pass_is_that_of_an_array_to_the_last_bit_however_rows_are_split(noise: Any, split: str) -> None:
    rows, labels = people()
    query: dict[str, Any] = {"bound": BOUND, "noise": noise, "purpose": "sums"}
    expected = open_vault(labels).group_sums(rows, **query)
    assert np.isfinite(expected).all()
    answer = open_vault(labels, Split(N, SPLITS[split])).group_sums(Given(rows), **query)
    assert np.array_equal(answer, expected)


def test_sums_without_noise_are_the_same_in_any_order_of_the_rows() -> None:
    rows, labels = people()
    query: dict[str, Any] = {"bound": BOUND, "noise": Unprotected(), "purpose": "sums"}
    forward = open_vault(labels).group_sums(rows, **query)
    assert np.array_equal(open_vault(labels[::-1]).group_sums(rows[::-1], **query), forward)


def exact_pass(labels: Any, groups: Any, values: Array, bound: float, person: Any = None) -> tuple[Array, float]:
    noise, ledger = Capture(), PrivacyLedger(epsilon=math.inf, delta=1e-5)
    source = Split(len(values), (len(values) // 2,))
    people = None if person is None else Persons.from_ids(person)
    vault = open_vault(labels, source, groups, ledger=ledger, noise_source=noise, people=people)
    vault.group_sums(Given(values), bound=bound, noise=NOISE, purpose="test")
    assert noise.std == [2.0 * ledger.releases[0].sensitivity]
    return noise.exact[0], ledger.releases[0].sensitivity


@derandomized
@given(neighbours())
def test_passes_of_neighbours_differ_by_at_most_the_recorded_sensitivity(case: dict[str, Any]) -> None:
    (one, sensitivity), (other, same) = (
        exact_pass(labels, case["groups"], case["values"], case["bound"]) for labels in case["labels"]
    )
    assert sensitivity == same == pytest.approx(math.sqrt(2) * case["bound"], rel=1e-12)
    assert float(np.linalg.norm(one - other)) <= sensitivity
    dense, recorded = exact_group_sums(case["labels"][0], case["groups"], case["values"], case["bound"])
    assert np.array_equal(one, dense)
    assert sensitivity == recorded


@pytest.mark.parametrize("n_groups", [2, 5])
@pytest.mark.parametrize("goal", ["b", None])
def test_pass_when_a_long_row_changes_its_group_reaches_the_sensitivity(n_groups: int, goal: str | None) -> None:
    values = np.array([[30.0, 40.0], [0.1, 0.0], [0.0, 0.2]])
    one, sensitivity = exact_pass(["a", "a", "b"], NAMES[:n_groups], values, 5.0)
    other, _ = exact_pass([goal, "a", "b"], NAMES[:n_groups], values, 5.0)
    assert sensitivity == pytest.approx(math.sqrt(2) * 5)
    assert float(np.linalg.norm(one - other)) == pytest.approx(sensitivity)


def test_pass_when_all_rows_of_a_person_change_their_group_reaches_the_sensitivity_and_does_not_exceed_it() -> None:
    values, person = np.full((8, 1), 3.0), ["p", "p", "q", "q", "r", "r", "s", "s"]
    one, sensitivity = exact_pass(["a"] * 8, NAMES[:2], values, 3.0, person)
    other, _ = exact_pass(["b", "b", *["a"] * 6], NAMES[:2], values, 3.0, person)
    assert sensitivity == pytest.approx(2 * math.sqrt(2) * 3)
    assert float(np.linalg.norm(one - other)) == pytest.approx(sensitivity)
    assert float(np.linalg.norm(one - other)) <= sensitivity


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e200])
def test_row_of_a_function_that_is_not_finite_counts_as_zero_whoever_it_belongs_to(odd: float) -> None:
    values = np.array([[odd, 1.0], [1.0, 2.0], [2.0, 2.0]])
    for label in ("f", "m", None, "odd"):
        exact, _ = exact_pass([label, "f", "m"], GROUPS, values, 9.0)
        assert exact.tolist() == [[1.0, 2.0], [2.0, 2.0], [0.0, 0.0]]


# --- the debit comes first


class Watched(Split):
    """Keeps what the ledger holds when a pass runs, and may fail then."""

    def __init__(self, n: int, ledger: PrivacyLedger, error: BaseException | None = None) -> None:
        super().__init__(n)
        self.ledger, self.error = ledger, error
        self.debited: list[dict[Any, int]] = []

    def run(self, work: Any) -> Any:
        self.debited.append(dict(self.ledger.own_costs()))
        if self.error is not None:
            raise self.error
        return super().run(work)


@pytest.mark.parametrize("error", [None, RuntimeError("no worker"), KeyboardInterrupt()], ids=["none", "error", "stop"])
def test_ledger_is_debited_before_a_pass_and_stays_so_if_it_fails(error: BaseException | None) -> None:
    rows, labels = people()
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    source = Watched(N, ledger, error)
    vault = open_vault(labels, source, ledger=ledger)
    with nullcontext() if error is None else pytest.raises(type(error)):
        vault.group_sums(Given(rows), bound=BOUND, noise=Gaussian(9.0), purpose="sums")
    assert source.debited == [{GaussianCost(9.0): 1}]
    assert dict(ledger.own_costs()) == dict(vault.spent) == {GaussianCost(9.0): 1}


def test_ledger_that_refuses_lets_no_pass_run() -> None:
    rows, labels = people()
    ledger = PrivacyLedger(epsilon=1e-3, delta=1e-5)
    source = Watched(N, ledger)

    def untouched(_: Any) -> Any:
        raise AssertionError("rows were read before the debit")

    untouched.width = WIDTH  # type: ignore[attr-defined]
    vault = open_vault(labels, source, ledger=ledger)
    for function in (Given(rows), untouched):
        with pytest.raises(BudgetExceeded):
            vault.group_sums(function, bound=BOUND, noise=Gaussian(0.1), purpose="sums")  # type: ignore[arg-type]
    assert source.debited == []
    assert ledger.releases == ()
    assert not vault.spent


def test_function_of_blocks_without_a_source_is_refused_before_the_debit() -> None:
    rows, labels = people()
    vault = open_vault(labels)
    with pytest.raises(ValueError, match="expected a row source"):
        vault.group_sums(Given(rows), bound=BOUND, noise=NOISE, purpose="sums")
    assert not vault.spent


# --- rows of a wrong shape


@dataclass(frozen=True, eq=False)
class Wrong(Given):
    """A row function whose rows of the blocks from ``start`` on are changed."""

    change: Callable[[Floats], Floats] = lambda rows: rows
    start: int = 0

    def __call__(self, block: Block) -> Floats:
        rows = super().__call__(block)
        return self.change(rows) if block.first >= self.start else rows


CHANGES: dict[str, Callable[[Any], Any]] = {
    "wider": lambda rows: np.hstack([rows, rows]),
    "one column": lambda rows: rows[:, :1],
    "no column": lambda rows: rows[:, :0],
    "longer": lambda rows: np.vstack([rows, rows]),
    "shorter": lambda rows: rows[:-1],
    "no row": lambda rows: rows[:0],
    "flat": lambda rows: rows[:, 0],
    "deep": lambda rows: rows[:, :, None],
}
FEW = np.arange(18.0).reshape(6, 3)
LABELS = ["f", "m", None, "f", "m", "odd"]


@pytest.mark.parametrize("start", [0, 3], ids=["every block", "last block"])
@pytest.mark.parametrize("change", CHANGES)
def test_rows_of_a_wrong_shape_are_refused_whatever_the_attribute_is(change: str, start: int) -> None:
    # One column would otherwise be added to all three columns of the other block: a row of sqrt(3) times the bound.
    function, seen = Wrong(FEW, CHANGES[change], start), set()
    for labels in (LABELS, *([*LABELS[:k], "m", *LABELS[k + 1 :]] for k in range(6)), ["f"] * 6, [None] * 6):
        vault = open_vault(labels, Split(6, (3,)))
        with pytest.raises(ValueError, match="Expected rows of shape") as caught:
            vault.group_sums(function, bound=1.0, noise=NOISE, purpose="sums")
        seen.add((str(caught.value), tuple(vault.spent.items())))
    assert len(seen) == 1


@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e300, -0.0])
def test_rows_that_are_not_finite_change_no_outcome_whatever_the_attribute_is(odd: float) -> None:
    function = Wrong(FEW, lambda rows: np.full_like(rows, odd), 3)
    for labels in (LABELS, ["m", *LABELS[1:]], [*LABELS[:4], "f", "m"], ["f"] * 6, [None] * 6):
        vault = open_vault(labels, Split(6, (3,)))
        answer = vault.group_sums(function, bound=1.0, noise=NOISE, purpose="sums")
        assert answer.shape == (2, 3)
        assert np.isfinite(answer).all()


def test_blocks_beyond_the_last_row_and_sums_of_another_shape_are_refused() -> None:
    vault = open_vault(LABELS, Split(9, (3,)))
    with pytest.raises(ValueError, match=r"Expected rows of shape|Expected one public row per label"):
        vault.group_sums(Given(np.ones((9, 2))), bound=1.0, noise=NOISE, purpose="sums")

    class Narrow(Split):
        def run(self, work: Any) -> Any:
            return super().run(work)[:-1]

    with pytest.raises(ValueError, match="Expected sums of 6 numbers from the row source"):
        open_vault(LABELS, Narrow(6)).group_sums(Given(np.ones((6, 2))), bound=1.0, noise=NOISE, purpose="sums")


def test_source_that_adds_a_row_twice_or_leaves_one_out_is_refused() -> None:
    class Doubled(Split):
        def run(self, work: Any) -> Any:
            return 2 * super().run(work)

    class Swapped(Split):
        def run(self, work: Any) -> Any:
            first, *_ = self.blocks()
            return 2 * work.run(first)

    for source in (Doubled(6, (3,)), Swapped(6, (3,))):
        with pytest.raises(ValueError, match="Expected a row source that adds every row once"):
            open_vault(LABELS, source).group_sums(Given(np.ones((6, 2))), bound=1.0, noise=NOISE, purpose="sums")


def test_source_that_ends_early_or_changes_its_width_is_refused() -> None:
    class Short(ArrayRows):
        def dense(self) -> Iterator[tuple[Any, Any]]:
            yield from list(super().dense())[:-1]

    class Narrow(ArrayRows):
        def dense(self) -> Iterator[tuple[Any, Any]]:
            for index, rows in super().dense():
                yield index, rows[:, :1] if index[0] else rows

    rows, labels = people()
    query: dict[str, Any] = {"bound": BOUND, "noise": Gaussian(9.0), "purpose": "sums"}
    with pytest.raises(ValueError, match="gives every row once; got 900 of 997"):
        open_vault(labels).group_sums(Short(rows, chunk_rows=900), **query)
    with pytest.raises(ValueError, match="Expected 5 columns in every row"):
        open_vault(labels).group_sums(Narrow(rows, chunk_rows=900), **query)


# --- nothing shows the codes


def test_codes_are_not_printed_pickled_or_copied() -> None:
    codes = MemoryCodes(np.array([1, 0, 2], dtype=np.int16))
    work = GroupSums(Given(np.ones((3, 1))), 1.0, 0.5, codes, 3)
    assert repr(codes) == str(codes) == f"{codes}" == "<group codes of 3 rows>"
    assert "<group codes of 3 rows>" in repr(work)
    assert not hasattr(codes, "__dict__")
    for question in (pickle.dumps, copy.copy, copy.deepcopy, iter, list, vars, lambda one: one[0], len):
        with pytest.raises(TypeError):
            question(codes)  # type: ignore[operator]
    for deep in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            deep(work)


def frames_inside(error: BaseException) -> list[dict[str, Any]]:
    """Local variables of the library's frames, of an error and of what it came from."""
    found, pending = [], [error]
    while pending:
        one = pending.pop()
        found += [
            dict(frame.f_locals)
            for frame, _ in traceback.walk_tb(one.__traceback__)
            if "/justitia/" in frame.f_code.co_filename
        ]
        pending += [other for other in (one.__cause__, one.__context__) if other is not None]
    assert found
    return found


def raising(error: BaseException) -> Callable[..., Any]:
    def broken(*_: Any) -> Any:
        try:
            raise LookupError("first")
        except LookupError:
            raise error  # noqa: B904 - the context is part of the test

    return broken


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("place", ["sum_by", "toward_zero", "to_nearest", "bounded_rows"])
def test_error_inside_a_pass_holds_no_codes_and_no_exact_sum(
    kind: type[BaseException], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = GroupSums(Given(np.ones((3, 1))), 1.0, 0.5, MemoryCodes(np.array([1, 0, 2])), 3)
    vault = open_vault(LABELS, Split(6, (3,)))
    monkeypatch.setattr(f"justitia.privacy.vault.{place}", raising(kind("stopped")))
    with pytest.raises(kind) as alone:
        work.run(Block(0, 3))  # as a worker does
    with pytest.raises(kind) as asked:
        vault.group_sums(Given(FEW), bound=1.0, noise=NOISE, purpose="sums")
    for caught in (alone, asked):
        for variables in frames_inside(caught.value):
            assert not any(isinstance(one, np.ndarray | GroupSums | MemoryCodes) for one in variables.values())


def test_row_function_that_fails_or_looks_around_meets_no_codes() -> None:
    import sys

    met: list[Any] = []

    def curious(block: Block) -> Any:
        frame = sys._getframe(1)
        met.extend(frame.f_locals.values())
        raise RuntimeError(f"block {block.first}")

    curious.width = 3  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="block 3") as caught:
        open_vault(LABELS, Split(6, (3,))).group_sums(curious, bound=1.0, noise=NOISE, purpose="sums")  # type: ignore[arg-type]
    assert met
    assert not any(isinstance(one, np.ndarray) for one in met)
    assert not any(isinstance(one, np.ndarray) for each in frames_inside(caught.value) for one in each.values())


def test_reveal_of_rows_that_do_not_exist_holds_no_codes() -> None:
    vault = open_vault(LABELS)
    assert vault.reveal(purpose="a test", rows=np.array([5, 1])).tolist() == [2, 1]
    with pytest.raises(IndexError) as caught:
        vault.reveal(purpose="a test", rows=np.array([99]))
    assert not any(isinstance(one, np.ndarray) for each in frames_inside(caught.value) for one in each.values())


# --- an attribute that comes in parts


def test_attribute_read_a_few_rows_at_a_time_gives_the_answer_of_one_read_at_once() -> None:
    rows, labels = people()

    def parts() -> Iterator[list[Any]]:
        for start in range(0, N, 300):
            yield [np.array(labels[start : start + 300], dtype=object)]

    stream = AttributeStream(("sex",), N, parts)
    query: dict[str, Any] = {"bound": BOUND, "noise": Gaussian(9.0), "purpose": "sums"}
    expected = open_vault({"sex": labels}).group_sums(rows, **query)
    assert np.array_equal(open_vault(stream).group_sums(rows, **query), expected)
    assert repr(stream) == f"<sensitive attribute of {N} rows>"
    with pytest.raises(TypeError, match="cannot be pickled"):
        stream.__reduce__()
    with pytest.raises(ValueError, match="name the groups"):
        open_vault(stream, groups="infer")
