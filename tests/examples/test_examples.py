"""The tutorials run as they are, print tables that make sense, and draw pictures; the site shows each of them."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from scripts import run_script

ROOT = Path(__file__).parents[2]
#: Tutorials that draw a picture; other examples have tests of their own.
SCRIPTS = [
    path for path in sorted((ROOT / "examples").glob("*.py")) if "\nfrom pictures import" in path.read_text("utf-8")
]
PAGE = (ROOT / "docs" / "tutorials.md").read_text(encoding="utf-8")
#: Rows of the printed tables: a name, then numbers.
ROW = re.compile(r"^(\w[\w ,.%-]*?) {2,}(-?\d.*)$", re.MULTILINE)


@cache
def run(script: str, folder: Path) -> tuple[str, Path]:
    """What a script printed, and its picture."""
    picture = folder / f"{script}.png"
    return run_script(ROOT / "examples" / f"{script}.py", "--picture", str(picture), folder=folder), picture


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


def table(printed: str) -> dict[str, list[float]]:
    """The numbers of each printed row, by its name."""
    return {name: [float(one) for one in re.findall(r"-?\d+\.\d+", rest)] for name, rest in ROW.findall(printed)}


@pytest.mark.parametrize("script", [path.stem for path in SCRIPTS])
def test_tutorial_runs_prints_finite_numbers_and_draws_a_picture(script: str, folder: Path) -> None:
    printed, picture = run(script, folder)
    rows = table(printed)
    assert len(rows) >= 2
    assert "nan" not in printed
    pixels = image.imread(picture)
    assert pixels.shape[0] > 200
    assert pixels.shape[1] > 400
    assert np.unique(pixels[..., :3].reshape(-1, 3), axis=0).shape[0] > 20


def test_income_private_model_violates_less_than_the_plain_one_at_a_small_loss_of_accuracy(folder: Path) -> None:
    rows = table(run("income", folder)[0])
    # accuracy, women, men, violation, lower, upper
    plain, fair = rows["not corrected"], rows["justitia, default"]
    assert fair[5] < plain[4]
    assert fair[0] > plain[0] - 0.05


def test_occupation_corrected_classes_differ_less_at_a_small_loss_of_accuracy(folder: Path) -> None:
    rows = table(run("occupation", folder)[0])
    # accuracy, violation, lower, upper
    before, after = rows["not corrected"], rows["justitia, epsilon 1"]
    assert after[3] < before[2]
    assert after[0] > before[0] - 0.05


def test_hours_corrected_predictions_have_nearer_distributions_and_keep_most_of_the_fit(folder: Path) -> None:
    rows = table(run("hours", folder)[0])
    # R2, women, men, distance, lower, upper, difference of means with bounds
    before, after = rows["not corrected"], rows["justitia, epsilon 1"]
    assert after[5] < before[4]
    assert after[0] > before[0] - 0.1
    assert abs(after[2] - after[1]) < abs(before[2] - before[1])


def test_fairlearn_and_our_metrics_agree_in_the_printed_table(folder: Path) -> None:
    rows = table(run("fairlearn_side_by_side", folder)[0])
    for name in ("logistic regression", "fairlearn reduction", "justitia, epsilon 1"):
        assert rows[name][1] == rows[name][2]


def test_pipeline_spends_within_its_budget_and_is_refused_after_it(folder: Path) -> None:
    printed = run("pipeline_routing", folder)[0]
    spent = [numbers[-1] for name, numbers in table(printed).items() if name.startswith("fold")]
    assert spent == sorted(spent)
    assert spent[-1] <= 1.4
    assert "One more fit: 'this plan' would bring epsilon to" in printed


@pytest.mark.parametrize("script", [path.stem for path in SCRIPTS])
def test_tutorial_is_on_the_page_with_its_output_and_a_small_picture(script: str) -> None:
    assert f"../examples/{script}.py" in PAGE
    assert f"pictures/{script}.txt" in PAGE
    assert f"(pictures/{script}.png)" in PAGE
    assert 5_000 < (ROOT / "docs" / "pictures" / f"{script}.png").stat().st_size < 100_000
