"""``at="scores"``: one rule per level, a score that is monotone, and the same releases."""

from dataclasses import replace

import numpy as np
import pytest
from run_setting import PLAN, classifier, released, setting
from scipy.stats import ks_2samp

from justitia.datasets import make_synthetic
from justitia.postprocessing.correction import levels_of, moved_probability

SCORES = replace(PLAN, at="scores", levels=5)


def test_levels_are_quantiles_of_eta_and_the_threshold() -> None:
    eta = np.linspace(0.1, 0.9, 101)
    assert levels_of(eta, 0.35, 3) == pytest.approx([0.3, 0.35, 0.5, 0.7])
    assert levels_of(np.full(50, 0.2), 0.5, 9) == pytest.approx([0.2, 0.5])


def test_score_is_above_a_level_where_its_sorted_margin_is_positive() -> None:
    generator = np.random.default_rng(0)
    levels = np.array([0.2, 0.5, 0.6])
    margins = generator.standard_normal((3, 500))
    found = moved_probability(margins, levels)
    assert ((found >= 0) & (found <= 1)).all()
    for t, level in enumerate(levels):
        assert np.array_equal(found > level, -np.sort(-margins, axis=0)[t] > 0)


def test_score_without_multipliers_is_eta() -> None:
    eta, levels = np.linspace(0.01, 0.99, 99), np.array([0.3, 0.5, 0.8])
    assert moved_probability(2 * (eta - levels[:, None]), levels) == pytest.approx(eta)


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_rates_at_every_level_are_within_the_tolerance_by_the_memberships(notion: str) -> None:
    some = setting(notion, plan=SCORES, n=900, tolerance=0.05)
    run = some.run
    released(some)

    def distance(scores: np.ndarray) -> float:
        rates = [run._constraint(t).rates(one) for t, one in enumerate(run._decisions(scores))]
        return float(max(np.ptp(one, axis=0).max() for one in rates))

    found, before = distance(run.scores()), distance(run.base_scores())
    assert run.distance() == found  # nothing is deployed yet
    assert found < 0.05 + 0.04 < before  # sorting margins moves a few rows
    run._check()
    assert run._surprises[0].shape == (len(run._levels), 2, some.problem.events.shape[1])
    assert some.purposes() == ["moments", "decisions"]


def test_state_holds_the_multipliers_of_every_level() -> None:
    some, other = setting(plan=SCORES), setting(plan=SCORES)
    lam = released(some)
    other.run._restore(some.run._state(), lost=0)
    assert np.allclose(other.run._solve(lam), some.run._solve(lam))


def test_distributions_of_scores_are_alike_for_other_rows() -> None:
    data, other = make_synthetic(3000, random_state=0), make_synthetic(4000, random_state=1)
    distances = {}
    for at in ("decision", "scores"):
        model = classifier(groups=data.groups, at=at, tolerance=0.02, threshold=0.1).fit(
            data.X, data.y, sensitive_features=data.sensitive
        )
        p = model.predict_proba(other.X)[:, 1]
        assert np.array_equal(model.predict(other.X) == model.classes_[1], p > 0.1)
        first, second = (p[(other.sensitive == name).to_numpy()] for name in data.groups)
        distances[at] = ks_2samp(first, second).statistic
    assert distances["scores"] < 0.1 < distances["decision"]
    assert model.distance_ == pytest.approx(distances["scores"], abs=0.08)


def test_scores_of_a_network_are_refused() -> None:
    data = make_synthetic(100, random_state=0)
    with pytest.raises(ValueError, match="expected at='decision' with an engine that trains a network"):
        classifier(at="scores", engine="moments").fit(data.X, data.y, sensitive_features=data.sensitive)
    with pytest.raises(ValueError, match="at"):
        classifier(at="ranks").fit(data.X, data.y, sensitive_features=data.sensitive)
