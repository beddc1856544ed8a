"""Tables and claims of the audits and of the trial, from made-up results; and one audit of each kind, quickly."""

import math
from typing import Any

import pandas as pd
import pytest

from bench.experiments import audit, trial
from bench.experiments.runner import Cell


def made_up(experiment: Any, **measures: float) -> pd.DataFrame:
    """Every cell with the same outcome: 0.5 of its epsilon is proven."""
    rows = []
    for cell in experiment.cells(quick=False):
        found = dict.fromkeys(audit.MEASURES, 0.0) | {"certificate": cell.epsilon, "lower": cell.epsilon / 2}
        rows.append(cell.identity | found | {"gaussian": cell.epsilon / 2, "runs": cell.settings["runs"]} | measures)
    return pd.DataFrame(rows)


def test_audits_attack_every_mechanism_that_is_promised_and_correct_for_their_number() -> None:
    cells = [cell for cell in audit.cells(quick=False) if cell.settings["attack"] != "repeated"]
    strong = {(c.method, c.settings["groups"], c.epsilon) for c in cells if c.settings["attack"] == "mechanism"}
    assert strong == {(e, g, eps) for e in ("gradients", "moments") for g in (2, 5) for eps in (0.5, 1.0, 4.0)}
    assert {cell.settings["audits"] for cell in cells} == {len(cells)}
    assert {cell.settings["audits"] for cell in trial.cells(quick=False)} == {len(trial.cells(quick=False))}


def test_audit_claims_hold_for_half_of_the_certificate_and_fail_for_a_third_or_for_more_than_it() -> None:
    half = made_up(audit)
    assert [claim.confirmed for claim in audit.claims(half)] == [True] * 4
    third = half.assign(lower=half["certificate"] / 3)
    assert [claim.confirmed for claim in audit.claims(third)][:2] == [True, False]
    refuted = half.assign(exceeded=1.0)
    assert [claim.confirmed for claim in audit.claims(refuted)][:2] == [False, True]
    accused = half.assign(exceeded=[100.0 if "repeated" in text else 0.0 for text in half["settings"]])
    assert [claim.confirmed for claim in audit.claims(accused)] == [True, True, False, True]  # 100 of 200, 100 of 5,000


def test_audit_table_has_a_line_for_each_audit_and_no_gaussian_bound_where_there_is_none() -> None:
    results = made_up(audit, gaussian=math.nan)
    lines = audit.table(results).splitlines()
    assert len(lines) == 2 + sum("repeated" not in text for text in results["settings"])
    assert lines[2] == "| mechanism | pf-ld | 2 | 24,000 | 0.50 | - | 0.000 | 0 of 0 |"


def test_trial_claims_say_of_each_printed_epsilon_whether_it_is_exceeded() -> None:
    results = made_up(trial)
    exceeded = results.assign(exceeded=(results["method"] == "printed").astype(float), lower=3.0)
    found = trial.claims(exceeded)
    assert [claim.confirmed for claim in found] == [False, False, False, True]
    assert found[0].sentence == "The published epsilon bounds an attacker who sees every noisy step (Bank)."
    assert found[0].numbers == "the lower bound is 3.00 at 95%, corrected for 8 audits, beside 1.00"
    assert [claim.confirmed for claim in trial.claims(results)] == [True] * 4
    assert (
        trial.table(results).splitlines()[2].startswith("| Bank | every noisy step | pf-ld-as-published | 600 | 1.00 |")
    )


def first(experiment: Any, attack: str, method: str) -> Cell:
    cells = experiment.cells(quick=True)
    return next(cell for cell in cells if (cell.settings["attack"], cell.method) == (attack, method))


@pytest.mark.parametrize(
    ("attack", "method"), [("mechanism", "gradients"), ("one run", "moments"), ("repeated", "normal numbers")]
)
def test_audit_of_a_quick_cell_accuses_nobody(attack: str, method: str) -> None:
    found = audit.work(first(audit, attack, method))
    assert set(found) == set(audit.MEASURES)
    assert found["exceeded"] <= (2 if attack == "repeated" else 0)


def test_trial_of_a_quick_cell_tells_every_printed_step_apart() -> None:
    found = trial.work(first(trial, "mechanism", "printed"))
    assert found["right"] == found["guesses"] == 24
