"""Measurements as text of at most 80 columns."""

from __future__ import annotations

import math
from typing import Any

from justitia.cli.output import filled, shortened, table_text
from justitia.metrics.bounds import Interval
from justitia.metrics.measurement import Measurement
from justitia.metrics.scores import Scores

_HEAD = ("group", "rows", "rate, bounds", "gap to population, bounds")


def measurement_text(found: Measurement, accuracy: float | None, name: str) -> str:
    """Rates by group, violations, verdicts and the certificate."""
    lines = [
        filled(f"Measured: {found.people:,} rows of {name}, {len(found.groups)} groups{_right(accuracy)}."),
        filled(f"{_kind(found)} at {found.confidence:.4g}."),
    ]
    for metric in found.rate_names:
        lines += ["", f"{metric} (population {found.overall[metric]:.3f})", _rates(found, metric)]
    lines += ["", *violation_lines(found, "violation")]
    if found.unknown_groups:
        lines.append(filled(f"without enough evidence: {', '.join(found.unknown_groups)}", first="  ", indent=4))
    lines += [filled(str(one), indent=2) for one in found.verdicts.values()]
    lines += impact_lines(found)
    if found.before is not None:
        lines += violation_lines(found.before, "decisions before")
    for column, one in found.margins.items():
        for metric in one.rate_names:
            lines += ["", f"{metric} by {column} alone", _rates(one, metric)]
        lines += violation_lines(one, f"violation by {column} alone")
    if found.scores is not None:
        lines += ["", f"scores, compared with {found.scores.compared_with}", _scores(found.scores)]
    return "\n".join([*lines, "", *(filled(one) for one in (found.certificate.statement, *found.certificate.remarks))])


def violation_lines(found: Measurement, what: str) -> list[str]:
    """Each violation with its bounds, and of how many groups it speaks if not of all."""
    return [filled(f"{what}, {name}: {one}{among(found, name)}", indent=2) for name, one in found.violations.items()]


def among(found: Measurement, notion: str) -> str:
    """Of how many groups a violation speaks, if it is known and not of all."""
    left_out = found.not_compared(notion)
    if not left_out or math.isnan(found.violations[notion].estimate):
        return ""
    return f" among {len(found.groups) - len(left_out)} of {len(found.groups)} groups"


def _kind(found: Measurement) -> str:
    if math.isinf(found.certificate.epsilon):
        return "Counts and rates are EXACT, not private; bounds hold sampling,"
    return "Counts and rates are noised; bounds hold noise and sampling,"


def _right(accuracy: float | None) -> str:
    return "" if accuracy is None else f"; accuracy {accuracy:.3f}"


def _rates(found: Measurement, metric: str) -> str:
    rows = [
        (
            shortened(str(row["group"]), 18),
            f"{row['count']:,.0f}",
            str(Interval(row["rate"], row["lower"], row["upper"])),
            _signed(row["gap"], row["gap_lower"], row["gap_upper"]),
        )
        for row in found.table.reset_index().to_dict("records")
        if row["metric"] == metric
    ]
    return table_text(_HEAD, rows)


def impact_lines(found: Measurement) -> list[str]:
    """The four-fifths verdict on the selection rate, and how many rows have no group."""
    if "selection_rate" not in found.rate_names:
        return []
    impact = found.impact()
    near = 2 * impact.count_deviation
    given = f"rows without a group: about {max(0.0, impact.not_given):,.0f}, give or take {near:,.0f}"
    return [filled(str(impact.verdict), indent=2), given]


def _scores(scores: Scores) -> str:
    table = scores.table
    names = ("standardized_mean_difference", "ks_distance", *(("binned_auc",) if scores.labelled else ()))
    rows = [
        (
            shortened(str(group), 14),
            *(_bounded(line, name) for name in names),
        )
        for group, line in zip(table.index, table.to_dict("records"), strict=True)
    ]
    head = ("group", "mean difference", "KS distance", *(("binned AUC",) if scores.labelled else ()))
    return "\n".join([table_text(head, rows), filled(_about_auc(scores), indent=2)])


def _about_auc(scores: Scores) -> str:
    """What the AUC is about, and the bounds of that of exact scores; what is missing where there is none."""
    if not scores.labelled:
        return "AUC and calibration by group need labels: pass --target COLUMN."
    table = scores.table
    known = [
        f"{group} [{line['auc_lower']:.2f}, {line['auc_upper']:.2f}]"
        for group, line in zip(table.index, table.to_dict("records"), strict=True)
        if not math.isnan(line["binned_auc"])
    ]
    tied = "binned AUC: two people in one public bin of scores count one half."
    return tied if not known else f"{tied} AUC of exact scores, however these are ranked in a bin: {', '.join(known)}."


def _bounded(line: dict[Any, Any], name: str) -> str:
    value, lower, upper = (line[f"{name}{end}"] for end in ("", "_lower", "_upper"))
    return "-" if math.isnan(value) else f"{value:.2f} [{lower:.2f}, {upper:.2f}]"


def _signed(value: float, lower: float, upper: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.3f} [{lower:+.3f}, {upper:+.3f}]"


def exact_text(found: dict[str, Any], accuracy: float) -> str:
    """Exact rates by group: not private."""
    lines = [f"EXACT, not private; accuracy {accuracy:.3f}."]
    for notion, one in found.items():
        rows = [
            (
                shortened(str(row["event"]), 18),
                shortened(str(row["group"]), 18),
                f"{row['count']:,}",
                str(Interval(row["rate"], row["lower"], row["upper"])),
            )
            for row in one["by_group"]
        ]
        lines += ["", f"{notion}: violation {one['violation']:.3f}"]
        lines.append(table_text(("event", "group", "rows", "rate, bounds"), rows, left=2))
    return "\n".join(lines)
