"""The file beside each result file: with which command, versions and date its rows were made."""

from __future__ import annotations

import datetime as dt
import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

#: Libraries whose version can change a number.
LIBRARIES = (
    *("justitia", "numpy", "pandas", "scikit-learn", "scipy", "torch", "lightgbm"),
    *("fairlearn", "cvxpy", "matplotlib"),
)


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def add_record(results: Path, *, command: str, fitted: int, failed: int, seconds: float, jobs: int) -> None:
    """Append one run to the JSON file beside ``results``; nothing in it tells about the computer."""
    path = results.with_suffix(".json")
    known: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []
    entry = {
        "command": command,
        "date": f"{dt.date.today():%Y-%m-%d}",
        "processes": jobs,
        "cells_fitted": fitted,
        "cells_failed": failed,
        "wall_seconds": round(seconds, 1),
        "versions": versions(),
    }
    text = json.dumps({"results": results.name, "runs": [*known, entry]}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


def provenance(results: Path) -> str:
    """One sentence about the newest run, for tables and pages; empty if there is no record."""
    path = results.with_suffix(".json")
    if not path.exists():
        return ""
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    last, total = runs[-1], sum(run["wall_seconds"] for run in runs)
    named = ", ".join(f"{name} {last['versions'][name]}" for name in ("justitia", "torch", "scikit-learn"))
    jobs = sorted({run["processes"] for run in runs})
    workers = f"{' or '.join(map(str, jobs))} process{'es' if jobs[-1] > 1 else ''}"
    return f"`{last['command']}`, {last['date']}, {total / 60:.0f} minutes on {workers}, {named}."
