"""Occupation: suggest one of six kinds of work, each to women and men at the same rate.

A target with several classes. Demographic parity compares the rate of every class. One fit at epsilon 1 with a
tolerance of 0.02, and one private measurement of both models on people who were not trained on.
"""

import numpy as np
import pandas as pd

from justitia import LagrangianDualClassifier, measure
from justitia.datasets import load
from pictures import intervals, panels, picture_path, save

path = picture_path(__file__)

# 45,222 people; sex is not among the features. The split reads the target only.
data = load("occupation")
train, test = next(data.folds(5))
X, y, sex = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, sex_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# The same class as for two classes: the target decides what is compared.
model = LagrangianDualClassifier(
    "demographic_parity", tolerance=0.02, epsilon=1.0, delta=1e-5, groups=data.groups, random_state=0
)
model.fit(X, y, sensitive_features=sex)

# The base model's decisions and the corrected ones, in one release.
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
decisions = {"not corrected": (before, found.before), "justitia, epsilon 1": (after, found)}
summary = pd.DataFrame(
    {
        "accuracy": [np.mean(decided == y_new) for decided, _ in decisions.values()],
        "violation": [str(one.violation) for _, one in decisions.values()],
    },
    index=list(decisions),
)
print("Accuracy, and the largest difference between women and men over six classes, on 9,045 new people:\n")
print(summary.to_string(float_format="{:.3f}".format))

rates = {
    f"{group.lower()}, {when}": one.by_group.loc[group].to_numpy()
    for when, one in (("before", found.before), ("after", found))
    for group in data.groups
}
print("\nShare of each class among the decisions, noised:\n")
print(pd.DataFrame(rates, index=list(model.classes_)).to_string(float_format="{:.3f}".format))
print(f"\n{model.certificate_.statement}")
print(found.certificate.remarks[-1])

figure, axes = panels(2, width=4.4, height=3.2)
names = [str(name).replace("-", "-\n") for name in model.classes_]
for ax, (title, (_, one)) in zip(axes, decisions.items(), strict=True):
    for look, group in enumerate(data.groups):
        places = np.arange(len(names)) + 0.2 * (look - 0.5)
        intervals(ax, places, one.table.xs(group, level="group"), label=group, look=look)
    ax.set(title=f"{title}: share of decisions", ylim=(0, 0.65))
    ax.set_xticks(range(len(names)), names, fontsize=7)
    ax.legend(loc="upper right")
save(figure, path)
