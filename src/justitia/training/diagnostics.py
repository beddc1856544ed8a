"""Public scores of decisions, and diagnostics of a fit: warnings from public and noised numbers only.

Labels are public, decisions and base scores are public once the multipliers are, and gaps are noised. A diagnostic says
what is wrong and what to do; a healthy fit has none (``docs/stress.md`` counts them).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

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
from justitia.training.lagrangian import Problem

Array = NDArray[np.float64]
#: Decisions of which fewer than this share differ are nearly constant.
CONSTANT = 0.01
#: Accuracy lost to the constraint that is worth a sentence: at least so much, and this share of what the base is better
#: by than a constant decision.
LOST, SHARE_LOST = 0.1, 0.5
#: A gap beyond the tolerance by less is not worth a sentence, whatever the noise is.
SLACK = 0.02
#: Differences between groups that hardly constrain, and those that are large compared with a tolerance that was given.
LOOSE, LOOSE_IF_GIVEN = 0.1, 0.2
#: Missing attributes differ by label if shares differ by so many standard deviations of their noise, and by this much.
SURE, DIFFERENT = 4.0, 0.05

#: So many groups are named in one sentence.
NAMED = 5


def decided(scores: NDArray[Any]) -> NDArray[np.int64]:
    """(n,): decisions of (n,) scores, whose sign decides, or of (n, K) scores of classes, of which the largest does."""
    found: NDArray[np.int64] = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(1)
    return found


def public_scores(scores: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]) -> dict[str, float]:
    """Weighted accuracy of the decisions, and AUC of the scores; NaN where one label is missing, and of classes."""
    if scores.ndim == 2:
        return {"accuracy": float(np.average(decided(scores) == y, weights=weight.astype(np.float64))), "auc": math.nan}
    positive, counts = y > 0.5, weight.astype(np.float64)
    right = ((scores > 0) == positive) * counts
    return {
        "accuracy": float(right.sum() / counts.sum()),
        "auc": area_under_curve(scores.astype(np.float64), positive, counts),
    }


def area_under_curve(scores: Array, positive: NDArray[np.bool_], weight: Array) -> float:
    """Share of pairs of a positive and a negative row that are ranked right; equal scores count half."""
    order = np.argsort(scores)
    ordered = scores[order]
    rises = np.append(False, ordered[1:] > ordered[:-1])[: len(ordered)]
    where = np.cumsum(rises)  # equal scores share a place
    above = np.bincount(where, np.where(positive, weight, 0.0)[order])
    below = np.bincount(where, np.where(positive, 0.0, weight)[order])
    pairs = above.sum() * below.sum()
    lower = np.cumsum(below) - below / 2
    return float(above @ lower / pairs) if pairs > 0 else math.nan


def weighted_accuracy(problem: Problem, scores: Array) -> float:
    """Accuracy in which an error counts by the cost that the threshold, or the matrix of costs, stands for."""
    if scores.ndim == 2:
        costs = 1 - np.eye(scores.shape[1]) if problem.costs is None else problem.costs
        lost = costs[problem.y.astype(np.int64), decided(scores)]
        return float(1 - np.average(lost, weights=problem.weight.astype(np.float64)))
    cost = problem.weight * np.where(problem.y > 0.5, 1 - problem.threshold, problem.threshold)
    return float(np.average((scores > 0) == (problem.y > 0.5), weights=cost))


def constant_accuracy(problem: Problem, scores: Array) -> float:
    """Accuracy of the best decision that is the same for all rows, by :func:`weighted_accuracy`."""
    if scores.ndim == 1:
        all_positive = weighted_accuracy(problem, np.ones_like(scores))
        return max(all_positive, 1 - all_positive)
    costs = 1 - np.eye(scores.shape[1]) if problem.costs is None else problem.costs
    lost = np.average(costs[problem.y.astype(np.int64)], axis=0, weights=problem.weight.astype(np.float64))
    return float(1 - lost.min())


def decision_diagnostics(problem: Problem, scores: Array, base_accuracy: float | None) -> list[Diagnostic]:
    """Compare decisions with public labels: constant decisions, and accuracy lost to the constraint.

    Parameters
    ----------
    scores : ndarray (n,)
        Positive is a positive decision.
    base_accuracy : float, optional
        Accuracy without a constraint, by :func:`weighted_accuracy`.
    """
    shares = np.bincount(decided(scores), problem.weight.astype(np.float64)) / problem.weight.sum(dtype=np.float64)
    here, majority = weighted_accuracy(problem, scores), constant_accuracy(problem, scores)
    found: list[Diagnostic] = []
    if 1 - shares.max() < CONSTANT:
        found.append(
            Diagnostic(
                f"nearly all rows get the same decision ({shares.max():.1%}): rates are alike because "
                "nothing is decided; allow a larger tolerance, or choose another threshold.",
                ConstantDecisionWarning,
            )
        )
    elif here < majority + math.sqrt(majority * (1 - majority) / len(problem)):
        found.append(
            Diagnostic(
                f"accuracy (about {here:.2f}) is no better than that of one decision for all rows ({majority:.2f}); "
                "allow a larger tolerance, or find better features.",
                AccuracyWarning,
            )
        )
    if base_accuracy is not None and base_accuracy - here > max(LOST, SHARE_LOST * (base_accuracy - majority)):
        found.append(
            Diagnostic(
                f"accuracy is about {here:.2f} with the constraint and {base_accuracy:.2f} without: most of what was "
                "learned is lost; allow a larger tolerance.",
                AccuracyWarning,
            )
        )
    return found


def violation_diagnostics(violation: float, tolerance: float, stddev: float) -> list[Diagnostic]:
    """Warn if a noised violation, whose noise has this standard deviation, is beyond the tolerance."""
    if violation <= tolerance + max(SLACK, 2 * stddev):
        return []
    sentence = (
        f"the noised violation of the deployed decisions is {violation:.2g}, beyond the tolerance "
        f"{tolerance:.2g}: measure it on other rows before you rely on it."
    )
    return [Diagnostic(sentence, ViolationWarning)]


def budget_diagnostics(most_lost: float, tolerance: float, gap: float, stddev: float) -> list[Diagnostic]:
    """Say that the correction stopped early because the budget allows no more without losing accuracy.

    Parameters
    ----------
    most_lost : float
        Accuracy that the correction may cost.
    tolerance : float
        To which the default one was raised.
    gap, stddev : float
        Noised violation of the deployed decisions, and its standard error, noise and sampling.
    """
    sentence = (
        f"the budget does not allow correcting more: a tolerance below {tolerance:.2g} would cost more than "
        f"{100 * most_lost:.2g} points of accuracy, or be no better than one decision for all rows. The remaining gap "
        f"is about {max(gap, 0.0):.2g} +- {stddev:.2g}; raise epsilon, or give a tolerance."
    )
    return [Diagnostic(sentence, NoisyEstimateWarning)]


def worth_diagnostics(per_change: float, gap: float, stddev: float) -> list[Diagnostic]:
    """Say that multipliers were held back because closing the remaining gap would cost too many right decisions.

    Parameters
    ----------
    per_change : float
        Right decisions that may be given up for each decision of a group that changes.
    gap, stddev : float
        Noised violation of the deployed decisions, and its standard error, noise and sampling.
    """
    sentence = (
        f"the correction stops at a gap of about {max(gap, 0.0):.2g} +- {stddev:.2g}: closing it would cost more than "
        f"{per_change:.2g} right decisions for each decision that changes in the smallest groups. Give a tolerance to "
        "correct more."
    )
    return [Diagnostic(sentence, ViolationWarning)]


def cell_diagnostics(size: float, cell: str, tolerance: float, stddev: float, *, given: bool) -> list[Diagnostic]:
    """Warn if a constraint hardly constrains because a cell of group and event is small.

    Parameters
    ----------
    size : float
        Noised size of the smallest cell.
    cell : str
        Its name.
    stddev : float
        Standard deviation, noise and sampling, of the difference between the rates of the two least known cells.
    given : bool
        Whether the tolerance was given by the user.
    """
    reach = max(tolerance, 2 * stddev) if given else tolerance + 2 * stddev
    if reach <= (max(LOOSE_IF_GIVEN, tolerance) if given else LOOSE):
        return []
    known = "may be chance" if given else "are allowed or may be chance"
    sentence = f"with about {size:.0f} people in {cell}, differences up to {min(reach, 1.0):.2g} {known}."
    return [Diagnostic(sentence, SmallGroupWarning)]


def missing_by_label(sizes: Array, totals: Array, stddev: float) -> Array:
    """(Y, 2): by label, the share of "not given" and the standard deviation of its noise.

    Parameters
    ----------
    sizes : ndarray (G, Y)
        Noised number of rows of each label.
    totals : ndarray (Y,)
        Public number of rows of each label.
    stddev : float
        Standard deviation of the noise in one size.
    """
    rows = np.maximum(totals, 1e-12)
    return np.stack([1 - sizes.sum(0) / rows, stddev / rows], axis=1)


def missing_diagnostics(missing: Array | None) -> list[Diagnostic]:
    """Warn if the share of "not given" differs by label, from :func:`missing_by_label`."""
    if missing is None:
        return []
    shares, noise = missing[:, 0], missing[:, 1]
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


def size_diagnostics(names: Sequence[object], sizes: Array, noise: Array, few: float, loud: float) -> list[Diagnostic]:
    """Warn of groups that may not exist, and of rates that are mostly noise.

    Parameters
    ----------
    sizes, noise : ndarray (G,)
        Noised sizes, and the known noise of the groups' rates.
    few : float
        Size that noise alone may show.
    loud : float
        Noise that is worth a sentence.
    """
    found: list[Diagnostic] = []
    noisy: list[tuple[float, str]] = []
    for name, size, worst in zip(names, sizes.tolist(), noise.tolist(), strict=True):
        if size <= few:
            found.append(unknown_group(name, size))
        elif worst > loud:
            noisy.append((worst, repr(name)))
    noisy.sort(reverse=True)
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
    """Warning about a group whose noised size could be noise alone."""
    return Diagnostic(f"the noised size of group {name!r} is about {size:.0f}: is its name right?", UnknownGroupWarning)
