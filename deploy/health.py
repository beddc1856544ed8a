"""Health check of the container: whether the custodian on this machine answers ``GET /healthz``.

Exits with 0 if it does and with 1 if not. The service may have TLS or not, and may ask for certificates of clients, of
which this check has none; a service that refuses it for that reason is alive. Standard library only.
"""

import http.client
import ssl
import sys

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 8787
SECONDS = 4


def answers(connection: http.client.HTTPConnection) -> bool:
    """Whether the service says that it is well."""
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except ssl.SSLError as error:
        return "CERTIFICATE_REQUIRED" in (error.reason or "")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> None:
    """Ask with TLS, then without; the address is this machine's own, so nothing is verified."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    secure = http.client.HTTPSConnection("127.0.0.1", PORT, timeout=SECONDS, context=unverified)
    alive = answers(secure) or answers(http.client.HTTPConnection("127.0.0.1", PORT, timeout=SECONDS))
    sys.exit(0 if alive else 1)


if __name__ == "__main__":
    main()
