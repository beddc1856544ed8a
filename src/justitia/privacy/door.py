"""The one way of the attribute into a vault, and what has to be settled before it is taken.

Everything here but the attribute itself, which is passed on unread, is public.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable
from typing import Any

from justitia._validate import check_fraction, check_int, check_nonnegative, check_same_length
from justitia.exceptions import LargeDeltaWarning
from justitia.privacy.attribute import Attribute, AttributeStream, HeldElsewhere
from justitia.privacy.interface import Vault
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import NoiseSource, SeededNoise, SystemNoise
from justitia.privacy.noise_grid import check_deliverable
from justitia.privacy.persons import Persons
from justitia.privacy.shards import Together
from justitia.privacy.vault import INFER, SensitiveVault


def named_groups(groups: Any, epsilon: float) -> Any:
    """The public list of groups, which a finite epsilon needs: one read off the data tells about the attribute."""
    if groups is not None:
        return groups
    if math.isinf(epsilon):
        return INFER
    raise ValueError(
        "expected the public list of groups, got None; name them, such as groups=['f', 'm'], or pass groups='infer' to "
        "read the list off the data, which does not protect it."
    )


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse a budget that no Gaussian release fits into."""
    if check_nonnegative("epsilon", epsilon, allow_inf=True) == 0:
        raise ValueError("epsilon=0 allows no question about groups at all; use a positive epsilon.")
    if check_fraction("delta", delta, example=1e-5) == 0 and not math.isinf(epsilon):
        raise ValueError("delta=0 rules out Gaussian noise; use a small positive delta such as 1e-5.")
    check_deliverable(float(epsilon), float(delta))


def open_vault(
    sensitive_features: Any,
    *,
    groups: Any,
    epsilon: float,
    ledger: PrivacyLedger,
    n: int,
    person: Any = None,
    features: Iterable[str] = (),
    noise_seed: int | None = None,
    missing_marker: Hashable = None,
    together: Together | None = None,
) -> Vault:
    """A ends here: the one way of the attribute into a vault, or to the one that its holder keeps.

    Parameters
    ----------
    epsilon : float
        Of what is about to be asked; a finite one needs named groups.
    n : int
        Number of public rows.
    person : array-like (n,), optional
        Public ids: everything is then promised to persons instead of rows.
    features : iterable of str
        Names of public columns, which the attribute must not be among.
    together : Together, optional
        Other places that hold rows of the same people; n and everything else are then about this one.
    """
    if isinstance(sensitive_features, HeldElsewhere):
        return sensitive_features.open(
            groups=groups,
            epsilon=epsilon,
            ledger=ledger,
            n=n,
            person=person,
            features=features,
            noise_seed=noise_seed,
            missing_marker=missing_marker,
            together=together,
        )
    streamed = isinstance(sensitive_features, AttributeStream)
    attribute = sensitive_features if streamed else Attribute.of(sensitive_features)
    check_same_length(X=range(n), sensitive_features=range(len(attribute)))
    people = person if person is None or isinstance(person, Persons) else Persons.of(person)
    if people is not None:
        people.check_rows(n)
    shared = sorted({name for name in attribute.names if name is not None} & {str(name) for name in features})
    if shared:
        raise ValueError(
            f"the column {shared[0]!r} is both a feature and a sensitive attribute; drop it from X, "
            "so that it is not an input at prediction time."
        )
    return SensitiveVault(
        attribute,
        groups=named_groups(groups, epsilon),
        ledger=ledger,
        people=people,
        noise_source=noise_from(noise_seed),
        missing_marker=missing_marker,
        together=together,
    )


def noise_from(seed: int | None) -> NoiseSource:
    """The operating system's generator, or noise that can be drawn again."""
    return SystemNoise() if seed is None else SeededNoise(check_int("noise_seed", seed, at_least=0))


def ledger_or_new(ledger: Any, *, epsilon: float, delta: float) -> PrivacyLedger:
    """The user's ledger, or a new one with this budget.

    Raises
    ------
    TypeError
        If ``ledger`` is something else.
    """
    if ledger is None:
        return PrivacyLedger(epsilon=epsilon, delta=delta)
    if not isinstance(ledger, PrivacyLedger):
        raise TypeError(f"expected ledger to be a PrivacyLedger, got {type(ledger).__name__!r}; make one first.")
    return ledger


def warn_large_delta(epsilon: float, delta: float, n: int, *, stacklevel: int) -> None:
    """Warn of a delta that lets a mechanism publish the attribute of one of n rows and still keep its promise."""
    if delta >= 1 / n and not math.isinf(epsilon):
        warnings.warn(
            f"delta={delta:g} is not below 1/n = {1 / n:.2g}: such a guarantee allows the attribute "
            "of one row to be published; choose a smaller delta.",
            LargeDeltaWarning,
            stacklevel=stacklevel + 1,
        )
