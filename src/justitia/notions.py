r"""Which rows are compared and what is averaged: the fairness notions of the paper.

A notion is a set of equality constraints between a population and its groups (Equation 1 of the paper),

.. math:: E_{z \sim D_{P_k}}[h(z)] - E_{z \sim D_{G_k}}[h(z)] = 0,

so it has to say two things: which rows belong to the population :math:`D_{P_k}` of each event k, and what h
is. The group term :math:`D_{G_k}` is the part of :math:`D_{P_k}` with one value of the sensitive attribute; a
notion never sees it. Every score is a logit, so the decision is ``scores > 0`` and the soft decision is
``sigmoid(scores)``.

A notion of your own is a subclass with `events` and `h_exact`, which take and return numpy arrays, and `h`, which
takes and returns torch tensors and is needed only where a network is trained. :func:`check_notion` checks it.

For targets with more classes a notion gives a :class:`RateTable` (method `rates`): which labels belong to the event of
each rate, and what a decision adds to it. Two classes have one too, made of `events` and `h_exact`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from justitia._validate import check_choice

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[Any]
#: How h(z) = M(z) is read where a notion averages decisions: the network's output, or its sigmoid.
Reading = Literal["score", "probability"]
READINGS: tuple[Reading, ...] = ("score", "probability")


@dataclass(frozen=True, eq=False)
class RateTable:
    """Rates that groups are compared by: averages over the rows of an event of a value by label and decision.

    Attributes
    ----------
    events : ndarray (Y, K)
        1 where rows of a label belong to the event of a rate, 0 elsewhere.
    values : ndarray (Y, L, K)
        What a row of each label adds to each rate if it gets each of the L actions, between 0 and 1.
    names : tuple of str
        Of the K rates.
    """

    events: NDArray[np.float64]
    values: NDArray[np.float64]
    names: tuple[str, ...]

    @classmethod
    def joined(cls, tables: Sequence[RateTable]) -> RateTable:
        """The rates of several tables, side by side."""
        if len(tables) == 1:
            return tables[0]
        events = np.concatenate([one.events for one in tables], axis=1)
        values = np.concatenate([one.values for one in tables], axis=2)
        return cls(events, values, tuple(name for one in tables for name in one.names))

    def within(self, strata: Sequence[object]) -> RateTable:
        """The same rates within each of S public strata, of S Y labels: stratum by stratum, all labels."""
        labels, count, rates = len(self.events), len(strata), len(self.names)
        events = np.zeros((count, labels, count, rates))
        values = np.broadcast_to(self.values[None, :, :, None], (count, *self.values.shape[:2], count, rates))
        for s in range(count):
            events[s, :, s] = self.events
        names = tuple(f"{stratum}: {name}" if rates > 1 else str(stratum) for stratum in strata for name in self.names)
        shape = (count * labels, values.shape[2], count * rates)
        return RateTable(events.reshape(count * labels, -1), values.reshape(shape).copy(), names)

    def in_all(self, strata: int) -> RateTable:
        """The same rates for S Y labels, over all strata."""
        return RateTable(np.tile(self.events, (strata, 1)), np.tile(self.values, (strata, 1, 1)), self.names)


class FairnessNotion(ABC):
    """One family of constraints between population and groups.

    Attributes
    ----------
    name : str
        How tables and reports call the notion.
    event_names : tuple of str
        One name per event, in the order of the columns of :meth:`events`.
    reads_labels_in : {"nothing", "events", "h"}
        Where labels enter: nowhere, in the choice of rows, or in what is averaged, as errors do. The default network
        for small samples depends on it.
    within_strata : bool
        Whether groups are compared within public strata, which ``fit`` is given.
    is_fraction : bool
        Whether groups are compared by the first of two rates divided by the second.
    """

    name: str
    event_names: tuple[str, ...]
    reads_labels_in: Literal["nothing", "events", "h"] = "events"
    within_strata: bool = False
    is_fraction: bool = False

    @abstractmethod
    def events(self, y: Array) -> Array:
        """Membership of the population of each event, from the labels only.

        Parameters
        ----------
        y : ndarray (n,)
            Labels, 0.0 or 1.0.

        Returns
        -------
        ndarray (n, K)
            1.0 where the row belongs to the event, 0.0 elsewhere.
        """

    def h(self, scores: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - no gradient by default
        """Return the differentiable h, for the primal step of a network; row i may depend on row i only.

        Parameters
        ----------
        scores : Tensor of shape (n,)
            Logits.
        y : Tensor of shape (n,)
            Labels, 0.0 or 1.0.

        Returns
        -------
        Tensor of shape (n,)
        """
        raise TypeError(
            f"the notion {type(self).__name__} has no differentiable h, which training a network needs; define h, or "
            "use the default engine."
        )

    def h_score(self, scores: Tensor, y: Tensor) -> Tensor:
        r"""Return h with the paper's :math:`M_\theta(z)` read as the raw score; shapes are those of :meth:`h`.

        The same as :meth:`h`, unless that is a soft decision.
        """
        return self.h(scores, y)

    def h_read_as(self, reading: Reading) -> Callable[[Tensor, Tensor], Tensor]:
        """Return :meth:`h_score` or :meth:`h`, by the name of the reading."""
        return self.h_score if reading == "score" else self.h

    @abstractmethod
    def h_exact(self, scores: Array, y: Array) -> Array:
        """Return what h stands for, on hard decisions, between 0 and 1: for the dual step and the metrics.

        Parameters and result are arrays of shape (n,). The bound of 1 is what one row can add to a
        group's sum, which is why a notion has to keep it.
        """

    def rates(self, classes: Sequence[object] = (0, 1)) -> RateTable:
        """The table of the notion's rates for these classes; a notion of your own has one for two classes.

        Raises
        ------
        ValueError
            If the notion says nothing about so many classes, or averages something else than decisions.
        """
        if len(classes) != 2:
            raise ValueError(
                f"expected a notion for {len(classes)} classes, got {self.name!r}, which is about two; use "
                "'demographic_parity', 'equalized_odds', 'equal_opportunity' or 'accuracy_parity', or merge classes."
            )
        events, h = np.asarray(self.events(np.array([0.0, 1.0])), dtype=np.float64), self.decision_values()
        values = np.repeat(h[:, :, None], events.shape[1], axis=2)
        return RateTable(events, values, self.event_names)

    def decision_values(self) -> NDArray[np.float64]:
        """(2, 2): h_exact by label and decision.

        Raises
        ------
        ValueError
            If the notion averages something else than a function of decision and label.
        """
        sizes, signs, y = (0.01, 1.0, 30.0), (-1.0, 1.0), np.array([0.0, 1.0])
        values = np.empty((len(sizes), 2, 2))
        for i, size in enumerate(sizes):
            for j, sign in enumerate(signs):
                values[i, :, j] = self.h_exact(sign * size * np.ones(2), y)
        if not (values == values[0]).all():
            raise ValueError(
                f"expected a notion whose h_exact depends on a score through its sign, got {type(self).__name__}; "
                "use engine 'moments'."
            )
        by_label: NDArray[np.float64] = values[0]
        return by_label


def _by_class(classes: Sequence[object], *, of_label: bool) -> RateTable:
    """Rate of every class as the decision, among all rows or among those of every label."""
    count = len(classes)
    picked = np.eye(count)  # (L, K)
    if not of_label:
        values = np.broadcast_to(picked, (count, count, count)).copy()
        return RateTable(np.ones((count, count)), values, tuple(str(one) for one in classes))
    names = tuple(f"y={label}, decision {one}" for label in classes for one in classes)
    values = np.broadcast_to(np.tile(picked, count), (count, count, count * count)).copy()
    return RateTable(np.repeat(np.eye(count), count, axis=1), values, names)


def decision(scores: Array) -> Array:
    """Hard decision 1[score > 0], in the type of the scores."""
    return (scores > 0).astype(scores.dtype)


def _labelled(y: Array, *labels: int) -> Array:
    return np.stack([(y == label).astype(y.dtype) for label in labels], axis=1)


class PositiveDecisions(FairnessNotion):
    """Notions whose h is the decision: they differ in the rows that are compared."""

    def h(self, scores: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - errors need it
        """Probability of a positive decision."""
        return scores.sigmoid()

    def h_score(self, scores: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        """The score itself."""
        return scores

    def h_exact(self, scores: Array, y: Array) -> Array:  # noqa: ARG002
        """Positive decision."""
        return (scores > 0).astype(scores.dtype)


@dataclass(frozen=True)
class DemographicParity(PositiveDecisions):
    r"""Same rate of positive decisions in every group.

    Example 1 of the paper: :math:`|\mathcal{A}|` constraints with :math:`h(z) = M_\theta(z)`,
    :math:`D_{P_i} = \{(X, Y) : (X, A, Y) \in D\}` and
    :math:`D_{G_i} = \{(X, Y) : (X, A, Y) \in D \wedge A = i\}`.
    """

    name = "demographic_parity"
    event_names = ("all",)
    reads_labels_in = "nothing"

    def events(self, y: Array) -> Array:
        """Every row."""
        return np.ones_like(y)[:, None]

    def rates(self, classes: Sequence[object] = (0, 1)) -> RateTable:
        """Positive decisions or, of more than two classes, decisions for each class."""
        return super().rates(classes) if len(classes) == 2 else _by_class(classes, of_label=False)


@dataclass(frozen=True)
class EqualizedOdds(PositiveDecisions):
    r"""Same rate of positive decisions in every group, among each label.

    Example 2 of the paper: :math:`2|\mathcal{A}|` constraints with :math:`h(z) = M_\theta(z)`; for each
    :math:`y \in \{0, 1\}`, :math:`D_{P_i} = \{(X, Y) : (X, A, Y) \in D \wedge Y = y\}` and
    :math:`D_{G_i} = \{(X, Y) : (X, A, Y) \in D \wedge Y = y \wedge A = i\}`.
    """

    name = "equalized_odds"
    event_names = ("y=0", "y=1")

    def events(self, y: Array) -> Array:
        """Rows of label 0, rows of label 1."""
        return _labelled(y, 0, 1)

    def rates(self, classes: Sequence[object] = (0, 1)) -> RateTable:
        """Positive decisions or, of more than two classes, decisions for each class, among each label."""
        return super().rates(classes) if len(classes) == 2 else _by_class(classes, of_label=True)


@dataclass(frozen=True)
class EqualOpportunity(PositiveDecisions):
    """Same true positive rate in every group: the half of equalized odds with y = 1."""

    name = "equal_opportunity"
    event_names = ("y=1",)

    def events(self, y: Array) -> Array:
        """Rows of label 1."""
        return _labelled(y, 1)

    def rates(self, classes: Sequence[object] = (0, 1)) -> RateTable:
        """True positives or, of more than two classes, right decisions among each label."""
        if len(classes) == 2:
            return super().rates(classes)
        right = np.eye(len(classes))
        values = np.broadcast_to(right, (len(classes), *right.shape)).copy()
        return RateTable(right, values, tuple(f"y={one}" for one in classes))


@dataclass(frozen=True)
class PredictiveEquality(PositiveDecisions):
    """Same false positive rate in every group: the half of equalized odds with y = 0."""

    name = "predictive_equality"
    event_names = ("y=0",)

    def events(self, y: Array) -> Array:
        """Rows of label 0."""
        return _labelled(y, 0)


@dataclass(frozen=True)
class AccuracyParity(FairnessNotion):
    r"""Same misclassification rate in every group.

    Example 3 of the paper: :math:`|\mathcal{A}|` constraints with :math:`h(z) = L_\theta(M_\theta(z))`, the
    loss of the training problem, and the populations and groups of demographic parity.

    Parameters
    ----------
    surrogate : {"loss", "error"}
        What the primal step differentiates: the paper's binary cross-entropy, which has no upper bound, or
        the expected error :math:`|y - \mathrm{sigmoid}(s)|`, which stays between 0 and 1.
    """

    surrogate: Literal["loss", "error"] = "loss"

    name = "accuracy_parity"
    event_names = ("all",)
    reads_labels_in = "h"

    def __post_init__(self) -> None:
        check_choice("surrogate", self.surrogate, ("loss", "error"))

    def events(self, y: Array) -> Array:
        """Every row."""
        return np.ones_like(y)[:, None]

    def h(self, scores: Tensor, y: Tensor) -> Tensor:
        """Binary cross-entropy, or the probability of an error."""
        from torch.nn import functional  # noqa: PLC0415 - whoever has tensors has torch

        y = y.to(scores.dtype)
        if self.surrogate == "loss":
            return functional.binary_cross_entropy_with_logits(scores, y, reduction="none")
        # |y - sigmoid(s)| for y in {0, 1}, written without the kink of the absolute value.
        return ((1 - 2 * y) * scores).sigmoid()

    def h_exact(self, scores: Array, y: Array) -> Array:
        """Wrong decision."""
        wrong: Array = ((scores > 0) != (y > 0.5)).astype(scores.dtype)
        return wrong

    def rates(self, classes: Sequence[object] = (0, 1)) -> RateTable:
        """Wrong decisions."""
        return RateTable(np.ones((len(classes), 1)), 1 - np.eye(len(classes))[:, :, None], self.event_names)


@dataclass(frozen=True)
class ConditionalDemographicParity(DemographicParity):
    """Same rate of positive decisions (or of each class) in every group within each public stratum, an income band say.

    Strata are given to ``fit``. Only the default engine holds this notion.
    """

    name = "conditional_demographic_parity"
    within_strata = True


@dataclass(frozen=True)
class PredictiveParity(PositiveDecisions):
    """Same precision in every group: the share of positive decisions that are right. Of two classes.

    Precision is a fraction of two rates, P(right and positive | a) and P(positive | a). Only the default engine holds
    this notion.
    """

    name = "predictive_parity"
    event_names = ("right", "positive")
    is_fraction = True

    def events(self, y: Array) -> Array:
        """Every row, twice."""
        return np.ones((len(y), 2), dtype=y.dtype)

    def rates(self, classes: Sequence[object] = (0, 1)) -> RateTable:
        """Positive decisions that are right, and all positive decisions."""
        super().rates(classes)  # of two classes
        values = np.zeros((2, 2, 2))
        values[1, 1, 0] = 1.0
        values[:, 1, 1] = 1.0
        return RateTable(np.ones((2, 2)), values, self.event_names)


NOTIONS: dict[str, type[FairnessNotion]] = {
    "demographic_parity": DemographicParity,
    "equalized_odds": EqualizedOdds,
    "equal_opportunity": EqualOpportunity,
    "predictive_equality": PredictiveEquality,
    "accuracy_parity": AccuracyParity,
}


#: Notions that only the default engine holds: they need public strata, or are fractions of two rates.
DEFAULT_ENGINE_NOTIONS: dict[str, type[FairnessNotion]] = {
    "conditional_demographic_parity": ConditionalDemographicParity,
    "predictive_parity": PredictiveParity,
}

#: Names that fairlearn gives to the same differences between groups, and ours. A rate and the rate of its complement,
#: such as true positives and false negatives, differ by the same amount between two groups.
FAIRLEARN_NAMES = {
    "selection_rate_parity": "demographic_parity",
    "true_positive_rate_parity": "equal_opportunity",
    "false_negative_rate_parity": "equal_opportunity",
    "false_positive_rate_parity": "predictive_equality",
    "true_negative_rate_parity": "predictive_equality",
    "error_rate_parity": "accuracy_parity",
}


def notion_name(notion: Any) -> str:
    """Our name of a notion, also of one that was given by fairlearn's; several are joined by plus signs."""
    if isinstance(notion, list | tuple):
        return " + ".join(notion_name(one) for one in notion)
    return FAIRLEARN_NAMES.get(notion, notion) if isinstance(notion, str) else notion.name


def get_notion(notion: str | FairnessNotion) -> FairnessNotion:
    """Return the notion of that name, ours or fairlearn's, or the notion itself once :func:`check_notion` accepts it.

    Raises
    ------
    TypeError, ValueError
        If there is no such notion, or if a notion of your own breaks the contract.
    """
    if not isinstance(notion, FairnessNotion):
        # Fairlearn's names are choices too, so that a slip in one of them is not answered with another rate.
        known = NOTIONS | DEFAULT_ENGINE_NOTIONS
        name = check_choice("notion", notion, (*known, *FAIRLEARN_NAMES))
        return known[FAIRLEARN_NAMES.get(name, name)]()
    if type(notion) not in (NOTIONS | DEFAULT_ENGINE_NOTIONS).values():
        notion = _with_arrays(notion)
        check_notion(notion)
    return notion


def get_notions(notion: Any) -> list[FairnessNotion]:
    """The notions of a name, of an object, or of a list of these.

    Raises
    ------
    TypeError, ValueError
        As :func:`get_notion`, and for an empty list.
    """
    if not isinstance(notion, list | tuple):
        return [get_notion(notion)]
    if not notion:
        raise ValueError("expected at least one notion, got an empty list; pass 'demographic_parity', say.")
    found = [get_notion(one) for one in notion]
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise ValueError(f"expected each notion once, got {names}; leave the repeated one out.")
    return found


class _TensorNotion(FairnessNotion):
    """A notion whose `events` and `h_exact` are written for torch tensors, called with arrays."""

    def __init__(self, notion: FairnessNotion) -> None:
        self._notion = notion
        self.name, self.event_names = notion.name, notion.event_names
        self.reads_labels_in = notion.reads_labels_in

    def events(self, y: Array) -> Array:
        return _on_tensors(self._notion.events, y)

    def h_exact(self, scores: Array, y: Array) -> Array:
        return _on_tensors(self._notion.h_exact, scores, y)

    def h(self, scores: Tensor, y: Tensor) -> Tensor:
        return self._notion.h(scores, y)

    def h_score(self, scores: Tensor, y: Tensor) -> Tensor:
        return self._notion.h_score(scores, y)


def _on_tensors(function: Callable[..., Any], *arrays: Array) -> Array:
    import torch  # noqa: PLC0415 - the notion is written for it

    found: Array = function(*(torch.from_numpy(np.ascontiguousarray(one)) for one in arrays)).detach().numpy()
    return found


def _with_arrays(notion: FairnessNotion) -> FairnessNotion:
    """The notion itself if it takes arrays; one written for tensors, as every notion was before 1.0, is adapted."""
    if "torch" not in sys.modules:  # then nobody can have written it for tensors
        return notion
    y = np.array(_LABELS, dtype=np.float32)
    try:
        found: Any = notion.events(y), notion.h_exact(np.array(_SCORES, dtype=np.float32), y)
    except (TypeError, AttributeError):
        return _TensorNotion(notion)
    return _TensorNotion(notion) if any(hasattr(one, "detach") for one in found) else notion


# Six public rows, both labels on both sides of the threshold; two scores are large enough to overflow a
# careless log.
_SCORES = (-2.0, -0.5, 0.3, 1.7, 200.0, -200.0)
_LABELS = (0.0, 1.0, 1.0, 0.0, 0.0, 1.0)


def check_notion(notion: FairnessNotion) -> None:
    """Check that a notion keeps the contract that the solver and the metrics rely on.

    * `events` gives 0 or 1 for each row and each event name, from that row's label only;
    * `h_exact` gives one number between 0 and 1 per row, and depends on that row only.

    :func:`check_differentiable` checks what training a network needs besides.

    Raises
    ------
    TypeError
        If `notion` is not a :class:`FairnessNotion`.
    ValueError
        For the first part of the contract that is broken.
    """
    if not isinstance(notion, FairnessNotion):
        raise TypeError(
            f"expected an instance of a FairnessNotion subclass, got {type(notion).__name__!r}; "
            "subclass FairnessNotion and pass an object of that class."
        )
    scores, y = np.array(_SCORES, dtype=np.float32), np.array(_LABELS, dtype=np.float32)
    _check_names(notion)
    _check_events(notion, y)
    _check_rows(notion, "h_exact", lambda rows: (scores[rows], y[rows]))
    exact = np.asarray(notion.h_exact(scores, y))
    _require(notion, bool(((exact >= 0) & (exact <= 1)).all()), "h_exact has to stay between 0 and 1; rescale it")


def check_differentiable(notion: FairnessNotion) -> None:
    """Check that `h` and `h_score` give one finite number per row, and that `h` can be differentiated.

    Raises
    ------
    TypeError, ValueError
        If the notion has no `h`, or for the first part of the contract that is broken.
    """
    import torch  # noqa: PLC0415 - whoever trains a network has it

    scores, y = torch.tensor(_SCORES), torch.tensor(_LABELS)
    for method in ("h", "h_score"):
        _check_rows(notion, method, lambda rows: (scores[rows], y[rows]))
    leaf = scores.clone().requires_grad_()
    total = notion.h(leaf, y).sum()
    _require(notion, total.requires_grad, "h has to be differentiable in the scores; use a soft decision")
    (gradient,) = torch.autograd.grad(total, leaf, allow_unused=True)
    usable = gradient is not None and bool(gradient.isfinite().all()) and bool((gradient != 0).any())
    _require(notion, usable, "h has to have a finite gradient that is not zero everywhere; use a soft decision")


def _require(notion: FairnessNotion, condition: bool, rule: str) -> None:
    if not condition:
        raise ValueError(f"the notion {type(notion).__name__} cannot be used: {rule}.")


def _check_names(notion: FairnessNotion) -> None:
    name, events = getattr(notion, "name", None), getattr(notion, "event_names", None)
    _require(notion, isinstance(name, str) and name != "", "name has to be a non-empty string; set it")
    named = isinstance(events, tuple) and len(events) > 0 and all(isinstance(event, str) for event in events)
    _require(notion, named, "event_names has to be a tuple with one string per event; set it")
    placed = notion.reads_labels_in in {"nothing", "events", "h"}
    _require(notion, placed, "reads_labels_in has to be 'nothing', 'events' or 'h'; set it, or leave it out")


def _check_events(notion: FairnessNotion, y: Array) -> None:
    k = len(notion.event_names)
    for rows in (y, y[:0]):
        shape = np.shape(notion.events(rows))
        wanted = (len(rows), k)
        _require(
            notion,
            shape == wanted,
            f"events has to return shape {wanted}, not {shape}; use one column per name",
        )
    events = np.asarray(notion.events(y))
    _require(notion, bool(((events == 0) | (events == 1)).all()), "events has to hold 0 and 1 only; compare labels")
    alone = np.concatenate([notion.events(y[i : i + 1]) for i in range(len(y))])
    _require(notion, np.array_equal(events, alone), "events of a row has to depend on that row's label only")


def _check_rows(notion: FairnessNotion, method: str, rows: Callable[[slice], tuple[Any, Any]]) -> None:
    """One finite number per row that depends on that row only; arrays and tensors alike."""

    def values(part: slice) -> Array:
        found = getattr(notion, method)(*rows(part))
        return np.asarray(found.detach() if hasattr(found, "detach") else found)

    for n in (len(_LABELS), 0):
        shape = values(slice(n)).shape
        _require(notion, shape == (n,), f"{method} has to return shape {(n,)}, not {shape}; do not average")
    found = values(slice(None))
    _require(
        notion,
        bool(np.isfinite(found).all()),
        f"{method} has to be finite for every score; use a stable formula",
    )
    alone = np.concatenate([values(slice(i, i + 1)) for i in range(len(_LABELS))])
    _require(notion, np.allclose(found, alone), f"{method} of a row has to depend on that row only")
