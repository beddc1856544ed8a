"""Every engine and what its contract has to know about it; a new one joins with one entry of :data:`ENGINES`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from justitia import LagrangianDualClassifier, MomentsPlan, PFLDAsPublishedPlan, PFLDPlan, PostProcessingPlan
from justitia.learners.base import Inputs
from justitia.learners.lightgbm_base import LightGBMBase
from justitia.networks.method import ENGINES as PRIMAL_DUAL_ENGINES
from justitia.networks.method import NetworkMethod
from justitia.networks.multilayer import multilayer
from justitia.networks.plan import TrainingPlan
from justitia.notions import FairnessNotion, get_notion
from justitia.postprocessing.solver import PostProcessing
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, NoiseSource, SeededNoise
from justitia.privacy.vault import SensitiveVault
from justitia.training.lagrangian import Problem
from justitia.training.method import Method, Run, Trained
from justitia.training.plan import Plan

#: What the loop of Algorithm 1 calls of an engine; which of these query the vault is part of an engine's case.
LOOP = ("query_before", "query_after", "row_weights", "constraint", "dual_rows", "gap", "ascend", "compares", "excess")
SHORT: dict[str, Any] = {"warmup_steps": 6, "batch_size": 32, "warmup_learning_rate": 0.02, "learning_rate": 0.01}


@dataclass(frozen=True)
class Case:
    """One engine.

    Parameters
    ----------
    name : str
        As ``LagrangianDualClassifier(engine=...)`` has it.
    plan : Plan
        A few rounds; in ``exact`` nothing but Algorithm 1 is left, on all rows (engines that train a network).
    queries : dict
        Purpose of each query, and the call that makes it.
    reveals : bool
        Whether it computes with the attribute itself, so that no finite epsilon vouches for it.
    noise : callable
        Multipliers of a calibrated plan's noise.
    violation, term : callable
        Of the non-private algorithm: what the dual step uses, from soft and hard differences mu(D_G) - mu(D_P); and
        what a multiplier is multiplied with in the Lagrangian.
    lowest : float
        Multipliers lie between this times lambda_max and lambda_max.
    first_dual : int
        First round with a dual step.
    """

    name: str
    plan: Plan
    exact: TrainingPlan | None
    queries: dict[str, str]
    noise: Callable[[Any], list[float]]
    reveals: bool = False
    violation: Callable[[Tensor, Tensor], Tensor] = lambda soft, hard: hard
    term: Callable[[Tensor], Tensor] = lambda soft: soft
    lowest: float = -1.0
    first_dual: int = 1

    @property
    def later_saves(self) -> int:
        """How often a run is saved after its second time."""
        return len(self.plan.schedule(90)) - 1 if isinstance(self.plan, TrainingPlan) else self.plan.checks - 1


def _multipliers(*names: str) -> Callable[[Any], list[float]]:
    def read(plan: Any) -> list[float]:
        noises = [getattr(plan, name) for name in names]
        return [one.noise_multiplier if isinstance(one, Gaussian) else 0.0 for one in noises]

    return read


FULL: dict[str, Any] = SHORT | {
    "warmup_steps": 60,
    "batch_size": 1000,
    "averaging": 1.0,
    "dual_step": 0.7,
    "dual_decay": 0.1,
}
ENGINES = {
    case.name: case
    for case in (
        Case(
            "post-processing",
            PostProcessingPlan(checks=3),
            None,
            {"moments": "train", "decisions": "train"},
            _multipliers("noise_moments", "noise_checks"),
        ),
        Case(
            "moments",
            MomentsPlan(**SHORT, rounds=6, public_steps=2, checks=2, candidates=2, averaging=0.5),
            MomentsPlan(**FULL, rounds=5, public_steps=2, checks=0, candidates=0, penalty=0.0, damping=0.0),
            {"moments": "query_before", "decisions": "query_after"},
            _multipliers("noise_moments", "noise_checks"),
        ),
        Case(
            "pf-ld",
            PFLDPlan(**SHORT, private_steps=3, public_steps=2, averaging=0.5),
            PFLDPlan(**FULL, private_steps=5, public_steps=1, memory=0.0),
            {"group sizes": "query_before", "group gradient": "query_before", "violation": "query_after"},
            _multipliers("noise_sizes", "noise_violations", "noise_gradients"),
            first_dual=0,
        ),
        Case(
            "pf-ld-as-published",
            PFLDAsPublishedPlan(**SHORT, warmup_epochs=0, epochs=3),
            PFLDAsPublishedPlan(**FULL, warmup_epochs=0, epochs=5, loss_dual_step=FULL["dual_step"]),
            {"exact attribute, read by the printed method": "query_before"},
            lambda plan: [plan.sigma_p, plan.sigma_d],
            reveals=True,
            violation=lambda soft, hard: soft.abs(),
            term=lambda soft: soft.abs(),
            lowest=0.0,
        ),
    )
}


def _those(chosen: Callable[[Case], bool]) -> Any:
    return pytest.mark.parametrize(
        "case", [case for case in ENGINES.values() if chosen(case)], ids=lambda case: case.name
    )


every_engine = _those(lambda case: True)
private_engines = _those(lambda case: not case.reveals)
revealing_engines = _those(lambda case: case.reveals)
network_engines = _those(lambda case: isinstance(case.plan, TrainingPlan))


@dataclass(frozen=True)
class People:
    """A few rows with three features; some have no group."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    a: list[str | None]
    groups: tuple[str, ...] = ("f", "m", "x")

    def flipped(self, row: int, label: str | None) -> People:
        """The neighbour in which the label of one row is another."""
        return replace(self, a=[*self.a[:row], label, *self.a[row + 1 :]])


def people(n: int = 90) -> People:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(n, 3))
    y = (X[:, 0] + 0.6 * rng.normal(size=n) > 0).astype(np.int64)
    place = np.argsort(np.argsort(X[:, 0] + 0.5 * X[:, 1] + 0.5 * rng.normal(size=n))) * 3 // n
    return People(X, y, [None if i % 8 == 5 else "fmx"[code] for i, code in enumerate(place)])


def model(case: Case, **changes: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {
        "epsilon": 8.0,
        "groups": ("f", "m", "x"),
        "engine": case.name,
        "plan": case.plan,
        "module": (4,) if isinstance(case.plan, TrainingPlan) else None,
    }
    return LagrangianDualClassifier(**usual | {"random_state": 0, "noise_seed": 0, "progress": False} | changes)


def fit(made: LagrangianDualClassifier, these: People, **options: Any) -> LagrangianDualClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few people, large noise: fit says so
        return made.fit(these.X, these.y, sensitive_features=these.a, **options)


@dataclass(frozen=True)
class Opened:
    """A run that has queried nothing yet."""

    method: Method
    plan: Plan
    ledger: PrivacyLedger
    run: Run

    @property
    def problem(self) -> Problem:
        """As the method has prepared it."""
        return self.method.problem

    def train(self) -> Trained:
        """What a session does."""
        return self.run.train(hidden_bar)

    def state(self) -> dict[str, Any]:
        """What a checkpoint saves of the answers."""
        run: Any = self.run
        found: dict[str, Any] = run.engine.state() if hasattr(run, "engine") else run._state()
        return found

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state`, with no answer lost."""
        run: Any = self.run
        if hasattr(run, "engine"):
            run.engine.restore(state, 0)
        else:
            run._restore(state, 0)


def same_tree(one: Any, other: Any) -> bool:
    """Whether two trees of plain values and arrays are the same to the last bit."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(same_tree(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same_tree(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


def hidden_bar(total: int, name: str) -> Any:
    return tqdm(total=total, desc=name, disable=True)


def opened(
    case: Case,
    these: People,
    *,
    plan: Plan | None = None,
    notion: str | FairnessNotion = "demographic_parity",
    epsilon: float = 8.0,
    source: NoiseSource | None = None,
    module: nn.Module | None = None,
) -> Opened:
    calibrated = (case.plan if plan is None else plan).calibrate(epsilon, 1e-5, n=len(these.y))
    method = method_of(calibrated, problem_of(these, notion), module)
    method.prepare(hidden_bar)
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    return Opened(
        method, calibrated, ledger, method.run(calibrated, vault_of(these, method, ledger, source), tolerance=0.0)
    )


def vault_of(these: People, method: Method, ledger: PrivacyLedger, noise: NoiseSource | None = None) -> SensitiveVault:
    chosen, rows = SeededNoise(0) if noise is None else noise, method.problem.source
    return SensitiveVault(these.a, groups=these.groups, ledger=ledger, noise_source=chosen, source=rows)


def problem_of(these: People, notion: str | FairnessNotion = "demographic_parity") -> Problem:
    X, y = these.X.astype(np.float32), these.y.astype(np.float32)
    return Problem(X, y, np.ones_like(y), get_notion(notion))


def method_of(plan: Plan, problem: Problem, module: nn.Module | None = None) -> Method:
    if isinstance(plan, TrainingPlan):
        engine = PRIMAL_DUAL_ENGINES[type(plan)]
        return NetworkMethod(network() if module is None else module, problem, plan, engine, seed=1)
    return PostProcessing(LightGBMBase(len(problem)), Inputs(problem.X, problem.X), problem, 0)


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return multilayer(3, [4])


@contextmanager
def calls_watched(some: Opened) -> Any:
    """(call, round, purpose) of every query, by the call of the run or of its engine that makes it."""
    found: list[tuple[str, int, str]] = []
    active, debit = ["elsewhere"], some.ledger.debit
    now = [0]

    def noted(release: Any) -> int:
        found.append((active[-1], now[0], release.purpose))
        return debit(release)

    def wrapped(owner: Any, name: str) -> Callable[..., Any]:
        original = getattr(owner, name)

        def call(*args: Any, **rest: Any) -> Any:
            if name == "query_before":
                now[0] = args[2]
            active.append(name)
            try:
                return original(*args, **rest)
            finally:
                active.pop()

        return call

    engine = getattr(some.run, "engine", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(some.ledger, "debit", noted)
        patch.setattr(some.run, "train", wrapped(some.run, "train"))
        for name in () if engine is None else LOOP:
            patch.setattr(engine, name, wrapped(engine, name))
        yield found
