"""The scikit-learn surface: ``LagrangianDualClassifier``."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from justitia._validate import check_choice, check_nonnegative, check_same_length
from justitia.engines import engine_of, name_of, plan_class, warn_of_old_name
from justitia.goals import Goal
from justitia.learners.base import Inputs, base_of
from justitia.learners.lightgbm_base import LightGBMBase
from justitia.notions import FairnessNotion, get_notions
from justitia.persistence import folder as saved_folder
from justitia.postprocessing.coin import Coin
from justitia.postprocessing.plan import AT, PostProcessingPlan
from justitia.postprocessing.solver import PostProcessing
from justitia.preprocessing.outliers import input_diagnostics
from justitia.preprocessing.proxies import ProxyEncoder, check_proxy_names, read_proxy
from justitia.preprocessing.tables import read_costs, read_target, read_task_target, read_weight
from justitia.privacy.attribute import Attribute, HeldElsewhere
from justitia.privacy.frames import features_only, protects_attribute
from justitia.privacy.joining import FileAttribute, FrameAttribute
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.persons import Persons
from justitia.private_estimator import PrivateEstimator, check_common_parameters, file_weights, fits_in_memory
from justitia.rows.file_data import FileData, is_frame, is_stored
from justitia.rows.files import frames, label_codes
from justitia.rows.source import MemoryRows
from justitia.tabular import TabularClassifier
from justitia.tasks import Task
from justitia.training.checkpoint import RunFolder
from justitia.training.diagnostics import decided
from justitia.training.lagrangian import Problem
from justitia.training.method import Method, Trained
from justitia.training.plan import Plan
from justitia.training.same_rows import rows_digest
from justitia.training.session import Session, Settings, open_session

Model = TypeVar("Model", bound=BaseEstimator)
#: More public strata are too small to be compared.
MOST_STRATA = 50


class LagrangianDualClassifier(PrivateEstimator, TabularClassifier):
    r"""Classifier of two or more classes, trained to treat groups alike and private in the sensitive attribute.

    Minimises the loss subject to :math:`|\mu(D_G) - \mu(D_{G'})| \le tolerance` for every two groups by a Lagrangian
    dual: solved in closed form on top of any model of the label (engine "post-processing"), or by Algorithm 1 of the
    paper for networks. The attribute is read in ``fit`` only, through noised answers, and never at prediction.

    Parameters
    ----------
    notion : str, FairnessNotion, or list of these
        "demographic_parity", "equalized_odds", "accuracy_parity", "equal_opportunity", "predictive_equality",
        "conditional_demographic_parity" (within the strata that ``fit`` is given), "predictive_parity" (the same
        precision), or an object of your own. fairlearn's names, such as "true_positive_rate_parity", are taken too. A
        list holds several at once. More than two classes: the first four and "conditional_demographic_parity".
    epsilon, delta : float
        The privacy budget of one ``fit``. ``epsilon=inf`` trains without privacy, and the certificate says so.
    tolerance : float, list, mapping or None
        Largest difference between two groups' rates that is allowed: one number, one for each of several notions, or a
        mapping from names of rates (columns of ``dual_``) to numbers. None: one standard error (sampling and noise) of
        the difference between the two smallest groups, times the plan's ``dead_zone``; ``tolerance_`` is the number.
        Two classes are then corrected as long as each changed decision of a group costs at most twenty right ones.
    ratio : float, optional
        Instead of a tolerance: smallest rate of a group as a share of the largest, 0.8 for the four-fifths rule.
    groups : sequence, mapping, Bins or "infer"
        The public list of group labels. "infer" reads it off the data, and the certificate then begins with saying that
        the list is not protected. None is an error at a finite epsilon, and "infer" without privacy.
    engine : {"post-processing", "moments", "pf-ld", "pf-ld-as-published"}, optional
        By default "post-processing", which corrects the decisions of ``base`` by the dual in closed form
        (``docs/how_it_works.md``), and "moments" where ``module`` is given, which trains a network on a handful of
        noisy sums (``docs/networks.md``). "pf-ld" is the repaired PF-LD; "pf-ld-as-published" is the paper's algorithm
        as published, whose guarantee is not established (see ``docs/proofs.md``). All but the first need the extra
        ``networks``.
    base : classifier, callable or str, optional
        The model of the label that engine "post-processing" corrects: a scikit-learn classifier or pipeline,
        cross-fitted, or used as it is if it is fitted; a function from X to p(y = 1 | x); or the name of a column of X
        that holds it. It sees X as you pass it. None is boosted trees of LightGBM.
    module : None, sequence of int, torch.nn.Module or callable
        The network: the default one (by the rules in ``docs/networks.md``), hidden widths, a module of your own with
        one score per row (it is copied), or a function that makes one from the number of inputs.
    plan : TrainingPlan, optional
        Public numbers of the training run; the engine's default if None.
    threshold : float
        Decide for the second class where its probability is above (engine "post-processing").
    class_weight : dict, "balanced" or None
        What an error costs by its true class, which sets the threshold (engine "post-processing").
    costs : array-like (K, K), optional
        What a decision (column) costs by true class (row), in the order of ``classes_`` (engine "post-processing").
    quota : float or mapping, optional
        Share of rows that are decided for the second class; of more classes, a mapping from classes to shares. It is
        exact to one row on the training rows of two classes, up to rows with equal scores (engine "post-processing").
    at : {"decision", "scores"}
        Where the constraint holds: for decisions at the threshold, or for scores, at many thresholds at once (engine
        "post-processing", two classes).
    randomize : float
        Width of a band around the threshold, in units of the probability, in which decisions follow a public coin: a
        keyed hash of the encoded row, so that the same row always gets the same decision (``docs/how_it_works.md``).
        0 is off (engine "post-processing", two classes).
    random_state : int, RandomState or None
        Seeds public randomness only: initial weights and order of batches. Never the noise.
    preprocess : "auto" or None
        "auto" standardises numbers, fills missing ones and one-hot encodes categories (fitted on the rows of X in
        ``fit``, each counted once; see :class:`~justitia.preprocessing.encoding.TabularEncoder`); None takes finite
        numbers as they are, for a pipeline of your own.
    missing_marker : hashable, optional
        A label that means "not given", besides None and NaN.
    missing : {"allowed", "none"}
        "none" states publicly that every row has one of the listed groups. The noise then has 3/4 of the variance with
        two groups, and 8/9 with three; an entry that is missing or not listed counts as the first group, without notice
        (``docs/proofs.md``, section 1.2).
    noise_seed : int, optional
        Makes the noise reproducible for tables; the certificate then begins with saying that nothing is promised. The
        seed is not printed, and neither a file nor a pickle of the fitted model holds it.
    progress : bool, optional
        Show a progress bar; by default only in a terminal.
    n_jobs : int, optional
        Models of the base that are learned at the same time, in threads: None is one, -1 is one per core. The result
        does not depend on it (engine "post-processing").

    Attributes
    ----------
    classes_ : ndarray (K,)
    module_ : torch.nn.Module
        Of engines that train a network.
    rule_ : Rule or ClassRule
        Of engine "post-processing": base, calibration and correction.
    tolerance_ : float
        The tolerance in force; of several, the largest.
    tolerances_ : Series
        The tolerance of every rate (engine "post-processing").
    distance_ : float or None
        With ``at="scores"``, the largest noised difference between two groups' distributions of scores.
    certificate_ : Certificate
    ledger_ : PrivacyLedger
    groups_ : tuple
        The public list of groups as labels; of crossed columns, tuples of labels.
    plan_ : TrainingPlan
        The calibrated plan that was carried out.
    price_ : DataFrame
        What the constraint costs (engine "post-processing"): the uncorrected base, then tolerances from loosest to
        strictest, that of the deployed model among them (``deployed``). Accuracy, AUC and share of positive decisions
        are public and out of fold; ``violation`` is estimated from memberships and all checks, with its standard error.
        See ``docs/how_it_works.md``.
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

    rule_: Any  # Rule, or ClassRule of more than two classes
    feature_names_in_: NDArray[Any]

    # sensitive_features is routed to fit by default; scikit-learn's other methods never see it.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {
        "sensitive_features": True,
        "person": True,
        "strata": True,
        "proxy": True,
    }

    def __init__(
        self,
        notion: Any = "demographic_parity",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        tolerance: Any = None,
        ratio: float | None = None,
        groups: Any = None,
        engine: str | None = None,
        base: Any = None,
        module: Any = None,
        plan: Plan | None = None,
        threshold: float = 0.5,
        class_weight: Any = None,
        costs: Any = None,
        quota: Any = None,
        at: str = "decision",
        randomize: float = 0.0,
        random_state: Any = None,
        preprocess: str | None = "auto",
        missing_marker: Hashable = None,
        missing: str = "allowed",
        noise_seed: int | None = None,
        progress: bool | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.notion = notion
        self.epsilon = epsilon
        self.delta = delta
        self.tolerance = tolerance
        self.ratio = ratio
        self.groups = groups
        self.engine = engine
        self.base = base
        self.module = module
        self.plan = plan
        self.threshold = threshold
        self.class_weight = class_weight
        self.costs = costs
        self.quota = quota
        self.at = at
        self.randomize = randomize
        self.random_state = random_state
        self.preprocess = preprocess
        self.missing_marker = missing_marker
        self.missing = missing
        self.noise_seed = noise_seed
        self.progress = progress
        self.n_jobs = n_jobs

    @protects_attribute
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any,
        sample_weight: Any = None,
        person: Any = None,
        strata: Any = None,
        proxy: Any = None,
        ledger: PrivacyLedger | None = None,
        checkpoint: Path | str | None = None,
    ) -> Self:
        """Train; a fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or DataFrame (n, p), or files, or a data frame of Spark, Ray or Dask
            Public features, without the sensitive attribute: a column of its name is refused. Only names are compared,
            so a table that lost its names on the way (in a pipeline, say) is yours to check. A Parquet file, a folder
            of them, a pattern, a dataset of pyarrow or :class:`~justitia.RowFiles` is read a few rows at a time, and a
            data frame by the workers of its engine (``docs/scale.md``); y, sensitive_features, sample_weight and
            person are then names of columns.
        y : array-like (n,)
            Class labels, two or more; public.
        sensitive_features : array-like, Series or DataFrame
            Each person's attribute; several columns are crossed. None, NaN and labels that are not in ``groups`` mean
            "not given".
        sample_weight : array-like (n,), optional
            How often a row counts, in the loss and in every group mean; public.
        person : array-like (n,), optional
            Public ids that say which rows are one person's. The promise is then about a person with all their rows;
            without ids it is about one row (``docs/proofs.md``, section 1.1).
        strata : array-like (n,) or str, optional
            Public strata of the rows, or the column of X that holds them, for "conditional_demographic_parity". New
            rows are corrected by X alone, so X should tell the stratum.
        proxy : DataFrame, Series or array-like (n,) or (n, r), optional
            Public columns that say something about the group, such as probabilities by surname and address
            (``docs/proxies.md``); of X in files, names of columns. Noised sums compare them with the attribute. They
            are no features, and not needed at prediction. Engine "post-processing".
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
        return self._train(
            partial(self._open, **data, person=person, strata=strata, proxy=proxy, ledger=ledger),
            ledger=ledger,
            checkpoint=checkpoint,
        )

    def _open(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any,
        *,
        sample_weight: Any = None,
        person: Any = None,
        strata: Any = None,
        proxy: Any = None,
        ledger: PrivacyLedger | None = None,
        folder: RunFolder | None = None,
    ) -> Session:
        """Check parameters and public data, and open a session with them."""
        (notions, plan), stored = check_parameters(self), is_stored(X)
        check_data(notions, plan, X if stored else None, strata, proxy)
        attribute: Attribute | FileAttribute | FrameAttribute | HeldElsewhere
        if stored:
            data = FileData.from_names(X, y, sensitive_features, sample_weight, person, proxy)
            table, problem, attribute, person = self._read_files(data, notions, plan)
            proxies = data.columns.proxy
            rows = f"{Path(X).absolute()}, {y}" if isinstance(X, str | Path) else ""
        else:
            attribute, table = Attribute.from_container(sensitive_features), X
            problem, proxies = self._read_table(X, y, sample_weight, strata, proxy, notions, plan)
            rows = rows_digest([problem.X, problem.y])
        try:
            weight = None if stored else sample_weight
            remarks = tuple(input_diagnostics(getattr(self, "encoder_", None), weight, problem.X.shape))
            tolerance = self.tolerance if plan.trains_network else tolerances_of(self.tolerance, problem.goal)
            settings = Settings.from_model(self, plan, tolerance=tolerance, remarks=remarks, rows=rows)
            settings = replace(settings, features=(*settings.features, *proxies))
            method = self._method(table, problem, plan, settings.seed)
            return open_session(settings, method, attribute, person=person, ledger=ledger, folder=folder)
        except BaseException:
            problem.source.close()
            raise

    def _read_table(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        strata: Any,
        proxy: Any,
        notions: list[FairnessNotion],
        plan: Plan,
    ) -> tuple[Problem, tuple[str, ...]]:
        """The public part of rows in memory, and names of the proxies."""
        features = self._features(X, reset=True)
        task, self.classes_, target = self._read_target(y, plan)
        check_same_length(X=features, y=target)
        weight = read_weight(sample_weight, target, task)
        proxies: tuple[str, ...]
        names, codes = ([], None) if strata is None else read_strata(strata, X, len(target))
        proxies, columns = ((), None) if proxy is None else read_proxy(proxy, len(target))
        if proxies:
            check_proxy_names(proxies, getattr(self, "feature_names_in_", ()))
        problem = self._problem(features, target, weight, notions, plan, task, strata=(names, codes), proxy=columns)
        source = MemoryRows(features, problem.codes, weight, plan.micro_batch, columns)
        return replace(problem, source=source), proxies

    def _read_target(self, y: Any, plan: Plan) -> tuple[Task, NDArray[Any], NDArray[Any]]:
        """Kind of the target, class labels and codes; networks have two classes."""
        if plan.trains_network:
            classes, codes = read_target(y)
            return Task.of_classes(classes.tolist()), classes, codes
        _, classes, codes = read_task_target(y)
        task = Task.of_classes(classes.tolist())
        if task.kind == "classes" and self.randomize:
            raise ValueError(
                f"expected randomize=0 because y has {task.n_classes} classes, got {self.randomize:g}; leave it out."
            )
        if task.kind == "classes" and self.at != "decision":
            raise ValueError(
                f"expected at='decision' because y has {task.n_classes} classes, got {self.at!r}; scores of several "
                "classes are not held alike."
            )
        return task, classes, codes

    def _problem(
        self,
        features: NDArray[np.float32],
        target: NDArray[np.float32],
        weight: NDArray[np.float32],
        notions: list[FairnessNotion],
        plan: Plan,
        task: Task,
        *,
        source: Any = None,
        strata: tuple[list[str], NDArray[np.int64] | None] = ([], None),
        proxy: NDArray[np.float32] | None = None,
    ) -> Problem:
        """What is public about the rows, and what decisions are held to."""
        names, codes = strata
        costs = None if self.costs is None else read_cost_matrix(self.costs, task)
        threshold, matrix = self._threshold_for(target, costs), None
        if task.kind == "classes":
            matrix = costs if costs is not None else class_costs(self.class_weight, self.classes_, target)
            if self.threshold != 0.5:
                raise ValueError(f"expected no threshold because y has {task.n_classes} classes, got one; use costs.")
        made = Problem(
            features, target, weight, notions[0], threshold, source, task=task, strata=codes, costs=matrix, proxy=proxy
        )
        if plan.trains_network:
            return made
        quota = None if self.quota is None else read_quota(self.quota, task)
        goal = Goal.from_notions(notions, task.classes, strata=names, ratio=self.ratio, quota=quota)
        return replace(made, given_goal=goal, proxy=proxy)

    def _read_files(
        self, data: FileData, notions: list[FairnessNotion], plan: Plan
    ) -> tuple[pd.DataFrame, Problem, FileAttribute | FrameAttribute | HeldElsewhere, Persons | None]:
        """The public sample of rows in files, where their attribute is, and which rows are one person's."""
        source = self._open_files(data)
        try:
            scan = source.scan()
            table = scan.sample()
            frame = table[list(data.columns.features)]
            features = self._features(frame, reset=True)
            self.classes_ = classes_of(scan.labels, data.files.positive)
            task, _, _ = self._read_target(self.classes_, plan)
            target = label_codes(table[data.columns.target].to_numpy(), self.classes_.tolist())
            encoder = ProxyEncoder.fit(table[list(data.columns.proxy)]) if data.columns.proxy else None
            proxy = None if encoder is None else encoder(table[list(data.columns.proxy)])
            given = None if data.columns.weight is None else np.asarray(table[data.columns.weight], dtype=np.float64)
            if fits_in_memory(source):
                source.close()
                weight = read_weight(given, target, task)
                problem = self._problem(features, target, weight, notions, plan, task, proxy=proxy)
                return frame, problem, data.attribute(), data.persons()
            weight = file_weights(source, scan, given, len(target))
            source.encode_with(self._encode(features.shape[1]), self.classes_.tolist(), encoder)
            proxies = 0 if proxy is None else proxy.shape[1]
            source.check_room(math.prod(features.shape[1:]) + proxies, math.prod(task.prediction_shape(1)))
            problem = self._problem(features, target, weight, notions, plan, task, source=source, proxy=proxy)
            return frame, problem, data.attribute(source.ranges), data.persons()
        except BaseException:
            source.close()
            raise

    def _threshold_for(self, target: NDArray[np.float32], costs: NDArray[np.float64] | None) -> float:
        """The threshold of two classes, or the one that costs of errors set."""
        if len(self.classes_) > 2:
            return 0.5
        if costs is not None:  # costs of a wrong decision beyond those of the right one
            first, second = costs[0, 1] - costs[0, 0], costs[1, 0] - costs[1, 1]
            return float(first / (first + second))
        if self.class_weight is None:
            return float(self.threshold)
        by_class = read_costs(self.class_weight, self.classes_, target)
        return float(by_class[0] / by_class.sum())

    def _method(self, table: Any, problem: Problem, plan: Plan, seed: int) -> Method:
        """What is trained: a base model with a correction, or a network."""
        if plan.trains_network:
            from justitia.networks.method import network_method  # noqa: PLC0415 - needs torch, as this plan does

            return network_method(self.module, problem, plan, seed)
        base = base_of(self.base, problem.task, n_jobs=self.n_jobs)
        base = base or LightGBMBase(len(problem), problem.task, n_jobs=self.n_jobs)
        coin = Coin.from_seed(float(self.randomize), seed) if self.randomize else None
        return PostProcessing(base, Inputs(table, problem.X.reshape(len(problem), -1)), problem, seed, coin)

    def _keep(self, session: Session, trained: Trained) -> None:
        """Keep what a session has released, and nothing else."""
        problem, network = session.method.problem, session.plan.trains_network
        rates = list(problem.notion.event_names if network else problem.goal.table.names)
        for name in ("module_", "rule_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        setattr(self, "module_" if network else "rule_", session.run.fitted())
        self._keep_released(session, trained, rates)
        self.tolerances_ = pd.Series(getattr(session.run, "tolerances", self.tolerance_), index=rates)

    @features_only
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """(n,): score of the second class, positive if it is predicted; of more classes (n, K), the largest decides."""
        check_is_fitted(self, "plan_")
        if is_frame(X):
            more = len(self.classes_) > 2
            return self._predict_frame(X, "decision_function", self._named("score") if more else ["score"])  # type: ignore[no-any-return]
        if is_stored(X):
            return np.concatenate([self.decision_function(table) for table in frames(X, self.feature_names_in_)])
        if hasattr(self, "module_"):
            from justitia.networks.classifier import logits  # noqa: PLC0415 - needs torch, which a network has

            return logits(self.module_, self._features(X, reset=False))
        margin: NDArray[np.float64] = self.rule_.margin(self._inputs(X))
        return margin

    @features_only
    def base_proba(self, X: Any) -> NDArray[np.float64] | None:
        """(n,): the base's probability of the second class, before the correction; None of a network, without one.

        Of more than two classes (n, K).
        """
        check_is_fitted(self, "plan_")
        return self.rule_.base_probability(self._inputs(X)) if hasattr(self, "rule_") else None

    @features_only
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, K): what decisions are made from, in the order of ``classes_``.

        Of engine "post-processing" the second column is the base's calibrated probability where the correction leaves
        the decision as it was; where it changes the decision, a number next to ``threshold`` on the decision's side. Of
        a network it is the score through a sigmoid: a probability of the label as far as the loss made it one. Of more
        than two classes these are the base's probabilities; where the correction changes the decision, that of the
        decided class is raised above the others.
        """
        check_is_fitted(self, "plan_")
        if is_frame(X):
            return self._predict_frame(X, "predict_proba", self._named("probability"))  # type: ignore[no-any-return]
        if len(self.classes_) > 2:
            return self._class_probabilities(X)
        margin = self.decision_function(X)
        second = expit(margin) if hasattr(self, "module_") else self.rule_.probability(margin)
        return np.column_stack([1 - second, second])

    def _named(self, what: str) -> list[str]:
        """Names of a column for each class."""
        return [f"{what}_{label}" for label in self.classes_.tolist()]

    def _class_probabilities(self, X: Any) -> NDArray[np.float64]:
        """(n, K)."""
        if is_stored(X):
            return np.concatenate([self._class_probabilities(part) for part in frames(X, self.feature_names_in_)])
        found: NDArray[np.float64] = self.rule_.probability(self._inputs(X))
        return found

    @features_only
    def predict(self, X: Any) -> NDArray[Any]:
        """(n,): predicted class labels; the attribute is not an input.

        Of a data frame of Spark, Ray or Dask, the data frame with a column ``prediction``; ``predict_proba`` and
        ``decision_function`` add columns likewise.
        """
        if is_frame(X):
            check_is_fitted(self, "plan_")
            return self._predict_frame(X, "predict", ["prediction"])  # type: ignore[no-any-return]
        decisions = decided(self.decision_function(X))
        labels: NDArray[Any] = self.classes_[decisions]
        return labels

    @classmethod
    def load(cls, folder: Path | str, module: Any = None, base: Any = None) -> Self:
        """Read a model that :meth:`save` wrote, without running code from the folder.

        Parameters
        ----------
        module, base : optional
            What the model was fitted with, if that was a module of your own (one of the same shape; it is copied) or a
            base that ``justitia.persistence.base`` cannot write: that base, fitted, or the saved model's
            ``rule_.base``.
        """
        return saved_folder.load(folder, module=module, base=base, kind=cls)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.module is None and engine_of(self.engine, None) == "post-processing"
        return tags


def check_data(notions: list[FairnessNotion], plan: Plan, stored: Any, strata: Any, proxy: Any) -> None:
    """Refuse strata, proxies and rows in files that notions or the engine have no use for.

    Parameters
    ----------
    stored : optional
        Rows in files, or a data frame of an engine; None of rows in memory.
    """
    needed = next((one.name for one in notions if one.within_strata), None)
    if needed is not None and strata is None:
        raise ValueError(f"expected strata for {needed!r}, got none; pass fit(..., strata=array or column of X).")
    if strata is not None and needed is None:
        raise ValueError(
            "expected a notion within strata where strata are given, got another; use 'conditional_demographic_parity'."
        )
    if needed is not None and stored is not None:
        raise ValueError(f"expected rows in memory for {needed!r}, got files; read the rows into memory.")
    if proxy is not None and not isinstance(plan, PostProcessingPlan):
        raise ValueError(
            f"expected engine 'post-processing' with a proxy, got {name_of(plan)!r}; leave engine and module out, or "
            "the proxy."
        )
    if stored is None:
        return
    if not plan.shares_answers:
        raise ValueError(
            f"expected engine 'post-processing' or 'moments' where X is in files, got {name_of(plan)!r}; leave "
            "engine out, or read the rows into memory."
        )
    for notion in notions:
        try:
            notion.decision_values()
        except ValueError:
            raise ValueError(
                "expected a notion whose h_exact depends on a score through its sign where X is in files, got "
                f"{type(notion).__name__}; read the rows into memory."
            ) from None
    if plan.trains_network and is_frame(stored):
        raise ValueError(
            "expected engine 'post-processing' with a data frame of Spark, Ray or Dask, got "
            f"{name_of(plan)!r}; leave engine and module out, or write the rows to Parquet files."
        )


def read_strata(strata: Any, X: Any, n: int) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the public strata, sorted, and (n,) codes."""
    if isinstance(strata, str):
        if strata not in getattr(X, "columns", ()):
            raise ValueError(f"expected strata to be an array or a column of X, got {strata!r}, which X does not have.")
        strata = X[strata]
    values = np.asarray(strata)
    if values.shape != (n,) or pd.isna(values).any():
        raise ValueError(f"expected one stratum per row, shape ({n},), got shape {values.shape} or missing ones.")
    names, codes = np.unique(values.astype(str), return_inverse=True)
    if len(names) > MOST_STRATA:
        raise ValueError(f"expected at most {MOST_STRATA} strata, got {len(names)}; divide them into fewer bands.")
    return names.tolist(), codes.astype(np.int64)


def read_cost_matrix(costs: Any, task: Task) -> NDArray[np.float64]:
    """(K, K): cost of each decision by true class, the largest 1.

    Raises
    ------
    ValueError
        If it has another shape, or a wrong decision costs no more than the right one.
    """
    try:
        matrix = np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    shape = (task.n_classes, task.n_classes)
    if matrix.shape != shape or not np.isfinite(matrix).all():
        raise ValueError(f"expected costs to be numbers of shape {shape}, true class by decision, got something else.")
    beyond = matrix - np.diag(matrix)[:, None]
    if (beyond[~np.eye(len(matrix), dtype=bool)] <= 0).any():
        raise ValueError("expected every wrong decision to cost more than the right one, got costs that do not.")
    scaled: NDArray[np.float64] = beyond / beyond.max()
    return scaled


def class_costs(class_weight: Any, classes: NDArray[Any], target: NDArray[np.float32]) -> NDArray[np.float64] | None:
    """(K, K): costs of errors by true class; None if ``class_weight`` is None."""
    if class_weight is None:
        return None
    by_class = read_costs(class_weight, classes, target)
    matrix: NDArray[np.float64] = (1 - np.eye(len(classes))) * (by_class / by_class.max())[:, None]
    return matrix


def read_quota(quota: Any, task: Task) -> NDArray[np.float64]:
    """(K - 1,): share of rows of each class but the first, NaN where none is given.

    Raises
    ------
    ValueError
        If it is no share of a class.
    """
    if not isinstance(quota, Mapping):
        if task.kind == "classes":
            raise ValueError(f"expected quota to be a mapping from classes to shares, got {quota!r}.")
        quota = {task.classes[1]: quota}
    found = np.full(task.n_classes, np.nan)
    for label, share in quota.items():
        given = isinstance(share, numbers.Real) and 0 < float(share) < 1
        if label not in task.classes or not given:
            raise ValueError(
                f"expected quota to be a share between 0 and 1 of a class in {list(task.classes)}, got {share!r} of "
                f"{label!r}."
            )
        found[task.classes.index(label)] = float(share)
    if np.isfinite(found[0]) and task.kind == "binary":
        found[1] = 1 - found[0]
    if np.nansum(found) > 1 and task.kind == "classes":
        raise ValueError(f"expected shares of a quota that add up to at most 1, got {np.nansum(found):g}.")
    if np.isfinite(found[0]) and task.kind == "classes":
        raise ValueError(f"expected no quota of the first class, {task.classes[0]!r}, got one; give the others theirs.")
    return found[1:]


def tolerances_of(tolerance: Any, goal: Goal) -> float | NDArray[np.float64] | None:
    """The tolerance of all rates, or (K,) of each rate, NaN where none is given.

    Raises
    ------
    ValueError, TypeError
        If there is not one for each notion, or a name is not one of a rate.
    """
    names, notions = goal.table.names, int(goal.notion_of.max()) + 1
    if tolerance is None or isinstance(tolerance, numbers.Real):
        return None if tolerance is None else float(tolerance)
    if isinstance(tolerance, Mapping):
        unknown = [name for name in tolerance if name not in names]
        if unknown:
            raise ValueError(f"expected names of rates {list(names)} in tolerance, got {unknown[0]!r}.")
        given = [tolerance.get(name) for name in names]
    elif len(tolerance) == notions:
        given = [tolerance[k] for k in goal.notion_of]
    else:
        raise ValueError(f"expected one tolerance for each of {notions} notions, got {len(tolerance)}.")
    return np.array([math.nan if one is None else check_nonnegative("tolerance", one) for one in given])


def classes_of(labels: set[Any], positive: str | None) -> NDArray[Any]:
    """The class labels, of two the one that counts as positive last."""
    try:
        _, classes, _ = read_task_target(np.array(sorted(labels)))
    except TypeError:
        raise TypeError("expected class labels of one type in y, got several; pass all text or all numbers.") from None
    if positive is None:
        return classes
    texts = [str(one).strip() for one in classes.tolist()]
    if positive.strip() not in texts:
        raise ValueError(f"expected one of the class labels {texts} as the positive one, got {positive!r}.")
    return classes if len(classes) > 2 or texts[1] == positive.strip() else classes[::-1].copy()


def check_parameters(model: BaseEstimator) -> tuple[list[FairnessNotion], Plan]:
    """Everything about the constructor's arguments that can be wrong without looking at data."""
    notions, plan = get_notions(model.notion), plan_of(model)
    check_common_parameters(model)
    if model.missing == "none" and not isinstance(plan, PostProcessingPlan):
        raise ValueError("expected engine 'post-processing' with missing='none', got another; leave missing out.")
    # One tolerance, or several; how many there have to be is known once the classes are.
    tolerance = model.tolerance.values() if isinstance(model.tolerance, Mapping) else model.tolerance
    several = isinstance(model.tolerance, Mapping | list | tuple | np.ndarray)
    for one in tolerance if several else (tolerance,):
        if one is not None:
            check_nonnegative("tolerance", one)
    if plan.trains_network:
        _check_network(model, notions)
    else:
        _check_correction(model, notions)
    threshold = model.threshold
    if not (isinstance(threshold, numbers.Real) and 0 < float(threshold) < 1):
        raise ValueError(f"expected threshold to be a number between 0 and 1, got {threshold!r}.")
    if threshold != 0.5 and model.class_weight is not None:
        raise ValueError("expected threshold or class_weight, got both; costs of errors set the threshold.")
    if isinstance(plan, PostProcessingPlan):
        plan = replace(plan, at=check_choice("at", model.at, AT))
    return notions, plan


def _check_network(model: BaseEstimator, notions: list[FairnessNotion]) -> None:
    """Refuse what an engine that trains a network does not understand."""
    only_default = [one.name for one in notions if one.within_strata or one.is_fraction]
    several = len(notions) > 1 or not (model.tolerance is None or isinstance(model.tolerance, numbers.Real))
    if several or only_default or model.ratio is not None or model.quota is not None or model.costs is not None:
        what = only_default[0] if only_default else "several notions or tolerances, a ratio, a quota or costs"
        raise ValueError(
            f"expected engine 'post-processing' for {what}, got one that trains a network; leave engine and module out."
        )
    if model.base is not None or model.threshold != 0.5 or model.class_weight is not None:
        raise ValueError(
            "expected engine 'post-processing' where base, threshold or class_weight is given, got one that trains a "
            "network; leave engine and module out."
        )
    if model.at != "decision":
        raise ValueError(
            f"expected at='decision' with an engine that trains a network, got {model.at!r}; leave engine and module "
            "out."
        )
    if width := check_nonnegative("randomize", model.randomize):
        raise ValueError(
            f"expected engine 'post-processing' with randomize, got {width:g} and an engine that trains a network; "
            "leave one out."
        )


def _check_correction(model: BaseEstimator, notions: list[FairnessNotion]) -> None:
    """What is asked of rates and decisions of the default engine, as far as it does not depend on the classes."""
    ratio, fraction = model.ratio, any(one.is_fraction for one in notions)
    if ratio is not None:
        if not (isinstance(ratio, numbers.Real) and 0 < float(ratio) <= 1):
            raise ValueError(f"expected ratio to be a number above 0 and at most 1, got {ratio!r}.")
        if model.tolerance is not None:
            raise ValueError("expected tolerance or ratio, got both; leave one out.")
    shares = ratio is not None or model.quota is not None or fraction
    if model.at == "scores" and shares:
        raise ValueError(
            "expected at='decision' with a ratio, a quota or 'predictive_parity', got 'scores'; leave at out."
        )
    if model.costs is not None and (model.class_weight is not None or model.threshold != 0.5):
        raise ValueError("expected costs, threshold or class_weight, got several; costs say it all.")
    if model.module is not None:
        raise ValueError(
            "expected no module with engine 'post-processing', got one; pass it as base, or use engine 'moments'."
        )
    width = check_nonnegative("randomize", model.randomize)
    if width > 1:
        raise ValueError(f"expected randomize to be a width of at most 1, got {width:g}; try 0.02.")
    if width and (shares or model.at != "decision"):
        raise ValueError(
            "expected randomize=0 with a network, a ratio, a quota, 'predictive_parity' or at='scores', got "
            f"{width:g}; leave it out."
        )


def plan_of(model: BaseEstimator) -> Plan:
    """The plan that was passed, or the default one of the engine."""
    engine = engine_of(model.engine, model.module)
    warn_of_old_name(model.engine)
    default = plan_class(engine)()
    plan = default if model.plan is None else model.plan
    if not isinstance(plan, type(default)):
        raise TypeError(
            f"expected a {type(default).__name__} for engine {engine!r}, got {type(plan).__name__}; "
            "pass a plan of that kind, or none."
        )
    return plan


def unfitted(model: Model) -> Model:
    """A model with the same parameters; unlike scikit-learn's clone it leaves a fitted base fitted."""
    parameters = model.get_params(deep=False)
    parameters["random_state"] = copy.deepcopy(parameters["random_state"])
    fresh: Model = type(model)(**parameters)
    return fresh
