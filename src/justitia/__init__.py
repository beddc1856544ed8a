"""Classifiers that treat groups alike, private in the sensitive attribute.

Names are imported when they are first used: `import justitia` costs nothing, and whoever needs a ledger only does not
wait for scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from justitia.curve import Tradeoff, tradeoff
    from justitia.estimator import LagrangianDualClassifier
    from justitia.evaluation.measure import measure
    from justitia.evaluation.measurement import Measurement
    from justitia.exceptions import BudgetWarning, JustitiaWarning
    from justitia.inputs.files import RowFiles
    from justitia.networks.gradients.plan import GradientsPlan
    from justitia.networks.moments.plan import MomentsPlan
    from justitia.networks.printed.plan import PrintedPlan
    from justitia.postprocessing.plan import PluginPlan
    from justitia.privacy.attribute import SensitiveColumns
    from justitia.privacy.certificate import Certificate
    from justitia.privacy.durable_ledger import DurableLedger
    from justitia.privacy.errors import BudgetExceeded, LedgerError
    from justitia.privacy.ledger import PrivacyLedger
    from justitia.search import SearchResult, private_search

__version__ = "0.1.0"

__all__ = [
    "BudgetExceeded",
    "BudgetWarning",
    "Certificate",
    "DurableLedger",
    "GradientsPlan",
    "JustitiaWarning",
    "LagrangianDualClassifier",
    "LedgerError",
    "Measurement",
    "MomentsPlan",
    "PluginPlan",
    "PrintedPlan",
    "PrivacyLedger",
    "RowFiles",
    "SearchResult",
    "SensitiveColumns",
    "Tradeoff",
    "measure",
    "private_search",
    "tradeoff",
]

#: Which module has each public name: the imports above, for those who run instead of check types.
_HOMES = {
    "BudgetExceeded": "justitia.privacy.errors",
    "BudgetWarning": "justitia.exceptions",
    "Certificate": "justitia.privacy.certificate",
    "DurableLedger": "justitia.privacy.durable_ledger",
    "GradientsPlan": "justitia.networks.gradients.plan",
    "JustitiaWarning": "justitia.exceptions",
    "LagrangianDualClassifier": "justitia.estimator",
    "LedgerError": "justitia.privacy.errors",
    "Measurement": "justitia.evaluation.measurement",
    "MomentsPlan": "justitia.networks.moments.plan",
    "PluginPlan": "justitia.postprocessing.plan",
    "PrintedPlan": "justitia.networks.printed.plan",
    "PrivacyLedger": "justitia.privacy.ledger",
    "RowFiles": "justitia.inputs.files",
    "SearchResult": "justitia.search",
    "SensitiveColumns": "justitia.privacy.attribute",
    "Tradeoff": "justitia.curve",
    "measure": "justitia.evaluation.measure",
    "private_search": "justitia.search",
    "tradeoff": "justitia.curve",
}


def __getattr__(name: str) -> Any:
    """A public name, from its module; found at once from then on."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
