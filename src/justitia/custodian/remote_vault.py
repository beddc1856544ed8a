"""A vault that asks a custodian: rows go out in parts, noised sums and a receipt come back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

from justitia.custodian.wire import ARROW, from_stream, to_stream
from justitia.privacy.accounting import Cost
from justitia.privacy.bounding import check_bound, with_norm_rounding
from justitia.privacy.certificate import Certificate
from justitia.privacy.groups import Groups, group_names
from justitia.privacy.interface import Vault
from justitia.privacy.keys import new_name
from justitia.privacy.ledger import PrivacyLedger, Release
from justitia.privacy.mechanisms import Gaussian, Noise
from justitia.privacy.rows import DenseSource, TensorRows

if TYPE_CHECKING:
    from justitia.custodian.remote import Custodian

#: Bytes of rows that are sent at once, unless the custodian takes less.
PART = 8 << 20


class RemoteVault(Vault):
    """Asks a custodian, and keeps its own account of what that cost.

    Parameters
    ----------
    holder : Custodian
    ledger : PrivacyLedger
        This run's own account, debited before the custodian is asked; what holds is the custodian's.
    """

    __slots__ = ("_holder", "_last", "_ledger")

    def __init__(self, holder: Custodian, ledger: PrivacyLedger) -> None:
        self._holder, self._ledger = holder, ledger
        self._last: Mapping[str, Any] | None = None

    def __len__(self) -> int:
        return len(self._holder)

    @property
    def groups(self) -> Groups:
        """The public list of labels."""
        return tuple(self._holder.groups)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Their printable names."""
        return group_names(self.groups, names=self._holder.columns)

    @property
    def rows_per_person(self) -> int:
        """1: every id comes once."""
        return 1

    @property
    def persons_digest(self) -> str:
        """Nothing: a row is what is protected."""
        return ""

    def check(self, costs: Mapping[Cost, int]) -> None:
        """Both accounts have to allow it."""
        self._ledger.check(costs)
        self._holder.check_afford(costs)

    def group_sums(self, values: Tensor | DenseSource, *, bound: float, noise: Noise, purpose: str) -> Tensor:
        """(G, d): noised sums, made by the custodian of the rows that are sent to it."""
        if not isinstance(noise, Gaussian):
            self._not_here("an answer without noise", "pass a finite epsilon")
        source = _rows_of(values)
        if len(source) != len(self):
            raise ValueError(f"Expected one public row per label ({len(self)}); got {len(source)}.")
        sensitivity = math.sqrt(2) * with_norm_rounding(check_bound(bound), source.width)
        self._ledger.debit(Release(purpose, noise.cost(), sensitivity))
        asked = {"request": new_name(), "purpose": purpose, "bound": repr(float(bound))}
        asked |= {"noise_multiplier": repr(float(noise.noise_multiplier))}
        answer, headers = self._sent(source, asked)
        self._last = self._holder.received(answer, headers)
        return torch.from_numpy(from_stream(answer, widest=2**31 - 1).copy())

    def _sent(self, source: DenseSource, asked: dict[str, str]) -> tuple[bytes, Mapping[str, str]]:
        """All parts, one after the other; the answer comes with the last."""
        holder = self._holder
        each = max(1, min(PART, int(holder.facts["rows_at_once"])) // (8 * source.width))
        parts = max(1, math.ceil(len(self) / each))
        path = f"/v1/cohorts/{holder.cohort}/sums"
        bar = tqdm(total=len(self), disable=not holder.progress, unit="row", desc=asked["purpose"])
        answer: tuple[bytes, Mapping[str, str]] = (b"", {})
        with bar:
            for part, rows in enumerate(_regrouped(source, each)):
                number = {"part": part, "parts": parts}
                answer = holder.connection.post(path, to_stream(rows), ARROW, **asked, **number)
                bar.update(len(rows))
        return answer

    def certificate(
        self, *, planned: int = 1, claim: dict[str, Any] | None = None, subject: str = "Every output of training"
    ) -> Certificate:
        """What the custodian's ledger can say about everything asked of these people so far."""
        del claim
        path = f"/v1/populations/{self._holder.population}/certificate"
        told = self._holder.connection.get(path, planned=planned, subject=subject)
        return self._holder.signed(Certificate.from_dict(told), self._last)

    def __repr__(self) -> str:
        return f"RemoteVault(n={len(self)}, groups={list(self.group_names)})"


def _rows_of(values: Tensor | DenseSource) -> DenseSource:
    if not isinstance(values, Tensor):
        return values
    rows = values.detach().double()
    return TensorRows(rows[:, None] if rows.dim() == 1 else rows)


def _regrouped(source: DenseSource, each: int) -> Iterator[NDArray[np.float64]]:
    """The same rows, so many at a time."""
    held: list[Tensor] = []
    size = 0
    for _, rows in source.dense():
        held.append(rows.detach().double())
        size += len(rows)
        while size >= each:
            joined = torch.cat(held)
            yield joined[:each].numpy()
            held, size = [joined[each:]], size - each
    if size:
        yield torch.cat(held).numpy()


__all__ = ["RemoteVault"]
