"""Each of several crossed columns by itself, from the release of the crossed groups."""

import numpy as np
import pandas as pd
import pytest

from justitia import measure
from justitia.metrics.measurement import column_margins

SEX, RACE = ["f", "m"], ["a", "b", "c"]
LISTED = {"sex": SEX, "race": RACE}
rng = np.random.default_rng(0)
N = 6_000
TABLE = pd.DataFrame({"sex": rng.choice(SEX, N), "race": rng.choice(RACE, N)})
Y = rng.integers(0, 2, N)
D = (rng.random(N) < np.where(TABLE["sex"] == "f", 0.2, 0.5)).astype(int)
SCORES = rng.normal(size=N) + Y


def test_margins_without_noise_are_the_rates_of_each_column_alone() -> None:
    asked = {"epsilon": float("inf"), "scores": SCORES, "before": Y}
    found = measure(Y, D, sensitive_features=TABLE, groups=LISTED, **asked)
    alone = measure(Y, D, sensitive_features=TABLE["race"], groups=RACE, **asked)
    assert list(found.margins) == ["sex", "race"]
    race = found.margins["race"]
    assert race.groups == alone.groups == ("a", "b", "c")
    pd.testing.assert_frame_equal(race.table, alone.table)
    pd.testing.assert_frame_equal(race.scores.table, alone.scores.table)
    assert race.before.violation.upper == pytest.approx(alone.before.violation.upper)
    assert alone.margins == race.margins == {}


def test_noise_of_margins_is_that_of_sums_of_the_crossed_groups() -> None:
    found = measure(Y, D, sensitive_features=TABLE, groups=LISTED, epsilon=1.0, noise_seed=0)
    own, cross = found.noisy.var_count[0, 0], found.noisy.cross
    covariance = own * ((1 - cross) * np.eye(6) + cross)
    for margin, (name, one) in zip(found.crossed, found.margins.items(), strict=True):
        summed = margin.parts @ covariance @ margin.parts.T
        assert np.allclose(np.diag(summed), one.noisy.var_count[0, 0]), name
        assert np.allclose(summed[0, 1], one.noisy.cross * one.noisy.var_count[0, 0]), name
    kept = found.to_dict()["margins"]["sex"]
    assert kept["violations"]["demographic_parity"]["lower"] > 0.2


def test_one_release_of_crossed_groups_is_less_noise_than_three_of_a_third_of_the_budget() -> None:
    found = measure(Y, D, sensitive_features=TABLE, groups=LISTED, epsilon=1.0, noise_seed=0)
    crossed = found.noisy.var_count[0, 0]
    a_third = 3 * crossed / (6 / 7)  # the same cost thrice, before the projection
    noise = {name: one.noisy.var_count[0, 0] for name, one in found.margins.items()}
    assert noise["race"] < a_third * 3 / 4
    assert noise["sex"] < a_third * 2 / 3


def test_margins_need_crossed_columns_of_equally_many_parts() -> None:
    assert column_margins(("f", "m"), ("sex",)) == ()
    uneven = column_margins((("f", "a"), ("f", "b"), ("m", "a")), ())
    assert uneven == ()
    numbered = column_margins((("f", 1), ("m", 1), ("f", 2), ("m", 2)), ())
    assert [one.column for one in numbered] == ["column 1", "column 2"]
    one_age = column_margins((("f", 1), ("m", 1)), ("sex", "old"))  # a column with one label has no groups
    assert [one.groups for one in one_age] == [("f", "m")]
