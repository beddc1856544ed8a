"""Runs that die on the way: after a check-point, or at a question of the vault."""

from pathlib import Path
from typing import Any

import pytest

from justitia.privacy.vault import SensitiveVault
from justitia.training.checkpoint import Checkpoint


class Killed(BaseException):
    """Stands for a process that dies."""


def fit_and_die(model: Any, people: Any, folder: Path, *, at: int, answered: bool) -> None:
    """Die at the at-th question of this run: before its debit, or when it is paid for and the answer is on its way."""
    asked = 0
    with pytest.MonkeyPatch.context() as patch:
        for name in ("group_sums", "weighted_sum"):
            original = getattr(SensitiveVault, name)

            def ask(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
                nonlocal asked
                asked += 1
                if asked < at:
                    return _original(self, *args, **kwargs)
                if answered:
                    _original(self, *args, **kwargs)
                raise Killed

            patch.setattr(SensitiveVault, name, ask)
        with pytest.raises(Killed):
            model.fit(people.X, people.y, sensitive_features=people.a, checkpoint=folder)


def fit_and_die_after_save(model: Any, people: Any, folder: Path, *, saves: int) -> None:
    """Die right after the run was saved this often."""
    done, original = 0, Checkpoint.save

    def save(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal done
        original(self, *args, **kwargs)
        done += 1
        if done == saves:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", save)
        with pytest.raises(Killed):
            model.fit(people.X, people.y, sensitive_features=people.a, checkpoint=folder)
