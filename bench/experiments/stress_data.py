"""Synthetic people on whom a fit may go wrong, each in one known way; small, so that a fit takes seconds.

Healthy people first: the first feature of a group is moved by ``shift``, three features tell of the label, all others
are noise. Every hardship below changes one thing about them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

Array = NDArray[np.float64]
#: People that models are tried on.
TEST_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class People:
    """Features, labels, group names (None is "not given") and weights of some people."""

    X: pd.DataFrame
    y: NDArray[np.int64]
    group: pd.Series
    weight: Array | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """Names in order."""
        return tuple(sorted(self.group.dropna().unique()))


@dataclass(frozen=True)
class Healthy:
    """A distribution of people.

    Parameters
    ----------
    rows : int
        People to learn from.
    features : int
        Columns; three of them tell of the label.
    shares : sequence of float
        Of the groups.
    shift : float
        Distance of the first and the last group in the first feature.
    positives : float
        Share of positive labels.
    signal : float
        How sharply labels follow features.
    """

    rows: int = 5_000
    features: int = 8
    shares: Sequence[float] = (0.5, 0.5)
    shift: float = 1.0
    positives: float = 0.5
    signal: float = 1.5

    def draw(self, rows: int, generator: np.random.Generator) -> People:
        """So many people."""
        member = generator.choice(len(self.shares), rows, p=self.shares)
        x = generator.standard_normal((rows, self.features))
        x[:, 0] += self.shift * (member / (len(self.shares) - 1) - 0.5)
        u = self.signal * (x[:, 0] + x[:, 1] + 0.5 * x[:, 2])
        y = (generator.random(rows) < expit(u + self._start())).astype(np.int64)
        names = pd.Series([f"g{one:02d}" for one in member], name="group", dtype=object)
        return People(pd.DataFrame(x, columns=[f"x{j}" for j in range(self.features)]), y, names)

    def _start(self) -> float:
        """The intercept that gives the share of positives, by one fixed draw."""
        generator = np.random.default_rng(1)
        member = generator.choice(len(self.shares), 50_000, p=self.shares)
        x = generator.standard_normal((50_000, 3))
        x[:, 0] += self.shift * (member / (len(self.shares) - 1) - 0.5)
        u = self.signal * (x[:, 0] + x[:, 1] + 0.5 * x[:, 2])
        return float(brentq(lambda c: expit(u + c).mean() - self.positives, -20, 20))


#: Changes people to learn from, and people to come where it is about everybody.
Hardship = Callable[[People, np.random.Generator], People]


def nothing(people: People, generator: np.random.Generator) -> People:
    """Nothing is wrong."""
    del generator
    return people


def absurd_cells(people: People, generator: np.random.Generator) -> People:
    """Two cells of a feature that matters are 1e12."""
    X = people.X.copy()
    X.iloc[generator.choice(len(X), 2, replace=False), [0, 1]] = 1e12
    return replace(people, X=X)


def silent_positives(people: People, generator: np.random.Generator) -> People:
    """Eight of ten positives do not give their attribute."""
    silent = (people.y == 1) & (generator.random(len(people.y)) < 0.8)
    return replace(people, group=people.group.where(~silent, None))


def mostly_missing(people: People, generator: np.random.Generator) -> People:
    """Eight of ten people do not give their attribute, whoever they are."""
    return replace(people, group=people.group.where(generator.random(len(people.y)) > 0.8, None))


def heavy_weights(people: People, generator: np.random.Generator) -> People:
    """Weights without a finite variance."""
    return replace(people, weight=1 + generator.pareto(1.1, len(people.y)))


def noisy_labels(people: People, generator: np.random.Generator) -> People:
    """One label in five is turned round."""
    turned = generator.random(len(people.y)) < 0.2
    return replace(people, y=np.where(turned, 1 - people.y, people.y))


def proxy(people: People, generator: np.random.Generator) -> People:
    """A column that is the attribute under another name."""
    del generator
    return replace(people, X=people.X.assign(proxy=pd.factorize(people.group, sort=True)[0].astype(float)))


def correlated(people: People, generator: np.random.Generator) -> People:
    """Forty columns that are nearly the first one."""
    copies = {f"copy{j}": people.X["x0"] + 0.1 * generator.standard_normal(len(people.y)) for j in range(40)}
    return replace(people, X=people.X.assign(**copies))
