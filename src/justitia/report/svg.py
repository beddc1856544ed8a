"""SVG elements of charts: scales, ticks, axes, marks and labels, with all text escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

#: Width of every chart in its own units, and the size of its letters: legible at the width of a phone.
WIDTH, LETTER = 460.0, 14.0
#: Mean width of a letter in units of its size, a little above what system fonts have.
LETTER_WIDTH = 0.6
#: A series is recognised by its shape and dashes first; colour only repeats it.
SHAPES = ("circle", "square", "triangle", "diamond", "cross")
DASHES = ("none", "7 4", "2 3", "9 3 2 3")
_PATHS = {
    "circle": "M0-5a5 5 0 1 0 0 10a5 5 0 1 0 0-10z",
    "square": "M-4.5-4.5h9v9h-9z",
    "triangle": "M0-6L5.5 4.5H-5.5z",
    "diamond": "M0-7L6 0L0 7L-6 0z",
    "cross": "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0z",
}


def element(name: str, *children: Any, **attributes: Any) -> Markup:
    """One element; text and attribute values are escaped, and ``_`` in an attribute's name stands for ``-``."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, Markup("").join(escape(one) for one in children))


def _value(value: Any) -> Any:
    return f"{round(value, 2):g}" if isinstance(value, float) else value


@dataclass(frozen=True)
class Scale:
    """A straight map from numbers to places on the page."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Place of a number."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round numbers within the scale."""
        return ticks(self.low, self.high, count)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` multiples of 1, 2 or 5 times a power of ten between ``low`` and ``high``."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def span(values: Sequence[float], *, floor: float | None = None, ceiling: float | None = None) -> tuple[float, float]:
    """Least and largest of ``values`` with a margin, never empty, kept within ``floor`` and ``ceiling``."""
    low, high = min(values), max(values)
    margin = max((high - low) * 0.08, 1e-3 * max(1.0, abs(low), abs(high)))
    low, high = low - margin, high + margin
    return (low if floor is None else max(floor, low)), (high if ceiling is None else min(ceiling, high))


def tick_text(value: float) -> str:
    """A tick's number without float dust."""
    return f"{round(value, 10) + 0.0:.10g}".replace("-", "\N{MINUS SIGN}")


def shortened(text: str, width: float) -> str:
    """``text``, or as much of it as fits into ``width``."""
    most = max(2, int(width / (LETTER * LETTER_WIDTH)))
    return text if len(text) <= most else text[: most - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def label(x: float, y: float, text: str, *, anchor: str = "start", class_: str = "label") -> Markup:
    """Text at a place; its middle is at the height y."""
    return element("text", text, x=x, y=y + LETTER * 0.35, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, *, class_: str) -> Markup:
    """A straight stroke."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def percent_text(value: float) -> str:
    """A tick of a share, in percent."""
    return f"{tick_text(100 * value)}%"


def points_text(value: float) -> str:
    """A tick of a gap, in percentage points."""
    return tick_text(100 * value)


def bottom_axis(
    scale: Scale,
    y: float,
    top: float,
    title: str = "",
    *,
    whole: bool = False,
    written: Callable[[float], str] = tick_text,
) -> Markup:
    """Ticks, of what is counted at ``whole`` numbers alone, with their lines up to ``top``, and a title below."""
    parts = []
    for tick in (one for one in scale.ticks() if not whole or abs(one - round(one)) < 1e-9):
        parts += [line(scale(tick), top, scale(tick), y, class_="grid")]
        parts += [label(scale(tick), y + 14, written(tick), anchor="middle", class_="tick")]
    if title:
        parts += [label((scale.start + scale.end) / 2, y + 36, title, anchor="middle", class_="axis-title")]
    return element("g", line(scale.start, y, scale.end, y, class_="axis"), *parts)


def left_axis(
    scale: Scale, x: float, right: float, title: str, *, written: Callable[[float], str] = tick_text
) -> Markup:
    """Ticks with their lines to ``right``, numbers at the left, a title above."""
    parts = []
    for tick in scale.ticks():
        parts += [line(x, scale(tick), right, scale(tick), class_="grid")]
        parts += [label(x - 7, scale(tick), written(tick), anchor="end", class_="tick")]
    return element("g", *parts, label(0, 10, title, class_="axis-title") if title else "")


def polyline(points: Sequence[tuple[float, float]], series: int) -> Markup:
    """A line through points, dashed as its series is."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = DASHES[series % len(DASHES)]
    return element("polyline", points=path, class_=f"line {tone(series)}", stroke_dasharray=dash)


def tone(series: int) -> str:
    """Class of a series: accent and ink in turn."""
    return "accent" if series % 2 == 0 else "ink"


def sign(x: float, y: float, series: int) -> Markup:
    """The shape of a series, for a legend."""
    shape = _PATHS[SHAPES[series % len(SHAPES)]]
    return element("path", d=shape, class_=f"shape {tone(series)}", transform=f"translate({x:.1f} {y:.1f})")


@dataclass(frozen=True)
class Mark:
    """One point that can be hovered, tapped or reached by keyboard, and says ``text`` then."""

    x: float
    y: float
    text: str
    series: int = 0
    index: int = 0
    shape: str | None = None
    class_: str = ""
    key: str | None = None

    def draw(self, *, first: bool) -> Markup:
        """The shape within a larger invisible one that is easy to hit; the first mark of a chart is a tab stop."""
        return element(
            "g",
            *self.shapes(),
            class_=f"mark {self.class_}".strip(),
            role="img",
            tabindex="0" if first else "-1",
            transform=f"translate({self.x:.1f} {self.y:.1f})",
            aria_label=self.text,
            data_series=self.series,
            data_index=self.index,
            data_key=self.key,
        )

    def shapes(self) -> tuple[Markup, ...]:
        """What is drawn at the place of the mark."""
        shape = self.shape or SHAPES[self.series % len(SHAPES)]
        return (
            element("circle", r=13, class_="hit"),
            element("circle", r=10, class_="ring"),
            element("path", d=_PATHS[shape], class_=f"shape {tone(self.series)}"),
        )


@dataclass(frozen=True)
class Chart:
    """A drawing for the eye with a title and a description, and the marks above it."""

    name: str
    title: str
    description: str
    height: float
    drawing: tuple[Markup, ...]
    marks: tuple[Mark, ...]
    width: float = WIDTH
    class_: str = ""

    def __html__(self) -> str:
        box = f"0 0 {self.width:g} {self.height:g}"
        title = element("title", self.title, id=f"{self.name}-title")
        description = element("desc", self.description, id=f"{self.name}-desc")
        drawing = element(
            "svg",
            *(title, description, *self.drawing),
            class_="drawing",
            viewBox=box,
            role="img",
            aria_labelledby=f"{self.name}-title {self.name}-desc",
        )
        marks = element(
            "svg",
            *(mark.draw(first=place == 0) for place, mark in enumerate(self.marks)),
            class_="marks",
            viewBox=box,
            role="group",
            aria_label=f"{self.title}: {len(self.marks)} points, arrow keys move between them",
        )
        return element("div", drawing, marks if self.marks else "", class_=f"chart {self.class_}".strip(), id=self.name)


def separate(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved apart to at least ``gap``, in their order, within ``low`` and ``high`` where there is room."""
    order = sorted(range(len(places)), key=lambda k: places[k])
    moved = [0.0] * len(places)
    last = -math.inf
    for k in order:
        last = moved[k] = max(places[k], last + gap, low)
    overflow = high
    for k in reversed(order):
        moved[k] = min(moved[k], overflow)
        overflow = moved[k] - gap
    return moved
