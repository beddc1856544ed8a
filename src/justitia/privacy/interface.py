"""What a vault is to those who ask, wherever the attribute lies: in this process, in several, or with its holder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.accounting import Cost
from justitia.privacy.arrays import Array, Floats
from justitia.privacy.certificate import Certificate
from justitia.privacy.groups import Groups
from justitia.privacy.mechanisms import Noise, NoiseSource, Response
from justitia.privacy.rows import DenseSource, RowSource
from justitia.privacy.shards import Drawn

_NOT_HERE = "the attribute is with its holder, who gives noised sums only; {what} needs it in this process: {advice}."


class Vault(ABC):
    """Answers questions about everybody's group with noise, and pays before it computes.

    Guarantee
    ---------
    * A vault that does not hold the attribute has no :meth:`reveal`, no :meth:`randomized_labels` and no source of
      noise: they refuse in one sentence, before anything is asked.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def group_names(self) -> tuple[str, ...]:
        """Printable public names of the G groups, in the order of every answer."""

    @property
    @abstractmethod
    def groups(self) -> Groups:
        """The public list of labels, in the order of every answer; of crossed columns, tuples."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """Public names of the sensitive columns, where they are known."""
        return ()

    @property
    def n_groups(self) -> int:
        """G, the number of named groups."""
        return len(self.groups)

    @property
    @abstractmethod
    def rows_per_person(self) -> int:
        """How many rows of one person are asked about at most; 1 where a row is what is protected."""

    @property
    @abstractmethod
    def persons_digest(self) -> str:
        """A public name of which rows are one person's; nothing where a row is what is protected."""

    @abstractmethod
    def check(self, costs: Mapping[Cost, int]) -> None:
        """Raise :class:`~justitia.BudgetExceeded` if these costs do not fit into what remains; records nothing."""

    @property
    @abstractmethod
    def spent(self) -> Counter[Cost]:
        """How often each cost was debited by this vault, whatever others debit from the same ledger meanwhile."""

    @abstractmethod
    def group_sums(self, values: Floats | DenseSource, *, bound: float, noise: Noise, purpose: str) -> Array:
        """(G, d): noised sum of public rows over each group."""

    @abstractmethod
    def certificate(
        self, *, planned: int = 1, claim: dict[str, Any] | None = None, subject: str = "Every output of training"
    ) -> Certificate:
        """What can be said about everything asked so far."""

    def weighted_sum(
        self, values: Floats | RowSource, weights: Floats, *, bound: float, noise: Noise, purpose: str
    ) -> Array:
        """Noised sum of public rows, each weighted by its person's group; not everywhere."""
        del values, weights, bound, noise, purpose
        self._not_here("this engine", "use engine 'post-processing' or 'moments'")

    def contribute(self, source: DenseSource, *, bound: float, step: float) -> None:
        """Add the rows of this place to an answer that another place has debited; only where the attribute is."""
        del source, bound, step
        self._not_here("training in several processes", "train in one")

    def randomized_labels(self, mechanism: Response, *, purpose: str, not_given: bool = True) -> NDArray[np.int64]:
        """Everybody's randomised group code; only where the attribute is."""
        del mechanism, purpose, not_given
        self._not_here("randomised response", "use a method that asks for sums")

    def hand_over(self, drawn: Drawn) -> None:
        """Add the codes of this place to those that another place reveals; only where the attribute is."""
        del drawn
        self._not_here("training in several processes", "train in one")

    def reveal(self, *, purpose: str, drawn: Drawn | None = None) -> NDArray[np.int64]:
        """Everybody's true group code, or that of some rows, at an infinite price; only where the attribute is."""
        del purpose, drawn
        self._not_here("training without privacy", "pass a finite epsilon, and engine 'post-processing' or 'moments'")

    @property
    def noise_source(self) -> NoiseSource:
        """Where this vault's noise comes from; only where the attribute is."""
        self._not_here("this engine", "use engine 'post-processing' or 'moments'")

    @staticmethod
    def _not_here(what: str, advice: str) -> NoReturn:
        raise ValueError(_NOT_HERE.format(what=what, advice=advice))


__all__ = ["Vault"]
