"""Marked sections of the documentation, from results of the benchmarks: ``python -m bench.performance.pages``.

``docs/scale.md`` shows the fits in ``results/scale.json``, ``docs/custodian.md`` the load, the two users and the timing
of the custodian. A section without results keeps its text. ``bench.performance.billion`` fills its own section.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


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
                f"{one['processor_seconds']:,.0f}",
                f"{one['forecast']:,.0f}",
                f"{one['peak_bytes'] / 2**30:.2f} GB",
                max(one["load"]),
            )
            for one in found
        ],
        words=0,
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
    "custodian": (
        "custodian.json",
        "custodian.md",
        lambda facts: load(facts["load"]) + "\n\n" + users(facts["two_users"]),
    ),
    "custodian_timing": ("custodian_timing.json", "custodian.md", timing),
}


def write(names: Sequence[str], results: Path, docs: Path) -> list[str]:
    """Fill the sections that have results; the names of those that were filled."""
    filled = []
    for name in names:
        file, page, text = SECTIONS[name]
        if (results / file).exists():
            old = (docs / page).read_text(encoding="utf-8")
            new = fill(old, name, text(json.loads((results / file).read_text(encoding="utf-8"))))
            (docs / page).write_text(new, encoding="utf-8")
            filled.append(name)
    return filled


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill all sections, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance.pages", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SECTIONS)}; all by default")
    chosen = parser.parse_args(arguments).names or list(SECTIONS)
    print("filled: " + ", ".join(write(chosen, ROOT / "results", ROOT / "docs")))


if __name__ == "__main__":
    main()
