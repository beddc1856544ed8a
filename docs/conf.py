"""The documentation site: ``make docs``. Warnings are errors, and nothing is fetched, at build time or when read."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import justitia

project = "Justitia"
author = "the Justitia authors"
release = version = justitia.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["pictures/*.txt"]

# Markdown: headings are link targets under the names that code hosts give them.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# The reference: docstrings say types in words, so annotations are not repeated in signatures.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Guarantee"]

suppress_warnings = [
    "toc.empty_glob",  # index.md lists some pages by a pattern, so that one that is not there yet is no error
]

html_theme = "furo"
html_title = "Justitia"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    formula = tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="math">{formula}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Formulas become MathML, which browsers draw themselves: no script from elsewhere."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
