"""Public rows of the first release for a numeric target: principal components of the features, and the prediction.

A row holds a constant, principal components of the standardised features, and the base model's prediction m(x) of the
target, which is scaled to [0, 1] by its public range; where memberships may depend on the target, also the target and
the size of the residual. Rows have norm at most 1.

Noise of a sum is the same in every column, so a component pays only if groups can differ in it by more than the noise.
Components below that are left out: the others then fill the rows, and their sums stand out from the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, softmax

from justitia.postprocessing.association import FeaturePositions
from justitia.postprocessing.features import CUT, MOST_FEATURES, SAMPLE, aligned_product
from justitia.rows.source import Block

Array = NDArray[Any]
#: Lengths of the parts of a row, relative to that of all components together: constant, and each column of m and y.
#: Evidence for these numbers and those below is in ``docs/design_choices.md``.
CONSTANT, COLUMN = 0.5, 0.3
#: Share of rows that keep their length; longer ones are shortened to norm 1.
KEPT = 0.5
#: A component is kept if its sum over half of the rows, whose mean is a quarter of a standard deviation off, is at
#: least one standard deviation of the noise; so many are kept in any case.
OFF, LEAST = 0.25, 3


@dataclass(frozen=True, eq=False)
class NumberRows:
    """Row function of the moments: public rows of norm at most 1.

    Attributes
    ----------
    centre, scale : ndarray (p,)
        Of the features.
    axes : ndarray (p, r)
        Principal axes of the standardised features.
    columns : ndarray (2, k)
        Mean and standard deviation of the prediction and its log-odds and, where the target is a part of the row, of
        the target and the absolute residual.
    length : float
        By which all parts are divided.
    """

    centre: Array
    scale: Array
    axes: Array
    columns: Array
    length: float

    @classmethod
    def fit(cls, sample: Block, *, stddev: float, n: int, target: bool) -> NumberRows:
        """Learn means, axes and lengths from rows of the sample.

        Parameters
        ----------
        stddev : float
            Standard deviation of the noise of a sum.
        n : int
            Number of all rows.
        target : bool
            Whether the target is a part of the row.
        """
        some = sample.take(np.linspace(0, len(sample) - 1, min(SAMPLE, len(sample))).astype(np.int64))
        flat = some.X.reshape(len(some), -1).astype(np.float64)
        deviation = flat.std(0)
        centre, scale = flat.mean(0), np.where(deviation > 0, deviation, 1.0)
        standard = np.clip((flat - centre) / scale, -CUT, CUT)
        values, vectors = np.linalg.eigh(standard.T @ standard / len(some))
        values, vectors = values[::-1], vectors[:, ::-1]
        share = np.sqrt(np.maximum(values, 0.0) / max(float(values.sum()), 1e-12))  # of the length of a row
        number = int(np.clip((n / 2 * OFF * share >= stddev).sum(), min(LEAST, len(values)), MOST_FEATURES))
        axes = vectors[:, :number] / np.sqrt(max(float(values[:number].sum()), 1e-12))
        columns = _columns(some, some.y, target=target)
        spread = columns.std(0)
        made = cls(
            centre.astype(np.float32),
            scale.astype(np.float32),
            axes.astype(np.float32),
            np.stack([columns.mean(0), np.where(spread > 0, spread, 1.0)]),
            1.0,
        )
        length = float(np.quantile(np.linalg.norm(made._parts(some, some.y), axis=1), KEPT))
        return cls(made.centre, made.scale, made.axes, made.columns, length)

    @property
    def width(self) -> int:
        """Number of columns."""
        return 1 + int(self.axes.shape[1]) + int(self.columns.shape[1])

    def __call__(self, block: Block) -> Array:
        """(m, width): rows of a block, with their own targets."""
        return self.at(block, block.y)

    def at(self, block: Block, y: Array) -> Array:
        """(m, width): rows of a block if their targets were these."""
        parts = np.nan_to_num(self._parts(block, y), nan=0.0, posinf=0.0, neginf=0.0)
        norms = np.linalg.norm(parts, axis=1, keepdims=True)
        found: Array = parts / np.maximum(norms, np.float32(1.0))
        return found

    def constants(self) -> NDArray[np.int64]:
        """(width,): position of the constant, for every column."""
        return np.zeros(self.width, dtype=np.int64)

    def feature_columns(self) -> FeaturePositions:
        """Where the components of the features are in these rows."""
        # Axes were divided by one number; their transpose times its square takes components back to features.
        axes = self.axes.astype(np.float64)
        lengths = (axes**2).sum(0)
        return FeaturePositions(np.array([0]), 1 + np.arange(axes.shape[1])[None], axes / lengths, CONSTANT)

    def sizes(self, sums: Array, total: Array, n: int) -> Array:
        """(C,): estimated number of rows that the sums are of; the total over n rows is public."""
        counted: Array = sums[:, 0] * n / total[0]
        return counted

    def _parts(self, block: Block, y: Array) -> Array:
        flat = block.X.reshape(len(block), -1).astype(np.float32, copy=False)
        features = np.clip((flat - self.centre) / self.scale, -CUT, CUT).astype(np.float32)
        columns = _columns(block, y, target=self.columns.shape[1] > 2)
        columns = np.clip((columns - self.columns[0]) / self.columns[1], -CUT, CUT)
        parts = [
            np.full((len(block), 1), CONSTANT, dtype=np.float32),
            aligned_product(block.first, features, self.axes),
            (COLUMN * columns).astype(np.float32),
        ]
        found: Array = np.concatenate(parts, axis=1) / np.float32(self.length)
        return found


def _columns(block: Block, y: Array, *, target: bool) -> NDArray[np.float64]:
    """(m, k): prediction and log-odds and, with ``target``, the target and the absolute residual."""
    found = [block.prediction, logit(block.prediction)]
    if target:
        found += [y.astype(np.float64), np.abs(y - block.prediction)]
    return np.stack(found, axis=1)


@dataclass(frozen=True, eq=False)
class NumberMemberships:
    """p(a | x, y) of any block of public rows; "not given" is the last category, if attributes may be missing.

    Parameters
    ----------
    rows : NumberRows
    weights : ndarray (C, width)
        The W that :func:`justitia.postprocessing.memberships.fit_memberships` finds.
    groups : int, optional
        Number of named groups; by default all categories but the last.
    """

    rows: NumberRows
    weights: Array
    groups: int | None = None

    def own(self, block: Block) -> NDArray[np.float64]:
        """(m, G): memberships of the named groups, with the rows' own targets."""
        return self.at(block, block.y)

    def at(self, block: Block, y: Array) -> NDArray[np.float64]:
        """(m, G): memberships of the named groups if the targets were these."""
        logits = aligned_product(block.first, self.rows.at(block, y), self.weights.T)
        found: NDArray[np.float64] = softmax(logits.astype(np.float64), axis=1)[:, : self.groups or -1]
        return found
