"""One fit from its checks to its result: the only owner of the vault.

Check what can be checked without the attribute, open ledger, vault and engine, train, check what was spent. The
estimator, a curve and a search all go this way.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from justitia.exceptions import warn_of
from justitia.preprocessing.tables import public_seed
from justitia.privacy.accounting import Cost, UnboundedCost, epsilon_spent
from justitia.privacy.attribute import Attribute, AttributeStream, HeldElsewhere
from justitia.privacy.certificate import Certificate
from justitia.privacy.door import ledger_or_new, open_vault, warn_large_delta
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.interface import Vault
from justitia.privacy.ledger import PrivacyLedger
from justitia.training.checkpoint import RUN_FILE, Checkpoint, RunFolder
from justitia.training.engine import AnswersRefuse, Array, Engine
from justitia.training.lagrangian import Problem
from justitia.training.learner import Learner, Trained
from justitia.training.plan import Plan
from justitia.training.progress import progress_bar
from justitia.training.remarks import decisions_remarks, gap_remark, value


@dataclass(frozen=True, kw_only=True, eq=False)
class Settings:
    """What one fit is to do; all of it public but the noise seed, which is never shown.

    Parameters
    ----------
    plan : Plan
        Before its noise is calibrated.
    seed : int
        Of public randomness.
    features : iterable of str
        Names of public columns, which the attribute must not be among.
    remarks : tuple of str
        What public rows have shown already.
    open_vault : callable
        Another door, for audits that watch what is asked.
    rows : str
        A hash of the public rows, by which another fit of them is recognised; empty where that is not asked for.
    """

    plan: Plan
    epsilon: float
    delta: float
    groups: Any
    seed: int
    tolerance: float | None = None
    missing_marker: Hashable = None
    noise_seed: int | None = field(default=None, repr=False)
    progress: bool | None = False
    features: Iterable[str] = ()
    remarks: tuple[str, ...] = ()
    open_vault: Callable[..., Vault] = open_vault
    rows: str = ""

    @classmethod
    def of(
        cls, model: Any, plan: Plan, door: Callable[..., Vault], remarks: tuple[str, ...] = (), rows: str = ""
    ) -> Settings:
        """Those of an estimator, which goes through this door; remarks on its public rows, and their hash."""
        return cls(
            plan=plan,
            epsilon=float(model.epsilon),
            delta=float(model.delta),
            groups=model.groups,
            seed=public_seed(model.random_state),
            tolerance=None if model.tolerance is None else float(model.tolerance),
            missing_marker=model.missing_marker,
            noise_seed=model.noise_seed,
            progress=model.progress,
            features=getattr(model, "feature_names_in_", ()),
            remarks=remarks,
            open_vault=door,
            rows=rows,
        )

    def calibrated(self, n: int) -> Plan:
        """The plan for this tolerance and budget."""
        return self.plan.at_tolerance(self.tolerance).calibrate(self.epsilon, self.delta, n=n)

    def bar(self, total: int, name: str) -> tqdm[Any]:
        """A progress bar; by default only in a terminal."""
        return progress_bar(self.progress, total, name)


@dataclass(frozen=True, eq=False)
class Session:
    """What one fit works with between its checks and its result."""

    settings: Settings
    learner: Learner[Any]
    problem: Problem
    plan: Plan
    ledger: PrivacyLedger
    vault: Vault
    engine: Engine
    saved: Checkpoint | None

    def warn(self, *, stacklevel: int) -> None:
        """What can be said before anything is asked."""
        settings = self.settings
        warn_large_delta(settings.epsilon, settings.delta, self.problem.rows, stacklevel=stacklevel + 1)
        for sentence in self.engine.outlook():
            warn_of(sentence, stacklevel=stacklevel + 1)

    def train(self, start: Array | None = None) -> Trained:
        """Carry the plan out; a run that follows another one starts from its multipliers.

        Raises
        ------
        ValueError
            If the first noised answers say that the run cannot work; it says what they have cost.
        """
        bar = self.settings.bar
        try:
            return self.learner.train(self.problem, self.plan, self.engine, bar, start=start, checkpoint=self.saved)
        except AnswersRefuse as refused:
            raise ValueError(f"{refused} {self._spent()}") from None

    def _spent(self) -> str:
        """What this run has spent so far, as a sentence; rounded up."""
        epsilon = epsilon_spent(self.vault.spent, self.settings.delta)
        digits = 0 if not 0 < epsilon < math.inf else 2 - math.floor(math.log10(epsilon))
        told = math.ceil(epsilon * 10.0**digits) / 10.0**digits if math.isfinite(epsilon) else epsilon
        budget = f"epsilon {self.settings.epsilon:g} (delta {self.settings.delta:g})"
        return f"This check has spent epsilon {told:g} of this run's budget of {budget}, and it stays spent."

    def follow(self, last: Session, tolerance: float) -> Session:
        """The session of a model with another tolerance, made of this one's answers; it goes on from the last."""
        plan, engine = self.plan.following(tolerance), last.engine.at(tolerance)
        return replace(last, learner=last.learner.follower(), plan=plan, engine=engine)

    def repeated(self, attribute: Attribute, *, person: Any, ledger: PrivacyLedger, noise_seed: int | None) -> Session:
        """The same fit once more with noise of its own, of a session that has not trained yet.

        What is public is taken over: neither the base of the label nor anything else is learned a second time.
        """
        settings = replace(self.settings, noise_seed=noise_seed)
        vault = opened_vault(settings, attribute, n=self.problem.rows, person=person, ledger=ledger)
        engine = opened_engine(settings, self.plan, self.problem, vault)
        learner = self.learner.untrained()
        return replace(self, settings=settings, learner=learner, ledger=ledger, vault=vault, engine=engine)

    def check_spent(self) -> None:
        """What the plan said it would cost equals what the ledger recorded."""
        # By the vault, since others may debit the same ledger meanwhile; a run that was resumed has a vault that did
        # not see its first debits, and a ledger, or a name on one, of its own.
        spent = self.vault.spent if self.saved is None else self.ledger.own_costs()
        if _finite_part(spent) != _finite_part(self.plan.costs()):
            raise RuntimeError("The ledger does not hold what the plan announced; please report this as a defect.")

    def certificate(self) -> Certificate:
        """What is promised, the tolerance in force, and remarks."""
        planned = sum(self.plan.costs().values())
        certificate = self.vault.certificate(planned=planned, claim=getattr(self.plan, "claim", None))
        return replace(certificate, tolerance=self.engine.allowed(), remarks=self.remarks())

    def distance(self) -> float | None:
        """Noised distance of the groups' distributions of deployed scores, where they are held alike."""
        return None if self.engine.levels is None else self.engine.distance(self.learner.deployed(self.problem))

    def remarks(self) -> tuple[str, ...]:
        """What public rows, noised answers and the decisions that were learned have shown."""
        problem, engine = self.problem, self.engine
        scores, plain = self.learner.deployed(problem), self.learner.plain(problem)
        learned = decisions_remarks(problem, scores, None if plain is None else value(problem, plain))
        seen = self.learner.unseen(problem, self.plan)
        gap, share = engine.gap(scores[seen], seen), len(problem.y[seen]) / len(problem)
        held = gap_remark(gap, engine.allowed(), engine.gap_noise(share))
        return (*self.settings.remarks, *engine.remarks(), *learned, *held)


def open_session(
    settings: Settings,
    problem: Problem,
    learner: Learner[Any],
    attribute: Attribute | AttributeStream | HeldElsewhere,
    *,
    person: Any = None,
    ledger: PrivacyLedger | None = None,
    folder: RunFolder | None = None,
) -> Session:
    """Check everything that can be checked without the attribute, and open ledger, vault and engine."""
    learner.check(problem, settings.plan)
    n = problem.rows
    plan = settings.calibrated(n)
    if isinstance(attribute, HeldElsewhere) and not plan.shares_answers:
        raise ValueError(
            "expected engine 'post-processing' or 'moments' where a custodian holds the attribute, got another; it "
            "gives noised sums only."
        )
    ledger = open_ledger(settings, plan, ledger, folder)
    vault = opened_vault(settings, attribute, n=n, person=person, ledger=ledger)
    saved = None
    if folder is None:
        vault.check(plan.costs())
    else:
        saved = open_checkpoint(settings, folder, problem, plan, learner, vault, ledger)
        if isinstance(ledger, DurableLedger) or isinstance(attribute, HeldElsewhere):
            vault.check(plan.costs() - ledger.own_costs())
    problem = learner.prepare(problem, plan, settings.bar)  # public, and last: it takes time
    engine = opened_engine(settings, plan, problem, vault)
    return Session(settings, learner, problem, plan, ledger, vault, engine, saved)


def opened_vault(
    settings: Settings,
    attribute: Attribute | AttributeStream | HeldElsewhere,
    *,
    n: int,
    person: Any,
    ledger: PrivacyLedger,
) -> Vault:
    """The vault of one fit: the attribute ends here."""
    return settings.open_vault(
        attribute,
        groups=settings.groups,
        epsilon=settings.epsilon,
        ledger=ledger,
        n=n,
        person=person,
        features=settings.features,
        noise_seed=settings.noise_seed,
        missing_marker=settings.missing_marker,
    )


def opened_engine(settings: Settings, plan: Plan, problem: Problem, vault: Vault) -> Engine:
    """The engine of one fit."""
    return plan.engine(problem, vault, tolerance=settings.tolerance, seed=settings.seed)


def open_ledger(
    settings: Settings, plan: Plan, ledger: PrivacyLedger | None, folder: RunFolder | None
) -> PrivacyLedger:
    """The user's ledger, or a new one for this run's budget that holds what an interrupted run has spent."""
    if folder is not None:
        ledger = _resumable(ledger, folder)
    unbounded = any(isinstance(cost, UnboundedCost) for cost in plan.costs())
    budget = math.inf if unbounded else settings.epsilon
    if ledger is None and folder is not None:
        # Reading a journal that does not exist yet writes nothing: a run that fails its checks leaves no folder.
        return PrivacyLedger(epsilon=budget, delta=settings.delta, journal=folder.journal)
    return ledger_or_new(ledger, epsilon=budget, delta=settings.delta)


def _resumable(ledger: PrivacyLedger | None, folder: RunFolder) -> PrivacyLedger | None:
    """A durable ledger under the name of the folder's run, or none if the folder keeps its own ledger."""
    if isinstance(ledger, DurableLedger):
        if folder.journal.exists():
            raise ValueError(f"the checkpoint in {str(folder.path)!r} keeps its own ledger; resume it without ledger.")
        return ledger.for_run(folder.run_name())
    if ledger is not None:
        raise ValueError(
            "a checkpoint keeps its own ledger; pass either checkpoint or ledger, not both, or a DurableLedger."
        )
    if (folder.path / RUN_FILE).exists():
        raise ValueError(
            f"the run in {str(folder.path)!r} debits a DurableLedger; pass that one as ledger to resume it."
        )
    return None


def open_checkpoint(
    settings: Settings,
    folder: RunFolder,
    problem: Problem,
    plan: Plan,
    learner: Learner[Any],
    vault: Vault,
    ledger: PrivacyLedger,
) -> Checkpoint:
    """The folder of this run; its fingerprint is a hash of public facts, the attribute is not among them."""
    digest = hashlib.sha256()
    for array in (problem.X, problem.y, problem.weight):
        digest.update(np.ascontiguousarray(array).data)
    notion = (problem.notion.name, problem.notion.event_names)
    budget = (settings.epsilon, settings.delta, settings.tolerance)
    # Whether noise is seeded is part of the run: a certificate cannot speak of two sources of noise. The seed is not:
    # all the rest is public, so whoever has the hash could try one seed after another.
    seeded = settings.noise_seed is not None
    persons = (vault.group_names, vault.persons_digest)
    rows = () if problem.crowd is None else (problem.rows,)
    public = (*rows, plan, notion, budget, persons, settings.missing_marker, seeded, learner.shape())
    digest.update(repr(public).encode())
    return Checkpoint(folder, fingerprint=digest.hexdigest(), ledger=ledger, rows=len(problem))


def _finite_part(costs: Mapping[Cost, int]) -> dict[Cost, int]:
    """Costs with their counts; an infinite one counts once, however often it was charged."""
    return {cost: 1 if isinstance(cost, UnboundedCost) else count for cost, count in costs.items()}
