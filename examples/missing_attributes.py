"""Bank with attributes that many people did not give.

"Not given" is protected like any answer and belongs to no group. Silence at random costs little; silence that goes with
the outcome breaks the comparison: groups are compared by those of their members who answered.
"""

import warnings

import numpy as np
import pandas as pd

from justitia import LagrangianDualClassifier
from justitia.datasets import load
from justitia.metrics.exact import violation
from pictures import LOOKS, panels, picture_path, save

path = picture_path(__file__)
data = load("bank")
train, test = next(data.folds(5))
X, y, age = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, age_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]
rng = np.random.default_rng(0)
order = rng.permutation(len(X))


def keep(silent: np.ndarray) -> pd.Series:
    """The attribute with these people's silence."""
    return age.mask(silent)


def rank_below(share: float) -> np.ndarray:
    """A random share of the people."""
    return order < share * len(X)


#: Who is silent: nobody, a random share, or half of the people, nearly all of them subscribers.
silence = {
    "nobody": rank_below(0.0),
    "50% at random": rank_below(0.5),
    "80% at random": rank_below(0.8),
    "50%, subscribers": (y.to_numpy() == 1) & (rng.random(len(X)) < 0.95),
}
rows = {}
for name, silent in silence.items():
    model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, y, sensitive_features=keep(silent))
    decided = model.predict(X_new)
    rows[name] = {
        "silent": silent.mean(),
        "accuracy": np.mean(decided == y_new),
        # Exact, because this dataset is public; for people use justitia.measure.
        "violation": violation(y_new, decided, sensitive_features=age_new, groups=data.groups),
    }
table = pd.DataFrame(rows).T
print("Who is silent in training; accuracy and exact violation on 2,233 new clients who are not:\n")
print(table.to_string(float_format="{:.3f}".format))
print("\nRemarks of the last certificate:", *(model.certificate_.remarks or ("none",)), sep="\n  ")

figure, axes = panels(2, width=3.6)
for ax, column in zip(axes, ["accuracy", "violation"], strict=True):
    at_random, chosen = table.iloc[:-1], table.iloc[-1:]
    ax.plot(100 * at_random["silent"], at_random[column], label="at random", **LOOKS[1])
    ax.plot(100 * chosen["silent"], chosen[column], label="subscribers only", **LOOKS[2] | {"linestyle": "none"})
    ax.set(title=column, xlabel="training people who gave no attribute (%)")
axes[0].set_ylim(0.45, 0.9)
axes[1].set_ylim(-0.005, None)
axes[1].legend(loc="upper left")
save(figure, path)
