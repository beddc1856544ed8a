"""What a report does not promise, in sentences."""

from __future__ import annotations

from justitia.privacy.ledger import Certificate
from justitia.report.contents import Contents


def not_promised(contents: Contents) -> tuple[str, ...]:
    """Limits of privacy first, then limits of fairness, each as one sentence."""
    certificate = contents.certificate
    found = [f"Privacy does not cover: {one}." for one in certificate.not_covered]
    if not contents.private:
        found = ["Privacy of the sensitive attribute: this model has no guarantee.", *found]
    if certificate.groups_source != "given":
        found += [f"The list of groups was {certificate.groups_source}."]
    if certificate.reproduction:
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
        found += [_jointly(contents.measured.certificate)]
    return tuple(found)


def _jointly(measurement: Certificate) -> str:
    """Remarks of a measurement say what it costs together with the training, if it was told of the training."""
    if measurement.remarks:
        return (
            "Joint privacy of training and measurement, but for what the remarks of the measurement state under their "
            "conditions."
        )
    return (
        "Joint privacy of training and measurement, unless one ledger paid for both: costs add up for people who are "
        "in both, and nothing here says who is."
    )
