"""One fit from its checks to its result: the only owner of the vault.

A session checks what can be checked without the attribute, opens ledger, vault and run, trains, and checks what was
spent. The estimator, a curve and a search all use it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from justitia.exceptions import warn_of
from justitia.preprocessing.tables import public_seed
from justitia.privacy.accounting import UnboundedCost, epsilon_spent
from justitia.privacy.attribute import HeldElsewhere
from justitia.privacy.certificate import Certificate
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.interface import Vault, VaultRequest
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.vault import ledger_or_new, open_vault, warn_large_delta
from justitia.training.checkpoint import Checkpoint, RunFolder
from justitia.training.method import AnswersRefuse, Array, Method, Run, Trained, progress_bar
from justitia.training.plan import Plan

#: Layout of the state in a checkpoint; a folder with another one belongs to another version.
LAYOUT = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Settings:
    """What one fit is to do. Everything here is public but the noise seed, which is never shown.

    Parameters
    ----------
    plan : Plan
        Before its noise is calibrated.
    seed : int
        Of public randomness.
    features : iterable of str
        Names of public columns; the attribute must not be one of them.
    remarks : tuple of str
        Diagnostics of the public rows.
    open_vault : callable
        :func:`justitia.privacy.vault.open_vault`, or what audits put in its place to record queries.
    rows : str
        A hash of the public rows, by which another fit of them is recognised; empty where there is none.
    """

    plan: Plan
    epsilon: float
    delta: float
    groups: Any
    seed: int
    tolerance: float | Array | None = None
    missing_marker: Hashable = None
    missing: str = "allowed"
    noise_seed: int | None = field(default=None, repr=False)
    progress: bool | None = False
    features: Iterable[str] = ()
    remarks: tuple[str, ...] = ()
    open_vault: Callable[[Any, VaultRequest], Vault] = open_vault
    rows: str = ""

    @classmethod
    def from_model(
        cls, model: Any, plan: Plan, *, tolerance: Any = None, remarks: tuple[str, ...] = (), rows: str = ""
    ) -> Settings:
        """The settings of an estimator, with its tolerance, or tolerances of all rates."""
        return cls(
            plan=plan,
            epsilon=float(model.epsilon),
            delta=float(model.delta),
            groups=model.groups,
            seed=public_seed(model.random_state),
            tolerance=tolerance,
            missing_marker=model.missing_marker,
            missing=model.missing,
            noise_seed=model.noise_seed,
            progress=model.progress,
            features=getattr(model, "feature_names_in_", ()),
            remarks=remarks,
            open_vault=model._open_vault,
            rows=rows,
        )

    def vault(self, attribute: Any, method: Method, *, person: Any, ledger: PrivacyLedger) -> Vault:
        """The vault of one run: the attribute ends here."""
        source = method.problem.source
        request = VaultRequest(
            groups=self.groups,
            epsilon=self.epsilon,
            ledger=ledger,
            n=source.n,
            person=person,
            features=self.features,
            noise_seed=self.noise_seed,
            missing_marker=self.missing_marker,
            missing=self.missing,
            source=source,
        )
        return self.open_vault(attribute, request)


@dataclass(frozen=True, eq=False)
class Session:
    """One fit between its checks and its result."""

    settings: Settings
    method: Method
    plan: Plan
    ledger: PrivacyLedger
    vault: Vault
    run: Run
    saved: Checkpoint | None

    def warn(self, *, stacklevel: int) -> None:
        """Warn of what can be seen before the first query."""
        settings = self.settings
        n = self.method.problem.rows
        warn_large_delta(settings.epsilon, settings.delta, n, stacklevel=stacklevel + 1)
        for sentence in self.run.preflight():
            warn_of(sentence, stacklevel=stacklevel + 1)

    def train(self, start: Array | None = None) -> Trained:
        """Carry the plan out; a run that follows another one starts from its multipliers.

        Raises
        ------
        ValueError
            If the first noised answers show that the run cannot work; it says what they have cost.
        """
        try:
            bar = partial(progress_bar, self.settings.progress)
            return self.run.train(bar, start=start, checkpoint=self.saved)
        except AnswersRefuse as refused:
            epsilon = epsilon_spent(self.vault.spent, self.settings.delta)
            digits = 0 if not 0 < epsilon < math.inf else 2 - math.floor(math.log10(epsilon))
            spent = math.ceil(epsilon * 10.0**digits) / 10.0**digits if math.isfinite(epsilon) else epsilon
            budget = f"epsilon {self.settings.epsilon:g} (delta {self.settings.delta:g})"
            raise ValueError(
                f"{refused} This check has spent epsilon {spent:g} of this run's budget of {budget}, and it stays "
                "spent."
            ) from None

    def follow(self, last: Session, tolerance: float) -> Session:
        """The session of a model with another tolerance, on this one's answers; it goes on from the last."""
        return replace(last, plan=self.plan.following(tolerance), run=last.run.at(tolerance))

    def repeated(self, attribute: Any, *, person: Any, ledger: PrivacyLedger, noise_seed: int | None) -> Session:
        """The same fit once more with noise of its own, of a session that has not trained yet.

        What is public is shared: neither the base model nor anything else is learned a second time.
        """
        settings = replace(self.settings, noise_seed=noise_seed)
        vault = settings.vault(attribute, self.method, person=person, ledger=ledger)
        run = self.method.run(self.plan, vault, tolerance=settings.tolerance)
        return replace(self, settings=settings, ledger=ledger, vault=vault, run=run)

    def close(self) -> None:
        """End worker processes and remove temporary files, if there are any."""
        self.method.problem.source.close()

    def check_spent(self) -> None:
        """What the plan announced equals what the ledger recorded."""
        # By the vault, since others may debit the same ledger meanwhile; a run that was resumed has a vault that did
        # not see its first debits, and a ledger, or a name on one, of its own.
        spent, planned = self.vault.spent if self.saved is None else self.ledger.own_costs(), self.plan.costs()
        # An infinite cost counts once, however often it was charged.
        counts = [
            {cost: 1 if cost == UnboundedCost() else count for cost, count in costs.items()}
            for costs in (spent, planned)
        ]
        if counts[0] != counts[1]:
            raise RuntimeError("The ledger does not hold what the plan announced; please report this as a defect.")

    def certificate(self) -> Certificate:
        """What is promised, the tolerance in force, and diagnostics."""
        planned = sum(self.plan.costs().values())
        certificate = self.vault.certificate(planned=planned, claim=getattr(self.plan, "claim", None))
        remarks = (*self.settings.remarks, *self.run.diagnostics(), *self.run.learned_diagnostics())
        return replace(certificate, tolerance=self.run.tolerance, remarks=remarks)


def open_session(
    settings: Settings,
    method: Method,
    attribute: Any,
    *,
    person: Any = None,
    ledger: PrivacyLedger | None = None,
    folder: RunFolder | None = None,
) -> Session:
    """Check everything that can be checked without the attribute, and open ledger, vault and run."""
    method.check()
    plan = settings.plan.at_tolerance(None if isinstance(settings.tolerance, np.ndarray) else settings.tolerance)
    plan = plan.calibrate(settings.epsilon, settings.delta, n=method.problem.rows)
    held_elsewhere = isinstance(attribute, HeldElsewhere)
    if held_elsewhere and not plan.shares_answers:
        raise ValueError(
            "expected engine 'post-processing' or 'moments' where a custodian holds the attribute, got another; it "
            "gives noised sums only."
        )
    ledger = open_ledger(settings, plan, ledger, folder)
    vault = settings.vault(attribute, method, person=person, ledger=ledger)
    saved = None
    if folder is None:
        vault.check(plan.costs())
    else:
        saved = open_checkpoint(settings, folder, plan, method, vault, ledger)
        if isinstance(ledger, DurableLedger) or held_elsewhere:
            vault.check(plan.costs() - ledger.own_costs())
    method.prepare(partial(progress_bar, settings.progress))  # public, and last: it takes time
    run = method.run(plan, vault, tolerance=settings.tolerance)
    return Session(settings, method, plan, ledger, vault, run, saved)


def open_ledger(
    settings: Settings, plan: Plan, ledger: PrivacyLedger | None, folder: RunFolder | None
) -> PrivacyLedger:
    """The user's ledger, or a new one for this run's budget that holds what an interrupted run has spent."""
    if folder is not None:
        ledger = folder.ledger_of_run(ledger)
    budget = math.inf if UnboundedCost() in plan.costs() else settings.epsilon
    if ledger is None and folder is not None:
        # Reading a journal that does not exist yet writes nothing: a run that fails its checks leaves no folder.
        return PrivacyLedger(epsilon=budget, delta=settings.delta, journal=folder.journal)
    return ledger_or_new(ledger, epsilon=budget, delta=settings.delta)


def open_checkpoint(
    settings: Settings, folder: RunFolder, plan: Plan, method: Method, vault: Vault, ledger: PrivacyLedger
) -> Checkpoint:
    """The folder of this run; its fingerprint is a hash of public facts, the attribute is not among them."""
    digest, problem = hashlib.sha256(), method.problem
    proxy = () if problem.proxy is None else (problem.proxy,)
    for array in (problem.X, problem.y, problem.weight, *proxy):
        digest.update(np.ascontiguousarray(array).data)
    given = settings.tolerance
    budget = (settings.epsilon, settings.delta, given.tolist() if isinstance(given, np.ndarray) else given)
    # Whether noise is seeded is part of the run: a certificate cannot speak of two sources of noise. The seed is not:
    # all the rest is public, so whoever has the hash could try one seed after another.
    seeded = settings.noise_seed is not None
    persons = (vault.group_names, vault.persons_digest)
    goal = method.goal_facts()
    public = (LAYOUT, problem.rows, plan, goal, budget, persons, settings.missing_marker, seeded, method.shape())
    digest.update(repr(public).encode())
    if vault.missing == "none":  # runs that were begun without it have no word for it
        digest.update(b"missing=none")
    return Checkpoint(folder, fingerprint=digest.hexdigest(), ledger=ledger, rows=len(problem))
