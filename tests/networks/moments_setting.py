"""A few rows, a network and a moments engine that has queried nothing yet, for the tests of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from justitia import LagrangianDualClassifier, MomentsPlan, PrivacyLedger
from justitia.networks.moments.engine import MomentsEngine
from justitia.networks.moments.rows import FrozenNetwork
from justitia.networks.multilayer import multilayer
from justitia.networks.run import NetworkRun
from justitia.notions import NOTIONS, FairnessNotion
from justitia.privacy.mechanisms import SeededNoise
from justitia.privacy.vault import SensitiveVault
from justitia.rows.source import Block
from justitia.training.lagrangian import Problem
from justitia.training.method import Trained

PLAN = MomentsPlan(warmup_steps=8, rounds=6, public_steps=2, checks=2, batch_size=64, warmup_learning_rate=0.02)
RELEASES = ["moments", "decisions", "decisions"]
GROUPS = ("a", "b", "c", "d", "e")
Array = NDArray[Any]
WEIGHT = np.linspace(2, 1, 60, dtype=np.float32)
every_notion = pytest.mark.parametrize("notion", list(NOTIONS))


@dataclass(frozen=True)
class Setting:
    """A problem, its attribute, a network and an engine that has queried nothing yet."""

    problem: Problem
    labels: list[Any]
    module: nn.Module
    engine: MomentsEngine
    ledger: PrivacyLedger

    @property
    def inside(self) -> Array:
        """(n, G): which row is in which group."""
        names = GROUPS[: self.engine.vault.n_groups]
        return np.array([[float(label == name) for name in names] for label in self.labels])


def setting(
    notion: str = "demographic_parity",
    *,
    epsilon: float = 8.0,
    plan: MomentsPlan = PLAN,
    n: int = 60,
    n_groups: int = 2,
    weight: Array | None = None,
    tolerance: float = 0.0,
    seed: int = 0,
) -> Setting:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 3, generator=generator)
    y = (X[:, 0] + 0.5 * torch.randn(n, generator=generator) > 0).float()
    codes = (X[:, 1] + torch.randn(n, generator=generator)).argsort().argsort() * (n_groups + 1) // n
    labels = [([*GROUPS[:n_groups], None])[int(code)] for code in codes]
    weights = np.ones(n, dtype=np.float32) if weight is None else weight
    problem = Problem(X.numpy(), y.numpy(), weights, NOTIONS[notion]())
    module = seeded(lambda: multilayer(3, [4]))
    ledger = PrivacyLedger(epsilon=epsilon, delta=1e-5)
    vault = SensitiveVault(
        labels, groups=GROUPS[:n_groups], ledger=ledger, noise_source=SeededNoise(0), source=problem.source
    )
    engine = MomentsEngine(plan.calibrate(epsilon, 1e-5, n=n), problem, vault, tolerance=tolerance, seed=1)
    return Setting(problem, labels, module, engine, ledger)


def hidden_bar(total: int, name: str) -> Any:
    return tqdm(total=total, desc=name, disable=True)


def train(some: Setting) -> Trained:
    return NetworkRun(some.module, some.engine.plan, some.engine).train(hidden_bar)


def scores_of(module: nn.Module, X: Array) -> Array:
    with torch.no_grad():
        out: Array = module(torch.from_numpy(X)).squeeze(1).numpy()
    return out


def multipliers(some: Setting) -> Array:
    shape = (some.engine.vault.n_groups, some.problem.events.shape[1])
    return np.random.default_rng(4).standard_normal(shape)


def said(network: nn.Module, X: Array) -> tuple[Array, Array]:
    """Representation and scores of all rows by a frozen copy of the network."""
    return FrozenNetwork.from_module(network, X, 4096)(block_of(X))


def block_of(X: Array, y: Array | None = None) -> Block:
    zero = np.zeros(len(X), dtype=np.float32)
    return Block(0, X.reshape(len(X), -1), zero if y is None else y, zero + 1)


def gaps_by_hand(notion: FairnessNotion, h: Array, y: Array, inside: Array, weight: Array) -> Array:
    """(G, K): weighted mean of h in each group and event less that of the whole event, one loop at a time."""
    events = notion.events(y)
    gaps = np.zeros((inside.shape[1], events.shape[1]))
    for a in range(inside.shape[1]):
        for k in range(events.shape[1]):
            everyone = [float(events[i, k] * weight[i]) for i in range(len(y))]
            group = [everyone[i] * float(inside[i, a]) for i in range(len(y))]
            population = sum(e * float(h[i]) for i, e in enumerate(everyone)) / sum(everyone)
            mean = sum(e * float(h[i]) for i, e in enumerate(group)) / sum(group)
            gaps[a, k] = mean - population
    return gaps


def seeded(make_one: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make_one()


def fit(model: LagrangianDualClassifier, people: Any, folder: Path | None = None) -> LagrangianDualClassifier:
    return model.fit(people.X, people.y, sensitive_features=people.a, checkpoint=folder)


def open_vault(some: Setting) -> SensitiveVault:
    """The same rows, nothing spent, no limit."""
    names = GROUPS[: some.engine.vault.n_groups]
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    source = some.problem.source
    return SensitiveVault(some.labels, groups=names, ledger=ledger, noise_source=SeededNoise(0), source=source)


class Own(nn.Module):
    """A module of the user's own without a linear layer at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.scale = nn.Linear(3, 5), nn.Parameter(torch.ones(5))

    def forward(self, X: Tensor) -> Tensor:
        """(m,)."""
        return self.first(X).tanh() @ self.scale


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), nn.Dropout(0.3), nn.Linear(6, 1))
