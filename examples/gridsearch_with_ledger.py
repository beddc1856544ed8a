"""Bank: a grid search by scikit-learn that pays for every look, and a private search that pays once.

GridSearchCV fits every candidate on every fold and scores it on people whose age group is secret too. Here every fit
and every score debits one ledger, which refuses what does not fit. With three tolerances and two folds that is seven
fits and six measurements, so each of them gets a small part of the budget. ``private_search`` trains all tolerances
from the answers that one model asked for: the same budget buys one good model.
"""

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from matplotlib.figure import Figure
from sklearn.model_selection import GridSearchCV

from justitia import BudgetExceeded, DurableLedger, LagrangianDualClassifier, PrivacyLedger, private_search
from justitia.datasets import load
from justitia.metrics.exact import violation
from justitia.metrics.scorer import private_scorer
from justitia.privacy.accounting import epsilon_spent

BUDGET, DELTA = 1.0, 1e-5
#: Seven fits and six measurements at these prices cost 0.99 together: Gaussian costs add up in mu^2, not in epsilon.
FIT, SCORE = 0.29, 0.18
TOLERANCES = [0.02, 0.08, 0.2]
#: Largest noisy violation that is accepted.
AIM = 0.1

parser = argparse.ArgumentParser()
parser.add_argument("--picture", type=Path, help="where a PNG is written; none by default")
picture = parser.parse_args().picture
warnings.simplefilter("ignore", UserWarning)  # that so little budget allows only so much precision

data = load("bank", progress=False)
train, test = next(data.folds(5))
X, y, age = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
X_new, y_new, age_new = data.X.iloc[test], data.y.iloc[test], data.sensitive.iloc[test]
model = LagrangianDualClassifier(epsilon=FIT, delta=DELTA, groups=data.groups, random_state=0)


def accurate_enough_alike(results: dict[str, Any]) -> int:
    """The most accurate candidate among those whose noisy violation is within the aim, else the least violating."""
    alike = results["mean_test_violation"] >= -AIM
    preference = np.where(alike, results["mean_test_accuracy"], -1 + results["mean_test_violation"])
    return int(preference.argmax())


def on_new_people(fitted: LagrangianDualClassifier, ledger: PrivacyLedger, fits: int, looks: int) -> dict[str, Any]:
    """A row of the table. The violation is exact, because this dataset is public; for people use justitia.measure."""
    decided = fitted.predict(X_new)
    return {
        "fits": fits,
        "scores": looks,
        "epsilon of the model": float(fitted.epsilon),
        "epsilon spent": ledger.epsilon(),
        "tolerance": float(fitted.tolerance),
        "accuracy": np.mean(decided == y_new),
        "violation": violation(y_new, decided, sensitive_features=age_new, groups=data.groups),
    }


with tempfile.TemporaryDirectory() as folder, sklearn.config_context(enable_metadata_routing=True):
    ledger = DurableLedger(f"{folder}/grid.ledger", dataset="bank", epsilon=BUDGET, delta=DELTA)
    scorer = private_scorer("demographic_parity", groups=data.groups, ledger=ledger, epsilon=SCORE)
    grid = GridSearchCV(
        model.set_fit_request(ledger=True),
        {"tolerance": TOLERANCES},
        scoring={"accuracy": "accuracy", "violation": scorer},
        refit=accurate_enough_alike,
        cv=2,
        error_score="raise",
    )
    grid.fit(X, y, sensitive_features=age, ledger=ledger)

    other = DurableLedger(f"{folder}/search.ledger", dataset="bank", epsilon=BUDGET, delta=DELTA)
    whole = LagrangianDualClassifier(epsilon=BUDGET, delta=DELTA, groups=data.groups, random_state=0)
    candidates = [{"tolerance": one} for one in TOLERANCES]
    found = private_search(whole, candidates, X, y, sensitive_features=age, violation=AIM, ledger=other)

    table = pd.DataFrame(
        {
            "GridSearchCV": on_new_people(grid.best_estimator_, ledger, 2 * len(TOLERANCES) + 1, 2 * len(TOLERANCES)),
            "private search": on_new_people(found.model, other, 1, 0),
        }
    ).T.astype({"fits": int, "scores": int})
    print(f"Total budget epsilon {BUDGET:g}; accuracy and exact violation on {len(X_new):,} new clients:\n")
    print(table.to_string(float_format="{:.3f}".format))
    try:
        model.fit(X, y, sensitive_features=age, ledger=ledger)
    except BudgetExceeded as refusal:
        print(f"\nOne more fit: {refusal}")
    if picture is not None:
        figure = Figure(figsize=(6, 2.9), layout="constrained")
        ax = figure.subplots()
        for name, one, look in (("GridSearchCV", ledger, "o-"), ("private search", other, "^--")):
            releases = one.releases
            spent = [
                epsilon_spent(dict(pd.Series([r.cost for r in releases[:k]]).value_counts()), DELTA)
                for k in range(1, len(releases) + 1)
            ]
            ax.plot(range(1, len(spent) + 1), spent, look, label=name, markersize=3)
        ax.set(xlabel="noisy answers", ylabel="epsilon spent")
        ax.legend(frameon=False)
        figure.savefig(picture, dpi=120)
