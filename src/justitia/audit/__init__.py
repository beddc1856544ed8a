"""Privacy audits: attacks on one person's attribute, and the lower bound on epsilon that they prove.

The bound is compared with the certificate. The attacker knows X, y and the attribute of all rows but one, and sees
everything that ``fit`` releases; an attack on the mechanism also sees every noisy answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from justitia._validate import check_choice, check_fraction, check_int
from justitia.audit.attacks import Randomness, fit_statistics, mechanism_statistics, most_unusual, one_run
from justitia.audit.replay import Canary, Model, Recording, given_columns, most_exposed, record, worst_canary
from justitia.audit.result import AuditResult
from justitia.audit.statistics import Evidence, Floats, evidence, one_run_epsilon
from justitia.engines import AS_PUBLISHED, POST_PROCESSING, engine_of
from justitia.estimator import LagrangianDualClassifier
from justitia.privacy.frames import protects_attribute
from justitia.regressor import LagrangianDualRegressor

ATTACKS = ("mechanism", "trajectory", "weights", "predictions", "one run")
#: Largest number of people whose attributes the attack "one run" guesses.
CANARIES = 200

__all__ = ["ATTACKS", "AuditResult", "Evidence", "audit"]


@protects_attribute
def audit(
    model: Model,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    strata: Any = None,
    proxy: Any = None,
    runs: int = 1000,
    attack: str = "mechanism",
    canary: int | Literal["worst"] = "worst",
    confidence: float = 0.95,
    audits: int = 1,
    seed: int | None = None,
    copies: int = 1,
    jobs: int = 1,
    progress: bool | None = None,
) -> AuditResult:
    """Attack one person's attribute with your own data and settings.

    The result is **not private**: the audit reads the attribute exactly. Run it on public or synthetic people, or keep
    it inside the boundary.

    Parameters
    ----------
    model : LagrangianDualClassifier or LagrangianDualRegressor
        Settings to audit; it is neither fitted nor changed. ``groups`` have to be given.
    X, y, sensitive_features, strata, proxy
        As for ``fit``; a regressor has no strata and no proxy.
    runs : int
        Runs of each of the two neighbours, at least 8; half of them or more test what was chosen on the others.
    attack : {"mechanism", "trajectory", "weights", "predictions", "one run"}
        "mechanism" records the queries of one fit and replays the vault's own releases, which is cheap; the queries
        no longer depend on earlier answers. The others fit the whole model in every run: "trajectory" sees every noisy
        answer to that run's own queries; "weights" reads the weights (of engine "post-processing" the margins on public
        rows, of a regressor its predictions), multipliers and history; "predictions" reads the scores, or predicted
        numbers, of the canary and of the most similar rows. "one run" guesses the attributes of many people from one
        replay.
    canary : int or "worst"
        Row of the person under attack; "worst" takes the one who moves the answers most, by public numbers.
    confidence : float
        Confidence of all bounds together.
    audits : int
        Number of audits that are reported together; each then has a stricter level (Bonferroni).
    seed : int, optional
        Makes the audit repeatable: it seeds the noise of the runs, and the public randomness if the model leaves it
        open. By default noise comes from the operating system, as in ``fit``; a ``noise_seed`` of the model is kept,
        and found.
    copies : int
        Number of replays that share one vault in the attack "mechanism", as copies of all rows with columns of their
        own: much cheaper for few rows. Noise that repeats from run to run, or is shared by columns, is found with 1
        only.
    jobs : int
        Worker processes; with more than one, everything in ``model`` has to be picklable.
    progress : bool, optional
        Show a progress bar; by default only in a terminal.

    Returns
    -------
    AuditResult

    Raises
    ------
    ValueError, TypeError
        For settings that cannot be audited, before anything is fitted.
    """
    columns = given_columns(strata=strata, proxy=proxy)
    _check(model, attack, columns)
    check_int("runs", runs, at_least=8)
    check_int("jobs", jobs, at_least=1)
    check_int("copies", copies, at_least=1)
    alpha = (1 - check_fraction("confidence", confidence, example=0.95)) / check_int("audits", audits, at_least=1)
    recording = record(model, X, y, sensitive_features, seed=seed, columns=columns)
    target = _target(recording, X, canary)
    random = Randomness(model.noise_seed, seed)
    common: dict[str, Any] = {
        "attack": attack,
        "engine": _engine(model),
        "groups": (recording.names[target.here], recording.names[target.there]),
        "confidence": float(confidence),
        "audits": int(audits),
        "epsilon": recording.epsilon,
        "delta": float(model.delta),
    }
    if attack == "one run":
        people = most_exposed(recording, target, CANARIES)
        guesses, right = one_run(recording, target, people, random, seed=seed)
        lower = one_run_epsilon(len(people), guesses, right, alpha=alpha, delta=model.delta)
        return AuditResult(**common, canary=None, runs=1, binomial=lower, gaussian=None, guesses=guesses, right=right)
    how: dict[str, Any] = {"jobs": jobs, "progress": progress}
    if attack != "mechanism":
        runs_of_both = fit_statistics(recording, target, X, y, runs, random, attack=attack, columns=columns, **how)
    elif common["engine"] == AS_PUBLISHED:
        from justitia.audit.as_published import as_published_statistics  # noqa: PLC0415 - needs torch, as this engine does

        runs_of_both = as_published_statistics(recording, target, X, y, runs, random, seed=seed, **how)
    else:
        runs_of_both = mechanism_statistics(recording, target, runs, random, copies=copies, **how)
    found = evidence(*runs_of_both, alpha=alpha, delta=model.delta, known=_known(attack, runs_of_both[0].shape[1]))
    return AuditResult(
        **common,
        canary=target.person,
        runs=runs,
        binomial=found.binomial(model.delta),
        gaussian=found.gaussian(model.delta) if recording.queries else None,
        evidence=found,
    )


def _known(attack: str, width: int) -> Floats | None:
    """Weights of the best score where the statistics are log likelihood ratios, which add up; None otherwise."""
    if attack == "trajectory":
        return np.array([1.0, 0.0])
    return np.ones(width) if attack == "mechanism" else None


def _engine(model: Model) -> str:
    """Name of the engine; a regressor has one."""
    return POST_PROCESSING if isinstance(model, LagrangianDualRegressor) else engine_of(model.engine, model.module)


def _check(model: Any, attack: str, columns: Mapping[str, Any]) -> None:
    if not isinstance(model, LagrangianDualClassifier | LagrangianDualRegressor):
        raise TypeError(
            "expected a LagrangianDualClassifier or a LagrangianDualRegressor, got "
            f"{type(model).__name__!r}; pass one with your settings."
        )
    if columns and isinstance(model, LagrangianDualRegressor):
        name = next(iter(columns))
        raise ValueError(f"expected no {name} with a LagrangianDualRegressor, got some; leave {name} out.")
    check_choice("attack", attack, ATTACKS)
    if model.groups is None:
        raise ValueError("expected a model with its public list of groups, got groups=None; give the list.")
    if model.missing == "none":
        raise ValueError(
            "expected missing='allowed' in an audit, got 'none'; leave it out, because the noise is the same but for a "
            "projection, which gives nothing away."
        )
    if not math.isfinite(model.epsilon):
        raise ValueError(f"expected a private model to audit, got epsilon={model.epsilon!r}; choose a finite epsilon.")
    if _engine(model) == AS_PUBLISHED and attack in {"trajectory", "one run"}:
        raise ValueError(
            f"expected an engine that asks the vault, got {AS_PUBLISHED!r} for the attack {attack!r}; "
            "use attack='mechanism', 'weights' or 'predictions'."
        )


def _target(recording: Recording, X: Any, canary: Any) -> Canary:
    n_groups = len(recording.names) - 1
    if canary != "worst" and not 0 <= check_int("canary", canary, at_least=0) < len(recording.codes):
        raise ValueError(
            f"expected a canary below {len(recording.codes)}, got {canary!r}; pass a row of X, or 'worst'."
        )
    person = None if canary == "worst" else int(canary)
    if not recording.queries:  # no noisy queries to choose by: take the most unusual public features
        return Canary(most_unusual(recording.model, X) if person is None else person, 0, 1)
    return worst_canary(recording.queries, n_groups, person)
