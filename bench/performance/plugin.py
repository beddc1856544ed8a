"""What the default engine costs beyond the base it corrects: seconds as ratios, and accuracy by distillation."""

from __future__ import annotations

import statistics
import time
import warnings
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from bench.experiments.curves import advantage
from bench.performance.ratios import Ratio, Step, compare
from bench.rivals.posteriors import joint, linear_weights
from justitia import LagrangianDualClassifier, datasets, tradeoff
from justitia.datasets import make_synthetic
from justitia.learners.base import Inputs
from justitia.learners.lightgbm_base import LightGBMBase
from justitia.metrics.exact import violation
from justitia.postprocessing.price import TOLERANCES
from justitia.preprocessing.encoding import TabularEncoder
from justitia.privacy.attribute import Attribute
from justitia.rows.source import Block

NAMES = {"income": "Income", "bank": "Bank"}
NOTIONS = ("demographic_parity", "equalized_odds", "accuracy_parity")
#: Twenty tolerances of a curve.
CURVE = tuple(np.linspace(0.0, 0.19, 20))
#: Tolerances at which rules with and without memberships are compared.
COMPARED = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
TURNS = 3
#: Training rows and predicted rows of the comparison with one LightGBM model.
MANY_ROWS, PREDICTED_ROWS = 220_000, 1_000_000
Array = NDArray[np.float64]


def plugin_ratios() -> list[Ratio]:
    """A fit over its base, a curve over a fit, and what the deployed rule loses, for two datasets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        each = (one for name in NAMES for one in (*_seconds(name), _priced(name), *_distilled(name)))
        return [_prediction(), *each]


def _prediction() -> Ratio:
    """Predictions of a fitted model over those of one LightGBM model of the same size, on one thread."""
    data = make_synthetic(MANY_ROWS, n_features=20, random_state=0)
    model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0, noise_seed=0)
    model.fit(data.X, data.y, sensitive_features=data.sensitive)
    base = model.rule_.base
    trees = len(base.models[0].trees.trees)
    size = base.parameters | {"n_estimators": trees, "n_jobs": 1}
    alone = lightgbm.LGBMClassifier(**{name: value for name, value in size.items() if name != "num_threads"})
    alone.fit(data.X, data.y)
    new = make_synthetic(PREDICTED_ROWS, n_features=20, random_state=1).X
    steps: dict[str, Step] = {"alone": lambda: alone.predict_proba(new), "model": lambda: model.predict(new)}
    found = compare(steps, "alone", TURNS)
    name = f"predict {PREDICTED_ROWS:,} rows, {MANY_ROWS:,} trained on / one LightGBM"
    return Ratio(name, found["model"], "<=", 2.0, TURNS)


def _seconds(name: str) -> list[Ratio]:
    data = datasets.load(name, progress=False)
    rows = (data.X, data.y)
    inputs, y = Inputs(data.X, TabularEncoder().fit(data.X).transform(data.X)), data.y.to_numpy(dtype=np.float64)

    def model() -> LagrangianDualClassifier:
        return LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0, noise_seed=0)

    found = compare(
        {
            "base": lambda: LightGBMBase(len(y)).learn(inputs, y, np.ones(len(y)), seed=0, progress=lambda _: None),
            "fit": lambda: model().fit(*rows, sensitive_features=data.sensitive),
            "curve": lambda: tradeoff(model(), *rows, sensitive_features=data.sensitive, tolerances=CURVE),
        },
        "base",
        TURNS,
    )
    return [
        Ratio(f"default fit on {NAMES[name]} / cross-fitting its base", found["fit"], "<=", 1.25, TURNS),
        Ratio(
            f"curve of {len(CURVE)} tolerances on {NAMES[name]} / one fit",
            found["curve"] / found["fit"],
            "<=",
            1.3,
            TURNS,
        ),
    ]


def _priced(name: str) -> Ratio:
    """The price list of a default fit over the rest of that fit, in seconds of the same process."""
    data = datasets.load(name, progress=False)
    parts = []
    for _ in range(TURNS):
        model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0, noise_seed=0)
        start = time.perf_counter()
        session = model._open(data.X, data.y, Attribute.from_container(data.sensitive))
        model._keep(session, session.train())
        fitted = time.perf_counter()
        session.run._points = None  # the fit has made the list, and keeps it
        session.run.price()
        listed = time.perf_counter() - fitted
        parts.append(listed / (fitted - start - listed))
    rows = f"price list on {NAMES[name]}, {len(TOLERANCES) + 1} tolerances at most / default fit without it"
    return Ratio(rows, statistics.median(parts), "<=", 0.3, TURNS)


def _distilled(name: str) -> list[Ratio]:
    """Accuracy of rules with memberships less that of deployed ones at the same violation, on held-out rows."""
    data = datasets.load(name, progress=False)
    lost = []
    for notion in NOTIONS:
        curves = []
        for fold, (train, test) in enumerate(data.folds(5)):
            model = LagrangianDualClassifier(notion, groups=data.groups, random_state=fold, noise_seed=fold)
            seen = data.X.iloc[train], data.y.iloc[train], data.sensitive.iloc[train]
            truth, groups = data.y.iloc[test].to_numpy(), data.sensitive.iloc[test]
            rules = [
                [_measured(scores > 0, truth, groups, notion, data.groups) for scores in kind]
                for kind in both_rules(model, *seen, data.X.iloc[test])
            ]
            curves.append(rules)
        with_memberships, deployed = np.swapaxes(np.array(curves), 0, 1)  # (folds, tolerances, 2) each
        lost.append(100 * advantage(with_memberships, deployed).value)
    name = f"points of accuracy given up by distillation, {NAMES[name]}"
    return [Ratio(name, statistics.mean(lost), "<=", 0.2, 5 * len(lost))]


def _measured(decided: Any, truth: Any, groups: Any, notion: str, listed: Any) -> tuple[float, float]:
    decided = decided.astype(truth.dtype)
    violated = violation(truth, decided, sensitive_features=groups, notion=notion, groups=listed)
    return float(np.mean(decided == truth)), violated


def both_rules(
    model: LagrangianDualClassifier, X: Any, y: Any, sensitive_features: Any, new: Any
) -> tuple[list[Array], list[Array]]:
    """Scores of new rows along a curve, by rules that use memberships, which no model keeps, and by deployed ones."""
    session = model._open(X, y, Attribute.from_container(sensitive_features))
    trained = session.train()
    run, inputs = session.run, Inputs(new, model._features(new, reset=False))
    base, calibration, _ = run.model
    eta = calibration(base.predict(inputs))
    rows = Block(0, inputs.numbers, np.zeros(len(eta), np.float32), np.ones(len(eta), np.float32), eta)
    own, likely = (run._memberships.by_label(block) for block in (run._sample, rows))
    exact, deployed = [], []
    for tolerance in COMPARED:
        here = session.follow(session, tolerance)
        lam = here.train(start=trained.lam).lam
        weights = linear_weights(run.problem.notion, lam, run.eta, own)
        exact.append(2 * eta - 1 - np.einsum("ya,yna->n", weights, joint(eta, likely)))
        deployed.append(2 * eta - 1 - here.run.fitted().correction(inputs.numbers, eta))
    return exact, deployed
