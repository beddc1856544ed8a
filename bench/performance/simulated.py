"""A fit on rows that are made in the passes and stored nowhere: ``python -m bench.performance.simulated --rows 20``.

It shows that nothing in a fit grows with the rows but time: the data frame has as many partitions as it needs, each
made from its number by a public generator, again in every pass. The base model is a column, so that the time is that of
the passes and not of trees. The attribute is made with the rows and is read where they are, as on an engine.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from justitia import LagrangianDualClassifier
from justitia.rows.frames import Frame, Kept, KeptBlock, Outcome, Part, Work, answered

MILLION = 1_000_000
PARTITION = 131_072
RESULTS = Path("results/simulated.json")
GROUPS = ("a", "b")


def made_part(k: int, rows: int) -> Part:
    """The rows of partition k: a score that leans towards one group, another feature, the label and the attribute."""
    rng = np.random.default_rng([5, k])
    group = rng.random(rows) < 0.3
    x = (rng.standard_normal(rows) + 0.8 * group).astype(np.float32)
    p = 1 / (1 + np.exp(-x.astype(np.float64)))
    y = (rng.random(rows) < p).astype(np.int8)
    other = (rng.standard_normal(rows) + 1.5 * group).astype(np.float32)
    public = pa.table({"p": p, "x": x, "other": other, "y": y})
    return Part(public, pa.table({"group": pa.DictionaryArray.from_arrays(group.astype(np.int8), list(GROUPS))}))


class SimulatedFrame(Frame):
    """A data frame that is made anew whenever it is read."""

    engine = "the simulation"
    names = ("p", "x", "other", "y", "group")

    def __init__(self, rows: int) -> None:
        self._rows = [min(PARTITION, rows - start) for start in range(0, rows, PARTITION)]
        self._public: list[str] = []

    def select(self, public: Sequence[str], private: Sequence[str]) -> None:  # noqa: ARG002 - one column is private
        """Use these columns from now on."""
        self._public = list(public)

    def parts(self, k: int) -> Iterator[Part]:
        """The rows of a partition."""
        made = made_part(k, self._rows[k])
        yield Part(made.public.select(self._public), made.private)

    def each(self, task: Callable[[int, Iterable[Part]], Any]) -> list[Outcome]:
        """What the task returns for every partition."""
        return [answered(task, k, self.parts(k)) for k in range(len(self._rows))]

    def keep(self, task: Callable[[int, Iterable[Part]], Iterator[KeptBlock]]) -> Kept:
        """Nothing is kept: blocks are made again."""
        return MadeAgain(self, task, len(self._rows))

    def with_columns(self, work: Work, features: list[str], like: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """Predictions have nowhere to go."""
        raise ValueError("expected a data frame of an engine, got a simulated one; it is for fits.")


class MadeAgain(Kept):
    """Blocks that are made again in every pass."""

    def __init__(self, frame: SimulatedFrame, make: Any, partitions: int) -> None:
        self._frame, self._make, self._partitions = frame, make, partitions

    def each(self, task: Callable[[Iterable[KeptBlock]], Any]) -> list[Outcome]:
        """What the task returns for every partition."""
        return [answered(task, self._make(k, self._frame.parts(k))) for k in range(self._partitions)]


def fit(rows: int) -> dict[str, Any]:
    """Seconds and peak memory of a fit, and the largest gap by the noised answers of the first and last check."""
    warnings.simplefilter("ignore")
    model = LagrangianDualClassifier(epsilon=1.0, groups=GROUPS, tolerance=0.01, base="p", random_state=0)
    begun, used = time.perf_counter(), time.process_time()
    model.fit(SimulatedFrame(rows), "y", sensitive_features="group")
    gaps = model.history_.filter(like="noisy_gap").abs().max(axis=1).dropna()
    processor = time.process_time() - used
    return {
        "rows": rows,
        "seconds": round(time.perf_counter() - begun, 1),
        "processor_seconds": round(processor, 1),
        "microseconds_per_row": round(processor / rows * 1e6, 2),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "releases": len(model.ledger_.releases),
        "largest_noisy_gap": [round(float(gaps.iloc[0]), 4), round(float(gaps.iloc[-1]), 4)],
    }


def main() -> None:
    """Fit, print and keep the numbers beside those of other sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[20.0], help="millions of rows")
    for millions in parser.parse_args().rows:
        found = fit(round(millions * MILLION))
        print(json.dumps(found), flush=True)
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"fits": []}
        others = [one for one in kept["fits"] if one["rows"] != found["rows"]]
        kept["fits"] = sorted([*others, found], key=lambda one: one["rows"])
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
