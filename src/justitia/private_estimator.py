"""What the classifier and the regressor share: one fit from its checks to what is kept of it."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from justitia._validate import check_choice, check_int, check_nonnegative
from justitia.exceptions import Notice, warn_of
from justitia.learners.base import Inputs
from justitia.learners.importance import base_importances
from justitia.persistence import folder as saved_folder
from justitia.postprocessing.explain import explained
from justitia.postprocessing.run import CorrectionRun
from justitia.preprocessing.outliers import clip_weights
from justitia.preprocessing.tables import PlainNumbers
from justitia.privacy.frames import features_only
from justitia.privacy.groups import MISSING
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import HiddenNoiseSeed
from justitia.privacy.vault import check_budget, named_groups, open_vault
from justitia.rows.file_data import FileData, open_frame
from justitia.rows.files import FileRows, Scan, Weights, stride
from justitia.rows.frames import FrameRows
from justitia.tabular import TabularEstimator, unchanged_on_error
from justitia.training.checkpoint import open_folder
from justitia.training.history import history_table
from justitia.training.method import Trained, pass_bar
from justitia.training.same_rows import FITS
from justitia.training.session import Session


class PrivateEstimator(HiddenNoiseSeed, TabularEstimator):
    """Base of estimators whose ``fit`` is one session with the vault."""

    epsilon: float
    progress: bool | None
    feature_names_in_: NDArray[Any]

    #: Opens the vault; audits put a function there that records queries.
    _open_vault = staticmethod(open_vault)

    def _train(
        self,
        opened: Callable[..., Session],
        *,
        ledger: PrivacyLedger | None,
        checkpoint: Path | str | None,
    ) -> Self:
        """Open a session, train, and keep what it has released; a fit that fails leaves the estimator as it was.

        Parameters
        ----------
        opened : callable
            From ``folder``, that of a checkpoint or None, to a session.
        """
        with (
            unchanged_on_error(self),
            open_folder(checkpoint) as folder,
            closing(opened(folder=folder)) as session,
        ):
            session.warn(stacklevel=5)
            trained = session.train()
            session.check_spent()
            self._keep(session, trained)
        # Last, so that a warning turned into an error does not throw away a model that was paid for.
        for sentence in self.certificate_.remarks:
            if isinstance(sentence, Notice):
                continue
            warn_of(sentence, stacklevel=4)
        if ledger is None and checkpoint is None:
            FITS.note(session.settings.rows, self.certificate_, stacklevel=4)
        return self

    def _keep(self, session: Session, trained: Trained) -> None:
        """Keep what a session has released, and nothing else."""
        raise NotImplementedError

    def _keep_released(
        self, session: Session, trained: Trained, rates: list[str], scores: tuple[str, ...] = ("accuracy", "auc")
    ) -> None:
        """Keep what every kind of model has: certificate, ledger, plan, multipliers, history, and the price list."""
        groups = list(session.vault.group_names)
        self.tolerance_ = session.run.tolerance
        self.distance_ = session.run.distance()
        self.groups_ = session.vault.groups
        self.plan_ = session.plan
        self.ledger_ = session.ledger
        self.certificate_ = session.certificate()
        run = session.run  # that of a network says nothing of features
        self.feature_association_ = run.association(self.encoded_names()) if isinstance(run, CorrectionRun) else None
        self.dual_ = pd.DataFrame(trained.lam, index=pd.Index(groups, name="group"), columns=rates)
        private = math.isfinite(self.certificate_.epsilon)
        self.history_, self.history_columns_ = history_table(
            trained.history, groups, rates, private=private, scores=scores
        )
        self.__dict__.pop("price_", None)  # of an earlier fit
        if (prices := run.price()) is not None:
            self.price_ = prices

    def encoded_names(self) -> list[str]:
        """Names of the public features after preprocessing."""
        if hasattr(self, "encoder_"):
            return list(map(str, self.encoder_.get_feature_names_out()))
        names = getattr(self, "feature_names_in_", None)
        return list(map("x{}".format, range(self.n_features_in_)) if names is None else map(str, names))

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """(d,): importance of each encoded feature for the base, adding up to 1; see :meth:`encoded_names`.

        Share of the splits of boosted trees, or of the absolute standardised coefficients of a linear model.

        Raises
        ------
        AttributeError
            If the base has no importances that belong to these features.
        """
        check_is_fitted(self, "plan_")
        found = base_importances(self.rule_.base, len(self.encoded_names())) if hasattr(self, "rule_") else None
        if found is None:
            raise AttributeError("feature_importances_: this base has no importances of the encoded features.")
        return found

    def _html_repr(self) -> str:
        """scikit-learn's diagram for notebooks and, of a fitted model, its price list and what was promised."""
        with warnings.catch_warnings():
            # scikit-learn reads parameters off the docstring and warns of sections that numpydoc does not list.
            warnings.filterwarnings("ignore", message="Unknown section", category=UserWarning)
            diagram: str = super()._html_repr()
        if not hasattr(self, "certificate_"):
            return diagram
        form: str = import_module("justitia.report.notebook").model_form(self)
        return diagram + form

    @features_only
    def explain(self, X: Any) -> pd.DataFrame:
        """One line per row: what the base said, what was applied, and the share of it due to the correction.

        Of two classes ``base_score`` is the base's probability, and ``threshold`` is what it had to exceed:
        ``correction`` is how much of that the correction added for this row. Of a number, ``correction`` is what was
        added to ``base_prediction``. ``changed`` says whether the correction changed the decision. Columns
        ``shap_<feature>`` are SHAP values of the base, where it is LightGBM that was trained in this process. The
        attribute is not an input.
        """
        check_is_fitted(self, "rule_")
        return explained(self.rule_, self._inputs(X), self.encoded_names(), getattr(self, "classes_", None))

    def _open_files(self, data: FileData) -> FileRows | FrameRows:
        """All rows of files or of a data frame, with a bar for each pass."""
        return data.rows(lambda total, name: pass_bar(self.progress, total, name))

    def _encode(self, columns: int) -> Any:
        """A picklable function from tables to features as numbers, with this many columns."""
        return PlainNumbers(columns) if self.preprocess is None else self.encoder_.transform

    def _inputs(self, X: Any) -> Inputs:
        features = self._features(X, reset=False)
        return Inputs(X, features.reshape(len(features), -1))

    def _predict_frame(self, X: Any, method: str, names: list[str]) -> Any:
        """A data frame of Spark, Ray or Dask with the columns that a method computes of its rows."""
        frame, work = open_frame(X), PredictColumns(self, method, names)
        taken = [name for name in names if name in frame.names]
        if taken:
            raise ValueError(f"expected no column {taken[0]!r} in {frame.shown}, got one; rename or drop it.")
        lacking = [str(name) for name in self.feature_names_in_ if name not in frame.names]
        if lacking:
            raise ValueError(
                f"expected the column {lacking[0]!r} in {frame.shown}, got none; pass what was trained on."
            )
        kind = getattr(self, "classes_", np.empty(0)) if method == "predict" else np.empty(0)
        return frame.with_columns(work, list(map(str, self.feature_names_in_)), dict.fromkeys(names, kind[:0]))

    def save(
        self,
        folder: Path | str,
        *,
        without_base: bool = False,
        limit: float | None = None,
        limit_ratio: float | None = None,
    ) -> Path:
        """Write the fitted model to ``folder`` without pickle; see :func:`justitia.persistence.folder.save`.

        Parameters
        ----------
        without_base : bool
            Whether a base that cannot be written (a forest, say) may stay with you; pass it to :meth:`load` again.
        limit, limit_ratio : float, optional
            Policy limits that reports and ``justitia evaluate`` hold the model to: the largest gap between two groups
            and the smallest impact ratio. A loaded model has them as ``limits_`` and is saved with them again.
        """
        check_is_fitted(self, "plan_")
        limits = {"limit": limit, "limit_ratio": limit_ratio}
        given = {name: check_nonnegative(name, one) for name, one in limits.items() if one is not None}
        return saved_folder.save(self, folder, without_base=without_base, limits=getattr(self, "limits_", {}) | given)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # random_state does not seed the noise, so two fits with the same random_state may differ
        tags.non_deterministic = self.noise_seed is None and self.epsilon != math.inf
        return tags


@dataclass(frozen=True, eq=False)
class PredictColumns:
    """What a method of a fitted model computes of a table of features, as named columns; picklable."""

    model: Any
    method: str
    names: list[str]

    def __call__(self, table: pd.DataFrame) -> dict[str, NDArray[Any]]:
        """One array for each name."""
        found = getattr(self.model, self.method)(table)
        columns = found.T if found.ndim == 2 else [found]
        return dict(zip(self.names, columns, strict=True))


def fits_in_memory(source: FileRows | FrameRows) -> bool:
    """Whether the sample has all rows, and rows and attribute may be read into this process."""
    return stride(source.n) == 1 and isinstance(source, FileRows)


def file_weights(
    source: FileRows | FrameRows, scan: Scan, given: NDArray[np.float64] | None, rows: int
) -> NDArray[np.float32]:
    """(n,): weights of the sample, scaled so that those of all rows have mean 1; a pass where there are any."""
    if given is None:
        return np.ones(rows, dtype=np.float32)
    cap = float(clip_weights(given / scan.largest_weight).max()) if given.any() else 1.0
    if rows == source.n and given.any():  # their mean as rows in memory have it, to the last bit
        mean = float(np.minimum(given / scan.largest_weight, cap).mean())
        source.weights = Weights(scan.largest_weight, cap, mean)
        return source.weights.scaled(given)
    return source.scale_weights(scan.largest_weight, cap).scaled(given)


def check_common_parameters(model: BaseEstimator) -> None:
    """Budget, groups and options that every estimator has, as far as they can be checked without data."""
    check_budget(model.epsilon, model.delta)
    named_groups(model.groups, float(model.epsilon))
    check_choice("missing", model.missing, MISSING)
    if model.preprocess is not None:
        check_choice("preprocess", model.preprocess, ("auto",))
    if model.noise_seed is not None:
        check_int("noise_seed", model.noise_seed, at_least=0)
    if not (model.progress is None or isinstance(model.progress, bool)):
        raise TypeError(f"expected progress to be True, False or None, got {type(model.progress).__name__!r}.")
    jobs = model.n_jobs
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, numbers.Integral) or jobs == 0):
        raise ValueError(f"expected n_jobs to be None, a number of threads or -1 for one per core, got {jobs!r}.")
