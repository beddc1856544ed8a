import gc
import logging
import pickle
import re
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from recording import SMALL_PLAN, run
from recording import People as Table

from justitia import BudgetExceeded, LagrangianDualClassifier, PrivacyLedger
from justitia.privacy.vault import SensitiveVault
from justitia.training import state_file
from justitia.training.checkpoint import Checkpoint

# Public names of the groups, and a label that is not among them: nothing may ever repeat it.
GROUPS = ("north", "south")
SECRET = "ZZ-secret-7"
N = 240


def secret_codes() -> NDArray[np.int64]:
    """Group of each person: a pattern that no feature, class or order of batches shares."""
    return np.random.default_rng(99).integers(0, 3, N)


def make_table() -> Table:
    rng = np.random.default_rng(4)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=["x0", "x1", "x2"])
    y = (X["x0"] + rng.normal(size=N) > 0).to_numpy().astype(np.int64)
    names = (*GROUPS, SECRET)
    return Table(X, y, tuple(names[code] for code in secret_codes()), GROUPS)


def estimator(**options: Any) -> LagrangianDualClassifier:
    settings: dict[str, Any] = {"module": (4,), "engine": "pf-ld", "plan": SMALL_PLAN, "progress": False}
    return LagrangianDualClassifier(groups=GROUPS, epsilon=20.0, **settings | {"random_state": 0} | options)


def fitted(**options: Any) -> LagrangianDualClassifier:
    table = make_table()
    return estimator(**options).fit(table.X, table.y, sensitive_features=list(table.labels))


def traces() -> list[bytes]:
    """What a file would hold if it held the attribute: labels, codes or a group's members, in any common type."""
    codes = secret_codes()
    columns = [codes, *(codes == group for group in range(3))]
    kinds = ("int64", "int32", "int16", "int8", "bool", "float32", "float64")
    # Forty people are enough to recognise a column, wherever it was cut or filtered at its ends.
    arrays = [column.astype(kind)[100:140].tobytes() for column in columns for kind in kinds]
    listed = [str(column[100:140].astype(int).tolist())[1:-1].encode() for column in columns]
    members = [str(np.flatnonzero(codes == group)[20:40].tolist())[1:-1].encode() for group in range(3)]
    positions = [np.flatnonzero(codes == group)[20:40].tobytes() for group in range(3)]
    return [SECRET.encode(), SECRET.encode("utf-16-le"), *arrays, *listed, *members, *positions]


def leaks(data: bytes | str) -> list[bytes]:
    text = data.encode() if isinstance(data, str) else data
    compact = text.replace(b"\n", b" ")
    return [trace for trace in traces() if trace in text or trace in compact]


def reachable(thing: Any) -> Iterator[Any]:
    """Everything that can be reached from ``thing`` through attributes, slots, closures and containers."""
    seen: dict[int, Any] = {}
    stack = [thing]
    while stack:
        one = stack.pop()
        if id(one) in seen or isinstance(one, type | types.ModuleType):
            continue
        seen[id(one)] = one
        yield one
        stack += list(getattr(one, "__dict__", {}).values())
        stack += [getattr(one, slot) for slot in getattr(type(one), "__slots__", ()) if hasattr(one, slot)]
        stack += [cell.cell_contents for cell in getattr(one, "__closure__", None) or ()]
        stack += [one.__self__] if hasattr(one, "__self__") else []
        if isinstance(one, dict):
            stack += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            stack += list(one)


def as_bytes(thing: Any) -> bytes:
    if isinstance(thing, torch.Tensor):
        return thing.detach().numpy().tobytes()
    if isinstance(thing, np.ndarray) and thing.dtype != object:
        return thing.tobytes()
    if isinstance(thing, bytes):
        return thing
    if isinstance(thing, pd.DataFrame):
        return thing.to_csv().encode() + thing.to_numpy(dtype=np.float64).tobytes()
    return repr(thing).encode()


# --- the detector detects


@pytest.mark.parametrize(
    "careless",
    [
        lambda table: pickle.dumps(table.labels),
        lambda table: pickle.dumps(secret_codes()),
        lambda table: pickle.dumps(torch.from_numpy(secret_codes())),
        lambda table: pickle.dumps(pd.Series(secret_codes() == 1)),
        lambda table: (secret_codes() == 0).astype(np.float32).tobytes(),
        lambda table: str(secret_codes().tolist()),
        lambda table: str(np.flatnonzero(secret_codes() == 2).tolist()),
        lambda table: f"unknown label {table.labels[0]!r}, {SECRET!r}",
    ],
    ids=["labels", "codes", "tensor", "mask", "weights", "list", "members", "sentence"],
)
def test_leaks_of_something_that_holds_the_attribute_are_found(careless: Callable[[Table], bytes | str]) -> None:
    assert leaks(careless(make_table()))


def test_leaks_of_what_is_public_are_none() -> None:
    table = make_table()
    assert leaks(pickle.dumps((table.X, table.y, GROUPS, list(range(N))))) == []


# --- what fit leaves behind


def test_pickled_model_holds_no_attribute() -> None:
    model = fitted()
    data = pickle.dumps(model)
    assert leaks(data) == []
    assert b"SensitiveVault" not in data
    table = make_table()
    assert pickle.loads(data).predict(table.X).tolist() == model.predict(table.X).tolist()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_model_of_any_protocol_holds_no_secret_label(protocol: int) -> None:
    assert SECRET.encode() not in pickle.dumps(fitted(), protocol=protocol)


def test_texts_of_a_model_and_its_parts_hold_no_attribute() -> None:
    model = fitted()
    parts = (model, model.certificate_, model.ledger_, model.plan_, model.history_, model.dual_, model.module_)
    for part in parts:
        assert leaks(repr(part) + str(part)) == []
    assert leaks(model.certificate_.to_json() + model.history_.to_csv() + model.dual_.to_csv()) == []
    assert leaks("".join(release.to_json() for release in model.ledger_.releases)) == []


def test_objects_reachable_from_a_model_hold_no_attribute() -> None:
    model = fitted()
    objects = list(reachable(model))
    assert any(one is model.ledger_.releases[0] for one in objects)  # the walk goes deep
    assert not [one for one in objects if isinstance(one, SensitiveVault)]
    assert [type(one) for one in objects if leaks(as_bytes(one))] == []
    per_person = [one for one in objects if N in getattr(one, "shape", ())]
    assert per_person == []


def test_history_and_multipliers_have_one_row_per_round_and_group_and_not_per_person() -> None:
    model = fitted()
    assert len(model.history_) == 1 + SMALL_PLAN.private_steps
    assert model.dual_.index.tolist() == list(GROUPS)


def test_vault_does_not_survive_a_fit() -> None:
    def vaults() -> int:
        gc.collect()
        return sum(type(one) is SensitiveVault for one in gc.get_objects())

    before = vaults()
    model = fitted()
    assert vaults() == before
    keep = SensitiveVault(["a"], groups=("a", "b"), ledger=PrivacyLedger(epsilon=1.0, delta=0.0))
    assert (vaults(), len(keep)) == (before + 1, 1)  # the count sees vaults
    del model, keep
    assert vaults() == before


def test_module_of_the_user_is_copied_and_carries_no_hooks_afterwards() -> None:
    own = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    before = pickle.dumps(own)
    model = fitted(module=own)
    assert pickle.dumps(own) == before
    for part in model.module_.modules():
        assert not part._forward_hooks and not part._forward_pre_hooks and not part._backward_hooks  # noqa: PT018


# --- what fit says while it runs


def test_logs_warnings_and_progress_hold_no_attribute(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted(progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"(\s*fit: +\d+%\|[^|]*\| \d+/13 \[[^\]]*\]\s*)+", captured.err)
    assert leaks("".join(str(one.message) for one in caught) + caplog.text + captured.err) == []


def odd_labels() -> dict[str, list[Any]]:
    return {
        "unknown": [SECRET] * N,
        "everyone missing": [None] * N,
        "one member": [GROUPS[0], *[GROUPS[1]] * (N - 1)],
        "empty group": [GROUPS[0]] * N,
        "numbers": [float("nan"), 3, 2**70, -0.5] * (N // 4),
        "containers": [[SECRET], {SECRET: 1}, (SECRET, SECRET), {SECRET}] * (N // 4),
    }


@pytest.mark.parametrize("kind", list(odd_labels()))
def test_labels_that_look_wrong_raise_nothing_and_warn_in_noised_numbers_only(kind: str) -> None:
    outcome = run(replace(make_table(), labels=tuple(odd_labels()[kind])), epsilon=20.0)
    blocks = outcome.noisy[0]
    sizes = (blocks + (N - blocks.sum(0)) / len(blocks))[:-1].sum(1)  # what the vault told the engine
    noised = {f"{name!r} is about {max(float(size), 0):.0f}" for name, size in zip(GROUPS, sizes, strict=True)}
    for sentence in outcome.public["warnings"]:
        shown = re.fullmatch(r"the noised size of group ('\w+' is about \d+): is its name right\?", sentence)
        assert shown is not None
        assert shown[1] in noised
    if kind in {"unknown", "everyone missing"}:
        assert len(outcome.public["warnings"]) == 2


def failing_fits() -> dict[str, Callable[[Table], Any]]:
    poor = PrivacyLedger(epsilon=0.01, delta=1e-5)
    return {
        "too few labels": lambda t: estimator().fit(t.X, t.y, sensitive_features=list(t.labels[:-1])),
        "no budget": lambda t: estimator().fit(t.X, t.y, sensitive_features=list(t.labels), ledger=poor),
        "one class": lambda t: estimator().fit(t.X, 0 * t.y, sensitive_features=list(t.labels)),
        "no such engine": lambda t: estimator(engine="magic").fit(t.X, t.y, sensitive_features=list(t.labels)),
        "wrong dimensions": lambda t: estimator().fit(
            t.X, t.y, sensitive_features=np.array(t.labels).reshape(-1, 2, 2)
        ),
        "two columns for one": lambda t: estimator().fit(t.X, t.y, sensitive_features=np.array([t.labels, t.labels]).T),
        "attribute among the features": lambda t: estimator().fit(
            t.X, t.y, sensitive_features=pd.Series(t.labels, name="x1")
        ),
        "one text": lambda t: estimator().fit(t.X, t.y, sensitive_features=SECRET),
    }


@pytest.mark.parametrize("kind", list(failing_fits()))
def test_errors_hold_no_attribute(kind: str) -> None:
    with pytest.raises((ValueError, TypeError, BudgetExceeded)) as caught:
        failing_fits()[kind](make_table())
    told = "".join(traceback.format_exception(caught.value))
    assert leaks(told) == []


def test_failed_fit_leaves_nothing_on_the_model() -> None:
    table, model = make_table(), estimator()
    before, poor = dict(vars(model)), PrivacyLedger(epsilon=0.01, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        model.fit(table.X, table.y, sensitive_features=list(table.labels), ledger=poor)
    assert vars(model) == before


# --- what fit writes


def bytes_below(folder: Path) -> bytes:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    assert files
    return b"\n".join(path.name.encode() + path.read_bytes() for path in files)


def test_saved_folder_holds_no_attribute(tmp_path: Path) -> None:
    fitted().save(tmp_path / "model")
    assert leaks(bytes_below(tmp_path)) == []


def test_checkpoint_folder_holds_no_attribute_after_any_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    sound_save = Checkpoint.save

    def watched(checkpoint: Checkpoint, *given: Any, **rest: Any) -> None:
        sound_save(checkpoint, *given, **rest)
        written.append(bytes_below(tmp_path))

    monkeypatch.setattr(Checkpoint, "save", watched)
    table = make_table()
    estimator().fit(table.X, table.y, sensitive_features=list(table.labels), checkpoint=tmp_path)
    assert len(written) == 2 + SMALL_PLAN.private_steps
    assert [leaks(data) for data in [*written, bytes_below(tmp_path)] if leaks(data)] == []


def test_checkpoint_of_a_run_that_stops_holds_no_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"n": 0}
    sound = SensitiveVault.weighted_sum

    def stopped(vault: SensitiveVault, *arguments: Any, **options: Any) -> Any:
        asked["n"] += 1
        if asked["n"] == 3:
            raise KeyboardInterrupt
        return sound(vault, *arguments, **options)

    monkeypatch.setattr(SensitiveVault, "weighted_sum", stopped)
    table = make_table()
    with pytest.raises(KeyboardInterrupt):
        estimator().fit(table.X, table.y, sensitive_features=list(table.labels), checkpoint=tmp_path)
    assert leaks(bytes_below(tmp_path)) == []


def test_checkpoint_files_are_plain_so_that_the_search_above_sees_them(tmp_path: Path) -> None:
    (tmp_path / "state.npz").write_bytes(state_file.to_bytes({"codes": secret_codes()}))
    assert leaks(bytes_below(tmp_path))
