"""The custodian: a small service that holds the attribute, and the client that trains against it."""

from justitia.custodian.remote import Custodian

__all__ = ["Custodian"]
