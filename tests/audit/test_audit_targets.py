"""Audits of several classes and of numbers: a dozen rows on which one person attains every sensitivity."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from planted import without_root_of_two

from justitia import LagrangianDualClassifier, LagrangianDualRegressor, PostProcessingPlan
from justitia.audit import ATTACKS, AuditResult, audit
from justitia.audit.attacks import of_one_width, released_numbers
from justitia.audit.replay import make_replay, noise_scale, record, worst_canary
from justitia.postprocessing.number_notions import NUMBER_NOTIONS

ROWS = 12
X = np.column_stack([np.linspace(-1.0, 1.0, ROWS), np.tile([0.0, 1.0], ROWS // 2)])
LABELS = ["a", "b"] * (ROWS // 2)
CLASSES = np.arange(ROWS) % 3
NUMBERS = np.linspace(0.0, 1.0, ROWS) + 0.1 * np.sin(np.arange(ROWS))
STRATA = np.repeat(["low", "high"], ROWS // 2)
#: Of the certificate. Mu is 2.3, at which few runs prove most.
EPSILON = 12.0


def probabilities(table: Any) -> NDArray[np.float64]:
    """Public probabilities of three classes, which no fit has to learn."""
    first, second = np.asarray(table, dtype=np.float64).T
    odds = np.exp(np.column_stack([first, -first, second]))
    return odds / odds.sum(1, keepdims=True)


def middle(table: Any) -> NDArray[np.float64]:
    """Public predictions of a number."""
    return 0.5 + 0.4 * np.asarray(table, dtype=np.float64)[:, 0]


def model_of(target: str, **options: Any) -> Any:
    """A classifier of three classes or, by the name of its notion, a regressor; one check after the moments."""
    usual: dict[str, Any] = {"epsilon": EPSILON, "groups": ["a", "b"], "tolerance": 0.0, "preprocess": None}
    usual |= {"plan": PostProcessingPlan(checks=1, levels=5), "random_state": 0, "progress": False}
    if target == "classes":
        return LagrangianDualClassifier(**usual | {"base": probabilities} | options)
    return LagrangianDualRegressor(target, **usual | {"base": middle, "bounds": (-1.0, 2.0)} | options)


def target_of(target: str) -> NDArray[Any]:
    return CLASSES if target == "classes" else NUMBERS


def attacked(target: str, **options: Any) -> AuditResult:
    given: dict[str, Any] = {"sensitive_features": LABELS, "seed": 1, "progress": False}
    return audit(model_of(target), X, target_of(target), **given | options)


TARGETS = ("classes", *NUMBER_NOTIONS)
targets = pytest.mark.parametrize("target", TARGETS)
#: Squared errors are corrected on a grid, which takes too long for many whole fits.
quick_targets = pytest.mark.parametrize("target", [one for one in TARGETS if one != "equal_error"])


@targets
def test_worst_canary_attains_what_the_ledger_charged(target: str) -> None:
    recording = record(model_of(target), X, target_of(target), LABELS, seed=1)
    assert [one.purpose for one in recording.queries] == ["moments", "decisions"]
    towards = make_replay(recording, worst_canary(recording.queries, 2)).towards
    moved = [float(np.linalg.norm(t) * noise_scale(q)) ** 2 for q, t in zip(recording.queries, towards, strict=True)]
    charged = sum(cost.noise_multiplier**-2 * count for cost, count in recording.model.ledger_.costs().items())
    assert 0.97 * charged <= sum(moved) <= charged * (1 + 1e-6)


@targets
def test_audit_of_replayed_releases_stays_below_the_certificate(target: str) -> None:
    found = attacked(target, runs=240, copies=8, audits=4)
    assert found.engine == "post-processing"
    assert found.epsilon == pytest.approx(EPSILON, rel=1e-3)
    assert EPSILON / 2.5 <= found.lower <= EPSILON


@targets
def test_audit_of_replayed_releases_finds_the_missing_root_of_two(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_root_of_two(monkeypatch)
    found = attacked(target, runs=480, copies=8)
    assert found.exceeded
    assert "the certificate is refuted" in found.verdict


@pytest.mark.parametrize("attack", ["trajectory", "weights", "predictions"])
@quick_targets
def test_audit_of_whole_fits_stays_below_the_certificate(target: str, attack: str) -> None:
    runs = 32 if attack == "trajectory" else 8
    found = attacked(target, attack=attack, runs=runs, audits=9)
    assert found.evidence is not None
    if attack == "trajectory":  # the attacker sees every answer, and is right more often than by chance
        assert found.evidence.right > 0.65 * 2 * found.evidence.tested
    assert found.lower <= EPSILON


@pytest.mark.parametrize("target", ["classes", "demographic_parity"])
def test_audit_of_whole_fits_finds_the_missing_root_of_two(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_root_of_two(monkeypatch)
    assert attacked(target, attack="trajectory", runs=160 if target == "classes" else 96).exceeded


@targets
def test_audit_of_many_people_in_one_run_is_not_refuted(target: str) -> None:
    found = attacked(target, attack="one run")
    assert (found.guesses, found.canary) == (6, None)
    assert not found.exceeded


def test_audit_within_public_strata_stays_below_the_certificate() -> None:
    model = model_of("classes", notion="conditional_demographic_parity")
    given: dict[str, Any] = {"sensitive_features": LABELS, "strata": STRATA, "seed": 1, "progress": False}
    for attack, runs in (("mechanism", 64), ("predictions", 8)):
        assert not audit(model, X, CLASSES, attack=attack, runs=runs, **given).exceeded


@pytest.mark.filterwarnings("ignore::justitia.exceptions.JustitiaWarning")
def test_released_numbers_of_classes_and_of_numbers_begin_with_what_the_attacker_sees() -> None:
    visible = np.array([5, 7])
    classes = model_of("classes").fit(X, CLASSES, sensitive_features=LABELS)
    margins = classes.decision_function(X)
    found = released_numbers(classes, X, visible)
    assert found[:6].tolist() == margins[visible].ravel().tolist()
    assert found[6:42].tolist() == margins.ravel().tolist()
    number = model_of("mean_parity").fit(X, NUMBERS, sensitive_features=LABELS)
    predicted = number.predict(X)
    assert released_numbers(number, X, visible)[:14].tolist() == [*predicted[visible], *predicted]


def test_runs_with_fewer_levels_are_filled_with_zeros() -> None:
    first, second = of_one_width([np.ones((1, 3)), np.ones((1, 2))])
    assert first.tolist() == [[1, 1, 1]]
    assert second.tolist() == [[1, 1, 0]]


@pytest.mark.parametrize("attack", ATTACKS)
def test_audit_of_a_regressor_refuses_strata_before_it_fits(attack: str) -> None:
    with pytest.raises(ValueError, match="expected no strata with a LagrangianDualRegressor"):
        attacked("mean_parity", attack=attack, strata=STRATA)


def test_audit_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a LagrangianDualClassifier or a LagrangianDualRegressor, got 'str'"):
        audit("model", X, CLASSES, sensitive_features=LABELS)  # type: ignore[arg-type]
