r"""What DP-FERMI and RaCO-DP share: descent on public loss plus group means whose weights follow noised tables.

Both methods minimise a loss plus :math:`\sum_{a,k} \lambda_{a,k}\, \mu(D_{G_{a,k}})` plus public terms; they differ in
how the weights :math:`\lambda` follow from a *table* of soft decisions by group. Features and labels are public here,
so of their stochastic gradient descent-ascent only three questions depend on the attribute: group sizes (once), the
table (once a round) and the gradient of the sum above (once a round). They are asked over all rows, by the machinery
of :class:`~justitia.networks.pf_ld.engine.PFLDEngine`, which both methods profit from: one noised gradient
steers several public steps, is averaged with earlier ones, and is clipped at a bound chosen from public norms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils import Tags
from torch import Tensor

from bench.rivals.classifier import RivalClassifier, all_or_nothing
from justitia._validate import check_positive
from justitia.networks.default import make_module
from justitia.networks.method import NetworkMethod
from justitia.networks.pf_ld.engine import PFLDEngine
from justitia.networks.pf_ld.plan import PFLDPlan
from justitia.notions import NOTIONS, AccuracyParity, FairnessNotion, get_notion
from justitia.preprocessing.tables import public_seed, read_weight
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import HiddenNoiseSeed
from justitia.privacy.vault import check_budget, named_groups, noise_from
from justitia.training.history import history_table
from justitia.training.lagrangian import Problem, population_means, row_bound, usable_sizes
from justitia.training.method import Array
from justitia.training.plan import PlannedRelease, calibrated
from justitia.training.session import Settings, open_session


@dataclass(frozen=True)
class SoftDecisions(FairnessNotion):
    """A named notion whose h is a probability: of a positive decision or, for accuracy parity, of a wrong one.

    Parameters
    ----------
    base : FairnessNotion
        One of the five named notions.
    temperature : float
        Factor of the score: large values make soft decisions nearly hard.
    """

    base: FairnessNotion
    temperature: float = 1.0

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the base notion."""
        return self.base.name

    @property
    def event_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Events of the base notion."""
        return self.base.event_names

    def events(self, y: Array) -> Array:
        """Events of the base notion."""
        return self.base.events(y)

    def h(self, scores: Tensor, y: Tensor) -> Tensor:
        """Probability between 0 and 1."""
        return self.base.h(self.temperature * scores, y)

    def h_exact(self, scores: Array, y: Array) -> Array:
        """What the base notion counts, on hard decisions."""
        return self.base.h_exact(scores, y)


def soft_decisions(notion: str | FairnessNotion, *, temperature: float = 1.0) -> SoftDecisions:
    """The notion with probabilities as h.

    Raises
    ------
    ValueError
        For a notion that is not one of the named ones, because its h need not be a probability.
    """
    base = get_notion(notion)
    if type(base) not in NOTIONS.values():
        raise ValueError(
            f"expected one of the notions {', '.join(NOTIONS)}, got {type(base).__name__}; "
            "this method needs to know which probability the notion compares."
        )
    return SoftDecisions(AccuracyParity("error") if isinstance(base, AccuracyParity) else base, temperature)


def decision_rows(h: Array, events: Array) -> Array:
    """(n, 2K): public rows (h_i, 1 - h_i) in the columns of the row's event; their sums by group are the table."""
    return np.concatenate([events * h[:, None], events * (1 - h[:, None])], axis=1)


def table_gaps(table: Array, population: Array, sizes: Array) -> Array:
    r"""(G, K): rate of each group minus that of everybody, from a table of decisions.

    .. math:: ((1 - f_k)\, T_{a,k,1} - f_k\, T_{a,k,0}) / N_{a,k}

    is exact for an exact table, and an error of the size N only scales it.

    Parameters
    ----------
    table : ndarray (G, 2K)
    population : ndarray (K,)
        f, the public rate of everybody in the event.
    sizes : ndarray (G, K)
    """
    ones, zeros = np.split(table, 2, axis=1)
    gaps: Array = ((1 - population) * ones - population * zeros) / sizes
    return np.clip(gaps, -1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class DescentPlan(PFLDPlan):
    """Group sizes once; a table and a group gradient per round, as in :class:`~justitia.PFLDPlan`.

    Parameters
    ----------
    temperature : float
        Factor of the score in soft decisions.
    """

    #: What the method calls its table.
    table: ClassVar[str] = "table of decisions"

    temperature: float = 1.0
    held_out: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("temperature", self.temperature)

    def releases(self) -> tuple[PlannedRelease, ...]:
        """Sizes once; a table and a group gradient per round."""
        sizes, tables, gradients = super().releases()
        return sizes, replace(tables, purpose=self.table), gradients


class DescentEngine(PFLDEngine):
    """Asks for a noised table of decisions by group where the repaired PF-LD asks for a violation.

    Guarantee
    ---------
    * A enters only through ``group_sums`` (sizes, tables) and ``weighted_sum`` (gradients) of the vault; everything
      else here is a function of public data and of their noised answers.
    """

    plan: DescentPlan
    hard = False

    @property
    def sizes(self) -> Array:
        """(G, K): noised sizes, kept away from zero."""
        return usable_sizes(self.noisy_sizes, self.size_std)

    def _noisy_gap(self, scores: Array) -> Array:
        """(G, K): rate of each group minus that of everybody, from a freshly noised table of decisions."""
        problem, notion = self.problem, self.problem.notion
        h = notion.h_exact(scores, problem.y) if self.hard else notion.h(torch.from_numpy(scores), self.y).numpy()
        self.population = population_means(h, problem.events)
        rows = decision_rows(h, problem.events)
        noise = calibrated(self.plan.noise_violations)
        table = self.vault.group_sums(rows, bound=row_bound(rows), noise=noise, purpose=self.plan.table)
        return table_gaps(table, self.population, self.sizes)


class DescentClassifier(HiddenNoiseSeed, RivalClassifier):
    """Base of the two methods: everything but the plan and its engine.

    Parameters
    ----------
    notion : str or FairnessNotion
        One of the five named notions.
    plan : DescentPlan, optional
        The method's trade-off, rounds, steps, clipping and how the budget is split.
    epsilon, delta : float
        The privacy budget of one ``fit``. ``epsilon=inf`` trains without privacy, and the certificate says so.
    groups : sequence, mapping or None
        The public list of group labels. If None it is read off the data; the list itself is then not protected.
    module, preprocess, random_state, noise_seed
        As in :class:`justitia.LagrangianDualClassifier`.

    Attributes
    ----------
    classes_, module_, certificate_, ledger_, plan_, history_
        As in :class:`justitia.LagrangianDualClassifier`.
    dual_ : DataFrame (G, K)
        Last weight of each group's mean.

    Guarantee
    ---------
    * With a finite epsilon, a given list of groups and no ``noise_seed``, everything that leaves ``fit`` is
      (epsilon, delta)-differentially private in the attribute of any one row.
    * What the plan said it would cost equals what the ledger recorded.
    """

    #: The method's own kind of plan; one with its defaults is used if none is given.
    plan_kind: ClassVar[type[DescentPlan]]
    #: The engine that carries it out.
    engine_kind: ClassVar[type[DescentEngine]]

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        notion: str | FairnessNotion = "demographic_parity",
        *,
        plan: DescentPlan | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        groups: Any = None,
        module: Any = None,
        preprocess: str | None = "auto",
        random_state: Any = None,
        noise_seed: int | None = None,
    ) -> None:
        self.notion = notion
        self.plan = plan
        self.epsilon = epsilon
        self.delta = delta
        self.groups = groups
        self.module = module
        self.preprocess = preprocess
        self.random_state = random_state
        self.noise_seed = noise_seed

    @all_or_nothing
    def fit(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Self:
        """Train.

        Raises
        ------
        ValueError, TypeError
            For anything wrong that can be seen without the attribute, before any budget is spent.
        BudgetExceeded
            If the ledger cannot pay for the plan, before anything is asked.
        """
        plan = self._check_parameters()
        notion = soft_decisions(self.notion, temperature=plan.temperature)
        features, target = self._read(X, y)
        problem = Problem(features, target, read_weight(None, target), notion)
        settings = Settings(
            plan=plan,
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            groups=self.groups,
            seed=public_seed(self.random_state),
            tolerance=0.0,
            noise_seed=self.noise_seed,
            features=getattr(self, "feature_names_in_", ()),
        )
        module = make_module(self.module, torch.from_numpy(features), notion, seed=settings.seed)
        method = NetworkMethod(module, problem, plan, self.engine_kind, settings.seed)
        session = open_session(settings, method, sensitive_features, ledger=ledger)
        session.warn(stacklevel=3)
        trained = session.train()
        session.check_spent()
        groups, events = list(session.vault.group_names), list(notion.event_names)
        self.module_, self.plan_, self.ledger_ = session.run.fitted(), session.plan, session.ledger
        self.certificate_ = session.certificate()
        self.dual_ = pd.DataFrame(trained.lam, index=pd.Index(groups, name="group"), columns=events)
        private = math.isfinite(self.certificate_.epsilon)
        self.history_, self.history_columns_ = history_table(trained.history, groups, events, private=private)
        return self

    def _check_parameters(self) -> DescentPlan:
        """The plan; everything else about the arguments that can be wrong without looking at data is refused."""
        plan = self.plan_kind() if self.plan is None else self.plan
        if not isinstance(plan, self.plan_kind):
            expected = self.plan_kind.__name__
            raise TypeError(f"expected plan to be a {expected}, got {type(plan).__name__!r}; pass one, or none.")
        check_positive("epsilon", self.epsilon, allow_inf=True)
        check_budget(self.epsilon, self.delta)
        named_groups(self.groups, float(self.epsilon))
        noise_from(self.noise_seed)
        return plan

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # random_state does not seed the noise, so two fits with the same random_state may differ
        tags.non_deterministic = self.noise_seed is None and self.epsilon != math.inf
        return tags
