"""Where a later check shows a larger violation, an earlier solution is deployed."""

from typing import Any

import numpy as np
import pytest

from justitia import LagrangianDualClassifier, PostProcessingPlan, tradeoff
from justitia.metrics.exact import violation
from justitia.postprocessing import solver
from justitia.postprocessing.solver import CheckResult, PostProcessingRun, best_iterate


def checks(*violations: float, noise: float = 0.0) -> list[CheckResult]:
    """Checks of two groups that showed these violations."""
    variance = np.full((2, 1), noise**2 / 2)
    return [CheckResult(np.full((2, 1), float(j)), np.array([[0.0], [v]]), variance) for j, v in enumerate(violations)]


@pytest.mark.parametrize(
    ("violations", "noise", "back"),
    [
        ((), 0.0, None),
        ((0.3,), 0.0, None),
        ((0.3, 0.1, 0.02), 0.0, None),
        ((0.03, 0.1, 0.2), 0.0, 0),
        ((0.1, 0.03, 0.2), 0.0, 1),
        ((0.03, 0.02, 0.049), 0.0, None),  # within the tolerance
        ((0.06, 0.1, 0.069), 0.0, None),  # not by much
        ((0.03, 0.1, 0.2), 0.1, None),  # noise may show it
        ((0.03, 0.1, 0.2), 0.04, 0),
    ],
)
def test_last_solution_is_kept_unless_its_check_shows_clearly_more_than_another(
    violations: tuple[float, ...], noise: float, back: int | None
) -> None:
    assert best_iterate(checks(*violations, noise=noise), 0.05) == back


def rows(n: int = 4_000) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    group = random.integers(0, 2, n)
    X = random.standard_normal((n, 3)) + group[:, None] * [0.8, 0.0, 0.0]
    return X, (X[:, 0] + X[:, 1] + random.standard_normal(n) > 0.4).astype(int), group


def runaway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corrections in the wrong direction."""
    original = PostProcessingRun._constraint

    def wrong(self: PostProcessingRun, t: int) -> Any:
        found = original(self, t)
        found.b[0] -= 0.1 * len(self._surprises)
        return found

    monkeypatch.setattr(PostProcessingRun, "_constraint", wrong)


def fit(tmp: Any = None) -> LagrangianDualClassifier:
    X, y, group = rows()
    plan = PostProcessingPlan(checks=3)
    model = LagrangianDualClassifier(
        epsilon=float("inf"), plan=plan, groups=(0, 1), tolerance=0.02, random_state=0, progress=False
    )
    return model.fit(X, y, sensitive_features=group, checkpoint=tmp)


@pytest.mark.filterwarnings("ignore")
def test_solution_of_the_best_check_is_deployed_where_corrections_run_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    X, y, group = rows()
    runaway(monkeypatch)
    model = fit(tmp_path / "run")
    found = violation(y, model.predict(X), sensitive_features=group, notion="demographic_parity", groups=(0, 1))
    assert found < 0.06
    rounds = model.history_.filter(like="multiplier")
    assert rounds.iloc[-1].tolist() == rounds.iloc[0].tolist()  # the first solution, instead of the last
    assert len(rounds) == 4
    assert np.array_equal(model.dual_.to_numpy().ravel(), rounds.iloc[-1].to_numpy())


@pytest.mark.filterwarnings("ignore")
def test_run_that_stopped_before_it_went_back_goes_back_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    runaway(monkeypatch)

    def stopped(*_: Any) -> Any:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(solver, "best_iterate", stopped)
        with pytest.raises(InterruptedError):
            fit(tmp_path / "run")
    resumed, whole = fit(tmp_path / "run"), fit()
    assert resumed.dual_.equals(whole.dual_)
    assert resumed.certificate_.remarks == whole.certificate_.remarks


@pytest.mark.filterwarnings("ignore")
def test_other_points_of_a_curve_do_not_go_back_to_a_check_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, group = rows()
    model = LagrangianDualClassifier(
        epsilon=float("inf"), plan=PostProcessingPlan(checks=3), groups=(0, 1), random_state=0, progress=False
    )
    with monkeypatch.context() as patch:
        patch.setattr(solver, "best_iterate", lambda found, *_: 0 if found else None)
        curve = tradeoff(model, X, y, sensitive_features=group, tolerances=(0.0, 0.2))
    strict, loose = (one.dual_.to_numpy() for one in curve.models)
    assert np.abs(loose).max() < np.abs(strict).max()


def test_healthy_fit_goes_on_to_the_last_solution() -> None:
    model = fit()
    assert len(model.history_) == 4
