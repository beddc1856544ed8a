"""The default base, by one rule from public numbers: boosted trees whose size follows the number of rows."""

from __future__ import annotations

from typing import Any

from justitia.learners.base import CrossFitted

#: Trees and leaves for at most so many rows; evidence in ``docs/plugin.md``.
SIZES = ((2_000, 60, 7), (20_000, 150, 15), (10**12, 200, 31))
LEARNING_RATE = 0.06


def default_base(n: int) -> CrossFitted:
    """Boosted trees of LightGBM for n rows, on numbers after the estimator's preprocessing."""
    trees, leaves = next((trees, leaves) for most, trees, leaves in SIZES if n <= most)
    return CrossFitted(boosted_trees("LGBMClassifier", n_estimators=trees, num_leaves=leaves), encoded=True)


def boosted_trees(kind: str, **size: int) -> Any:
    """An estimator of LightGBM that gives the same answer on every machine; imported when needed."""
    import lightgbm  # noqa: PLC0415

    return getattr(lightgbm, kind)(
        learning_rate=LEARNING_RATE,
        min_child_samples=20,
        verbosity=-1,
        n_jobs=1,
        random_state=0,
        deterministic=True,
        force_row_wise=True,
        **size,
    )
