"""The scikit-learn surface: ``LagrangianDualClassifier``."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Hashable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from justitia._validate import check_choice, check_int, check_nonnegative, check_same_length
from justitia.engines import default_plan, engine_of, name_of, warn_of_old_name
from justitia.exceptions import warn_of
from justitia.learners.base import Inputs, base_of
from justitia.learners.lightgbm_base import default_base
from justitia.notions import FairnessNotion, get_notion
from justitia.persistence import folder as saved_folder
from justitia.postprocessing.correction import Rule
from justitia.postprocessing.dual import label_table
from justitia.postprocessing.method import PostProcessing
from justitia.postprocessing.plan import AT, PostProcessingPlan
from justitia.preprocessing.outliers import clip_weights, input_diagnostics
from justitia.preprocessing.tables import PlainNumbers, read_costs, read_target, read_weight
from justitia.privacy.attribute import Attribute, HeldElsewhere
from justitia.privacy.frames import features_only, protects_attribute
from justitia.privacy.joining import FileAttribute
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import HiddenNoiseSeed
from justitia.privacy.persons import Persons
from justitia.privacy.vault import check_budget, named_groups, open_vault
from justitia.rows.file_data import FileData
from justitia.rows.files import FileRows, frames, stride
from justitia.rows.parquet import is_files
from justitia.rows.source import MemoryRows
from justitia.tabular import TabularClassifier, unchanged_on_error
from justitia.tasks import Task
from justitia.training.checkpoint import RunFolder, open_folder
from justitia.training.history import history_table
from justitia.training.lagrangian import Problem
from justitia.training.method import Method, Trained
from justitia.training.plan import Plan
from justitia.training.progress import pass_bar
from justitia.training.same_rows import FITS, rows_digest
from justitia.training.session import Session, Settings, open_session

Model = TypeVar("Model", bound=BaseEstimator)


class LagrangianDualClassifier(HiddenNoiseSeed, TabularClassifier):
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
        Largest difference between two groups' rates that is allowed. None: one standard error (sampling and noise) of
        the difference between the two smallest groups, times the plan's ``dead_zone``; ``tolerance_`` is the number.
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

    rule_: Rule
    feature_names_in_: NDArray[Any]

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

    @protects_attribute
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
        data = {"X": X, "y": y, "sensitive_features": sensitive_features, "sample_weight": sample_weight}
        with (
            unchanged_on_error(self),
            open_folder(checkpoint) as folder,
            closing(self._open(**data, person=person, ledger=ledger, folder=folder)) as session,
        ):
            session.warn(stacklevel=4)
            trained = session.train()
            session.check_spent()
            self._keep(session, trained)
        # Last, so that a warning turned into an error does not throw away a model that was paid for.
        for sentence in self.certificate_.remarks:
            warn_of(sentence, stacklevel=3)
        if ledger is None and checkpoint is None:
            FITS.note(session.settings.rows, self.certificate_, stacklevel=3)
        return self

    def _open(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any,
        *,
        sample_weight: Any = None,
        person: Any = None,
        ledger: PrivacyLedger | None = None,
        folder: RunFolder | None = None,
    ) -> Session:
        """Check parameters and public data, and open a session with them."""
        notion, plan = check_parameters(self)
        attribute: Attribute | FileAttribute | HeldElsewhere
        if is_files(X):
            check_files_allowed(notion, plan)
            data = FileData.from_names(X, y, sensitive_features, sample_weight, person)
            table, problem, attribute, person = self._read_files(data, notion)
            rows = f"{Path(X).absolute()}, {y}" if isinstance(X, str | Path) else ""
        else:
            attribute, table = Attribute.from_container(sensitive_features), X
            problem = self._read_table(X, y, sample_weight, notion, plan)
            rows = rows_digest([problem.X, problem.y])
        try:
            weight = None if is_files(X) else sample_weight
            remarks = tuple(input_diagnostics(getattr(self, "encoder_", None), weight, problem.X.shape))
            settings = Settings.from_model(self, plan, remarks=remarks, rows=rows)
            method = self._method(table, problem, plan, settings.seed)
            return open_session(settings, method, attribute, person=person, ledger=ledger, folder=folder)
        except BaseException:
            problem.source.close()
            raise

    def _read_table(self, X: Any, y: Any, sample_weight: Any, notion: FairnessNotion, plan: Plan) -> Problem:
        """The public part of rows in memory."""
        features = self._features(X, reset=True)
        self.classes_, target = read_target(y)
        check_same_length(X=features, y=target)
        weight = read_weight(sample_weight, target)
        source = MemoryRows(features, target, weight, plan.micro_batch)
        return Problem(features, target, weight, notion, self._threshold_for(target), source)

    def _read_files(
        self, data: FileData, notion: FairnessNotion
    ) -> tuple[pd.DataFrame, Problem, FileAttribute | HeldElsewhere, Persons | None]:
        """The public sample of rows in files, where their attribute is, and which rows are one person's."""
        source = FileRows(data.files, data.columns, lambda total, name: pass_bar(self.progress, total, name))
        try:
            scan = source.scan()
            table = scan.sample()
            frame = table[list(data.columns.features)]
            features = self._features(frame, reset=True)
            self.classes_ = classes_of(scan.labels, data.files.positive)
            target = (table[data.columns.target].to_numpy() == self.classes_[1]).astype(np.float32)
            given = None if data.columns.weight is None else np.asarray(table[data.columns.weight], dtype=np.float64)
            threshold = self._threshold_for(target)
            if stride(source.n) == 1:  # the sample has all rows
                source.close()
                problem = Problem(features, target, read_weight(given, target), notion, threshold)
                return frame, problem, data.attribute(), data.persons()
            weight = np.ones(len(target), dtype=np.float32)
            if given is not None:
                cap = float(clip_weights(given / scan.largest_weight).max()) if given.any() else 1.0
                weight = source.scale_weights(scan.largest_weight, cap).scaled(given)
            encode = PlainNumbers(features.shape[1]) if self.preprocess is None else self.encoder_.transform
            source.encode_with(encode, self.classes_[1])
            problem = Problem(features, target, weight, notion, threshold, source)
            return frame, problem, data.attribute(source.ranges), data.persons()
        except BaseException:
            source.close()
            raise

    def _threshold_for(self, target: NDArray[np.float32]) -> float:
        """The threshold, or the one that costs of errors set."""
        costs = read_costs(self.class_weight, self.classes_, target)
        return float(self.threshold if costs is None else costs[0] / costs.sum())

    def _method(self, table: Any, problem: Problem, plan: Plan, seed: int) -> Method:
        """What is trained: a base model with a correction, or a network."""
        if plan.trains_network:
            from justitia.networks.method import network_method  # noqa: PLC0415 - needs torch, as this plan does

            return network_method(self.module, problem, plan, seed)
        base = base_of(self.base, Task.of_classes(self.classes_)) or default_base(len(problem))
        return PostProcessing(base, Inputs(table, problem.X.reshape(len(problem), -1)), problem, seed)

    #: Opens the vault; audits put a function there that records queries.
    _open_vault = staticmethod(open_vault)

    def _keep(self, session: Session, trained: Trained) -> None:
        """Keep what a session has released, and nothing else."""
        groups, events = list(session.vault.group_names), list(session.method.problem.notion.event_names)
        for name in ("module_", "rule_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        setattr(self, "module_" if session.plan.trains_network else "rule_", session.run.fitted())
        self.tolerance_ = session.run.tolerance
        self.distance_ = session.run.distance()
        self.groups_ = session.vault.groups
        self.plan_ = session.plan
        self.ledger_ = session.ledger
        self.certificate_ = session.certificate()
        self.dual_ = pd.DataFrame(trained.lam, index=pd.Index(groups, name="group"), columns=events)
        private = math.isfinite(self.certificate_.epsilon)
        self.history_, self.history_columns_ = history_table(trained.history, groups, events, private=private)

    @features_only
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of the second class; positive means that ``predict`` says the second class."""
        check_is_fitted(self, "plan_")
        if is_files(X):
            return np.concatenate([self.decision_function(table) for table in frames(X, self.feature_names_in_)])
        if hasattr(self, "module_"):
            from justitia.networks.classifier import logits  # noqa: PLC0415 - needs torch, which a network has

            return logits(self.module_, self._features(X, reset=False))
        return self.rule_.margin(self._inputs(X))

    @features_only
    def base_proba(self, X: Any) -> NDArray[np.float64] | None:
        """(n,): the base's probability of the second class, before the correction; None of a network, without one."""
        check_is_fitted(self, "plan_")
        return self.rule_.base_probability(self._inputs(X)) if hasattr(self, "rule_") else None

    def _inputs(self, X: Any) -> Inputs:
        features = self._features(X, reset=False)
        return Inputs(X, features.reshape(len(features), -1))

    @features_only
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, 2): what decisions are made from, in the order of ``classes_``.

        Of engine "post-processing" the second column is the base's calibrated probability where the correction leaves
        the decision as it was; where it changes the decision, a number next to ``threshold`` on the decision's side. Of
        a network it is the score through a sigmoid: a probability of the label as far as the loss made it one.
        """
        margin = self.decision_function(X)
        second = expit(margin) if hasattr(self, "module_") else self.rule_.probability(margin)
        return np.column_stack([1 - second, second])

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


def check_files_allowed(notion: FairnessNotion, plan: Plan) -> None:
    """Refuse engines and notions that do not work on rows in files."""
    if not plan.shares_answers:
        raise ValueError(
            f"expected engine 'post-processing' or 'moments' where X is in files, got {name_of(plan)!r}; leave "
            "engine out, or read the rows into memory."
        )
    try:
        label_table(notion)
    except ValueError:
        raise ValueError(
            "expected a notion whose h_exact depends on a score through its sign where X is in files, got "
            f"{type(notion).__name__}; read the rows into memory."
        ) from None


def classes_of(labels: set[Any], positive: str | None) -> NDArray[Any]:
    """The two class labels, the one that counts as positive last."""
    try:
        classes, _ = read_target(np.array(sorted(labels)))
    except TypeError:
        raise TypeError("expected class labels of one type in y, got several; pass all text or all numbers.") from None
    if positive is None:
        return classes
    texts = [str(one).strip() for one in classes.tolist()]
    if positive.strip() not in texts:
        raise ValueError(f"expected one of the class labels {texts} as the positive one, got {positive!r}.")
    return classes if texts[1] == positive.strip() else classes[::-1].copy()


def check_parameters(model: BaseEstimator) -> tuple[FairnessNotion, Plan]:
    """Everything about the constructor's arguments that can be wrong without looking at data."""
    notion, plan = get_notion(model.notion), plan_of(model)
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
    _check_decisions(model, plan)
    if isinstance(plan, PostProcessingPlan):
        plan = replace(plan, at=check_choice("at", model.at, AT))
    return notion, plan


def plan_of(model: BaseEstimator) -> Plan:
    """The plan that was passed, or the default one of the engine."""
    engine = engine_of(model.engine, model.module)
    warn_of_old_name(model.engine)
    default = default_plan(engine)
    plan = default if model.plan is None else model.plan
    if not isinstance(plan, type(default)):
        raise TypeError(
            f"expected a {type(default).__name__} for engine {engine!r}, got {type(plan).__name__}; "
            "pass a plan of that kind, or none."
        )
    return plan


def _check_decisions(model: BaseEstimator, plan: Plan) -> None:
    """What only one kind of engine understands."""
    network = plan.trains_network
    if network and (model.base is not None or model.threshold != 0.5 or model.class_weight is not None):
        raise ValueError(
            "expected engine 'post-processing' where base, threshold or class_weight is given, got one that trains a "
            "network; leave engine and module out."
        )
    if network and model.at != "decision":
        raise ValueError(
            f"expected at='decision' with an engine that trains a network, got {model.at!r}; leave engine and module "
            "out."
        )
    if not network and model.module is not None:
        raise ValueError(
            "expected no module with engine 'post-processing', got one; pass it as base, or use engine 'moments'."
        )
    threshold = model.threshold
    if not (isinstance(threshold, numbers.Real) and 0 < float(threshold) < 1):
        raise ValueError(f"expected threshold to be a number between 0 and 1, got {threshold!r}.")
    if threshold != 0.5 and model.class_weight is not None:
        raise ValueError("expected threshold or class_weight, got both; costs of errors set the threshold.")


def unfitted(model: Model) -> Model:
    """A model with the same parameters; unlike scikit-learn's clone it leaves a fitted base fitted."""
    parameters = model.get_params(deep=False)
    parameters["random_state"] = copy.deepcopy(parameters["random_state"])
    fresh: Model = type(model)(**parameters)
    return fresh
