import math

import numpy as np
import pandas as pd
import pytest

from justitia._validate import (
    check_choice,
    check_fraction,
    check_int,
    check_nonnegative,
    check_positive,
    check_rate,
    check_same_length,
)

ENGINES = ("moments", "gradients", "printed")


def test_check_choice_valid_name_is_returned() -> None:
    assert check_choice("engine", "moments", ENGINES) == "moments"


def test_check_choice_near_miss_suggests_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"^no engine 'gradient'; did you mean 'gradients'\?$"):
        check_choice("engine", "gradient", ENGINES)


def test_check_choice_other_case_suggests_the_name() -> None:
    with pytest.raises(ValueError, match="did you mean 'moments'"):
        check_choice("engine", "MOMENTS", ENGINES)


def test_check_choice_far_miss_lists_every_name() -> None:
    with pytest.raises(ValueError, match=r"^no engine 'xyz'; choose one of 'moments', 'gradients', 'printed'\.$"):
        check_choice("engine", "xyz", ENGINES)


@pytest.mark.parametrize("value", [None, 3, ["moments"]])
def test_check_choice_not_a_string_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="expected engine to be one of 'moments'"):
        check_choice("engine", value, ENGINES)


@pytest.mark.parametrize(("value", "number"), [(1, 1.0), (0.5, 0.5), (np.float32(2), 2.0), (np.int64(3), 3.0)])
def test_check_positive_number_becomes_a_float(value: object, number: float) -> None:
    checked = check_positive("epsilon", value)
    assert checked == number
    assert type(checked) is float


@pytest.mark.parametrize("value", [0, -1.0, math.inf, -math.inf, math.nan])
def test_check_positive_number_out_of_range_is_a_value_error(value: float) -> None:
    with pytest.raises(ValueError, match="expected epsilon to be a"):
        check_positive("epsilon", value)


def test_check_positive_infinity_allowed_is_returned() -> None:
    assert check_positive("epsilon", math.inf, allow_inf=True) == math.inf


@pytest.mark.parametrize("value", [math.nan, -math.inf, 0.0])
def test_check_positive_infinity_allowed_still_refuses_the_rest(value: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        check_positive("epsilon", value, allow_inf=True)


@pytest.mark.parametrize("value", [True, np.True_, "1.0", None, [1.0], 1j])
@pytest.mark.parametrize("check", [check_positive, check_nonnegative, check_rate, check_fraction])
def test_check_number_of_another_type_is_a_type_error(check: object, value: object) -> None:
    with pytest.raises(TypeError, match="expected delta to be a number, got"):
        check("delta", value)


def test_check_positive_message_says_expected_came_and_advice() -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared below
        check_positive("epsilon", -2)
    assert str(caught.value) == (
        "expected epsilon to be a finite number above 0, got -2; pass, for example, epsilon=1.0."
    )


@pytest.mark.parametrize("value", [0, 0.0, 0.5, 0.999])
def test_check_fraction_inside_is_returned(value: float) -> None:
    assert check_fraction("tolerance", value) == value


@pytest.mark.parametrize("value", [1, 1.5, -0.1, math.nan, math.inf])
def test_check_fraction_outside_is_a_value_error(value: float) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        check_fraction("tolerance", value)


def test_check_nonnegative_zero_is_returned() -> None:
    assert check_nonnegative("noise", 0) == 0.0
    assert check_nonnegative("noise", math.inf, allow_inf=True) == math.inf


@pytest.mark.parametrize("value", [-1e-9, math.inf, math.nan])
def test_check_nonnegative_out_of_range_is_a_value_error(value: float) -> None:
    with pytest.raises(ValueError, match="noise"):
        check_nonnegative("noise", value)


@pytest.mark.parametrize("value", [1e-9, 0.5, 1])
def test_check_rate_inside_is_returned(value: float) -> None:
    assert check_rate("averaging", value) == value


@pytest.mark.parametrize("value", [0, 1.001, -0.5, math.nan])
def test_check_rate_outside_is_a_value_error(value: float) -> None:
    with pytest.raises(ValueError, match="averaging"):
        check_rate("averaging", value)


def test_check_int_of_numpy_becomes_an_int() -> None:
    checked = check_int("steps", np.int32(4), at_least=1)
    assert checked == 4
    assert type(checked) is int


@pytest.mark.parametrize("value", [True, 2.0, "2", None])
def test_check_int_of_another_type_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="expected steps to be an int"):
        check_int("steps", value, at_least=1)


def test_check_int_below_the_least_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="expected steps to be at least 1, got 0"):
        check_int("steps", 0, at_least=1)


def test_check_same_length_equal_returns_the_length() -> None:
    assert check_same_length(X=np.zeros((3, 2)), y=[0, 1, 1], a=pd.Series(["F", "M", "M"])) == 3


def test_check_same_length_different_names_every_length() -> None:
    with pytest.raises(ValueError, match="but y_true has 3, y_pred has 2; pass one entry per row"):
        check_same_length(y_true=[0, 1, 1], y_pred=(0, 1))


@pytest.mark.parametrize("value", [3, "abc", None, np.array(1.0)])
def test_check_same_length_without_rows_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="expected y to hold one entry per row"):
        check_same_length(y=value)
