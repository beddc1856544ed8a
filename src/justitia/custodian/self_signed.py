"""A certificate for one host that signs itself: enough where clients are given it as their authority."""

from __future__ import annotations

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAYS = 397


def self_signed(host: str) -> tuple[bytes, bytes]:
    """Certificate and key of a host, a name or an address, as PEM.

    Raises
    ------
    ValueError
        If the host cannot be in a certificate.
    """
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName([_name(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    kind = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())
    return made.public_bytes(serialization.Encoding.PEM), private


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


__all__ = ["self_signed"]
