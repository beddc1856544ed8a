"""Neural classifiers that treat groups alike, private in the sensitive attribute."""

from justitia.dual.plan import GradientsPlan, MomentsPlan, PrintedPlan
from justitia.estimator import LagrangianDualClassifier
from justitia.measure import Measurement, measure
from justitia.privacy.ledger import BudgetExceeded, Certificate, PrivacyLedger
from justitia.tradeoff import Tradeoff, tradeoff

__version__ = "0.1.0"

__all__ = [
    "BudgetExceeded",
    "Certificate",
    "GradientsPlan",
    "LagrangianDualClassifier",
    "Measurement",
    "MomentsPlan",
    "PrintedPlan",
    "PrivacyLedger",
    "Tradeoff",
    "measure",
    "tradeoff",
]
