"""The only folder that knows the attribute and the noise; it imports nothing of ours outside itself."""

from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.ledger import BudgetExceeded, Certificate, LedgerError, PrivacyLedger

__all__ = ["BudgetExceeded", "Certificate", "DurableLedger", "LedgerError", "PrivacyLedger"]
