import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from justitia.datasets import make_synthetic
from justitia.datasets.synthetic import ground_truth


def test_ground_truth_of_two_groups_has_the_closed_forms():
    truth = ground_truth((0.5, 0.5), 0.3)
    assert truth.selection_rates == pytest.approx((0.35, 0.65))
    assert truth.shifts == pytest.approx((-0.38532, 0.38532), abs=1e-5)
    # Phi(2 * 0.38532 / sqrt 5) = Phi(0.34464)
    assert truth.base_rates == pytest.approx((0.36518, 0.63482), abs=1e-5)
    assert truth.demographic_parity_difference == pytest.approx(0.3)


def test_ground_truth_without_disparity_has_equal_groups_and_arctan_accuracy():
    truth = ground_truth((0.2, 0.3, 0.5), 0.0)
    assert truth.base_rates == pytest.approx((0.5, 0.5, 0.5))
    assert truth.demographic_parity_difference == 0.0
    # Two centred normals of correlation 2 / sqrt 5 have equal signs with probability 1/2 + arctan(2) / pi.
    assert truth.accuracy == pytest.approx(0.5 + np.arctan(2.0) / np.pi, abs=1e-6)


def test_ground_truth_of_three_groups_spaces_selection_rates_evenly():
    assert ground_truth((0.1, 0.2, 0.7), 0.4).selection_rates == pytest.approx((0.3, 0.5, 0.7))


def test_make_synthetic_large_sample_agrees_with_its_truth():
    data = make_synthetic(40_000, groups=("a", "b", "c"), shares=(0.2, 0.3, 0.5), disparity=0.4, random_state=0)
    chosen = pd.Series(data.scores > 0.5)
    by_group = data.sensitive.to_numpy()
    # Three standard errors of a rate over 8,000 rows are 0.017.
    assert chosen.groupby(by_group).mean().tolist() == pytest.approx(data.truth.selection_rates, abs=0.017)
    assert data.y.groupby(by_group).mean().tolist() == pytest.approx(data.truth.base_rates, abs=0.017)
    assert (chosen == data.y).groupby(by_group).mean().tolist() == pytest.approx(data.truth.accuracies, abs=0.017)
    assert (chosen == data.y).mean() == pytest.approx(data.truth.accuracy, abs=0.006)


def test_make_synthetic_plain_classifier_shows_the_known_gap():
    data = make_synthetic(20_000, disparity=0.3, random_state=1)
    chosen = pd.Series(LogisticRegression().fit(data.X, data.y).predict(data.X))
    rates = chosen.groupby(data.sensitive.to_numpy()).mean()
    assert rates["b"] - rates["a"] == pytest.approx(0.3, abs=0.03)


def test_make_synthetic_has_the_asked_sizes():
    data = make_synthetic(10, groups=("few", "many"), shares=(0.2, 0.8), n_features=3, random_state=0)
    assert data.X.shape == (10, 3)
    assert data.sensitive.value_counts().to_dict() == {"many": 8, "few": 2}
    assert data.groups == ("few", "many")


def test_make_synthetic_same_seed_same_rows_other_seed_others():
    one, same, other = (make_synthetic(50, random_state=seed) for seed in (7, 7, 8))
    pd.testing.assert_frame_equal(one.X, same.X)
    pd.testing.assert_series_equal(one.sensitive, same.sensitive)
    assert not one.X.equals(other.X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "at least 1 row"),
        ({"n": 5, "n_features": 1}, "2 features"),
        ({"n": 5, "groups": ("a",)}, "2 groups"),
        ({"n": 5, "shares": (0.5, 0.6)}, "shares must be 2 numbers"),
        ({"n": 5, "shares": (0.2, 0.3, 0.5)}, "shares must be 2 numbers"),
        ({"n": 5, "disparity": 1.0}, "disparity must be"),
        ({"n": 5, "disparity": -0.1}, "disparity must be"),
    ],
)
def test_make_synthetic_out_of_range_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_synthetic(**arguments)
