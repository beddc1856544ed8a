"""Engine ``pf-ld-as-published`` against Equations 10 and 13, Theorems 1 and 2 and lines 5 and 6, worked out by hand.

The network is one weight of 1, so a person's feature is their score and, times the slope of h, their gradient.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from as_published_cases import PUBLISHED, Silent, make_vault, public
from torch import nn

from asking import asked, opened
from justitia.networks.pf_ld_as_published.engine import PFLDAsPublishedEngine
from justitia.notions import AccuracyParity, DemographicParity, EqualizedOdds, FairnessNotion
from justitia.training.lagrangian import Problem

LOG3 = math.log(3)
LIMIT = 0.75


@dataclass(frozen=True)
class ByHand:
    """People, multipliers by group and event, clipping bounds C_p and C_d, and what the paper's lines give for them.

    ``primal`` is Delta_p by the multipliers of the moment and by their limit, ``smallest`` the smallest group term.
    """

    name: str
    notion: FairnessNotion
    reading: Literal["score", "probability"]
    features: tuple[float, ...]
    labels: tuple[int, ...]
    groups: str
    lam: tuple[tuple[float, ...], ...]
    bounds: tuple[float, float]
    term: float
    primal: tuple[float, float]
    violation: tuple[tuple[float, ...], ...]
    smallest: int = 2


FIVE = {"labels": (1, 0, 1, 0, 1), "groups": "aabbb", "lam": ((0.5,), (0.25,))}
LOSS1 = math.log(4 / 3)
CASES = (
    # h = 1, 3 | 2, 6, 13, so is its gradient; means 5 | 2 | 7. Clipped at C_p = 4: means 2 | 10/3; at C_d = 5: 2 | 4.
    # Term: + 1/2 (5 - 2) - 1/4 (5 - 10/3). Delta_p: 4/2/1 + 4/4/2 by the multipliers, 2 * 4 * 0.75 / 1 by their limit.
    ByHand(
        "demographic parity, score",
        DemographicParity(),
        "score",
        (1.0, 3.0, 2.0, 6.0, 13.0),
        **FIVE,
        bounds=(4.0, 5.0),
        term=1.5 - 5 / 12,
        primal=(2.5, 6.0),
        violation=((3.0,), (1.0,)),
    ),
    # h = 3/4, 3/4 | 3/4, 1/4, 1/4, means 11/20 | 3/4 | 5/12; its gradient is +-g, g = 3/16 log 3 = 0.206, mean g/5.
    # Clipped at C_p = 0.1: means 0.1 | -0.1/3; h clipped at C_d = 1/2: 1/2 | 1/3.
    # Term: - 1/2 (g/5 - 0.1) + 1/4 (g/5 + 0.1/3). Delta_p: 0.1/2/1 + 0.1/4/2, or 2 * 0.1 * 0.75 / 1.
    ByHand(
        "demographic parity, probability",
        DemographicParity(),
        "probability",
        (LOG3, LOG3, LOG3, -LOG3, -LOG3),
        **FIVE,
        bounds=(0.1, 0.5),
        term=0.05 + 0.1 / 12 - 3 / 16 * LOG3 / 20,
        primal=(0.0625, 0.15),
        violation=((0.05,), (13 / 60,)),
    ),
    # Among y = 0: h = 1, 3 | 5, 7, means 4 | 2 | 6; among y = 1: 2, 4 | 3, 6, 9, means 24/5 | 3 | 6.
    # Clipped at C_p = 4: 2 | 4 and 3 | 11/3; at C_d = 5: 2 | 5 and 3 | 13/3.
    # Term: + 1/2 (4 - 2) - 1/10 (4 - 4) + 1/4 (24/5 - 3) - 1/5 (24/5 - 11/3).
    # Delta_p is the larger of the events' 4/2/1 + 4/10/1 and 4/4/1 + 4/5/2: who moves stays in their event.
    ByHand(
        "equalized odds, score",
        EqualizedOdds(),
        "score",
        (1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 3.0, 6.0, 9.0),
        (0, 0, 0, 0, 1, 1, 1, 1, 1),
        "aabbaabbb",
        ((0.5, 0.25), (0.1, 0.2)),
        (4.0, 5.0),
        1.0 + 0.45 - 0.2 * 17 / 15,
        (2.4, 6.0),
        ((2.0, 1.8), (1.0, 7 / 15)),
    ),
    # Loss log 4/3 where score and label agree, log 4 = log 4/3 + log 3 where not; slope -1/4, 3/4, -3/4, 1/4 by case.
    # h: agree, agree | not, not, agree: means above log 4/3: 2/5 log 3 | 0 | 2/3 log 3. Gradients in log 3:
    # -1/4, -1/4 | 3/4, 3/4, -1/4, mean 0.15; clipped at C_p = 1/2: -log 3 / 4 | (1 - log 3 / 4) / 3.
    # Term: + 1/2 (0.15 + 1/4) log 3 - 1/4 (0.15 log 3 - (1 - log 3 / 4) / 3). At C_d = 1 log 4 becomes 1.
    ByHand(
        "accuracy parity, loss",
        AccuracyParity(),
        "score",
        (LOG3, LOG3, LOG3, -LOG3, -LOG3),
        (1, 1, 0, 1, 0),
        "aabbb",
        ((0.5,), (0.25,)),
        (0.5, 1.0),
        0.2 * LOG3 - 0.0375 * LOG3 + (1 - LOG3 / 4) / 12,
        (0.3125, 0.75),
        ((0.4 * LOG3,), (abs(2 / 3 * (LOSS1 - 1) + 0.4 * LOG3),)),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("noise_by", ["multipliers", "lambda_max"])
def test_as_published_is_equations_10_and_13_worked_out_by_hand(case: ByHand, noise_by: Any) -> None:
    X = np.array(case.features)[:, None]
    y = np.array(case.labels, dtype=np.float64)
    (C_p, C_d), noise = case.bounds, Silent()
    plan = replace(PUBLISHED, h=case.reading, noise_by=noise_by, C_p=C_p, C_d=C_d, lambda_max=LIMIT)
    plan = replace(plan, sigma_p=2.0, sigma_d=0.1, dual_step=0.1, loss_dual_step=0.1)
    engine = PFLDAsPublishedEngine(
        plan, Problem(X, y, np.ones_like(y), case.notion), make_vault(list(case.groups), noise), **public()
    )
    opened(engine)
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(model.weight)
    lam = np.array(case.lam)
    term = engine.constraint(model, lam, torch.arange(len(y)))
    gap = asked(engine, X[:, 0])
    assert term is not None
    assert gap is not None
    assert term.tolist() == pytest.approx([case.term], rel=1e-12)
    assert [pytest.approx(row, rel=1e-12) for row in case.violation] == gap.tolist()
    dual = math.sqrt(2) * C_d / (case.smallest - 1)
    assert noise.scales == pytest.approx([2 * case.primal[noise_by == "lambda_max"], 0.1 * dual])
    # Lines 5 and 6: lambda + 0.1 * violation, at most 0.75.
    expected = np.minimum(lam + 0.1 * np.array(case.violation), LIMIT)
    assert engine.ascend(lam, gap, 1).flatten().tolist() == pytest.approx(expected.flatten().tolist(), rel=1e-12)


def test_as_published_dual_step_stops_at_the_limit_and_at_zero() -> None:
    # 0.7 + 0.1 * 3 is beyond 0.75; 0.1 - 0.1 * 2 is below 0.
    engine = PFLDAsPublishedEngine(
        replace(PUBLISHED, lambda_max=LIMIT, dual_step=0.1),
        Problem(np.zeros((2, 1)), np.zeros(2), np.ones(2), DemographicParity()),
        make_vault(["a", "b"]),
        **public(),
    )
    lam = np.array([[0.7], [0.1]])
    gap = np.array([[3.0], [-2.0]])
    assert engine.ascend(lam, gap, 1).flatten().tolist() == pytest.approx([0.75, 0.0])
