"""The walk of one fit is the one that CONTRIBUTING.md describes."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

from justitia import LagrangianDualClassifier, PostProcessingPlan
from justitia.datasets import make_synthetic

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")


def described() -> list[str]:
    (block,) = re.findall(r"in the order in which.*?```text\n(.*?)```", PAGE, re.DOTALL)
    return [re.match(r"([\w.]+): ([\w.]+)", line).expand(r"\1.\2") for line in block.strip().splitlines()]  # type: ignore[union-attr]


def walked() -> list[str]:
    """Functions of the package in the order in which a fit first calls them."""
    data = make_synthetic(120, random_state=0)
    # A tolerance that something has to be done for, so that there is a correction.
    model = LagrangianDualClassifier(
        groups=data.groups, tolerance=0.0, plan=PostProcessingPlan(checks=1), random_state=0
    )
    called: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if event == "call" and module.startswith("justitia."):
            called.setdefault(f"{module.removeprefix('justitia.')}.{frame.f_code.co_qualname}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.setprofile(note)
        try:
            model.fit(data.X, data.y, sensitive_features=data.sensitive)
        finally:
            sys.setprofile(None)
    return list(called)


def test_fit_calls_its_steps_in_the_order_that_the_page_describes() -> None:
    steps, walk = described(), walked()
    assert len(steps) > 10
    assert set(steps) <= set(walk)
    assert [one for one in walk if one in steps] == steps
