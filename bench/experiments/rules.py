"""Evidence for the defaults of two engines: each setting changed alone, on inner splits of training rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bench.experiments.draw import name_of
from bench.experiments.experiment import Experiment
from bench.experiments.folds import with_recipes
from bench.experiments.runner import Cell
from bench.experiments.summaries import mean_and_sd

#: Where it is tried, and on how many inner folds: large and small cells, every notion.
PLACES = (
    ("bank", "demographic_parity", 2),
    ("bank", "equalized_odds", 4),
    ("m_bank3", "accuracy_parity", 4),
    ("compas", "demographic_parity", 4),
    ("compas", "equalized_odds", 3),
    ("income", "equalized_odds", 1),
)
Candidates = tuple[dict[str, Any], ...]
#: One change each; the first is the default.
MOMENTS: Candidates = (
    {},
    *({"penalty": value} for value in (0.0, 1.0, 2.0)),
    *({"dead_zone": value} for value in (0.0, 1.0, 2.0, 4.0)),
    *({"ridge": value} for value in (0.01, 1.0)),
    *({"share_moments": value} for value in (0.25, 0.75)),
    *({"checks": value} for value in (0, 8)),
    *({"rounds": value} for value in (100, 400)),
    *({"module": value} for value in ([8, 6], [16, 12], [40, 30])),
    {"dual_step": 0.2, "dual_decay": 0.0},
    *({"damping": value} for value in (0.0, 3.0)),
    {"candidates": 0},
    {"tolerance": 0.0},
    {"tolerance": 0.0, "damping": 0.0, "candidates": 0},
    {"tolerance": 0.0, "penalty": 0.125},  # as large as the default's
)
PLUGIN: Candidates = (
    {},
    *({"dead_zone": value} for value in (0.0, 0.5, 2.0)),
    {"least": 0.0},
    *({"trust": value} for value in (0.02, 0.05, 1.0)),
    *({"ridge": value} for value in (0.01, 0.2, 1.0)),
    *({"share_moments": value} for value in (0.25, 0.75)),
    *({"checks": value} for value in (0, 2, 8)),
    {"tolerance": 0.0},
)
#: Shuffle that makes the inner folds.
SEED = 7


@dataclass(frozen=True)
class Study:
    """The candidates of one engine.

    Parameters
    ----------
    name, method : str
        Of the experiment, and in :data:`bench.experiments.methods.METHODS`.
    candidates : tuple of dict
    """

    name: str
    method: str
    candidates: Candidates

    def cells(self, *, quick: bool) -> list[Cell]:
        """Every candidate everywhere; quick: two of them on two inner folds of Bank."""
        return with_recipes(
            [
                Cell(self.name, dataset, notion, self.method, fold, SEED, 1.0, "inner", candidate)
                for dataset, notion, folds in (PLACES[:1] if quick else PLACES)
                for candidate in (self.candidates[:2] if quick else self.candidates)
                for fold in range(2 if quick else folds)
            ]
        )

    def summarise(self, results: pd.DataFrame) -> pd.DataFrame:
        """Mean and standard deviation over the inner folds, in the order of the candidates; others are left out."""
        order = [json.dumps(candidate, sort_keys=True) for candidate in self.candidates]
        listed = results[results["settings"].isin(order)]
        table = mean_and_sd(listed, ["dataset", "notion", "settings"], ["accuracy", "violation"])
        return table.iloc[table["settings"].map(order.index).argsort(kind="stable")].reset_index(drop=True)

    def markdown(self, results: pd.DataFrame) -> str:
        """A row per candidate, a column per place: accuracy / violation."""
        table = self.summarise(results)
        heads = [f"{name_of(dataset)}, {name_of(notion)}" for dataset, notion, _ in PLACES]
        lines = [f"| changed | {' | '.join(heads)} |", "|---|" + "---:|" * len(PLACES)]
        for settings in dict.fromkeys(table["settings"]):
            same = table[table["settings"] == settings]
            entries = []
            for dataset, notion, _ in PLACES:
                part = same[(same["dataset"] == dataset) & (same["notion"] == notion)]
                entries += [f"{row.accuracy_mean:.3f} / {row.violation_mean:.3f}" for row in part.itertuples()] or ["-"]
            lines.append(f"| {described(settings)} | {' | '.join(entries)} |")
        spread = table.groupby("dataset")[["accuracy_sd", "violation_sd"]].mean()
        lines += ["", f"Mean standard deviation over inner folds: {_spreads(spread)}."]
        return "\n".join(lines)

    def publish(self, results: pd.DataFrame, folder: Path) -> str:
        """Write the table as Markdown; return the data for the terminal."""
        (folder / f"{self.name}.md").write_text(self.markdown(results) + "\n", encoding="utf-8")
        return self.summarise(results).round(3).to_string(index=False)

    def experiment(self) -> Experiment:
        """As a command."""
        return Experiment(self.name, self.cells, self.publish, table=self.markdown)


def described(settings: str) -> str:
    """A candidate in words."""
    changed = json.loads(settings)
    return ", ".join(f"{name} {value}" for name, value in changed.items()) or "the default"


def _spreads(spread: pd.DataFrame) -> str:
    return "; ".join(
        f"{name_of(str(row.Index))} {row.accuracy_sd:.3f} / {row.violation_sd:.3f}" for row in spread.itertuples()
    )


STUDY = Study("rules", "PF-LD moments", MOMENTS)
RULES = STUDY.experiment()
PLUGIN_RULES = Study("plugin_rules", "PF-LD plug-in", PLUGIN).experiment()
