"""The scikit-learn surface: ``LagrangianDualClassifier``."""

from __future__ import annotations

import math
from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from justitia._validate import check_same_length
from justitia.deciding import DecidingClassifier, unchanged_on_error
from justitia.exceptions import warn_of
from justitia.learners.base import Inputs, base_of
from justitia.learners.lightgbm_base import default_base
from justitia.notions import FairnessNotion
from justitia.parameters import check_parameters
from justitia.persistence import folder as saved_folder
from justitia.postprocessing.crowd import CrowdLearner
from justitia.postprocessing.learner import RuleLearner
from justitia.preprocessing.files import is_files
from justitia.preprocessing.outliers import input_diagnostics
from justitia.preprocessing.tables import read_costs, read_target, read_weight
from justitia.privacy.attribute import Attribute
from justitia.privacy.door import open_vault
from justitia.privacy.frames import sealing
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.noise_seed import HiddenNoiseSeed
from justitia.scale.fit import fit_from_files
from justitia.training.checkpoint import RunFolder, open_folder
from justitia.training.history import history_table
from justitia.training.lagrangian import Problem
from justitia.training.learner import Learner, Trained
from justitia.training.plan import Plan
from justitia.training.same_rows import FITS, rows_digest
from justitia.training.session import Session, Settings, open_session


class LagrangianDualClassifier(HiddenNoiseSeed, DecidingClassifier):
    r"""Classifier trained to treat groups alike, private in the sensitive attribute.

    Minimises the loss subject to :math:`|\mu(D_G) - \mu(D_{G'})| \le tolerance` for every two groups by a Lagrangian
    dual: solved in closed form on top of any model of the label (engine "post-processing"), or by Algorithm 1 of the
    paper for networks. The attribute is read in ``fit`` only, through noised answers, and never at prediction.

    Parameters
    ----------
    notion : str or FairnessNotion
        "demographic_parity", "equalized_odds", "accuracy_parity", "equal_opportunity", "predictive_equality", or an
        object of your own. fairlearn's names, such as "true_positive_rate_parity", are taken too.
    epsilon, delta : float
        The privacy budget of one ``fit``. ``epsilon=inf`` trains without privacy, and the certificate says so.
    tolerance : float, optional
        Largest difference between two groups' rates that is allowed. None allows what cannot be told from chance: see
        the plan's ``dead_zone``; ``tolerance_`` is what it came to.
    groups : sequence, mapping or "infer"
        The public list of group labels. "infer" reads it off the data, and the certificate then begins with saying that
        the list is not protected. None is an error at a finite epsilon, and "infer" without privacy.
    engine : {"post-processing", "moments", "pf-ld", "pf-ld-as-published"}, optional
        By default "post-processing", which corrects the decisions of ``base`` by the dual in closed form
        (``docs/plugin.md``), and "moments" where ``module`` is given, which trains a network on a handful of noised
        sums (``docs/moments.md``). "pf-ld" is the repaired PF-LD; "pf-ld-as-published" is the paper's algorithm as
        published, whose guarantee is not established (see ``docs/privacy.md``). All but the first need the extra
        ``networks``.
    base : classifier, callable or str, optional
        The model of the label that engine "post-processing" corrects: a scikit-learn classifier or pipeline,
        cross-fitted, or used as it is if it is fitted; a function from X to p(y = 1 | x); or the name of a column of X
        that holds it. It sees X as you pass it. None is boosted trees of LightGBM.
    module : None, sequence of int, torch.nn.Module or callable
        The network: the default one (by the rules in ``docs/moments.md``), hidden widths, a module of your own with one
        score per row (it is copied), or a function that makes one from the number of inputs.
    plan : TrainingPlan, optional
        Public numbers of the training run; the engine's default if None.
    threshold : float
        Decide for the second class where its probability is above (engine "post-processing").
    class_weight : dict, "balanced" or None
        What an error costs by its true class, which sets the threshold (engine "post-processing").
    at : {"decision", "scores"}
        Where the constraint holds: for decisions at the threshold, or for scores, at many thresholds at once (engine
        "post-processing").
    random_state : int, RandomState or None
        Seeds public randomness only: initial weights and order of batches. Never the noise.
    preprocess : "auto" or None
        "auto" standardises numbers, fills missing ones and one-hot encodes categories (fitted on the rows of X in
        ``fit``, each counted once; see :class:`~justitia.preprocessing.encoding.TabularEncoder`); None takes finite
        numbers as they are, for a pipeline of your own.
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
        Of engines that train a network.
    rule_ : Rule
        Of engine "post-processing": base, calibration and correction.
    tolerance_ : float
        The tolerance in force.
    distance_ : float or None
        With ``at="scores"``, the largest noised difference between two groups' distributions of scores.
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
    * With a finite epsilon, any engine but "pf-ld-as-published", a given list of groups and no ``noise_seed``,
      everything that leaves ``fit`` (attributes, warnings, errors, progress, files) is (epsilon,
      delta)-differentially private in the attribute of any one row or, with ``person``, of any one person;
      ``certificate_`` states it, and what is missing otherwise.
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
        engine: str | None = None,
        base: Any = None,
        module: Any = None,
        plan: Plan | None = None,
        threshold: float = 0.5,
        class_weight: Any = None,
        at: str = "decision",
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
        self.base = base
        self.module = module
        self.plan = plan
        self.threshold = threshold
        self.class_weight = class_weight
        self.at = at
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
        X : array-like or DataFrame (n, p), or files
            Public features, without the sensitive attribute: a column of its name is refused. Only names are compared,
            so a table that lost its names on the way (in a pipeline, say) is yours to check. A Parquet file, a folder
            of them, a pattern, a dataset of pyarrow or :class:`~justitia.RowFiles` is read a few rows at a time
            (``docs/scale.md``); y, sensitive_features, sample_weight and person are then names of columns.
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
        public = {"sample_weight": sample_weight, "person": person, "ledger": ledger}
        if is_files(X):
            given = {"X": X, "y": y, "sensitive_features": sensitive_features} | public
            with unchanged_on_error(self):
                remarks = fit_from_files(self, given, checkpoint)
            rows = f"{Path(X).absolute()}, {y}" if isinstance(X, str | Path) else ""
        else:
            remarks, rows = self._fit(X, y, Attribute.of(sensitive_features), checkpoint, **public)
        # Last, so that a warning turned into an error does not throw away a model that was paid for.
        for sentence in remarks:
            warn_of(sentence, stacklevel=3)
        if ledger is None and checkpoint is None:
            FITS.note(rows, self.certificate_, stacklevel=3)
        return self

    def _fit(
        self, X: Any, y: Any, sensitive_features: Attribute, checkpoint: Path | str | None, **public: Any
    ) -> tuple[tuple[str, ...], str]:
        """Train on rows in memory; what is to be said about the result, and a hash of the public rows."""
        with unchanged_on_error(self), open_folder(checkpoint) as folder:
            session = self._open(X, y, sensitive_features, folder=folder, **public)
            session.warn(stacklevel=4)
            trained = session.train()
            session.check_spent()
            self._keep(session, trained)
        return self.certificate_.remarks, session.settings.rows

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
        weight = read_weight(sample_weight, target)
        costs = read_costs(self.class_weight, self.classes_, target)
        threshold = float(self.threshold if costs is None else costs[0] / costs.sum())
        problem = Problem(features, target, weight, notion, threshold=threshold)
        remarks = tuple(input_diagnostics(getattr(self, "encoder_", None), sample_weight, features.shape))
        rows = rows_digest([features, target])
        settings = Settings.of(self, plan, self._open_vault, remarks, rows)
        learner = self._learner(X, problem, plan, settings.seed)
        return open_session(settings, problem, learner, sensitive_features, person=person, ledger=ledger, folder=folder)

    def _learner(self, X: Any, problem: Problem, plan: Plan, seed: int) -> Learner[Any]:
        """What is trained: a network, or a base with a correction."""
        if plan.trains_network:
            from justitia.networks.learner import network_learner  # noqa: PLC0415 - needs torch, as this plan does
            from justitia.networks.plan import TrainingPlan  # noqa: PLC0415

            assert isinstance(plan, TrainingPlan)  # noqa: S101 - which is what trains_network says
            return network_learner(self.module, problem, plan, seed)
        base = base_of(self.base, self.classes_[1]) or default_base(len(problem))
        kind = RuleLearner if problem.crowd is None else CrowdLearner
        return kind(base, Inputs(X, problem.X.reshape(len(problem), -1)), seed)

    #: Where the attribute goes; audits put a vault there that keeps what is asked.
    _open_vault = staticmethod(open_vault)

    def _keep(self, session: Session, trained: Trained) -> None:
        groups, events = list(session.vault.group_names), list(session.problem.notion.event_names)
        for name in ("module_", "rule_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if isinstance(session.learner, RuleLearner):
            self.rule_ = session.learner.rule(session.problem)
        else:
            self.module_ = session.learner.fitted()
        self.tolerance_ = session.engine.allowed()
        self.distance_ = session.distance()
        self.groups_ = session.vault.groups
        self.plan_ = session.plan
        self.ledger_ = session.ledger
        self.certificate_ = session.certificate()
        self.dual_ = pd.DataFrame(trained.lam, index=pd.Index(groups, name="group"), columns=events)
        private = math.isfinite(self.certificate_.epsilon)
        self.history_, self.history_columns_ = history_table(trained.history, groups, events, private=private)

    def save(self, folder: Path | str, *, without_base: bool = False) -> Path:
        """Write the fitted model to ``folder`` without pickle; see :func:`justitia.persistence.folder.save`.

        Parameters
        ----------
        without_base : bool
            Whether a base that cannot be written (a forest, say) may stay with you; pass it to :meth:`load` again.
        """
        check_is_fitted(self, "plan_")
        return saved_folder.save(self, folder, without_base=without_base)

    @classmethod
    def load(cls, folder: Path | str, module: Any = None, base: Any = None) -> Self:
        """Read a model that :meth:`save` wrote, without running code from the folder.

        Parameters
        ----------
        module, base : optional
            What the model was fitted with, if that was a module of your own (one of the same shape; it is copied) or a
            base that ``justitia.persistence.rule`` cannot write: that base, fitted, or the saved model's
            ``rule_.base``.
        """
        return saved_folder.load(folder, module=module, base=base, kind=cls)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # random_state does not seed the noise, so two fits with the same random_state may differ
        tags.non_deterministic = self.noise_seed is None and self.epsilon != math.inf
        return tags
