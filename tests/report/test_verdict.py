"""The first lines of a report: one test for each state, the limits that decide it, and what they rest on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import PLAN, Case, fit, found, price_list, signed
from pages import page_of

from justitia import DurableLedger, LagrangianDualClassifier, measure
from justitia.datasets import make_synthetic
from justitia.report import Report, build_report, charts
from justitia.report.build import with_options
from justitia.report.formatting import points
from justitia.report.verdict import Check, PageVerdict, judge, verdict_of


def measured(case: Case, least: float, most: float, **changes: Any) -> dict[str, Any]:
    """A measurement whose gap has these one-sided bounds."""
    facts = signed(case)
    estimate = (least + most) / 2
    gap = facts["violations"]["demographic_parity"] | {"estimate": estimate, "lower": least, "upper": most}
    facts["violations"] = {"demographic_parity": gap | {"at_least": least, "at_most": most}}
    return facts | {"verdicts": {}} | changes


def verdict(report: Report) -> PageVerdict:
    return verdict_of(report.contents)


def check(report: Report, name: str) -> Check:
    return next(one for one in verdict(report).checks if one.name == name)


def top(report: Report) -> str:
    html = report.html()
    return html[: html.index("<nav")]


@pytest.mark.parametrize(
    ("least", "most", "state", "word"),
    [
        (0.01, 0.046, "met", "Met"),
        (0.06, 0.11, "not met", "Not met"),
        (0.02, 0.07, "inconclusive", "Inconclusive"),
    ],
)
def test_state_follows_from_the_one_sided_bounds_and_the_limit(
    two: Case, least: float, most: float, state: str, word: str
) -> None:
    report = build_report(two.model, measurement=measured(two, least, most), limit=0.05)
    assert (verdict(report).state, verdict(report).word) == (state, word)
    assert f"<span>{word}</span>" in top(report)
    assert top(report).count('<svg class="icon"') == 5  # of the verdict and of four checks
    assert f"**{word}.**" in report.markdown()
    assert report.facts()["verdict"]["state"] == state
    assert [one.name for one in verdict(report).checks] == ["Largest gap", "Impact ratio", "Groups measured", "Privacy"]


def test_tolerance_decides_nothing(two: Case) -> None:
    facts = measured(two, 0.06, 0.11)
    assert two.model.tolerance == 0.05
    without = build_report(two.model, measurement=facts)
    assert (verdict(without).state, verdict(without).word) == ("no limit", "No limit set")
    assert verdict(build_report(two.model, measurement=facts, limit=0.2)).state == "met"


def test_limit_comes_from_the_caller_then_the_measurement_then_the_training(two: Case) -> None:
    def limit(facts: dict[str, Any], **given: Any) -> float | None:
        return build_report(two.model, measurement=facts, facts={"limit": 0.3}, **given).contents.limits.gap

    assert limit(measured(two, 0.0, 0.1), limit=0.1) == 0.1
    assert limit(measured(two, 0.0, 0.1, limit=0.2)) == 0.2
    assert (
        limit(
            measured(
                two, 0.0, 0.1, verdicts={"demographic_parity": {"threshold": 0.25, "sentence": "", "answer": "above"}}
            )
        )
        == 0.25
    )
    assert limit(measured(two, 0.0, 0.1)) == 0.3


def test_ratio_below_its_limit_is_not_met_whatever_the_gap(two: Case) -> None:
    facts = measured(two, 0.0, 0.01)
    facts["impact"]["four_fifths"] |= {"at_least": 0.5, "at_most": 0.7}
    both = build_report(two.model, measurement=facts, limit=0.05, limit_ratio=0.8)
    assert verdict(both).state == "not met"
    assert check(both, "Impact ratio").value == "below 0.70"
    assert verdict(build_report(two.model, measurement=facts, limit=0.05)).state == "met"
    assert check(build_report(two.model, measurement=facts), "Impact ratio").state == "not met"  # of the rule of thumb


def test_unmeasured_model_says_so_in_the_same_place(two: Case) -> None:
    report = build_report(two.model, limit=0.05)
    assert verdict(report).state == "not measured"
    assert "<span>Not measured</span>" in top(report)
    assert "justitia evaluate" in verdict(report).advice
    assert check(report, "Groups measured").value == "0 of 2"


def test_some_groups_unmeasured_are_counted_and_rule_out_met(two: Case) -> None:
    data = make_synthetic(1200, groups=("women", "men"), n_features=3, random_state=1)
    facts = found(two.model, data, "demographic_parity", groups=["women", "men", "nobody"]).to_dict()
    report = build_report(two.model, measurement=facts, limit=0.9)
    assert verdict(report).state == "inconclusive"
    assert check(report, "Groups measured").value == "2 of 3"
    assert verdict(report).advice.startswith("Merge group nobody with others")


def test_refusal_that_is_positive_turns_the_ratio_round_and_is_said() -> None:
    data = make_synthetic(3000, groups=("women", "men"), n_features=3, random_state=1)
    refused = np.where(data.y == 1, "refused", "granted")
    decided = np.where((data.sensitive == "women") | (data.y == 1), "refused", "granted")
    options: dict[str, Any] = {"groups": ["women", "men"], "epsilon": math.inf, "pos_label": "refused"}
    asked: dict[str, Any] = {"sensitive_features": data.sensitive, **options}
    plain, turned = measure(refused, decided, **asked), measure(refused, decided, **asked, favorable="granted")
    rates = plain.by_group["selection_rate"]
    assert turned.violation == plain.violation
    assert plain.impact().table["impact_ratio"]["men"] == pytest.approx(rates["men"] / rates["women"])
    assert turned.impact().table["impact_ratio"]["women"] == pytest.approx((1 - rates["women"]) / (1 - rates["men"]))
    assert turned.impact().table["shortfall"]["women"] > 0

    model = LagrangianDualClassifier(
        epsilon=2.0, groups=["women", "men"], plan=PLAN, module=(4,), random_state=0, noise_seed=0
    )
    model.fit(data.X, np.where(data.y == 1, "refused", "granted"), sensitive_features=data.sensitive)
    private = asked | {"epsilon": 1.0, "noise_seed": 1}
    report = build_report(model, measurement=measure(refused, model.predict(data.X), **private, favorable="granted"))
    assert report.contents.favorable == "negative"
    assert "the favourable decision is granted" in top(report)
    late = build_report(model, measurement=measure(refused, model.predict(data.X), **private), favorable="granted")
    assert check(late, "Impact ratio").state == "not measured"
    assert page_of(late).says("justitia evaluate --favourable granted")


@pytest.mark.parametrize(("favorable", "kind"), [("maybe", "labels"), (1.5, "labels")])
def test_favorable_label_that_is_none_is_refused(favorable: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=f"expected favorable to be one of the {kind}"):
        measure([0, 1], [1, 0], sensitive_features=["a", "b"], groups=["a", "b"], favorable=favorable)


def test_noise_of_the_complement_is_that_of_count_less_sum() -> None:
    data = make_synthetic(2000, groups=("a", "b"), n_features=3, random_state=0)
    answer = measure(data.y, data.y, sensitive_features=data.sensitive, groups=["a", "b"], noise_seed=3)
    turned = answer.noisy.complement
    assert np.allclose(turned.rates, 1 - answer.noisy.rates)
    back = turned.complement
    for name in ("sums", "var_sum", "cov", "var_count", "overall"):
        assert np.allclose(getattr(back, name), getattr(answer.noisy, name))
    # Two rates that add up to 1 are known equally well.
    lower, upper = (1 - one for one in reversed(turned.interval(2.0)))
    assert np.allclose(np.stack(answer.noisy.interval(2.0)), np.stack([lower, upper]))


# -- the sentence and the advice


def test_sentence_has_before_after_bound_and_cost(two: Case) -> None:
    report = build_report(two.model, measurement=signed(two), limit=0.05, about={"positive_means": "loan granted"})
    sentence = verdict(report).sentence
    assert sentence.startswith("Positive decisions (loan granted) were made ")
    assert "before the correction and are made" in sentence
    assert "(95%)" in sentence
    assert sentence.endswith("Cost: 2.0 points of accuracy.")


def test_five_groups_and_equalized_odds_have_a_sentence_and_a_chart(five: Case) -> None:
    report = build_report(five.model, measurement=five.measurement, limit=0.05)
    assert "in equalized odds" in verdict(report).sentence
    assert 'id="hero"' in top(report)
    assert 'id="hero-narrow"' in top(report)


def test_advice_says_how_many_more_people_would_decide_it(two: Case) -> None:
    facts = measured(two, 0.0, 0.07)
    facts["violations"]["demographic_parity"]["estimate"] = 0.03
    advice = verdict(build_report(two.model, measurement=facts, limit=0.05)).advice
    assert advice.startswith("If the gap stays at 3.0 points, about ")
    assert "would show that the limit is met." in advice
    people = int(advice.split("about ")[1].split(" people")[0].replace(",", ""))
    assert 1200 * 2 <= people <= 1200 * 4.2  # the bound has to halve: twice as many if all is noise, four times if none
    near = facts["violations"]["demographic_parity"] | {"estimate": 0.0499}
    facts["violations"] = {"demographic_parity": near}
    assert "too near the limit" in verdict(build_report(two.model, measurement=facts, limit=0.05)).advice


def test_number_of_people_that_is_advised_would_decide_it() -> None:
    """The bound of a measurement of as many people as the advice says is where it has to be."""
    n, gap = 4000, 0.1
    rows = np.arange(n)
    groups, decided = np.where(rows % 2 == 0, "a", "b"), (rows // 2) % 10 < np.where(rows % 2 == 0, 5, 5 + 10 * gap)
    decided = decided.astype(int)

    def bounds(times: int) -> Any:
        tiled = (np.tile(decided, times), np.tile(decided, times))
        asked = {"sensitive_features": np.tile(groups, times), "groups": ["a", "b"], "epsilon": 0.5, "noise_seed": 1}
        return measure(*tiled, **asked)

    model = fit(("a", "b")).model
    once = bounds(1).to_dict()
    estimate = once["violations"]["demographic_parity"]["estimate"]
    limit = estimate + (once["violations"]["demographic_parity"]["at_most"] - estimate) / 2
    report = build_report(model, measurement=once, limit=limit)
    people = int(verdict(report).advice.split("about ")[1].split(" people")[0].replace(",", ""))
    times = people / n
    assert 2 <= times <= 4.2
    more = bounds(math.ceil(times)).to_dict()["violations"]["demographic_parity"]
    assert more["at_most"] - more["estimate"] <= 1.1 * (limit - estimate)


def test_advice_about_the_ratio_says_how_many_more_people_would_decide_it(two: Case) -> None:
    facts = measured(two, 0.0, 0.01)
    facts["impact"]["four_fifths"] |= {"at_least": 0.7, "at_most": 1.0}
    for one, ratio, rate in zip(facts["impact"]["by_group"], (0.85, 1.0), (0.34, 0.4), strict=True):
        one |= {"impact_ratio": ratio, "rate": rate, "count": 600.0}
    advice = verdict(build_report(two.model, measurement=facts, limit=0.05, limit_ratio=0.8)).advice
    assert advice.startswith("If the impact ratio stays at 0.85, about ")
    people = int(advice.split("about ")[1].split(" people")[0].replace(",", ""))
    assert 1200 * 3 <= people <= 1200 * 9.1  # the bound has to come three times as near


def test_groups_have_the_names_that_people_gave_them(two: Case) -> None:
    facts, about = signed(two), {"group_names": {"women": "female clients"}}
    sentence = verdict(build_report(two.model, measurement=facts, about=about)).sentence
    assert "female clients" in sentence
    assert "group men" in sentence
    with pytest.raises(ValueError, match="group of group_names"):
        build_report(two.model, about={"group_names": {"wmen": "women"}})
    with pytest.raises(TypeError, match="expected 'men' to be text"):
        build_report(two.model, about={"group_names": {"men": 1}})


def test_largest_gap_of_several_rates_is_named(five: Case) -> None:
    one = build_report(five.model, measurement=five.measurement).contents.worst_violation()
    report = build_report(five.model, measurement=five.measurement)
    assert one is not None
    rates = report.contents.measured.rates if report.contents.measured else ()
    name = verdict(report).sentence.rpartition(" (95%): ")[2].partition(",")[0].replace(" ", "_")
    found = [rate.rate for rate in rates if rate.metric == name and rate.rate is not None]
    assert max(found) - min(found) == pytest.approx(one.estimate)


def test_axes_of_the_first_chart_are_equally_long(five: Case) -> None:
    measured = build_report(five.model, measurement=five.measurement).contents.measured
    assert measured is not None
    spans = charts._spans(measured, list(measured.overall))
    assert len(spans) == 2
    lengths = [high - low for low, high in spans.values()]
    assert lengths == pytest.approx([max(lengths)] * 2)
    for metric, (low, high) in spans.items():
        ends = [end for one in measured.rates if one.metric == metric and one.rate for end in (one.lower, one.upper)]
        assert low <= min(ends) + 1e-9
        assert high >= max(ends) - 1e-9


def test_bounds_are_judged_on_both_sides_of_the_limit() -> None:
    assert judge(0.0, 0.05, 0.05, complete=True) == "met"
    assert judge(0.0, 0.05, 0.05, complete=False) == "inconclusive"
    assert judge(0.051, 0.2, 0.05, complete=False) == "not met"
    assert judge(None, 0.04, 0.05, complete=True) == "inconclusive"


def test_points_show_on_which_side_of_the_limit_a_bound_is() -> None:
    assert points(0.05, 0.05) == "5.0 points"
    assert points(0.0501, 0.05) == "5.01 points"
    assert points(0.0496, 0.05) == "4.96 points"
    assert points(1.234, in_points=False) == "1.234"


# -- approval, log, price list


def test_approval_stands_with_digest_and_version_beside_the_signatures(two: Case) -> None:
    about = {"materiality": "high", "decision": "approved", "version": "1.2"}
    page = page_of(build_report(two.model, about=about, facts={"model_digest": "a1" * 32}))
    (table,) = [rows for caption, rows in page.tables.items() if "filled in by hand" in caption]
    assert dict(map(tuple, table))["Materiality"] == "high"
    assert dict(map(tuple, table))["Challenger model"] == "not stated"
    assert page.says("including sections 8 and 10.")
    assert page.says(f"Model {'a1' * 32} , version 1.2")
    headings = [name for name, _ in (("log", 8), ("limits", 10)) if name in page.ids]
    assert headings == ["log", "limits"]
    assert page.says("8 Measurements recorded in this folder")
    assert page.says("10 What is not promised")


def test_running_footer_has_the_digest_and_nothing_that_css_would_read(two: Case) -> None:
    html = build_report(two.model, facts={"model_digest": 'f00d"; } body { display: none'}).html()
    assert 'content: "model f00dbddae"' in html
    assert 'counter(page) " of " counter(pages)' in html


def test_log_is_complete_only_where_one_ledger_paid_for_everything(two: Case, tmp_path: Any) -> None:
    data = make_synthetic(1200, groups=("women", "men"), n_features=3, random_state=1)
    ledger = DurableLedger(tmp_path / "people.ledger", dataset="people", epsilon=5.0, delta=1e-5)
    measurement = found(two.model, data, "demographic_parity", ledger=ledger, noise_seed=None)
    receipt = measurement.certificate.receipt
    training = two.model.certificate_
    paid = replace(training, receipt=receipt).to_dict()
    log = [{"name": "training", "certificate": paid}, measurement.to_dict() | {"name": "1"}]
    page = page_of(build_report(two.model, measurement=measurement, measurement_log=log, ledger=ledger))
    assert page.says("8 Measurement log")
    assert not page.says("This list may be incomplete")
    (table,) = [rows for caption, rows in page.tables.items() if caption.startswith("Everything on the ledger people")]
    assert [row[2:] for row in table[1:]] == [["group rates", "1"]]
    apart = [{"name": "training", "certificate": training.to_dict()}, log[1]]
    page = page_of(build_report(two.model, measurement=measurement, measurement_log=apart, ledger=ledger))
    assert page.says("Measurements recorded in this folder")
    assert page.says("Not every entry was paid by the ledger people")


def test_price_list_has_a_line_a_mark_and_a_command_for_each_point(two: Case) -> None:
    model = two.model
    model.price_ = price_list()
    try:
        command = "justitia train loans.csv --target repaid --sensitive sex --tolerance 0.03 --out model/"
        report = build_report(model, facts={"command": command}, limit=0.05)
        page = page_of(report)
        table = page.tables["Price list; gaps in percentage points"]
        assert [row[0] for row in table[1:]] == ["uncorrected", "tolerance 0.1", "tolerance 0.03"]
        assert table[3][1:] == ["84.0%", "0.890", "20.0%", "3.0", "2.0", "deployed"]
        marks = [given for _, given in page.elements if "price" in str(given.get("class", "")).split()]
        assert sorted(str(given["data-key"]) for given in marks) == ["0", "1", "2"]
        shown = [given for _, given in page.elements if "data-price" in given]
        assert [given["data-price"] for given in shown if "hidden" not in given] == ["2"]
        expected = "justitia train loans.csv --target repaid --sensitive sex --tolerance 0.1 --out model-0.1"
        assert page.says(expected)
        assert report.facts()["prices"][2]["deployed"] is True
    finally:
        del model.price_
    assert page_of(build_report(model)).says("This model has no price list")


def test_price_list_of_a_model_without_privacy_is_left_out(open_book: Case) -> None:
    model = open_book.model
    model.price_ = price_list()
    try:
        report = build_report(model)
        assert report.contents.prices == ()
        assert "0.855" not in report.html()
        assert "85.5%" not in report.html()
    finally:
        del model.price_


def test_command_with_other_options_keeps_the_rest() -> None:
    command = "justitia train 'my data.csv' --ratio 0.8 --out=old --overwrite --groups A,B"
    assert with_options(command, {"--tolerance": "0.1"}, "0.1") == (
        "justitia train 'my data.csv' --groups A,B --tolerance 0.1 --out old-0.1"
    )
    assert with_options("justitia tradeoff x", {}, "a") is None
    assert with_options("justitia train 'x", {}, "a") is None
