"""HTTP connection of a client to a custodian, with retries, and the receipts that a client keeps.

Every request is idempotent: reading facts changes nothing, the name of a cohort is a hash of its ids, and an answer is
stored under its request id. So a request whose connection was lost is sent again, and nothing is debited twice.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from justitia.custodian.settings import is_loopback
from justitia.exceptions import BudgetExceeded, LedgerError

#: Environment variables with the key itself, or with the name of its file, for clients that pass no ``key_file``.
KEY, KEY_FILE = "JUSTITIA_CUSTODIAN_KEY", "JUSTITIA_CUSTODIAN_KEY_FILE"
#: Seconds to wait before each retry.
PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0)
#: Limit on the seconds that a service's Retry-After is followed.
_MAX_WAIT = 30
_RETRIED_STATUS = {408, 429, 502, 503, 504}
#: Exception for each kind of error that concerns the ledger.
_LEDGER_ERRORS = {"budget": BudgetExceeded, "lost": LedgerError, "replay": LedgerError}


def read_key(key_file: Path | str | None) -> str:
    """The client's key, from a file or from the environment; never from an argument, which other users can see.

    Raises
    ------
    ValueError
        If there is no key.
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
        Address of the service; plain HTTP only on this machine.
    key : str
        The client's key; in no repr and no error.
    ca_file, certificate, certificate_key : path, optional
        The authority that signed the custodian's certificate, and this client's own certificate.
    timeout : float
        Seconds to wait for a response.
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
        # No connection stays open between requests, so a service that stops has none to wait for.
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
        """A JSON response."""
        body, _ = self._send("GET", path, query, None, "")
        return _json(body)

    def post(self, path: str, body: bytes, kind: str, **query: Any) -> tuple[bytes, Mapping[str, str]]:
        """Body and headers of a response."""
        return self._send("POST", path, query, body, kind)

    def _send(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | None, kind: str
    ) -> tuple[bytes, Mapping[str, str]]:
        url = f"{self.url}{path}{'?' + urlencode(query) if query else ''}"
        headers = self._headers | ({"Content-Type": kind} if kind else {})
        for pause in (*PAUSES, None):  # None: the last attempt
            try:
                response = self._pool.request(method, url, body=body, headers=headers, redirect=False)
            except urllib3.exceptions.SSLError:
                raise ConnectionError(
                    f"expected a certificate that is trusted here from {self.url!r}, and one of ours if it wants one; "
                    "pass ca_file (--custodian-ca) and certificate (--custodian-certificate)."
                ) from None
            except urllib3.exceptions.HTTPError:
                response = None
            if response is not None and not (response.status in _RETRIED_STATUS and pause is not None):
                return self._read(response)
            if pause is None:
                raise ConnectionError(
                    f"expected an answer from the custodian at {self.url!r}, got none; is it running?"
                )
            time.sleep(max(pause, 0 if response is None else _retry_after(response)))
        raise AssertionError  # the last attempt returns or raises

    def _read(self, response: urllib3.BaseHTTPResponse) -> tuple[bytes, Mapping[str, str]]:
        """Body and headers, or the exception that the error of the service stands for."""
        if response.status == 200:
            return response.data, response.headers
        facts = _json(response.data) if response.data[:1] == b"{" else {}
        message, kind = str(facts.get("error", f"it answered {response.status}.")), str(facts.get("kind", ""))
        error: type[Exception] = _LEDGER_ERRORS.get(kind, PermissionError if kind in {"key", "role"} else ValueError)
        raise error(f"The custodian at {self.url!r} refused: {message}")

    def __repr__(self) -> str:
        return f"Connection({self.url!r})"


def _retry_after(response: urllib3.BaseHTTPResponse) -> int:
    """Seconds in the header Retry-After, up to a limit."""
    text = response.headers.get("Retry-After", "")
    return min(int(text), _MAX_WAIT) if text.isdecimal() and len(text) < 9 else 0


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("expected facts from the custodian, got other data; is this its address?")
    return found


class Receipts:
    """Receipts of a population that a client was given, which the custodian's chain must still hold later.

    Threads may share it.

    Parameters
    ----------
    path : path or None
        File that keeps the receipts, a line of JSON each; None keeps them in memory only.
    population : str
    """

    def __init__(self, path: Path | None, population: str) -> None:
        self._path, self._population = path, population
        self._links: dict[int, str] = {}
        self._lock = threading.Lock()
        for line in [] if path is None or not path.exists() else path.read_text(encoding="utf-8").splitlines():
            try:
                receipt = json.loads(line)
                if receipt["population"] == population:
                    self._links[int(receipt["number"])] = str(receipt["link"])
            except (ValueError, KeyError, TypeError):
                raise LedgerError(
                    f"expected receipts in {str(path)!r}, a line of JSON each, got another line; remove it."
                ) from None

    @property
    def newest(self) -> int | None:
        """Number of the newest receipt; None while there is none."""
        with self._lock:
            return max(self._links, default=None)

    def keep(self, receipt: dict[str, Any]) -> bool:
        """Keep a receipt; the same one may come again.

        Returns
        -------
        bool
            Whether it is the newest. An earlier one is right where answers arrive in another order than receipts were
            made, and wrong where the custodian went back to an earlier state: ask it for the newest one's link.

        Raises
        ------
        LedgerError
            If another receipt had its number.
        """
        number, link = int(receipt["number"]), str(receipt["link"])
        with self._lock:
            known = self._links.get(number)
            if known not in {None, link}:
                raise self._rewritten(number)
            self._links[number] = link
            if known is None and self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(receipt) + "\n")
            return number == max(self._links)

    def check_link(self, number: int, link: Any) -> None:
        """Raise :class:`~justitia.LedgerError` unless this is the link of the receipt with this number."""
        with self._lock:
            if self._links[number] != link:
                raise self._rewritten(number)

    def _rewritten(self, number: int) -> LedgerError:
        return LedgerError(
            f"The custodian's ledger of {self._population!r} does not hold receipt {number}, which it gave: it was put "
            "back or rewritten; ask the custodian to restore its newest copy."
        )


__all__ = ["KEY", "KEY_FILE", "Connection", "Receipts", "read_key"]
