"""The scikit-learn surface: ``LagrangianDualClassifier``."""

from __future__ import annotations

import hashlib
import math
import sys
import warnings
from collections import Counter
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn
from tqdm.auto import tqdm

from justitia._validate import check_choice, check_fraction, check_nonnegative, check_same_length
from justitia.dual.checkpoint import Checkpoint
from justitia.dual.engines import Engine, make_engine
from justitia.dual.gradients import as_scores, check_module
from justitia.dual.lagrangian import Problem
from justitia.dual.loop import Trained, train
from justitia.dual.plan import DEFAULT_PLANS, TrainingPlan
from justitia.encoding import TabularEncoder
from justitia.network import make_module
from justitia.notions import FairnessNotion, get_notion
from justitia.privacy.accounting import Cost, UnboundedCost
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import SeededNoise, SystemNoise
from justitia.privacy.vault import SensitiveVault


class LagrangianDualClassifier(ClassifierMixin, BaseEstimator):
    r"""Neural classifier trained to treat groups alike, private in the sensitive attribute.

    Minimises the loss subject to :math:`|\mu(D_G) - \mu(D_P)| \le tolerance` for every group by a Lagrangian dual
    (Algorithm 1 of the paper). The attribute is read in ``fit`` only, through noised answers, and never at prediction.

    Parameters
    ----------
    notion : str or FairnessNotion
        "demographic_parity", "equalized_odds", "accuracy_parity", "equal_opportunity", "predictive_equality", or an
        object of your own.
    epsilon, delta : float
        The privacy budget of one ``fit``. ``epsilon=inf`` trains without privacy, and the certificate says so.
    tolerance : float
        Largest allowed difference between a group's rate and the population's.
    groups : sequence, mapping or None
        The public list of group labels. If None it is read off the data; the list itself is then not protected.
    engine : {"gradients", "printed"}
        "gradients" is the repaired PF-LD; "printed" is the paper's algorithm as published, whose guarantee is not
        established (see ``docs/privacy.md``).
    module : None, sequence of int, torch.nn.Module or callable
        The network: default widths, hidden widths, a module of your own with one score per row (it is copied), or a
        function that makes one from the number of inputs.
    plan : TrainingPlan, optional
        Public numbers of the training run; the engine's default if None.
    random_state : int, RandomState or None
        Seeds public randomness only: initial weights and order of batches. Never the noise.
    preprocess : "auto" or None
        "auto" standardises numbers, fills missing ones and one-hot encodes categories (fitted on X of ``fit``);
        None takes finite numbers as they are.
    missing_marker : hashable, optional
        A label that means "not given", besides None and NaN.
    noise_seed : int, optional
        Makes the noise reproducible for tables; the certificate then says that the guarantee is void for whoever
        knows the seed.
    progress : bool, optional
        Show a progress bar; by default only in a terminal.

    Attributes
    ----------
    classes_ : ndarray (2,)
    module_ : torch.nn.Module
    certificate_ : Certificate
    ledger_ : PrivacyLedger
    plan_ : TrainingPlan
        The calibrated plan that was carried out.
    history_ : DataFrame
        Public or noised numbers, one row per round.
    dual_ : DataFrame (G, K)
        Final multipliers by group and event.

    Guarantee
    ---------
    * Everything that leaves ``fit`` (attributes, warnings, errors, progress, files) is (epsilon, delta)-differentially
      private in each person's attribute; ``certificate_`` states it.
    * What the plan said it would cost equals what the ledger recorded.

    Examples
    --------
    >>> from justitia import LagrangianDualClassifier
    >>> from justitia.datasets import make_synthetic
    >>> data = make_synthetic(2000, random_state=0)
    >>> model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0)
    >>> model.fit(data.X, data.y, sensitive_features=data.sensitive).predict(data.X).shape
    (2000,)
    """

    # sensitive_features is routed to fit by default; scikit-learn's other methods never see it.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        notion: str | FairnessNotion = "demographic_parity",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        tolerance: float = 0.0,
        groups: Any = None,
        engine: str = "gradients",
        module: Any = None,
        plan: TrainingPlan | None = None,
        random_state: Any = None,
        preprocess: str | None = "auto",
        missing_marker: Hashable = None,
        noise_seed: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.notion = notion
        self.epsilon = epsilon
        self.delta = delta
        self.tolerance = tolerance
        self.groups = groups
        self.engine = engine
        self.module = module
        self.plan = plan
        self.random_state = random_state
        self.preprocess = preprocess
        self.missing_marker = missing_marker
        self.noise_seed = noise_seed
        self.progress = progress

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any,
        sample_weight: Any = None,
        ledger: PrivacyLedger | None = None,
        checkpoint: Path | str | None = None,
    ) -> Self:
        """Train.

        Parameters
        ----------
        X : array-like or DataFrame (n, p)
            Public features, without the sensitive attribute.
        y : array-like (n,)
            Any two class labels; public.
        sensitive_features : array-like, Series or DataFrame
            Each person's attribute; several columns are crossed. None, NaN and labels that are not in ``groups`` mean
            "not given".
        sample_weight : array-like (n,), optional
            How often a row counts, in the loss and in every group mean; public.
        ledger : PrivacyLedger, optional
            A budget shared with other releases about the same people.
        checkpoint : path, optional
            Folder to save to after every round and to resume from.

        Raises
        ------
        ValueError, TypeError
            For anything wrong that can be seen without the attribute, before any budget is spent.
        BudgetExceeded
            If the ledger cannot pay for the plan, before anything is asked.
        """
        notion, plan = self._check_parameters()
        features = self._features(X, reset=True)
        self.classes_, target = _read_target(y)
        check_same_length(X=features, y=target)
        problem = Problem(features, target, _read_weight(sample_weight, features), notion)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        module = make_module(self.module, inputs=features.shape[-1], n=len(target), seed=seed)
        check_module(module, features)
        plan = plan.calibrate(float(self.epsilon), float(self.delta), n=len(target))
        saved = None if checkpoint is None else self._open_checkpoint(checkpoint, problem, plan, module, ledger)
        ledger = self._ledger(plan, ledger, saved)
        vault = self._vault(sensitive_features, ledger, n=len(target))
        before = Counter(ledger.costs())
        if saved is None:
            ledger.check(plan.costs())
        if self.delta >= 1 / len(target):
            warnings.warn(
                f"delta={self.delta:g} is not below 1/n = {1 / len(target):.2g}: such a guarantee allows one person's "
                "attribute to be published; choose a smaller delta.",
                stacklevel=2,
            )
        engine = make_engine(plan, problem, vault, tolerance=float(self.tolerance))
        trained = self._train(module, problem, plan, engine, seed, saved)
        spent = ledger.costs() if saved is not None else Counter(ledger.costs()) - before
        if _finite_part(spent) != _finite_part(plan.costs()):
            raise RuntimeError("The ledger does not hold what the plan announced; please report this as a defect.")
        return self._finish(module, plan, ledger, vault, notion, trained)

    def _check_parameters(self) -> tuple[FairnessNotion, TrainingPlan]:
        """Everything about the constructor's arguments that can be wrong without looking at data."""
        notion = get_notion(self.notion)
        engine = check_choice("engine", self.engine, DEFAULT_PLANS)
        default = DEFAULT_PLANS[engine]
        plan = default if self.plan is None else self.plan
        if not isinstance(plan, type(default)):
            raise TypeError(
                f"Expected a {type(default).__name__} for engine {engine!r}; got {type(plan).__name__}: "
                "pass a plan of that kind, or none."
            )
        if check_nonnegative("epsilon", self.epsilon, allow_inf=True) == 0:
            raise ValueError("epsilon=0 allows no question about groups at all; use a positive epsilon.")
        check_fraction("delta", self.delta)
        if self.delta == 0 and not math.isinf(self.epsilon):
            raise ValueError("delta=0 rules out Gaussian noise; use a small positive delta such as 1e-5.")
        check_nonnegative("tolerance", self.tolerance)
        if self.preprocess is not None:
            check_choice("preprocess", self.preprocess, ("auto",))
        return notion, plan

    def _features(self, X: Any, *, reset: bool) -> Tensor:
        """Public features as a float tensor, through the default preprocessing unless it is off."""
        if self.preprocess is None:
            array = validate_data(self, X, dtype=np.float32, allow_nd=True, reset=reset)
            return torch.tensor(array)
        validate_data(self, X, skip_check_array=True, reset=reset)
        if reset:
            self.encoder_ = TabularEncoder().fit(X)
        return torch.from_numpy(self.encoder_.transform(X))

    def _vault(self, sensitive_features: Any, ledger: PrivacyLedger, *, n: int) -> SensitiveVault:
        """A ends here."""
        vault = SensitiveVault(
            sensitive_features,
            groups=self.groups,
            ledger=ledger,
            noise_source=SystemNoise() if self.noise_seed is None else SeededNoise(self.noise_seed),
            missing_marker=self.missing_marker,
        )
        check_same_length(X=range(n), sensitive_features=range(len(vault)))
        shared = set(vault.column_names) & set(getattr(self, "feature_names_in_", ()))
        if shared:
            raise ValueError(
                f"The column {sorted(shared)[0]!r} is both a feature and a sensitive attribute; drop it from X, "
                "so that it is not an input at prediction time."
            )
        return vault

    def _ledger(self, plan: TrainingPlan, ledger: PrivacyLedger | None, saved: Checkpoint | None) -> PrivacyLedger:
        if ledger is not None:
            return ledger
        unbounded = any(isinstance(cost, UnboundedCost) for cost in plan.costs())
        budget = math.inf if unbounded else float(self.epsilon)
        if saved is not None:
            return saved.open_ledger(epsilon=budget, delta=float(self.delta))
        return PrivacyLedger(epsilon=budget, delta=float(self.delta))

    def _open_checkpoint(
        self,
        folder: Path | str,
        problem: Problem,
        plan: TrainingPlan,
        module: nn.Module,
        ledger: PrivacyLedger | None,
    ) -> Checkpoint:
        if ledger is not None:
            raise ValueError("A checkpoint keeps its own ledger; pass either checkpoint or ledger, not both.")
        digest = hashlib.sha256()
        for tensor in (problem.X, problem.y, problem.weight):
            digest.update(tensor.numpy().tobytes())
        shapes = [tuple(p.shape) for p in module.parameters()]
        public = (plan, problem.notion, self.tolerance, self.groups, self.epsilon, self.delta, shapes)
        digest.update(repr(public).encode())
        return Checkpoint(folder, fingerprint=digest.hexdigest())

    def _train(
        self,
        module: nn.Module,
        problem: Problem,
        plan: TrainingPlan,
        engine: Engine,
        seed: int,
        saved: Checkpoint | None,
    ) -> Trained:
        total = sum(one.steps for one in plan.schedule(len(problem)))
        hidden = not (sys.stderr.isatty() if self.progress is None else self.progress)
        generator = torch.Generator().manual_seed(seed)
        with (
            torch.random.fork_rng(devices=[]),
            tqdm(total=total, disable=hidden, unit="step", desc="fit") as bar,
        ):
            torch.manual_seed(seed)
            trained = train(module, problem, plan, engine, generator=generator, checkpoint=saved, progress=bar.update)
        for sentence in engine.remarks():
            warnings.warn(sentence, stacklevel=3)
        return trained

    def _finish(
        self,
        module: nn.Module,
        plan: TrainingPlan,
        ledger: PrivacyLedger,
        vault: SensitiveVault,
        notion: FairnessNotion,
        trained: Trained,
    ) -> Self:
        groups, events = list(vault.group_names), list(notion.event_names)
        self.module_ = module
        self.plan_ = plan
        self.ledger_ = ledger
        self.certificate_ = vault.certificate(claim=getattr(plan, "claim", None))
        self.dual_ = pd.DataFrame(trained.lam.numpy(), index=pd.Index(groups, name="group"), columns=events)
        self.history_ = _history_table(trained.history, groups, events)
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of the second class: its log-odds; positive means that ``predict`` says the second class."""
        check_is_fitted(self, "module_")
        features = self._features(X, reset=False)
        self.module_.eval()
        with torch.no_grad():
            parts = [as_scores(self.module_(part), len(part)) for part in features.split(65536)]
        scores: NDArray[np.float64] = torch.cat(parts).double().numpy()
        return scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, 2): probability of each class, in the order of ``classes_``."""
        second = torch.sigmoid(torch.from_numpy(self.decision_function(X))).numpy()
        return np.column_stack([1 - second, second])

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,): predicted class labels; the attribute is not an input."""
        scores = self.decision_function(X)
        labels: NDArray[Any] = self.classes_[(scores > 0).astype(int)]
        return labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = self.preprocess is not None
        tags.input_tags.string = tags.input_tags.categorical = self.preprocess is not None
        return tags


def _read_target(y: Any) -> tuple[NDArray[Any], Tensor]:
    """The two class labels and a 0/1 tensor."""
    labels = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"Expected two classes in y; got only one class, {classes[0]!r}: there is nothing to learn.")
    if len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(labels)}: "
            f"expected two classes in y, got {len(classes)}; merge some, or train one model per class."
        )
    return classes, torch.from_numpy(codes.astype(np.float32))


def _read_weight(sample_weight: Any, features: Tensor) -> Tensor:
    """Public weights scaled to mean 1."""
    weight = _check_sample_weight(sample_weight, features.numpy(), dtype=np.float64, ensure_non_negative=True)
    if not weight.sum() > 0:
        raise ValueError("Expected some positive sample_weight; got zeros only.")
    return torch.from_numpy((weight / weight.mean()).astype(np.float32))


def _finite_part(costs: Mapping[Cost, int]) -> dict[Cost, int]:
    """Costs with their counts; an infinite one counts once, however often it was charged."""
    return {cost: 1 if isinstance(cost, UnboundedCost) else count for cost, count in costs.items()}


def _history_table(history: list[dict[str, Any]], groups: list[str], events: list[str]) -> pd.DataFrame:
    """One row per round; gaps and multipliers get one column per group (and event, if there are several)."""
    cells = [(a, k) for a in range(len(groups)) for k in range(len(events))]
    names = [groups[a] if len(events) == 1 else f"{events[k]}, {groups[a]}" for a, k in cells]
    rows = []
    for record in history:
        row = {name: record[name] for name in ("round", "loss", "accuracy")}
        for kind in ("noisy_gap", "multiplier"):
            values = record[kind]
            row |= {
                f"{kind}[{name}]": math.nan if values is None else values[a][k]
                for name, (a, k) in zip(names, cells, strict=True)
            }
        rows.append(row)
    return pd.DataFrame(rows)
