"""The attribute stays inside ``fit``: not in the fitted object, not in errors, in warnings only as noised sizes."""

import inspect
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from justitia import LagrangianDualClassifier, PFLDAsPublishedPlan
from justitia.exceptions import UnknownGroupWarning

pytestmark = pytest.mark.usefixtures("quick_fits")


def fitted(model: LagrangianDualClassifier, people: Any, **changes: Any) -> LagrangianDualClassifier:
    given = {"X": people.X, "y": people.y, "sensitive_features": people.a} | changes
    return model.fit(given.pop("X"), given.pop("y"), **given)


def quiet(model: LagrangianDualClassifier, people: Any, **changes: Any) -> list[str]:
    """Fit and return the text of every warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of earlier tests, collected meanwhile
        fitted(model, people, **changes)
    return [str(one.message) for one in caught]


def cross_fit_folds(thing: Any, seen: set[int]) -> list[Any]:
    """Everything reachable from an object, itself included."""
    if id(thing) in seen:
        return []
    seen.add(id(thing))
    inner: list[Any] = list(vars(thing).values()) if hasattr(thing, "__dict__") and not inspect.isclass(thing) else []
    inner += [*thing.keys(), *thing.values()] if isinstance(thing, dict) else []
    inner += list(thing) if isinstance(thing, list | tuple | set | frozenset) else []
    return [thing, *(part for one in inner for part in cross_fit_folds(one, seen))]


def test_fitted_object_holds_nothing_with_one_entry_per_person(people: Any, make: Any) -> None:
    kept = slice(0, 113)  # a prime, so that no other size is mistaken for the number of people
    model = make().fit(people.X[kept], people.y[kept], sensitive_features=people.a[kept])
    for part in cross_fit_folds(model, set()):
        shape = getattr(part, "shape", None)
        size = shape[0] if isinstance(shape, tuple) and shape else len(part) if isinstance(part, list) else 0
        assert size != 113, type(part)


def test_pickle_unlisted_label_is_not_in_it_and_predictions_survive(people: Any, make: Any) -> None:
    labels = people.a.astype(object)
    labels[7] = "zanzibar-7319"
    model = make()
    told = quiet(model, people, sensitive_features=pd.Series(labels, name="origin"))
    stored = pickle.dumps(model)
    assert b"zanzibar-7319" not in stored
    assert "zanzibar-7319" not in repr(vars(model)) + str(model.certificate_) + " ".join(told)
    again = pickle.loads(stored)
    assert np.array_equal(again.decision_function(people.X), model.decision_function(people.X))


class Odd:
    """A label that refuses to be compared, hashed or printed."""

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("no")

    __eq__ = __hash__ = __repr__ = __str__ = __bool__ = _refuse  # type: ignore[assignment]


def odd_labels() -> dict[str, Any]:
    usual = (["f"] * 60) + (["m"] * 60)
    return {
        "a label outside the list": ["x", *usual[1:]],
        "an empty group": ["m"] * 120,
        "a group with one member": ["f"] + ["m"] * 119,
        "everyone missing": [None] * 120,
        "all kinds of missing": [None, math.nan, pd.NA, pd.NaT, *usual[4:]],
        "mixed types": [1, 2.5, True, ("f", "m"), b"f", {"f"}, ["m"], Odd(), *usual[8:]],
    }


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
@pytest.mark.parametrize("engine", ["pf-ld", "pf-ld-as-published"])
@pytest.mark.parametrize("case", odd_labels())
def test_fit_odd_attribute_is_never_an_error(people: Any, make: Any, case: str, engine: str, epsilon: float) -> None:
    plans = {"pf-ld": make().plan, "pf-ld-as-published": PFLDAsPublishedPlan(epochs=2, batch_size=64)}
    model = make(engine=engine, plan=plans[engine], epsilon=epsilon)
    told = quiet(model, people, sensitive_features=odd_labels()[case])
    assert np.isfinite(model.decision_function(people.X)).all()
    assert model.dual_.shape == (2, 1)
    assert np.isfinite(model.dual_.to_numpy()).all()
    expected = ("the noised size of group", "nearly all rows get the same decision")  # two epochs teach little
    assert all(one.startswith(expected) for one in told)


def test_fit_empty_group_asks_whether_its_name_is_right(people: Any, make: Any) -> None:
    told = quiet(make(groups=["femal", "m"], epsilon=math.inf), people)
    assert told == ["the noised size of group 'femal' is about 0: is its name right?"]


def test_fit_empty_group_warning_tells_the_noised_size(people: Any, make: Any) -> None:
    told = (quiet(make(groups=["femal", "m"], noise_seed=seed), people) for seed in range(6))
    sizes = {one for sentences in told for one in sentences}  # noise may also make the group look large
    assert len(sizes) > 1
    assert all(one.startswith("the noised size of group 'femal' is about ") for one in sizes)


def test_fit_warning_turned_into_an_error_keeps_the_model(people: Any, make: Any) -> None:
    model = make(groups=["femal", "m"])
    with pytest.raises(UnknownGroupWarning):
        fitted(model, people)
    assert model.predict(people.X).shape == (120,)


@pytest.mark.parametrize("labels", [["m"] * 120, [None] * 120], ids=["one group", "nobody"])
def test_fit_groups_read_off_too_few_labels_is_defined(people: Any, make: Any, labels: Any) -> None:
    model = make(groups="infer")
    quiet(model, people, sensitive_features=labels)
    assert list(model.dual_.index) == (["m"] if labels[0] else ["no group found"])
    assert "not protected" in model.certificate_.groups_source
    assert model.predict(people.X).shape == (120,)
