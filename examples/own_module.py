"""A network of your own: a residual block with dropout and layer normalisation, on Compas.

Any ``nn.Module`` with one score per row will do, as long as rows do not see each other. The last linear layer with one
output is recognised, and what goes into it serves as public representation for the moments engine.
"""

import numpy as np
import pandas as pd
import torch
from torch import nn

from justitia import LagrangianDualClassifier
from justitia.datasets import load
from justitia.metrics.exact import violation
from pictures import LOOKS, panels, picture_path, save

path = picture_path(__file__)


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


data = load("compas")
train, test = next(data.folds(5))
X, y, sex = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, sex_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]

# `module` takes hidden widths, a module, or a function of the number of inputs (known after encoding).
networks = {"default": None, "Residual": Residual}
rows, models = {}, {}
for name, module in networks.items():
    model = LagrangianDualClassifier("equal_opportunity", epsilon=1.0, groups=data.groups, engine="moments")
    model.set_params(module=module, random_state=0).fit(X, y, sensitive_features=sex)
    decided = model.predict(X_new)
    rows[name] = {
        "accuracy": np.mean(decided == y_new),
        # Exact, because this dataset is public; for people use justitia.measure.
        "violation": violation(
            y_new, decided, sensitive_features=sex_new, groups=data.groups, notion="equal_opportunity"
        ),
    }
    models[name] = model

# A module that mixes rows is refused before any budget is spent.
try:
    mixing = nn.Sequential(nn.LazyLinear(8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    LagrangianDualClassifier(groups=data.groups, module=mixing).fit(X, y, sensitive_features=sex)
except ValueError as refusal:
    print(f"refused: {refusal}\n")
print("Equal opportunity at epsilon 1; accuracy and exact violation on 1,230 new people:\n")
print(pd.DataFrame.from_dict(rows, orient="index").to_string(float_format="{:.3f}".format))

figure, (left, right) = panels(2)
for look, (name, model) in enumerate(models.items()):
    history = model.history_
    line = LOOKS[look] | {"marker": ""}
    left.plot(history["round"], history["accuracy"], label=name, **line)
    women = next(one for one in model.history_columns_ if one.kind == "multiplier" and one.group == "Female")
    right.plot(history["round"], history[women.name], label=name, **line)
left.set(title="training accuracy (public)", xlabel="round")
right.set(title="multiplier of women (noised)", xlabel="round")
right.axhline(0, color="#777777", linewidth=0.8)
left.legend(loc="upper right")
save(figure, path)
