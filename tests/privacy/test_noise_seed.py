"""The noise seed is used and never shown: no text, file or pickle of a fitted model holds it."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bench.rivals import FermiClassifier, HistogramClassifier, MozannarClassifier
from bench.rivals.fermi import FermiPlan
from bench.rivals.histogram import HistogramPlan
from justitia import LagrangianDualClassifier, PrivacyLedger
from justitia.datasets import make_synthetic
from justitia.metrics.scorer import private_scorer
from justitia.training import state_file

SEED = 987654321987
DATA = make_synthetic(200, n_features=3, random_state=0)
every_method = pytest.mark.parametrize(
    "kind", [LagrangianDualClassifier, FermiClassifier, HistogramClassifier, MozannarClassifier]
)


def shows(content: bytes | str) -> bool:
    """Whether a seed is there, as text or as a pickled number."""
    content = content.encode() if isinstance(content, str) else content
    return str(SEED).encode() in content or SEED.to_bytes(5, "little") in content


def below(folder: Path) -> bytes:
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert files
    return b"\n".join(files)


def fitted(kind: Any) -> Any:
    small = {"private_steps": 2, "public_steps": 2, "warmup_steps": 5}
    quick: dict[Any, dict[str, Any]] = {
        LagrangianDualClassifier: {"module": (4,)},
        FermiClassifier: {"module": (4,), "plan": FermiPlan(**small)},
        HistogramClassifier: {"module": (4,), "plan": HistogramPlan(**small)},
        MozannarClassifier: {"max_iter": 1, "correct": False},
    }
    settings = {"groups": DATA.groups, "random_state": 0, "noise_seed": SEED} | quick[kind]
    return kind(epsilon=4.0, **settings).fit(DATA.X, DATA.y, sensitive_features=DATA.sensitive)


@every_method
def test_texts_of_an_estimator_do_not_show_the_noise_seed(kind: Any) -> None:
    model = kind(noise_seed=SEED)
    pipeline = make_pipeline(StandardScaler(), model)
    for one in (model, pipeline, model.get_params(), model.set_params(noise_seed=SEED)):
        assert not shows(repr(one) + str(one) + f"{one}")
    assert "noise_seed=<not shown>" in repr(model)
    assert "noise_seed" not in repr(kind())


@pytest.mark.filterwarnings("ignore:Unknown section:UserWarning")
def test_html_of_an_estimator_does_not_show_the_noise_seed() -> None:
    pipeline = make_pipeline(StandardScaler(), LagrangianDualClassifier(noise_seed=SEED))
    assert not shows(pipeline._repr_html_() + pipeline[1]._repr_html_())


@every_method
@pytest.mark.filterwarnings("ignore:expected the reduction to meet its constraint")
def test_pickle_of_a_fitted_model_holds_no_noise_seed(kind: Any) -> None:
    model = fitted(kind)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert not shows(pickle.dumps(model, protocol=protocol))
    again = pickle.loads(pickle.dumps(model))
    assert again.noise_seed is None
    assert model.noise_seed == SEED
    assert again.predict(DATA.X).tolist() == model.predict(DATA.X).tolist()


@every_method
def test_copies_that_are_to_be_fitted_keep_the_noise_seed(kind: Any) -> None:
    model = kind(noise_seed=SEED)
    for one in (clone(model), clone(clone(model)), copy.copy(model), copy.deepcopy(model)):
        assert one.noise_seed == SEED
    assert pickle.loads(pickle.dumps(model)).noise_seed == SEED  # a worker process fits with it


def test_pickle_of_a_search_holds_the_noise_seed_of_the_estimator_that_it_is_to_fit() -> None:
    """Said in docs/pitfalls.md: nothing tells a search that ended from one that a worker is to run."""
    search = GridSearchCV(LagrangianDualClassifier(noise_seed=SEED), {"tolerance": [0.1]})
    assert str(SEED) not in repr(search)
    assert pickle.loads(pickle.dumps(search)).estimator.noise_seed == SEED


def test_copies_of_a_fitted_model_in_memory_are_like_it(people: Any, make: Any) -> None:
    model = make(noise_seed=SEED).fit(people.X, people.y, sensitive_features=people.a)
    for one in (copy.copy(model), copy.deepcopy(model)):
        assert one.noise_seed == SEED
        assert one.predict(people.X).tolist() == model.predict(people.X).tolist()
    assert copy.copy(model).module_ is model.module_
    assert copy.deepcopy(model).module_ is not model.module_


@pytest.mark.parametrize("given", [None, True, 1.5, "7"])
def test_what_is_no_whole_number_is_kept_as_it_is_for_fit_to_judge(given: Any) -> None:
    assert LagrangianDualClassifier(noise_seed=given).noise_seed is given


def test_saved_model_holds_no_noise_seed_and_is_loaded_without_one(people: Any, make: Any, tmp_path: Path) -> None:
    model = make(noise_seed=SEED).fit(people.X, people.y, sensitive_features=people.a)
    model.save(tmp_path / "model")
    assert not shows(below(tmp_path))
    assert b"noise_seed" not in below(tmp_path)
    assert LagrangianDualClassifier.load(tmp_path / "model").noise_seed is None


def test_checkpoint_of_one_noise_seed_has_the_fingerprint_of_any_other(people: Any, make: Any, tmp_path: Path) -> None:
    """All else in the hash is public: if the seed were in it, trying seeds one after another would find it."""
    prints = set()
    for place, seed in enumerate((SEED, 1, 2)):
        folder = tmp_path / str(place)
        make(noise_seed=seed).fit(people.X, people.y, sensitive_features=people.a, checkpoint=folder)
        prints.add(state_file.from_bytes((folder / "state.npz").read_bytes())["fingerprint"])
    assert len(prints) == 1
    assert not shows(below(tmp_path))


def test_scorer_does_not_show_its_noise_seed() -> None:
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-5)
    scorer = private_scorer(groups=["a", "b"], ledger=ledger, epsilon=1.0, noise_seed=SEED)
    assert not shows(repr(scorer) + repr(scorer._score_func))
    assert scorer._score_func.settings["noise_seed"] == SEED
