"""The attribute in many files: what one of them stores, and as what, changes no label of another."""

import datetime as dt
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from file_tables import GROUPS, files, make_table, model
from pyarrow import parquet

from justitia import PrivacyLedger, measure
from justitia.privacy.attribute import SensitiveColumns
from justitia.privacy.joining import FileAttribute
from justitia.privacy.vault import SensitiveVault
from justitia.rows.parquet import RowFiles

DAY = dt.date(2001, 1, 1)
#: One file's column, by what its writer has made of the entries; an entry decides that where types are guessed.
COLUMNS: dict[str, Any] = {
    "text": pa.array(["f", "m", None]),
    "long text": pa.array(["f", "m" * 10**6, ""], pa.large_string()),
    "no text": pa.array([b"f", b"m", b"\xff"]),
    "nothing": pa.nulls(3),
    "whole": pa.array([1, 2, 2**60 + 1]),
    "with a gap": pa.array([1.0, None, -0.0]),
    "numbers": pa.array([math.nan, math.inf, 1e308]),
    "yes or no": pa.array([True, False, None]),
    "days": pa.array([DAY, None, dt.date.max]),
    "times": pa.array([dt.datetime(2001, 1, 1)] * 3, pa.timestamp("ns", "UTC")),
    "lists": pa.array([["f"], ["m", None], None]),
    "records": pa.array([{"sex": "f"}, None, {"sex": None}]),
    "category": pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["f", "m", "of no row"])),
    "decimals": pa.array([1, 2, 3]).cast(pa.decimal128(38, 2)),
}
LISTED: tuple[Any, ...] = (["f", "m"], [1, 2], [2**60 + 1, 2], [DAY, dt.date(2002, 1, 1)])


def codes(folder: Path, kinds: list[str], groups: Any, *, joined: bool = False) -> Any:
    """Group codes of files with these columns; joined by key, of a second folder of them."""
    for k, kind in enumerate(kinds):
        table = pa.table({"x": [0.0] * 3, "id": range(3 * k, 3 * k + 3), "sex": COLUMNS[kind]})
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, folder / "rows" / f"{k}.parquet")
    rows = RowFiles.open(folder / "rows")
    rows.check(["x", "id"], ["sex"])
    where = SensitiveColumns("sex", file=folder / "rows", key="id") if joined else SensitiveColumns("sex")
    attribute = FileAttribute(where, rows, rows if joined else None)
    vault = SensitiveVault(attribute, groups=groups, ledger=PrivacyLedger(epsilon=math.inf, delta=1e-5))
    return vault.reveal(purpose="a test")


@pytest.mark.parametrize("joined", [False, True], ids=["beside", "joined"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_type_of_one_file_changes_no_label_of_others(kind: str, joined: bool, tmp_path: Path) -> None:
    for number, groups in enumerate(LISTED):
        alone = codes(tmp_path / f"{number}", [kind], groups, joined=joined)
        for other in ("text", "whole"):
            usual = codes(tmp_path / f"{number} {other}", [other], groups, joined=joined)
            found = codes(tmp_path / f"{number} {other} {kind}", [other, kind, other], groups, joined=joined)
            assert np.array_equal(found, np.concatenate([usual, alone, usual]))


@pytest.mark.filterwarnings("ignore::UserWarning")  # few rows, large noise
@pytest.mark.parametrize("engine", ["post-processing", "moments"])
def test_fit_and_measurement_go_on_whatever_one_file_stores(engine: str, tmp_path: Path) -> None:
    table = make_table(303).drop(columns="sex")
    (tmp_path / "rows").mkdir()
    texts = pa.array([GROUPS[i % 3] for i in range(300)])
    parquet.write_table(
        pa.Table.from_pandas(table[:300], preserve_index=False).append_column("sex", texts),
        tmp_path / "rows" / "0.parquet",
    )
    for kind in (
        ("text", "nothing", "numbers", "lists", "category") if engine == "post-processing" else ("text", "records")
    ):
        last = pa.Table.from_pandas(table[300:], preserve_index=False).append_column("sex", COLUMNS[kind])
        parquet.write_table(last, tmp_path / "rows" / "1.parquet")
        fitted = model(engine=engine, noise_seed=None).fit(
            files(tmp_path / "rows"), "label", sensitive_features="sex", checkpoint=tmp_path / kind
        )
        assert len(fitted.ledger_.own_releases()) == 3
        found = measure("label", "label", data=files(tmp_path / "rows"), sensitive_features="sex", groups=GROUPS)
        assert found.people == 303
