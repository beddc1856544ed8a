"""``python -m bench.pictures``: the pictures of docs/how_it_works.md, as SVG in docs/pictures.

The data are synthetic and the noise is seeded, so the files are the same whenever they are made.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from bench.experiments.draw import STYLE, panels
from justitia import LagrangianDualClassifier
from justitia.datasets import make_synthetic
from justitia.learners.base import Inputs

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
PUBLIC, PRIVATE, RELEASED = "#e6eef7", "#f6dcd3", "#e5f0db"
BLUE, RED, GREY = "#1b5e9b", "#b8492a", "#8c8c8c"
#: Box, its column, its row, and its colour.
BOXES: dict[str, tuple[str, float, float, str]] = {
    "data": ("features X, labels y", 0.0, 1.0, PUBLIC),
    "attribute": ("sensitive attribute A", 0.0, 0.0, PRIVATE),
    "base": ("base model\nη(x) = p(y = 1 | x)", 1.0, 1.0, PUBLIC),
    "sums": ("noisy sums of public\nrows over each group", 1.0, 0.0, RELEASED),
    "memberships": ("memberships\nq(a | x, y)", 2.0, 0.0, RELEASED),
    "dual": ("dual solved:\nmultipliers λ, decisions", 2.0, 1.0, RELEASED),
    "checks": ("noisy sums of the\ndecisions over each group", 3.0, 0.0, RELEASED),
    "rule": ("deployed rule:\nη(x) and a correction t(x)", 3.0, 1.0, RELEASED),
}
WIDTH, HEIGHT = 0.84, 0.46


def overview() -> Figure:
    """From data to the deployed rule: which steps read the attribute, and what is released."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.4, 2.5))
        ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        ax.set_axis_off()
        ax.set_xlim(-0.5, 3.5)
        ax.set_ylim(-0.62, 1.4)
        for text, x, y, colour in BOXES.values():
            corner = (x - WIDTH / 2, y - HEIGHT / 2)
            style = "round,pad=0.01,rounding_size=0.05"
            ax.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle=style, facecolor=colour, edgecolor="#555555"))
            ax.text(x, y, text, ha="center", va="center", fontsize=7.5)
        for start, end in (("data", "base"), ("base", "dual"), ("dual", "rule")):
            _arrow(ax, _side(start, 1), _side(end, -1))
        for start, end in (("attribute", "sums"), ("sums", "memberships")):
            _arrow(ax, _side(start, 1), _side(end, -1), colour=RED if start == "attribute" else "#333333")
        _arrow(ax, (1.0, 1.0 - HEIGHT / 2), (1.0, HEIGHT / 2))
        _arrow(ax, (2.0, HEIGHT / 2), (2.0, 1.0 - HEIGHT / 2))
        _arrow(ax, (2.3, 1.0 - HEIGHT / 2), (2.85, HEIGHT / 2))
        _arrow(ax, (2.75, HEIGHT / 2), (2.2, 1.0 - HEIGHT / 2))
        _arrow(ax, (0.2, -HEIGHT / 2), (2.85, -HEIGHT / 2), colour=RED, bend=0.10)
        ax.text(2.72, 0.53, "4 times", fontsize=7, color="#333333", ha="left")
        for i, (colour, text) in enumerate(
            (
                (PUBLIC, "public"),
                (PRIVATE, "private: read through noise only"),
                (RELEASED, "noisy, or computed from public and noisy values"),
            )
        ):
            ax.add_patch(
                FancyBboxPatch(((-0.4, 0.2, 1.55)[i], -0.59), 0.06, 0.06, boxstyle="round,pad=0.01", facecolor=colour)
            )
            ax.text((-0.4, 0.2, 1.55)[i] + 0.1, -0.56, text, fontsize=7, va="center")
    return figure


def _side(name: str, side: int) -> tuple[float, float]:
    _, x, y, _ = BOXES[name]
    return x + side * WIDTH / 2, y


def _arrow(
    ax: Any, start: tuple[float, float], end: tuple[float, float], *, colour: str = "#333333", bend: float = 0.0
) -> None:
    how = {"arrowstyle": "-|>", "mutation_scale": 8, "color": colour, "linewidth": 1.0}
    ax.add_patch(FancyArrowPatch(start, end, shrinkA=2, shrinkB=2, connectionstyle=f"arc3,rad={bend}", **how))


def mechanism() -> Figure:
    """Thresholds by row, the dual of two groups, and what a tolerance costs, for one fit on synthetic rows."""
    data = make_synthetic(4000, random_state=0)
    model: Any = LagrangianDualClassifier(
        "demographic_parity", epsilon=1.0, groups=data.groups, tolerance=0.02, random_state=0, noise_seed=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(data.X, data.y, sensitive_features=data.sensitive)
    figure, axes = panels(1, 3, width=2.5, height=2.2)
    with mpl.rc_context(STYLE):
        _thresholds(axes[0, 0], model, data)
        _dual(axes[0, 1], data)
        _price(axes[0, 2], model)
    return figure


def _thresholds(ax: Any, model: Any, data: Any) -> None:
    """Each row's own threshold, s + t(x) / 2, beside its probability."""
    rule, rows = model.rule_, data.X.iloc[:250]
    inputs = Inputs(rows, model.encoder_.transform(rows))
    eta = rule.calibration(rule.base.predict(inputs))
    threshold = rule.threshold + rule.correction(inputs.numbers, eta) / 2
    changed = (eta > threshold) != (eta > rule.threshold)
    for kind, colour, label in ((~changed, GREY, "decision as before"), (changed, RED, "decision changed")):
        ax.scatter(eta[kind], threshold[kind], s=4, color=colour, label=label, linewidths=0)
    ax.plot([0, 1], [0, 1], color="#000000", linewidth=0.8)
    ax.set_ylim(0, 1.3)
    ax.set_xlabel("η(x), probability of the base model")
    ax.set_ylabel("threshold of the row, s + t(x) / 2")
    ax.legend(fontsize=6, loc="upper left", markerscale=2)


def _dual(ax: Any, data: Any) -> None:
    """The objective in the one free multiplier of two groups, and the gap of the decisions that belong to it."""
    share = float((data.sensitive == data.groups[0]).mean())
    random = np.random.default_rng(0)
    member = random.beta(2 * share, 2 * (1 - share), 20_000)
    eta = np.clip(0.5 + 0.35 * (member - share) + 0.25 * random.normal(size=len(member)), 0.01, 0.99)
    gain = 2 * (eta - 0.5)
    slope = member / member.mean() - (1 - member) / (1 - member.mean())
    lam, tolerance = np.linspace(-0.1, 0.5, 121), 0.02
    objective = [np.maximum(gain - one * slope, 0).mean() + tolerance * abs(one) for one in lam]
    gap = [abs((slope * (gain > one * slope)).mean()) for one in lam]
    best = int(np.argmin(objective))
    ax.plot(lam, objective, color=BLUE, label="dual objective")
    ax.plot(lam, gap, color=RED, linestyle="--", label="gap of the decisions")
    ax.axhline(tolerance, color=GREY, linewidth=0.8, linestyle=":")
    ax.axvline(lam[best], color=GREY, linewidth=0.8, linestyle=":")
    ax.set_xlabel("multiplier λ of the first group")
    ax.set_ylim(0, None)
    ax.legend(fontsize=6, loc="upper right")


def _price(ax: Any, model: Any) -> None:
    """Accuracy against violation along the tolerance, from one fit."""
    table = model.price_
    base, curve = table[table["tolerance"].isna()], table[table["tolerance"].notna()]
    used = table[table["deployed"]]
    ax.errorbar(curve["violation"], curve["accuracy"], xerr=curve["violation_stderr"], color=BLUE, elinewidth=0.4)
    ax.plot(base["violation"], base["accuracy"], "s", color=GREY, label="base model")
    ax.plot(used["violation"], used["accuracy"], "o", color=RED, label="deployed", zorder=5)
    ax.set_xlabel("estimated violation")
    ax.set_ylabel("accuracy, out of fold")
    ax.legend(fontsize=6, loc="lower right")


def main() -> None:
    """Write both pictures."""
    for name, figure in (("how_it_works", overview()), ("how_it_works_rule", mechanism())):
        with mpl.rc_context(STYLE):
            figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
