"""Server process: uvicorn with connection limits, TLS, the status page, and a graceful shutdown.

uvicorn has neither a deadline for headers nor for a TLS handshake, and counts idle connections like those that wait for
an answer. So a :class:`ConnectionLimiter` is applied where a connection is accepted, before either begins.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from justitia.custodian.app import App
from justitia.custodian.limits import ConnectionLimiter
from justitia.custodian.page import page_app
from justitia.custodian.service import Service
from justitia.custodian.settings import ServiceSettings
from justitia.privacy.mechanisms import NoiseSource

#: Maximum number of connections to the service, and to the page.
_CONNECTIONS, _PAGE_CONNECTIONS = 512, 32
_CANNOT_START = 3  # uvicorn's exit code


class _Listener(socket.socket):
    """A socket that accepts what its limiter admits. Only an event loop with a selector calls its ``accept``."""

    limiter: ConnectionLimiter

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; raises as if there were none if the limiter closes it."""
        accepted, address = super().accept()
        admitted = self.limiter.admit(accepted, str(address[0]) if address else "socket")  # a Unix socket has none
        if admitted is None:
            raise BlockingIOError
        return admitted, address


def _listeners(host: str, port: int, limiter: ConnectionLimiter) -> list[socket.socket]:
    """A listening socket for each address of the host."""
    found: list[socket.socket] = []
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        one = _Listener(family, kind, protocol)
        one.limiter = limiter
        found.append(one)
        if sys.platform != "win32":  # where it would let other processes listen there too
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
    return found


def _unix_listener(path: Path, limiter: ConnectionLimiter) -> list[socket.socket]:
    """A listening socket in the file system that this user alone can connect to, from the moment it exists."""
    if path.is_socket():  # of a process that was killed
        path.unlink()
    one = _Listener(socket.AF_UNIX, socket.SOCK_STREAM)
    one.limiter = limiter
    mask = os.umask(0o177)
    try:
        one.bind(str(path))
    except OSError:
        one.close()
        raise
    finally:
        os.umask(mask)
    path.chmod(0o600)
    return [one]


class LimitedServer(uvicorn.Server):
    """A uvicorn server whose connections are limited.

    Parameters
    ----------
    path : str
        A Unix socket to listen at, instead of a host and port; it is removed when the server stops.
    options : keyword arguments
        Of :class:`uvicorn.Config`.
    """

    def __init__(self, app: Any, limiter: ConnectionLimiter, *, path: str = "", **options: Any) -> None:
        class Protocol(H11Protocol):
            """Notifies the limiter when headers are complete, and when a response is."""

            def _number(self) -> int:
                found: Any = self.transport.get_extra_info("socket")
                return -1 if found is None else int(found.fileno())

            def handle_events(self) -> None:
                before = self.cycle
                super().handle_events()
                if self.cycle is not before:
                    limiter.headers_complete(self._number())

            def on_response_complete(self) -> None:
                limiter.response_complete(self._number())
                super().on_response_complete()

        super().__init__(uvicorn.Config(app, http=Protocol, loop="asyncio", **options))
        self._limiter, self._path = limiter, Path(path) if path else None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        address = self.config.host, self.config.port
        try:
            own = sockets or (
                _listeners(*address, self._limiter) if self._path is None else _unix_listener(self._path, self._limiter)
            )
        except OSError as error:
            where = "{}:{}".format(*address) if self._path is None else str(self._path)
            logging.getLogger("uvicorn.error").error("cannot listen at %s: %s", where, error)
            sys.exit(_CANNOT_START)
        await super().startup(sockets=own)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and remove the socket's file."""
        await super().shutdown(sockets=sockets)
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def tls_options(settings: ServiceSettings) -> dict[str, Any]:
    """TLS options of uvicorn; with ``client_ca``, the handshake fails for clients without its certificate."""
    if not settings.tls_certificate:
        return {}
    options: dict[str, Any] = {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": settings.tls_key}
    if settings.client_ca:
        options |= {"ssl_ca_certs": settings.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options


def servers(service: Service) -> list[LimitedServer]:
    """The server of the HTTP interface and that of the status page, unless it has neither a port nor a socket."""
    settings = service.settings
    common: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,  # the audit log has the requests, and URLs hold purposes
        "server_header": False,
        "proxy_headers": False,  # a header says anything, and limits are by address
        "timeout_keep_alive": 10,
        "timeout_graceful_shutdown": 30,
        "h11_max_incomplete_event_size": 32 << 10,
        "ws": "none",
        "lifespan": "off",
        "backlog": 512,
    }
    app = App(service)
    limiter = ConnectionLimiter(per_address=settings.connections_per_address, total=_CONNECTIONS)
    own = LimitedServer(app.asgi, limiter, host=settings.host, port=settings.port, **common, **tls_options(settings))
    if not settings.page_port and not settings.page_socket:
        return [own]
    limiter = ConnectionLimiter(per_address=_PAGE_CONNECTIONS, total=_PAGE_CONNECTIONS)
    where: dict[str, Any] = {"host": "127.0.0.1", "port": settings.page_port, "path": settings.page_socket}
    return [own, LimitedServer(page_app(app), limiter, **where, **common)]


def serve(folder: Path, settings: ServiceSettings, noise_source: NoiseSource | None = None) -> None:
    """Serve until a signal stops the process; requests that have begun are answered first."""
    _disable_core_dumps()
    service = Service(folder, settings, noise_source)
    try:
        # The limiter needs an event loop with a selector, which is not the default of Windows.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(_serve(servers(service)))
    finally:
        service.close()


def _disable_core_dumps() -> None:
    """Keep the operating system from writing this process's memory, which holds the attribute, to a file."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


async def _serve(running: list[LimitedServer]) -> None:
    first, *others = running
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # on Windows
            asyncio.get_running_loop().add_signal_handler(number, first.handle_exit, number, None)
    tasks = [asyncio.create_task(server._serve()) for server in others]
    await first._serve()  # not serve(), whose signal handling would end the process with a signal
    for server in others:
        server.should_exit = True
    await asyncio.gather(*tasks)


__all__ = ["LimitedServer", "serve", "servers", "tls_options"]
