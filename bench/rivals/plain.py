"""The plain network (the paper's CLF): trained for accuracy only; it never looks at the attribute."""

from __future__ import annotations

import copy
import math
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from bench.rivals.classifier import RivalClassifier, all_or_nothing
from justitia._validate import check_int, check_positive
from justitia.networks.default import make_module
from justitia.networks.method import rehearse
from justitia.networks.pf_ld.plan import PFLDPlan
from justitia.networks.plan import Round
from justitia.networks.primal import PrimalSteps
from justitia.networks.requirements import as_scores
from justitia.notions import DemographicParity
from justitia.preprocessing.tables import public_seed, read_weight
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.vault import ledger_or_new
from justitia.training.lagrangian import Problem

#: Share of rows that tell when to stop, steps between two looks at them (a quarter of a pass if that is longer), and
#: how many looks in a row may bring nothing.
HELD_OUT, LOOK, PATIENCE = 0.2, 20, 10
#: Whatever the held-out rows say.
MOST_STEPS = 20_000


class PlainClassifier(RivalClassifier):
    """Network with two hidden ReLU layers, without constraint; it asks nothing about the attribute.

    Parameters
    ----------
    epochs : int, optional
        Length of the training in passes over the rows. By default until it has learned: a fifth of the rows, drawn by
        the public seed, is held out, and the network is trained on the others until the loss of the held-out rows has
        not fallen for ``PATIENCE`` looks. As many passes are then made over all rows.
    batch_size : int
    steps : int, optional
        Length of the training in steps, whatever the number of rows, instead of epochs.
    learning_rate : float
        Of Adam.
    module, random_state, preprocess
        As in :class:`justitia.LagrangianDualClassifier`.

    Attributes
    ----------
    module_, classes_
        As in :class:`justitia.LagrangianDualClassifier`.
    steps_ : int
        How many steps were made.
    ledger_ : PrivacyLedger
        Nothing is debited; unless it was passed to ``fit``, its budget is epsilon 0, which allows no release.
    certificate_ : Certificate
        Epsilon 0, or what others have spent of the ledger that was passed.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        *,
        epochs: int | None = None,
        batch_size: int = 256,
        steps: int | None = None,
        learning_rate: float = 1e-3,
        module: Any = None,
        random_state: Any = None,
        preprocess: str | None = "auto",
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.steps = steps
        self.learning_rate = learning_rate
        self.module = module
        self.random_state = random_state
        self.preprocess = preprocess

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        ledger: PrivacyLedger | None = None,
    ) -> Self:
        """Train on features and labels; ``sensitive_features`` is accepted for comparisons and not looked at."""
        del sensitive_features
        ledger = ledger_or_new(ledger, epsilon=0.0, delta=0.0)
        epochs = None if self.epochs is None else check_int("epochs", self.epochs, at_least=1)
        steps = None if self.steps is None else check_int("steps", self.steps, at_least=1)
        rate = check_positive("learning_rate", self.learning_rate)
        plan = PFLDPlan(batch_size=self.batch_size, warmup_learning_rate=rate, held_out=0.0)
        features, target = self._read(X, y)
        problem = Problem(features, target, read_weight(sample_weight, target), DemographicParity())
        seed = public_seed(self.random_state)
        rows = torch.from_numpy(features)
        module = make_module(self.module, rows, problem.notion, seed=seed)
        rehearse(module, rows, torch.from_numpy(target), plan)
        if steps is None and epochs is not None:
            steps = epochs * math.ceil(len(target) / self.batch_size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            steps = learned_after(copy.deepcopy(module), problem, plan, seed) if steps is None else steps
            torch.manual_seed(seed)
            primal = PrimalSteps(module, problem, plan, torch.Generator().manual_seed(seed))
            for batch in primal.batches(Round(0, steps, dual=False)):
                primal.step(batch)
        self.module_, self.steps_ = module.eval(), steps
        self.ledger_ = ledger
        self.certificate_ = ledger.certificate(groups_source="not asked")
        return self


def learned_after(module: nn.Module, problem: Problem, plan: PFLDPlan, seed: int) -> int:
    """Steps over all rows after which the loss of held-out rows no longer falls: a function of public numbers.

    Parameters
    ----------
    module : nn.Module
        Trained here, on the other rows.
    """
    order = torch.randperm(len(problem), generator=torch.Generator().manual_seed(seed)).numpy()
    held = max(1, round(HELD_OUT * len(order)))
    out, kept = order[:held], order[held:]
    rest = Problem(problem.X[kept], problem.y[kept], problem.weight[kept], problem.notion)
    primal = PrimalSteps(module, rest, plan, torch.Generator().manual_seed(seed))
    look = max(LOOK, math.ceil(len(kept) / plan.batch_size / 4))
    least, best, looks = math.inf, 1, 0
    while looks * look < MOST_STEPS and looks - best < PATIENCE:
        for batch in primal.batches(Round(0, look, dual=False)):
            primal.step(batch)
        looks += 1
        loss = _loss(module, problem, out)
        if loss < least:
            least, best = loss, looks
    return math.ceil(best * look * len(order) / len(kept))


def _loss(module: nn.Module, problem: Problem, rows: NDArray[np.int64]) -> float:
    module.eval()
    X, y, weight = (torch.from_numpy(one[rows]) for one in (problem.X, problem.y, problem.weight))
    with torch.no_grad():
        scores = as_scores(module(X), len(rows))
    return float(F.binary_cross_entropy_with_logits(scores, y, weight=weight))
