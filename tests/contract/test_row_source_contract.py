"""What every row source must do: each row once, the same integers however rows are split, errors in one sentence.

Rows have so many features that principal axes are used, and positions beyond one aligned product.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from new_row_source import Failing, RetriedRows, Unreadable, to_numbers, whole_block

import justitia.estimator as estimator_module
from justitia import LagrangianDualClassifier, PrivacyLedger
from justitia.postprocessing.decisions import ColumnSums, DecisionRows, DecisionRule, EvaluateDecisions, Gains, Ones
from justitia.postprocessing.features import ALIGNED, MOST_FEATURES, PublicRows, base_scores
from justitia.postprocessing.memberships import ExpectedSums, Memberships, product_bits
from justitia.privacy.attribute import Attribute, SensitiveColumns
from justitia.privacy.interface import VaultRequest
from justitia.privacy.joining import FileAttribute
from justitia.privacy.mechanisms import Gaussian
from justitia.privacy.vault import FileCodes, GroupSums, MemoryCodes, open_vault
from justitia.rows import files as rows_files
from justitia.rows.files import Columns, FileRows
from justitia.rows.parquet import RowFiles
from justitia.rows.source import Block, MemoryRows, RowSource

N, P, GROUPS = 2100, 130, ("a", "b", "c")
assert P > MOST_FEATURES
assert N > ALIGNED
NAMES = tuple(f"x{j}" for j in range(P))
SOURCES = ("memory", "memory in blocks", "files", "files, 2 workers", "files, 4 workers", "new")


@cache
def data() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N, P)).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=N) > 0).astype(np.float32)
    weight = np.where(np.arange(N) % 3, 1.0, 2.0)
    score = np.clip(1 / (1 + np.exp(-X[:, 0].astype(np.float64))), 1e-3, 1 - 1e-3)
    codes = (X[:, 1] + rng.normal(size=N)).argsort().argsort() * 4 // N
    labels = [[*GROUPS, None][code] for code in codes]
    return {"X": X, "y": y, "weight": (weight / weight.mean()).astype(np.float32), "score": score, "labels": labels}


class Bar:
    """A progress bar that shows nothing."""

    def update(self, *_: Any) -> None: ...


def make_source(name: str, folder: Path) -> tuple[RowSource, Any]:
    """A source of the rows above, scored, and the group codes of its rows."""
    X, y, weight, score, labels = data().values()
    source: Any
    codes: Any = MemoryCodes(np.array([[*GROUPS, None].index(one) for one in labels], dtype=np.int16))
    if not name.startswith("files"):
        size = 611 if name == "memory in blocks" else N
        source = RetriedRows(X, y, weight) if name == "new" else MemoryRows(X, y, weight, size)
    else:
        stored = folder / "rows.parquet"
        table = pd.DataFrame(X, columns=list(NAMES)).assign(y=y, w=np.where(np.arange(N) % 3, 1.0, 2.0), sex=labels)
        table.to_parquet(stored, row_group_size=700)
        workers = int(name.partition(", ")[2].partition(" ")[0] or 1)
        files = RowFiles.open(stored, workers=workers)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows_files, "BLOCK", 300)
            source = FileRows(files, Columns(NAMES, "y", "w"), lambda *_: nullcontext(Bar()))
        assert len(source.ranges) == workers
        source.scale_weights(2.0, 1.0)
        source.encode_with(to_numbers, (0.0, 1.0))
        codes = FileCodes(FileAttribute(SensitiveColumns("sex"), files, None, source.ranges), GROUPS)
    source.score(to_numbers, score)
    return source, codes


@pytest.fixture(scope="module", params=SOURCES)
def made(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RowSource, Any]]:
    source, codes = make_source(request.param, tmp_path_factory.mktemp("rows"))
    yield source, codes
    source.close()
    source.close()  # harmless


def reference() -> Block:
    """All rows in one block."""
    X, y, weight, score, _ = data().values()
    return Block(0, X, y, weight, score)


@cache
def public_rows(*, blocks: bool = True) -> PublicRows:
    return PublicRows.fit(base_scores, reference(), blocks=blocks)


def passes(codes: Any) -> dict[str, Any]:
    """Every pass of a fit, with random weights."""
    rng = np.random.default_rng(2)
    rows, joint = public_rows(), public_rows(blocks=False)
    weights = rng.normal(size=(4, rows.width))
    one, many = (
        DecisionRule(
            Memberships(rows, weights),
            rng.normal(size=(len(at), 2, 3))[..., None],
            Gains(np.array(at)),
            np.zeros(1),
            str(at),
        )
        for at in ([0.5], [0.3, 0.5, 0.8])
    )
    table = rng.normal(size=(3, 2, 2, 2))
    step = 2.0**-20
    return {
        "moments": GroupSums(rows, 1.0, step, codes, 4),
        "moments, label as a column": GroupSums(joint, 1.0, step, codes, 4),
        "sizes": GroupSums(Ones(), 1.0, step, codes, 4),
        "totals": ColumnSums(rows, step),
        "expected sums": ExpectedSums(rows, weights, product_bits(N)),
        "cells": EvaluateDecisions(one, step),
        "cells at levels": EvaluateDecisions(many, step),
        "decisions at levels": GroupSums(DecisionRows(many, table), 3.0, step, codes, 4),
    }


@cache
def expected() -> dict[str, Any]:
    codes = MemoryCodes(np.array([[*GROUPS, None].index(one) for one in data()["labels"]], dtype=np.int16))
    return {name: work.run(reference()) for name, work in passes(codes).items()}


def test_every_row_comes_once_and_in_order(made: tuple[RowSource, Any]) -> None:
    source, _ = made
    firsts, *columns = zip(*source.map(whole_block), strict=True)
    found = [np.concatenate(column) for column in columns]
    assert source.n == N
    assert list(firsts) == np.cumsum([0, *map(len, columns[0])])[:-1].tolist()
    for one, name in zip(found, ("X", "y", "weight", "score"), strict=True):
        assert np.array_equal(one, data()[name])
    assert source.max_weight == float(data()["weight"].max())


def test_passes_give_the_integers_of_one_block_as_often_as_they_run(made: tuple[RowSource, Any]) -> None:
    source, codes = made
    source.read_codes(codes)
    for name, work in passes(codes).items():
        found = source.run(work)
        assert found.dtype == np.int64
        assert np.array_equal(found, expected()[name]), name
        if name.startswith("cells"):  # now with decisions that blocks have kept
            assert np.array_equal(source.run(work), expected()[name]), name


def test_new_scores_replace_the_old_ones_and_the_decisions_made_of_them(made: tuple[RowSource, Any]) -> None:
    source, codes = made
    work = passes(codes)["cells"]
    before = source.run(work)
    source.score(to_numbers, data()["score"][::-1].copy())
    X, y, weight, score, _ = data().values()
    assert np.array_equal(source.run(work), work.run(Block(0, X, y, weight, score[::-1])))
    source.score(to_numbers, score)
    assert np.array_equal(source.run(work), before)


def test_pass_that_fails_is_quoted_in_one_sentence_and_the_next_one_runs(made: tuple[RowSource, Any]) -> None:
    source, codes = made
    with pytest.raises(ValueError, match="expected fewer rows, got a block at"):
        source.run(Failing())
    with pytest.raises(ValueError, match=r"expected codes, got none\."):
        source.read_codes(Unreadable())
    source.check_unchanged()
    assert np.array_equal(source.run(passes(codes)["totals"]), expected()["totals"])


def test_vault_answers_the_same_on_every_source(made: tuple[RowSource, Any]) -> None:
    source, codes = made
    rows, noise = public_rows(), Gaussian(2.0)

    def answer(attribute: Any, where: Any) -> Any:
        ledger = PrivacyLedger(epsilon=9.0, delta=1e-5)
        request = VaultRequest(GROUPS, 9.0, ledger, N, noise_seed=7, source=where)
        found = open_vault(attribute, request).group_sums(rows, bound=1.0, noise=noise, purpose="moments")
        assert len(ledger.releases) == 1
        return found

    X, y, weight, score, labels = data().values()
    memory = MemoryRows(X, y, weight)
    memory.score(to_numbers, score)
    attribute = codes.attribute if isinstance(codes, FileCodes) else Attribute.from_container(labels)
    assert np.array_equal(answer(attribute, source), answer(Attribute.from_container(labels), memory))


def test_new_source_gives_the_fit_of_rows_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _, _, labels = data().values()

    def fit() -> LagrangianDualClassifier:
        model = LagrangianDualClassifier(groups=GROUPS, epsilon=8.0, tolerance=0.02, random_state=0, noise_seed=0)
        return model.fit(X[:, :5], y, sensitive_features=labels, sample_weight=np.arange(N) % 3 + 1.0)

    usual = fit()
    used: list[RetriedRows] = []

    class Recorded(RetriedRows):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            used.append(self)

    monkeypatch.setattr(estimator_module, "MemoryRows", Recorded)
    new = fit()
    assert len(used) == 1
    pd.testing.assert_frame_equal(new.history_, usual.history_, check_exact=True)
    assert np.array_equal(new.decision_function(X[:, :5]), usual.decision_function(X[:, :5]))
    assert new.ledger_.costs() == usual.ledger_.costs()


@pytest.mark.parametrize("size", [101, 2048, 2049])
def test_size_of_blocks_changes_no_integer(size: int) -> None:
    X, y, weight, score, labels = data().values()
    codes = MemoryCodes(np.array([[*GROUPS, None].index(one) for one in labels], dtype=np.int16))
    source = MemoryRows(X, y, weight, size)
    source.score(to_numbers, score)
    for name, work in passes(codes).items():
        assert np.array_equal(source.run(work), expected()[name]), name
