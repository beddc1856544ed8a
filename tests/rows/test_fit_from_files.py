"""Fits, curves, measurements and predictions on rows in files, against those in memory."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from file_tables import FEATURES, FEW, GROUPS, digest, files, make_table, model, write
from pyarrow import dataset, parquet
from scipy.special import expit
from scipy.stats import ks_2samp

from justitia import (
    LagrangianDualClassifier,
    PostProcessingPlan,
    PrivacyLedger,
    SensitiveColumns,
    measure,
    tradeoff,
)
from justitia.notions import DemographicParity
from justitia.postprocessing.solver import PostProcessingRun
from justitia.privacy import joining
from justitia.privacy.joining import FileAttribute
from justitia.privacy.vault import SensitiveVault
from justitia.rows import files as rows_files
from justitia.rows.files import Columns, FileRows


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the noise(d size)? |even if groups|delta=")  # few rows
        yield


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most rows are not in the public sample."""
    monkeypatch.setattr(rows_files, "SAMPLE", FEW)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return write(make_table(), tmp_path / "rows.parquet")


class Graded(DemographicParity):
    """Averages how large a score is, which no decision tells."""

    def h_exact(self, scores: Any, y: Any) -> Any:
        return expit(scores)


def from_files(where: Any, made: LagrangianDualClassifier, **more: Any) -> LagrangianDualClassifier:
    return made.fit(files(where), "label", **{"sensitive_features": "sex"} | more)


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "accuracy_parity"])
@pytest.mark.parametrize("epsilon", [4.0, math.inf])
@pytest.mark.parametrize("engine", ["post-processing", "moments"])
def test_fit_on_a_file_that_fits_the_sample_equals_the_fit_in_memory_to_the_last_bit(
    stored: Path, engine: str, epsilon: float, notion: str
) -> None:
    table, made = make_table(), model(notion, engine, epsilon=epsilon)
    weight, person = table["weight"], table["who"]
    given = {"sensitive_features": table["sex"], "sample_weight": weight, "person": person}
    in_memory = digest(made.fit(table[list(FEATURES)], table["label"], **given), table)
    assert digest(from_files(stored, made, sample_weight="weight", person="who"), table) == in_memory


@pytest.mark.usefixtures("small_sample")
def test_passes_over_all_rows_bring_the_sample_near_the_fit_in_memory(tmp_path: Path) -> None:
    table = make_table(12_000)
    where = write(table, tmp_path / "rows.parquet", row_group_size=5000)
    made = model("demographic_parity", epsilon=math.inf, noise_seed=None)
    found = from_files(where, made).history_
    gaps = [name for name in found.columns if name.startswith("noisy_gap")]
    rates = dict(zip(GROUPS, found[gaps].iloc[-1], strict=True))
    decided = made.predict(files(where)) == "yes"
    exact = {group: decided[table["sex"] == group].mean() - decided.mean() for group in GROUPS}
    base = LagrangianDualClassifier(epsilon=math.inf, tolerance=1.0, random_state=3)
    base.fit(table[list(FEATURES)], table["label"], sensitive_features=table["sex"])
    before = base.predict(table[list(FEATURES)]) == "yes"
    spread = np.ptp([before[table["sex"] == group].mean() for group in GROUPS])
    assert spread > 0.3
    assert np.ptp(list(exact.values())) < 0.25 * spread  # what is distilled from 300 rows is rough
    assert np.ptp(list(rates.values())) < 0.06


@pytest.mark.usefixtures("small_sample")
def test_table_in_memory_file_and_dataset_give_the_same_fit_to_the_last_bit(stored: Path) -> None:
    table = make_table()
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    sources = (dataset.dataset(arrow), stored, dataset.dataset(stored))
    assert len({digest(from_files(where, model()), table) for where in sources}) == 1


@pytest.mark.usefixtures("small_sample")
def test_attribute_in_a_file_of_its_own_is_joined_by_key(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "KEYS_AT_ONCE", 500)  # several passes over the second file
    table = make_table()
    beside = digest(from_files(stored, model()), table)
    other = table[["id", "sex"]].sample(frac=1.0, random_state=0)
    strangers = pd.DataFrame({"id": [-1, -2], "sex": ["f", "m"]})
    again = other[:5].assign(sex="x")  # of several rows the first counts
    second = write(
        pd.concat([other, strangers, again]).assign(id=lambda one: one["id"].astype(float)), tmp_path / "a.pq"
    )
    apart = write(table.drop(columns="sex"), tmp_path / "public.parquet")
    where = SensitiveColumns("sex", file=second, key="id")
    assert digest(from_files(apart, model(), sensitive_features=where), table) == beside


def odd_columns(entry: Any) -> list[tuple[str, pa.Array]]:
    """Columns of the attribute in which one row's entry is odd, by what stores it."""
    table = make_table()
    texts: list[Any] = [text.encode() if isinstance(text, str) else None for text in table["sex"]]
    texts[7] = entry
    offsets, data = pa.array(texts, pa.binary()).buffers()[1:]
    valid = pa.array(texts, pa.binary()).buffers()[0]
    text = pa.StringArray.from_buffers(len(texts), offsets, data, valid)  # which does not check that it is text
    return [("text", text), ("bytes", pa.array(texts, pa.binary()))]


@pytest.mark.parametrize("entry", [b"\xff\xfe", b"", b"x" * 100_000, b"f\x00", None])
def test_odd_entry_of_one_row_changes_no_other_nor_whether_the_fit_succeeds(tmp_path: Path, entry: Any) -> None:
    table = make_table()
    plain = pa.Table.from_pandas(table, preserve_index=False)
    expected = None
    for name, column in odd_columns(b"f") + odd_columns(entry):
        stored = tmp_path / f"{name}.parquet"
        parquet.write_table(plain.set_column(plain.schema.get_field_index("sex"), "sex", column), stored)
        rows = files(stored)
        kind: Any = GROUPS if name == "text" else tuple(group.encode() for group in GROUPS)
        ledger = PrivacyLedger(epsilon=math.inf, delta=1e-5)
        attribute = FileAttribute(SensitiveColumns("sex"), rows)
        codes = SensitiveVault(attribute, groups=kind, ledger=ledger).reveal(purpose="a test")
        others = np.delete(codes, 7)
        expected = others if expected is None else expected
        assert np.array_equal(others, expected)
        for engine in ("post-processing", "moments") if name == "text" else ("post-processing",):
            fitted = from_files(stored, model(engine=engine, groups=kind, noise_seed=None))
            assert len(fitted.ledger_.own_releases()) == 3


@pytest.mark.usefixtures("small_sample")
def test_rows_of_the_second_file_change_no_other_label_whatever_they_hold(tmp_path: Path) -> None:
    table = make_table()
    rows = files(write(table.drop(columns="sex"), tmp_path / "public.parquet"))

    def codes(second: pd.DataFrame) -> Any:
        where = SensitiveColumns("sex", file=write(second, tmp_path / "second.parquet"), key="id")
        attribute = FileAttribute(where, rows, files(where.file))
        vault = SensitiveVault(attribute, groups=GROUPS, ledger=PrivacyLedger(epsilon=math.inf, delta=1e-5))
        return vault.reveal(purpose="a test")

    given = table[["id", "sex"]].astype({"id": str})
    expected = codes(given)
    for key, label in ((None, "f"), ("", "m"), ("3.0", "x"), ("no number", None), (given["id"][7], "odd")):
        changed = given.copy()
        changed.loc[7] = (key, label)
        found = codes(changed)
        assert np.array_equal(np.delete(found, 7), np.delete(expected, 7))
    assert (codes(given[:0]) == len(GROUPS)).all()


@pytest.mark.usefixtures("small_sample")
def test_curve_measurement_and_prediction_read_files(stored: Path) -> None:
    table, made = make_table(), model()
    curve = tradeoff(made, files(stored), "label", sensitive_features="sex", tolerances=(0.0, 0.1, 1.0))
    assert len(curve.models[0].ledger_.own_releases()) == 3
    violations = curve.table["noisy_violation"].to_numpy()
    assert violations[0] < violations[-1]
    made = curve.models[0]
    decided = made.predict(files(stored))
    assert np.array_equal(decided, made.predict(table[list(FEATURES)]))
    settings: dict[str, Any] = {"groups": GROUPS, "noise_seed": 5, "notion": "equalized_odds"}
    found = measure("label", decided, sensitive_features="sex", person="who", data=stored, **settings)
    same = measure(table["label"], decided, sensitive_features=table[["sex"]], person=table["who"], **settings)
    assert found.to_dict() == same.to_dict()


@pytest.mark.usefixtures("small_sample")
def test_progress_has_a_bar_for_every_pass_that_counts_rows(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from_files(stored, model(progress=True, noise_seed=1))
    shown = capsys.readouterr().err
    # labels and sample; codes; rows and scores; moments; totals, sums and rates of memberships; two passes per check
    assert [shown.count(f"pass {k}:   0%|          | 0.00/1.20k") for k in range(1, 13)] == [1] * 11 + [0]
    from_files(stored, model(progress=False, noise_seed=1))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("changes", "given", "sentence"),
    [
        ({}, {"y": "nothing"}, "expected a column 'nothing' in every file"),
        ({}, {"y": make_table()["label"]}, "expected y to be the name of a column where X is in files, got 'Series'"),
        ({}, {"y": "town", "sensitive_features": make_table()["sex"]}, "expected sensitive_features to be the name"),
        ({}, {"y": "a"}, "expected at most 20 class labels in 'a', got more"),
        ({}, {"sensitive_features": "label"}, "the column 'label' is sensitive and cannot be used as a public one"),
        ({}, {"sample_weight": "town"}, "expected every weight in 'town' to be finite and at least 0"),
        ({"engine": "pf-ld"}, {}, "expected engine 'post-processing' or 'moments' where X is in files, got 'pf-ld'"),
        ({"engine": "moments", "notion": Graded()}, {}, "depends on a score through its sign where X is in files"),
        ({"groups": "infer"}, {}, "expected the public list of groups where rows are read from files"),
    ],
)
def test_wrong_input_gets_one_sentence_and_debits_nothing(
    stored: Path, tmp_path: Path, changes: dict[str, Any], given: dict[str, Any], sentence: str
) -> None:
    made = model(noise_seed=None, **changes)
    arguments = {"y": "label", "sensitive_features": "sex", "checkpoint": tmp_path / "run"} | given
    with pytest.raises((ValueError, TypeError), match=sentence) as refused:
        made.fit(files(stored), **arguments)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("ids", "sentence"), [([3, 3], "got a key twice"), ([3, None], "got rows without 'id'")])
def test_keys_of_the_data_that_are_missing_or_repeat_are_refused(tmp_path: Path, ids: list[Any], sentence: str) -> None:
    table = make_table()
    second = write(table[["id", "sex"]], tmp_path / "second.parquet")
    wrong = table.drop(columns="sex").astype({"id": "Int64"})
    wrong.loc[[0, 1], "id"] = ids
    where = SensitiveColumns("sex", file=second, key="id")
    with pytest.raises(ValueError, match=sentence):
        from_files(write(wrong, tmp_path / "public.parquet"), model(), sensitive_features=where)


def test_fit_that_its_first_noised_sizes_refuse_says_what_they_have_cost(stored: Path, small_sample: None) -> None:
    plan, ledger = PostProcessingPlan(checks=1, share_sizes=0.05), PrivacyLedger(epsilon=9.0, delta=1e-5)
    refused = model(plan=plan, groups=("F", "M", "X"))
    with pytest.raises(ValueError, match=r"check the names of the groups.* This check has spent epsilon ") as caught:
        from_files(stored, refused, ledger=ledger)
    assert [one.purpose for one in ledger.releases] == ["sizes"]
    said = float(re.search(r"has spent epsilon ([0-9.]+) of", str(caught.value))[1])
    assert ledger.epsilon() <= said <= 1.01 * ledger.epsilon()


@pytest.mark.usefixtures("small_sample")
def test_fit_counts_weights_and_persons_of_all_rows(stored: Path) -> None:
    fitted = from_files(stored, model(), sample_weight="weight", person="who")
    assert Counter(fitted.ledger_.costs()) == fitted.plan_.costs()
    assert {one.unit for one in fitted.ledger_.releases} == {"person"}
    plain = from_files(stored, model())
    assert {one.unit for one in plain.ledger_.releases} == {"row"}
    assert digest(fitted, make_table()) != digest(plain, make_table())


def test_weights_of_files_are_those_of_a_fit_in_memory(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_files, "SAMPLE", 300)
    source = FileRows(files(stored), Columns(FEATURES, "label", "weight"), lambda *_: nullcontext(Bar()))
    source.scan()
    weights = source.scale_weights(2.0, 1.0)
    given = make_table()["weight"].to_numpy()
    assert weights.scaled(given) == pytest.approx(given / given.mean(), rel=1e-6)
    assert source.max_weight == pytest.approx(2 / given.mean(), rel=1e-6)


class Bar:
    """A progress bar that shows nothing."""

    def update(self, *_: Any) -> None: ...


@pytest.mark.parametrize("sample", [FEW, 10_000])
def test_fit_at_scores_reads_files_and_deploys_alike_distributions(
    tmp_path: Path, sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_files, "SAMPLE", sample)
    table = make_table(4000)
    stored = write(table, tmp_path / "rows.parquet")
    distances = {}
    for at in ("decision", "scores"):
        made = from_files(stored, model("demographic_parity", epsilon=30.0, at=at))
        assert [one.purpose for one in made.ledger_.releases] == ["moments", "decisions", "decisions"]
        scores = made.predict_proba(files(stored))[:, 1]
        by_group = [scores[(table["sex"] == group).to_numpy()] for group in GROUPS]
        distances[at] = max(ks_2samp(one, other).statistic for one in by_group for other in by_group)
    assert distances["scores"] < 0.6 * distances["decision"]


@pytest.mark.parametrize("kind", ["path", "dataset"])
@pytest.mark.parametrize(("at", "debits"), [("_release_moments", 0), ("_fit_memberships", 1), ("_check", 1)])
def test_file_that_is_replaced_between_two_passes_stops_the_fit_before_another_debit(
    tmp_path: Path, small_sample: None, monkeypatch: pytest.MonkeyPatch, at: str, debits: int, kind: str
) -> None:
    stored = write(make_table(), tmp_path / "rows" / "rows.parquet")
    other = write(make_table()[::-1], tmp_path / "other.parquet")
    method = getattr(PostProcessingRun, at)

    def replaced(self: Any, *given: Any, **more: Any) -> Any:
        if other.exists():
            other.rename(stored)
        return method(self, *given, **more)

    monkeypatch.setattr(PostProcessingRun, at, replaced)
    ledger, where = PrivacyLedger(epsilon=4.0, delta=1e-5), tmp_path / "rows"
    with pytest.raises(ValueError, match=r"expected rows\.parquet to stay as it was when it was first read"):
        from_files(where if kind == "path" else dataset.dataset(where), model(), ledger=ledger)
    assert len(ledger.releases) == debits


def test_rows_of_a_file_that_is_written_to_while_it_is_read_are_refused(stored: Path) -> None:
    tables = files(stored).tables(["a"])
    next(tables)
    write(make_table(), stored)  # the same rows: whoever reads them cannot know
    with pytest.raises(ValueError, match="start again when nobody writes to it"):
        list(tables)
