"""Hostile public inputs of classes, numbers and strata: refused in a sentence, before anything is debited."""

import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from justitia import (
    LagrangianDualClassifier,
    LagrangianDualRegressor,
    PostProcessingPlan,
    PrivacyLedger,
    measure,
    tradeoff,
)
from justitia.audit import audit
from justitia.notions import DemographicParity, RateTable

ROWS = 24
X = pd.DataFrame({"u": np.linspace(-1.0, 1.0, ROWS), "v": np.tile([0.0, 1.0, 2.0], ROWS // 3)})
SEX = pd.Series(np.tile(["a", "b"], ROWS // 2), name="sex")
CLASSES = np.arange(ROWS) % 3
NUMBERS = np.sin(np.arange(ROWS))
PLAN = PostProcessingPlan(checks=1, levels=3)


def thirds(table: Any) -> NDArray[np.float64]:
    return np.full((len(table), 3), 1 / 3)


def zeros(table: Any) -> NDArray[np.float64]:
    return np.zeros(len(table))


def classifier(**options: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"groups": ["a", "b"], "epsilon": 5.0, "plan": PLAN, "base": thirds, "random_state": 0}
    return LagrangianDualClassifier(**usual | options)


def regressor(notion: str = "equal_error", **options: Any) -> LagrangianDualRegressor:
    usual: dict[str, Any] = {"groups": ["a", "b"], "epsilon": 5.0, "plan": PLAN, "base": zeros, "random_state": 0}
    return LagrangianDualRegressor(notion, **usual | options)


class OwnRates(DemographicParity):
    """A notion of a user with a table of rates for three classes."""

    name = "own"

    def __init__(self, events: Any, values: Any, names: tuple[str, ...]) -> None:
        object.__setattr__(self, "made", RateTable(np.asarray(events), np.asarray(values), names))

    def rates(self, classes: Sequence[object] = (0, 1)) -> RateTable:
        del classes
        made: RateTable = self.made  # type: ignore[attr-defined]
        return made


EVENTS, VALUES = np.ones((3, 1)), np.eye(3)[:, :, None]
BROKEN: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "NaN": (EVENTS, VALUES * np.nan, ("rate",)),
    "too large": (EVENTS, VALUES * 1e200, ("rate",)),
    "below 0": (EVENTS, -VALUES, ("rate",)),
    "infinite events": (EVENTS * np.inf, VALUES, ("rate",)),
    "fewer labels": (np.ones((2, 1)), VALUES, ("rate",)),
    "fewer actions": (EVENTS, VALUES[:, :2], ("rate",)),
    "more names": (EVENTS, VALUES, ("rate", "another")),
    "no rate": (np.ones((3, 0)), np.ones((3, 3, 0)), ()),
    "no label in the event": (np.zeros((3, 1)), VALUES, ("rate",)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_rates_of_a_notion_that_are_no_rates_are_refused_before_anything_is_debited(name: str) -> None:
    ledger = PrivacyLedger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match="of 'own'"):
        classifier(notion=OwnRates(*BROKEN[name])).fit(X, CLASSES, sensitive_features=SEX, ledger=ledger)
    assert ledger.releases == ()


@pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")
def test_rates_of_a_notion_for_three_classes_are_used() -> None:
    model = classifier(notion=OwnRates(EVENTS, VALUES, ("right",)), tolerance=0.2)
    assert list(model.fit(X, CLASSES, sensitive_features=SEX).dual_.columns) == ["right"]


@pytest.mark.parametrize("y", [NUMBERS * 1e200, NUMBERS * 1e-200, NUMBERS * 1e300])
@pytest.mark.parametrize("notion", ["demographic_parity", "mean_parity", "equal_error"])
def test_numbers_whose_square_is_no_number_are_refused_before_anything_is_debited(notion: str, y: Any) -> None:
    ledger = PrivacyLedger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match="expected a range of y between 1e-100 and 1e\\+100 wide"):
        regressor(notion).fit(X, y, sensitive_features=SEX, ledger=ledger)
    assert ledger.releases == ()


def test_bounds_that_are_too_wide_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a range of y between"):
        regressor(bounds=(-1e308, 1e308)).fit(X, NUMBERS, sensitive_features=SEX)


#: Everything public that a fit takes, computed from the attribute; what is computed from a Series keeps its name.
FROM_THE_ATTRIBUTE: dict[str, Any] = {
    "strata": SEX,
    "person": SEX,
    "sample_weight": (SEX == "a") + 1.0,
    "y": SEX,
}


@pytest.mark.parametrize("name", FROM_THE_ATTRIBUTE)
@pytest.mark.parametrize("attribute", [SEX, SEX.to_frame(), {"sex": SEX}], ids=["Series", "DataFrame", "dict"])
def test_attribute_as_something_public_is_refused_before_anything_is_debited(name: str, attribute: Any) -> None:
    ledger = PrivacyLedger(epsilon=5.0, delta=1e-5)
    notion = "conditional_demographic_parity" if name == "strata" else "demographic_parity"
    given = {"y": CLASSES, name: FROM_THE_ATTRIBUTE[name]}
    with pytest.raises(ValueError, match="the column 'sex' is sensitive and is passed as a public one"):
        classifier(notion=notion).fit(X, **given, sensitive_features=attribute, ledger=ledger)
    assert ledger.releases == ()


def test_attribute_as_something_public_is_refused_by_every_call() -> None:
    calls = [
        lambda: measure(CLASSES, SEX, sensitive_features=SEX, groups=["a", "b"]),
        lambda: tradeoff(classifier(), X, CLASSES, sensitive_features=SEX, person=SEX),
        lambda: audit(classifier(), X, SEX, sensitive_features=SEX),
        lambda: regressor().fit(X, NUMBERS, sensitive_features=SEX, sample_weight=SEX == "a"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="the column 'sex' is sensitive") as raised:
            call()
        shown = [frame.f_locals for frame, _ in traceback.walk_tb(raised.tb) if "justitia/" in frame.f_code.co_filename]
        held = [one for values in shown for one in (*values.values(), *values.get("args", ()))]
        assert not any(one is SEX for one in held)
