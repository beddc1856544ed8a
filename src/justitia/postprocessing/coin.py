"""A public coin for rows near the line between two decisions.

Where features give the group away, the best rule under equalized odds tosses a coin for rows exactly on the line. The
coin here is a keyed hash of the encoded public row, uniform on [0, 1] over keys: a row with corrected probability p
gets the positive decision with probability 1/2 + (p - threshold) / width, cut off at 0 and 1. The key is public and
stored with the model, so the same row always gets the same decision, in any batch, order or container.

Written as a line that the coin moves, decisions stay a deterministic public function of the row. Dual, checks and their
bounds are those of decisions without a coin. With gains that the coin has moved, the mean of the largest gain is the
maximum smoothed over the band, whose slope is the linear ramp above.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Bytes of the key, and of a hash.
KEY_BYTES, HASH_BYTES = 16, 8


@dataclass(frozen=True)
class Coin:
    """How far the line moves for each row.

    Parameters
    ----------
    width : float
        Of the band, in units of the probability.
    key : bytes
        Public.
    """

    width: float
    key: bytes

    @classmethod
    def from_seed(cls, width: float, seed: int) -> Coin:
        """The coin of a seed of public randomness."""
        return cls(width, hashlib.blake2b(f"coin {seed}".encode(), digest_size=KEY_BYTES).digest())

    def toss(self, numbers: NDArray[np.float32]) -> NDArray[np.float64]:
        """(m,): numbers in [0, 1), each a function of its row and the key alone."""
        # Adding 0 makes -0.0 and 0.0, which are equal, one row.
        rows = np.ascontiguousarray(numbers.reshape(len(numbers), -1), dtype="<f4") + np.float32(0)
        keyed = hashlib.blake2b(key=self.key, digest_size=HASH_BYTES)
        hashes = bytearray()
        for row in rows.astype("<f4"):
            one = keyed.copy()
            one.update(row.tobytes())
            hashes += one.digest()
        return np.frombuffer(bytes(hashes), dtype="<u8").astype(np.float64) / 2.0 ** (8 * HASH_BYTES)

    def __call__(self, numbers: NDArray[np.float32]) -> NDArray[np.float64]:
        """(m,): what the gain 2 (p - threshold) has to exceed, between -width and width."""
        shift: NDArray[np.float64] = self.width * (2 * self.toss(numbers) - 1)
        return shift
