"""The README's table is what the results say, pages are short, and every public name is in the reference."""

import re
from pathlib import Path

import pytest

import justitia
from bench.experiments.__main__ import EXPERIMENTS, README
from bench.experiments.page import fill
from bench.words import measured, paragraphs, reading_ease

ROOT = Path(__file__).parents[1]
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "bench" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_table_of_the_readme_is_what_the_committed_results_say() -> None:
    text = README.read_text(encoding="utf-8")
    assert fill(text, EXPERIMENTS, ROOT / "results", link="results") == text
    rows = [line for line in text.splitlines() if re.match(r"\| (Bank|Income|Compas) \|", line)]
    assert [row.count(" / ") for row in rows] == [4, 4, 4]


# --- reference


def test_every_public_name_has_a_page_in_the_reference() -> None:
    listed = set(
        re.findall(r"^   (justitia\.[\w.]+)$", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {f"justitia.{name}" for name in justitia.__all__} - listed == set()


# --- length

#: Words of a page and of a paragraph, as `python -m bench.words` counts them.
MOST_WORDS, LONGEST_PARAGRAPH = 3000, 120
#: Pages that may be longer, and why.
LONG_PAGES = {
    "docs/proofs.md": "every claim of the guarantee with its proof and the names of its tests",
    "docs/results.md": "a section per experiment around generated tables",
    "docs/design_choices.md": "the evidence for every default around generated tables",
}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_page_and_its_paragraphs_are_short(page: Path) -> None:
    length = measured(page.read_text(encoding="utf-8"))
    assert length.longest < LONGEST_PARAGRAPH
    assert length.words <= MOST_WORDS or page_name(page) in LONG_PAGES


def test_words_of_a_made_up_page_leave_out_code_formulas_and_generated_sections() -> None:
    page = """# A title

Two words
here, [a link](far.md) and `code`.
* First item.
* Second item
  goes on.

| a | b |
|---|---|
| c d | e |

```python
not = "counted"
```

<!-- results: x -->
not counted either
<!-- end of results -->

:::{note}
A note.
:::
"""
    blocks = ["A title", "Two words here, a link and code.", "First item.", "Second item goes on.", "A note."]
    assert paragraphs(page) == blocks
    length = measured(page)
    assert (length.words, length.longest) == (2 + 7 + 2 + 4 + 2 + 5, 7)


def test_reading_ease_of_short_words_in_short_sentences_is_higher() -> None:
    assert reading_ease(["The cat sat. It ate."]) == pytest.approx(206.835 - 1.015 * 2.5 - 84.6)
    assert reading_ease(["Institutional considerations necessitate deliberation."]) < 0
    assert reading_ease(["The cat sat. It ate test_of_a_name."]) == reading_ease(["The cat sat. It ate."])
    assert reading_ease([]) == 0
