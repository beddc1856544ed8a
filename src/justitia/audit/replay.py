"""Recording of the queries of one ``fit``, and their replay against the vault for either of two neighbours.

A recording holds public rows, bounds, noise multipliers and weights: functions of public data and of the noisy answers
of that one run. A replay asks the vault's own code, with its noise, rounding and ledger. The one difference to a fit is
that later queries no longer depend on earlier answers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from justitia.estimator import LagrangianDualClassifier
from justitia.privacy.arrays import Array, Index
from justitia.privacy.arrays import Floats as AnyFloats
from justitia.privacy.interface import RowFunction, VaultRequest
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Mechanism, NoiseSource
from justitia.privacy.rows import ArrayRows, DenseSource, FactoredRows, FactoredSource
from justitia.privacy.vault import SensitiveVault, local_vault, open_vault
from justitia.regressor import LagrangianDualRegressor

#: What can be audited.
Model = LagrangianDualClassifier | LagrangianDualRegressor
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RecordedRows:
    """Public rows of one query, in order and in the form in which the vault got them."""

    width: int
    parts: tuple[tuple[Index, FactoredRows], ...]

    def __len__(self) -> int:
        return sum(len(index) for index, _ in self.parts)

    def chunks(self) -> Iterator[tuple[Index, FactoredRows]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        yield from self.parts

    def lengths(self) -> AnyFloats:
        """(n,) norms, rounded up."""
        return np.concatenate([rows.double().norm_bounds() for _, rows in self.parts])

    def row(self, person: int) -> AnyFloats:
        """(d,) the row of one person."""
        for part, rows in self.parts:
            here = part == person
            if here.any():
                return rows.double().weighted_sum(here.astype(np.float64))
        raise IndexError(f"expected a person below {len(self)}, got {person}.")

    @staticmethod
    def from_dense(dense: AnyFloats) -> RecordedRows:
        """Rows of a matrix."""
        return RecordedRows(dense.shape[1], tuple(ArrayRows(dense, len(dense)).chunks()))


@dataclass(frozen=True, eq=False)
class RecordedQuery:
    """One query to the vault; ``weights`` is None for group sums, whose rows are ``values``."""

    rows: RecordedRows
    values: AnyFloats | None
    weights: AnyFloats | None
    bound: float
    noise: Mechanism
    purpose: str

    def ask(self, vault: SensitiveVault) -> Array:
        """Noisy answer as one vector."""
        if self.weights is None and self.values is not None:
            return flatten_sums(vault.group_sums(self.values, bound=self.bound, noise=self.noise, purpose=self.purpose))
        if self.weights is None:
            raise ValueError(f"expected rows or weights of {self.purpose!r}, got neither; record the run again.")
        return vault.weighted_sum(self.rows, self.weights, bound=self.bound, noise=self.noise, purpose=self.purpose)

    def copied(self, copies: int) -> RecordedQuery:
        """The same query about several copies of all rows; each copy has columns of its own."""
        dense = np.stack([self.rows.row(person) for person in range(len(self.rows))])
        blocks = block_diag(*[dense] * copies)
        values, weights = (blocks, None) if self.weights is None else (None, np.tile(self.weights, (copies, 1)))
        return replace(self, rows=RecordedRows.from_dense(blocks), values=values, weights=weights)

    def split(self, answer: Array, copies: int) -> Array:
        """(copies, d): the answer for each copy."""
        return answer.reshape(-1, copies, self.rows.width // copies).swapaxes(0, 1).reshape(copies, -1)

    def movements(self, here: int, there: int) -> AnyFloats:
        """(n,): norm by which each person moves the answer when they change from group ``here`` to ``there``."""
        lengths = self.rows.lengths()
        lengths = np.where(np.isfinite(lengths), np.minimum(lengths, self.bound), 0.0)
        moved = math.sqrt(2) if self.weights is None else np.abs(self.weights[:, there] - self.weights[:, here])
        movements: AnyFloats = lengths * moved
        return movements

    def movement(self, person: int, here: int, there: int, n_groups: int) -> AnyFloats:
        """Vector by which one person moves the answer of :meth:`ask`."""
        row = self.rows.row(person)
        if np.isfinite(row).all():
            row = row * min(1.0, self.bound / max(float(np.linalg.norm(row)), 1e-300))
        else:
            row = np.zeros_like(row)
        if self.weights is not None:
            return row * float(self.weights[person, there] - self.weights[person, here])
        blocks = np.zeros((n_groups + 1, len(row)))
        blocks[here] -= row
        blocks[there] += row
        return blocks.flatten()


def flatten_sums(sums: Array) -> Array:
    """Group sums as one vector, with the sums of "not given", which follow from the public total."""
    return np.concatenate([sums, -sums.sum(0, keepdims=True)]).ravel()


def noise_scale(query: RecordedQuery) -> float:
    """Claimed standard deviation of the noise, from public numbers; infinite where nobody can move the answer."""
    sensitivity = math.sqrt(2)
    if query.weights is not None:
        sensitivity = float(np.ptp(query.weights, axis=1).max())
    return float(getattr(query.noise, "noise_multiplier", 0.0)) * query.bound * sensitivity or math.inf


class RecordingVault(SensitiveVault):
    """A vault that keeps its queries and its answers, which are those of any vault."""

    __slots__ = ("answers", "queries")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queries: list[RecordedQuery] = []
        self.answers: list[Floats] = []

    def group_sums(
        self, values: AnyFloats | DenseSource | RowFunction, *, bound: float, noise: Mechanism, purpose: str
    ) -> Floats:
        """As in a vault."""
        if isinstance(values, np.ndarray):
            dense = values
        elif isinstance(values, DenseSource):
            dense = np.concatenate([rows for _, rows in values.dense()])
        else:
            assert self._rows is not None  # noqa: S101 - a fit passes its row source
            dense = np.concatenate(list(self._rows.map(values)))
        dense = (dense[:, None] if dense.ndim == 1 else dense).astype(np.float64)
        self.queries.append(RecordedQuery(RecordedRows.from_dense(dense), dense, None, bound, noise, purpose))
        answer = super().group_sums(values, bound=bound, noise=noise, purpose=purpose)
        self.answers.append(flatten_sums(answer))
        return answer

    def weighted_sum(
        self, values: AnyFloats | FactoredSource, weights: AnyFloats, *, bound: float, noise: Mechanism, purpose: str
    ) -> Floats:
        """As in a vault."""
        source = ArrayRows(values.astype(np.float64)) if isinstance(values, np.ndarray) else values
        rows = RecordedRows(source.width, tuple(source.chunks()))
        self.queries.append(RecordedQuery(rows, None, weights.astype(np.float64), bound, noise, purpose))
        answer = super().weighted_sum(values, weights, bound=bound, noise=noise, purpose=purpose)
        self.answers.append(answer)
        return answer


class RecordsQueries:
    """What turns an estimator into one whose vault keeps queries and answers, in ``recording_vault_``."""

    def _open_vault(self, attribute: Any, request: VaultRequest) -> SensitiveVault:
        checked = local_vault(open_vault(attribute, request))
        self.recording_vault_ = RecordingVault(
            attribute,
            groups=request.groups,
            ledger=request.ledger,
            noise_source=checked.noise_source,
            missing_marker=request.missing_marker,
            missing=request.missing,
            source=request.source,
        )
        return self.recording_vault_


class RecordingClassifier(RecordsQueries, LagrangianDualClassifier):
    """The classifier with a vault that keeps queries and answers."""


class RecordingRegressor(RecordsQueries, LagrangianDualRegressor):
    """The regressor with a vault that keeps queries and answers."""


def kind_of(model: Model) -> type[Model]:
    """The estimator that is audited: the classifier or the regressor."""
    return LagrangianDualRegressor if isinstance(model, LagrangianDualRegressor) else LagrangianDualClassifier


def recording_kind(model: Model) -> type[RecordingClassifier | RecordingRegressor]:
    """The same estimator with a vault that keeps queries and answers."""
    return RecordingRegressor if isinstance(model, LagrangianDualRegressor) else RecordingClassifier


@dataclass(frozen=True)
class Canary:
    """The person under attack and the two groups that the attacker has to tell apart."""

    person: int
    here: int
    there: int


@dataclass(frozen=True, eq=False)
class Recording:
    """One fitted model, the queries of its training, and the true group of every row: exact, not for publication."""

    model: Model
    queries: tuple[RecordedQuery, ...]
    codes: Codes
    names: tuple[str, ...]

    @property
    def epsilon(self) -> float:
        """Epsilon of the certificate, or the one that a published analysis claims in its place."""
        certificate = self.model.certificate_
        claim = certificate.claim or {}
        return float(claim.get("epsilon", certificate.epsilon))

    def neighbours(self, canary: Canary) -> tuple[Codes, Codes]:
        """Group codes of all rows, with the canary in either of the two groups."""
        one, other = self.codes.copy(), self.codes.copy()
        one[canary.person], other[canary.person] = canary.here, canary.there
        return one, other


def record(
    model: Model,
    X: Any,
    y: Any,
    sensitive_features: Any,
    *,
    seed: int | None,
    columns: Mapping[str, Any] | None = None,
) -> Recording:
    """Fit once and record the queries; ``model`` is not changed. A seed makes this fit repeatable.

    Parameters
    ----------
    columns : mapping, optional
        Other public columns that ``fit`` takes, by the names of its arguments.
    """
    open_ledger = PrivacyLedger(epsilon=math.inf, delta=0.0)
    reader = SensitiveVault(
        sensitive_features, groups=model.groups, ledger=open_ledger, missing_marker=model.missing_marker
    )
    codes = reader.reveal(purpose="audit: the auditor knows all attributes")
    noise_seed = seed if model.noise_seed is None else model.noise_seed
    parameters = neutral_parameters(model, reader.n_groups, seed or 0) | {"noise_seed": noise_seed}
    twin = recording_kind(model)(**parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin.fit(X, y, sensitive_features=labels_from_codes(codes, reader.n_groups), **(columns or {}))
    queries = tuple(twin.recording_vault_.queries)
    del twin.recording_vault_
    return Recording(twin, queries, codes, (*reader.group_names, "not given"))


def given_columns(**columns: Any) -> dict[str, Any]:
    """Public columns as arguments of ``fit``; none where there are none, because a regressor takes none."""
    return {name: value for name, value in columns.items() if value is not None}


def neutral_parameters(model: Model, n_groups: int, seed: int) -> dict[str, Any]:
    """The model's parameters with groups 0 .. G - 1, a fixed public seed and no progress bar."""
    chosen: dict[str, Any] = model.get_params(deep=False)
    state = seed if model.random_state is None else model.random_state
    return chosen | {
        "groups": tuple(range(n_groups)),
        "missing_marker": None,
        "progress": False,
        "random_state": state,
    }


def labels_from_codes(codes: Codes, n_groups: int) -> list[int | None]:
    """Codes as labels of the groups 0 .. G - 1; G is "not given"."""
    return [None if code == n_groups else int(code) for code in codes]


def worst_canary(queries: Sequence[RecordedQuery], n_groups: int, person: int | None = None) -> Canary:
    """Person and pair of groups that move the answers most, in units of their noise; or the pair for a given person.

    The choice depends on public rows, noisy weights and public bounds, not on any attribute.
    """
    best, found = -1.0, Canary(0, 0, 1)
    for here in range(n_groups + 1):
        for there in range(here + 1, n_groups + 1):
            total = _exposure(queries, here, there)
            one = int(total.argmax()) if person is None else person
            if float(total[one]) > best * (1 + 1e-9):
                best, found = float(total[one]), Canary(one, here, there)
    return found


def _exposure(queries: Sequence[RecordedQuery], here: int, there: int) -> Floats:
    """(n,): squared distance by which each person moves all answers between two groups, in units of the noise."""
    squares: Floats = np.sum([one.movements(here, there) ** 2 / noise_scale(one) ** 2 for one in queries], axis=0)
    return squares


def most_exposed(recording: Recording, canary: Canary, at_most: int) -> list[int]:
    """Rows that move the answers most between the canary's two groups, by public numbers."""
    order = (-_exposure(recording.queries, canary.here, canary.there)).argsort(kind="stable")
    return [int(person) for person in order[:at_most]]


def movement_rows(query: RecordedQuery, people: NDArray[np.int64], canary: Canary, n_groups: int) -> Floats:
    """(m, d): vector by which each of these people moves the answer."""
    rows = [query.movement(int(person), canary.here, canary.there, n_groups) for person in people]
    return np.stack(rows)


class NoNoise(NoiseSource):
    """Noise source without noise, for the exact answers that the attacker knows."""

    description = "none: exact answers for the auditor"

    def words(self, size: int, **_names: Any) -> NDArray[np.uint64]:
        """Zeros; no mechanism of a replay draws words."""
        return np.zeros(size, dtype=np.uint64)

    def add_gaussian(self, exact: Floats, std: float, **_names: Any) -> Floats:  # noqa: ARG002
        """``exact``, unchanged."""
        return exact


@dataclass(frozen=True, eq=False)
class Replay:
    """Recorded queries, both neighbours of a canary, and the exact answers and noise that the attacker knows."""

    queries: tuple[RecordedQuery, ...]
    neighbours: tuple[Codes, Codes]
    n_groups: int
    budget: tuple[float, float]
    known: tuple[Floats, ...]
    towards: tuple[Floats, ...]

    def log_ratios(self, answers: Sequence[Floats]) -> Floats:
        """(copies, queries): log likelihood ratio of each noisy answer."""
        found = zip(answers, self.known, self.towards, strict=True)
        return np.stack([(answer - known) @ towards for answer, known, towards in found], axis=-1)

    def answers(self, neighbour: int, source: NoiseSource, copies: int = 1) -> list[Floats]:
        """Noisy answer to each query, (copies, d) each."""
        vault = make_vault(np.tile(self.neighbours[neighbour], copies), self.n_groups, self.budget, source)
        return [query.split(query.ask(vault), copies) for query in self.queries]

    def copied(self, copies: int) -> Replay:
        """A replay that answers for several copies of all rows at once."""
        if copies == 1:
            return self
        return replace(self, queries=tuple(query.copied(copies) for query in self.queries))


def make_replay(recording: Recording, canary: Canary) -> Replay:
    """Replay of a recording for both neighbours of the canary."""
    ledger = recording.model.ledger_
    budget = (ledger.budget_epsilon, ledger.delta)
    return replay_queries(recording.queries, recording.neighbours(canary), len(recording.names) - 1, budget)


def replay_queries(
    queries: Sequence[RecordedQuery], neighbours: tuple[Codes, Codes], n_groups: int, budget: tuple[float, float]
) -> Replay:
    """Replay of queries; the exact answers of both neighbours come from the vault's own code without noise."""
    exact = [exact_answers(queries, codes, n_groups, budget) for codes in neighbours]
    known, towards = [], []
    for query, first, second in zip(queries, *exact, strict=True):
        known.append((first + second) / 2)
        towards.append((second - first) / noise_scale(query) ** 2)
    return Replay(tuple(queries), neighbours, n_groups, budget, tuple(known), tuple(towards))


def exact_answers(
    queries: Sequence[RecordedQuery], codes: Codes, n_groups: int, budget: tuple[float, float]
) -> list[Floats]:
    """Answers before noise."""
    vault = make_vault(codes, n_groups, budget, NoNoise())
    return [query.ask(vault) for query in queries]


def make_vault(codes: Codes, n_groups: int, budget: tuple[float, float], source: NoiseSource) -> SensitiveVault:
    """Vault of these rows with a ledger of its own."""
    ledger = PrivacyLedger(epsilon=budget[0], delta=budget[1])
    return SensitiveVault(
        labels_from_codes(codes, n_groups), groups=tuple(range(n_groups)), ledger=ledger, noise_source=source
    )
