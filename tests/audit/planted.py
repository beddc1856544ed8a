"""A switchboard of defects: each breaks vault or engine in one way, for the audits to find."""

import logging
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import justitia.privacy.vault as vault_module
from justitia.networks.pf_ld.engine import PFLDEngine
from justitia.privacy.mechanisms import SeededNoise, SystemNoise
from justitia.training.method import Array

Patch = pytest.MonkeyPatch


def codes_of(engine: PFLDEngine) -> Array:
    codes: Array = engine.vault._SensitiveVault__codes  # type: ignore[attr-defined]
    return codes


def exact_gap(engine: PFLDEngine, scores: Array) -> Array:
    """(G,) rate of positive decisions of each group less everybody's, without noise."""
    chosen, codes = (scores > 0).astype(np.float64), codes_of(engine)
    rates = [chosen[codes == a].sum() / max(int((codes == a).sum()), 1) for a in range(engine.vault.n_groups)]
    gap: Array = np.stack(rates) - chosen.mean()
    return gap


def without_root_of_two(patch: Patch) -> None:
    broken = types.SimpleNamespace(sqrt=lambda _: 1.0, isfinite=math.isfinite, inf=math.inf)
    patch.setattr(vault_module, "math", broken)


def noise_of_another_clip(patch: Patch) -> None:
    patch.setattr(vault_module, "check_bound", lambda bound: bound / 3)


def fixed_noise_seed(patch: Patch) -> None:
    patch.setattr(SystemNoise, "words", lambda _, size, **names: SeededNoise(0).words(size, **names))


def exact_sign(patch: Patch) -> None:
    sound = PFLDEngine.gap

    def gap(engine: PFLDEngine, scores: Array, *rest: Any) -> Array | None:
        noisy = sound(engine, scores, *rest)
        return None if noisy is None else np.abs(noisy) * np.sign(exact_gap(engine, scores))[:, None]

    patch.setattr(PFLDEngine, "gap", gap)


def exact_sizes(patch: Patch) -> None:
    sound = PFLDEngine.ask_before

    def ask_exactly(engine: PFLDEngine, *given: Any) -> None:
        sound(engine, *given)
        engine._sizes = np.bincount(codes_of(engine), minlength=engine.vault.n_groups + 1)[:-1, None].astype(np.float64)

    patch.setattr(PFLDEngine, "ask_before", ask_exactly)


def skipped_batch(patch: Patch) -> None:
    sound = PFLDEngine.ask_after

    def ask_after(engine: PFLDEngine, scores: Array, k: int) -> None:
        batch = codes_of(engine)[:4]
        if any(not bool((batch == a).any()) for a in range(engine.vault.n_groups)):
            engine._gap = None
            return
        sound(engine, scores, k)

    patch.setattr(PFLDEngine, "ask_after", ask_after)
    # Plan = ledger stops such an engine as well; without that guard the audit still has to find it.
    patch.setattr("justitia.training.session._finite_part", lambda _: {})


def log_line_by_group(patch: Patch) -> None:
    sound = PFLDEngine.ask_after

    def ask_after(engine: PFLDEngine, scores: Array, k: int) -> None:
        logging.getLogger("justitia").info("rates by group: %s", exact_gap(engine, scores).tolist())
        sound(engine, scores, k)

    patch.setattr(PFLDEngine, "ask_after", ask_after)


#: Found by attacking replayed releases, and so is the shared batch.
IN_THE_VAULT: dict[str, Callable[[Patch], None]] = {
    "missing factor sqrt(2)": without_root_of_two,
    "noise scaled to another clip": noise_of_another_clip,
    "fixed noise seed": fixed_noise_seed,
}
#: Found by record and play.
IN_THE_ENGINE: dict[str, Callable[[Patch], None]] = {
    "exact sign of the violation": exact_sign,
    "mean with the exact group size": exact_sizes,
    "batch skipped when a group is empty": skipped_batch,
    "log line by group": log_line_by_group,
}
