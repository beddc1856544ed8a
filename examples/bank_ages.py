"""Bank: subscribers of a deposit, with five age groups of which one is small.

Demographic parity at epsilon 1 with the defaults, and what the noise allows for each group before anything is asked.
"""

import numpy as np
import pandas as pd

from justitia import LagrangianDualClassifier, PostProcessingPlan, PrivacyLedger, measure, tradeoff
from justitia.datasets import load
from pictures import intervals, panels, picture_path, save

path = picture_path(__file__)

# 11,162 clients; age is not among the features, because the group is a function of it.
data = load("m_bank5")
train, test = next(data.folds(5))
X, y, age = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, age_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# The price is known before any data is seen.
plan = PostProcessingPlan().calibrate(1.0, 1e-5, n=len(X))
for release in plan.releases():
    print(f"{release.count} x {release.purpose}: noise multiplier {release.noise.noise_multiplier:.2f}")

# The default tolerance, and one that corrects nothing, on the answers of the first.
unfitted = LagrangianDualClassifier("demographic_parity", epsilon=1.0, groups=data.groups, random_state=0)
model, plain = tradeoff(unfitted, X, y, sensitive_features=age, tolerances=[None, 1.0]).models

ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
models = {"not corrected": plain, "justitia, epsilon 1": model}
found = {
    name: measure(y_new, one.predict(X_new), sensitive_features=age_new, groups=data.groups, epsilon=1.0, ledger=ledger)
    for name, one in models.items()
}
table = pd.DataFrame({name: one.by_group["selection_rate"] for name, one in found.items()}).T
table.insert(0, "accuracy", [np.mean(one.predict(X_new) == y_new) for one in models.values()])
table["violation"] = [str(one.violation) for one in found.values()]
print("\nAccuracy, noised rates by age group and the violation with bounds at 95%, on 2,233 new clients:\n")
print(table.to_string(float_format="{:.3f}".format))
print("\nRemarks of the certificate:", *(model.certificate_.remarks or ("none",)), sep="\n  ")

figure, (ax,) = panels(1, width=6.4)
for look, (name, one) in enumerate(found.items()):
    intervals(ax, np.arange(len(data.groups)) + 0.16 * (look - 0.5), one.table, label=name, look=look)
ax.axhline(found["justitia, epsilon 1"].overall["selection_rate"], color="#1b5e9b", linewidth=0.8)
ax.set_xticks(range(len(data.groups)), [name.replace("-", "\N{EN DASH}") for name in data.groups])
ax.set(title="share predicted to subscribe, noised, with bounds at 95%", xlabel="age", ylim=(0, 1))
ax.legend(loc="upper left", ncols=2)
save(figure, path)
