r"""The paper's own accountant for the ``pf-ld-as-published`` engine: Rényi divergences of the sampled Gaussian.

This is what the paper *claims* (section "Privacy Analysis", Theorems 4 and 5, Lemmas 1 and 2). It does not
establish the guarantee for the published algorithm: the noise is not scaled to the loss gradient of the same batch,
so the batch can be recognised and sampling hides nothing; and the curve is the one for adding or removing a
row, while our neighbours substitute an attribute. ``docs/proofs.md`` shows both;
`epsilon_without_amplification` gives what remains.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy import special

from justitia.privacy.accounting import GaussianCost, gaussian_epsilon, private_end

ORDERS: tuple[int, ...] = (*range(2, 65), *range(68, 129, 4), *range(136, 257, 8), *range(272, 513, 16))


def renyi_sampled_gaussian(sample_rate: float, noise_multiplier: float, order: int) -> float:
    r"""Rényi divergence of integer ``order`` of the sampled Gaussian under add or remove (Theorem 4).

    .. math:: D_\alpha\big[(1-q) N(0, \sigma^2) + q N(1, \sigma^2) \,\|\, N(0, \sigma^2)\big] =
        \frac{1}{\alpha - 1} \log \sum_{k=0}^{\alpha} \binom{\alpha}{k} (1-q)^{\alpha-k} q^k
        e^{k(k-1)/(2\sigma^2)}

    The theorem prints both directions; this one is never the smaller (Mironov, Talwar, Zhang 2019, Theorem
    5). The paper's definition of the divergence prints 1/(1 - alpha) where 1/(alpha - 1) is meant.
    """
    GaussianCost(noise_multiplier)
    if not 0.0 < sample_rate <= 1.0:
        raise ValueError(f"sample_rate must lie in (0, 1], got {sample_rate!r}.")
    if order < 2 or order != int(order):
        raise ValueError(f"order must be an integer of at least 2, got {order!r}.")
    if sample_rate == 1.0:
        return order / (2 * noise_multiplier**2)
    k = np.arange(order + 1)
    log_binomial = special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
    log_rates = (order - k) * math.log1p(-sample_rate) + k * math.log(sample_rate)
    terms = log_binomial + log_rates + k * (k - 1) / (2 * noise_multiplier**2)
    return max(0.0, float(special.logsumexp(terms)) / (order - 1))


def published_epsilon(
    *,
    epochs: int,
    batches_per_epoch: float,
    sample_rate: float,
    sigma_p: float,
    sigma_d: float,
    delta: float,
    orders: Sequence[int] = ORDERS,
) -> float:
    r"""Epsilon that the paper claims for T epochs of PF-LD.

    Theorem 5 and the conversion after it, minimised over the order:

    .. math:: \frac{T n}{|B|} \varepsilon_p(\alpha) + T \varepsilon_d(\alpha)
        + \frac{\log 1/\delta}{\alpha - 1}

    with epsilon_p at q = |B|/n (Lemma 1) and epsilon_d at q = 1 (Lemma 2).

    Parameters
    ----------
    epochs : int
        T.
    batches_per_epoch : float
        n / |B|, the primal steps of one epoch.
    sample_rate : float
        q = |B| / n.
    sigma_p, sigma_d : float
        Noise multipliers of the primal and of the dual step.
    delta : float
        In (0, 1).
    """
    _check_run(epochs, batches_per_epoch, delta)

    def claim(order: int) -> float:
        primal = epochs * batches_per_epoch * renyi_sampled_gaussian(sample_rate, sigma_p, order)
        dual = epochs * renyi_sampled_gaussian(1.0, sigma_d, order)
        return primal + dual + math.log(1 / delta) / (order - 1)

    return min(claim(order) for order in orders)


@cache  # a search over thousands of divergences, the same for every fold of a table
def published_noise(
    *,
    epochs: int,
    batches_per_epoch: float,
    sample_rate: float,
    epsilon: float,
    delta: float,
    dual_ratio: float = 1.0,
) -> float:
    """Multiplier sigma_p, with sigma_d = dual_ratio * sigma_p, at which the paper claims (epsilon, delta).

    Rounded up, to a relative precision of 1e-10. The paper leaves the ratio open; at 1 the dual releases,
    which are not sampled, take nearly the whole budget.
    """
    if not epsilon > 0.0 or not dual_ratio > 0.0:
        raise ValueError(f"epsilon and dual_ratio must be positive, got {epsilon!r} and {dual_ratio!r}.")

    def is_claimed(sigma_p: float) -> bool:
        claim = published_epsilon(
            epochs=epochs,
            batches_per_epoch=batches_per_epoch,
            sample_rate=sample_rate,
            sigma_p=sigma_p,
            sigma_d=dual_ratio * sigma_p,
            delta=delta,
        )
        return claim <= epsilon

    high = 1.0
    while not is_claimed(high):
        high *= 2.0
        if high > 2.0**40:
            least = math.log(1 / delta) / (ORDERS[-1] - 1)
            raise ValueError(f"epsilon must exceed {least:.3g}, the floor of this accountant, got {epsilon!r}.")
    return private_end(is_claimed, 0.0, high, 1e-10)


def epsilon_without_amplification(*, epochs: int, sigma_p: float, sigma_d: float, delta: float) -> float:
    """Epsilon of the published releases once the batches are known, by exact Gaussian composition.

    A person's row enters one primal and one dual release per epoch, so mu^2 = T / sigma_p^2 + T / sigma_d^2;
    ``sigma_d=math.inf`` leaves the dual releases out. The sensitivities are taken as published.
    """
    _check_run(epochs, 1.0, delta)
    if not (sigma_p > 0.0 and sigma_d > 0.0):
        raise ValueError(f"sigma_p and sigma_d must be positive, got {sigma_p!r} and {sigma_d!r}.")
    return gaussian_epsilon(math.sqrt(epochs / sigma_p**2 + epochs / sigma_d**2), delta)


def _check_run(epochs: int, batches_per_epoch: float, delta: float) -> None:
    if epochs < 1 or batches_per_epoch < 1:
        raise ValueError(f"a run needs at least one epoch and one batch, got {epochs!r} and {batches_per_epoch!r}.")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie in (0, 1) for Gaussian noise, got {delta!r}.")
