"""The numbers of page and card are those of model, measurement and curve, and no others."""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import replace
from pathlib import Path

from cases import FACTS, Case
from pages import Page, cells, full, page_of, sections
from scipy.stats import norm

from justitia import LagrangianDualClassifier, PrivacyLedger
from justitia.privacy.accounting import GaussianCost, RandomizedResponseCost, gaussian_mu
from justitia.privacy.ledger import Release
from justitia.report import build_report
from justitia.report.contents import spending
from justitia.report.formatting import gap_points, number, odds_sentence, percent, percent_bounds, verdict


def test_rates_on_the_page_and_on_the_card_are_those_of_the_measurement(two: Case) -> None:
    measured, report = two.measurement, full(two)
    table = page_of(report).tables["Noised rates with bounds; rates of all rows are exact"]
    card = sections(report.markdown())["Rates by group"]
    for group, row in measured.table.loc["selection_rate"].iterrows():
        expected = [
            number(row["count"], 0),
            percent(row["rate"]),
            percent_bounds(row["lower"], row["upper"]),
        ]
        assert cells(table, str(group)) == expected
        assert f"| {group} | {' | '.join(expected)} |" in card
    assert cells(table, "all rows")[1] == percent(measured.overall["selection_rate"])


def test_violations_on_the_page_are_those_of_the_measurement(two: Case) -> None:
    tables = page_of(full(two)).tables.items()
    (table,) = [one for caption, one in tables if caption.startswith("Largest differences, in percentage points")]
    one, test = two.measurement.violation, two.measurement.test(0.2)
    bounds = [gap_points(bound) for bound in (one.estimate, test.at_least, test.at_most)]
    assert table[1:] == [["demographic parity", "after", *bounds]]
    assert page_of(full(two)).says(f"{bounds[0]} ({gap_points(one.lower)} to {gap_points(one.upper)})")


def test_curve_multipliers_and_history_on_the_page_are_those_of_the_model(two: Case) -> None:
    page = page_of(full(two))
    assert two.curve is not None
    rows = two.curve.table.to_dict("records")
    assert page.tables["Points of the curve"][1:] == [
        [
            f"{row['tolerance']:g}",
            *(percent(row["accuracy"]), number(row["auc"]), number(100 * row["noisy_violation"], 1)),
            "chosen" if k == 1 else "",
        ]
        for k, row in enumerate(rows)
    ]
    dual = two.model.dual_["all"]
    assert page.tables["Final multipliers, computed from noised releases"][1:] == [
        [group, number(value)] for group, value in dual.items()
    ]
    history = page.tables["One line per round"]
    assert len(history) == 1 + len(two.model.history_)
    assert history[-1] == [number(value, 0 if k == 0 else 4) for k, value in enumerate(two.model.history_.iloc[-1])]


def test_chosen_point_of_a_plain_curve_is_told_by_its_place(two: Case) -> None:
    points = [
        {"tolerance": None, "accuracy": 0.8, "noisy_violation": 0.01},
        {"tolerance": 0.1, "accuracy": 0.82, "noisy_violation": 0.08, "auc": 0.9},
        {"tolerance": 0.3, "accuracy": 0.81, "noisy_violation": None},
    ]
    page = page_of(full(two, curve={"points": points, "chosen": 0}))
    assert page.tables["Points of the curve"][1:] == [
        ["by the noise", "80.0%", "–", "1.0", "chosen"],
        ["0.1", "82.0%", "0.900", "8.0", ""],
        ["0.3", "81.0%", "–", "–", ""],
    ]
    labels = [str(given.get("aria-label")) for _, given in page.elements if given.get("class") == "mark chosen"]
    assert labels == ["tolerance by the noise: accuracy 80.0%, noised gap 1.0 point, the chosen model"]


def test_shares_of_the_budget_are_those_of_the_exact_composition(two: Case) -> None:
    table = page_of(full(two)).tables["Releases that depend on the attribute"]
    plan = two.model.plan_
    squares = [1 / plan.noise_moments.noise_multiplier**2, plan.checks / plan.noise_checks.noise_multiplier**2]
    assert [row[3] for row in table[1:]] == [f"{one / sum(squares):.1%}" for one in squares]


def test_shares_are_left_out_where_costs_do_not_add_up() -> None:
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-5)
    ledger.debit(Release("labels", RandomizedResponseCost(epsilon=0.5, categories=2), 1.0))
    (one,) = spending(ledger.certificate())
    assert (one.share, one.alone) == (None, 0.5)


def test_certificate_on_the_page_is_the_one_of_the_model(two: Case) -> None:
    html = full(two).html()
    page = Page(html)
    written = re.search(r'<code id="json">(.*?)</code>', html, re.DOTALL)
    assert written is not None
    text = written[1].replace("&#34;", '"').replace("&#39;", "'").replace("&lt;", "<").replace("&amp;", "&")
    assert json.loads(text) == json.loads(two.model.certificate_.to_json())
    assert page.says(two.model.certificate_.statement)
    assert all(page.says(one) for one in two.model.certificate_.not_covered)
    assert json.loads(re.findall(r"```json\n(.*?)\n```", full(two).markdown(), re.DOTALL)[0]) == json.loads(text)


def test_joint_privacy_that_the_measurement_states_is_not_said_to_be_missing(two: Case) -> None:
    silent = two.measurement.to_dict()
    told = silent | {"certificate": silent["certificate"] | {"remarks": ["Together with the other certificate: all."]}}
    for measurement, sentence in ((silent, "unless one ledger paid for both"), (told, "except for what the remarks")):
        page = page_of(full(two, measurement=measurement))
        assert page.says(f"Joint privacy of training and measurement, {sentence}")
    assert page.says("Together with the other certificate: all.")


def test_best_guess_is_the_closed_form_rounded_up(two: Case) -> None:
    certificate = replace(two.model.certificate_, reproduction=False)
    (entry,) = [one for one in certificate.releases if one["purpose"] == "moments"] or [certificate.releases[0]]
    other = (*certificate.releases, {**entry, "mechanism": "randomized response"})
    exactly = norm.cdf(gaussian_mu(certificate.epsilon, certificate.delta) / 2)
    by_epsilon = (math.exp(certificate.epsilon) + certificate.delta) / (1 + math.exp(certificate.epsilon))
    for one, best in ((certificate, exactly), (replace(certificate, releases=other), by_epsilon)):
        stated = float(re.findall(r"at most ([\d.]+) of 100", odds_sentence(one))[0])
        assert best * 100 <= stated < best * 100 + 0.1


def test_best_guess_at_epsilon_one_is_the_one_of_the_page_on_epsilon() -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    ledger.debit(Release("sums", GaussianCost(1 / gaussian_mu(1.0, 1e-5)), 1.0))
    assert "at most 55.4 of 100" in odds_sentence(ledger.certificate())  # 55.34, rounded up


def test_facts_have_their_places_and_unknown_ones_are_printed(two: Case) -> None:
    page = page_of(full(two, facts=FACTS | {"reviewed_by": ["Ann", "Bo"], "key": None, "noisy_violation": 0.25}))
    assert page.says("Loans of a small bank")
    assert page.says("81.2% of the decisions are right on the training rows")
    assert page.says(str(FACTS["command"]))
    assert page.says("Reviewed by Ann, Bo")
    assert page.says("Violation in training, noised 0.25")
    assert not page.says("Key that joins it")
    assert page.says("Rows 1,200")


def test_accuracy_on_evaluation_people_is_told_where_the_file_holds_it(two: Case) -> None:
    facts = two.measurement.to_dict() | {"accuracy": 0.7654, "data": "<new>.csv"}
    page = page_of(full(two, measurement=facts))
    assert page.says("On 1,200 rows of evaluation data (<new>.csv) it is 76.5%")
    assert "On 1,200 rows of evaluation data (&lt;new&gt;.csv) it is 76.5%" in full(two, measurement=facts).markdown()


def test_verdict_compares_the_violation_with_the_tolerance() -> None:
    assert verdict(0.0, 0.04, 0.05, 5, ()).endswith("within the tolerance of 0.05.")
    assert verdict(0.06, 0.1, 0.05, 5, ()).endswith("above the tolerance of 0.05.")
    assert "Inconclusive" in verdict(0.0, 0.06, 0.05, 5, ())
    assert "not enough evidence on c" in verdict(0.0, 0.04, 0.05, 5, ("c",))
    assert "not enough evidence" in verdict(0.0, None, 0.05, 5, ())


# --- what must not be there


def test_report_of_a_loaded_model_is_the_same_to_the_letter(case: Case, tmp_path: Path) -> None:
    loaded = LagrangianDualClassifier.load(case.model.save(tmp_path / "model"))
    options = {"measurement": json.loads(case.measurement.to_json()), "facts": FACTS}
    again = build_report(loaded, **options)
    assert again.html() == build_report(case.model, **options).html()
    assert again.markdown() == build_report(case.model, **options).markdown()


def test_report_of_a_model_without_privacy_has_no_number_by_group(open_book: Case) -> None:
    model = open_book.model
    by_group = [one.name for one in model.history_columns_ if one.status == "exact"]
    assert len(by_group) == 6
    exact = [*model.dual_.to_numpy().ravel(), *model.history_[by_group].to_numpy().ravel()]
    curve = {"points": [{"tolerance": 0.1, "accuracy": 0.5, "noisy_violation": 0.123456}], "chosen": 0}
    report = build_report(model, curve=curve, facts={"noisy_violation": 0.123456, "rows": 1200})
    page = page_of(report)
    assert page.says("Rows 1,200")
    assert page.says("No privacy guarantee: epsilon is infinite.")
    assert page.says("Nothing is promised about what can be learned of a row's group")
    shown = {cell for table in page.tables.values() for row in table for cell in row}
    shown |= set(re.findall(r"(?<![\d.])[−-]?\d+\.\d+", report.markdown().split("```")[0]))
    for value in exact:
        if math.isfinite(value) and abs(value) > 1e-3:
            assert not {number(value, 3), number(value, 4)} & shown
    assert "0.123" not in report.html()
    assert "[a]" not in report.html()


def test_history_is_shown_by_the_status_of_its_columns_and_not_by_their_names(two: Case) -> None:
    model = copy.copy(two.model)
    kept = [replace(one, status="exact") if one.kind == "noisy_gap" else one for one in model.history_columns_]
    renamed = [replace(one, name=f"{one.kind} of {one.group}") if one.group else one for one in kept]
    model.history_ = model.history_.set_axis([one.name for one in renamed], axis=1).assign(mine=0.123456)
    model.history_columns_ = tuple(renamed)
    page = page_of(build_report(model))
    shown = ["round", "loss", "accuracy", "auc", "multiplier of women", "multiplier of men"]
    assert page.tables["One line per round"][0] == [*shown, "noisy violation", "violation error"]
    assert "Noised gaps on the training rows, without bounds" not in page.tables
    titles = {name for name in page.ids if name.startswith("history-") and name.endswith("-title")}
    assert titles == {f"history-{name}-title" for name in ("loss", "accuracy", "auc", "multiplier-0")}


def test_curve_without_privacy_is_left_out_of_the_report_of_a_private_model(two: Case) -> None:
    assert two.curve is not None
    exact = replace(two.curve, certificate=replace(two.curve.certificate, epsilon=math.inf))
    assert build_report(two.model, curve=exact).contents.curve is None
    assert build_report(two.model, curve=two.curve).contents.curve is not None


def test_remarks_about_groups_are_left_out_without_privacy(open_book: Case) -> None:
    model = open_book.model
    kept = model.certificate_
    try:
        object.__setattr__(model, "certificate_", type(kept)(**(vars(kept) | {"remarks": ("group 'a': 0.4321",)})))
        assert "0.4321" not in build_report(model).html() + build_report(model).markdown()
    finally:
        model.certificate_ = kept


def test_exact_measurement_is_not_printed(two: Case) -> None:
    facts = two.measurement.to_dict()
    facts["certificate"]["epsilon"] = "infinity"
    page = page_of(full(two, measurement=facts))
    assert page.says("has no finite epsilon, so its numbers are exact and are not shown")
    assert not [caption for caption in page.tables if caption.startswith("Noised rates")]
