"""Sentences about what was learned: said where they are true, silent where nothing is wrong."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from justitia import LagrangianDualClassifier, MomentsPlan
from justitia.datasets import make_synthetic
from justitia.notions import get_notion
from justitia.training.diagnostics import (
    cell_diagnostics,
    decision_diagnostics,
    missing_by_label,
    missing_diagnostics,
    size_diagnostics,
    violation_diagnostics,
    weighted_accuracy,
)
from justitia.training.lagrangian import Problem


def problem(threshold: float = 0.5) -> Problem:
    """A hundred rows, 30 of them positive."""
    y = np.concatenate([np.ones(30), np.zeros(70)])
    return Problem(np.zeros((100, 1)), y, np.ones(100), get_notion("demographic_parity"), threshold=threshold)


def decided(right_positives: int, wrong_negatives: int) -> NDArray[Any]:
    scores = -np.ones(100)
    scores[:right_positives] = 1.0
    scores[30 : 30 + wrong_negatives] = 1.0
    return scores


def test_weighted_accuracy_is_accuracy_and_counts_errors_by_the_threshold() -> None:
    assert weighted_accuracy(problem(), decided(20, 10)) == pytest.approx(0.8)
    # a positive is worth 0.8, a negative 0.2
    assert weighted_accuracy(problem(0.2), decided(20, 10)) == pytest.approx(
        (20 * 0.8 + 60 * 0.2) / (30 * 0.8 + 70 * 0.2)
    )


@pytest.mark.parametrize(
    ("scores", "plain", "words"),
    [
        (decided(25, 5), 0.91, []),
        (decided(0, 0), None, ["nearly all rows get the same decision (100.0%)"]),
        (decided(10, 9), None, ["no better than that of one decision for all rows (0.70)"]),
        (decided(20, 4), 0.98, []),
        (decided(18, 0), 0.995, []),
        (decided(20, 10), 0.95, ["about 0.80 with the constraint and 0.95 without"]),
    ],
)
def test_decisions_that_are_poor_are_told(scores: NDArray[Any], plain: float | None, words: list[str]) -> None:
    found = decision_diagnostics(problem(), scores, plain)
    assert len(found) == len(words)
    assert all(word in one for word, one in zip(words, found, strict=True))


def test_gap_within_the_tolerance_its_noise_or_the_slack_gives_no_warning() -> None:
    assert violation_diagnostics(0.2, 0.19, 0.0) == []
    assert violation_diagnostics(0.2, 0.0, 0.11) == []
    (sentence,) = violation_diagnostics(0.2, 0.1, 0.01)
    assert "is 0.2, beyond the tolerance 0.1" in sentence


def test_small_cell_is_reported_with_size_and_difference() -> None:
    assert cell_diagnostics(900, "group 'a'", 0.03, 0.02, given=False) == []
    (sentence,) = cell_diagnostics(90, "group 'a'", 0.06, 0.07, given=False)
    assert sentence == "with about 90 people in group 'a', differences up to 0.2 are allowed or may be chance."
    assert cell_diagnostics(90, "group 'a'", 0.05, 0.07, given=True) == []
    assert "up to 0.3 may be chance" in cell_diagnostics(9, "group 'a'", 0.05, 0.15, given=True)[0]


def test_missing_by_label_is_what_the_sums_leave_over() -> None:
    sizes = np.array([[40.0, 5.0], [50.0, 5.0]])
    silence = missing_by_label(sizes, np.array([100.0, 50.0]), stddev=2.0)
    assert silence == pytest.approx(np.array([[0.1, 0.02], [0.8, 0.04]]))
    (sentence,) = missing_diagnostics(silence)
    assert "about 10% of the first class and 80% of the second" in sentence
    noisy = silence.copy()
    noisy[:, 1] = 0.3
    assert missing_diagnostics(noisy) == missing_diagnostics(None) == []


@pytest.mark.parametrize("engine", ["post-processing", "moments"])
def test_fit_tells_of_silence_absurd_cells_and_weights_and_states_its_tolerance(engine: str) -> None:
    data = make_synthetic(1500, random_state=0)
    X, weight = data.X.copy(), np.ones(1500)
    X.iloc[[3, 4], 1] = 1e12
    weight[7] = 1e6
    silent = (data.y == 1) & (np.random.default_rng(0).random(1500) < 0.8)
    model = LagrangianDualClassifier(
        epsilon=4.0,
        groups=data.groups,
        engine=engine,
        tolerance=0.1,
        plan=MomentsPlan(rounds=4, checks=1, warmup_steps=5) if engine == "moments" else None,
        random_state=0,
        noise_seed=0,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, data.y, sensitive_features=data.sensitive.where(~silent, None), sample_weight=weight)
    told = "\n".join(model.certificate_.remarks)
    assert "far out of range in column 'x1' (2)" in told
    assert "1 of 1500 sample weights were above 10 times the mean" in told
    assert "'not given' differs by label" in told
    assert {str(one.message) for one in caught} >= set(model.certificate_.remarks)
    assert model.certificate_.tolerance == model.tolerance_ >= 0.1
    assert "differences up to 0.1" in str(model.certificate_)


def test_fit_on_healthy_people_says_nothing() -> None:
    data = make_synthetic(4000, disparity=0.1, random_state=0)
    model = LagrangianDualClassifier(epsilon=2.0, groups=data.groups, random_state=0, noise_seed=1)
    model.fit(data.X, data.y, sensitive_features=pd.Series(data.sensitive))
    assert model.certificate_.remarks == ()


def test_many_groups_whose_rates_are_mostly_noise_are_one_sentence() -> None:
    noise = np.linspace(0.01, 0.62, 62)
    told = size_diagnostics([str(age) for age in range(18, 80)], np.full(62, 60.0), noise, few=10.0, loud=0.05)
    assert told == [
        "the noise in the rates of 57 groups ('79', '78', '77', '76', '75', ...) is up to 0.62; their violations "
        "cannot be held to less."
    ]
    (one,) = size_diagnostics(["a", "b"], np.array([60.0, 900.0]), np.array([0.1, 0.01]), few=10.0, loud=0.05)
    assert one == "the noise in the rates of group 'a' is about 0.1; its violation cannot be held to less."
