"""Composition of certificates: costs about the same individuals add up, those about different individuals do not."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from justitia.privacy.accounting import Cost, GaussianCost, epsilon_spent
from justitia.privacy.ledger import INFERRED, Certificate, rounded_up


def composed_cost(certificates: Sequence[Certificate]) -> tuple[float, float]:
    """(epsilon, delta) of everything that these certificates cover, for individuals who may be in all of it.

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


def joint_statement(
    own: Certificate, *, after: Sequence[Certificate] = (), apart: Sequence[Sequence[Certificate]] = ()
) -> str:
    """What holds for everyone in any of the datasets, as one sentence.

    Parameters
    ----------
    own : Certificate
        Of the new release.
    after : sequence of Certificate
        Of earlier ones about individuals who are, or may be, the same: costs add up.
    apart : sequence of sequences of Certificate
        Of releases about other individuals, those about the same ones in one sequence. One person's attribute enters
        one of these, or the first sequence, so the largest cost covers all (parallel composition).

    Notes
    -----
    Without a shared ledger nothing bounds what may follow: where costs were added, the sum holds for releases that were
    fixed before the first of them (``docs/proofs.md``, section 2.6).
    """
    listed = [own, *after, *itertools.chain.from_iterable(apart)]
    totals = [composed_cost([own, *after]), *(composed_cost(one) for one in apart)]
    epsilon, delta = max(one for one, _ in totals), max(one for _, one in totals)
    number = len(listed) - 1
    others = "the other certificate" if number == 1 else f"the {number} other certificates"
    if math.isinf(epsilon):
        return f"Together with {others} there is no privacy guarantee: epsilon is infinite."
    added = "" if not after else ", costs added since the same people are or may be in both"
    if after and number > 1:
        counted = "all" if not apart else str(len(after))
        added = f", costs of {counted} of them added since the same people are or may be in them"
    inferred = any(one.groups_source == INFERRED for one in listed)
    lists = " and apart from lists of groups that were read off the data" if inferred else ""
    rows = ", with at most one row in each" if any(one.unit == "row" for one in listed) else ""
    conditions = []
    if apart:
        none_added = not after and len(apart) == number
        two = "both" if number == 1 else "two of them" if none_added else "two of which the costs were not added"
        conditions.append(f"nobody is in {two}")
    if after or len(apart) < number:
        conditions.append("these releases and their costs were fixed before the first")
    seeded = any(one.reproduction for one in listed)
    together = "Nothing is promised, since noise was seeded; with secret noise, together" if seeded else "Together"
    return (
        f"{together} with {others}{added}{lists}: ({rounded_up(epsilon)}, {rounded_up(delta)})-differentially private "
        f"in the sensitive attribute of everybody in {'either dataset' if number == 1 else 'any of the datasets'}{rows}"
        f", provided that {' and that '.join(conditions)}."
    )
