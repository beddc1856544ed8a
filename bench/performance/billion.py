"""Forecast of a fit on very many rows, from the rates in results/scale.json: ``python -m bench.performance.billion``.

Processor seconds are a line through the two largest fits of one process that were measured: what a row costs, and what
learning from the sample costs once. The driver's part does not shrink with more cores. For the default number of rows
the forecast also becomes a marked section of ``docs/scale.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.performance.pages import ROOT, fill, markdown
from justitia.privacy.noise_grid import exact_sum_step

SCALE, PAGE = ROOT / "results" / "scale.json", ROOT / "docs" / "scale.md"
BILLION, PRICE = 10**9, 0.05  # rows, and the price of a core hour in any currency
FEATURES, COLUMNS, GROUPS = 50, 164, 3  # columns of the rows measured, and of the widest released sum
PARTITION = 1_000_000
PASSES = 12  # of a fit with two checks, the first three of them over the data frame itself
BITS = 62  # of an integer sum


@dataclass(frozen=True)
class Rates:
    """Processor seconds of a row and of what does not depend on rows, and the driver's peak memory in bytes."""

    row: float
    once: float
    peak: float

    @classmethod
    def of(cls, fits: Sequence[Mapping[str, Any]]) -> Rates:
        """From the two largest fits of one process."""
        small, large = sorted((one for one in fits if one["workers"] == 1), key=lambda one: one["rows"])[-2:]
        row = (large["processor_seconds"] - small["processor_seconds"]) / (large["rows"] - small["rows"])
        return cls(row, max(large["processor_seconds"] - row * large["rows"], 0.0), large["peak_bytes"])


def hours(rates: Rates, n: int, cores: int) -> float:
    """Of the clock."""
    return (rates.once + rates.row * n / cores) / 3600


def up(n: int) -> float:
    """Bytes of all sums that travel to the driver."""
    return PASSES * -(-n // PARTITION) * 8.0 * (GROUPS + 1) * COLUMNS


def kept(n: int) -> float:
    """Bytes of the blocks that workers keep: features, label, weight and score, and one short text of the attribute."""
    return n * (4.0 * FEATURES + 16 + 8)


def table(rates: Rates, n: int, price: float) -> str:
    """One line per number of cores, in Markdown."""
    used = (rates.once + rates.row * n) / 3600
    return markdown(
        ("cores", "hours", "core hours", "cost", "blocks per core"),
        [
            (
                f"{cores:,}",
                f"{hours(rates, n, cores):.2f}",
                f"{used:.0f}",
                f"{cores * hours(rates, n, cores) * price:.2f}",
                f"{kept(n) / cores / 2**30:.1f} GB",
            )
            for cores in (10, 100, 1000)
        ],
        words=0,
    )


def section(rates: Rates, n: int, price: float) -> str:
    """The table, and what does not depend on the number of cores, in Markdown."""
    step = exact_sum_step(2.0 * n)
    share = rates.once / 3600 / hours(rates, n, 1000)
    return "\n".join(
        (
            f"{n:,} rows at {rates.row * 1e6:.1f} processor microseconds per row and {rates.once:.0f} seconds once; a "
            f"core hour costs {price:g}.\n",
            table(rates, n, price),
            "",
            f"* Sums to the driver, all passes together: {up(n) / 2**20:.0f} MB.",
            f"* Memory of the driver: {rates.peak / 2**30:.2f} GB at any number of rows.",
            f"* Encoded rows of all workers: {kept(n) / 2**30:.0f} GB.",
            f"* Share of the driver's part with 1,000 cores: {share:.0%} of the time.",
            f"* Noise grid: sums have a step of {step:.0e} and at most {2 * n / step:.0e} steps; an integer has "
            f"room for {2.0**BITS:.0e}.",
        )
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the forecast; fill the page's section with that of the default number of rows and price."""
    parser = argparse.ArgumentParser(prog="python -m bench.performance.billion", description=__doc__)
    parser.add_argument("--rows", type=float, default=BILLION)
    parser.add_argument("--price", type=float, default=PRICE, help="of a core hour; the cost is in its currency")
    given = parser.parse_args(arguments)
    found = section(Rates.of(json.loads(SCALE.read_text(encoding="utf-8"))["fits"]), round(given.rows), given.price)
    print(found)
    if (given.rows, given.price) == (BILLION, PRICE):
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), "billion", found), encoding="utf-8")


if __name__ == "__main__":
    main()
