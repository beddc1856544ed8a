"""Length and reading ease of the documentation: ``python -m bench.words``, one line per page.

Counted are prose, lists and tables. Left out are code blocks, formulas, comments and sections that a command generates
from results (``<!-- results: name -->`` and ``<!-- summary: name -->``). Reading ease is the formula of Flesch (1948),
about 60 for plain English and 30 for academic texts, with syllables estimated from groups of vowels. Names with an
underscore are not English and do not count for it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ ]*$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- (results|summary): \w+ -->.*?<!-- end of \1 -->", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->|^\(\w[\w-]*\)=$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_MARKUP = re.compile(r"<[^>]+>|^:::.*$", re.MULTILINE)
_ITEM = re.compile(r"^\s*(?:[*+-]|\d+\.)\s+")
_SENTENCE = re.compile(r"[.!?](?=\s|$)|:$")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")


@dataclass(frozen=True)
class Length:
    """Words of a page, words of its longest paragraph, and its reading ease."""

    words: int
    longest: int
    ease: float


def measured(text: str) -> Length:
    """Length and reading ease of a page in Markdown."""
    blocks = paragraphs(text)
    tables = [line for line in _prose(text).splitlines() if line.lstrip().startswith("|") and set(line) - set("|-: ")]
    in_tables = sum(len(line.replace("|", " ").split()) for line in tables)
    counts = [len(one.split()) for one in blocks]
    return Length(sum(counts) + in_tables, max(counts, default=0), reading_ease(blocks))


def paragraphs(text: str) -> list[str]:
    """Paragraphs, headings and items of lists, each as one line; tables are left out."""
    found: list[list[str]] = [[]]
    for line in _prose(text).splitlines():
        if not line.strip() or line.lstrip().startswith("|"):
            found.append([])
        elif line.startswith("#"):
            found += [[line.lstrip("# ")], []]
        elif _ITEM.match(line):
            found.append([_ITEM.sub("", line)])
        else:
            found[-1].append(line.strip().lstrip("> "))
    return [" ".join(one) for one in found if one]


def reading_ease(blocks: Sequence[str]) -> float:
    """Flesch's formula over these paragraphs, without names such as ``test_of_a_case``; 0 for none."""
    words = [word for block in blocks for word in _WORD.findall(block) if "_" not in word]
    sentences = sum(max(1, len(_SENTENCE.findall(block))) for block in blocks)
    if not words:
        return 0.0
    syllables = sum(_syllables(word) for word in words)
    return 206.835 - 1.015 * len(words) / sentences - 84.6 * syllables / len(words)


def _syllables(word: str) -> int:
    """Groups of vowels, without a silent e at the end; at least one."""
    lower = word.lower()
    groups = len(re.findall(r"[aeiouy]+", lower))
    silent = lower.endswith("e") and not lower.endswith("le") and groups > 1
    return max(1, groups - silent)


def _prose(text: str) -> str:
    """The page without code, generated sections, comments, markup and the targets of links."""
    for pattern in (_GENERATED, _FENCE, _COMMENT, _MARKUP):
        text = pattern.sub("", text)
    return _LINK.sub(r"\1", text).replace("`", "").replace("**", "")


def pages(revision: str | None) -> dict[str, str]:
    """Text of every page by its name, in the working tree or as committed in a revision."""
    if revision is None:
        paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
        return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    listed = _git("ls-tree", "--name-only", revision, "README.md", "CONTRIBUTING.md", "docs/").split()
    return {name: _git("show", f"{revision}:{name}") for name in listed if name.endswith(".md")}


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.words", description=__doc__)
    parser.add_argument("--at", metavar="REVISION", help="the pages as committed there; by default the working tree")
    found = {name: measured(text) for name, text in pages(parser.parse_args(arguments).at).items()}
    print(f"{'page':<28}{'words':>8}{'longest':>9}{'ease':>7}")
    for name, one in found.items():
        ease = f"{one.ease:.1f}" if one.longest > 10 else "-"  # a page of tables alone has no sentences
        print(f"{name:<28}{one.words:>8,}{one.longest:>9}{ease:>7}")
    print(f"{'all':<28}{sum(one.words for one in found.values()):>8,}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
