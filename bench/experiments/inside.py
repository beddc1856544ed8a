"""A look inside one fit of the moments engine: what the memberships believe beside what is true.

The exact numbers are computed here from the labels of a public dataset, for a picture; no part of the library has them.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib as mpl
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.experiments.draw import STYLE, name_of, panels, save
from bench.experiments.experiment import Experiment
from bench.experiments.folds import MEASURES, prepared, with_recipes
from bench.experiments.methods import make
from bench.experiments.runner import Cell
from justitia.metrics.exact import violation
from justitia.privacy.attribute import Attribute
from justitia.training.lagrangian import centred_rows, largest_gap

Array = NDArray[Any]


def cells(*, quick: bool) -> list[Cell]:
    """The first fold of four datasets (quick: Bank alone), demographic parity, defaults."""
    names = ("bank",) if quick else ("income", "bank", "compas", "m_bank3")
    return with_recipes([Cell("inside", name, "demographic_parity", "PF-LD moments", 0) for name in names])


def gaps(q: Array, h: Array) -> Array:
    """(G, d): mean of each column over each group, with these memberships, minus its mean over everybody."""
    weights, wide = q / q.sum(0, dtype=np.float64), h.astype(np.float64)
    found: Array = weights.T @ wide - wide.mean(0)
    return found


def measure_inside(cell: Cell) -> dict[str, Any]:
    """Fit once; note after every round what the memberships say of the model, and the truth."""
    data, train, test = prepared(cell)
    model, start = make(cell, data.groups), time.perf_counter()
    groups = data.sensitive.iloc[train]
    exact = np.stack([(groups == name).to_numpy() for name in data.groups], axis=1)
    rounds: list[list[float]] = []
    functions: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        session = model._open(data.X.iloc[train], data.y.iloc[train], Attribute.from_container(groups))
        run: Any = session.run
        engine, problem = run.engine, session.method.problem
        query = engine.query_after

        def watch(module: Any, scores: Array, k: int) -> None:
            query(module, scores, k)
            believed = engine.gap(scores)
            if believed is not None and k > 0:
                rows = centred_rows(problem.notion.h_exact(scores, problem.y), problem.events)
                truth = (exact.T @ rows.astype(np.float64)) / exact.sum(0)[:, None]
                rounds.append([k, largest_gap(believed), largest_gap(truth), k in engine.plan.check_rounds])
                if len(rounds) == 1:
                    functions.extend(_functions(problem.X, scores, engine._q.numpy(), exact))

        with patch.object(engine, "query_after", watch):
            trained = session.train()
        model._keep(session, trained)
    predicted, truth = model.predict(data.X.iloc[test]), data.y.iloc[test].to_numpy()
    return {
        "accuracy": float(np.mean(predicted == truth)),
        "violation": violation(
            truth, predicted, sensitive_features=data.sensitive.iloc[test], notion=cell.notion, groups=data.groups
        ),
        "epsilon_spent": model.certificate_.epsilon,
        "epsilon_claimed": math.nan,
        "seconds": round(time.perf_counter() - start, 2),
        "rounds": json.dumps([[k, round(b, 5), round(t, 5), bool(c)] for k, b, t, c in rounds]),
        "functions": json.dumps(functions),
    }


def _functions(X: Array, scores: Array, q: Array, exact: Array) -> list[Any]:
    """Gap of the first group, believed and true: of features, and of decisions at other thresholds than the model's."""
    above = np.stack([scores > level for level in np.quantile(scores, np.linspace(0.05, 0.95, 19))], axis=1)
    found = []
    for kind, h in (("feature", X), ("threshold", above)):
        pairs = zip(gaps(q, h)[0].tolist(), gaps(exact, h)[0].tolist(), strict=True)
        found += [[kind, round(believed, 5), round(true, 5)] for believed, true in pairs]
    return found


def publish(results: pd.DataFrame, folder: Path) -> str:
    """Draw belief against truth after the first release, and both along the rounds: Income, if it is there."""
    row = results.iloc[(results["dataset"] != "income").argsort(kind="stable").iloc[0]]
    rounds = pd.DataFrame(json.loads(row["rounds"]), columns=["round", "believed", "true", "check"])
    functions = pd.DataFrame(json.loads(row["functions"]), columns=["kind", "believed", "true"])
    figure, axes = panels(1, 2, width=3.4, height=2.9)
    left, right = axes[0]
    with mpl.rc_context(STYLE):
        limits = [functions[["believed", "true"]].min().min(), functions[["believed", "true"]].max().max()]
        left.plot(limits, limits, color="#999999", linewidth=0.8, label="belief = truth")
        looks = {"feature": ("o", "mean of a feature"), "threshold": ("x", "decisions at 19 thresholds")}
        for kind, (marker, label) in looks.items():
            part = functions[functions["kind"] == kind]
            left.plot(part["true"], part["believed"], marker, color="#000000", markersize=3.5, label=label)
        left.set(xlabel="true gap of the first group", ylabel="gap under the memberships")
        left.set_title("after one noised release")
        left.legend(fontsize=7)
        right.plot(rounds["round"], rounds["true"], color="#1b5e9b", label="true violation")
        right.plot(rounds["round"], rounds["believed"], "--", color="#000000", label="under the memberships")
        for at in rounds["round"][rounds["check"]]:
            right.axvline(at, color="#b8492a", linestyle=":", linewidth=0.8)
        right.set_yscale("log")
        right.set(xlabel="round (dotted: a check is asked for)", ylabel="violation, training rows")
        right.set_title("while the dual runs on them")
        right.legend(fontsize=7)
    save(figure, rounds, folder / "figures", "inside")
    return _errors(results).to_string(index=False)


def _errors(results: pd.DataFrame) -> pd.DataFrame:
    """How far belief after the first release is from the truth, by dataset and kind of function."""
    rows = []
    for row in results.itertuples():
        functions = pd.DataFrame(json.loads(row.functions), columns=["kind", "believed", "true"])
        apart = (functions["believed"] - functions["true"]).abs().groupby(functions["kind"])
        rows += [
            {
                "dataset": row.dataset,
                "functions": f"{kind}s",
                "number": len(part),
                "mean": part.mean(),
                "max": part.max(),
            }
            for kind, part in apart
        ]
    return pd.DataFrame(rows).round(4)


def markdown(results: pd.DataFrame) -> str:
    """The same for the page."""
    lines = ["| dataset | functions | number | error of the gap, mean | largest |", "|---|---|---:|---:|---:|"]
    lines += [
        f"| {name_of(row.dataset)} | {row.functions} | {row.number} | {row.mean:.3f} | {row.max:.3f} |"
        for row in _errors(results).itertuples()
    ]
    return "\n".join(lines)


INSIDE = Experiment(
    "inside",
    cells,
    publish,
    ("inside",),
    work=measure_inside,
    measures=(*MEASURES, "rounds", "functions"),
    table=markdown,
)
