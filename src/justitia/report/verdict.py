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
from justitia.report.formatting import best_guess_in_100, known, listed, plain_name, points
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
    most = one.upper if one.at_most is None else one.at_most
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
    guess = best_guess_in_100(certificate)
    value = f"a best guess of one person's group is right {guess:g} times in 100"
    return Check("Privacy", "met", value, "without this model: 50 in 100, if two groups are equally likely")


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
    first, second = (f"group {one.group}" for one in ordered)  # a label of the data is no word of a sentence
    most = one.upper if one.at_most is None else one.at_most
    bound = f"at most {points(most, contents.limits.gap)} {_level(contents)}"
    today = f"{points(abs(apart))} {'less' if apart >= 0 else 'more'} often"
    if earlier is None:
        return f"{what} are made {today} for {first} than for {second}, {bound}."
    was = (ordered[1].rate or 0.0) - (ordered[0].rate or 0.0)
    return f"{what} were made {points(was)} less often for {first} than for {second} before the correction and are " + (
        f"made {today} now, {bound}."
    )


def _rarer_first(rates: list[GroupRate]) -> list[GroupRate]:
    return sorted(rates, key=lambda one: one.rate or 0.0)


def _gap_sentence(contents: Contents, one: LargestDifference, before: LargestDifference | None) -> str:
    in_points, limit = contents.in_points, contents.limits.gap
    which = f" {one.among}" if one.among else ""
    what = f"The largest difference between two groups{which} in {plain_name(one.notion)}"
    most = one.upper if one.at_most is None else one.at_most
    now = f"{points(one.estimate or 0.0, in_points=in_points)}, at most {points(most, limit, in_points=in_points)} " + (
        f"{_level(contents)}"
    )
    if before is None or before.estimate is None:
        return f"{what} is {now}."
    return f"{what} was {points(before.estimate, in_points=in_points)} before the correction and is {now}."


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
    return NEXT[state]


def more_evidence(contents: Contents, one: LargestDifference, limit: float) -> str:
    """How many more people, or how much more epsilon, would decide it if the gap stayed as it is."""
    measured = contents.measured
    most = one.upper if one.at_most is None else one.at_most
    estimate = one.estimate or 0.0
    below = estimate < limit
    half, needed = (
        (most - estimate, limit - estimate) if below else (estimate - (one.at_least or 0.0), estimate - limit)
    )
    if measured is None or needed <= 0 or half <= 0 or (half / needed) ** 2 > MOST_TIMES:
        return (
            "The gap that was found is too near the limit to be decided by more people; train with a smaller tolerance."
        )
    sampling = min(_sampling(contents, one.notion), half)
    noise = math.sqrt(half**2 - sampling**2)
    square = needed**2
    times = (sampling**2 + math.sqrt(sampling**4 + 4 * square * noise**2)) / (2 * square)
    verb = "is met" if below else "is not met"
    people = _rounded_up(times * measured.people)
    text = f"If the gap stays at {points(estimate, in_points=contents.in_points)}, about {people:,} people instead of "
    text += f"{measured.people:,} at the same epsilon"
    epsilon = _epsilon_needed(contents, noise, needed**2 - sampling**2)
    text += "" if epsilon is None else f", or epsilon {epsilon:.2g} instead of {measured.certificate.epsilon:.2g}"
    return f"{text} would show that the limit {verb}."


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
