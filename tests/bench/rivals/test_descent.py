"""What DP-FERMI and RaCO-DP share: exact tables, planned cost, refusals before any budget is spent, seeds."""

import math
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from asking import with_plan
from bench.rivals.descent import DescentClassifier, decision_rows, soft_decisions, table_gaps
from bench.rivals.fermi import FermiClassifier, FermiPlan
from bench.rivals.histogram import HistogramClassifier, HistogramPlan
from justitia import BudgetExceeded, PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.exceptions import LargeDeltaWarning
from justitia.notions import NOTIONS, DemographicParity, get_notion

DATA = make_synthetic(300, n_features=3, random_state=0)
SMALL = {"module": (4,), "private_steps": 3, "public_steps": 2, "warmup_steps": 20, "batch_size": 64, "averaging": 0.5}
PLANS = {FermiClassifier: FermiPlan, HistogramClassifier: HistogramPlan}
both_methods = pytest.mark.parametrize("kind", [FermiClassifier, HistogramClassifier])
TABLES = {FermiClassifier: "cross term", HistogramClassifier: "histogram of decisions"}


def make(kind: type[DescentClassifier], **changes: Any) -> DescentClassifier:
    usual = {"epsilon": 2.0, "groups": DATA.groups, "random_state": 0, "noise_seed": 0}
    return with_plan(kind, PLANS[kind], **SMALL | usual | changes)


def fitted(kind: type[DescentClassifier], sensitive: Any = DATA.sensitive, **changes: Any) -> DescentClassifier:
    return make(kind, **changes).fit(DATA.X, DATA.y, sensitive_features=sensitive)


# The table


def test_table_gaps_by_hand_exact_table_gives_the_groups_gaps() -> None:
    # Group 0 decides 0.9 and 0.5; group 1 decides 0.1; one person is in no group and decides 0.5. Everybody: 0.5.
    h, events = np.array([0.9, 0.5, 0.1, 0.5]), np.ones((4, 1))
    rows = decision_rows(h, events)
    table = np.stack([rows[:2].sum(0), rows[2]])
    gaps = table_gaps(table, np.array([0.5]), np.array([[2.0], [1.0]]))
    assert np.allclose(gaps, [[0.2], [-0.4]])


def test_table_gaps_wrong_size_scales_the_gap_and_shifts_nothing() -> None:
    table, population = np.array([[5.0, 15.0]]), np.array([0.25])
    assert table_gaps(table, population, np.array([[10.0]])).item() == pytest.approx(0.0, abs=1e-12)


def test_decision_rows_put_a_row_into_the_columns_of_its_event() -> None:
    events = np.array([[1.0, 0.0], [0.0, 1.0]])
    rows = decision_rows(np.array([0.25, 1.0]), events)
    assert rows.tolist() == [[0.25, 0.0, 0.75, 0.0], [0.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize("name", list(NOTIONS))
def test_soft_decisions_are_probabilities_that_harden_with_the_temperature(name: str) -> None:
    scores, y = torch.tensor([-60.0, -0.5, 0.5, 60.0]), torch.tensor([0.0, 1.0, 0.0, 0.0])
    soft = soft_decisions(name).h(scores, y)
    hard = soft_decisions(name, temperature=1e3).h(scores, y)
    assert bool(((soft >= 0) & (soft <= 1)).all())
    assert np.allclose(hard.numpy(), get_notion(name).h_exact(scores.numpy(), y.numpy()))


# What it costs


@both_methods
def test_ledger_holds_what_was_planned_and_the_certificate_says_epsilon(kind: type[DescentClassifier]) -> None:
    model = fitted(kind)
    purposes = Counter(release.purpose for release in model.ledger_.releases)
    assert purposes == {"group sizes": 1, TABLES[kind]: 3, "group gradient": 3}
    assert purposes == {planned.purpose: planned.count for planned in model.plan_.releases()}
    assert Counter(model.ledger_.costs()) == model.plan_.costs()
    assert model.certificate_.epsilon == pytest.approx(2.0, rel=1e-6)
    assert model.certificate_.epsilon <= 2.0
    assert (model.certificate_.delta, model.certificate_.groups) == (1e-5, DATA.groups)
    assert "mu-GDP" in model.certificate_.accountant


@both_methods
def test_shares_split_the_budget(kind: type[DescentClassifier]) -> None:
    model = fitted(kind, share_sizes=0.2, share_violations=0.3, share_gradients=0.5)
    costs = [(one.count, one.noise.noise_multiplier) for one in model.plan_.releases()]
    spent = [count / multiplier**2 for count, multiplier in costs]
    assert np.allclose(np.array(spent) / sum(spent), [0.2, 0.3, 0.5])


@both_methods
def test_epsilon_infinite_is_certified_as_no_guarantee(kind: type[DescentClassifier]) -> None:
    assert math.isinf(fitted(kind, epsilon=math.inf).certificate_.epsilon)


@both_methods
def test_budget_that_is_too_small_refuses_before_anything_is_asked(kind: type[DescentClassifier]) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetExceeded, match="would bring epsilon to 2"):
        make(kind).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert ledger.releases == ()


@both_methods
def test_ledger_that_is_shared_pays_for_two_fits(kind: type[DescentClassifier]) -> None:
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-5)
    for _ in range(2):
        model = make(kind).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert model.ledger_ is ledger
    assert len(ledger.releases) == 14
    assert 2.0 < model.certificate_.epsilon <= 4.0


@both_methods
def test_engine_that_asks_more_than_planned_is_a_defect(
    kind: type[DescentClassifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.rivals.descent.DescentPlan.costs", lambda _: Counter())
    with pytest.raises(RuntimeError, match="does not hold what the plan announced"):
        fitted(kind, epsilon=math.inf)


# People and groups


@both_methods
@pytest.mark.parametrize("notion", list(NOTIONS))
def test_missing_attributes_and_a_group_without_members_are_fitted(kind: type[DescentClassifier], notion: str) -> None:
    silent = DATA.sensitive.astype(object).where(np.arange(300) % 3 > 0, None)
    model = fitted(kind, silent, notion=notion, groups=["a", "b", "nobody"])
    assert np.isfinite(model.decision_function(DATA.X)).all()
    assert model.dual_.shape == (3, len(get_notion(notion).event_names))
    assert np.isfinite(model.dual_.to_numpy()).all()


@both_methods
def test_attribute_that_nobody_gave_is_fitted(kind: type[DescentClassifier]) -> None:
    model = fitted(kind, pd.Series([None] * 300), epsilon=math.inf)
    assert np.isfinite(model.decision_function(DATA.X)).all()


@both_methods
def test_single_group_read_off_the_data_is_compared_with_everybody(kind: type[DescentClassifier]) -> None:
    labels = DATA.sensitive.astype(object).where(DATA.sensitive == "a", None)
    model = fitted(kind, labels, groups=None, epsilon=math.inf)
    assert model.certificate_.groups == ("a",)
    assert float(model.dual_.iloc[0, 0]) != 0


# Input


@both_methods
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0.0}, "epsilon to be a number above 0"),
        ({"delta": 0.0}, "delta=0 rules out Gaussian noise"),
        ({"delta": 1.0}, "delta to be at least 0 and below 1"),
        ({"notion": "parity"}, "no notion 'parity'"),
        ({"private_steps": 0}, "private_steps to be at least 1"),
        ({"batch_size": 0}, "batch_size to be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate to be a finite number above 0"),
        ({"memory": 1.0}, "memory to be at least 0 and below 1"),
        ({"averaging": 0.0}, "averaging to be above 0 and at most 1"),
        ({"clip": -1.0}, "clip to be a finite number above 0"),
        ({"share_sizes": 0.5}, "add up to 1; got 1.46"),
        ({"noise_seed": -1}, "noise_seed to be at least 0"),
        ({"preprocess": "automatic"}, "did you mean 'auto'"),
        ({"random_state": "zero"}, "random_state to be a non-negative int"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_wrong_parameter_is_refused_in_one_sentence_before_any_budget_is_spent(
    kind: type[DescentClassifier], parameters: dict[str, Any], message: str
) -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    with pytest.raises(ValueError, match=message) as caught:
        make(kind, **parameters).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=ledger)
    assert "\n" not in str(caught.value)
    assert ledger.releases == ()


class Invented(DemographicParity):
    name = "invented"


@both_methods
def test_notion_of_ones_own_is_refused_because_its_h_need_not_be_a_probability(kind: type[DescentClassifier]) -> None:
    with pytest.raises(ValueError, match=r"expected one of the notions .* got Invented"):
        fitted(kind, notion=Invented())


@both_methods
def test_sensitive_column_among_the_features_is_refused(kind: type[DescentClassifier]) -> None:
    with pytest.raises(ValueError, match="'x0' is both a feature and a sensitive attribute"):
        fitted(kind, DATA.X[["x0"]], groups="infer")


@both_methods
def test_attribute_of_another_length_is_refused(kind: type[DescentClassifier]) -> None:
    with pytest.raises(ValueError, match="X has 300, sensitive_features has 299"):
        fitted(kind, DATA.sensitive[1:])


@both_methods
def test_ledger_of_another_type_is_refused(kind: type[DescentClassifier]) -> None:
    with pytest.raises(TypeError, match="PrivacyLedger, got 'float'"):
        make(kind).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive, ledger=1.0)


@both_methods
def test_large_delta_is_warned_of(kind: type[DescentClassifier]) -> None:
    with pytest.warns(LargeDeltaWarning):
        fitted(kind, delta=0.01)


@both_methods
def test_refit_that_fails_leaves_the_fitted_model(kind: type[DescentClassifier]) -> None:
    model = fitted(kind)
    before = model.predict_proba(DATA.X)
    with pytest.raises(ValueError, match="two classes"):
        model.fit(DATA.X.iloc[:, :2], np.zeros(300), sensitive_features=DATA.sensitive)
    assert np.array_equal(model.predict_proba(DATA.X), before)


# Seeds and surface


@both_methods
def test_same_seeds_give_the_same_answer_and_another_noise_seed_does_not(kind: type[DescentClassifier]) -> None:
    first, again, other = fitted(kind), fitted(kind), fitted(kind, noise_seed=1)
    assert np.array_equal(first.decision_function(DATA.X), again.decision_function(DATA.X))
    assert first.history_.equals(again.history_)
    assert not np.array_equal(first.decision_function(DATA.X), other.decision_function(DATA.X))
    assert "so it promises nothing" in first.certificate_.noise


@both_methods
def test_noise_comes_from_the_operating_system_unless_seeded(kind: type[DescentClassifier]) -> None:
    first, again = fitted(kind, noise_seed=None), fitted(kind, noise_seed=None)
    assert "operating system" in first.certificate_.noise
    assert not np.array_equal(first.decision_function(DATA.X), again.decision_function(DATA.X))


@both_methods
def test_global_random_state_of_torch_is_left_alone(kind: type[DescentClassifier]) -> None:
    before = torch.get_rng_state()
    fitted(kind)
    assert torch.equal(torch.get_rng_state(), before)


@both_methods
def test_pickle_of_a_fitted_model_holds_no_vault_and_predicts_the_same(kind: type[DescentClassifier]) -> None:
    model = fitted(kind)
    stored = pickle.dumps(model)
    assert b"SensitiveVault" not in stored
    assert np.array_equal(pickle.loads(stored).predict(DATA.X), model.predict(DATA.X))


@both_methods
def test_clone_keeps_every_parameter_and_nothing_fitted(kind: type[DescentClassifier]) -> None:
    model = fitted(kind, memory=0.5)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "module_")


@both_methods
def test_history_has_a_row_per_round_and_labels_of_any_kind_are_learnt(kind: type[DescentClassifier]) -> None:
    model = make(kind, warmup_steps=200).fit(DATA.X, np.array(["no", "yes"])[DATA.y], sensitive_features=DATA.sensitive)
    assert model.history_["round"].tolist() == [0, 1, 2, 3]
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.score(DATA.X, np.array(["no", "yes"])[DATA.y]) > DATA.truth.accuracy - 0.1
