"""Fairness scorer for scikit-learn's searches; every call is a private measurement that debits a ledger."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import sklearn
from sklearn.metrics import make_scorer

from justitia.metrics.measure import measure
from justitia.notions import FairnessNotion, get_notion
from justitia.privacy.durable_ledger import DurableLedger
from justitia.privacy.frames import protects_attribute
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import hidden_seed
from justitia.privacy.vault import check_budget


def private_scorer(
    notion: str | FairnessNotion = "demographic_parity",
    *,
    groups: Any,
    ledger: PrivacyLedger,
    epsilon: float,
    delta: float | None = None,
    pos_label: Any = None,
    missing_marker: Any = None,
    noise_seed: int | None = None,
) -> Any:
    """A scorer for ``GridSearchCV`` and ``cross_validate``: minus the noised violation on the validation rows.

    Each call is one :func:`justitia.measure` at ``epsilon`` on ``ledger``. The scorer requests ``sensitive_features``
    by metadata routing, which has to be switched on:
    ``sklearn.set_config(enable_metadata_routing=True)``. Where there is not enough evidence about two groups, the score
    is -1, the worst there is. Pass ``error_score="raise"`` to the search, or it turns a spent budget into NaN.

    Parameters
    ----------
    notion, groups, pos_label, missing_marker, noise_seed
        As in :func:`justitia.measure`; one notion.
    ledger : PrivacyLedger
        The budget that every call debits; that of the fits too, if a person may be in both, as in cross-validation.
    epsilon : float
        What one call may cost.
    delta : float, optional
        By default that of the ledger.

    Returns
    -------
    scorer
        Of scikit-learn's own kind.

    Raises
    ------
    ValueError, TypeError
        For an impossible notion, budget, list of groups or ledger.

    Guarantee
    ---------
    * Every call debits the ledger before it answers; one that the ledger cannot pay raises ``BudgetExceeded`` and
      answers nothing.
    * A copy debits the same ledger. Pickling, which is how a search with ``n_jobs`` above 1 hands a scorer to other
      processes, is refused unless the ledger is a :class:`~justitia.privacy.durable_ledger.DurableLedger`: a copy of a
      ledger in memory would count on its own.
    """
    if not isinstance(ledger, PrivacyLedger):
        raise TypeError(f"expected ledger to be a PrivacyLedger, got {type(ledger).__name__!r}; make one first.")
    if groups is None:
        raise ValueError("expected the public list of groups, got None; a list read off the data would tell about A.")
    delta = ledger.delta if delta is None else delta
    check_budget(epsilon, delta)
    settings = {"groups": groups, "epsilon": epsilon, "delta": delta, "pos_label": pos_label}
    settings |= {"missing_marker": missing_marker, "noise_seed": hidden_seed(noise_seed)}
    score = NoisyViolation(get_notion(notion), ledger, settings)
    with sklearn.config_context(enable_metadata_routing=True):  # set_score_request needs it
        return make_scorer(score, greater_is_better=False).set_score_request(sensitive_features=True)


@dataclass(frozen=True, eq=False)
class NoisyViolation:
    """``measure(...).violation`` as a function of rows; 1 where there is not enough evidence."""

    notion: FairnessNotion
    ledger: PrivacyLedger
    settings: dict[str, Any]

    @property
    def __name__(self) -> str:
        return f"noisy_{self.notion.name}_violation"

    @protects_attribute
    def __call__(self, y_true: Any, y_pred: Any, *, sensitive_features: Any) -> float:
        """Debit, then measure."""
        found = measure(
            y_true,
            y_pred,
            sensitive_features=sensitive_features,
            notion=self.notion,
            ledger=self.ledger,
            **self.settings,
        )
        estimate = found.violation.estimate
        return 1.0 if math.isnan(estimate) else float(estimate)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self.ledger, DurableLedger):
            raise TypeError(
                "expected a DurableLedger to share among processes, got a ledger in memory, whose copies would count "
                "on their own; use n_jobs=1 or a DurableLedger."
            )
        return type(self), (self.notion, self.ledger, self.settings)
