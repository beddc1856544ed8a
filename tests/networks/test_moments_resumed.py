"""The moments engine interrupted and resumed: the same result, and no debit twice."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from moments_setting import PLAN, RELEASES, Own, fit, seeded, with_dropout

from dying import fit_and_die, fit_and_die_after_save
from justitia import LagrangianDualClassifier
from justitia.privacy.ledger import BudgetExceeded

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so


# Interrupted and resumed


def moments_model(make: Any, **changes: Any) -> LagrangianDualClassifier:
    model: LagrangianDualClassifier = make(**{"engine": "moments", "plan": PLAN, "module": (4,)} | changes)
    return model


def journal(folder: Path) -> list[str]:
    return [json.loads(line)["purpose"] for line in (folder / "ledger.jsonl").read_text().splitlines()]


def assert_same(one: Any, other: Any, people: Any) -> None:
    assert np.array_equal(one.decision_function(people.X), other.decision_function(people.X))
    for name, value in one.module_.state_dict().items():
        assert torch.equal(value, other.module_.state_dict()[name])
    pd.testing.assert_frame_equal(one.history_, other.history_, check_exact=True)
    pd.testing.assert_frame_equal(one.dual_, other.dual_, check_exact=True)
    assert one.certificate_ == other.certificate_


@pytest.mark.parametrize("saves", range(1, 10))  # the third before anything was made of the moments
def test_resume_between_any_two_rounds_gives_the_model_of_the_whole_run(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], saves: int
) -> None:
    fit_and_die_after_save(moments_model(make), people, tmp_path / "run", saves=saves)
    resumed = fit(moments_model(make), people, tmp_path / "run")
    assert noise_numbers == [0, 1, 2]
    assert journal(tmp_path / "run") == RELEASES
    assert_same(resumed, fit(moments_model(make), people), people)


@pytest.mark.parametrize("saves", [1, 3, 7])
@pytest.mark.parametrize(
    "changes",
    [
        {"module": seeded(with_dropout)},
        {"module": seeded(Own)},
        {"notion": "equalized_odds", "tolerance": 0.02},
        {"plan": replace(PLAN, micro_batch=32, averaging=1.0, dead_zone=0.5)},
        {"notion": "equalized_odds", "module": None},
        {"notion": "accuracy_parity", "module": None},
    ],
    ids=["dropout", "own module", "equalized odds", "small chunks", "piecewise network", "cross-fitted network"],
)
def test_resume_of_other_settings_gives_the_model_of_the_whole_run(
    people: Any, make: Any, tmp_path: Path, changes: dict[str, Any], saves: int
) -> None:
    fit_and_die_after_save(moments_model(make, **changes), people, tmp_path / "run", saves=saves)
    resumed = fit(moments_model(make, **changes), people, tmp_path / "run")
    assert_same(resumed, fit(moments_model(make, **changes), people), people)


@pytest.mark.parametrize("saves", [1, 2, 5])
def test_resume_without_privacy_gives_the_model_of_the_whole_run(
    people: Any, make: Any, tmp_path: Path, saves: int
) -> None:
    usual = {"epsilon": math.inf, "noise_seed": None}
    fit_and_die_after_save(moments_model(make, **usual), people, tmp_path / "run", saves=saves)
    resumed = fit(moments_model(make, **usual), people, tmp_path / "run")
    whole = fit(moments_model(make, **usual), people)
    assert np.array_equal(resumed.decision_function(people.X), whole.decision_function(people.X))


@pytest.mark.parametrize("at", [2, 3])
def test_check_that_was_paid_for_and_lost_is_not_asked_again(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], at: int
) -> None:
    model, folder = moments_model(make), tmp_path / "run"
    fit_and_die(model, people, folder, at=at, answered=True)
    assert journal(folder) == RELEASES[:at]
    assert not hasattr(model, "module_")
    fit(model, people, folder)
    assert journal(folder) == RELEASES
    assert noise_numbers == [0, 1, 2]
    assert Counter(model.ledger_.costs()) == model.plan_.costs()
    assert np.isfinite(model.decision_function(people.X)).all()


def test_two_checks_lost_one_after_the_other_are_not_asked_again(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    model, folder = moments_model(make), tmp_path / "run"
    fit_and_die(model, people, folder, at=2, answered=True)
    fit_and_die(model, people, folder, at=1, answered=True)
    assert journal(folder) == RELEASES
    fit(model, people, folder)
    assert journal(folder) == RELEASES
    assert noise_numbers == [0, 1, 2]
    assert Counter(model.ledger_.costs()) == model.plan_.costs()


def test_lost_check_and_another_death_later_ask_nothing_twice(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    model, folder = moments_model(make), tmp_path / "run"
    fit_and_die(model, people, folder, at=2, answered=True)
    fit_and_die_after_save(model, people, folder, saves=1)
    fit(model, people, folder)
    assert journal(folder) == RELEASES
    assert noise_numbers == [0, 1, 2]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_resume_after_dying_before_a_debit_gives_the_model_of_the_whole_run(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], at: int
) -> None:
    model, folder = moments_model(make), tmp_path / "run"
    fit_and_die(model, people, folder, at=at, answered=False)
    fit(model, people, folder)
    assert noise_numbers == [0, 1, 2]
    assert_same(model, fit(moments_model(make), people), people)


def test_moments_of_a_run_that_was_resumed_before_them_are_kept_as_well(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    model, folder = moments_model(make), tmp_path / "run"
    fit_and_die(model, people, folder, at=1, answered=False)
    fit_and_die_after_save(model, people, folder, saves=1)
    assert journal(folder) == ["moments"]
    fit(model, people, folder)
    assert noise_numbers == [0, 1, 2]
    assert_same(model, fit(moments_model(make), people), people)


@pytest.mark.parametrize("warmup_steps", [0, 8])
def test_resume_after_the_moments_were_lost_is_refused_in_one_sentence(
    people: Any, make: Any, tmp_path: Path, warmup_steps: int
) -> None:
    model, folder = moments_model(make, plan=replace(PLAN, warmup_steps=warmup_steps)), tmp_path / "run"
    fit_and_die(model, people, folder, at=1, answered=True)
    for _ in range(2):
        with pytest.raises(BudgetExceeded) as caught:
            fit(model, people, folder)
        sentence = str(caught.value)
        assert "\n" not in sentence
        assert "the debit stands" in sentence
        assert sentence.endswith("start again in another folder with a new budget.")
    assert journal(folder) == ["moments"]
    assert not hasattr(model, "module_")


def test_resume_after_the_last_check_needs_the_attribute_no_more(people: Any, make: Any, tmp_path: Path) -> None:
    """What is left of A in the folder is its noised answers: with everybody silent the run ends the same."""
    fit_and_die_after_save(moments_model(make), people, tmp_path / "run", saves=8)
    resumed = moments_model(make)
    resumed.fit(people.X, people.y, sensitive_features=[None] * len(people.y), checkpoint=tmp_path / "run")
    assert_same(resumed, fit(moments_model(make), people), people)


def test_resume_of_a_finished_run_asks_nothing_and_gives_the_same_model(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    first = fit(moments_model(make), people, tmp_path / "run")
    again = fit(moments_model(make), people, tmp_path / "run")
    assert noise_numbers == [0, 1, 2]
    assert_same(again, first, people)


def test_resume_of_a_folder_of_another_plan_or_engine_is_refused(people: Any, make: Any, tmp_path: Path) -> None:
    fit_and_die_after_save(moments_model(make), people, tmp_path / "run", saves=3)
    for changes in ({"plan": replace(PLAN, ridge=0.5)}, {"engine": "pf-ld", "plan": None}):
        with pytest.raises(ValueError, match="belongs to a run with other data or settings"):
            fit(moments_model(make, **changes), people, tmp_path / "run")
