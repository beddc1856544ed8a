"""The scikit-learn surface: ``LagrangianDualClassifier``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import nn

from justitia._validate import check_choice, check_int, check_nonnegative, check_same_length
from justitia.engines import DEFAULT_PLANS
from justitia.inputs.tables import read_target, read_weight
from justitia.networks.classifier import NetworkClassifier, public_seed, unchanged_on_error
from justitia.networks.default import make_module, ordinary
from justitia.notions import FairnessNotion, get_notion
from justitia.privacy.attribute import Attribute
from justitia.privacy.door import check_budget, named_groups, open_vault
from justitia.privacy.frames import sealing
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.noise_seed import SecretNoiseSeed
from justitia.saving import folder as saved_folder
from justitia.training.checkpoint import RunFolder, open_folder
from justitia.training.history import history_table
from justitia.training.lagrangian import Problem
from justitia.training.plan import TrainingPlan
from justitia.training.run import Trained
from justitia.training.session import Session, Settings, open_session


class LagrangianDualClassifier(SecretNoiseSeed, NetworkClassifier):
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
    tolerance : float, optional
        Largest allowed difference between a group's rate and the population's. None asks for as little as can be told
        from the known noise: three standard deviations of it in engine "moments" (``plan.dead_zone``), otherwise 0.
    groups : sequence, mapping or "infer"
        The public list of group labels. "infer" reads it off the data, and the certificate then begins with saying that
        the list is not protected. None is an error at a finite epsilon, and "infer" without privacy.
    engine : {"moments", "gradients", "printed"}
        "moments" asks for a handful of noised sums and learns the rest from what is public (``docs/moments.md``);
        "gradients" is the repaired PF-LD; "printed" is the paper's algorithm as published, whose guarantee is not
        established (see ``docs/privacy.md``).
    module : None, sequence of int, torch.nn.Module or callable
        The network: the default one (by the rules in ``docs/moments.md``), hidden widths, a module of your own with one
        score per row (it is copied), or a function that makes one from the number of inputs.
    plan : TrainingPlan, optional
        Public numbers of the training run; the engine's default if None.
    random_state : int, RandomState or None
        Seeds public randomness only: initial weights and order of batches. Never the noise.
    preprocess : "auto" or None
        "auto" standardises numbers, fills missing ones and one-hot encodes categories (fitted on the rows of X in
        ``fit``, each counted once; see :class:`~justitia.inputs.encoding.TabularEncoder`); None takes finite numbers as
        they are, for a pipeline of your own.
    missing_marker : hashable, optional
        A label that means "not given", besides None and NaN.
    noise_seed : int, optional
        Makes the noise reproducible for tables; the certificate then begins with saying that nothing is promised. The
        seed is not printed, and neither a file nor a pickle of the fitted model holds it.
    progress : bool, optional
        Show a progress bar; by default only in a terminal.

    Attributes
    ----------
    classes_ : ndarray (2,)
    module_ : torch.nn.Module
    certificate_ : Certificate
    ledger_ : PrivacyLedger
    groups_ : tuple
        The public list of groups as labels; of crossed columns, tuples of labels.
    plan_ : TrainingPlan
        The calibrated plan that was carried out.
    history_ : DataFrame
        Public or noised numbers, one row per round; without privacy those by group are exact.
    history_columns_ : tuple of Column
        What each column of the history is, of which group, and whether it is public, noised or exact.
    dual_ : DataFrame (G, K)
        Final multipliers by group and event.

    Guarantee
    ---------
    * With a finite epsilon, engine "moments" or "gradients", a given list of groups and no ``noise_seed``, everything
      that leaves ``fit`` (attributes, warnings, errors, progress, files) is (epsilon, delta)-differentially private in
      the attribute of any one row or, with ``person``, of any one person; ``certificate_`` states it, and what is
      missing otherwise.
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
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True, "person": True}

    def __init__(
        self,
        notion: str | FairnessNotion = "demographic_parity",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        tolerance: float | None = None,
        groups: Any = None,
        engine: str = "moments",
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

    @sealing
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any,
        sample_weight: Any = None,
        person: Any = None,
        ledger: PrivacyLedger | None = None,
        checkpoint: Path | str | None = None,
    ) -> Self:
        """Train; a fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or DataFrame (n, p)
            Public features, without the sensitive attribute: a column of its name is refused. Only names are compared,
            so a table that lost its names on the way (in a pipeline, say) is yours to check.
        y : array-like (n,)
            Any two class labels; public.
        sensitive_features : array-like, Series or DataFrame
            Each person's attribute; several columns are crossed. None, NaN and labels that are not in ``groups`` mean
            "not given".
        sample_weight : array-like (n,), optional
            How often a row counts, in the loss and in every group mean; public.
        person : array-like (n,), optional
            Public ids that say which rows are one person's. The promise is then about a person with all their rows;
            without ids it is about one row (``docs/privacy.md``, section 1.1).
        ledger : PrivacyLedger, optional
            A budget shared with other releases about the same people; a :class:`~justitia.DurableLedger` is
            shared with other processes and later days.
        checkpoint : path, optional
            Folder to save to after every round and to resume from. It keeps a ledger of its own unless ``ledger`` is
            a durable one; a shared ledger in memory cannot be resumed. One run at a time works in it.

        Raises
        ------
        ValueError, TypeError
            For anything wrong that can be seen without the attribute, before any budget is spent.
        BudgetExceeded
            If the ledger cannot pay for the plan, before anything is asked.
        LedgerError
            If the file of a durable ledger cannot be used, or another run works in ``checkpoint``.
        """
        sensitive_features = Attribute.of(sensitive_features)
        with unchanged_on_error(self), open_folder(checkpoint) as folder:
            session = self._open(
                X, y, sensitive_features, sample_weight=sample_weight, person=person, ledger=ledger, folder=folder
            )
            session.warn(stacklevel=3)
            trained = session.train()
            session.check_spent()
            self._keep(session, trained)
        # Last, so that a warning turned into an error does not throw away a model that was paid for.
        for sentence in session.engine.remarks():
            warnings.warn(sentence, stacklevel=3)
        return self

    def _open(
        self,
        X: Any,
        y: Any,
        sensitive_features: Attribute,
        *,
        sample_weight: Any = None,
        person: Any = None,
        ledger: PrivacyLedger | None = None,
        folder: RunFolder | None = None,
    ) -> Session:
        """Check parameters and public data, and open a session with them."""
        notion, plan = check_parameters(self)
        features = self._features(X, reset=True)
        self.classes_, target = read_target(y)
        check_same_length(X=features, y=target)
        problem = Problem(features, target, read_weight(sample_weight, target), notion)
        settings = Settings(
            plan=plan,
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            groups=self.groups,
            seed=public_seed(self.random_state),
            tolerance=None if self.tolerance is None else float(self.tolerance),
            missing_marker=self.missing_marker,
            noise_seed=self.noise_seed,
            progress=self.progress,
            features=getattr(self, "feature_names_in_", ()),
            open_vault=self._open_vault,
        )
        widths, small = plan.widths(problem.X.shape[-1]), plan.small_samples
        module = make_module(self.module, problem.X, notion, seed=settings.seed, small_samples=small, widths=widths)
        return open_session(settings, problem, module, sensitive_features, person=person, ledger=ledger, folder=folder)

    #: Where the attribute goes; audits put a vault there that keeps what is asked.
    _open_vault = staticmethod(open_vault)

    def _keep(self, session: Session, trained: Trained) -> None:
        groups, events = list(session.vault.group_names), list(session.problem.notion.event_names)
        self.module_ = ordinary(session.module)
        self.groups_ = session.vault.groups
        self.plan_ = session.plan
        self.ledger_ = session.ledger
        self.certificate_ = session.certificate()
        self.dual_ = pd.DataFrame(trained.lam.numpy(), index=pd.Index(groups, name="group"), columns=events)
        private = math.isfinite(self.certificate_.epsilon)
        self.history_, self.history_columns_ = history_table(trained.history, groups, events, private=private)

    def save(self, folder: Path | str) -> Path:
        """Write the fitted model to ``folder`` as safetensors and JSON; see :func:`justitia.saving.folder.save`."""
        check_is_fitted(self, "module_")
        return saved_folder.save(self, folder)

    @classmethod
    def load(cls, folder: Path | str, module: nn.Module | None = None) -> Self:
        """Read a model that :meth:`save` wrote, without running code from the folder.

        Parameters
        ----------
        module : torch.nn.Module, optional
            Needed if the model was fitted with a module of your own: one of the same shape; it is copied.
        """
        return saved_folder.load(folder, module=module, kind=cls)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # random_state does not seed the noise, so two fits with the same random_state may differ
        tags.non_deterministic = self.noise_seed is None and self.epsilon != math.inf
        return tags


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
