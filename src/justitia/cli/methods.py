"""Methods that ``justitia compare`` trains on the spot: our private engines, and their base without a correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from justitia.cli.files.rows import Rows
from justitia.cli.training import unfitted
from justitia.engines import MOMENTS, PF_LD, POST_PROCESSING
from justitia.learners.base import Inputs
from justitia.learners.calibration import calibrate
from justitia.learners.lightgbm_base import default_base
from justitia.preprocessing.encoding import TabularEncoder
from justitia.preprocessing.tables import public_seed, read_target
from justitia.privacy.ledger import PrivacyLedger

UNCORRECTED = "uncorrected"
METHODS = (UNCORRECTED, POST_PROCESSING, MOMENTS, PF_LD)


class UncorrectedModel:
    """The default base (LightGBM, calibrated) without a correction; it never reads the attribute.

    With the same seed its decisions are those of the base below engine "post-processing".

    Attributes
    ----------
    certificate_ : Certificate
        Epsilon 0.
    """

    def __init__(self, seed: int | None) -> None:
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the label from the features."""
        self._encoder = TabularEncoder().fit(X)
        label = np.asarray(read_target(y)[1], dtype=np.float64)
        weight, self._base = np.ones(len(label)), default_base(len(label))
        seed = public_seed(self.seed)
        raw = self._base.learn(self._inputs(X), label, weight, seed=seed, progress=lambda _: None)
        self._calibration = calibrate(raw, label, weight)
        self.certificate_ = PrivacyLedger(epsilon=0.0, delta=0.0).certificate(groups_source="not asked")
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """(n,): 1 where the second class is more likely than not."""
        probability = self._calibration(self._base.probability(self._inputs(X)))
        return (probability > 0.5).astype(np.int64)

    def _inputs(self, X: Any) -> Inputs:
        return Inputs(X, self._encoder.transform(X))


@dataclass(frozen=True)
class Recipe:
    """Public settings that all methods share."""

    notion: str
    epsilon: float
    delta: float
    seed: int | None = None

    def fit(self, name: str, rows: Rows, total: PrivacyLedger) -> Any:
        """A fitted classifier; what it spent is also on the ledger of all methods."""
        if name == UNCORRECTED:
            return UncorrectedModel(self.seed).fit(rows.X, rows.y)
        settings = {"notion": self.notion, "epsilon": self.epsilon, "delta": self.delta, "seed": self.seed}
        default = {"hidden": None, "plan_file": None, "base": None, "base_column": None, "threshold": 0.5}
        default |= {"small_groups": True}  # as in Python
        model = unfitted(rows, settings | default | {"engine": name})
        own = PrivacyLedger(epsilon=self.epsilon, delta=self.delta)
        model.fit(rows.X, rows.y, sensitive_features=rows.sensitive, person=rows.person, ledger=own)
        for release in own.releases:
            total.debit(release)
        return model
