"""What a ledger raises instead of an answer."""


class BudgetExceeded(RuntimeError):
    """A release was refused because the privacy budget does not allow it; nothing was computed."""


class LedgerError(RuntimeError):
    """The file or folder of a ledger could not be used, so nothing was answered."""
