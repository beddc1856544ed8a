"""What the service says instead of an answer: a status, a kind that programs read, and one sentence.

Guarantee
---------
* A refusal is made of what the client sent, of public facts, and of what the ledger holds; never of an attribute.
"""

from __future__ import annotations


class Refused(Exception):
    """A request that gets no answer.

    Parameters
    ----------
    status : int
        Of HTTP.
    kind : str
        One word for programs.
    sentence : str
        For people.
    pause : int, optional
        Seconds after which the same request may succeed.
    """

    def __init__(self, status: int, kind: str, sentence: str, pause: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.kind, self.sentence, self.pause = status, kind, sentence, pause


def wrong(sentence: str) -> Refused:
    """What was sent cannot be used."""
    return Refused(422, "input", sentence)


def unknown(what: str) -> Refused:
    """There is no such thing, or it is not this client's to see: both look alike."""
    return Refused(404, "unknown", f"there is no {what} of this name for this key; check the name and the key.")


def not_allowed(role: str) -> Refused:
    """The key is good for other things."""
    return Refused(403, "role", f"expected a key with the role {role!r}, got one without; ask the custodian for it.")


def too_large(what: str) -> Refused:
    """More than the service takes at once."""
    return Refused(413, "size", f"expected {what}, got more; send less at once.")


NO_KEY = Refused(401, "key", "expected a key of this custodian, got none that is valid; ask the custodian for one.")
TOO_OFTEN = Refused(429, "rate", "expected fewer requests per minute, got more; wait and send it again.", 2)
QUEUE_FULL = Refused(
    429, "queue", "expected fewer requests of this client at once, got more; wait for an answer and send it again.", 2
)
TOO_MUCH_AT_ONCE = Refused(
    429, "memory", "expected fewer bytes of this client at once, got more; wait for an answer and send it again.", 2
)
NO_MEMORY = Refused(503, "memory", "the service has no memory for this request now; wait and send it again.", 2)
TWO_LENGTHS = Refused(
    400, "length", "expected one of Content-Length and Transfer-Encoding, got both; send the length alone."
)
OTHER_HOST = Refused(
    400, "host", "expected the name of this service in the header Host, got another one; ask the custodian to allow it."
)
TOO_SLOW = Refused(408, "time", "expected the whole request within the time that is allowed, got less; send it again.")
NO_LEDGER = Refused(
    503, "ledger", "the custodian's ledger or disk cannot be used now, so nothing is answered; try later."
)
UNEXPECTED = Refused(500, "unexpected", "the service met an error that it did not expect; tell the custodian the time.")
OTHER_BODY = Refused(
    409, "replay", "this request id was used for another question; ask under a new one, which is debited."
)
LOST = Refused(
    410,
    "lost",
    "the service stopped after this request was debited and before its answer was kept; the debit stands, and nobody "
    "has seen an answer: ask under a new request id, which is debited too.",
)

__all__ = [
    "LOST",
    "NO_KEY",
    "NO_LEDGER",
    "NO_MEMORY",
    "OTHER_BODY",
    "OTHER_HOST",
    "QUEUE_FULL",
    "TOO_MUCH_AT_ONCE",
    "TOO_OFTEN",
    "TOO_SLOW",
    "TWO_LENGTHS",
    "UNEXPECTED",
    "Refused",
    "not_allowed",
    "too_large",
    "unknown",
    "wrong",
]
