"""Public cut points of a numeric attribute: the list of groups follows from the cuts, a row's group from its entry."""

import copy
import decimal
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from justitia import Bins, LagrangianDualClassifier, measure
from justitia.cli.files.attribute import read_bins
from justitia.datasets import make_synthetic
from justitia.privacy.bins import Range
from justitia.privacy.groups import encode, group_names, public_groups, read_columns

AGES: list[Any] = [24.9, 25, "59", 60, None, float("nan"), "old", -1, float("inf"), np.int64(30), decimal.Decimal(61)]
CODES = [0, 1, 1, 2, 3, 3, 3, 0, 2, 1, 2]


class Hostile:
    """A number that raises."""

    def __float__(self) -> float:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


def codes_of(sensitive_features: Any, groups: Any, **options: Any) -> list[int]:
    names, columns = read_columns(sensitive_features)
    return encode(columns, public_groups(groups, names=names), **options).tolist()


def test_bins_are_named_by_their_cuts_as_on_the_command_line() -> None:
    assert list(Bins([25, 60])) == ["below 25", "25 to below 60", "60 or above"]
    named, told = Bins([25, 60.5], name="age"), read_bins("age=25,60.5")
    assert tuple(named) == told.labels == ("age<25", "25<=age<60.5", "age>=60.5")
    texts = ["24.9", "25", "60.5", "", "x", "-1"]
    assert [told.labels.index(one) if one else 3 for one in told.assign(texts)] == codes_of(texts, named)
    assert group_names(public_groups(named)) == tuple(named)


def test_codes_follow_the_cuts_and_what_is_no_number_is_not_given() -> None:
    assert codes_of(AGES, Bins([25, 60])) == CODES
    assert codes_of(AGES, Bins([25, 60]), missing_marker=-1)[7] == 3
    assert codes_of([3.0, 7.0], Bins([5])[1:2] + Bins([5])[:1]) == [1, 0]
    assert codes_of([3.0, 7.0, 70.0], list(Bins([5, 60]))[:2]) == [0, 1, 2]  # a range that is left out is not given


def test_not_a_number_is_not_given_as_text_either() -> None:
    entries = ["nan", "NaN", float("nan"), np.float64("nan"), "-inf", "inf"]
    codes = encode([np.array(entries, dtype=object)], tuple(Bins([25, 60])))
    assert codes.tolist() == [3, 3, 3, 3, 0, 2]


def test_bins_are_crossed_with_labels_of_another_column() -> None:
    table = pd.DataFrame({"age": [20, 30, None, 70], "sex": ["f", "m", "f", None]})
    groups = {"age": Bins([25, 60]), "sex": ["f", "m"]}
    assert codes_of(table, groups) == [0, 3, 6, 6]
    names = group_names(public_groups(groups), names=["age", "sex"])
    assert names[3] == "age=25 to below 60 & sex=m"


@pytest.mark.parametrize("entry", [*AGES, Hostile(), complex(1, 2), "below 25", [30], 10**400, True, b"30", object()])
def test_one_changed_entry_changes_the_code_of_no_other_row(entry: Any) -> None:
    for row in range(len(AGES)):
        changed = [*AGES[:row], entry, *AGES[row + 1 :]]
        found = codes_of(changed, Bins([25, 60]))
        assert found[:row] + found[row + 1 :] == CODES[:row] + CODES[row + 1 :]
        assert 0 <= found[row] <= 3


@pytest.mark.parametrize("cuts", [[], "25", 25, [60, 25], [25, 25], [25, float("nan")], [float("inf")], ["a"], [True]])
def test_cuts_that_are_not_rising_numbers_are_refused(cuts: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="expected cuts to be"):
        Bins(cuts)


def test_ranges_beside_other_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="expected ranges of numbers alone"):
        codes_of([1, 2], [*Bins([5]), "unknown"])


def test_copies_keep_their_ranges() -> None:
    bins = Bins([25, 60], name="age")
    model = LagrangianDualClassifier(groups=bins)
    for other in (pickle.loads(pickle.dumps(bins)), copy.deepcopy(bins), clone(model).groups):
        assert isinstance(other, Bins)
        assert other == bins
        assert [(one.low, one.high) for one in other] == [(one.low, one.high) for one in bins]
    assert repr(bins) == "Bins([25.0, 60.0]: age<25, 25<=age<60, age>=60)"


def test_model_of_bins_is_the_model_of_labels_and_keeps_its_ranges_in_a_file(tmp_path: Path) -> None:
    data = make_synthetic(800, groups=("below 40", "40 or above"), n_features=3, random_state=0)
    draw = np.random.default_rng(0)
    below = np.asarray(data.sensitive) == "below 40"
    ages = np.where(below, draw.integers(18, 40, 800), draw.integers(40, 90, 800))
    given: dict[str, Any] = {"epsilon": 2.0, "random_state": 0, "noise_seed": 0}
    binned = LagrangianDualClassifier(groups=Bins([40]), **given).fit(data.X, data.y, sensitive_features=ages)
    labelled = LagrangianDualClassifier(groups=list(data.groups), **given)
    labelled.fit(data.X, data.y, sensitive_features=data.sensitive)
    assert np.array_equal(binned.predict_proba(data.X), labelled.predict_proba(data.X))
    assert binned.certificate_ == labelled.certificate_
    loaded = LagrangianDualClassifier.load(binned.save(tmp_path / "model"))
    for groups in (loaded.groups, loaded.groups_):
        assert list(groups) == ["below 40", "40 or above"]
        assert all(isinstance(one, Range) for one in groups)
    again = [
        measure(data.y, loaded.predict(data.X), sensitive_features=ages, groups=one, epsilon=1.0, noise_seed=0)
        for one in (loaded.groups_, Bins([40]))
    ]
    assert again[0].by_group.equals(again[1].by_group)
