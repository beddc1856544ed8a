"""Rules for the default tolerance, from made-up fits."""

import json

import pandas as pd
import pytest

from bench.experiments.last_step import markdown, rules, steps, truth

#: Listed accuracy, violation and standard error, exact violation, accuracy and violation on held-out rows.
POINTS = [
    [0.80, 0.02, 0.02, 0.03, 0.79, 0.04],
    [0.803, 0.03, 0.02, 0.04, 0.80, 0.04],
    [0.806, 0.04, 0.02, 0.05, 0.81, 0.06],
    [0.83, 0.06, 0.02, 0.07, 0.82, 0.08],
]
FIT = {"tolerance": 0.02, "points": POINTS, "base": [0.85, 0.2, 0.05, 0.4]}
PLACE = {"dataset": "bank", "notion": "demographic_parity", "epsilon": 1.0}
RESULTS = pd.DataFrame([PLACE | {"fold": fold, "fits": json.dumps([FIT, FIT])} for fold in (0, 1)])


@pytest.mark.parametrize(
    ("most", "least", "accuracy", "violation"),
    [(1.5, 0.2, 0.01, 0.0), (1.5, 0.5, 0.0, 0.0), (2.0, 0.5, 0.02, 0.02), (2.0, 1.0, 0.0, 0.0), (3.0, 2.0, 0.03, 0.04)],
)
def test_rule_takes_the_largest_multiple_whose_step_costs_enough(
    most: float, least: float, accuracy: float, violation: float
) -> None:
    table = steps(RESULTS)
    row = table[(table["most"] == most) & (table["least"] == least)]
    assert row["accuracy"].tolist() == pytest.approx([accuracy] * 4)
    assert row["violation"].tolist() == pytest.approx([violation] * 4)


def test_tables_have_a_row_per_rule_and_per_kind_of_row() -> None:
    assert len(rules(RESULTS)) == 15
    found = truth(RESULTS).set_index("row")
    assert found.loc["uncorrected", "off"] == pytest.approx(0.2)
    assert not found.loc["uncorrected", "within"]
    assert found.loc["1.0", "within"]
    assert "| Bank, demographic parity | 1 | 100% | +0.0200 | +0.0200 |" in markdown(RESULTS)
