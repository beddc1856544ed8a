"""Numbers, sentences and escaped text as page and card show them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import norm

from justitia.metrics.bounds import format_bound
from justitia.privacy.accounting import gaussian_mu
from justitia.privacy.ledger import Certificate, rounded_up

NONE = "\N{EN DASH}"
#: Characters that have a meaning in Markdown anywhere in a line.
SPECIAL = re.compile(r"([\\`*_\[\]|~#$])")

#: Definition of each notion.
NOTIONS = {
    "demographic_parity": "every group receives positive decisions at the same rate",
    "equalized_odds": "among people with the same label, every group receives positive decisions at the same rate",
    "accuracy_parity": "decisions are right equally often in every group",
    "equal_opportunity": "among people with the positive label, every group receives positive decisions at the same "
    "rate",
    "predictive_equality": "among people with the negative label, every group receives positive decisions at the same "
    "rate",
    "conditional_demographic_parity": "within each public stratum, every group receives positive decisions at the same "
    "rate",
    "predictive_parity": "positive decisions are right equally often in every group",
}
#: Notions whose gaps are no shares, and the axes of their charts.
UNITS = {"mean_parity": "difference of means", "equal_error": "difference of mean squared errors"}
#: Rates of a measurement in words.
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


#: Sources of the default tolerance, by engine.
DEFAULT_TOLERANCE = {"post-processing": "sampling error and noise", "moments": "noise"}


def plain_name(name: str) -> str:
    """A name of this package without its underscores."""
    return name.replace("_", " ")


def rate_name(metric: str) -> str:
    """The name of a rate; a class in brackets stays as it is."""
    first, bracket, rest = metric.partition("[")
    return f"{plain_name(first)} of {rest.removesuffix(']')}" if bracket else plain_name(first)


def said(sentence: str) -> str:
    """A sentence of a measurement, with names as words and an initial capital."""
    words = plain_name(sentence)
    return words[:1].upper() + words[1:]


def number(value: Any, digits: int = 3) -> str:
    """A number with a fixed number of decimals; a dash if there is none."""
    if not known(value):
        return NONE
    text = f"{float(value):,.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}") if any(c in "123456789" for c in text) else text.lstrip("-")


def points(value: Any, limit: float | None = None, *, in_points: bool = True) -> str:
    """A gap in percentage points with one decimal, or with as many more as show on which side of a limit it is.

    Parameters
    ----------
    in_points : bool
        False of a difference in units of the target, which is written with four figures.
    """
    if not known(value):
        return NONE
    if not in_points:
        return f"{float(value):,.4g}".replace("-", "\N{MINUS SIGN}")
    scaled = 100 * float(value)
    text = number(scaled, 1)
    if limit is not None:
        for digits in range(1, 7):
            text = number(scaled, digits)
            shown = round(scaled, digits)
            if (shown < 100 * limit, shown > 100 * limit) == (scaled < 100 * limit, scaled > 100 * limit):
                break
    return f"{text} point" if text == "1.0" else f"{text} points"


def percent(value: Any) -> str:
    """A rate in percent with one decimal; a dash if there is none."""
    return f"{number(100 * float(value), 1)}%" if known(value) else NONE


def percent_bounds(lower: Any, upper: Any) -> str:
    """Two bounds of a rate in percent."""
    if not (known(lower) and known(upper)):
        return NONE
    return f"{number(100 * float(lower), 1)} to {number(100 * float(upper), 1)}%"


def gap_points(value: Any) -> str:
    """A gap in points without the unit, for columns that name it."""
    return number(100 * float(value), 1) if known(value) else NONE


def known(value: Any) -> bool:
    """Whether a value is a finite number."""
    return value is not None and math.isfinite(value)


def bounds(lower: Any, upper: Any, digits: int = 3) -> str:
    """Two bounds as one cell."""
    return f"{number(lower, digits)} to {number(upper, digits)}" if known(lower) and known(upper) else NONE


def digits_known(lower: Any, upper: Any) -> int:
    """Decimals for a number with these bounds: two if they are 0.05 or more apart, else three."""
    return 2 if known(lower) and known(upper) and upper - lower >= 0.05 else 3


def rounded(value: Any, lower: Any, upper: Any) -> str:
    """A number with as many decimals as its bounds justify."""
    return number(value, digits_known(lower, upper))


def rounded_bounds(lower: Any, upper: Any) -> str:
    """Two bounds with as many decimals as their distance justifies."""
    return bounds(lower, upper, digits_known(lower, upper))


def rounded_count(count: Any, deviation: Any) -> str:
    """A noisy count, rounded to the order of magnitude of its noise; never below 0."""
    if not known(count):
        return NONE
    unit = 10 ** max(0, math.floor(math.log10(max(float(deviation or 1.0), 1.0))))
    return f"{max(0, round(float(count) / unit) * unit):,}"


def ratio_bounds(lower: Any, upper: Any) -> str:
    """Bounds of a ratio, the upper of which may be infinite."""
    return bounds(lower, upper, 2) if known(upper) else f"{number(lower, 2)} or more"


def shortfall(one: Mapping[str, Any]) -> str:
    """Number of missing positive decisions with bounds; "none" if the group has the higher rate."""
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
    r"""Privacy guarantee as the success rate of an attacker who guesses the group of one row or person.

    For (epsilon, delta)-differential privacy, no test tells two neighbouring datasets, equally likely beforehand, apart
    with probability above :math:`(e^\epsilon + \delta) / (1 + e^\epsilon)`. Gaussian releases of the same cost keep it
    below :math:`\Phi(\mu / 2)`, which is less: docs/choose.md.
    """
    epsilon = certificate.epsilon
    if math.isinf(epsilon) or certificate.reproduction:
        return f"Nothing is promised about what can be learned of a {certificate.unit}'s group from this model."
    share = best_guess_in_100(certificate)
    who = "a person" if certificate.unit == "person" else "the person of a row"
    return (
        f"Suppose an attacker knows all features and labels, the group of everyone else, and that {who} is in one of "
        "two groups that are equally likely. With everything that training made public, the attacker names the right "
        f"group in at most {share:g} of 100 such cases; without it, in 50."
    )


def best_guess_in_100(certificate: Certificate) -> float:
    """In how many of 100 cases a best guess of one person's group is right, rounded up to a tenth."""
    return min(100.0, math.ceil(_best_guess(certificate) * 1000) / 10)


def _best_guess(certificate: Certificate) -> float:
    """Largest probability of a right guess between two groups that were equally likely."""
    epsilon, delta = certificate.epsilon, certificate.delta
    best = (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))
    if any(one["mechanism"] != "gaussian" for one in certificate.releases) or not certificate.releases:
        return best
    return min(best, float(norm.cdf(gaussian_mu(epsilon, delta) / 2)))


def privacy_sentence(certificate: Certificate) -> str:
    """Epsilon spent, and the budget."""
    if math.isinf(certificate.epsilon):
        return "This model was trained without a privacy guarantee."
    spent = f"Epsilon {rounded_up(certificate.spent_epsilon)} was spent"
    if math.isinf(certificate.budget_epsilon):
        return f"{spent}."
    return f"{spent} of a budget of {certificate.budget_epsilon:.4g}."


def tolerance_sentence(asked: float | None, in_force: float | None, engine: str) -> str:
    """The tolerance, and whether it was given or is the default."""
    if asked is not None:
        return f"The rates of two groups were allowed to differ by {asked:.4g}."
    if engine not in DEFAULT_TOLERANCE:
        return "No tolerance was given: training aimed at no difference at all."
    text = "" if in_force is None else f", {in_force:.4g}"
    causes = DEFAULT_TOLERANCE[engine]
    return f"No tolerance was given: two groups were allowed to differ by as much as {causes} can explain{text}."


def among(groups: int, not_compared: Sequence[str]) -> str:
    """Number of groups that are compared, in words; empty if all are."""
    return f"among {groups - len(not_compared)} of {groups} groups" if not_compared else ""


def verdict(
    lower: Any, upper: Any, tolerance: float, groups: int, not_compared: Sequence[str], confidence: float = 0.95
) -> str:
    """Compare one-sided bounds of the violation with the tolerance; a group that is not compared rules out "within".

    Parameters
    ----------
    groups : int
        Number of groups, including those that are not compared.
    """
    if not (known(lower) and known(upper)):
        return f"There is not enough evidence to compare with the tolerance of {tolerance:.4g}."
    level = f"(one-sided bound at {confidence:.4g} confidence)"
    if lower > tolerance:
        least = f"The largest difference between two groups is at least {format_bound(lower, tolerance)} {level}"
        return f"{least}: above the tolerance of {tolerance:.4g}."
    which = f" {among(groups, not_compared)}" if not_compared else ""
    largest = f"largest difference between two groups{which} is at most {format_bound(upper, tolerance)} {level}"
    if upper <= tolerance and not not_compared:
        return f"The {largest}: within the tolerance of {tolerance:.4g}."
    lacking = f"; there is not enough evidence on {listed(not_compared)}" if not_compared else ""
    if upper <= tolerance:
        return f"The {largest}, within the tolerance of {tolerance:.4g}{lacking}."
    return f"Inconclusive: the {largest}; the tolerance is {tolerance:.4g}{lacking}."


class Markdown(str):
    """Text that is Markdown already and is not escaped."""

    __slots__ = ()


def escaped(value: Any) -> Any:
    """One line of text, escaped so that Markdown and HTML show it as it is."""
    if isinstance(value, Markdown) or not isinstance(value, str):
        return value
    line = " ".join(value.split())
    return SPECIAL.sub(r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def fenced(text: str, language: str = "") -> Markdown:
    """Code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markdown(f"{fence}{language}\n{text}\n{fence}")
