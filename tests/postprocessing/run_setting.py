"""A problem with scores of a base model, and a run on it that has queried nothing yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from justitia import LagrangianDualClassifier, PostProcessingPlan, PrivacyLedger
from justitia.learners.base import Inputs
from justitia.learners.calibration import Calibration
from justitia.notions import get_notion
from justitia.postprocessing.solver import PostProcessingRun
from justitia.privacy.mechanisms import SeededNoise
from justitia.privacy.vault import SensitiveVault
from justitia.rows.source import MemoryRows
from justitia.training.lagrangian import Problem

Array = NDArray[Any]
PLAN = PostProcessingPlan(checks=2)
GROUPS = ("a", "b", "c")


@dataclass(frozen=True)
class Setting:
    """A problem, its attribute, and a run on them."""

    problem: Problem
    labels: list[Any]
    run: PostProcessingRun
    ledger: PrivacyLedger

    def exact_rates(self, decisions: Array) -> NDArray[np.float64]:
        """(G, K): of every row's own group, without noise."""
        notion, y = self.problem.notion, self.problem.y
        h, events = notion.h_exact(2 * decisions - 1, y).astype(np.float64), self.problem.events.astype(np.float64)
        inside = np.array([[float(one == name) for name in GROUPS[: self.run.vault.n_groups]] for one in self.labels])
        sums, sizes = inside.T @ (events * h[:, None]), inside.T @ events
        rates: NDArray[np.float64] = sums / sizes
        return rates

    def purposes(self) -> list[str]:
        return [release.purpose for release in self.ledger.releases]


def setting(
    notion: str = "demographic_parity",
    *,
    epsilon: float = 8.0,
    plan: PostProcessingPlan = PLAN,
    n: int = 600,
    n_groups: int = 2,
    tolerance: float | None = 0.0,
    weight: Array | None = None,
    block_rows: int = 65_536,
) -> Setting:
    """Groups lean on a feature that leans on the label; the last block of rows did not give theirs."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((n, 3)).astype(np.float32)
    eta = np.clip(expit(1.5 * X[:, 0] + X[:, 1]), 1e-4, 1 - 1e-4).astype(np.float64)
    y = (generator.random(n) < eta).astype(np.float32)
    codes = (X[:, 1] + generator.standard_normal(n)).argsort().argsort() * (n_groups + 1) // n
    labels = [([*GROUPS[:n_groups], None])[int(code)] for code in codes]
    weights = np.ones(n, dtype=np.float32) if weight is None else weight
    source = MemoryRows(X, y, weights, block_rows)
    source.score(lambda _: eta, eta)
    problem = Problem(X, y, weights, get_notion(notion), 0.5, source)
    ledger = PrivacyLedger(epsilon=epsilon, delta=1e-5)
    vault = SensitiveVault(labels, groups=GROUPS[:n_groups], ledger=ledger, noise_source=SeededNoise(0), source=source)
    calibrated = plan.calibrate(epsilon, 1e-5, n=n)
    model: Any = (None, Calibration(), Inputs(X, X))  # no test here deploys the base model
    return Setting(problem, labels, PostProcessingRun(calibrated, problem, vault, eta, model, tolerance), ledger)


def released(some: Setting) -> Array:
    """The multipliers after the first release."""
    some.run._release_moments()
    some.run._fit_memberships()
    return some.run._solve(np.zeros((some.run.vault.n_groups, some.problem.events.shape[1])))


def classifier(**changes: Any) -> LagrangianDualClassifier:
    """A classifier with the default engine and seeds."""
    usual: dict[str, Any] = {"groups": ["f", "m"], "epsilon": 8.0, "random_state": 0, "noise_seed": 0}
    return LagrangianDualClassifier(**usual | changes)
