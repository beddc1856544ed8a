"""The default network and what users may pass instead."""

import numpy as np
import pytest
import torch
from torch import nn

from justitia import PFLDAsPublishedPlan, PFLDPlan
from justitia.networks.crossfitted import CrossFittedNetwork
from justitia.networks.default import evaluate, make_module
from justitia.networks.method import rehearse
from justitia.networks.multilayer import multilayer
from justitia.networks.piecewise import PiecewiseNetwork
from justitia.notions import get_notion

ROWS, PARITY = torch.zeros(10, 3), get_notion("demographic_parity")


def test_make_module_same_seed_same_weights_and_global_state_untouched() -> None:
    before = torch.get_rng_state()
    one, two, other = (make_module([4], ROWS, PARITY, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one[0].weight, two[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)
    assert torch.equal(before, torch.get_rng_state())


def test_make_module_own_module_is_copied() -> None:
    mine = nn.Linear(3, 1)
    made = make_module(mine, ROWS, PARITY, seed=0)
    assert made is not mine
    assert torch.equal(made.weight, mine.weight)


def test_make_module_function_is_given_the_number_of_inputs() -> None:
    made = make_module(lambda inputs: nn.Linear(inputs, 1), torch.zeros(10, 7), PARITY, seed=0)
    assert made.in_features == 7


def test_make_module_takes_the_default_network_only_where_no_module_is_asked_for() -> None:
    X, odds, errors = torch.randn(50, 3), get_notion("equalized_odds"), get_notion("accuracy_parity")
    assert isinstance(make_module(None, X, odds, seed=0, small_samples=True), PiecewiseNetwork)
    assert isinstance(make_module(None, X, errors, seed=0, small_samples=True), CrossFittedNetwork)
    assert str(make_module([4], X, odds, seed=0, small_samples=True)) == str(multilayer(3, [4]))
    assert str(make_module(None, X, odds, seed=0)) == str(multilayer(3, [8, 6]))


def test_evaluate_score_does_not_depend_on_the_other_rows() -> None:
    torch.manual_seed(0)
    module, X = multilayer(5, [16, 8]), torch.randn(64, 5)
    together = evaluate(module, X)
    alone = np.concatenate([evaluate(module, x) for x in X.split(1)])
    assert np.abs(together - alone).max() < 1e-14
    assert together == pytest.approx(module(X).detach().squeeze(1).numpy(), abs=1e-5)
    assert next(module.parameters()).dtype == torch.float32


def test_evaluate_own_module_switches_dropout_off() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.9), nn.Linear(4, 1)).train()
    X = torch.ones(5, 3)
    assert np.array_equal(evaluate(module, X), evaluate(module, X))


def test_rehearse_leaves_module_and_random_state_alone() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    weight, state = module[0].weight.clone(), torch.get_rng_state()
    rehearse(module, torch.ones(20, 3), torch.ones(20), PFLDPlan())
    assert torch.equal(module[0].weight, weight)
    assert module[0].weight.grad is None
    assert torch.equal(state, torch.get_rng_state())


class Cut(nn.Module):
    """Its scores have no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.layer(X).detach()


def test_rehearse_module_that_cannot_learn_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected Adam to take a step on the module, got '.*'; change the plan"):
        rehearse(Cut(), torch.ones(20, 3), torch.ones(20), PFLDPlan())


def test_make_module_takes_the_widths_of_the_engines_plan() -> None:
    X = torch.zeros(100, 6)
    made = make_module(None, X, PARITY, seed=0, widths=PFLDAsPublishedPlan().widths(6))
    assert str(made) == str(multilayer(6, [4, 3]))
    assert PFLDPlan().widths(6) is None
    assert str(make_module([5], X, PARITY, seed=0, widths=(4, 3))) == str(multilayer(6, [5]))
