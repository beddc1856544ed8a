"""Neural classifiers that treat groups alike, private in the sensitive attribute."""

from justitia.curve import Tradeoff, tradeoff
from justitia.engines import GradientsPlan, MomentsPlan, PrintedPlan
from justitia.estimator import LagrangianDualClassifier
from justitia.evaluation.measure import Measurement, measure
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.ledger import BudgetExceeded, Certificate, LedgerError, PrivacyLedger
from justitia.search import SearchResult, private_search

__version__ = "0.1.0"

__all__ = [
    "BudgetExceeded",
    "Certificate",
    "DurableLedger",
    "GradientsPlan",
    "LagrangianDualClassifier",
    "LedgerError",
    "Measurement",
    "MomentsPlan",
    "PrintedPlan",
    "PrivacyLedger",
    "SearchResult",
    "Tradeoff",
    "measure",
    "private_search",
    "tradeoff",
]
