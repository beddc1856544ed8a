"""Tiny data with a target of three classes and a number, and estimators that are fitted on it in about a second."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from justitia import LagrangianDualClassifier, LagrangianDualRegressor

N = 300
SEED = 987654321987
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)).round(3)
GROUP = np.where(X[:, 1] + 0.5 * RNG.normal(size=N) > 0, "f", "m")
NUMBER = (X[:, 0] + 0.8 * X[:, 1] + np.where(X[:, 1] > 0, 1.0, 0.2) * RNG.normal(size=N)).round(3)
CODES = np.digitize(NUMBER, [-0.6, 0.6])
CLASSES = np.array(["low", "middle", "top"])[CODES]
TABLE = pd.DataFrame(X, columns=["a", "b", "c"])
LATER = pd.DataFrame(np.random.default_rng(1).normal(size=(500, 3)), columns=list(TABLE))
USUAL: dict[str, Any] = {"epsilon": 8.0, "groups": ["f", "m"], "random_state": 0, "noise_seed": SEED}


def fit_classes(rows: Any = TABLE, y: Any = CLASSES, **changes: Any) -> LagrangianDualClassifier:
    given = {name: changes.pop(name) for name in ("strata",) if name in changes}
    model = LagrangianDualClassifier(**USUAL | ({} if "ratio" in changes else {"tolerance": 0.05}) | changes)
    return model.fit(rows, y, sensitive_features=GROUP, **given)


def fit_number(rows: Any = TABLE, y: Any = NUMBER, **changes: Any) -> LagrangianDualRegressor:
    model = LagrangianDualRegressor(**USUAL | {"tolerance": 0.02} | changes)
    return model.fit(rows, y, sensitive_features=GROUP)


def turned(rows: Any) -> LogisticRegression:
    """A fitted model whose classes come in another order than that of the target."""
    model, order = LogisticRegression().fit(rows, CLASSES), [2, 0, 1]
    model.coef_, model.intercept_, model.classes_ = model.coef_[order], model.intercept_[order], model.classes_[order]
    return model
