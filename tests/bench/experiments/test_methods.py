"""The table of methods: fresh estimators, recipes, and the cells of every experiment."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bench.experiments import memory
from bench.experiments.__main__ import ALIASES, EXPERIMENTS
from bench.experiments.choose import CANDIDATES
from bench.experiments.methods import LATER, METHODS, applies, make, recipe
from bench.experiments.runner import Cell
from bench.experiments.steps import CANDIDATES as STEPS
from bench.experiments.table2 import OTHERS
from justitia.datasets import make_synthetic

CELL = Cell("toy", "bank", "demographic_parity", "PF-LD repaired", 3, seed=1, epsilon=2.0)


@cache
def cells_of(name: str, *, quick: bool) -> list[Cell]:
    """Cells of an experiment; they are frozen."""
    return EXPERIMENTS[name].cells(quick=quick)


def test_make_gives_a_fresh_estimator_with_the_cells_settings() -> None:
    cell = replace(CELL, settings={"tolerance": 0.05, "clip": 2.0, "missing": 0.2})
    model = make(cell, ("a", "b"))
    assert model is not make(cell, ("a", "b"))
    assert (model.tolerance, model.plan.clip, model.epsilon, model.random_state) == (0.05, 2.0, 2.0, 8)
    assert (model.groups, model.engine, model.noise_seed) == (("a", "b"), "gradients", cell.noise_seed)


def test_make_printed_method_without_privacy_has_infinite_epsilon() -> None:
    model = make(replace(CELL, method="F-LD"), ("a", "b"))
    assert (model.engine, model.epsilon) == ("printed", float("inf"))


@pytest.mark.parametrize(
    ("method", "knob"), [("M", "difference_bound"), ("DP-FERMI", "strength"), ("RaCO-DP", "slack")]
)
def test_make_private_rival_has_the_budget_the_groups_and_both_seeds_of_the_cell(method: str, knob: str) -> None:
    cell = replace(CELL, method=method, settings={knob: 0.04})
    model = make(cell, ("a", "b"))
    assert (model.notion, model.epsilon, model.groups) == ("demographic_parity", 2.0, ("a", "b"))
    assert (model.random_state, model.noise_seed) == (8, cell.noise_seed)
    assert getattr(model if method == "M" else model.plan, knob) == 0.04


@pytest.mark.parametrize("method", METHODS)
def test_recipe_names_every_parameter_and_no_address(method: str) -> None:
    cell = replace(CELL, method=method)
    text = recipe(cell)
    assert text == recipe(cell)
    assert " at 0x" not in text
    params = make(cell, ()).get_params(deep=False)
    assert all(f"{name}=" in text for name, value in params.items() if (name, value) not in LATER)


@pytest.mark.parametrize("method", METHODS)
def test_knob_of_a_method_is_one_of_its_settings(method: str) -> None:
    for value in METHODS[method].sweep:
        cell = replace(CELL, method=method, settings={METHODS[method].knob: value})
        assert recipe(cell) != recipe(replace(CELL, method=method, settings={METHODS[method].knob: value + 1}))


def test_zafar_applies_to_two_groups_only() -> None:
    names = ("bank", "income", "compas", "m_bank3", "m_bank5")
    assert [applies("Z", name, "demographic_parity") for name in names] == [True] * 3 + [False] * 2


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
def test_cells_of_an_experiment_have_keys_of_their_own(name: str, quick: bool) -> None:
    cells = cells_of(name, quick=quick)
    assert len({cell.key for cell in cells}) == len(cells) > 0
    assert {cell.experiment for cell in cells} == {name}
    assert all(cell.recipe for cell in cells)


#: Their quick form asks for fewer runs of the same kind.
FEWER_RUNS = ("audit", "trial")


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in FEWER_RUNS])
def test_quick_form_is_a_small_part_of_the_full_one(name: str) -> None:
    full, quick = ({cell.key for cell in cells_of(name, quick=flag)} for flag in (False, True))
    assert quick < full
    assert len(quick) <= len(full) / 4


@pytest.mark.parametrize("name", FEWER_RUNS)
def test_quick_form_of_audits_has_a_tenth_of_the_runs_and_no_cell_of_the_full_one(name: str) -> None:
    full, quick = (cells_of(name, quick=flag) for flag in (False, True))
    assert not {cell.key for cell in quick} & {cell.key for cell in full}
    counts = [sum(cell.settings["runs"] for cell in cells) for cells in (quick, full)]
    assert counts[0] <= counts[1] / 10


def test_table2_has_every_method_in_all_cells_it_applies_to() -> None:
    cells = cells_of("table2", quick=False)
    counts = {method: sum(cell.method == method for cell in cells) for method in {cell.method for cell in cells}}
    curves_alone = {"FairGBM", "LDP optimal"}  # of the frontier
    assert counts == dict.fromkeys(set(METHODS) - curves_alone, 75) | {"Z": 45}
    assert cells[0].dataset == "income"  # long ones first


def test_search_effort_is_the_same_for_every_method_of_the_paper_and_smaller_for_the_two_others() -> None:
    assert {len(CANDIDATES[method]) for method in set(CANDIDATES) - set(OTHERS)} == {8}
    assert {len(CANDIDATES[method]) for method in set(CANDIDATES) & set(OTHERS)} == {6}
    # The printed method has its own choice, with one step per kind of h as its authors have.
    assert (len(STEPS["dual_step"]), len(STEPS["loss_dual_step"])) == (5, 3)
    # With the settings of A, with those of the printed method, with its defaults.
    others = {"A-net", "F-LD", "PF-LD printed", "PF-LD moments", "PF-LD plug-in", "LinearPost", "LDP"}
    others |= {"LDP optimal", "FairGBM"}  # FairGBM's step by a trial of its own
    assert set(CANDIDATES) == set(METHODS) - others
    names = ("choose", "steps", "reasons", "scores")
    assert all(cell.split == "inner" for name in names for cell in cells_of(name, quick=False))


def test_methods_the_paper_does_not_print_are_private_and_have_no_column() -> None:
    assert [(METHODS[name].private, METHODS[name].column) for name in OTHERS] == [(True, "")] * 3


def test_strength_of_fermi_is_swept_up_to_one_hundred() -> None:
    method = METHODS["DP-FERMI"]
    assert (method.knob, max(method.sweep)) == ("strength", 100.0)


def test_aliases_lead_to_experiments() -> None:
    assert set(ALIASES.values()) <= set(EXPERIMENTS)


def test_shared_base_is_the_default_one_learned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_synthetic(400, random_state=0)
    cell = replace(CELL, method="PF-LD plug-in")
    learned: list[int] = []
    real = memory.LightGBMBase
    monkeypatch.setattr(memory, "_known", {})
    monkeypatch.setattr(memory, "LightGBMBase", lambda n, *more, **named: learned.append(n) or real(n, *more, **named))
    given = {"sensitive_features": data.sensitive}
    shared = [
        make(one, data.groups).fit(data.X, data.y, **given) for one in (cell, replace(cell, notion="equalized_odds"))
    ]
    alone = make(cell, data.groups).set_params(base=None).fit(data.X, data.y, **given)
    assert learned == [400]
    assert np.array_equal(shared[0].decision_function(data.X), alone.decision_function(data.X))
    other = make(replace(cell, fold=4), data.groups).fit(data.X, data.y, **given)
    assert learned == [400, 400]
    assert not np.array_equal(other.decision_function(data.X), alone.decision_function(data.X))
