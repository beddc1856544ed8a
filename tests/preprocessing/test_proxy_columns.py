"""Reading proxies: numbers, categories and gaps, constant columns, and wrong input."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from justitia.preprocessing.proxies import ProxyEncoder, check_proxy_names, read_proxy


def test_one_column_is_standardised() -> None:
    names, found = read_proxy(np.array([0.0, 1.0, 2.0, 1.0]), 4)
    assert names == ()
    np.testing.assert_allclose(found, [[-(2**0.5)], [0.0], [2**0.5], [0.0]], rtol=1e-6)


@pytest.mark.parametrize("given", [[0.1, 0.9, 0.4], (0.1, 0.9, 0.4), pd.Series([0.1, 0.9, 0.4]), [[0.1], [0.9], [0.4]]])
def test_lists_arrays_and_series_are_one_column(given: Any) -> None:
    assert read_proxy(given, 3)[1].shape == (3, 1)


def test_categories_and_gaps_have_columns_of_their_own() -> None:
    table = pd.DataFrame({"p": [0.2, np.nan, 0.9, 0.5], "place": ["north", None, "south", "north"]})
    names, found = read_proxy(table, 4)
    assert names == ("p", "place")
    assert found.shape == (4, 5)  # p, p missing, north, south, place missing
    assert found[:, 1].tolist() == found[:, 4].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert np.isfinite(found).all()


def test_constant_columns_are_left_out() -> None:
    table = pd.DataFrame({"same": [1.0, 1.0, 1.0], "word": ["a", "a", "a"], "p": [0.0, 1.0, 0.5]})
    assert read_proxy(table, 3)[1].shape == (3, 1)
    assert read_proxy(table[["same", "word"]], 3) == (("same", "word"), None)
    assert read_proxy(None, 3) == ((), None)


def test_encoder_of_a_sample_reads_other_rows_alike() -> None:
    table = pd.DataFrame({"p": np.linspace(0, 1, 40), "place": ["north", "south"] * 20})
    encoder = ProxyEncoder.fit(table)
    assert encoder is not None
    np.testing.assert_array_equal(encoder(table)[7:9], encoder(table.iloc[7:9]))


@pytest.mark.parametrize("given", ["p", ["p", "q"]])
def test_names_of_columns_are_refused_in_memory(given: Any) -> None:
    with pytest.raises(TypeError, match="got names"):
        read_proxy(given, 2)


@pytest.mark.parametrize("given", [np.zeros(3), np.zeros((5, 2)), pd.DataFrame({"p": [1.0]})])
def test_another_number_of_rows_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="expected one row of proxy for each of the 4 rows"):
        read_proxy(given, 4)


def test_infinite_numbers_and_no_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="infinity"):
        read_proxy(np.array([0.0, np.inf]), 2)
    with pytest.raises(ValueError, match="to have columns"):
        read_proxy(pd.DataFrame(index=range(2)), 2)


def test_a_feature_is_no_proxy() -> None:
    check_proxy_names(("p",), ["age", "income"])
    with pytest.raises(ValueError, match="'age' is both a feature and a proxy"):
        check_proxy_names(("p", "age"), ["age", "income"])
