"""What only people can say about a model: who owns it, what it is for, who watches it; empty fields stay visible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from justitia._validate import check_choice

#: Name in the file, and on the page.
FIELDS = {
    "owner": "Owner",
    "purpose": "Purpose",
    "population": "Population it is used for",
    "version": "Version",
    "monitoring_plan": "Monitoring plan",
    "human_oversight": "Human oversight",
}
#: Others that may be given: what the positive answer means, the page's title, and what a registry asks for.
OTHERS = ("positive_means", "title", "region", "sector")
#: What stands in an empty field.
EMPTY = "not stated"


@dataclass(frozen=True)
class About:
    """Fields that a person filled in; None where nobody did."""

    given: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Mapping[str, Any] | None) -> About:
        """From a mapping, such as a TOML file.

        Raises
        ------
        ValueError, TypeError
            For a name that is no field, or a value that is no text.
        """
        if not isinstance(facts, Mapping | None):
            raise TypeError(f"expected about to be a mapping, got {type(facts).__name__!r}; pass fields as text.")
        found = {
            check_choice("field of about", str(name), (*FIELDS, *OTHERS)): one for name, one in (facts or {}).items()
        }
        for name, one in found.items():
            if not isinstance(one, str):
                raise TypeError(f"expected {name!r} to be text, got {type(one).__name__!r}; put it in quotation marks.")
        return cls({name: " ".join(one.split()) for name, one in found.items() if one.strip()})

    def get(self, name: str) -> str | None:
        """One field."""
        return self.given.get(name)

    @property
    def rows(self) -> tuple[tuple[str, str | None], ...]:
        """Every field with its name on the page."""
        return tuple((words, self.get(name)) for name, words in FIELDS.items())
