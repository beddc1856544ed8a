"""Proxies of the group: what they change, what they never change, and who may not have them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from justitia import (
    LagrangianDualClassifier,
    LagrangianDualRegressor,
    PostProcessingPlan,
    PrivacyLedger,
    private_search,
    tradeoff,
)
from justitia.metrics.exact import violation
from justitia.postprocessing.decisions import ColumnSums
from justitia.postprocessing.features import PublicRows, base_scores
from justitia.postprocessing.memberships import Memberships, fit_memberships, ridges
from justitia.postprocessing.proxies import average_over_proxies
from justitia.rows.source import Block, MemoryRows

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # few rows, large noise
    pytest.mark.usefixtures("quick_fits"),
]
GROUPS = ("a", "b")
PLAN = PostProcessingPlan(checks=2)
Array = np.ndarray[Any, Any]


class People:
    """A hidden group that moves the label and hardly shows in the features, and a proxy that is right in 80%."""

    def __init__(self, n: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.code = (random.random(n) < 0.4).astype(int)
        self.X = pd.DataFrame(random.normal(size=(n, 4)), columns=list("wxyz"))
        self.X["x"] += 0.8 * self.code
        self.y = (random.random(n) < expit(1.5 * self.X["x"] + self.X["w"] - 0.5)).to_numpy().astype(int)
        self.A = np.array(GROUPS)[self.code]
        guess = np.where(random.random(n) < 0.6, self.code, random.integers(0, 2, n))
        self.proxy = pd.DataFrame({"p": guess + 0.1 * random.random(n)})
        self.noise = random.normal(size=(n, 2))


PEOPLE = People(1500, seed=0)


def model(**options: Any) -> LagrangianDualClassifier:
    usual: dict[str, Any] = {"groups": GROUPS, "base": LogisticRegression(), "plan": PLAN, "random_state": 0}
    return LagrangianDualClassifier(**usual | {"noise_seed": 3, "progress": False} | options)


def fitted(people: People = PEOPLE, *, proxy: Any = None, **options: Any) -> LagrangianDualClassifier:
    return model(**options).fit(people.X, people.y, sensitive_features=people.A, proxy=proxy)


# -- rows and memberships


def block(n: int = 400, *, labels: int = 2, seed: int = 1) -> Block:
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3)).astype(np.float32)
    score = random.dirichlet(np.ones(labels), n) if labels > 2 else random.uniform(0.05, 0.95, n)
    proxy = random.normal(size=(n, 2)).astype(np.float32)
    y = random.integers(0, labels, n).astype(np.float32)
    return Block(0, X, y, np.ones(n, dtype=np.float32), score, proxy=proxy)


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("labels", [2, 3])
def test_rows_with_extreme_proxies_have_norm_at_most_one(blocks: bool, labels: int) -> None:
    sample = block(labels=labels)
    rows = PublicRows.fit(base_scores, sample, blocks=blocks, labels=labels)
    far = np.array([[1e30, -1e30], [np.nan, 0.0], [np.finfo(np.float32).max, 5.0]], dtype=np.float32)
    wild = Block(0, sample.X[:3] * 1e6, sample.y[:3], sample.weight[:3], sample.score[:3], proxy=far)
    for some in (sample, wild):
        found = rows(some)
        assert found.shape == (len(some), rows.width)
        assert np.isfinite(found).all()
        assert np.linalg.norm(found.astype(np.float64), axis=1).max() <= 1 + 1e-6


@pytest.mark.parametrize("blocks", [True, False])
def test_columns_of_the_proxies_are_those_that_change_with_them(blocks: bool) -> None:
    sample = block()
    rows = PublicRows.fit(base_scores, sample, blocks=blocks)
    small = rows(Block(0, sample.X, sample.y, sample.weight, sample.score, proxy=0.01 * sample.proxy))
    none = rows(Block(0, sample.X, sample.y, sample.weight, sample.score, proxy=0.0 * sample.proxy))
    short = np.linalg.norm(np.maximum(small, none), axis=1) < 0.9  # rows that are not shortened to norm 1
    changed = (small[short] != none[short]).any(0)
    assert changed.tolist() == rows.proxies().tolist()
    assert rows.proxies().sum() == (4 if blocks else 2)


def test_rows_without_proxies_are_as_they_were() -> None:
    sample = block()
    bare = Block(0, sample.X, sample.y, sample.weight, sample.score)
    rows = PublicRows.fit(base_scores, bare)
    assert not rows.proxies().any()
    assert rows.width == 2 * (1 + 3 + 1 + 1)


def test_rows_ask_for_the_proxies_of_the_fit() -> None:
    sample = block()
    rows = PublicRows.fit(base_scores, sample)
    with pytest.raises(ValueError, match="with the proxies of the fit"):
        rows(Block(0, sample.X, sample.y, sample.weight, sample.score))


def test_sums_do_not_depend_on_how_rows_are_split() -> None:
    sample = block(700)
    rows = PublicRows.fit(base_scores, sample)
    work = ColumnSums(rows, 2.0**-30)
    found = []
    for size in (700, 64, 1):
        source = MemoryRows(sample.X, sample.y, sample.weight, size, sample.proxy)
        source.score(lambda _: np.zeros(0), sample.score)
        found.append(source.run(work))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_optional_columns_that_look_like_noise_get_no_weight() -> None:
    random = np.random.default_rng(0)
    rows = np.column_stack([np.ones(2000), random.normal(size=(2000, 3))])
    inside = rows[:, 1] > 0
    sums = np.stack([rows[inside].sum(0), rows[~inside].sum(0), np.zeros(4)])
    optional = np.array([False, True, True, False])
    found = ridges(sums[:2], rows.sum(0), rows, np.zeros(4, dtype=np.int64), 2000, 3.0, 0.05, optional)
    assert np.isinf(found).tolist() == [False, False, True, False]
    weights = fit_memberships(rows, sums, ridge=found)
    assert (weights[:, 2] == 0).all()
    alone = fit_memberships(rows[:, [0, 1, 3]], sums[:, [0, 1, 3]], ridge=found[[0, 1, 3]])
    np.testing.assert_array_equal(weights[:, [0, 1, 3]], alone)


def test_average_over_a_proxy_is_that_over_its_law_given_the_features() -> None:
    """The proxy is a fair coin beside the features: p(a | x) is the mean of both sides, and no row shows its own."""
    random = np.random.default_rng(0)
    n = 6000
    X, coin = random.normal(size=(n, 2)).astype(np.float32), random.integers(0, 2, n)
    proxy = (2.0 * coin - 1).astype(np.float32)[:, None]
    score = np.full(n, 0.5)
    sample = Block(0, X, random.integers(0, 2, n).astype(np.float32), np.ones(n, np.float32), score, proxy=proxy)
    rows = PublicRows.fit(base_scores, sample)
    weights = np.zeros((3, rows.width))
    weights[2, rows.constants()] = -40.0  # no attribute is missing
    half = rows.width // 2
    weights[0, [half - 1, rows.width - 1]] = 8.0  # the proxy
    weights[0, [1, half + 1]] = 3.0  # the first feature
    known = Memberships(rows, weights)
    _, found = average_over_proxies(known, sample, all_rows=True)
    sides = [
        known.by_label(Block(0, X, sample.y, sample.weight, score, proxy=np.full((n, 1), side, np.float32)))
        for side in (-1.0, 1.0)
    ]
    exact = (sides[0] + sides[1]) / 2
    assert np.abs(known.by_label(sample) - exact)[0, :, 0].mean() > 0.2
    assert np.abs(found - exact)[0, :, 0].mean() < 0.03
    assert abs(np.corrcoef(found[0, :, 0] - exact[0, :, 0], coin)[0, 1]) < 0.05
    assert (found >= 0).all()
    assert found.sum(2).max() <= 1 + 1e-12


# -- whole fits


def test_memberships_that_know_an_informative_proxy_name_the_group_better() -> None:
    n, random = len(PEOPLE.y), np.random.default_rng(0)
    score = np.clip(expit(1.5 * PEOPLE.X["x"].to_numpy()), 0.05, 0.95)
    proxy = PEOPLE.proxy.to_numpy(dtype=np.float32)
    found = {}
    for name, given in (("none", None), ("proxy", proxy)):
        X, y = PEOPLE.X.to_numpy(dtype=np.float32), PEOPLE.y.astype(np.float32)
        people = Block(0, X, y, np.ones(n, dtype=np.float32), score, proxy=given)
        rows = PublicRows.fit(base_scores, people)
        columns = rows(people).astype(np.float64)
        sums = np.stack([columns[PEOPLE.code == a].sum(0) for a in (0, 1)])
        sums += random.normal(scale=10.0, size=sums.shape)
        weights = fit_memberships(columns, sums, ridge=np.full(rows.width, 5.0))
        q = Memberships(rows, weights, 2).by_label(people)[PEOPLE.y, np.arange(n), PEOPLE.code]
        found[name] = float(np.log(q).mean())
    assert found["proxy"] > found["none"] + 0.1


def test_useless_proxy_without_noise_changes_next_to_no_decision() -> None:
    plain = fitted(epsilon=math.inf, noise_seed=None)
    useless = fitted(epsilon=math.inf, noise_seed=None, proxy=PEOPLE.noise)
    assert (plain.predict(PEOPLE.X) == useless.predict(PEOPLE.X)).mean() > 0.99


@pytest.mark.parametrize("tolerance", [None, 0.0, 0.03, 0.1])
def test_useless_proxy_without_noise_costs_nothing_where_many_rows_are_on_the_line(tolerance: float | None) -> None:
    """Which rows on the line are accepted may change under equalized odds, accuracy and violation may not get worse."""
    settings: dict[str, Any] = {"notion": "equalized_odds", "epsilon": math.inf, "noise_seed": None}
    if tolerance is not None:
        settings["tolerance"] = tolerance
    plain, useless = (fitted(**settings, proxy=proxy).predict(PEOPLE.X) for proxy in (None, PEOPLE.noise))
    gaps = [
        violation(PEOPLE.y, one, sensitive_features=PEOPLE.A, notion="equalized_odds", groups=GROUPS)
        for one in (plain, useless)
    ]
    assert (useless == PEOPLE.y).mean() > (plain == PEOPLE.y).mean() - 0.005
    assert gaps[1] < gaps[0] + 0.005


def test_constant_proxy_changes_nothing() -> None:
    one = fitted().decision_function(PEOPLE.X)
    np.testing.assert_array_equal(fitted(proxy=np.ones(1500)).decision_function(PEOPLE.X), one)


def test_base_does_not_learn_from_the_proxy() -> None:
    plain, known = fitted(), fitted(proxy=PEOPLE.proxy)
    np.testing.assert_array_equal(plain.base_proba(PEOPLE.X), known.base_proba(PEOPLE.X))
    assert (plain.decision_function(PEOPLE.X) != known.decision_function(PEOPLE.X)).any()
    assert known.feature_names_in_.tolist() == list("wxyz")


def test_saved_model_neither_holds_nor_needs_the_proxy(tmp_path: Path) -> None:
    table = PEOPLE.proxy.rename(columns={"p": "p_secret_name"})
    made = fitted(proxy=table, base=None)
    made.save(tmp_path / "m")
    loaded = LagrangianDualClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.decision_function(PEOPLE.X), made.decision_function(PEOPLE.X))
    stored = b"".join(one.read_bytes() for one in (tmp_path / "m").rglob("*") if one.is_file())
    for content in (stored, pickle.dumps(made)):
        assert b"p_secret_name" not in content
        assert table["p_secret_name"].to_numpy()[:50].tobytes() not in content
        assert repr(float(table.iloc[7, 0])).encode() not in content
    assert not [name for name in vars(made) if "proxy" in name.lower()]


def test_planned_cost_is_the_recorded_cost_and_that_without_a_proxy() -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    made = model().fit(PEOPLE.X, PEOPLE.y, sensitive_features=PEOPLE.A, proxy=PEOPLE.proxy, ledger=ledger)
    assert made.plan_.costs() == ledger.own_costs() == fitted().plan_.costs()


def test_three_classes_take_a_proxy() -> None:
    y = np.where(PEOPLE.X["z"] > 0.8, 2, PEOPLE.y)
    made = model(notion="equal_opportunity").fit(PEOPLE.X, y, sensitive_features=PEOPLE.A, proxy=PEOPLE.proxy)
    assert made.predict_proba(PEOPLE.X).shape == (1500, 3)


def test_curve_and_search_take_a_proxy() -> None:
    given = {"sensitive_features": PEOPLE.A, "proxy": PEOPLE.proxy}
    curve = tradeoff(model(), PEOPLE.X, PEOPLE.y, tolerances=(0.0, 0.1), **given)
    alone = fitted(proxy=PEOPLE.proxy, tolerance=0.0)
    np.testing.assert_array_equal(curve.models[0].decision_function(PEOPLE.X), alone.decision_function(PEOPLE.X))
    found = private_search(model(), [{"tolerance": 0.0}, {"threshold": 0.4}], PEOPLE.X, PEOPLE.y, trials=2, **given)
    assert found.certificate.epsilon <= 1.0 + 1e-9


def test_interrupted_fit_goes_on_with_the_same_proxy_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    whole = fitted(proxy=PEOPLE.proxy, epsilon=4.0)
    given = {"sensitive_features": PEOPLE.A, "checkpoint": tmp_path / "run"}
    with monkeypatch.context() as patch:
        patch.setattr("justitia.postprocessing.solver.PostProcessingRun._choose_multipliers", die)
        with pytest.raises(KeyboardInterrupt):
            model(epsilon=4.0).fit(PEOPLE.X, PEOPLE.y, proxy=PEOPLE.proxy, **given)
    for other in (None, PEOPLE.noise):
        with pytest.raises(ValueError, match="checkpoint"):
            model(epsilon=4.0).fit(PEOPLE.X, PEOPLE.y, proxy=other, **given)
    resumed = model(epsilon=4.0).fit(PEOPLE.X, PEOPLE.y, proxy=PEOPLE.proxy, **given)
    np.testing.assert_array_equal(resumed.decision_function(PEOPLE.X), whole.decision_function(PEOPLE.X))


# -- scikit-learn


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_pipeline_search_and_cross_validation_pass_the_proxy_to_fit() -> None:
    given = {"sensitive_features": PEOPLE.A, "proxy": PEOPLE.proxy}
    direct = make_pipeline(StandardScaler(), model()).fit(PEOPLE.X, PEOPLE.y, **given)
    scaled = StandardScaler().fit_transform(PEOPLE.X)
    alone = model().fit(scaled, PEOPLE.y, **given)
    np.testing.assert_array_equal(direct.decision_function(PEOPLE.X), alone.decision_function(scaled))
    found = cross_validate(model(), PEOPLE.X, PEOPLE.y, params=given, cv=2, error_score="raise")
    assert len(found["test_score"]) == 2
    search = GridSearchCV(model(), {"tolerance": [0.0, 0.1]}, cv=2, error_score="raise")
    assert search.fit(PEOPLE.X, PEOPLE.y, **given).predict(PEOPLE.X).shape == (1500,)


def test_request_can_be_turned_off() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        request = model().set_fit_request(proxy=False).get_metadata_routing()
        assert request.fit.requests["proxy"] is False
        assert model().get_metadata_routing().fit.requests["proxy"] is True


# -- wrong input


def refused(kind: type[Exception], match: str, **options: Any) -> None:
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
    made = options.pop("made", None) or model()
    given = {"sensitive_features": PEOPLE.A, "proxy": PEOPLE.proxy} | options
    with pytest.raises(kind, match=match):
        made.fit(PEOPLE.X, PEOPLE.y, **given, ledger=ledger)
    assert ledger.releases == ()


def test_wrong_proxies_are_refused_before_any_budget_is_spent() -> None:
    refused(ValueError, "one row of proxy for each of the 1500 rows", proxy=np.zeros(10))
    refused(TypeError, "got names", proxy="w")
    refused(ValueError, "both a feature and a proxy", proxy=PEOPLE.X[["w"]])
    refused(TypeError, "convert or drop it", proxy=pd.DataFrame({"p": pd.date_range("2020", periods=1500)}))


def test_a_proxy_with_the_name_of_the_attribute_is_refused() -> None:
    attribute = pd.Series(PEOPLE.A, name="sex")
    refused(ValueError, "'sex'", sensitive_features=attribute, proxy=pd.DataFrame({"sex": PEOPLE.code}))


def test_engines_that_train_networks_refuse_a_proxy() -> None:
    pytest.importorskip("torch")
    for engine in ("moments", "pf-ld"):
        made = LagrangianDualClassifier(groups=GROUPS, engine=engine, progress=False)
        refused(ValueError, "expected engine 'post-processing' with a proxy", made=made)


def test_regressors_refuse_a_proxy_in_curve_and_search() -> None:
    made = LagrangianDualRegressor(groups=GROUPS, progress=False)
    given = {"sensitive_features": PEOPLE.A, "proxy": PEOPLE.proxy}
    with pytest.raises(ValueError, match="no proxy with a LagrangianDualRegressor"):
        tradeoff(made, PEOPLE.X, PEOPLE.y, **given)
    with pytest.raises(ValueError, match="no proxy with a LagrangianDualRegressor"):
        private_search(made, [{"tolerance": 0.1}], PEOPLE.X, PEOPLE.y, **given)
