"""FairGBM's objective: gradients of the stated Lagrangian, ascent by hand, limits, and trees that hold no attribute."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from bench.rivals import FairGBMClassifier
from bench.rivals.boosted import lightgbm_model
from bench.rivals.fairgbm import SHIFT, ProxyLagrangian
from justitia import PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.exceptions import BudgetExceeded
from justitia.metrics.exact import violation
from justitia.notions import EqualizedOdds, get_notion

DATA = make_synthetic(1500, random_state=0)
NOTIONS = ["equalized_odds", "equal_opportunity", "predictive_equality"]


def fitted(data: Any = DATA, **parameters: Any) -> FairGBMClassifier:
    model = FairGBMClassifier(groups=data.groups, random_state=0, **parameters)
    return model.fit(data.X, data.y, sensitive_features=data.sensitive)


def game(notion: str, *, tolerance: float = 0.02) -> tuple[ProxyLagrangian, Any]:
    """Forty rows, three groups of which the last is empty, and every fifth row without a group."""
    rng = np.random.default_rng(0)
    y, codes = rng.integers(0, 2, 40).astype(float), np.where(np.arange(40) % 5, rng.integers(0, 2, 40), 3)
    kind = get_notion(notion)
    events = kind.events(y)
    cells = np.einsum("nk,na->nka", events, (codes[:, None] == np.arange(3)).astype(float))
    return ProxyLagrangian(y, cells, 0.5, tolerance), rng.normal(size=40)


def lagrangian(one: ProxyLagrangian, scores: Any) -> float:
    """As the class states it, loop by loop."""
    total = float(np.mean(np.logaddexp(0, scores) - one.y * scores))
    proxy = np.log(1 + np.exp(np.where(one.y == 1, -scores, scores) + SHIFT))
    for k in range(one.cells.shape[1]):
        members = [one.cells[:, k, a] > 0 for a in range(2)]
        rates = [proxy[rows].mean() for rows in members]
        total += sum(one.lam[k, a] * (max(rates) - rates[a] - one.tolerance) for a in range(2))
    return total


@pytest.mark.parametrize("notion", NOTIONS)
def test_gradient_is_that_of_the_stated_lagrangian(notion: str) -> None:
    one, scores = game(notion)
    one.lam = np.random.default_rng(1).uniform(0.1, 1.0, one.lam.shape) * [1, 1, 0]
    gradient = expit(scores) - one.y + one.pull(scores)
    moved = [np.where(np.arange(40) == i, 1e-6, 0.0) for i in range(40)]
    slopes = [(lagrangian(one, scores + by) - lagrangian(one, scores - by)) / 2e-6 for by in moved]
    assert np.allclose(gradient / 40, slopes, atol=1e-8)


def test_proxy_is_one_where_the_decision_turns() -> None:
    assert math.log(1 + math.exp(SHIFT)) == pytest.approx(1.0)


def test_multipliers_ascend_on_true_rates_and_stay_at_zero_or_above() -> None:
    y, codes = np.array([0, 0, 0, 0, 1, 1, 1, 1.0]), np.array([0, 0, 1, 1, 0, 0, 1, 1])
    cells = np.einsum("nk,na->nka", np.stack([1 - y, y], axis=1), np.eye(2)[codes])
    one = ProxyLagrangian(y, cells, 0.5, 0.1)
    # false positives: one of two in group 0, none in group 1; false negatives: none, both
    one.ascend(np.array([1.0, -1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0]))
    assert np.allclose(one.lam, [[0.0, 0.5 * (0.5 - 0.1)], [0.5 * (1.0 - 0.1), 0.0]])
    one.ascend(np.array([-1.0] * 4 + [1.0] * 4))  # no error at all
    assert np.allclose(one.lam, [[0.0, 0.15], [0.4, 0.0]])


def test_multipliers_move_after_every_tree_and_not_before_the_first() -> None:
    one, scores = game("equalized_odds")
    one.next_tree(scores)
    assert not one.lam.any()
    one.next_tree(scores)
    assert one.lam.any()
    assert not one.lam[:, 2].any()  # nobody is in the third group


def test_no_step_is_boosting_without_constraint() -> None:
    model = fitted(multiplier_step=0.0, n_estimators=30)
    rows = model._features(DATA.X, reset=False).astype(np.float64)
    plain = lightgbm_model("LGBMClassifier", n_estimators=30, num_leaves=7).fit(rows, DATA.y.to_numpy())
    assert np.allclose(model.predict_proba(DATA.X), plain.predict_proba(rows), atol=1e-5)
    assert not model.multipliers_.any()


@pytest.mark.parametrize("notion", NOTIONS)
def test_constraint_takes_off_most_of_the_violation_of_training_rows(notion: str) -> None:
    data = make_synthetic(1500, groups="abc", shares=(0.5, 0.3, 0.2), random_state=1)

    def violated(**parameters: Any) -> float:
        decided = fitted(data, notion=notion, **parameters).predict(data.X)
        return violation(data.y, decided, sensitive_features=data.sensitive, notion=notion, groups=data.groups)

    assert violated(multiplier_step=0.03) < 0.6 * violated(multiplier_step=0.0)


def test_rows_without_attribute_count_for_the_loss_alone() -> None:
    silent = DATA.sensitive.astype(object).where(np.arange(len(DATA.y)) % 4 > 0, None)
    model = FairGBMClassifier(groups=DATA.groups, random_state=0, n_estimators=10)
    model.fit(DATA.X, DATA.y, sensitive_features=silent)
    assert model.multipliers_.shape == (2, 2)
    nobody = FairGBMClassifier(groups=DATA.groups, random_state=0, n_estimators=10)
    nobody.fit(DATA.X, DATA.y, sensitive_features=[None] * len(DATA.y))
    plain = fitted(multiplier_step=0.0, n_estimators=10)
    assert np.array_equal(nobody.decision_function(DATA.X), plain.decision_function(DATA.X))


def test_it_is_not_private_and_says_so() -> None:
    model = fitted(n_estimators=5)
    assert model.certificate_.epsilon == math.inf
    assert len(model.ledger_.releases) == 1
    ledger = PrivacyLedger(epsilon=1.0, delta=0.0)
    with pytest.raises(BudgetExceeded):
        FairGBMClassifier(groups=DATA.groups).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert ledger.releases == ()


def test_pickle_decides_alike_and_holds_no_column_of_groups() -> None:
    model = fitted(n_estimators=20)
    stored = pickle.dumps(model)
    codes = (DATA.sensitive == DATA.groups[1]).to_numpy()
    forms = [codes.astype(dtype).tobytes() for dtype in (np.int64, np.int32, np.int8, np.float64)]
    assert not [form for form in forms if form[: len(form) // 4] in stored]
    assert np.array_equal(pickle.loads(stored).predict(DATA.X), model.predict(DATA.X))


class Own(EqualizedOdds):
    """A notion of one's own."""


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tolerance": -1.0}, "tolerance to be a finite number of at least 0"),
        ({"multiplier_step": math.nan}, "multiplier_step"),
        ({"n_estimators": 0}, "n_estimators"),
        ({"notion": "parity"}, "no notion 'parity'"),
        ({"notion": Own()}, "FairGBM is defined for false positive and false negative rates"),
        ({"notion": "demographic_parity"}, "FairGBM is defined for false positive and false negative rates"),
    ],
)
def test_wrong_parameter_is_refused_before_anything_is_asked(parameters: dict[str, Any], message: str) -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=0.0)
    model = FairGBMClassifier(groups=DATA.groups, **parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert ledger.releases == ()
