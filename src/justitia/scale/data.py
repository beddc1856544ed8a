"""What a fit on files is given, by the names of columns, and the first pass over it.

Several processes compare what they were given before any row is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from justitia.engines import name_of
from justitia.notions import FairnessNotion
from justitia.parameters import check_parameters
from justitia.postprocessing.dual import label_table
from justitia.preprocessing.files import BLOCK, RowFiles
from justitia.preprocessing.public_sample import Columns, Look, OwnRows, look
from justitia.privacy.attribute import AttributeStream, HeldElsewhere, SensitiveColumns
from justitia.privacy.joining import check_held, enrolled, stream_of
from justitia.privacy.persons import Persons
from justitia.training.progress import Passes
from justitia.training.ranks import Message, Ranks

if TYPE_CHECKING:
    from justitia.estimator import LagrangianDualClassifier

DIFFERENT = (
    "expected the same files, settings and version of justitia in every process, got others; start all of them alike."
)
ELSEWHERE = (
    "expected the checkpoint of this run where its first process is, got it in the folder of another one; pass the "
    "same folder in every process."
)


@dataclass(frozen=True, eq=False)
class Data:
    """What a fit is given, by the names of columns."""

    files: RowFiles
    columns: Columns
    sensitive: SensitiveColumns | HeldElsewhere
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
        held = sensitive if isinstance(sensitive, HeldElsewhere) else None
        where = None if held is not None else SensitiveColumns.of(sensitive)
        for name, given in (("y", y), ("sample_weight", weight), ("person", person)):
            if not (isinstance(given, str) or (given is None and name != "y")):
                raise TypeError(
                    f"expected {name} to be the name of a column where X is in files, got {type(given).__name__!r}."
                )
        key = where.key if where is not None else None if held is None else check_held(held, person)
        files = RowFiles.of(X)
        second = None if where is None or where.file is None else RowFiles.of(where.file)
        private = () if where is None else where.columns
        beside = private if second is None else ()
        hidden = {y, weight, person, key, *beside} - {None}
        chosen = tuple(name for name in (files.features or files.names) if name not in hidden)
        if not chosen:
            raise ValueError(f"{files.shown} has no column left to learn from; leave fewer out.")
        columns = Columns(chosen, y, weight)
        public = [name for name in (*columns.all, person, key) if name is not None]
        clash = [name for name in private if name in public]
        if clash:
            raise ValueError(f"the column {clash[0]!r} is sensitive and cannot be used as a public one; name another.")
        files.check(public, beside)
        if second is not None and key is not None:
            second.check([], [key, *private])
        return cls(files, columns, sensitive if where is None else where, second, person)

    def attribute(self, own: OwnRows) -> AttributeStream | HeldElsewhere:
        """The attribute of the rows of one process, closed, or who holds it."""
        if isinstance(self.sensitive, HeldElsewhere):
            return self.sensitive
        return stream_of(self.sensitive, self.files, own.start, own.stop, self.second)

    def people(self, own: OwnRows) -> Persons | None:
        """Who is who, by the public ids of everybody; of the rows of one process."""
        if self.person is None or isinstance(self.sensitive, HeldElsewhere):
            return None  # a custodian counts them by its ids
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
        check_engine(model)
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
    held, named = data.sensitive if isinstance(data.sensitive, HeldElsewhere) else None, ""
    if ranks.rank == 0:
        own = replace(own, watch=Passes(model.progress))
    try:
        look(own, seen)
        named = "" if held is None else enrolled(held, own.files, own.start, own.stop, data.person)
    except Exception as error:
        if ranks.size == 1:
            raise
        why = str(error) or type(error).__name__
    told = {"why": why, "labels": list(seen.labels), "heaviest": seen.heaviest}
    looked = ranks.gather(told | {"named": named, "rows": len(own)})
    _raise_first(looked)
    seen.labels = {label for one in looked for label in one["labels"]}
    seen.heaviest = max(one["heaviest"] for one in looked)
    if held is not None:
        places = [one["named"] for one in looked], [one["rows"] for one in looked]
        data = replace(data, sensitive=held.placed(*places, rank=ranks.rank, person=data.person is not None))
    return data, own, seen


def _raise_first(messages: Sequence[Message]) -> None:
    reasons = [one["why"] for one in messages if one["why"]]
    if reasons:
        raise ValueError(reasons[0])


def check_engine(model: LagrangianDualClassifier) -> None:
    """Refuse what rows in files do not have."""
    notion, plan = check_parameters(model)
    if not plan.shares_answers:
        raise ValueError(
            f"expected engine 'post-processing' or 'moments' where X is in files, got {name_of(plan)!r}; leave "
            "engine out, or read the rows into memory."
        )
    if plan.trains_network:
        _check_notion(notion)
    elif model.at == "scores":
        raise ValueError('expected rows in memory where at="scores", got files; use at="decision", or a sample.')


def _check_notion(notion: FairnessNotion) -> None:
    try:
        label_table(notion)
    except ValueError:
        raise ValueError(
            "expected a notion whose h_exact depends on a score through its sign where X is in files, got "
            f"{type(notion).__name__}; read the rows into memory."
        ) from None


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
    passed = {"noise_seed", "base"} | ({"module"} if callable(model.module) else set())  # whose text form may differ
    settings = {name: value for name, value in model.get_params(deep=False).items() if name not in passed}
    plan = repr(check_parameters(model)[1])
    where = data.sensitive.columns if isinstance(data.sensitive, SensitiveColumns) else repr(data.sensitive)
    told = (version("justitia"), data.files.schema(data.columns.all), data.columns, where)
    seeds = repr(model.noise_seed is None)
    stored = [(part.shown, part.stored(data.columns.all)) for part in data.files.parts] if copies else ""
    return hashlib.sha256(repr((told, data.person, sorted(settings.items()), plan, seeds, stored)).encode()).hexdigest()


def sample_bytes(seen: Look) -> bytes:
    """The rows of the sample in one process, as Arrow writes them; nothing for none."""
    content = table_bytes(seen.tables) if seen.tables else b""
    seen.tables.clear()
    return content


def table_bytes(tables: Sequence[Any]) -> bytes:
    """Tables of one kind, as Arrow writes them."""
    import pyarrow as pa  # noqa: PLC0415

    content = pa.BufferOutputStream()
    with pa.ipc.new_stream(content, tables[0].schema) as stream:
        for table in tables:
            stream.write_table(table)
    written: bytes = content.getvalue().to_pybytes()
    return written
