"""Configuration of a custodian: the file ``custodian.toml``, private files, and self-signed TLS certificates."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

CONFIG = "custodian.toml"
CERTIFICATE, KEY = "server.pem", "server.key"
#: Days for which a self-signed certificate is valid: what browsers accept at most is 398.
_VALID_DAYS = 397
TEMPLATE = """\
# Configuration of this custodian; every line may be left out. Changes count after a restart.
name = {name}                  # certificates name it
host = "127.0.0.1"               # another address needs a certificate
port = 8787
page_port = 8788                 # status page for the custodian's staff, on this machine only; 0 for none
page_socket = ""                 # a file such as "page.sock" instead: a Unix socket that this user alone can open
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
class ServiceSettings:
    """Settings of one custodian; ``custodian.toml`` explains each."""

    name: str = "custodian"
    host: str = "127.0.0.1"
    port: int = 8787
    page_port: int = 8788
    page_socket: str = ""
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
    def read(folder: Path) -> ServiceSettings:
        """Read ``custodian.toml`` in a folder.

        Raises
        ------
        ValueError
            If a setting is unknown, or has another type.
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
        kinds: dict[str, Any] = {field.name: type(field.default) for field in fields(ServiceSettings)}
        for name, value in found.items():
            if name not in kinds:
                raise ValueError(f"expected settings of a custodian in {str(path)!r}, got {name!r}; remove it.")
            if not isinstance(value, kinds[name] | int if kinds[name] is float else kinds[name]):
                raise ValueError(
                    f"expected {name} in {str(path)!r} to be of another kind; see the line that init wrote."
                )
        for name in ("tls_certificate", "tls_key", "client_ca", "page_socket"):
            found[name] = str(folder / found[name]) if found.get(name) else ""
        return ServiceSettings(**found)


def settings_text(name: str, *, tls: bool) -> str:
    """Content of ``custodian.toml`` for a new custodian.

    Raises
    ------
    ValueError
        If the name cannot be used.
    """
    ServiceSettings(name=name)
    # JSON writes printable text as a basic string of TOML: quotes and backslashes are escaped alike.
    return TEMPLATE.format(name=json.dumps(name, ensure_ascii=False), tls="" if tls else "# ")


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a host of this name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def private_file(path: Path) -> Path:
    """Create a file that only this user can open; an existing one is kept and closed to others."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    path.chmod(0o600)
    return path


def private_folder(path: Path) -> Path:
    """Create a folder that only this user can open; an existing one is kept and closed to others."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def self_signed(host: str) -> tuple[bytes, bytes]:
    """Self-signed certificate and private key of a host name or address, as PEM; clients pass it as their authority.

    Raises
    ------
    ValueError
        If the host cannot be in a certificate.
    """
    # Imported here because clients import this module, and only 'init --tls-for' needs these.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    name: x509.GeneralName
    try:
        name = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        name = x509.DNSName(host)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


__all__ = [
    "CERTIFICATE",
    "CONFIG",
    "KEY",
    "ServiceSettings",
    "is_loopback",
    "private_file",
    "private_folder",
    "self_signed",
    "settings_text",
]
