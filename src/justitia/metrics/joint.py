"""What several certificates say together: costs about the same people add up, those about other people do not."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from justitia.privacy.accounting import Cost, GaussianCost, epsilon_spent
from justitia.privacy.ledger import INFERRED, Certificate, rounded_up


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

    Notes
    -----
    Without a shared ledger nothing bounds what may follow: where costs were added, the sum holds for looks that were
    fixed before the first of them (``docs/privacy.md``, section 2.6).
    """
    listed = [own, *after, *itertools.chain.from_iterable(apart)]
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
    lists = " and apart from lists of groups that were read off the data" if _inferred(listed) else ""
    rows = ", with at most one row in each" if any(one.unit == "row" for one in listed) else ""
    conditions = _conditions(number, len(after), len(apart))
    seeded = any(one.reproduction for one in listed)
    together = "Nothing is promised, since noise was seeded; with secret noise, together" if seeded else "Together"
    return (
        f"{together} with {others}{added}{lists}: ({rounded_up(epsilon)}, {rounded_up(delta)})-differentially private "
        f"in the sensitive attribute of everybody in {'either dataset' if number == 1 else 'any of the datasets'}{rows}"
        f", provided that {' and that '.join(conditions)}."
    )


def _inferred(certificates: Iterable[Certificate]) -> bool:
    return any(one.groups_source == INFERRED for one in certificates)


def _conditions(number: int, added: int, apart: int) -> list[str]:
    """Who must not be in two datasets, and, where costs were added, what must not have been chosen after looking."""
    found = []
    if apart:
        alone = not added and apart == number
        others = "two of them" if alone else "two of which the costs were not added"
        found.append(f"nobody is in {'both' if number == 1 else others}")
    if added or apart < number:
        found.append("these looks and their prices were fixed before the first")
    return found
