"""Wheel and sdist, built twice: ``make dist``.

The first pair is built from this folder, the second from a copy in another place whose files have other dates. Both are
stamped with the time of the last commit, and have to have the same SHA-256. The wheel is built once more from the sdist
and has to be the same again. ``twine check --strict`` reads the metadata as a package index does. The files and their
``SHA256SUMS`` are in ``dist/``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
#: What the builds read; anything else in the folder cannot matter.
SOURCES = (
    *("src", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md"),
    *("CONTRIBUTING.md", "SECURITY.md", "requirements.lock", ".gitignore"),
)
#: Date of files in the copy: not that of any checkout.
OTHER_DATE = 1_000_000_000


def commit_time() -> str:
    """Seconds of the last commit, or of SOURCE_DATE_EPOCH where there is no repository."""
    known = os.environ.get("SOURCE_DATE_EPOCH")
    if known is not None:
        return known
    found = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    if not found:
        raise SystemExit("expected a git repository or SOURCE_DATE_EPOCH for the date of the files, found neither.")
    return found


def build(root: Path, target: Path, when: str, *kinds: str) -> dict[str, str]:
    """SHA-256 of every file that hatchling builds from a folder."""
    words = [sys.executable, "-m", "hatchling", "build", "--directory", str(target), *(kinds or ())]
    environment = os.environ | {"SOURCE_DATE_EPOCH": when}
    subprocess.run(words, cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(target.iterdir())}


def copy_elsewhere(folder: Path) -> Path:
    """The sources in another folder, without caches, with other dates."""
    copy = folder / "elsewhere"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif source.exists():
            shutil.copy(source, copy / name)
    for path in copy.rglob("*"):
        os.utime(path, (OTHER_DATE, OTHER_DATE))
    return copy


def main() -> None:
    """Build, compare, check, and keep the result in ``dist/``."""
    when = commit_time()
    words = ["git", "status", "--porcelain", "--", *SOURCES]
    if subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout:
        print("These files have changes that are not committed; they get the date of the last commit.")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        first = build(ROOT, folder / "first", when)
        second = build(copy_elsewhere(folder), folder / "second", when)
        (sdist,) = (folder / "first").glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (unpacked,) = (folder / "unpacked").iterdir()
        third = build(unpacked, folder / "third", when, "--target", "wheel")
        for name, digest in first.items():
            print(f"{digest}  {name}\n{second[name]}  {name}, from another folder")
        for name, digest in third.items():
            print(f"{digest}  {name}, from the sdist")
        if first != second or not third.items() <= first.items():
            raise SystemExit("expected the same bytes from every build, got other ones.")
        files = [str(folder / "first" / name) for name in first]
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
        for old in (*DIST.glob("justitia-*.whl"), *DIST.glob("justitia-*.tar.gz")):
            old.unlink()
        shutil.copytree(folder / "first", DIST, dirs_exist_ok=True)
    sums = "".join(f"{digest}  {name}\n" for name, digest in first.items())
    (DIST / "SHA256SUMS").write_text(sums, encoding="utf-8")
    for file in sorted(DIST.iterdir()):
        print(f"dist/{file.name}: {file.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
