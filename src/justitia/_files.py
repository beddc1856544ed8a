"""Atomic writes of files and folders with the right permissions, and reads of bounded size.

A file or folder is written in a stage beside its place, which only this user can open, and moved there in one step, so
that it appears complete or not at all. Files of a folder that another user may have made are read only if they are
regular files of a bounded size.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Finds the first entry of a folder that this package did not write.
Foreign = Callable[[Path], Path | None]

_ALL = 0o666
_GROUP = 0o060
_OWNER = 0o600
#: Largest size of a JSON file in bytes, and of the nesting of its lists and objects; ours have fewer than ten levels.
MOST_JSON, DEEPEST = 2**26, 32


@contextmanager
def stage_beside(target: Path) -> Iterator[Path]:
    """A new folder with a random name on the target's disk that only this user can open; it is removed at the end."""
    try:
        stage = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        error.filename = os.fspath(target)  # the name that the user knows
        raise
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def staged_file(target: Path, *, like: Iterable[Path] = (), mode: int = _ALL) -> Iterator[Path]:
    """An empty file to write to, moved to ``target`` when it is complete.

    Parameters
    ----------
    like : iterable of paths
        Files whose content is copied: users who may not read one of them may not read the new file. The same holds for
        a file that is replaced.
    mode : int
        Upper limit of the permissions; the umask applies as to every new file.
    """
    with stage_beside(target) as stage:
        file = stage / target.name
        make_file(file, like=[*like, *([target] if target.exists() else [])], mode=mode)
        yield file
        file.replace(target)


def make_file(path: Path, *, like: Iterable[Path] = (), mode: int = _ALL) -> None:
    """Make a new file, which must not exist, with its permissions from the first byte on."""
    models = [one.stat() for one in like]
    for one in models:
        mode &= stat.S_IMODE(one.st_mode)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, (mode & _ALL) | _OWNER)
    try:
        if os.name == "posix":
            _keep_group(handle, {one.st_gid for one in models})
    finally:
        os.close(handle)


def _keep_group(handle: int, groups: set[int]) -> None:
    """Give the file the group of its models; if that fails, its group gets no permissions."""
    if len(groups) == 1:
        with contextlib.suppress(OSError):
            os.fchown(handle, -1, next(iter(groups)))
    made = os.fstat(handle)
    if groups - {made.st_gid}:
        os.fchmod(handle, stat.S_IMODE(made.st_mode) & ~_GROUP)


def read_bounded(path: Path, most: int) -> bytes:
    """Content of a regular file of at most ``most`` bytes.

    A folder of another user may contain a link to an endless device, or a pipe without a writer.

    Raises
    ------
    ValueError
        If it is a link, not a regular file, or larger.
    OSError
        If it cannot be read.
    """
    odd = f"expected {str(path)!r} to be a regular file, got"
    if path.is_symlink():
        raise ValueError(f"{odd} a link; copy the file that it leads to.")
    # Neither flag is on every system. Without the second one, opening a pipe waits for somebody to write to it.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{odd} a device, pipe or folder; write it again.")
        content = file.read(found.st_size + 1) if found.st_size <= most else b""  # a larger number is allocated first
        if len(content) > found.st_size:  # the file has grown meanwhile
            content += file.read(most + 1 - len(content))
    if found.st_size > most or len(content) > most:
        raise ValueError(f"expected {str(path)!r} to have at most {most:,} bytes, got more; write it again.")
    return content


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file that another user may have written.

    Raises
    ------
    ValueError
        If it is not a regular file, too large, not a JSON object, or nested too deeply.
    OSError
        If it cannot be read.
    """
    content = read_bounded(path, MOST_JSON)
    deep = f"expected {str(path)!r} to be nested at most {DEEPEST} levels deep, got more; write it again."
    try:
        found = json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError(deep) from None
    if not isinstance(found, dict):
        raise ValueError(f"expected {str(path)!r} to hold a JSON object, got something else; write it again.")
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for items in inner for one in items if isinstance(one, dict | list)]
        if not level:
            return found
    raise ValueError(deep)


def check_folder(target: Path) -> None:
    """Refuse a place that a folder cannot be moved to, or where another one than the named one would be replaced.

    Raises
    ------
    FileExistsError
        If it has no name, or is a link, a mount point, or no folder.
    PermissionError
        If it may not be moved away.
    """
    if target.name in {"", ".."}:
        raise FileExistsError(f"expected the name of a folder, got {str(target)!r}; choose a new name.")
    what = "a symbolic link" if target.is_symlink() else "a mount point" if os.path.ismount(target) else None
    if what is not None:
        raise FileExistsError(
            f"expected a folder that can be replaced, but {str(target)!r} is {what}; choose another name."
        )
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"expected a folder, but {str(target)!r} is a file; choose another name.")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))


def replace_folder(fresh: Path, target: Path, stage: Path, foreign: Foreign) -> Path | None:
    """Put a complete folder in the place of an earlier one, and remove that one if all of it is ours.

    Returns
    -------
    path or None
        Where the earlier folder is kept, if another user has put a file into it in the meantime.
    """
    if not target.exists():
        fresh.replace(target)
        return None
    fresh.chmod((stat.S_IMODE(fresh.stat().st_mode) & stat.S_IMODE(target.stat().st_mode)) | stat.S_IRWXU)
    kept = None if foreign(target) is None else Path(tempfile.mkdtemp(prefix=f"{target.name}.kept-", dir=target.parent))
    retired = target.replace(kept or stage / "old")  # an empty folder may be replaced
    try:
        fresh.replace(target)
    finally:
        if not target.exists():
            retired.replace(target)
    return kept


def foreign_entry(folder: Path, ours: Callable[[Path], bool]) -> Path | None:
    """First entry by name that is not ours; a link never is."""
    return next((one for one in sorted(folder.iterdir()) if one.is_symlink() or not ours(one)), None)
