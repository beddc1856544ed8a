"""Smaller default bases and shorter price lists, for tests that are about neither."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

#: Learning rate and trees at most, as in ``lightgbm_base.RATE_BY_ROWS``; and tolerances, as in ``price.TOLERANCES``.
RATE_BY_ROWS = ((10**12, 0.2, 20),)
TOLERANCES = (0.2, 0.05, 0.0)


@contextmanager
def smaller_fits() -> Iterator[None]:
    """In this process, a fit costs about half of what it costs users; what it asks of the vault is the same."""
    from justitia.learners import lightgbm_base
    from justitia.postprocessing import regression, solver

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lightgbm_base, "RATE_BY_ROWS", RATE_BY_ROWS)
        for module in (solver, regression):
            patch.setattr(module, "TOLERANCES", TOLERANCES)
        patch.setattr(solver, "FEW_TOLERANCES", TOLERANCES)
        yield
