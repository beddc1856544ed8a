"""Cells far out of range and weights far above all others: cut by public rules, and nothing else is touched."""

import numpy as np
import pytest

from justitia.preprocessing.encoding import TabularEncoder
from justitia.preprocessing.outliers import MAX_FLOAT32, clip_weights, clipping_range, input_diagnostics

DRAWN = np.random.default_rng(0).standard_normal(400)


def test_range_of_ordinary_columns_holds_every_cell() -> None:
    events = np.zeros(400)
    events[:2] = 1.0  # rarer than the quantiles look
    for values in (DRAWN, np.exp(DRAWN), events, np.full(400, 7.0), np.arange(400.0)):
        low, high = clipping_range(values)
        assert low <= values.min()
        assert values.max() <= high


def test_range_is_ten_times_the_usual_distance_whatever_the_absurd_cells_are() -> None:
    for absurd in (1e9, 1e12):
        low, high = clipping_range(np.r_[np.arange(101.0), absurd])
        assert (low, high) == (50.5 - 10 * 48.5, 50.5 + 10 * 48.5)  # from 2 to 99


def test_range_of_few_rows_is_everything() -> None:
    assert clipping_range(np.array([0.0, 1.0, 1e12])) == (-MAX_FLOAT32, MAX_FLOAT32)


def test_encoder_with_absurd_cells_encodes_all_others_nearly_as_without() -> None:
    dirty = DRAWN.copy()
    dirty[[5, 9]] = 1e12
    encoder = TabularEncoder().fit(dirty[:, None])
    assert encoder.columns_[0].cut == 2
    clean = np.delete(np.arange(400), [5, 9])
    found, expected = encoder.transform(dirty[:, None])[clean], TabularEncoder().fit_transform(DRAWN[:, None])[clean]
    assert np.corrcoef(found[:, 0], expected[:, 0])[0, 1] == pytest.approx(1.0)
    assert found.std() > 0.4
    assert np.abs(encoder.transform([[1e30]])).max() < 30


def test_ordinary_weights_are_not_touched() -> None:
    weight = np.array([0.0, 1.0, 2.0, 8.0, 3.0] * 20)
    assert np.array_equal(clip_weights(weight), weight)
    assert input_diagnostics(None, weight, (100, 3)) == []


def test_heavy_weights_are_cut_to_ten_times_the_mean_of_what_is_left() -> None:
    weight = np.r_[np.ones(99), 1e9]
    used = clip_weights(weight)
    assert used[:99].tolist() == [1.0] * 99
    assert used[-1] == pytest.approx(10 * used.mean(), rel=1e-6)
    assert "1 of 100 sample weights" in input_diagnostics(None, weight, (100, 3))[0]


def test_many_inputs_for_few_rows_are_told() -> None:
    assert input_diagnostics(None, None, (400, 20)) == []
    assert "30 inputs for 400 rows" in input_diagnostics(None, None, (400, 30))[0]
