"""The contract of every notion: ours, and two that a user might write."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from new_notion import BenefitParity
from torch import Tensor

from justitia.notions import (
    NOTIONS,
    AccuracyParity,
    Array,
    FairnessNotion,
    check_differentiable,
    check_notion,
    decision,
    get_notion,
)

SCORES = np.array([-2.5, -0.1, 0.0, 0.4, 3.0, 60.0, -60.0])
Y = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
TENSORS = torch.from_numpy(SCORES), torch.from_numpy(Y)


class FalseNegativeParity(FairnessNotion):
    """A user's notion: the same rate of missed positives in every group."""

    name = "false_negative_parity"
    event_names = ("y=1",)

    def events(self, y: Array) -> Array:
        return y[:, None]

    def h(self, scores: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(-scores)

    def h_exact(self, scores: Array, y: Array) -> Array:
        return np.asarray(1 - decision(scores))


ALL = [*(cls() for cls in NOTIONS.values()), AccuracyParity("error"), FalseNegativeParity(), BenefitParity()]
every_notion = pytest.mark.parametrize("notion", ALL, ids=lambda notion: type(notion).__name__)


@every_notion
def test_contract_notion_is_accepted(notion: FairnessNotion) -> None:
    check_notion(notion)
    check_differentiable(notion)
    assert get_notion(notion) is notion


@every_notion
def test_contract_shapes_are_n_by_events_and_n(notion: FairnessNotion) -> None:
    for n in (0, 1, 7):
        assert notion.events(Y[:n]).shape == (n, len(notion.event_names))
        assert notion.h(*(one[:n] for one in TENSORS)).shape == (n,)
        assert notion.h_exact(SCORES[:n], Y[:n]).shape == (n,)


@every_notion
def test_contract_h_gradient_of_a_row_is_nonzero_in_that_row_only(notion: FairnessNotion) -> None:
    jacobian = torch.autograd.functional.jacobian(lambda scores: notion.h(scores, TENSORS[1]), TENSORS[0])
    off_diagonal = jacobian - torch.diag(jacobian.diagonal())
    assert torch.equal(off_diagonal, torch.zeros_like(off_diagonal))
    assert (jacobian.diagonal()[:5] != 0).all()


@every_notion
def test_contract_row_order_moves_with_the_rows(notion: FairnessNotion) -> None:
    order = np.array([6, 2, 0, 5, 1, 4, 3])
    assert np.array_equal(notion.events(Y[order]), notion.events(Y)[order])
    assert torch.equal(notion.h(*(one[order] for one in TENSORS)), notion.h(*TENSORS)[order])
    assert np.array_equal(notion.h_exact(SCORES[order], Y[order]), notion.h_exact(SCORES, Y)[order])


@every_notion
def test_contract_h_exact_depends_on_the_decision_only(notion: FairnessNotion) -> None:
    assert np.array_equal(notion.h_exact(SCORES, Y), notion.h_exact(2 * decision(SCORES) - 1, Y))


@every_notion
def test_contract_h_exact_is_between_zero_and_one_and_of_ours_one_of_them(notion: FairnessNotion) -> None:
    found = notion.h_exact(SCORES, Y)
    assert ((found >= 0) & (found <= 1)).all()
    if notion.name in NOTIONS:
        assert set(found.tolist()) <= {0.0, 1.0}


@every_notion
def test_contract_h_keeps_the_type_of_the_scores(notion: FairnessNotion) -> None:
    assert notion.h(*(one.float() for one in TENSORS)).dtype == torch.float32
    assert notion.h_exact(SCORES.astype(np.float32), Y.astype(np.float32)).dtype == np.float32


def broken(**members: object) -> FairnessNotion:
    return type("Broken", (FalseNegativeParity,), members)()


BAD: dict[str, tuple[Callable[[], FairnessNotion], str]] = {
    "no name": (lambda: broken(name=""), "name has to be a non-empty string"),
    "event names in a list": (lambda: broken(event_names=["y=1"]), "event_names has to be a tuple"),
    "no event": (lambda: broken(event_names=()), "event_names has to be a tuple"),
    "labels read elsewhere": (lambda: broken(reads_labels_in="labels"), "reads_labels_in has to be"),
    "one event too many": (
        lambda: broken(event_names=("y=0", "y=1")),
        r"events has to return shape \(6, 2\), not \(6, 1\)",
    ),
    "events flat": (
        lambda: broken(events=lambda self, y: y),
        r"events has to return shape \(6, 1\), not \(6,\)",
    ),
    "events weighted": (
        lambda: broken(events=lambda self, y: y[:, None] / 2),
        "events has to hold 0 and 1 only",
    ),
    "events of other rows": (
        lambda: broken(events=lambda self, y: (y[:1] != y).astype(float)[:, None]),
        "events of a row has to depend on that row's label only",
    ),
    "h averaged": (
        lambda: broken(h=lambda self, s, y: torch.sigmoid(s).mean()),
        r"h has to return shape \(6,\)",
    ),
    "h of other rows": (
        lambda: broken(h=lambda self, s, y: s.softmax(0)),
        "h of a row has to depend on that row",
    ),
    "h hard": (lambda: broken(h=lambda self, s, y: (s > 0).float()), "h has to be differentiable in the scores"),
    "h constant": (lambda: broken(h=lambda self, s, y: 0 * s), "gradient that is not zero everywhere"),
    "h overflows": (lambda: broken(h=lambda self, s, y: s.exp()), "h has to be finite for every score"),
    "h_exact averaged": (lambda: broken(h_exact=lambda self, s, y: y.sum()), "h_exact has to return shape"),
    "h_exact infinite": (
        lambda: broken(h_exact=lambda self, s, y: np.where(y > 0, np.inf, 0.0)),
        "h_exact has to be finite",
    ),
    "h_exact unbounded": (
        lambda: broken(h_exact=lambda self, s, y: np.abs(s)),
        "h_exact has to stay between 0 and 1",
    ),
    "h_exact of other rows": (
        lambda: broken(h_exact=lambda self, s, y: decision(s - np.median(s, keepdims=True) if len(s) else s)),
        "h_exact of a row has to depend on that row only",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_contract_broken_notion_is_refused_in_one_sentence(case: str) -> None:
    make, message = BAD[case]
    check = check_differentiable if case.startswith("h ") else check_notion
    with pytest.raises(ValueError, match=message) as caught:
        check(make())
    assert str(caught.value).startswith("the notion Broken cannot be used: ")
    assert str(caught.value).count(".") == 1


def test_contract_class_instead_of_object_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="subclass FairnessNotion and pass an object of that class"):
        check_notion(FalseNegativeParity)  # type: ignore[arg-type]


class WrittenForTensors(FairnessNotion):
    """A user's notion of before 1.0, whose every method takes tensors."""

    name, event_names = "false_negative_parity", ("y=1",)

    def events(self, y: Tensor) -> Tensor:  # type: ignore[override]
        return y.unsqueeze(1)

    def h(self, scores: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(-scores)

    def h_exact(self, scores: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return 1 - (scores > 0).to(scores.dtype)


def test_contract_notion_that_is_written_for_tensors_is_called_with_arrays() -> None:
    adapted, ours = get_notion(WrittenForTensors()), FalseNegativeParity()
    check_notion(adapted)
    check_differentiable(adapted)
    assert (adapted.name, adapted.event_names) == (ours.name, ours.event_names)
    assert np.array_equal(adapted.events(Y), ours.events(Y))
    assert np.array_equal(adapted.h_exact(SCORES, Y), ours.h_exact(SCORES, Y))
    assert torch.equal(adapted.h(*TENSORS), ours.h(*TENSORS))
    assert torch.equal(adapted.h_score(*TENSORS), ours.h_score(*TENSORS))
