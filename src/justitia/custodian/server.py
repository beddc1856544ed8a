"""The service as a process: uvicorn, TLS, a page for the custodian's own people, a graceful end."""

from __future__ import annotations

import asyncio
import signal
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn

from justitia.custodian.app import App
from justitia.custodian.page import page_app
from justitia.custodian.service import Service
from justitia.custodian.settings import Settings
from justitia.privacy.mechanisms import NoiseSource


def tls_options(settings: Settings) -> dict[str, Any]:
    """For uvicorn; a client without a certificate of the named authority does not get past the handshake."""
    if not settings.tls_certificate:
        return {}
    options: dict[str, Any] = {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": settings.tls_key}
    if settings.client_ca:
        options |= {"ssl_ca_certs": settings.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options


def configs(service: Service) -> list[uvicorn.Config]:
    """The service's own port, and that of the page."""
    settings = service.settings
    common: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,  # the audit log says who asked what; addresses hold purposes
        "server_header": False,
        "timeout_keep_alive": 10,
        "timeout_graceful_shutdown": 30,
        "h11_max_incomplete_event_size": 32 << 10,
        "http": "h11",
        "lifespan": "off",
    }
    limits: dict[str, Any] = {"limit_concurrency": 512, "backlog": 512}
    own = uvicorn.Config(
        App(service).asgi, host=settings.host, port=settings.port, **common, **limits, **tls_options(settings)
    )
    if not settings.page_port:
        return [own]
    return [own, uvicorn.Config(page_app(service), host="127.0.0.1", port=settings.page_port, **common)]


def serve(folder: Path, settings: Settings, noise_source: NoiseSource | None = None) -> None:
    """Serve until told to stop; requests that were begun are answered first."""
    service = Service(folder, settings, noise_source)
    try:
        asyncio.run(_serve([uvicorn.Server(config) for config in configs(service)]))
    finally:
        service.close()


async def _serve(servers: list[uvicorn.Server]) -> None:
    first, *others = servers
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # on Windows
            asyncio.get_running_loop().add_signal_handler(number, first.handle_exit, number, None)
    running = [asyncio.create_task(server._serve()) for server in others]
    await first._serve()  # without uvicorn's own handling of signals, which ends the process with one
    for server in others:
        server.should_exit = True
    await asyncio.gather(*running)


__all__ = ["configs", "serve", "tls_options"]
