"""What a data frame of every engine has to do; each engine's file says how one is made and how a worker is killed."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "rows"))
from file_tables import FEATURES, FEW, GROUPS, make_table, model, recorded_sums, write_parts

from justitia import LagrangianDualRegressor, PrivacyLedger, RowFiles, SensitiveColumns, measure, tradeoff
from justitia.custodian.service import InVault
from justitia.privacy.persons import Persons
from justitia.rows import files as rows_files
from justitia.rows import frames
from justitia.rows.file_data import is_frame
from justitia.rows.frames import FrameRows

#: From a table and a number of partitions to a data frame with the rows in this order.
Make = Callable[[pd.DataFrame, int], Any]
TARGETS = ("binary", "classes", "number")


def table_for(target: str) -> pd.DataFrame:
    """Columns of a fit, in which ``label`` is of this kind."""
    table = make_table()[[*FEATURES, "label", "sex", "weight"]]
    if target == "classes":
        table["label"] = np.digitize(table["a"] + table["b"], [-0.7, 0.7])
    if target == "number":
        table["label"] = table["a"] * 3 + table["b"]
    return table


def unfitted(target: str) -> Any:
    if target == "number":
        return LagrangianDualRegressor(epsilon=4.0, groups=GROUPS, tolerance=0.05, random_state=3, noise_seed=11)
    return model("demographic_parity" if target == "classes" else "equalized_odds")


def fitted(target: str, rows: Any, **more: Any) -> tuple[str, list[bytes], Any]:
    """Digest of multipliers and predictions, the exact sums of all releases, and the model."""
    table = table_for(target)
    with recorded_sums() as sums:
        made = unfitted(target).fit(rows, "label", sensitive_features="sex", sample_weight="weight", **more)
    found = made.dual_.to_numpy().tobytes() + np.asarray(made.predict(table[list(FEATURES)])).astype(str).tobytes()
    return hashlib.sha256(found).hexdigest(), sums, made


def from_memory(target: str) -> tuple[str, list[bytes]]:
    table = table_for(target)
    with recorded_sums() as sums:
        made = unfitted(target).fit(
            table[list(FEATURES)], table["label"], sensitive_features=table["sex"], sample_weight=table["weight"]
        )
    found = made.dual_.to_numpy().tobytes() + np.asarray(made.predict(table[list(FEATURES)])).astype(str).tobytes()
    return hashlib.sha256(found).hexdigest(), sums


def check_same_as_memory(make: Make, target: str) -> None:
    """Sums and model equal those of rows in memory, where the sample has all rows."""
    expected, sums = from_memory(target)
    for partitions in (1, 3):
        found, theirs, _ = fitted(target, make(table_for(target), partitions))
        assert theirs == sums != []
        assert found == expected


def check_same_as_files(make: Make, target: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums and model equal those of files in one and two processes, where most rows are not in the sample."""
    monkeypatch.setattr(rows_files, "SAMPLE", FEW)
    monkeypatch.setattr(rows_files, "BLOCK", 500)
    write_parts(table_for(target), folder / "rows", [400, 410])
    expected, sums, _ = fitted(target, str(folder / "rows"))
    assert fitted(target, RowFiles.open(folder / "rows", workers=2))[:2] == (expected, sums)
    found, theirs, _ = fitted(target, make(table_for(target), 4))
    assert theirs == sums != []
    assert found == expected


def check_measure_tradeoff_predict(make: Make, collect: Callable[[Any], pd.DataFrame]) -> None:
    """The same numbers as in memory; predictions come as columns beside all others."""
    table = table_for("binary")
    features = table[list(FEATURES)]
    made = model(noise_seed=5)
    rows = make(table.drop(columns="weight"), 3)
    curve = tradeoff(made, rows, "label", sensitive_features="sex", tolerances=(0.02, 0.1))
    here = tradeoff(made, features, table["label"], sensitive_features=table["sex"], tolerances=(0.02, 0.1))
    pd.testing.assert_frame_equal(curve.table, here.table, check_exact=True)
    chosen = curve.models[0]
    decided = chosen.predict(rows)
    assert is_frame(decided)
    assert type(decided).__module__ == type(rows).__module__
    found = collect(decided)
    assert list(found.columns) == [*FEATURES, "label", "sex", "prediction"]
    assert found["prediction"].tolist() == chosen.predict(features).tolist()
    given = [[x if isinstance(x, str) else None for x in one["sex"]] for one in (found, table)]
    assert given[0] == given[1]
    shares = collect(chosen.predict_proba(rows))[["probability_no", "probability_yes"]]
    assert np.array_equal(shares.to_numpy(), chosen.predict_proba(features))
    how = {"groups": GROUPS, "noise_seed": 3, "pos_label": "yes"}
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    measured = measure("label", "prediction", sensitive_features="sex", data=decided, ledger=ledger, **how)
    assert len(ledger.releases) == 1
    beside = measure(table["label"], chosen.predict(features), sensitive_features=table["sex"], **how)
    assert str(measured) == str(beside)


def killer(kill: Callable[[], None], flag: Path) -> Any:
    """A pass that ends its process in the middle of a block, once. It is sent by value."""

    class Dying:
        def __init__(self, work: Any, flag: str) -> None:
            self.work, self.flag = work, flag

        @property
        def with_entries(self) -> Any:
            opened = getattr(self.work, "with_entries", None)
            return None if opened is None else lambda *given: type(self)(opened(*given), self.flag)

        def run(self, block: Any) -> Any:
            import os

            found = self.work.run(block)
            if block.first and not os.path.exists(self.flag):  # noqa: PTH110
                os.close(os.open(self.flag, os.O_CREAT))
                kill()
            return found

    return lambda work: Dying(work, str(flag))


def worker_killer() -> Callable[[], None]:
    """A function that ends its process at once; nested, so that it is sent by value."""

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    return kill


def check_killed_worker_changes_nothing(
    make: Make, folder: Path, monkeypatch: pytest.MonkeyPatch, kill: Callable[[], None]
) -> None:
    """A worker is killed in the first released pass and one in a public one: same sums, model and ledger."""
    expected, sums, before = fitted("binary", make(table_for("binary"), 4))
    original, killed = FrameRows.run, []

    def run(self: FrameRows, work: Any) -> Any:
        released = "GroupSums" in type(work).__name__
        flag = folder / f"killed-{released}"
        if flag.exists():
            return original(self, work)
        found = original(self, killer(kill, flag)(work))
        killed.append(flag.exists())
        return found

    monkeypatch.setattr(FrameRows, "run", run)
    found, theirs, after = fitted("binary", make(table_for("binary"), 4))
    assert killed == [True, True]
    assert theirs == sums
    assert found == expected
    assert [(one.purpose, one.cost, one.sensitivity) for one in after.ledger_.releases] == [
        (one.purpose, one.cost, one.sensitivity) for one in before.ledger_.releases
    ]


@contextmanager
def nothing_spent(error: type[Exception], match: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivacyLedger]:
    """A refusal in one sentence that holds no entry of the attribute, before any debit."""
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-5)
    with pytest.raises(error, match=match) as caught:
        yield ledger
    assert "\n" not in str(caught.value)
    assert not ledger.releases


def check_wrong_input(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, kinds of data and packages that are wrong."""
    table = table_for("binary")

    def fit(rows: Any, ledger: PrivacyLedger, y: Any = "label", sensitive: Any = "sex", **more: Any) -> None:
        unfitted("binary").fit(rows, y, sensitive_features=sensitive, ledger=ledger, **more)

    rows = make(table, 2)
    with nothing_spent(ValueError, "expected a column 'nope' in the data frame of", monkeypatch) as ledger:
        fit(rows, ledger, "nope")
    with nothing_spent(ValueError, "expected a column 'nope' in the data frame of", monkeypatch) as ledger:
        fit(rows, ledger, sensitive="nope")
    with nothing_spent(TypeError, "expected y to be the name of a column", monkeypatch) as ledger:
        fit(rows, ledger, table["label"])
    with nothing_spent(ValueError, "expected engine 'post-processing' with a data frame", monkeypatch) as ledger:
        model(engine="moments").fit(rows, "label", sensitive_features="sex", ledger=ledger)
    with nothing_spent(ValueError, "expected a column 'nope' in the data frame of", monkeypatch) as ledger:
        fit(rows, ledger, person="nope")
    without = table.assign(id=np.where(np.arange(len(table)) == 700, None, "x").astype(object))
    with nothing_spent(ValueError, "expected an id in every row of person", monkeypatch) as ledger:
        fit(make(without, 2), ledger, person="id")
    with nothing_spent(ValueError, "expected no custodian with the data frame", monkeypatch) as ledger:
        fit(rows, ledger, sensitive=InVault(None))
    with nothing_spent(ValueError, "is sensitive and cannot be used as a public one", monkeypatch) as ledger:
        fit(rows, ledger, "sex")
    elsewhere = SensitiveColumns("sex", file="attributes.parquet", key="a")
    with nothing_spent(ValueError, "join the two by their key with", monkeypatch) as ledger:
        fit(rows, ledger, sensitive=elsewhere)
    missing = table.assign(label=table["label"].where(table.index != 700, None))
    with nothing_spent(ValueError, "expected a class label in every row", monkeypatch) as ledger:
        fit(make(missing, 2), ledger)
    with nothing_spent(ValueError, "expected rows in the data frame", monkeypatch) as ledger:
        fit(make(table[:0], 1), ledger)
    with monkeypatch.context() as patched:
        patched.setattr(frames, "PACKAGES", ("justitia", "a_package_that_workers_lack"))
        with nothing_spent(ValueError, "'a_package_that_workers_lack' on every worker", patched) as ledger:
            fit(rows, ledger)


def check_odd_entry(make: Make, entries: list[Any]) -> None:
    """An odd entry of one row is "not given": sums, model and messages are those without it."""
    table = table_for("binary")
    found = []
    for entry in [None, *entries]:
        column = table["sex"].astype(object).tolist()
        column[700] = entry
        found.append(fitted("binary", make(table.assign(sex=pd.Series(column, dtype=object)), 2))[:2])
    assert all(one == found[0] for one in found)


def check_key_without_partner(make: Make, joined: Callable[[Any, Any], Any]) -> None:
    """A row whose key is not in the table of the attribute, after the engine's own left join, is "not given"."""
    table = table_for("binary").assign(id=lambda one: np.arange(len(one)))
    known = table["id"] % 7 > 0
    rows = joined(make(table.drop(columns="sex"), 2), make(table.loc[known, ["id", "sex"]], 1))
    with recorded_sums() as sums:
        unfitted("binary").fit(rows, "label", sensitive_features="sex", sample_weight="weight")
    here = make(table.assign(sex=table["sex"].astype(object).where(known, None)), 2)
    with recorded_sums() as expected:
        unfitted("binary").fit(here, "label", sensitive_features="sex", sample_weight="weight")
    assert sums == expected != []


def check_persons(make: Make) -> None:
    """Rows of one person are protected together, as in memory; those beyond the limit are "not given"."""
    table = table_for("binary").assign(id=lambda one: [f"p{k}" for k in np.arange(len(one)) // 2])
    table.loc[:19, "id"] = "p0"  # one person has many rows
    persons = Persons.from_ids(table["id"])
    left_out = np.flatnonzero(~persons.counted)
    assert persons.rows_each > 1
    assert len(left_out)
    given: dict[str, Any] = {"sensitive_features": "sex", "sample_weight": "weight", "person": "id"}
    with recorded_sums() as sums:
        made = unfitted("binary").fit(make(table, 3), "label", **given)
    columns = {name: table[column] for name, column in given.items()}
    with recorded_sums() as expected:
        here = unfitted("binary").fit(table[list(FEATURES)], table["label"], **columns)
    assert sums == expected != []
    assert made.dual_.equals(here.dual_)
    assert {one.unit for one in made.ledger_.releases} == {"person"}
    assert [one.sensitivity for one in made.ledger_.releases] == [one.sensitivity for one in here.ledger_.releases]
    other = table["sex"].where(table.index != left_out[-1], "f" if table["sex"][left_out[-1]] != "f" else "m")
    with recorded_sums() as unchanged:
        unfitted("binary").fit(make(table.assign(sex=other), 3), "label", **given)
    assert unchanged == sums
    decided = table.assign(prediction=table["label"])
    how = {"groups": GROUPS, "noise_seed": 3, "pos_label": "yes"}
    measured = measure("label", "prediction", sensitive_features="sex", person="id", data=make(decided, 2), **how)
    labels, sex = table["label"], table["sex"]
    assert str(measured) == str(measure(labels, labels, sensitive_features=sex, person=table["id"], **how))


def check_flip(make: Make) -> None:
    """Another label of one row changes the sums of the two groups by that row, and of no other group."""
    table = table_for("binary")
    before = fitted("binary", make(table, 2))[1]
    place = int(np.flatnonzero(table["sex"] == "f")[-1])
    sex = table["sex"].tolist()
    sex[place] = "m"
    after = fitted("binary", make(table.assign(sex=sex), 2))[1]
    first, second = (np.frombuffer(sums[0], dtype=np.int64).reshape(len(GROUPS) + 1, -1) for sums in (before, after))
    changed = (first != second).any(1)
    assert changed.tolist() == [True, True, False, False]
    assert np.array_equal(first.sum(0), second.sum(0))
