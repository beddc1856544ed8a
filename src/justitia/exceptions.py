"""Errors and warnings of the library, as classes that an ``except`` or a filter can name.

``warnings.filterwarnings("error", category=justitia.exceptions.SmallGroupWarning)`` turns one kind into an error and
leaves the others as they are. Wrong arguments raise ``ValueError`` and ``TypeError``.
"""

from __future__ import annotations

import warnings
from typing import Any


class JustitiaError(Exception):
    """Every error of the library that is neither a ``ValueError`` nor a ``TypeError``."""


class BudgetExceeded(JustitiaError, RuntimeError):
    """A release was refused because the privacy budget does not allow it; nothing was computed."""


class LedgerError(JustitiaError, RuntimeError):
    """The file or folder of a ledger could not be used, so nothing was answered."""


class JustitiaWarning(UserWarning):
    """Every warning of the library."""


class BudgetWarning(JustitiaWarning):
    """Several certificates speak of the same rows, and no ledger counts them together."""


class DeprecatedNameWarning(JustitiaWarning, FutureWarning):
    """A name that was used has another one now; the old name works for one release."""


class LargeDeltaWarning(JustitiaWarning):
    """The delta allows a mechanism that publishes the attribute of one row."""


class UnknownGroupWarning(JustitiaWarning):
    """The noisy size of a group could be noise alone: its name may be misspelt."""


class SmallGroupWarning(JustitiaWarning):
    """A group, or a cell of group and event, is too small for the constraint."""


class NoisyEstimateWarning(JustitiaWarning):
    """The noise in the rates of a group is larger than what is to be corrected."""


class ViolationWarning(JustitiaWarning):
    """The noisy estimate of the violation is beyond the tolerance."""


class ConstantDecisionWarning(JustitiaWarning):
    """Nearly all rows get the same decision."""


class AccuracyWarning(JustitiaWarning):
    """The constraint costs most of the accuracy, or there was hardly any."""


class MissingAttributeWarning(JustitiaWarning):
    """The share of rows without a group differs by label."""


class InputWarning(JustitiaWarning):
    """Something about the public rows: cut ranges or weights, more inputs than the rows support."""


class Diagnostic(str):
    """A sentence about a fit, with the class of the warning that carries it.

    Parameters
    ----------
    text : str
    category : type
        A subclass of :class:`JustitiaWarning`.
    """

    category: type[JustitiaWarning]

    def __new__(cls, text: str, category: type[JustitiaWarning]) -> Diagnostic:
        """A string that knows its class."""
        made = super().__new__(cls, text)
        made.category = category
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Diagnostic, (str(self), self.category)


class Notice(Diagnostic):
    """A sentence about a fit that its certificate holds and no warning carries."""

    def __new__(cls, text: str) -> Notice:
        """A string that is known by its class."""
        made: Notice = super().__new__(cls, text, JustitiaWarning)  # type: ignore[assignment]
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Notice, (str(self),)


def warn_of(sentence: str, *, stacklevel: int) -> None:
    """Warn with the class of the sentence, or ``JustitiaWarning`` if it has none, as one read from a file."""
    warnings.warn(str(sentence), getattr(sentence, "category", JustitiaWarning), stacklevel=stacklevel + 1)
