"""What several certificates say together: costs about the same people add up, those about other people do not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from justitia.privacy.accounting import Cost, GaussianCost, epsilon_spent
from justitia.privacy.ledger import Certificate, rounded_up


def composed(certificates: Sequence[Certificate]) -> tuple[float, float]:
    """(epsilon, delta) of everything that these certificates speak of, for people who may be in all of it.

    Gaussian releases are composed by the accountant, at the largest delta; epsilons and deltas of anything else, and of
    certificates that promise the budget of a ledger, are added, which always holds.
    """
    epsilons = [one.epsilon for one in certificates]
    if len(certificates) == 1 or math.isinf(max(epsilons)):
        return max(epsilons), max(one.delta for one in certificates)
    if any(one.epsilon > one.spent_epsilon for one in certificates):
        return sum(epsilons), sum(one.delta for one in certificates)
    costs: Counter[Cost] = Counter()
    for entry in (entry for one in certificates for entry in one.releases):
        if entry["mechanism"] != "gaussian":
            return sum(epsilons), sum(one.delta for one in certificates)
        costs[GaussianCost(entry["noise_multiplier"])] += entry["count"]
    delta = max(one.delta for one in certificates)
    return epsilon_spent(costs, delta), delta


def joint(own: Certificate, *, after: Sequence[Certificate] = (), apart: Sequence[Sequence[Certificate]] = ()) -> str:
    """What holds for everybody in any of the datasets, as one sentence.

    Parameters
    ----------
    own : Certificate
        Of the new release.
    after : sequence of Certificate
        Of earlier ones about people who are, or may be, the same: costs add up.
    apart : sequence of sequences of Certificate
        Of releases about other people, those about the same people in one sequence. One person's attribute enters
        one of these, or the first lot, so the largest cost covers all (parallel composition).
    """
    totals = [composed([own, *after]), *(composed(one) for one in apart)]
    epsilon, delta = max(one for one, _ in totals), max(one for _, one in totals)
    number = len(after) + sum(len(one) for one in apart)
    others = "the other certificate" if number == 1 else f"the {number} other certificates"
    if math.isinf(epsilon):
        return f"Together with {others} there is no privacy guarantee: epsilon is infinite."
    added = "" if not after else ", costs added since the same people are or may be in both"
    if after and number > 1:
        counted = "all" if not apart else str(len(after))
        added = f", costs of {counted} of them added since the same people are or may be in them"
    return (
        f"Together with {others}{added}: ({rounded_up(epsilon)}, {delta:.4g})-differentially private in the sensitive "
        f"attribute of everybody in {'either dataset' if number == 1 else 'any of the datasets'}"
        f"{_condition(number, len(after), len(apart))}."
    )


def _condition(number: int, added: int, apart: int) -> str:
    if not apart:
        return ""
    if number == 1:
        return ", provided that nobody is in both"
    if not added and apart == number:
        return ", provided that nobody is in two of them"
    return ", provided that nobody is in two of which the costs were not added"
