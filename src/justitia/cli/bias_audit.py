"""The table of a bias audit as New York City's Local Law 144 asks for it, with noised numbers and bounds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from typing import Any

from justitia.metrics.impact import Impact
from justitia.metrics.measurement import Measurement

#: 6 RCNY 5-301: applicants, selected, rate, ratio; the columns after them say how far each is known.
COLUMNS = (
    *("table", "category", "applicants", "selected", "rate", "impact_ratio"),
    *("impact_ratio_lower", "impact_ratio_upper", "against_four_fifths", "below_2_percent", "count_noise_deviation"),
)
#: Category of people who are in none of the groups.
UNKNOWN = "not given"


def bias_audit_csv(found: Measurement) -> str:
    """Selection rates and, if scores were given, scoring rates, one line per group and one for "not given"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_lines("selection rate", found.impact()))
    if found.scores is not None:
        writer.writerows(_lines("scoring rate", found.scores.scoring))
    return text.getvalue()


def _lines(table: str, impact: Impact) -> Iterator[list[Any]]:
    deviation = f"{impact.count_deviation:.1f}"
    for group, line in zip(impact.groups, impact.table.to_dict("records"), strict=True):
        yield [
            *(table, group, _count(line["count"]), _count(line["positives"]), _rate(line["rate"])),
            *(_rate(line[name]) for name in ("impact_ratio", "lower", "upper")),
            *(line["four_fifths"], "yes" if line["small"] else "no", deviation),
        ]
    yield [table, UNKNOWN, _count(impact.not_given), *[""] * 7, deviation]


def _count(value: float) -> int:
    """People as a whole number; a noisy count may be below 0, which nobody's number is."""
    return max(0, round(value))


def _rate(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else ""
