"""A scikit-learn pipeline with metadata routing: cross-validation that pays for what it looks at.

``sensitive_features`` reaches ``fit`` and a scorer; the scaler and ``predict`` never see it. Every fit and every score
debits one ledger, because the folds share people.
"""

import warnings

import numpy as np
import pandas as pd
import sklearn
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from justitia import BudgetExceeded, LagrangianDualClassifier, PrivacyLedger, measure
from justitia.datasets import load
from pictures import LOOKS, panels, picture_path, save

path = picture_path(__file__)
sklearn.set_config(enable_metadata_routing=True)
data = load("bank")

encode = make_column_transformer(
    (StandardScaler(), make_column_selector(dtype_include="number")),
    (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_exclude="number")),
)
model = LagrangianDualClassifier(epsilon=0.5, groups=data.groups, preprocess=None, random_state=0)
pipeline = Pipeline([("encode", encode), ("classify", model.set_fit_request(ledger=True))])

ledger = PrivacyLedger(epsilon=1.4, delta=1e-5)
spent = []


class NoisedViolation:
    """A scorer that looks at the attribute of held-out people through ``measure`` and pays for it."""

    def __call__(self, fitted, X, y, *, sensitive_features):
        """Minus the noised violation, so that greater is better."""
        found = measure(
            y,
            fitted.predict(X),
            sensitive_features=sensitive_features,
            groups=data.groups,
            epsilon=0.5,
            ledger=ledger,
        )
        spent.append(ledger.epsilon())
        return -found.violation.estimate

    def get_metadata_routing(self):
        """Ask for the attribute."""
        request = sklearn.utils.metadata_routing.MetadataRequest(owner=self)
        request.score.add_request(param="sensitive_features", alias=True)
        return request


with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    found = cross_validate(
        pipeline,
        data.X,
        data.y,
        scoring={"accuracy": "accuracy", "violation": NoisedViolation()},
        params={"sensitive_features": data.sensitive, "ledger": ledger},
        cv=StratifiedKFold(3, shuffle=True, random_state=0),
        error_score="raise",
    )
table = pd.DataFrame(
    {"accuracy": found["test_accuracy"], "violation": -found["test_violation"], "epsilon so far": spent},
    index=[f"fold {k}" for k in range(1, 4)],
)
print("Three folds of Bank; violations of held-out people are noised:\n")
print(table.to_string(float_format="{:.3f}".format))
print(f"\nSpent: epsilon {ledger.epsilon():.3f} of {ledger.budget_epsilon:g} for 3 fits and 3 scores at 0.5 each.")
try:
    pipeline.fit(data.X, data.y, sensitive_features=data.sensitive, ledger=ledger)
except BudgetExceeded as refusal:
    print(f"One more fit: {refusal}")

figure, (left, right) = panels(2)
left.plot(table["violation"], table["accuracy"], **LOOKS[1] | {"linestyle": "none"})
left.set(title="held-out folds", xlabel="noised violation", ylabel="accuracy", ylim=(0.7, 0.9), xlim=(0, 0.2))
left.set_xticks([0, 0.05, 0.1, 0.15, 0.2])
right.step(np.arange(4), [0.0, *spent], where="post", color=LOOKS[1]["color"])
right.plot(np.arange(1, 4), spent, **LOOKS[1] | {"linestyle": "none"}, label="spent")
right.axhline(ledger.budget_epsilon, color=LOOKS[2]["color"], linestyle="--", label="budget")
right.set(title="the ledger", xlabel="folds done", ylabel="epsilon", ylim=(0, 1.6))
right.set_xticks(range(4))
right.legend(loc="lower right")
save(figure, path)
