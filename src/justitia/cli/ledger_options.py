"""From the options of a ledger to the ledger itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from justitia.cli.errors import Refusal, shown_path
from justitia.privacy.durable_ledger import DurableLedger


@dataclass(frozen=True)
class LedgerOptions:
    """File, name and total budget, as far as they were given."""

    file: Path | None = None
    name: str | None = None
    epsilon: float | None = None

    @classmethod
    def taken(cls, values: dict[str, Any]) -> LedgerOptions:
        """Take them out of a command's options."""
        return cls(values.pop("ledger"), values.pop("ledger_name"), values.pop("ledger_epsilon"))

    def open(self, delta: float) -> DurableLedger | None:
        """The ledger; None if no file was named.

        Raises
        ------
        Refusal
            If a new one would have no name or no budget.
        LedgerError
            If the file is that of other people, or cannot be used.
        """
        if self.file is None:
            if self.name is not None or self.epsilon is not None:
                raise Refusal("expected --ledger FILE beside --ledger-name and --ledger-epsilon, got none.")
            return None
        if self.file.exists():
            held = DurableLedger.open(self.file)
            return DurableLedger(
                self.file,
                dataset=held.dataset if self.name is None else self.name,
                epsilon=held.budget_epsilon if self.epsilon is None else self.epsilon,
                delta=delta,
            )
        if self.name is None or self.epsilon is None:
            raise Refusal(
                f"there is no ledger {shown_path(self.file)} yet; make it with 'justitia budget create', or pass "
                "--ledger-name and --ledger-epsilon."
            )
        return DurableLedger(self.file, dataset=self.name, epsilon=self.epsilon, delta=delta)
