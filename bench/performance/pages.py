"""Marked sections of the documentation, from results of the benchmarks: ``python -m bench.performance.pages``.

``docs/scale.md`` shows the fits in ``results/scale.json`` and ``results/simulated.json``, ``docs/speed.md`` the rivals
and the fits by number of groups, ``docs/custodian.md`` the load, the two users and the timing of the custodian. A
section without results says so. ``bench.performance.billion`` fills its own section.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.performance import rivals

ROOT = Path(__file__).parents[2]
#: In a section whose benchmark has not been run.
ABSENT = "No results are committed yet."
_PER_ANSWER = "processor_ms_of_the_service_per_answer"


def fill(page: str, name: str, text: str) -> str:
    """The page with the text of one marked section replaced."""
    pattern = re.compile(rf"(<!-- results: {name} -->\n).*?(<!-- end of results -->)", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"expected one section {name!r} in the page, got {len(pattern.findall(page))}.")
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]], *, words: int = 1) -> str:
    """A table; all columns after the first ``words`` are numbers."""
    rule = ["---" if at < words else "---:" for at in range(len(head))]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, rule, *rows))


def fits(found: Sequence[Mapping[str, Any]]) -> str:
    """Fits on Parquet files, by number of rows and of processes."""
    head = (
        "rows",
        "processes",
        "seconds in passes",
        "processor microseconds per row in passes",
        "processor seconds",
        "forecast",
        "peak memory of a process",
        "load",
    )
    return markdown(
        head,
        [
            (
                f"{one['rows']:,}",
                one["workers"],
                f"{one['pass_seconds']:,.0f}",
                _each(one),
                f"{one['processor_seconds']:,.0f}",
                f"{one['forecast']:,.0f}",
                f"{one['peak_bytes'] / 2**30:.2f} GB",
                max(one["load"]),
            )
            for one in found
        ],
        words=0,
    )


def _each(one: Mapping[str, Any]) -> str:
    """Processor microseconds of one row in all passes, where they were measured."""
    seconds = one.get("pass_processor_seconds")
    return "-" if seconds is None else f"{1e6 * seconds / one['rows']:.1f}"


def targets(ratios: Sequence[Mapping[str, Any]]) -> str:
    """Each ratio with its target, and whether it is met."""
    words = {"<=": "at most", ">=": "at least"}
    lines = [
        (
            one["name"],
            f"{one['value']:.2f}",
            f"{words[one['relation']]} {one['target']:g}",
            "yes" if one["passed"] else "**no**",
        )
        for one in ratios
    ]
    return markdown(("ratio", "measured", "target", "met"), lines)


def simulated(found: Sequence[Mapping[str, Any]]) -> str:
    """Fits on rows that are made in the passes."""
    head = (
        *("rows", "seconds", "processor microseconds per row", "peak memory"),
        "largest noisy gap, first and last check",
    )
    rows = [
        (
            f"{one['rows']:,}",
            f"{one['seconds']:,.0f}",
            f"{one['microseconds_per_row']:.1f}",
            f"{one['peak_bytes'] / 2**30:.2f} GB",
            " / ".join(f"{gap:.4f}" for gap in one["largest_noisy_gap"]),
        )
        for one in found
    ]
    return markdown(head, rows, words=0)


def by_groups(facts: Mapping[str, Any]) -> str:
    """Processor time of fits by number of groups, over that of the fewest."""
    fits = facts["fits"]
    rows = [(one["groups"], f"{one['ratio']:.2f}", f"{one['distillation'] / one['fit']:.2f}") for one in fits]
    return (
        f"{markdown(('groups', 'fit / fit with the fewest', 'distillation / fit'), rows, words=0)}\n\n"
        f"{facts['rows']:,} rows. From five groups on, time grows with the power {facts['exponent']:.2f} of the groups."
    )


def load(found: Mapping[str, Any]) -> str:
    """Many clients at once on one population."""
    head = (f"{found['clients']} clients for {found['seconds'] / 60:g} minutes, {found['cores']} cores", "")
    memory = ", ".join(f"{one:,}" for one in found["memory_mb_at_start_quarter_half_end"])
    return markdown(
        head,
        [
            ("answers, debits, receipts", " / ".join(f"{found[one]:,}" for one in ("answers", "debits", "receipts"))),
            ("refused", found["refused"]),
            ("epsilon spent", f"{found['spent_epsilon']:g} of {found['budget_epsilon']:g}"),
            ("seconds per answer, median and 99%", f"{found['p50_seconds']:.2f} / {found['p99_seconds']:.2f}"),
            ("answers per second in each half", " / ".join(f"{one:g}" for one in found["per_second_in_each_half"])),
            *(
                [("processor milliseconds of the service per answer", f"{found[_PER_ANSWER]:g}")]
                if _PER_ANSWER in found
                else []
            ),
            ("memory in MB at start, quarter, half, end", memory),
        ],
    )


def users(found: Mapping[str, Any]) -> str:
    """A trainer and a custodian as two users of one machine."""
    trainer, custodian = found["processor_seconds_of_trainer_and_custodian"]
    hidden = [*found["in_the_trainers_memory"], *found["in_the_trainers_files"]]
    return markdown(
        (f"Two users, {found['people']:,} rows", ""),
        [
            ("same model as in memory, to the last bit", "yes" if found["same_bits"] else "no"),
            (
                "files of the custodian that the trainer can open",
                len(found["files_of_the_custodian_that_the_trainer_can_open"]),
            ),
            ("entries or codes in the trainer's memory and files", ", ".join(hidden) or "none"),
            ("the same in the custodian's memory", ", ".join(found["in_the_custodians_memory"]) or "none"),
            (
                "seconds in memory / with a custodian",
                f"{found['seconds_in_memory']:.2f} / {found['seconds_with_a_custodian']:.2f}",
            ),
            ("processor seconds of trainer / custodian", f"{trainer:.2f} / {custodian:.2f}"),
        ],
    )


def timing(found: Mapping[str, Any]) -> str:
    """How often a time is longer than one of registered ids, by cohort and step."""
    steps = {
        "cohort": "making the cohort",
        "question": "the first query",
        "look_up": "its look-up alone",
        "look_up_as_stored": "control: labels as stored, which the service does not use",
    }
    cohorts = [name for name in found if name.startswith("cohorts of ")]
    rows = [
        (
            name.removeprefix("cohorts of "),
            words,
            *(f"{found[name][step][kind][1]:.2f}" for kind in ("unlisted", "silent", "stranger")),
        )
        for name in cohorts
        for step, words in steps.items()
    ]
    low, high = found[cohorts[0]]["cohort"]["by_chance"]
    head = ("ids", "step", "not listed", "no attribute", "not registered")
    return (
        f"{found['repeats']} cohorts of each kind. By chance alone an entry is between {low:.2f} and {high:.2f}, 99% "
        f"of the time.\n\n{markdown(head, rows, words=2)}"
    )


#: File of results, page and text of each section.
SECTIONS: dict[str, tuple[str, str, Callable[[Any], str]]] = {
    "scale": ("scale.json", "scale.md", lambda facts: fits(facts["fits"])),
    "scale_targets": ("scale.json", "scale.md", lambda facts: targets(facts["ratios"])),
    "simulated": ("simulated.json", "scale.md", lambda facts: simulated(facts["fits"])),
    "rivals": ("rivals.json", "speed.md", lambda facts: rivals.table(facts["runs"])),
    "groups": ("groups.json", "speed.md", by_groups),
    "custodian": (
        "custodian.json",
        "custodian.md",
        lambda facts: load(facts["load"]) + "\n\n" + users(facts["two_users"]),
    ),
    "custodian_timing": ("custodian_timing.json", "custodian.md", timing),
}


def write(names: Sequence[str], results: Path, docs: Path) -> list[str]:
    """Fill the sections; the names of those that have results."""
    filled = []
    for name in names:
        file, page, text = SECTIONS[name]
        found, old = results / file, (docs / page).read_text(encoding="utf-8")
        new = text(json.loads(found.read_text(encoding="utf-8"))) if found.exists() else ABSENT
        (docs / page).write_text(fill(old, name, new), encoding="utf-8")
        filled += [name] if found.exists() else []
    return filled


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill all sections, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance.pages", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SECTIONS)}; all by default")
    chosen = parser.parse_args(arguments).names or list(SECTIONS)
    print("filled: " + ", ".join(write(chosen, ROOT / "results", ROOT / "docs")))


if __name__ == "__main__":
    main()
