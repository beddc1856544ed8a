"""Names of engines and plans: today's, those of version 0.1 with a warning, and what saved models hold."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import justitia
from justitia import DeprecatedNameWarning, JustitiaWarning, LagrangianDualClassifier, private_search
from justitia.cli.options import ENGINE
from justitia.datasets import make_synthetic
from justitia.engines import OLD_NAMES, PLANS, engine_of, name_of, plan_class
from justitia.estimator import check_parameters

pytestmark = pytest.mark.usefixtures("quick_fits")

ENGINES = ["post-processing", "moments", "pf-ld", "pf-ld-as-published"]
OLD_PLANS = {"PluginPlan": "PostProcessingPlan", "GradientsPlan": "PFLDPlan", "PrintedPlan": "PFLDAsPublishedPlan"}


@pytest.fixture(autouse=True)
def shown() -> Any:
    """Undo the filter of the other tests: here an old name is an error unless a test expects its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecatedNameWarning)
        yield


def model(engine: str | None, **options: Any) -> LagrangianDualClassifier:
    return LagrangianDualClassifier(engine=engine, groups=["a", "b"], epsilon=8.0, random_state=0, **options)


def test_warning_is_one_of_the_library_and_a_future_warning() -> None:
    assert issubclass(DeprecatedNameWarning, JustitiaWarning)
    assert issubclass(DeprecatedNameWarning, FutureWarning)


def test_engines_are_the_four_and_the_default_corrects_a_base() -> None:
    assert list(PLANS) == ENGINES
    assert engine_of(None, None) == "post-processing"
    assert engine_of(None, (4,)) == "moments"


@pytest.mark.parametrize("engine", ENGINES)
def test_new_name_starts_from_its_plan_without_a_warning(engine: str) -> None:
    _, plan = check_parameters(model(engine))
    assert name_of(plan) == engine_of(engine, None) == engine
    assert type(plan) is plan_class(engine)


@pytest.mark.parametrize(("old", "new"), list(OLD_NAMES.items()))
def test_old_name_of_an_engine_works_and_warns(old: str, new: str) -> None:
    with pytest.warns(DeprecatedNameWarning, match=f"engine {old!r} is now called {new!r}"):
        _, plan = check_parameters(model(old))
    assert name_of(plan) == engine_of(old, None) == new


@pytest.mark.parametrize(("old", "new"), list(OLD_PLANS.items()))
def test_old_name_of_a_plan_is_the_same_class_and_warns_at_each_use(old: str, new: str) -> None:
    for _ in range(2):
        with pytest.warns(DeprecatedNameWarning, match=rf"justitia\.{old} is now called justitia\.{new}") as found:
            assert getattr(justitia, old) is getattr(justitia, new)
        assert found[0].filename == __file__
    assert old not in dir(justitia)


@pytest.mark.parametrize("name", ["PostProcessingPlan", "MomentsPlan", "PFLDPlan", "PFLDAsPublishedPlan"])
def test_new_name_of_a_plan_is_listed_and_gives_no_warning(name: str) -> None:
    assert name in dir(justitia)
    assert name_of(getattr(justitia, name)()) in ENGINES


def test_search_refuses_the_published_engine_by_either_name() -> None:
    data = make_synthetic(200, random_state=0)
    for engine in ("printed", "pf-ld-as-published"):
        with pytest.raises(ValueError, match="releases are all Gaussian"):
            private_search(
                model(None), [{"engine": engine}], data.X, data.y, sensitive_features=data.sensitive, trials=2.0
            )


@pytest.mark.parametrize(("old", "new"), list(OLD_NAMES.items()))
def test_option_of_commands_takes_old_names_with_a_warning(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ENGINE.convert(new, None, None) == new
    assert capsys.readouterr().err == ""
    assert ENGINE.convert(old, None, None) == new
    assert f"engine {old!r} is now called {new!r}" in " ".join(capsys.readouterr().err.split())
    assert list(ENGINE.choices) == ENGINES


# --- saved models


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = make_synthetic(600, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model(None).fit(data.X, data.y, sensitive_features=data.sensitive)
    return fitted.save(tmp_path_factory.mktemp("saved") / "model")


def test_saved_model_holds_the_new_name(saved: Path) -> None:
    facts = json.loads((saved / "model.json").read_text())
    assert (facts["format"], facts["plan"]["engine"], facts["parameters"]["engine"]) == (4, *["post-processing"] * 2)


def renamed(saved: Path, place: Path, name: str) -> Path:
    """A copy of a saved model in which the engine has another name."""
    copy = Path(shutil.copytree(saved, place / "copy"))
    path = copy / "model.json"
    path.write_text(path.read_text().replace('"post-processing"', json.dumps(name)))
    return copy


def test_saved_model_with_the_old_name_loads_under_the_new_one_without_a_warning(saved: Path, tmp_path: Path) -> None:
    copy = renamed(saved, tmp_path, "plugin")
    assert json.loads((copy / "model.json").read_text())["plan"]["engine"] == "plugin"
    again, old = LagrangianDualClassifier.load(saved), LagrangianDualClassifier.load(copy)
    assert old.engine == again.engine == "post-processing"
    assert old.plan_ == again.plan_
    X = make_synthetic(50, random_state=1).X
    assert (old.predict(X) == again.predict(X)).all()


def test_saved_model_with_an_unknown_engine_is_damaged(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="damaged"):
        LagrangianDualClassifier.load(renamed(saved, tmp_path, "pre-processing"))
