"""What the tutorials share: where a picture goes, and how it looks (readable in grey, small files)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

#: Told apart by marker and grey level; the colour is an extra.
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#9a9a9a", "marker": "s", "linestyle": "--"},
    {"color": "#1b5e9b", "marker": "o", "linestyle": "-"},
    {"color": "#b8492a", "marker": "^", "linestyle": "-."},
)
STYLE: Any = {
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.markersize": 5,
    "lines.linewidth": 1.4,
}
mpl.rcParams.update(STYLE)


def picture_path(script: str) -> Path:
    """Where the picture of a script goes: ``--picture PATH``, or out/examples under the current folder."""
    parser = argparse.ArgumentParser()
    default = Path("out/examples") / f"{Path(script).stem}.png"
    parser.add_argument("--picture", type=Path, default=default, help="where the PNG is written")
    path: Path = parser.parse_args().picture
    return path


def panels(columns: int, *, width: float = 3.7, height: float = 2.9) -> tuple[Figure, Any]:
    """A figure and its axes, side by side."""
    figure = Figure(figsize=(width * columns, height), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def intervals(ax: Any, places: Any, table: Any, *, label: str, look: int) -> None:
    """Rates with their bounds: a row of ``table`` has rate, lower and upper."""
    rate = table["rate"].to_numpy(dtype=float)
    below, above = rate - table["lower"].to_numpy(dtype=float), table["upper"].to_numpy(dtype=float) - rate
    style = LOOKS[look] | {"linestyle": "none"}
    ax.errorbar(places, rate, [below.clip(0), above.clip(0)], label=label, capsize=3, **style)


def save(figure: Figure, path: Path) -> None:
    """Write the PNG and say where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    print(f"\npicture: {path.name}")
