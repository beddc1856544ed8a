"""A fit on rows in Parquet files, in one process or in several.

The same session as for rows in memory, on a public sample of the rows; everybody is behind the vault and a crowd
(:mod:`justitia.engines.crowds`). In several processes the first one runs the session and the others add up their
rows (:mod:`justitia.scale.follow`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from justitia.engines.crowds import OPEN, Crowd
from justitia.engines.shards import Facts, Shard
from justitia.parameters import check_parameters
from justitia.postprocessing.crowd import ScoredCrowd
from justitia.postprocessing.shard import ScoredShard
from justitia.preprocessing.outliers import clip_weights, input_diagnostics
from justitia.preprocessing.public_sample import Look, stride
from justitia.preprocessing.tables import read_costs, read_target, read_weight
from justitia.privacy.noise_grid import exact_sum_step
from justitia.scale.data import Data, Met, meet, sample_bytes
from justitia.scale.follow import door_of, encoder_of, follow, shard_of, written, written_facts, written_model
from justitia.training.checkpoint import RunFolder, has_begun, open_folder
from justitia.training.lagrangian import Problem
from justitia.training.ranks import DONE, ManyRanks, Ranks, ranks_of
from justitia.training.session import Session, Settings, open_session

if TYPE_CHECKING:
    from justitia.estimator import LagrangianDualClassifier


def fit_from_files(
    model: LagrangianDualClassifier, given: dict[str, Any], checkpoint: Path | str | None
) -> tuple[str, ...]:
    """Train on files; what is to be said about the result. On ranks that add up their rows, take over the model."""
    ranks = ranks_of()
    met = meet(model, given, ranks, begun=has_begun(checkpoint))
    if isinstance(ranks, ManyRanks) and ranks.rank:
        follow(model, met, ranks)
        return ()
    with leading(ranks), open_folder(checkpoint) as folder:
        session = _open(model, given, met, ranks, folder)
        session.warn(stacklevel=4)
        trained = session.train()
        session.check_spent()
        model._keep(session, trained)
        if ranks.size > 1:
            ranks.tell({"name": DONE} | written_model(model))
    return model.certificate_.remarks


@contextmanager
def leading(ranks: Ranks) -> Iterator[None]:
    """Whatever rank 0 raises ends the work of the others, too."""
    try:
        yield
    except BaseException as error:
        if isinstance(ranks, ManyRanks):
            ranks.stop((str(error) or type(error).__name__).splitlines()[0])
        raise


def open_from_files(model: LagrangianDualClassifier, given: dict[str, Any]) -> Session:
    """A session on files in one process.

    Raises
    ------
    ValueError
        If there are several processes.
    """
    ranks = ranks_of()
    if ranks.size > 1:
        raise ValueError("expected one process for a curve from files, got several; start it alone, or call fit.")
    return _open(model, given, meet(model, given, ranks), ranks, None)


def _open(
    model: LagrangianDualClassifier,
    given: dict[str, Any],
    met: Met,
    ranks: Ranks,
    folder: RunFolder | None,
) -> Session:
    """Draw the sample, and open a session on it: what rank 0 does."""
    data, own, seen = met
    notion, plan = check_parameters(model)
    table, labels = _sample(ranks, seen, data)
    features = model._features(table[list(data.columns.features)], reset=True)
    model.classes_ = _classes(labels, data.files.positive)
    target = (table[data.columns.target].to_numpy() == model.classes_[1]).astype(np.float32)
    facts = Facts(model.classes_[1], largest=seen.heaviest or 1.0)
    shard = shard_of(plan)(own, facts, encoder_of(model))
    weight = _weights(table, data.columns.weight, target, shard, ranks)
    costs = read_costs(model.class_weight, model.classes_, target)
    threshold = float(model.threshold if costs is None else costs[0] / costs.sum())
    crowd = _crowd(model, shard, ranks, features)
    problem = Problem(features, target, weight, notion, threshold=threshold, crowd=crowd)
    remarks = tuple(input_diagnostics(getattr(model, "encoder_", None), None, features.shape))
    settings = Settings.of(model, plan, door_of(model, ranks, own), remarks)
    learner = model._learner(table[list(data.columns.features)], problem, plan, settings.seed)
    attribute, people = data.attribute(own), data.people(own)
    ranks.tell({"name": OPEN, "numbers": 1})
    ranks.add(np.zeros(1, dtype=np.int64))
    return open_session(settings, problem, learner, attribute, person=people, ledger=given["ledger"], folder=folder)


def _crowd(model: LagrangianDualClassifier, shard: Shard, ranks: Ranks, features: NDArray[np.float32]) -> Crowd[Any]:
    """Everybody, as the engine of this shard sees them."""
    if isinstance(shard, ScoredShard):
        return ScoredCrowd(shard, ranks, lambda learner: written(model, learner, shard.facts))
    from justitia.networks.moments.crowd import network_crowd  # noqa: PLC0415 - needs torch, as this shard does
    from justitia.networks.moments.shard import NetworkShard  # noqa: PLC0415

    assert isinstance(shard, NetworkShard)  # noqa: S101 - there are two kinds
    return network_crowd(shard, ranks, features.shape[1], lambda: written_facts(model, shard.facts))


def _sample(ranks: Ranks, seen: Look, data: Data) -> tuple[Any, set[Any]]:
    """The rows of the sample from all processes, in order, as pandas has them; and all labels."""
    import pyarrow as pa  # noqa: PLC0415 - optional, and here it is

    parts = [pa.ipc.open_stream(one).read_all() for one in ranks.collect(sample_bytes(seen)) if one]
    if not parts:
        raise ValueError(f"expected rows in {data.files.shown}, got none; pass files with rows.")
    return pa.concat_tables(parts, promote_options="permissive").to_pandas(), seen.labels


def _classes(labels: set[Any], positive: str | None) -> NDArray[Any]:
    """The two class labels, the one that counts as positive last."""
    try:
        classes, _ = read_target(np.array(sorted(labels)))
    except TypeError:
        raise TypeError("expected class labels of one type in y, got several; pass all text or all numbers.") from None
    if positive is None:
        return classes
    texts = [str(one).strip() for one in classes.tolist()]
    if positive.strip() not in texts:
        raise ValueError(f"expected one of the class labels {texts} as the positive one, got {positive!r}.")
    return classes if texts[1] == positive.strip() else classes[::-1].copy()


def _weights(
    table: Any, name: str | None, target: NDArray[np.float32], shard: Shard, ranks: Ranks
) -> NDArray[np.float32]:
    """Weights of the sample, scaled so that those of everybody have mean 1."""
    if name is None:
        return np.ones(len(target), dtype=np.float32)
    given: NDArray[np.float64] = np.asarray(table[name], dtype=np.float64)
    if stride(shard.rows.n) == 1:
        weight, used = read_weight(given, target), clip_weights(given / given.max())
        shard.facts = replace(shard.facts, cap=float(used.max()), mean=float(used.mean()))
        return weight
    cap = float(clip_weights(given / shard.facts.largest).max()) if given.any() else 1.0
    ranks.tell({"name": "weights", "numbers": 1, "cap": cap})
    total = float(ranks.add(shard.weight_sums(cap))[0]) * exact_sum_step(2.0 * shard.rows.n)
    if not total:
        raise ValueError("expected some sample_weight above zero, got zero everywhere; leave it out.")
    shard.facts = replace(shard.facts, cap=cap, mean=total / shard.rows.n)
    return shard.facts.scaled(given)
