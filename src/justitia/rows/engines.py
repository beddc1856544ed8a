"""Which engine a data frame belongs to; no engine is imported before a data frame of it comes."""

from __future__ import annotations

import sys
from typing import Any

from justitia.rows.frames import Frame


def is_frame(X: Any) -> bool:
    """Whether this is a data frame of Spark, Ray or Dask, or a :class:`Frame`; imports none of them."""
    return isinstance(X, Frame) or _engine_of(X) is not None


def open_frame(X: Any) -> Frame:
    """The data frame with the interface of this module."""
    if isinstance(X, Frame):
        return X
    engine = _engine_of(X)
    opened: Frame
    if engine == "dask":
        from justitia.rows.dask import DaskFrame  # noqa: PLC0415 - optional

        opened = DaskFrame(X)
    elif engine == "ray":
        from justitia.rows.ray import RayFrame  # noqa: PLC0415 - optional

        opened = RayFrame(X)
    else:
        from justitia.rows.spark import SparkFrame  # noqa: PLC0415 - optional

        opened = SparkFrame(X)
    return opened


#: Where the class of each engine's data frame is: the engine, its package, and names of the class.
_CLASSES = (("dask", "dask", ("DataFrame",)), ("ray", "ray", ("Dataset",)), ("spark", "pyspark", ("DataFrame",)))


def _engine_of(X: Any) -> str | None:
    for kind in type(X).__mro__:
        package = kind.__module__.partition(".")[0]
        for engine, home, names in _CLASSES:
            if package == home and home in sys.modules and any(name in kind.__name__ for name in names):
                return engine
    return None


__all__ = ["is_frame", "open_frame"]
