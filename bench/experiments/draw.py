"""How pictures look: readable in grey, error bars, SVG and PNG that are the same for the same data."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Told apart by line, marker and grey level; the colour is an extra.
SERIES: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "linestyle": "-", "marker": "o"},
    {"color": "#1b5e9b", "linestyle": "--", "marker": "s"},
    {"color": "#b8492a", "linestyle": "-.", "marker": "^"},
    {"color": "#5f8f3e", "linestyle": ":", "marker": "D"},
    {"color": "#7b5ea7", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "v"},
    {"color": "#c2185b", "linestyle": (0, (8, 2)), "marker": "P"},
    {"color": "#3f9aa6", "linestyle": (0, (1, 3)), "marker": "X"},
    {"color": "#a8862c", "linestyle": (0, (3, 3)), "marker": "<"},
    {"color": "#6d4c2f", "linestyle": (0, (2, 1)), "marker": "*"},
    {"color": "#8c8c8c", "linestyle": (0, (4, 1, 1, 1)), "marker": "h"},
)
STYLE: Any = {
    "font.size": 8,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.markersize": 4,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "svg.hashsalt": "justitia",  # otherwise identifiers in the file are drawn at random
    "svg.fonttype": "none",
}
NAMES = {
    "bank": "Bank",
    "income": "Income",
    "compas": "Compas",
    "m_bank3": "M-Bank, 3 groups",
    "m_bank5": "M-Bank, 5 groups",
    "census": "Census, sex",
    "census_race": "Census, race",
    "occupation": "Occupation",
    "compas_score": "Compas score",
    "communities": "Communities",
    "hours": "Hours",
    "accuracy_parity": "accuracy parity",
    "demographic_parity": "demographic parity",
    "equalized_odds": "equalized odds",
    "equal_opportunity": "equal opportunity",
    "equal_error": "equal error",
    "epsilon": "privacy budget ε",
    # Methods and engines: result files keep the names under which their rows were recorded.
    "PF-LD printed": "PF-LD as published",
    "PF-LD repaired": "PF-LD repaired",
    "PF-LD moments": "moments engine",
    "PF-LD plug-in": "Justitia",
    "PF-LD printed, rerun": "PF-LD as published, rerun",
    "PF-LD, printed": "PF-LD, published",
    "M, printed": "M, published",
    "A, printed": "A, published",
    "printed": "pf-ld-as-published",
    "gradients": "pf-ld",
    "plugin": "default",
}


def name_of(word: str) -> str:
    """A dataset, notion, method or axis in words."""
    return NAMES.get(word, word)


def panels(rows: int, columns: int, *, width: float = 2.3, height: float = 2.1) -> tuple[Figure, Any]:
    """An empty figure and its (rows, columns) axes."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width * columns + 0.4, height * rows + 0.6), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False)


def styles(labels: Iterable[Hashable]) -> dict[Any, dict[str, Any]]:
    """One line style per label, by position."""
    return {label: SERIES[i % len(SERIES)] for i, label in enumerate(labels)}


def text_of(label: Any) -> str:
    """A label as the legend shows it: 5 instead of 5.0."""
    return f"{label:g}" if isinstance(label, float) else name_of(str(label))


def lines(ax: Axes, table: pd.DataFrame, *, x: str, y: str, by: str, style: Mapping[Any, Mapping[str, Any]]) -> None:
    """One line with error bars (one standard deviation) per value of ``by``."""
    for label, look in style.items():
        part = table[table[by] == label].sort_values(x)
        if len(part):
            ax.errorbar(part[x], part[f"{y}_mean"], part[f"{y}_sd"], label=text_of(label), capsize=2, **look)


def legend(figure: Figure, ax: Axes, *, title: str | None = None) -> None:
    """One legend for all panels, below them."""
    handles, labels = ax.get_legend_handles_labels()
    inches = 0.5 + 0.065 * max(map(len, labels))  # of an entry
    fitting = max(1, int(figure.get_size_inches()[0] / inches))
    figure.legend(handles, labels, title=title, loc="outside lower center", ncols=min(len(labels), fitting))


def log_axis(ax: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis whose ticks are the values that were tried."""
    ax.set_xscale("log")
    shown = np.unique(np.asarray(values, dtype=float))
    near = np.diff(np.log(shown), prepend=-np.inf) < 0.12 * np.log(shown[-1] / shown[0])  # no room for two numbers
    ax.set_xticks(shown, ["" if close else f"{value:g}" for value, close in zip(shown, near, strict=True)], minor=False)
    ax.set_xticks([], minor=True)


def save(figure: Figure, data: pd.DataFrame, folder: Path, name: str) -> None:
    """The figure as SVG and PNG, and what it shows as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{name}.png", dpi=160)
    data.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n", float_format="%.6g")


def grid(
    table: pd.DataFrame, *, columns: str, rows: Sequence[str], x: str, by: str, order: Sequence[Any], legend_title: str
) -> Figure:
    """A column of panels per value of ``columns``, a row per measure, a line per value of ``by``."""
    kinds = list(dict.fromkeys(table[columns]))
    figure, axes = panels(len(rows), len(kinds))
    style = styles(order)
    with mpl.rc_context(STYLE):
        for j, kind in enumerate(kinds):
            part = table[table[columns] == kind]
            for i, measure in enumerate(rows):
                ax = axes[i, j]
                lines(ax, part, x=x, y=measure, by=by, style=style)
                log_axis(ax, part[x].tolist())
                ax.set_xlabel(name_of(x) if i == len(rows) - 1 else "")
                ax.set_ylabel(measure if j == 0 else "")
            axes[0, j].set_title(name_of(str(kind)))
        legend(figure, axes[0, 0], title=legend_title)
    return figure
