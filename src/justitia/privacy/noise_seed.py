"""A noise seed as a secret: used, copied with the settings it belongs to, and never printed or stored with a result.

Whoever knows the seed can draw the noise again, subtract it, and read attributes off exactly.
"""

from __future__ import annotations

import copy
import numbers
from typing import Any, Self


class NoiseSeed(int):
    """A whole number that ``repr`` and ``str`` leave out: of an estimator, of a pipeline, a page in HTML; not JSON."""

    def __repr__(self) -> str:
        return "<not shown>"

    __str__ = __repr__


def hidden(seed: Any) -> Any:
    """``seed`` as a :class:`NoiseSeed` if it is a whole number; anything else as it is, for ``fit`` to judge."""
    if isinstance(seed, NoiseSeed | bool) or not isinstance(seed, numbers.Integral):
        return seed
    return NoiseSeed(seed)


class _Parameter:
    """Keeps what was given under the parameter's own name, as scikit-learn wants it, but as a :class:`NoiseSeed`."""

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        try:
            return instance.__dict__["noise_seed"]
        except KeyError:
            raise AttributeError("noise_seed") from None

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["noise_seed"] = hidden(value)


class HiddenNoiseSeed:
    """Estimators with a parameter ``noise_seed``; to stand before ``BaseEstimator`` in the list of bases.

    Guarantee
    ---------
    * No text about the estimator shows the seed.
    * A pickle of a fitted estimator does not hold it. One that is not fitted yet keeps its seed, so that worker
      processes fit with it; so do copies in memory and ``sklearn.clone``.
    """

    noise_seed = _Parameter()

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return state | {"noise_seed": None} if "certificate_" in state else state

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(vars(self))
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__dict__.update(copy.deepcopy(vars(self), memo))
        return twin
