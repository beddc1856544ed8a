"""Features that tell groups apart, what the correction did, and reasons of single decisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from justitia import LagrangianDualClassifier, LagrangianDualRegressor
from justitia.datasets import make_synthetic
from justitia.postprocessing.explain import changes

pytestmark = pytest.mark.usefixtures("quick_fits")

DATA = make_synthetic(4000, groups=("a", "b"), n_features=4, random_state=0)


def fit(**options: object) -> LagrangianDualClassifier:
    given = {"epsilon": 2.0, "groups": ["a", "b"], "tolerance": 0.05, "random_state": 0, "noise_seed": 0} | options
    return LagrangianDualClassifier(**given).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)


@pytest.fixture(scope="module")
def model() -> LagrangianDualClassifier:
    return fit()


def exact_differences() -> pd.DataFrame:
    """Means of features, standardised and cut off at 3, of one group less the other."""
    z = ((DATA.X - DATA.X.mean()) / DATA.X.std(ddof=0)).clip(-3, 3)
    own = (np.asarray(DATA.sensitive) == "a")[:, None]
    return z[own[:, 0]].mean() - z[~own[:, 0]].mean()


def test_association_agrees_with_the_exact_differences_within_its_standard_error(
    model: LagrangianDualClassifier,
) -> None:
    table = model.feature_association_.xs("a", level="group")
    assert list(table.index) == model.encoded_names()
    z = (table["difference"].to_numpy() - exact_differences().to_numpy()) / table["stderr"].to_numpy()
    assert np.abs(z).max() < 3.5
    other = model.feature_association_.xs("b", level="group")
    assert np.allclose(other["difference"], -table["difference"], atol=0.05)


def test_association_costs_nothing_and_is_saved(model: LagrangianDualClassifier, tmp_path: Path) -> None:
    assert model.certificate_.spent_epsilon <= 2.0 * (1 + 1e-9)
    assert sum(one["count"] for one in model.certificate_.releases) == sum(one.count for one in model.plan_.releases())
    loaded = LagrangianDualClassifier.load(model.save(tmp_path / "model"))
    pd.testing.assert_frame_equal(loaded.feature_association_, model.feature_association_)
    assert np.allclose(loaded.feature_importances_, model.feature_importances_)
    assert model.feature_importances_.sum() == pytest.approx(1.0)


def test_importances_of_a_base_without_any_are_refused_as_an_attribute() -> None:
    assert not hasattr(fit(base=lambda X: np.full(len(X), 0.3)), "feature_importances_")
    linear = fit(base=LogisticRegression())
    assert len(linear.feature_importances_) == 4


def test_explanation_has_the_threshold_that_decides(model: LagrangianDualClassifier) -> None:
    found = model.explain(DATA.X)
    above = found["base_score"] > found["threshold"]
    assert (above == (model.predict(DATA.X) == model.classes_[1])).all()
    assert np.allclose(found["threshold"] - found["correction"], model.rule_.threshold)
    assert (found["changed"] == (found["base_decision"] != found["decision"])).all()
    shap = found[[name for name in found if name.startswith("shap_")]]
    assert shap.shape == (len(DATA.X), 4)


def test_explanation_of_a_number_adds_up() -> None:
    wage = 40 + 5 * DATA.X.iloc[:, 0].to_numpy() + np.random.default_rng(0).standard_normal(4000)
    model = LagrangianDualRegressor(epsilon=2.0, groups=["a", "b"], tolerance=0.1, random_state=0, noise_seed=0)
    model.fit(DATA.X, wage, sensitive_features=DATA.sensitive)
    found = model.explain(DATA.X)
    assert np.allclose(found["base_prediction"] + found["correction"], model.predict(DATA.X))
    assert len(model.feature_association_) == 8


def test_changes_are_counted_by_direction_and_range() -> None:
    X = pd.DataFrame({"city": ["x", "x", "y", "y"], "same": [1, 1, 1, 1], "age": [1.0, 2.0, 3.0, 4.0]})
    before, after = np.array([0, 0, 1, 1]), np.array([1, 1, 1, 0])
    found = changes(before, after, X)
    assert (found["rows"], found["raised"], found["lowered"]) == (4, 2, 1)
    assert [one["feature"] for one in found["by_feature"]] == ["age", "city"]
    assert found["by_feature"][1]["ranges"] == [
        {"range": "x", "rows": 2, "raised": 2, "lowered": 0},
        {"range": "y", "rows": 2, "raised": 0, "lowered": 1},
    ]
