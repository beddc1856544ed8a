"""Monitoring over time: planned false alarms and budget, drift of public columns, and nothing of the attribute."""

import json
import math
import os
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp

from justitia import BudgetExceeded, DurableLedger, LedgerError, Monitor, measure
from justitia.metrics.drift import ColumnReference
from justitia.monitor import LEDGERS, LINES, SETTINGS
from justitia.privacy.accounting import GaussianCost, epsilon_spent, gaussian_mu
from justitia.privacy.vault import SensitiveVault
from justitia.report.monitor_page import monitor_page

N = 2000
OPTIONS: dict[str, Any] = {"limit": 0.1, "groups": ["a", "b"], "planned": 4, "people": "new"}


def rows(gap: float, seed: int = 0) -> tuple[Any, Any]:
    """Decisions, and groups whose selection rates differ by this much."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b"], N)
    return (rng.uniform(size=N) < np.where(groups == "a", 0.5, 0.5 - gap)).astype(int), groups


def made(folder: Path, **options: Any) -> Monitor:
    return Monitor.create(folder / "monitor", **(OPTIONS | options))


def added(monitor: Monitor, gap: float, number: int, **options: Any) -> Any:
    decided, groups = rows(gap, number)
    return monitor.add(decided, sensitive_features=groups, when=f"night {number}", noise_seed=number, **options)


# -- the rule


def test_each_measurement_is_tested_at_an_equal_part_of_the_planned_probability(tmp_path: Path) -> None:
    monitor = made(tmp_path, planned=20, false_alarms=0.04)
    assert monitor.settings.level == pytest.approx(0.002)
    decided, groups = rows(0.3)
    entry = monitor.add(decided, sensitive_features=groups, when="n", noise_seed=5)
    alone = measure(
        None,
        decided,
        sensitive_features=groups,
        groups=["a", "b"],
        epsilon=1.0,
        confidence=1 - 0.002,
        threshold=0.1,
        noise_seed=5,
    )
    (verdict,) = alone.verdicts.values()
    assert (entry.at_least, entry.at_most, entry.answer) == (verdict.at_least, verdict.at_most, verdict.answer)
    assert (entry.answer, entry.alerts) == ("above", ("limit",))


def test_alert_comes_with_a_gap_above_the_limit_and_not_below(tmp_path: Path) -> None:
    monitor = made(tmp_path)
    found = [added(monitor, gap, k).alerts for k, gap in enumerate((0.0, 0.05, 0.3))]
    assert found == [(), (), ("limit",)]
    assert [one.number for one in monitor.alerts] == [3]
    assert [one.to_dict() for one in Monitor(monitor.folder).entries] == [one.to_dict() for one in monitor.entries]


# -- the budget


def test_new_people_have_a_ledger_each_and_nobody_pays_more_than_epsilon(tmp_path: Path) -> None:
    monitor = made(tmp_path, epsilon=0.7)
    for k in range(3):
        added(monitor, 0.0, k)
    ledgers = [DurableLedger.open(path) for path in sorted((monitor.folder / LEDGERS).iterdir())]
    assert [round(one.epsilon(), 9) for one in ledgers] == [0.7] * 3
    assert len({one.identity for one in ledgers}) == 3
    assert monitor.spent() == pytest.approx(0.7)
    for entry, ledger in zip(monitor.entries, ledgers, strict=True):
        assert entry.receipt is not None
        ledger.verify(entry.receipt)


def test_same_people_pay_epsilon_in_a_window_and_the_planned_total_after_all(tmp_path: Path) -> None:
    monitor = made(tmp_path, people="same", planned=6, window=3, epsilon=1.0)
    for k in range(6):
        added(monitor, 0.0, k)
    ledger = DurableLedger.open(monitor.folder / LEDGERS / "people.ledger")
    each = [release.cost for release in ledger.releases]
    for start in range(4):  # any three in a row
        costs = {cost: each[start : start + 3].count(cost) for cost in each[start : start + 3]}
        assert epsilon_spent(costs, 1e-5) == pytest.approx(1.0)
    total = epsilon_spent({GaussianCost(1 / (gaussian_mu(1.0, 1e-5) * math.sqrt(2))): 1}, 1e-5)
    assert ledger.epsilon() == pytest.approx(total) == pytest.approx(monitor.settings.epsilon_total)
    assert ledger.epsilon() <= ledger.budget_epsilon * (1 + 1e-9)
    decided, groups = rows(0.0)
    with pytest.raises(BudgetExceeded, match="All 6 planned measurements"):
        monitor.add(decided, sensitive_features=groups)
    assert len(DurableLedger.open(ledger.path).releases) == 6


def test_measurement_whose_process_ended_after_the_debit_is_lost_and_not_paid_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = made(tmp_path, people="same")
    with monkeypatch.context() as patch:
        patch.setattr("justitia.monitor._append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            added(monitor, 0.0, 0)
    with pytest.raises(LedgerError, match="recorded as lost"):
        added(monitor, 0.0, 0)
    assert added(monitor, 0.0, 1).number == 2
    assert [one.answer == "lost" for one in monitor.entries] == [True, False]
    assert len(DurableLedger.open(monitor.folder / LEDGERS / "people.ledger").releases) == 2
    assert "Result lost" not in monitor_page(monitor.to_dict())


def test_half_a_line_of_a_killed_process_makes_room(tmp_path: Path) -> None:
    monitor = made(tmp_path)
    added(monitor, 0.0, 0)
    with (monitor.folder / LINES).open("ab") as file:
        file.write(b'{"number": 2, "wh')
    assert len(monitor.entries) == 1
    added(monitor, 0.0, 1)
    assert [one.number for one in monitor.entries] == [1, 2]


def test_measurements_added_at_once_have_numbers_of_their_own(tmp_path: Path) -> None:
    monitor = made(tmp_path, people="same")
    threads = [threading.Thread(target=added, args=(Monitor(monitor.folder), 0.0, k)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.number for one in monitor.entries] == [1, 2, 3, 4]


# -- the attribute


def test_flipped_entry_changes_nothing_but_the_noisy_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sums, kept = SensitiveVault.group_sums, []

    def same(vault: SensitiveVault, *given: Any, **named: Any) -> Any:
        kept.append(sums(vault, *given, **named))
        return kept[0]

    monkeypatch.setattr(SensitiveVault, "group_sums", same)
    decided, groups = rows(0.2)
    flipped = groups.copy()
    flipped[7] = "b" if groups[7] == "a" else "a"
    strange = groups.astype(object)
    strange[7] = "nobody knows"
    seen, lines = [], []
    for k, attribute in enumerate((groups, flipped, strange)):
        (tmp_path / str(k)).mkdir()
        monitor = made(tmp_path / str(k), reference={"x": np.arange(N)})
        executed: list[tuple[str, int]] = []

        def trace(frame: Any, event: str, _: Any, executed: list[tuple[str, int]] = executed) -> Any:
            name = frame.f_code.co_filename
            if name.endswith(("monitor.py", "drift.py", "bounds.py", "measurement.py")):
                executed.append((name, frame.f_lineno))
                return trace
            return None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            entry = monitor.add(decided, sensitive_features=attribute, features={"x": np.arange(N)}, when="n")
        finally:
            sys.settrace(before)
        seen.append({key: value for key, value in entry.to_dict().items() if key != "receipt"})
        lines.append(executed)
    assert seen[0] == seen[1] == seen[2]
    assert lines[0] == lines[1] == lines[2]
    # What noise hides is one person: two blocks of the exact answer move by at most one row each.
    assert len({answer.shape for answer in kept}) == 1


def test_files_hold_no_entry_and_only_this_user_can_open_them(tmp_path: Path) -> None:
    monitor = made(tmp_path, people="same")
    decided, groups = rows(0.2)
    marked = groups.astype(object)
    marked[3] = "a-label-that-is-in-no-group"
    monitor.add(decided, sensitive_features=marked)
    files = [path for path in monitor.folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {SETTINGS, LINES, "people.ledger"}
    assert all(b"a-label-that-is-in-no-group" not in path.read_bytes() for path in files)
    if os.name == "posix":
        assert stat.S_IMODE(monitor.folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE((monitor.folder / name).stat().st_mode) for name in (SETTINGS, LINES)} == {0o600}


# -- drift


def test_distance_is_that_of_scipy_where_all_places_are_kept_and_smaller_otherwise() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.integers(0, 50, 3000), rng.integers(3, 60, 800)
    exact = ks_2samp(before, after, method="asymp")
    drift = ColumnReference.from_values("x", before).drift("x", after)
    assert drift.distance == pytest.approx(exact.statistic)
    assert drift.p_value == pytest.approx(exact.pvalue, rel=0.2)
    before, after = rng.normal(size=5000), rng.normal(0.3, 1, 5000)
    found, exact = ColumnReference.from_values("x", before).drift("x", after), ks_2samp(before, after)
    assert exact.statistic - 0.02 < found.distance <= exact.statistic
    assert found.p_value >= exact.pvalue


def test_stability_index_is_the_usual_one() -> None:
    reference = ColumnReference.from_values("c", ["a"] * 6000 + ["b"] * 4000)
    drift = reference.drift("c", ["a"] * 3000 + ["b"] * 7000)
    assert drift.stability_index == pytest.approx(0.3 * math.log(7 / 4) + 0.3 * math.log(6 / 3), rel=1e-3)
    assert drift.distance == pytest.approx(0.3)
    assert drift.p_value < 1e-100
    assert reference.drift("c", ["a"] * 60 + ["new"] * 40).alert(0.05)
    assert not reference.drift("c", ["a"] * 600 + ["b"] * 400).alert(0.05)


def test_drift_of_equal_distributions_is_rarely_significant() -> None:
    rng = np.random.default_rng(1)
    values = []
    for _ in range(400):
        numbers = ColumnReference.from_values("x", rng.normal(size=500)).drift("x", rng.normal(size=400))
        names = ColumnReference.from_values("c", rng.choice(["a", "b", "c"], 500))
        values.append((numbers.p_value, names.drift("c", rng.choice(["a", "b", "c"], 400)).p_value))
    significant = (np.array(values) < 0.05).mean(axis=0)
    assert (significant < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)).all()
    assert significant[1] > 0.02


def test_drift_of_a_watched_column_is_an_alert(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    reference = pd.DataFrame({"income": rng.normal(size=N), "kind": rng.choice(["x", "y"], N)})
    monitor = made(tmp_path, reference=reference, reference_scores=rng.uniform(size=N))
    same = {"features": reference, "scores": rng.uniform(size=N)}
    assert added(monitor, 0.0, 0, **same).alerts == ()
    moved = {"features": reference.assign(income=reference["income"] + 1), "scores": rng.uniform(size=N) ** 3}
    assert added(monitor, 0.0, 1, **moved).alerts == ("drift of income", "drift of scores")
    with pytest.raises(ValueError, match="'kind', which the monitor watches"):
        added(monitor, 0.0, 2, features=reference[["income"]], scores=same["scores"])
    with pytest.raises(ValueError, match="finite number in every row of 'income'"):
        added(monitor, 0.0, 2, features=reference.assign(income="text"), scores=same["scores"])
    assert len(list((monitor.folder / LEDGERS).iterdir())) == 2  # refused before a budget was spent


# -- wrong input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limit": 1.5}, "limit between 0 and 1"),
        ({"planned": 0}, "planned to be a whole number"),
        ({"window": 2.5}, "window to be a whole number"),
        ({"people": "all"}, "people"),
        ({"epsilon": math.inf}, "finite epsilon"),
        ({"false_alarms": 0.9}, "false_alarms"),
        ({"groups": []}, "public list of groups"),
        ({"name": "two\nlines"}, "text on one line"),
        ({"reference": {"x": []}}, "at least one row"),
        ({"reference": {"scores": [1.0]}, "reference_scores": [1.0]}, "no column 'scores'"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence_and_leave_no_folder(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        made(tmp_path, **change)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("groups", [["a", "b"], {"sex": ["a", "b"]}])
def test_sensitive_column_is_not_watched_because_its_distribution_would_be_exact(groups: Any, tmp_path: Path) -> None:
    decided, sex = rows(0.0)
    table = pd.DataFrame({"sex": sex, "age": np.arange(N)})
    if isinstance(groups, dict):
        with pytest.raises(ValueError, match="the column 'sex' is sensitive"):
            made(tmp_path, groups=groups, reference=table)
        assert not (tmp_path / "monitor").exists()
        return
    monitor = made(tmp_path, groups=groups, reference=table)  # nothing says yet which column is sensitive
    for sensitive in (table["sex"], table[["sex"]]):
        with pytest.raises(ValueError, match="the column 'sex' is sensitive"):
            monitor.add(decided, sensitive_features=sensitive, features=table)
    assert monitor.entries == ()
    assert monitor.spent() == 0


def test_period_that_was_measured_is_refused_before_a_debit(tmp_path: Path) -> None:
    monitor = made(tmp_path, people="same")
    added(monitor, 0.0, 0)
    with pytest.raises(ValueError, match="'night 0' already"):
        added(monitor, 0.0, 0)
    assert len(DurableLedger.open(monitor.folder / LEDGERS / "people.ledger").releases) == 1


def test_folder_that_is_none_or_was_changed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected the folder of a monitor"):
        Monitor(tmp_path)
    monitor = made(tmp_path)
    (monitor.folder / LINES).write_text('{"number": 2}\n')
    with pytest.raises(ValueError, match="measurement 1 in line 1"):
        _ = monitor.entries
    (monitor.folder / SETTINGS).write_text('{"schema": 1}')
    with pytest.raises(ValueError, match="settings of a monitor"):
        Monitor(monitor.folder)


# -- the page


def test_page_states_verdict_budget_and_rule_and_loads_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    monitor = made(tmp_path, name="<b>loans</b>", people="same", reference_scores=rng.uniform(size=N))
    empty = monitor_page(monitor.to_dict())
    assert "Not measured yet" in empty
    for k, gap in enumerate((0.0, 0.3)):
        added(monitor, gap, k, scores=rng.uniform(size=N))
    page = monitor_page(monitor.to_dict())
    settings = monitor.settings
    for part in (
        "Above the limit",
        "&lt;b&gt;loans",
        settings.alarm_sentence,
        settings.budget_sentence,
        'class="alert"',
    ):
        assert part in page
    assert "1 of 2 measurements showed a gap above the limit, the first of night 1." in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    json.dumps(monitor.to_dict())


@pytest.mark.parametrize(
    ("answers", "drifted", "state", "word"),
    [
        (["below"], None, "met", "Within the limit"),
        (["above", "below"], None, "not-met", "Limit was exceeded"),
        (["below", "above"], None, "not-met", "Above the limit"),
        (["below", "not enough evidence"], None, "inconclusive", "No alert"),
        (["below", "below"], 1, "inconclusive", "Drift"),
        (["below", "below"], 0, "met", "Within the limit"),
        (["below", "lost"], None, "not-measured", "Result lost"),
    ],
)
def test_state_of_the_page_follows_from_all_measurements(
    tmp_path: Path, answers: list[str], drifted: int | None, state: str, word: str
) -> None:
    facts = made(tmp_path).to_dict()
    one = {"people": 2000, "violation": 0.05, "at_least": 0.01, "at_most": 0.09, "drift": {}, "receipt": None}
    facts["measurements"] = [
        one
        | {"number": k + 1, "when": f"night {k}", "answer": answer}
        | {"alerts": ["limit"] * (answer == "above") + ["drift of Income"] * (drifted == k)}
        for k, answer in enumerate(answers)
    ]
    page = monitor_page(facts)
    assert f'class="status {state}"' in page
    assert f"<span>{word}</span>" in page
    assert ("showed a gap above the limit" in page) == ("above" in answers)
    assert ("Drift of Income: first in night" in page) == (drifted is not None)
    assert "Limit: a gap of at most 10.0 points" in page
