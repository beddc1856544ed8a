"""Classifiers that treat groups alike, private in the sensitive attribute.

A public name is imported when it is first used. Importing scikit-learn alone takes most of a second, which
``justitia --help`` and each completion of a command in a shell would wait for.

Plans of engines that train a network need the extra ``networks``. They are not in ``__all__``, so that
``from justitia import *`` works without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from justitia.curve import Tradeoff, tradeoff
    from justitia.estimator import LagrangianDualClassifier
    from justitia.exceptions import BudgetExceeded, BudgetWarning, DeprecatedNameWarning, JustitiaWarning, LedgerError
    from justitia.metrics.measure import measure
    from justitia.metrics.measurement import Measurement
    from justitia.monitor import Monitor
    from justitia.networks.moments.plan import MomentsPlan as MomentsPlan
    from justitia.networks.pf_ld.plan import PFLDPlan as PFLDPlan
    from justitia.networks.pf_ld_as_published.plan import PFLDAsPublishedPlan as PFLDAsPublishedPlan
    from justitia.postprocessing.plan import PostProcessingPlan as PostProcessingPlan
    from justitia.privacy.attribute import SensitiveColumns
    from justitia.privacy.bins import Bins
    from justitia.privacy.certificate import Certificate
    from justitia.privacy.durable_ledger import DurableLedger
    from justitia.privacy.ledger import PrivacyLedger
    from justitia.regressor import LagrangianDualRegressor
    from justitia.rows.parquet import RowFiles
    from justitia.search import SearchResult, private_search


__version__ = "1.0.0"

__all__ = [
    "Bins",
    "BudgetExceeded",
    "BudgetWarning",
    "Certificate",
    "DeprecatedNameWarning",
    "DurableLedger",
    "JustitiaWarning",
    "LagrangianDualClassifier",
    "LagrangianDualRegressor",
    "LedgerError",
    "Measurement",
    "Monitor",
    "PostProcessingPlan",
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
    "Bins": "justitia.privacy.bins",
    "BudgetExceeded": "justitia.exceptions",
    "BudgetWarning": "justitia.exceptions",
    "Certificate": "justitia.privacy.certificate",
    "DeprecatedNameWarning": "justitia.exceptions",
    "DurableLedger": "justitia.privacy.durable_ledger",
    "JustitiaWarning": "justitia.exceptions",
    "LagrangianDualClassifier": "justitia.estimator",
    "LagrangianDualRegressor": "justitia.regressor",
    "LedgerError": "justitia.exceptions",
    "Measurement": "justitia.metrics.measurement",
    "Monitor": "justitia.monitor",
    "PrivacyLedger": "justitia.privacy.ledger",
    "RowFiles": "justitia.rows.parquet",
    "SearchResult": "justitia.search",
    "SensitiveColumns": "justitia.privacy.attribute",
    "Tradeoff": "justitia.curve",
    "measure": "justitia.metrics.measure",
    "private_search": "justitia.search",
    "tradeoff": "justitia.curve",
}
#: The engine of each plan.
_PLANS = {
    "PostProcessingPlan": "post-processing",
    "MomentsPlan": "moments",
    "PFLDPlan": "pf-ld",
    "PFLDAsPublishedPlan": "pf-ld-as-published",
}
#: Names of plans in version 0.1, which the next release no longer has.
_OLD_NAMES = {"PluginPlan": "PostProcessingPlan", "GradientsPlan": "PFLDPlan", "PrintedPlan": "PFLDAsPublishedPlan"}


def __getattr__(name: str) -> Any:
    """A public name, from its module; found at once from then on."""
    if name in _OLD_NAMES:
        return _renamed(name, _OLD_NAMES[name])
    if name in _PLANS:
        from justitia.engines import plan_class  # noqa: PLC0415 - imported when it is needed, like all else here

        value: Any = plan_class(_PLANS[name])
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _renamed(old: str, new: str) -> Any:
    """What an old name stands for, with a warning at the line that uses it."""
    import warnings  # noqa: PLC0415 - as above

    from justitia.exceptions import DeprecatedNameWarning  # noqa: PLC0415 - as above

    value = getattr(import_module(__name__), new)
    sentence = f"justitia.{old} is now called justitia.{new}; the old name works in this release and in no later one."
    warnings.warn(sentence, DeprecatedNameWarning, stacklevel=3)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PLANS})
