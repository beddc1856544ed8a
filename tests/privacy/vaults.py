"""A vault over labels, a noise source that keeps what lies under the noise, and neighbours."""

import math
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from justitia.privacy.arrays import Array
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, NoiseSource, SeededNoise
from justitia.privacy.vault import SensitiveVault

NAMES = ("a", "b", "c", "d", "e")


NOISE = Gaussian(2.0)


derandomized = settings(derandomize=True, deadline=None, max_examples=40, database=None)


class Capture(NoiseSource):
    """Keeps the exact answer and adds nothing."""

    description = "capture"

    def __init__(self, seed: int = 0) -> None:
        self.exact: list[Array] = []
        self.std: list[float] = []
        self._seeded = SeededNoise(seed)

    def words(self, size: int, *, release: int, stream: str = "noise") -> NDArray[np.uint64]:
        return self._seeded.words(size, release=release, stream=stream)

    def add_gaussian(self, exact: Array, std: float, *, release: int) -> Array:
        self.exact.append(exact.copy())
        self.std.append(std)
        return exact


def open_vault(
    labels: Any,
    groups: Any = ("a", "b"),
    *,
    source: NoiseSource | None = None,
    epsilon: float = math.inf,
    missing: str = "allowed",
) -> tuple[SensitiveVault, PrivacyLedger]:
    ledger = PrivacyLedger(epsilon=epsilon, delta=1e-5)
    vault = SensitiveVault(labels, groups=groups, ledger=ledger, noise_source=source or Capture(), missing=missing)
    return vault, ledger


def exact_group_sums(labels: Any, groups: Any, values: Any, bound: float) -> tuple[Array, float]:
    source = Capture()
    vault, ledger = open_vault(labels, groups, source=source)
    vault.group_sums(values, bound=bound, noise=NOISE, purpose="test")
    sensitivity = ledger.releases[0].sensitivity
    assert source.std == [2.0 * sensitivity]
    return source.exact[0], sensitivity


numbers = st.floats(-1e3, 1e3) | st.sampled_from([0.0, math.nan, math.inf, -math.inf, 1e200])


@st.composite
def neighbours(draw: st.DrawFn) -> dict[str, Any]:
    """Public rows and two lists of labels that differ in one entry; the code G stands for "not given"."""
    n_groups = draw(st.sampled_from([2, 5]))
    n, d = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    code = st.integers(0, n_groups)
    codes = draw(st.lists(code, min_size=n, max_size=n))
    person, other = draw(st.integers(0, n - 1)), draw(code)
    names = [*NAMES[:n_groups], None]
    changed = [*codes[:person], other, *codes[person + 1 :]]
    return {
        "groups": NAMES[:n_groups],
        "labels": ([names[c] for c in codes], [names[c] for c in changed]),
        "person": person,
        "values": np.array(draw(st.lists(numbers, min_size=n * d, max_size=n * d))).reshape(n, d),
        "weights": np.array(
            draw(st.lists(st.floats(-9, 9), min_size=n * (n_groups + 1), max_size=n * (n_groups + 1)))
        ).reshape(n, n_groups + 1),
        "bound": draw(st.sampled_from([0.0, 0.1, 1.0, 700.0])),
    }
