"""A switchboard of defects: each breaks vault or engine in one way, for the audits to find."""

import logging
import math
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import justitia.privacy.vault as vault_module
from justitia.networks.pf_ld.engine import PFLDEngine
from justitia.privacy.interface import Vault
from justitia.privacy.mechanisms import Gaussian, SeededNoise, SystemNoise
from justitia.privacy.persons import Persons
from justitia.privacy.vault import SensitiveVault
from justitia.training.method import Array

Patch = pytest.MonkeyPatch


def group_codes(vault: Vault) -> Array:
    codes: Array = vault._SensitiveVault__codes.take(0, len(vault))  # type: ignore[attr-defined]
    return codes


def exact_gap(engine: PFLDEngine, scores: Array) -> Array:
    """(G,) rate of positive decisions of each group less everybody's, without noise."""
    chosen, codes = (scores > 0).astype(np.float64), group_codes(engine.vault)
    rates = [chosen[codes == a].sum() / max(int((codes == a).sum()), 1) for a in range(engine.vault.n_groups)]
    gap: Array = np.stack(rates) - chosen.mean()
    return gap


def without_root_of_two(patch: Patch) -> None:
    broken = types.SimpleNamespace(sqrt=lambda _: 1.0, isfinite=math.isfinite, inf=math.inf, prod=math.prod)
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
    sound = PFLDEngine.query_before

    def ask_exactly(engine: PFLDEngine, *given: Any) -> None:
        sound(engine, *given)
        engine._sizes = np.bincount(group_codes(engine.vault), minlength=engine.vault.n_groups + 1)[:-1, None].astype(
            np.float64
        )

    patch.setattr(PFLDEngine, "query_before", ask_exactly)


def skipped_batch(patch: Patch) -> None:
    sound = PFLDEngine.query_after

    def query_after(engine: PFLDEngine, module: Any, scores: Array, k: int) -> None:
        batch = group_codes(engine.vault)[:4]
        if any(not bool((batch == a).any()) for a in range(engine.vault.n_groups)):
            engine._gap = None
            return
        sound(engine, module, scores, k)

    patch.setattr(PFLDEngine, "query_after", query_after)
    # Plan = ledger stops such an engine as well; without that guard the audit still has to find it.
    patch.setattr("justitia.training.session.Session.check_spent", lambda _: None)


def log_line_by_group(patch: Patch) -> None:
    sound = PFLDEngine.query_after

    def query_after(engine: PFLDEngine, module: Any, scores: Array, k: int) -> None:
        logging.getLogger("justitia").info("rates by group: %s", exact_gap(engine, scores).tolist())
        sound(engine, module, scores, k)

    patch.setattr(PFLDEngine, "query_after", query_after)


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


# Defects at the edge of the vault, which any engine may have: found by record and play.


def around_the_vault(patch: Patch, change: Callable[[SensitiveVault, Callable[..., Array], float], Array]) -> None:
    """Let ``change(vault, ask, bound)`` answer instead of the vault; ``ask`` asks it, with another bound if given."""

    def changed(sound: Callable[..., Array]) -> Callable[..., Array]:
        def answer(vault: SensitiveVault, *rows: Any, bound: float, **rest: Any) -> Array:
            return change(vault, lambda bound=bound: sound(vault, *rows, bound=bound, **rest), bound)

        return answer

    for verb in ("group_sums", "weighted_sum"):
        patch.setattr(SensitiveVault, verb, changed(getattr(SensitiveVault, verb)))


def exact_answers(patch: Patch) -> None:
    sound = Gaussian.add_noise

    def without(noise: Gaussian, exact: Array, **rest: Any) -> Array:
        sound(noise, exact, **rest)
        return exact

    patch.setattr(Gaussian, "add_noise", without)


def no_noise_drawn(patch: Patch) -> None:
    patch.setattr(Gaussian, "add_noise", lambda _, exact, **__: exact)


def one_group_known(patch: Patch) -> None:
    def known(vault: SensitiveVault, ask: Callable[..., Array], bound: float) -> Array:
        answer = ask().copy()
        answer.flat[0] += bound * (group_codes(vault)[CHANGED] == 0)
        return answer

    around_the_vault(patch, known)


def bound_by_group(patch: Patch) -> None:
    around_the_vault(patch, lambda vault, ask, bound: ask(bound * (1 + float(group_codes(vault).mean()))))


def asked_again(patch: Patch) -> None:
    def twice(vault: SensitiveVault, ask: Callable[..., Array], _: float) -> Array:
        answer = ask()
        return ask() if int((group_codes(vault) == 0).sum()) % 2 else answer

    around_the_vault(patch, twice)
    without_guards_of_the_plan(patch)


def without_guards_of_the_plan(patch: Patch) -> None:
    """Plan = ledger and the budget stop an engine that asks more; without both the audit still has to find it."""
    patch.setattr("justitia.training.session.Session.check_spent", lambda _: None)
    patch.setattr("justitia.privacy.ledger.PrivacyLedger._check", lambda *_, **__: None)


def logged_counts(patch: Patch) -> None:
    def logged(vault: SensitiveVault, ask: Callable[..., Array], _: float) -> Array:
        logging.getLogger("justitia").debug("groups of %s", np.bincount(group_codes(vault)).tolist())
        return ask()

    around_the_vault(patch, logged)


def error_by_group(patch: Patch) -> None:
    def refuse(vault: SensitiveVault, ask: Callable[..., Array], _: float) -> Array:
        if int((group_codes(vault) == 0).sum()) % 2:
            raise ValueError("too many in the first group")
        return ask()

    around_the_vault(patch, refuse)


def half_the_bound(patch: Patch) -> None:
    """Rows are twice as long as what the vault is told."""
    around_the_vault(patch, lambda _, ask, bound: ask(bound / 2))


def half_the_bound_and_no_guard(patch: Patch) -> None:
    half_the_bound(patch)
    patch.setattr(vault_module, "bounded_rows", lambda rows, bound: rows)


def no_clipping(patch: Patch) -> None:
    patch.setattr(vault_module, "clipped_sum", lambda rows, selected, bound: rows.weighted_sum(selected))


def negative_weights_ignored(patch: Patch) -> None:
    patch.setattr(vault_module, "weight_range", lambda weights: float(weights.max()) / 2)


def one_row_per_person(patch: Patch) -> None:
    patch.setattr(SensitiveVault, "rows_per_person", 1)


def all_rows_of_a_person(patch: Patch) -> None:
    sound = Persons.from_ids

    def all_rows(ids: Any) -> Persons:
        found = sound(ids)
        return replace(found, counted=np.ones_like(found.counted))

    patch.setattr(Persons, "from_ids", all_rows)


#: The row whose attribute some defects know; record and play changes it.
CHANGED = 4
#: At the edge of the vault: a defect, and how problems begin that it has to cause in every engine.
AT_THE_EDGE: dict[str, tuple[Callable[[Patch], None], tuple[str, ...]]] = {
    "answers without noise": (exact_answers, ("history depend on A",)),
    "noise that is never drawn": (no_noise_drawn, ("history depend on A", "the number or the shapes")),
    "one person's group known": (one_group_known, ("history depend on A",)),
    "bound by group": (bound_by_group, ("sensitivities depend on A",)),
    "asked again by the size of a group": (asked_again, ("purposes depend on A", "the number or the shapes")),
    "counts in a log line": (logged_counts, ("printed lines depend on A",)),
    "error by the size of a group": (error_by_group, ("error depend on A",)),
}
