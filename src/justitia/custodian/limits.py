"""How much of what is taken: bodies of a known length within a time, and requests per minute."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Any

from starlette.requests import ClientDisconnect, Request

from justitia.custodian.refusals import TOO_SLOW, Refused, too_large

#: Names that are remembered; the longest unseen is forgotten.
_REMEMBERED = 10_000


async def read_body(request: Request, *, largest: int, seconds: float) -> bytes:
    """The whole body of a request.

    Raises
    ------
    Refused
        If it is compressed, too large, or too slow.
    """
    if request.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise Refused(415, "encoding", "expected a body that is not compressed, got another one; send it as it is.")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and len(announced) < 20 and int(announced) > largest:
        raise too_large(f"a body of at most {largest} bytes")
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > largest:
                    raise too_large(f"a body of at most {largest} bytes")
                parts.append(part)
    except TimeoutError:
        raise TOO_SLOW from None
    except ClientDisconnect:
        raise TOO_SLOW from None
    return b"".join(parts)


class Rate:
    """So many requests per minute of each name, with as many at once."""

    def __init__(self, per_minute: int, clock: Any = time.monotonic) -> None:
        self._most, self._clock = float(per_minute), clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, name: str) -> bool:
        """Whether one more is within it; it then counts."""
        now = self._clock()
        left, before = self._left.pop(name, (self._most, now))
        left = min(self._most, left + (now - before) * self._most / 60)
        self._left[name] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)
        return bool(left >= 1)


__all__ = ["Rate", "read_body"]
