"""The service as a process: uvicorn, TLS, a page for the custodian's own people, a graceful end."""

from __future__ import annotations

import asyncio
import signal
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

from justitia.custodian.app import App
from justitia.custodian.listener import Gate, GatedServer
from justitia.custodian.page import page_app
from justitia.custodian.service import Service
from justitia.custodian.settings import Settings
from justitia.privacy.mechanisms import NoiseSource

#: Connections at once, of the service and of the page.
_CONNECTIONS, _PAGE_CONNECTIONS = 512, 32


def tls_options(settings: Settings) -> dict[str, Any]:
    """For uvicorn; a client without a certificate of the named authority does not get past the handshake."""
    if not settings.tls_certificate:
        return {}
    options: dict[str, Any] = {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": settings.tls_key}
    if settings.client_ca:
        options |= {"ssl_ca_certs": settings.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options


def servers(service: Service) -> list[GatedServer]:
    """The service's own port, and that of the page."""
    settings = service.settings
    common: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,  # the audit log says who asked what; addresses hold purposes
        "server_header": False,
        "timeout_keep_alive": 10,
        "timeout_graceful_shutdown": 30,
        "h11_max_incomplete_event_size": 32 << 10,
        "ws": "none",
        "lifespan": "off",
        "backlog": 512,
    }
    app = App(service)
    gate = Gate(each=settings.connections_per_address, most=_CONNECTIONS)
    own = GatedServer(app.asgi, gate, host=settings.host, port=settings.port, **common, **tls_options(settings))
    if not settings.page_port:
        return [own]
    near = Gate(each=_PAGE_CONNECTIONS, most=_PAGE_CONNECTIONS)
    return [own, GatedServer(page_app(app), near, host="127.0.0.1", port=settings.page_port, **common)]


def serve(folder: Path, settings: Settings, noise_source: NoiseSource | None = None) -> None:
    """Serve until told to stop; requests that were begun are answered first."""
    _no_core_file()
    service = Service(folder, settings, noise_source)
    try:
        # The gate needs an event loop with a selector, which is not what Windows has by default.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(_serve(servers(service)))
    finally:
        service.close()


def _no_core_file() -> None:
    """Keep the operating system from writing this process's memory, which holds the attribute, to a file."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


async def _serve(running: list[GatedServer]) -> None:
    first, *others = running
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # on Windows
            asyncio.get_running_loop().add_signal_handler(number, first.handle_exit, number, None)
    tasks = [asyncio.create_task(server._serve()) for server in others]
    await first._serve()  # without uvicorn's own handling of signals, which ends the process with one
    for server in others:
        server.should_exit = True
    await asyncio.gather(*tasks)


__all__ = ["serve", "servers", "tls_options"]
