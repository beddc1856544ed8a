"""
Occupation: several classes
===========================

Suggest one of six kinds of work, as a job portal might, each to women and men at the same rate. The rows are those of
Income with another target. Demographic parity of a target with several classes compares the rate of *every* class.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from justitia import LagrangianDualClassifier, measure
from justitia.datasets import load

# 45,222 people; sex is not among the features. The split uses the target only.
data = load("occupation", progress=False)
train, test = next(data.folds(5))
X, y, sex = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, sex_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# %%
# The estimator is the same as for two classes; it recognises the task from the target.

model = LagrangianDualClassifier(
    "demographic_parity", tolerance=0.02, epsilon=1.0, delta=1e-5, groups=data.groups, random_state=0
)
model.fit(X, y, sensitive_features=sex)

# %%
# The decisions of the base model and the corrected ones, in one measurement of 9,045 people who were not trained on.

before = model.classes_[model.base_proba(X_new).argmax(axis=1)]
after = model.predict(X_new)
found = measure(
    y_new,
    after,
    before=before,
    sensitive_features=sex_new,
    groups=data.groups,
    epsilon=1.0,
    disjoint_from=model.certificate_,
)
found

# %%

decisions = {"not corrected": (before, found.before), "corrected": (after, found)}
table = pd.DataFrame(
    {
        "accuracy": [np.mean(decided == y_new) for decided, _ in decisions.values()],
        "gap": [one.violation.estimate for _, one in decisions.values()],
        "at least": [one.violation.lower for _, one in decisions.values()],
        "at most": [one.violation.upper for _, one in decisions.values()],
    },
    index=list(decisions),
)
table.round(3)

# %%
# How they became equal
# ---------------------
#
# The base model suggests clerical work and service to women and manual work to men. After the correction the rates of
# all six classes differ by a few points, for about two points of accuracy.

rates = {
    f"{group.lower()}, {when}": one.by_group.loc[group].to_numpy()
    for when, one in (("before", found.before), ("after", found))
    for group in data.groups
}
pd.DataFrame(rates, index=list(model.classes_)).round(3)

# %%
# Read this table before you use such a model. The correction loses as little accuracy as possible, and here that means
# suggesting manual work to women as often as to men. If that is not what you want, say so with ``costs=``, or compare
# only the classes that matter, with a larger tolerance for the others (:doc:`/targets`).

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
names = [str(name).replace("-", "-\n") for name in model.classes_]
for ax, (title, (_, one)) in zip(axes, decisions.items(), strict=True):
    for k, group in enumerate(data.groups):
        shown = one.table.xs(group, level="group")
        reach = [(shown["rate"] - shown["lower"]).clip(lower=0), (shown["upper"] - shown["rate"]).clip(lower=0)]
        ax.errorbar(np.arange(len(names)) + 0.2 * (k - 0.5), shown["rate"], reach, fmt="os"[k], capsize=3, label=group)
    ax.set(title=f"{title}: share of decisions", ylim=(0, 0.65))
    ax.set_xticks(range(len(names)), names, fontsize=7)
    ax.legend(loc="upper right")
plt.show()
