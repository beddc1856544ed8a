"""Questions of one ``fit``, recorded, and asked again of the vault for either of two neighbours.

What is recorded are public rows, bounds, noise multipliers and weights: functions of public data and of the noised
answers of that one run. A replay asks the vault's own code, with noise, rounding and ledger; only that later questions
no longer depend on earlier answers is lost.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia.audit.questions import KeptRows, Question, flat, noise_scale
from justitia.estimator import LagrangianDualClassifier
from justitia.privacy.arrays import Floats as Rows
from justitia.privacy.attribute import Attribute
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Noise, NoiseSource
from justitia.privacy.rows import ArrayRows, DenseSource, RowSource
from justitia.privacy.vault import SensitiveVault, open_vault

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


class WatchedVault(SensitiveVault):
    """A vault that keeps what it was asked and what it answered, which is what any vault answers."""

    __slots__ = ("answers", "questions")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.questions: list[Question] = []
        self.answers: list[Floats] = []

    def group_sums(self, values: Rows | DenseSource, *, bound: float, noise: Noise, purpose: str) -> Floats:
        """As in a vault."""
        dense = values if isinstance(values, np.ndarray) else np.concatenate([rows for _, rows in values.dense()])
        dense = (dense[:, None] if dense.ndim == 1 else dense).astype(np.float64)
        self.questions.append(Question(KeptRows.of(dense), dense, None, bound, noise, purpose))
        answer = super().group_sums(values, bound=bound, noise=noise, purpose=purpose)
        self.answers.append(flat(answer))
        return answer

    def weighted_sum(
        self,
        values: Rows | RowSource,
        weights: Rows,
        *,
        bound: float,
        noise: Noise,
        purpose: str,
    ) -> Floats:
        """As in a vault."""
        source = ArrayRows(values.astype(np.float64)) if isinstance(values, np.ndarray) else values
        rows = KeptRows(source.width, tuple(source.chunks()))
        self.questions.append(Question(rows, None, weights.astype(np.float64), bound, noise, purpose))
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
            total = _exposure(questions, here, there)
            one = int(total.argmax()) if person is None else person
            if float(total[one]) > best * (1 + 1e-9):
                best, found = float(total[one]), Canary(one, here, there)
    return found


def _exposure(questions: Sequence[Question], here: int, there: int) -> Floats:
    """(n,) how far each person moves all answers by leaving one group for another, squared, in units of their noise."""
    squares: Floats = np.sum([one.movements(here, there) ** 2 / noise_scale(one) ** 2 for one in questions], axis=0)
    return squares


def most_exposed(recording: Recording, canary: Canary, at_most: int) -> list[int]:
    """The people who move the answers most between the canary's two groups, by public numbers."""
    order = (-_exposure(recording.questions, canary.here, canary.there)).argsort(kind="stable")
    return [int(person) for person in order[:at_most]]


def movement_rows(question: Question, people: NDArray[np.int64], canary: Canary, n_groups: int) -> Rows:
    """(m, d) how each of these people moves the answer."""
    rows = [question.movement(int(person), canary.here, canary.there, n_groups) for person in people]
    return np.stack(rows)


class Silent(NoiseSource):
    """No noise: for what the answer is before it."""

    description = "none: exact answers for the auditor"

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        """Zeros, which nothing asks for."""
        del release, stream
        return np.zeros(size, dtype=np.uint64)

    def add_gaussian(self, exact: Floats, std: float, *, release: int) -> Floats:
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
    known: tuple[Floats, ...]
    towards: tuple[Floats, ...]

    def log_ratios(self, answers: Sequence[Floats]) -> Floats:
        """(copies, questions) log likelihood ratio of each noised answer."""
        found = zip(answers, self.known, self.towards, strict=True)
        return np.stack([(answer - known) @ towards for answer, known, towards in found], axis=-1)

    def answers(self, neighbour: int, source: NoiseSource, copies: int = 1) -> list[Floats]:
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
) -> list[Floats]:
    """Every answer before noise."""
    vault = vault_of(codes, n_groups, budget, Silent())
    return [question.ask(vault) for question in questions]


def vault_of(codes: Codes, n_groups: int, budget: tuple[float, float], source: NoiseSource) -> SensitiveVault:
    """A vault of these people with a budget of its own."""
    ledger = PrivacyLedger(epsilon=budget[0], delta=budget[1])
    return SensitiveVault(labels(codes, n_groups), groups=tuple(range(n_groups)), ledger=ledger, noise_source=source)
