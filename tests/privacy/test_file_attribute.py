"""The attribute of rows in files: beside them, joined by key, and of persons. One entry changes nobody else's code."""

import copy
import math
import pickle
import traceback
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from vaults import NOISE, Capture

from justitia import LagrangianDualClassifier, PostProcessingPlan, PrivacyLedger, SensitiveColumns
from justitia.privacy.attribute import AttributeStream
from justitia.privacy.interface import VaultRequest
from justitia.privacy.joining import FileAttribute
from justitia.privacy.persons import Persons
from justitia.privacy.vault import FileCodes, SensitiveVault, local_vault, open_vault
from justitia.rows.parquet import RowFiles

GROUPS = ("f", "m")
LABELS = ["f", "m", "m", None, "f", "m", "f", "x", "m", "f"]
CODES = [0, 1, 1, 2, 0, 1, 0, 2, 1, 0]
N = len(LABELS)
#: Rows of one process, and of three.
RANGES: dict[str, Any] = {"one process": None, "three processes": ((0, 4), (4, 5), (5, N))}
#: Other entries of one person.
ENTRIES = ["f", "m", "x", None, "", "NaN", "f" * 70_000, "\N{NULL}", "f "]


def write(folder: Path, name: str, cuts: Sequence[int] = (3,), **columns: Any) -> RowFiles:
    """Rows in several files of small row groups."""
    table = pa.table({one: pa.array(entries) for one, entries in columns.items()})
    (folder / name).mkdir(parents=True, exist_ok=True)
    ends = [0, *cuts, len(table)]
    for k, (a, b) in enumerate(pairwise(ends)):
        parquet.write_table(table.slice(a, b - a), folder / name / f"{k}.parquet", row_group_size=2)
    return RowFiles.open(folder / name)


def beside(folder: Path, labels: Sequence[Any], ranges: Any = None) -> FileAttribute:
    files = write(folder, "rows", id=list(range(N)), sex=pa.array(labels, pa.string()))
    return FileAttribute(SensitiveColumns("sex"), files, ranges=ranges)


def joined(
    folder: Path, labels: Sequence[Any], ranges: Any = None, keys: Any = range(N), own: Any = range(N)
) -> FileAttribute:
    """The same in a second file, in another order."""
    files = write(folder, "rows", id=list(own))
    order = [(7 * k) % len(labels) for k in range(len(labels))] if len(labels) % 7 else range(len(labels))
    second = write(
        folder,
        "second",
        (2, 5),
        id=pa.array([keys[k] for k in order], pa.int64()),
        sex=pa.array([labels[k] for k in order], pa.string()),
    )
    where = SensitiveColumns("sex", file=folder / "second", key="id")
    return FileAttribute(where, files, second, ranges)


WAYS = {"beside": beside, "joined": joined}


def opened(attribute: FileAttribute, person: Any = None, noise: Any = None) -> SensitiveVault:
    ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
    request = VaultRequest(GROUPS, math.inf, ledger, N, person=person)
    if noise is None:
        return local_vault(open_vault(attribute, request))
    people = None if person is None else Persons.from_ids(person)
    return SensitiveVault(attribute, groups=GROUPS, ledger=ledger, people=people, noise_source=noise)


def codes(attribute: FileAttribute, person: Any = None) -> list[int]:
    return opened(attribute, person).reveal(purpose="a test").tolist()


@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.parametrize("way", WAYS)
def test_codes_are_those_of_the_entries_however_rows_are_held(way: str, ranges: str, tmp_path: Path) -> None:
    attribute = WAYS[way](tmp_path, LABELS, RANGES[ranges])
    assert codes(attribute) == CODES
    read = FileCodes(attribute, GROUPS)
    for first in range(N):
        for stop in range(first, N + 1):
            assert read.take(first, stop).tolist() == CODES[first:stop]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda one: repr(one)[:12])
@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.parametrize("way", WAYS)
def test_flipped_entry_changes_nobody_elses_code_and_no_outcome(
    way: str, ranges: str, entry: str | None, tmp_path: Path
) -> None:
    values = np.linspace(-3, 3, 2 * N).reshape(N, 2)
    shown = set()
    for k in (0, 3, 4, N - 1):
        for labels in (LABELS, [*LABELS[:k], entry, *LABELS[k + 1 :]]):
            noise = Capture()
            vault = opened(WAYS[way](tmp_path, labels, RANGES[ranges]), noise=noise)
            vault.group_sums(values, bound=1.0, noise=NOISE, purpose="sums")
            (release,) = vault._ledger.releases
            shown.add((repr(vault), vault.group_names, release, noise.exact[0].shape, noise.std[0]))
            found = vault.reveal(purpose="a test").tolist()
            assert found[:k] + found[k + 1 :] == CODES[:k] + CODES[k + 1 :]
            assert found[k] == (GROUPS.index(labels[k]) if labels[k] in GROUPS else 2)
    assert len(shown) == 1


@pytest.mark.parametrize("ranges", RANGES)
def test_rows_of_the_second_file_that_come_go_or_repeat_change_their_own_code_alone(
    ranges: str, tmp_path: Path
) -> None:
    keys, cut = list(range(N)), RANGES[ranges]
    without = codes(joined(tmp_path / "a", LABELS[:4] + LABELS[5:], cut, keys=keys[:4] + keys[5:]))
    assert without == [*CODES[:4], 2, *CODES[5:]]
    stranger = codes(joined(tmp_path / "b", [*LABELS, "f", "m"], cut, keys=[*keys, 77, None]))
    assert stranger == CODES
    twice = codes(joined(tmp_path / "c", [*LABELS, "m", "f"], cut, keys=[*keys, 4, 4]))
    assert twice[:4] + twice[5:] == CODES[:4] + CODES[5:]
    assert codes(joined(tmp_path / "d", ["f"], cut, keys=[77])) == [2] * N


def test_key_that_repeats_in_rows_of_two_processes_is_refused_like_one_in_rows_of_one(tmp_path: Path) -> None:
    """Its entry would count in two rows, and move answers twice as far as the ledger records."""
    own = [*range(N - 1), 0]
    said = set()
    for place, cut in RANGES.items():
        attribute = joined(tmp_path / place, LABELS, cut, own=own)
        with pytest.raises(ValueError, match="got a key twice") as caught:
            opened(attribute)
        said.add(str(caught.value))
    assert len(said) == 1
    with pytest.raises(ValueError, match="rows without 'id'"):
        opened(joined(tmp_path / "gap", LABELS, RANGES["three processes"], own=[*range(N - 1), None]))


@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.parametrize("way", WAYS)
def test_flipped_entries_of_a_person_move_sums_within_the_recorded_sensitivity(
    way: str, ranges: str, tmp_path: Path
) -> None:
    person = ["p", "p", "q", "q", "r", "r", "s", "s", "t", "t"]
    values, sums = np.ones((N, 1)), []
    for labels in (LABELS, ["m", "f", *LABELS[2:]], [None, None, *LABELS[2:]], ["m", "m", *LABELS[2:]]):
        noise = Capture()
        vault = opened(WAYS[way](tmp_path, labels, RANGES[ranges]), person, noise)
        vault.group_sums(values, bound=1.0, noise=NOISE, purpose="sums")
        assert vault._ledger.releases[0].unit == "person"
        sensitivity = vault._ledger.releases[0].sensitivity
        assert sensitivity == pytest.approx(2 * math.sqrt(2))
        sums.append(noise.exact[0])
        assert vault.reveal(purpose="a test").tolist()[2:] == CODES[2:]
    distances = [float(np.linalg.norm(one - other)) for one in sums for other in sums]
    assert max(distances) <= sensitivity
    assert max(distances) > sensitivity / 2  # both rows moved


def test_rows_of_a_person_that_do_not_count_are_not_given_whatever_they_hold(tmp_path: Path) -> None:
    person = ["p"] * 5 + ["q", "r", "s", "t", "u"]
    people = Persons.from_ids(person)
    assert people.rows_each == 1
    (hidden, *_) = np.flatnonzero(~people.counted)
    for cut in RANGES.values():
        for entry in ("f", "m", None):
            labels = [*LABELS[:hidden], entry, *LABELS[hidden + 1 :]]
            expected = np.where(people.counted, CODES, 2).tolist()
            assert codes(beside(tmp_path, labels, cut), person) == expected


# --- files that change


def test_files_with_another_number_of_rows_are_refused_before_any_debit() -> None:
    class Fewer:
        def __len__(self) -> int:
            return 4

        def tables(self, names: Sequence[str], start: int = 0, stop: int | None = None) -> Any:
            yield pd.DataFrame({"sex": LABELS[start : (stop or 4) - 1]})[list(names)]

    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    for person in (None, ["p", "q", "r", "s"]):
        attribute = FileAttribute(SensitiveColumns("sex"), Fewer())
        with pytest.raises(ValueError, match=r"expected files that stay as they are|expected one id per row"):
            open_vault(attribute, VaultRequest(GROUPS, 1.0, ledger, 4, person=person))
    assert ledger.releases == ()


# --- closed


def test_codes_of_files_are_not_printed_and_not_copied_and_pickle_as_their_public_description(tmp_path: Path) -> None:
    held = FileCodes(beside(tmp_path, ["zanzibar", *LABELS[1:]]), GROUPS)
    assert held.take(0, N).tolist() == [2, *CODES[1:]]
    for text in (repr(held), str(held), repr(vars(held)), repr(held.attribute), repr(held.attribute.stream(0, 3))):
        assert "zanzibar" not in text
        assert "2, 1, 1" not in text
    for attempt in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            attempt(held)
    stored = pickle.dumps(held)
    assert b"zanzibar" not in stored
    again = pickle.loads(stored)
    assert again._read == {}
    assert pickle.loads(stored) is again  # a worker reads its rows once
    parts = [held.take(0, N).tobytes(), np.array(CODES, dtype=np.int64).tobytes()]
    assert not any(part in stored for part in parts)
    assert again.take(2, 5).tolist() == CODES[2:5]


def test_vault_of_files_is_closed_and_can_forget(tmp_path: Path) -> None:
    for cut in RANGES.values():
        vault = opened(beside(tmp_path, LABELS, cut))
        assert repr(vault) == f"SensitiveVault(n={N}, groups=['f', 'm'])"
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                attempt(vault)
        vault.forget()
        assert vault.reveal(purpose="after it was forgotten").tolist() == [2] * N
    held = FileCodes(beside(tmp_path, LABELS, RANGES["three processes"]), GROUPS)
    held.take(0, 2)
    held.forget(2)
    assert held.take(0, N).tolist() == [2] * N


@pytest.mark.parametrize("way", WAYS)
def test_error_while_files_are_read_holds_no_entry(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attribute = WAYS[way](tmp_path, ["zanzibar", *LABELS[1:]])
    monkeypatch.setattr("justitia.privacy.vault.encode", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt) as caught:
        opened(attribute)
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    inside = [one for one in frames if "/justitia/" in one.f_code.co_filename]
    assert inside
    for frame in inside:
        kept = [one for one in frame.f_locals.values() if isinstance(one, np.ndarray | list | pa.Table)]
        assert not any("zanzibar" in repr(one) for one in kept)
        assert not any(isinstance(one, AttributeStream | FileCodes) for one in frame.f_locals.values())


# --- whole fits


@pytest.mark.parametrize("person", [None, "who"], ids=["rows", "persons"])
@pytest.mark.parametrize("way", WAYS)
def test_fit_on_files_has_the_same_public_outcome_whatever_one_entry_is(
    way: str, person: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("justitia.rows.files.SAMPLE", 150)  # most rows are not in the sample
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=400), "z": rng.normal(size=400)})
    table["y"] = (table["x"] + 0.5 * rng.normal(size=400) > 0).astype(int)
    table["id"], table["who"] = np.arange(400) * 3, np.arange(400) // 2
    sex = pd.Series(rng.choice(["f", "m"], size=400), dtype=object)
    shown = []
    for entry in ("f", "m", "zanzibar", None):
        sex[7] = entry
        columns = table if way == "joined" else table.assign(sex=sex)
        columns.to_parquet(tmp_path / "rows.parquet")
        table[["id"]].assign(sex=sex)[::-1].to_parquet(tmp_path / "second.parquet")
        where = SensitiveColumns("sex", file=tmp_path / "second.parquet", key="id") if way == "joined" else "sex"
        model = LagrangianDualClassifier(epsilon=4.0, groups=GROUPS, plan=PostProcessingPlan(checks=1), random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # noise decides about these
            model.fit(tmp_path / "rows.parquet", "y", sensitive_features=where, person=person)
        assert "zanzibar" not in repr(vars(model))
        assert b"zanzibar" not in pickle.dumps(model)
        certificate = model.certificate_
        shown.append(
            (certificate.releases, certificate.unit, model.dual_.shape, model.history_.shape, capfd.readouterr())
        )
    assert all(one == shown[0] for one in shown)
