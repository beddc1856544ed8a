"""Exit codes, and how an exception becomes one sentence.

Guarantee
---------
* What is printed about an exception is a sentence about public things (this package's own, scikit-learn's about
  features, the operating system's about a file) or the name of its type. Whatever reads an entry of the attribute lets
  no exception about it through (:mod:`justitia.privacy.columns`).
* The text of an unexpected one is not shown, unless ``JUSTITIA_TRACEBACK`` is set: it may hold a value of somebody's
  attribute.
"""

from __future__ import annotations

import difflib
import errno
import os
import traceback
from collections.abc import Iterable
from pathlib import Path

import click

from justitia.exceptions import BudgetExceeded, LedgerError

OK, UNEXPECTED, BAD_INPUT, BUDGET, NOT_SHOWN, INTERRUPTED = 0, 1, 2, 3, 4, 130

#: As `justitia --help` prints them.
EXIT_CODES = {
    OK: "done",
    UNEXPECTED: "an unexpected error; JUSTITIA_TRACEBACK=1 shows where",
    BAD_INPUT: "wrong usage, or input or output that cannot be used",
    BUDGET: "the privacy ledger refused: no answer was given",
    NOT_SHOWN: "a claim was not shown (evaluate --below), or refuted (audit)",
    INTERRUPTED: "stopped by Ctrl-C or SIGTERM; debits stand, nothing half-written is left",
}
#: Set to see where an unexpected error comes from; its text may then hold private values.
TRACEBACK = "JUSTITIA_TRACEBACK"
#: Packages whose ValueErrors and TypeErrors are about what the user passed.
_OURS = ("justitia.", "sklearn.")


class Refusal(click.ClickException):
    """A user's mistake, said in one sentence."""

    exit_code = BAD_INPUT


def no_such(kind: str, name: str, known: Iterable[str], *, place: str = "") -> Refusal:
    """There is no such thing; suggest the nearest one."""
    names = [str(one) for one in known]
    lower = {one.lower(): one for one in reversed(names)}
    nearest = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    advice = f"did you mean {lower[nearest[0]]!r}?" if nearest else f"there are {listed or 'none'}."
    return Refusal(f"no {kind} {name!r}{f' in {place}' if place else ''}; {advice}")


def told(error: BaseException) -> tuple[int, str]:
    """Exit code and sentence of an exception."""
    if isinstance(error, click.exceptions.UsageError):
        where = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
        return BAD_INPUT, _sentence(error.format_message()) + where
    if isinstance(error, click.ClickException):
        return error.exit_code, _sentence(error.format_message())
    if isinstance(error, BudgetExceeded | LedgerError):
        return BUDGET, _sentence(str(error))
    if isinstance(error, OSError):
        return BAD_INPUT, _of_system(error)
    if isinstance(error, ValueError | TypeError | ImportError) and _raised_in(error, _OURS):
        return BAD_INPUT, _sentence(str(error))
    return UNEXPECTED, f"unexpected {type(error).__name__}; please report it, {TRACEBACK}=1 shows where it came from."


def _sentence(text: str) -> str:
    first = " ".join(text.split())
    return first if first.rstrip(")").endswith((".", "?", "!")) else f"{first}."


def _of_system(error: OSError) -> str:
    """What the operating system said, and about which file."""
    if error.errno is None:
        return _sentence(str(error))
    reason = os.strerror(error.errno).lower()
    name = "a file" if error.filename is None else repr(os.fspath(error.filename))
    advice = {
        errno.EACCES: "change its permissions, or choose another place",
        errno.EROFS: "choose another place",
        errno.ENOENT: "check the name",
        errno.EISDIR: "name a file",
        errno.ENOSPC: "make room, or choose another place",
    }.get(error.errno, "choose another place")
    return f"cannot use {name}: {reason}; {advice}."


def _raised_in(error: BaseException, packages: tuple[str, ...]) -> bool:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and f"{frames[-1].f_globals.get('__name__', '')}.".startswith(packages)


def shown_path(path: Path | str) -> str:
    """A path as messages print it."""
    return repr(os.fspath(path))
