"""Plots with matplotlib in scikit-learn's manner: rates, impact ratios, a trade-off and a price list, with bounds.

matplotlib is optional; a display imports it when it draws. Everything that is drawn is noised or public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from justitia._validate import check_choice
from justitia.metrics.measure import measure
from justitia.privacy.frames import protects_attribute

if TYPE_CHECKING:
    from justitia.metrics.impact import Impact
    from justitia.metrics.measurement import Measurement

#: Impact ratio below which US agencies regard a difference as adverse impact.
FOUR_FIFTHS = 0.8


def axes_or_new(ax: Any, *, rows: int | None = None) -> Any:
    """The axes that were given, or new ones, as high as this number of ``rows`` needs.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt  # noqa: PLC0415 - optional
    except ImportError:
        raise ImportError("expected matplotlib for a plot, got none; pip install matplotlib.") from None
    return plt.subplots(figsize=None if rows is None else (6.4, 1.4 + 0.4 * rows), layout="constrained")[1]


@dataclass(eq=False)
class MeasurementDisplay:
    """Rates of each group with their bounds; of a measurement with decisions before, both.

    Parameters
    ----------
    measurement : Measurement
    rate : str, optional
        By default the first one.

    Attributes
    ----------
    ax_, figure_
        Axes and figure, once :meth:`plot` has drawn.
    """

    measurement: Measurement
    rate: str | None = None
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    @protects_attribute
    def from_estimator(cls, model: Any, X: Any, y: Any, *, ax: Any = None, **asked: Any) -> Self:
        """Measure the decisions of a fitted model and draw them.

        Parameters
        ----------
        asked
            Arguments of :func:`justitia.measure`: the attribute, ``groups``, ``epsilon`` and so on; the budget is
            spent.
        """
        return cls.from_predictions(y, model.predict(X), ax=ax, **asked)

    @classmethod
    @protects_attribute
    def from_predictions(cls, y_true: Any, y_pred: Any, *, ax: Any = None, **asked: Any) -> Self:
        """Measure decisions and draw them; ``asked`` are arguments of :func:`justitia.measure`."""
        return cls(measure(y_true, y_pred, **asked)).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        names = self.measurement.rate_names
        rate = names[0] if self.rate is None else check_choice("rate", self.rate, names)
        lines = [("after", self.measurement)]
        if self.measurement.before is not None:
            lines.insert(0, ("before", self.measurement.before))
        ax = axes_or_new(ax, rows=len(lines) * len(self.measurement.groups))
        for k, (name, found) in enumerate(lines):
            label = name if len(lines) > 1 else rate
            _draw_intervals(
                ax, pd.DataFrame(found.table.loc[rate]), shift=0.16 * (k - (len(lines) - 1) / 2), label=label
            )
        ax.axvline(float(self.measurement.overall[rate]), linestyle="--", color="0.5", label="all rows")
        ax.set(xlabel=f"{rate.replace('_', ' ')}, bounds at {self.measurement.confidence:g}", ylabel="")
        _in_percent(ax.xaxis, shares=self.measurement.ranges is None)
        _name_groups(ax, self.measurement.groups)
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(eq=False)
class ImpactDisplay:
    """Impact ratio of each group with its bounds, and the line of four fifths."""

    impact: Impact
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        ax = axes_or_new(ax, rows=len(self.impact.groups))
        table = self.impact.table.rename(columns={"rate": "of_group", "impact_ratio": "rate"})
        finite = table["upper"].where(np.isfinite(table["upper"]), table["rate"])
        _draw_intervals(ax, table.assign(upper=finite), shift=0.0, label="impact ratio")
        ax.axvline(FOUR_FIFTHS, color="0.3", label="four fifths")
        ax.set_xlabel(f"impact ratio to {self.impact.ratio_to}, bounds at {self.impact.confidence:g}", parse_math=False)
        _name_groups(ax, self.impact.groups)
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(eq=False)
class TradeoffDisplay:
    """Accuracy, or R2, against the noised gap, a point for each tolerance, with two standard errors."""

    table: pd.DataFrame
    standard_error: float
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        ax = axes_or_new(ax)
        name = "accuracy" if "accuracy" in self.table else "r2"
        gaps, quality = self.table["noisy_violation"].to_numpy(), self.table[name].to_numpy()
        error = 2 * self.standard_error if np.isfinite(self.standard_error) else None
        ax.errorbar(gaps, quality, xerr=error, fmt="o-", capsize=3)
        for x, y, tolerance in zip(gaps, quality, self.table["tolerance"], strict=True):
            text = "by the noise" if pd.isna(tolerance) else f"{tolerance:g}"
            ax.annotate(text, (x, y), textcoords="offset points", xytext=(4, 6))
        ax.set(xlabel="noised gap between two groups, two standard errors", ylabel=name)
        _in_percent(ax.yaxis, shares=name == "accuracy")
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(eq=False)
class PriceDisplay:
    """Price list of a fitted model: accuracy, or R2, against the gap, with two standard errors.

    Parameters
    ----------
    table : DataFrame
        ``model.price_``.
    in_points : bool
        Whether gaps are shares; False of differences of means or errors.

    Attributes
    ----------
    ax_, figure_
        Axes and figure, once :meth:`plot` has drawn.
    """

    table: pd.DataFrame
    in_points: bool = True
    ax_: Any = field(default=None, init=False, repr=False)
    figure_: Any = field(default=None, init=False, repr=False)

    @classmethod
    def from_estimator(cls, model: Any) -> Self:
        """The price list that a fit left, without further budget.

        Raises
        ------
        ValueError
            If the model has none, or has no privacy: its gaps would be exact.
        """
        table = getattr(model, "price_", None)
        if table is None:
            raise ValueError("expected a model with price_, got none; fit one with engine 'post-processing'.")
        if not math.isfinite(model.certificate_.epsilon):
            raise ValueError("expected a model with a finite epsilon, got none; its gaps would be exact.")
        return cls(table, model.notion not in ("mean_parity", "equal_error"))

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
        ax = axes_or_new(ax)
        name, unit = ("accuracy" if "accuracy" in self.table else "r2"), (100.0 if self.in_points else 1.0)
        ordered = self.table.sort_values("violation")
        gaps, errors = (unit * ordered[one].to_numpy(dtype=float) for one in ("violation", "violation_stderr"))
        ax.errorbar(gaps, ordered[name], xerr=2 * errors, fmt="o-", capsize=3, label="each tolerance")
        for words, mark, rows in (
            ("deployed", "D", self.table["deployed"]),
            ("uncorrected", "s", ~self.table["corrected"] & ~self.table["deployed"]),
        ):
            kept = self.table[rows]
            ax.plot(unit * kept["violation"], kept[name], mark, markersize=9, zorder=3, label=words)
        ax.set(xlabel=f"largest gap{', in points' if self.in_points else ''}, two standard errors", ylabel=name)
        _in_percent(ax.yaxis, shares=name == "accuracy")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _repr_html_(self) -> str:
        """For notebooks: the chart of the report, and the table."""
        form: str = import_module("justitia.report.notebook").prices_form(self.table, in_points=self.in_points)
        return form


def _draw_intervals(ax: Any, table: pd.DataFrame, *, shift: float, label: str) -> None:
    """Points with bounds, one line per group; groups without enough evidence have none."""
    known = table["rate"].notna().to_numpy()
    values = table["rate"].to_numpy(dtype=float)[known]
    low, high = (table[name].to_numpy(dtype=float)[known] for name in ("lower", "upper"))
    places = np.flatnonzero(known) + shift
    reach = np.stack([np.maximum(values - low, 0.0), np.maximum(high - values, 0.0)])
    ax.errorbar(values, places, xerr=reach, fmt="o", capsize=3, label=label)


def _in_percent(axis: Any, *, shares: bool) -> None:
    """Write the shares of an axis in percent; numbers of another kind stay as they are."""
    if shares:
        from matplotlib.ticker import PercentFormatter  # noqa: PLC0415 - optional

        axis.set_major_formatter(PercentFormatter(1.0))


def _name_groups(ax: Any, groups: tuple[str, ...]) -> None:
    ax.set_yticks(range(len(groups)), groups, parse_math=False)  # "$10k to $20k" is no formula
    ax.set_ylim(len(groups) - 0.5, -0.5)
