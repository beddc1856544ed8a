"""Connection limits: a deadline for the headers of a request, and so many connections of one address and of all.

uvicorn has neither a deadline for headers nor for a TLS handshake, and counts connections that send nothing like those
that wait for an answer. So the limits are applied where a connection is accepted, before either begins.

A connection *waits* from when it is accepted until the headers of a request are complete, and again once the request is
answered. Where there are too many, the oldest one that waits is closed: whoever opens hundreds of connections and sends
half a header on each pushes out their own, and a client that sends its request at once is answered.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds from the connection to the last byte of the headers, TLS handshake included.
HEADER_SECONDS = 5.0
#: Seconds that a connection is kept once its request was answered: for the rest of the reply to arrive, and for more.
IDLE_SECONDS = 60.0
#: Seconds that a request may take, from its headers to the end of its reply: its body, those before it, and itself.
REQUEST_SECONDS = 900.0
_CANNOT_START = 3  # what uvicorn exits with


class Gate:
    """Which connections are open, and which of them wait.

    Parameters
    ----------
    each, most : int
        Largest number of connections of one address, and of all.
    """

    def __init__(self, *, each: int, most: int) -> None:
        self._each, self._most = each, most
        self._open: dict[int, _Connection] = {}
        self._waiting: dict[int, _Connection] = {}  # oldest first
        self._of: Counter[str] = Counter()

    def admit(self, accepted: socket.socket, address: str) -> _Connection | None:
        """The connection, once there is room for it; None where all others are at work, and it is closed."""
        fits = self._room(self._of[address] < self._each, address) and self._room(len(self._open) < self._most, None)
        if not fits:
            accepted.close()
            return None
        made = _Connection(accepted, address, self)
        self._open[made.number] = made
        self._of[address] += 1
        self._wait(made, HEADER_SECONDS)
        return made

    def _room(self, enough: bool, address: str | None) -> bool:
        """Whether there is, if need be after the oldest connection that waits is closed."""
        if enough:
            return True
        oldest = next((one for one in self._waiting.values() if address in {None, one.address}), None)
        if oldest is not None:
            oldest.cut()
        return oldest is not None

    def _wait(self, one: _Connection, seconds: float) -> None:
        self._waiting.pop(one.number, None)
        self._waiting[one.number] = one
        one.expect(seconds)

    def begun(self, number: int) -> None:
        """The headers of a request are complete."""
        self._waiting.pop(number, None)
        if number in self._open:
            self._open[number].expect(REQUEST_SECONDS)

    def answered(self, number: int) -> None:
        """Its reply is on the way; so may be the next request."""
        if number in self._open:
            self._wait(self._open[number], IDLE_SECONDS)

    def closed(self, one: _Connection) -> None:
        """It counts no longer."""
        self._waiting.pop(one.number, None)
        if self._open.pop(one.number, None) is not None:
            self._of[one.address] -= 1
            if not self._of[one.address]:
                del self._of[one.address]


class _Connection(socket.socket):
    """A socket that tells its gate when it is closed."""

    def __init__(self, accepted: socket.socket, address: str, gate: Gate) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self.address, self.number, self._gate = address, self.fileno(), gate
        self._deadline: asyncio.TimerHandle | None = None

    def expect(self, seconds: float) -> None:
        """Cut it after so many seconds, unless more are given meanwhile."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.cut)

    def cut(self) -> None:
        """End it for the other side; the event loop reads that, and closes it."""
        self._gate.closed(self)
        with suppress(OSError):  # the other side was first
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._gate.closed(self)
        super().close()


class _Listener(socket.socket):
    """A socket that accepts what its gate admits. The event loop has to be one with a selector, which calls it."""

    gate: Gate

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; as if there were none where the gate refuses it."""
        accepted, address = super().accept()
        admitted = self.gate.admit(accepted, str(address[0]))
        if admitted is None:
            raise BlockingIOError
        return admitted, address


def _listeners(host: str, port: int, gate: Gate) -> list[socket.socket]:
    found: list[socket.socket] = []
    for family, kind, number, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        one = _Listener(family, kind, number)
        one.gate = gate
        found.append(one)
        if sys.platform != "win32":  # where it would let others listen there too
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(place)
    return found


class GatedServer(uvicorn.Server):
    """A server whose connections pass a gate.

    Parameters
    ----------
    options : keyword arguments
        Of :class:`uvicorn.Config`.
    """

    def __init__(self, app: Any, gate: Gate, **options: Any) -> None:
        class Protocol(H11Protocol):
            """Tells the gate when headers are complete, and when a reply is."""

            def _number(self) -> int:
                found: Any = self.transport.get_extra_info("socket")
                return -1 if found is None else int(found.fileno())

            def handle_events(self) -> None:
                before = self.cycle
                super().handle_events()
                if self.cycle is not before:
                    gate.begun(self._number())

            def on_response_complete(self) -> None:
                gate.answered(self._number())
                super().on_response_complete()

        super().__init__(uvicorn.Config(app, http=Protocol, loop="asyncio", **options))
        self._gate = gate

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        address = self.config.host, self.config.port
        try:
            own = sockets or _listeners(*address, self._gate)
        except OSError as error:
            logging.getLogger("uvicorn.error").error("cannot listen at %s:%d: %s", *address, error)
            sys.exit(_CANNOT_START)
        await super().startup(sockets=own)


__all__ = ["Gate", "GatedServer"]
