"""Private measurement: rates, gaps and violations of any classifier's decisions, released once with noise.

:func:`measure` checks its arguments, makes a :class:`MeasurementQuery` of public rows, has the vault answer it once,
and returns a :class:`~justitia.metrics.measurement.Measurement`, which is computed from that noisy answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia._validate import check_choice, check_fraction, check_nonnegative
from justitia.metrics.bounds import Interval, NoisyRates, Repeats, Verdict
from justitia.metrics.composition import joint_statement
from justitia.metrics.exact import as_binary
from justitia.metrics.from_files import read_files
from justitia.metrics.measurement import Measurement, column_margins
from justitia.metrics.quantiles import Array
from justitia.metrics.rates import METRICS, Cells, QueryRows, RateMetric, make_rows, notion_rates
from justitia.metrics.scores import NoisyScores, ScoreBins, ScoreFacts
from justitia.notions import FairnessNotion, get_notion
from justitia.privacy.accounting import gaussian_mu
from justitia.privacy.attribute import Attribute, HeldElsewhere
from justitia.privacy.frames import protects_attribute
from justitia.privacy.interface import VaultRequest
from justitia.privacy.ledger import Certificate, PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, Noise, Unprotected
from justitia.privacy.persons import Persons, person_codes
from justitia.privacy.vault import check_budget, ledger_or_new, open_vault, warn_large_delta

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

    The whole budget is spent on one noisy answer: the number of rows of each group in each public cell of label and
    decision, through the query rows that are best for the gaps asked for. Several notions share it: to give each a part
    of the budget is one of the choices of query rows, and not the best one.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        Labels and decisions of any classifier: any two class labels. Public. Where labels are not known, ``y_true`` may
        be None: decisions are then compared by their selection rate alone, and scores have neither an AUC nor
        calibration, which need labels.
    sensitive_features : array-like, Series, DataFrame or dict of columns
        The attribute of each row; several columns are crossed. None, NaN, ``missing_marker`` and labels that are not in
        ``groups`` mean "not given": such rows are in no group, and count in the population.
    groups : sequence of labels, sequence of tuples, or dict {column: labels}
        The public list of groups; an empty one does no harm. Only a custodian knows the list already.
    notion : str, FairnessNotion, or several of them
        By default "demographic_parity", unless ``metrics`` are given.
    metrics : str or sequence of str
        Rates to compare, by their usual names: "selection_rate", "true_positive_rate", "accuracy_score", ...
    scores : array-like of shape (n,), optional
        Public scores, larger for the positive class; the result then has score metrics by group.
    before : array-like of shape (n,), optional
        Public decisions of another model about the same rows; the result then has the same rates of those.
    reference : label, optional
        The group that impact ratios, z, shortfall and score metrics compare with; by default ratios are to the group
        with the highest rate and the others to all other rows. The selection rate is then measured as well.
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
        A budget shared with other releases about the same individuals.
    noise_seed : int, optional
        Makes the noise reproducible; the certificate then begins by saying that nothing is promised.
    disjoint_from : Certificate, optional
        Of a training run on other individuals. The certificate of the result then states what holds for both together,
        provided that nobody is in both.
    after : sequence of Certificate
        Of earlier releases, training or measurements, about individuals of whom some are or may be measured here. The
        certificate of the result then states what all of them cost together. A shared ``ledger`` does that, too, and
        refuses what is too much.
    data : path, pattern, dataset of pyarrow or RowFiles, optional
        Parquet files that contain the rows, read a few rows at a time. ``y_true``, ``sensitive_features`` and
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
      person by as many times as much as rows of one person are queried. Everything else is computed from the noisy
      answer and public numbers.
    * The ledger is debited first.
    """
    if data is None:
        sensitive_features = Attribute.from_container(sensitive_features)
    held = isinstance(sensitive_features, HeldElsewhere)
    labelled = y_true is not None
    extra = ("selection_rate",) if scores is not None or reference is not None else ()
    rates = rates_by_name(notion, metrics, always=extra)
    _check_arguments(rates, labelled, epsilon, delta, confidence, threshold)
    if groups is None and not held:
        raise ValueError("expected the public list of groups, got None; a list read off the data would tell about A.")
    _check_certificates(disjoint_from, after)
    epsilon, delta = float(epsilon), float(delta)

    if data is not None:
        y_true, y_pred, sensitive_features, person = read_files(data, y_true, y_pred, sensitive_features, person)
    labels = y_true if labelled else y_pred  # rates of decisions alone are the same whatever the labels
    truth, decided = as_binary(labels, y_pred, pos_label)
    n = len(truth)
    earlier = None if before is None else as_binary(labels, before, pos_label)[1]
    bins = None if scores is None else ScoreBins.from_scores(scores, n, score_bins)
    persons = None if person is None else PersonRows.from_ids(person, n)
    query = MeasurementQuery.from_rows(rates, truth, decided, earlier, bins, persons)

    ids: Any
    if held:
        ids = None if data is not None else person  # the holder has the ids of rows in files already
        measured: Measurement | None = sensitive_features.measured(
            truth.astype(np.int64),
            decided.astype(np.int64),
            notion=notion,
            metrics=metrics,
            confidence=float(confidence),
            threshold=threshold,
            before=None if earlier is None else earlier.astype(int).tolist(),
            scores=None if bins is None else bins.scores.tolist(),
            score_bins=int(score_bins),
            reference=None if reference is None else str(reference),
            epsilon=epsilon,
            delta=delta,
            ledger=ledger,
            groups=groups,
            person=ids,
            noise_seed=noise_seed,
            missing_marker=missing_marker,
        )
        if measured is not None:
            noisy, noisy_before, noisy_scores = query.with_repeats(
                measured.noisy, measured.noisy_before, measured.noisy_scores
            )
            return replace(
                measured,
                noisy=noisy,
                noisy_before=noisy_before,
                noisy_scores=noisy_scores,
                labelled=labelled,
                certificate=_with_joint_statement(measured.certificate, disjoint_from, after),
            )
    else:
        ids = None if persons is None else persons.persons
    request = VaultRequest(
        groups=groups,
        epsilon=epsilon,
        ledger=ledger_or_new(ledger, epsilon=epsilon, delta=delta),
        n=n,
        person=ids,
        noise_seed=noise_seed,
        missing_marker=missing_marker,
    )
    vault = open_vault(sensitive_features, request)
    warn_large_delta(epsilon, delta, n, stacklevel=2)
    named = None if reference is None else check_choice("reference", str(reference), vault.group_names)
    noise: Noise = Unprotected()
    variance = 0.0
    if not math.isinf(epsilon):
        noise = Gaussian(1 / gaussian_mu(epsilon, delta))
        # Of the noise of one entry: query rows of length 1 move the answer by sqrt(2).
        variance = 2 * noise.noise_multiplier**2 * vault.rows_per_person**2
    if held:
        vault.check({noise.cost(): 1})  # the holder's budget, before one's own is debited
    answer = vault.group_sums(query.values(), bound=1.0, noise=noise, purpose="group rates")
    noisy, noisy_before, noisy_scores = query.read(answer, variance)
    return Measurement(
        people=n,
        groups=vault.group_names,
        rate_names=tuple(rate.name for rate in query.rates),
        questions=query.places,
        noisy=noisy,
        confidence=float(confidence),
        certificate=_with_joint_statement(vault.certificate(subject="This measurement"), disjoint_from, after),
        threshold=None if threshold is None else float(threshold),
        reference=named,
        noisy_before=noisy_before,
        noisy_scores=noisy_scores,
        crossed=column_margins(vault.groups, vault.column_names),
        labelled=labelled,
    )


def rates_by_name(notion: Any, metrics: Any, *, always: Iterable[str] = ()) -> dict[str, tuple[RateMetric, ...]]:
    """Each notion or metric by its name, with its rates.

    Parameters
    ----------
    always : iterable of str
        Metrics to measure besides, unless a notion has the same rate.
    """
    given = [] if metrics is None else _as_list("metrics", metrics)
    default = [] if given else ["demographic_parity"]
    notions = default if notion is None else _as_list("notion", notion)
    found: dict[str, tuple[RateMetric, ...]] = {}
    for one in notions:
        chosen = get_notion(one)
        found[chosen.name] = notion_rates(chosen)
    for name in given:
        found[name] = (METRICS[check_choice("metrics", name, METRICS)],)
    if len(found) < len(notions) + len(given):
        raise ValueError("expected each notion and metric once, got one twice; remove the repeated one.")
    for name in always:
        rate = METRICS[name]
        if not any(rate in rates for rates in found.values()):
            found[name] = (rate,)
    return found


def _as_list(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | FairnessNotion) or not isinstance(values, Iterable):
        return [values]
    listed = list(values)
    if not listed:
        raise ValueError(f"expected at least one of {name}, got none; leave it out for the default.")
    return listed


def _check_arguments(
    rates: Mapping[str, tuple[RateMetric, ...]],
    labelled: bool,
    epsilon: float,
    delta: float,
    confidence: float,
    threshold: float | None,
) -> None:
    for name, compared in rates.items():
        if not labelled and compared != (METRICS["selection_rate"],):
            raise ValueError(
                f"expected labels in y_true for {name!r}, got None; pass them, or measure 'demographic_parity' alone."
            )
    check_budget(epsilon, delta)
    if check_fraction("confidence", confidence, example=0.95) < 0.5:
        raise ValueError(f"expected a confidence of at least 0.5, got {confidence!r}; pass, for example, 0.95.")
    if threshold is not None:
        check_nonnegative("threshold", threshold)


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


def _with_joint_statement(own: Certificate, other: Certificate | None, after: Sequence[Certificate]) -> Certificate:
    """The certificate, with a sentence about what it and the others promise together."""
    if other is None and not after:
        return own
    sentence = joint_statement(own, after=after, apart=[] if other is None else [[other]])
    return replace(own, remarks=(*own.remarks, sentence))


@dataclass(frozen=True, eq=False)
class PersonRows:
    """Which public rows are one person's.

    Attributes
    ----------
    codes : array of shape (n,)
        Number of the person of every row.
    persons : Persons
        Which of a person's rows are counted in a group; the others count as "not given".
    """

    codes: NDArray[np.int64]
    persons: Persons

    @classmethod
    def from_ids(cls, ids: Any, n: int) -> PersonRows:
        """From public ids, one per row.

        Raises
        ------
        TypeError, ValueError
            If there is not one id per row.
        """
        codes = person_codes(ids)
        persons = Persons.from_codes(codes)
        persons.check_rows(n)
        return cls(codes, persons)

    def repeats(self, event: NDArray[np.bool_]) -> tuple[Repeats, Repeats]:
        """Rows of an event by person: those that may be counted in a group, and all of them."""
        return Repeats.from_codes(self.codes[event & self.persons.counted]), Repeats.from_codes(self.codes[event])


@dataclass(frozen=True, eq=False)
class MeasurementQuery:
    """The one query of a measurement: public rows about public cells, and how the noisy answer to them is read.

    Attributes
    ----------
    cells : Cells
    rates : tuple of RateMetric
        Over the four cells of label and decision.
    places : mapping
        Each notion or metric, with the places of its rates.
    cell_rates : list of RateMetric
        All rates over ``cells``: the above, the same of the second model, and those of scores.
    bins : ScoreBins or None
    compares : bool
        Whether the rates of a second model's decisions are measured as well.
    persons : PersonRows or None
        Which rows are one person's.
    """

    cells: Cells
    rates: tuple[RateMetric, ...]
    places: Mapping[str, tuple[int, ...]]
    cell_rates: list[RateMetric]
    bins: ScoreBins | None = None
    compares: bool = False
    persons: PersonRows | None = None

    @classmethod
    def from_rows(
        cls,
        rates: Mapping[str, tuple[RateMetric, ...]],
        truth: Any,
        decided: Any,
        before: Any,
        bins: ScoreBins | None,
        persons: PersonRows | None = None,
    ) -> MeasurementQuery:
        """The query about rows with these labels and decisions (0 or 1), and those of a second model.

        Raises
        ------
        ValueError
            If no row is in the event of a rate.
        """
        cells = Cells.from_rows(truth, decided, before, None if bins is None else bins.bin)
        every: list[RateMetric] = []
        places = {}
        for name, compared in rates.items():
            every += [rate for rate in compared if rate not in every]
            places[name] = tuple(map(every.index, compared))
        cell_rates = [rate.over(cells.kind) for rate in every]
        if before is not None:
            cell_rates += [rate.over(cells.before) for rate in every]
        if bins is not None:
            cell_rates += bins.rates(cells)
        for rate in cell_rates:
            if not np.dot(rate.member, cells.totals):
                name = rate.name
                raise ValueError(f"expected rows in the event of {name!r}, got none; leave it out or add such rows.")
        return cls(cells, tuple(every), places, cell_rates, bins, before is not None, persons)

    @cached_property
    def rows(self) -> QueryRows:
        """Which query row each cell has."""
        return make_rows(self.cell_rates, self.cells.totals)

    @cached_property
    def facts(self) -> ScoreFacts | None:
        """Public facts about the scores."""
        return None if self.bins is None else self.bins.facts(self.cells, self.rows)

    def values(self) -> Array:
        """(n, width): the public query row of every row, of length at most 1."""
        width = len(self.rows.vectors)
        table = np.vstack([self.rows.vectors, np.zeros(width)])  # the last one is for cells that are not queried
        vectors = table[self.rows.cell[self.cells.place]]
        return vectors if self.facts is None else self.facts.append_to(vectors)

    def read(self, answer: Array, variance: float) -> tuple[NoisyRates, NoisyRates | None, NoisyScores | None]:
        """The rates, those of the second model, and the scores, from the noisy group sums of :meth:`values`.

        Parameters
        ----------
        variance : float
            Of the noise of one entry before the projection.
        """
        scores = None
        if self.facts is not None:
            answer, rest = answer[:, :-1], answer[:, -1]
            groups, share, reach = len(answer), self.facts.share, self.facts.reach
            after = variance * groups / (groups + 1)  # the projection
            answer, variance = answer / math.sqrt(1 - share), variance / (1 - share)
            unit = reach / math.sqrt(share) if share else 0.0
            scores = NoisyScores(self.rows.cells(answer, variance), self.facts, rest * unit, after * unit**2)
        noisy = self.rows.read(answer, variance)
        k = len(self.rates)
        before = noisy.select(range(k, 2 * k)) if self.compares else None
        return self.with_repeats(noisy.select(range(k)), before, scores)

    def with_repeats(
        self, noisy: NoisyRates, before: NoisyRates | None, scores: NoisyScores | None
    ) -> tuple[NoisyRates, NoisyRates | None, NoisyScores | None]:
        """The same noisy answers, with the public numbers of rows by person, if there are ids."""
        if self.persons is None:
            return noisy, before, scores
        k, place = len(self.rates), self.cells.place
        events = [np.array(rate.member)[place] > 0 for rate in self.cell_rates[: 2 * k if self.compares else k]]
        own, rest = zip(*map(self.persons.repeats, events), strict=True)
        noisy = replace(noisy, repeats=own[:k], rest_repeats=rest[:k])
        if before is not None:
            before = replace(before, repeats=own[k:], rest_repeats=rest[k:])
        if scores is not None:
            counted, all_rows = self.persons.repeats(np.ones(len(place), dtype=np.bool_))
            scores = replace(scores, cells=replace(scores.cells, repeats=counted, rest_repeats=all_rows))
        return noisy, before, scores
