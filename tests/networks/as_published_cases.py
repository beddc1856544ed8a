"""Twelve rows, known noise and short plans that the tests of engine ``pf-ld-as-published`` share."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from tqdm.auto import tqdm

from justitia.networks.method import ENGINES
from justitia.networks.pf_ld_as_published.plan import PFLDAsPublishedPlan
from justitia.networks.plan import TrainingPlan
from justitia.networks.run import NetworkRun
from justitia.notions import DemographicParity, FairnessNotion
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import NoiseSource
from justitia.privacy.vault import SensitiveVault
from justitia.training.lagrangian import Problem
from justitia.training.method import Trained

Floats = NDArray[np.float64]

ROWS = np.array(
    [
        [1.0, -0.4],
        [0.2, 0.9],
        [-1.1, 0.3],
        [0.8, 1.2],
        [-0.6, -0.7],
        [1.4, 0.5],
        [-0.3, 0.6],
        [0.9, -1.3],
        [-1.5, 0.1],
        [0.4, 0.2],
        [-0.8, 1.1],
        [0.1, -0.9],
    ]
)
LABELS = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
GROUP = ["a", "a", "b", "a", "b", "a", "b", "a", "b", "b", "b", "a"]
UNEVEN = ["a", "a", "b", "a", "b", "a", "b", "b", "b", "b", "b", "b"]  # multipliers do not cancel over the groups
START = np.array([0.3, -0.5, 0.1])  # two weights and the bias


class Silent(NoiseSource):
    """No noise, and a record of the scales asked for."""

    description = "none"

    def __init__(self) -> None:
        self.scales: list[float] = []

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        return np.full(size, 2**63, dtype=np.uint64)

    def add_gaussian(self, exact: Floats, std: float, *, release: int) -> Floats:
        self.scales.append(std)
        return exact


class KnownNoise(NoiseSource):
    """Standard normal draws that a replay can write down, and a record of the scales asked for."""

    description = "known draws"

    def __init__(self) -> None:
        self.scales: list[float] = []

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        return np.full(size, 2**63, dtype=np.uint64)

    def add_gaussian(self, exact: Floats, std: float, *, release: int) -> Floats:
        self.scales.append(std)
        return exact + std * known_draws(release, exact.size).reshape(exact.shape)


def known_draws(release: int, size: int) -> Floats:
    return np.asarray(np.cos(7.0 * release + np.arange(size)))


def make_problem(notion: FairnessNotion | None = None) -> Problem:
    return Problem(ROWS, LABELS, np.ones_like(LABELS), notion or DemographicParity())


def make_vault(group: list[str] | list[str | None], noise: NoiseSource | None = None) -> SensitiveVault:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    return SensitiveVault(group, groups=["a", "b"], ledger=ledger, noise_source=noise or KnownNoise())


def make_model() -> nn.Linear:
    model = nn.Linear(2, 1).double()
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(START[None, :2]))
        model.bias.copy_(torch.from_numpy(START[2:]))
    return model


def flat(model: nn.Module) -> list[float]:
    return nn.utils.parameters_to_vector(model.parameters()).tolist()


def public(seed: int = 0) -> dict[str, Any]:
    """What every engine takes besides data: no tolerance, and the seed of public randomness."""
    return {"tolerance": 0.0, "seed": seed}


def run(plan: TrainingPlan, model: nn.Module, vault: SensitiveVault, *, seed: int = 0) -> Trained:
    problem = make_problem()
    engine = ENGINES[type(plan)](plan, problem, vault, **public(seed))
    return NetworkRun(model, plan, engine).train(lambda total, name: tqdm(total=total, desc=name, disable=True))


PUBLISHED = PFLDAsPublishedPlan(
    warmup_epochs=0,
    h="probability",
    noise_by="lambda_max",
    optimizer="SGD",
    optimizer_options={},
    learning_rate=0.8,
    final_learning_rate=0.8,
    batch_size=6,
    epochs=2,
    dual_step=1.5,
    lambda_max=0.12,
    C_p=0.2,
    C_d=0.45,
    sigma_p=0.3,
    sigma_d=0.05,
)


def plain_training(steps: int, rate: float) -> list[float]:
    model, X, y = make_model(), torch.from_numpy(ROWS), torch.from_numpy(LABELS)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(X)[:, 0], y).backward()
        optimizer.step()
    return flat(model)
