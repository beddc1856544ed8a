"""The only reader of the sensitive attribute during training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from justitia.privacy.accounting import Cost
from justitia.privacy.arrays import Array, Floats, quietly, sum_by
from justitia.privacy.bounding import (
    LONGEST,
    bounded_rows,
    check_bound,
    clipped_sum,
    weight_range,
    with_norm_rounding,
    with_rounding,
)
from justitia.privacy.frames import forgets_locals
from justitia.privacy.groups import (
    Groups,
    encode,
    group_names,
    infer_groups,
    only_part,
    public_groups,
    read_parts,
)
from justitia.privacy.interface import Vault
from justitia.privacy.ledger import INFERRED, Certificate, PrivacyLedger, Release
from justitia.privacy.mechanisms import Noise, NoiseSource, Response, SystemNoise, Unprotected
from justitia.privacy.noise_grid import exact_sum_step, to_nearest, toward_zero
from justitia.privacy.persons import Persons
from justitia.privacy.rows import ArrayRows, DenseSource, LongSum, RowSource
from justitia.privacy.shards import Alone, Drawn, Together

#: Asks for the list of groups to be read off the data.
INFER = "infer"
#: The list that is read off data in which nobody has given the attribute: a group that nobody is in.
NONE_FOUND = ("no group found",)


class SensitiveVault(Vault):
    r"""Holds each row's group and answers questions about it with noise.

    A appears only as a selector, so every answer has the form :math:`\sum_i c_i(A_i) + \text{noise}` and moves by at
    most :math:`\max_i \max_{a,a'} \|c_i(a) - c_i(a')\|` when one row's attribute changes.

    Parameters
    ----------
    labels : array-like, Series or DataFrame
        Each row's attribute; several columns are crossed. None, NaN, ``missing_marker`` and any label that is not in
        ``groups`` mean "not given", which is one more category with the same protection.
    groups : sequence, mapping or "infer"
        The public list of group labels; "infer" reads it off the labels, and then the certificate begins with saying
        that the list itself is not protected.
    ledger : PrivacyLedger
        Debited before any answer is computed.
    people : Persons, optional
        Which rows are one person's. Everything recorded and promised is then about all rows of one person at once;
        otherwise about one row.
    noise_source : NoiseSource, optional
        The operating system's generator unless said otherwise.
    together : Together, optional
        The other places that hold rows of the same people; none unless said otherwise.

    Guarantee
    ---------
    * With a given list of groups, no label changes whether a call fails, what it costs, or the shape and scale of what
      it returns.
    * The vault cannot be pickled or copied, and its text form shows public facts only.
    * Whatever is raised while a question is answered holds no local variable, so that who prints those prints nothing
      exact.
    """

    __slots__ = (
        *("__codes", "_columns", "_groups", "_groups_source", "_ledger", "_names", "_people", "_source", "_spent"),
        "_together",
    )

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
        together: Together | None = None,
    ) -> None:
        inferred = isinstance(groups, str) and groups == INFER
        self._columns, parts = read_parts(labels)
        self._groups_source = INFERRED if inferred else "given"
        found = infer_groups(only_part(parts), missing_marker) or NONE_FOUND if inferred else None
        listed = public_groups(groups, names=self._columns) if found is None else found
        self._groups = listed
        self._names = group_names(listed, names=self._columns)
        self._ledger = ledger
        self._spent: Counter[Cost] = Counter()
        self._people = people
        self._source = noise_source if noise_source is not None else SystemNoise()
        small = np.int16 if len(listed) < 2**15 else np.int64  # a vault of millions of rows stays small
        codes = (encode(part, listed, missing_marker).astype(small) for part in parts)
        self.__codes: NDArray[np.signedinteger[Any]] = np.concatenate([np.empty(0, dtype=small), *codes])
        if people is not None:
            people.check_rows(len(self.__codes))
            self.__codes[~people.counted] = len(listed)  # rows beyond a person's share count as "not given"
        self._together = Alone(len(self.__codes)) if together is None else together

    def __len__(self) -> int:
        return len(self.__codes)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Printable public names of the G groups, in the order of every answer."""
        return self._names

    @property
    def groups(self) -> Groups:
        """The public list of labels, in the order of every answer; of crossed columns, tuples."""
        return self._groups

    @property
    def column_names(self) -> tuple[str, ...]:
        """Public names of the sensitive columns, where the container has any."""
        return tuple(name for name in self._columns if name is not None)

    @property
    def rows_per_person(self) -> int:
        """How many rows of one person are asked about at most; 1 where a row is what is protected."""
        return 1 if self._people is None else self._people.rows_each

    @property
    def persons_digest(self) -> str:
        """A public name of which rows are one person's; nothing where a row is what is protected."""
        return "" if self._people is None else self._people.digest

    def forget(self) -> None:
        """Overwrite the attribute: every row is "not given" from now on."""
        self.__codes.fill(len(self._groups))

    def check(self, costs: Mapping[Cost, int]) -> None:
        """Raise :class:`~justitia.BudgetExceeded` if these costs do not fit into what remains; records nothing."""
        self._ledger.check(costs)

    @property
    def spent(self) -> Counter[Cost]:
        """How often each cost was debited by this vault, whatever others debit from the same ledger meanwhile."""
        return Counter(self._spent)

    def _debit(self, release: Release) -> int:
        """Record a release and return its number, or raise and record nothing."""
        number = self._ledger.debit(release)
        self._spent[release.cost] += 1
        return number

    @property
    def noise_source(self) -> NoiseSource:
        """Where this vault's noise comes from."""
        return self._source

    @forgets_locals
    @quietly
    def group_sums(self, values: Floats | DenseSource, *, bound: float, noise: Noise, purpose: str) -> Array:
        r"""Noised sum of public rows over each group.

        .. math:: S_a = \sum_{i : A_i = a} v_i + \xi_a,  \qquad \|v_i\| \le B

        The blocks of all groups and of "not given" add up to a public total; the noisy answer is projected onto it,
        which removes 1/(G+1) of the noise at no cost.

        Parameters
        ----------
        values : ndarray (n, d) or DenseSource
            Public rows; a longer row is scaled down to ``bound``. A source is read a few rows at a time.
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
        source = ArrayRows(self._check_rows(values)) if isinstance(values, np.ndarray) else values
        self._check_length(source)
        sensitivity = math.sqrt(2) * with_norm_rounding(check_bound(bound), source.width) * self.rows_per_person
        release = self._debit(Release(purpose, noise.cost(), sensitivity, self._unit))
        step = max(noise.step(sensitivity), exact_sum_step(2.0 * self._together.rows * min(bound, LONGEST)))
        self._together.begin(source, bound=bound, step=step)
        exact = self._add_up(source, bound, step)
        drawn = self._noise_about(purpose, source.width, float(bound), noise)
        noisy = noise.add_noise(exact, sensitivity=sensitivity, source=drawn, release=release)
        total = exact.sum(0)  # public: everybody is in one block, and nothing is rounded
        projected: Array = noisy + (total - noisy.sum(0)) / len(noisy)
        return projected[: self.n_groups]

    @forgets_locals
    @quietly
    def contribute(self, source: DenseSource, *, bound: float, step: float) -> None:
        """Add the rows of this place to an answer that another place has debited; nothing is returned here."""
        self._check_length(source)
        self._add_up(source, bound, step)

    def _add_up(self, source: DenseSource, bound: float, step: float) -> Array:
        """(G + 1, d): sums over all places, exact on the grid."""
        sums = np.zeros((self.n_groups + 1, source.width))
        done = 0
        for index, rows in source.dense():
            if not np.array_equal(index, np.arange(done, done + len(rows))):
                raise ValueError("Expected a source that gives everybody's row once and in order; got another order.")
            done += len(rows)
            bounded = bounded_rows(rows.astype(np.float64, copy=False), bound)
            sums += sum_by(self.__codes[index], toward_zero(bounded, step), len(sums))
        if done != len(self):
            raise ValueError(f"Expected a source that gives everybody's row once; got {done} of {len(self)} rows.")
        steps = self._together.add(to_nearest(sums, step).astype(np.int64).ravel())
        return steps.reshape(sums.shape).astype(np.float64) * step

    @forgets_locals
    @quietly
    def weighted_sum(
        self,
        values: Floats | RowSource,
        weights: Floats,
        *,
        bound: float,
        noise: Noise,
        purpose: str,
    ) -> Array:
        r"""Noised sum of public rows, each clipped and weighted by its person's group.

        .. math:: \sum_i \omega_{i, A_i} \, v_i \min(1, B / \|v_i\|) + \xi

        Parameters
        ----------
        values : ndarray (n, d) or RowSource
            Public rows; a source is read a few rows at a time.
        weights : ndarray (n, G + 1)
            Public weights, the last column for "not given".
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
        if len(source) != len(self) or weights.shape != (len(self), self.n_groups + 1):
            raise ValueError(
                f"Expected {len(self)} rows and weights of shape {(len(self), self.n_groups + 1)}; "
                f"got {len(source)} rows and weights of shape {weights.shape}."
            )
        weights = weights.astype(np.float64, copy=False)
        sensitivity = check_bound(bound) * weight_range(weights) * self.rows_per_person
        sensitivity = with_rounding(sensitivity, weights, bound, source.width, noise)
        release = self._debit(Release(purpose, noise.cost(), sensitivity, self._unit))
        selected = np.take_along_axis(weights, self.__codes[:, None], axis=1)[:, 0]
        exact = LongSum(source.width)
        for chunk, rows in source.chunks():
            c = selected[chunk]
            for part, piece in rows.pieces():
                exact.add(clipped_sum(piece, c[part], bound))
        drawn = self._noise_about(purpose, source.width, float(bound), noise)
        return noise.add_noise(exact.value(), sensitivity=sensitivity, source=drawn, release=release)

    @forgets_locals
    def randomized_labels(self, mechanism: Response, *, purpose: str, not_given: bool = True) -> NDArray[np.int64]:
        """Everybody's randomised group code: 0 .. G - 1 and, if ``not_given``, G for people who did not give theirs.

        Without that category such people answer with any group; there are fewer lies for the others.

        Guarantee
        ---------
        * The ledger is debited ``mechanism.epsilon`` before anything is drawn.
        """
        if self._people is not None:
            raise ValueError("expected rows that are one person's each, got persons; randomise one answer per person.")
        categories = self.n_groups + not_given
        release = self._debit(Release(purpose, mechanism.cost(categories=categories), 1.0))
        drawn = self._noise_about(purpose, categories, mechanism)
        return mechanism.randomize(self.__codes.astype(np.int64), categories=categories, source=drawn, release=release)

    def reveal(self, *, purpose: str, drawn: Drawn | None = None) -> NDArray[np.int64]:
        """Everybody's true group code, or of rows drawn from all places, without privacy: debits infinity, visibly."""
        self._debit(Release(purpose, Unprotected().cost(), math.inf))
        codes = self.__codes if drawn is None else self._together.gather(drawn.placed(self.__codes))
        return codes.astype(np.int64)

    def hand_over(self, drawn: Drawn) -> None:
        """Add the codes of this place to those that another place reveals; debits infinity here as well."""
        self._debit(Release("exact attribute, for another process", Unprotected().cost(), math.inf))
        self._together.add(drawn.placed(self.__codes))

    def certificate(
        self, *, planned: int = 1, claim: dict[str, Any] | None = None, subject: str = "Every output of training"
    ) -> Certificate:
        """What the ledger can say about everything asked so far: :meth:`justitia.PrivacyLedger.certificate`."""
        return self._ledger.certificate(
            groups=self._names,
            groups_source=self._groups_source,
            noise=self._source.description,
            reproduction=self._source.seeded,
            planned=planned,
            claim=claim,
            subject=subject,
        )

    @property
    def _unit(self) -> str:
        return "row" if self._people is None else "person"

    def _noise_about(self, *question: Any) -> NoiseSource:
        """The source of noise for one question: its purpose, width, bound and mechanism. Rows are no part of it."""
        return self._source.about(repr(question).encode())

    def _check_length(self, source: DenseSource) -> None:
        if len(source) != len(self):
            raise ValueError(f"Expected one public row per label ({len(self)}); got {len(source)}.")

    def _check_rows(self, values: Floats) -> Array:
        rows = values[:, None] if values.ndim == 1 else values
        if rows.ndim != 2 or len(rows) != len(self):
            raise ValueError(f"Expected one public row per label ({len(self)}); got shape {values.shape}.")
        return rows.astype(np.float64, copy=False)

    def __repr__(self) -> str:
        return f"SensitiveVault(n={len(self)}, groups={list(self._names)})"

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("A SensitiveVault cannot be pickled or copied: it holds people's sensitive attributes.")

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = _refuse


__all__: Sequence[str] = ["INFER", "SensitiveVault"]
