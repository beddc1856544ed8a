"""Interfaces of vaults, of what opens them, and of row sources that they query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.accounting import Cost
from justitia.privacy.arrays import Array, Floats
from justitia.privacy.certificate import Certificate
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Mechanism
from justitia.privacy.rows import DenseSource

#: Public labels of the groups, in the order of every answer; of crossed columns, tuples.
Groups: TypeAlias = tuple[Hashable, ...]


class RowFunction(Protocol):
    """Public rows as a picklable function of a block."""

    @property
    def width(self) -> int:
        """Number of columns."""

    def __call__(self, block: Any) -> Floats:
        """(m, width): the rows of a block."""


class BlockSource(Protocol):
    """Runs passes over blocks of public rows and adds up what they return; a row source."""

    def run(self, work: Any) -> NDArray[np.int64]:
        """The sum of ``work.run(block)`` over all blocks."""

    def map(self, function: Any) -> Iterable[Any]:
        """A function of every block, in order."""

    def read_codes(self, codes: Any) -> None:
        """Let every process that holds rows read the group codes of its own rows, which stay there."""


@dataclass(frozen=True, eq=False)
class VaultRequest:
    """What a vault is opened for. Everything here is public but the noise seed, which is never shown.

    Attributes
    ----------
    groups : sequence, mapping or "infer"
        The public list of groups; a finite epsilon needs one.
    epsilon : float
        Of the releases to come.
    ledger : PrivacyLedger
        Debited before any answer is computed.
    n : int
        Number of public rows.
    person : array-like (n,), optional
        Public ids; the promise is then made to persons instead of rows.
    features : iterable of str
        Names of public columns; the attribute must not be one of them.
    noise_seed : int, optional
        Seed of noise that promises nothing.
    missing_marker : hashable, optional
        One more value that means "not given".
    missing : {"allowed", "none"}
        Whether "not given" is one more group, or the caller states that every row has one of the groups.
    source : BlockSource, optional
        Runs passes over the public rows; without one, rows come as arrays.
    """

    groups: Any
    epsilon: float
    ledger: PrivacyLedger
    n: int
    person: Any = None
    features: Iterable[str] = ()
    noise_seed: int | None = field(default=None, repr=False)
    missing_marker: Hashable = None
    missing: str = "allowed"
    source: BlockSource | None = None


class Vault(ABC):
    """Answers queries about groups with noise, and debits before it computes.

    This is what every vault can do, one that is held elsewhere included. A vault with the attribute in reach,
    :class:`justitia.privacy.vault.SensitiveVault`, can do more.

    Parameters
    ----------
    groups : tuple
        The public list of labels, in the order of every answer; of crossed columns, tuples.
    group_names : tuple of str
        Their printable public names.
    column_names : tuple of str
        Public names of the sensitive columns, where they have any.
    missing : {"allowed", "none"}

    Attributes
    ----------
    groups, group_names, column_names : tuple
    missing : str
        Whether "not given" is one more group ("allowed"), or every row has one of the groups ("none").
    n_groups : int
        G, the number of named groups.
    """

    __slots__ = ("column_names", "group_names", "groups", "missing", "n_groups")

    def __init__(
        self,
        groups: Groups,
        group_names: tuple[str, ...],
        column_names: tuple[str, ...] = (),
        missing: str = "allowed",
    ) -> None:
        self.groups, self.n_groups = groups, len(groups)
        self.group_names, self.column_names, self.missing = group_names, column_names, missing

    @property
    def n_categories(self) -> int:
        """G + 1 with "not given"; G where no attribute is missing. Group sums of all of them add up to the total."""
        return self.n_groups + (self.missing != "none")

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def rows_per_person(self) -> int:
        """The largest number of rows of one person that a query counts; 1 where a row is what is protected."""

    @property
    @abstractmethod
    def persons_digest(self) -> str:
        """A public hash of which rows belong to one person; empty where a row is what is protected."""

    @abstractmethod
    def check(self, costs: Mapping[Cost, int]) -> None:
        """Raise :class:`~justitia.BudgetExceeded` if these costs do not fit into what remains; records nothing."""

    @property
    @abstractmethod
    def spent(self) -> Counter[Cost]:
        """How often this vault debited each cost, whatever others debit from the same ledger."""

    @abstractmethod
    def group_sums(
        self, values: Floats | DenseSource | RowFunction, *, bound: float, noise: Mechanism, purpose: str
    ) -> Array:
        """(G, d): noised sum of public rows over each group."""

    @abstractmethod
    def certificate(
        self, *, planned: int = 1, claim: dict[str, Any] | None = None, subject: str = "Every output of training"
    ) -> Certificate:
        """What the ledger can promise about all releases so far."""


__all__ = ["BlockSource", "Groups", "RowFunction", "Vault", "VaultRequest"]
