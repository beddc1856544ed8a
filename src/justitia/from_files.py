"""A fit on rows in Parquet files, in one process or in several.

The same session as for rows in memory, on a public sample of the rows; everybody is behind the vault and a crowd
(:mod:`justitia.engines.plugin.crowd`). In several processes the first one runs the session and the others add up their
rows; before anything is read they compare what they were given.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from justitia.engines.plugin.correction import Correction
from justitia.engines.plugin.crowd import Crowd, CrowdLearner, score_of, serve
from justitia.engines.plugin.learner import Rule, RuleLearner
from justitia.engines.plugin.plan import PluginPlan
from justitia.engines.plugin.shard import Facts, Score, Shard
from justitia.inputs.encoding import TabularEncoder
from justitia.inputs.files import BLOCK, RowFiles
from justitia.inputs.public_sample import Columns, Look, OwnRows, look, stride
from justitia.inputs.tables import read_costs, read_target, read_weight
from justitia.learners.base import Base, CrossFitted, base_of
from justitia.learners.calibration import Calibration
from justitia.learners.default import default_base
from justitia.learners.inputs import Inputs
from justitia.parameters import check_parameters
from justitia.privacy.attribute import AttributeStream
from justitia.privacy.joining import SensitiveColumns, join
from justitia.privacy.ledger import PrivacyLedger
from justitia.privacy.noise_grid import exact_sum_step
from justitia.privacy.persons import Persons
from justitia.saving.rule import read_rule, written_rule
from justitia.training.checkpoint import RunFolder, open_folder
from justitia.training.lagrangian import Problem
from justitia.training.ranks import DONE, ManyRanks, Message, Place, Ranks, ranks_of
from justitia.training.session import Session, Settings, open_session

if TYPE_CHECKING:
    from justitia.estimator import LagrangianDualClassifier

DIFFERENT = (
    "expected the same files, settings and version of justitia in every process, got others; start all of them alike."
)


@dataclass(frozen=True, eq=False)
class Data:
    """What a fit is given, by the names of columns."""

    files: RowFiles
    columns: Columns
    sensitive: SensitiveColumns
    second: RowFiles | None
    person: str | None

    @classmethod
    def of(cls, X: Any, y: Any, sensitive: Any, weight: Any, person: Any) -> Data:
        """Open the files and check the names of columns and their types.

        Raises
        ------
        ValueError, TypeError
            In one sentence, before any row is read.
        """
        where = SensitiveColumns.of(sensitive)
        for name, given in (("y", y), ("sample_weight", weight), ("person", person)):
            if not (isinstance(given, str) or (given is None and name != "y")):
                raise TypeError(
                    f"expected {name} to be the name of a column where X is in files, got {type(given).__name__!r}."
                )
        files = RowFiles.of(X)
        second = None if where.file is None else RowFiles.of(where.file)
        hidden = {y, weight, person, where.key, *(where.columns if second is None else ())} - {None}
        chosen = tuple(name for name in (files.features or files.names) if name not in hidden)
        if not chosen:
            raise ValueError(f"{files.shown} has no column left to learn from; leave fewer out.")
        columns = Columns(chosen, y, weight)
        public = [name for name in (*columns.all, person, where.key) if name is not None]
        clash = [name for name in where.columns if name in public]
        if clash:
            raise ValueError(f"the column {clash[0]!r} is sensitive and cannot be used as a public one; name another.")
        files.check(public, where.columns if second is None else ())
        if second is not None and where.key is not None:
            second.check([], [where.key, *where.columns])
        return cls(files, columns, where, second, person)

    def attribute(self, own: OwnRows) -> AttributeStream:
        """The attribute of the rows of one process, closed."""
        names = self.sensitive.columns
        if self.second is None or self.sensitive.key is None:
            return AttributeStream.of_tables(names, len(own), _tables(self.files, names, own.start, own.stop))
        key, second = self.sensitive.key, self.second
        mine = _tables(self.files, [key], own.start, own.stop)
        return join(names, key, len(own), mine, _tables(second, [key, *names], 0, len(second)))

    def people(self, own: OwnRows) -> Persons | None:
        """Who is who, by the public ids of everybody; of the rows of one process."""
        if self.person is None:
            return None
        if self.files.own and own.n != len(own):
            raise ValueError("expected files that every process sees where persons are named, got others; share them.")
        tables = _tables(self.files, [self.person], 0, len(self.files))()
        everybody = Persons.of([one for table in tables for one in table.column(0).to_pylist()])
        return replace(everybody, counted=everybody.counted[own.start : own.stop])


def _tables(files: RowFiles, names: Sequence[str], start: int, stop: int) -> Callable[[], Iterator[Any]]:
    return lambda: (table for _, table in files.blocks(names, start, stop))


def fit_from_files(model: LagrangianDualClassifier, given: dict[str, Any], checkpoint: Path | str | None) -> list[str]:
    """Train on files; what is to be said about the result. On ranks that add up their rows, take over the model."""
    ranks = ranks_of()
    if isinstance(ranks, ManyRanks) and ranks.rank:
        _follow(model, given, ranks)
        return []
    try:
        with open_folder(checkpoint) as folder:
            session = open_from_files(model, given, folder, ranks)
            session.warn(stacklevel=4)
            trained = session.train()
            session.check_spent()
            model._keep(session, trained)
        session.problem.crowd.shard.close()
        if isinstance(ranks, ManyRanks):
            ranks.tell({"name": DONE} | _written_model(model))
    except BaseException as error:
        if isinstance(ranks, ManyRanks):
            ranks.stop((str(error) or type(error).__name__).splitlines()[0])
        raise
    return session.engine.remarks()


def open_from_files(
    model: LagrangianDualClassifier, given: dict[str, Any], folder: RunFolder | None = None, ranks: Ranks | None = None
) -> Session:
    """Check everything public, draw the sample, and open a session on it: what rank 0 does."""
    ranks = ranks_of() if ranks is None else ranks
    data, own, seen = _meet(model, given, ranks)
    notion, plan = check_parameters(model)
    table, labels = _sample(ranks, seen, data)
    features = model._features(table[list(data.columns.features)], reset=True)
    model.classes_, _ = read_target(np.array(sorted(labels)))
    target = torch.from_numpy((table[data.columns.target].to_numpy() == model.classes_[1]).astype(np.float32))
    shard = Shard(own, Facts(model.classes_[1], heaviest=seen.heaviest or 1.0), _encoder(model))
    weight = _weights(table, data.columns.weight, target, shard, ranks)
    costs = read_costs(model.class_weight, model.classes_, target)
    threshold = float(model.threshold if costs is None else costs[0] / costs.sum())
    crowd = Crowd(shard, ranks, lambda learner: _written(model, learner, shard.facts))
    problem = Problem(features, target, weight, notion, threshold=threshold, crowd=crowd)
    settings = model._settings(plan, _vault_of(model, ranks, own))
    base = base_of(model.base, model.classes_[1]) or default_base(len(problem))
    learner = CrowdLearner(base, Inputs(table[list(data.columns.features)], features.flatten(1).numpy()), settings.seed)
    attribute, people = data.attribute(own), data.people(own)
    return open_session(settings, problem, learner, attribute, person=people, ledger=given["ledger"], folder=folder)


def _meet(model: LagrangianDualClassifier, given: dict[str, Any], ranks: Ranks) -> tuple[Data, OwnRows, Look]:
    """Open files, compare what all processes were given, and read everything public once.

    Raises
    ------
    ValueError, TypeError
        In the words of the first process that something is wrong with.
    """
    data, why = None, ""
    try:
        check_parameters(model)
        check_engine(model, ranks)
        names = ("X", "y", "sensitive_features", "sample_weight", "person")
        data = Data.of(*(given[name] for name in names))
        digest, rows, shared = _digest(model, data), len(data.files), not data.files.own
    except (ValueError, TypeError) as error:
        if ranks.size == 1:
            raise
        why, digest, rows, shared = str(error), "", 0, True
    met = ranks.gather({"why": why, "digest": digest, "rows": rows, "shared": shared})
    _raise_first(met)
    if data is None or len({(one["digest"], one["shared"]) for one in met}) > 1:
        raise ValueError(DIFFERENT)
    if shared and len({one["rows"] for one in met}) > 1:
        raise ValueError(DIFFERENT)
    if not sum(one["rows"] for one in met):
        raise ValueError(f"expected rows in {data.files.shown}, got none; pass files with rows.")
    own, seen = _own_rows(data, [one["rows"] for one in met], ranks), Look()
    try:
        look(own, seen)
    except (ValueError, TypeError) as error:
        if ranks.size == 1:
            raise
        why = str(error)
    looked = ranks.gather({"why": why, "labels": list(seen.labels), "heaviest": seen.heaviest})
    _raise_first(looked)
    seen.labels = {label for one in looked for label in one["labels"]}
    seen.heaviest = max(one["heaviest"] for one in looked)
    return data, own, seen


def _raise_first(messages: Sequence[Message]) -> None:
    reasons = [one["why"] for one in messages if one["why"]]
    if reasons:
        raise ValueError(reasons[0])


def check_engine(model: LagrangianDualClassifier, ranks: Ranks) -> None:
    """Refuse what rows in files, or several processes, do not have."""
    _, plan = check_parameters(model)
    if not isinstance(plan, PluginPlan):
        raise ValueError(
            "expected engine 'plugin' where X is in files, got one that trains a network; leave engine and module out, "
            "or read the rows into memory."
        )
    base = base_of(model.base, 1)
    if ranks.size > 1 and isinstance(base, CrossFitted) and not base.encoded:
        raise ValueError(
            "expected the default base, a fitted one or a column of scores where several processes train, got one to "
            "be fitted; fit it first, on a sample."
        )


def _own_rows(data: Data, rows: Sequence[int], ranks: Ranks) -> OwnRows:
    """The rows of this process: its own files, or its share of the blocks of files that everybody sees."""
    n, rank = len(data.files), ranks.rank
    if data.files.own:
        return OwnRows(data.files, data.columns, 0, n, sum(rows[:rank]), sum(rows))
    blocks = -(-n // BLOCK)
    ends = [min(n, BLOCK * (blocks * part // ranks.size)) for part in range(ranks.size + 1)]
    return OwnRows(data.files, data.columns, ends[rank], ends[rank + 1], ends[rank], n)


def _digest(model: LagrangianDualClassifier, data: Data) -> str:
    """Of everything that has to be the same in every process; the attribute is not among it, nor is the noise seed."""
    settings = {name: value for name, value in model.get_params().items() if name not in {"noise_seed", "base"}}
    plan = repr(check_parameters(model)[1])
    told = (version("justitia"), data.files.schema(data.columns.all), data.columns, data.sensitive.columns)
    seeds = repr(model.noise_seed is None)
    return hashlib.sha256(repr((told, data.person, sorted(settings.items()), plan, seeds)).encode()).hexdigest()


def _sample(ranks: Ranks, seen: Look, data: Data) -> tuple[Any, set[Any]]:
    """The rows of the sample from all processes, in order, as pandas has them; and all labels."""
    import pyarrow as pa  # noqa: PLC0415 - optional, and here it is

    parts = [pa.ipc.open_stream(one).read_all() for one in ranks.collect(_sample_bytes(seen)) if one]
    if not parts:
        raise ValueError(f"expected rows in {data.files.shown}, got none; pass files with rows.")
    return pa.concat_tables(parts, promote_options="permissive").to_pandas(), seen.labels


def _sample_bytes(seen: Look) -> bytes:
    """The rows of the sample in one process, as Arrow writes them; nothing for none."""
    import pyarrow as pa  # noqa: PLC0415

    if not seen.tables:
        return b""
    content = pa.BufferOutputStream()
    with pa.ipc.new_stream(content, seen.tables[0].schema) as stream:
        for table in seen.tables:
            stream.write_table(table)
    seen.tables.clear()
    written: bytes = content.getvalue().to_pybytes()
    return written


def _weights(table: Any, name: str | None, target: Tensor, shard: Shard, ranks: Ranks) -> Tensor:
    """Weights of the sample, scaled so that those of everybody have mean 1."""
    if name is None:
        return torch.ones(len(target))
    given: NDArray[np.float64] = np.asarray(table[name], dtype=np.float64)
    if stride(shard.rows.n) == 1:
        weight = read_weight(given, target)
        scale = float((given / given.max()).mean()) * float(given.max())
    else:
        ranks.tell({"name": "weights", "numbers": 1, "heaviest": shard.facts.heaviest})
        total = float(ranks.add(shard.weight_sums())[0]) * exact_sum_step(2.0 * shard.rows.n)
        scale = shard.facts.heaviest * total / shard.rows.n
        if not scale:
            raise ValueError("expected some sample_weight above zero, got zero everywhere; leave it out.")
        weight = torch.from_numpy((given / scale).astype(np.float32))
    heaviest = float(np.float32(shard.facts.heaviest / scale))
    shard.facts = replace(shard.facts, weight_scale=scale, heaviest=heaviest)
    return weight


def _encoder(model: LagrangianDualClassifier) -> Callable[[Any], NDArray[np.float32]]:
    return lambda table: model._features(table, reset=False).flatten(1).numpy()


def _vault_of(model: LagrangianDualClassifier, ranks: Ranks, own: OwnRows) -> Callable[..., Any]:
    """The door, for the rows of one process."""

    def opened(attribute: Any, *, n: int, **settings: Any) -> Any:
        del n
        together = Place(ranks, own.n, own.first)
        return model._open_vault(attribute, n=len(own), together=together, **settings)

    return opened


def _written(model: LagrangianDualClassifier, learner: RuleLearner, facts: Facts) -> Message:
    """What other processes need to score their rows: encoder, base and calibration as data."""
    words, files = written_rule(Rule(learner.base, learner.calibration, Correction(), 0.5))
    encoder = None if model.preprocess is None else json.dumps(model.encoder_.to_state())
    return {
        "encoder": encoder,
        "rule": json.dumps(words),
        "files": {name: torch.frombuffer(bytearray(content), dtype=torch.uint8) for name, content in files.items()},
        "numbers_width": int(learner.inputs.numbers.shape[1]),
        "facts": {"positive": _plain(facts.positive), "scale": facts.weight_scale, "heaviest": facts.heaviest},
    }


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label


def _follow(model: LagrangianDualClassifier, given: dict[str, Any], ranks: ManyRanks) -> None:
    """What every rank but the first does: add up its rows, and take over the model."""
    data, own, seen = _meet(model, given, ranks)
    _, plan = check_parameters(model)
    ranks.collect(_sample_bytes(seen))
    names = data.columns.features
    model.n_features_in_, model.feature_names_in_ = len(names), np.array(names, dtype=object)
    shard = Shard(own, Facts(None, heaviest=seen.heaviest or 1.0), _encoder(model))
    settings: Settings = model._settings(plan, _vault_of(model, ranks, own))
    vault = settings.open_vault(
        data.attribute(own),
        n=len(own),
        groups=settings.groups,
        epsilon=settings.epsilon,
        ledger=PrivacyLedger(epsilon=1e-9, delta=settings.delta),  # pays for nothing: rank 0 debits
        person=data.people(own),
        features=names,
        noise_seed=settings.noise_seed,
        missing_marker=settings.missing_marker,
    )

    def read(job: Message) -> Score:
        facts = job["facts"]
        shard.facts = Facts(facts["positive"], facts["scale"], facts["heaviest"])
        if job["encoder"] is not None:
            model.encoder_ = TabularEncoder.from_state(json.loads(job["encoder"]))
        files = {name: content.numpy().tobytes() for name, content in job["files"].items()}
        base = base_of(model.base, facts["positive"])
        rule = read_rule(
            json.loads(job["rule"]), files, _unless_written(job, base), columns=len(names), numbers=job["numbers_width"]
        )
        return score_of(_Scorer(rule.base, rule.calibration))

    done = serve(shard, vault, ranks, read)
    shard.close()
    _take_over(model, done)


class _Scorer(RuleLearner):
    """A base that was learned elsewhere."""

    def __init__(self, base: Base, calibration: Calibration) -> None:
        self.base, self.calibration = base, calibration


def _unless_written(job: Message, base: Base | None) -> Base | None:
    return None if json.loads(job["rule"])["base"]["written"] else base


def _written_model(model: LagrangianDualClassifier) -> Message:
    with tempfile.TemporaryDirectory() as place:
        folder = model.save(Path(place) / "model")
        contents = {path.name: bytearray(path.read_bytes()) for path in folder.iterdir()}
    return {"model": {name: torch.frombuffer(content, dtype=torch.uint8) for name, content in contents.items()}}


def _take_over(model: LagrangianDualClassifier, done: Message) -> None:
    with tempfile.TemporaryDirectory() as place:
        for name, content in done["model"].items():
            (Path(place) / name).write_bytes(content.numpy().tobytes())
        loaded = type(model).load(place)
    fitted = {name: value for name, value in vars(loaded).items() if name.endswith("_")}
    model.__dict__.update(fitted)
