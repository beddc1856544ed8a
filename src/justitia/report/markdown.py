"""Text from users inside Markdown: never a table cell of its own, a link, or HTML."""

from __future__ import annotations

import re
from typing import Any

#: What Markdown reads as more than a letter, wherever it stands.
SPECIAL = re.compile(r"([\\`*_\[\]|~#$])")


class Written(str):
    """Markdown that is ready as it is."""

    __slots__ = ()


def escaped(value: Any) -> Any:
    """One line of text that Markdown prints as it is."""
    if isinstance(value, Written) or not isinstance(value, str):
        return value
    line = " ".join(value.split())
    return SPECIAL.sub(r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def fenced(text: str, language: str = "") -> Written:
    """A block of code within a fence that nothing in it can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Written(f"{fence}{language}\n{text}\n{fence}")
