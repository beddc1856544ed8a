r"""Lower bounds on epsilon from attack outcomes, each with its confidence; never a point estimate alone.

For every test between two neighbours an (epsilon, delta)-private mechanism has TPR <= e^epsilon FPR + delta, and the
same with the roles exchanged (Kairouz, Oh and Viswanath 2015); a mu-GDP one has
Phi^-1(TPR) - Phi^-1(FPR) <= mu (Dong, Roth and Su 2022). Rates are bounded exactly (Clopper and Pearson 1934).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from justitia.privacy.accounting import gaussian_epsilon, private_end

Floats = NDArray[np.float64]
#: Number of thresholds among which one is chosen.
CANDIDATES = 64
#: Largest bound on epsilon that is searched.
LARGEST_EPSILON = 50.0


def rates_below(hits: NDArray[np.int64], trials: int, alpha: float) -> Floats:
    """Lower Clopper-Pearson bounds of rates at level ``alpha``."""
    return np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), trials - hits + 1, alpha), 0.0)


def rate_below(hits: int, trials: int, alpha: float) -> float:
    """Lower Clopper-Pearson bound of one rate."""
    return float(rates_below(np.array(hits), trials, alpha))


def rate_above(hits: int, trials: int, alpha: float) -> float:
    """Upper Clopper-Pearson bound of one rate."""
    return 1.0 - rate_below(trials - hits, trials, alpha)


def epsilon_of_rates(tpr: float, fpr: float, delta: float) -> float:
    """Smallest epsilon that allows these rates at ``delta``, in either direction; 0 if none is needed."""
    found = [0.0]
    for high, low in ((tpr, fpr), (1 - fpr, 1 - tpr)):
        if high > delta:
            found.append(math.inf if low <= 0 else math.log((high - delta) / low))
    return max(found)


def mu_of_rates(tpr: float, fpr: float) -> float:
    """Smallest mu of Gaussian differential privacy that allows these rates; 0 if none is needed."""
    if tpr <= fpr or tpr <= 0 or fpr >= 1:
        return 0.0
    if tpr >= 1 or fpr <= 0:
        return math.inf
    quantile = NormalDist().inv_cdf
    return max(0.0, quantile(tpr) - quantile(fpr))


def mu_of_accuracy(accuracy: float) -> float:
    """Smallest mu that allows this share of right guesses where both neighbours are equally likely."""
    return mu_of_rates(accuracy, 1 - accuracy)


@dataclass(frozen=True)
class Evidence:
    """Outcomes of an attack on runs that nothing was chosen on, and what they prove.

    Guarantee
    ---------
    * With probability at least ``1 - alpha`` all bounds hold at once: a quarter of alpha is for each of the two rates,
      half for the share of right guesses.
    * ``mu`` bounds a mechanism that is mu-GDP for some mu, as Gaussian releases over all rows are together.
    """

    tested: int
    true_positives: int
    false_positives: int
    right: int
    alpha: float

    @property
    def tpr_low(self) -> float:
        """Lower bound on the true positive rate."""
        return rate_below(self.true_positives, self.tested, self.alpha / 4)

    @property
    def fpr_high(self) -> float:
        """Upper bound on the false positive rate."""
        return rate_above(self.false_positives, self.tested, self.alpha / 4)

    @property
    def accuracy_low(self) -> float:
        """Lower bound on the share of right guesses.

        The guesses of both hypotheses are as many, and their sum varies no more than that of equal chances
        (Hoeffding 1956).
        """
        return rate_below(self.right, 2 * self.tested, self.alpha / 2)

    @property
    def mu(self) -> float:
        """Lower bound on mu."""
        return max(mu_of_rates(self.tpr_low, self.fpr_high), mu_of_accuracy(self.accuracy_low))

    def binomial(self, delta: float) -> float:
        """Lower bound on epsilon at ``delta`` that assumes nothing about the mechanism."""
        return epsilon_of_rates(self.tpr_low, self.fpr_high, delta)

    def gaussian(self, delta: float) -> float:
        """Lower bound on epsilon at ``delta`` of a mechanism that is mu-GDP for some mu."""
        return math.inf if math.isinf(self.mu) else gaussian_epsilon(self.mu, delta)


def evidence(first: Floats, second: Floats, *, alpha: float, delta: float, known: Floats | None = None) -> Evidence:
    """Score runs under two neighbours and test what was chosen on some of them on the others.

    Parameters
    ----------
    first, second : ndarray (runs, d)
        Statistics of each run under either neighbour.
    alpha : float
        One minus the confidence.
    known : ndarray (d,), optional
        Weights of the best score, where the attacker knows them; learned ones take their place if they are clearly
        better. Without, the distances from the middle of both means are statistics too: neighbours may differ in how
        much they vary.

    Notes
    -----
    The first runs fit a direction, as many more choose between the scores and their thresholds, the others test: half
    of all runs, or three quarters of them where a score is known.
    """
    runs = min(len(first), len(second))
    if runs < 8:
        raise ValueError(f"expected at least 8 runs of each neighbour, got {runs}; raise runs.")
    part = runs // 4 if known is None else runs // 8
    fitting, choosing, testing = slice(0, part), slice(part, 2 * part), slice(2 * part, runs)
    if known is None:
        centre = (first[fitting].mean(0) + second[fitting].mean(0)) / 2
        first, second = (np.concatenate([one, np.abs(one - centre)], axis=1) for one in (first, second))
    chosen = learned = direction(first[fitting], second[fitting])
    if known is not None:
        rivals = (accuracy(first[choosing] @ weights, second[choosing] @ weights) for weights in (learned, known))
        chosen = learned if next(rivals) > next(rivals) + 1 / math.sqrt(part) else known
    low, high = first @ chosen, second @ chosen
    far = best_threshold(low[choosing], high[choosing], alpha=alpha, delta=delta)
    middle = halfway(low[choosing], high[choosing])
    return Evidence(
        tested=runs - 2 * part,
        true_positives=int((high[testing] > far).sum()),
        false_positives=int((low[testing] > far).sum()),
        right=int((high[testing] > middle).sum() + (low[testing] <= middle).sum()),
        alpha=alpha,
    )


def direction(first: Floats, second: Floats) -> Floats:
    """Difference of the means over the variance within, entry by entry; an entry that never varies decides alone."""
    difference = second.mean(0) - first.mean(0)
    variance = (second.var(0) + first.var(0)) / 2
    scale = np.abs(first).max(0) + np.abs(second).max(0)
    return np.asarray(difference / np.maximum(variance, 1e-12 * scale**2 + 1e-300))


def halfway(low: Floats, high: Floats) -> float:
    """Threshold in the middle between both means."""
    return float((low.mean() + high.mean()) / 2)


def accuracy(low: Floats, high: Floats) -> float:
    """Share of scores on their own side of the middle."""
    middle = halfway(low, high)
    return float(((high > middle).mean() + (low <= middle).mean()) / 2)


def best_threshold(low: Floats, high: Floats, *, alpha: float, delta: float) -> float:
    """Threshold with the largest bound on epsilon on these runs, which serve no other purpose."""
    both = np.unique(np.concatenate([low, high]))
    middles = (both[1:] + both[:-1]) / 2 if len(both) > 1 else both
    candidates = np.unique(np.quantile(middles, np.linspace(0, 1, CANDIDATES)))
    hits, alarms = ((scores[:, None] > candidates).sum(0) for scores in (high, low))
    tpr = rates_below(hits, len(high), alpha / 4)
    fpr = 1 - rates_below(len(low) - alarms, len(low), alpha / 4)
    odds = np.maximum((tpr - delta) / fpr, (1 - fpr - delta) / (1 - tpr))
    return float(candidates[odds.argmax()])


def one_run_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Chance of so many right guesses about independent coins at (epsilon, delta), at most.

    Steinke, Nasr and Jagielski (2023), Theorem 5.2: a binomial tail, plus delta times what failures can add to it.
    """
    law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    steps = np.arange(1, right + 1)
    reached = np.cumsum(law.pmf(right - steps)) / steps
    extra = float(reached.max()) if right else 0.0
    return min(1.0, float(law.sf(right - 1)) + 2 * canaries * delta * extra)


def one_run_epsilon(canaries: int, guesses: int, right: int, *, alpha: float, delta: float) -> float:
    """Largest epsilon that ``right`` of ``guesses`` about ``canaries`` coins refute at level ``alpha``; 0 if none."""
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"expected right <= guesses <= canaries, got {right}, {guesses} and {canaries}.")

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(canaries, guesses, right, epsilon, delta) <= alpha

    return private_end(refuted, LARGEST_EPSILON, 0.0, 1e-9) if refuted(0.0) else 0.0
