"""What ``fit`` settles before it asks anything: parameters, the ledger, the folder to resume from, and the vault.

Only :func:`open_vault` is handed the sensitive attribute; it passes it on, unread. All else is public.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Hashable, Iterable
from typing import Any

from sklearn.base import BaseEstimator
from torch import nn

from justitia._validate import check_choice, check_fraction, check_int, check_nonnegative, check_same_length
from justitia.dual.checkpoint import RUN_FILE, Checkpoint, RunFolder
from justitia.dual.lagrangian import Problem
from justitia.dual.plan import TrainingPlan
from justitia.dual.plans import DEFAULT_PLANS
from justitia.notions import FairnessNotion, get_notion
from justitia.privacy.accounting import UnboundedCost
from justitia.privacy.attribute import Attribute
from justitia.privacy.durable import DurableLedger
from justitia.privacy.grid import check_deliverable
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import NoiseSource, SeededNoise, SystemNoise
from justitia.privacy.persons import Persons
from justitia.privacy.vault import INFER, SensitiveVault


def check_parameters(model: BaseEstimator) -> tuple[FairnessNotion, TrainingPlan]:
    """Everything about the constructor's arguments that can be wrong without looking at data."""
    notion = get_notion(model.notion)
    engine = check_choice("engine", model.engine, DEFAULT_PLANS)
    default = DEFAULT_PLANS[engine]
    plan = default if model.plan is None else model.plan
    if not isinstance(plan, type(default)):
        raise TypeError(
            f"expected a {type(default).__name__} for engine {engine!r}, got {type(plan).__name__}; "
            "pass a plan of that kind, or none."
        )
    check_budget(model.epsilon, model.delta)
    named_groups(model.groups, float(model.epsilon))
    if model.tolerance is not None:
        check_nonnegative("tolerance", model.tolerance)
    if model.preprocess is not None:
        check_choice("preprocess", model.preprocess, ("auto",))
    if model.noise_seed is not None:
        check_int("noise_seed", model.noise_seed, at_least=0)
    if not (model.progress is None or isinstance(model.progress, bool)):
        raise TypeError(f"expected progress to be True, False or None, got {type(model.progress).__name__!r}.")
    return notion, plan


def named_groups(groups: Any, epsilon: float) -> Any:
    """The public list of groups, which a finite epsilon needs: one read off the data tells about the attribute."""
    if groups is not None:
        return groups
    if math.isinf(epsilon):
        return INFER
    raise ValueError(
        "expected the public list of groups, got None; name them, such as groups=['f', 'm'], or pass groups='infer' to "
        "read the list off the data, which does not protect it."
    )


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse a budget that no Gaussian release fits into."""
    if check_nonnegative("epsilon", epsilon, allow_inf=True) == 0:
        raise ValueError("epsilon=0 allows no question about groups at all; use a positive epsilon.")
    if check_fraction("delta", delta, example=1e-5) == 0 and not math.isinf(epsilon):
        raise ValueError("delta=0 rules out Gaussian noise; use a small positive delta such as 1e-5.")
    check_deliverable(float(epsilon), float(delta))


def open_vault(
    sensitive_features: Any,
    *,
    groups: Any,
    epsilon: float,
    ledger: PrivacyLedger,
    n: int,
    person: Any = None,
    features: Iterable[str] = (),
    noise_seed: int | None = None,
    missing_marker: Hashable = None,
) -> SensitiveVault:
    """A ends here: the one way of the attribute into a vault.

    Parameters
    ----------
    epsilon : float
        Of what is about to be asked; a finite one needs named groups.
    n : int
        Number of public rows.
    person : array-like (n,), optional
        Public ids: everything is then promised to persons instead of rows.
    features : iterable of str
        Names of public columns, which the attribute must not be among.
    """
    attribute = Attribute.of(sensitive_features)
    check_same_length(X=range(n), sensitive_features=range(len(attribute)))
    people = None if person is None else Persons.of(person)
    if people is not None:
        people.check_rows(n)
    shared = sorted({name for name in attribute.names if name is not None} & {str(name) for name in features})
    if shared:
        raise ValueError(
            f"the column {shared[0]!r} is both a feature and a sensitive attribute; drop it from X, "
            "so that it is not an input at prediction time."
        )
    return SensitiveVault(
        attribute,
        groups=named_groups(groups, epsilon),
        ledger=ledger,
        people=people,
        noise_source=noise_from(noise_seed),
        missing_marker=missing_marker,
    )


def noise_from(seed: int | None) -> NoiseSource:
    """The operating system's generator, or noise that can be drawn again."""
    return SystemNoise() if seed is None else SeededNoise(check_int("noise_seed", seed, at_least=0))


def warn_large_delta(model: BaseEstimator, n: int) -> None:
    """Warn of a delta that lets a mechanism publish the attribute of one of n rows and still keep its promise."""
    if model.delta >= 1 / n and not math.isinf(model.epsilon):
        warnings.warn(
            f"delta={model.delta:g} is not below 1/n = {1 / n:.2g}: such a guarantee allows the attribute "
            "of one row to be published; choose a smaller delta.",
            stacklevel=3,
        )


def open_ledger(
    model: BaseEstimator,
    plan: TrainingPlan,
    ledger: PrivacyLedger | None,
    checkpoint: RunFolder | None,
) -> PrivacyLedger:
    """The user's ledger, or a new one for this run's budget that holds what an interrupted run has spent."""
    if checkpoint is not None:
        ledger = _resumable(ledger, checkpoint)
    if isinstance(ledger, PrivacyLedger):
        return ledger
    if ledger is not None:
        raise TypeError(f"expected ledger to be a PrivacyLedger, got {type(ledger).__name__!r}; make one first.")
    unbounded = any(isinstance(cost, UnboundedCost) for cost in plan.costs())
    budget = math.inf if unbounded else float(model.epsilon)
    # Reading a journal that does not exist yet writes nothing: a run that fails its checks leaves no folder.
    journal = None if checkpoint is None else checkpoint.journal
    return PrivacyLedger(epsilon=budget, delta=float(model.delta), journal=journal)


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
    model: BaseEstimator,
    folder: RunFolder,
    problem: Problem,
    plan: TrainingPlan,
    module: nn.Module,
    vault: SensitiveVault,
    ledger: PrivacyLedger,
) -> Checkpoint:
    """The folder of this run; its fingerprint is a hash of public facts, the attribute is not among them."""
    digest = hashlib.sha256()
    for tensor in (problem.X, problem.y, problem.weight):
        digest.update(tensor.numpy().tobytes())
    shapes = [tuple(parameter.shape) for parameter in module.parameters()]
    notion = (problem.notion.name, problem.notion.event_names)
    tolerance = None if model.tolerance is None else float(model.tolerance)
    budget = (float(model.epsilon), float(model.delta), tolerance)
    # Whether noise is seeded is part of the run: a certificate cannot speak of two sources of noise. The seed is not:
    # all the rest is public, so whoever has the hash could try one seed after another.
    people = (vault.group_names, vault.persons)
    public = (plan, notion, budget, people, model.missing_marker, model.noise_seed is not None, shapes)
    digest.update(repr(public).encode())
    return Checkpoint(folder, fingerprint=digest.hexdigest(), ledger=ledger)
