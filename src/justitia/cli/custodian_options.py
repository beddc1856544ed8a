"""From the options of a custodian to the client that asks it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from justitia.cli.errors import Refusal

if TYPE_CHECKING:
    from justitia.custodian import Custodian

#: Options, as commands name them.
NAMES = ("custodian", "population", "custodian_key", "custodian_ca", "custodian_certificate", "receipts")


@dataclass(frozen=True)
class CustodianOptions:
    """Address, population, and files with key, authority, certificate and receipts."""

    url: str
    population: str
    key_file: Path | None = None
    ca_file: Path | None = None
    certificate: Path | None = None
    receipts: Path | None = None

    @classmethod
    def taken(cls, values: dict[str, Any]) -> CustodianOptions | None:
        """Take them out of a command's options; None if no custodian was named."""
        url, population, *files = (values.pop(name, None) for name in NAMES)
        if url is None:
            if population is not None or any(file is not None for file in files):
                raise Refusal("expected --custodian URL beside --population and its files, got none; name the address.")
            return None
        if population is None:
            raise Refusal("expected the name of the custodian's population, got none; pass --population NAME.")
        return cls(url, population, *files)

    def open(self, ids: Sequence[str | None] | str) -> Custodian:
        """The client for these people; where rows are in files, the name of the column with their ids."""
        try:
            from justitia.custodian import Custodian  # noqa: PLC0415 - an extra
            from justitia.custodian.connection import KEY, KEY_FILE  # noqa: PLC0415
        except ImportError:
            raise Refusal("--custodian needs more packages; run pip install 'justitia[custodian]'.") from None
        if self.key_file is None and not {KEY, KEY_FILE} & set(os.environ):
            raise Refusal(
                f"expected the key of a custodian's client, got none; pass --custodian-key, or set {KEY_FILE}."
            )
        tls: dict[str, Any] = {"ca_file": self.ca_file, "certificate": self.certificate}
        files: dict[str, Any] = {"key_file": self.key_file, "receipts": self.receipts}
        return Custodian(self.url, population=self.population, ids=ids, **files, **tls)
