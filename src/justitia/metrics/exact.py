"""Exact rates, gaps and intervals by group, on an evaluation split.

Everything here is exact and therefore **not private**: it reads the sensitive attribute of the rows it is
given and returns facts about them. Use it on rows whose attribute may be used for evaluation, not on the
training rows that the guarantee protects.

Rows whose attribute is missing belong to no group. A group without rows in an event is "not estimable" (NaN),
never 0.
"""

from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from justitia._validate import check_fraction, check_int, check_same_length
from justitia.metrics.means import means_by_name, names_numbers, public_levels, values_of_mean
from justitia.metrics.rates import class_metric_of, class_metrics
from justitia.metrics.targets import Kind, as_binary, as_classes, as_numbers, kind_of_target
from justitia.notions import FairnessNotion, get_notion
from justitia.privacy.frames import forgets_locals, protects_attribute
from justitia.privacy.groups import encode, group_names, infer_groups, public_groups, read_columns

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@protects_attribute
@forgets_locals
def rates_by_group(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    notion: str | FairnessNotion = "demographic_parity",
    groups: Any = None,
    pos_label: Any = None,
    confidence: float = 0.95,
    task: str = "auto",
    value_range: Any = None,
    levels: int = 20,
) -> pd.DataFrame:
    r"""Mean of the notion's hard h in each event and group, with its Wilson interval.

    .. math:: \mu(D_{G}) = \hat{E}_{z \sim D_{G}}[h(z)]

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        Labels and decisions, any class labels; or numbers and predictions of them. Labels that nothing is compared by
        may be None for numbers.
    sensitive_features : Series, DataFrame, array, list, or dict of columns
        One or several attributes; several are crossed.
    notion : str or FairnessNotion
        What is averaged, and over which rows. Of several classes: "demographic_parity" (rate of every class),
        "equalized_odds" (the same among rows of each label), "equal_opportunity" (recall of every class) and
        "accuracy_parity". Of numbers: "demographic_parity" (shares above public levels), "mean_parity" and
        "equal_error" (mean squared error).
    groups : sequence of labels, sequence of tuples, or dict {column: labels}
        The groups of the table; by default, those that occur.
    pos_label : label
        The positive one of two classes; by default, the second of the sorted labels.
    confidence : float
        Coverage of the interval.
    task : {"auto", "classes", "number"}
        What ``y_pred`` is; needed for numbers with few different values.
    value_range : (low, high), optional
        Numbers are clipped to it.
    levels : int
        Number of levels at quantiles of all predictions.

    Returns
    -------
    DataFrame
        Indexed by (event, group), with the columns count, rate, lower, upper. Of several classes, events are named
        after rates, as in :func:`justitia.measure`. Of numbers, the rate is a mean, with a normal interval.

    Raises
    ------
    ValueError
        If the lengths differ, or task and values do not fit.
    """
    confidence = check_fraction("confidence", confidence)
    kind = _kind(y_true, y_pred, notion, task, pos_label)
    if kind == "number":
        given = {"sensitive_features": sensitive_features, "groups": groups, "value_range": value_range}
        return _means(y_true, y_pred, notion, confidence=confidence, levels=levels, **given)
    if kind == "classes":
        names, labels, counts, sums = _class_sums(y_true, y_pred, sensitive_features, notion, groups)
    else:
        chosen = get_notion(notion)
        truth, decided = as_binary(y_true, y_pred, pos_label)
        labels, codes = _group_codes(sensitive_features, groups, len(truth))
        h = chosen.h_exact(2 * decided - 1, truth)
        events = chosen.events(truth)
        member = codes[:, None] == np.arange(len(labels))
        names = list(chosen.event_names)
        counts, sums = events.T @ member, (events * h[:, None]).T @ member
    rate = _ratio(sums, counts)
    return _table(names, labels, counts, rate, wilson_interval(rate, counts, confidence))


def _kind(y_true: Any, y_pred: Any, notion: Any, task: str, pos_label: Any) -> Kind:
    named = task == "auto" and names_numbers(notion)
    return kind_of_target(y_true, y_pred, "number" if named else task, pos_label)


def _class_sums(
    y_true: Any, y_pred: Any, sensitive_features: Any, notion: Any, groups: Any
) -> tuple[list[str], list[Any], Array, Array]:
    """Names of the rates, groups, and (rates, groups) rows in the event and those of them that count."""
    classes, (truth, decided) = as_classes(y_true, y_pred)
    _, metric = class_metric_of(notion)
    rates = class_metrics(classes, truth, decided)[metric]
    labels, codes = _group_codes(sensitive_features, groups, len(truth))
    cells = len(classes) ** 2
    cell = codes * cells + truth * len(classes) + decided
    found = np.bincount(cell, minlength=(len(labels) + 1) * cells).reshape(-1, cells)[: len(labels)]
    member, value = np.array([(one.member, one.value) for one in rates]).transpose(1, 0, 2)
    return [one.name for one in rates], labels, member @ found.T, value @ found.T


def _means(
    y_true: Any,
    y_pred: Any,
    notion: Any,
    *,
    sensitive_features: Any,
    groups: Any,
    value_range: Any,
    confidence: float,
    levels: int,
) -> pd.DataFrame:
    """Table of a mean by group, or of shares above public levels."""
    truth, predicted = _numbers(y_true, y_pred, value_range)
    labels, codes = _group_codes(sensitive_features, groups, len(predicted))
    ((_, mean),) = means_by_name([notion], []).items()
    if mean is None:
        cuts = public_levels(predicted, check_int("levels", levels, at_least=1))
        names, values = [f"above {cut:.6g}" for cut in cuts], (predicted[:, None] > cuts).astype(float)
    else:
        names, values = [mean], values_of_mean(mean, truth, predicted)[:, None]
    member = (codes[:, None] == np.arange(len(labels))).astype(float)
    counts = np.broadcast_to(member.sum(axis=0), (len(names), len(labels)))
    rate = _ratio(values.T @ member, counts)
    if mean is None:
        return _table(names, labels, counts, rate, wilson_interval(rate, counts, confidence))
    square = _ratio((values.T - rate.T[codes.clip(max=len(labels) - 1)].T) ** 2 @ member, counts)
    half_width = norm.ppf((1 + confidence) / 2) * np.sqrt(square / np.where(counts > 1, counts - 1, np.nan))
    return _table(names, labels, counts, rate, (rate - half_width, rate + half_width))


def _numbers(y_true: Any, y_pred: Any, value_range: Any) -> tuple[Array | None, Array]:
    predicted = as_numbers("y_pred", y_pred, value_range)
    if y_true is None:
        return None, predicted
    truth = as_numbers("y_true", y_true, value_range)
    check_same_length(y_true=truth, y_pred=predicted)
    return truth, predicted


def _ratio(sums: Array, counts: Array) -> Array:
    """Sums over counts; NaN where nothing was counted."""
    found = np.full(counts.shape, np.nan)
    np.divide(sums, counts, out=found, where=counts > 0)
    return found


def _table(
    names: list[str], labels: list[Any], counts: Array, rate: Array, bounds: tuple[Array, Array]
) -> pd.DataFrame:
    lower, upper = bounds
    columns = {"count": counts.astype(np.int64), "rate": rate, "lower": lower, "upper": upper}
    index = pd.MultiIndex.from_product([names, labels], names=["event", "group"])
    return pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index=index)


def _group_codes(sensitive_features: Any, groups: Any, n: int) -> tuple[list[Any], NDArray[np.int64]]:
    names, columns = read_columns(sensitive_features)
    check_same_length(y_true=range(n), sensitive_features=columns[0])
    known = infer_groups(columns) if groups is None else public_groups(groups, names=names)
    # A tuple would be read as several index levels; its name as text is one.
    crossed = any(isinstance(group, tuple) for group in known)
    return list(group_names(known, names=names) if crossed else known), encode(columns, known)


def wilson_interval(
    rate: NDArray[Any], count: NDArray[Any], confidence: float = 0.95
) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""Wilson score interval of observed rates; NaN where nothing was counted.

    .. math:: \frac{p + z^2/2n \pm z \sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}
    """
    z = norm.ppf((1 + confidence) / 2)
    n = np.where(count > 0, count, np.nan)
    centre = rate + z**2 / (2 * n)
    half = z * np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    return np.clip((centre - half) / (1 + z**2 / n), 0, 1), np.clip((centre + half) / (1 + z**2 / n), 0, 1)


@protects_attribute
def violation(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    notion: str | FairnessNotion = "demographic_parity",
    groups: Any = None,
    pos_label: Any = None,
    task: str = "auto",
    value_range: Any = None,
) -> float:
    r"""Largest difference between any two groups, over all events.

    The fairness violation of the paper's tables: "the maximal difference in fairness constraint violations
    between any two protected groups",

    .. math:: \max_k \max_{a, a'} |\mu(D_{G_{k,a}}) - \mu(D_{G_{k,a'}})|.

    The population term cancels in the difference. An event with fewer than two estimable groups is left out;
    NaN if no event remains. Of several classes, every class is an event, or every pair of a label and a class. Of
    numeric predictions, the violation of demographic parity is the largest Kolmogorov-Smirnov distance between two
    groups, over all levels.

    As a scorer: ``make_scorer(violation,
    greater_is_better=False).set_score_request(sensitive_features=True)``. The parameters are those of
    :func:`rates_by_group`.
    """
    given = {"sensitive_features": sensitive_features, "groups": groups}
    kind = _kind(y_true, y_pred, notion, task, pos_label)
    if kind == "number" and None in means_by_name([notion], []).values():
        return _largest_distance(y_true, y_pred, value_range=value_range, **given)
    return _largest_difference(
        _estimable(y_true, y_pred, notion=notion, pos_label=pos_label, task=task, value_range=value_range, **given)
    )


@forgets_locals
def _largest_distance(y_true: Any, y_pred: Any, *, sensitive_features: Any, groups: Any, value_range: Any) -> float:
    """Largest Kolmogorov-Smirnov distance between two groups; NaN if fewer than two have rows."""
    _, predicted = _numbers(y_true, y_pred, value_range)
    labels, codes = _group_codes(sensitive_features, groups, len(predicted))
    levels = np.unique(predicted)
    by_group = [np.sort(predicted[codes == code]) for code in range(len(labels))]
    shares = [np.searchsorted(one, levels, side="right") / len(one) for one in by_group if len(one)]
    return float(np.ptp(shares, axis=0).max()) if len(shares) >= 2 else float("nan")


def _estimable(y_true: Any, y_pred: Any, **given: Any) -> pd.DataFrame:
    """Rates (K, G) of the events in which at least two groups have rows."""
    table = rates_by_group(y_true, y_pred, **given)
    n_groups = max(1, len(table.index.unique("group")))
    rates = pd.DataFrame(table["rate"].to_numpy().reshape(-1, n_groups))
    return rates[rates.notna().sum(axis=1) >= 2]


def _largest_difference(rates: pd.DataFrame) -> float:
    return float((rates.max(axis=1) - rates.min(axis=1)).max())


def _smallest_ratio(rates: pd.DataFrame) -> float:
    """NaN where every rate is 0."""
    return float((rates.min(axis=1) / rates.max(axis=1)).min())


class Metric(Protocol):
    """One number about how decisions treat groups; the parameters are those of :func:`rates_by_group`."""

    def __call__(
        self,
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any,
        groups: Any = None,
        pos_label: Any = None,
        task: str = "auto",
    ) -> float:
        """The number."""


def _metric(notion: str, summary: Literal["difference", "ratio"], meaning: str) -> Metric:
    """The function of this module that is named after notion and summary."""

    def metric(
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any,
        groups: Any = None,
        pos_label: Any = None,
        task: str = "auto",
    ) -> float:
        given = {"sensitive_features": sensitive_features, "groups": groups, "pos_label": pos_label, "task": task}
        if summary == "difference":
            return violation(y_true, y_pred, notion=notion, **given)
        if _kind(y_true, y_pred, notion, task, pos_label) == "number":
            raise ValueError("expected decisions for a ratio of rates, got numbers; compare differences.")
        return _smallest_ratio(_estimable(y_true, y_pred, notion=notion, **given))

    metric.__name__ = metric.__qualname__ = f"{notion}_{summary}"
    metric.__doc__ = meaning
    return protects_attribute(metric)


demographic_parity_difference = _metric("demographic_parity", "difference", "Largest minus smallest selection rate.")
demographic_parity_ratio = _metric("demographic_parity", "ratio", "Smallest over largest selection rate.")
equalized_odds_difference = _metric("equalized_odds", "difference", "Larger gap in true and false positive rates.")
equalized_odds_ratio = _metric("equalized_odds", "ratio", "Smaller ratio of true and of false positive rates.")
equal_opportunity_difference = _metric("equal_opportunity", "difference", "Largest minus smallest true positive rate.")
equal_opportunity_ratio = _metric("equal_opportunity", "ratio", "Smallest over largest true positive rate.")
accuracy_parity_difference = _metric("accuracy_parity", "difference", "Largest minus smallest accuracy.")
mean_parity_difference = _metric("mean_parity", "difference", "Largest minus smallest mean of numeric predictions.")
equal_error_difference = _metric("equal_error", "difference", "Largest minus smallest mean squared error of numbers.")
