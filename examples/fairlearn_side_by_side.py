"""
fairlearn side by side
======================

The same metrics from both libraries on Compas, and two ways to train. ``MetricFrame`` reads the attribute exactly;
``measure`` gives the same table with noise and bounds. The reduction of fairlearn reads it exactly in training as well;
``LagrangianDualClassifier`` is private at epsilon 1.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fairlearn.metrics import MetricFrame, demographic_parity_difference, selection_rate
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from justitia import LagrangianDualClassifier, measure
from justitia.datasets import load
from justitia.metrics.exact import violation

data = load("compas", progress=False)
train, test = next(data.folds(5))
X, y, sex = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, sex_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# %%
# Train with fairlearn
# --------------------
#
# Features are encoded first, then logistic regression under a constraint, with randomised decisions.

encode = make_column_transformer(
    (StandardScaler(), make_column_selector(dtype_include="number")),
    (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_exclude="number")),
)
features, features_new = encode.fit_transform(X), encode.transform(X_new)
reduction = ExponentiatedGradient(LogisticRegression(max_iter=1000), DemographicParity(difference_bound=0.01))
_ = reduction.fit(features, y, sensitive_features=sex)

# %%
# Train with justitia
# -------------------

model = LagrangianDualClassifier("demographic_parity", epsilon=1.0, groups=data.groups, random_state=0)
model.fit(X, y, sensitive_features=sex)

# %%
# The same number from both
# -------------------------
#
# It is exact, because this dataset is public.

unconstrained = make_pipeline(encode, LogisticRegression(max_iter=1000)).fit(X, y)
decided = {
    "logistic regression": unconstrained.predict(X_new),
    "fairlearn reduction": reduction.predict(features_new, random_state=0),
    "justitia, epsilon 1": model.predict(X_new),
}
table = pd.DataFrame(
    {
        name: {
            "accuracy": np.mean(decisions == y_new),
            "fairlearn": demographic_parity_difference(y_new, decisions, sensitive_features=sex_new),
            "justitia": violation(y_new, decisions, sensitive_features=sex_new, groups=data.groups),
        }
        for name, decisions in decided.items()
    }
).T
table.round(3)

# %%
# MetricFrame, and a private measurement
# --------------------------------------
#
# The same rates of the last model, exact and measured at epsilon 1.

decisions = decided["justitia, epsilon 1"]
exact = MetricFrame(metrics=selection_rate, y_true=y_new, y_pred=decisions, sensitive_features=sex_new)
private = measure(y_new, decisions, sensitive_features=sex_new, groups=data.groups, epsilon=1.0)
beside = private.table.loc["selection_rate", ["rate", "lower", "upper"]].assign(exact=exact.by_group)
beside.round(3)

# %%
# Compas is small. One fold is one draw of chance, and at this size the noise moves the private point visibly from run
# to run: run it twice. :doc:`/evaluation` has five folds and more methods.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for (name, row), marker in zip(table.iterrows(), "s^o", strict=True):
    left.plot(row["justitia"], row["accuracy"], marker, label=name, markersize=7)
left.set(title="1,230 new people", xlabel="violation (exact)", ylabel="accuracy", xlim=(0, 0.25), ylim=(0.55, 0.75))
left.legend(loc="lower right")
private.plot(ax=right)
right.plot(beside["exact"], np.arange(2) + 0.12, "^", label="MetricFrame")
right.set(title="selection rate of the private model", xlim=(0, 0.8))
right.legend(loc="lower right")
plt.show()
