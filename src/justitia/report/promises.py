"""What a report does not promise, in sentences."""

from __future__ import annotations

from justitia.report.contents import Contents


def not_promised(contents: Contents) -> tuple[str, ...]:
    """Limits of privacy first, then limits of fairness, each as one sentence."""
    certificate = contents.certificate
    found = [f"Privacy does not cover: {one}." for one in certificate.not_covered]
    if not contents.private:
        found = ["Privacy of the sensitive attribute: this model has no guarantee.", *found]
    if certificate.groups_source != "given":
        found += [f"The list of groups was {certificate.groups_source}."]
    if "seed" in certificate.noise:
        found += [f"Noise: {certificate.noise}."]
    found += [
        "Fairness on other people: rates are about the population that the measured people were drawn from, and change "
        "when that population does.",
        "Fairness in another sense: other notions, other groups and single persons may fare differently; notions can "
        "contradict each other.",
        "That the tolerance is met: training aims at it on its own rows, and only a measurement of other people tells "
        "how near it came.",
        "That decisions are lawful or right: a small violation is no proof that nobody is discriminated against.",
    ]
    if contents.measured is not None:
        found += [
            "Joint privacy of training and measurement, if the same people are in both: then the two budgets add up "
            "and belong on one ledger."
        ]
    return tuple(found)
