"""Questions of one ``fit``, recorded, and asked again of the vault for either of two neighbours.

What is recorded are public rows, bounds, noise multipliers and weights: functions of public data and of the noised
answers of that one run. A replay asks the vault's own code, with noise, rounding and ledger; only that later questions
no longer depend on earlier answers is lost.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from justitia.estimator import LagrangianDualClassifier
from justitia.privacy.attribute import Attribute
from justitia.privacy.door import open_vault
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Noise, NoiseSource
from justitia.privacy.rows import DenseSource, FactoredRows, RowSource, TensorRows
from justitia.privacy.vault import SensitiveVault

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Public rows of one moment, in order, kept in the form they came in."""

    width: int
    parts: tuple[tuple[Tensor, FactoredRows], ...]

    def __len__(self) -> int:
        return sum(len(index) for index, _ in self.parts)

    def chunks(self) -> Iterator[tuple[Tensor, FactoredRows]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        yield from self.parts

    def lengths(self) -> Tensor:
        """(n,) norms, rounded up."""
        return torch.cat([rows.double().reach() for _, rows in self.parts])

    def row(self, person: int) -> Tensor:
        """(d,) the row of one person."""
        for part, rows in self.parts:
            here = part == person
            if bool(here.any()):
                return rows.double().weighted_sum(here.double())
        raise IndexError(f"expected a person below {len(self)}, got {person}.")

    @staticmethod
    def of(dense: Tensor) -> KeptRows:
        """Rows of a matrix."""
        return KeptRows(dense.shape[1], tuple(TensorRows(dense, len(dense)).chunks()))


@dataclass(frozen=True, eq=False)
class Question:
    """One question to the vault; ``weights`` is None for sums over each group, whose rows are ``values``."""

    rows: KeptRows
    values: Tensor | None
    weights: Tensor | None
    bound: float
    noise: Noise
    purpose: str

    def ask(self, vault: SensitiveVault) -> Tensor:
        """The noised answer, flat."""
        if self.weights is None and self.values is not None:
            return flat(vault.group_sums(self.values, bound=self.bound, noise=self.noise, purpose=self.purpose))
        if self.weights is None:
            raise ValueError(f"expected rows or weights of {self.purpose!r}, got neither; record the run again.")
        return vault.weighted_sum(self.rows, self.weights, bound=self.bound, noise=self.noise, purpose=self.purpose)

    def copied(self, copies: int) -> Question:
        """The same question about so many copies of the people, each of which has columns of its own."""
        dense = torch.stack([self.rows.row(person) for person in range(len(self.rows))])
        blocks = torch.block_diag(*[dense] * copies)
        values, weights = (blocks, None) if self.weights is None else (None, self.weights.repeat(copies, 1))
        return replace(self, rows=KeptRows.of(blocks), values=values, weights=weights)

    def split(self, answer: Tensor, copies: int) -> Tensor:
        """(copies, d) the answer for each of the copies."""
        return answer.view(-1, copies, self.rows.width // copies).transpose(0, 1).flatten(1)

    def movements(self, here: int, there: int) -> Tensor:
        """(n,) how far each person moves the answer by leaving one group for another."""
        lengths = self.rows.lengths()
        lengths = torch.where(torch.isfinite(lengths), lengths.clamp_max(self.bound), 0.0)
        if self.weights is None:
            return math.sqrt(2) * lengths
        return lengths * (self.weights[:, there] - self.weights[:, here]).abs().double()

    def movement(self, person: int, here: int, there: int, n_groups: int) -> Tensor:
        """The flat vector by which one person moves the answer of :meth:`ask`."""
        row = self.rows.row(person)
        row = (
            row * min(1.0, self.bound / max(float(row.norm()), 1e-300)) if bool(torch.isfinite(row).all()) else 0 * row
        )
        if self.weights is not None:
            return row * float(self.weights[person, there] - self.weights[person, here])
        blocks = torch.zeros(n_groups + 1, len(row), dtype=torch.float64)
        blocks[here] -= row
        blocks[there] += row
        return blocks.flatten()


def flat(sums: Tensor) -> Tensor:
    """Sums over groups as one vector, with the block of "not given", which is public then."""
    return torch.cat([sums, -sums.sum(0, keepdim=True)]).flatten()


class WatchedVault(SensitiveVault):
    """A vault that keeps what it was asked and what it answered, which is what any vault answers."""

    __slots__ = ("answers", "questions")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.questions: list[Question] = []
        self.answers: list[Tensor] = []

    def group_sums(self, values: Tensor | DenseSource, *, bound: float, noise: Noise, purpose: str) -> Tensor:
        """As in a vault."""
        dense = values if isinstance(values, Tensor) else torch.cat([rows for _, rows in values.dense()])
        dense = (dense[:, None] if dense.dim() == 1 else dense).detach().double().clone()
        self.questions.append(Question(KeptRows.of(dense), dense, None, bound, noise, purpose))
        answer = super().group_sums(values, bound=bound, noise=noise, purpose=purpose)
        self.answers.append(flat(answer))
        return answer

    def weighted_sum(
        self,
        values: Tensor | RowSource,
        weights: Tensor,
        *,
        bound: float,
        noise: Noise,
        purpose: str,
    ) -> Tensor:
        """As in a vault."""
        source = TensorRows(values.detach().double()) if isinstance(values, Tensor) else values
        rows = KeptRows(source.width, tuple(source.chunks()))
        self.questions.append(Question(rows, None, weights.clone(), bound, noise, purpose))
        answer = super().weighted_sum(values, weights, bound=bound, noise=noise, purpose=purpose)
        self.answers.append(answer)
        return answer


class WatchedClassifier(LagrangianDualClassifier):
    """The estimator with a vault that keeps questions and answers."""

    def _open_vault(self, attribute: Attribute, **given: Any) -> SensitiveVault:  # type: ignore[override]
        plain = open_vault(attribute, **given)
        self.watched_ = WatchedVault(
            attribute,
            groups=self.groups,
            ledger=given["ledger"],
            noise_source=plain.noise_source,
            missing_marker=self.missing_marker,
        )
        return self.watched_


@dataclass(frozen=True)
class Canary:
    """A person and the two groups between which they are to be told apart."""

    person: int
    here: int
    there: int


@dataclass(frozen=True, eq=False)
class Recording:
    """One fitted model, the questions of its training, and everybody's true group: exact, and not for publication."""

    model: LagrangianDualClassifier
    questions: tuple[Question, ...]
    codes: Codes
    names: tuple[str, ...]

    @property
    def epsilon(self) -> float:
        """What the certificate says, or the claim that a published analysis makes in its place."""
        certificate = self.model.certificate_
        claim = certificate.claim or {}
        return float(claim.get("epsilon", certificate.epsilon))

    def neighbours(self, canary: Canary) -> tuple[Codes, Codes]:
        """Everybody's group, with the canary in either of theirs."""
        one, other = self.codes.copy(), self.codes.copy()
        one[canary.person], other[canary.person] = canary.here, canary.there
        return one, other


def record(model: LagrangianDualClassifier, X: Any, y: Any, sensitive_features: Any, *, seed: int | None) -> Recording:
    """Fit once and keep the questions; the model passed in is not changed. A seed makes this fit repeatable."""
    open_book = PrivacyLedger(epsilon=math.inf, delta=0.0)
    reader = SensitiveVault(
        sensitive_features, groups=model.groups, ledger=open_book, missing_marker=model.missing_marker
    )
    codes = reader.reveal(purpose="audit: the auditor knows everybody's attribute")
    noise_seed = seed if model.noise_seed is None else model.noise_seed
    twin = WatchedClassifier(**neutral(model, reader.n_groups, seed or 0) | {"noise_seed": noise_seed})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin.fit(X, y, sensitive_features=labels(codes, reader.n_groups))
    questions = tuple(twin.watched_.questions)
    del twin.watched_
    return Recording(twin, questions, codes, (*reader.group_names, "not given"))


def neutral(model: LagrangianDualClassifier, n_groups: int, seed: int) -> dict[str, Any]:
    """The model's parameters with groups 0 .. G - 1, a fixed public seed and no progress bar."""
    chosen: dict[str, Any] = model.get_params(deep=False)
    state = seed if model.random_state is None else model.random_state
    return chosen | {
        "groups": tuple(range(n_groups)),
        "missing_marker": None,
        "progress": False,
        "random_state": state,
    }


def labels(codes: Codes, n_groups: int) -> list[int | None]:
    """Codes as labels of the groups 0 .. G - 1; G is "not given"."""
    return [None if code == n_groups else int(code) for code in codes]


def worst_canary(questions: Sequence[Question], n_groups: int, person: int | None = None) -> Canary:
    """The person, or for a given person the two groups, that move the answers most in units of their noise.

    Public rows, noised weights and public bounds decide; nobody's attribute does.
    """
    best, found = -1.0, Canary(0, 0, 1)
    for here in range(n_groups + 1):
        for there in range(here + 1, n_groups + 1):
            total = torch.stack([q.movements(here, there).square() / noise_scale(q) ** 2 for q in questions]).sum(0)
            one = int(total.argmax()) if person is None else person
            if float(total[one]) > best * (1 + 1e-9):
                best, found = float(total[one]), Canary(one, here, there)
    return found


def most_exposed(recording: Recording, canary: Canary, at_most: int) -> list[int]:
    """The people who move the answers most between the canary's two groups, by public numbers."""
    parts = [q.movements(canary.here, canary.there).square() / noise_scale(q) ** 2 for q in recording.questions]
    order = torch.stack(parts).sum(0).argsort(descending=True)
    return [int(person) for person in order[:at_most]]


def noise_scale(question: Question) -> float:
    """Standard deviation of the noise as claimed, from public numbers; infinite where nobody moves the answer."""
    spread = math.sqrt(2)
    if question.weights is not None:
        low, high = question.weights.double().aminmax(dim=1)
        spread = float((high - low).max())
    return float(getattr(question.noise, "noise_multiplier", 0.0)) * question.bound * spread or math.inf


def movement_rows(question: Question, people: NDArray[np.int64], canary: Canary, n_groups: int) -> Tensor:
    """(m, d) how each of these people moves the answer."""
    rows = [question.movement(int(person), canary.here, canary.there, n_groups) for person in people]
    return torch.stack(rows)


class Silent(NoiseSource):
    """No noise: for what the answer is before it."""

    description = "none: exact answers for the auditor"

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        """Zeros, which nothing asks for."""
        del release, stream
        return np.zeros(size, dtype=np.uint64)

    def add_gaussian(self, exact: Tensor, std: float, *, release: int) -> Tensor:
        """``exact``."""
        del std, release
        return exact


@dataclass(frozen=True, eq=False)
class Replay:
    """Both neighbours of a canary and what the attacker knows about each question: exact answers and noise."""

    questions: tuple[Question, ...]
    neighbours: tuple[Codes, Codes]
    n_groups: int
    budget: tuple[float, float]
    known: tuple[Tensor, ...]
    towards: tuple[Tensor, ...]

    def log_ratios(self, answers: Sequence[Tensor]) -> Floats:
        """(copies, questions) log likelihood ratio of each noised answer."""
        found = zip(answers, self.known, self.towards, strict=True)
        return torch.stack([(answer - known) @ towards for answer, known, towards in found], dim=-1).numpy()

    def answers(self, neighbour: int, source: NoiseSource, copies: int = 1) -> list[Tensor]:
        """(copies, d) the noised answer to each question."""
        vault = vault_of(np.tile(self.neighbours[neighbour], copies), self.n_groups, self.budget, source)
        return [question.split(question.ask(vault), copies) for question in self.questions]

    def copied(self, copies: int) -> Replay:
        """A replay whose answers are those of so many copies."""
        if copies == 1:
            return self
        return replace(self, questions=tuple(question.copied(copies) for question in self.questions))


def make_replay(recording: Recording, canary: Canary) -> Replay:
    """A replay of what was recorded, for both neighbours of the canary."""
    ledger = recording.model.ledger_
    budget = (ledger.budget_epsilon, ledger.delta)
    return replay_of(recording.questions, recording.neighbours(canary), len(recording.names) - 1, budget)


def replay_of(
    questions: Sequence[Question], neighbours: tuple[Codes, Codes], n_groups: int, budget: tuple[float, float]
) -> Replay:
    """Compute what the attacker knows: the exact answers for both neighbours, by the vault's own code without noise."""
    exact = [exact_answers(questions, codes, n_groups, budget) for codes in neighbours]
    known, towards = [], []
    for question, first, second in zip(questions, *exact, strict=True):
        known.append((first + second) / 2)
        towards.append((second - first) / noise_scale(question) ** 2)
    return Replay(tuple(questions), neighbours, n_groups, budget, tuple(known), tuple(towards))


def exact_answers(
    questions: Sequence[Question], codes: Codes, n_groups: int, budget: tuple[float, float]
) -> list[Tensor]:
    """Every answer before noise."""
    vault = vault_of(codes, n_groups, budget, Silent())
    return [question.ask(vault) for question in questions]


def vault_of(codes: Codes, n_groups: int, budget: tuple[float, float], source: NoiseSource) -> SensitiveVault:
    """A vault of these people with a budget of its own."""
    ledger = PrivacyLedger(epsilon=budget[0], delta=budget[1])
    return SensitiveVault(labels(codes, n_groups), groups=tuple(range(n_groups)), ledger=ledger, noise_source=source)
