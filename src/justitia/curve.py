"""Trade-off curve of accuracy against violation: models along a grid of tolerances for the price of one."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pandas as pd

from justitia._validate import check_nonnegative
from justitia.engines import name_of
from justitia.estimator import LagrangianDualClassifier, plan_of, unfitted
from justitia.exceptions import DeprecatedNameWarning
from justitia.metrics.displays import TradeoffDisplay
from justitia.privacy.frames import protects_attribute
from justitia.privacy.ledger import Certificate, PrivacyLedger
from justitia.regressor import LagrangianDualRegressor
from justitia.training.lagrangian import largest_gap
from justitia.training.method import Trained
from justitia.training.plan import STRICT_BELOW
from justitia.training.same_rows import FITS
from justitia.training.session import Session

#: What a curve is made of.
Model = LagrangianDualClassifier | LagrangianDualRegressor


@dataclass(frozen=True)
class Tradeoff:
    """Models along a grid of tolerances, all made from the noised answers that one of them asked for.

    Attributes
    ----------
    models : tuple of LagrangianDualClassifier or LagrangianDualRegressor
        In the order of their tolerances, strictest first.
    table : DataFrame
        One row per model: tolerance, public accuracy and AUC or, of numbers, R2, and the noised violation. They are of
        scores by models that have not learned from the row: out of fold with engine "post-processing", on the rows that
        the plan holds out with networks (from 1,000 rows on).
    certificate : Certificate
        Of all models together.
    standard_error : float
        Of a violation in the table, from noise and sampling.

    Guarantee
    ---------
    * The whole curve, and any choice made from its table, is (epsilon, delta)-differentially private: everything after
      the first model is post-processing of what that one released.
    """

    models: tuple[Model, ...]
    table: pd.DataFrame
    certificate: Certificate
    standard_error: float = math.nan

    @property
    def spread(self) -> float:
        """The old name of ``standard_error``."""
        sentence = (
            "Tradeoff.spread is now called standard_error; the old name works in this release and in no later one."
        )
        warnings.warn(sentence, DeprecatedNameWarning, stacklevel=2)
        return self.standard_error

    def plot(self, ax: Any = None) -> TradeoffDisplay:
        """Accuracy, or R2, against the noised gap (matplotlib)."""
        return TradeoffDisplay(self.table, self.standard_error).plot(ax=ax)

    def __repr__(self) -> str:
        given = [f"{one:g}" for one in self.table["tolerance"] if not pd.isna(one)]
        return f"Tradeoff({len(self.models)} models, tolerances {', '.join(given) or 'by the noise'})"

    def _repr_html_(self) -> str:
        """For notebooks: the curve, its table, and what all models cost together."""
        form: str = import_module("justitia.report.notebook").tradeoff_form(self)
        return form

    def choose(self, violation: float, deviations: float = 0.0) -> Model:
        """The model of best accuracy, or R2, whose noised violation is at most ``violation``; the first if none is.

        Parameters
        ----------
        violation : float
        deviations : float
            By how many standard errors it has to stay below.
        """
        check_nonnegative("violation", violation)
        room = check_nonnegative("deviations", deviations) * self.standard_error if deviations else 0.0
        quality = self.table["accuracy" if "accuracy" in self.table else "r2"]
        accuracy = quality.where(self.table["noisy_violation"] + room <= violation, -math.inf)
        return self.models[int(accuracy.to_numpy().argmax())]


@protects_attribute
def tradeoff(
    model: Model,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    tolerances: Sequence[float | None] = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2),
    sample_weight: Any = None,
    person: Any = None,
    strata: Any = None,
    proxy: Any = None,
    ledger: PrivacyLedger | None = None,
) -> Tradeoff:
    """Train along a grid of tolerances on one budget.

    The first model is fitted as usual. The others take over its noised answers, start from the weights and multipliers
    of their neighbour on the curve, and go through the second half of the schedule; they ask nothing.

    Parameters
    ----------
    model : LagrangianDualClassifier or LagrangianDualRegressor
        What to train, with engine "post-processing" or "moments"; it is not changed, and its own tolerance is not used.
    tolerances : sequence of float, None among them if wanted
        The grid; None, which comes first, is the tolerance of a model that was given none.
    X, y, sensitive_features, sample_weight, person, strata, proxy, ledger
        As in :meth:`LagrangianDualClassifier.fit`.

    Raises
    ------
    ValueError, TypeError
        For anything wrong that can be seen without the attribute, before any budget is spent.
    BudgetExceeded
        If the ledger cannot pay for one model, before anything is asked.
    """
    if not isinstance(model, LagrangianDualClassifier | LagrangianDualRegressor):
        raise TypeError(
            "expected a LagrangianDualClassifier or a LagrangianDualRegressor, got "
            f"{type(model).__name__!r}; pass an unfitted one."
        )
    if isinstance(model, LagrangianDualClassifier):
        check_shares_answers(model)
    else:
        check_regression_arguments(strata, proxy)
    if not isinstance(tolerances, Iterable) or isinstance(tolerances, str):
        raise TypeError(f"expected tolerances to be a sequence of numbers, got {tolerances!r}; pass (0.0, 0.05), say.")
    distinct = {None if one is None else check_nonnegative("tolerances", one) for one in tolerances}
    grid: list[Any] = [*({None} & distinct), *sorted(one for one in distinct if one is not None)]
    if not grid:
        raise ValueError("expected at least one tolerance, got none; pass a sequence such as (0.0, 0.05).")
    first: Model = unfitted(model).set_params(tolerance=grid[0])
    data = {"X": X, "y": y, "sensitive_features": sensitive_features, "sample_weight": sample_weight, "person": person}
    more = {name: value for name, value in (("strata", strata), ("proxy", proxy)) if value is not None}
    with closing(first._open(**data, **more, ledger=ledger)) as session:
        session.warn(stacklevel=3)
        trained = session.train()
        session.check_spent()
        first._keep(session, trained)
        points = {grid[0]: (first, _point(grid[0], session))}
        for branch in _branches(grid):
            here, lam = session, trained.lam
            for tolerance in branch:
                here = session.follow(here, tolerance)
                found = here.train(start=lam)
                sibling, lam = _sibling(first, here, found, tolerance), found.lam
                points[tolerance] = (sibling, _point(tolerance, here))
    models, rows = zip(*(points[tolerance] for tolerance in grid), strict=True)
    if ledger is None:
        FITS.note(session.settings.rows, first.certificate_, stacklevel=3)
    # Remarks stay in the certificate: a warning turned into an error would throw away a curve that was paid for.
    return Tradeoff(models, pd.DataFrame(rows), first.certificate_, session.run.violation_stddev())


def check_regression_arguments(strata: Any, proxy: Any) -> None:
    """Refuse what only a classifier has a use for."""
    for name, given in (("strata", strata), ("proxy", proxy)):
        if given is not None:
            raise ValueError(f"expected no {name} with a LagrangianDualRegressor, got some; leave {name} out.")


def check_shares_answers(model: LagrangianDualClassifier) -> None:
    """Refuse an engine whose answers are about one tolerance."""
    plan = plan_of(model)
    if not plan.shares_answers:
        raise ValueError(
            f"expected engine 'post-processing' or 'moments', got {name_of(plan)!r}; only their answers can be "
            "shared by a curve."
        )


def _branches(grid: list[Any]) -> tuple[list[float], list[float]]:
    """Ways from the first point in small steps: towards stricter tolerances, and towards looser ones."""
    others = grid[1:]
    strict = [one for one in reversed(others) if one < STRICT_BELOW] if grid[0] is None else []
    return strict, [one for one in others if one not in strict]


def _sibling(first: Model, session: Session, trained: Trained, tolerance: float) -> Model:
    """A fitted model like the first, with its own weights; plan, ledger and certificate are those of the curve."""
    model: Model = copy.copy(first).set_params(tolerance=tolerance)
    model._keep(session, trained)
    model.plan_ = first.plan_
    model.certificate_ = replace(first.certificate_, remarks=model.certificate_.remarks)
    return model


def _point(tolerance: float | None, session: Session) -> dict[str, float]:
    """One row of the table."""
    return {"tolerance": math.nan if tolerance is None else float(tolerance), **quality_and_violation(session)}


def quality_and_violation(session: Session) -> dict[str, float]:
    """Public accuracy, or R2, where it was not learned, and noised violation of all training rows."""
    run = session.run
    scores, held = run.scores(), run.held_out()
    gap = run.gap(scores)
    return {**run.public_scores(scores, held), "noisy_violation": math.nan if gap is None else largest_gap(gap)}
