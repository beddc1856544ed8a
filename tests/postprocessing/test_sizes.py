"""The small first release of sizes: its cost, when it stops a run, and that noised sizes alone decide."""

import math

import numpy as np
import pandas as pd
import pytest

from justitia import LagrangianDualClassifier, PostProcessingPlan, PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.postprocessing.run import refusal
from justitia.privacy.accounting import epsilon_spent

NAMES = ("a", "b", "c")
DATA = make_synthetic(3000, random_state=0)


def refused(sizes: list[float], *, stddev: float = 20.0, n: int = 3000) -> str | None:
    return refusal(np.array(sizes), stddev, n, NAMES[: len(sizes)])


def test_empty_groups_stop_a_run_and_a_few_known_attributes_do_not() -> None:
    assert "all 3 groups add up to about 30 of" in str(refused([10, 25, -5]))
    assert refused([60, 70, 80]) is None  # seven percent gave their group: few, and enough
    assert "of 300 rows" in str(
        refused([-3, 13], n=300)
    )  # fewer rows, and as clear: the noise of a total is that of one
    assert refused([20, 25], n=300) is None


def test_sizes_of_one_empty_group_stop_where_noise_lets_that_be_seen() -> None:
    assert "1 of 3 groups ('c') have a noised size" in str(refused([1500, 1400, 15]))
    assert refused([1500, 1400, 15], n=400) is None  # groups of a hundred among noise of 20 could be any size
    assert refused([1500, 1400, 45]) is None


def test_sizes_of_a_budget_too_small_to_tell_stop_nothing() -> None:
    assert refused([-300, 500, 0], stddev=400.0) is None


def fit(
    groups: list[str], plan: PostProcessingPlan, ledger: PrivacyLedger, labels: pd.Series
) -> LagrangianDualClassifier:
    model = LagrangianDualClassifier(groups=groups, plan=plan, epsilon=1.0, random_state=0, noise_seed=1)
    return model.fit(DATA.X, DATA.y, sensitive_features=labels, ledger=ledger)


def test_run_with_names_that_do_not_occur_spends_the_share_of_the_sizes_and_no_more() -> None:
    plan, ledger = PostProcessingPlan(checks=1, share_sizes=0.05), PrivacyLedger(epsilon=2.0, delta=1e-5)
    sentences = []
    for labels in (DATA.sensitive, DATA.sensitive.where(DATA.sensitive.index != 7, None)):
        with pytest.raises(ValueError, match="check the names of the groups") as caught:
            fit(["A", "B"], plan, ledger, labels)
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]
    spent = epsilon_spent({ledger.releases[0].cost: 1}, 1e-5)
    assert spent == pytest.approx(0.1951, abs=5e-4)  # 5% of mu^2, and 20% of epsilon
    said_so = "This check has spent epsilon 0.196 of this run's budget of epsilon 1 (delta 1e-05), and it stays spent."
    assert sentences[0].endswith(said_so)
    assert [one.purpose for one in ledger.releases] == ["sizes", "sizes"]
    made = plan.calibrate(1.0, 1e-5, n=3000).releases()
    parts = [one.count / one.noise.noise_multiplier**2 for one in made]  # of mu^2
    assert parts[0] / sum(parts) == pytest.approx(0.05, rel=1e-9)
    assert {one.cost for one in ledger.releases} == {made[0].noise.cost()}


def test_run_with_right_names_goes_on_and_costs_what_its_plan_says() -> None:
    plan, ledger = PostProcessingPlan(checks=1, share_sizes=0.05), PrivacyLedger(epsilon=1.0, delta=1e-5)
    model = fit(["a", "b"], plan, ledger, DATA.sensitive)
    assert [one.purpose for one in ledger.releases] == ["sizes", "moments", "decisions"]
    assert model.plan_.epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)


def test_plan_without_privacy_releases_no_sizes() -> None:
    made = PostProcessingPlan(share_sizes=0.05).calibrate(math.inf, 1e-5, n=100)
    assert [one.purpose for one in made.releases()] == ["moments", "decisions"]


def test_share_of_the_whole_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="share_sizes to be at least 0 and below 1"):
        PostProcessingPlan(share_sizes=1.0)
