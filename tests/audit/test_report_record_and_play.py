"""Record and play for the report: with the same noised answers, one person's label changes no letter of it."""

from __future__ import annotations

from typing import Any

import pytest
from recording import make_people, run

from justitia.report import build_report


@pytest.mark.parametrize(("notion", "n_groups"), [("demographic_parity", 2), ("equalized_odds", 5)])
def test_report_with_one_label_changed_is_the_same_to_the_letter(notion: str, n_groups: int) -> None:
    people = make_people(n_groups, missing=True)
    first = run(people, notion=notion)
    report = build_report(first.model)
    changes: list[tuple[int, Any]] = [(1, people.groups[-1]), (2, None), (7, people.groups[0])]
    for person, label in changes:
        second = run(people.with_label(person, label), answers=first.noisy, notion=notion)
        again = build_report(second.model)
        assert again.html() == report.html()
        assert again.markdown() == report.markdown()


def test_report_on_other_answers_is_another_one() -> None:
    people = make_people(2, missing=False)
    first = run(people)
    other = run(people, answers=[answer + 1.0 for answer in first.noisy])
    assert build_report(other.model).html() != build_report(first.model).html()
