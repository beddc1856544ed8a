"""
Income: two groups, a curve, a measurement
==========================================

Predict earnings above 50,000 dollars without a gap between women and men: 45,222 people, 50 features, sex as the
sensitive attribute, demographic parity. Boosted trees predict a high income for far more men than women. All settings
of the library are its defaults.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from justitia import LagrangianDualClassifier, PrivacyLedger, measure, tradeoff
from justitia.datasets import load

# Sex is not among the features. The split uses the label only.
data = load("income", progress=False)
train, test = next(data.folds(5))
X, y, sex = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, sex_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# %%
# Four models for one budget
# --------------------------
#
# ``tradeoff`` trains models along a grid of tolerances; all of them together cost epsilon 1. ``None`` is the default
# tolerance, which follows from the noise. A tolerance of 1 corrects nothing: that model is the boosted trees alone.

model = LagrangianDualClassifier("demographic_parity", epsilon=1.0, delta=1e-5, groups=data.groups, random_state=0)
curve = tradeoff(model, X, y, sensitive_features=sex, tolerances=[None, 0.05, 0.1, 1.0])
curve

# %%
# The left end of the curve is the default, which costs two to three points of accuracy. Larger tolerances cost less.
# One certificate covers all four models:

fair, plain = curve.models[0], curve.models[-1]
fair.certificate_

# %%
# Measured on other people
# ------------------------
#
# The curve is about training people. ``measure`` compares the decisions for 9,045 people who were not trained on. No
# one is in both sets, so this is another budget. One measurement covers the decisions before and after the
# correction.

ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
decided = {"not corrected": plain.predict(X_new), "corrected": fair.predict(X_new)}
measured = measure(
    y_new,
    decided["corrected"],
    before=decided["not corrected"],
    sensitive_features=sex_new,
    groups=data.groups,
    epsilon=0.5,
    threshold=0.05,
    ledger=ledger,
)
measured

# %%
# The gap fell from about 17 points to nearly 0. Both in one table:

found = {"not corrected": measured.before, "corrected": measured}
table = pd.DataFrame(
    {
        "accuracy": [np.mean(one == y_new) for one in decided.values()],
        "women": [one.by_group.loc["Female", "selection_rate"] for one in found.values()],
        "men": [one.by_group.loc["Male", "selection_rate"] for one in found.values()],
        "gap": [one.violation.estimate for one in found.values()],
        "at least": [one.violation.lower for one in found.values()],
        "at most": [one.violation.upper for one in found.values()],
    },
    index=list(found),
)
table.round(3)

# %%
# The picture of it
# -----------------
#
# On the left, the closer two points of one colour are, the more alike the groups are treated. On the right is the whole
# curve, for one budget.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
measured.plot(ax=left)
left.set(title="share predicted to earn more", xlim=(0, None))
curve.plot(ax=right)
right.set(title="one budget, four models")
right.margins(0.15)
plt.show()
