"""Public rows whose group sums the moments engine asks for: what may tell the groups apart, bounded by 1.

A row holds a constant, the row's features, a public representation of it and its score: a network's last hidden layer
and its logit, or what a model of the label says. They come in one block per label, or once, with the label as one more
column. Everything here is a function of features, labels and a public model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from justitia.privacy.rows import index_chunks, placed_chunks
from justitia.training.remarks import silence_by_label

Array = NDArray[Any]
Index = NDArray[np.int64]
#: Standardised features are cut off here, so that one far outlier does not make everybody else's row small.
CUT = 3.0
#: Features, or hidden units, beyond this number are replaced by as many principal components.
MOST_FEATURES = 128
#: Rows from which means, scales and principal components are computed.
SAMPLE = 20_000
#: Share of rows that keep their length; longer ones are shortened to the bound.
KEPT = 0.8
#: Rows of one product of matrices, at most; those of fewer rows are filled up.
PLACES = 2048
#: What rows learn from a sample of theirs, and how many of them are computed at once.
_LEARNED = (
    "_chunk_rows",
    "_blocks",
    "_centre",
    "_spread",
    "_axes",
    "_hidden_axes",
    "_hidden_length",
    "_score_length",
    "_length",
)


class PublicRows:
    """Rows of norm at most 1 for everybody, computed a few at a time.

    Parameters
    ----------
    represent : callable
        From the positions of rows to an (m, width) representation and (m,) scores; public.
    X, y : ndarray
        Public features and labels.
    chunk_rows : int
        Rows computed at once; bounds memory.
    blocks : bool
        One block per label; otherwise the label is a column, for half as many sums and less noise.
    """

    def __init__(
        self,
        represent: Callable[[Index], tuple[Array, Array]],
        X: Array,
        y: Array,
        *,
        chunk_rows: int,
        blocks: bool = True,
    ) -> None:
        self._represent, self._blocks = represent, blocks
        self._X, self._y, self._chunk_rows = X, y, chunk_rows
        sample = np.linspace(0, len(X) - 1, min(SAMPLE, len(X))).astype(np.int64)
        flat = _flat(X[sample])
        spread = flat.std(0)
        self._centre, self._spread = flat.mean(0), np.where(spread > 0, spread, np.float32(1.0))
        self._axes = _principal_axes(self._standardised(X[sample]), MOST_FEATURES)
        hidden, scores = represent(sample)
        self._hidden_axes = _principal_axes(hidden, MOST_FEATURES)
        self._hidden_length = max(float(np.linalg.norm(hidden, axis=1).mean()), 1e-6)
        self._score_length = CUT * max(float(np.abs(scores).mean()), 1e-6)
        self._length = 1.0
        label = 0.0 if blocks else 1.0  # its column is 1 or -1 before it is scaled
        self._length = float(np.quantile(np.hypot(np.linalg.norm(self._base(sample), axis=1), label), KEPT))

    def of(self, represent: Callable[[Index], tuple[Array, Array]], X: Array, y: Array) -> PublicRows:
        """Other rows, standardised and bounded as these are."""
        others = copy.copy(self)
        others._represent, others._X, others._y = represent, X, y
        return others

    def numbers(self) -> dict[str, Any]:
        """Everything that was learned from the rows: means, scales, axes and lengths."""
        return {name: getattr(self, name) for name in _LEARNED}

    @classmethod
    def from_numbers(cls, numbers: dict[str, Any]) -> PublicRows:
        """No rows yet, and what :meth:`numbers` of others gave; :meth:`of` adds rows."""
        made = cls.__new__(cls)
        for name in _LEARNED:
            setattr(made, name, numbers[name])
        return made

    def __len__(self) -> int:
        return len(self._X)

    @property
    def places(self) -> int:
        """Rows of one product of matrices."""
        return min(self._chunk_rows, PLACES)

    @property
    def width(self) -> int:
        """Number of columns: those of a person once per label, or one more than those of a person."""
        each = int(self._base(np.zeros(1, dtype=np.int64)).shape[1])
        return 2 * each if self._blocks else each + 1

    def constants(self) -> Index:
        """(width,): for each column, the position of the constant of its block."""
        block = self.width // 2 if self._blocks else self.width
        return np.arange(self.width) // block * block

    def take(self, index: Index, label: float | None = None) -> Array:
        """(m, width): these rows, by their own labels or as if all had one label."""
        base = np.nan_to_num(self._base(index), nan=0.0, posinf=0.0, neginf=0.0)  # a network may diverge
        positive = self._y[index, None].astype(base.dtype)
        positive = positive if label is None else np.full_like(positive, label)
        if not self._blocks:
            base = np.concatenate([base, (2 * positive - 1) * base[:, :1]], axis=1)
        base = base / np.maximum(np.linalg.norm(base, axis=1, keepdims=True), np.float32(1.0))
        return np.concatenate([base * (1 - positive), base * positive], axis=1) if self._blocks else base

    def sizes(self, sums: Array, total: Array, n: int) -> Array:
        """(C, 2): about how many of n rows, by label, the sums are of; the total of all rows is public."""
        if self._blocks:
            constants = [0, self.width // 2]
            sizes, everybody = sums[:, constants], total[constants].sum()
        else:
            sizes = np.stack([sums[:, 0] - sums[:, -1], sums[:, 0] + sums[:, -1]], axis=1) / 2
            everybody = total[0]
        counted: Array = sizes * n / everybody
        return counted

    def silence(self, answer: Array, total: Array, spread: float, n: int) -> Array:
        """(2, 2): by label, the share of "not given" and its noise, from sums with noise of this deviation."""
        one = np.zeros_like(total)
        one[0] = 1.0  # what a sum of the constant is in rows
        unit, everybody = self.sizes(one[None], total, n).sum(), self.sizes(total[None], total, n)[0]
        return silence_by_label(self.sizes(answer, total, n), everybody, spread * float(unit))

    def dense(self) -> Iterator[tuple[Index, Array]]:
        """Yield ``(positions, rows)`` for all rows in order."""
        for part in index_chunks(len(self), self._chunk_rows):
            yield part, self.placed(int(part[0]), part)

    def placed(self, first: int, part: Index) -> Array:
        """(m, width): consecutive rows, of which the first has this position among all rows.

        To the last bit it does not matter which of the others are here (``placed_chunks``).
        """
        chunks = placed_chunks(first, len(part), self.places)
        return np.concatenate([self.take(part[who])[places] for places, who in chunks])

    def _standardised(self, X: Array) -> Array:
        standardised: Array = np.clip((_flat(X) - self._centre) / self._spread, -CUT, CUT)
        return standardised

    def _base(self, index: Index) -> Array:
        """(m, width / 2): constant, features, representation and score, each part of length about 1."""
        features = self._standardised(self._X[index])
        hidden, scores = self._represent(index)
        parts = [
            np.ones((len(index), 1), dtype=np.float32),
            (features if self._axes is None else features @ self._axes) / features.shape[1] ** 0.5,
            (hidden if self._hidden_axes is None else hidden @ self._hidden_axes) / self._hidden_length,
            np.clip(scores[:, None] / self._score_length, -1, 1),
        ]
        return np.concatenate([part.astype(np.float32) for part in parts], axis=1) / np.float32(self._length)


def _flat(X: Array) -> NDArray[np.float32]:
    return X.reshape(len(X), -1).astype(np.float32, copy=False)


def _principal_axes(standardised: Array, most: int) -> Array | None:
    """(p, most): directions in which the rows differ most; None if there are few enough features as it is."""
    if standardised.shape[1] <= most:
        return None
    # a public sketch; the same one whenever a run is resumed
    axes: Array = randomized_svd(standardised, min(most, len(standardised)), n_iter=2, random_state=0)[2].T
    return axes
