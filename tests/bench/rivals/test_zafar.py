"""Covariance constraints: optima against a generic convex solver, limits, the ledger, and one clear sentence."""

import math
import pickle
import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.utils.estimator_checks import parametrize_with_checks

from bench.rivals import covariance
from bench.rivals.covariance import Contrast, LogisticLoss, contrasts, convexified, logistic_loss
from bench.rivals.zafar import ZafarClassifier
from justitia import BudgetExceeded, PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.metrics.exact import violation
from justitia.notions import DemographicParity

L2 = 1e-3
ERROR_NOTIONS = ["accuracy_parity", "equalized_odds", "equal_opportunity", "predictive_equality"]


@dataclass(frozen=True)
class Table:
    """Features, labels 0 and 1, and groups 0 and 1 for whom the label follows different features."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    z: NDArray[np.int64]

    @property
    def names(self) -> NDArray[np.str_]:
        return np.array(["m", "f"])[self.z]


def table(n: int, *, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    z = (X[:, 2] - X[:, 0] + rng.normal(size=n) > 0.3).astype(np.int64)
    score = np.where(z == 1, 0.3 + X[:, 0] + 2 * X[:, 1], 4 * X[:, 0] - 0.6)
    y = (score + rng.normal(size=n) > 0).astype(np.int64)
    return Table(X.astype(np.float32).astype(np.float64), y, z)


SMALL, LARGE = table(60), table(1500)


def fitted(data: Table, notion: str = "demographic_parity", **options: Any) -> ZafarClassifier:
    model = ZafarClassifier(notion, groups=["m", "f"], preprocess=None, **{"l2": L2} | options)
    return model.fit(data.X, data.y, sensitive_features=data.names)


def weights(model: ZafarClassifier) -> NDArray[np.float64]:
    layer = model.module_[0]
    return np.append(layer.weight.numpy()[0], layer.bias.numpy())


def covariances(model: ZafarClassifier, data: Table, notion: str) -> list[float]:
    """The constraint's left side, written out from the papers."""
    d, s = model.decision_function(data.X), 2 * data.y - 1
    everyone, negative, positive = np.ones(len(d), dtype=bool), data.y == 0, data.y == 1
    if notion == "demographic_parity":
        return [float(np.mean((data.z - data.z.mean()) * d))]
    events = {
        "accuracy_parity": [everyone],
        "equalized_odds": [negative, positive],
        "equal_opportunity": [positive],
        "predictive_equality": [negative],
    }[notion]
    g = np.minimum(0, s * d)
    return [float(np.mean((data.z[e] - data.z[e].mean()) * g[e])) for e in events]


def generic_loss(data: Table, w: cp.Variable) -> cp.Expression:
    scores = data.X @ w[:-1] + w[-1]
    return cp.sum(cp.logistic(cp.multiply(1 - 2 * data.y, scores))) / len(data.y) + L2 / 2 * cp.sum_squares(w[:-1])


def solve(problem: cp.Problem) -> float:
    value: float = problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return value


# Demographic parity: a smooth convex problem.


@pytest.mark.parametrize("bound", [0.0, 0.05])
def test_linear_covariance_small_problem_equals_generic_solver(bound: float) -> None:
    w = cp.Variable(4)
    z = SMALL.z - SMALL.z.mean()
    solve(cp.Problem(cp.Minimize(generic_loss(SMALL, w)), [cp.abs(z @ SMALL.X @ w[:-1]) / 60 <= bound]))
    assert weights(fitted(SMALL, bound=bound)) == pytest.approx(w.value, abs=1e-4)


@pytest.mark.parametrize("bound", [0.0, 0.05])
def test_linear_covariance_bound_is_met_exactly(bound: float) -> None:
    (reached,) = covariances(fitted(LARGE, bound=bound), LARGE, "demographic_parity")
    assert abs(reached) == pytest.approx(bound, abs=1e-10)


@pytest.mark.parametrize("notion", ["demographic_parity", *ERROR_NOTIONS])
def test_bound_infinite_equals_plain_logistic_regression(notion: str) -> None:
    plain = LogisticRegression(C=1 / (L2 * 60), tol=1e-10, max_iter=1000).fit(SMALL.X, SMALL.y)
    expected = np.append(plain.coef_[0], plain.intercept_)
    assert weights(fitted(SMALL, notion, bound=math.inf)) == pytest.approx(expected, abs=1e-4)


def test_bound_zero_lowers_the_violation() -> None:
    def gap(bound: float) -> float:
        return violation(LARGE.y, fitted(LARGE, bound=bound).predict(LARGE.X), sensitive_features=LARGE.names)

    assert (gap(math.inf) > 0.15, gap(0.0) < 0.05) == (True, True)


# Error rates: a difference of convex functions.


def small_problem() -> tuple[LogisticLoss, list[Contrast], NDArray[np.float64]]:
    loss = logistic_loss(SMALL.X, SMALL.y.astype(np.float64), L2)
    events = np.column_stack([SMALL.y == 0, SMALL.y == 1])
    return loss, contrasts(loss.rows, loss.signs, SMALL.z, events, 0.01), covariance.unconstrained(loss)


def generic_round(
    loss: LogisticLoss, constraints: list[Contrast], at: NDArray[np.float64], price: float
) -> tuple[NDArray[np.float64], float]:
    """One round of the penalty convex-concave procedure with kinks and cones as they are."""
    w, slack = cp.Variable(4), cp.Variable(len(constraints), nonneg=True)
    sides = []
    for one, room in zip(constraints, slack, strict=True):
        for rows, others in (one.wrong, one.wrong[::-1]):
            tangent = others[others @ at > 0].sum(0) / len(others)
            sides.append(cp.sum(cp.pos(rows @ w)) / len(rows) - tangent @ w <= one.bound + room)
    value = solve(cp.Problem(cp.Minimize(generic_loss(SMALL, w) + price * cp.sum(slack)), sides))
    return w.value, value


@pytest.mark.parametrize("price", [0.05, 0.5, 5.0])
def test_convexified_round_small_problem_equals_generic_solver(price: float) -> None:
    loss, constraints, start = small_problem()
    expected, _ = generic_round(loss, constraints, start, price)
    assert np.linalg.norm(expected - start) > 0.05
    assert convexified(loss, constraints, start, price) == pytest.approx(expected, abs=1e-4)


def test_convex_concave_end_point_generic_solver_finds_no_better_round() -> None:
    loss, constraints, start = small_problem()
    end = covariance.convex_concave(loss, constraints, start, 100).theta
    _, best = generic_round(loss, constraints, end, 5.0)
    assert best == pytest.approx(loss(end)[0], abs=1e-5)


@pytest.mark.parametrize("notion", ERROR_NOTIONS)
@pytest.mark.parametrize("bound", [0.0, 0.01])
def test_error_covariance_bound_holds(notion: str, bound: float) -> None:
    before = covariances(fitted(LARGE, notion, bound=math.inf), LARGE, notion)
    after = covariances(fitted(LARGE, notion, bound=bound), LARGE, notion)
    assert max(map(abs, before)) > 0.02
    assert max(map(abs, after)) <= bound + 1e-7


@pytest.mark.parametrize("notion", ["accuracy_parity", "equalized_odds"])
def test_error_covariance_bound_zero_lowers_the_violation(notion: str) -> None:
    def gap(bound: float) -> float:
        predicted = fitted(LARGE, notion, bound=bound).predict(LARGE.X)
        return violation(LARGE.y, predicted, sensitive_features=LARGE.names, notion=notion)

    assert gap(0.0) < gap(math.inf) / 2


def test_rounded_kink_is_above_the_kink_by_at_most_an_eighth_of_its_width() -> None:
    width = covariance.ROUNDING
    scores = np.array([-1.0, -width, -width / 4, 0.0, width / 4, width, 1.0])
    gaps = []
    for score in scores:
        one = Contrast((np.array([[score]]), np.array([[0.0]])), 0.0)
        gaps.append(one.rounded(0, np.ones(1)) - one.depth(0, np.ones(1)))
    assert gaps == pytest.approx([0, 0, width / 32, width / 8, width / 32, 0, 0], abs=1e-15)


def test_error_covariance_too_few_rounds_warns_in_one_sentence() -> None:
    with pytest.warns(ConvergenceWarning, match=r"stopped early; raise max_iterations \(now 2\), bound or l2\.$"):
        fitted(LARGE, "accuracy_parity", max_iterations=2)


def test_linear_covariance_solver_stopped_early_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    optimum, start = weights(fitted(LARGE)), weights(fitted(LARGE, bound=math.inf))
    monkeypatch.setattr(covariance, "unconstrained", lambda _: start)
    monkeypatch.setattr(covariance, "MOST_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="the solver stopped early"):
        stopped = fitted(LARGE)
    assert np.abs(weights(stopped) - optimum).max() > 1e-3


@pytest.mark.filterwarnings("ignore:The inner solver of NewtonCholeskySolver:scipy.linalg.LinAlgWarning")
@pytest.mark.parametrize("notion", ["demographic_parity", "accuracy_parity"])
def test_ridge_too_small_for_collinear_features_is_refused(notion: str) -> None:
    twice = Table(np.column_stack([SMALL.X, SMALL.X]), SMALL.y, SMALL.z)
    with pytest.raises(ValueError, match="collinear or separable ones and a ridge too small to help; raise l2"):
        fitted(twice, notion, l2=1e-25)


# Groups.


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_group_names_swapped_gives_the_same_scores(notion: str) -> None:
    swapped = ZafarClassifier(notion, groups=["f", "m"], preprocess=None, l2=L2)
    swapped.fit(LARGE.X, LARGE.y, sensitive_features=LARGE.names)
    assert weights(swapped) == pytest.approx(weights(fitted(LARGE, notion)), abs=1e-4)


def test_attribute_not_given_row_counts_in_the_loss_only() -> None:
    names = LARGE.names.astype(object)
    names[:300] = None
    model = ZafarClassifier(groups=["m", "f"], preprocess=None).fit(LARGE.X, LARGE.y, sensitive_features=names)
    d, z = model.decision_function(LARGE.X)[300:], LARGE.z[300:]
    assert np.mean((z - z.mean()) * d) == pytest.approx(0, abs=1e-10)
    without = ZafarClassifier(groups=["m", "f"], preprocess=None)
    without.fit(LARGE.X[300:], LARGE.y[300:], sensitive_features=names[300:])
    assert np.abs(weights(model) - weights(without)).max() > 0.01


@pytest.mark.parametrize("notion", ["demographic_parity", "accuracy_parity"])
@pytest.mark.parametrize("present", ["m", None])
def test_group_without_rows_constrains_nothing(notion: str, present: str | None) -> None:
    model = ZafarClassifier(notion, groups=["m", "f"], preprocess=None, l2=L2)
    model.fit(SMALL.X, SMALL.y, sensitive_features=[present] * 60)
    assert weights(model) == pytest.approx(weights(fitted(SMALL, bound=math.inf)), abs=1e-6)


def test_groups_three_are_refused_in_one_sentence_before_the_attribute_is_read() -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=0.0)
    with pytest.raises(ValueError, match=r"^expected two groups, [^.]* got 3; merge groups, [^.]*\.$"):
        ZafarClassifier(groups=["x", "y", "z"]).fit(SMALL.X, SMALL.y, sensitive_features=["x"] * 60, ledger=ledger)
    assert ledger.releases == ()


def test_groups_inferred_three_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3"):
        ZafarClassifier().fit(SMALL.X, SMALL.y, sensitive_features=["x", "y", "z"] * 20)


# The surface.


class Invented(DemographicParity):
    """A notion of a user's own."""


@pytest.mark.parametrize(
    ("name", "value"),
    [("bound", -0.1), ("bound", math.nan), ("l2", 0.0), ("max_iterations", 0), ("preprocess", "none"), ("notion", "x")],
)
def test_wrong_setting_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        ZafarClassifier(**{name: value}).fit(SMALL.X, SMALL.y, sensitive_features=SMALL.names)


def test_notion_of_ones_own_is_refused() -> None:
    with pytest.raises(ValueError, match="got Invented; no covariance constraint"):
        ZafarClassifier(Invented()).fit(SMALL.X, SMALL.y, sensitive_features=SMALL.names)


def test_sensitive_column_among_the_features_is_refused() -> None:
    X = pd.DataFrame(SMALL.X, columns=["a", "b", "sex"])
    with pytest.raises(ValueError, match="'sex' is both a feature and a sensitive attribute"):
        ZafarClassifier().fit(X, SMALL.y, sensitive_features=pd.Series(SMALL.names, name="sex"))


def test_features_of_three_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="2 dimensions, got 3"):
        ZafarClassifier(preprocess=None).fit(SMALL.X[:, :, None], SMALL.y, sensitive_features=SMALL.names)


def test_ledger_says_that_nothing_is_protected() -> None:
    model = fitted(SMALL)
    assert (model.ledger_.epsilon(), model.certificate_.epsilon) == (math.inf, math.inf)
    assert [release.mechanism for release in model.ledger_.releases] == ["unprotected"]


def test_ledger_with_a_finite_budget_refuses() -> None:
    with pytest.raises(BudgetExceeded, match="covariance constraint"):
        ZafarClassifier().fit(
            SMALL.X, SMALL.y, sensitive_features=SMALL.names, ledger=PrivacyLedger(epsilon=1.0, delta=1e-5)
        )


def test_pickle_holds_no_attribute_and_predicts_the_same() -> None:
    model = fitted(SMALL, "equalized_odds")
    data = pickle.dumps(model)
    columns = [SMALL.z, 1 - SMALL.z, SMALL.z - SMALL.z.mean()]
    kinds = ("int64", "int32", "int8", "bool", "float32", "float64")
    assert not [kind for column in columns for kind in kinds if column.astype(kind)[10:50].tobytes() in data]
    assert np.array_equal(pickle.loads(data).predict(SMALL.X), model.predict(SMALL.X))


def test_routing_passes_the_attribute_to_fit() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(
            ZafarClassifier(groups=["m", "f"]), LARGE.X, LARGE.y, params={"sensitive_features": LARGE.names}, cv=2
        )
    assert min(found["test_score"]) > 0.6


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
def test_five_folds_accuracy_stays_and_violation_is_estimable(notion: str) -> None:
    data = make_synthetic(2000, random_state=0)
    found = []
    for train, test in data.folds(5):
        model = ZafarClassifier(notion, groups=data.groups)
        model.fit(data.X.iloc[train], data.y.iloc[train], sensitive_features=data.sensitive.iloc[train])
        predicted, truth = model.predict(data.X.iloc[test]), data.y.iloc[test]
        gap = violation(truth, predicted, sensitive_features=data.sensitive.iloc[test], notion=notion)
        found.append((np.mean(predicted == truth), gap))
    accuracy, gap = np.mean(found, axis=0)
    assert (accuracy > 0.7, gap < 0.15) == (True, True)


class InventedGroups(ZafarClassifier):
    """scikit-learn's checks know no sensitive_features: every second row is in the second group."""

    def fit(self, X: Any, y: Any, **rest: Any) -> "InventedGroups":
        n = 0 if y is None else len(np.asarray(y))
        return super().fit(X, y, sensitive_features=np.array(["a", "b"])[np.arange(n) % 2], **rest)


@parametrize_with_checks([
    InventedGroups(groups=["a", "b"], bound=0.1, preprocess=None),
    InventedGroups("equalized_odds", groups=["a", "b"], bound=0.1, l2=1e-2),
])  # fmt: skip
def test_scikit_learn_check_invented_groups_passes(estimator: BaseEstimator, check: Any) -> None:
    # That check is for estimators that compute on other array libraries, and skips itself here.
    if check.func.__name__ != "check_array_api_input":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            check(estimator)
