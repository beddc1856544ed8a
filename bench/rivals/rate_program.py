r"""The best rule for given posteriors as a linear program: any number of classes, groups and rates.

Rate k of group a is the mean of ``averaged[y, l, k]`` over its rows with event k, where l is the decision: with
:math:`p_{iay} = p(a, y \mid x_i)`,

.. math:: r_{ak} = \sum_{i,y,l} e_{yk}\, v_{ylk}\, d_{il}\, p_{iay} \Big/ \sum_{i,y} e_{yk}\, p_{iay}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RateTable:
    """What is compared between groups.

    Parameters
    ----------
    events : ndarray (Y, K)
        1 where rows of class y belong to event k.
    averaged : ndarray (Y, L, K)
        What decision l for a row of class y adds to rate k.
    """

    events: Array
    averaged: Array

    def __add__(self, other: RateTable) -> RateTable:
        """Both lists of rates."""
        return RateTable(
            np.hstack([self.events, other.events]), np.concatenate([self.averaged, other.averaged], axis=2)
        )


def rate_table(notion: str | Sequence[str], n_classes: int) -> RateTable:
    """Rates of a notion, or of several at once, where decisions are classes 0 .. L - 1.

    Raises
    ------
    ValueError
        For a notion that has no such table.
    """
    if not isinstance(notion, str):
        tables = [rate_table(one, n_classes) for one in notion]
        return sum(tables[1:], start=tables[0])
    decided = np.eye(n_classes)  # decision l, rate of class k
    if notion == "demographic_parity":
        every = np.broadcast_to(decided, (n_classes, n_classes, n_classes))
        return RateTable(np.ones((n_classes, n_classes)), np.array(every))
    if notion == "equalized_odds":
        events = np.repeat(np.eye(n_classes), n_classes, axis=1)
        rates = np.tile(decided, (1, n_classes))
        return RateTable(events, events[:, None, :] * rates)
    if notion == "equal_opportunity" and n_classes == 2:
        table = rate_table("equalized_odds", 2)
        return RateTable(table.events[:, 3:], table.averaged[:, :, 3:])
    if notion == "accuracy_parity":
        return RateTable(np.ones((n_classes, 1)), 1 - decided[:, :, None])
    raise ValueError(f"expected a notion that compares decisions about {n_classes} classes, got {notion!r}.")


def prices(table: RateTable, joint: Array, lam: Array) -> Array:
    """(Y, L, G): what decision l costs for a row that is of class y and group a."""
    sizes = np.einsum("nya,yk->ak", joint, table.events) / len(joint)
    found: Array = np.einsum("yk,ylk,ak->yla", table.events, table.averaged, lam / np.maximum(sizes, 1e-9))
    return found


def solve_program(utility: Array, joint: Array, table: RateTable, tolerance: float) -> Array:
    """(G, K): multipliers of the rule with the largest utility whose rates differ by at most ``tolerance``.

    Each row has a distribution over decisions; a free centre per rate stays within half the tolerance of every group.
    The rule that the multipliers give decides by the largest utility less price.

    Parameters
    ----------
    utility : ndarray (n, L)
    joint : ndarray (n, Y, G)
        p(a, y | x).
    """
    (n, actions), (n_groups, n_rates) = utility.shape, (joint.shape[2], table.events.shape[1])
    sizes = np.einsum("nya,yk->ak", joint, table.events)
    rows = [
        sparse.csr_matrix((np.einsum("ny,yl->nl", joint[:, :, a], weight) / max(sizes[a, k], 1e-9)).reshape(1, -1))
        for a in range(n_groups)
        for k, weight in enumerate(np.moveaxis(table.events[:, None, :] * table.averaged, 2, 0))
    ]
    rates: Any = sparse.vstack(rows)
    centres = sparse.csr_matrix(np.tile(np.eye(n_rates), (n_groups, 1)))
    above: Any = sparse.hstack([rates, -centres])
    one_decision: Any = sparse.hstack(
        [sparse.kron(sparse.eye_array(n), np.ones((1, actions))), sparse.csr_matrix((n, n_rates))]
    )
    found = optimum(
        np.concatenate([-utility.ravel() / n, np.zeros(n_rates)]),
        above,
        tolerance / 2,
        (one_decision, np.ones(n)),
        bounds=[(0, None)] * (n * actions) + [(None, None)] * n_rates,
    )
    upper, lower = np.split(-found.ineqlin.marginals, 2)
    lam: Array = (upper - lower).reshape(n_groups, n_rates)
    return lam


def optimum(cost: Array, rows: Any, margin: float, equal: tuple[Any, Array], *, bounds: Any = (0, None)) -> Any:
    """The x with the least ``cost @ x`` such that every entry of ``rows @ x`` is within ``margin`` of 0.

    Parameters
    ----------
    rows : sparse matrix (m, number of unknowns)
    equal : (sparse matrix, ndarray)
        A and b of ``A @ x = b``.

    Raises
    ------
    RuntimeError
        If the solver does not find the optimum.
    """
    found: Any = linprog(
        cost,
        A_ub=sparse.vstack([rows, -rows]).tocsr(),
        b_ub=np.full(2 * rows.shape[0], margin),
        A_eq=equal[0].tocsr(),
        b_eq=equal[1],
        bounds=bounds,
        method="highs-ipm",  # a minute for 36,000 rows and 36 rates, where the simplex method takes ten
    )
    if found.status != 0:
        raise RuntimeError(f"expected the linear program to have an optimum, got: {found.message}")
    return found
