"""The simulation of monitoring judges nights as the monitor does."""

import numpy as np
import pytest

from bench.experiments.monitor import AT_LIMIT, DRIFT, LIMIT, NIGHTS, PASSED, SCREEN, gap, night_of, settings
from justitia import measure


def test_nights_that_are_not_tested_are_never_alerts() -> None:
    own, rng = settings("new"), np.random.default_rng(0)
    for night in (1, 101, 110, 150):
        group, score = night_of(night, DRIFT, rng)
        found = measure(
            None,
            (score > 0).astype(int),
            sensitive_features=group,
            groups=["a", "b"],
            epsilon=own.epsilon_each,
            delta=own.delta,
            confidence=1 - own.level,
            noise_seed=night,
        )
        at_least = found.test(LIMIT).at_least
        assert at_least <= max(0.0, found.violation.estimate - 0.06)
    assert SCREEN < 0.06


def test_true_gap_is_what_decisions_have_and_passes_the_limit_in_month_four() -> None:
    rng = np.random.default_rng(1)
    for night, method in ((1, DRIFT), (150, DRIFT), (1, AT_LIMIT)):
        parts = [night_of(night, method, rng) for _ in range(40)]
        group, score = (np.concatenate(one) for one in zip(*parts, strict=True))
        rates = [float((score[group == name] > 0).mean()) for name in ("a", "b")]
        assert rates[0] - rates[1] == pytest.approx(gap(night, method), abs=0.012)
    assert gap(PASSED - 1, DRIFT) <= LIMIT + 1e-9 < gap(PASSED, DRIFT)
    assert 90 < PASSED <= 120 < NIGHTS
