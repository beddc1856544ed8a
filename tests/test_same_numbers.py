"""Results of seeded fits: a few numbers of each, kept in ``same_numbers.json`` and compared within a tolerance.

A change that is not meant to change results leaves them as they are. Where it is meant to, say so in CHANGELOG.md and
write the new numbers with ``python tests/test_same_numbers.py`` (or ``python tests/test_same_numbers.py CASE...``),
run from the root of the repository with ``src`` on the path.

Seeded noise depends on the question and its number and not on the last bits of rows, so that another processor or
another build of numpy and torch moves these numbers by round-off alone. Networks amplify it more than the default
engine does, since each step of training starts from the last one. The bound is part of a question: where it is
learned from gradients (``clip="auto"``), a last bit gives other noise, so that plans here have a bound of their own.
"""

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bench.rivals.fermi import FermiClassifier, FermiPlan
from justitia import (
    LagrangianDualClassifier,
    MomentsPlan,
    PFLDAsPublishedPlan,
    PFLDPlan,
    PostProcessingPlan,
    measure,
    private_search,
    tradeoff,
)

Numbers = dict[str, list[float]]
FILE = Path(__file__).with_name("same_numbers.json")
DIGITS = 6
#: Largest difference, absolute and relative, between a number and the one that is kept.
CLOSE, CLOSE_NETWORK = 2e-3, 2e-2
#: One decision of 300 is 0.0033, and a score at the threshold may go either way.
CLOSE_ACCURACY = 1e-2
SHORT: dict[str, Any] = {"warmup_steps": 12, "batch_size": 64, "warmup_learning_rate": 0.02, "learning_rate": 0.01}
PLANS: dict[str, Any] = {
    "post-processing": PostProcessingPlan(checks=2),
    "moments": MomentsPlan(**SHORT, rounds=6, public_steps=3, checks=2, candidates=3),
    "pf-ld": PFLDPlan(**SHORT, private_steps=4, public_steps=3, averaging=0.3, clip=0.5),
    "pf-ld-as-published": PFLDAsPublishedPlan(**SHORT, warmup_epochs=0, epochs=3, dual_step=0.2),
}
NOTIONS = ("demographic_parity", "equalized_odds", "accuracy_parity")


@dataclass(frozen=True)
class People:
    """A public table with labels, and the attribute, which some did not give."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    a: list[str | None]
    groups: tuple[str, ...]

    @property
    def data(self) -> dict[str, Any]:
        """What every ``fit`` is given."""
        return {"X": self.X, "y": self.y, "sensitive_features": self.a}


def people(n_groups: int, n: int = 300) -> People:
    """Everybody's group leans on a feature that leans on the label; every ninth did not give it."""
    rng = np.random.default_rng(17)
    X = rng.normal(size=(n, 4)).round(3)
    y = (X[:, 0] + 0.7 * X[:, 1] + 0.8 * rng.normal(size=n).round(3) > 0).astype(np.int64)
    place = np.argsort(np.argsort(X[:, 1] + rng.normal(size=n).round(3))) * n_groups // n
    groups = ("f", "m", "x")[:n_groups]
    return People(X, y, [None if i % 9 == 4 else groups[code] for i, code in enumerate(place)], groups)


def model(engine: str, these: People, **changes: Any) -> LagrangianDualClassifier:
    module = None if engine == "post-processing" else (6, 5)
    usual = {"epsilon": 4.0, "groups": these.groups, "engine": engine, "plan": PLANS[engine], "module": module}
    return LagrangianDualClassifier(**usual | {"random_state": 3, "noise_seed": 11, "progress": False} | changes)


def outcome(fitted: Any, these: People) -> Numbers:
    """Multipliers, accuracy on the training rows, the last noised gaps and their violation, and the tolerance."""
    columns = [column.name for column in fitted.history_columns_ if column.kind == "noisy_gap"]
    gaps = fitted.history_[columns].dropna()
    last = gaps.iloc[-1].to_numpy() if len(gaps) else np.empty(0)
    found = {
        "multipliers": fitted.dual_.to_numpy().ravel(),
        "accuracy": np.mean(fitted.predict(these.X) == these.y),
        "noised gaps": last,
        "noised violation": np.ptp(last.reshape(fitted.dual_.shape), axis=0).max() if len(last) else np.empty(0),
        "mean score": np.tanh(fitted.decision_function(these.X)).mean(),
    }
    if hasattr(fitted, "tolerance_"):
        found["tolerance"] = fitted.tolerance_
    return {name: np.ravel(one).astype(float).tolist() for name, one in found.items()}


TOLERANCES = (None, 0.0, 0.04, 0.2)


def fit(engine: str, *, n_groups: int = 2, given: dict[str, Any] | None = None, **changes: Any) -> Numbers:
    these = people(n_groups)
    return outcome(model(engine, these, **changes).fit(**these.data, **(given or {})), these)


def curve(engine: str) -> Numbers:
    these = people(3)
    found = tradeoff(model(engine, these), **these.data, tolerances=TOLERANCES)
    return {
        f"{name} at {tolerance}": numbers
        for tolerance, one in zip(TOLERANCES, found.models, strict=True)
        for name, numbers in outcome(one, these).items()
    }


def search(*candidates: dict[str, Any]) -> Numbers:
    these = people(2)
    found = private_search(model("pf-ld", these), candidates, **these.data, trials=2.0)
    place = float(list(candidates).index(found.parameters))
    return {"score": [float(found.score)], "place": [place], **outcome(found.model, these)}


def shared_search() -> Numbers:
    these = people(2)
    found = private_search(model("moments", these), [{"tolerance": 0.0}, {"tolerance": 0.2}], **these.data)
    return {"score": [float(found.score)], **outcome(found.model, these)}


def measurement() -> Numbers:
    these = people(3, n=600)
    decided = (these.X[:, 0] > 0.2).astype(np.int64)
    found = measure(
        these.y,
        decided,
        sensitive_features=these.a,
        groups=these.groups,
        notion=["demographic_parity", "equalized_odds"],
        noise_seed=11,
    )
    return {
        "rates": found.by_group.to_numpy(dtype=float).ravel().tolist(),
        "counts": found.counts.to_numpy(dtype=float).ravel().tolist(),
        "violations": [x for one in found.violations.values() for x in (one.estimate, one.lower, one.upper)],
    }


def fermi() -> Numbers:
    these = people(3)
    sizes: dict[str, Any] = {
        "private_steps": 4,
        "public_steps": 3,
        "warmup_steps": 12,
        "batch_size": 64,
        "averaging": 0.3,
        "clip": 0.5,
    }
    plan = FermiPlan(**sizes)
    made = FermiClassifier("equalized_odds", epsilon=4.0, groups=these.groups, module=(6, 5), plan=plan)
    return outcome(made.set_params(random_state=3, noise_seed=11).fit(**these.data), these)


WEIGHTED = {"sample_weight": np.linspace(1, 2, 300).round(3), "person": np.arange(300) // 2}
CASES: dict[str, Callable[[], Numbers]] = {
    **{
        f"{engine}, {notion}": partial(fit, engine, notion=notion, n_groups=2 if notion == "demographic_parity" else 3)
        for engine in PLANS
        for notion in NOTIONS
    },
    **{f"{engine}, no privacy": partial(fit, engine, epsilon=math.inf, n_groups=3) for engine in PLANS},
    **{f"{engine}, tolerance": partial(fit, engine, tolerance=0.02, notion="equalized_odds") for engine in PLANS},
    **{
        f"{engine}, weights and persons": partial(fit, engine, given=WEIGHTED)
        for engine in ("post-processing", "moments", "pf-ld")
    },
    "moments, default network": partial(fit, "moments", module=None),
    "moments, piecewise network": partial(fit, "moments", module=None, notion="equalized_odds"),
    "moments, cross-fitted network": partial(fit, "moments", module=None, notion="accuracy_parity"),
    "pf-ld, default network": partial(fit, "pf-ld", module=None),
    "pf-ld, clip by theorem 6": partial(
        fit, "pf-ld", plan=replace(PLANS["pf-ld"], clip="auto"), epsilon=math.inf, notion="equalized_odds"
    ),
    "pf-ld-as-published, element-wise": partial(
        fit, "pf-ld-as-published", plan=replace(PLANS["pf-ld-as-published"], epochs=2, absolute="elementwise")
    ),
    "post-processing, costs of errors": partial(fit, "post-processing", class_weight="balanced", tolerance=0.0),
    **{f"{engine}, tradeoff": partial(curve, engine) for engine in ("post-processing", "moments")},
    "search, several trials": partial(search, {"tolerance": 0.0}, {"module": (3,)}, {"tolerance": 0.2}),
    "search, one curve": shared_search,
    "measure": measurement,
    "FermiClassifier": fermi,
}


def close(name: str, case: str) -> float:
    """How far a number of this name may be from the one that is kept."""
    usual = CLOSE if case.startswith("post-processing") or case == "measure" else CLOSE_NETWORK
    return max(usual, CLOSE_ACCURACY) if name.startswith("accuracy") else usual


def differences(case: str, found: Numbers, expected: Numbers) -> list[str]:
    """Names of numbers that are not the expected ones, with both."""
    if list(found) != list(expected):
        return [f"{list(found)} instead of {list(expected)}"]
    return [
        f"{name}: {found[name]} instead of {expected[name]}"
        for name in expected
        if len(found[name]) != len(expected[name])
        or not np.allclose(found[name], expected[name], atol=close(name, case), rtol=close(name, case), equal_nan=True)
    ]


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def numbers_of(case: str) -> Numbers:
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few people, large noise: fit says so
        return {name: [float(f"{one:.{DIGITS}g}") for one in found] for name, found in CASES[case]().items()}


def kept() -> dict[str, Numbers]:
    facts: dict[str, Numbers] = json.loads(FILE.read_text(encoding="utf-8"))
    return facts


@pytest.mark.parametrize("case", CASES)
def test_results_of_a_seeded_run_are_those_of_before(case: str) -> None:
    assert differences(case, numbers_of(case), kept()[case]) == []


def test_kept_numbers_are_of_these_cases_and_no_two_alike() -> None:
    numbers = kept()
    assert list(numbers) == list(CASES)
    alike = [
        (one, other)
        for place, one in enumerate(CASES)
        for other in list(CASES)[:place]
        if not differences(one, numbers[one], numbers[other])
    ]
    assert alike == []


def test_comparison_allows_for_round_off_and_no_more() -> None:
    expected = {"multipliers": [0.5, -0.5], "accuracy": [0.8]}
    off = {"multipliers": [0.501, -0.5], "accuracy": [0.805]}
    assert differences("post-processing, a case", off, expected) == []
    assert len(differences("post-processing, a case", off | {"multipliers": [0.51, -0.5]}, expected)) == 1
    assert differences("moments, a case", off | {"multipliers": [0.51, -0.5]}, expected) == []
    assert len(differences("moments, a case", off | {"multipliers": [0.6, -0.5]}, expected)) == 1
    assert len(differences("moments, a case", off | {"accuracy": [0.9]}, expected)) == 1
    assert len(differences("moments, a case", {"multipliers": [0.5], "accuracy": [0.8]}, expected)) == 1
    assert len(differences("moments, a case", {"multipliers": [0.5, -0.5]}, expected)) == 1


if __name__ == "__main__":
    old = kept() if FILE.exists() else {}
    asked = sys.argv[1:] or list(CASES)
    made = {case: numbers_of(case) if case in asked else old[case] for case in CASES}
    FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    changed = [case for case in CASES if case not in old or differences(case, made[case], old[case])]
    print(f"{len(changed)} of {len(CASES)} cases have other numbers: {'; '.join(changed) or 'none'}")
