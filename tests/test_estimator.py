"""The classifier as a user meets it: data in, predictions, history and certificate out."""

import copy
import inspect
import math
import threading
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from torch import nn

from justitia import LagrangianDualClassifier, PFLDAsPublishedPlan, PFLDPlan, PrivacyLedger
from justitia.privacy.accounting import GaussianCost
from justitia.privacy.ledger import Release

pytestmark = pytest.mark.usefixtures("quick_fits")


def fitted(model: LagrangianDualClassifier, people: Any, **changes: Any) -> LagrangianDualClassifier:
    given = {"X": people.X, "y": people.y, "sensitive_features": people.a} | changes
    return model.fit(given.pop("X"), given.pop("y"), **given)


def quiet(model: LagrangianDualClassifier, people: Any, **changes: Any) -> list[str]:
    """Fit and return the text of every warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of earlier tests, collected meanwhile
        fitted(model, people, **changes)
    return [str(one.message) for one in caught]


# ------------------------------------------------------------------ data in


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array([-1, 1]),
        np.array([3, 7], dtype=np.uint8),
        np.array([False, True]),
        np.array([0.5, 1.5]),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_fit_any_two_labels_predicts_them(people: Any, make: Any, labels: Any) -> None:
    model = fitted(make(), people, y=labels[people.y])
    assert model.classes_.tolist() == labels.tolist()
    assert model.classes_.dtype == labels.dtype
    assert np.array_equal(model.predict(people.X), labels[fitted(make(), people).predict(people.X)])


@pytest.mark.parametrize(
    "container", [list, pd.Series, pl.Series, lambda y: pd.Series(y, dtype="category")], ids=["list", "pd", "pl", "cat"]
)
def test_fit_text_labels_in_any_container_give_the_same_model(people: Any, make: Any, container: Any) -> None:
    y = np.array(["no", "yes"])[people.y]
    model = fitted(make(), people, y=container(y))
    assert model.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(model.predict(people.X), fitted(make(), people, y=y).predict(people.X))


@pytest.mark.parametrize(
    ("table", "labels"),
    [
        (lambda X: pd.DataFrame(X, columns=["u", "v", "w"]), pd.Series),
        (lambda X: pl.DataFrame(X, schema=["u", "v", "w"]), pl.Series),
        (lambda X: X.tolist(), list),
        (lambda X: X.astype(object), lambda a: a.astype(object)),
    ],
    ids=["pandas", "polars", "lists", "objects"],
)
def test_fit_any_container_gives_the_numpy_model(people: Any, make: Any, table: Any, labels: Any) -> None:
    model = fitted(make(), people, X=table(people.X), sensitive_features=labels(people.a))
    expected = fitted(make(), people).decision_function(people.X)
    assert np.array_equal(model.decision_function(table(people.X)), expected)


def test_fit_categories_and_missing_values_are_preprocessed(people: Any, make: Any) -> None:
    X = pd.DataFrame(people.X, columns=["u", "v", "w"])
    X["job"] = np.where(people.X[:, 2] > 0, "clerk", None)
    X.loc[::7, "u"] = np.nan
    model = fitted(make(), people, X=X)
    assert model.predict_proba(X).shape == (120, 2)
    assert model.n_features_in_ == 4
    assert model.module_[0].in_features == 6  # u, u missing, v, w, clerk, job missing
    unseen = X.head(2).assign(job=["pilot", "clerk"])
    assert model.predict(unseen).shape == (2,)


def test_fit_preprocess_none_takes_images_and_a_module(people: Any, make: Any) -> None:
    X = np.repeat(people.X[:, None, :, None], 2, axis=3)
    module = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1))
    model = fitted(make(preprocess=None, module=module), people, X=X)
    assert model.predict(X).shape == (120,)


def test_fit_several_sensitive_columns_are_crossed(people: Any, make: Any) -> None:
    columns = pd.DataFrame({"sex": people.a, "young": people.X[:, 2] > 0})
    model = make(groups={"young": [True, False], "sex": ["f", "m"]}, epsilon=math.inf)
    fitted(model, people, sensitive_features=columns)
    names = ["sex=f & young=True", "sex=f & young=False", "sex=m & young=True", "sex=m & young=False"]
    assert model.dual_.index.tolist() == names


# ------------------------------------------------------------------ results out


def test_predict_proba_and_decision_function_agree_with_predict(people: Any, make: Any) -> None:
    model = fitted(make(), people)
    scores, shares = model.decision_function(people.X), model.predict_proba(people.X)
    assert shares.sum(1) == pytest.approx(np.ones(120))
    assert shares[:, 1] == pytest.approx(1 / (1 + np.exp(-scores)))
    assert np.array_equal(model.predict(people.X), (scores > 0).astype(int))
    assert model.score(people.X, people.y) > 0.8


def test_predict_takes_features_only() -> None:
    for name in ("predict", "predict_proba", "decision_function"):
        assert list(inspect.signature(getattr(LagrangianDualClassifier, name)).parameters) == ["self", "X"]


def test_history_one_event_has_a_row_per_round_and_a_column_per_group(people: Any, make: Any) -> None:
    history = fitted(make(), people).history_
    by_group = ["noisy_gap[f]", "noisy_gap[m]", "multiplier[f]", "multiplier[m]"]
    both = ["noisy_violation", "violation_error"]
    assert history.columns.tolist() == ["round", "loss", "accuracy", "auc", *by_group, *both]
    assert history["round"].tolist() == [0, 1, 2, 3]
    assert history["noisy_gap[f]"].isna().tolist() == [False, False, False, True]


def test_history_two_events_name_event_and_group(people: Any, make: Any) -> None:
    model = fitted(make(notion="equalized_odds"), people)
    gaps = [one for one in model.history_columns_ if one.kind == "noisy_gap"]
    cells = [(event, group) for group in "fm" for event in model.dual_.columns]
    assert [(one.event, one.group) for one in gaps] == cells
    assert [one.name for one in gaps] == [f"noisy_gap[{event}, {group}]" for event, group in cells]
    assert model.dual_.shape == (2, 2)


@pytest.mark.parametrize(
    ("engine", "epsilon", "status"),
    [("pf-ld", 8.0, "noised"), ("pf-ld", math.inf, "exact"), ("pf-ld-as-published", 8.0, "exact")],
)
def test_history_columns_by_group_are_noised_only_if_a_finite_epsilon_vouches_for_them(
    people: Any, make: Any, engine: str, epsilon: float, status: str
) -> None:
    plan = PFLDAsPublishedPlan(epochs=1) if engine == "pf-ld-as-published" else make().plan
    model = fitted(make(engine=engine, epsilon=epsilon, plan=plan), people)
    assert [one.name for one in model.history_columns_] == list(model.history_)
    found = {one.kind: one.status for one in model.history_columns_}
    public = {"round": "public", "loss": "public", "accuracy": "public", "auc": "public"}
    assert found == public | dict.fromkeys(("noisy_gap", "multiplier", "noisy_violation", "violation_error"), status)
    assert all(one.released == (one.status != "exact") for one in model.history_columns_)


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_ledger_after_fit_holds_what_the_plan_announced(people: Any, make: Any, epsilon: float) -> None:
    model = fitted(make(epsilon=epsilon), people)
    assert Counter(model.ledger_.costs()) == model.plan_.costs()
    assert model.certificate_.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert model.certificate_.epsilon <= epsilon


def test_fit_shared_ledger_pays_and_is_kept(people: Any, make: Any) -> None:
    ledger = PrivacyLedger(epsilon=20.0, delta=1e-5)
    model = fitted(make(epsilon=2.0), people, ledger=ledger)
    assert model.ledger_ is ledger
    assert model.certificate_.budget_epsilon == 20.0
    fitted(make(epsilon=2.0), people, ledger=ledger)
    assert len(ledger.releases) == 14


def test_certificate_noise_seed_fixed_says_so(people: Any, make: Any) -> None:
    assert "fixed noise seed" in fitted(make(), people).certificate_.noise
    model = make(noise_seed=None)
    quiet(model, people)
    assert model.certificate_.noise == "operating system entropy"


def test_progress_asked_for_shows_steps_only(people: Any, make: Any, capsys: Any) -> None:
    fitted(make(progress=True), people)
    shown = capsys.readouterr().err
    assert "/26" in shown  # 20 steps of warm-up, three rounds of two
    fitted(make(progress=False), people)
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------ seeds


def test_fit_same_seeds_same_answer(people: Any, make: Any) -> None:
    one, two = fitted(make(), people), fitted(make(), people)
    assert np.array_equal(one.decision_function(people.X), two.decision_function(people.X))
    assert one.history_.equals(two.history_)


def test_fit_without_noise_random_state_alone_fixes_the_answer(people: Any, make: Any) -> None:
    free = {"epsilon": math.inf, "noise_seed": None}
    one, two, other = (fitted(make(random_state=s, **free), people).decision_function(people.X) for s in (3, 3, 4))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_fit_without_noise_seed_noise_differs_and_public_warm_up_does_not(people: Any, make: Any) -> None:
    one, two = make(noise_seed=None), make(noise_seed=None)
    quiet(one, people)
    quiet(two, people)
    assert one.history_["loss"][0] == two.history_["loss"][0]
    assert one.history_["noisy_gap[f]"][0] != two.history_["noisy_gap[f]"][0]


@pytest.mark.parametrize("random_state", [None, 0])
def test_fit_leaves_global_random_states_alone(people: Any, make: Any, random_state: Any) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.2), nn.Linear(4, 1))
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 - the global state is the point
    fitted(make(random_state=random_state), people)
    fitted(make(random_state=random_state, module=module), people)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize(
    ("epsilon", "noise_seed", "differs"), [(1.0, None, True), (1.0, 0, False), (math.inf, None, False)]
)
def test_tags_unseeded_noise_is_called_non_deterministic(epsilon: float, noise_seed: Any, differs: bool) -> None:
    model = LagrangianDualClassifier(epsilon=epsilon, noise_seed=noise_seed)
    assert model.__sklearn_tags__().non_deterministic is differs


# ------------------------------------------------------------------ weights


def test_fit_weight_two_equals_row_twice(people: Any, make: Any) -> None:
    full = PFLDPlan(warmup_steps=30, private_steps=4, public_steps=5, batch_size=1000)
    model = make(plan=full, preprocess=None, epsilon=math.inf, notion="equalized_odds")
    rows = np.r_[np.arange(120), np.arange(0, 120, 2)]
    weight = np.where(np.arange(120) % 2 == 0, 2.0, 1.0)
    weighted = fitted(clone(model), people, sample_weight=weight)
    repeated = clone(model).fit(people.X[rows], people.y[rows], sensitive_features=people.a[rows])
    scores = weighted.decision_function(people.X)
    assert scores == pytest.approx(repeated.decision_function(people.X), abs=1e-4)
    assert weighted.history_.to_numpy() == pytest.approx(repeated.history_.to_numpy(), abs=1e-4, nan_ok=True)
    plain = fitted(clone(model), people).decision_function(people.X)
    assert np.abs(scores - plain).max() > 1e-3


def test_fit_weight_zero_equals_row_left_out(people: Any, make: Any) -> None:
    full = PFLDPlan(warmup_steps=30, private_steps=4, public_steps=5, batch_size=1000)
    model = make(plan=full, preprocess=None, epsilon=math.inf)
    kept = np.arange(120) % 3 > 0
    weighted = fitted(clone(model), people, sample_weight=kept.astype(float))
    dropped = clone(model).fit(people.X[kept], people.y[kept], sensitive_features=people.a[kept])
    assert weighted.decision_function(people.X) == pytest.approx(dropped.decision_function(people.X), abs=1e-4)


def test_fit_equal_weights_of_any_size_change_nothing(people: Any, make: Any) -> None:
    expected = fitted(make(), people).decision_function(people.X)
    for weight in (4.0, np.full(120, 4.0), [1e300] * 120):
        assert np.array_equal(fitted(make(), people, sample_weight=weight).decision_function(people.X), expected)


# ------------------------------------------------------------------ parameters and state


def test_clone_and_repr_with_module_plan_and_notion(people: Any, make: Any) -> None:
    module = nn.Sequential(nn.Linear(3, 1))
    model = make(module=module, engine="pf-ld-as-published", plan=PFLDAsPublishedPlan(epochs=1), epsilon=math.inf)
    twin = clone(model)
    assert repr(twin) == repr(model)
    assert "PFLDAsPublishedPlan(" in repr(model)
    assert set(model.get_params()) == set(inspect.signature(LagrangianDualClassifier.__init__).parameters) - {"self"}
    assert twin.plan == model.plan
    weights = copy.deepcopy(module.state_dict())
    fitted(model, people)
    assert model.module is module
    assert torch.equal(module.state_dict()["0.weight"], weights["0.weight"])
    assert not torch.equal(model.module_.state_dict()["0.weight"], weights["0.weight"])


@pytest.mark.parametrize(
    "module",
    [[], [4, 2], np.array([5]).tolist(), lambda inputs: nn.Linear(inputs, 1)],
    ids=["none", "two", "one", "function"],
)
def test_fit_widths_or_function_make_the_module(people: Any, make: Any, module: Any) -> None:
    assert fitted(make(module=module), people).predict(people.X).shape == (120,)


def test_fit_that_fails_leaves_a_new_estimator_unfitted(people: Any, make: Any) -> None:
    model = make()
    before = dict(vars(model))
    with pytest.raises(ValueError, match="same number of rows"):
        fitted(model, people, sensitive_features=people.a[:5])
    assert vars(model) == before


def test_fit_that_fails_leaves_the_earlier_fit(people: Any, make: Any) -> None:
    model = fitted(make(), people)
    before = model.predict(people.X)
    with pytest.raises(ValueError, match="only one class"):
        fitted(model, people, X=people.X[:, :2], y=np.zeros(120))
    assert np.array_equal(model.predict(people.X), before)


def test_fit_interrupted_in_training_leaves_the_earlier_fit(people: Any, make: Any, monkeypatch: Any) -> None:
    model = fitted(make(), people)
    before = dict(vars(model))

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("justitia.training.session.Session.train", stop)
    with pytest.raises(KeyboardInterrupt):
        fitted(model, people, X=people.X[:, :2])
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)


def test_refit_with_other_preprocessing_forgets_the_first(people: Any, make: Any) -> None:
    model = fitted(make(), people, X=pd.DataFrame(people.X, columns=["u", "v", "w"]))
    fitted(model.set_params(preprocess=None), people)
    assert not hasattr(model, "encoder_")
    assert not hasattr(model, "feature_names_in_")


# ------------------------------------------------------------------ others who debit the same ledger meanwhile


class Busy(PrivacyLedger):
    """A ledger from which somebody else debits before every debit of ours."""

    def debit(self, release: Any) -> int:
        super().debit(Release("of another thread", GaussianCost(1000.0), 1.0))
        return super().debit(release)


def test_fit_does_not_take_debits_of_others_on_its_ledger_for_its_own(people: Any, make: Any) -> None:
    ledger = Busy(epsilon=50.0, delta=1e-5)
    model = fitted(make(), people, ledger=ledger)
    assert len(ledger.releases) == 2 * sum(model.plan_.costs().values())


def test_fits_in_two_threads_share_one_ledger_in_memory(people: Any, make: Any) -> None:
    gate, errors = threading.Barrier(2), []

    class InTurn(PrivacyLedger):
        def debit(self, release: Any) -> int:
            gate.wait(timeout=60)  # both threads are between two debits
            return super().debit(release)

    ledger = InTurn(epsilon=50.0, delta=1e-5)

    def work() -> None:
        try:
            fitted(make(), people, ledger=ledger)
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(ledger.releases) == 14


def test_fits_on_one_journal_do_not_take_each_others_debits_for_their_own(
    people: Any, make: Any, tmp_path: Any
) -> None:
    path = tmp_path / "journal"
    other = PrivacyLedger(epsilon=50.0, delta=1e-5, journal=path)

    class Journalled(PrivacyLedger):
        def debit(self, release: Any) -> int:
            other.debit(Release("of another process", GaussianCost(1000.0), 1.0))
            return super().debit(release)

    fitted(make(), people, ledger=Journalled(epsilon=50.0, delta=1e-5, journal=path))
    assert len(other.releases) == 14
