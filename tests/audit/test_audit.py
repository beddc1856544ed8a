"""Audits of healthy code come close to the certificate and never beyond it; every planted defect is found."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from planted import IN_THE_ENGINE, IN_THE_VAULT
from recording import SMALL_PLAN, make_people, problems
from recording import run as fit_and_record
from scipy import stats

from justitia import LagrangianDualClassifier, MomentsPlan, PFLDAsPublishedPlan
from justitia.audit import AuditResult, audit
from justitia.audit.as_published import CERTAIN, log_ratio, record_steps
from justitia.audit.attacks import Randomness, mechanism_statistics, released_numbers
from justitia.audit.replay import Canary, make_replay, noise_scale, record, worst_canary
from justitia.audit.statistics import evidence
from justitia.postprocessing.plan import PostProcessingPlan

PLANS: dict[str, Any] = {
    "pf-ld": replace(SMALL_PLAN, private_steps=1, clip=1e-4),
    "moments": MomentsPlan(warmup_steps=4, rounds=4, public_steps=1, checks=2, batch_size=64, averaging=0.5),
    "post-processing": PostProcessingPlan(checks=2),
}
engines = pytest.mark.parametrize("engine", list(PLANS))
group_counts = pytest.mark.parametrize("n_groups", [2, 5])
PEOPLE = {n_groups: make_people(n_groups, missing=True, n=60) for n_groups in (2, 5)}


def model_of(n_groups: int, engine: str, **options: Any) -> LagrangianDualClassifier:
    module = None if engine == "post-processing" else (4,)
    settings = {"epsilon": 4.0, "module": module, "engine": engine, "plan": PLANS.get(engine), "random_state": 3}
    return LagrangianDualClassifier(groups=PEOPLE[n_groups].groups, progress=False, **settings | options)


def attacked(n_groups: int, engine: str, *, audit_options: dict[str, Any], **options: Any) -> AuditResult:
    people = PEOPLE[n_groups]
    model = model_of(n_groups, engine, **options)
    return audit(model, people.X, people.y, sensitive_features=list(people.labels), progress=False, **audit_options)


def squared_shifts(questions: Any, towards: Any) -> list[float]:
    """How far the neighbours' exact answers are apart, squared, in units of the noise."""
    return [float(np.linalg.norm(t) * noise_scale(q)) ** 2 for q, t in zip(questions, towards, strict=True)]


@group_counts
@engines
def test_worst_canary_of_a_recorded_run_nearly_attains_what_the_ledger_charged(engine: str, n_groups: int) -> None:
    people = PEOPLE[n_groups]
    recording = record(model_of(n_groups, engine), people.X, people.y, list(people.labels), seed=1)
    canary = worst_canary(recording.queries, n_groups)
    towards = make_replay(recording, canary).towards
    moved = sum(float(np.linalg.norm(t) * noise_scale(q)) ** 2 for q, t in zip(recording.queries, towards, strict=True))
    charged = sum(cost.noise_multiplier**-2 * count for cost, count in recording.model.ledger_.costs().items())
    assert 0.5 * charged <= moved <= charged * (1 + 1e-6)


@group_counts
@engines
def test_audit_of_the_mechanism_comes_within_a_factor_of_the_certificate(engine: str, n_groups: int) -> None:
    found = attacked(n_groups, engine, audit_options={"runs": 480, "seed": 1, "copies": 8, "audits": 4})
    assert found.epsilon / 2.5 <= found.lower <= found.epsilon
    assert not found.exceeded


@engines
def test_audit_of_healthy_releases_accuses_nobody_in_ten_seeds(engine: str) -> None:
    people = PEOPLE[2]
    recording = record(model_of(2, engine), people.X, people.y, list(people.labels), seed=1)
    canary = worst_canary(recording.queries, 2)
    for seed in range(10):
        runs = mechanism_statistics(recording, canary, 80, Randomness(None, seed), jobs=1, progress=False, copies=8)
        # Ten audits together: alone, one of a person who attains the sensitivity may fail in 5 of 100.
        found = evidence(*runs, alpha=0.05 / 10, delta=1e-5, known=np.ones(len(recording.queries)))
        assert max(found.binomial(1e-5), found.gaussian(1e-5)) <= 4.0, seed


@engines
def test_log_ratios_of_replays_are_normal_with_the_shift_that_the_neighbours_have(engine: str) -> None:
    people = PEOPLE[2]
    recording = record(model_of(2, engine, epsilon=1.0), people.X, people.y, list(people.labels), seed=1)
    canary = worst_canary(recording.queries, 2)
    towards = make_replay(recording, canary).towards
    square = sum(
        float(np.linalg.norm(t) * noise_scale(q)) ** 2 for q, t in zip(recording.queries, towards, strict=True)
    )
    runs = mechanism_statistics(recording, canary, 320, Randomness(None, 1), jobs=1, progress=False, copies=8)
    for sign, one in zip((-1, 1), runs, strict=True):
        normal = (one.sum(1) - sign * square / 2) / math.sqrt(square)
        assert stats.kstest(normal, "norm").pvalue > 1e-3


def test_audit_with_noise_of_the_operating_system_is_not_refuted() -> None:
    assert not attacked(2, "moments", audit_options={"runs": 100, "audits": 1000}).exceeded


@pytest.mark.parametrize("name", list(IN_THE_VAULT))
def test_audit_of_a_broken_vault_refutes_its_certificate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    IN_THE_VAULT[name](monkeypatch)
    # Noise that repeats from run to run is found by runs that share no vault.
    options = {"runs": 48} if name == "fixed noise seed" else {"runs": 800, "seed": 1, "copies": 8}
    found = attacked(2, "moments", audit_options=options)
    assert found.exceeded
    assert "the certificate is refuted" in found.verdict


@pytest.mark.parametrize("name", list(IN_THE_ENGINE))
def test_record_and_play_of_a_broken_engine_finds_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    people = make_people(2, missing=False, n=12)
    options: dict[str, Any] = {"plan": replace(SMALL_PLAN, private_steps=2)}
    other = {"a": "b", "b": "a"}
    start = tuple("abbb"[i] if i < 4 else label for i, label in enumerate(people.labels))
    people = replace(people, labels=start)

    def found() -> bool:
        first = fit_and_record(people, **options)
        flips = (people.with_label(i, other[label]) for i, label in enumerate(people.labels))
        return any(problems(first, fit_and_record(flip, answers=first.noisy, **options)) for flip in flips)

    assert not found()
    IN_THE_ENGINE[name](monkeypatch)
    assert found()


@pytest.mark.parametrize("engine", ["moments", "post-processing"])
@pytest.mark.parametrize("attack", ["trajectory", "weights", "predictions"])
def test_audit_of_whole_fits_proves_no_more_than_the_certificate(attack: str, engine: str) -> None:
    found = attacked(2, engine, audit_options={"runs": 8, "attack": attack, "seed": 1})
    assert found.evidence is not None
    assert found.evidence.tested == (6 if attack == "trajectory" else 4)
    assert not found.exceeded


def test_released_numbers_of_a_rule_are_its_margins_multipliers_and_history_and_move_with_the_noise() -> None:
    people, seen = PEOPLE[2], np.array([5, 7])
    one, other, twin = (model_of(2, "post-processing", epsilon=50.0, noise_seed=seed) for seed in (1, 2, 1))
    for model in (one, other, twin):
        model.fit(people.X, people.y, sensitive_features=list(people.labels))
    numbers = released_numbers(one, people.X, seen)
    margins = one.decision_function(people.X)
    assert numbers[:2].tolist() == margins[seen].tolist()
    assert numbers[2:62].tolist() == margins.tolist()  # 60 rows are fewer than are probed
    assert len(numbers) == 62 + one.dual_.size + one.history_.size
    assert np.isfinite(numbers).all()
    assert np.array_equal(released_numbers(twin, people.X, seen), numbers)
    assert not np.array_equal(released_numbers(other, people.X, seen)[:62], numbers[:62])


def test_audit_of_the_default_engine_is_named_by_it() -> None:
    people, model = PEOPLE[2], model_of(2, "post-processing").set_params(engine=None, plan=None)
    given: dict[str, Any] = {"sensitive_features": list(people.labels), "progress": False}
    found = audit(model, people.X, people.y, runs=80, seed=1, copies=8, **given)
    assert found.engine == "post-processing"
    assert not found.exceeded


def test_audit_of_many_people_in_one_run_of_a_rule_is_not_refuted() -> None:
    found = attacked(2, "post-processing", audit_options={"runs": 8, "attack": "one run", "seed": 1})
    assert found.guesses > 0
    assert not found.exceeded


def test_audit_of_whole_trajectories_guesses_as_often_right_as_the_certificate_allows() -> None:
    found = attacked(2, "moments", epsilon=30.0, audit_options={"runs": 40, "attack": "trajectory", "seed": 1})
    mu = math.sqrt(sum(cost.noise_multiplier**-2 * k for cost, k in ledger_costs(30.0).items()))
    assert found.evidence is not None
    chances = stats.binom(2 * found.evidence.tested, stats.norm.cdf(mu / 2))
    assert chances.ppf(1e-3) <= found.evidence.right <= chances.ppf(1 - 1e-3)
    assert 0.0 < found.lower <= found.epsilon


def ledger_costs(epsilon: float) -> dict[Any, int]:
    people = PEOPLE[2]
    model = model_of(2, "moments", epsilon=epsilon)
    return dict(model.fit(people.X, people.y, sensitive_features=list(people.labels)).ledger_.costs())


def test_audit_with_two_processes_is_the_same_as_with_one_and_shows_its_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    people = PEOPLE[2]
    options: dict[str, Any] = {"sensitive_features": list(people.labels), "runs": 120, "seed": 2}
    one, two = (
        audit(model_of(2, "pf-ld"), people.X, people.y, jobs=jobs, progress=jobs == 2, **options) for jobs in (1, 2)
    )
    assert one == two
    assert "240/240" in capsys.readouterr().err


def test_replays_in_two_processes_share_no_noise() -> None:
    people = PEOPLE[2]
    recording = record(model_of(2, "moments"), people.X, people.y, list(people.labels), seed=1)
    canary = worst_canary(recording.queries, 2)
    both = mechanism_statistics(recording, canary, 200, Randomness(None, None), jobs=2, progress=False)
    answers = np.concatenate(both)
    assert len(np.unique(answers[:, 0])) == len(answers)


def test_audit_of_a_model_with_a_fixed_noise_seed_tells_whole_fits_apart() -> None:
    options: dict[str, Any] = {"epsilon": 0.1, "audit_options": {"runs": 16, "attack": "weights", "seed": 1}}
    found = attacked(2, "moments", noise_seed=5, **options)
    assert found.evidence is not None
    assert found.evidence.right == 2 * found.evidence.tested
    assert found.exceeded
    assert not attacked(2, "moments", **options).exceeded


def two_in_a_group(engine: str, *, plan: Any, **options: Any) -> AuditResult:
    people = make_people(2, missing=False, n=40)
    labels = ["b", "b"] + ["a"] * 38
    model = model_of(2, engine, epsilon=1.0, plan=plan)
    options |= {"canary": 0, "seed": 1, "progress": False}
    return audit(model, people.X, people.y, sensitive_features=labels, **options)


@pytest.mark.parametrize(
    ("engine", "plan", "refuted"),
    [("pf-ld-as-published", PFLDAsPublishedPlan(epochs=3, batch_size=40), True), ("pf-ld", PLANS["pf-ld"], False)],
)
def test_audit_of_a_group_of_two_refutes_the_printed_claim_and_not_the_repaired_engine(
    engine: str, plan: Any, refuted: bool
) -> None:
    # In the printed engine a batch whose smallest group has one member is skipped, and its noise with it.
    found = two_in_a_group(engine, plan=plan, attack="weights", runs=48)
    assert found.epsilon <= 1.0
    assert found.exceeded == refuted


def test_audit_of_printed_steps_finds_a_skipped_one() -> None:
    found = two_in_a_group(
        "pf-ld-as-published", plan=PFLDAsPublishedPlan(epochs=2, batch_size=40), attack="mechanism", runs=64
    )
    assert found.gaussian is None
    assert found.evidence is not None
    assert found.evidence.right == 2 * found.evidence.tested
    assert found.exceeded


def test_printed_replay_of_a_larger_group_knows_both_scales_of_the_noise() -> None:
    people = make_people(2, missing=False, n=40)
    labels = ["b"] * 5 + ["a"] * 35
    plan = PFLDAsPublishedPlan(epochs=3, batch_size=40, noise_by="lambda_max")
    model = model_of(2, "pf-ld-as-published", plan=plan, epsilon=1.0)
    recording = record(model, people.X, people.y, labels, seed=1)
    canary = Canary(0, 0, 1)  # the first neighbour has four people in "b", the second five
    replay = record_steps(recording, canary, people.X, people.y, Randomness(None, 1), seed=1)
    first, second = ([step for step in one if step is not None] for one in replay.known)
    assert len(first) == len(second) == 2  # all multipliers are 0 in the first epoch
    assert [a[1] / b[1] for a, b in zip(first, second, strict=True)] == pytest.approx([4 / 3] * 2)
    ratios = replay(range(40))
    assert ratios[1::2].sum(1).mean() > 0 > ratios[::2].sum(1).mean()


def test_log_ratio_of_a_printed_step_is_that_of_two_normal_laws_and_certain_if_one_skips() -> None:
    answer, (m, s), (k, t) = torch.tensor([0.5, 1.0]), (torch.zeros(2), 1.0), (torch.ones(2), 2.0)
    expected = stats.norm(1, 2).logpdf([0.5, 1.0]).sum() - stats.norm(0, 1).logpdf([0.5, 1.0]).sum()
    assert log_ratio(answer, (m, s), (k, t)) == pytest.approx(expected)
    assert log_ratio(None, (m, s), None) == log_ratio(answer, None, (k, t)) == CERTAIN
    assert log_ratio(answer, (m, s), None) == log_ratio(None, None, (k, t)) == -CERTAIN
    assert log_ratio(None, None, None) == 0.0


def test_audit_of_the_printed_engine_takes_the_most_unusual_person() -> None:
    people = PEOPLE[2]
    X = people.X.copy()
    X.iloc[17] = 50.0
    model = model_of(2, "pf-ld-as-published", plan=PFLDAsPublishedPlan(epochs=1, batch_size=60))
    options: dict[str, Any] = {"attack": "predictions", "runs": 8, "progress": False}
    assert audit(model, X, people.y, sensitive_features=list(people.labels), **options).canary == 17


def test_audit_in_one_run_guesses_half_of_the_people() -> None:
    found = attacked(2, "moments", audit_options={"attack": "one run", "seed": 1})
    assert (found.guesses, found.runs, found.canary) == (30, 1, None)
    assert 0 <= found.right <= 30
    assert not found.exceeded


def test_audit_in_one_run_with_hardly_any_noise_guesses_most_people_right() -> None:
    """Not everybody: there are fewer numbers than people."""
    found = attacked(2, "moments", epsilon=50.0, audit_options={"attack": "one run", "seed": 1})
    assert found.right > 0.6 * found.guesses
    assert found.lower > 0.1


def test_audit_repeated_with_its_seed_is_the_same_and_its_json_tells_the_verdict() -> None:
    first, second = (attacked(2, "moments", audit_options={"runs": 8, "seed": 4}) for _ in range(2))
    assert first == second
    facts = json.loads(first.to_json())
    assert facts["verdict"] == first.verdict == str(first)
    assert list(first.table.columns) == [name for name in facts if name != "verdict"]


def test_verdict_names_both_numbers_and_rounds_the_proven_one_down() -> None:
    found = AuditResult("weights", "moments", 3, ("a", "b"), 100, 0.95, 6, 1.0, 1e-5, 0.319, None)
    assert found.verdict == (
        "the attack proves at least 0.31; the certificate says 1.00: no contradiction "
        "(95% confidence, corrected for 6 audits)."
    )
    assert "refuted" in replace(found, binomial=1.2).verdict
    assert "no certificate to compare it with" in replace(found, epsilon=math.inf).verdict


@pytest.mark.parametrize(
    ("options", "audit_options", "sentence"),
    [
        ({"groups": None}, {}, "expected a model with its public list of groups"),
        ({"epsilon": math.inf}, {}, "expected a private model to audit, got epsilon=inf"),
        (
            {"engine": "pf-ld-as-published", "plan": None},
            {"attack": "trajectory"},
            "expected an engine that asks the vault, got 'pf-ld-as-published'",
        ),
        ({}, {"attack": "guess"}, "attack"),
        ({}, {"runs": 3}, "runs"),
        ({}, {"confidence": 1.5}, "confidence"),
        ({}, {"canary": 60}, "expected a canary below 60, got 60"),
    ],
)
def test_audit_of_wrong_settings_is_refused(
    options: dict[str, Any], audit_options: dict[str, Any], sentence: str
) -> None:
    people = PEOPLE[2]
    model = model_of(2, "moments").set_params(**options)
    with pytest.raises(ValueError, match=sentence):
        audit(model, people.X, people.y, sensitive_features=list(people.labels), **audit_options)
