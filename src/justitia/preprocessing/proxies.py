"""Proxies of the group, such as probabilities by surname and address: public columns that are no features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.preprocessing.encoding import TabularEncoder


@dataclass(frozen=True, eq=False)
class ProxyEncoder:
    """Encoding of proxies as numbers: that of features, without columns that are constant; picklable.

    Attributes
    ----------
    encoder : TabularEncoder
    kept : ndarray of int (r,)
        Encoded columns that are not constant.
    """

    encoder: TabularEncoder
    kept: NDArray[np.int64]

    @classmethod
    def fit(cls, table: Any) -> ProxyEncoder | None:
        """Learn from the training rows; None where all columns are constant."""
        encoder = TabularEncoder().fit(table)
        numbers = encoder.transform(table)
        kept = np.flatnonzero(numbers.min(0) < numbers.max(0))
        return cls(encoder, kept) if len(kept) else None

    def __call__(self, table: Any) -> NDArray[np.float32]:
        """(m, r): missing entries have an indicator of their own."""
        return np.ascontiguousarray(self.encoder.transform(table)[:, self.kept])


def read_proxy(proxy: Any, n: int) -> tuple[tuple[str, ...], NDArray[np.float32] | None]:
    """Names of the columns, if they have some, and (n, r) numbers; none and None without proxies.

    Parameters
    ----------
    proxy : DataFrame, Series, array-like (n,) or (n, r), or None
    n : int
        Number of training rows.

    Raises
    ------
    ValueError, TypeError
        If there is not one row for each training row, or a column holds what is no number, text or category.
    """
    if proxy is None:
        return (), None
    if isinstance(proxy, str) or (isinstance(proxy, list | tuple) and any(isinstance(one, str) for one in proxy)):
        raise TypeError(
            "expected proxy to be columns with one row per row of X, got names; names are for X in files, so pass "
            "table[[...]] and drop these columns from X."
        )
    table = proxy if hasattr(proxy, "columns") else pd.Series(proxy).to_frame() if _is_single(proxy) else proxy
    rows = len(table) if hasattr(table, "__len__") else -1
    if rows != n:
        got = "none" if rows < 0 else str(rows)
        raise ValueError(f"expected one row of proxy for each of the {n} rows of X, got {got}; pass the same rows.")
    if hasattr(table, "columns") and not len(table.columns):
        raise ValueError("expected proxy to have columns, got none; leave it out.")
    names = tuple(one for one in getattr(table, "columns", ()) if isinstance(one, str))
    encoder = ProxyEncoder.fit(table)
    return names, None if encoder is None else encoder(table)


def _is_single(proxy: Any) -> bool:
    """Whether this is one column."""
    return getattr(proxy, "ndim", 0) == 1 or (
        isinstance(proxy, list | tuple) and not any(isinstance(one, list | tuple | np.ndarray) for one in proxy)
    )


def check_proxy_names(names: Sequence[str], features: Sequence[Any]) -> None:
    """Refuse a proxy that is a feature, too: the base would learn from it, and need it at prediction."""
    shared = [name for name in names if name in set(features)]
    if shared:
        raise ValueError(
            f"the column {shared[0]!r} is both a feature and a proxy; drop it from X, because a proxy is no feature."
        )


__all__ = ["ProxyEncoder", "check_proxy_names", "read_proxy"]
