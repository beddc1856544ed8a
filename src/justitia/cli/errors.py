"""Exit codes and error messages of the command line.

Guarantee
---------
* A message is either a sentence about public things (this package's own, scikit-learn's about features, the operating
  system's about a file) or the name of the exception's type. Code that reads an entry of the attribute lets no
  exception about it through (:mod:`justitia.privacy.columns`).
* The text of an unexpected exception is shown only if ``JUSTITIA_TRACEBACK`` is set, because it may contain a value
  of the attribute.
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

OK, UNEXPECTED, BAD_INPUT, BUDGET, NOT_SHOWN, ALERT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

#: Meaning of each exit code, as `justitia --help` prints it.
EXIT_CODES = {
    OK: "done",
    UNEXPECTED: "an unexpected error; JUSTITIA_TRACEBACK=1 shows where",
    BAD_INPUT: "wrong usage, or input or output that cannot be used",
    BUDGET: "the privacy ledger refused a query; it was not answered",
    NOT_SHOWN: "a claim was not shown (evaluate --below) or was refuted (audit)",
    ALERT: "monitor: the measurement is an alert",
    INTERRUPTED: "stopped by Ctrl-C or SIGTERM; debits stand, no partial file is left",
}
#: Environment variable that prints the traceback of an unexpected error; its text may contain private values.
TRACEBACK = "JUSTITIA_TRACEBACK"
#: Packages whose ValueErrors and TypeErrors are about the user's arguments.
_OURS = ("justitia.", "sklearn.")
#: What to do about an error of the operating system.
_ADVICE = {
    errno.EACCES: "change its permissions, or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOENT: "check the name",
    errno.EISDIR: "name a file",
    errno.ENOSPC: "make room, or choose another place",
}


class Refusal(click.ClickException):
    """Wrong usage, or input that cannot be used; the message is one sentence."""

    exit_code = BAD_INPUT


def no_such(kind: str, name: str, known: Iterable[str], *, place: str = "") -> Refusal:
    """Error for an unknown name; it suggests the nearest known one."""
    names = [str(one) for one in known]
    lower = {one.lower(): one for one in reversed(names)}
    nearest = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    advice = f"did you mean {lower[nearest[0]]!r}?" if nearest else f"there are {listed or 'none'}."
    return Refusal(f"no {kind} {name!r}{f' in {place}' if place else ''}; {advice}")


def describe_error(error: BaseException) -> tuple[int, str]:
    """Exit code and message of an exception."""
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.exceptions.UsageError) else None
        where = "" if context is None else f" (see {context.command_path} --help)"
        return error.exit_code, _sentence(error.format_message()) + where
    if isinstance(error, BudgetExceeded | LedgerError):
        return BUDGET, _sentence(str(error))
    if isinstance(error, OSError) and error.errno is not None:
        reason = os.strerror(error.errno).lower()
        name = "a file" if error.filename is None else shown_path(error.filename)
        return BAD_INPUT, f"cannot use {name}: {reason}; {_ADVICE.get(error.errno, 'choose another place')}."
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = bool(frames) and f"{frames[-1].f_globals.get('__name__', '')}.".startswith(_OURS)
    if isinstance(error, OSError) or (isinstance(error, ValueError | TypeError | ImportError) and ours):
        return BAD_INPUT, _sentence(str(error))
    return UNEXPECTED, f"unexpected {type(error).__name__}; please report it, {TRACEBACK}=1 shows where it came from."


def _sentence(text: str) -> str:
    first = " ".join(text.split())
    return first if first.rstrip(")").endswith((".", "?", "!")) else f"{first}."


def shown_path(path: Path | str) -> str:
    """A path in quotes, for messages."""
    return repr(os.fspath(path))
