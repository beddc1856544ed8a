"""What the build of the site does before each tutorial runs, as if it ran alone."""

from __future__ import annotations

from typing import Any

from justitia.training.same_rows import FITS


def forget_fits(_settings: Any, _file: str) -> None:
    """Forget which rows earlier tutorials were fitted on: the warning about them is for one program."""
    FITS.forget()
