"""A run that dies and resumes: the same trajectory, no question twice, no debit lost."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checkpoints import RELEASES, fit, journal

from dying import fit_and_die, fit_and_die_after_save
from justitia import PFLDAsPublishedPlan
from justitia.privacy.ledger import BudgetExceeded


def test_fit_with_checkpoint_equals_fit_without(people: Any, make: Any, tmp_path: Path) -> None:
    with_folder, without = fit(make(), people, tmp_path / "run"), fit(make(), people, None)
    assert np.array_equal(with_folder.decision_function(people.X), without.decision_function(people.X))
    assert with_folder.certificate_ == without.certificate_
    assert journal(tmp_path / "run", with_folder) == RELEASES


@pytest.mark.parametrize("saves", [1, 2, 3, 4, 5])
def test_resume_after_a_save_continues_the_same_trajectory(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], saves: int
) -> None:
    fit_and_die_after_save(make(), people, tmp_path / "run", saves=saves)
    resumed = fit(make(), people, tmp_path / "run")
    assert noise_numbers == list(range(7))
    whole = fit(make(), people, None)
    assert np.array_equal(resumed.decision_function(people.X), whole.decision_function(people.X))
    pd.testing.assert_frame_equal(resumed.history_, whole.history_, check_exact=True)
    pd.testing.assert_frame_equal(resumed.dual_, whole.dual_, check_exact=True)
    assert resumed.certificate_ == whole.certificate_


@pytest.mark.parametrize("at", [2, 3, 4, 5, 6, 7])
def test_resume_after_a_lost_answer_keeps_the_debit_and_asks_the_rest(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], at: int
) -> None:
    model, folder = make(), tmp_path / "run"
    fit_and_die(model, people, folder, at=at, answered=True)
    assert journal(folder, model) == RELEASES[:at]
    assert not hasattr(model, "module_")
    fit(model, people, folder)
    assert journal(folder, model) == RELEASES
    assert Counter(model.ledger_.costs()) == model.plan_.costs()
    # Without the first violation all multipliers are 0, and so is what a person can move: that answer needs no noise.
    assert noise_numbers == [number for number in range(7) if (at, number) != (2, 2)]
    assert model.certificate_.epsilon == pytest.approx(8.0, abs=1e-6)
    assert np.isfinite(model.decision_function(people.X)).all()


@pytest.mark.parametrize("at", [2, 3, 5, 7])
def test_resume_after_dying_before_the_debit_equals_the_whole_run(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int], at: int
) -> None:
    model, folder = make(), tmp_path / "run"
    fit_and_die(model, people, folder, at=at, answered=False)
    assert journal(folder, model) == RELEASES[: at - 1]
    fit(model, people, folder)
    assert journal(folder, model) == RELEASES
    assert noise_numbers == list(range(7))
    whole = fit(make(), people, None)
    assert np.array_equal(model.decision_function(people.X), whole.decision_function(people.X))


def test_resume_after_two_deaths_asks_nothing_twice(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    model, folder = make(), tmp_path / "run"
    fit_and_die(model, people, folder, at=3, answered=True)
    fit_and_die(model, people, folder, at=2, answered=True)
    fit(model, people, folder)
    assert journal(folder, model) == RELEASES
    assert noise_numbers == list(range(7))


def test_resume_after_a_lost_answer_and_a_death_right_after_resuming_asks_nothing_twice(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    """The state is the one from before the lost answer, and must go on to say so."""
    model, folder = make(), tmp_path / "run"
    fit_and_die(model, people, folder, at=2, answered=True)
    fit_and_die_after_save(model, people, folder, saves=1)
    fit(model, people, folder)
    assert journal(folder, model) == RELEASES
    assert noise_numbers == [0, 1, 3, 4, 5, 6]  # all multipliers are 0 in the round of number 2


def test_resume_run_that_died_at_its_first_question_is_refused(people: Any, make: Any, tmp_path: Path) -> None:
    model, folder = make(), tmp_path / "run"
    fit_and_die(model, people, folder, at=1, answered=True)
    with pytest.raises(BudgetExceeded, match="stopped before its first answer was saved, and the debit stands"):
        fit(model, people, folder)
    assert journal(folder, model) == ["group sizes"]


def test_resume_finished_run_asks_nothing_and_gives_the_same_model(
    people: Any, make: Any, tmp_path: Path, noise_numbers: list[int]
) -> None:
    first = fit(make(), people, tmp_path / "run")
    again = fit(make(), people, tmp_path / "run")
    assert len(noise_numbers) == 7
    assert journal(tmp_path / "run", again) == RELEASES
    assert np.array_equal(again.decision_function(people.X), first.decision_function(people.X))
    assert again.certificate_ == first.certificate_
    pd.testing.assert_frame_equal(again.history_, first.history_, check_exact=True)


def test_resume_without_random_state_goes_on_from_the_saved_weights(people: Any, make: Any, tmp_path: Path) -> None:
    fit_and_die_after_save(make(random_state=None), people, tmp_path / "run", saves=2)
    model = fit(make(random_state=None), people, tmp_path / "run")
    assert journal(tmp_path / "run", model) == RELEASES


@pytest.mark.parametrize("engine", ["pf-ld", "pf-ld-as-published"])
def test_resume_without_noise_equals_the_whole_run(people: Any, make: Any, tmp_path: Path, engine: str) -> None:
    plans = {"pf-ld": make().plan, "pf-ld-as-published": PFLDAsPublishedPlan(epochs=3, batch_size=64)}
    usual = {"epsilon": math.inf, "engine": engine, "plan": plans[engine], "noise_seed": None}
    fit_and_die_after_save(make(**usual), people, tmp_path / "run", saves=2)
    resumed = fit(make(**usual), people, tmp_path / "run")
    whole = fit(make(**usual), people, None)
    assert np.array_equal(resumed.decision_function(people.X), whole.decision_function(people.X))


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 9.0},
        {"tolerance": 0.1},
        {"notion": "equalized_odds"},
        {"groups": ["m", "f"]},
        {"module": [3]},
        {"noise_seed": None},
        {"missing_marker": "?"},
        {"engine": "pf-ld-as-published", "plan": PFLDAsPublishedPlan(epochs=1)},
    ],
    ids=str,
)
def test_resume_folder_of_another_run_is_refused(people: Any, make: Any, tmp_path: Path, changes: Any) -> None:
    folder = tmp_path / "run"
    fit_and_die_after_save(make(), people, folder, saves=2)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    model = make(**changes)
    with pytest.raises(ValueError, match="belongs to a run with other data or settings; choose another") as caught:
        fit(model, people, folder)
    assert "\n" not in str(caught.value)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert not hasattr(model, "classes_")


def test_resume_with_other_people_is_refused(people: Any, make: Any, tmp_path: Path) -> None:
    fit_and_die_after_save(make(), people, tmp_path / "run", saves=2)
    with pytest.raises(ValueError, match="other data or settings"):
        make().fit(people.X[::-1], people.y, sensitive_features=people.a, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="other data or settings"):
        make().fit(people.X, 1 - people.y, sensitive_features=people.a, checkpoint=tmp_path / "run")


def test_resume_with_other_ids_is_refused_and_with_renamed_ones_goes_on(people: Any, make: Any, tmp_path: Path) -> None:
    """A promise to persons needs one meaning of person from the first answer to the last."""
    n = len(people.X)
    pairs, given = [i // 2 for i in range(n)], {"sensitive_features": people.a, "checkpoint": tmp_path / "run"}
    make().fit(people.X, people.y, person=pairs, **given)
    for ids in (None, [i % (n // 2) for i in range(n)]):
        with pytest.raises(ValueError, match="other data or settings"):
            make().fit(people.X, people.y, person=ids, **given)
    renamed = make().fit(people.X, people.y, person=[f"person {one}" for one in pairs], **given)
    assert renamed.certificate_.unit == "person"


def test_checkpoint_files_hold_neither_labels_nor_a_hash_of_them(people: Any, make: Any, tmp_path: Path) -> None:
    """Same noise, two attributes that differ: the fingerprint must not."""
    labels = people.a.astype(object)
    labels[3] = "zanzibar-7319"
    make().fit(people.X, people.y, sensitive_features=labels, checkpoint=tmp_path / "run")
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == ["ledger.jsonl", "state.npz"]
    assert all(b"zanzibar" not in file.read_bytes() for file in (tmp_path / "run").iterdir())
    resumed = make().fit(people.X, people.y, sensitive_features=people.a, checkpoint=tmp_path / "run")
    assert len(resumed.ledger_.releases) == 7
