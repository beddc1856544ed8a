"""Hours: predict hours of work per week so that predictions for women and men have the same distribution.

A target that is a number. Demographic parity compares the share of predictions above every level, and the violation is
the Kolmogorov-Smirnov distance. One fit at epsilon 1 with a tolerance of 0.05, and two private measurements on people
who were not trained on.
"""

import pandas as pd
from sklearn.metrics import r2_score

from justitia import LagrangianDualRegressor, PrivacyLedger, measure
from justitia.datasets import load
from pictures import LOOKS, panels, picture_path, save

path = picture_path(__file__)

# 45,222 people; sex is not among the features. The split reads the target only.
data = load("hours")
train, test = next(data.folds(5))
X, y, sex = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, sex_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

model = LagrangianDualRegressor(
    "demographic_parity", tolerance=0.05, epsilon=1.0, delta=1e-5, groups=data.groups, random_state=0
)
model.fit(X, y, sensitive_features=sex)

# Both measurements are about the same people, so they share a ledger.
ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
predictions = {"not corrected": model.base_predict(X_new), "justitia, epsilon 1": model.predict(X_new)}
found = {
    name: measure(
        y_new,
        predicted,
        notion=["demographic_parity", "mean_parity"],
        sensitive_features=sex_new,
        groups=data.groups,
        epsilon=1.0,
        ledger=ledger,
    )
    for name, predicted in predictions.items()
}
table = pd.DataFrame(
    {
        "R squared": [r2_score(y_new, predicted) for predicted in predictions.values()],
        "women": [one.by_group.loc["Female", "mean_prediction"] for one in found.values()],
        "men": [one.by_group.loc["Male", "mean_prediction"] for one in found.values()],
        "distance": [str(one.violations["demographic_parity"]) for one in found.values()],
        "difference of means": [str(one.violations["mean_parity"]) for one in found.values()],
    },
    index=list(found),
)
print("R squared, noised mean predictions, and distances with bounds at 95%, on 9,045 new people:\n")
print(table.to_string(float_format="{:.3f}".format))
print(f"\nOn the training rows the noised distance is {model.distance_:.3f}; the tolerance was {model.tolerance_:g}.")
print(f"\n{model.certificate_.statement}")

figure, axes = panels(2)
for ax, (title, one) in zip(axes, found.items(), strict=True):
    curve = one.distribution.curve
    for look, group in enumerate(data.groups):
        share = curve.xs(group, level="group")["rate"]
        ax.plot(share.index, share, label=group, markevery=3, **LOOKS[look])
    ax.set(title=f"{title}: share above", xlabel="predicted hours per week", ylim=(0, 1), xlim=(20, 55))
    ax.legend(loc="upper right")
save(figure, path)
