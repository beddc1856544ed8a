"""Rivals for classes and numbers, on tables that are made here."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest, laplace

from bench.rivals import (
    BarycentreRegressor,
    BoundedLossRegressor,
    CorrelationRemoverRegressor,
    LinearPostClassesClassifier,
    PrivateBarycentreRegressor,
    TreesClassifier,
    TreesRegressor,
)
from bench.rivals.barycentre import to_barycentre
from bench.rivals.private_barycentre import HistogramNoise, to_histograms, transports
from bench.rivals.rate_program import RateTable, prices, rate_table, solve_program
from justitia.privacy.accounting import epsilon_spent
from justitia.privacy.mechanisms import SeededNoise

GROUPS = ("a", "b")


def people(n: int = 600, seed: int = 0) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Two features, a number that follows the first, and groups that the first nearly tells apart."""
    generator = np.random.default_rng(seed)
    group = generator.integers(0, 2, n)
    x = generator.normal(size=(n, 2)) + np.column_stack([2.0 * group, np.zeros(n)])
    y = x[:, 0] + 0.3 * generator.normal(size=n)
    names = pd.Series(np.array(GROUPS)[group], name="group")
    return pd.DataFrame(x, columns=["x0", "x1"]), pd.Series(y, name="y"), names


def gap(predicted: np.ndarray, group: pd.Series) -> float:
    means = pd.Series(predicted).groupby(group.to_numpy()).mean()
    return float(means.max() - means.min())


class TestRates:
    def test_rate_table_of_demographic_parity_compares_every_class_over_all_rows(self):
        table = rate_table("demographic_parity", 3)
        assert table.events.tolist() == [[1, 1, 1]] * 3
        assert table.averaged[0].tolist() == table.averaged[2].tolist() == np.eye(3).tolist()

    def test_rate_table_of_equalized_odds_compares_every_class_within_every_class(self):
        table = rate_table("equalized_odds", 2)
        assert table.events.tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
        assert table.averaged[0].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
        assert table.averaged[1].tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]]

    def test_rate_table_of_equal_opportunity_is_the_rate_of_ones_among_ones(self):
        table = rate_table("equal_opportunity", 2)
        assert table.events.tolist() == [[0], [1]]
        assert table.averaged[1].tolist() == [[0], [1]]

    def test_rate_table_of_two_notions_has_the_rates_of_both(self):
        both = rate_table(["demographic_parity", "accuracy_parity"], 2)
        assert both.events.shape == (2, 3)
        assert both.averaged[:, :, 2].tolist() == [[0, 1], [1, 0]]

    def test_rate_table_of_unknown_notion_is_refused(self):
        with pytest.raises(ValueError, match="got 'calibration'"):
            rate_table("calibration", 3)


def posteriors(n: int, classes: int, groups: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    eta = generator.dirichlet(np.ones(classes), n)
    members = generator.dirichlet(np.ones(groups), (n, classes)) + 2 * eta[:, :1, None] * np.eye(groups)[0]
    return eta, eta[:, :, None] * members / members.sum(axis=2, keepdims=True)


def dual_value(eta: np.ndarray, joint: np.ndarray, table: RateTable, lam: np.ndarray, tolerance: float) -> float:
    margins = eta - np.einsum("nya,yla->nl", joint, prices(table, joint, lam))
    return float(margins.max(axis=1).mean() + tolerance / 2 * np.abs(lam).sum())


class TestProgram:
    @pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
    def test_multipliers_have_the_least_dual_value_and_sum_to_zero_over_groups(self, notion):
        eta, joint = posteriors(200, 3, 3)
        table = rate_table(notion, 3)
        lam = solve_program(eta, joint, table, 0.02)
        np.testing.assert_allclose(lam.sum(axis=0), 0.0, atol=1e-9)
        best, generator = dual_value(eta, joint, table, lam, 0.02), np.random.default_rng(0)
        for scale in (1e-3, 1e-2, 1e-1):
            step = scale * generator.normal(size=lam.shape)
            assert dual_value(eta, joint, table, lam + step - step.mean(axis=0), 0.02) >= best - 1e-9

    def test_rule_of_the_multipliers_has_rates_within_the_tolerance(self):
        eta, joint = posteriors(2_000, 3, 2)
        table = rate_table("demographic_parity", 3)
        before = np.eye(3)[eta.argmax(axis=1)]
        lam = solve_program(eta, joint, table, 0.02)
        margins = eta - np.einsum("nya,yla->nl", joint, prices(table, joint, lam))
        after, members = np.eye(3)[margins.argmax(axis=1)], joint.sum(axis=1)
        rates = [members.T @ chosen / members.sum(axis=0)[:, None] for chosen in (before, after)]
        apart = [np.ptp(one, axis=0).max() for one in rates]
        assert apart[0] > 0.1
        assert apart[1] < 0.02 + 0.005  # the program mixes decisions for a few rows

    def test_wide_tolerance_needs_no_correction(self):
        eta, joint = posteriors(100, 3, 2)
        np.testing.assert_allclose(solve_program(eta, joint, rate_table("demographic_parity", 3), 1.0), 0.0, atol=1e-9)


class TestBarycentre:
    def test_middle_of_either_group_goes_to_the_middle_of_both(self):
        samples = (np.array([0.0, 1.0, 2.0]), np.array([10.0, 11.0, 12.0]))
        moved = to_barycentre(np.array([1.0, 11.0, 5.0]), np.array([0, 1, 2]), samples)
        assert moved.tolist() == [6.0, 6.0, 5.0]  # the last one has no group

    def test_groups_weigh_by_their_size(self):
        samples = (np.array([0.0]), np.array([4.0, 4.0, 4.0]))
        assert to_barycentre(np.array([0.0]), np.array([0]), samples).tolist() == [3.0]

    def test_transports_of_equal_histograms_move_nothing(self):
        shares = np.array([[0.2, 0.3, 0.5]] * 2)
        found = transports(shares, np.array([5.0, 5.0]), np.arange(3.0), 0.0)
        np.testing.assert_allclose(found, [np.eye(3)] * 2, atol=1e-7)

    @pytest.mark.parametrize(("tolerance", "apart"), [(0.0, 0.0), (0.3, 0.3), (1.0, 0.8)])
    def test_transports_bring_distribution_functions_within_the_tolerance(self, tolerance, apart):
        shares = np.array([[0.9, 0.1, 0.0], [0.1, 0.1, 0.8]])
        moved = transports(shares, np.array([5.0, 5.0]), np.arange(3.0), tolerance)
        arrived = np.einsum("aj,ajl->al", shares, moved)
        np.testing.assert_allclose(np.abs(np.cumsum(arrived[0] - arrived[1])).max(), apart, atol=1e-6)

    def test_row_in_a_bin_without_training_rows_goes_where_the_nearest_bin_goes(self):
        moved = transports(np.array([[1.0, 0.0], [0.0, 1.0]]), np.ones(2), np.arange(2.0), 0.0)
        np.testing.assert_allclose(moved[:, 0], moved[:, 1])

    def test_histograms_of_noised_counts_are_distributions(self):
        found = to_histograms(np.array([[5.0, -2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
        assert (found >= 0).all()
        np.testing.assert_allclose(found.sum(axis=1), 1.0)
        np.testing.assert_allclose(found[0], [0.4, 0.0, 0.2, 0.4])

    def test_histogram_noise_has_scale_two_by_epsilon_and_costs_epsilon(self):
        noise = HistogramNoise(0.5)
        noisy = noise.add_noise(np.zeros(20_000), sensitivity=math.sqrt(2), source=SeededNoise(1), release=1)
        assert kstest(noisy, laplace(scale=4.0).cdf).pvalue > 0.01
        assert kstest(noisy, laplace(scale=4.0 * 2 / 3).cdf).pvalue < 1e-6
        assert noise.stddev(math.sqrt(2)) == pytest.approx(4 * math.sqrt(2))
        assert epsilon_spent({noise.cost(): 1}, 0.0) == pytest.approx(0.5)


class TestFits:
    @pytest.mark.parametrize("kind", [BarycentreRegressor, PrivateBarycentreRegressor])
    def test_regression_that_reads_the_attribute_brings_means_together(self, kind):
        X, y, group = people()
        seeded = {"noise_seed": 0} if kind.is_private else {}
        model = kind(groups=GROUPS, random_state=0, **seeded).fit(X, y, sensitive_features=group)
        plain = TreesRegressor(random_state=0).fit(X, y)
        assert gap(plain.predict(X), group) > 1.5
        assert gap(model.predict(X, sensitive_features=group), group) < 0.2

    @pytest.mark.parametrize("kind", [BarycentreRegressor, CorrelationRemoverRegressor, PrivateBarycentreRegressor])
    def test_prediction_without_an_attribute_that_it_needs_is_refused(self, kind):
        X, y, group = people(200)
        model = kind(groups=GROUPS, random_state=0).fit(X, y, sensitive_features=group)
        assert model.reads_attribute
        with pytest.raises(TypeError, match="reads the attribute at prediction"):
            model.predict(X)

    def test_private_barycentre_spends_epsilon_and_others_infinity(self):
        X, y, group = people(200)
        private = PrivateBarycentreRegressor(epsilon=0.7, groups=GROUPS, random_state=0)
        exact = BarycentreRegressor(groups=GROUPS, random_state=0)
        spent = [model.fit(X, y, sensitive_features=group).certificate_.epsilon for model in (private, exact)]
        assert spent == [pytest.approx(0.7), math.inf]
        assert (private.is_private, exact.is_private) == (True, False)

    def test_private_barycentre_with_the_same_seeds_predicts_the_same(self):
        X, y, group = people(200)
        first, second = (
            PrivateBarycentreRegressor(groups=GROUPS, random_state=0, noise_seed=5).fit(X, y, sensitive_features=group)
            for _ in range(2)
        )
        np.testing.assert_array_equal(
            first.predict(X, sensitive_features=group), second.predict(X, sensitive_features=group)
        )

    def test_correlation_remover_learns_from_uncorrelated_features(self):
        X, y, group = people()
        model = CorrelationRemoverRegressor(groups=GROUPS, random_state=0).fit(X, y, sensitive_features=group)
        assert gap(model.predict(X, sensitive_features=group), group) < 0.4

    @pytest.mark.parametrize("search", ["exponentiated gradient", "grid search"])
    def test_bounded_loss_predicts_without_the_attribute_and_keeps_no_groups(self, search):
        X, y, group = people(200)
        model = BoundedLossRegressor(search, groups=GROUPS, random_state=0).fit(X, y, sensitive_features=group)
        assert not model.reads_attribute
        assert model.score(X, y) > 0.8
        assert model.weights_.sum() == pytest.approx(1.0)
        assert all(type(one).__name__ == "LGBMRegressor" for one in model.models_)

    def test_linear_post_of_three_classes_brings_rates_together_without_the_attribute(self):
        X, number, group = people(3_000)
        y = pd.Series(np.array(["low", "middle", "top"])[np.digitize(number, [0.0, 2.0])])
        rates = {}
        for model in (TreesClassifier(), LinearPostClassesClassifier(tolerance=0.05, groups=GROUPS)):
            model.set_params(random_state=0).fit(X, y, sensitive_features=group)
            assert model.classes_.tolist() == ["low", "middle", "top"]
            table = pd.crosstab(group, model.predict(X), normalize="index").to_numpy()
            rates[type(model).__name__] = np.ptp(table, axis=0).max()
        assert rates["TreesClassifier"] > 0.4
        assert rates["LinearPostClassesClassifier"] < 0.1

    def test_linear_post_learns_from_rows_without_a_group_too(self):
        X, number, group = people(400)
        y = (number > 1).astype(int)
        group = group.where(np.arange(400) >= 50)
        model = LinearPostClassesClassifier(groups=GROUPS, random_state=0).fit(X, y, sensitive_features=group)
        assert set(model.predict(X)) <= {0, 1}
        assert model.certificate_.epsilon == math.inf

    def test_trees_never_read_the_attribute(self):
        X, number, _ = people(300)
        model = TreesClassifier(random_state=0).fit(X, (number > 1).astype(int), sensitive_features=None)
        assert model.score(X, (number > 1).astype(int)) > 0.8
