"""Record and play for the command line: output and files depend on the attribute through noised answers alone."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from recording import Player, Recorder

from justitia.cli import cli
from justitia.datasets import make_synthetic
from justitia.privacy.arrays import Array
from justitia.training.same_rows import FITS

N = 240
PLAN = "warmup_steps = 5\nrounds = 4\npublic_steps = 1\nchecks = 2\nbatch_size = 64\n"
GROUPS = ("Female", "Male")
COMMON = ["--target", "y", "--groups", "Female,Male", "--seed", "3", "--plan", "plan.toml", "--hidden", "4"]
COMMANDS = {
    "train": ["train", "data.csv", *COMMON, "--epsilon", "4", "--out", "out"],
    "tradeoff": ["tradeoff", "data.csv", *COMMON, "--tolerances", "0,0.1", "--choose", "0.2", "--out", "out"],
    "evaluate": ["evaluate", "model", "data.csv", "--below", "0.2", "--scores", "--out", "out.json"],
    "measure": ["measure", "data.csv", "--decision", "y", "--score", "x1", "--groups", "Female,Male", "--csv", "a.csv"],
}
#: Clocks and names of runs are not about people.
TIME = "2026-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class Outcome:
    """All that one command made public, and the answers under and over its noise."""

    code: int
    stdout: str
    stderr: str
    files: dict[str, bytes]
    exact: tuple[Array, ...]
    noisy: tuple[Array, ...]


def labels_of(**changes: Any) -> list[str]:
    people = make_synthetic(N, groups=GROUPS, n_features=3, random_state=1)
    labels = ["" if row % 7 == 0 else str(label) for row, label in enumerate(people.sensitive)]
    return [changes.get(f"p{row}", label) for row, label in enumerate(labels)]


def write_files(folder: Path, labels: Sequence[str], *, apart: bool) -> list[str]:
    """The table, with the attribute in it or in a second file; the options that say where it is."""
    data = make_synthetic(N, groups=GROUPS, n_features=3, random_state=1)
    public = pd.concat([pd.Series([f"p{row}" for row in range(N)], name="id"), data.X, data.y], axis=1)
    (folder / "plan.toml").write_text(PLAN)
    if apart:
        public.to_csv(folder / "data.csv", index=False)
        secret = pd.DataFrame({"id": public["id"], "sex": list(labels)})[::-1]
        secret.to_csv(folder / "secret.csv", index=False)
        return ["--sensitive-file", "secret.csv", "--key", "id"]
    public.drop(columns="id").assign(sex=list(labels)).to_csv(folder / "data.csv", index=False)
    return ["--sensitive", "sex"]


def run(
    folder: Path, command: str, labels: Sequence[str], *, apart: bool, answers: Sequence[Array] | None = None
) -> Outcome:
    """One command in a fresh folder; with ``answers`` it receives those instead of noised answers of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    where = write_files(folder, labels, apart=apart)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("justitia.cli.files.metadata.now", lambda: TIME)
        if command == "evaluate":
            patch.setattr("justitia.privacy.vault.SystemNoise", Recorder)  # the same model for all: of other people
            trained = run_words(["train", "data.csv", *COMMON, *where, "--out", "model"], labels_of(), folder, apart)
            assert trained.exit_code == 0, trained.output
            write_files(folder, labels, apart=apart)
        source = Recorder() if answers is None else Player(answers)
        FITS.forget()  # no run is warned of an earlier one
        patch.setattr("justitia.privacy.vault.SystemNoise", lambda: source)
        result = CliRunner().invoke(cli, [*COMMANDS[command], *where], terminal_width=80)
    inputs = {"data.csv", "secret.csv"}
    files = {
        one.relative_to(folder).as_posix(): one.read_bytes()
        for one in sorted(folder.rglob("*"))
        if one.is_file() and one.name not in inputs
    }
    return Outcome(result.exit_code, result.stdout, result.stderr, files, tuple(source.exact), tuple(source.noisy))


def run_words(words: list[str], labels: Sequence[str], folder: Path, apart: bool) -> Any:
    write_files(folder, labels, apart=apart)
    return CliRunner().invoke(cli, words, terminal_width=80)


def public(outcome: Outcome) -> tuple[Any, ...]:
    shapes = [tuple(answer.shape) for answer in outcome.exact]
    return outcome.code, outcome.stdout, outcome.stderr, outcome.files, shapes


@pytest.mark.parametrize("apart", [False, True], ids=["one file", "two files"])
@pytest.mark.parametrize("command", list(COMMANDS))
def test_command_with_other_labels_and_the_same_answers_says_and_writes_the_same(
    tmp_path: Path, command: str, apart: bool
) -> None:
    first = run(tmp_path / "run", command, labels_of(), apart=apart)
    assert first.code in {0, 4}, first.stderr
    assert len(first.files) > 1
    everybody = [f"p{row}" for row in range(N)]
    others = [
        labels_of(p1="Male", p2="Female", p3=""),
        labels_of(p5="no such group"),
        labels_of(**dict.fromkeys(everybody, "")),
        labels_of(**dict.fromkeys(everybody, "Male")),
        labels_of(**dict.fromkeys(everybody, 'odd, "quoted"; 1e999')),
    ]
    for labels in others:
        second = run(tmp_path / "run", command, labels, apart=apart, answers=first.noisy)
        assert public(second) == public(first)
        assert any(not np.array_equal(one, other) for one, other in zip(first.exact, second.exact, strict=True))


def test_person_without_a_row_in_the_second_file_is_like_one_without_an_entry(tmp_path: Path) -> None:
    first = run(tmp_path / "run", "train", labels_of(p1=""), apart=True)

    def shorter(folder: Path, labels: Sequence[str], *, apart: bool) -> list[str]:
        words = sound(folder, labels, apart=apart)
        secret = pd.read_csv(folder / "secret.csv")
        secret[secret["id"] != "p1"].to_csv(folder / "secret.csv", index=False)
        return words

    sound = write_files
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "write_files", shorter)
        second = run(tmp_path / "run", "train", labels_of(), apart=True, answers=first.noisy)
    assert public(second) == public(first)
    assert all(np.array_equal(one, other) for one, other in zip(first.exact, second.exact, strict=True))


def test_labels_are_in_no_file_and_no_line_of_output(tmp_path: Path) -> None:
    """The group names are public; the label that nobody listed stays where it was."""
    secret = "Zzyzx-7f3a"
    outcome = run(tmp_path / "run", "train", labels_of(p1=secret, p2=secret), apart=True)
    assert outcome.code == 0
    assert secret not in outcome.stdout + outcome.stderr
    assert not [name for name, content in outcome.files.items() if secret.encode() in content]


def test_comparison_finds_a_command_that_counts_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above is able to fail."""
    train = import_module("justitia.cli.training")
    sound = train.training_metadata

    def leaky(model: Any, people: Any, **rest: Any) -> dict[str, Any]:
        return sound(model, people, **rest) | {"given": int(pd.notna(people.sensitive.reveal_entries()[1][0]).sum())}

    monkeypatch.setattr(train, "training_metadata", leaky)
    first = run(tmp_path / "run", "train", labels_of(), apart=False)
    second = run(tmp_path / "run", "train", labels_of(p1=""), apart=False, answers=first.noisy)
    assert public(second) != public(first)
