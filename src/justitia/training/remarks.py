"""Sentences for the user about what was learned, made of public and noised numbers only.

Labels, decisions and what a base says are public once the multipliers are; gaps are noised. A sentence says what is
wrong with the numbers at hand and what could be done; healthy fits cause none (``docs/stress.md`` counts them).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from justitia.exceptions import (
    AccuracyWarning,
    ConstantDecisionWarning,
    Diagnostic,
    MissingAttributeWarning,
    NoisyEstimateWarning,
    SmallGroupWarning,
    UnknownGroupWarning,
    ViolationWarning,
)
from justitia.training.lagrangian import Problem, largest_gap
from justitia.training.public_scores import decided

Array = NDArray[np.float64]
#: Decisions of which fewer than this share differ are nearly constant.
CONSTANT = 0.01
#: Accuracy lost to the constraint that is worth a sentence: at least so much, and this share of what a base gains.
LOST, SHARE_LOST = 0.1, 0.5
#: A gap beyond the tolerance by less is not worth a sentence, whatever the noise is.
SLACK = 0.02
#: Differences between groups that hardly constrain, and those that are large compared with a tolerance that was given.
LOOSE, LOOSE_IF_GIVEN = 0.1, 0.2
#: Silence differs by label if shares differ by so many standard deviations of their noise, and by this much.
SURE, DIFFERENT = 4.0, 0.05

#: So many groups are named in one sentence.
NAMED = 5


def decisions_remarks(problem: Problem, scores: Array, plain: float | None) -> list[Diagnostic]:
    """What public labels say of decisions.

    Parameters
    ----------
    scores : ndarray (n,)
        Positive is a positive decision.
    plain : float, optional
        Accuracy without a constraint, by :func:`value`.
    """
    shares = np.bincount(decided(scores), problem.weight.astype(np.float64)) / problem.weight.sum(dtype=np.float64)
    here, majority = value(problem, scores), max(value(problem, one) for one in _constant_scores(scores))
    found: list[Diagnostic] = []
    if 1 - shares.max() < CONSTANT:
        found.append(
            Diagnostic(
                f"nearly everybody gets the same decision ({shares.max():.1%}): rates that are alike "
                "because nothing is decided; allow a larger tolerance, or choose another threshold.",
                ConstantDecisionWarning,
            )
        )
    elif here < majority + math.sqrt(majority * (1 - majority) / len(problem)):
        found.append(
            Diagnostic(
                f"accuracy (about {here:.2f}) is no better than that of the same decision for everybody "
                f"({majority:.2f}); allow a larger tolerance, or look for better features.",
                AccuracyWarning,
            )
        )
    if plain is not None and plain - here > max(LOST, SHARE_LOST * (plain - majority)):
        found.append(
            Diagnostic(
                f"accuracy is about {here:.2f} with the constraint and {plain:.2f} without: most of what was learned "
                "is lost; allow a larger tolerance.",
                AccuracyWarning,
            )
        )
    return found


def _constant_scores(scores: Array) -> list[Array]:
    """Scores of the same decision for everybody, for each decision."""
    if scores.ndim == 1:
        return [np.full_like(scores, sign) for sign in (-1.0, 1.0)]
    return [np.tile(one, (len(scores), 1)) for one in np.eye(scores.shape[1])]


def value(problem: Problem, scores: Array) -> float:
    """Accuracy; errors of either label count by what the threshold, or costs, say that they cost."""
    if scores.ndim == 2:
        costs = 1 - np.eye(scores.shape[1]) if problem.costs is None else problem.costs
        lost = costs[problem.y.astype(np.int64), decided(scores)]
        return float(1 - np.average(lost, weights=problem.weight.astype(np.float64)))
    cost = problem.weight * np.where(problem.y > 0.5, 1 - problem.threshold, problem.threshold)
    return float(np.average((scores > 0) == (problem.y > 0.5), weights=cost))


def gap_remark(gap: Array | None, allowed: float, noise: float) -> list[Diagnostic]:
    """A sentence if what was learned is beyond the tolerance.

    Parameters
    ----------
    gap : ndarray (G, K), optional
        Noised gaps of decisions.
    noise : float
        Standard deviation of the difference of two of them.
    """
    return [] if gap is None else violation_remark(largest_gap(gap), allowed, noise)


def violation_remark(violation: float, allowed: float, noise: float) -> list[Diagnostic]:
    """A sentence if a noised violation is beyond the tolerance, by more than its noise."""
    if violation <= allowed + max(SLACK, 2 * noise):
        return []
    sentence = (
        f"the noised violation of the deployed decisions is {violation:.2g}, beyond the tolerance "
        f"{allowed:.2g}: measure it on other rows before you rely on it."
    )
    return [Diagnostic(sentence, ViolationWarning)]


def cell_remark(people: float, cell: str, allowed: float, spread: float, *, given: bool) -> list[Diagnostic]:
    """A sentence if a constraint hardly constrains because a cell of group and event is small.

    Parameters
    ----------
    people : float
        Noised size of the smallest cell.
    cell : str
        Its name.
    spread : float
        Standard deviation, noise and sampling, of the difference between the rates of the two least known cells.
    """
    reach = max(allowed, 2 * spread) if given else allowed + 2 * spread
    if reach <= (max(LOOSE_IF_GIVEN, allowed) if given else LOOSE):
        return []
    known = "cannot be told from chance" if given else "are allowed or cannot be told from chance"
    sentence = f"with about {people:.0f} people in {cell}, differences up to {min(reach, 1.0):.2g} {known}."
    return [Diagnostic(sentence, SmallGroupWarning)]


def silence_by_label(sizes: Array, everybody: Array, spread: float) -> Array:
    """(Y, 2): by label, the share of "not given" and the standard deviation of its noise.

    Parameters
    ----------
    sizes : ndarray (G, Y)
        Noised number of rows of each label.
    everybody : ndarray (Y,)
        Public number of rows of each label.
    spread : float
        Standard deviation of the noise in one size.
    """
    there = np.maximum(everybody, 1e-12)
    return np.stack([1 - sizes.sum(0) / there, spread / there], axis=1)


def silence_remark(silence: Array | None) -> list[Diagnostic]:
    """A sentence if "not given" differs by label, from :func:`silence_by_label`."""
    if silence is None:
        return []
    shares, noise = silence[:, 0], silence[:, 1]
    apart = np.abs(shares[:, None] - shares)
    sure = apart - np.maximum(DIFFERENT, SURE * np.hypot(noise[:, None], noise))
    if sure.max() <= 0:
        return []
    one, other = sorted(divmod(int(sure.argmax()), len(shares)))
    percent = [f"{min(max(float(share), 0.0), 1.0):.0%}" for share in shares[[one, other]]]
    named = ("the first class", "the second") if len(shares) == 2 else (f"class {one + 1}", f"class {other + 1}")
    sentence = (
        f"'not given' differs by label: about {percent[0]} of {named[0]} and {percent[1]} of {named[1]}; rates of "
        "those who gave their attribute may not be those of their groups."
    )
    return [Diagnostic(sentence, MissingAttributeWarning)]


def size_remarks(names: Sequence[object], sizes: Array, noise: Array, few: float, loud: float) -> list[Diagnostic]:
    """Groups that may not exist, and rates that are mostly noise.

    Parameters
    ----------
    sizes, noise : ndarray (G,)
        Noised sizes, and the known noise of the groups' rates.
    few : float
        Size that noise alone may show.
    loud : float
        Noise that is worth a sentence.
    """
    there = list(zip(names, sizes.tolist(), noise.tolist(), strict=True))
    found = [unknown_group(name, size) for name, size, _ in there if size <= few]
    noisy = sorted(((worst, repr(name)) for name, size, worst in there if size > few and worst > loud), reverse=True)
    if len(noisy) == 1:
        worst, name = noisy[0]
        sentence = f"the noise in the rates of group {name} is about {worst:.2g}; its violation cannot be held to less."
        found.append(Diagnostic(sentence, NoisyEstimateWarning))
    elif noisy:
        listed = ", ".join(name for _, name in noisy[:NAMED]) + (", ..." if len(noisy) > NAMED else "")
        sentence = (
            f"the noise in the rates of {len(noisy)} groups ({listed}) is up to {noisy[0][0]:.2g}; their violations "
            "cannot be held to less."
        )
        found.append(Diagnostic(sentence, NoisyEstimateWarning))
    return found


def unknown_group(name: object, size: float) -> Diagnostic:
    """A sentence about a group whose noised size could be noise alone."""
    return Diagnostic(f"the noised size of group {name!r} is about {size:.0f}: is its name right?", UnknownGroupWarning)
