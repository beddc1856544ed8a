"""Private hyper-parameter search: one price for all trials, and only the best model is released."""

from __future__ import annotations

import copy
import math
import numbers
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pandas as pd

from justitia._validate import check_nonnegative, check_positive
from justitia.curve import Model, check_regression_arguments, quality_and_violation, tradeoff
from justitia.engines import AS_PUBLISHED, engine_of
from justitia.estimator import LagrangianDualClassifier, plan_of, unfitted
from justitia.estimator import check_parameters as check_classifier
from justitia.preprocessing.tables import public_seed
from justitia.privacy.accounting import SelectionCost, gaussian_epsilon, gaussian_multipliers
from justitia.privacy.attribute import Attribute, HeldElsewhere
from justitia.privacy.frames import protects_attribute
from justitia.privacy.ledger import ROUND_OFF, Certificate, PrivacyLedger, Release
from justitia.privacy.mechanisms import NoiseSource
from justitia.privacy.persons import Persons
from justitia.privacy.selection import calibrate_selection, draw_trials
from justitia.privacy.vault import ledger_or_new, noise_from
from justitia.regressor import LagrangianDualRegressor
from justitia.regressor import check_parameters as check_regressor
from justitia.training.history import names_of
from justitia.training.same_rows import FITS
from justitia.training.session import Session

#: What a candidate may not change: the budget, the question, and who is asked.
FIXED = ("epsilon", "delta", "notion", "groups", "missing_marker", "missing", "noise_seed", "random_state", "progress")

_NOT_GAUSSIAN = (
    "expected candidates whose releases are all Gaussian, got others; use engine 'post-processing', 'moments' or "
    "'pf-ld'."
)


@dataclass(frozen=True)
class SearchResult:
    """The best candidate, and nothing about the others.

    Attributes
    ----------
    model : LagrangianDualClassifier or LagrangianDualRegressor
        Fitted. After several trials its ``epsilon`` is the budget of one trial; what holds is the certificate.
    parameters : dict
        Of the candidate that won.
    score : float
        Public accuracy, or R2 of a regressor, less ``penalty`` times the noised violation beyond ``violation``, both on
        the training rows.
    certificate : Certificate
        Of the whole search.
    table : DataFrame or None
        All candidates, if they shared the releases of one model: reading them then costs nothing.
    """

    model: Model
    parameters: dict[str, Any]
    score: float
    certificate: Certificate
    table: pd.DataFrame | None = None


@protects_attribute
def private_search(
    model: Model,
    candidates: Sequence[Mapping[str, Any]],
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    trials: float = 10.0,
    shape: float = 1.0,
    violation: float = 0.0,
    penalty: float = 1.0,
    sample_weight: Any = None,
    person: Any = None,
    strata: Any = None,
    proxy: Any = None,
    ledger: PrivacyLedger | None = None,
) -> SearchResult:
    """Fit the best of several candidates at the total price of ``model.epsilon``.

    With engine "post-processing" or "moments" and candidates that differ in tolerance only, they share the releases of
    one model (:func:`justitia.tradeoff`) and choosing is free. Otherwise a random number of trials is made, each with
    a candidate drawn at random and fresh noise, on a smaller budget: such that the best costs ``model.epsilon``.

    Parameters
    ----------
    model : LagrangianDualClassifier or LagrangianDualRegressor
        What to train; its epsilon and delta are those of the whole search. It is not changed.
    candidates : sequence of dict
        Parameters of each candidate, for example ``[{"tolerance": 0.0}, {"module": (10,)}]``.
    trials : float
        Mean number of trials, at least 1. The number itself is secret, as is everything about the trials that lost.
    shape : float
        Of the law of that number: 1 is geometric, 0 is logarithmic (cheaper, and one trial is more often all there is).
    violation, penalty : float
        A noised violation beyond ``violation`` lowers the score by ``penalty`` times the excess. The violation is in
        the units of a tolerance: of several notions or classes it is the largest of all rates, of "mean_parity" a
        difference in units of y.
    X, y, sensitive_features, sample_weight, person, strata, proxy, ledger
        As in :meth:`LagrangianDualClassifier.fit`; a regressor has no strata.

    Raises
    ------
    ValueError, TypeError
        For anything wrong that can be found without the attribute, before any budget is spent.
    BudgetExceeded
        If the ledger cannot pay for the search, before anything is asked.

    Guarantee
    ---------
    * With a given list of groups and without a ``noise_seed``, the result is (epsilon, delta)-differentially private in
      the attribute of any one row or, with ``person``, of any one person (``docs/proofs.md``, 2.8).
    * The ledger is debited once, with the price of the whole search, before the first trial.
    * A score is a function of public rows and of the noised answers that its trial has paid for. It reads no attribute,
      so it has no sensitivity of its own, whatever the target: the proof takes any order of a trial's outcomes.
    * Warnings and errors of trials that lose are not shown: they would be a second answer.
    * The base of the label is fitted, and scores the training rows, once per candidate before the search is paid for,
      whatever the number of trials. The same holds for reading X, y, ``sample_weight``, ``person`` and ``strata``,
      and for a ``module`` that is a function. No progress bar is shown.

    Not covered is code of yours that runs inside every trial and tells others how often it ran: a ``module`` of your
    own (its ``forward``, hooks and ``__deepcopy__``), a notion of your own, and labels, groups or a ``missing_marker``
    of a class of your own (its ``__eq__`` and ``__hash__``). Nor is the running time: whoever can watch it learns about
    the number of trials.
    """
    sensitive_features = Attribute.from_container(sensitive_features)
    if not isinstance(model, LagrangianDualClassifier | LagrangianDualRegressor):
        raise TypeError(
            "expected a LagrangianDualClassifier or a LagrangianDualRegressor, got "
            f"{type(model).__name__!r}; pass an unfitted one."
        )
    if isinstance(model, LagrangianDualRegressor):
        check_regression_arguments(strata, proxy)
    aim = _Aim(check_nonnegative("violation", violation), check_nonnegative("penalty", penalty))
    listed = _check_candidates(model, candidates)
    data = {"X": X, "y": y, "sensitive_features": sensitive_features}
    data |= {"sample_weight": sample_weight, "person": person}
    data |= {name: value for name, value in (("strata", strata), ("proxy", proxy)) if value is not None}
    if _is_curve(model, listed):
        return _shared(model, listed, data, aim, ledger)
    if isinstance(sensitive_features, HeldElsewhere):
        raise ValueError(
            "expected candidates that differ in tolerance only where a custodian holds the attribute, got others: you "
            "would see the trials that lose, which this price does not pay for; fit each on a budget of its own."
        )
    if not -1 < shape < math.inf:
        raise ValueError(f"expected shape to be finite and above -1, got {shape!r}; pass 1.0 for a geometric number.")
    return _repeated(model, listed, data, aim, check_positive("trials", trials), float(shape), ledger)


def _is_curve(model: Model, candidates: list[dict[str, Any]]) -> bool:
    """Whether the candidates are points of one trade-off curve: each has one tolerance and nothing else of its own."""
    shares = isinstance(model, LagrangianDualRegressor) or plan_of(model).shares_answers
    tolerances = [one.get("tolerance", model.tolerance) for one in candidates]
    single = all(one is None or isinstance(one, numbers.Real) for one in tolerances)
    return shares and single and all(set(one) <= {"tolerance"} for one in candidates)


class _Aim(NamedTuple):
    """The objective of a search: accuracy or R2, less a penalty for a violation above the limit."""

    violation: float
    penalty: float

    def score(self, quality: float, noisy_violation: float) -> float:
        """A number that grows with how good a model is; whatever is no number is worst."""
        score = quality - self.penalty * max(0.0, noisy_violation - self.violation)
        return -math.inf if math.isnan(score) else score


def _check_candidates(model: Model, candidates: Any) -> list[dict[str, Any]]:
    if not isinstance(candidates, Sequence) or not all(isinstance(one, Mapping) for one in candidates):
        raise TypeError("expected candidates to be a sequence of dicts of parameters; pass [{'tolerance': 0.05}], say.")
    if not candidates:
        raise ValueError("expected at least one candidate, got none; pass [{'tolerance': 0.05}], say.")
    known = set(model.get_params(deep=False))
    for name in {name for one in candidates for name in one}:
        if name in FIXED:
            raise ValueError(f"{name} is the same for all candidates; set it on the model that you pass.")
        if name not in known:
            raise ValueError(f"expected parameters of the model in candidates, got {name!r}; see its get_params().")
    if isinstance(model, LagrangianDualClassifier):
        engines = {engine_of(one.get("engine", model.engine), one.get("module", model.module)) for one in candidates}
        if AS_PUBLISHED in engines:
            raise ValueError(_NOT_GAUSSIAN)
    if not 0 < model.epsilon < math.inf:
        raise ValueError(f"expected a positive and finite epsilon to search with, got {model.epsilon!r}.")
    return [dict(one) for one in candidates]


def _shared(
    model: Model,
    candidates: list[dict[str, Any]],
    data: dict[str, Any],
    aim: _Aim,
    ledger: PrivacyLedger | None,
) -> SearchResult:
    """One curve; the choice is post-processing of its table."""
    tolerances = [one.get("tolerance", model.tolerance) for one in candidates]
    curve = tradeoff(model, tolerances=tolerances, ledger=ledger, **data)
    columns = (curve.table[name].to_numpy(float) for name in (_quality(model), "noisy_violation"))
    scores = [aim.score(float(quality), float(noised)) for quality, noised in zip(*columns, strict=True)]
    table = curve.table.assign(score=scores)
    best = int(table["score"].to_numpy().argmax())
    chosen = curve.models[best]
    return SearchResult(chosen, {"tolerance": chosen.tolerance}, scores[best], curve.certificate, table)


def _quality(model: Model) -> str:
    """Name of the public number that a score begins with."""
    return "r2" if isinstance(model, LagrangianDualRegressor) else "accuracy"


def _repeated(
    model: Model,
    candidates: list[dict[str, Any]],
    data: dict[str, Any],
    aim: _Aim,
    trials: float,
    shape: float,
    ledger: PrivacyLedger | None,
) -> SearchResult:
    """Debit the price of the best of K, draw K, and show the best alone."""
    (check_regressor if isinstance(model, LagrangianDualRegressor) else check_classifier)(model)
    if data["person"] is not None:
        data = data | {"person": Persons.from_ids(data["person"])}  # ids are read once, not in every trial
    plan = calibrate_selection(float(model.epsilon), float(model.delta), trials=trials, shape=shape)
    # One seed of public randomness for all trials: given it, they are independent draws of one mechanism.
    base = unfitted(model).set_params(
        epsilon=gaussian_epsilon(1 / plan.noise_multiplier, model.delta) * (1 - ROUND_OFF),
        random_state=public_seed(model.random_state),
        progress=False,
    )
    listed = [_rehearsed(unfitted(base).set_params(**one), data) for one in candidates]
    cost = SelectionCost(1 / max(one.mu() for one in listed), plan.stop, plan.shape)
    alone = ledger is None
    ledger = ledger_or_new(ledger, epsilon=model.epsilon, delta=model.delta)
    unit = "row" if data["person"] is None else "person"
    number = ledger.debit(Release("search over candidates", cost, 1.0, unit))
    source = noise_from(model.noise_seed).about(ledger.identity, cost, candidates)
    best: _Outcome | None = None
    for pick, seed in _draws(source, number, cost, len(candidates), seeded=model.noise_seed is not None):
        outcome = _trial(listed[pick], seed, pick, data, aim)
        if best is None or outcome.score > best.score:
            best = outcome
    found = _shown(best, model, candidates, ledger)
    if alone:
        FITS.note(listed[0].session.settings.rows, found.certificate, stacklevel=4)
    return found


class _Candidate(NamedTuple):
    """A candidate whose public part is done: its trials take it over, so that nobody can count them by it."""

    model: Model
    session: Session

    def mu(self) -> float:
        """Of one fit: the square root of the sum of 1 / sigma^2."""
        pairs = gaussian_multipliers(self.session.plan.costs())
        if pairs is None:
            raise ValueError(_NOT_GAUSSIAN)
        return math.sqrt(sum(n / multiplier**2 for multiplier, n in pairs))


def _rehearsed(candidate: Model, data: dict[str, Any]) -> _Candidate:
    """Check everything that can be wrong without the attribute, and fit the base of the label."""
    session = candidate._open(**data, ledger=_ledger_of_one(candidate))
    session.warn(stacklevel=5)
    return _Candidate(candidate, session)


def _ledger_of_one(candidate: Model) -> PrivacyLedger:
    """A ledger for one fit on its own: the search has paid."""
    return PrivacyLedger(epsilon=candidate.epsilon, delta=candidate.delta)


def _draws(
    source: NoiseSource, number: int, cost: SelectionCost, candidates: int, *, seeded: bool
) -> list[tuple[int, int | None]]:
    """Candidate and noise seed of each of K trials; secret unless the noise is seeded."""
    k = draw_trials(float(source.uniform(1, release=number, stream="trials")[0]), cost.stop, cost.shape)
    picks = (source.uniform(k, release=number, stream="candidates") * candidates).astype(int)
    seeds = (source.uniform(k, release=number, stream="seeds") * 2**52).astype(int)
    return [(int(pick), int(seed) if seeded else None) for pick, seed in zip(picks, seeds, strict=True)]


class _Outcome(NamedTuple):
    """All that a trial leaves: a fitted model or an error, with its score."""

    score: float
    pick: int
    model: Model
    error: Exception | None = None


def _trial(candidate: _Candidate, seed: int | None, pick: int, data: dict[str, Any], aim: _Aim) -> _Outcome:
    """One fit. Its warnings stay in its certificate and its error, if any, is an outcome like others: the worst."""
    model = copy.copy(candidate.model)
    model.noise_seed = seed  # not by set_params, which asks a user's base for its parameters: it could count trials
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            session = candidate.session.repeated(
                data["sensitive_features"], person=data["person"], ledger=_ledger_of_one(model), noise_seed=seed
            )
            trained = session.train()
            session.check_spent()
            model._keep(session, trained)
            return _Outcome(_score(model, session, aim), pick, model)
        except Exception as error:  # noqa: BLE001 - raising here would tell of a trial that is not the best
            return _Outcome(-math.inf, pick, model, error)


def _score(model: Model, session: Session, aim: _Aim) -> float:
    """Accuracy or R2, and noised violation; an engine that would have to ask again is judged by its last answers."""
    if session.plan.shares_answers:
        found = quality_and_violation(session)
        return aim.score(found[_quality(model)], found["noisy_violation"])
    history = model.history_
    gaps = history[names_of(model.history_columns_, "noisy_gap")].dropna()
    violation = gaps.tail(math.ceil(len(gaps) / 5)).mean().abs().max()
    return aim.score(float(history["accuracy"].iloc[-1]), float(violation))


def _shown(
    best: _Outcome | None, model: Model, candidates: list[dict[str, Any]], ledger: PrivacyLedger
) -> SearchResult:
    """The winner, with the certificate of the search in the place of its own."""
    if best is None or best.error is not None:
        raise RuntimeError(
            "no trial of the search gave a model, and the debit stands; try a candidate with fit on public data first."
        ) from (None if best is None else best.error)
    winner = best.model.set_params(noise_seed=model.noise_seed, progress=model.progress)
    own = winner.certificate_
    winner.ledger_ = ledger
    winner.certificate_ = replace(
        ledger.certificate(
            groups=own.groups, groups_source=own.groups_source, noise=own.noise, reproduction=own.reproduction
        ),
        remarks=own.remarks,
    )
    return SearchResult(winner, candidates[best.pick], best.score, winner.certificate_)
