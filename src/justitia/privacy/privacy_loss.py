r"""Privacy-loss distributions on a grid, and their composition by fast Fourier transform.

The privacy loss of a pair of laws (P, Q) that dominates a release is ``log P/Q``. Gaussian releases compose in closed
form (:mod:`justitia.privacy.accounting`); for everything else the losses of all releases are put on one grid and added
up. A loss between two grid points is split over both so that its mass under P *and* under Q stays: that can only raise
every hockey-stick divergence H, so the answer is an upper bound.

This module is pure numerics. It takes plain numbers, and knows neither the ledger nor the kinds of costs.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft, optimize, signal, special

Floats = NDArray[np.float64]

_LOG_ROUNDING = math.log(2.0**-52)


class LossGrid(NamedTuple):
    """Masses under P of the losses ``(low + j) * step``, and the mass whose loss counts as infinite."""

    low: int
    masses: Floats
    infinite: float


def on_grid(losses: Floats, masses: Floats, step: float, infinite: float) -> LossGrid:
    """Split each loss over its two grid neighbours, keeping the mass under P and under Q."""
    below = np.floor(losses / step)
    up = np.clip(np.expm1(below * step - losses) / math.expm1(-step), 0.0, 1.0) * masses
    low = int(below.min())
    index = (below - low).astype(np.int64)
    size = int(index.max()) + 2
    gridded: Floats = np.zeros(size)
    gridded += np.bincount(index, masses - up, size)
    gridded += np.bincount(index + 1, up, size)
    return LossGrid(low, gridded, infinite)


def _normal_masses(centre: float, mu: float, low: float, last: float, step: float) -> tuple[Floats, Floats]:
    """Losses centre + mu z from ``low`` to z = ``last``, and the standard normal masses of their z.

    Panels of the quadrature end where the loss crosses a grid point.
    """
    first = (low - centre) / mu
    crossings = (step * np.arange(math.ceil(low / step), (centre + mu * last) / step) - centre) / mu
    edges = np.union1d(
        np.append(crossings[(crossings > first) & (crossings < last)], last), np.arange(first, last, 0.125)
    )
    nodes, weights = np.polynomial.legendre.leggauss(6)
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    z = (middle[:, None] + half[:, None] * nodes).ravel()
    return centre + mu * z, np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) * (half[:, None] * weights).ravel()


@lru_cache(maxsize=64)
def gaussian_losses(mu: float, step: float, tail: float) -> LossGrid:
    """Losses of one mu-GDP release, mu^2 / 2 + mu z under P; what exceeds the ``tail`` quantile counts as infinite."""
    last = -float(special.ndtri(tail))
    centre = mu**2 / 2
    losses, masses = _normal_masses(centre, mu, -centre - mu * last, last, step)
    infinite = float(special.ndtr(-last))
    # What lies below the smallest loss is given that loss: rounding up.
    masses[0] += max(0.0, 1.0 - infinite - float(masses.sum()))
    return on_grid(losses, masses, step, infinite)


def response_law(epsilon: float, categories: int) -> tuple[Floats, Floats]:
    """Losses -epsilon, 0, epsilon of randomized response and their masses under P."""
    other = math.exp(-epsilon) / (1 + (categories - 1) * math.exp(-epsilon))
    masses = np.array([other, (categories - 2) * other, 1 - (categories - 1) * other])
    return np.array([-epsilon, 0.0, epsilon]), masses


@lru_cache(maxsize=64)
def selection_losses(mu: float, mean: float, shift: float, start: float, step: float, tail: float) -> LossGrid:
    """Losses of the best of ``mean`` mu-GDP trials on average.

    Under P the loss is ``shift`` plus the loss of a trial, ``mean`` times as often, cut at ``start``; below -start it
    is the mirror image, with the masses that Q has above it. Of all symmetric pairs whose profile is at most
    ``mean * delta_trial(epsilon - shift)`` this one has the largest profile: it is that curve, continued from ``start``
    to 0 by its tangent (``docs/proofs.md``, 2.8).
    """
    centre = shift + mu**2 / 2  # of the loss under P: centre + mu z with z normal
    last = max(-float(special.ndtri(tail / mean)), (start - centre) / mu + 1.0)
    losses, masses = _normal_masses(centre, mu, start, last, step)
    masses, infinite = mean * masses, mean * float(special.ndtr(-last))
    mirrored = masses * np.exp(-losses)
    missing = max(0.0, 1.0 - infinite - float(masses.sum() + mirrored.sum()))
    return on_grid(
        np.concatenate((losses, -losses, [start])), np.concatenate((masses, mirrored, [missing])), step, infinite
    )


class GriddedReleases(NamedTuple):
    """Loss distributions of the distinct releases on one grid, each with its count."""

    parts: tuple[tuple[LossGrid, int], ...]
    step: float

    def tilted(self, order: float) -> tuple[float, list[Floats]]:
        """Return log E_P e^(order * total loss), and each grid's masses reweighted by e^(order * loss)."""
        log_moment, tilted = 0.0, []
        for grid, count in self.parts:
            exponents = order * self.step * (grid.low + np.arange(len(grid.masses)))
            shift = float(exponents[grid.masses > 0.0].max())
            weights = grid.masses * np.exp(np.minimum(exponents - shift, 0.0))
            total = float(weights.sum())
            log_moment += count * (shift + math.log(total))
            tilted.append(weights / total)
        return log_moment, tilted


def _window(releases: GriddedReleases, order: float) -> tuple[int, int]:
    """First and last grid index of the total loss, up to a rounding error of its tilted mass (Chernoff)."""
    log_moment, tilted = releases.tilted(order)
    variance = 0.0
    for masses, (_, count) in zip(tilted, releases.parts, strict=True):
        index = np.arange(len(masses)) - float(masses @ np.arange(len(masses)))
        variance += count * float(masses @ index**2)
    shifts = np.geomspace(1.0, 24.0, 8) / (releases.step * math.sqrt(max(variance, 1.0)))
    high = min((releases.tilted(order + t)[0] - log_moment - _LOG_ROUNDING) / t for t in shifts)
    low = max((log_moment + _LOG_ROUNDING - releases.tilted(order - t)[0]) / t for t in shifts)
    first = sum(count * grid.low for grid, count in releases.parts)
    last = sum(count * (grid.low + len(grid.masses) - 1) for grid, count in releases.parts)
    return max(first, math.floor(low / releases.step)), min(last, math.ceil(high / releases.step))


def _compose(releases: GriddedReleases, order: float) -> tuple[Floats, Floats]:
    """Total losses and an upper bound of delta at each, sharpest where the tilted total loss concentrates.

    The transform is applied to masses tilted by e^(order * loss), so that its rounding errors are relative to
    the tail in question and not to 1; a margin for them is added.
    """
    (first, last), step = _window(releases, order), releases.step
    log_moment, tilted = releases.tilted(order)
    size = fft.next_fast_len(max(last - first + 1, *(len(masses) for masses in tilted)), real=True)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    for masses, (_, count) in zip(tilted, releases.parts, strict=True):
        spectrum *= fft.rfft(masses, size) ** count
    start = first - sum(count * grid.low for grid, count in releases.parts)
    total = np.maximum(np.roll(fft.irfft(spectrum, size), -(start % size))[: last - first + 1], 0.0)
    losses: Floats = step * np.arange(first, last + 1, dtype=np.float64)
    untilt = np.exp(np.minimum(log_moment - order * losses, 600.0))
    # Between grid points delta is linear in e^epsilon, with slope -E_P[e^-loss; loss > epsilon].
    slopes = signal.lfilter([math.exp(-step)], [1.0, -math.exp(-step)], (total * untilt)[::-1])
    deltas = math.expm1(step) * np.append(0.0, np.cumsum(slopes[:-1]))[::-1]
    infinite = sum(count * grid.infinite for grid, count in releases.parts)
    margin = math.exp(_LOG_ROUNDING) * (100 + sum(count for _, count in releases.parts))
    return losses, deltas + infinite + margin * untilt


def _tilt(releases: GriddedReleases, objective: Callable[[float, float], float]) -> float:
    """Order that minimises ``objective(order, log bound)``; any order is correct, the best one is sharp.

    The bound is log delta(epsilon) <= log bound - order * epsilon, by E_P[1 - e^(epsilon - loss)]_+.
    """
    squares = (n * (g.masses @ (g.low + np.arange(len(g.masses))) ** 2) for g, n in releases.parts)
    rms = releases.step * math.sqrt(float(sum(squares)))

    def value(log_order: float) -> float:
        t = math.exp(log_order)
        return objective(t, releases.tilted(t)[0] + t * math.log(t) - (t + 1) * math.log1p(t))

    # Within one step the weights must not run away, or rounding errors at its lower end would swamp it.
    bounds = (math.log(1e-3 / rms), math.log(max(8.0 / releases.step, 2e-3 / rms)))
    found = optimize.minimize_scalar(value, bounds=bounds, method="bounded", options={"xatol": 0.05})
    return math.exp(float(found.x))


def epsilon_on_grid(releases: GriddedReleases, delta: float) -> float:
    """Smallest epsilon with delta(epsilon) <= delta."""
    order = _tilt(releases, lambda t, log_bound: (log_bound - math.log(delta)) / t)
    losses, deltas = _compose(releases, order)
    above = np.flatnonzero(deltas > delta)
    if len(above) == 0:
        return max(0.0, float(losses[0]))
    j = int(above[-1])
    if j == len(losses) - 1:
        return math.inf
    share = (deltas[j] - delta) / (deltas[j] - deltas[j + 1])
    return max(0.0, float(losses[j]) + math.log1p(share * math.expm1(releases.step)))


def delta_on_grid(releases: GriddedReleases, epsilon: float) -> float:
    """Smallest delta at epsilon."""
    order = _tilt(releases, lambda t, log_bound: log_bound - t * epsilon)
    losses, deltas = _compose(releases, order)
    if epsilon < losses[0]:
        return 1.0
    j = int(np.searchsorted(losses, epsilon, side="right")) - 1
    if j == len(losses) - 1:
        return float(deltas[-1])
    share = math.expm1(epsilon - losses[j]) / math.expm1(releases.step)
    return min(1.0, float(deltas[j] + share * (deltas[j + 1] - deltas[j])))
