"""Results of fits, bit for bit: hashes of scores, multipliers and noised gaps, kept in ``same_bits.json``.

A change that is not meant to change results leaves them as they are. Where it is meant to, say so in CHANGELOG.md and
write the new ones with ``python tests/test_same_bits.py``.

Training feeds the last bit of one step into the next, and seeded noise depends on bounds to the last bit: one other
bit early in a run is another run. The hashes are therefore those of one build of torch and numpy on one kind of
processor, with one thread. The file names them, and holds the last bits of a few operations that this library has no
part in; where any of these differ, the tests are skipped with that reason. Numbers are rounded to ten digits first, so
that the last bits of scores in double precision, which nothing feeds back, do not count.
"""

import hashlib
import json
import math
import platform
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bench.rivals.fermi import FermiClassifier, FermiPlan
from justitia import (
    GradientsPlan,
    LagrangianDualClassifier,
    MomentsPlan,
    PluginPlan,
    PrintedPlan,
    measure,
    private_search,
    tradeoff,
)

FILE = Path(__file__).with_name("same_bits.json")
DIGITS = 10
SHORT: dict[str, Any] = {"warmup_steps": 12, "batch_size": 64, "warmup_learning_rate": 0.02, "learning_rate": 0.01}
PLANS: dict[str, Any] = {
    "plugin": PluginPlan(checks=2),
    "moments": MomentsPlan(**SHORT, rounds=6, public_steps=3, checks=2, candidates=3),
    "gradients": GradientsPlan(**SHORT, private_steps=4, public_steps=3, averaging=0.3),
    "printed": PrintedPlan(**SHORT, warmup_epochs=0, epochs=3, dual_step=0.2),
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
    module = None if engine == "plugin" else (6, 5)
    usual = {"epsilon": 4.0, "groups": these.groups, "engine": engine, "plan": PLANS[engine], "module": module}
    return LagrangianDualClassifier(**usual | {"random_state": 3, "noise_seed": 11, "progress": False} | changes)


def outcome(fitted: Any, these: People) -> list[Any]:
    """Scores, multipliers and noised gaps of a fitted model."""
    gaps = [column.name for column in fitted.history_columns_ if column.kind == "noisy_gap"]
    return [fitted.decision_function(these.X), fitted.dual_.to_numpy(), fitted.history_[gaps].to_numpy()]


def fit(engine: str, *, n_groups: int = 2, given: dict[str, Any] | None = None, **changes: Any) -> list[Any]:
    these = people(n_groups)
    return outcome(model(engine, these, **changes).fit(**these.data, **(given or {})), these)


def curve(engine: str) -> list[Any]:
    these = people(3)
    found = tradeoff(model(engine, these), **these.data, tolerances=(None, 0.0, 0.04, 0.2))
    return [found.table.to_numpy(), *(part for one in found.models for part in outcome(one, these))]


def search(*candidates: dict[str, Any]) -> list[Any]:
    these = people(2)
    found = private_search(model("gradients", these), candidates, **these.data, trials=2.0)
    return [found.score, [list(candidates).index(found.parameters)], *outcome(found.model, these)]


def shared_search() -> list[Any]:
    these = people(2)
    found = private_search(model("moments", these), [{"tolerance": 0.0}, {"tolerance": 0.2}], **these.data)
    return [found.score, *outcome(found.model, these)]


def measurement() -> list[Any]:
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
    violations = [(one.estimate, one.lower, one.upper) for one in found.violations.values()]
    return [found.by_group.to_numpy(), found.counts.to_numpy(), violations]


def fermi() -> list[Any]:
    these = people(3)
    sizes: dict[str, Any] = {
        "private_steps": 4,
        "public_steps": 3,
        "warmup_steps": 12,
        "batch_size": 64,
        "averaging": 0.3,
    }
    plan = FermiPlan(**sizes)
    made = FermiClassifier("equalized_odds", epsilon=4.0, groups=these.groups, module=(6, 5), plan=plan)
    return outcome(made.set_params(random_state=3, noise_seed=11).fit(**these.data), these)


WEIGHTED = {"sample_weight": np.linspace(1, 2, 300).round(3), "person": np.arange(300) // 2}
CASES: dict[str, Callable[[], list[Any]]] = {
    **{
        f"{engine}, {notion}": partial(fit, engine, notion=notion, n_groups=2 if notion == "demographic_parity" else 3)
        for engine in PLANS
        for notion in NOTIONS
    },
    **{f"{engine}, no privacy": partial(fit, engine, epsilon=math.inf, n_groups=3) for engine in PLANS},
    **{f"{engine}, tolerance": partial(fit, engine, tolerance=0.02, notion="equalized_odds") for engine in PLANS},
    **{
        f"{engine}, weights and persons": partial(fit, engine, given=WEIGHTED)
        for engine in ("plugin", "moments", "gradients")
    },
    "moments, default network": partial(fit, "moments", module=None),
    "moments, piecewise network": partial(fit, "moments", module=None, notion="equalized_odds"),
    "moments, cross-fitted network": partial(fit, "moments", module=None, notion="accuracy_parity"),
    "gradients, default network": partial(fit, "gradients", module=None),
    "printed, element-wise": partial(fit, "printed", plan=replace(PLANS["printed"], epochs=2, absolute="elementwise")),
    "plugin, costs of errors": partial(fit, "plugin", class_weight="balanced", tolerance=0.0),
    **{f"{engine}, tradeoff": partial(curve, engine) for engine in ("plugin", "moments")},
    "search, several trials": partial(search, {"tolerance": 0.0}, {"module": (3,)}, {"tolerance": 0.2}),
    "search, one curve": shared_search,
    "measure": measurement,
    "FermiClassifier": fermi,
}


def digest(parts: list[Any]) -> str:
    """SHA-256 of shapes and of numbers with ten digits; -0.0 is 0.0."""
    found = hashlib.sha256()
    for part in parts:
        numbers = np.asarray(part, dtype=np.float64)
        text = ",".join(f"{number + 0.0:.{DIGITS}g}" for number in numbers.flatten().tolist())
        found.update(f"{numbers.shape}:{text};".encode())
    return found.hexdigest()


def arithmetic() -> dict[str, str]:
    """What the last bit of a result depends on besides this library."""
    return {
        "torch": torch.__version__.split("+", maxsplit=1)[0],
        "numpy": np.__version__,
        "lightgbm": version("lightgbm"),
        "machine": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "last bits": last_bits(),
    }


def last_bits() -> str:
    """Hash of a network's forward and backward pass, of a solved system and of functions, without this library."""
    with one_thread():
        X = (torch.arange(1200.0) * 0.37).sin().view(300, 4)
        sizes, parts = (4, 6, 5, 1), []
        network = torch.nn.Sequential(*(torch.nn.Linear(*pair) for pair in pairwise(sizes)))
        for p in network.parameters():
            p.data = (torch.arange(float(p.numel())) * 0.71).cos().view_as(p)
        for rows in (X, X[:64]):
            scores = network(rows)[:, 0]
            torch.nn.functional.binary_cross_entropy_with_logits(scores, (rows[:, 1] > 0).float()).backward()
            parts += [scores, *(p.grad.clone() for p in network.parameters() if p.grad is not None)]
        double = X.double()
        moments = torch.cat([double, double.square(), double.exp()], dim=1)
        parts += [torch.linalg.solve(moments.T @ moments, moments.T), double.softmax(1), X.exp(), X.sigmoid()]
        found = hashlib.sha256(b"".join(part.detach().contiguous().numpy().tobytes() for part in parts))
        found.update(np.exp(double.numpy()).tobytes() + np.log1p(double.numpy() ** 2).tobytes())
        for table in (moments.numpy(), moments.numpy().astype(np.float32)):  # products by numpy's own library
            found.update((table.T @ table).tobytes() + (table @ table[0]).tobytes() + np.vecdot(table, table).tobytes())
    return found.hexdigest()[:16]


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def hash_of(case: str) -> str:
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few people, large noise: fit says so
        return digest(CASES[case]())


def kept() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return facts


@pytest.mark.parametrize("case", CASES)
def test_results_of_a_seeded_run_are_those_of_before(case: str) -> None:
    made = kept()
    if made["arithmetic"] != arithmetic():
        pytest.skip(f"the hashes are those of {made['arithmetic']}, here is {arithmetic()}")
    assert hash_of(case) == made["hashes"][case]


def test_kept_hashes_are_of_these_cases_and_no_two_alike() -> None:
    hashes = kept()["hashes"]
    assert list(hashes) == list(CASES)
    assert len(set(hashes.values())) == len(CASES)


def test_digest_tells_the_tenth_digit_and_not_the_last_bit() -> None:
    number = 0.1234567891
    assert digest([[number]]) == digest([[math.nextafter(number, 1)]])
    assert digest([[number]]) != digest([[number + 1e-10]])
    assert digest([[0.0]]) == digest([[-0.0]])
    assert digest([[1.0, 2.0]]) != digest([[[1.0], [2.0]]])


if __name__ == "__main__":
    facts = {"arithmetic": arithmetic(), "hashes": {case: hash_of(case) for case in CASES}}
    old = kept()["hashes"] if FILE.exists() else {}
    FILE.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    changed = [case for case, value in facts["hashes"].items() if old.get(case) != value]
    print(f"{len(changed)} of {len(CASES)} hashes are new: {'; '.join(changed) or 'none'}")
