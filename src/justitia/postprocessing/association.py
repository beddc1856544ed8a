r"""How far groups differ in each public feature, read off the noisy sums of the first release.

The release has the sums of a constant and of the features over each group (:mod:`justitia.postprocessing.features`).
Their quotient is the mean of a feature in the group, in standard deviations of all rows. What is computed here is that
mean less the mean of all other rows, with a standard error of noise and sampling. It costs no further budget.

Rows that were shortened to the bound count a little less than the others, and a feature is cut off at three standard
deviations, so the differences are approximate. Where only principal components of the features were released, because
there are many features or much noise, a difference is that of the feature as these components describe it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FeaturePositions:
    """Where features are in the rows of the first release.

    Attributes
    ----------
    constants : ndarray of int (B,)
        Positions of the constant, one for each block of columns.
    components : ndarray of int (B, r)
        Positions of the features, or of their principal components.
    axes : ndarray (d, r)
        What the components are multiplied by to become standardised features.
    unit : float
        A constant over a component of the same size.
    """

    constants: NDArray[np.int64]
    components: NDArray[np.int64]
    axes: Array
    unit: float

    def differences(self, answer: Array, total: Array, stddev: float) -> tuple[Array, Array]:
        """(G, d): standardised mean of each group less that of all other rows, and its standard error.

        Parameters
        ----------
        answer : ndarray (G, width)
            Noisy sums.
        total : ndarray (width,)
            Public sums over all rows.
        stddev : float
            Standard deviation of the noise of a sum.
        """
        constant, features = answer[:, self.constants].sum(1), answer[:, self.components].sum(1) * self.unit
        all_rows, all_features = total[self.constants].sum(), total[self.components].sum(0) * self.unit
        noise = stddev * np.sqrt(len(self.constants))
        size = np.maximum(constant, 1e-9)[:, None]
        rest = np.maximum(all_rows - constant, 1e-9)[:, None]
        mean, other = features / size, (all_features - features) / rest
        # The same noise enters both means, with opposite signs.
        apart = 1 / size + 1 / rest
        of_noise = (noise * apart) ** 2 * (self.unit**2 * (self.axes**2).sum(1) + ((mean @ self.axes.T) ** 2))
        known = constant[:, None] > 3 * noise
        difference = np.where(known, (mean - other) @ self.axes.T, np.nan)
        return difference, np.where(known, np.sqrt(of_noise), np.nan)


def association_table(
    difference: Array, noise: Array, sizes: Array, n: int, groups: Sequence[str], features: Sequence[str]
) -> pd.DataFrame:
    """One line per feature and group: ``difference`` and ``stderr``, NaN where a group is too small for the noise.

    Parameters
    ----------
    sizes : ndarray (G,)
        Noisy number of rows of each group, for the sampling error.
    n : int
        Number of all rows.
    """
    own = np.maximum(sizes, 1.0)
    sampling = np.sqrt(1 / own + 1 / np.maximum(n - own, 1.0))[:, None]
    index = pd.MultiIndex.from_product([list(features), list(groups)], names=["feature", "group"])
    values = {"difference": difference.T.ravel(), "stderr": np.hypot(noise, sampling).T.ravel()}
    return pd.DataFrame(values, index=index)
