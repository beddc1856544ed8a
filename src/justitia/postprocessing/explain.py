"""What the correction did to single rows, and to rows by ranges of their features: public functions of x.

Model and features are public, so nothing here costs budget or reads the attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.learners.base import Inputs
from justitia.learners.importance import contributions
from justitia.postprocessing.correction import ClassRule, Rule
from justitia.postprocessing.dual import best_action
from justitia.postprocessing.number_rule import NumberRule

Array = NDArray[np.float64]
#: Ranges of a numeric feature in a table of changes, and features in it.
RANGES, FEATURES = 4, 5


def explained(rule: Rule | ClassRule | NumberRule, inputs: Inputs, names: Sequence[str], classes: Any) -> pd.DataFrame:
    """One line per row: what the base said, what was applied, and how much of it is due to the correction.

    Parameters
    ----------
    names : sequence of str
        Of the encoded features, for contributions.
    classes : sequence or None
        Labels of the classes; None of a number.
    """
    if isinstance(rule, NumberRule):
        before = rule.base_prediction(inputs)
        after = rule.predict(inputs)
        columns = {"base_prediction": before, "correction": after - before, "prediction": after}
    elif isinstance(rule, ClassRule):
        columns = _classes(rule, inputs, np.asarray(classes))
    else:
        columns = _two_classes(rule, inputs, np.asarray(classes))
    found = pd.DataFrame(columns)
    values = contributions(rule.base, inputs, len(names))
    if values is None:
        return found
    return found.join(pd.DataFrame(values, columns=[f"shap_{name}" for name in names]))


def _two_classes(rule: Rule, inputs: Inputs, classes: NDArray[Any]) -> dict[str, Any]:
    """Base score; the threshold that the row had to exceed, and how far the correction moved it."""
    score = rule.base_probability(inputs)
    margin = rule.margin(inputs)
    # The decision is 2 (score - threshold) > t: as if the threshold were higher by t / 2.
    moved = score - rule.threshold - margin / 2
    before, after = score > rule.threshold, margin > 0
    return {
        "base_score": score,
        "base_decision": classes[before.astype(int)],
        "threshold": rule.threshold + moved,
        "correction": moved,
        "decision": classes[after.astype(int)],
        "changed": before != after,
    }


def _classes(rule: ClassRule, inputs: Inputs, classes: NDArray[Any]) -> dict[str, Any]:
    p = rule.base_probability(inputs)
    utility = p if rule.costs is None else -p @ rule.costs
    margin = rule.margin_of(inputs.numbers, p)
    before, after = (best_action(one[:, 1:] - one[:, :1]) for one in (utility, margin))
    shift = (utility - margin)[np.arange(len(p)), after]
    return {
        "base_score": p.max(1),
        "base_decision": classes[before],
        "correction": -shift,
        "decision": classes[after],
        "changed": before != after,
    }


def changes(before: NDArray[Any], after: NDArray[Any], X: pd.DataFrame | None = None) -> dict[str, Any]:
    """How many decisions the correction changed, in which direction, and for which ranges of features.

    Parameters
    ----------
    before, after : ndarray (n,)
        Codes of decisions, or predicted numbers.
    X : DataFrame, optional
        Public features. Of those whose ranges differ most in the share of changed rows, ranges are listed.
    """
    is_number = np.asarray(before).dtype.kind == "f"
    shift = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    raised, lowered = int((shift > 0).sum()), int((shift < 0).sum())
    found: dict[str, Any] = {"rows": len(shift), "raised": raised, "lowered": lowered, "by_feature": []}
    if is_number:
        found |= {"mean_shift": float(np.abs(shift).mean())}
    if X is None or is_number:
        return found
    listed = [one for one in (_by_ranges(str(name), X[name], shift) for name in X.columns) if one is not None]
    listed.sort(key=lambda one: -one.pop("apart"))
    return found | {"by_feature": listed[:FEATURES]}


def _by_ranges(name: str, column: pd.Series, shift: Array) -> dict[str, Any] | None:
    """Shares of raised and lowered decisions by range of one feature; None of a feature with one range."""
    if pd.api.types.is_numeric_dtype(column) and column.nunique() > RANGES:
        ranges = pd.qcut(column, RANGES, duplicates="drop")
        ends = column.groupby(ranges, observed=True).agg(["min", "max"])
        words = {
            one: f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}" for one, low, high in ends.itertuples()
        }
        label = ranges.map(words).astype(str).where(ranges.notna(), "missing")
    else:
        text = column.astype(str).where(column.notna(), "missing")
        label = text.where(text.isin(text.value_counts().index[: RANGES + 1]), "others")
    order = list(dict.fromkeys(label.iloc[np.argsort(column.rank().to_numpy(), kind="stable")]))
    if len(order) < 2:
        return None
    lines: list[dict[str, Any]] = []
    places = label.to_numpy()
    for one in order:
        own = shift[places == one]
        lines.append(
            {
                "range": one,
                "rows": len(own),
                "raised": int((own > 0).sum()),
                "lowered": int((own < 0).sum()),
            }
        )
    net = np.array([(one["raised"] - one["lowered"]) / one["rows"] for one in lines])
    weight = np.array([one["rows"] for one in lines], dtype=np.float64)
    apart = float(np.average((net - np.average(net, weights=weight)) ** 2, weights=weight))
    return {"feature": name, "ranges": lines, "apart": apart}
