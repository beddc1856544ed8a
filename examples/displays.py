"""
Every display
=============

What each object shows in a notebook, and what it draws with matplotlib. An object that is the last line of a cell shows
itself: the result first, then a chart and a short table, then what it cost. Nothing here needs the sensitive attribute
again, because everything is made from noisy answers that were paid for or from public numbers.

The data are 11,162 clients of a bank: will they subscribe to a deposit, and do groups of age get positive decisions at
the same rate?
"""

import matplotlib.pyplot as plt

from justitia import LagrangianDualClassifier, PrivacyLedger, measure, tradeoff
from justitia.datasets import load
from justitia.metrics.displays import MeasurementDisplay, PriceDisplay

data = load("bank", progress=False)
train, test = next(data.folds(5))
X, y, age = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, age_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# %%
# The estimator
# -------------
#
# A fitted estimator shows scikit-learn's diagram, the price list and the guarantee. This one is the first of a curve of
# models, which cost as much as one of them.

unfitted = LagrangianDualClassifier("demographic_parity", epsilon=1.0, groups=data.groups, random_state=0)
curve = tradeoff(unfitted, X, y, sensitive_features=age, tolerances=[None, 0.03, 0.06, 0.1])
model = curve.models[0]
model

# %%
# The price list
# --------------
#
# ``price_`` says what every tolerance costs in accuracy, at no further budget. The table is a plain data frame;
# ``PriceDisplay`` shows and draws it.

prices = PriceDisplay.from_estimator(model)
prices

# %%

_ = prices.plot()

# %%
# The certificate
# ---------------
#
# What was promised, how the budget was shared out, and what the promise does not cover.

model.certificate_

# %%
# The measurement
# ---------------
#
# Rates of each group on people who were not trained on, with bounds. ``before`` are the decisions of the uncorrected
# model: one measurement compares both. With a ``threshold`` the verdict is part of it.

ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
before = model.classes_[(model.base_proba(X_new) > 0.5).astype(int)]
measured = measure(
    y_new,
    model.predict(X_new),
    before=before,
    sensitive_features=age_new,
    groups=data.groups,
    epsilon=1.0,
    threshold=0.1,
    ledger=ledger,
)
measured

# %%

_ = measured.plot()

# %%
# ``MeasurementDisplay`` works in scikit-learn's manner: it measures the decisions of a model and draws them. That is
# another measurement, so it is paid for from the same ledger.

_ = MeasurementDisplay.from_estimator(
    model, X_new, y_new, sensitive_features=age_new, groups=data.groups, epsilon=0.5, ledger=ledger
)

# %%
# The impact ratio
# ----------------
#
# Each group's rate over the highest rate, beside the line of four fifths.

impact = measured.impact()
impact

# %%

_ = impact.plot()

# %%
# The ledger
# ----------
#
# How much of the budget for these people is spent, and on what.

ledger

# %%
# The trade-off curve
# -------------------
#
# Models along a grid of tolerances, all from the noisy answers that one of them paid for. The price list above is an
# estimate of this curve; here each point is a model you can take.

curve

# %%

_ = curve.plot()
plt.show()
