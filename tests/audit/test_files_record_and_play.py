"""Record and play on rows in files, of which a public sample is in memory: one label changed, to odd values as well."""

from pathlib import Path
from typing import Any

import pytest
from recording import largest_movements, make_people, problems, run

from justitia import MomentsPlan, PostProcessingPlan
from justitia.preprocessing import public_sample

PLANS: dict[str, Any] = {
    "post-processing": PostProcessingPlan(checks=2),
    "moments": MomentsPlan(warmup_steps=20, rounds=4, public_steps=2, checks=2, batch_size=64, penalty=0.02),
}
#: A person, and what their label becomes.
CHANGES = ((4, "b"), (5, None), (11, ""), (12, "b\x00"), (13, "no group" * 1000))


@pytest.mark.parametrize("sample", [100, 1000], ids=["a sample", "everybody"])
@pytest.mark.parametrize("engine", ["post-processing", "moments"])
def test_fit_on_files_with_one_label_changed_differs_in_exact_answers_only_and_within_the_ledger(
    engine: str, sample: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_sample, "SAMPLE", sample)
    people = make_people(2, missing=True)
    options: dict[str, Any] = {"engine": engine, "plan": PLANS[engine], "stored": tmp_path / "people.parquet"}
    options |= {"notion": "equalized_odds"}
    first = run(people, **options)
    assert first.public["purposes"] == ["moments", "decisions", "decisions"]
    moved = 0.0
    for person, label in CHANGES:
        before = people.labels[person]
        second = run(people.with_label(person, "a" if label == before else label), answers=first.noisy, **options)
        assert problems(first, second) == []
        moved = max(moved, *largest_movements(first, second).values())
    assert moved > 0.3  # the runs did differ inside the boundary
