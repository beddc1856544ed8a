"""What a model leaves in MLflow: public and noised facts, in a store in a folder."""

import copy
import dataclasses
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from targets import CLASSES, GROUP, NUMBER, SEED, TABLE, fit_classes, fit_number

from justitia import LagrangianDualClassifier, LagrangianDualRegressor, PFLDAsPublishedPlan, PFLDPlan, measure
from justitia.datasets import make_synthetic
from justitia.persistence.tracking import log_to_mlflow

GROUPS = ["f [x]", "m"]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("fair")
    yield tmp_path
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def fitted() -> Any:
    data = make_synthetic(400, random_state=0)
    groups = [GROUPS[one == data.groups[1]] for one in data.sensitive]
    plan = PFLDPlan(warmup_steps=20, private_steps=3, public_steps=2, batch_size=64)
    model = LagrangianDualClassifier(
        epsilon=8.0, groups=GROUPS, engine="pf-ld", plan=plan, random_state=0, noise_seed=987654321987
    )
    model.fit(data.X, data.y, sensitive_features=groups)
    found = measure(
        data.y,
        model.predict(data.X),
        sensitive_features=groups,
        groups=GROUPS,
        notion=["demographic_parity", "equalized_odds"],
        epsilon=4.0,
        noise_seed=987654321987,
    )
    return model, found


def everything_below(folder: Path) -> bytes:
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert files
    return b"\n".join(files)


def artifacts(run: str) -> Path:
    return Path(mlflow.artifacts.download_artifacts(run_id=run))


def test_model_alone_leaves_parameters_numbers_and_its_certificate(fitted: Any) -> None:
    model, _ = fitted
    run = log_to_mlflow(model, run_name="first")
    data = mlflow.get_run(run).data
    assert mlflow.active_run() is None
    assert data.tags["mlflow.runName"] == "first"
    assert data.tags["justitia.statement"] == model.certificate_.statement
    assert data.params["notion"] == "demographic_parity"
    assert (data.params["epsilon"], data.params["tolerance"], data.params["plan.private_steps"]) == ("8.0", "None", "3")
    assert data.params["module"].endswith("-1")
    assert data.metrics["epsilon_spent"] == model.certificate_.spent_epsilon
    assert json.loads((artifacts(run) / "certificate.json").read_text()) == model.certificate_.to_dict()
    assert (artifacts(run) / "certificate.txt").read_text() == f"{model.certificate_}\n"
    assert sorted(path.name for path in artifacts(run).iterdir()) == ["certificate.json", "certificate.txt"]


def test_epsilon_on_a_ledger_of_several_runs_is_what_is_promised_beside_what_was_spent(fitted: Any) -> None:
    model = copy.copy(fitted[0])
    model.certificate_ = dataclasses.replace(model.certificate_, epsilon=20.0)
    noted = mlflow.get_run(log_to_mlflow(model)).data.metrics
    assert (noted["epsilon"], noted["epsilon_spent"]) == (20.0, model.certificate_.spent_epsilon)


def test_history_is_noted_by_round_under_names_that_mlflow_accepts(fitted: Any) -> None:
    model, _ = fitted
    run = log_to_mlflow(model)
    client = mlflow.MlflowClient()
    for name, noted in (("accuracy", "accuracy"), ("noisy_gap[f [x]]", "noisy_gap/f _x_"), ("multiplier[m]", None)):
        shown = model.history_.dropna(subset=[name])
        points = client.get_metric_history(run, noted or "multiplier/m")
        assert [(one.step, one.value) for one in points] == list(zip(shown["round"], shown[name], strict=True))
        assert points


def test_measurement_report_and_model_are_noted_in_the_active_run(fitted: Any, tmp_path: Path) -> None:
    model, found = fitted
    report = tmp_path / "report.html"
    report.write_text("<!doctype html><title>report</title>")
    with mlflow.start_run() as active:
        run = log_to_mlflow(model, measurement=found, report=report, save_model=True)
        assert run == active.info.run_id
        assert mlflow.active_run() is not None
    numbers = mlflow.get_run(run).data.metrics
    for notion, one in found.violations.items():
        assert numbers[f"measured.{notion}.noisy_violation"] == one.estimate
        assert numbers[f"measured.{notion}.upper"] == one.upper
    assert json.loads((artifacts(run) / "measurement.json").read_text()) == found.to_dict()
    assert (artifacts(run) / "report.html").read_text() == report.read_text()
    loaded = LagrangianDualClassifier.load(artifacts(run) / "model")
    assert loaded.certificate_ == model.certificate_


def test_only_released_and_public_numbers_are_noted_and_never_the_noise_seed(fitted: Any, store: Path) -> None:
    model, found = fitted
    run = log_to_mlflow(model, measurement=found, save_model=True)
    data = mlflow.get_run(run).data
    released = {float(value) for name in model.history_ for value in model.history_[name]}
    released |= {model.certificate_.epsilon, model.certificate_.delta, found.certificate.epsilon, float(found.people)}
    released |= {end for one in found.violations.values() for end in (one.estimate, one.lower, one.upper)}
    assert set(data.metrics.values()) <= released
    assert "noise_seed" not in data.params
    assert "model.json" in {path.name for path in store.rglob("*")}
    assert b"987654321987" not in everything_below(store)


def test_names_that_become_equal_are_kept_apart_by_a_number(fitted: Any) -> None:
    model = copy.copy(fitted[0])
    odd = {GROUPS[0]: "a+b", GROUPS[1]: "a*b"}
    model.history_columns_ = tuple(
        one if one.group is None else dataclasses.replace(one, group=odd[one.group]) for one in model.history_columns_
    )
    data = mlflow.get_run(log_to_mlflow(model)).data
    by_group = {"noisy_gap/a_b", "noisy_gap/a_b_2", "multiplier/a_b", "multiplier/a_b_2"}
    together = {"epsilon", "epsilon_spent", "delta", "loss", "accuracy", "auc", "noisy_violation"}
    assert set(data.metrics) == together | by_group


@pytest.fixture(
    scope="module", params=[("pf-ld", math.inf), ("pf-ld-as-published", 8.0)], ids=["infinite", "pf-ld-as-published"]
)
def uncertified(request: pytest.FixtureRequest) -> LagrangianDualClassifier:
    """Without privacy, or by the printed analysis, for which the certificate has no finite epsilon either."""
    engine, epsilon = request.param
    plans = {
        "pf-ld": PFLDPlan(warmup_steps=20, private_steps=3, public_steps=2, batch_size=64),
        "pf-ld-as-published": PFLDAsPublishedPlan(epochs=2, batch_size=64),
    }
    data = make_synthetic(400, random_state=0)
    settings: dict[str, Any] = {"groups": data.groups, "engine": engine, "plan": plans[engine], "random_state": 0}
    model = LagrangianDualClassifier(epsilon=epsilon, noise_seed=987654321987, **settings)
    model.fit(data.X, data.y, sensitive_features=data.sensitive)
    model.certificate_ = dataclasses.replace(model.certificate_, remarks=("group 'a' has 123454321 people",))
    return model


def test_model_without_finite_epsilon_leaves_no_number_by_group(
    uncertified: LagrangianDualClassifier, store: Path
) -> None:
    run = log_to_mlflow(uncertified)
    data = mlflow.get_run(run).data
    assert set(data.metrics) == {"delta", "loss", "accuracy", "auc"}  # an infinite epsilon is a statement
    assert data.tags["justitia.statement"].startswith("No privacy guarantee")
    written = everything_below(store)
    exact = [one for one in uncertified.history_columns_ if one.status == "exact"]
    assert len(exact) == 2 * len(uncertified.certificate_.groups) + 2  # and the violation with its error
    numbers = [
        *uncertified.history_[[one.name for one in exact]].to_numpy().ravel(),
        *uncertified.dual_.to_numpy().ravel(),
    ]
    shown = [value for value in numbers if math.isfinite(value) and value != 0]
    assert shown
    assert not [value for value in shown if repr(float(value)).encode() in written]
    assert b"123454321" not in written


def test_folder_of_a_model_without_finite_epsilon_is_refused_and_leaves_no_run(
    uncertified: LagrangianDualClassifier,
) -> None:
    with pytest.raises(ValueError, match="expected a model with a finite epsilon for save_model=True") as caught:
        log_to_mlflow(uncertified, save_model=True)
    assert "\n" not in str(caught.value)
    assert mlflow.search_runs(output_format="list") == []


def test_measurement_without_finite_epsilon_is_refused_and_leaves_no_run(fitted: Any) -> None:
    data = make_synthetic(400, random_state=0)
    exact = measure(data.y, data.y, sensitive_features=data.sensitive, groups=data.groups, epsilon=math.inf)
    with pytest.raises(ValueError, match="expected a measurement with a finite epsilon, got one whose numbers"):
        log_to_mlflow(fitted[0], measurement=exact)
    assert mlflow.search_runs(output_format="list") == []


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
def test_rule_leaves_base_calibration_threshold_and_the_tolerance_in_force(epsilon: float, store: Path) -> None:
    data = make_synthetic(400, random_state=0)
    settings: dict[str, Any] = {"groups": data.groups, "random_state": 0, "threshold": 0.4, "noise_seed": 987654321987}
    model = LagrangianDualClassifier(epsilon=epsilon, **settings)
    model.fit(data.X, data.y, sensitive_features=data.sensitive)
    private = math.isfinite(epsilon)
    run = log_to_mlflow(model, save_model=private)
    noted = mlflow.get_run(run).data
    assert noted.params["engine"] == "post-processing"
    assert noted.params["base"] == model.rule_.base.describe()
    assert noted.params["calibration"] == model.rule_.calibration.describe()
    assert (noted.params["threshold"], noted.params["tolerance"]) == ("0.4", "None")
    assert "module" not in noted.params
    # Without privacy it follows from exact sizes of groups.
    assert noted.params.get("tolerance_in_force") == (str(model.tolerance_) if private else None)
    assert noted.metrics["auc"] == model.history_["auc"].iloc[-1]
    assert b"987654321987" not in everything_below(store)
    if private:
        again = LagrangianDualClassifier.load(artifacts(run) / "model")
        assert (again.predict_proba(data.X) == model.predict_proba(data.X)).all()


TOLERANCES: dict[str, Any] = {"one": 0.05, "by rate": {"low": 0.05, "middle": None, "top": None}}


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
@pytest.mark.parametrize("tolerance", list(TOLERANCES))
def test_classes_leave_target_costs_quota_and_numbers_by_class(epsilon: float, tolerance: str, store: Path) -> None:
    costs = [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    model = fit_classes(epsilon=epsilon, tolerance=TOLERANCES[tolerance], costs=costs, quota={"top": 0.3})
    private = math.isfinite(epsilon)
    found = measure(
        CLASSES, model.predict(TABLE), sensitive_features=GROUP, groups=["f", "m"], epsilon=4.0, noise_seed=SEED
    )
    run = log_to_mlflow(model, measurement=found, save_model=private)
    noted = mlflow.get_run(run).data
    assert (noted.params["target"], noted.params["quota"]) == ("3 classes", "{'top': 0.3}")
    assert noted.params["costs"] == str(costs)
    assert "threshold" not in noted.params
    # A tolerance of some rates leaves others to exact sizes of groups.
    known = private or tolerance == "one"
    assert noted.params.get("tolerance_in_force") == (str(model.tolerance_) if known else None)
    assert ("noisy_gap/low_ f" in noted.metrics) == private
    assert noted.metrics["measured.demographic_parity.upper"] == found.violations["demographic_parity"].upper
    assert str(SEED).encode() not in everything_below(store)
    if private:
        again = LagrangianDualClassifier.load(artifacts(run) / "model")
        assert (again.predict_proba(TABLE) == model.predict_proba(TABLE)).all()


@pytest.mark.parametrize("notion", ["demographic_parity", "mean_parity"])
def test_numbers_leave_range_and_numbers_by_level(notion: str, store: Path) -> None:
    model = fit_number(notion=notion, bounds=(-6.0, 6.0))
    found = measure(
        NUMBER,
        model.predict(TABLE),
        sensitive_features=GROUP,
        groups=["f", "m"],
        notion=notion,
        epsilon=4.0,
        noise_seed=SEED,
        task="number",
        value_range=(-6.0, 6.0),
    )
    run = log_to_mlflow(model, measurement=found, save_model=True)
    noted = mlflow.get_run(run).data
    assert (noted.params["target"], noted.params["bounds"]) == ("numbers", "(-6.0, 6.0)")
    assert noted.metrics["r2"] == model.history_["r2"].iloc[-1]
    gaps = [name for name in noted.metrics if name.startswith("noisy_gap/")]
    assert len(gaps) == model.dual_.size
    assert noted.metrics[f"measured.{notion}.upper"] == found.violations[notion].upper
    assert str(SEED).encode() not in everything_below(store)
    again = LagrangianDualRegressor.load(artifacts(run) / "model")
    assert (again.predict(TABLE) == model.predict(TABLE)).all()


def test_wrong_input_is_one_sentence_and_leaves_no_run(fitted: Any, tmp_path: Path) -> None:
    model, _ = fitted
    with pytest.raises(TypeError, match="expected a LagrangianDualClassifier or a LagrangianDualRegressor, got 'dict'"):
        log_to_mlflow({})  # type: ignore[arg-type]
    with pytest.raises(NotFittedError, match="not fitted yet"):
        log_to_mlflow(LagrangianDualClassifier())
    with pytest.raises(TypeError, match="expected measurement to be a Measurement, got 'float'"):
        log_to_mlflow(model, measurement=0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected report to be the path of a file, got 'int'"):
        log_to_mlflow(model, report=3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="expected report to be a file, but there is none at"):
        log_to_mlflow(model, report=tmp_path / "none.html")
    assert mlflow.search_runs(output_format="list") == []


def test_folder_of_a_model_whose_base_cannot_be_saved_is_refused_and_leaves_no_run() -> None:
    data = make_synthetic(400, random_state=0)
    forest = RandomForestClassifier(5, random_state=0)
    model = LagrangianDualClassifier(epsilon=8.0, groups=data.groups, base=forest, random_state=0, noise_seed=1)
    model.fit(data.X, data.y, sensitive_features=data.sensitive)
    with pytest.raises(ValueError, match="expected a base that can be saved"):
        log_to_mlflow(model, save_model=True)
    assert mlflow.search_runs(output_format="list") == []


def test_extra_not_installed_says_what_to_install(fitted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "mlflow", None)
        with pytest.raises(ImportError, match=r"pip install 'justitia\[mlflow\]'"):
            log_to_mlflow(fitted[0])


# --- the model as MLflow's generic flavour


#: MLflow warns of type hints in its own code when it imports its generic flavour.
own_hints = pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType:UserWarning")


def logged_flavour(model: Any, **options: Any) -> tuple[Any, Path]:
    run = log_to_mlflow(model, save_model=True, **options)
    folder = mlflow.artifacts.download_artifacts(run_id=run, artifact_path="model")
    return mlflow.pyfunc.load_model(folder), Path(folder)


@own_hints
@pytest.mark.parametrize("fit", [fit_classes, fit_number], ids=["classes", "number"])
def test_logged_model_is_loaded_by_mlflow_and_predicts_the_same(fit: Any) -> None:
    model = fit()
    loaded, folder = logged_flavour(model)
    columns = {column.name: column.type for column in loaded.metadata.signature.inputs}
    assert list(columns) == list(model.feature_names_in_)
    numbers = [name for name, kind in columns.items() if str(kind) == "DataType.double"]
    rows = TABLE[model.feature_names_in_].astype(dict.fromkeys(numbers, float))
    answers = loaded.predict(rows)
    assert list(answers) == list(model.predict(rows))
    (answer,) = loaded.metadata.signature.outputs
    assert answer.name == "prediction"
    assert not [path for path in folder.rglob("*") if path.suffix in {".pkl", ".pickle", ".joblib"}]


@own_hints
def test_table_without_a_column_is_refused_by_the_signature() -> None:
    model = fit_number()
    loaded, _ = logged_flavour(model)
    with pytest.raises(mlflow.exceptions.MlflowException, match="missing inputs"):
        loaded.predict(TABLE[model.feature_names_in_[1:]])


@own_hints
def test_example_is_kept_only_where_it_is_given() -> None:
    model = fit_number()
    made_up = TABLE[model.feature_names_in_].head(2)
    for example, kept in ((None, False), (made_up, True)):
        loaded, folder = logged_flavour(model, input_example=example)
        assert (folder / "input_example.json").is_file() == kept
        if kept:
            pd.testing.assert_frame_equal(loaded.input_example, made_up, check_dtype=False)
