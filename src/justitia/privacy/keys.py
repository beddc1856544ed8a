"""API keys of a custodian's clients: drawn from the operating system, stored as a hash.

A key has 256 random bits, so it cannot be guessed, and an unsalted hash is enough to store.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

PREFIX = "justitia-"


def new_key() -> str:
    """A new key as text, for one client."""
    return PREFIX + base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")


def new_name() -> str:
    """A unique public name, such as a request id."""
    return os.urandom(16).hex()


def key_hash(key: str) -> str:
    """Hash under which a key is stored."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def same_hash(one: str, other: str) -> bool:
    """Whether two hashes are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


__all__ = ["key_hash", "new_key", "new_name", "same_hash"]
