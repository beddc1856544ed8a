"""Files that do not fit together, keys that do not join, a full disk: one sentence, and nothing is debited."""

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from file_tables import files, make_table, model, write

from justitia import SensitiveColumns
from justitia.exceptions import UnknownGroupWarning
from justitia.rows import files as rows_files

SCRIPT = Path(__file__).with_name("full_disk.py")


def broken(folder: Path, kind: str) -> Any:
    table = make_table(60)
    write(table, folder / "a.parquet")
    match kind:
        case "empty folder":
            (folder / "none").mkdir()
            return folder / "none"
        case "nothing there":
            return folder / "elsewhere.parquet"
        case "no match":
            return str(folder / "*.pq")
        case "not Parquet":
            (folder / "b.parquet").write_bytes(b"PAR1 but not really")
        case "cut off":
            (folder / "b.parquet").write_bytes((folder / "a.parquet").read_bytes()[:-40])
        case "column missing":
            write(table.drop(columns="b"), folder / "b.parquet")
        case "other type":
            write(table.assign(b="text"), folder / "b.parquet")
    return folder


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("empty folder", "expected Parquet files in .*, got none"),
        ("nothing there", "which is not there"),
        ("no match", "expected Parquet files in .*, got none"),
        ("not Parquet", "b.parquet cannot be read as Parquet"),
        ("cut off", "b.parquet cannot be read as Parquet"),
        ("column missing", "expected a column 'b' in every file, got none in b.parquet"),
        ("other type", "expected one type in column 'b', got .*string in b.parquet and double in a.parquet"),
    ],
)
def test_files_that_do_not_fit_together_are_refused_in_one_sentence(tmp_path: Path, kind: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        model(noise_seed=None).fit(
            broken(tmp_path / "rows", kind), "label", sensitive_features="sex", checkpoint=tmp_path / "run"
        )
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("data", "second", "sentence"),
    [
        (["sex"], ["id"], "expected a column 'id' in every file, got none in second.parquet"),
        (["sex"], ["sex"], "expected a column 'sex' in every file, got none in second.parquet"),
        (["sex", "id"], [], "expected a column 'id' in every file, got none in public.parquet"),
    ],
)
def test_key_or_attribute_that_is_not_there_is_refused(
    tmp_path: Path, data: list[str], second: list[str], sentence: str
) -> None:
    table = make_table(60)
    stored = write(table.drop(columns=data), tmp_path / "public.parquet")
    other = write(table[["id", "sex"]].drop(columns=second), tmp_path / "second.parquet")
    where = SensitiveColumns("sex", file=other, key="id")
    with pytest.raises(ValueError, match=sentence):
        model(noise_seed=None).fit(files(stored), "label", sensitive_features=where, checkpoint=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_keys_without_a_match_are_private_so_the_fit_goes_on_and_noised_sizes_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_files, "SAMPLE", 300)
    table = make_table()
    stored = write(table.drop(columns="sex"), tmp_path / "public.parquet")
    other = write(table[["id", "sex"]].assign(id=table["id"] + 10**6), tmp_path / "second.parquet")
    where = SensitiveColumns("sex", file=other, key="id")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model().fit(files(stored), "label", sensitive_features=where)
    assert UnknownGroupWarning in {one.category for one in caught}


@pytest.mark.skipif(shutil.which("unshare") is None, reason="a small file system needs a mount namespace")
def test_full_disk_is_noticed_before_anything_is_debited(tmp_path: Path) -> None:
    place, folder = tmp_path / "place", tmp_path / "folder"
    for one in (place, folder):
        one.mkdir()
    mounted = 'mount -t tmpfs -o size=64k tmpfs "$3" 2>/dev/null || exit 77; exec "$1" "$2" "$3" "$4"'
    words = ["unshare", "-m", "sh", "-c", mounted, "sh", sys.executable, str(SCRIPT), str(place), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("left") == ["filler"]
    assert {debits for _, debits in found.values()} == {0}
    sentences = {name: sentence for name, (sentence, _) in found.items()}
    assert sentences["rows"].startswith("ValueError: expected room for ")
    assert f"MB of encoded rows in {str(place)!r}, got less" in sentences["rows"]
    for name, run in (("state", "run"), ("journal", "other")):
        assert sentences[name].startswith(f"ValueError: expected room for 1 MB in {str(place / run)!r}, got less")
