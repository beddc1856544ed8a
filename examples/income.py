"""Income: predict earnings above 50,000 dollars without a gap between women and men.

A whole trade-off curve at epsilon 1, from boosted trees as they are to corrected ones, and a private measurement on
people who were not trained on.
All settings of the library are its defaults.
"""

import numpy as np
import pandas as pd

from justitia import LagrangianDualClassifier, PrivacyLedger, measure, tradeoff
from justitia.datasets import load
from pictures import LOOKS, intervals, panels, picture_path, save

path = picture_path(__file__)

# 45,222 people. Sex is not among the features. The split looks at the label only.
data = load("income")
train, test = next(data.folds(5))
X, y, sex = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, sex_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# Models along a grid of tolerances; all of them together cost epsilon 1. A tolerance of 1 corrects nothing.
model = LagrangianDualClassifier("demographic_parity", epsilon=1.0, delta=1e-5, groups=data.groups, random_state=0)
curve = tradeoff(model, X, y, sensitive_features=sex, tolerances=[None, 0.05, 0.1, 1.0])
fair, plain = curve.models[0], curve.models[-1]

# Other people, another budget: nobody is in both sets. Two measurements, one ledger.
ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
models = {"not corrected": plain, "justitia, default": fair}
found = {
    name: measure(y_new, one.predict(X_new), sensitive_features=sex_new, groups=data.groups, epsilon=0.5, ledger=ledger)
    for name, one in models.items()
}
table = pd.DataFrame(
    {
        "accuracy": [np.mean(models[name].predict(X_new) == y_new) for name in found],
        "women": [one.by_group.loc["Female", "selection_rate"] for one in found.values()],
        "men": [one.by_group.loc["Male", "selection_rate"] for one in found.values()],
        "violation": [str(one.violation) for one in found.values()],
    },
    index=list(found),
)
print("Rates of positive decisions on 9,045 new people, noised, with bounds at 95%:\n")
print(table.to_string(float_format="{:.3f}".format))
print(f"\nThe two measurements cost epsilon {ledger.epsilon():.2f} together. Training:\n\n{fair.certificate_}")
print("\nThe curve on training people (accuracy is public, violations are noised):\n")
print(curve.table.to_string(index=False, float_format="{:.3f}".format, na_rep="default"))

figure, (left, right) = panels(2)
for look, (name, one) in enumerate(found.items()):
    intervals(left, np.arange(2) + 0.12 * (look - 0.5), one.table, label=name, look=look)
left.set(title="share predicted to earn more", xlim=(-0.5, 1.5), ylim=(0, None))
left.set_xticks(range(2), ["women", "men"])
left.legend(loc="upper left")
points = curve.table.sort_values("noisy_violation")
right.plot(points["noisy_violation"], points["accuracy"], **LOOKS[1])
for row in points.itertuples():
    label = "default" if np.isnan(row.tolerance) else f"tolerance {row.tolerance:g}"
    right.annotate(label, (row.noisy_violation, row.accuracy), (7, -10), textcoords="offset points")
right.set(title="one budget, four models", xlabel="noised violation (training)", ylabel="accuracy (training)")
right.set_xlim(0, 1.4 * points["noisy_violation"].max())
right.margins(y=0.12)
save(figure, path)
