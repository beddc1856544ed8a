"""Plots and notebook forms: what they show, that they need no more than what was released, and that text stays text."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from justitia import LagrangianDualClassifier, Measurement, PrivacyLedger, Tradeoff, measure, tradeoff
from justitia.datasets import make_synthetic
from justitia.metrics.displays import MeasurementDisplay, PriceDisplay

mpl.use("Agg")
DATA = make_synthetic(1500, groups=("<b>", "m"), n_features=3, random_state=0)
GIVEN: dict[str, Any] = {"sensitive_features": DATA.sensitive, "groups": ["<b>", "m"], "epsilon": 1.0, "noise_seed": 1}


@pytest.fixture(scope="module")
def curve() -> Tradeoff:
    model = LagrangianDualClassifier(epsilon=1.0, groups=["<b>", "m"], random_state=0, noise_seed=0)
    return tradeoff(model, DATA.X, DATA.y, sensitive_features=DATA.sensitive, tolerances=(0.02, 0.2))


@pytest.fixture(scope="module")
def measured() -> Measurement:
    return measure(DATA.y, DATA.y, before=1 - DATA.y, **GIVEN)


def test_measurement_is_drawn_before_and_after_with_its_bounds(measured: Measurement) -> None:
    ax = measured.plot().ax_
    drawn = [container for container in ax.containers if container.has_xerr]
    assert [container.get_label() for container in drawn] == ["before", "after"]
    assert drawn[1].lines[0].get_xdata() == pytest.approx(measured.table["rate"].to_numpy())
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["<b>", "m"]
    assert measured.plot(ax=ax).ax_ is ax
    with pytest.raises(ValueError, match="rate"):
        measured.plot(rate="nothing")


def test_display_from_an_estimator_is_the_measurement_of_its_decisions(curve: Tradeoff) -> None:
    model = curve.models[0]
    shown = MeasurementDisplay.from_estimator(model, DATA.X, DATA.y, **GIVEN)
    direct = measure(DATA.y, model.predict(DATA.X), **GIVEN)
    assert shown.measurement.by_group.equals(direct.by_group)
    assert shown.figure_ is shown.ax_.figure


def test_impact_and_curve_are_drawn(measured: Measurement, curve: Tradeoff) -> None:
    ratios = measured.impact()
    assert [round(one, 6) for one in ratios.plot().ax_.containers[0].lines[0].get_xdata()] == [
        round(one, 6) for one in ratios.table["impact_ratio"]
    ]
    points = curve.plot().ax_.containers[0].lines[0]
    assert points.get_xdata() == pytest.approx(curve.table["noisy_violation"].to_numpy())
    assert points.get_ydata() == pytest.approx(curve.table["accuracy"].to_numpy())


def test_names_of_groups_are_drawn_as_they_are() -> None:
    """matplotlib takes what is between two dollars for a formula, and fails where it is none."""
    names = ["$10k to $20k", r"$\frac{$", "<script>"]
    found = np.random.default_rng(0).choice(names, 3000)
    decided = np.arange(3000) % 2
    measured = measure(None, decided, sensitive_features=found, groups=names, noise_seed=1)
    for display in (measured.plot(), measured.impact().plot()):
        display.figure_.canvas.draw()
        assert [one.get_text() for one in display.ax_.get_yticklabels()] == names
        assert not any(one.get_parse_math() for one in display.ax_.get_yticklabels())


def test_short_forms_are_short_and_begin_with_what_matters(measured: Measurement, curve: Tradeoff) -> None:
    for one in (measured, curve, measured.certificate, measured.impact()):
        assert len(repr(one)) < 200
        assert repr(one).startswith(f"{type(one).__name__}(")
    assert "1,500 rows, 2 groups: demographic_parity" in repr(measured)
    assert "epsilon=1," in repr(measured.certificate)


def test_notebook_forms_escape_names_and_hold_the_guarantee(measured: Measurement, curve: Tradeoff) -> None:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    prices = PriceDisplay.from_estimator(curve.models[0])
    for one in (measured, measured.impact(), curve, measured.certificate, prices, ledger):
        html = one._repr_html_()
        assert "<b>" not in html
        assert "<script" not in html
        assert html.count("<div") == html.count("</div>")
    assert "&lt;b&gt;" in measured._repr_html_()
    assert curve.models[0].certificate_.statement in curve.models[0]._repr_html_()


def test_notebook_forms_are_drawn_and_their_titles_have_ids_of_their_own(
    measured: Measurement, curve: Tradeoff
) -> None:
    spent = PrivacyLedger(epsilon=2.0, delta=1e-5)
    measure(DATA.y, DATA.y, **GIVEN, ledger=spent)
    prices = PriceDisplay.from_estimator(curve.models[0])
    forms = [measured, measured.impact(), curve, measured.certificate, prices, spent, curve.models[0], measured]
    html = [one._repr_html_() for one in forms]
    assert ["<svg" in one for one in html] == [True] * len(forms)
    ids = re.findall(r' id="(justitia-[^"]+)"', "".join(html))
    assert len(ids) == len(set(ids)) >= 2 * len(forms)
    for one in html:
        assert set(re.findall(r'aria-labelledby="([^"]+)"', one)) <= {
            f"{a} {b}" for a, b in itertools.pairwise(re.findall(r' id="([^"]+)"', one))
        }


def test_notebook_forms_without_privacy_hold_no_number_by_group(measured: Measurement) -> None:
    given = {name: value for name, value in GIVEN.items() if name != "noise_seed"} | {"epsilon": math.inf}
    exact = measure(DATA.y, DATA.y, **given)
    model = LagrangianDualClassifier(epsilon=math.inf, groups=["<b>", "m"], random_state=0)
    curve = tradeoff(model, DATA.X, DATA.y, sensitive_features=DATA.sensitive, tolerances=(0.02, 0.2))
    for one in (exact, exact.impact(), curve, curve.models[0]):
        html = one._repr_html_()
        assert "<svg" not in html or one is curve.models[0]  # whose diagram scikit-learn draws
        assert "justitia-form" in html
        assert "points" not in html
    assert 'class="mark' not in curve.models[0]._repr_html_()
    assert repr(exact) == "Measurement(1,500 rows, 2 groups: exact, not private)"
    assert repr(exact.impact()) == "Impact(selection_rate: exact, not private)"
    with pytest.raises(ValueError, match="exact"):
        PriceDisplay.from_estimator(curve.models[0])


def test_price_list_is_drawn_with_its_errors_and_the_deployed_model(curve: Tradeoff) -> None:
    model = curve.models[0]
    ax = PriceDisplay.from_estimator(model).plot().ax_
    drawn = ax.containers[0].lines[0].get_xdata()
    assert sorted(drawn) == pytest.approx(sorted(100 * model.price_["violation"]))
    deployed = next(line for line in ax.lines if line.get_label() == "deployed")
    assert deployed.get_xdata() == pytest.approx(100 * model.price_.loc[model.price_["deployed"], "violation"])
    with pytest.raises(ValueError, match="price_"):
        PriceDisplay.from_estimator(LagrangianDualClassifier())


def test_estimator_is_shown_without_a_warning_about_its_docstring() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "LagrangianDualClassifier" in LagrangianDualClassifier()._repr_html_()
