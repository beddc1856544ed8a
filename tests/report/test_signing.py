"""A page that can be signed: every field is there or visibly empty, every measurement is listed, one bound is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cases import FACTS, Case, signed
from pages import cells, full, page_of, sections

from justitia.report import build_report
from justitia.report.formatting import points
from justitia.report.inputs import EMPTY, FIELDS, log_sentences, read_log

#: What a person who signs looks for: a heading, caption or name, on the page.
CHECKLIST = (
    *FIELDS.values(),
    *("What a positive decision means", "SHA-256 digests", "Public rows of the training", "Plan", "Groups", "Decision"),
    *("Before and after", "AUC, public", "Calibration, all rows", "Decisions and labels of the evaluation data"),
    *("Rates by group", "Gap and limit", "Impact on groups", "shortfall", "no group given"),
    *(
        "Scores by group",
        "Measurements recorded in this folder",
        "Privacy in plain words",
        "What is not promised",
        "Approval and signatures",
    ),
    *(
        "Reviewer",
        "Technical annex",
        "How each feature was read",
        "Training history",
        "Multipliers",
        "noise multiplier",
    ),
    *("Certificate", "How to reproduce it", "Record for a registry of deployments"),
)
ABOUT = {name: f"the {name} of a bank" for name in FIELDS} | {"positive_means": "loan granted", "title": "Loans"}


def test_every_field_is_on_the_page_and_the_card_or_visibly_empty(two: Case) -> None:
    page = page_of(full(two, measurement=signed(two), about=ABOUT))
    for words in CHECKLIST:
        assert page.says(words), words
    for name in FIELDS:
        assert page.says(f"the {name} of a bank")
    bare = build_report(two.model)
    empty = page_of(bare).tables["Stated by people, not checked by this page"]
    assert [row for row in empty if row[1] != EMPTY] == []
    assert len(empty) == len(FIELDS) + 1
    assert bare.markdown().count(EMPTY) >= len(FIELDS) + 1
    assert page_of(bare).says("Model not stated")  # a model that was never saved has no digest


def test_before_and_after_stand_side_by_side_with_private_bounds(two: Case) -> None:
    measured = signed(two)
    tables = page_of(full(two, measurement=measured)).tables
    (table,) = [one for caption, one in tables.items() if caption.startswith("Before and after")]
    assert cells(table, "accuracy, public") == ["82.0%", "80.0%"]
    assert cells(table, "AUC, public") == ["0.900", "0.850"]
    (rates,) = [one for caption, one in tables.items() if caption.startswith("Noised rates")]
    assert "(" in cells(rates, "women")[3]
    (gaps,) = [one for caption, one in tables.items() if caption.startswith("Largest differences")]
    assert [row[1] for row in gaps[1:]] == ["before", "after"]
    (confusion,) = [one for caption, one in tables.items() if caption.startswith("Decisions and labels")]
    assert confusion[1][1:] == ["500", "120"]


def test_impact_and_scores_on_the_page_are_those_of_the_measurement(two: Case) -> None:
    measured = signed(two)
    page = page_of(full(two, measurement=measured))
    (table,) = [one for caption, one in page.tables.items() if caption.startswith("Noised; the bounds of ratios")]
    (women,) = [one for one in measured["impact"]["by_group"] if one["group"] == "women"]
    assert cells(table, "women")[1] == f"{women['impact_ratio']:.2f}"
    assert cells(table, "men")[1:] == ["1.00", "the reference"]
    assert page.says("Smallest impact ratio of selection rate: ")
    (scores,) = [one for caption, one in page.tables.items() if caption.startswith("Noised; the bounds of each column")]
    assert cells(scores, "women")[0] == f"{measured['scores']['by_group'][0]['binned_auc']:.2f}"


def test_verdict_and_printed_bound_are_the_same_one_sided_bound(two: Case) -> None:
    measured = signed(two)
    (violation,) = measured["violations"].values()
    page = page_of(full(two, measurement=measured))
    assert page.says(f"at most {points(violation['at_most'], 0.2)}")
    assert page.says("with one-sided bounds")
    assert measured["verdicts"]["demographic_parity"]["at_most"] == violation["at_most"]


def test_headline_does_not_speak_of_a_notion_that_was_not_trained_for(two: Case) -> None:
    measured = signed(two)
    measured["violations"] = {"equalized_odds": measured["violations"]["demographic_parity"]}
    measured["largest_gaps"] = {"equalized_odds": measured["largest_gaps"]["demographic_parity"]}
    measured["before"] = None
    page = page_of(full(two, measurement=measured))
    assert page.says("What was measured is equalized odds, not demographic parity, for which it was trained.")


def entry(name: str, certificate: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"name": name, "certificate": certificate, **facts}


def test_every_measurement_is_logged_and_a_second_one_of_the_same_people_is_warned_of(two: Case) -> None:
    measured = signed(two)
    paid = two.model.certificate_.to_dict()
    log = [
        entry("training", paid, created="2026-11-01", data="loans.csv", rows=1200, digest="a" * 64),
        measured | {"name": "1", "digest": "b" * 64},
        measured | {"name": "2", "digest": "b" * 64, "shared_with": ["1", "training"]},
    ]
    page = page_of(full(two, measurement=measured, measurement_log=log))
    (table,) = [one for caption, one in page.tables.items() if caption.startswith("Training and measurements")]
    assert [row[0] for row in table[1:]] == ["training", "1", "2"]
    assert table[2][1:5] == ["2026-11-17", "new.csv", "1,200", "b" * 12]
    assert "at most" in table[2][6]
    assert page.says("measured 2 times")
    assert page.says("not pooled")
    assert page.says("the bounds of all 2 hold together at 0.90 confidence or more")
    assert page.says("Warning: measurement 2 includes, or may include, people of measurement 1.")
    assert page.says("Warning: measurement 2 includes, or may include, people of the training data.")
    assert (
        "not pooled"
        in sections(full(two, measurement=measured, measurement_log=log).markdown())[
            "Measurements recorded in this folder"
        ]
    )


def test_verdict_stands_at_the_top_and_says_that_there_were_other_measurements(two: Case) -> None:
    measured = signed(two)
    violation = measured["violations"]["demographic_parity"] | {"estimate": 0.2, "at_least": 0.15, "at_most": 0.25}
    newest = measured | {"violations": {"demographic_parity": violation}, "measurements": 2}
    html = full(two, measurement=newest).html()
    top = html[: html.index("<nav")]
    assert "<span>Not met</span>" not in top  # the limit of the measurement is 20 points
    assert "<span>Inconclusive</span>" in top
    assert "<span>Not met</span>" in full(two, measurement=newest, limit=0.1).html()
    assert "the newest of 2 measurements" in top
    log = [entry("training", two.model.certificate_.to_dict()), newest | {"name": "1"}]
    page = page_of(full(two, measurement=newest, measurement_log=log))
    (table,) = [one for caption, one in page.tables.items() if caption.startswith("Training and measurements")]
    assert table[2][6].startswith("demographic parity: at least 15.0 points, at most 25.0 points")


def test_empty_log_has_no_sentences_and_an_entry_without_certificate_is_refused() -> None:
    assert log_sentences((), 0.95) == ()
    paid = {"certificate": {}}
    with pytest.raises(ValueError, match="expected measurement_log to be facts"):
        read_log([paid])


def test_facts_as_json_are_those_of_the_page_with_a_record_for_the_registry(two: Case) -> None:
    report = full(two, measurement=signed(two), about=ABOUT | {"region": "EU", "sector": "Finance"})
    facts = json.loads(report.json())
    assert facts["stated"]["owner"] == ABOUT["owner"]
    assert facts["measurement"]["impact"]["by_group"][0]["group"] == "women"
    assert facts["notion"] == "demographic_parity"
    record = facts["registry"]["deployment"]
    assert list(record) == [
        *("product", "dp_flavor", "privacy_loss", "model", "accounting", "implementation", "resources"),
    ]
    assert record["product"]["data_product_region"] == "EU"
    assert record["product"]["publication_date"] == "2026-11-16"
    assert record["privacy_loss"]["privacy_parameters"] == {}  # seeded noise: nothing is promised


def test_model_without_privacy_registers_no_parameters(open_book: Case) -> None:
    facts = json.loads(build_report(open_book.model).json())
    assert facts["registry"]["deployment"]["dp_flavor"]["name"] is None
    assert facts["multipliers"] is None
    assert facts["spending"] == []


@pytest.mark.parametrize(
    ("about", "kind", "sentence"),
    [
        ({"ownr": "x"}, ValueError, "did you mean 'owner'"),
        ({"owner": 3}, TypeError, "expected 'owner' to be text"),
        ([1], TypeError, "expected about to be a mapping"),
    ],
)
def test_wrong_fields_are_refused_in_one_sentence(two: Case, about: Any, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        build_report(two.model, facts=FACTS, about=about)
