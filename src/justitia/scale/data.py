"""What a fit on files is given, by the names of columns, and the first pass over it.

Several processes compare what they were given before any row is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from justitia.engines.plugin.plan import PluginPlan
from justitia.inputs.files import BLOCK, RowFiles
from justitia.inputs.public_sample import Columns, Look, OwnRows, look
from justitia.learners.base import CrossFitted, base_of
from justitia.parameters import check_parameters
from justitia.privacy.attribute import AttributeStream, SensitiveColumns
from justitia.privacy.joining import stream_of
from justitia.privacy.persons import Persons
from justitia.training.progress import Passes
from justitia.training.ranks import Message, Ranks

if TYPE_CHECKING:
    from justitia.estimator import LagrangianDualClassifier

DIFFERENT = (
    "expected the same files, settings and version of justitia in every process, got others; start all of them alike."
)
ELSEWHERE = (
    "expected the checkpoint of this run where its first process is, got it in the folder of another one; share the "
    "folder between machines, or start their processes in the same order as before."
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
        return stream_of(self.sensitive, self.files, own.start, own.stop, self.second)

    def people(self, own: OwnRows) -> Persons | None:
        """Who is who, by the public ids of everybody; of the rows of one process."""
        if self.person is None:
            return None
        if self.files.own and own.n != len(own):
            raise ValueError("expected files that every process sees where persons are named, got others; share them.")
        tables = self.files.blocks([self.person])
        everybody = Persons.of([one for _, table in tables for one in table.column(0).to_pylist()])
        return replace(everybody, counted=everybody.counted[own.start : own.stop])


#: What was given, the rows of this process, and what the first pass has found.
Met = tuple[Data, OwnRows, Look]


def meet(model: LagrangianDualClassifier, given: dict[str, Any], ranks: Ranks, *, begun: bool = False) -> Met:
    """Open files, compare what all processes were given, and read everything public once.

    Parameters
    ----------
    begun : bool
        Whether the checkpoint's folder, as this process sees it, holds a run. If it does where the others are and not
        where rank 0 is, rank 0 would pay again.

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
        rows, shared = len(data.files), not data.files.own
        digest = _digest(model, data, copies=shared and ranks.size > 1)
    except Exception as error:
        if ranks.size == 1:
            raise
        why, digest, rows, shared = str(error) or type(error).__name__, "", 0, True
    met = ranks.gather({"why": why, "digest": digest, "rows": rows, "shared": shared, "begun": begun})
    _raise_first(met)
    if any(one["begun"] for one in met) and not met[0]["begun"]:
        raise ValueError(ELSEWHERE)
    if data is None or len({(one["digest"], one["shared"]) for one in met}) > 1:
        raise ValueError(DIFFERENT)
    if not sum(one["rows"] for one in met):
        raise ValueError(f"expected rows in {data.files.shown}, got none; pass files with rows.")
    own, seen = _own_rows(data, [one["rows"] for one in met], ranks), Look()
    if ranks.rank == 0:
        own = replace(own, watch=Passes(model.progress))
    try:
        look(own, seen)
    except Exception as error:
        if ranks.size == 1:
            raise
        why = str(error) or type(error).__name__
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


def _digest(model: LagrangianDualClassifier, data: Data, *, copies: bool) -> str:
    """Of everything that has to be the same in every process; the attribute is not among it, nor is the noise seed.

    Parameters
    ----------
    copies : bool
        Whether the files have to be the same, too.
    """
    settings = {name: value for name, value in model.get_params().items() if name not in {"noise_seed", "base"}}
    plan = repr(check_parameters(model)[1])
    told = (version("justitia"), data.files.schema(data.columns.all), data.columns, data.sensitive.columns)
    seeds = repr(model.noise_seed is None)
    stored = [(part.shown, part.stored(data.columns.all)) for part in data.files.parts] if copies else ""
    return hashlib.sha256(repr((told, data.person, sorted(settings.items()), plan, seeds, stored)).encode()).hexdigest()


def sample_bytes(seen: Look) -> bytes:
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
