"""What the options of a command ask of a model: notions, tolerances, ratio, quota, strata, costs, range of numbers.

Every option that does not fit the kind of target is refused in one sentence, before any budget is spent.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from justitia.cli.errors import Refusal, no_such, shown_path
from justitia.engines import POST_PROCESSING
from justitia.metrics.means import NUMBER_NOTIONS
from justitia.tasks import Task

WITHIN_STRATA = "conditional_demographic_parity"
#: Notions of numbers whose tolerance is a difference in units of the target, not a share.
IN_UNITS = ("mean_parity", "equal_error")


@dataclass(frozen=True)
class GoalOptions:
    """What the options say about the goal of a model, as far as they were given.

    Attributes
    ----------
    notions : tuple of str
    tolerances : tuple of float
        One for all notions, or one for each.
    ratio : float, optional
    quota : tuple of str
        A share of the positive answer, or ``CLASS=SHARE``.
    stratum : str, optional
        Public column.
    costs : str, optional
        Rows of a matrix, or the name of a file with one.
    bounds : tuple of float, optional
        Public range of a number.
    """

    notions: tuple[str, ...] = ()
    tolerances: tuple[float, ...] = ()
    ratio: float | None = None
    quota: tuple[str, ...] = ()
    stratum: str | None = None
    costs: str | None = None
    bounds: tuple[float, ...] | None = None

    @classmethod
    def from_options(cls, values: dict[str, Any], tolerances: Sequence[float] = ()) -> GoalOptions:
        """Take them out of a command's options.

        Raises
        ------
        Refusal
            If strata are given without the notion that needs them, or the other way round.
        """
        stratum = values.pop("stratum", None)
        notions = tuple(values.pop("notion")) or (("demographic_parity",) if stratum is None else (WITHIN_STRATA,))
        if stratum is not None and WITHIN_STRATA not in notions:
            raise Refusal(f"expected --notion {WITHIN_STRATA} beside --stratum, got {notions[0]}; leave one out.")
        if stratum is None and WITHIN_STRATA in notions:
            raise Refusal(f"expected the public column of the strata for {WITHIN_STRATA}; pass --stratum COLUMN.")
        given, wanted, ratio = len(tolerances), len(notions), values.pop("ratio", None)
        if given > 1 and given != wanted:
            raise Refusal(f"expected one --tolerance, or one for each of {wanted} notions, got {given}.")
        if given and ratio is not None:
            raise Refusal("expected --tolerance or --ratio, got both; leave one out.")
        if ratio is not None and not 0 < ratio <= 1:
            raise Refusal(f"expected --ratio above 0 and at most 1, got {ratio:g}; four fifths is written 0.8.")
        quota, costs, bounds = tuple(values.pop("quota", ())), values.pop("costs", None), values.pop("bounds", None)
        return cls(notions, tuple(tolerances), ratio, quota, stratum, costs, bounds)

    @property
    def notion(self) -> str | list[str]:
        """The notion, or a list of several."""
        return self.notions[0] if len(self.notions) == 1 else list(self.notions)

    @property
    def tolerance(self) -> float | list[float] | None:
        """The tolerance of all notions, or a list with one for each."""
        if not self.tolerances:
            return None
        return self.tolerances[0] if len(self.tolerances) == 1 else list(self.tolerances)

    @property
    def are_shares(self) -> bool:
        """Whether tolerances are differences of shares, which do not exceed 1."""
        return not set(IN_UNITS) & set(self.notions)

    def check_task(self, task: Task, engine: str, settings: dict[str, Any]) -> None:
        """Refuse options that say nothing about this kind of target.

        Raises
        ------
        Refusal
            For the first of them.
        """
        what = {"binary": "two values", "classes": f"{task.n_classes} classes", "number": "numbers"}[task.kind]
        given = {
            "--ratio": self.ratio is not None,
            "--quota": bool(self.quota),
            "--stratum": self.stratum is not None,
            "--costs": self.costs is not None,
            "--threshold": settings["threshold"] != 0.5,
            "--bounds": self.bounds is not None,
            "--randomize": bool(settings.get("randomize")),
        }
        refused = {
            "binary": ("--bounds",),
            "classes": ("--bounds", "--threshold", "--randomize"),
            "number": ("--ratio", "--quota", "--stratum", "--costs", "--threshold", "--randomize"),
        }[task.kind]
        for name in refused:
            if given[name]:
                raise Refusal(f"expected no {name} because the target has {what}, got one; leave it out.")
        if task.kind != "binary" and engine != POST_PROCESSING:
            raise Refusal(
                f"expected engine {POST_PROCESSING!r} because the target has {what}, got {engine!r}; leave out "
                "--engine and --hidden."
            )
        if task.kind == "number":
            for name in self.notions:
                if name not in NUMBER_NOTIONS:
                    known = ", ".join(NUMBER_NOTIONS)
                    raise Refusal(f"expected a notion of numbers ({known}), got {name}; choose one of them.")
            if len(self.notions) > 1:
                raise Refusal(f"expected one --notion because the target has {what}, got {len(self.notions)}.")
        for name in self.notions:
            if task.kind != "number" and name in IN_UNITS:
                raise Refusal(f"expected a notion of decisions because the target has {what}, got {name}.")

    def arguments(self, task: Task) -> dict[str, Any]:
        """Arguments of the estimator for a target with these classes."""
        if task.kind == "number":
            return {"notion": self.notion, "bounds": self.bounds}
        return {
            "notion": self.notion,
            "ratio": self.ratio,
            "quota": None if not self.quota else read_quota(self.quota, task),
            "costs": None if self.costs is None else read_costs(self.costs, task),
        }


def read_quota(given: Sequence[str], task: Task) -> dict[Any, float]:
    """Shares by class as the estimator knows classes: two by their codes, more by their labels.

    Raises
    ------
    Refusal
        If a class is unknown, or a share is none.
    """
    found: dict[Any, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        if not equals and task.kind == "classes":
            raise Refusal(f"expected --quota CLASS=SHARE, as the target has {task.n_classes} classes, got {text!r}.")
        place = _place(name, task) if equals else 1
        try:
            share = float(number)
        except ValueError:
            share = math.nan
        if not 0 < share < 1:
            raise Refusal(f"expected --quota to be a share between 0 and 1, such as 0.2, got {text!r}.")
        found[place if task.kind == "binary" else task.classes[place]] = share
    return found


def _place(name: str, task: Task) -> int:
    texts = [str(one).strip() for one in task.classes]
    if name.strip() not in texts:
        raise no_such("class", name.strip(), texts, place="the target")
    return texts.index(name.strip())


def read_costs(given: str, task: Task) -> list[list[float]]:
    """Costs by true class (row) and decision (column), in the order of the classes.

    Parameters
    ----------
    given : str
        Rows of numbers, ``0,1;5,0``, in the order of the classes; or the name of a CSV file whose first line and first
        column name classes.

    Raises
    ------
    Refusal
        If it is neither, or has not one row and one column for each class.
    """
    if all(one in "0123456789.,;+-e \t" for one in given):
        table = [row.split(",") for row in given.split(";")]
        order = list(range(task.n_classes))
        rows, columns = order, order
    else:
        table, rows, columns = _costs_of_file(Path(given), task)
    try:
        numbers = [[float(one) for one in row] for row in table]
    except ValueError:
        raise Refusal("expected numbers in --costs, got something else; write 0,1;5,0, say.") from None
    k = task.n_classes
    if sorted(rows) != list(range(k)) or sorted(columns) != list(range(k)) or [len(row) for row in numbers] != [k] * k:
        listed = ", ".join(str(one) for one in task.classes)
        raise Refusal(f"expected {k} rows of {k} --costs, true class by decision, in the order {listed}, got others.")
    return [[numbers[rows.index(y)][columns.index(d)] for d in range(k)] for y in range(k)]


def _costs_of_file(file: Path, task: Task) -> tuple[list[list[str]], list[int], list[int]]:
    if not file.is_file():
        raise Refusal(f"expected --costs to be numbers such as 0,1;5,0 or a file, got {shown_path(file)}; check it.")
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            head, *body = [row for row in csv.reader(lines) if row]
    except (ValueError, csv.Error, UnicodeDecodeError):
        raise Refusal(f"{shown_path(file)} is no table; expected a CSV whose first line names classes.") from None
    rows, columns = [_place(row[0], task) for row in body], [_place(name, task) for name in head[1:]]
    return [row[1:] for row in body], rows, columns
