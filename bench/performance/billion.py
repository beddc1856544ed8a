"""Forecast of a fit on very many rows, from the rates in results/scale.json: ``python -m bench.performance.billion``.

Processor seconds are a line through the two largest fits of one process that were measured: what a row costs, and what
learning from the sample costs once. The driver's part does not shrink with more cores.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from justitia.postprocessing.memberships import product_bits
from justitia.privacy.noise_grid import exact_sum_step

SCALE = Path("results/scale.json")
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
    def measured(cls) -> Rates:
        """From the two largest fits of one process."""
        fits = [one for one in json.loads(SCALE.read_text())["fits"] if one["workers"] == 1]
        small, large = sorted(fits, key=lambda one: one["rows"])[-2:]
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
    lines = ["| cores | hours | core hours | cost | blocks per core |", "|---:|---:|---:|---:|---:|"]
    for cores in (10, 100, 1000):
        used = (rates.once + rates.row * n) / 3600
        paid = cores * hours(rates, n, cores) * price
        lines.append(
            f"| {cores:,} | {hours(rates, n, cores):.2f} | {used:.0f} | {paid:.2f} | {kept(n) / cores / 2**30:.1f} GB |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table and what does not depend on the number of cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e9)
    parser.add_argument("--price", type=float, default=0.05, help="of a core hour; the cost is in its currency")
    given = parser.parse_args()
    n, rates = round(given.rows), Rates.measured()
    step = exact_sum_step(2.0 * n)
    print(f"{n:,} rows, {rates.row * 1e6:.1f} processor microseconds per row, {rates.once:.0f} seconds once")
    print(table(rates, n, given.price))
    print(f"sums to the driver {up(n) / 2**20:.0f} MB; driver {rates.peak / 2**30:.2f} GB, as at any size")
    print(f"blocks kept by all workers {kept(n) / 2**30:.0f} GB")
    print(
        f"grid step {step:.1e}: a sum has at most {2 * n / step:.1e} steps, an integer room for {2.0**BITS:.1e}; "
        f"{product_bits(n)} bits behind the point of each factor of a product"
    )


if __name__ == "__main__":
    main()
