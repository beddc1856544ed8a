"""
Bank: five age groups
=====================

11,162 clients in five age groups. The group "other" (under 25 or over 60) has only 8% of them, so its bounds are wider.
Demographic parity at epsilon 1 with the defaults.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from justitia import LagrangianDualClassifier, PostProcessingPlan, PrivacyLedger, measure, tradeoff
from justitia.datasets import load

# Age is not among the features, because the group is a function of it.
data = load("m_bank5", progress=False)
train, test = next(data.folds(5))
X, y, age = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, age_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# %%
# The cost is known before any data is used
# -----------------------------------------
#
# A plan says which noisy releases a training run will make, and how large their noise will be.

plan = PostProcessingPlan().calibrate(1.0, 1e-5, n=len(X))
for release in plan.releases():
    print(f"{release.count} x {release.purpose}: noise multiplier {release.noise.noise_multiplier:.2f}")

# %%
# Train
# -----
#
# Two models from the same noisy answers: one with the default tolerance, one with a tolerance that corrects nothing.

unfitted = LagrangianDualClassifier("demographic_parity", epsilon=1.0, groups=data.groups, random_state=0)
model, plain = tradeoff(unfitted, X, y, sensitive_features=age, tolerances=[None, 1.0]).models
model

# %%
# Measure on 2,233 new clients
# ----------------------------

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
decided = {"not corrected": plain.predict(X_new), "corrected": model.predict(X_new)}
measured = measure(
    y_new,
    decided["corrected"],
    before=decided["not corrected"],
    sensitive_features=age_new,
    groups=data.groups,
    epsilon=1.0,
    ledger=ledger,
)
measured

# %%

found = {"not corrected": measured.before, "corrected": measured}
table = pd.DataFrame({name: one.by_group["selection_rate"] for name, one in found.items()}).T
table.insert(0, "accuracy", [np.mean(one == y_new) for one in decided.values()])
table["gap"] = [one.violation.estimate for one in found.values()]
table.round(3)

# %%
# The certificate names the groups for which the noise is too large:

print(*(model.certificate_.remarks or ("no remarks",)), sep="\n")

# %%

ax = measured.plot().ax_
ax.set(title="share predicted to subscribe, noisy, with 95% bounds", xlim=(0, 1))
plt.show()
