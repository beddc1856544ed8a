"""Vault: it holds the sensitive attribute and answers queries about groups with noise; `open_vault` is the way in."""

from __future__ import annotations

import math
import uuid
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from justitia._validate import check_choice, check_fraction, check_int, check_nonnegative, check_same_length
from justitia.exceptions import LargeDeltaWarning
from justitia.privacy.accounting import Cost
from justitia.privacy.arrays import Array, Floats, quietly, sum_by
from justitia.privacy.attribute import Attribute, AttributeStream, HeldElsewhere
from justitia.privacy.bounding import (
    LONGEST,
    bounded_rows,
    check_bound,
    clipped_sum,
    weight_range,
    with_norm_rounding,
    with_rounding,
)
from justitia.privacy.certificate import ADJACENCY_WITHOUT_MISSING
from justitia.privacy.columns import Column, Names
from justitia.privacy.frames import forgets_locals
from justitia.privacy.groups import (
    GROUPS_OF_FILES,
    MISSING,
    encode,
    group_names,
    infer_groups,
    public_groups,
    read_columns,
)
from justitia.privacy.interface import BlockSource, Groups, RowFunction, Vault, VaultRequest
from justitia.privacy.joining import FileAttribute, FrameAttribute
from justitia.privacy.ledger import INFERRED, Certificate, PrivacyLedger, Release
from justitia.privacy.mechanisms import Mechanism, NoiseSource, Response, SeededNoise, SystemNoise, Unprotected
from justitia.privacy.noise_grid import check_deliverable, exact_sum_step, to_nearest, toward_zero
from justitia.privacy.persons import Persons
from justitia.privacy.rows import ArrayRows, DenseSource, FactoredSource, LongSum

Codes = NDArray[np.signedinteger[Any]]
#: The list of groups is read off the data.
INFER = "infer"
#: The list that is read off data in which every attribute is missing: a group without rows.
NONE_FOUND = ("no group found",)


class GroupCodes(Protocol):
    """The group code of every row, wherever it is."""

    def take(self, first: int, stop: int) -> Codes:
        """Codes of consecutive rows; only this module calls it."""

    def forget(self, code: int) -> None:
        """Overwrite every code in this process with this one, also those that were not read yet."""


class MemoryCodes:
    """Group codes in this process; they cannot be pickled, copied or printed."""

    __slots__ = ("__codes",)

    def __init__(self, codes: Codes) -> None:
        self.__codes = codes

    def take(self, first: int, stop: int) -> Codes:
        """Codes of consecutive rows."""
        return self.__codes[first:stop]

    def forget(self, code: int) -> None:
        """Overwrite every code with this one."""
        self.__codes.fill(code)

    def __repr__(self) -> str:
        return f"<group codes of {len(self.__codes)} rows>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("group codes cannot be pickled or copied: they are the sensitive attribute.")

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = _refuse


@dataclass(frozen=True, eq=False)
class FileCodes:
    """Group codes of rows in files: each process reads those of its own rows when a pass first needs them.

    Pickling passes on the public description below; codes stay in the process that has read them.

    Parameters
    ----------
    attribute : FileAttribute
        Where the entries are; it holds none.
    groups : tuple
        Public.
    missing_marker : hashable, optional
    missing : {"allowed", "none"}
    counted : ndarray of bool, optional
        Rows that count; the others are "not given".
    """

    attribute: FileAttribute
    groups: Groups
    missing_marker: Hashable = None
    missing: str = "allowed"
    counted: NDArray[np.bool_] | None = field(default=None, repr=False)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    _read: dict[int, MemoryCodes] = field(default_factory=dict, repr=False)

    @forgets_locals
    def take(self, first: int, stop: int) -> Codes:
        """Codes of consecutive rows; a range of rows is read when the first of it is needed."""
        found = []
        for start, end in self.attribute.ranges:
            low, high = max(first, start), min(stop, end)
            if low < high:
                if start not in self._read:
                    counted = None if self.counted is None else self.counted[start:end]
                    parts = self.attribute.stream(start, end).reveal_entries()
                    codes = _encoded(parts, self.groups, self.missing_marker, self.missing, counted)
                    if len(codes) != end - start:
                        raise ValueError("expected files that stay as they are, got another number of rows; fit again.")
                    self._read[start] = MemoryCodes(codes)
                found.append(self._read[start].take(low - start, high - start))
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0, dtype=np.int16), *found])

    def forget(self, code: int) -> None:
        """Overwrite the codes that this process has read; it reads none from now on."""
        for start, end in self.attribute.ranges:
            if start in self._read:
                self._read[start].forget(code)
            else:
                self._read[start] = MemoryCodes(np.full(end - start, code))

    def __reduce__(self) -> tuple[Any, ...]:
        described = self.attribute, self.groups, self.missing_marker, self.missing, self.counted
        return _codes_in_worker, (*described, self.token)

    __copy__ = __deepcopy__ = MemoryCodes._refuse


@dataclass(frozen=True, eq=False)
class FrameCodes:
    """Group codes of rows in an engine's data frame: a worker reads those of a block for one pass, and drops them.

    Pickling passes on this public description.

    Parameters
    ----------
    attribute : FrameAttribute
        Where the entries are; it holds none.
    groups : tuple
        Public.
    missing_marker : hashable, optional
    missing : {"allowed", "none"}
    counted : ndarray of uint8, optional
        Rows that count, as bits, which are few on their way to the workers; the others are "not given".
    forgotten : list
        Not empty once the attribute is to be forgotten.
    """

    attribute: FrameAttribute
    groups: Groups
    missing_marker: Hashable = None
    missing: str = "allowed"
    counted: NDArray[np.uint8] | None = field(default=None, repr=False)
    forgotten: list[int] = field(default_factory=list, repr=False)

    def take(self, first: int, stop: int) -> Codes:  # noqa: ARG002
        """Nothing: the driver has no codes of these rows."""
        raise ValueError(
            "expected a query that runs in passes, got one that needs group codes in this process; they stay with the "
            "workers of the data frame."
        )

    def forget(self, code: int) -> None:
        """Every row has this code from now on."""
        self.forgotten.append(code)

    def of_block(self, first: int, entries: AttributeStream) -> BlockCodes:
        """The codes of one block."""
        return BlockCodes(self, first, entries)

    def counted_of(self, first: int, stop: int) -> NDArray[np.bool_] | None:
        """Which of consecutive rows count; None where all do."""
        if self.counted is None:
            return None
        start = first // 8
        bits = np.unpackbits(self.counted[start : -(-stop // 8)])
        return bits[first - 8 * start : stop - 8 * start].astype(np.bool_)


class BlockCodes:
    """Group codes of one block, read when they are needed; they cannot be pickled, copied or printed."""

    __slots__ = ("__described", "__entries", "__first")

    def __init__(self, described: FrameCodes, first: int, entries: AttributeStream) -> None:
        self.__described, self.__first, self.__entries = described, first, entries

    @forgets_locals
    def take(self, first: int, stop: int) -> Codes:
        """Codes of consecutive rows of the block."""
        described = self.__described
        if described.forgotten:
            return np.full(stop - first, described.forgotten[-1], dtype=np.int64)
        given = described.groups, described.missing_marker, described.missing
        counted = described.counted_of(self.__first, self.__first + len(self.__entries))
        codes = _encoded(self.__entries.reveal_entries(), *given, counted=counted)
        return codes[first - self.__first : stop - self.__first]

    def forget(self, code: int) -> None:
        """Every row has this code from now on."""
        self.__described.forget(code)

    __repr__ = object.__repr__
    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = MemoryCodes._refuse


#: Codes that this worker process has read, by their token; they end with the process.
_IN_WORKER: dict[str, FileCodes] = {}


def _codes_in_worker(*described: Any) -> FileCodes:
    return _IN_WORKER.setdefault(described[-1], FileCodes(*described))


def _encoded(
    parts: Any, groups: Groups, missing_marker: Hashable, missing: str, counted: NDArray[np.bool_] | None
) -> Codes:
    """Group codes of rows that come in parts; rows that do not count are "not given"."""
    small = np.int16 if len(groups) < 2**15 else np.int64  # a vault of millions of rows stays small
    coded = [np.empty(0, dtype=small)]
    for part in parts:
        found = encode(part, groups, missing_marker)
        if missing == "none":  # a fixed rule: nobody may see that an entry breaks the caller's statement
            found = np.where(found == len(groups), 0, found)
        coded.append(found.astype(small))
    codes: Codes = np.concatenate(coded)
    if counted is not None:
        if len(counted) != len(codes):
            raise ValueError(
                f"expected one id per row in person, got {len(counted)} for {len(codes)} rows; pass a column of the "
                "table."
            )
        codes[~counted] = len(groups)
    return codes


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Pass: exact sums of bounded public rows over each group, on the public grid. Only the vault may have the result.

    Two public numbers come after the sums: how many rows were added, and the sum of their positions. A row source that
    added a row twice would double what one row can change, which noise and ledger would not know.

    Parameters
    ----------
    rows : RowFunction
        Public.
    bound : float
        Longer rows are scaled down to this norm.
    step : float
        Of the grid, from the number of all rows.
    codes : GroupCodes
    blocks : int
        G + 1; the last is "not given".
    """

    rows: RowFunction
    bound: float
    step: float
    codes: GroupCodes
    blocks: int

    @property
    def with_entries(self) -> Any:
        """From the first position and the entries of a block to the pass for that block; None of other codes."""
        return self._for_block if isinstance(self.codes, FrameCodes) else None

    def _for_block(self, first: int, entries: AttributeStream) -> GroupSums:
        return replace(self, codes=cast("FrameCodes", self.codes).of_block(first, entries))

    @forgets_locals
    @quietly
    def run(self, block: Any) -> NDArray[np.int64]:
        """(G + 1, width) steps, flat, then the two numbers."""
        rows = self.rows(block)  # before the codes, which the caller's function then cannot meet
        # A narrower part would be added to every column of the others, and so exceed the bound.
        if rows.shape != (len(block), self.rows.width):
            raise ValueError(f"Expected rows of shape {(len(block), self.rows.width)} for a block; got {rows.shape}.")
        codes = self.codes.take(block.first, block.first + len(block))
        steps = group_steps(codes, rows, self.bound, self.step, self.blocks)
        return np.append(steps, [len(rows), len(rows) * block.first + len(rows) * (len(rows) - 1) // 2])


def group_steps(codes: Codes, rows: Floats, bound: float, step: float, blocks: int) -> NDArray[np.int64]:
    """(G + 1, d): sums of rows over each group in whole steps; rows are bounded, then rounded toward zero.

    Raises
    ------
    ValueError
        If there are not as many codes as rows; only public numbers decide that.
    """
    if len(codes) != len(rows):
        raise ValueError(f"Expected one public row per label ({len(codes)}); got {len(rows)}.")
    bounded = toward_zero(bounded_rows(rows.astype(np.float64, copy=False), bound), step)
    return to_nearest(sum_by(codes, bounded, blocks).astype(np.float64), step).astype(np.int64)


class SensitiveVault(Vault):
    r"""Holds each row's group, or reads it where the rows are, and answers queries about it with noise.

    A appears only as a selector, so every answer has the form :math:`\sum_i c_i(A_i) + \text{noise}` and moves by at
    most :math:`\max_i \max_{a,a'} \|c_i(a) - c_i(a')\|` when one row's attribute changes.

    Parameters
    ----------
    labels : array-like, Series, DataFrame or FileAttribute
        Each row's attribute; several columns are crossed. None, NaN, ``missing_marker`` and any label that is not in
        ``groups`` mean "not given", which is one more category with the same protection; with ``missing="none"`` they
        count as the first group, without notice.
    groups : sequence, mapping or "infer"
        The public list of group labels; "infer" reads it off the labels, and then the certificate begins with saying
        that the list itself is not protected.
    ledger : PrivacyLedger
        Debited before any answer is computed.
    people : Persons, optional
        Which rows are one person's. Everything recorded and promised is then about all rows of one person at once;
        otherwise about one row.
    noise_source : NoiseSource, optional
        By default the operating system's generator.
    missing : {"allowed", "none"}
        Whether "not given" is one more group, or the caller states that every row has one of the groups: then sums over
        the G groups alone add up to the public total.
    source : BlockSource, optional
        Runs passes over the public rows, for queries that are row functions.

    Guarantee
    ---------
    * With a given list of groups, no label changes whether a call fails, what it costs, or the shape and scale of what
      it returns.
    * The vault cannot be pickled or copied, and its text form shows public facts only.
    * Whatever is raised while a query is answered holds no local variable, so an error reporter that prints those
      prints nothing exact.
    """

    __slots__ = (*("__codes", "_groups_source", "_ledger", "_n", "_people", "_rows", "_source", "_spent", "_unit"),)

    @forgets_locals
    def __init__(
        self,
        labels: Any,
        *,
        groups: Any,
        ledger: PrivacyLedger,
        people: Persons | None = None,
        noise_source: NoiseSource | None = None,
        missing_marker: Hashable = None,
        missing: str = "allowed",
        source: BlockSource | None = None,
    ) -> None:
        check_choice("missing", missing, MISSING)
        inferred = isinstance(groups, str) and groups == INFER
        self._ledger, self._people, self._rows = ledger, people, source
        self._source = noise_source if noise_source is not None else SystemNoise()
        self._spent: Counter[Cost] = Counter()
        self._groups_source = INFERRED if inferred else "given"
        self._unit = "row" if people is None else "person"
        self.__codes: GroupCodes
        names: Names
        counted = None if people is None else people.counted
        if missing == "none" and counted is not None and not counted.all():
            raise ValueError(
                "expected rows that all count with missing='none', got persons with more rows than are queried of one "
                "person, whose other rows are 'not given'; leave missing out, or keep fewer rows of each person."
            )
        if inferred and isinstance(labels, FileAttribute | FrameAttribute | AttributeStream):
            raise ValueError(GROUPS_OF_FILES)
        if isinstance(labels, FrameAttribute):
            self._n = len(labels)
            names = tuple(labels.names)
            listed = public_groups(groups, names=names)
            # No row, so that groups that do not fit the columns are noticed before anything is debited.
            _encoded([[np.empty(0, dtype=object) for _ in names]], listed, missing_marker, missing, counted=None)
            bits = None if counted is None else np.packbits(counted)
            self.__codes = FrameCodes(labels, listed, missing_marker, missing, bits)
        elif isinstance(labels, FileAttribute):
            self._n = len(labels)
            names = tuple(labels.names)
            listed = public_groups(groups, names=names)
            labels.check_keys()
            self.__codes = FileCodes(labels, listed, missing_marker, missing, counted)
            # Now, so that files that cannot be read are noticed before anything is debited.
            if source is None:
                self.__codes.take(0, self._n)
            else:
                source.read_codes(self.__codes)
        else:
            parts: Iterable[list[Column]]
            if isinstance(labels, AttributeStream):
                names, parts = labels.names, labels.reveal_entries()
            else:
                names, columns = read_columns(labels)
                parts = [columns]
                groups = infer_groups(columns, missing_marker) or NONE_FOUND if inferred else groups
            listed = groups if inferred else public_groups(groups, names=names)
            codes = _encoded(parts, listed, missing_marker, missing, counted)
            self._n, self.__codes = len(codes), MemoryCodes(codes)
        named = cast("tuple[str, ...]", () if None in names else names)
        super().__init__(listed, group_names(listed, names=names), named, missing)

    def __len__(self) -> int:
        return self._n

    @property
    def rows_per_person(self) -> int:
        """The largest number of rows of one person that a query counts; 1 where a row is what is protected."""
        return 1 if self._people is None else self._people.rows_each

    @property
    def persons_digest(self) -> str:
        """A public hash of which rows belong to one person; empty where a row is what is protected."""
        return "" if self._people is None else self._people.digest

    def forget(self) -> None:
        """Overwrite the attribute: every row is "not given" from now on, or in the last group where none is missing."""
        self.__codes.forget(self.n_categories - 1)

    def check(self, costs: Mapping[Cost, int]) -> None:
        """Raise :class:`~justitia.BudgetExceeded` if these costs do not fit into what remains; records nothing."""
        self._ledger.check(costs)

    @property
    def spent(self) -> Counter[Cost]:
        """How often this vault debited each cost, whatever others debit from the same ledger."""
        return Counter(self._spent)

    def _debit(self, release: Release) -> int:
        """Record a release and return its number, or raise and record nothing."""
        number = self._ledger.debit(release)
        self._spent[release.cost] += 1
        return number

    @property
    def noise_source(self) -> NoiseSource:
        """The generator of this vault's noise."""
        return self._source

    @forgets_locals
    @quietly
    def group_sums(
        self, values: Floats | DenseSource | RowFunction, *, bound: float, noise: Mechanism, purpose: str
    ) -> Array:
        r"""Noised sum of public rows over each group.

        .. math:: S_a = \sum_{i : A_i = a} v_i + \xi_a,  \qquad \|v_i\| \le B

        The blocks of all groups and of "not given" add up to a public total; the noisy answer is projected onto it,
        which removes 1/(G+1) of the noise at no cost, and 1/G of it where no attribute is missing.

        Parameters
        ----------
        values : ndarray (n, d), RowFunction or DenseSource
            Public rows; a longer row is scaled down to ``bound``. A function of blocks is applied where the blocks are;
            a dense source is read a few rows at a time.
        bound : float
            B.

        Returns
        -------
        ndarray (G, d), float64

        Guarantee
        ---------
        * Changing one row's group moves the answer under the noise by at most ``sqrt(2) * bound``, but for the
          rounding of a row's norm, which the recorded sensitivity includes; changing those of all rows of one person,
          by :attr:`rows_per_person` times as much. Each row is rounded toward zero to a public grid on which sums are
          exact.
        * The ledger is debited first; if the budget does not allow it, nothing is computed.
        * A row that is not finite counts as zero, so no row can change whether the call fails.
        """
        rows = ArrayRows(self._check_rows(values)) if isinstance(values, np.ndarray) else values
        dense = isinstance(rows, DenseSource)
        if dense and len(rows) != self._n:  # type: ignore[arg-type]
            raise ValueError(f"Expected one public row per label ({self._n}); got {len(rows)}.")  # type: ignore[arg-type]
        if not dense and self._rows is None:
            raise ValueError("expected a row source for rows that are a function of blocks, got none; pass an array.")
        sensitivity = math.sqrt(2) * with_norm_rounding(check_bound(bound), rows.width) * self.rows_per_person
        release = self._debit(Release(purpose, noise.cost(), sensitivity, self._unit))
        step = max(noise.step(sensitivity), exact_sum_step(2.0 * self._n * min(bound, LONGEST)))
        steps = self._dense_steps(rows, bound, step) if dense else self._pass_steps(rows, bound, step)  # type: ignore[arg-type]
        exact = steps.astype(np.float64) * step
        drawn = self._source.about(purpose, rows.width, float(bound), noise)
        noisy = noise.add_noise(exact, sensitivity=sensitivity, source=drawn, release=release)
        total = exact.sum(0)  # public: every row is in one block, and nothing is rounded
        projected: Array = noisy + (total - noisy.sum(0)) / len(noisy)
        return projected[: self.n_groups]

    def _pass_steps(self, rows: RowFunction, bound: float, step: float) -> NDArray[np.int64]:
        """(G + 1, d): sums over all blocks of the source."""
        assert self._rows is not None  # noqa: S101 - checked before the debit
        found = self._rows.run(GroupSums(rows, bound, step, self.__codes, self.n_categories))
        shape = self.n_categories, rows.width
        if found.shape != (math.prod(shape) + 2,):
            raise ValueError(f"Expected sums of {math.prod(shape)} numbers from the row source; got {found.shape}.")
        added, positions = found[-2:].tolist()
        # Modulo 2^64, as sums of integers are: from 4 billion rows on, the sum of positions has more bits.
        if added != self._n or (positions - self._n * (self._n - 1) // 2) % 2**64:
            raise ValueError("Expected a row source that adds every row once; got one that does not.")
        return found[:-2].reshape(shape)

    def _dense_steps(self, source: DenseSource, bound: float, step: float) -> NDArray[np.int64]:
        """(G + 1, d): sums over rows that come in order."""
        steps, done = np.zeros((self.n_categories, source.width), dtype=np.int64), 0
        for index, rows in source.dense():
            if not np.array_equal(index, np.arange(done, done + len(rows))):
                raise ValueError("Expected a source that gives every row once and in order; got another order.")
            if rows.shape != (len(rows), source.width):
                raise ValueError(f"Expected {source.width} columns in every row of the source; got {rows.shape}.")
            done += len(rows)
            if done <= self._n:
                codes = self.__codes.take(done - len(rows), done)
                steps += group_steps(codes, rows, bound, step, len(steps))
        if done != self._n:
            raise ValueError(f"Expected a source that gives every row once; got {done} of {self._n} rows.")
        return steps

    @forgets_locals
    @quietly
    def weighted_sum(
        self,
        values: Floats | FactoredSource,
        weights: Floats,
        *,
        bound: float,
        noise: Mechanism,
        purpose: str,
    ) -> Array:
        r"""Noised sum of public rows, each clipped and weighted by its row's group.

        .. math:: \sum_i \omega_{i, A_i} \, v_i \min(1, B / \|v_i\|) + \xi

        Parameters
        ----------
        values : ndarray (n, d) or FactoredSource
            Public rows; a source is read a few rows at a time.
        weights : ndarray (n, G + 1)
            Public weights, the last column for "not given"; it is not read where no attribute is missing.
        bound : float
            B.

        Returns
        -------
        ndarray (d,), float64

        Guarantee
        ---------
        * Changing one row's group moves the answer under the noise by at most
          ``bound * max_i (max_a w[i, a] - min_a w[i, a])``, those of all rows of one person by :attr:`rows_per_person`
          times as much, and by the rounding of the sum and of its step to the grid.
        * The recorded sensitivity includes the rounding.
        * The ledger is debited first; a row that is not finite counts as zero.
        """
        source = ArrayRows(self._check_rows(values)) if isinstance(values, np.ndarray) else values
        if len(source) != self._n or weights.shape != (self._n, self.n_groups + 1):
            raise ValueError(
                f"Expected {self._n} rows and weights of shape {(self._n, self.n_groups + 1)}; "
                f"got {len(source)} rows and weights of shape {weights.shape}."
            )
        weights = weights.astype(np.float64, copy=False)[:, : self.n_categories]
        sensitivity = check_bound(bound) * weight_range(weights) * self.rows_per_person
        sensitivity = with_rounding(sensitivity, weights, bound, source.width, noise)
        release = self._debit(Release(purpose, noise.cost(), sensitivity, self._unit))
        selected = np.take_along_axis(weights, self.__codes.take(0, self._n)[:, None], axis=1)[:, 0]
        exact = LongSum(source.width)
        for chunk, rows in source.chunks():
            c = selected[chunk]
            for part, piece in rows.pieces():
                exact.add(clipped_sum(piece, c[part], bound))
        drawn = self._source.about(purpose, source.width, float(bound), noise)
        return noise.add_noise(exact.value(), sensitivity=sensitivity, source=drawn, release=release)

    @forgets_locals
    def randomized_labels(self, mechanism: Response, *, purpose: str, not_given: bool = True) -> NDArray[np.int64]:
        """The randomised group code of every row: 0 .. G - 1 and, if ``not_given``, G for a missing attribute.

        Without that category rows with a missing attribute answer with any group; there are fewer lies for the others.

        Guarantee
        ---------
        * The ledger is debited ``mechanism.epsilon`` before anything is drawn.
        """
        if self._people is not None:
            raise ValueError("expected rows that are one person's each, got persons; randomise one answer per person.")
        categories = min(self.n_groups + not_given, self.n_categories)
        cost = mechanism.cost(categories=categories)
        release = self._debit(Release(purpose, cost, 1.0))
        drawn = self._source.about(purpose, categories, mechanism)
        codes = self.__codes.take(0, self._n).astype(np.int64)
        return mechanism.randomize(codes, categories=categories, source=drawn, release=release)

    @forgets_locals
    def reveal(self, *, purpose: str, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """The true group code of every row, or of these rows, without privacy: debits infinity, visibly."""
        self._debit(Release(purpose, Unprotected().cost(), math.inf))
        codes = self.__codes.take(0, self._n).astype(np.int64)
        return codes if rows is None else codes[rows]

    def certificate(
        self, *, planned: int = 1, claim: dict[str, Any] | None = None, subject: str = "Every output of training"
    ) -> Certificate:
        """What the ledger can promise about all releases so far: :meth:`justitia.PrivacyLedger.certificate`."""
        found = self._ledger.certificate(
            groups=self.group_names,
            groups_source=self._groups_source,
            noise=self._source.description,
            reproduction=self._source.seeded,
            planned=planned,
            claim=claim,
            subject=subject,
        )
        return found if self.missing == "allowed" else replace(found, adjacency=ADJACENCY_WITHOUT_MISSING[found.unit])

    def _check_rows(self, values: Floats) -> Array:
        rows = values[:, None] if values.ndim == 1 else values
        if rows.ndim != 2 or len(rows) != self._n:
            raise ValueError(f"Expected one public row per label ({self._n}); got shape {values.shape}.")
        return rows.astype(np.float64, copy=False)

    def __repr__(self) -> str:
        return f"SensitiveVault(n={self._n}, groups={list(self.group_names)})"

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("A SensitiveVault cannot be pickled or copied: it holds sensitive attributes.")

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = _refuse


def open_vault(sensitive_features: Any, request: VaultRequest) -> Vault:
    """The one way of the attribute into a vault, or to the vault of whoever holds it.

    Raises
    ------
    ValueError, TypeError
        For the kind, names and length of the container and for public settings; never for an entry.
    """
    if isinstance(sensitive_features, HeldElsewhere):
        return sensitive_features.open(request)
    files = isinstance(sensitive_features, FileAttribute | FrameAttribute | AttributeStream)
    attribute = sensitive_features if files else Attribute.from_container(sensitive_features)
    check_same_length(X=range(request.n), sensitive_features=range(len(attribute)))
    person = request.person
    people = person if person is None or isinstance(person, Persons) else Persons.from_ids(person)
    if people is not None:
        people.check_rows(request.n)
    features = set(map(str, request.features))
    for name in attribute.names:
        if name in features:
            raise ValueError(
                f"the column {name!r} is both a feature and a sensitive attribute; drop it from X, "
                "so that it is not an input at prediction time."
            )
    return SensitiveVault(
        attribute,
        groups=named_groups(request.groups, request.epsilon),
        ledger=request.ledger,
        people=people,
        noise_source=noise_from(request.noise_seed),
        missing_marker=request.missing_marker,
        missing=request.missing,
        source=request.source,
    )


def local_vault(vault: Vault) -> SensitiveVault:
    """The vault, if the attribute is in its reach.

    Raises
    ------
    ValueError
        If another party holds the attribute, who returns noised sums only.
    """
    if not isinstance(vault, SensitiveVault):
        raise ValueError(
            "the attribute is with its holder, who gives noised sums only; use engine 'post-processing' or 'moments' "
            "with a finite epsilon."
        )
    return vault


def named_groups(groups: Any, epsilon: float) -> Any:
    """The public list of groups. A finite epsilon needs one: a list read off the data reveals which labels occur."""
    if groups is not None:
        return groups
    if math.isinf(epsilon):
        return INFER
    raise ValueError(
        "expected the public list of groups, got None; name them, such as groups=['f', 'm'], or pass groups='infer' to "
        "read the list off the data, which does not protect it."
    )


def noise_from(seed: int | None) -> NoiseSource:
    """The operating system's generator, or noise that can be drawn again."""
    return SystemNoise() if seed is None else SeededNoise(check_int("noise_seed", seed, at_least=0))


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse a budget that no Gaussian release fits into."""
    if check_nonnegative("epsilon", epsilon, allow_inf=True) == 0:
        raise ValueError("epsilon=0 allows no question about groups at all; use a positive epsilon.")
    if check_fraction("delta", delta, example=1e-5) == 0 and not math.isinf(epsilon):
        raise ValueError("delta=0 rules out Gaussian noise; use a small positive delta such as 1e-5.")
    check_deliverable(float(epsilon), float(delta))


def ledger_or_new(ledger: Any, *, epsilon: float, delta: float) -> PrivacyLedger:
    """The user's ledger, or a new one with this budget.

    Raises
    ------
    TypeError
        If ``ledger`` is something else.
    """
    if ledger is None:
        return PrivacyLedger(epsilon=epsilon, delta=delta)
    if not isinstance(ledger, PrivacyLedger):
        raise TypeError(f"expected ledger to be a PrivacyLedger, got {type(ledger).__name__!r}; make one first.")
    return ledger


def warn_large_delta(epsilon: float, delta: float, n: int, *, stacklevel: int) -> None:
    """Warn of a delta that lets a mechanism publish the attribute of one of n rows and still keep its promise."""
    if delta >= 1 / n and not math.isinf(epsilon):
        warnings.warn(
            f"delta={delta:g} is not below 1/n = {1 / n:.2g}: such a guarantee allows the attribute "
            "of one row to be published; choose a smaller delta.",
            LargeDeltaWarning,
            stacklevel=stacklevel + 1,
        )


__all__: Sequence[str] = ["INFER", "FileCodes", "GroupSums", "SensitiveVault", "noise_from", "open_vault"]
