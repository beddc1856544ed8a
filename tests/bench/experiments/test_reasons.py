"""Step sizes of the printed engine and the reasons behind claims: from rows of fits to sentences."""

import json
import math
from typing import Any

import pandas as pd
import pytest
import torch

from bench.experiments import reasons, scores, steps
from bench.experiments.folds import with_shuffled
from bench.experiments.methods import make
from bench.experiments.paper import printed
from bench.experiments.readings import READ_AS
from bench.experiments.runner import Cell
from justitia.datasets import make_synthetic
from justitia.notions import check_notion


def stepped(method: str, step: float, violation: float, **other: Any) -> dict[str, Any]:
    """One fit of demographic parity on Bank with this step and the printed accuracy."""
    made = {"accuracy": 0.793, "multiplier": 0.1, "first_gap": 0.7, "dataset": "bank", "notion": "demographic_parity"}
    return {**made, "method": method, "settings": json.dumps({"dual_step": step}), "violation": violation, **other}


def test_steps_claim_is_about_the_step_nearest_to_the_print_and_names_the_best_one() -> None:
    paper = printed("bank", "demographic_parity", "PF-LD")
    assert paper is not None
    assert (paper.accuracy, paper.violation) == (0.793, 0.126)
    rows = [stepped(steps.PRINTED, 0.003, 0.136), stepped(steps.PRINTED, 0.1, 0.016)]
    (claim,) = steps.claims(pd.DataFrame(rows))
    assert claim.confirmed
    assert (
        claim.numbers == "0.003 is nearest (0.010); 0.1 has the largest accuracy minus violation (0.777, against 0.657)"
    )
    away = pd.DataFrame([stepped(steps.PRINTED, 0.003, 0.236), stepped(steps.PRINTED, 0.1, 0.116)])
    assert [claim.confirmed for claim in steps.claims(away)] == [False]


@pytest.mark.parametrize(("without", "confirmed"), [(0.121, False), (0.050, True)])
def test_steps_without_noise_stand_beside_those_with_it(without: float, confirmed: bool) -> None:
    rows = [stepped(steps.PRINTED, step, 0.13, dataset="compas") for step in steps.BESIDE_STEPS]
    rows += [stepped(steps.WITHOUT_NOISE, step, without, dataset="compas") for step in steps.BESIDE_STEPS]
    claim = steps.claims(pd.DataFrame(rows))[-1]
    assert claim.confirmed == confirmed
    assert f"at 0.1: 0.130 with noise, {without:.3f} without; first gap of the scores 0.70" in claim.numbers


def test_steps_table_has_a_line_per_step() -> None:
    lines = steps.markdown(pd.DataFrame([stepped(steps.PRINTED, 0.003, 0.136)])).splitlines()
    assert lines[2:] == ["| 0.003 (scores) | 0.793 | 0.136 | 0.100 | 0.010 | 0.657 |"]


def reason(method: str, epsilon: float = 1.0, **other: Any) -> dict[str, Any]:
    """One fit on Bank, as good as another."""
    settings = json.dumps({name: other.pop(name) for name in ("h", "batches", "shuffled", "C_d") if name in other})
    made = {
        "dataset": "bank",
        "notion": "demographic_parity",
        "accuracy": 0.8,
        "violation": 0.1,
        "multiplier": 1.0,
        "fold": 0,
    }
    return {**made, "multiplier": 1.0, "method": method, "epsilon": epsilon, "settings": settings, **other}


def test_reasons_are_claims_about_noise_remainders_groups_readings_and_bounds() -> None:
    noise = [reason(reasons.PRINTED, e, shuffled=True, accuracy=0.7 + e / 100) for e in reasons.EPSILONS]
    pull = [reason(reasons.PRINTED, epsilon, multiplier=1 / epsilon) for epsilon in reasons.EPSILONS]
    large = [reason(reasons.PRINTED, C_d=reasons.LARGE, multiplier=3.0)]
    rest = [reason(reasons.PRINTED, batches="alike"), reason(reasons.PRINTED, batches="remainder", violation=0.3)]
    groups = [
        reason("M", dataset=name, notion="equalized_odds", violation=0.2 - i / 50)
        for i, name in enumerate(reasons.GROUPS)
    ]
    readings = [
        reason(reasons.REPAIRED, h=name, dataset=dataset, notion=notion, violation=0.2 if name == "score" else 0.1)
        for dataset, notion, _ in reasons.PLACES
        for name in READ_AS
    ]
    found = reasons.claims(pd.DataFrame([*noise, *pull, *large, *rest, *groups, *readings]))
    assert [claim.confirmed for claim in found] == [True, True, True, True, False, True, True]
    assert found[2].numbers.endswith("1.00 and 3.00")
    assert "0.300, 0.100" in found[3].numbers
    assert "violation 0.200, 0.180, 0.160" in found[4].numbers
    assert "Bank demographic parity: probability 0.800 / 0.100, score 0.800 / 0.200" in found[5].numbers


@pytest.mark.parametrize("reading", READ_AS)
def test_readings_of_h_are_valid_notions_of_the_repaired_engine(reading: str) -> None:
    scores, y = torch.tensor([0.0, 5.0], dtype=torch.float64), torch.tensor([0.0, 1.0], dtype=torch.float64)
    high = 1 / (1 + math.exp(-5))
    expected = {"probability": [0.5, high], "score": [0.0, 5.0], "mixture": [0.25, (high + 1) / 2]}[reading]
    for name, kind in READ_AS[reading].items():
        check_notion(kind())
        assert kind().h(scores, y).tolist() == pytest.approx(expected)
        cell = Cell("toy", "bank", name, reasons.REPAIRED, 0, split="inner", settings={"h": reading})
        assert isinstance(make(cell, ("a", "b")).notion, kind)


def test_shuffled_attributes_keep_their_shares_and_change_hands() -> None:
    data = make_synthetic(200, random_state=0)
    mixed = with_shuffled(data, seed=1)
    assert mixed.sensitive.value_counts().to_dict() == data.sensitive.value_counts().to_dict()
    assert mixed.sensitive.index.equals(data.sensitive.index)
    assert (mixed.sensitive != data.sensitive).any()


def test_scores_claim_compares_what_comes_together_on_scores_and_on_decisions() -> None:
    free = {"settings": json.dumps(scores.FREE), "score_gap": 2.0, "violation": 0.4, "accuracy": 0.8}
    held = {"settings": "{}", "score_gap": 0.5, "accuracy": 0.8}
    rows = [
        {"dataset": dataset, "method": "F-LD", "epsilon": math.inf, "score_sd": 1.0, **one}
        for dataset, left in (("bank", 0.1), ("income", 0.3))
        for one in (free, held | {"violation": left})
    ]
    found = scores.claims(pd.DataFrame(rows))
    assert [claim.confirmed for claim in found] == [True, False]
    assert found[1].numbers == "without noise, mean scores differ by 75% less and decision rates by 25% less"
    assert "| Income | no constraint | 0.800 | 0.400 | 2.00 | 1.00 |" in scores.markdown(pd.DataFrame(rows))
