"""What the custodian's one configuration file says, and where its folder keeps what."""

from __future__ import annotations

import ipaddress
import json
import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

CONFIG = "custodian.toml"
CERTIFICATE, KEY = "server.pem", "server.key"
TEMPLATE = """\
# Configuration of this custodian; every line may be left out. Changes count after a restart.
name = {name}                  # certificates name it
host = "127.0.0.1"               # another address needs a certificate
port = 8787
page_port = 8788                 # for the custodian's own people, on this machine only; 0 for none
{tls}tls_certificate = "server.pem"
{tls}tls_key = "server.key"
# client_ca = "clients.pem"      # then every client needs a certificate of this authority, checked at the handshake
hosts = ""                       # other names by which clients reach it, such as "hr.example, 10.0.0.5"
connections_per_address = 128
requests_per_minute = 600        # of one client
largest_body = 67108864          # bytes of one request
largest_width = 4096             # numbers per row
largest_cohort = 5000000         # rows
largest_spool = 4294967296       # bytes of rows that wait for the rest of their request, of one client
seconds_per_request = 60
"""


@dataclass(frozen=True)
class Settings:
    """One custodian's settings."""

    name: str = "custodian"
    host: str = "127.0.0.1"
    port: int = 8787
    page_port: int = 8788
    tls_certificate: str = ""
    tls_key: str = ""
    client_ca: str = ""
    hosts: str = ""
    connections_per_address: int = 128
    requests_per_minute: int = 600
    largest_body: int = 64 << 20
    largest_width: int = 4096
    largest_cohort: int = 5_000_000
    largest_spool: int = 4 << 30
    seconds_per_request: float = 60.0

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise ValueError(
                f"expected the custodian's name to be text on one line without control characters, got {self.name!r}; "
                "choose another one."
            )
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("expected tls_certificate and tls_key together, got one of them; name both files.")
        if self.client_ca and not self.tls_certificate:
            raise ValueError(
                "expected tls_certificate beside client_ca, got none; certificates are checked within TLS."
            )
        if not self.tls_certificate and not is_loopback(self.host):
            raise ValueError(
                f"expected tls_certificate and tls_key where others can connect ({self.host!r}), got none; name them, "
                "or serve 127.0.0.1 only."
            )

    @staticmethod
    def read(folder: Path) -> Settings:
        """From the folder's file.

        Raises
        ------
        ValueError
            If a setting is unknown, or is not of its kind.
        """
        path = folder / CONFIG
        if not path.is_file():
            raise ValueError(
                f"expected a custodian's folder, got {str(folder)!r} without {CONFIG}; run 'custodian init'."
            )
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"expected TOML in {str(path)!r}, got other text ({error}); correct it.") from None
        kinds: dict[str, Any] = {field.name: type(field.default) for field in fields(Settings)}
        for name, value in found.items():
            if name not in kinds:
                raise ValueError(f"expected settings of a custodian in {str(path)!r}, got {name!r}; remove it.")
            if not isinstance(value, kinds[name] | int if kinds[name] is float else kinds[name]):
                raise ValueError(
                    f"expected {name} in {str(path)!r} to be of another kind; see the line that init wrote."
                )
        for name in ("tls_certificate", "tls_key", "client_ca"):
            found[name] = str(folder / found[name]) if found.get(name) else ""
        return Settings(**found)


def settings_text(name: str, *, tls: bool) -> str:
    """The file of a new custodian.

    Raises
    ------
    ValueError
        If the name cannot be used.
    """
    Settings(name=name)
    # What JSON writes of printable text is a basic string of TOML: quotes and backslashes are escaped alike.
    return TEMPLATE.format(name=json.dumps(name, ensure_ascii=False), tls="" if tls else "# ")


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def private_file(path: Path) -> Path:
    """Make a file that only this user can open."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    path.chmod(0o600)
    return path


def private_folder(path: Path) -> Path:
    """Make a folder that only this user can open."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


__all__ = [
    "CERTIFICATE",
    "CONFIG",
    "KEY",
    "Settings",
    "is_loopback",
    "private_file",
    "private_folder",
    "settings_text",
]
