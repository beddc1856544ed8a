"""A notion that the library does not have, as a user would add it: one class."""

import numpy as np
from torch import Tensor

from justitia.notions import Array, FairnessNotion, decision


class BenefitParity(FairnessNotion):
    """The same mean benefit of decisions in every group: a positive one is worth 1 where the label is 1, else 1/2."""

    name = "benefit_parity"
    event_names = ("everyone",)
    reads_labels_in = "h"

    def events(self, y: Array) -> Array:
        return np.ones_like(y)[:, None]

    def h_exact(self, scores: Array, y: Array) -> Array:
        return (decision(scores) * (1 + y) / 2).astype(scores.dtype)

    def h(self, scores: Tensor, y: Tensor) -> Tensor:
        return scores.sigmoid() * (1 + y) / 2
