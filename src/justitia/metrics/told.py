"""How a noisy number is told: between its bounds, against a threshold, or as not enough evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

NOT_ENOUGH = "not enough evidence"


@dataclass(frozen=True)
class Interval:
    """A noisy value between its two-sided bounds; the value is NaN if too few groups have enough evidence."""

    estimate: float
    lower: float
    upper: float

    @property
    def width(self) -> float:
        """Upper minus lower bound."""
        return self.upper - self.lower

    def __str__(self) -> str:
        if math.isnan(self.estimate):
            return NOT_ENOUGH
        return f"{self.estimate:.3f} [{self.lower:.3f}, {self.upper:.3f}]"

    def to_dict(self) -> dict[str, float | None]:
        """Plain data."""
        return {"estimate": plain(self.estimate), "lower": plain(self.lower), "upper": plain(self.upper)}


@dataclass(frozen=True)
class Verdict:
    """Whether a number is below a threshold, as far as the noisy answers can tell.

    Attributes
    ----------
    answer : {"below", "above", "not enough evidence"}
    threshold, confidence : float
    at_least, at_most : float
        The one-sided bounds that were held against the threshold.
    subject : str
        What the number is called.
    unknown : tuple of str
        Groups that nothing is known about: they rule out "below".
    """

    answer: str
    threshold: float
    confidence: float
    at_least: float
    at_most: float
    subject: str
    unknown: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The answer with the bound that it rests on."""
        held = f"at {self.confidence:.4g} confidence"
        least, most = (beside(bound, self.threshold) for bound in (self.at_least, self.at_most))
        if self.answer == "below":
            return f"{self.subject}: below {self.threshold:g} {held}; the one-sided upper bound is {most}."
        if self.answer == "above":
            return f"{self.subject}: above {self.threshold:g} {held}; the lower bound is {least}."
        doubt = f"{self.subject}: {NOT_ENOUGH} {held} to call it below or above {self.threshold:g}"
        if self.at_least <= 0 and self.at_most >= 1:
            return f"{doubt}, or to bound it."
        among = f" among the groups that are known, not {', '.join(self.unknown)}" if self.unknown else ""
        return f"{doubt}; it is between {least} and {most}, each bound for itself{among}."

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "answer": self.answer,
            "threshold": self.threshold,
            "at_least": plain(self.at_least),
            "at_most": plain(self.at_most),
            "sentence": self.sentence,
        }


def beside(bound: float, limit: float) -> str:
    """A bound with three decimals, or as many more as show on which side of a limit it is."""
    for digits in range(3, 9):
        text = f"{bound:.{digits}f}"
        if (float(text) < limit, float(text) > limit) == (bound < limit, bound > limit):
            return text
    return f"{bound:.3f}"


def plain(value: Any) -> Any:
    """A number, or None for one that JSON does not have: NaN and infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Lines of a table as plain data, index included."""
    lines = table.reset_index().to_dict("records")
    return [{str(key): plain(value) for key, value in line.items()} for line in lines]
