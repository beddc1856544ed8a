"""Private measurement of decisions and numeric predictions: rates, means, gaps and violations from one noisy release.

:func:`measure` checks its arguments, makes a :class:`MeasurementQuery` of public rows, has the vault answer it once,
and returns a :class:`~justitia.metrics.measurement.Measurement`, which is computed from that noisy answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from justitia._validate import check_choice, check_fraction, check_nonnegative, check_same_length
from justitia.metrics.bounds import Interval, NoisyRates, Verdict
from justitia.metrics.composition import joint_statement
from justitia.metrics.from_files import read_files, read_frame
from justitia.metrics.means import (
    NUMBER_METRICS,
    NUMBER_NOTIONS,
    ComparedNumberQuery,
    NumberQuery,
    means_by_name,
    names_numbers,
)
from justitia.metrics.measurement import Favorable, Measurement, column_margins
from justitia.metrics.person_rows import PersonRows
from justitia.metrics.quantiles import Array
from justitia.metrics.rates import (
    CLASS_METRICS,
    METRICS,
    Cells,
    QueryRows,
    RateMetric,
    class_metric_of,
    class_metrics,
    make_rows,
    notion_rates,
)
from justitia.metrics.scores import NoisyScores, ScoreBins, ScoreFacts
from justitia.metrics.targets import Kind, as_binary, as_classes, as_numbers, kind_of_target, positive_label
from justitia.notions import FairnessNotion, get_notion
from justitia.privacy.accounting import gaussian_mu
from justitia.privacy.attribute import Attribute, HeldElsewhere
from justitia.privacy.frames import protects_attribute
from justitia.privacy.interface import VaultRequest
from justitia.privacy.ledger import Certificate, PrivacyLedger
from justitia.privacy.mechanisms import Gaussian, Mechanism, Unprotected
from justitia.privacy.vault import check_budget, ledger_or_new, open_vault, warn_large_delta
from justitia.rows.file_data import is_frame
from justitia.rows.frames import FrameRows, GivenRows

__all__ = ["Interval", "Measurement", "Verdict", "measure"]

#: Query rows of several classes have at most so many columns, as equalized odds of 20 classes has. To find the best
#: query rows takes a few seconds then.
MOST_COLUMNS = 400


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
    task: str = "auto",
    levels: int = 20,
    value_range: Any = None,
    favorable: Any = None,
) -> Measurement:
    """Measure how decisions or predictions treat groups without anyone learning who belongs to which.

    The whole budget is spent on one noisy answer: the number of rows of each group in each public cell of label and
    decision, or in each public bin of numeric predictions beside sums of these, through the query rows that are best
    for the gaps asked for. Several notions share it: to give each a part of the budget is one of the choices of query
    rows, and not the best one.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        Labels and decisions of any classifier, or numbers and predictions of any regressor. Public. Where labels are
        not known, ``y_true`` may be None: decisions are then compared by their selection rates alone, predictions
        by their distribution and mean, and scores have neither an AUC nor calibration, which need labels.
    sensitive_features : array-like, Series, DataFrame or dict of columns
        The attribute of each row; several columns are crossed. None, NaN, ``missing_marker`` and labels that are not in
        ``groups`` mean "not given": such rows are in no group, and count in the population.
    groups : sequence of labels, sequence of tuples, or dict {column: labels}
        The public list of groups; an empty one does no harm. Only a custodian knows the list already.
    notion : str, FairnessNotion, or several of them
        By default "demographic_parity", unless ``metrics`` are given. Of more than two classes, "demographic_parity"
        compares the rate of every class, "equalized_odds" the same among rows of each label, "equal_opportunity" the
        recall of every class and "accuracy_parity" error rates. Of numbers, "demographic_parity" compares distributions
        (Kolmogorov-Smirnov distance at public levels), "mean_parity" means and "equal_error" mean squared errors.
    metrics : str or sequence of str
        Rates to compare, by their usual names: "selection_rate", "true_positive_rate", "accuracy_score", ...; of more
        than two classes "selection_rate", "recall_score", "precision_score", "accuracy_score" and "zero_one_loss"; of
        numbers "mean_prediction", "mean_squared_error" and "mean_absolute_error".
    scores : array-like of shape (n,), optional
        Public scores, larger for the positive class; the result then has score metrics by group.
    before : array-like of shape (n,), optional
        Public decisions, or predicted numbers, of another model about the same rows; the result then has the same
        rates of those. Of numbers, that takes a quarter of the query: noise of the first is 1.15 times as large.
    reference : label, optional
        The group that impact ratios, z, shortfall and score metrics compare with; by default ratios are to the group
        with the highest rate and the others to all other rows. The selection rate is then measured as well.
    epsilon, delta : float
        The budget of this measurement; an infinite epsilon measures without noise, and the certificate says so.
    confidence : float
        Of the bounds, at least 0.5.
    threshold : float, optional
        Whether each violation is below it is then part of the result. Violations of means are in the units of these.
    pos_label : label
        The positive one of two classes; by default, the second of the sorted labels.
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
    data : path, pattern, dataset of pyarrow, RowFiles, or data frame of Spark, Ray or Dask, optional
        Parquet files that contain the rows, read a few rows at a time, or a data frame whose workers hold them.
        ``y_true``, ``sensitive_features`` and ``person`` are then names of columns, and so is ``y_pred``, unless it is
        an array about files (``model.predict(data)``); of a data frame that call adds the column "prediction".
    score_bins : int
        Number of public bins of scores, even; fewer if scores repeat.
    task : {"auto", "classes", "number"}
        What ``y_pred`` is. By default, text is classes and numbers with many different values are numbers; numbers with
        few, other than two labels, are not guessed about.
    levels : int
        Of numbers: public levels at which distributions are compared, at quantiles of all predictions. If predictions
        have fewer different values, all of these are levels.
    value_range : (low, high), optional
        Of numbers: labels and predictions are clipped to it. By default, the range is that of the data, which are
        public; a single row far from all others then makes noise of means and errors large.
    favorable : label, optional
        Of two classes, the decision that people want; by default the positive one. Impact ratios and shortfall are
        about its rate: where the positive label means refusal, about the rate of the negative one.

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
    always = ("selection_rate",) if scores is not None or reference is not None else ()
    asked = _Asked(*_listed_names(notion, metrics), always, before, scores, score_bins, pos_label, levels, value_range)
    _check_arguments(epsilon, delta, confidence, threshold)
    if groups is None and not held:
        raise ValueError("expected the public list of groups, got None; a list read off the data would tell about A.")
    _check_certificates(disjoint_from, after)
    epsilon, delta = float(epsilon), float(delta)

    source: FrameRows | None = None
    if data is not None:
        read = read_frame if is_frame(data) else read_files
        y_true, y_pred, sensitive_features, person, source = read(data, y_true, y_pred, sensitive_features, person)
    # the engine of a data frame keeps rows and attribute until then
    with nullcontext() if source is None else closing(source):
        named = task == "auto" and names_numbers(*asked.notions, *asked.metrics)
        kind = kind_of_target(y_true, y_pred, "number" if named else task, pos_label)
        query = asked.query(kind, y_true, y_pred)
        wanted = favorable_side(favorable, kind, y_true, y_pred, pos_label)
        n = query.n
        persons = None if person is None else PersonRows.from_ids(person, n)
        query = replace(query, persons=persons)

        ids: Any
        if held:
            ids = None if data is not None else person  # the holder has the ids of rows in files already
            measured: Measurement | None = None
            if kind == "binary" and isinstance(query, MeasurementQuery):  # others are answered through the vault below
                measured = sensitive_features.measured(
                    query.labels,
                    query.decisions,
                    notion=notion,
                    metrics=metrics,
                    confidence=float(confidence),
                    threshold=threshold,
                    before=query.decisions_before.tolist() if query.compares else None,
                    scores=None if query.bins is None else query.bins.scores.tolist(),
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
                        favorable=wanted,
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
            source=source,
        )
        vault = open_vault(sensitive_features, request)
        warn_large_delta(epsilon, delta, n, stacklevel=2)
        compared_with = None if reference is None else check_choice("reference", str(reference), vault.group_names)
        noise: Mechanism = Unprotected()
        variance = 0.0
        if not math.isinf(epsilon):
            noise = Gaussian(1 / gaussian_mu(epsilon, delta))
            # Of the noise of one entry: query rows of length 1 move the answer by sqrt(2).
            variance = 2 * noise.noise_multiplier**2 * vault.rows_per_person**2
        if held:
            vault.check({noise.cost(): 1})  # the holder's budget, before one's own is debited
        answer = vault.group_sums(_values_for(source, query), bound=1.0, noise=noise, purpose="group rates")
        return Measurement(
            people=n,
            groups=vault.group_names,
            questions=query.places,
            confidence=float(confidence),
            certificate=_with_joint_statement(vault.certificate(subject="This measurement"), disjoint_from, after),
            threshold=None if threshold is None else float(threshold),
            reference=compared_with,
            crossed=column_margins(vault.groups, vault.column_names),
            labelled=labelled,
            favorable=wanted,
            **query.results(answer, variance),
        )


@dataclass(frozen=True, eq=False)
class _Asked:
    """What is to be measured, in the words of :func:`measure`, before the task is known."""

    notions: list[Any]
    metrics: list[Any]
    always: tuple[str, ...]  # metrics to measure besides
    before: Any
    scores: Any
    score_bins: int
    pos_label: Any
    levels: int
    value_range: Any

    def query(self, kind: Kind, y_true: Any, y_pred: Any) -> MeasurementQuery | NumberQuery | ComparedNumberQuery:
        """The query about these labels and predictions.

        Raises
        ------
        ValueError, TypeError
            If they and what is to be measured do not fit.
        """
        self._check_task(kind)
        if kind == "number":
            return self._numbers(y_true, y_pred)
        # Where labels are not given, decisions take their place: rates of decisions alone do not depend on labels.
        labels = y_pred if y_true is None else y_true
        found = self._classes(labels, y_pred) if kind == "classes" else self._binary(labels, y_pred)
        if y_true is None:
            _check_without_labels(found)
        return found

    def _check_task(self, kind: Kind) -> None:
        """Refuse what is about two classes, or about classes, with other tasks."""
        described = {"binary": "two classes", "classes": "more than two classes", "number": "numbers"}[kind]
        if self.scores is not None and kind != "binary":
            raise ValueError(f"expected decisions between two classes with scores, got {described}; leave scores out.")

    def _binary(self, labels: Any, y_pred: Any) -> MeasurementQuery:
        truth, decided = as_binary(labels, y_pred, self.pos_label)
        before = None if self.before is None else as_binary(labels, self.before, self.pos_label)[1]
        bins = None if self.scores is None else ScoreBins.from_scores(self.scores, len(truth), self.score_bins)
        rates = rates_by_name(self.notions, self.metrics, always=self.always)
        return MeasurementQuery.from_rows(rates, truth, decided, before, bins)

    def _classes(self, labels: Any, y_pred: Any) -> MeasurementQuery:
        columns = [labels, y_pred] if self.before is None else [labels, y_pred, self.before]
        classes, codes = as_classes(*columns)
        truth, decided = codes[:2]
        known = class_metrics(classes, truth, decided)
        rates: dict[str, tuple[RateMetric, ...]] = {}
        for one in self.notions:
            name, metric = class_metric_of(one)
            rates[name] = known[metric]
        for name in self.metrics:
            rates[name] = known[check_choice("metrics", name, CLASS_METRICS)]
        _check_once(rates, self.notions, self.metrics)
        rates |= {name: known[name] for name in self.always if known[name] not in rates.values()}
        before = None if self.before is None else codes[2]
        return MeasurementQuery.from_rows(rates, truth, decided, before, None, classes=len(classes))

    def _numbers(self, y_true: Any, y_pred: Any) -> NumberQuery | ComparedNumberQuery:
        predicted = as_numbers("y_pred", y_pred, self.value_range)
        truth = None if y_true is None else as_numbers("y_true", y_true, self.value_range)
        check_same_length(y_true=predicted if truth is None else truth, y_pred=predicted)
        compared = means_by_name(self.notions, self.metrics)
        query = NumberQuery.from_rows(compared, truth, predicted, self.levels)
        if self.before is None:
            return query
        before = as_numbers("before", self.before, self.value_range)
        check_same_length(y_pred=predicted, before=before)
        return ComparedNumberQuery(query, NumberQuery.from_rows(compared, truth, before, self.levels))


def favorable_side(favorable: Any, kind: Kind, y_true: Any, y_pred: Any, pos_label: Any) -> Favorable:
    """Whether the favorable decision is the positive or the negative one.

    Raises
    ------
    ValueError
        If decisions are not between two classes, or it is neither of them.
    """
    if favorable is None:
        return "positive"
    if kind != "binary":
        raise ValueError("expected decisions between two classes with favorable, got others; leave it out.")
    labels, positive = positive_label(y_pred if y_true is None else y_true, y_pred, pos_label)
    if favorable not in labels and len(labels) > 1:
        raise ValueError(f"expected favorable to be one of the labels {sorted(map(str, labels))}, got {favorable!r}.")
    return "positive" if favorable == positive else "negative"


def rates_by_name(
    notions: Sequence[Any], metrics: Sequence[Any], *, always: Iterable[str] = ()
) -> dict[str, tuple[RateMetric, ...]]:
    """Each notion or metric of two classes by its name, with its rates.

    Parameters
    ----------
    always : iterable of str
        Metrics to measure besides, unless a notion has the same rate.
    """
    found: dict[str, tuple[RateMetric, ...]] = {}
    for one in notions:
        chosen = get_notion(one)
        found[chosen.name] = notion_rates(chosen)
    for name in metrics:
        found[name] = (METRICS[check_choice("metrics", name, METRICS)],)
    _check_once(found, notions, metrics)
    for name in always:
        rate = METRICS[name]
        if not any(rate in rates for rates in found.values()):
            found[name] = (rate,)
    return found


def _listed_names(notion: Any, metrics: Any) -> tuple[list[Any], list[Any]]:
    """Notions and metrics as lists, with the default; a name that nothing has is refused.

    Whether a name fits the task is seen once labels and predictions are read.
    """
    given = [] if metrics is None else _as_list("metrics", metrics)
    default = [] if given else ["demographic_parity"]
    notions = default if notion is None else _as_list("notion", notion)
    for one in notions:
        if not (isinstance(one, str) and one in NUMBER_NOTIONS):
            get_notion(one)
    for name in given:
        if name not in (*CLASS_METRICS, *NUMBER_METRICS):
            check_choice("metrics", name, METRICS)
    return notions, given


def _check_once(found: Mapping[str, Any], notions: Sequence[Any], metrics: Sequence[Any]) -> None:
    if len(found) < len(notions) + len(metrics):
        raise ValueError("expected each notion and metric once, got one twice; remove the repeated one.")


def _as_list(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | FairnessNotion) or not isinstance(values, Iterable):
        return [values]
    listed = list(values)
    if not listed:
        raise ValueError(f"expected at least one of {name}, got none; leave it out for the default.")
    return listed


def _check_without_labels(query: MeasurementQuery) -> None:
    L = query.cells.classes
    for name, places in query.places.items():
        # Of all rows, and the same whatever the label: only such rates are about decisions alone.
        parts = [np.array((query.rates[place].member, query.rates[place].value)).reshape(2, L, L) for place in places]
        if not all(member.all() and (value == value[0]).all() for member, value in parts):
            raise ValueError(
                f"expected labels in y_true for {name!r}, got None; pass them, or measure 'demographic_parity' alone."
            )


def _values_for(source: FrameRows | None, query: MeasurementQuery | NumberQuery | ComparedNumberQuery) -> Any:
    """The public rows of a query, for a vault that has the attribute here or queries workers that hold it."""
    return query.values() if source is None else GivenRows.from_rows(query.values())


def _check_arguments(epsilon: float, delta: float, confidence: float, threshold: float | None) -> None:
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
class MeasurementQuery:
    """The one query of a measurement: public rows about public cells, and how the noisy answer to them is read.

    Attributes
    ----------
    cells : Cells
    rates : tuple of RateMetric
        Over the cells of label and decision.
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
        classes: int = 2,
    ) -> MeasurementQuery:
        """The query about rows with these codes of labels and of decisions, and of those of a second model.

        Raises
        ------
        ValueError
            If no row is in the event of a rate, or rates of so many classes distinguish too many cells.
        """
        cells = Cells.from_rows(truth, decided, before, None if bins is None else bins.bin, classes)
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
        kinds = np.unique(np.array([line for rate in cell_rates for line in (rate.member, rate.value)]), axis=1)
        if classes > 2 and kinds.shape[1] > MOST_COLUMNS:
            raise ValueError(
                f"expected rates that distinguish at most {MOST_COLUMNS} kinds of label and decision, got "
                f"{kinds.shape[1]}; measure fewer notions, or merge classes."
            )
        return cls(cells, tuple(every), places, cell_rates, bins, before is not None, persons)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.cells.place)

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,): code of the label of every row."""
        return self.cells.label[self.cells.place]

    @property
    def decisions(self) -> NDArray[np.int64]:
        """(n,): code of the decision about every row."""
        return (self.cells.kind % self.cells.classes)[self.cells.place]

    @property
    def decisions_before(self) -> NDArray[np.int64]:
        """(n,): code of the second model's decision about every row."""
        return (self.cells.before % self.cells.classes)[self.cells.place]

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

    def results(self, answer: Array, variance: float) -> dict[str, Any]:
        """The same as fields of a Measurement."""
        noisy, before, scores = self.read(answer, variance)
        names = tuple(rate.name for rate in self.rates)
        return {"rate_names": names, "noisy": noisy, "noisy_before": before, "noisy_scores": scores}

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
