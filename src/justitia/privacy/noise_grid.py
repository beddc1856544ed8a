r"""Noise grid: the public grid of noisy sums, and Gaussian noise rounded to whole steps of it.

.. math:: P(N = k) = \Phi((k + 1/2) / s) - \Phi((k - 1/2) / s)

If x is a whole number then x + N has the law of round(x + s Z) with Z a standard normal number: a function of the
answer of the Gaussian mechanism, which therefore costs what that mechanism costs.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from justitia.privacy.arrays import Array, quietly

#: The standard deviation of noise is between 2^32 and 2^33 steps.
STEPS_PER_STD = 32
#: Total variation distance between one drawn N and its law, at most; see docs/proofs.md, 2.7.
SAMPLER_TV = 2.0**-150

#: No step is smaller than this power of two: a sum may then be divided by it, and underflow is far below it.
_SMALLEST_EXPONENT = -960
#: Where the inverse of Phi is trusted (up to this many standard deviations) and how far (times 1 + |x|).
_TRUSTED, _MARGIN = 4.5, 2.0**-48
_EXTRA_BITS = 128  # for a draw that 63 bits do not decide
_FIXED = 448  # bits behind the point where more bits decide
_DENSITY_BITS = 320
_DENSITY_AT_ZERO = 0x662114CF50D942343F2CF1402EAE38BFD3829F30512706D8C0471B4802639D2E9DF8AC55447D3DB7  # (2 pi)^(-1/2)


class Words(Protocol):
    """A number of words, and the stream they are for, to independent uniform 64-bit words."""

    def __call__(self, size: int, *, stream: str) -> NDArray[np.uint64]: ...


def grid_step(std: float) -> float:
    """Step of the grid for noise of a public ``std``: a power of two, so that scaling by it is exact."""
    if not 0.0 < std < math.inf:
        raise ValueError(f"Expected noise with a positive and finite standard deviation; got {std!r}.")
    return math.ldexp(1.0, max(math.frexp(std)[1] - 1 - STEPS_PER_STD, _SMALLEST_EXPONENT))


def exact_sum_step(largest: float) -> float:
    """Smallest power of two whose multiples up to ``largest`` are added in float64 without any rounding."""
    return math.ldexp(1.0, max(math.frexp(largest)[1] - 52, _SMALLEST_EXPONENT))


def toward_zero(values: Array, step: float) -> Array:
    """Whole steps, none longer than before: the norm of a row never grows."""
    steps = values / step
    np.trunc(steps, out=steps)
    steps *= step
    return steps


def to_nearest(values: Array, step: float) -> Array:
    """``values`` as a number of steps; each entry moves by half a step at most."""
    steps = values / step
    return np.rint(steps, out=steps)


def sampler_delta(coordinates: int, epsilon: float) -> float:
    """What the sampler's distance from its law adds to delta, for all ``coordinates`` of all releases together."""
    return (1.0 + math.exp(epsilon)) * coordinates * SAMPLER_TV


def largest_epsilon(delta: float) -> float:
    """Largest finite epsilon that noise as it is drawn can keep at this delta; at most 50.

    Noise has no mass beyond 16 standard deviations and a coin has 128 bits, which a large epsilon would notice. Up to
    here 2^30 released numbers add less than a thousandth of ``delta`` (:func:`sampler_delta`).
    """
    if delta < 1e-300:  # counts as 0: randomised response only, which is right to a few parts in 2^51 up to here
        return 50.0
    return min(50.0, math.log(delta) - math.log(1000.0) + 119 * math.log(2.0))


def check_deliverable(epsilon: float, delta: float) -> None:
    """Refuse a finite epsilon that noise as it is drawn cannot keep."""
    largest = largest_epsilon(delta)
    if largest < epsilon < math.inf:
        raise ValueError(
            f"expected epsilon to be at most {max(largest, 0.0):.4g} at delta={delta:g}, or infinite, got {epsilon!r}; "
            "noise as it is drawn cannot keep a larger one: ask for less, a larger delta, or none with epsilon=inf."
        )


def rounded_gaussian(words: Words, size: int, s: float) -> NDArray[np.float64]:
    """Independent draws of N, whole numbers.

    One bit is the sign. The others are the leading bits of a uniform number p in (0, 1/2), and the draw is the m with
    Q((m + 1/2) / s) < p <= Q((m - 1/2) / s), where Q = 1 - Phi. Floating point decides m where it cannot be wrong; a
    draw too close to a border, or in the far tail, gets more bits and enough digits.

    Guarantee
    ---------
    * Each draw is within ``SAMPLER_TV`` of its law if the bits are uniform and scipy's inverse of Phi is right to
      ``2^-48 (1 + |x|)`` up to 4.5 standard deviations.
    * Values up to 16 standard deviations are drawn, with their probabilities.
    """
    bits = words(size, stream="noise")
    leading = bits >> np.uint64(1)
    x = -ndtri((leading.astype(np.float64) + 0.5) * 2.0**-64)
    shifted = s * x + 0.5
    magnitude = np.floor(shifted)
    beyond = shifted - magnitude
    doubtful = np.flatnonzero((np.minimum(beyond, 1.0 - beyond) <= s * _MARGIN * (1.0 + x)) | (x > _TRUSTED))
    if len(doubtful):
        more = words(2 * len(doubtful), stream="more bits").reshape(-1, 2).tolist()
        known = leading[doubtful].tolist()
        magnitude[doubtful] = [_decide((a << 128) | (b << 64) | c, s) for a, (b, c) in zip(known, more, strict=True)]
    return np.where(bits & np.uint64(1), -magnitude, magnitude)


def _decide(bits: int, s: float) -> int:
    """The magnitude that p = (bits + 1/2) / 2^192 belongs to, in whole numbers of 2^-448."""
    p = (2 * bits + 1) << (_FIXED - 1 - 64 - _EXTRA_BITS)
    m = math.floor(0.5 - s * float(ndtri((2 * bits + 1) / 2 ** (65 + _EXTRA_BITS))))
    while _upper_tail(2 * m + 1, s) >= p:
        m += 1
    while m > 0 and _upper_tail(2 * m - 1, s) < p:
        m -= 1
    return m


def _upper_tail(halves: int, s: float) -> int:
    r"""Q(x) at x = halves / (2 s) in units of 2^-448, right to 2^-220.

    .. math:: Q(x) = 1/2 - (2\pi)^{-1/2} \sum_n (-1)^n x^{2n+1} / (2^n n! (2n+1))
    """
    top, bottom = s.as_integer_ratio()
    x = (halves * bottom << _FIXED) // (2 * top)
    if x > 17 << _FIXED:  # Q is below 2^-213, less than any p
        return 0
    half_square = x * x >> (_FIXED + 1)
    term = total = x
    n = 0
    while term:  # terms grow to 2^213 at most, which leaves 235 bits that no rounding reaches
        n += 1
        term = (term * half_square >> _FIXED) // n
        total += (-1) ** n * (term // (2 * n + 1))
    return (1 << (_FIXED - 1)) - (total * _DENSITY_AT_ZERO >> _DENSITY_BITS)


@quietly
def noised_on_grid(exact: Array, std: float, words: Words) -> Array:
    """``exact`` rounded to the grid of ``std`` plus a rounded Gaussian, in float64.

    Guarantee
    ---------
    * The answer is a function of a whole number of steps plus N, whatever ``exact`` is: floating-point addition gives
      the number nearest to that sum, and zero has no sign.
    """
    step = grid_step(std)
    noise = rounded_gaussian(words, exact.size, std / step).reshape(exact.shape)
    return (to_nearest(exact, step) + noise) * step + 0.0  # -0.0, the sum of two zeros below 0, becomes 0.0


__all__ = [
    "SAMPLER_TV",
    "STEPS_PER_STD",
    "check_deliverable",
    "exact_sum_step",
    "grid_step",
    "largest_epsilon",
    "noised_on_grid",
    "rounded_gaussian",
    "sampler_delta",
    "to_nearest",
    "toward_zero",
]
