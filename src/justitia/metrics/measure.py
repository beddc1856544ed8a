"""Private measurement: rates, gaps and violations of any classifier's decisions, released once with noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from justitia._validate import check_choice, check_fraction, check_nonnegative
from justitia.metrics.exact import as_binary
from justitia.metrics.from_files import read_people
from justitia.metrics.joint import joint
from justitia.metrics.margins import margins
from justitia.metrics.measurement import Measurement
from justitia.metrics.question import Question, asked_for
from justitia.metrics.rates import METRICS, Rate
from justitia.metrics.repeats import PersonRows
from justitia.metrics.score_bins import ScoreBins
from justitia.metrics.told import Interval, Verdict
from justitia.privacy.accounting import gaussian_mu
from justitia.privacy.attribute import Attribute, HeldElsewhere
from justitia.privacy.door import check_budget, ledger_or_new, open_vault, warn_large_delta
from justitia.privacy.frames import protects_attribute
from justitia.privacy.ledger import Certificate, PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, Noise, Unprotected

__all__ = ["Interval", "Measurement", "Verdict", "measure"]


@protects_attribute
def measure(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    groups: Any = None,
    notion: Any = None,
    metrics: Any = None,
    scores: Any = None,
    before: Any = None,
    reference: Any = None,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    confidence: float = 0.95,
    threshold: float | None = None,
    pos_label: Any = None,
    missing_marker: Any = None,
    person: Any = None,
    ledger: PrivacyLedger | None = None,
    noise_seed: int | None = None,
    disjoint_from: Certificate | None = None,
    after: Sequence[Certificate] = (),
    data: Any = None,
    score_bins: int = 10,
) -> Measurement:
    """Measure how decisions treat groups without anyone learning who belongs to which.

    The whole budget goes into one noisy answer: the number of people of each group in each public cell of label and
    decision, through the rows that are best for the gaps asked for. Several notions share it: to give each a part of
    the budget is one of the choices of rows, and not the best one.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        Labels and decisions of any classifier: any two class labels. Public. Where labels are not known, ``y_true`` may
        be None: decisions are then compared by their selection rate alone, and scores have neither an AUC nor
        calibration, which need labels.
    sensitive_features : array-like, Series, DataFrame or dict of columns
        Each person's attribute; several columns are crossed. None, NaN, ``missing_marker`` and labels that are not in
        ``groups`` mean "not given": such people are in no group, and count in the population.
    groups : sequence of labels, sequence of tuples, or dict {column: labels}
        The public list of groups; one that nobody is in does no harm. Only a custodian knows it without being told.
    notion : str, FairnessNotion, or several of them
        By default "demographic_parity", unless ``metrics`` are given.
    metrics : str or sequence of str
        Rates to compare, by their usual names: "selection_rate", "true_positive_rate", "accuracy_score", ...
    scores : array-like of shape (n,), optional
        Public scores, larger for the positive class; the result then has score metrics by group.
    before : array-like of shape (n,), optional
        Public decisions of another model about the same people; the result then has the same rates of those.
    reference : label, optional
        The group that impact ratios, z, shortfall and score metrics compare with; by default ratios are to the group
        with the highest rate and the others to everybody else. The selection rate is then asked for as well.
    epsilon, delta : float
        The budget of this measurement; an infinite epsilon measures without noise, and the certificate says so.
    confidence : float
        Of the bounds, at least 0.5.
    threshold : float, optional
        Whether each violation is below it is then part of the result.
    pos_label : label
        The positive class; by default, the second of the sorted labels.
    person : array-like (n,), optional
        Public ids that say which rows are one person's; without them the promise is about one row. The bounds then
        allow for rows of one person that are all alike; where these are independent, bounds are too wide.
    ledger : PrivacyLedger, optional
        A budget shared with other releases about the same people.
    noise_seed : int, optional
        Makes the noise reproducible; the certificate then begins with saying that nothing is promised.
    disjoint_from : Certificate, optional
        Of a training run on other people. The certificate of the result then states what holds for both together,
        provided that nobody is in both.
    after : sequence of Certificate
        Of earlier releases, training or measurements, about people of whom some are or may be measured here. The
        certificate of the result then states what all of them cost together. A shared ``ledger`` does that, too, and
        refuses what is too much.
    data : path, pattern, dataset of pyarrow or RowFiles, optional
        Parquet files that hold these people, read a few rows at a time. ``y_true``, ``sensitive_features`` and
        ``person`` are then names of columns, and so is ``y_pred``, unless it is an array (``model.predict(data)``).
    score_bins : int
        Number of public bins of scores, even; fewer if scores repeat.

    Raises
    ------
    ValueError, TypeError
        For anything wrong that can be seen without the attribute, before any budget is spent.
    BudgetExceeded
        If the ledger cannot pay, before anything is computed.

    Guarantee
    ---------
    * One release: changing the attribute of one row moves the exact answer by at most ``sqrt(2)``, and that of one
      person by as many times as much as rows of one person are asked about. Everything else is computed from the noisy
      answer and public numbers.
    * The ledger is debited first.
    """
    if data is None:
        sensitive_features = Attribute.of(sensitive_features)
    extra = ("selection_rate",) if scores is not None or reference is not None else ()
    asked = asked_for(notion, metrics, always=extra)
    labelled = y_true is not None
    _check_labels(asked, labelled=labelled)
    budget = _check_budget(epsilon, delta)
    if check_fraction("confidence", confidence, example=0.95) < 0.5:
        raise ValueError(f"expected a confidence of at least 0.5, got {confidence!r}; pass, for example, 0.95.")
    if threshold is not None:
        check_nonnegative("threshold", threshold)
    held = sensitive_features if isinstance(sensitive_features, HeldElsewhere) else None
    if groups is None and held is None:
        raise ValueError("expected the public list of groups, got None; a list read off the data would tell about A.")
    _check_certificates(disjoint_from, after)
    if data is not None:
        y_true, y_pred, sensitive_features, person = read_people(data, y_true, y_pred, sensitive_features, person)
        held = None if held is None else sensitive_features
    labels = y_true if labelled else y_pred  # rates of decisions alone are the same whatever the labels
    truth, decided = as_binary(labels, y_pred, pos_label)
    n = len(truth)
    earlier = None if before is None else as_binary(labels, before, pos_label)[1]
    bins = None if scores is None else ScoreBins.of(scores, n, score_bins)
    persons = None if person is None else PersonRows.of(person, n)
    question = Question.of(asked, truth, decided, earlier, bins, persons)
    known = held is not None and data is not None  # the holder was told these ids
    private: dict[str, Any] = {
        "person": None if known else person,
        "noise_seed": noise_seed,
        "missing_marker": missing_marker,
    }
    if held is not None:
        wanted: dict[str, Any] = {
            "notion": notion,
            "metrics": metrics,
            "confidence": float(confidence),
            "threshold": threshold,
            "before": None if earlier is None else earlier.astype(int).tolist(),
            "scores": None if bins is None else bins.scores.tolist(),
            "score_bins": int(score_bins),
            "reference": None if reference is None else str(reference),
        }
        budgets: dict[str, Any] = {"epsilon": budget.epsilon, "delta": budget.delta, "ledger": ledger, "groups": groups}
        y, d = truth.astype(np.int64), decided.astype(np.int64)
        measured: Measurement | None = held.measured(y, d, **wanted, **budgets, **private)
        if measured is not None:
            noisy, noisy_before, noisy_scores = question.with_repeats(
                measured.noisy, measured.noisy_before, measured.noisy_scores
            )
            return replace(
                measured,
                noisy=noisy,
                noisy_before=noisy_before,
                noisy_scores=noisy_scores,
                labelled=labelled,
                certificate=_joined(measured.certificate, disjoint_from, after),
            )
    elif persons is not None:
        private["person"] = persons.persons
    vault = open_vault(
        sensitive_features,
        groups=groups,
        epsilon=budget.epsilon,
        ledger=ledger_or_new(ledger, epsilon=budget.epsilon, delta=budget.delta),
        n=n,
        **private,
    )
    warn_large_delta(budget.epsilon, budget.delta, n, stacklevel=2)
    named = None if reference is None else check_choice("reference", str(reference), vault.group_names)
    noise = budget.noise()
    if held is not None:
        vault.check({noise.cost(): 1})  # the holder's budget, before one's own is debited
    answer = vault.group_sums(question.values(), bound=1.0, noise=noise, purpose="group rates")
    noisy, noisy_before, noisy_scores = question.read(answer, budget.variance() * vault.rows_per_person**2)
    return Measurement(
        people=n,
        groups=vault.group_names,
        rate_names=tuple(rate.name for rate in question.rates),
        questions=question.places,
        noisy=noisy,
        confidence=float(confidence),
        certificate=_joined(vault.certificate(subject="This measurement"), disjoint_from, after),
        threshold=None if threshold is None else float(threshold),
        reference=named,
        noisy_before=noisy_before,
        noisy_scores=noisy_scores,
        crossed=margins(vault.groups, vault.column_names),
        labelled=labelled,
    )


@dataclass(frozen=True)
class _Budget:
    """What one measurement may cost, and the noise that costs it."""

    epsilon: float
    delta: float

    def noise(self) -> Noise:
        return Unprotected() if math.isinf(self.epsilon) else Gaussian(1 / gaussian_mu(self.epsilon, self.delta))

    def variance(self) -> float:
        """Of the noise of one entry: rows of length 1 move the answer by sqrt(2)."""
        noise = self.noise()
        return 2 * noise.stddev(1.0) ** 2


def _check_budget(epsilon: float, delta: float) -> _Budget:
    check_budget(epsilon, delta)
    return _Budget(float(epsilon), float(delta))


def _check_labels(asked: Mapping[str, tuple[Rate, ...]], *, labelled: bool) -> None:
    for name, rates in asked.items():
        if not labelled and rates != (METRICS["selection_rate"],):
            raise ValueError(
                f"expected labels in y_true for {name!r}, got None; pass them, or measure 'demographic_parity' alone."
            )


def _check_certificates(disjoint_from: Any, after: Any) -> None:
    if not (disjoint_from is None or isinstance(disjoint_from, Certificate)):
        raise TypeError(
            f"expected disjoint_from to be a Certificate, got {type(disjoint_from).__name__!r}; pass "
            "model.certificate_."
        )
    if not isinstance(after, Sequence) or not all(isinstance(one, Certificate) for one in after):
        raise TypeError(
            f"expected after to be a list of Certificates, got {type(after).__name__!r}; pass [model.certificate_]."
        )


def _joined(own: Certificate, other: Certificate | None, after: Sequence[Certificate]) -> Certificate:
    if other is None and not after:
        return own
    sentence = joint(own, after=after, apart=[] if other is None else [[other]])
    return replace(own, remarks=(*own.remarks, sentence))
