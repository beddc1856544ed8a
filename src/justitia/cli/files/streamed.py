"""Rows of Parquet files that are read a few at a time, as training needs them: names, and no row yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.attribute import PublicAttribute, Where, find_attribute, label_reader
from justitia.cli.files.columns import FeatureColumns
from justitia.cli.files.reading import PARQUET, Table, is_several
from justitia.cli.files.rows import column_names, feature_names
from justitia.cli.files.target import target_task
from justitia.preprocessing.column_types import ColumnType
from justitia.privacy.attribute import HeldElsewhere, SensitiveColumns
from justitia.rows.parquet import RowFiles
from justitia.tasks import BINARY, Task

AT_ONCE = "a file that is read at once, got one that is read a few rows at a time."


@dataclass(frozen=True, eq=False)
class StreamedRows:
    """Rows of files; what :class:`~justitia.cli.files.rows.LabelledRows` holds, by the names of columns.

    Attributes
    ----------
    X : RowFiles
        With the names of the features.
    y : str
    attribute : PublicAttribute
        Public facts about the attribute.
    sensitive : SensitiveColumns or HeldElsewhere
        Where it is.
    person : str, optional
    readings : tuple of ColumnType
        Columns that are no features because of their names; the others are taken as the files type them.
    task : Task
        What kind of target it is.
    proxy : list of str, optional
        Columns that say something about the group.
    """

    table: Table
    X: RowFiles = field(repr=False)
    y: str
    attribute: PublicAttribute
    sensitive: SensitiveColumns | HeldElsewhere
    person: str | None = None
    readings: tuple[ColumnType, ...] = ()
    task: Task = BINARY
    proxy: list[str] | None = None

    def __len__(self) -> int:
        return len(self.X)

    @property
    def labels(self) -> str:
        """The name of the target, from which models learn."""
        return self.y


def is_streamed(data: Path, *, asked: bool) -> bool:
    """Whether DATA is read a few rows at a time: folders and patterns always are."""
    several = is_several(data)
    if asked and not several and data.suffix.lower() not in PARQUET:
        raise Refusal(f"expected Parquet to be read a few rows at a time, got {shown_path(data)}; write it as Parquet.")
    return several or asked


def read_streamed(
    data: Path,
    where: Where,
    *,
    target: str,
    positive: str | None = None,
    columns: FeatureColumns | None = None,
    base_columns: Sequence[str] = (),
    task: str | None = None,
    workers: int = 1,
) -> StreamedRows:
    """Check names of columns; columns are taken as the files type them.

    Only the target is read, and that only if its ``task`` is wanted ("auto" sees it from the values).
    """
    columns = FeatureColumns() if columns is None else columns
    table = Table.streamed(data)
    table.check_columns([target])
    attribute = find_attribute(where, table, streamed=True)
    if target in attribute.columns:
        raise Refusal(f"the column {target!r} is both target and sensitive; name another one.")
    names, related = feature_names(attribute, table, target, columns, column_names(base_columns, table.columns))
    files = RowFiles.open(data, features=names, positive=positive, workers=workers)
    found = BINARY if task is None else target_task(table, target, positive, task)
    proxy = list(columns.proxy) or None
    return StreamedRows(table, files, target, attribute, place_of(attribute), attribute.person, related, found, proxy)


def place_of(attribute: PublicAttribute) -> SensitiveColumns | HeldElsewhere:
    """Where the attribute of rows in files is; none of it is read."""
    if attribute.held is not None:
        return attribute.held
    if attribute.file is not None and not attribute.file.is_parquet:
        raise Refusal(
            f"expected a second Parquet file beside files that are read a few rows at a time, got "
            f"{shown_path(attribute.file.path)}; write it as Parquet."
        )
    second = None if attribute.file is None else attribute.file.path
    return SensitiveColumns(*attribute.columns, file=second, key=attribute.key, read=label_reader(attribute))


__all__ = ["AT_ONCE", "StreamedRows", "is_streamed", "place_of", "read_streamed"]
