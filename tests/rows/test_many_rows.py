"""Ten billion rows: sums fit their integers, noise is the stated one, and a row that is added twice is noticed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import stats

from bench.performance.simulated import SimulatedFrame, made_part
from justitia import LagrangianDualClassifier, PrivacyLedger
from justitia.postprocessing.memberships import product_bits
from justitia.privacy.attribute import SensitiveColumns
from justitia.privacy.joining import FrameAttribute
from justitia.privacy.mechanisms import Gaussian
from justitia.privacy.noise_grid import exact_sum_step
from justitia.privacy.vault import SensitiveVault
from justitia.rows.frames import Part

MANY = 10**10
LARGEST = np.iinfo(np.int64).max


@dataclass
class AllAlike:
    """A row source that says what n rows of length 1 in one group add up to."""

    n: int
    width: int
    twice: int = 0

    def run(self, work: Any) -> Any:
        steps = np.zeros((work.blocks, self.width), dtype=np.int64)
        steps[0] = int(self.n / np.sqrt(self.width) / work.step)
        position = np.array([0], dtype=np.int64)
        for bits in range(0, 64, 32):  # the sum of positions as integers of 64 bits add up
            part = (self.n * (self.n - 1) // 2 + self.twice) >> bits & 0xFFFFFFFF
            position += np.array([part], dtype=np.uint64).astype(np.int64) << bits
        return np.concatenate([steps.ravel(), [self.n], position])


@dataclass
class Width:
    width: int

    def __call__(self, block: Any) -> Any:
        raise AssertionError("the source computes the sums")


def vault_of(source: AllAlike) -> SensitiveVault:
    attribute = FrameAttribute(SensitiveColumns("sex"), source.n)
    ledger = PrivacyLedger(epsilon=20.0, delta=1e-5)
    return SensitiveVault(attribute, groups=("a", "b"), ledger=ledger, source=source)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [10, 10**6, 10**9, MANY])
@pytest.mark.parametrize("bound", [1e-3, 1.0, 50.0])
def test_sums_of_bounded_rows_fit_their_integers_and_float64(n: int, bound: float) -> None:
    step = exact_sum_step(2.0 * n * bound)
    assert n * bound / step < 2**53 < LARGEST
    assert int(2 * n * bound / step) <= 2**53


@pytest.mark.parametrize("n", [10, 10**6, 10**9, MANY])
def test_sums_of_products_fit_their_integers(n: int) -> None:
    bits = product_bits(n)
    assert bits >= 14  # a factor is rounded by less than 0.0001
    assert n * 4**bits <= 2**62 < LARGEST


def test_noise_of_ten_billion_rows_is_the_stated_one() -> None:
    width, multiplier = 2000, 4.0
    answer = vault_of(AllAlike(MANY, width)).group_sums(
        Width(width), bound=1.0, noise=Gaussian(multiplier), purpose="moments"
    )
    step = exact_sum_step(2.0 * MANY)
    noise = answer - np.array([int(MANY / np.sqrt(width) / step) * step, 0.0])[:, None]
    stddev = multiplier * np.sqrt(2) * np.sqrt(2 / 3)  # after the projection on the public total
    assert stats.kstest(noise.ravel() / stddev, "norm").pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(noise.ravel() / (stddev * wrong), "norm").pvalue < 1e-6


@pytest.mark.parametrize("twice", [1, 12_345_678_901])
def test_source_that_adds_a_row_twice_is_refused_where_positions_need_more_than_64_bits(twice: int) -> None:
    assert MANY * (MANY - 1) // 2 > LARGEST
    with pytest.raises(ValueError, match="adds every row once"):
        vault_of(AllAlike(MANY, 3, twice)).group_sums(Width(3), bound=1.0, noise=Gaussian(2.0), purpose="moments")


class WithPersons(SimulatedFrame):
    """Simulated rows with the public ids of persons, of whom the first has very many rows."""

    names = (*SimulatedFrame.names, "who")

    def parts(self, k: int) -> Iterator[Part]:
        """The rows of a partition, whose first position is no multiple of 8."""
        yield Part(persons_part(k, self._rows[k]).select(self._public), made_part(k, self._rows[k]).private)


def persons_part(k: int, rows: int) -> pa.Table:
    at = np.arange(k * rows, (k + 1) * rows)
    return made_part(k, rows).public.append_column("who", pa.array(np.where(at % 50 == 0, 0, at // 2)))


@pytest.mark.parametrize("person", [None, "who"])
def test_fit_on_rows_that_are_made_in_the_passes_is_that_of_the_same_rows_in_files(
    person: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("justitia.rows.files.SAMPLE", 2000)
    monkeypatch.setattr("bench.performance.simulated.PARTITION", 3001)
    for k in range(2):
        public = persons_part(k, 3001) if person else made_part(k, 3001).public
        table = public.append_column("group", made_part(k, 3001).private.column(0))
        parquet.write_table(table, tmp_path / f"{k}.parquet")

    def fit(rows: Any) -> LagrangianDualClassifier:
        usual: dict[str, Any] = {"epsilon": 4.0, "groups": ("a", "b"), "tolerance": 0.02, "base": "p"}
        model = LagrangianDualClassifier(**usual, random_state=0, noise_seed=1)
        return model.fit(rows, "y", sensitive_features="group", person=person)

    made, stored = fit((WithPersons if person else SimulatedFrame)(6002)), fit(str(tmp_path))
    assert made.dual_.equals(stored.dual_)
    assert made.ledger_.costs() == stored.ledger_.costs()
    assert [one.sensitivity for one in made.ledger_.releases] == [one.sensitivity for one in stored.ledger_.releases]
    assert {one.unit for one in made.ledger_.releases} == {"person" if person else "row"}
