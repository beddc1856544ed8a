"""Numbers and sentences as the page and the card print them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import norm

from justitia.metrics.bounds import format_bound
from justitia.privacy.accounting import gaussian_mu
from justitia.privacy.ledger import Certificate, rounded_up

NONE = "\N{EN DASH}"

#: What each notion asks for.
NOTIONS = {
    "demographic_parity": "every group receives positive decisions at the same rate",
    "equalized_odds": "among people with the same label, every group receives positive decisions at the same rate",
    "accuracy_parity": "decisions are right equally often in every group",
    "equal_opportunity": "among people with the positive label, every group receives positive decisions at the same "
    "rate",
    "predictive_equality": "among people with the negative label, every group receives positive decisions at the same "
    "rate",
}
#: How rates of a measurement are called in words.
RATES = {
    "selection_rate": "positive decisions",
    "true_positive_rate": "positive decisions among the positive label",
    "false_positive_rate": "positive decisions among the negative label",
    "true_negative_rate": "negative decisions among the negative label",
    "false_negative_rate": "negative decisions among the positive label",
    "accuracy_score": "right decisions",
    "zero_one_loss": "wrong decisions",
    "precision_score": "positive labels among positive decisions",
}
ENGINES = {
    "post-processing": "post-processing: a handful of noised sums, and the dual in closed form on top of a base model",
    "moments": "moments: a handful of noised sums",
    "pf-ld": "pf-ld: a noised sum of gradients and a noised violation in every round",
    "pf-ld-as-published": "pf-ld-as-published: the published algorithm, whose guarantee is not established",
}


#: What may differ where no tolerance was given.
BY_CHANCE = {"post-processing": "chance and the known noise", "moments": "the known noise"}


def plain_name(name: str) -> str:
    """A name of ours without its underscores."""
    return name.replace("_", " ")


def said(sentence: str) -> str:
    """A sentence of a measurement, with our names as words and a capital at its beginning."""
    words = plain_name(sentence)
    return words[:1].upper() + words[1:]


def number(value: Any, digits: int = 3) -> str:
    """A number with a fixed number of decimals; a dash if there is none."""
    if not known(value):
        return NONE
    text = f"{float(value):,.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}") if any(c in "123456789" for c in text) else text.lstrip("-")


def known(value: Any) -> bool:
    """Whether there is a finite number."""
    return value is not None and math.isfinite(value)


def bounds(lower: Any, upper: Any, digits: int = 3) -> str:
    """Two bounds as one cell."""
    return f"{number(lower, digits)} to {number(upper, digits)}" if known(lower) and known(upper) else NONE


def digits_known(lower: Any, upper: Any) -> int:
    """Decimals of a number that is known between two bounds: two where they are a twentieth apart or more."""
    return 2 if known(lower) and known(upper) and upper - lower >= 0.05 else 3


def rounded(value: Any, lower: Any, upper: Any) -> str:
    """A number with as many decimals as its bounds let it have."""
    return number(value, digits_known(lower, upper))


def rounded_bounds(lower: Any, upper: Any) -> str:
    """Two bounds with as many decimals as they let each other have."""
    return bounds(lower, upper, digits_known(lower, upper))


def rounded_count(count: Any, deviation: Any) -> str:
    """A noisy count to the tens or hundreds that its noise leaves; never below 0."""
    if not known(count):
        return NONE
    unit = 10 ** max(0, math.floor(math.log10(max(float(deviation or 1.0), 1.0))))
    return f"{max(0, round(float(count) / unit) * unit):,}"


def ratio_bounds(lower: Any, upper: Any) -> str:
    """Bounds of a ratio, the upper of which may be infinite."""
    return bounds(lower, upper, 2) if known(upper) else f"{number(lower, 2)} or more"


def shortfall(one: Mapping[str, Any]) -> str:
    """How many positive decisions lack, with bounds; "none" where the group has the higher rate."""
    found = [one[name] for name in ("shortfall", "shortfall_lower", "shortfall_upper")]
    if not all(known(value) for value in found):
        return NONE
    return "none" if found[0] <= 0 else f"{found[0]:,.0f} ({max(0.0, found[1]):,.0f} to {found[2]:,.0f})"


def short(value: Any) -> str:
    """A public setting or fact as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "infinite" if math.isinf(value) else f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {short(one)}" for key, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(short(one) for one in value) or "none"
    return str(value)


def listed(names: Any) -> str:
    """Names in a sentence."""
    every = [str(name) for name in names]
    return " and ".join([", ".join(every[:-1]), every[-1]]) if len(every) > 1 else "".join(every)


def odds_sentence(certificate: Certificate) -> str:
    r"""The guarantee as the success of whoever guesses the group of one row or, with ids, of one person.

    For (epsilon, delta)-differential privacy, no test tells two neighbouring datasets, equally likely beforehand, apart
    with probability above :math:`(e^\epsilon + \delta) / (1 + e^\epsilon)`. Gaussian releases of the same cost keep it
    below :math:`\Phi(\mu / 2)`, which is less: docs/epsilon.md.
    """
    epsilon = certificate.epsilon
    if math.isinf(epsilon) or certificate.reproduction:
        return f"Nothing is promised about what can be learned of a {certificate.unit}'s group from this model."
    share = min(100.0, math.ceil(_best_guess(certificate) * 1000) / 10)
    who = "a person" if certificate.unit == "person" else "the person of a row"
    return (
        f"Suppose that somebody knows all features and labels, everybody else's group, and that {who} is in one of two "
        "groups, each as likely as the other. With everything that training made public in hand, they name the right "
        f"one in at most {share:g} of 100 such cases; without it, in 50."
    )


def _best_guess(certificate: Certificate) -> float:
    """Largest probability of a right guess between two groups that were equally likely."""
    epsilon, delta = certificate.epsilon, certificate.delta
    best = (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))
    if any(one["mechanism"] != "gaussian" for one in certificate.releases) or not certificate.releases:
        return best
    return min(best, float(norm.cdf(gaussian_mu(epsilon, delta) / 2)))


def privacy_sentence(certificate: Certificate) -> str:
    """What was spent, of what."""
    if math.isinf(certificate.epsilon):
        return "This model was trained without a privacy guarantee."
    spent = f"Epsilon {rounded_up(certificate.spent_epsilon)} was spent"
    if math.isinf(certificate.budget_epsilon):
        return f"{spent}."
    return f"{spent} of a budget of {certificate.budget_epsilon:.4g}."


def tolerance_sentence(asked: float | None, in_force: float | None, engine: str) -> str:
    """Which difference between two groups was allowed, and by whom."""
    if asked is not None:
        return f"The rates of two groups were allowed to differ by {asked:.4g}."
    if engine not in BY_CHANCE:
        return "No tolerance was given: training aimed at no difference at all."
    told = "" if in_force is None else f", {in_force:.4g}"
    return f"No tolerance was given: two groups were allowed to differ by what {BY_CHANCE[engine]} could show{told}."


def among(groups: int, not_compared: Sequence[str]) -> str:
    """Of how many groups a largest difference speaks, where it does not speak of all."""
    return f"among {groups - len(not_compared)} of {groups} groups" if not_compared else ""


def verdict(
    lower: Any, upper: Any, tolerance: float, groups: int, not_compared: Sequence[str], confidence: float = 0.95
) -> str:
    """One-sided bounds of the violation against the tolerance; a group that is not compared rules out "within".

    Parameters
    ----------
    groups : int
        Their number, with those that are not compared.
    """
    if not (known(lower) and known(upper)):
        return f"There is not enough evidence to compare with the tolerance of {tolerance:.4g}."
    held = f"(one-sided bound at {confidence:.4g} confidence)"
    if lower > tolerance:
        least = f"The largest difference between two groups is at least {format_bound(lower, tolerance)} {held}"
        return f"{least}: above the tolerance of {tolerance:.4g}."
    which = f" {among(groups, not_compared)}" if not_compared else ""
    most = f"The largest difference between two groups{which} is at most {format_bound(upper, tolerance)} {held}"
    if upper <= tolerance and not not_compared:
        return f"{most}: within the tolerance of {tolerance:.4g}."
    lacking = f"; there is not enough evidence on {listed(not_compared)}" if not_compared else ""
    if upper <= tolerance:
        return f"{most}, within the tolerance of {tolerance:.4g}{lacking}."
    return f"{most}: the evidence does not tell whether it is within the tolerance of {tolerance:.4g}{lacking}."
