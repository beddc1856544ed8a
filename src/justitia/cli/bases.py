"""Bases by name: the models of the target that the command line can train and keep in a folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from justitia.cli.errors import Refusal
from justitia.learners.base import CrossFitted


def _default() -> None:
    """Boosted trees whose size follows the number of rows: the rule of :mod:`justitia.learners.lightgbm_base`."""


def _logistic() -> CrossFitted:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    return CrossFitted(LogisticRegression(max_iter=1000), encoded=True)


DEFAULT = "lightgbm"
#: What ``--base`` may name. A model that only pickle can keep (a forest, say) is for Python, or is passed as a column.
BASES: dict[str, Callable[[], CrossFitted | None]] = {DEFAULT: _default, "logistic": _logistic}


def base_of(name: str | None, column: str | None) -> Any:
    """What the estimator takes as ``base``.

    Raises
    ------
    Refusal
        If both are given.
    """
    if name is not None and column is not None:
        raise Refusal(f"expected --base or --base-column, got both; leave out --base {name}.")
    return BASES[name or DEFAULT]() if column is None else column
