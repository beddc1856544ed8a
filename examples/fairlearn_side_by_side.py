"""fairlearn and justitia side by side on Compas: the same metrics, and two ways to train.

``MetricFrame`` reads the attribute exactly; ``measure`` gives the same table with noise and bounds. The reduction of
fairlearn reads it exactly in training as well; ``LagrangianDualClassifier`` is private at epsilon 1.
"""

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
from pictures import LOOKS, intervals, panels, picture_path, save

path = picture_path(__file__)
data = load("compas")
train, test = next(data.folds(5))
X, y, sex = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, sex_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# fairlearn: features are encoded first, then logistic regression under a constraint (randomised decisions).
encode = make_column_transformer(
    (StandardScaler(), make_column_selector(dtype_include="number")),
    (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_exclude="number")),
)
features, features_new = encode.fit_transform(X), encode.transform(X_new)
reduction = ExponentiatedGradient(LogisticRegression(max_iter=1000), DemographicParity(difference_bound=0.01))
reduction.fit(features, y, sensitive_features=sex)

model = LagrangianDualClassifier("demographic_parity", epsilon=1.0, groups=data.groups, random_state=0)
model.fit(X, y, sensitive_features=sex)

unconstrained = make_pipeline(encode, LogisticRegression(max_iter=1000)).fit(X, y)
decided = {
    "logistic regression": unconstrained.predict(X_new),
    "fairlearn reduction": reduction.predict(features_new, random_state=0),
    "justitia, epsilon 1": model.predict(X_new),
}

# The same number from both libraries, exact because this dataset is public.
rows = {}
for name, decisions in decided.items():
    theirs = demographic_parity_difference(y_new, decisions, sensitive_features=sex_new)
    ours = violation(y_new, decisions, sensitive_features=sex_new, groups=data.groups)
    rows[name] = {"accuracy": np.mean(decisions == y_new), "fairlearn": theirs, "violation": ours}
assert all(np.isclose(row["fairlearn"], row["violation"]) for row in rows.values())  # noqa: S101
print("Accuracy, demographic_parity_difference of fairlearn, violation of justitia, on 1,230 new people:\n")
print(pd.DataFrame(rows).T.to_string(float_format="{:.3f}".format))

# The same table, exact and private. One measurement at epsilon 1.
decisions = decided["justitia, epsilon 1"]
exact = MetricFrame(metrics=selection_rate, y_true=y_new, y_pred=decisions, sensitive_features=sex_new)
private = measure(y_new, decisions, sensitive_features=sex_new, groups=data.groups, epsilon=1.0)
beside = private.table.loc["selection_rate", ["rate", "lower", "upper"]].assign(exact=exact.by_group)
print("\nSelection rates of the last model, measured privately, beside MetricFrame:\n")
print(beside.to_string(float_format="{:.3f}".format))

figure, (left, right) = panels(2)
for look, (name, row) in zip((0, 2, 1), rows.items(), strict=True):
    left.plot(row["violation"], row["accuracy"], label=name, **LOOKS[look] | {"linestyle": "none", "markersize": 7})
left.set(title="1,230 new people", xlabel="violation (exact)", ylabel="accuracy", xlim=(0, 0.25), ylim=(0.55, 0.75))
left.legend(loc="lower right")
intervals(right, np.arange(2) - 0.06, beside, label="justitia.measure, epsilon 1", look=1)
right.plot(np.arange(2) + 0.06, beside["exact"], label="MetricFrame", **LOOKS[2] | {"linestyle": "none"})
right.set(title="selection rate of the private model", xlim=(-0.6, 1.6), ylim=(0, 0.8))
right.set_xticks(range(2), ["women", "men"])
right.legend(loc="lower right")
save(figure, path)
