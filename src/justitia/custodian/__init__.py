"""Custodian: an HTTP service that holds the sensitive attribute, and the client that trains against it."""

from justitia.custodian.remote import Custodian

__all__ = ["Custodian"]
