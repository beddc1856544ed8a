"""
Missing attributes
==================

Some people do not give their attribute. "Not given" is protected like any answer and belongs to no group. If people are
silent at random, little is lost. If their silence depends on the outcome, the comparison is wrong, because each group
is represented by those of its members who answered.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from justitia import LagrangianDualClassifier
from justitia.datasets import load
from justitia.metrics.exact import violation

data = load("bank", progress=False)
train, test = next(data.folds(5))
X, y, age = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, age_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# %%
# Who is silent
# -------------
#
# Three cases: nobody, a random share of the people, or half of the people, nearly all of them subscribers.

rng = np.random.default_rng(0)
rank = rng.permutation(len(X)) / len(X)
silence = {
    "no one": rank < 0.0,
    "50% at random": rank < 0.5,
    "80% at random": rank < 0.8,
    "50%, subscribers": (y.to_numpy() == 1) & (rng.random(len(X)) < 0.95),
}

# %%
# A model for each. Violations are exact here, because this dataset is public; for people use ``justitia.measure``.

rows = {}
for name, silent in silence.items():
    model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, y, sensitive_features=age.mask(silent))
    decided = model.predict(X_new)
    rows[name] = {
        "silent": silent.mean(),
        "accuracy": np.mean(decided == y_new),
        "violation": violation(y_new, decided, sensitive_features=age_new, groups=data.groups),
    }
table = pd.DataFrame(rows).T
table.round(3)

# %%
# With random silence the groups shrink while the noise in their sums stays the same. That matters little until groups
# are small: with 80% silent, about 140 people of the smaller group are left, and the gap is hardly corrected any more.
#
# In the last row nearly all subscribers are silent, so the groups consist of people who did not subscribe. The model
# equalises how often *they* get a positive decision. That costs accuracy, and the rates of all people are equal only by
# luck. Nothing can repair this without the missing answers. A ``MissingAttributeWarning`` appears where the noisy sizes
# show that "not given" differs by label. If you expect such silence, find out why people do not answer before you
# train.

print(*(model.certificate_.remarks or ("no remarks",)), sep="\n")

# %%
# One fold and one run per point: read the picture as an illustration. :doc:`/evaluation` has five to ten runs per
# point.

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for ax, column in zip(axes, ["accuracy", "violation"], strict=True):
    at_random, chosen = table.iloc[:-1], table.iloc[-1:]
    ax.plot(100 * at_random["silent"], at_random[column], "o-", label="at random")
    ax.plot(100 * chosen["silent"], chosen[column], "^", label="subscribers only")
    ax.set(title=column, xlabel="training people who gave no attribute (%)")
axes[0].set_ylim(0.45, 0.9)
axes[1].set_ylim(-0.005, None)
axes[1].legend(loc="upper left")
plt.show()
