"""Several fits of the same rows without one ledger: said once, and by public facts alone."""

import math
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

import justitia
from justitia import BudgetWarning, JustitiaWarning, LagrangianDualClassifier, MomentsPlan, PrivacyLedger
from justitia.training.same_rows import FITS, rows_digest


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    FITS.forget()
    yield
    FITS.forget()


def warned(*fits: Any) -> list[bool]:
    """Whether each of these calls warns of fits that share no ledger."""
    found = []
    for fit in fits:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit()
        found.append(any(issubclass(one.category, BudgetWarning) for one in caught))
    return found


def fit(make: Any, people: Any, rows: slice = slice(None), labels: Any = None, **changes: Any) -> Any:
    options = {name: changes.pop(name) for name in ("ledger", "checkpoint") if name in changes}
    model = make(**{"noise_seed": None} | changes)
    a = people.a if labels is None else labels
    return lambda: model.fit(people.X[rows], people.y[rows], sensitive_features=a[rows], **options)


def test_second_fit_of_the_same_rows_warns_and_the_third_does_not(people: Any, make: Any) -> None:
    one = fit(make, people)
    assert warned(one, one, one, fit(make, people, epsilon=4.0)) == [False, True, False, False]


def test_warning_has_a_class_of_its_own_and_says_what_to_do(people: Any, make: Any) -> None:
    fit(make, people)()
    with pytest.warns(BudgetWarning, match=r"several fits of the same rows .* pass one ledger to all of them"):
        fit(make, people, tolerance=0.1)()
    assert issubclass(BudgetWarning, JustitiaWarning)
    assert issubclass(JustitiaWarning, UserWarning)
    assert justitia.BudgetWarning is BudgetWarning


def test_warning_points_at_the_line_that_fits(people: Any, make: Any) -> None:
    fit(make, people)()
    with pytest.warns(BudgetWarning) as caught:
        fit(make, people, engine="pf-ld")()
    assert caught[0].filename == __file__


def test_warning_turned_into_an_error_leaves_the_model_that_was_paid_for(people: Any, make: Any) -> None:
    fit(make, people)()
    model = make(noise_seed=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error", BudgetWarning)
        with pytest.raises(BudgetWarning):
            model.fit(people.X, people.y, sensitive_features=people.a)
    assert model.predict(people.X).shape == (120,)


def test_fits_of_other_rows_do_not_warn(people: Any, make: Any) -> None:
    assert warned(fit(make, people, slice(0, 60)), fit(make, people, slice(60, 120))) == [False, False]


@pytest.mark.parametrize("changes", [{"noise_seed": 1}, {"epsilon": math.inf}], ids=["seeded", "no privacy"])
def test_fits_of_which_nothing_is_promised_do_not_warn(people: Any, make: Any, changes: Any) -> None:
    one = fit(make, people, **changes)
    assert warned(one, one, fit(make, people)) == [False, False, False]


def test_fits_on_a_ledger_do_not_warn(people: Any, make: Any, tmp_path: Path) -> None:
    ledger = PrivacyLedger(epsilon=30.0, delta=1e-5)
    shared = fit(make, people, ledger=ledger)
    resumed = fit(make, people, checkpoint=tmp_path / "run")
    assert warned(shared, shared, resumed, resumed) == [False] * 4


def test_attribute_does_not_decide_whether_rows_are_the_same(people: Any, make: Any) -> None:
    flipped = people.a.copy()
    flipped[7] = "m" if flipped[7] == "f" else "f"
    everybody = np.full(120, "f")
    assert warned(fit(make, people), fit(make, people, labels=flipped)) == [False, True]
    FITS.forget()
    assert warned(fit(make, people, slice(0, 60)), fit(make, people, slice(60, 120), labels=everybody)) == [False] * 2


def test_grid_search_without_a_ledger_warns_once(people: Any, make: Any) -> None:
    import sklearn

    with (
        sklearn.config_context(enable_metadata_routing=True),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        search = GridSearchCV(make(noise_seed=None), {"tolerance": [0.0, 0.3]}, cv=2, error_score="raise")
        search.fit(people.X, people.y, sensitive_features=people.a)
    assert sum(issubclass(one.category, BudgetWarning) for one in caught) == 1


def test_curves_searches_and_files_count_as_fits(people: Any, make: Any, tmp_path: Path) -> None:
    plan = MomentsPlan(warmup_steps=5, rounds=2, public_steps=1, checks=1)
    model = LagrangianDualClassifier(epsilon=4.0, groups=["f", "m"], engine="moments", plan=plan, random_state=0)
    given: Any = {"X": people.X, "y": people.y, "sensitive_features": people.a}
    curve = lambda: justitia.tradeoff(model, tolerances=(0.0, 0.1), **given)  # noqa: E731
    searched = lambda: justitia.private_search(model, [{"module": (3,)}], trials=1.0, **given)  # noqa: E731
    assert warned(curve, searched) == [False, True]
    FITS.forget()
    assert warned(searched, curve) == [False, True]
    FITS.forget()
    stored = tmp_path / "people.parquet"
    pd.DataFrame(people.X, columns=list("abc")).assign(y=people.y, sex=people.a).to_parquet(stored)
    filed = lambda: model.fit(stored, "y", sensitive_features="sex")  # noqa: E731
    assert warned(filed, filed) == [False, True]


def test_digest_tells_shapes_types_and_entries_apart() -> None:
    ones = np.ones((2, 3), dtype=np.float32)
    variants = [ones, ones.reshape(3, 2), ones.astype(np.float64), ones * 2, ones[:1], ones[:, :0]]
    assert len({rows_digest([one]) for one in variants}) == len(variants)
    assert rows_digest([ones]) == rows_digest([np.asfortranarray(ones)])


def test_filter_can_name_the_warning_before_anything_else_is_imported() -> None:
    code = "import sys, justitia.exceptions; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
