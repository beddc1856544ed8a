"""Warnings of the library, as classes that a filter can name.

``warnings.filterwarnings("error", category=justitia.BudgetWarning)`` turns one kind into an error and leaves the others
as they are. What is raised is in :mod:`justitia.privacy.errors`: ``BudgetExceeded`` and ``LedgerError``.
"""


class JustitiaWarning(UserWarning):
    """Every warning of the library that has a class of its own."""


class BudgetWarning(JustitiaWarning):
    """Several certificates speak of the same people, and no ledger counts them together."""


class DeprecatedNameWarning(JustitiaWarning, FutureWarning):
    """A name that was used has another one now; the old name works for one release."""


__all__ = ["BudgetWarning", "DeprecatedNameWarning", "JustitiaWarning"]
