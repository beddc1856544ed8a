"""A run on files that is stopped between its first answer and what is made of it goes on from that answer."""

from pathlib import Path
from typing import Any

import pytest
from file_tables import FEW, digest, files, make_table, model, write_parts

from dying import Killed
from justitia.postprocessing.solver import PostProcessingRun
from justitia.rows import files as rows_files

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few rows, large noise
TABLE = make_table(700)


@pytest.mark.parametrize("sample", [FEW, 1000])
def test_run_killed_while_memberships_are_fitted_ends_in_the_same_model_without_a_second_debit(
    sample: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_files, "SAMPLE", sample)
    write_parts(TABLE, tmp_path / "rows", [300])

    def fit(place: Path | None, **changes: Any) -> Any:
        given: dict[str, Any] = {"sensitive_features": "sex", "checkpoint": place}
        return model(**changes).fit(files(tmp_path / "rows"), "label", **given)

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    original = PostProcessingRun._fit_memberships
    monkeypatch.setattr(PostProcessingRun, "_fit_memberships", dies)
    for _ in range(2):
        with pytest.raises(Killed):
            fit(tmp_path / "run")
    monkeypatch.setattr(PostProcessingRun, "_fit_memberships", original)
    resumed, whole = fit(tmp_path / "run"), fit(None)
    assert [one.purpose for one in resumed.ledger_.releases] == ["moments", "decisions", "decisions"]
    assert digest(resumed, TABLE) == digest(whole, TABLE)
