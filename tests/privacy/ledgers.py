"""Ledgers and releases of a known price, and work in threads and forked processes."""

import os
from pathlib import Path

import pytest

from justitia.privacy.accounting import (
    Cost,
    GaussianCost,
    RandomizedResponseCost,
    UnboundedCost,
)
from justitia.privacy.ledger import PrivacyLedger, Release

# One Gaussian release with this multiplier costs epsilon 0.9999 at delta 1e-5 (mu = 0.2680).
SIGMA = 3.731


FULL, WEAK = GaussianCost(SIGMA), GaussianCost(10 * SIGMA)


RESPONSE, UNBOUNDED = RandomizedResponseCost(0.25, 3), UnboundedCost()


def release(cost: Cost = FULL, purpose: str = "check round 3") -> Release:
    return Release(purpose, cost, 2.0)


def ledger(epsilon: float = 1.0, delta: float = 1e-5, journal: Path | None = None) -> PrivacyLedger:
    return PrivacyLedger(epsilon=epsilon, delta=delta, journal=journal)


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
