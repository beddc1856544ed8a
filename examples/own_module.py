"""
Your own network
================

Any ``nn.Module`` with one score per row will do, as long as rows do not influence each other: here a residual block
with dropout and layer normalisation, on Compas. The last linear layer with one output is recognised, and its input
serves as the public representation of engine ``moments``. This tutorial needs the extra ``networks``.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch import nn

from justitia import LagrangianDualClassifier
from justitia.datasets import load
from justitia.metrics.exact import violation


class Residual(nn.Module):
    """Two layers around a shortcut."""

    def __init__(self, inputs: int, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.block = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Dropout(0.1))
        self.score = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One score per row."""
        hidden = self.first(x)
        return self.score(nn.functional.silu(hidden + self.block(hidden)))


data = load("compas", progress=False)
train, test = next(data.folds(5))
X, y, sex = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, sex_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# %%
# A module that mixes rows is refused
# -----------------------------------
#
# Batch normalisation computes with several rows at once, so one person's attribute could reach another's gradient. It
# is refused before any budget is spent.

try:
    mixing = nn.Sequential(nn.LazyLinear(8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    LagrangianDualClassifier(groups=data.groups, module=mixing).fit(X, y, sensitive_features=sex)
except ValueError as refusal:
    print(refusal)

# %%
# Train the default network and this one
# --------------------------------------
#
# ``module`` takes hidden widths, a module, or a function of the number of inputs, which is known after encoding.
# Violations are exact here, because this dataset is public; for people use ``justitia.measure``.

networks = {"default": None, "Residual": Residual}
rows, models = {}, {}
for name, module in networks.items():
    model = LagrangianDualClassifier("equal_opportunity", epsilon=1.0, groups=data.groups, engine="moments")
    model.set_params(module=module, random_state=0).fit(X, y, sensitive_features=sex)
    decided = model.predict(X_new)
    rows[name] = {
        "accuracy": np.mean(decided == y_new),
        "violation": violation(
            y_new, decided, sensitive_features=sex_new, groups=data.groups, notion="equal_opportunity"
        ),
    }
    models[name] = model
table = pd.DataFrame.from_dict(rows, orient="index")
table.round(3)

# %%
# The picture shows how to inspect a fit, not which network is better. Equal opportunity compares only people with a new
# charge, and few women of Compas have one, so runs differ widely. With cells that small, use a ``tradeoff`` curve and a
# larger tolerance.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for (name, model), style in zip(models.items(), ("--", "-"), strict=True):
    history = model.history_
    left.plot(history["round"], history["accuracy"], style, label=name)
    women = next(one for one in model.history_columns_ if one.kind == "multiplier" and one.group == "Female")
    right.plot(history["round"], history[women.name], style, label=name)
left.set(title="training accuracy (public)", xlabel="round")
right.set(title="multiplier of women (noisy)", xlabel="round")
right.axhline(0, color="0.5", linewidth=0.8)
left.legend()
plt.show()
