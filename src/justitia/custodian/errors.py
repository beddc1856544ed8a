"""HTTP errors of the service: a status, a kind that programs read, and one sentence for people.

Guarantee
---------
* An error is made of what the client sent, of public facts, and of what the ledger holds; never of an attribute.
"""

from __future__ import annotations


class RequestError(Exception):
    """A request that the service refuses to answer.

    Parameters
    ----------
    status : int
        HTTP status.
    kind : str
        One word for programs.
    message : str
        One sentence for people.
    retry_after : int, optional
        Seconds after which the same request may succeed.
    """

    def __init__(self, status: int, kind: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.retry_after = status, kind, message, retry_after


def invalid_input(message: str) -> RequestError:
    """The request cannot be used as it was sent."""
    return RequestError(422, "input", message)


def not_found(what: str) -> RequestError:
    """The population or cohort does not exist, or this key may not use it: a client cannot tell which."""
    return RequestError(404, "unknown", f"there is no {what} of this name for this key; check the name and the key.")


def missing_role(role: str) -> RequestError:
    """The key is valid, but does not have this role."""
    return RequestError(
        403, "role", f"expected a key with the role {role!r}, got one without; ask the custodian for it."
    )


def too_large(what: str) -> RequestError:
    """The request exceeds a limit on size."""
    return RequestError(413, "size", f"expected {what}, got more; send less at once.")


INVALID_KEY = RequestError(
    401, "key", "expected a key of this custodian, got none that is valid; ask the custodian for one."
)
RATE_LIMITED = RequestError(429, "rate", "expected fewer requests per minute, got more; wait and send it again.", 2)
QUEUE_FULL = RequestError(
    429, "queue", "expected fewer requests of this client at once, got more; wait for an answer and send it again.", 2
)
CLIENT_MEMORY_FULL = RequestError(
    429, "memory", "expected fewer bytes of this client at once, got more; wait for an answer and send it again.", 2
)
MEMORY_FULL = RequestError(503, "memory", "the service has no memory for this request now; wait and send it again.", 2)
TWO_LENGTHS = RequestError(
    400, "length", "expected one of Content-Length and Transfer-Encoding, got both; send the length alone."
)
UNKNOWN_HOST = RequestError(
    400, "host", "expected the name of this service in the header Host, got another one; ask the custodian to allow it."
)
BODY_TIMEOUT = RequestError(
    408, "time", "expected the whole request within the time that is allowed, got less; send it again."
)
LEDGER_UNAVAILABLE = RequestError(
    503, "ledger", "the custodian's ledger or disk cannot be used now, so nothing is answered; try later."
)
INTERNAL_ERROR = RequestError(
    500, "unexpected", "the service met an error that it did not expect; tell the custodian the time."
)
REQUEST_ID_REUSED = RequestError(
    409, "replay", "this request id was used for another query; send it under a new one, which is debited."
)
ANSWER_LOST = RequestError(
    410,
    "lost",
    "the service stopped after this request was debited and before its answer was stored; the debit stands, and nobody "
    "has seen an answer: send it under a new request id, which is debited too.",
)

__all__ = [
    "ANSWER_LOST",
    "BODY_TIMEOUT",
    "CLIENT_MEMORY_FULL",
    "INTERNAL_ERROR",
    "INVALID_KEY",
    "LEDGER_UNAVAILABLE",
    "MEMORY_FULL",
    "QUEUE_FULL",
    "RATE_LIMITED",
    "REQUEST_ID_REUSED",
    "TWO_LENGTHS",
    "UNKNOWN_HOST",
    "RequestError",
    "invalid_input",
    "missing_role",
    "not_found",
    "too_large",
]
