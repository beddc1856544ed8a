"""Small bases and price lists in all models that are saved here."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def always_quick(quick_fits: None) -> None:
    """No test here is about the default base or the price list."""
