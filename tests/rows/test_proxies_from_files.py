"""Proxies of the group in Parquet files: the same numbers as in memory, in one process and in several."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from file_tables import FEATURES, FEW, digest, files, make_table, model, write

from justitia import PrivacyLedger
from justitia.postprocessing.proxies import AveragedMemberships
from justitia.postprocessing.solver import PostProcessingRun
from justitia.rows import files as rows_files

PROXIES = ["p", "quarter"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the noise(d size)? |even if groups|delta=")  # few rows
        yield


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most rows are not in the public sample."""
    monkeypatch.setattr(rows_files, "SAMPLE", FEW)


def table_with_proxies() -> pd.DataFrame:
    """One number with gaps and one category that follow the attribute in most rows."""
    table, random = make_table(), np.random.default_rng(5)
    same = (table["sex"] == "f").to_numpy(dtype=float)
    guess = np.where(random.random(len(table)) < 0.8, same, random.random(len(table)))
    guess[::13] = np.nan
    quarter = np.where(random.random(len(table)) < 0.5, table["sex"].fillna("f"), "other")
    return table.assign(p=guess, quarter=quarter)


def fitted(where: Any, **more: Any) -> Any:
    return model().fit(files(where), "label", **{"sensitive_features": "sex", "proxy": PROXIES} | more)


def test_fit_on_a_file_that_fits_the_sample_equals_the_fit_in_memory(tmp_path: Path) -> None:
    table = table_with_proxies()
    where = write(table, tmp_path / "rows.parquet")
    given = {"sensitive_features": table["sex"], "proxy": table[PROXIES]}
    in_memory = digest(model().fit(table[list(FEATURES)], table["label"], **given), table)
    assert digest(fitted(where), table) == in_memory
    plain = model().fit(table[list(FEATURES)], table["label"], sensitive_features=table["sex"])
    assert digest(plain, table) != in_memory


@pytest.mark.usefixtures("small_sample")
def test_rows_beside_the_sample_have_their_proxies_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, used = table_with_proxies(), []
    where, sound = write(table, tmp_path / "rows.parquet"), PostProcessingRun._use

    def use(self: PostProcessingRun, weights: Any) -> None:
        sound(self, weights)
        used.append(isinstance(self._memberships, AveragedMemberships))

    monkeypatch.setattr(PostProcessingRun, "_use", use)
    monkeypatch.setattr(rows_files, "BLOCK", 512)
    alone = digest(fitted(where), table)
    assert used == [True]
    in_two = model().fit(files(where, workers=2), "label", sensitive_features="sex", proxy=PROXIES)
    assert digest(in_two, table) == alone
    assert digest(model().fit(files(where), "label", sensitive_features="sex"), table) != alone


def test_proxies_are_no_features_where_all_columns_are(tmp_path: Path) -> None:
    table = table_with_proxies()
    where = write(table.drop(columns=["id", "who", "weight"]), tmp_path / "rows.parquet")
    made = model().fit(where, "label", sensitive_features="sex", proxy=PROXIES)
    assert made.feature_names_in_.tolist() == list(FEATURES)
    made.predict(where)


@pytest.mark.parametrize(
    ("given", "kind", "match"),
    [
        (["nobody"], ValueError, "nobody"),
        (["label"], ValueError, "cannot be a proxy"),
        (["sex"], ValueError, "'sex' is sensitive"),
        (np.zeros(1200), TypeError, "names of columns"),
        ([3], TypeError, "names of columns"),
    ],
    ids=str,
)
def test_wrong_names_are_refused_before_any_budget_is_spent(
    tmp_path: Path, given: Any, kind: type[Exception], match: str
) -> None:
    where, ledger = write(table_with_proxies(), tmp_path / "rows.parquet"), PrivacyLedger(epsilon=9.0, delta=1e-5)
    with pytest.raises(kind, match=match):
        fitted(where, proxy=given, ledger=ledger)
    assert ledger.releases == ()
