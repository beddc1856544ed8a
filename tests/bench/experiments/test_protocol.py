"""Folds, missing attributes, measures and the command line, on synthetic rows instead of downloads."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from fake_fits import MEASURES, cells, fit, fit_or_fail
from torch import nn

from bench.experiments import __main__ as command
from bench.experiments import clipping_figures, folds, theorems
from bench.experiments.experiment import Experiment
from bench.experiments.paper import NOTIONS
from bench.experiments.runner import Cell
from justitia.datasets import DatasetUnavailable, make_synthetic
from justitia.datasets.dataset import Dataset
from justitia.networks.pf_ld_as_published.plan import PFLDAsPublishedPlan
from justitia.notions import get_notion


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    made = make_synthetic(400, random_state=0)
    monkeypatch.setattr(folds, "dataset", lambda name: made)
    monkeypatch.setattr(theorems, "dataset", lambda name: made)
    return made


def test_rows_of_five_folds_cover_every_row_once(data: Dataset) -> None:
    tests = [folds.rows_of(cell, data)[1] for cell in cells(5)]
    assert sorted(np.concatenate(tests).tolist()) == list(range(400))


def test_rows_of_an_inner_split_never_touch_the_first_test_fold(data: Dataset) -> None:
    outside = set(folds.rows_of(cells(1)[0], data)[1].tolist())
    inner = [folds.rows_of(cell, data) for cell in cells(4, split="inner")]
    for train, test in inner:
        assert not outside & {*train.tolist(), *test.tolist()}
        assert not set(train.tolist()) & set(test.tolist())
    assert sum(len(test) for _, test in inner) == 320


def test_paper_features_are_one_number_each_and_know_no_label_of_a_test_row(data: Dataset) -> None:
    words = pd.Series(np.where(data.y > 0, "yes", "no")).where(np.arange(400) % 4 > 0, "either")
    mixed = replace(data, X=data.X.assign(word=words.to_numpy()))
    train, test = np.arange(0, 300), np.arange(300, 400)
    made = folds.paper_features(mixed, train)
    assert list(made.X) == list(mixed.X)
    assert all(pd.api.types.is_numeric_dtype(made.X[name]) for name in made.X)
    by_word = made.X["word"].iloc[test].groupby(words.iloc[test].to_numpy()).agg(["min", "max"])
    assert (by_word["min"] == by_word["max"]).all()
    assert by_word.loc["yes", "max"] > 0.95
    assert by_word.loc["no", "max"] < 0.05
    changed = replace(mixed, y=mixed.y.where(np.arange(400) < 300, 1 - mixed.y))
    assert folds.paper_features(changed, train).X.equals(made.X)
    assert folds.paper_features(data, train) is data


def test_paper_features_keep_a_training_row_out_of_its_own_number(data: Dataset) -> None:
    names = [f"level {i}" for i in range(400)]
    made = folds.paper_features(replace(data, X=data.X.assign(word=names)), np.arange(300))
    seen = made.X["word"].iloc[:300]
    assert abs(np.corrcoef(seen, data.y.iloc[:300])[0, 1]) < 0.5


def test_with_missing_hides_the_share_in_training_rows_only(data: Dataset) -> None:
    train = np.arange(0, 200)
    hidden = folds.with_missing(data, train, 0.4, seed=0).sensitive.isna()
    assert (hidden[:200].sum(), hidden[200:].sum()) == (80, 0)
    assert folds.with_missing(data, train, 0.0, seed=0) is data


def test_measure_of_the_printed_method_has_both_the_claim_and_the_honest_epsilon(data: Dataset) -> None:
    settings = {"epochs": 1, "lambda_max": 0.01}
    cell = Cell("toy", "bank", "demographic_parity", "PF-LD printed", 0, settings=settings)
    found = folds.measure(cell)
    assert set(found) == set(folds.MEASURES)
    assert found["epsilon_spent"] == math.inf
    assert found["epsilon_claimed"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("method", ["PF-LD repaired", "DP-FERMI", "RaCO-DP"])
@pytest.mark.parametrize("notion", NOTIONS)
def test_measure_of_a_private_cell_is_the_same_again_because_its_noise_is_seeded(
    notion: str, method: str, data: Dataset
) -> None:
    settings = {"warmup_steps": 5, "private_steps": 3, "public_steps": 2}
    cell = Cell("toy", "bank", notion, method, 0, settings=settings)
    found = folds.measure(cell)
    assert found["epsilon_spent"] == pytest.approx(1.0, abs=1e-3)
    assert math.isnan(found["epsilon_claimed"])
    first, second = ([one[name] for name in ("accuracy", "violation")] for one in (found, folds.measure(cell)))
    assert first == second


def test_clipped_shares_of_an_enormous_bound_are_zero_and_of_a_tiny_one_everything(data: Dataset) -> None:
    settings = {"warmup_steps": 5, "private_steps": 2, "public_steps": 1}
    for bound, share in ((1e9, 0.0), (1e-9, 1.0)):
        cell = Cell("c_p", "bank", "demographic_parity", "PF-LD repaired", 0, settings=settings | {"clip": bound})
        assert json.loads(clipping_figures.measure_clipped(cell)["clipped"]) == {"a": share, "b": share}


def test_gradient_norms_of_a_linear_score_are_those_by_hand() -> None:
    module = nn.Linear(1, 1)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.zero_()
    X, y = np.array([[1.0], [3.0]], dtype=np.float32), np.array([0.0, 1.0], dtype=np.float32)
    notion = get_notion("demographic_parity")
    # sigmoid'(0) = 1/4, score gradient (x, 1); the mean row is (2, 1) / 4
    plain = clipping_figures.gradient_norms(module, X, y, notion, centred=False)
    assert plain.tolist() == pytest.approx([math.sqrt(2) / 4, math.sqrt(10) / 4])
    assert clipping_figures.gradient_norms(module, X, y, notion, centred=True).tolist() == pytest.approx(
        [0.25, 0.25], rel=1e-3
    )


@pytest.mark.parametrize("theorem", theorems.THEOREMS)
def test_error_without_clipping_is_the_noise_alone(
    theorem: str, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theorems, "make_setting", theorems.make_setting.__wrapped__)
    monkeypatch.setattr(theorems, "calibrated", lambda epsilon, n: PFLDAsPublishedPlan())
    made = [
        theorems.measure_error(
            Cell("theorems", "bank", "demographic_parity", theorem, 0, settings={"C": C, "sigma": 0.05})
        )
        for C in (50.0, 100.0)
    ]
    # No gradient and no h is as long as 50: error and bound are both proportional to C.
    assert made[1]["measured"] == pytest.approx(2 * made[0]["measured"], rel=0.2)
    assert made[1]["bound"] == pytest.approx(2 * made[0]["bound"], rel=1e-6)
    assert made[0]["holds"] == made[1]["holds"] == 1.0


def test_below_is_false_for_a_mean_far_above_the_bound() -> None:
    errors = torch.tensor([1.0, 1.1, 0.9, 1.0])
    assert theorems._below(errors, 0.95)
    assert not theorems._below(errors, 0.5)


# ------------------------------------------------------------------ the command line


def toy(work: Any) -> Experiment:
    def publish(results: pd.DataFrame, folder: Path) -> str:
        return f"{len(results)} rows"

    return Experiment("toy", lambda *, quick: cells(1 if quick else 3), publish, work=work, measures=MEASURES)


@pytest.fixture
def toy_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command.EXPERIMENTS, "toy", toy(fit))
    monkeypatch.setattr(command, "dataset", lambda name: SimpleNamespace())


def test_command_run_twice_fits_once_and_records_one_run(
    toy_command: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert command.main(["toy", "--jobs", "1", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.out == "3 rows\n3 rows\n"
    assert "toy: 3 cells, 0 of them done" in told.err
    assert "toy: 3 cells, 3 of them done" in told.err
    assert [one["cells_fitted"] for one in json.loads((tmp_path / "toy.json").read_text())["runs"]] == [3]


def test_command_with_a_failed_cell_ends_with_one_and_says_so(
    toy_command: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(command.EXPERIMENTS, "toy", toy(fit_or_fail))
    assert command.main(["toy", "--jobs", "1", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "2 rows\n" in told.out
    assert told.err.endswith("1 of 3 cells failed; the same command tries them again.\n")


def test_command_without_the_dataset_says_one_sentence(
    toy_command: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(name: str) -> None:
        raise DatasetUnavailable(f"{name} cannot be had; connect or pass a folder.")

    monkeypatch.setattr(command, "dataset", unavailable)
    assert command.main(["toy", "--jobs", "1", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("bank cannot be had; connect or pass a folder.") == 1


def test_command_stopped_by_hand_ends_quietly(
    toy_command: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(cell: Cell) -> dict[str, float]:
        raise KeyboardInterrupt

    monkeypatch.setitem(command.EXPERIMENTS, "toy", toy(stop))
    assert command.main(["toy", "--jobs", "1", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.endswith("Stopped; the same command continues from here.\n")


def test_command_quick_writes_apart_from_the_committed_results(
    toy_command: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "QUICK", tmp_path / "quick")
    monkeypatch.setattr(command, "RESULTS", tmp_path / "committed")
    assert command.main(["toy", "--quick", "--jobs", "1"]) == 0
    assert (tmp_path / "quick" / "toy.csv").exists()
    assert not (tmp_path / "committed").exists()


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_command_with_an_impossible_number_of_processes_is_refused(
    jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(["table2", f"--jobs={jobs}"])
    assert f"expected a number of processes of at least 1, got '{jobs}'." in capsys.readouterr().err


def test_redraw_fills_the_page_without_fitting(toy_command: None, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- results: toy -->\n<!-- end of results -->\n")
    command.main(["toy", "--jobs", "1", "--out", str(tmp_path)])
    command.redraw(tmp_path, [page])
    assert "Data: [`results/toy.csv`](./toy.csv). Made by `python -m bench.experiments toy`" in page.read_text()
