"""Files appear complete or not at all, with permissions that are never wider than they should be."""

import os
import stat
from pathlib import Path

import pytest

from justitia._files import check_folder, make_file, replace_folder, stage_beside, staged_file

posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_staged_file_that_fails_leaves_the_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")

    def fail() -> None:
        with staged_file(tmp_path / "a.txt") as stage:
            stage.write_text("half")
            raise OSError(28, "full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_file_that_is_there_is_never_made_again(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        make_file(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


@posix
def test_file_like_several_is_open_to_those_who_may_read_all(tmp_path: Path) -> None:
    models = []
    for name, mode in (("one", 0o640), ("two", 0o604)):
        models.append(tmp_path / name)
        models[-1].touch()
        models[-1].chmod(mode)
    make_file(tmp_path / "new", like=models)
    assert mode_of(tmp_path / "new") == 0o600


@posix
def test_permissions_of_another_group_are_not_given_to_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    source = tmp_path / "source"
    source.touch()
    source.chmod(0o660)
    found = os.stat_result((*source.stat()[:5], source.stat().st_gid + 1, *source.stat()[6:]))
    monkeypatch.setattr(os, "fchown", refused)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: found)
    make_file(tmp_path / "new", like=[source])
    monkeypatch.undo()
    assert mode_of(tmp_path / "new") == 0o600


@posix
def test_stage_is_closed_to_others_and_removed(tmp_path: Path) -> None:
    with stage_beside(tmp_path / "model") as stage:
        assert mode_of(stage) == 0o700
        assert stage.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_folder_that_may_not_be_moved_away_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, how: how != os.W_OK)
    with pytest.raises(PermissionError, match="Permission denied"):
        check_folder(tmp_path)


@pytest.mark.parametrize("name", [".", "a/..", "/"])
def test_folder_without_a_name_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(FileExistsError, match="expected the name of a folder"):
        check_folder(Path(name))


def test_folder_that_cannot_be_moved_into_place_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "a").write_text("old")
    sound = Path.replace

    def failing(self: Path, other: Path) -> Path:
        if self.name == "new":
            raise OSError(16, "busy")
        return sound(self, other)

    with stage_beside(target) as stage:
        (stage / "new").mkdir()
        monkeypatch.setattr(Path, "replace", failing)
        with pytest.raises(OSError, match="busy"):
            replace_folder(stage / "new", target, stage, lambda _: None)
    assert (target / "a").read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["model"]
