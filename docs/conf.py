"""The documentation site: ``make docs``. Warnings are errors, and nothing is fetched, at build time or when read."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import justitia

HERE = Path(__file__).parent

project = "Justitia"
author = "the Justitia authors"
release = version = justitia.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]

# Markdown: headings are link targets under the names that code hosts give them.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# The reference: docstrings say types in words, so annotations are not repeated in signatures.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# One page per object, in docs/api/. Members that a class has from its base are listed here, the others are found.
_ESTIMATOR = "fit, predict, {}base_{}, save, load"
autosummary_context = {
    "shown": {
        "justitia.LagrangianDualClassifier": _ESTIMATOR.format("predict_proba, decision_function, ", "proba"),
        "justitia.LagrangianDualRegressor": _ESTIMATOR.format("", "predict"),
        "justitia.MomentsPlan": "calibrate, releases, check_rounds",
        "justitia.PFLDPlan": "calibrate, releases",
        "justitia.RowFiles": "open, check, blocks",
        "justitia.PFLDAsPublishedPlan": "calibrate, releases",
        "justitia.PostProcessingPlan": "calibrate, releases",
    }
}
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Guarantee"]

nitpick_ignore_regex = [
    # Types in docstrings are words ("ndarray (n,)"), which napoleon takes for names; our own full names are checked.
    ("py:class", r"(?!justitia\.).*"),
    # Modules and helpers that docstrings name and the reference leaves out.
    ("py:mod", r"justitia\.(privacy\.selection|postprocessing(\.levels)?|networks)"),
    ("py:func", r"best_weights|visible_share"),
]

html_theme = "furo"
html_title = "Justitia"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_theme_options = {"light_logo": "logo.svg", "dark_logo": "logo-dark.svg"}
_URLS = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
if "Repository" in _URLS:
    _ICON = "<svg viewBox='0 0 16 16'><path fill='currentColor' d='M2 2h9v12H2zM12 4h2v12H5v-1h7z'/></svg>"
    html_theme_options["footer_icons"] = [{"name": "Repository", "url": _URLS["Repository"], "html": _ICON}]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"


def _mathml(tex: str, *, as_block: bool) -> str:
    r"""MathML of a formula; ``\big`` and its relatives, which docutils does not know, only set a size."""
    found: str = tex2mathml(re.sub(r"\\[bB]igg?[lrm]?(?![a-zA-Z])", "", tex), as_block=as_block)
    return found


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def _first_line_is_text(_app: Any, what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """A property's first line with a colon in it is a sentence; napoleon would read a type before the colon."""
    if what in {"attribute", "data", "property"}:
        lines.insert(0, "")


def setup(app: Any) -> None:
    """Formulas become MathML, which browsers draw themselves: no script from elsewhere."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("autodoc-process-docstring", _first_line_is_text, priority=400)


# Tutorials: examples/*.py run here, cell by cell; each becomes a page, a notebook and a script to download.
sys.path.insert(0, str(HERE))  # for tutorial_setup
sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "../examples",
    "gallery_dirs": "tutorials",
    # gridsearch_with_ledger.py and lender.py are scripts that other pages describe.
    "ignore_pattern": r"(gridsearch_with_ledger|lender)\.py$",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": r"matplotlib",
    "reset_modules": ("matplotlib", "tutorial_setup.forget_fits"),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "first_notebook_cell": "# This notebook needs justitia and matplotlib. Data is downloaded at the first run.",
}
# docs/tutorials.md is the page that lists them.
exclude_patterns = ["tutorials/index.rst", "tutorials/**/*.ipynb", "sg_execution_times.rst"]
