"""One client's way to a custodian: a key, TLS, and requests that may be sent again.

Every request is safe to repeat: facts change nothing, a cohort is named by its people, and an answer is kept under its
request id. So a connection that is lost is tried again, and costs nothing more.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from justitia.custodian.settings import is_loopback
from justitia.exceptions import BudgetExceeded, LedgerError

#: Where a key is looked for if none is named: the key itself, or the file that holds it.
KEY, KEY_FILE = "JUSTITIA_CUSTODIAN_KEY", "JUSTITIA_CUSTODIAN_KEY_FILE"
#: Pauses before the same request is sent again, in seconds.
PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0)
_LONGEST_WAIT = 30
_AGAIN = {408, 429, 502, 503, 504}
_LEDGER_KINDS = {"budget": BudgetExceeded, "lost": LedgerError, "replay": LedgerError}


def read_key(key_file: Path | str | None) -> str:
    """The key, from a file or from the environment; never from an argument, which others see.

    Raises
    ------
    ValueError
        If there is none.
    """
    named = key_file if key_file is not None else os.environ.get(KEY_FILE)
    text = Path(named).read_bytes().decode("ascii", "replace") if named is not None else os.environ.get(KEY, "")
    if len(text.split()) != 1 or not text.strip().isascii() or not text.strip().isprintable():
        raise ValueError(
            f"expected the key of a custodian's client, got none; name its file with key_file (--custodian-key), or "
            f"set {KEY_FILE}."
        )
    return text.strip()


class Connection:
    """Requests to one custodian.

    Parameters
    ----------
    url : str
        Its address; plain HTTP only on this machine.
    key : str
        Never shown.
    ca_file, certificate, certificate_key : path, optional
        The authority that signed the custodian's certificate, and this client's own one.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        ca_file: Path | str | None = None,
        certificate: Path | str | None = None,
        certificate_key: Path | str | None = None,
        timeout: float = 300.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
            raise ValueError(f"expected the address of a custodian, got {url!r}; pass one such as 'https://host:8787'.")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError(
                f"expected https where the custodian is another machine, got {url!r}; your key would be read."
            )
        self.url = url.rstrip("/")
        # No connection stays open between questions, so a service that stops has none to wait for.
        self._headers = {"Authorization": f"Bearer {key}", "Connection": "close"}
        options: dict[str, Any] = {
            "timeout": urllib3.Timeout(connect=10.0, read=timeout),
            "retries": False,
            "maxsize": 2,
        }
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=None if ca_file is None else os.fspath(ca_file))
            if certificate is not None:
                context.load_cert_chain(os.fspath(certificate), None if certificate_key is None else certificate_key)
            options["ssl_context"] = context
        self._pool = urllib3.PoolManager(**options)

    def get(self, path: str, **query: Any) -> Any:
        """Facts as JSON."""
        body, _ = self._send("GET", path, query, None, "")
        return _json(body)

    def post(self, path: str, body: bytes, kind: str, **query: Any) -> tuple[bytes, Mapping[str, str]]:
        """An answer and its headers."""
        return self._send("POST", path, query, body, kind)

    def _send(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | None, kind: str
    ) -> tuple[bytes, Mapping[str, str]]:
        url = f"{self.url}{path}{'?' + urlencode(query) if query else ''}"
        headers = self._headers | ({"Content-Type": kind} if kind else {})
        for pause in (*PAUSES, None):
            try:
                found = self._pool.request(method, url, body=body, headers=headers, redirect=False)
            except urllib3.exceptions.SSLError:
                raise ConnectionError(
                    f"expected a certificate that is trusted here from {self.url!r}, and one of ours if it wants one; "
                    "pass ca_file (--custodian-ca) and certificate (--custodian-certificate)."
                ) from None
            except urllib3.exceptions.HTTPError:
                found = None
            if found is not None and not (found.status in _AGAIN and pause is not None):
                return self._read(found)
            if pause is None:
                raise ConnectionError(
                    f"expected an answer from the custodian at {self.url!r}, got none; is it running?"
                )
            time.sleep(max(pause, 0 if found is None else _wait_of(found)))
        raise AssertionError  # the last pause is None

    def _read(self, found: urllib3.BaseHTTPResponse) -> tuple[bytes, Mapping[str, str]]:
        if found.status == 200:
            return found.data, found.headers
        told = _json(found.data) if found.data[:1] == b"{" else {}
        sentence, kind = str(told.get("error", f"it answered {found.status}.")), str(told.get("kind", ""))
        error: type[Exception] = _LEDGER_KINDS.get(kind, PermissionError if kind in {"key", "role"} else ValueError)
        raise error(f"The custodian at {self.url!r} refused: {sentence}")

    def __repr__(self) -> str:
        return f"Connection({self.url!r})"


def _wait_of(found: urllib3.BaseHTTPResponse) -> int:
    """Seconds after which the custodian wants to be asked again; not more than it would ever say."""
    said = found.headers.get("Retry-After", "")
    return min(int(said), _LONGEST_WAIT) if said.isdecimal() and len(said) < 9 else 0


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("expected facts from the custodian, got other data; is this its address?")
    return found


__all__ = ["KEY", "KEY_FILE", "Connection", "read_key"]
