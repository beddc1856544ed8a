"""
A scikit-learn pipeline with routing
====================================

Cross-validation on one privacy budget. ``sensitive_features`` and ``ledger`` pass through ``cross_validate`` and
``Pipeline`` to ``fit`` and to a scorer; the scaler and ``predict`` never get them. Every fit and every score debits one
ledger, because the folds share people.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import sklearn
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from justitia import BudgetExceeded, LagrangianDualClassifier, PrivacyLedger, measure
from justitia.datasets import load

sklearn.set_config(enable_metadata_routing=True)
data = load("bank", progress=False)

# %%
# The pipeline
# ------------
#
# ``preprocess=None`` because the pipeline encodes the features itself.

encode = make_column_transformer(
    (StandardScaler(), make_column_selector(dtype_include="number")),
    (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_exclude="number")),
)
model = LagrangianDualClassifier(epsilon=0.5, groups=data.groups, preprocess=None, random_state=0)
pipeline = Pipeline([("encode", encode), ("classify", model.set_fit_request(ledger=True))])

# %%
# A scorer that pays
# ------------------
#
# It measures held-out people privately on the same ledger. ``justitia.metrics.scorer.private_scorer`` does this for
# you; here it is written out.

ledger = PrivacyLedger(epsilon=1.4, delta=1e-5)
spent = []


class NoisyViolation:
    """Minus the noisy violation, so that greater is better."""

    def __call__(self, fitted, X, y, *, sensitive_features):
        """Measure the decisions of one fold."""
        found = measure(
            y,
            fitted.predict(X),
            sensitive_features=sensitive_features,
            groups=data.groups,
            epsilon=0.5,
            ledger=ledger,
        )
        spent.append(ledger.epsilon())
        return -found.violation.estimate

    def get_metadata_routing(self):
        """Ask for the attribute."""
        request = sklearn.utils.metadata_routing.MetadataRequest(owner=self)
        request.score.add_request(param="sensitive_features", alias=True)
        return request


with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    found = cross_validate(
        pipeline,
        data.X,
        data.y,
        scoring={"accuracy": "accuracy", "violation": NoisyViolation()},
        params={"sensitive_features": data.sensitive, "ledger": ledger},
        cv=StratifiedKFold(3, shuffle=True, random_state=0),
        error_score="raise",
    )
table = pd.DataFrame(
    {"accuracy": found["test_accuracy"], "violation": -found["test_violation"], "epsilon so far": spent},
    index=[f"fold {k}" for k in range(1, 4)],
)
table.round(3)

# %%
# Three fits and three scores at epsilon 0.5 each fit into 1.4, because the ledger composes exactly.

ledger

# %%
# The budget does not allow one more fit, so it is refused before anything is computed:

try:
    pipeline.fit(data.X, data.y, sensitive_features=data.sensitive, ledger=ledger)
except BudgetExceeded as error:
    refusal = str(error)
    print(refusal)
sklearn.set_config(enable_metadata_routing=False)

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.plot(table["violation"], table["accuracy"], "o")
left.set(title="held-out folds", xlabel="noisy violation", ylabel="accuracy", ylim=(0.7, 0.9), xlim=(0, 0.2))
right.step(np.arange(4), [0.0, *spent], where="post")
right.axhline(ledger.budget_epsilon, color="0.4", linestyle="--", label="budget")
right.set(title="the ledger", xlabel="folds done", ylabel="epsilon", ylim=(0, 1.6))
right.set_xticks(range(4))
right.legend(loc="lower right")
plt.show()
