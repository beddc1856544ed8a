"""Measurements as text for a terminal, the result first, and as the CSV table of a bias audit."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from typing import Any

from justitia.cli.errors import NOT_SHOWN
from justitia.cli.output import group_labels, table_text, text_width, truncate, wrap
from justitia.metrics.bounds import Interval, format_bound
from justitia.metrics.distribution import Distribution
from justitia.metrics.impact import Impact
from justitia.metrics.measurement import Measurement
from justitia.metrics.scores import Scores

_HEAD = ("group", "rows", "rate, bounds", "gap to population, points")
_MEAN_HEAD = ("group", "rows", "mean, bounds", "gap to population, bounds")


#: Columns that the numbers of a table of rates take.
NUMBERS_WIDTH = 57
#: With more rates than this, those with the largest differences are shown.
SHOWN_RATES = 12


def measurement_text(
    found: Measurement, accuracy: float | None, name: str, r2: float | None = None, limit_ratio: float | None = None
) -> str:
    """The result, then rates by group, violations, verdicts and the certificate of a measurement."""
    kind = "Counts and rates are noisy; bounds cover noise and sampling error,"
    if math.isinf(found.certificate.epsilon):
        kind = "Counts and rates are EXACT, not private; bounds cover sampling error,"
    lines = [
        *result_lines(found, accuracy, r2, limit_ratio),
        "",
        wrap(f"Measured: {found.people:,} rows of {name}, {len(found.groups)} groups."),
        wrap(f"{kind} at {found.confidence:.4g} confidence."),
    ]
    shown = _shown_rates(found)
    for metric in shown:
        overall = found.overall[metric]
        overall = f"{100 * overall:.1f}%" if found.ranges is None else f"{overall:.{_digits(found, metric)}f}"
        lines += ["", f"{metric} (population {overall})", _rates(found, metric)]
    if len(shown) < len(found.rate_names):
        lines.append(f"{len(found.rate_names) - len(shown)} rates with smaller differences are in the JSON.")
    if found.distribution is not None:
        lines += ["", f"distribution, compared with {found.distribution.compared_with}", _distances(found.distribution)]
    lines += ["", *violation_lines(found, "violation")]
    if found.unknown_groups:
        lines.append(wrap(f"not enough evidence: {', '.join(found.unknown_groups)}", first="  ", indent=4))
    lines += [wrap(str(one), indent=2) for one in found.verdicts.values()]
    lines += impact_lines(found)
    if found.before is not None:
        lines += violation_lines(found.before, "decisions before")
    for column, one in found.margins.items():
        for metric in shown:
            lines += ["", f"{metric} by {column} alone", _rates(one, metric)]
        lines += violation_lines(one, f"violation by {column} alone")
    if found.scores is not None:
        lines += ["", f"scores, compared with {found.scores.compared_with}", _scores(found.scores)]
    return "\n".join([*lines, "", *(wrap(one) for one in (found.certificate.statement, *found.certificate.remarks))])


def result_word(found: Measurement, limit_ratio: float | None = None) -> str:
    """PASS, FAIL or INCONCLUSIVE against the limits, or MEASURED where none was given."""
    answers = {"below": "PASS", "above": "FAIL"}
    words = [answers.get(verdict.answer, "INCONCLUSIVE") for verdict in found.verdicts.values()]
    if limit_ratio is not None:  # unlike a gap, a ratio has to be above its limit
        ratio = _impact(found)
        answer = "" if ratio is None else ratio.against(limit_ratio).answer
        words.append({"above": "PASS", "below": "FAIL"}.get(answer, "INCONCLUSIVE"))
    return next((word for word in ("FAIL", "INCONCLUSIVE", "PASS") if word in words), "MEASURED")


def _impact(found: Measurement) -> Impact | None:
    """Impact ratios of the selection rate; None where it was not measured, as of the error rates of equalized odds."""
    return found.impact() if "selection_rate" in found.rate_names else None


def result_lines(
    found: Measurement, accuracy: float | None, r2: float | None = None, limit_ratio: float | None = None
) -> list[str]:
    """The result: a line per notion with gap, bounds and limit, then gaps before the correction, quality and cost."""
    word = result_word(found, limit_ratio)
    indent = len(word) + 2
    before = {} if found.before is None else found.before.violations
    lines = []
    for name in found.violations:
        limit = "" if found.threshold is None else f", limit {_in_points(found, name, found.threshold)}"
        only = f" ({name})" if len(found.violations) > 1 else ""
        lines.append(f"{_gap(found, name, found.violations[name])}{limit}{only}")
        if name in before:
            lines.append(f"before correction {_in_points(found, name, before[name].estimate)}{only}")
    if limit_ratio is not None:
        lines.append(_ratio_text(found, limit_ratio))
    quality = [] if accuracy is None else [f"accuracy {100 * accuracy:.1f}%"]
    quality += [] if r2 is None else [f"R2 {r2:.3f}"]
    epsilon = found.certificate.epsilon
    paid = "EXACT, not private" if math.isinf(epsilon) else f"epsilon {epsilon:.4g} for this measurement"
    lines.append("; ".join([*quality, paid]))
    if word in ("FAIL", "INCONCLUSIVE"):
        what = (
            "the gap is not shown to be below the limit"
            if limit_ratio is None
            else "not every limit is shown to be met"
        )
        lines.append(f"exit code {NOT_SHOWN}: {what}")
    first, *rest = lines or [""]
    return [
        wrap(first, first=f"{word}  ", indent=indent),
        *(wrap(one, first=" " * indent, indent=indent) for one in rest),
    ]


def _ratio_text(found: Measurement, limit: float) -> str:
    impact = _impact(found)
    if impact is None:
        return f"impact ratio not measured, limit {limit:g}: measure demographic_parity, or pass --reference"
    verdict = impact.against(limit)
    at_least, at_most = (format_bound(one, limit) for one in (verdict.at_least, verdict.at_most))
    return (
        f"impact ratio {at_least} to {at_most} ({100 * found.confidence:.4g}%, each bound for itself), limit {limit:g}"
    )


def _gap(found: Measurement, name: str, gap: Interval) -> str:
    if math.isnan(gap.estimate):
        return "gap unknown: not enough evidence on the groups"
    low, high = _in_points(found, name, gap.lower, unit=False), _in_points(found, name, gap.upper, unit=False)
    bounds = f"{100 * found.confidence:.4g}% bounds {low} to {high}"
    compared = len(found.groups) - len(found.not_compared(name))
    among = "" if compared == len(found.groups) else f" among {compared} of {len(found.groups)} groups"
    return f"gap {_in_points(found, name, gap.estimate)} ({bounds}){among}"


def _in_points(found: Measurement, name: str, value: float, *, unit: bool = True) -> str:
    """A difference of rates or of distributions in percentage points; of means in their units."""
    places = found.questions[name]
    if found.ranges is None or not places:  # a distance of distributions is a difference of shares
        return f"{100 * value:.1f}" + (" points" if unit else "")
    return f"{value:.{_digits(found, found.rate_names[places[0]])}f}"


def violation_lines(found: Measurement, what: str) -> list[str]:
    """Each violation with its bounds, and the number of groups that were compared if not all were."""
    lines = []
    for name, one in found.violations.items():
        left_out = len(found.not_compared(name))
        compared = f" among {len(found.groups) - left_out} of {len(found.groups)} groups"
        known = left_out and not math.isnan(one.estimate)
        distance = "" if found.questions[name] else " (Kolmogorov-Smirnov distance)"
        shares = found.ranges is None or bool(distance)
        value = (
            _percents(one, " points")
            if shares
            else one.text(_digits(found, found.rate_names[found.questions[name][0]]))
        )
        text = f"{what}, {name}{distance}: {value}{compared if known else ''}"
        lines.append(wrap(text, indent=2))
    return lines


def _shown_rates(found: Measurement) -> tuple[str, ...]:
    """All rates or, of many, those with the largest noisy differences, in their order."""
    if len(found.rate_names) <= SHOWN_RATES:
        return found.rate_names
    largest = set(found.difference().fillna(-1.0).nlargest(SHOWN_RATES).index)
    return tuple(name for name in found.rate_names if name in largest)


def _digits(found: Measurement, metric: str) -> int:
    """Decimals of a rate, or of a mean by the length of its public range."""
    if found.ranges is None:
        return 3
    low, high = found.ranges[found.rate_names.index(metric)]
    return max(0, 3 - math.floor(math.log10(high - low)))


def _distances(distribution: Distribution) -> str:
    names = ("ks_distance", "ks_distance_lower", "ks_distance_upper")
    table = distribution.table
    rows = [
        (group, _percents(Interval(*(line[name] for name in names)), ""))
        for group, line in zip(_labels(table.index), table.to_dict("records"), strict=True)
    ]
    return table_text(("group", "KS distance in points, bounds"), rows)


def _rates(found: Measurement, metric: str) -> str:
    digits, shares = _digits(found, metric), found.ranges is None
    head = _HEAD if shares else _MEAN_HEAD
    records = [row for row in found.table.reset_index().to_dict("records") if row["metric"] == metric]
    rows = [
        (
            group,
            f"{row['count']:,.0f}",
            _percents(rate, "%") if shares else rate.text(digits),
            _signed(row["gap"], row["gap_lower"], row["gap_upper"], digits, shares=shares),
        )
        for group, row in zip(_labels([row["group"] for row in records]), records, strict=True)
        for rate in [Interval(row["rate"], row["lower"], row["upper"])]
    ]
    return table_text(head, rows)


def _percents(share: Interval, unit: str) -> str:
    """A share or a difference of shares with its bounds, times 100."""
    if math.isnan(share.estimate):
        return share.text(1)
    return f"{100 * share.estimate:.1f}{unit} [{100 * share.lower:.1f}, {100 * share.upper:.1f}]"


def _labels(groups: Iterable[Any]) -> list[str]:
    """Groups as a table shows them, in the columns that its numbers leave."""
    return group_labels([str(one) for one in groups], text_width() - NUMBERS_WIDTH)


def impact_lines(found: Measurement) -> list[str]:
    """The four-fifths verdict on the selection rate, and how many rows have no group."""
    impact = _impact(found)
    if impact is None:
        return []
    given = f"rows without a group: about {max(0.0, impact.not_given):,.0f} +- {2 * impact.count_deviation:,.0f}"
    return [wrap(str(impact.verdict), indent=2), given]


def _scores(scores: Scores) -> str:
    table = scores.table
    names = ("standardized_mean_difference", "ks_distance", *(("binned_auc",) if scores.labelled else ()))
    rows = [
        (
            group,
            *(_bounded(line, name) for name in names),
        )
        for group, line in zip(_labels(table.index), table.to_dict("records"), strict=True)
    ]
    head = ("group", "mean difference", "KS distance", *(("binned AUC",) if scores.labelled else ()))
    return "\n".join([table_text(head, rows), wrap(_about_auc(scores), indent=2)])


def _about_auc(scores: Scores) -> str:
    """How the binned AUC is defined, and bounds of the AUC of exact scores; what is missing without labels."""
    if not scores.labelled:
        return "AUC and calibration by group need labels: pass --target COLUMN."
    table = scores.table
    known = [
        f"{group} [{line['auc_lower']:.2f}, {line['auc_upper']:.2f}]"
        for group, line in zip(table.index, table.to_dict("records"), strict=True)
        if not math.isnan(line["binned_auc"])
    ]
    tied = "binned AUC: a pair of rows in one public bin of scores counts one half."
    return tied if not known else f"{tied} AUC of exact scores, whatever their ranks in a bin: {', '.join(known)}."


def _bounded(line: dict[Any, Any], name: str) -> str:
    value, lower, upper = (line[f"{name}{end}"] for end in ("", "_lower", "_upper"))
    return "-" if math.isnan(value) else f"{value:.2f} [{lower:.2f}, {upper:.2f}]"


def _signed(value: float, lower: float, upper: float, digits: int, *, shares: bool) -> str:
    if math.isnan(value):
        return "-"
    if shares:
        return f"{100 * value:+.1f} [{100 * lower:+.1f}, {100 * upper:+.1f}]"
    return f"{value:+.{digits}f} [{lower:+.{digits}f}, {upper:+.{digits}f}]"


def exact_text(found: dict[str, Any], accuracy: float | None, r2: float | None = None) -> str:
    """Exact rates by group, which are not private."""
    quality = f"accuracy {accuracy:.3f}" if r2 is None else f"R2 {r2:.3f}"
    lines = [f"EXACT, not private; {quality}."]
    for notion, one in found.items():
        rows = [
            (
                truncate(str(row["event"]), 18),
                truncate(str(row["group"]), 18),
                f"{row['count']:,}",
                str(Interval(row["rate"], row["lower"], row["upper"])),
            )
            for row in one["by_group"]
        ]
        lines += ["", f"{notion}: violation {one['violation']:.3f}"]
        lines.append(table_text(("event", "group", "rows", "rate, bounds"), rows, left=2))
    return "\n".join(lines)


# -- Bias audit

#: Columns of the table. 6 RCNY 5-301 asks for applicants, selected, rate and ratio; the others are their precision.
AUDIT_COLUMNS = (
    *("table", "category", "applicants", "selected", "rate", "impact_ratio"),
    *("impact_ratio_lower", "impact_ratio_upper", "against_four_fifths", "below_2_percent", "count_noise_deviation"),
)


def bias_audit_csv(found: Measurement) -> str:
    """Table of a bias audit as New York City's Local Law 144 requires it, with noisy numbers and bounds.

    It has the selection rate and, if there are scores, the scoring rate: one line per group and one for rows without a
    group, whose category is "not given".
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(AUDIT_COLUMNS)
    tables = {"selection rate": found.impact()}
    if found.scores is not None:
        tables["scoring rate"] = found.scores.scoring
    for name, impact in tables.items():
        deviation = f"{impact.count_deviation:.1f}"
        for group, line in zip(impact.groups, impact.table.to_dict("records"), strict=True):
            rates = [line[one] for one in ("rate", "impact_ratio", "lower", "upper")]
            writer.writerow(
                [
                    *(name, group, _count(line["count"]), _count(line["positives"])),
                    *(f"{rate:.3f}" if math.isfinite(rate) else "" for rate in rates),
                    *(line["four_fifths"], "yes" if line["small"] else "no", deviation),
                ]
            )
        writer.writerow([name, "not given", _count(impact.not_given), *[""] * 7, deviation])
    return text.getvalue()


def _count(value: float) -> int:
    """A noisy count, which may be negative, as a whole number of at least 0."""
    return max(0, round(value))
