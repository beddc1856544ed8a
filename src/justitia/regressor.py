"""The scikit-learn surface for numeric targets: ``LagrangianDualRegressor``."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from justitia._validate import check_choice, check_nonnegative, check_same_length
from justitia.learners.base import Inputs, base_of
from justitia.learners.lightgbm_base import LightGBMBase
from justitia.persistence import folder as saved_folder
from justitia.postprocessing.number_notions import NUMBER_NOTIONS
from justitia.postprocessing.number_rule import NumberRule
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.postprocessing.regression import NumberMethod
from justitia.preprocessing.outliers import input_diagnostics
from justitia.preprocessing.tables import read_task_target, read_weight
from justitia.privacy.attribute import Attribute, HeldElsewhere
from justitia.privacy.frames import features_only, protects_attribute
from justitia.privacy.joining import FileAttribute, FrameAttribute
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.persons import Persons
from justitia.private_estimator import PrivateEstimator, check_common_parameters, file_weights, fits_in_memory
from justitia.rows.file_data import FileData, is_frame, is_stored
from justitia.rows.files import PublicRange, frames
from justitia.rows.source import MemoryRows
from justitia.tasks import NUMBER
from justitia.training.checkpoint import RunFolder
from justitia.training.lagrangian import Problem
from justitia.training.method import Trained
from justitia.training.same_rows import rows_digest
from justitia.training.session import Session, Settings, open_session

#: Width of the range of y, at least and at most: beyond, its square would be no number or 0.
NARROWEST, WIDEST = 1e-100, 1e100


class LagrangianDualRegressor(RegressorMixin, PrivateEstimator):
    r"""Regressor that treats groups alike, private in the sensitive attribute.

    Corrects the predictions of any model of the target by a Lagrangian dual in closed form, so that the predictions of
    every two groups are alike up to ``tolerance``. The attribute is read in ``fit`` only, through noised answers, and
    never at prediction.

    Parameters
    ----------
    notion : {"demographic_parity", "mean_parity", "equal_error"}
        What is alike: the distribution of the predictions (strong demographic parity; the violation is the
        Kolmogorov-Smirnov distance), their mean, or their mean squared error.
    epsilon, delta : float
        The privacy budget of one ``fit``. ``epsilon=inf`` trains without privacy, and the certificate says so.
    tolerance : float, optional
        Largest difference between two groups that is allowed: of the share of predictions above any level, between 0
        and 1, for "demographic_parity"; of means, in units of y, for "mean_parity"; of mean squared errors, in squared
        units of y, for "equal_error". None: one standard error (sampling and noise) of the difference between the two
        smallest groups, times the plan's ``dead_zone``; ``tolerance_`` is the number.
    groups : sequence, mapping, Bins or "infer"
        The public list of group labels. "infer" reads it off the data, and the certificate then begins with saying that
        the list is not protected. None is an error at a finite epsilon, and "infer" without privacy.
    base : regressor, callable or str, optional
        The model of the target: a scikit-learn regressor or pipeline, cross-fitted, or used as it is if it is fitted; a
        function from X to E[y | x]; or the name of a column of X that holds it. None is boosted trees of LightGBM.
    bounds : (float, float), optional
        Public range of the target. Predictions stay within it. By default from the smallest to the largest y.
    plan : PostProcessingPlan, optional
        Public numbers of the run, among them ``levels``, at which distributions are compared.
    random_state : int, RandomState or None
        Seeds public randomness only. Never the noise.
    preprocess : "auto" or None
        "auto" standardises numbers, fills missing ones and one-hot encodes categories; None takes finite numbers as
        they are.
    missing_marker : hashable, optional
        A label that means "not given", besides None and NaN.
    missing : {"allowed", "none"}
        "none" states publicly that every row has one of the listed groups. The noise then has 3/4 of the variance with
        two groups, and 8/9 with three; an entry that is missing or not listed counts as the first group, without notice
        (``docs/proofs.md``, section 1.2).
    noise_seed : int, optional
        Makes the noise reproducible for tables; the certificate then begins with saying that nothing is promised.
    progress : bool, optional
        Show a progress bar; by default only in a terminal.
    n_jobs : int, optional
        Models of the base that are learned at the same time, in threads: None is one, -1 is one per core. The result
        does not depend on it.

    Attributes
    ----------
    rule_ : NumberRule
        Base, calibration and correction.
    bounds_ : (float, float)
        The public range in force.
    tolerance_ : float
        The tolerance in force.
    distance_ : float or None
        With "demographic_parity", the largest noised difference between two groups' distributions of predictions.
    certificate_ : Certificate
    ledger_ : PrivacyLedger
    groups_ : tuple
        The public list of groups as labels; of crossed columns, tuples of labels.
    plan_ : PostProcessingPlan
        The calibrated plan that was carried out.
    price_ : DataFrame
        What the constraint costs: R2, root mean squared error and estimated violation of the uncorrected base and along
        a grid of tolerances, that of the deployed model among them (``deployed``).
    history_ : DataFrame
        Public or noised numbers, one row per round: mean squared error and R2 out of fold, gaps and multipliers.
    history_columns_ : tuple of Column
        What each column of the history is, of which group, and whether it is public, noised or exact.
    dual_ : DataFrame (G, K)
        Final multipliers by group and level, or by group.

    Guarantee
    ---------
    * With a finite epsilon, a given list of groups and no ``noise_seed``, everything that leaves ``fit`` (attributes,
      warnings, errors, progress, files) is (epsilon, delta)-differentially private in the attribute of any one row or,
      with ``person``, of any one person; ``certificate_`` states it, and what is missing otherwise.
    * What the plan said it would cost equals what the ledger recorded.

    Examples
    --------
    >>> import numpy as np
    >>> from justitia import LagrangianDualRegressor
    >>> from justitia.datasets import make_synthetic
    >>> data = make_synthetic(2000, random_state=0)
    >>> hours = 40 + 5 * data.X.iloc[:, 0] + np.random.default_rng(0).standard_normal(2000)
    >>> model = LagrangianDualRegressor(epsilon=1.0, groups=data.groups, tolerance=0.1, random_state=0)
    >>> model.fit(data.X, hours, sensitive_features=data.sensitive).predict(data.X).shape
    (2000,)
    """

    rule_: NumberRule
    feature_names_in_: NDArray[Any]

    # sensitive_features is routed to fit by default; scikit-learn's other methods never see it.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True, "person": True}

    def __init__(
        self,
        notion: str = "demographic_parity",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        tolerance: float | None = None,
        groups: Any = None,
        base: Any = None,
        bounds: tuple[float, float] | None = None,
        plan: PostProcessingPlan | None = None,
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
        self.groups = groups
        self.base = base
        self.bounds = bounds
        self.plan = plan
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
        ledger: PrivacyLedger | None = None,
        checkpoint: Path | str | None = None,
    ) -> Self:
        """Train; a fit that fails leaves the estimator as it was.

        Parameters
        ----------
        y : array-like (n,)
            Finite numbers; public.
        X, sensitive_features, sample_weight, person, ledger, checkpoint
            As in :meth:`LagrangianDualClassifier.fit`.

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
            partial(self._open, **data, person=person, ledger=ledger),
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
        ledger: PrivacyLedger | None = None,
        folder: RunFolder | None = None,
    ) -> Session:
        """Check parameters and public data, and open a session with them."""
        notion, plan = check_parameters(self)
        attribute: Attribute | FileAttribute | FrameAttribute | HeldElsewhere
        if is_stored(X):
            data = FileData.from_names(X, y, sensitive_features, sample_weight, person)
            table, problem, attribute, person = self._read_files(data, notion)
            rows = f"{Path(X).absolute()}, {y}" if isinstance(X, str | Path) else ""
        else:
            attribute, table = Attribute.from_container(sensitive_features), X
            problem = self._read_table(X, y, sample_weight, notion, plan)
            rows = rows_digest([problem.X, problem.y])
        try:
            weight = None if is_stored(X) else sample_weight
            remarks = tuple(input_diagnostics(getattr(self, "encoder_", None), weight, problem.X.shape))
            tolerance = None if self.tolerance is None else float(self.tolerance)
            settings = Settings.from_model(self, plan, tolerance=tolerance, remarks=remarks, rows=rows)
            base = base_of(self.base, NUMBER, n_jobs=self.n_jobs)
            base = base or LightGBMBase(len(problem), NUMBER, n_jobs=self.n_jobs)
            inputs = Inputs(table, problem.X.reshape(len(problem), -1))
            method = NumberMethod(base, inputs, problem, notion, self.bounds_, settings.seed)
            return open_session(settings, method, attribute, person=person, ledger=ledger, folder=folder)
        except BaseException:
            problem.source.close()
            raise

    def _read_table(self, X: Any, y: Any, sample_weight: Any, notion: Any, plan: PostProcessingPlan) -> Problem:
        """The public part of rows in memory."""
        features = self._features(X, reset=True)
        _, _, target = read_task_target(y, "number")
        check_same_length(X=features, y=target)
        if len(target) < 2:
            raise ValueError("expected at least 2 rows, got 1 sample; pass more rows.")
        self.bounds_ = read_bounds(self.bounds, float(target.min()), float(target.max()))
        scaled = PublicRange(*self.bounds_).scaled(target)
        weight = read_weight(sample_weight, scaled, NUMBER)
        source = MemoryRows(features, scaled, weight, plan.micro_batch)
        return Problem(features, scaled, weight, notion, source=source, task=NUMBER)

    def _read_files(
        self, data: FileData, notion: Any
    ) -> tuple[pd.DataFrame, Problem, FileAttribute | FrameAttribute | HeldElsewhere, Persons | None]:
        """The public sample of rows in files, where their attribute is, and which rows are one person's."""
        data = replace(data, columns=replace(data.columns, number=True))
        source = self._open_files(data)
        try:
            scan = source.scan()
            table = scan.sample()
            frame = table[list(data.columns.features)]
            features = self._features(frame, reset=True)
            self.bounds_ = read_bounds(self.bounds, scan.smallest, scan.largest)
            scaling = PublicRange(*self.bounds_)
            scaled = scaling.scaled(np.asarray(table[data.columns.target], dtype=np.float64))
            given = None if data.columns.weight is None else np.asarray(table[data.columns.weight], dtype=np.float64)
            if fits_in_memory(source):
                source.close()
                problem = Problem(features, scaled, read_weight(given, scaled, NUMBER), notion, task=NUMBER)
                return frame, problem, data.attribute(), data.persons()
            weight = file_weights(source, scan, given, len(scaled))
            source.encode_with(self._encode(features.shape[1]), scaling)
            source.check_room(math.prod(features.shape[1:]), scores=1)
            problem = Problem(features, scaled, weight, notion, source=source, task=NUMBER)
            return frame, problem, data.attribute(source.ranges), data.persons()
        except BaseException:
            source.close()
            raise

    def _keep(self, session: Session, trained: Trained) -> None:
        """Keep what a session has released, and nothing else."""
        self.rule_ = session.run.fitted()
        self._keep_released(session, trained, list(session.run.rate_names()), scores=("r2",))

    @features_only
    def predict(self, X: Any) -> NDArray[np.float64]:
        """(n,): predicted numbers within ``bounds_``; the attribute is not an input."""
        check_is_fitted(self, "plan_")
        if is_frame(X):
            return self._predict_frame(X, "predict", ["prediction"])  # type: ignore[no-any-return]
        if is_stored(X):
            return np.concatenate([self.predict(table) for table in frames(X, self.feature_names_in_)])
        return self.rule_.predict(self._inputs(X))

    @features_only
    def base_predict(self, X: Any) -> NDArray[np.float64]:
        """(n,): predictions of the base model, before the correction."""
        check_is_fitted(self, "plan_")
        return self.rule_.base_prediction(self._inputs(X))

    @classmethod
    def load(cls, folder: Path | str, base: Any = None) -> Self:
        """Read a model that :meth:`save` wrote, without running code from the folder.

        Parameters
        ----------
        base : optional
            What the model was fitted with, if ``justitia.persistence.base`` cannot write it: that base, fitted, or the
            saved model's ``rule_.base``.
        """
        return saved_folder.load(folder, module=None, base=base, kind=cls)


def read_bounds(bounds: Any, smallest: float, largest: float) -> tuple[float, float]:
    """The public range of the target: as given, or that of the rows.

    Raises
    ------
    ValueError
        If it is no range, or a target lies outside.
    """
    if bounds is None:
        if smallest == largest:
            raise ValueError(f"expected different numbers in y, got {smallest:g} in every row; pass rows that differ.")
        return _check_width(smallest, largest)
    given = tuple(bounds) if isinstance(bounds, list | tuple | np.ndarray) else ()
    numeric = len(given) == 2 and all(isinstance(one, numbers.Real) and math.isfinite(float(one)) for one in given)
    if not numeric or not given[0] < given[1]:
        raise ValueError(f"expected bounds to be two numbers, the smaller one first, got {bounds!r}.")
    low, high = float(given[0]), float(given[1])
    if smallest < low or largest > high:
        raise ValueError(
            f"expected every y between {low:g} and {high:g}, got numbers from {smallest:g} to {largest:g}; widen "
            "bounds, or cut y off."
        )
    return _check_width(low, high)


def _check_width(low: float, high: float) -> tuple[float, float]:
    """A range whose square is a number that can be computed with."""
    if not NARROWEST <= high - low <= WIDEST:
        raise ValueError(
            f"expected a range of y between {NARROWEST:g} and {WIDEST:g} wide, got {low:g} to {high:g}; pass y in "
            "another unit."
        )
    return low, high


def check_parameters(model: BaseEstimator) -> tuple[Any, PostProcessingPlan]:
    """Everything about the constructor's arguments that can be wrong without looking at data."""
    notion = NUMBER_NOTIONS[check_choice("notion", model.notion, tuple(NUMBER_NOTIONS))]()
    plan = PostProcessingPlan() if model.plan is None else model.plan
    if not isinstance(plan, PostProcessingPlan):
        raise TypeError(f"expected plan to be a PostProcessingPlan, got {type(plan).__name__}; pass one, or none.")
    check_common_parameters(model)
    if model.tolerance is not None:
        check_nonnegative("tolerance", model.tolerance)
    return notion, plan
