"""What kind of target a model predicts: one of two classes, one of several classes, or a number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from justitia._validate import check_choice

#: Kinds of target.
KINDS = ("binary", "classes", "number")


@dataclass(frozen=True)
class Task:
    """Public description of a target. Classes are coded 0 .. K - 1 in the order of ``classes``.

    A prediction of n rows has the shape (n,) and holds P(y = 1 | x) for a binary target, (n, K) with the probability
    of every class for several classes, and (n,) with E[y | x] for a number.

    Parameters
    ----------
    kind : {"binary", "classes", "number"}
    classes : tuple
        Labels of the classes; empty for a number.

    Examples
    --------
    >>> Task.of_classes(["low", "medium", "high"]).n_classes
    3
    >>> Task.of_classes(["no", "yes"]) == Task("binary", ("no", "yes"))
    True
    """

    kind: str
    classes: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        check_choice("kind of target", self.kind, KINDS)
        expected = {"binary": "2", "classes": "3 or more", "number": "no"}[self.kind]
        count = len(self.classes)
        if {"binary": count != 2, "classes": count < 3, "number": count > 0}[self.kind]:
            raise ValueError(f"expected {expected} classes of a target of kind {self.kind!r}, got {count}.")

    @classmethod
    def of_classes(cls, labels: Iterable[Any]) -> Self:
        """Task of these class labels: binary if they are two."""
        classes = tuple(labels)
        return cls("classes" if len(classes) > 2 else "binary", classes)

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a number."""
        return len(self.classes)

    @property
    def positive(self) -> Any:
        """Label of the positive class of a binary target, the second one."""
        if self.kind != "binary":
            raise AttributeError(f"a target of kind {self.kind!r} has no positive class.")
        return self.classes[1]

    def prediction_shape(self, n: int) -> tuple[int, ...]:
        """Shape of a base model's prediction of n rows."""
        return (n, self.n_classes) if self.kind == "classes" else (n,)

    def describe(self) -> str:
        """A phrase for messages and reports."""
        return {"binary": "two classes", "classes": f"{self.n_classes} classes", "number": "numbers"}[self.kind]


#: Two classes that are called 0 and 1.
BINARY = Task("binary", (0, 1))
NUMBER = Task("number")
