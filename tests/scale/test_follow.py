"""What a rank takes over from rank 0: files of a saved model, and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from justitia.scale.follow import _take_over, written_model
from people_files import files, model, people, write

from justitia import LagrangianDualClassifier
from justitia.persistence.folder import is_saved_name


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> LagrangianDualClassifier:
    stored = write(people(), tmp_path_factory.mktemp("rows") / "people.parquet")
    return model(noise_seed=None).fit(files(stored), "label", sensitive_features="sex")


@pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so
@pytest.mark.parametrize("name", ["../x", "{absolute}", "a/model.json", "model.json\0", "x.py", "", ".", 1])
def test_file_that_rank_0_names_outside_a_model_is_refused_and_not_written(
    fitted: LagrangianDualClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    name = str(tmp_path / "x") if name == "{absolute}" else name
    done = written_model(fitted)
    done["model"][name] = np.zeros(3, dtype=np.uint8)
    follower = model()
    with pytest.raises(ValueError, match="expected files of a saved model from rank 0, got one named"):
        _take_over(follower, done, {})
    assert [one.name for one in tmp_path.rglob("*")] == ["temporary"]
    assert not hasattr(follower, "rule_")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_model_of_rank_0_is_taken_over(fitted: LagrangianDualClassifier) -> None:
    done, follower = written_model(fitted), model()
    assert {"model.json", "base-1.txt", "correction.safetensors"} <= done["model"].keys()
    _take_over(follower, done, {})
    assert follower.dual_.equals(fitted.dual_)


def test_names_of_saved_files_are_known() -> None:
    names = ("model.json", "weights.safetensors", "correction.safetensors", "base-100.txt", "base-1.json")
    assert all(map(is_saved_name, names))
