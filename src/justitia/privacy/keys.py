"""Keys of clients: drawn from the operating system, kept as a hash.

A key has 256 bits, so nobody finds one by trying, and a plain hash is enough to store.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

PREFIX = "justitia-"


def new_key() -> str:
    """A key as text, for one client."""
    return PREFIX + base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")


def new_name() -> str:
    """A public name that nothing else has."""
    return os.urandom(16).hex()


def key_hash(key: str) -> str:
    """What is stored of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def same_hash(one: str, other: str) -> bool:
    """Whether two hashes are the same, in a time that does not tell where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


__all__ = ["key_hash", "new_key", "new_name", "same_hash"]
