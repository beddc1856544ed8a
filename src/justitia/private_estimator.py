"""What the classifier and the regressor share: one fit from its checks to what is kept of it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from justitia._validate import check_choice, check_int
from justitia.exceptions import warn_of
from justitia.learners.base import Inputs
from justitia.persistence import folder as saved_folder
from justitia.preprocessing.outliers import clip_weights
from justitia.preprocessing.tables import PlainNumbers
from justitia.privacy.groups import MISSING
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import HiddenNoiseSeed
from justitia.privacy.vault import check_budget, named_groups, open_vault
from justitia.rows.file_data import FileData
from justitia.rows.files import FileRows, Scan
from justitia.tabular import TabularEstimator, unchanged_on_error
from justitia.training.checkpoint import RunFolder, open_folder
from justitia.training.history import history_table
from justitia.training.method import Trained
from justitia.training.progress import pass_bar
from justitia.training.same_rows import FITS
from justitia.training.session import Session


class PrivateEstimator(HiddenNoiseSeed, TabularEstimator):
    """Base of estimators whose ``fit`` is one session with the vault."""

    epsilon: float
    progress: bool | None

    #: Opens the vault; audits put a function there that records queries.
    _open_vault = staticmethod(open_vault)

    def _train(
        self,
        opened: Callable[[RunFolder | None], Session],
        *,
        ledger: PrivacyLedger | None,
        checkpoint: Path | str | None,
    ) -> Self:
        """Open a session, train, and keep what it has released; a fit that fails leaves the estimator as it was.

        Parameters
        ----------
        opened : callable
            From the folder of a checkpoint to a session.
        """
        with (
            unchanged_on_error(self),
            open_folder(checkpoint) as folder,
            closing(opened(folder)) as session,
        ):
            session.warn(stacklevel=5)
            trained = session.train()
            session.check_spent()
            self._keep(session, trained)
        # Last, so that a warning turned into an error does not throw away a model that was paid for.
        for sentence in self.certificate_.remarks:
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
        """Keep what every kind of model has: certificate, ledger, plan, multipliers and history."""
        groups = list(session.vault.group_names)
        self.tolerance_ = session.run.tolerance
        self.distance_ = session.run.distance()
        self.groups_ = session.vault.groups
        self.plan_ = session.plan
        self.ledger_ = session.ledger
        self.certificate_ = session.certificate()
        self.dual_ = pd.DataFrame(trained.lam, index=pd.Index(groups, name="group"), columns=rates)
        private = math.isfinite(self.certificate_.epsilon)
        self.history_, self.history_columns_ = history_table(
            trained.history, groups, rates, private=private, scores=scores
        )

    def _open_files(self, data: FileData) -> FileRows:
        """All rows of files, with a bar for each pass."""
        return FileRows(data.files, data.columns, lambda total, name: pass_bar(self.progress, total, name))

    def _encode(self, columns: int) -> Any:
        """A picklable function from tables to features as numbers, with this many columns."""
        return PlainNumbers(columns) if self.preprocess is None else self.encoder_.transform

    def _inputs(self, X: Any) -> Inputs:
        features = self._features(X, reset=False)
        return Inputs(X, features.reshape(len(features), -1))

    def save(self, folder: Path | str, *, without_base: bool = False) -> Path:
        """Write the fitted model to ``folder`` without pickle; see :func:`justitia.persistence.folder.save`.

        Parameters
        ----------
        without_base : bool
            Whether a base that cannot be written (a forest, say) may stay with you; pass it to :meth:`load` again.
        """
        check_is_fitted(self, "plan_")
        return saved_folder.save(self, folder, without_base=without_base)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # random_state does not seed the noise, so two fits with the same random_state may differ
        tags.non_deterministic = self.noise_seed is None and self.epsilon != math.inf
        return tags


def file_weights(source: FileRows, scan: Scan, given: NDArray[np.float64] | None, rows: int) -> NDArray[np.float32]:
    """(n,): weights of the sample, scaled so that those of all rows have mean 1; a pass where there are any."""
    if given is None:
        return np.ones(rows, dtype=np.float32)
    cap = float(clip_weights(given / scan.largest_weight).max()) if given.any() else 1.0
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
