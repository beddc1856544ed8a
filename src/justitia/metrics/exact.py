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

from justitia._validate import check_fraction, check_same_length
from justitia.notions import FairnessNotion, get_notion
from justitia.privacy.frames import forgets_locals, protects_attribute
from justitia.privacy.groups import encode, group_names, infer_groups, public_groups, read_columns


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
) -> pd.DataFrame:
    r"""Mean of the notion's hard h in each event and group, with its Wilson interval.

    .. math:: \mu(D_{G}) = \hat{E}_{z \sim D_{G}}[h(z)]

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        Labels and decisions: any two class labels.
    sensitive_features : Series, DataFrame, array, list, or dict of columns
        One or several attributes; several are crossed.
    notion : str or FairnessNotion
        What is averaged, and over which rows.
    groups : sequence of labels, sequence of tuples, or dict {column: labels}
        The groups of the table; by default, those that occur.
    pos_label : label
        The positive class; by default, the second of the sorted labels.
    confidence : float
        Coverage of the interval.

    Returns
    -------
    DataFrame
        Indexed by (event, group), with the columns count, rate, lower, upper.

    Raises
    ------
    ValueError
        If the lengths differ or there are more than two class labels.
    """
    chosen, confidence = get_notion(notion), check_fraction("confidence", confidence)
    truth, decided = as_binary(y_true, y_pred, pos_label)
    labels, codes = _group_codes(sensitive_features, groups, len(truth))
    h = chosen.h_exact(2 * decided - 1, truth)
    events = chosen.events(truth)
    member = codes[:, None] == np.arange(len(labels))
    counts, sums = (events.T @ member).ravel(), ((events * h[:, None]).T @ member).ravel()
    rate = np.full(len(counts), np.nan)
    np.divide(sums, counts, out=rate, where=counts > 0)
    lower, upper = wilson_interval(rate, counts, confidence)
    columns = {"count": counts.astype(np.int64), "rate": rate, "lower": lower, "upper": upper}
    index = pd.MultiIndex.from_product([chosen.event_names, labels], names=["event", "group"])
    return pd.DataFrame(columns, index=index)


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


def as_binary(y_true: Any, y_pred: Any, pos_label: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Labels and decisions as 0.0 and 1.0."""
    truth, decided = _labels("y_true", y_true), _labels("y_pred", y_pred)
    check_same_length(y_true=truth, y_pred=decided)
    positive = _positive_label(set(truth.tolist()) | set(decided.tolist()), pos_label)
    return (truth == positive).astype(np.float64), (decided == positive).astype(np.float64)


def _labels(name: str, values: Any) -> NDArray[Any]:
    labels = np.asarray(values)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"expected {name} to have one dimension, got {labels.ndim}; pass one label per row.")
    if pd.isna(labels).any():
        raise ValueError(f"expected a label in every row of {name}, got missing ones; drop those rows.")
    return labels.astype(object)


def _positive_label(found: set[Any], pos_label: Any) -> Any:
    if pos_label is not None:
        found = found | {pos_label}
    if len(found) > 2:
        raise ValueError(
            f"expected two class labels in y_true and y_pred together, got {len(found)}; "
            "pass decisions, not probabilities, and a pos_label that occurs."
        )
    if pos_label is not None:
        return pos_label
    # One class alone does not say which of the two it is, unless the labels are the usual numbers.
    if found <= {0, 1} or found <= {-1, 1}:
        return 1
    if len(found) == 1:
        raise ValueError("expected two class labels in y_true and y_pred together, got one; pass pos_label.")
    return sorted(found)[1]


@protects_attribute
def violation(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    notion: str | FairnessNotion = "demographic_parity",
    groups: Any = None,
    pos_label: Any = None,
) -> float:
    r"""Largest difference between any two groups, over all events.

    The fairness violation of the paper's tables: "the maximal difference in fairness constraint violations
    between any two protected groups",

    .. math:: \max_k \max_{a, a'} |\mu(D_{G_{k,a}}) - \mu(D_{G_{k,a'}})|.

    The population term cancels in the difference. An event with fewer than two estimable groups is left out;
    NaN if no event remains.

    As a scorer: ``make_scorer(violation,
    greater_is_better=False).set_score_request(sensitive_features=True)``. The parameters are those of
    :func:`rates_by_group`.
    """
    return _largest_difference(_estimable(y_true, y_pred, sensitive_features, notion, groups, pos_label))


def _estimable(
    y_true: Any, y_pred: Any, sensitive_features: Any, notion: str | FairnessNotion, groups: Any, pos_label: Any
) -> pd.DataFrame:
    """Rates (K, G) of the events in which at least two groups have rows."""
    given = {"sensitive_features": sensitive_features, "groups": groups, "pos_label": pos_label}
    table = rates_by_group(y_true, y_pred, notion=notion, **given)
    n_events = len(get_notion(notion).event_names)
    rates = pd.DataFrame(table["rate"].to_numpy().reshape(n_events, -1))
    return rates[rates.notna().sum(axis=1) >= 2]


def _largest_difference(rates: pd.DataFrame) -> float:
    return float((rates.max(axis=1) - rates.min(axis=1)).max())


def _smallest_ratio(rates: pd.DataFrame) -> float:
    """NaN where every rate is 0."""
    return float((rates.min(axis=1) / rates.max(axis=1)).min())


class Metric(Protocol):
    """One number about how decisions treat groups; the parameters are those of :func:`rates_by_group`."""

    def __call__(
        self, y_true: Any, y_pred: Any, *, sensitive_features: Any, groups: Any = None, pos_label: Any = None
    ) -> float:
        """The number."""


_SUMMARIES = {"difference": _largest_difference, "ratio": _smallest_ratio}


def _metric(notion: str, summary: Literal["difference", "ratio"], meaning: str) -> Metric:
    """The function of this module that is named after notion and summary."""

    def metric(
        y_true: Any, y_pred: Any, *, sensitive_features: Any, groups: Any = None, pos_label: Any = None
    ) -> float:
        return _SUMMARIES[summary](_estimable(y_true, y_pred, sensitive_features, notion, groups, pos_label))

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
