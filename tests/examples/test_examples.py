"""The tutorials run cell by cell, show what they promise and draw pictures; the site lists each of them."""

import ast
import contextlib
import io
import json
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sphinx_gallery.notebook import jupyter_notebook
from sphinx_gallery.py_source_parser import split_code_and_text_blocks

ROOT = Path(__file__).parents[2]
#: Tutorials have cells; other examples have tests of their own.
TUTORIALS = {
    path.stem: path for path in sorted((ROOT / "examples").glob("*.py")) if "\n# %%\n" in path.read_text("utf-8")
}
PAGE = (ROOT / "docs" / "tutorials.md").read_text(encoding="utf-8")


class Ran:
    """A tutorial that was run: its names, what it printed, the forms of its cells, and the number of its pictures."""

    def __init__(self, path: Path) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.forms: list[str] = []
        printed = io.StringIO()
        plt.close("all")
        with (
            warnings.catch_warnings(),
            mpl.rc_context({"backend": "Agg"}),
            sklearn.config_context(),
            torch.random.fork_rng(devices=[]),
            contextlib.redirect_stdout(printed),
        ):
            warnings.simplefilter("ignore")  # what a tutorial warns of is its own affair
            for kind, source, line in split_code_and_text_blocks(str(path))[1]:
                if kind == "code":
                    self._run(source, path, line)
            self.pictures = len(plt.get_fignums())
            plt.close("all")
        self.printed = printed.getvalue()

    def _run(self, source: str, path: Path, line: int) -> None:
        """One cell; if its last line is an expression, the object shows itself as a notebook would show it."""
        tree = ast.parse(source)
        ast.increment_lineno(tree, line - 1)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path, "exec"), self.names)
        if last is not None:
            assert isinstance(last, ast.Expr)
            value = eval(compile(ast.Expression(last.value), path, "eval"), self.names)
            form = getattr(value, "_repr_html_", None)
            self.forms += [] if form is None else [form()]


@cache
def run(name: str) -> Ran:
    return Ran(TUTORIALS[name])


@pytest.mark.parametrize("name", list(TUTORIALS))
def test_tutorial_runs_shows_finite_numbers_and_draws_a_picture(name: str) -> None:
    ran = run(name)
    assert ran.pictures >= 1
    table = ran.names.get("table", pd.DataFrame([1.0]))
    assert np.isfinite(table.to_numpy(dtype=float)).all()
    assert "nan" not in ran.printed
    assert ran.forms


def test_every_display_is_shown_and_drawn() -> None:
    ran = run("displays")
    shown = [
        "sk-top-container",
        "rows are in price_",
        "differentially private",
        "before the correction",
        "Impact ratio",
    ]
    shown += ["is spent", "models along a curve"]
    assert [any(words in form for form in ran.forms) for words in shown] == [True] * len(shown)
    assert sum("<svg" in form for form in ran.forms) >= 7
    assert ran.pictures == 5


def test_income_corrected_model_has_a_smaller_gap_at_a_small_loss_of_accuracy() -> None:
    table = run("income").names["table"]
    assert table.loc["corrected", "at most"] < table.loc["not corrected", "at least"]
    assert table.loc["corrected", "accuracy"] > table.loc["not corrected", "accuracy"] - 0.05


def test_occupation_corrected_classes_differ_less_at_a_small_loss_of_accuracy() -> None:
    table = run("occupation").names["table"]
    assert table.loc["corrected", "at most"] < table.loc["not corrected", "at least"]
    assert table.loc["corrected", "accuracy"] > table.loc["not corrected", "accuracy"] - 0.05


def test_hours_corrected_predictions_have_nearer_distributions_and_keep_most_of_the_fit() -> None:
    table = run("hours").names["table"]
    before, after = table.loc["not corrected"], table.loc["corrected"]
    assert after["at most"] < before["at least"]
    assert after["R2"] > before["R2"] - 0.1
    assert abs(after["men"] - after["women"]) < abs(before["men"] - before["women"])


def test_fairlearn_and_our_metrics_agree() -> None:
    table = run("fairlearn_side_by_side").names["table"]
    assert table["fairlearn"].to_numpy() == pytest.approx(table["justitia"].to_numpy())


def test_pipeline_spends_within_its_budget_and_is_refused_after_it() -> None:
    names = run("pipeline_routing").names
    spent = names["table"]["epsilon so far"].tolist()
    assert spent == sorted(spent)
    assert spent[-1] <= 1.4
    assert "'this plan' would bring epsilon to" in names["refusal"]


@pytest.mark.parametrize("name", list(TUTORIALS))
def test_tutorial_is_on_the_page_and_needs_no_other_file(name: str) -> None:
    assert f"tutorials/{name}\n" in PAGE
    assert f"images/sphx_glr_{name}_00" in PAGE
    imported = set(re.findall(r"^(?:from|import) (\w+)", TUTORIALS[name].read_text("utf-8"), re.MULTILINE))
    assert not imported & {path.stem for path in (ROOT / "examples").glob("*.py")}


@pytest.mark.parametrize("name", list(TUTORIALS))
def test_notebook_to_download_has_the_cells_of_the_tutorial(name: str) -> None:
    blocks = split_code_and_text_blocks(str(TUTORIALS[name]))[1]
    settings = {
        "first_notebook_cell": None,
        "last_notebook_cell": None,
        "pypandoc": False,
        "promote_jupyter_magic": False,
        "notebook_images": False,
        "backreferences_dir": None,
    }
    notebook = jupyter_notebook(blocks, settings, str(ROOT / "examples"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # The tests above run these blocks: who runs the notebook runs the same code in the same cells.
    sources = [source.strip() for kind, source, _ in blocks if kind == "code"]
    assert ["".join(cell["source"]).strip() for cell in cells] == sources
    assert len(cells) >= 3
    assert json.dumps(notebook)
