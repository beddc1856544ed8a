"""What the service tells, as it is written in a reply; none of it is a number by group but for noised answers."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Public facts of a population; ``fits`` where a plan was asked about, ``link`` where a receipt was."""

    custodian: str
    population: str
    columns: tuple[str, ...]
    groups: tuple[str | tuple[str, ...], ...]
    neighbours: str
    epsilon: float
    delta: float
    spent: float
    left: float
    client_epsilon: float | None
    roles: tuple[str, ...]
    debits: int
    receipts: int
    head: str
    rows_at_once: int
    fits: int | UnsetType = UNSET
    link: str | UnsetType | None = UNSET


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A cohort; where ids are persons, how many rows one has at most and which rows are whose."""

    cohort: str
    people: int
    rows_each: int | UnsetType = UNSET
    persons: str | UnsetType = UNSET


class Received(msgspec.Struct, frozen=True):
    """How many parts of a question have come."""

    received: int
    parts: int


class Health(msgspec.Struct, frozen=True):
    """The service answers."""

    ok: bool = True


class Refusal(msgspec.Struct, frozen=True):
    """One sentence for people, and one word for programs."""

    error: str
    kind: str


__all__ = ["Facts", "Health", "Made", "Received", "Refusal"]
