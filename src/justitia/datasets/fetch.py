"""Download of dataset files from the cache, a folder, their site or a package archive, checked by SHA-256."""

import hashlib
import http.client
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import warnings
import zipfile
import zlib
from pathlib import Path

from tqdm import tqdm

from justitia._files import staged_file
from justitia.datasets.sources import Route, Source, SourceArchive

SITE_TIMEOUT = 3.0
"""Seconds a site may stay silent. Short, because a machine without internet has a second route."""

PACKAGE_TIMEOUT = 600.0
"""Seconds the package archive may take in all."""


class DatasetUnavailable(OSError):
    """No route led to the file."""


class ChecksumMismatch(DatasetUnavailable):
    """A file was found, but its bytes are not the published ones."""


_FAILURES = (
    OSError,
    http.client.HTTPException,
    subprocess.SubprocessError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    KeyError,  # the archive lacks the member
)


def fetch(source: Source, *, folder: str | os.PathLike[str] | None = None, progress: bool = True) -> bytes:
    """Return the bytes of a file after checking its SHA-256.

    The order is: cache, `folder`, original site, package archive. What any of the last three gave is
    kept in the cache.

    Parameters
    ----------
    source : Source
        Which file.
    folder : path, optional
        Local folder that holds the published files.
    progress : bool
        Whether downloads show a progress bar.

    Raises
    ------
    ChecksumMismatch
        If `folder` holds the file with other bytes than the published ones.
    DatasetUnavailable
        If no route led to the file.
    """
    cached = cache_folder() / source.cached
    if cached.is_file() and _sha256(data := cached.read_bytes()) == source.sha256:
        return data
    data = _first_success(source, None if folder is None else Path(folder), progress=progress)
    _keep(data, cached)
    return data


def cache_folder() -> Path:
    """Folder of the cache: ``JUSTITIA_DATA``, or ``justitia`` in the platform's cache folder."""
    if chosen := os.environ.get("JUSTITIA_DATA"):
        return Path(chosen)
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "justitia"


def _first_success(source: Source, folder: Path | None, *, progress: bool) -> bytes:
    tried = ["the cache"]
    if folder is not None:
        if (data := _from_folder(source, folder)) is not None:
            return data
        tried.append(f"{folder} (files not there)")
    for route in source.routes:
        try:
            if route.url or route.package:
                return _build(source, route, _read(route, progress=progress))
        except _FAILURES as error:
            tried.append(f"{route.where} ({_reason(error)})")
    forms = dict.fromkeys(" and ".join(route.file_names) for route in source.routes)
    raise DatasetUnavailable(
        f"The file {source.cached!r} could not be fetched: tried {', '.join(tried)}; "
        f"pass folder= with a folder that holds {' or '.join(forms)}."
    )


def _from_folder(source: Source, folder: Path) -> bytes | None:
    """Build the file from the first published form that `folder` holds; None if it holds none.

    Whoever names a folder wants that very file, so here a mismatch is not passed over for the next site.
    UCI's archive has a sample called bank.csv beside bank-full.csv, so every form is tried first.
    """
    mismatch: ChecksumMismatch | None = None
    for route in source.routes:
        paths = [folder / name for name in route.file_names]
        if all(path.is_file() for path in paths):
            try:
                return _build(source, route, [path.read_bytes() for path in paths])
            except ChecksumMismatch as error:
                mismatch = mismatch or error
    if mismatch is not None:
        raise mismatch
    return None


def _read(route: Route, *, progress: bool) -> list[bytes]:
    if route.archive:
        data = _download_archive(route.package, route.archive, progress=progress)
    elif route.package:
        data = _download_package(route.package, progress=progress)
    else:
        data = _download(route.url, progress=progress)
        if not route.url.endswith(".zip"):
            return [data]
    return [_extract(data, member.path) for member in route.members]


def _extract(archive: bytes, path: str) -> bytes:
    """Read one member; ``a.zip/b.csv`` is b.csv in the archive a.zip of the archive.

    Archives are read in memory: no member is ever written to disk or run.
    """
    nested = re.match(r"(.+?\.(?:zip|tar\.gz))/(.+)", path)
    if nested:
        return _extract(_member(archive, nested[1]), nested[2])
    return _member(archive, path)


def _member(archive: bytes, name: str) -> bytes:
    if not archive.startswith(b"\x1f\x8b"):
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return opened.read(name)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r|gz") as stream:
        for entry in stream:
            # A link is not followed: only a plain file of exactly this name counts.
            if entry.name == name and entry.isreg() and (member := stream.extractfile(entry)) is not None:
                return member.read()
    raise KeyError(f"There is no file named {name!r} in the archive")


def _download(url: str, *, progress: bool) -> bytes:
    """Read a URL of the table of sources, or a link of pip's index to a file whose hash is in the table."""
    blocks = []
    with urllib.request.urlopen(url, timeout=SITE_TIMEOUT) as answer:  # noqa: S310 - bytes are pinned
        size = int(answer.headers.get("Content-Length") or 0) or None
        with tqdm(total=size, desc=url.rpartition("/")[2], unit="B", unit_scale=True, disable=not progress) as bar:
            while block := answer.read(1 << 16):
                blocks.append(block)
                bar.update(len(block))
    return b"".join(blocks)


def _download_package(package: str, *, progress: bool) -> bytes:
    """Read the wheel ``name==version`` through pip's configured index; nothing is installed or run."""
    with tempfile.TemporaryDirectory() as folder, tqdm(total=1, desc=package, disable=not progress) as bar:
        done = _pip_download(package, folder, "--quiet")
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise OSError("pip could not download it")
        bar.update()
        return wheels[0].read_bytes()


def _download_archive(package: str, archive: SourceArchive, *, progress: bool) -> bytes:
    """Read a source archive as a plain file from where pip's configured index has it.

    Guarantee
    ---------
    * The package is neither built nor asked for its metadata, so none of its code runs: pip, which would run it, is
      allowed wheels only and gives no more than the link.
    * The archive is not opened unless its SHA-256 is the pinned one.
    """
    data = _download(_link(package, archive.file_name), progress=progress)
    _check(data, archive.file_name, archive.sha256)
    return data


def _link(package: str, file_name: str) -> str:
    """URL of a file in the package index; pip logs each source archive that it skips when only wheels are allowed."""
    with tempfile.TemporaryDirectory() as folder:
        log = _pip_download(package, folder, "-vvv").stdout.decode(errors="replace")
    link = re.search(rf"(?:https?|file)://\S+/{re.escape(file_name)}(?=[#?\s]|$)", log)
    if link is None:
        raise OSError("pip could not find it")
    return link[0]


def _pip_download(package: str, folder: str, verbosity: str) -> subprocess.CompletedProcess[bytes]:
    """Let pip put the wheel of a package into a folder; source archives are refused, because pip runs their code."""
    options = ("--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-input", "--retries=1")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", verbosity, *options]
    return subprocess.run(  # noqa: S603 - constants of the table of sources
        [*command, "-d", folder, package],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PACKAGE_TIMEOUT,
        check=False,
    )


def _build(source: Source, route: Route, parts: list[bytes]) -> bytes:
    for member, part in zip(route.members, parts, strict=True):
        if member.sha256:
            _check(part, member.file_name, member.sha256)
    data = route.build(*parts)
    _check(data, source.cached, source.sha256)
    return data


def _check(data: bytes, file_name: str, sha256: str) -> None:
    if (found := _sha256(data)) != sha256:
        raise ChecksumMismatch(
            f"The file {file_name!r} should have SHA-256 {sha256} but has {found}; "
            "it was not kept, get the published file again."
        )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _reason(error: Exception) -> str:
    """Say in a few words why a route failed."""
    return str(getattr(error, "reason", error)).strip("'\".") or type(error).__name__


def _keep(data: bytes, path: Path) -> None:
    """Write atomically, so that several processes may fetch the same file at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with staged_file(path) as written:
            written.write_bytes(data)
    except OSError as error:
        # The data are good; only the next call will have to fetch them again.
        warnings.warn(
            f"The cache folder {path.parent} could not be written ({error.strerror}); "
            "set JUSTITIA_DATA to a folder that can.",
            stacklevel=4,
        )
