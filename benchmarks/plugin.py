"""What the default engine costs beyond the base it corrects: seconds as ratios, and accuracy by distillation."""

from __future__ import annotations

import copy
import statistics
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.ratios import Ratio, compare
from justitia import LagrangianDualClassifier, datasets, tradeoff
from justitia.baselines.posteriors import joint, linear_weights
from justitia.engines.moments.memberships import memberships
from justitia.evaluation.exact import violation
from justitia.inputs.encoding import TabularEncoder
from justitia.learners.default import default_base
from justitia.learners.inputs import Inputs
from justitia.privacy.attribute import Attribute

NAMES = {"income": "Income", "bank": "Bank"}
NOTIONS = ("demographic_parity", "equalized_odds", "accuracy_parity")
#: Twenty tolerances of a curve.
CURVE = tuple(np.linspace(0.0, 0.19, 20))
TURNS = 3
Array = NDArray[np.float64]


def plugin_ratios() -> list[Ratio]:
    """A fit over its base, a curve over a fit, and what the deployed rule loses, for two datasets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return [one for name in NAMES for one in (*_seconds(name), *_distilled(name))]


def _seconds(name: str) -> list[Ratio]:
    data = datasets.load(name, progress=False)
    rows = (data.X, data.y)
    inputs, y = Inputs(data.X, TabularEncoder().fit(data.X).transform(data.X)), data.y.to_numpy(dtype=np.float64)

    def model() -> LagrangianDualClassifier:
        return LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0, noise_seed=0)

    found = compare(
        {
            "base": lambda: default_base(len(y)).learn(inputs, y, np.ones(len(y)), seed=0, progress=lambda _: None),
            "fit": lambda: model().fit(*rows, sensitive_features=data.sensitive),
            "curve": lambda: tradeoff(model(), *rows, sensitive_features=data.sensitive, tolerances=CURVE),
        },
        "base",
        TURNS,
    )
    return [
        Ratio(f"default fit on {NAMES[name]} / cross-fitting its base", found["fit"], "<=", 1.5, TURNS),
        Ratio(
            f"curve of {len(CURVE)} tolerances on {NAMES[name]} / one fit",
            found["curve"] / found["fit"],
            "<=",
            1.3,
            TURNS,
        ),
    ]


def _distilled(name: str) -> list[Ratio]:
    """Accuracy of the rule with memberships less that of the deployed one, on held-out rows of five folds."""
    data = datasets.load(name, progress=False)
    lost, added = [], []
    for fold, (train, test) in enumerate(data.folds(5)):
        for notion in NOTIONS:
            model = LagrangianDualClassifier(notion, groups=data.groups, random_state=fold, noise_seed=fold)
            seen = data.X.iloc[train], data.y.iloc[train]
            exact, deployed = both_rules(model, *seen, data.sensitive.iloc[train], data.X.iloc[test])
            truth, groups = data.y.iloc[test].to_numpy(), data.sensitive.iloc[test]
            decided = [(scores > 0).astype(truth.dtype) for scores in (exact, deployed)]
            accuracy = [float(np.mean(one == truth)) for one in decided]
            violated = [
                violation(truth, one, sensitive_features=groups, notion=notion, groups=data.groups) for one in decided
            ]
            lost.append(100 * (accuracy[0] - accuracy[1]))
            added.append(100 * (violated[1] - violated[0]))
    return [
        Ratio(
            f"points of accuracy given up by distillation, {NAMES[name]}", statistics.mean(lost), "<=", 0.2, len(lost)
        ),
        Ratio(
            f"points of violation added by distillation, {NAMES[name]}", statistics.mean(added), "<=", 1.0, len(added)
        ),
    ]


def both_rules(
    model: LagrangianDualClassifier, X: Any, y: Any, sensitive_features: Any, new: Any
) -> tuple[Array, Array]:
    """Scores of new rows by the rule that uses memberships, which no model keeps, and by the one that is deployed."""
    session = model._open(X, y, Attribute.of(sensitive_features))
    trained = session.train()
    model._keep(session, trained)
    inputs = Inputs(new, model._features(new, reset=False).numpy())
    eta = model.rule_.calibration(model.rule_.base.probability(inputs))
    engine: Any = session.engine
    own = _memberships(engine, engine._rows)
    weights = linear_weights(session.problem.notion, trained.lam.numpy(), engine._eta, own)
    others = copy.copy(engine._rows)
    others._X, others._y = torch.from_numpy(inputs.numbers), torch.zeros(len(eta))
    said = torch.from_numpy(eta).float()
    others._represent = lambda index: ((2 * said[index] - 1)[:, None], torch.logit(said[index]))
    moved = np.einsum("ya,yna->n", weights, joint(eta, _memberships(engine, others)))
    return 2 * eta - 1 - moved, model.decision_function(new)


def _memberships(engine: Any, rows: Any) -> Array:
    """(2, n, G): p(a | x, y) for both labels."""
    everybody = torch.arange(len(rows))
    found = [memberships(engine._weights, rows.take(everybody, label))[:, :-1].double() for label in (0.0, 1.0)]
    return torch.stack(found).numpy()
