"""The verdict of a report: a state, one sentence and four checks, by what was measured against the policy limits.

A gap is judged by its one-sided bounds: shown to be within the limit, shown to be beyond it, or neither. The tolerance
is what training aimed at and judges nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from justitia.metrics.bounds import format_bound
from justitia.notions import notion_name
from justitia.privacy.accounting import gaussian_epsilon, gaussian_mu
from justitia.report.contents import Contents
from justitia.report.formatting import best_guess_in_100, known, listed, plain_name, points, rate_name
from justitia.report.inputs import GroupRate, LargestDifference

State = Literal["met", "not met", "inconclusive", "not measured", "no limit"]
#: Word of each state; the icon and the colour follow the state in the template.
WORDS: dict[State, str] = {
    "met": "Met",
    "not met": "Not met",
    "inconclusive": "Inconclusive",
    "not measured": "Not measured",
    "no limit": "No limit set",
}
#: Four-fifths rule: the impact ratio is shown against it where no limit was given.
FOUR_FIFTHS = 0.8
#: Quantile of a one-sided bound at 95%.
ONE_SIDED = 1.645
#: More people, or more epsilon, than so many times as much is no advice.
MOST_TIMES = 100.0


@dataclass(frozen=True)
class Check:
    """One line below the verdict."""

    name: str
    state: State
    value: str
    explanation: str


@dataclass(frozen=True)
class PageVerdict:
    """What a page says first.

    Attributes
    ----------
    state : State
    sentence : str
        What was found, and what it cost.
    advice : str
        What to do next; empty if nothing is left to do.
    checks : tuple of Check
        Limit, impact ratio, groups, privacy.
    judged : str
        The limits that the state is about.
    """

    state: State
    sentence: str
    advice: str
    checks: tuple[Check, ...]
    judged: str = ""

    @property
    def word(self) -> str:
        """The state as it is shown."""
        return WORDS[self.state]


def verdict_of(contents: Contents) -> PageVerdict:
    """The verdict on what was measured."""
    gap, ratio = _gap_check(contents), _ratio_check(contents)
    judged = [gap] if contents.limits.gap is not None else []
    judged += [ratio] if contents.limits.ratio is not None and ratio is not None else []
    state = _worst([one.state for one in judged]) if judged else gap.state
    checks = [one for one in (gap, ratio, _groups_check(contents), _privacy_check(contents)) if one is not None]
    limits, judged_by = contents.limits, []
    if limits.gap is not None:
        judged_by.append(f"a gap of at most {points(limits.gap, in_points=contents.in_points)}")
    if limits.ratio is not None and ratio is not None:
        judged_by.append(f"an impact ratio of at least {limits.ratio:g}")
    text = f"Limit: {listed(judged_by)}" if judged_by else ""
    return PageVerdict(state, _sentence(contents), _advice(contents, state), tuple(checks), text)


def _worst(states: list[State]) -> State:
    order: tuple[State, ...] = ("not met", "not measured", "inconclusive", "met")
    return next(one for one in order if one in states)


# -- Checks


def judge(at_least: float | None, at_most: float | None, limit: float, *, complete: bool) -> State:
    """One-sided bounds against a limit from above; "met" needs every group."""
    if not (known(at_least) and known(at_most)) or at_least is None or at_most is None:
        return "inconclusive"
    if at_least > limit:
        return "not met"
    return "met" if at_most <= limit and complete else "inconclusive"


def _gap_check(contents: Contents) -> Check:
    one, limit, in_points = contents.worst_violation(), contents.limits.gap, contents.in_points
    against = "no limit was set" if limit is None else f"limit {points(limit, in_points=in_points)}"
    if one is None:
        return Check("Largest gap", "not measured", "not measured", against)
    if one.estimate is None:
        state: State = "no limit" if limit is None else "inconclusive"
        return Check("Largest gap", state, "too few rows for this noise", against)
    most = _most(one)
    value = f"at most {points(most, limit, in_points=in_points)}"
    state = "no limit" if limit is None else judge(one.at_least, most, limit, complete=not one.not_compared)
    if state == "not met":
        value = f"at least {points(one.at_least or 0.0, limit, in_points=in_points)}"
    return Check("Largest gap", state, value, against)


def _ratio_check(contents: Contents) -> Check | None:
    """The smallest impact ratio; None where decisions are not between two classes."""
    if contents.task != "binary":
        return None
    limit = contents.limits.ratio
    against = f"limit {limit:g}" if limit is not None else f"rule of thumb {FOUR_FIFTHS:g}; no limit was set"
    impact = None if contents.measured is None else contents.measured.impact
    if impact is None or contents.favorable_differs:
        return Check("Impact ratio", "not measured", "not measured", against)
    bounds = impact["four_fifths"]
    least, most = bounds["at_least"], bounds["at_most"]
    bar = FOUR_FIFTHS if limit is None else limit
    if not known(least):
        return Check("Impact ratio", "inconclusive", "too few rows for this noise", against)
    most = math.inf if most is None else most
    state: State = "met" if least >= bar else "not met" if most < bar else "inconclusive"
    value = f"below {_ratio(most, bar)}" if state == "not met" else f"at least {_ratio(least, bar)}"
    return Check("Impact ratio", state, value, against)


def _ratio(value: float, limit: float) -> str:
    """Two decimals, or as many more as show on which side of the limit it is."""
    text = f"{value:.2f}"
    return text if (float(text) < limit) == (value < limit) else format_bound(value, limit)


def _groups_check(contents: Contents) -> Check:
    groups = len(contents.groups)
    if contents.measured is None:
        return Check("Groups measured", "not measured", f"0 of {groups}", listed(contents.groups))
    one = contents.worst_violation()
    missing = contents.measured.unknown_groups if one is None else one.not_compared
    total = groups if one is None else one.groups
    if not missing:
        return Check("Groups measured", "met", f"{total} of {total}", "each has enough rows for this noise")
    text = f"too few rows for this noise: {listed(missing)}"
    return Check("Groups measured", "inconclusive", f"{total - len(missing)} of {total}", text)


def _privacy_check(contents: Contents) -> Check:
    certificate = contents.certificate
    if not contents.private or certificate.reproduction:
        why = "noise was seeded, for reproduction" if certificate.reproduction else "training had no privacy guarantee"
        return Check("Privacy", "not met", "no guarantee", why)
    if certificate.claim:
        return Check("Privacy", "inconclusive", "not established", "the published analysis does not prove the claim")
    value = f"{best_guess_in_100(certificate):g} of 100 guesses"
    why = "how often a best guess of one person's group is right; 50 is chance between two groups"
    return Check("Privacy", "met", value, why)


# -- Sentence


def _sentence(contents: Contents) -> str:
    """Before and after the correction, the bound, and what it cost."""
    one, measured = contents.worst_violation(), contents.measured
    if measured is None or one is None:
        if contents.measured_exact:
            return "The measurement that was given has no privacy, so it is not shown; no private one was made."
        if measured is not None:
            others = listed(plain_name(other.notion) for other in measured.violations)
            return f"What was measured is {others}, not {plain_name(contents.notion)}, for which it was trained."
        return "How this model treats groups has not been measured on people that it was not trained on."
    if one.estimate is None:
        return "Too few rows of some groups were measured to compare groups under this noise."
    before = None
    if measured.before is not None:
        before = next((other for other in measured.before.violations if other.notion == one.notion), None)
    found = _pair_sentence(contents, one, before) or _gap_sentence(contents, one, before)
    return f"{found} {_cost_sentence(contents)}".strip()


def _pair_sentence(contents: Contents, one: LargestDifference, before: LargestDifference | None) -> str | None:
    """Of two groups and one rate: who gets the decision less often; None of anything else."""
    measured = contents.measured
    if contents.task != "binary" or one.notion != notion_name("demographic_parity") or measured is None:
        return None
    rates = [rate for rate in measured.rates if rate.metric == "selection_rate" and rate.rate is not None]
    if len(rates) != 2 or one.not_compared:
        return None
    words = contents.positive_words or ""
    what = (
        f"Positive decisions ({words})" if words and not words.isdigit() else "Positive decisions"
    )  # "1" says nothing
    earlier = None
    if before is not None and measured.before is not None:
        earlier = [measured.before.rate("selection_rate", rate.group) for rate in rates]
    ordered = _rarer_first(earlier or rates)
    now = {rate.group: rate.rate or 0.0 for rate in rates}
    apart = now[ordered[1].group] - now[ordered[0].group]
    first, second = (_group_words(contents, one.group) for one in ordered)
    bound = f"at most {points(_most(one), contents.limits.gap)} {_level(contents)}"
    today = f"{points(abs(apart))} {'less' if apart >= 0 else 'more'} often"
    if earlier is None:
        return f"{what} are made {today} for {first} than for {second}, {bound}."
    was = (ordered[1].rate or 0.0) - (ordered[0].rate or 0.0)
    return f"{what} were made {points(was)} less often for {first} than for {second} before the correction and are " + (
        f"made {today} now, {bound}."
    )


def _group_words(contents: Contents, group: str) -> str:
    """A group in a sentence: as people named it, because a label of the data is no word."""
    return contents.stated.group_names.get(group, f"group {group}")


def _most(one: LargestDifference) -> float:
    """The one-sided upper bound; the two-sided one of an older measurement."""
    return one.upper if one.at_most is None else one.at_most


def _rarer_first(rates: list[GroupRate]) -> list[GroupRate]:
    return sorted(rates, key=lambda one: one.rate or 0.0)


def _gap_sentence(contents: Contents, one: LargestDifference, before: LargestDifference | None) -> str:
    in_points, limit = contents.in_points, contents.limits.gap
    which = f" {one.among}" if one.among else ""
    what = f"The largest difference between two groups{which} in {plain_name(one.notion)}"
    if contents.task == "number" and one.notion == notion_name("demographic_parity"):
        what = f"The largest difference between two groups{which} in the share of predictions above any level"
    now = f"{points(one.estimate or 0.0, in_points=in_points)}, at most " + (
        f"{points(_most(one), limit, in_points=in_points)} {_level(contents)}{_where(contents, one)}"
    )
    if before is None or before.estimate is None:
        return f"{what} is {now}."
    return f"{what} was {points(before.estimate, in_points=in_points)} before the correction and is {now}."


def _where(contents: Contents, one: LargestDifference) -> str:
    """The rate and the two groups in which the difference is largest; empty where no pair of rates has it."""
    measured = contents.measured
    if measured is None:
        return ""
    for metric in measured.overall:
        rates = [(each.rate, each.group) for each in measured.rates if each.metric == metric and each.rate is not None]
        (lowest, low), (highest, high) = min(rates, default=(0.0, "")), max(rates, default=(0.0, ""))
        if rates and math.isclose(highest - lowest, one.estimate or 0.0, abs_tol=1e-9):
            high, low = _group_words(contents, high), _group_words(contents, low)
            return f": {rate_name(metric)}, {high} above {low}"
    return ""


def _level(contents: Contents) -> str:
    confidence = 0.95 if contents.measured is None else contents.measured.confidence
    return f"({confidence:.4g} one-sided confidence)" if confidence != 0.95 else "(95%)"


def _cost_sentence(contents: Contents) -> str:
    """What the correction cost in accuracy or R2, which are public."""
    public = {} if contents.measured is None else contents.measured.public
    before = public.get("before") or {}
    name, words = ("r2", "of R2") if contents.task == "number" else ("accuracy", "of accuracy")
    now, was = public.get(name), before.get(name)
    if now is None or was is None:
        return ""
    lost = was - now
    if name == "r2":
        return f"Cost: {lost:.3f} {words}." if lost >= 0 else f"Gain: {-lost:.3f} {words}."
    return f"Cost: {points(lost)} {words}." if lost >= 0 else f"Accuracy rose by {points(-lost)}."


# -- What to do next


#: What to do next, by state.
NEXT: dict[State, str] = {
    "met": "",
    "not met": "Train with a smaller tolerance (the price list says what it costs), and measure it on new people.",
    "inconclusive": "Measure more people, or with a larger epsilon.",
    "not measured": "Measure it: justitia evaluate MODEL NEW.csv --epsilon 0.5, or justitia.measure in Python.",
    "no limit": "Say what has to be shown: justitia report MODEL --limit 0.05, or --limit-ratio 0.8.",
}


def _advice(contents: Contents, state: State) -> str:
    one, limit = contents.worst_violation(), contents.limits.gap
    if state == "inconclusive" and one is not None:
        if one.not_compared:
            words, them = ("groups", "them") if len(one.not_compared) > 1 else ("group", "it")
            return f"Merge {words} {listed(one.not_compared)} with others, or measure more people of {them}."
        if limit is not None and _gap_check(contents).state == state and one.estimate is not None:
            return more_evidence(contents, one, limit)
        return _more_for_ratio(contents) or NEXT[state]
    return NEXT[state]


def more_evidence(contents: Contents, one: LargestDifference, limit: float) -> str:
    """How many more people, or how much more epsilon, would decide it if the gap stayed as it is."""
    estimate = one.estimate or 0.0
    below = estimate < limit
    half, needed = (
        (_most(one) - estimate, limit - estimate) if below else (estimate - (one.at_least or 0.0), estimate - limit)
    )
    what = f"the gap stays at {points(estimate, in_points=contents.in_points)}"
    return _more(contents, what, half, needed, _sampling(contents, one.notion), met=below) or (
        "The gap that was found is too near the limit to be decided by more people; train with a smaller tolerance."
    )


def _more_for_ratio(contents: Contents) -> str:
    """The same for the smallest impact ratio; empty where it was not measured, or is too near its limit."""
    limit, measured = contents.limits.ratio, contents.measured
    if limit is None or measured is None or measured.impact is None:
        return ""
    bounds = measured.impact["four_fifths"]
    lines = [one for one in measured.impact["by_group"] if known(one["impact_ratio"]) and known(one["rate"])]
    smallest = min(lines, key=lambda one: one["impact_ratio"], default=None)
    if smallest is None or not (known(bounds["at_least"]) and known(bounds["at_most"])):
        return ""
    ratio = smallest["impact_ratio"]
    met = ratio >= limit
    half, needed = (ratio - bounds["at_least"], ratio - limit) if met else (bounds["at_most"] - ratio, limit - ratio)
    best = max(lines, key=lambda one: one["rate"])
    # Of a logarithm of a ratio: the sum of the relative variances of both rates.
    relative = sum(
        (1 - one["rate"]) / (one["rate"] * max(one["count"], 1.0)) for one in (smallest, best) if one["rate"]
    )
    sampling = ONE_SIDED * ratio * math.sqrt(relative)
    return _more(contents, f"the impact ratio stays at {ratio:.2f}", half, needed, sampling, met=met)


def _more(contents: Contents, what: str, half: float, needed: float, sampling: float, *, met: bool) -> str:
    """People, or epsilon, for a bound that is ``needed`` and not ``half`` away from its estimate; empty if too many."""
    measured = contents.measured
    if measured is None or needed <= 0 or half <= 0 or (half / needed) ** 2 > MOST_TIMES:
        return ""
    sampling = min(sampling, half)
    noise, square = math.sqrt(half**2 - sampling**2), needed**2
    times = (sampling**2 + math.sqrt(sampling**4 + 4 * square * noise**2)) / (2 * square)
    text = (
        f"If {what}, about {_rounded_up(times * measured.people):,} people instead of {measured.people:,} at the same "
    )
    epsilon = _epsilon_needed(contents, noise, square - sampling**2)
    text += (
        "epsilon"
        if epsilon is None
        else f"epsilon, or epsilon {epsilon:.2g} instead of {measured.certificate.epsilon:.2g}"
    )
    return f"{text} would show that the limit is {'met' if met else 'not met'}."


def _sampling(contents: Contents, notion: str) -> float:
    """Part of a one-sided bound that comes from sampling: of the two groups that are farthest apart."""
    measured = contents.measured
    if measured is None or not contents.in_points:
        return 0.0
    by_metric: dict[str, list[float]] = {}
    for one in measured.rates:
        if one.rate is not None and one.count > 1 and 0 <= one.rate <= 1:
            by_metric.setdefault(one.metric, []).append(one.rate * (1 - one.rate) / one.count)
    largest = max((sum(sorted(each)[-2:]) for each in by_metric.values()), default=0.0)
    return ONE_SIDED * math.sqrt(largest) if notion else 0.0


def _epsilon_needed(contents: Contents, noise: float, left: float) -> float | None:
    """Epsilon at which the noise fits into what sampling leaves; None if no epsilon will do."""
    certificate = None if contents.measured is None else contents.measured.certificate
    if certificate is None or left <= 0 or not math.isfinite(certificate.epsilon) or certificate.epsilon <= 0:
        return None
    times = noise / math.sqrt(left)
    if not 1 < times < MOST_TIMES:
        return None
    return gaussian_epsilon(gaussian_mu(certificate.epsilon, certificate.delta) * times, certificate.delta)


def _rounded_up(count: float) -> int:
    """Two figures, rounded up."""
    unit: int = 10 ** max(0, math.floor(math.log10(max(count, 1.0))) - 1)
    return math.ceil(count / unit) * unit


__all__ = ["FOUR_FIFTHS", "WORDS", "Check", "PageVerdict", "judge", "more_evidence", "verdict_of"]
