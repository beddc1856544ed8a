"""Fits by number of groups: ``python -m bench.performance.groups [--groups 2 5 10 20 50] [--rows 20000]``.

Made-up rows with 20 features that tell something about the group, equalized odds, one thread. Processor seconds of a
whole fit and of the distillation within it, as ratios to the fit with two groups, and the exponent of the whole fit's
time against groups from five on, which should be at most 1. Kept in ``results/groups.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from justitia import LagrangianDualClassifier
from justitia.postprocessing import correction

RESULTS = Path("results/groups.json")
FEATURES = 20


def made_up(groups: int, rows: int) -> tuple[Any, Any, Any]:
    """Features, labels whose rate rises with the group's number, and groups."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, FEATURES)).astype(np.float32)
    leaning = 0.35 * rng.standard_normal((FEATURES, groups))
    group = np.argmax(X @ leaning + rng.gumbel(size=(rows, groups)), axis=1)
    score = X[:, 0] + X[:, 1] + np.linspace(-0.8, 0.8, groups)[group] + rng.standard_normal(rows)
    return X, (score > 0).astype(int), group


def fit(groups: int, rows: int) -> dict[str, float]:
    """Processor seconds of a fit and of its distillation."""
    X, y, group = made_up(groups, rows)
    distilling, learned = 0.0, correction._learned

    def timed(*arguments: Any) -> Any:
        nonlocal distilling
        begun = time.process_time()
        found = learned(*arguments)
        distilling += time.process_time() - begun
        return found

    correction._learned = timed
    try:
        given: dict[str, Any] = {"groups": tuple(range(groups)), "random_state": 0, "noise_seed": 1, "progress": False}
        model = LagrangianDualClassifier("equalized_odds", epsilon=8.0, **given)
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # small groups, and seeded noise
            model.fit(X, y, sensitive_features=group)
        return {"groups": groups, "fit": time.process_time() - begun, "distillation": distilling}
    finally:
        correction._learned = learned


def exponent(found: list[dict[str, float]]) -> float:
    """Slope of log time against log groups, by least squares, from five groups on."""
    many = [one for one in found if one["groups"] >= 5]
    if len(many) < 2:
        return math.nan
    return float(np.polyfit(*np.log([[one["groups"], one["fit"]] for one in many]).T, 1)[0])


def main() -> None:
    """Fit, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[2, 5, 10, 20, 50])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    found = [fit(groups, chosen.rows) for groups in chosen.groups]
    print("| groups | fit / fit with the fewest | distillation / fit |\n|---:|---:|---:|")
    for one in found:
        one["ratio"] = one["fit"] / found[0]["fit"]
        print(f"| {one['groups']} | {one['ratio']:.2f} | {one['distillation'] / one['fit']:.2f} |")
    print(f"exponent from five groups on: {exponent(found):.2f}")
    text = json.dumps({"rows": chosen.rows, "exponent": exponent(found), "fits": found}, indent=1)
    chosen.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
