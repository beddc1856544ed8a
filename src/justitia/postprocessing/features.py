"""Public rows of the first release: features that may tell the groups apart, as rows of norm at most 1.

A row holds a constant, the row's features, a public representation of it and its score: probabilities and log-odds of
a base model, or a network's last hidden layer and its logit; and public proxies of the group if there are any. The
columns come in one block per label, or once with the label as one more column, or as K - 1 columns of K classes.
Everything here is a function of public columns, labels and a public model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from justitia.postprocessing.association import FeaturePositions
from justitia.rows.source import Block
from justitia.training.diagnostics import missing_by_label

Array = NDArray[Any]
#: From a block to an (m, width) representation and (m,) or (m, K) scores; public and picklable.
Represent = Callable[[Block], tuple[Array, Array]]
#: Standardised features are cut off here, so that one far outlier does not make all other rows short.
CUT = 3.0
#: Features, or hidden units, beyond this number are replaced by as many principal components.
MOST_FEATURES = 128
#: Rows from which means, scales and principal components are computed.
SAMPLE = 20_000
#: Share of rows that keep their length; longer ones are shortened to the bound.
KEPT = 0.8
#: Length of the proxies in a row; that of the other parts is about 1. The others become 3% shorter by it.
PROXY_LENGTH = 0.5
#: Length of probabilities and of log-odds, relative to that of all features: they are one number each. The evidence for
#: these lengths and the next numbers, all together, is in ``docs/design_choices.md``.
PREDICTION = 0.3
#: Length of the constant and of the label, by which groups are counted: the shortest and the longest, and in between so
#: many times the noise of a sum per row, which keeps the noise of a size at 1 to 2% of the rows.
SHORTEST, LONGEST, COUNTED = 0.3, 1.0, 100.0
#: Features are replaced by the principal components that hold at least this share of their variance, where there is
#: noise: what correlated columns say of the groups is then in few sums, and noise in few.
EXPLAINED = 0.9
#: Rows of one product of matrices. Products have this shape whatever rows are there, so that the numbers of a row are
#: the same to the last bit in every block, process and engine.
ALIGNED = 2048


def base_scores(block: Block) -> tuple[Array, Array]:
    """Representation of rows that a base model has scored: probability and log-odds, of every class if several."""
    score = block.prediction.astype(np.float32)
    return (2 * score - 1).reshape(len(score), -1), logit(score)


def label_codes(labels: int) -> Array:
    """(Y, Y - 1): points of length 1 that are equally far from each other and add up to 0; -1 and 1 for two labels."""
    if labels == 2:
        return np.array([[-1.0], [1.0]])
    contrasts = (
        np.triu(np.full((labels, labels - 1), -1.0)) + np.eye(labels, labels - 1, -1) * np.arange(labels)[:, None]
    )
    points = contrasts / np.linalg.norm(contrasts, axis=0)
    found: Array = points / np.linalg.norm(points, axis=1, keepdims=True)
    return found


@dataclass(frozen=True)
class Layout:
    """Lengths of the parts of a row, relative to that of all features; by default all are equal.

    Parameters
    ----------
    constant : float
        Of the constant and of the label.
    prediction : float
        Of the representation and of the score.
    explained : float
        Share of the variance of features that their principal components hold; 1 keeps the columns.
    smallest : float
        Components that hold at least this share of the variance by themselves are kept, too.
    """

    constant: float = 1.0
    prediction: float = 1.0
    explained: float = 1.0
    smallest: float = 1.0

    @classmethod
    def for_noise(cls, stddev: float, n: int, *, blocks: bool) -> Layout:
        """The layout for sums over n rows with noise of this standard deviation.

        With blocks of columns for each label there is little noise, and the columns are kept. Components whose sums
        vary more by the sample than by the noise are kept, too: a small group may be known by a few of them.
        """
        constant = float(np.clip(COUNTED * stddev / n, SHORTEST, LONGEST))
        return cls(constant, PREDICTION) if blocks else cls(constant, PREDICTION, EXPLAINED, stddev**2 / n)


@dataclass(frozen=True, eq=False)
class ProxyPart:
    """Proxies in a row: standardised columns or, of very many, their principal components.

    Attributes
    ----------
    centre, scale : ndarray (r,)
    axes : ndarray (r, k), optional
    """

    centre: Array
    scale: Array
    axes: Array | None

    @classmethod
    def fit(cls, proxy: Array) -> ProxyPart:
        """Learn means and scales from rows of the sample."""
        wide = proxy.astype(np.float64)  # entries may be as large as single precision has them
        centre, stddev = wide.mean(0), wide.std(0)
        scale = np.where(stddev > 0, stddev, 1.0)
        return cls(centre, scale, _principal_axes(np.clip((wide - centre) / scale, -CUT, CUT)))

    @property
    def width(self) -> int:
        """Number of its columns."""
        return len(self.scale) if self.axes is None else int(self.axes.shape[1])

    def __call__(self, block: Block) -> Array:
        """(m, k): of rows of a block, each of length about ``PROXY_LENGTH``."""
        if block.proxy is None:
            raise ValueError("expected rows with the proxies of the fit, got none; pass them again.")
        columns = np.clip((block.proxy.astype(np.float64) - self.centre) / self.scale, -CUT, CUT)
        parts = columns if self.axes is None else aligned_product(block.first, columns, self.axes)
        found: Array = parts * (PROXY_LENGTH / columns.shape[1] ** 0.5)
        return found


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Row function of the moments: public rows of norm at most 1.

    Means, scales, axes and lengths are learned from a sample by :meth:`fit`.

    Attributes
    ----------
    represent : callable
    blocks : bool
        One block of columns per label; otherwise labels are columns of their own, for fewer sums and less noise.
    labels : int
        Number of labels Y. Rows of a block with public strata have the label Y s + y.
    proxy : ProxyPart, optional
    """

    represent: Represent
    blocks: bool
    centre: Array
    scale: Array
    axes: Array | None
    hidden_axes: Array | None
    hidden_length: float
    score_length: float
    length: float
    width: int
    labels: int = 2
    proxy: ProxyPart | None = None
    layout: Layout = Layout()

    @classmethod
    def fit(
        cls,
        represent: Represent,
        sample: Block,
        *,
        blocks: bool = True,
        labels: int = 2,
        layout: Layout = Layout(),  # noqa: B008 - frozen
    ) -> PublicRows:
        """Learn means, scales and lengths from rows of the sample; proxies are a part of the rows if it has some."""
        chosen = np.linspace(0, len(sample) - 1, min(SAMPLE, len(sample))).astype(np.int64)
        some = sample.take(chosen)
        flat = some.X.reshape(len(some), -1).astype(np.float32, copy=False)
        stddev = flat.std(0)
        centre, scale = flat.mean(0), np.where(stddev > 0, stddev, np.float32(1.0))
        axes = _principal_axes(np.clip((flat - centre) / scale, -CUT, CUT), layout.explained, layout.smallest)
        hidden, scores = represent(some)
        hidden_axes = _principal_axes(hidden)
        lengths = (
            max(float(np.linalg.norm(hidden, axis=1).mean()), 1e-6),
            CUT * max(float(np.abs(scores).mean()), 1e-6),
        )
        learned = (represent, blocks, centre, scale, axes, hidden_axes, *lengths)
        proxy = None if some.proxy is None else ProxyPart.fit(some.proxy)
        made = cls(*learned, length=1.0, width=0, proxy=proxy, layout=layout)
        base = made._base(some)
        label = 0.0 if blocks else layout.constant  # its columns are as long as the constant
        length = float(np.quantile(np.hypot(np.linalg.norm(base, axis=1), label), KEPT))
        width = labels * base.shape[1] if blocks else base.shape[1] + labels - 1
        return replace(made, length=length, width=width, labels=labels)

    def __call__(self, block: Block) -> Array:
        """(m, width): rows of a block, by their own labels."""
        base, label = self.label_free(block), block.y.astype(np.int64) % self.labels
        if self.blocks:
            found = np.zeros((len(base), self.labels, base.shape[1]), dtype=base.dtype)
            found[np.arange(len(base)), label] = base
            return found.reshape(len(base), -1)
        return np.concatenate([base, label_codes(self.labels)[label].astype(base.dtype) * base[:, :1]], axis=1)

    def label_free(self, block: Block) -> Array:
        """(m, columns): rows before the label is put in; with it they have norm at most 1."""
        base = self._base(block)
        for at in range(0, len(base), ALIGNED):
            rows = base[at : at + ALIGNED]
            norms = np.sqrt(np.square(rows).sum(1, keepdims=True))
            if not np.isfinite(norms).all():  # a network may diverge
                np.nan_to_num(rows, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
                norms = np.sqrt(np.square(rows).sum(1, keepdims=True))
            if not self.blocks:
                norms = np.hypot(norms, rows[:, :1])  # the label's columns are as long as the constant
            np.divide(rows, np.maximum(norms, np.float32(1.0)), out=rows)
        return base

    def by_label(self, weights: Array) -> list[Array]:
        """(C, columns) for each label: what multiplies label-free rows of that label in ``weights . row``."""
        if self.blocks:
            return np.split(weights, self.labels, axis=1)
        columns = self.width - self.labels + 1
        found = []
        for code in label_codes(self.labels):
            used = weights[:, :columns].copy()
            used[:, 0] += weights[:, columns:] @ code
            found.append(used)
        return found

    def constants(self) -> NDArray[np.int64]:
        """(width,): for each column, the position of the constant of its block."""
        block = self.width // self.labels if self.blocks else self.width
        return np.arange(self.width) // block * block

    def proxies(self) -> NDArray[np.bool_]:
        """(width,): whether a column is one of the proxies."""
        found = np.zeros(self.width, dtype=np.bool_)
        if self.proxy is not None:
            columns = self.width // self.labels if self.blocks else self.width - self.labels + 1
            starts = np.arange(self.labels if self.blocks else 1)[:, None] * columns
            found[starts + np.arange(columns - self.proxy.width, columns)] = True
        return found

    def feature_columns(self) -> FeaturePositions:
        """Where the features are in these rows."""
        labels = self.labels if self.blocks else 1
        width = self.width // self.labels if self.blocks else self.width
        features = len(self.centre)
        axes = np.eye(features) if self.axes is None else self.axes.astype(np.float64)
        starts = np.arange(labels) * width
        columns = starts[:, None] + 1 + np.arange(axes.shape[1])
        return FeaturePositions(starts, columns, axes, self.layout.constant * features**0.5)

    def sizes(self, sums: Array, total: Array, n: int) -> Array:
        """(C, Y): estimated number of rows, by label, that the sums are of; the total over n rows is public."""
        if self.blocks:
            constants = np.arange(self.labels) * (self.width // self.labels)
            sizes, all_rows = sums[:, constants], total[constants].sum()
        else:
            coded = sums[:, self.width - self.labels + 1 :] @ label_codes(self.labels).T
            sizes, all_rows = (sums[:, :1] + (self.labels - 1) * coded) / self.labels, total[0]
        counted: Array = sizes * n / all_rows
        return counted

    def silence(self, answer: Array, total: Array, stddev: float, n: int) -> Array:
        """(Y, 2): by label, the share of "not given" and its noise, from sums with noise of this deviation."""
        one = np.zeros_like(total)
        one[0] = 1.0  # what a sum of the constant is in rows
        unit, all_rows = self.sizes(one[None], total, n).sum(), self.sizes(total[None], total, n)[0]
        return missing_by_label(self.sizes(answer, total, n), all_rows, stddev * float(unit))

    def _base(self, block: Block) -> Array:
        """(m, columns): constant, features, representation and score, with the lengths of the layout."""
        flat = block.X.reshape(len(block), -1).astype(np.float32, copy=False)
        hidden, scores = self.represent(block)
        scores = scores.reshape(len(block), -1)
        hidden = hidden if self.hidden_axes is None else aligned_product(block.first, hidden, self.hidden_axes)
        clipped, length = np.clip(scores / self.score_length, -1, 1), self.layout.prediction
        rest = [hidden * (length / self.hidden_length), clipped * (length / scores.shape[1] ** 0.5)]
        rest += [] if self.proxy is None else [self.proxy(block)]
        features = flat if self.axes is None else aligned_product(block.first, self._standardised(flat), self.axes)
        width = 1 + features.shape[1]
        more = hidden.shape[1] + scores.shape[1] + (0 if self.proxy is None else self.proxy.width)
        base = np.empty((len(flat), width + more), dtype=np.float32)
        np.concatenate(rest, axis=1, out=base[:, width:], casting="same_kind")
        for at in range(0, len(flat), ALIGNED):  # so few that they stay in the processor's cache
            rows = slice(at, at + ALIGNED)
            some = self._standardised(features[rows]) if self.axes is None else features[rows]
            base[rows, 0] = self.layout.constant
            base[rows, 1:width] = some / np.float32(flat.shape[1] ** 0.5)
            base[rows] /= np.float32(self.length)
        return base

    def _standardised(self, flat: Array) -> Array:
        """(m, p): features in standard deviations, cut off."""
        standard = flat - self.centre
        standard /= self.scale
        cut: Array = np.clip(standard, -CUT, CUT, out=standard)
        return cut


#: The BLAS libraries of this process.
_libraries = cache(ThreadpoolController)


def aligned_product(first: int, rows: Array, matrix: Array) -> Array:
    """(m, k): ``rows @ matrix`` of consecutive rows, of which the first has this position among all rows.

    Each row is multiplied at a place that its position decides, in a product of one shape and in one thread: other
    rows, blocks and processes do not change its last bit.
    """
    columns = rows.shape[1] + -rows.shape[1] % 16
    matrix = np.pad(matrix.astype(rows.dtype), ((0, columns - len(matrix)), (0, 0)))
    placed = np.zeros((ALIGNED, columns), dtype=rows.dtype)
    products, done = np.empty((len(rows), matrix.shape[1]), dtype=rows.dtype), 0
    with _libraries().limit(limits=1, user_api="blas"):  # a worker has one thread, the driver may have more
        while done < len(rows):
            start = (first + done) % ALIGNED
            taken = min(ALIGNED - start, len(rows) - done)
            # Other places keep what they hold: no place changes another's product.
            placed[start : start + taken, : rows.shape[1]] = rows[done : done + taken]
            products[done : done + taken] = (placed @ matrix)[start : start + taken]
            done += taken
    return products


def _principal_axes(rows: Array, explained: float = 1.0, smallest: float = 1.0) -> Array | None:
    """(p, k): directions in which the rows differ most; None if columns are few enough, and all are kept.

    At most MOST_FEATURES: those that hold this share of the variance together, and those that hold the smallest share
    by themselves. With fewer than all of it, they are as long as the rows are.
    """
    if rows.shape[1] <= MOST_FEATURES and explained == 1:
        return None
    # a public sketch; the same one whenever a run is resumed
    axes: Array
    if explained == 1:
        axes = randomized_svd(rows, min(MOST_FEATURES, len(rows)), n_iter=2, random_state=0)[2].T
        return axes
    number = min(MOST_FEATURES, *rows.shape)
    centred = rows - rows.mean(0)
    # without a normalisation weak components drown in the round-off of strong ones
    _, values, directions = randomized_svd(centred, number, n_iter=2, power_iteration_normalizer="QR", random_state=0)
    total = max(float(np.square(centred, dtype=np.float64).sum()), 1e-12)
    shares = np.square(values, dtype=np.float64) / total  # of the largest component first
    together = shares.cumsum()
    kept = min(max(int(np.searchsorted(together, explained)) + 1, int((shares >= smallest).sum())), number)
    axes = directions[:kept].T / (float(together[kept - 1]) or 1.0) ** 0.5
    return axes
