"""The plain network (the paper's CLF): trained for accuracy only; it never looks at the attribute."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import torch

from justitia._validate import check_int, check_positive
from justitia.engines import GradientsPlan
from justitia.inputs.tables import read_weight
from justitia.networks.classifier import NetworkClassifier, all_or_nothing, public_seed
from justitia.networks.default import make_module
from justitia.notions import DemographicParity
from justitia.privacy.door import ledger_or_new
from justitia.privacy.ledger import PrivacyLedger
from justitia.training.lagrangian import Problem
from justitia.training.learner import rehearse
from justitia.training.plan import Round
from justitia.training.run import Run


class PlainClassifier(NetworkClassifier):
    """Network with two hidden ReLU layers, without constraint; it asks nothing about the attribute.

    Parameters
    ----------
    epochs, batch_size : int
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
    ledger_ : PrivacyLedger
        Nothing is debited; unless it was passed to ``fit``, its budget is epsilon 0, which allows no release.
    certificate_ : Certificate
        Epsilon 0, or what others have spent of the ledger that was passed.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        *,
        epochs: int = 30,
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
        epochs = check_int("epochs", self.epochs, at_least=1)
        steps = None if self.steps is None else check_int("steps", self.steps, at_least=1)
        rate = check_positive("learning_rate", self.learning_rate)
        plan = GradientsPlan(batch_size=self.batch_size, warmup_learning_rate=rate, held_out=0.0)
        features, target = self._read(X, y)
        problem = Problem(features, target, read_weight(sample_weight, target), DemographicParity())
        seed = public_seed(self.random_state)
        module = make_module(self.module, problem.X, problem.notion, seed=seed)
        rehearse(module, problem.X, problem.y, plan)
        steps = epochs * math.ceil(len(target) / self.batch_size) if steps is None else steps
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            run = Run(module, problem, plan, torch.Generator().manual_seed(seed))
            for batch in run.batches(Round(0, steps, dual=False)):
                run.primal_step(batch)
        self.module_ = module.eval()
        self.ledger_ = ledger
        self.certificate_ = ledger.certificate(groups_source="not asked")
        return self
