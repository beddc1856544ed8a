"""Every rank but the first: what it is sent, how it adds up its rows, and the model that it takes over."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from justitia.engines.crowds import serve
from justitia.engines.shards import Facts, Shard
from justitia.learners.base import Base, CrossFitted, Inputs, base_of
from justitia.learners.calibration import Calibration
from justitia.parameters import check_parameters
from justitia.persistence.folder import is_saved_name
from justitia.persistence.rule import rule_from_files, rule_to_files
from justitia.postprocessing.correction import Correction
from justitia.postprocessing.crowd import CrowdLearner, score_of
from justitia.postprocessing.learner import Rule, RuleLearner
from justitia.postprocessing.shard import Score, ScoredShard
from justitia.preprocessing.encoding import TabularEncoder
from justitia.preprocessing.public_sample import OwnRows
from justitia.privacy.interface import Vault
from justitia.privacy.ledger import PrivacyLedger
from justitia.scale.data import Met, sample_bytes, table_bytes
from justitia.training.plan import Plan
from justitia.training.ranks import ManyRanks, Message, Place, Ranks
from justitia.training.session import Settings

if TYPE_CHECKING:
    from justitia.estimator import LagrangianDualClassifier


def encoder_of(model: LagrangianDualClassifier) -> Callable[[Any], NDArray[np.float32]]:
    """From a table to features as numbers, by what the model has learned."""
    return lambda table: _flat(model._features(table, reset=False))


def _flat(features: NDArray[np.float32]) -> NDArray[np.float32]:
    return features.reshape(len(features), -1)


def shard_of(plan: Plan) -> Callable[..., Shard]:
    """What the engine of this plan has rows in."""
    if not plan.trains_network:
        return ScoredShard
    from justitia.networks.moments.shard import NetworkShard  # noqa: PLC0415 - needs torch, as this plan does

    return NetworkShard


def door_of(model: LagrangianDualClassifier, ranks: Ranks, own: OwnRows) -> Callable[..., Any]:
    """The door, for the rows of one process."""

    def opened(attribute: Any, *, n: int, **settings: Any) -> Any:
        del n
        together = Place(ranks, own.n)
        return model._open_vault(attribute, n=len(own), together=together, **settings)

    return opened


def written(model: LagrangianDualClassifier, learner: CrowdLearner, facts: Facts) -> Message:
    """What other processes need to score their rows: encoder, base and calibration as data.

    A base that is fitted here and cannot be written is fitted by every process, from the rows of the sample.
    """
    words, files = rule_to_files(Rule(learner.base, learner.calibration, Correction(), 0.5))
    fitted = isinstance(learner.base, CrossFitted) and not words["base"]["written"]
    return written_facts(model, facts) | {
        "sample": _written_sample(learner) if fitted else None,
        "rule": json.dumps(words),
        "files": {name: np.frombuffer(content, dtype=np.uint8) for name, content in files.items()},
        "numbers_width": int(learner.inputs.numbers.shape[1]),
    }


def _written_sample(learner: CrowdLearner) -> Message:
    """Rows that a base learns from, as data."""
    import pyarrow as pa  # noqa: PLC0415 - optional, and here it is

    assert learner.sample is not None  # noqa: S101 - the base has learned
    content = table_bytes([pa.Table.from_pandas(learner.inputs.table, preserve_index=False)])
    rows = {"table": np.frombuffer(content, dtype=np.uint8)}
    numbers = learner.inputs.numbers
    return rows | {"numbers": numbers, "y": learner.sample.y, "weight": learner.sample.weight, "seed": learner.seed}


def _learn_again(base: Base, calibration: Calibration, job: Message) -> None:
    """Fit the base that a user has passed as rank 0 has fitted it; one that is fitted already stays as it is.

    Raises
    ------
    ValueError
        If it says something else of the rows that it has learned from.
    """
    import pyarrow as pa  # noqa: PLC0415 - optional, and here it is

    rows = job["sample"]
    if rows is None:
        return
    table = pa.ipc.open_stream(rows["table"].tobytes()).read_all().to_pandas()
    inputs, (y, weight) = (
        Inputs(table, rows["numbers"]),
        (rows[name].astype(np.float64) for name in ("y", "weight")),
    )
    said = calibration(base.learn(inputs, y, weight, seed=rows["seed"], progress=lambda _: None))
    if not np.array_equal(said, job["eta"]):
        raise ValueError(
            "expected a base that learns the same from the same rows in every process, got one that does not; seed it, "
            "or pass it fitted."
        )


def written_facts(model: LagrangianDualClassifier, facts: Facts) -> Message:
    """Encoder and public facts about all rows, as data."""
    encoder = None if model.preprocess is None else json.dumps(model.encoder_.to_state())
    told = {"positive": _plain(facts.positive), "largest": facts.largest, "cap": facts.cap, "mean": facts.mean}
    return {"encoder": encoder, "facts": told}


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label


def follow(model: LagrangianDualClassifier, met: Met, ranks: ManyRanks) -> None:
    """What every rank but the first does: add up its rows, and take over the model."""
    data, own, seen = met
    ranks.collect(sample_bytes(seen))
    names = data.columns.features
    model.n_features_in_, model.feature_names_in_ = len(names), np.array(names, dtype=object)
    notion, plan = check_parameters(model)
    settings = Settings.of(model, plan, door_of(model, ranks, own))
    private = math.isfinite(settings.epsilon)
    kept: dict[str, Any] = {}  # what files of the model do not hold

    def opened() -> Vault:
        return settings.open_vault(
            data.attribute(own),
            n=len(own),
            groups=settings.groups,
            epsilon=settings.epsilon,
            # pays for nothing, since rank 0 debits; what has no privacy is refused unless none was asked for
            ledger=PrivacyLedger(epsilon=1e-9 if private else math.inf, delta=settings.delta),
            person=data.people(own),
            features=names,
            noise_seed=settings.noise_seed,
            missing_marker=settings.missing_marker,
        )

    def read_facts(job: Message) -> None:
        shard.facts = Facts(**job["facts"])
        if job["encoder"] is not None:
            model.encoder_ = TabularEncoder.from_state(json.loads(job["encoder"]))

    def read_score(job: Message) -> Score:
        read_facts(job)
        files = {name: content.tobytes() for name, content in job["files"].items()}
        words, base = json.loads(job["rule"]), base_of(model.base, job["facts"]["positive"])
        if base is not None and not words["base"]["written"]:
            _learn_again(base, Calibration(*words["calibration"]), job)
            kept["base"] = base
        rule = rule_from_files(words, files, kept.get("base"), columns=len(names), numbers=job["numbers_width"])
        return score_of(_Scorer(rule.base, rule.calibration))

    def read_network(job: Message) -> Any:
        from justitia.networks.learner import module_of_shape  # noqa: PLC0415 - needs torch, as this plan does

        read_facts(job)
        kept["module"] = module_of_shape(model.module, notion, settings.seed, job["shape"])
        return kept["module"]

    facts, encode = Facts(None, largest=seen.heaviest or 1.0), encoder_of(model)
    shard = shard_of(plan)(own, facts, encode, read_network if plan.trains_network else read_score)
    done = serve(shard, opened, ranks)
    _take_over(model, done, kept)


class _Scorer(RuleLearner):
    """A base that was learned elsewhere."""

    def __init__(self, base: Base, calibration: Calibration) -> None:
        self.base, self.calibration = base, calibration


def written_model(model: LagrangianDualClassifier) -> Message:
    """A fitted model for the other ranks: the files that ``save`` writes."""
    with tempfile.TemporaryDirectory() as place:
        folder = model.save(Path(place) / "model", without_base=True)  # every rank was started with the same base
        contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {"model": {name: np.frombuffer(content, dtype=np.uint8) for name, content in contents.items()}}


def _take_over(model: LagrangianDualClassifier, done: Message, kept: dict[str, Any]) -> None:
    """Load the model that rank 0 has sent.

    Raises
    ------
    ValueError
        If a name is not that of a file that ``save`` writes: rank 0 does not choose where this process writes.
    """
    unknown = [name for name in done["model"] if not is_saved_name(name)]
    if unknown:
        raise ValueError(f"expected files of a saved model from rank 0, got one named {str(unknown[0])[:80]!r}.")
    with tempfile.TemporaryDirectory() as place:
        for name, content in done["model"].items():
            (Path(place) / name).write_bytes(content.tobytes())
        loaded = type(model).load(place, **kept)
    fitted = {name: value for name, value in vars(loaded).items() if name.endswith("_")}
    model.__dict__.update(fitted)
