"""Whether noised sizes of the groups say that a run cannot work: asked first, for a small share of the budget.

The answer is a function of noised sizes and public numbers alone, so whether a run stops tells no more than they do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from justitia.engines.moments.known_noise import noise_spread
from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Noise
from justitia.privacy.rows import DenseSource

#: Sizes are judged where all rows, or the mean of a group, are so many standard deviations of their noise.
TELLING = 8.0
#: All groups together are not there if their noised sizes add up to less than so many standard deviations.
NOBODY = 3.0
#: A group is too small to be compared if its noised size is at most so many: an empty one is noticed 98 times in 100,
#: one of four standard deviations is stopped for it twice in 100 times, one of five about once in 1,000.
EMPTY = 2.0
GO_ON = "or pass --small-groups (in Python, share_sizes=0) to train anyway"


def refusal(sizes: NDArray[np.float64], spread: float, n: int, names: Sequence[str], share: float) -> str | None:
    """Why a run with these groups cannot work; None if nothing speaks against it.

    Parameters
    ----------
    sizes : ndarray (G,)
        Noised.
    spread : float
        Known standard deviation of each.
    n : int
        Rows, public.
    share : float
        Of the budget that was spent on them.
    """
    asked = f"asked for {share:.0%} of the budget and nothing else"
    total = float(sizes.sum())
    if n >= TELLING * spread and total <= min(NOBODY * spread, n / TELLING):
        return (
            f"the noised sizes of all {len(sizes)} groups ({asked}) add up to about {max(total, 0):.0f} of {n:,} rows; "
            f"check the names of the groups, where capital letters count, {GO_ON}."
        )
    empty = [name for name, size in zip(names, sizes, strict=True) if size <= EMPTY * spread]
    if n < TELLING * spread * len(sizes) or not empty:
        return None
    listed = ", ".join(repr(name) for name in empty[:3]) + (", ..." if len(empty) > 3 else "")
    return (
        f"{len(empty)} of {len(sizes)} groups ({listed}) have a noised size ({asked}) of at most {EMPTY * spread:.0f} "
        f"rows; merge them with others (--bins cuts a number), correct or leave out their names, {GO_ON}."
    )


def ask_sizes(vault: Vault, ones: DenseSource, noise: Noise, n: int, share: float) -> None:
    """Ask for noised sizes, a sum of ones, and stop by them alone, before more is spent.

    Raises
    ------
    ValueError
        If they say that the run cannot work.
    """
    answer = vault.group_sums(ones, bound=1.0, noise=noise, purpose="sizes")[:, 0]
    spread = noise_spread(noise, float(vault.rows_per_person), vault.n_groups)
    sentence = refusal(answer, spread, n, [str(name) for name in vault.group_names], share)
    if sentence is not None:
        raise ValueError(sentence)
