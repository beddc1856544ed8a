"""``make quality``: accuracy and violation over five folds for the numbers that README and docs quote.

Settings are the defaults of the library. They were fixed on inner splits of the training rows of the first fold of Bank
and Income; ``experiments/choose.py`` compares them there with others.
"""

from __future__ import annotations

import datetime as dt
import math
import platform
from pathlib import Path

import sklearn
import torch

import justitia
from experiments.folds import run, summary
from justitia import LagrangianDualClassifier, PrintedPlan
from justitia.baselines import PlainClassifier

RESULTS = Path(__file__).parent.parent / "results"
DATASETS = ("income", "bank")
NOTIONS = ("demographic_parity", "equalized_odds", "accuracy_parity")

METHODS = {
    "plain network": lambda _groups, _notion, seed: PlainClassifier(random_state=seed),
    "gradients, epsilon 1": lambda groups, notion, seed: LagrangianDualClassifier(
        notion, epsilon=1.0, groups=groups, random_state=seed
    ),
    "gradients, not private": lambda groups, notion, seed: LagrangianDualClassifier(
        notion, epsilon=math.inf, groups=groups, random_state=seed
    ),
    "F-LD as printed": lambda groups, notion, seed: LagrangianDualClassifier(
        notion, epsilon=math.inf, engine="printed", plan=PrintedPlan(), groups=groups, random_state=seed
    ),
}


def main() -> None:
    results = run({(name, notion): METHODS for name in DATASETS for notion in NOTIONS}).drop(columns="model")
    RESULTS.mkdir(exist_ok=True)
    results.to_csv(RESULTS / "quality.csv", index=False)
    table = summary(results).to_string(index=False)
    versions = f"justitia {justitia.__version__}, torch {torch.__version__}, scikit-learn {sklearn.__version__}"
    stamp = f"make quality, {dt.date.today():%Y-%m-%d}, {versions}, Python {platform.python_version()}"
    (RESULTS / "quality.txt").write_text(f"{stamp}\n\n{table}\n", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
