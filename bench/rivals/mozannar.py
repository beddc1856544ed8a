"""Mozannar et al. (2020): randomised response on the attribute, Agarwal's reduction, correction for the noise."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state

from bench.rivals.agarwal import Mixture, MixtureClassifier, Predictor, check_reduction, import_reductions
from bench.rivals.classifier import all_or_nothing
from bench.rivals.debiasing import DebiasedGaps, debiased_gaps, visible_share
from justitia._validate import check_nonnegative, check_positive
from justitia.notions import FairnessNotion
from justitia.preprocessing.tables import public_seed
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.mechanisms import HiddenNoiseSeed, RandomizedResponse
from justitia.privacy.vault import ledger_or_new, local_vault, named_groups, noise_from

#: Weights below this are the solver's round-off.
ROUND_OFF = 1e-9
SOLVER_PRECISION = 1e-7


def best_weights(
    errors: NDArray[np.float64], estimated: DebiasedGaps, *, difference_bound: float, noise_slack: float
) -> NDArray[np.float64]:
    r"""Weights w of the mixture with the smallest error among those whose de-biased gaps are small.

    .. math:: \min_{w \ge 0,\, \sum_j w_j = 1} \; \sum_j w_j \, err_j  \quad\text{subject to}\quad
        \Big|\sum_j w_j g_{cj}\Big| \le \mathit{difference\_bound} + \mathit{noise\_slack} \sum_j w_j s_{cj} + t
        \;\; \text{for every cell } c.

    t is the smallest number for which such weights exist, found by a first linear program. It is 0 if a classifier of
    gap 0 is among those to mix: for demographic parity and equalized odds the two constants are such; for accuracy
    parity there may be none, and the mixture then comes as near to the bound as it can.

    Raises
    ------
    RuntimeError
        If the solver gives up.

    Warns
    -----
    ConvergenceWarning
        If t is above 0.
    """
    cells, m = estimated.gaps.shape
    sides = np.concatenate([estimated.gaps, -estimated.gaps]) - noise_slack * np.tile(estimated.noise, (2, 1))
    bound = np.full(2 * cells, difference_bound)
    with_excess = np.column_stack([sides, -np.ones(2 * cells)])
    excess = _solve(np.append(np.zeros(m), 1.0), with_excess, bound, mixed=m)[-1]
    if excess > ROUND_OFF + SOLVER_PRECISION:
        warnings.warn(
            "expected a mixture whose de-biased gaps meet difference_bound, found none and took the nearest; raise "
            "difference_bound, noise_slack or epsilon.",
            ConvergenceWarning,
            stacklevel=5,
        )
    # The solver meets constraints to about 1e-7; without that much room the second program may have no solution.
    weights = _solve(errors, sides, bound + excess + SOLVER_PRECISION, mixed=m)
    kept: NDArray[np.float64] = np.where(weights > ROUND_OFF, weights, 0.0)
    return kept / np.sum(kept, dtype=np.float64)


def _solve(
    cost: NDArray[np.float64], sides: NDArray[np.float64], bound: NDArray[np.float64], *, mixed: int
) -> NDArray[np.float64]:
    """Minimise ``cost @ x`` with ``sides @ x <= bound`` and x >= 0, where the first ``mixed`` entries add up to 1."""
    simplex = (np.arange(len(cost)) < mixed).astype(np.float64)[None]
    result = linprog(cost, A_ub=sides, b_ub=bound, A_eq=simplex, b_eq=[1.0], method="highs")
    if result.x is None or result.status != 0:
        raise RuntimeError(
            "expected the linear program of the second step to be solved, but the solver gave up with status "
            f"{result.status}; raise difference_bound or noise_slack."
        )
    solution: NDArray[np.float64] = result.x
    return solution


@dataclass(frozen=True)
class Correction:
    """The second step: new weights for the classifiers of the first, from randomised answers and what is public."""

    notion: FairnessNotion
    epsilon: float
    difference_bound: float
    noise_slack: float
    not_given: bool

    def run(
        self,
        first: Mixture,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        codes: NDArray[np.int64],
        *,
        n_groups: int,
    ) -> Mixture:
        """The best mixture of the classifiers of ``first`` and the two constant ones."""
        predictors = (*first.predictors, _constant(0, X), _constant(1, X))
        decisions = np.column_stack([predictor.predict(X) for predictor in predictors]).astype(np.float64)
        target = y.astype(np.float64)
        # h_exact looks at the side of the score only: -1 is a negative decision, 1 a positive one.
        values = [self.notion.h_exact(2 * column - 1, target) for column in decisions.T]
        events = self.notion.events(target)
        estimated = debiased_gaps(
            np.column_stack(values),
            events,
            codes,
            n_groups=n_groups,
            categories=n_groups + self.not_given,
            epsilon=self.epsilon,
        )
        errors = (decisions != y[:, None]).mean(axis=0)
        weights = best_weights(errors, estimated, difference_bound=self.difference_bound, noise_slack=self.noise_slack)
        return Mixture(predictors, weights)


def _constant(label: int, X: NDArray[np.float64]) -> Predictor:
    return DummyClassifier(strategy="constant", constant=label).fit(X[:2], [0, 1])


def split_halves(y: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two random halves of the rows with the same share of each label.

    Raises
    ------
    ValueError
        If a class has fewer than two rows, so that a half would lack it.
    """
    if np.bincount(y, minlength=2).min() < 2:
        raise ValueError(
            "expected at least 2 rows of each class for the two steps, got fewer; pass more rows, or use halves=False."
        )
    shuffled = check_random_state(seed).permutation(len(y))
    by_label = shuffled[np.argsort(y[shuffled], kind="stable")]
    return by_label[::2], by_label[1::2]


class MozannarClassifier(HiddenNoiseSeed, MixtureClassifier):
    r"""Reduction on randomised groups, corrected for the randomisation; private in the attribute.

    Everybody's attribute is sent through randomised response once (the only release); all else is computed from the
    answers Z, from features and from labels.

    1. *First step* (theirs): Agarwal's reduction with Z in the place of A. A classifier that treats the groups of Z
       exactly alike treats those of A alike, but a small gap in Z may be a large one in A.
    2. *Second step*: the rates of the true groups are estimated without bias by inverting the known matrix of the
       randomisation, and the classifier is changed so that the *estimated* gaps are small.

    In the original the second step derives a predictor that flips decisions with probabilities by group, and so reads
    the attribute at prediction. Here prediction never sees it, so the second step chooses anew the weights of the
    classifiers that the first step found, and of the two constant ones, by a linear program (:func:`best_weights`).
    That, the notions besides equalized odds, any number of groups, and "not given" as one more category of the
    randomised response are our extension; the two steps, the inversion and the split in halves are theirs.

    Parameters
    ----------
    notion : str or FairnessNotion
        One of the five named notions.
    epsilon : float
        Of the randomised response, and so of the whole; delta is 0.
    difference_bound : float
        The bound on each group's distance from the population. The second step holds the de-biased gaps to it, the
        first one the gaps of the randomised groups to as much of it as they can show (:func:`visible_share`): with a
        wider bound it would find too few classifiers to choose from. Without the second step, the bound as it is.
    base, max_iter
        As in :class:`AgarwalClassifier`.
    groups : sequence, mapping or None
        The public list of group labels. If None it is read off the data; the list itself is then not protected.
    correct : bool
        False leaves out the second step; the first then uses all rows.
    halves : bool
        True gives each step its own half of the rows, as their analysis has it: only then are the classifiers
        independent of the answers that the second step de-biases. False lets both use all rows: half the variance, at
        the price of a bias that grows with how well the base can remember single answers; for few parameters only.
    not_given : bool
        Whether "not given" is a category of the randomised response. False is for data that publicly is complete: the
        truth is told more often; should somebody's attribute be missing all the same, their answer is any group.
    noise_slack : float
        How many standard deviations of the known noise are added to the bound in the second step. With 0 the estimated
        gaps meet the bound, noise included, and where groups are small most of that is noise; more keeps accuracy and
        lets violations pass.
    preprocess, random_state
        As in :class:`justitia.LagrangianDualClassifier`. ``random_state`` also seeds the draws of ``predict``.
    noise_seed : int, optional
        Makes the randomised response reproducible for tables; the certificate then begins with saying that nothing is
        promised.

    Attributes
    ----------
    classes_, mixture_, prediction_seed_
        As in :class:`AgarwalClassifier`.
    ledger_ : PrivacyLedger
        One randomised response.
    certificate_ : Certificate

    Guarantee
    ---------
    * ``randomized_labels`` is the only question about the attribute, debited before it is answered; the model is
      post-processing of its answers, so with a given list of groups and no ``noise_seed`` it is
      (epsilon, 0)-differentially private in the attribute of any one row.

    Notes
    -----
    With c categories (the groups and, if ``not_given``, one more) the truth is told with probability
    e^epsilon / (e^epsilon + c - 1). In the first step people who seem not to have given their attribute take part in
    the loss and in no constraint.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        notion: str | FairnessNotion = "demographic_parity",
        *,
        epsilon: float = 1.0,
        difference_bound: float = 0.01,
        base: str = "logistic",
        groups: Any = None,
        correct: bool = True,
        halves: bool = True,
        not_given: bool = True,
        noise_slack: float = 0.0,
        max_iter: int = 50,
        preprocess: str | None = "auto",
        random_state: Any = None,
        noise_seed: int | None = None,
    ) -> None:
        self.notion = notion
        self.epsilon = epsilon
        self.difference_bound = difference_bound
        self.base = base
        self.groups = groups
        self.correct = correct
        self.halves = halves
        self.not_given = not_given
        self.noise_slack = noise_slack
        self.max_iter = max_iter
        self.preprocess = preprocess
        self.random_state = random_state
        self.noise_seed = noise_seed

    @all_or_nothing
    def fit(self, X: Any, y: Any, *, sensitive_features: Any, ledger: PrivacyLedger | None = None) -> Self:
        """Randomise the attribute, then train on the answers.

        Raises
        ------
        ValueError, TypeError
            For anything wrong that can be seen without the attribute, before any budget is spent.
        BudgetExceeded
            If the ledger cannot pay epsilon, before the attribute is asked.
        ImportError
            If fairlearn is not installed.
        """
        seed = public_seed(self.random_state)
        epsilon = check_positive("epsilon", self.epsilon)
        reduction = check_reduction(self, seed=seed)
        slack = check_nonnegative("noise_slack", self.noise_slack)
        not_given = bool(self.not_given)
        correction = Correction(reduction.notion, epsilon, reduction.difference_bound, slack, not_given)
        noise_from(self.noise_seed)
        named_groups(self.groups, epsilon)
        import_reductions()
        rows, target = self._arrays(X, y)
        everyone = np.arange(len(target))
        learn, adjust = split_halves(target, seed) if self.correct and self.halves else (everyone, everyone)
        ledger = ledger_or_new(ledger, epsilon=epsilon, delta=0.0)
        vault = self._vault(sensitive_features, epsilon=epsilon, ledger=ledger, n=len(rows), noise_seed=self.noise_seed)
        response = RandomizedResponse(epsilon)
        answers = local_vault(vault).randomized_labels(response, purpose="randomised groups", not_given=not_given)
        if self.correct:
            bound = reduction.difference_bound * visible_share(epsilon, vault.n_groups + not_given)
            reduction = replace(reduction, difference_bound=bound)
        mixture = reduction.run(rows[learn], target[learn], answers[learn], n_groups=vault.n_groups)
        if self.correct:
            mixture = correction.run(mixture, rows[adjust], target[adjust], answers[adjust], n_groups=vault.n_groups)
        return self._keep(mixture, seed, vault, ledger)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # random_state does not seed the randomised response, so two fits with the same random_state may differ
        tags.non_deterministic = self.noise_seed is None
        return tags
