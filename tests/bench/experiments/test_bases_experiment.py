"""The evidence for the base: differences are paired by fold."""

import json

import pandas as pd
import pytest

from bench.experiments import bases


def row(fold: int, rate: float, **numbers: float) -> dict[str, object]:
    values = dict.fromkeys((f"{form}_{name}" for form in bases.DEPLOYED for name in bases.NUMBERS), 0.5)
    settings = json.dumps({"learning_rate": rate, "rows": None})
    return (
        {"dataset": "bank", "fold": fold, "settings": settings, "rows": 900, "seconds": 4 - 20 * rate}
        | values
        | numbers
    )


def test_differences_are_paired_by_fold_with_their_standard_error() -> None:
    results = pd.DataFrame(
        [
            row(1, 0.06, mean_accuracy=0.9, one_accuracy=0.92),
            row(0, 0.06, mean_accuracy=0.7, one_accuracy=0.70),
            row(0, 0.12, mean_accuracy=0.8),
            row(1, 0.12, mean_accuracy=0.8),
        ]
    )
    rate, one = bases.compared(results).to_dict("records")
    assert (one["change"], rate["change"], one["folds"]) == ("one model", "learning rate 0.12", 2)
    assert (one["accuracy"], one["accuracy_se"]) == pytest.approx((0.01, 0.01))
    assert (rate["accuracy"], rate["accuracy_se"]) == pytest.approx((0.0, 0.1))
    assert rate["seconds"] == pytest.approx(1.6 / 2.8)
    assert "| one model | Bank, 900 | 2 | +0.0100 (0.0100) |" in bases.markdown(results)


def test_every_rate_is_tried_on_every_inner_fold() -> None:
    cells = bases.cells(quick=False)
    assert len({cell.key for cell in cells}) == len(cells) == 2 * sum(folds for *_, folds in bases.PLACES)
    assert {cell.split for cell in cells} == {"inner"}
