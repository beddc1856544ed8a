"""A run on files that is stopped between its first answer and what is made of it goes on from that answer."""

from pathlib import Path
from typing import Any

import pytest
from people_files import FEW, digest, files, model, people, write_parts

from dying import Killed
from justitia.postprocessing.memberships import Everybody
from justitia.preprocessing import public_sample

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise: fit says so
TABLE = people(700)


@pytest.mark.parametrize(("engine", "sample"), [("post-processing", FEW), ("post-processing", 1000), ("moments", FEW)])
def test_run_killed_while_memberships_are_fitted_ends_in_the_same_model_without_a_second_debit(
    engine: str, sample: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_sample, "SAMPLE", sample)
    write_parts(TABLE, tmp_path / "rows", [300])

    def fit(place: Path | None, **changes: Any) -> Any:
        given: dict[str, Any] = {"sensitive_features": "sex", "checkpoint": place}
        return model(engine=engine, **changes).fit(files(tmp_path / "rows"), "label", **given)

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    fitted = Everybody.fit
    monkeypatch.setattr(Everybody, "fit", dies)
    for _ in range(2):
        with pytest.raises(Killed):
            fit(tmp_path / "run")
    monkeypatch.setattr(Everybody, "fit", fitted)
    resumed, whole = fit(tmp_path / "run"), fit(None)
    assert [one.purpose for one in resumed.ledger_.releases] == ["moments", "decisions", "decisions"]
    assert digest(resumed, TABLE) == digest(whole, TABLE)
