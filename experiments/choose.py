"""How the default plan was chosen: candidate settings on inner splits of training rows, never on test rows.

``python -m experiments.choose [dataset ...]`` takes the training rows of the first fold, splits them into four inner
folds, fits every candidate at epsilon 1 on three of them and measures on the fourth, for two shuffles.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold
from tqdm.auto import tqdm

from justitia import GradientsPlan, LagrangianDualClassifier
from justitia.datasets import load
from justitia.metrics import violation

CANDIDATES: dict[str, dict[str, Any]] = {
    "default": {},
    "averaging 0.01": {"averaging": 0.01},
    "memory 0.9": {"memory": 0.9},
    "violations 30% of budget": {"share_violations": 0.30, "share_gradients": 0.66},
    "20 public steps per release": {"public_steps": 20},
    "dual step 0.4": {"dual_step": 0.4},
    "warm-up of 400 steps": {"warmup_steps": 400},
    "batch 256": {"batch_size": 256},
}


def measure(name: str, settings: dict[str, Any], bar: Any) -> dict[str, str]:
    data = load(name)
    outer, _ = next(iter(data.folds(5)))
    X, y, sensitive = data.X.iloc[outer], data.y.iloc[outer], data.sensitive.iloc[outer]
    found = []
    for shuffle in (7, 8):
        inner = StratifiedKFold(4, shuffle=True, random_state=shuffle).split(X, y)
        for fold, (train, test) in enumerate(inner):
            model = LagrangianDualClassifier(plan=GradientsPlan(**settings), groups=data.groups, random_state=fold)
            model.fit(X.iloc[train], y.iloc[train], sensitive_features=sensitive.iloc[train])
            predicted = model.predict(X.iloc[test])
            gap = violation(y.iloc[test], predicted, sensitive_features=sensitive.iloc[test], groups=data.groups)
            found.append((np.mean(predicted == y.iloc[test].to_numpy()), gap))
            bar.update()
    mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
    return {
        "dataset": name,
        "accuracy": f"{mean[0]:.3f} ({spread[0]:.3f})",
        "violation": f"{mean[1]:.3f} ({spread[1]:.3f})",
    }


def main(names: list[str]) -> None:
    rows = []
    with tqdm(total=8 * len(names) * len(CANDIDATES), unit="fit") as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name in names:
            for label, settings in CANDIDATES.items():
                bar.set_description(f"{name}, {label}")
                rows.append({"setting": label, **measure(name, settings, bar)})
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1:] or ["bank", "income"])
