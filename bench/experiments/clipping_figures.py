"""Figures "C_p", "share of clipped gradients" and "C_d": what the clipping bounds do to accuracy and violation."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bench.experiments.draw import STYLE, grid, lines, log_axis, name_of, panels, save, styles
from bench.experiments.experiment import Claim, Experiment
from bench.experiments.folds import FOLDS, MEASURES, fitted, measures, with_recipes
from bench.experiments.runner import Cell
from bench.experiments.summaries import lookup, mean_and_sd, setting
from justitia.networks.row_gradients import h_slope, score_rows
from justitia.notions import FairnessNotion, Reading, get_notion

Array = NDArray[Any]
NOTION = "demographic_parity"
EPSILONS = (0.5, 1.0, 4.0)
PRINTED_EPSILONS = EPSILONS[1:]
#: Setting of each engine that holds C_p, and its values. Constraint gradients of the repaired engine are centred and
#: therefore shorter; 10 and 20 are the values the paper calls best.
BOUNDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "PF-LD repaired": ("clip", (0.05, 0.25, 1.0, 4.0, 20.0, "auto")),
    "PF-LD printed": ("C_p", (0.1, 1.0, 10.0, 20.0, 100.0)),
}
FOLDS_OF = {"bank": FOLDS, "income": 3}
QUICK = list(product((0.05, 1.0, 20.0), (1.0, 4.0), range(2)))
FILES = {"PF-LD repaired": "repaired", "PF-LD printed": "printed"}
DUAL_BOUNDS = (0.1, 1.0, 5.0, 100.0, 1000.0)


# ------------------------------------------------------------------ C_p


def _fits(dataset: str, method: str) -> list[tuple[Any, float, int]]:
    """Bound, epsilon and fold; the printed method, whose fits are the longest, has epsilon 1 and fewer on Income."""
    bounds, epsilons, folds = BOUNDS[method][1], EPSILONS, FOLDS_OF[dataset]
    if method == "PF-LD printed":
        epsilons = (1.0,)
        bounds, folds = (bounds[::2], 2) if dataset == "income" else (bounds, folds)
    return list(product(bounds, epsilons, range(folds)))


def primal_cells(*, quick: bool) -> list[Cell]:
    """Five folds per bound and epsilon on Bank, three on Income; quick: two of three bounds on Bank, repaired only."""
    methods = ("PF-LD repaired",) if quick else tuple(BOUNDS)
    return with_recipes(
        [
            Cell("c_p", dataset, NOTION, method, fold, epsilon=epsilon, settings={BOUNDS[method][0]: bound})
            for dataset in (("bank",) if quick else ("bank", "income"))
            for method in methods
            for bound, epsilon, fold in (QUICK if quick else _fits(dataset, method))
        ]
    )


def measure_clipped(cell: Cell) -> dict[str, Any]:
    """Accuracy and violation, and the share of gradients beyond the bound in each group at the final weights.

    The shares are exact numbers about the attribute, computed here from public gradients and the labels of a public
    dataset, after training and outside of it; nothing of the kind exists in the library.
    """
    data, train, found = fitted(cell)
    bound = cell.settings[BOUNDS[cell.method][0]]
    shares: dict[str, float] = {}
    if bound != "auto":
        model = found["model"]
        X = model.encoder_.transform(data.X.iloc[train])
        y = data.y.iloc[train].to_numpy().astype(X.dtype)
        centred, reading = cell.method == "PF-LD repaired", getattr(model.plan_, "h", "probability")
        norms = gradient_norms(model.module_, X, y, get_notion(cell.notion), centred=centred, reading=reading)
        beyond = norms > float(bound)
        member = data.sensitive.iloc[train].to_numpy()
        shares = {group: float(beyond[member == group].mean()) for group in data.groups}
    return measures(found) | {"clipped": json.dumps(shares)}


def gradient_norms(
    module: Any, X: Array, y: Array, notion: FairnessNotion, *, centred: bool, reading: Reading = "probability"
) -> Array:
    """(n,): public norms of grad h, less its mean over the row's event if ``centred``, as the engines clip them."""
    scores, rows = score_rows(module, torch.from_numpy(X))
    rows = rows.scaled(h_slope(notion.h_read_as(reading), scores, torch.from_numpy(y)).numpy())
    if centred:
        events = notion.events(y)
        shares = events / np.maximum(events.sum(0), 1)
        rows = rows.centred(events, np.stack([rows.weighted_sum(share) for share in shares.T]))
    return rows.norms()


def summarise_primal(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation by engine, dataset, bound and epsilon; shares of clipped gradients by group."""
    labelled = results.assign(bound=[_bound_of(row) for _, row in results.iterrows()])
    shares = pd.DataFrame([json.loads(text) for text in labelled["clipped"]], index=labelled.index)
    shares = shares.add_prefix("clipped: ")
    by = ["method", "dataset", "bound", "epsilon"]
    return mean_and_sd(labelled.join(shares), by, ["accuracy", "violation", *shares.columns])


def _bound_of(row: Any) -> str:
    bound = json.loads(row["settings"])[BOUNDS[row["method"]][0]]
    return bound if isinstance(bound, str) else f"{bound:g}"


def publish_primal(results: pd.DataFrame, folder: Path) -> str:
    """Draw both figures for each engine; return their data."""
    table = summarise_primal(results)
    for method, (_, bounds) in BOUNDS.items():
        part = table[table["method"] == method].dropna(axis="columns", how="all")
        if len(part):
            order = [bound if isinstance(bound, str) else f"{bound:g}" for bound in bounds]
            figure = grid(
                part,
                columns="dataset",
                rows=("accuracy", "violation"),
                x="epsilon",
                by="bound",
                order=order,
                legend_title=f"$C_p$ ({name_of(method)})",
            )
            save(figure, part, folder / "figures", f"c_p_{FILES[method]}")
            _draw_shares(part[part["bound"] != "auto"], folder, method)
    return table.round(3).to_string(index=False)


def _draw_shares(table: pd.DataFrame, folder: Path, method: str) -> None:
    """Accuracy, violation and share of clipped gradients against C_p, one row of panels per dataset."""
    data = table.assign(C_p=table["bound"].astype(float)).sort_values(["dataset", "epsilon", "C_p"])
    data = data[data["epsilon"] == 1.0]
    datasets = list(dict.fromkeys(data["dataset"]))
    if not datasets:
        return
    figure, axes = panels(len(datasets), 3)
    with mpl.rc_context(STYLE):
        for i, dataset in enumerate(datasets):
            part = data[data["dataset"] == dataset].dropna(axis="columns", how="all").assign(all="all rows")
            for j, measure in enumerate(("accuracy", "violation")):
                lines(axes[i, j], part, x="C_p", y=measure, by="all", style=styles(["all rows"]))
                axes[i, j].set_ylabel(measure)
            groups = [name.removesuffix("_mean") for name in part.columns if name.startswith("clipped: ")]
            groups = [name for name in dict.fromkeys(groups) if not name.endswith("_sd")]
            for name, look in styles(groups).items():
                label = name.removeprefix("clipped: ")
                axes[i, 2].errorbar(part["C_p"], part[f"{name}_mean"], part[f"{name}_sd"], label=label, **look)
            axes[i, 2].set_ylabel("share clipped")
            axes[i, 2].legend()
            axes[i, 0].set_title(f"{name_of(str(dataset))}, {name_of(method)}", loc="left")
            for ax in axes[i]:
                log_axis(ax, part["C_p"].tolist())
                ax.set_xlabel("$C_p$" if i == len(datasets) - 1 else "")
    save(figure, data, folder / "figures", f"clipped_{FILES[method]}")


def primal_claims(results: pd.DataFrame) -> list[Claim]:
    """The paper: an intermediate C_p has the best trade-off of accuracy and violation."""
    table = summarise_primal(results)
    fixed = table[(table["bound"] != "auto") & (table["epsilon"] == 1.0)]
    found = []
    for (method, dataset), part in fixed.groupby(["method", "dataset"], sort=False):
        ordered = part.assign(C_p=part["bound"].astype(float)).sort_values("C_p")
        found += _intermediate(ordered, "C_p", f"{name_of(str(method))}, {name_of(str(dataset))}, epsilon 1")
    return found


def _intermediate(ordered: pd.DataFrame, name: str, where: str) -> list[Claim]:
    """Whether accuracy minus violation is largest in between, clearly above the smallest and the largest bound."""
    if len(ordered) < 3:
        return []
    value = (ordered["accuracy_mean"] - ordered["violation_mean"]).to_numpy()
    variance = ((ordered["accuracy_sd"] ** 2 + ordered["violation_sd"] ** 2) / ordered["fits"]).to_numpy()
    best = int(value.argmax())
    between = all(value[best] - value[end] > math.sqrt(variance[best] + variance[end]) for end in (0, -1))
    bounds = ordered[name].tolist()
    numbers = "; ".join(
        f"{bound:g}: {row.accuracy_mean:.3f} / {row.violation_mean:.3f}"
        for bound, row in zip(bounds, ordered.itertuples(), strict=True)
    )
    sentence = f"An intermediate {name} has the best trade-off ({where})."
    clearly = "" if between or best in (0, len(bounds) - 1) else ", not beyond a standard error"
    return [Claim(sentence, between, f"best at {bounds[best]:g}{clearly}; accuracy / violation at {numbers}")]


# ------------------------------------------------------------------ C_d


def dual_cells(*, quick: bool) -> list[Cell]:
    """Five folds per bound and epsilon on Bank, printed engine; the repaired one needs no C_d."""
    return with_recipes(
        [
            Cell("c_d", "bank", NOTION, "PF-LD printed", fold, epsilon=epsilon, settings={"C_d": bound})
            for bound in ((1.0, 5.0, 1000.0) if quick else DUAL_BOUNDS)
            for epsilon in PRINTED_EPSILONS
            for fold in range(2 if quick else FOLDS)
        ]
    )


def summarise_dual(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation by bound and epsilon."""
    labelled = results.assign(C_d=setting(results, "C_d").astype(float))
    return mean_and_sd(labelled, ["dataset", "C_d", "epsilon"], ["accuracy", "violation"])


def publish_dual(results: pd.DataFrame, folder: Path) -> str:
    """Draw the figure; return its data."""
    table = summarise_dual(results)
    order = sorted(set(table["C_d"]))
    figure = grid(
        table,
        columns="dataset",
        rows=("accuracy", "violation"),
        x="epsilon",
        by="C_d",
        order=order,
        legend_title="$C_d$ (PF-LD as published)",
    )
    save(figure, table, folder / "figures", "c_d")
    return table.round(3).to_string(index=False)


def dual_claims(results: pd.DataFrame) -> list[Claim]:
    """The paper: large C_d fluctuates and costs accuracy, an intermediate one is best."""
    table = summarise_dual(results)
    found = _intermediate(
        table[table["epsilon"] == 1.0].sort_values("C_d"), "C_d", "PF-LD as published, Bank, epsilon 1"
    )
    names = ["accuracy_mean", "accuracy_sd", "violation_sd"]
    spread = table.groupby("C_d")[names].mean().reset_index()
    if {5.0, 1000.0} <= set(spread["C_d"]):
        paper, large = ([lookup(spread, name, C_d=bound) or 0.0 for name in names] for bound in (5.0, 1000.0))
        numbers = f"means over epsilon at C_d 5 and 1000: accuracy {paper[0]:.3f} and {large[0]:.3f}, its standard "
        numbers += f"deviation {paper[1]:.3f} and {large[1]:.3f}, that of violation {paper[2]:.3f} and {large[2]:.3f}"
        # A difference of means that three digits do not show is none.
        worse = paper[0] - large[0] >= 0.001 and large[1] > paper[1] and large[2] > paper[2]
        found.append(Claim("A large C_d costs accuracy and makes results fluctuate.", worse, numbers))
    return found


C_P = Experiment(
    "c_p",
    primal_cells,
    publish_primal,
    ("c_p_repaired", "clipped_repaired", "c_p_printed", "clipped_printed"),
    primal_claims,
    work=measure_clipped,
    measures=(*MEASURES, "clipped"),
)
C_D = Experiment("c_d", dual_cells, publish_dual, ("c_d",), dual_claims)
