"""Column types of a public table: number, category, date, or not a feature.

:func:`infer_types` decides the type of every column and :func:`convert_column` converts it. Only public columns are
read. A type that cannot be inferred without guessing is refused: the result then holds a sentence with the option to
pass, and commands that train stop there, before any budget is spent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.preprocessing.number_formats import (
    AMBIGUOUS_DATE,
    OTHER_FORMATS,
    UNAMBIGUOUS_DATES,
    NumberFormat,
    format_day,
    means_missing,
    parse_days,
    to_days,
)

NUMBER, CATEGORY, DATE, IDENTIFIER, TEXT, IGNORED = "number", "category", "date", "identifier", "text", "ignored"
KINDS = (NUMBER, CATEGORY, DATE, IDENTIFIER, TEXT, IGNORED)
#: Levels of a category at most; rarer ones share one (:class:`~justitia.preprocessing.encoding.TabularEncoder`).
MAX_LEVELS = 32
#: A column with more distinct entries per row than this identifies rows.
NEARLY_UNIQUE = 0.5
#: A column with at least this share of numbers, or dates, was meant to hold them.
MOST_ENTRIES = 0.9
#: With fewer rows, whether entries repeat says nothing.
FEW_ROWS = 20
#: Entries longer than this on average are sentences.
LONG_TEXT = 40
_IDENTIFIER = re.compile(r"(^|_)(id|ids|uuid|guid|ssn|iban|e?mail|phone|tel)(_|$)|(^|_)(number|nr|no|key)$")
_CODE = re.compile(r"(^|_)(zip|zipcode|postcode|postal|plz|code|zip_code)(_|$)")
_SIGNS = re.compile(r"^[€$£(\s]+|[€$£%)\s]+$")


@dataclass(frozen=True)
class ColumnType:
    """Type of one column.

    Attributes
    ----------
    name : str
    kind : str
        One of ``KINDS``; the first three are features.
    form : str
        ``strptime`` format of dates that are text.
    says : str
        Summary of the entries, or why the column is not a feature.
    doubt : str
        Warning for the user, in one sentence.
    refusal : str
        Why the column cannot be used yet and which option to pass, in one sentence.
    """

    name: str
    kind: str
    form: str = ""
    says: str = ""
    doubt: str = ""
    refusal: str = ""

    @property
    def is_feature(self) -> bool:
        """Whether a model is trained on it."""
        return self.kind in {NUMBER, CATEGORY, DATE} and not self.refusal

    def to_dict(self) -> dict[str, str]:
        """Plain data for ``training.json``."""
        return {key: value for key, value in asdict(self).items() if value or key in {"name", "kind"}}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> ColumnType:
        """Inverse of :meth:`to_dict`."""
        known = {key: str(value) for key, value in facts.items() if key in cls.__dataclass_fields__}
        return cls(**known)


@dataclass(frozen=True, eq=False)
class _Column:
    """Distinct entries of a column and their counts, without missing ones."""

    name: str
    entries: NDArray[Any]
    counts: NDArray[np.int64]
    rows: int

    @classmethod
    def from_values(cls, name: str, values: pd.Series) -> _Column:
        codes, entries = pd.factorize(values, use_na_sentinel=True)
        counts = np.bincount(codes[codes >= 0], minlength=len(entries))
        return cls(name, np.asarray(entries, dtype=object), counts, len(values))

    @property
    def given(self) -> int:
        return int(self.counts.sum())

    def missing(self) -> str:
        gone = self.rows - self.given
        return f"; {gone:,} missing" if gone else ""

    def share(self, mask: NDArray[np.bool_]) -> float:
        return float(self.counts[mask].sum() / max(self.given, 1))

    def without(self, mask: NDArray[np.bool_]) -> _Column:
        return _Column(self.name, self.entries[~mask], self.counts[~mask], self.rows)

    @property
    def is_nearly_unique(self) -> bool:
        return self.rows >= FEW_ROWS and len(self.entries) > NEARLY_UNIQUE * self.given

    @property
    def is_named_as_identifier(self) -> bool:
        return bool(_IDENTIFIER.search(snake_case(self.name)))


def snake_case(name: str) -> str:
    """``customerId`` and ``Customer ID`` as ``customer_id``."""
    return re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).strip("_").lower()


def infer_type(
    values: pd.Series, number_format: NumberFormat, *, wanted: bool = False, categorical: bool = False
) -> ColumnType:
    """Infer the type of a column.

    Parameters
    ----------
    wanted : bool
        Whether the user named it as a feature; then an identifier is one, too.
    categorical : bool
        Whether the user declared it a category, whatever its entries look like.
    """
    name = str(values.name)
    column = _Column.from_values(name, values)
    if all(isinstance(one, str) and not one.strip() for one in column.entries):
        return ColumnType(name, IGNORED, says="nothing is written in it", doubt=f"column {name!r} is empty: not used.")
    if len(column.entries) == 1 and column.given == column.rows:
        shown = _shown(column.entries[0])
        return ColumnType(name, IGNORED, says=f"{shown} in every row", doubt=f"column {name!r} is constant: not used.")
    if categorical:
        return _category_type(column)
    if pd.api.types.is_datetime64_any_dtype(values) or all(hasattr(one, "timetuple") for one in column.entries):
        return _date_type(column, to_days(pd.Series(column.entries)), "")
    if pd.api.types.is_numeric_dtype(values) and name not in number_format.dates:
        return _number_type(column, np.asarray(column.entries, dtype=np.float64), wanted=wanted)
    return _text_type(column, number_format, wanted=wanted)


def _shown(entry: Any) -> str:
    text = " ".join(str(entry).split())
    return repr(text if len(text) <= 20 else f"{text[:17]}...")


def _number_type(column: _Column, numbers: NDArray[np.float64], *, wanted: bool, doubt: str = "") -> ColumnType:
    if set(map(type, column.entries)) <= {bool, np.bool_}:
        return ColumnType(column.name, NUMBER, says=f"True or False, as 1 and 0{column.missing()}")
    if not np.isfinite(numbers).all():
        return _refused(column, "holds infinity; write a number, or nothing if it is not known, or pass --drop NAME.")
    whole = bool((numbers == np.floor(numbers)).all())
    if whole and not wanted and _is_row_number(column, numbers):
        return _identifier_type(column)
    if whole and _CODE.search(snake_case(column.name)) and len(numbers) > MAX_LEVELS:
        doubt = f"column {column.name!r} is read as a number; if it holds codes, pass --categorical {column.name!r}."
    elif whole and len(numbers) > 1 and _look_like_dates(numbers):
        doubt = f"column {column.name!r} looks like dates: pass --date '{column.name}=%Y%m%d' to read them as such."
    says = f"{numbers.min():.6g} to {numbers.max():.6g}{column.missing()}"
    return ColumnType(column.name, NUMBER, says=says, doubt=doubt)


def _is_row_number(column: _Column, numbers: NDArray[np.float64]) -> bool:
    """Whether whole numbers identify rows: nearly all distinct, and consecutive or with a name of an identifier."""
    if not column.is_nearly_unique:
        return False
    counted = len(numbers) == column.rows and np.ptp(numbers) < 1.5 * column.rows
    return bool(counted or column.is_named_as_identifier)


def _look_like_dates(numbers: NDArray[np.float64]) -> bool:
    if numbers.min() < 19_000_101 or numbers.max() > 21_001_231:
        return False
    return not np.isnan(parse_days([str(int(one)) for one in numbers], "%Y%m%d")).any()


def _identifier_type(column: _Column) -> ColumnType:
    return ColumnType(
        column.name,
        IDENTIFIER,
        says=f"{len(column.entries):,} different entries: no feature",
        doubt=f"column {column.name!r} has {len(column.entries):,} different entries in {column.rows:,} rows and is no "
        "feature; name it in --features to use it.",
    )


def _category_type(column: _Column) -> ColumnType:
    ranked = column.entries[np.argsort(-column.counts, kind="stable")]
    number = len(column.entries)
    listed = ", ".join(_shown(one)[1:-1] for one in ranked[:4]) + (", ..." if number > 4 else "")
    doubt = ""
    if number > MAX_LEVELS:
        doubt = f"column {column.name!r} has {number:,} levels; all but the {MAX_LEVELS - 1} most frequent share one."
    shown = "" if column.is_nearly_unique else f": {listed}"  # names of single rows are not repeated
    return ColumnType(column.name, CATEGORY, says=f"{number:,} levels{shown}{column.missing()}", doubt=doubt)


def _date_type(column: _Column, found: NDArray[np.float64], form: str, doubt: str = "") -> ColumnType:
    says = f"{format_day(np.nanmin(found))} to {format_day(np.nanmax(found))}, in days{column.missing()}"
    return ColumnType(column.name, DATE, form=form, says=says, doubt=doubt)


def _text_type(column: _Column, number_format: NumberFormat, *, wanted: bool) -> ColumnType:
    if all(isinstance(one, bool | np.bool_) for one in column.entries):
        return _number_type(column, np.asarray(column.entries, dtype=np.float64), wanted=wanted)
    unknown = np.array([means_missing(one) for one in column.entries])
    known = column.without(unknown)
    if not known.given:
        return _category_type(column)
    doubt = ""
    if unknown.any():
        words = ", ".join(_shown(one) for one in column.entries[unknown][:3])
        gone = column.given - known.given
        doubt = f"column {column.name!r}: {words} in {gone:,} row{'s count' if gone > 1 else ' counts'} as missing."
    found = _try_dates(known, number_format, doubt) or _try_numbers(known, number_format, doubt, wanted=wanted)
    return found or _word_type(column, wanted=wanted)


def _try_numbers(column: _Column, number_format: NumberFormat, doubt: str, *, wanted: bool) -> ColumnType | None:
    if _has_leading_zeros(column.entries):
        return None
    numbers = number_format.numbers(column.entries)
    if not np.isnan(numbers).any():
        doubt = " ".join(filter(None, (doubt, thousands_warning(column.name, column.entries, number_format))))
        return _number_type(column, numbers, wanted=wanted, doubt=doubt)
    readable = ~np.isnan(numbers)
    other, share = _best_format(column)
    # A few marked amounts among many small ones: 950, 1,500. What reads all of them beats what reads most of them.
    if column.share(readable) >= MOST_ENTRIES and share < 1:
        odd = _shown(column.entries[~readable][0])
        return _refused(
            column, f"holds numbers, but also {odd}; correct that, or pass --categorical NAME or --drop NAME."
        )
    if share >= MOST_ENTRIES:
        return _refused(column, _format_hint(column, other, number_format))
    bare = [_SIGNS.sub("", one) if isinstance(one, str) else one for one in column.entries]
    if any(column.share(~np.isnan(one.numbers(bare))) >= MOST_ENTRIES for one in (number_format, *OTHER_FORMATS)):
        odd = _shown(column.entries[np.isnan(numbers)][0])
        return _refused(column, f"holds numbers with signs, such as {odd}; write numbers alone.")
    return None


def _best_format(column: _Column) -> tuple[NumberFormat, float]:
    """Format that parses the most rows of a column, and their share; the first of several with the same share."""
    shares = [column.share(~np.isnan(one.numbers(column.entries))) for one in OTHER_FORMATS]
    best = int(np.argmax(shares))
    return OTHER_FORMATS[best], shares[best]


def _format_hint(column: _Column, other: NumberFormat, number_format: NumberFormat) -> str:
    """Options to pass for numbers in another format; both readings where the marks allow two."""
    readable = [one for one in column.entries if not np.isnan(other.numbers([one])[0])]
    example = next((one for one in readable if np.isnan(number_format.numbers([one])[0])), readable[0])
    thousands = other.with_thousands(readable)
    if thousands is not None:
        large, small = (one.numbers([example])[0] for one in (thousands, other))
        return (
            f"holds numbers written as {_shown(example)}, always with three digits after the {other.decimal!r}; pass"
            f"{thousands.options()} if that is {large:.10g}, {_passing(other)} if it is {small:.10g}, or pass "
            "--categorical NAME."
        )
    return f"holds numbers written as {_shown(example)}; {_passing(other)}, or pass --categorical NAME."


def _passing(number_format: NumberFormat) -> str:
    return f"pass{number_format.options()}" if number_format.options() else "leave out --decimal and --thousands"


def _range(numbers: NDArray[np.float64]) -> str:
    return f"{np.nanmin(numbers):.10g} to {np.nanmax(numbers):.10g}"


def thousands_warning(name: str, entries: Collection[Any], number_format: NumberFormat) -> str:
    """Warning about numbers whose decimal marks may separate thousands; empty where they cannot.

    Parameters
    ----------
    entries : collection of str
        Text as it is in the file.
    """
    other = number_format.with_thousands(entries)
    if other is None:
        return ""
    marked = next(one for one in entries if isinstance(one, str) and number_format.decimal in one)
    small, large = (_range(one.numbers(entries)) for one in (number_format, other))
    instead = f" instead of{number_format.options()}" if number_format.options() else ""
    return (
        f"column {name!r} is read as {small}, but every {number_format.decimal!r} in it has three digits after it, as "
        f"in {_shown(marked)}: if it stands between thousands, pass{other.options()}{instead} to read {large}."
    )


def _refused(column: _Column, what: str) -> ColumnType:
    sentence = f"column {column.name!r} {what.replace('NAME', repr(column.name))}"
    return ColumnType(column.name, TEXT, says="not read yet", refusal=sentence)


def _has_leading_zeros(entries: NDArray[Any]) -> bool:
    """Whether entries are codes: no number has leading zeros, as 00501 has."""
    return any(isinstance(one, str) and re.fullmatch(r"0\d+", one.strip()) for one in entries)


def _try_dates(column: _Column, number_format: NumberFormat, doubt: str) -> ColumnType | None:
    named = number_format.dates.get(column.name)
    forms = (
        (named,) if named else (*((number_format.dates[""],) if "" in number_format.dates else ()), *UNAMBIGUOUS_DATES)
    )
    texts = [str(one).strip() for one in column.entries]
    for form in forms:
        found = parse_days(texts, form)
        if not np.isnan(found).any():
            return _date_type(column, found, form, doubt)
        if named or column.share(~np.isnan(found)) >= MOST_ENTRIES:
            odd = _shown(column.entries[np.isnan(found)][0])
            return _refused(column, f"holds dates as {form}, but also {odd}; correct that, or pass --drop NAME.")
    if column.share(np.array([bool(AMBIGUOUS_DATE.fullmatch(one)) for one in texts])) >= MOST_ENTRIES:
        shown = _shown(texts[0])
        return _refused(column, f"holds dates such as {shown}; say how with --date '{column.name}=%d/%m/%Y', say.")
    return None


def _word_type(column: _Column, *, wanted: bool) -> ColumnType:
    unlike = column.is_nearly_unique and len(column.entries) > MAX_LEVELS
    if wanted or not (unlike or (column.is_nearly_unique and column.is_named_as_identifier)):
        return _category_type(column)
    lengths = np.array([len(str(one)) for one in column.entries])
    if lengths.mean() <= LONG_TEXT:
        return _identifier_type(column)
    return ColumnType(
        column.name,
        TEXT,
        says=f"{lengths.mean():.0f} letters in the mean: no feature",
        doubt=f"column {column.name!r} holds text, which is not read; make features of it, or leave it out.",
    )


def convert_column(values: pd.Series, reading: ColumnType, number_format: NumberFormat) -> pd.Series:
    """Convert a column to what models read: numbers, days since 1970, or text.

    Raises
    ------
    ValueError
        If an entry is neither of this type nor missing.
    """
    if reading.kind == CATEGORY:
        return values.map(_level, na_action="ignore").astype(object)
    if pd.api.types.is_bool_dtype(values) or pd.api.types.is_numeric_dtype(values):
        if not reading.form:
            return values
        values = values.map(_level, na_action="ignore")
    if pd.api.types.is_datetime64_any_dtype(values):
        return pd.Series(to_days(values), index=values.index, name=values.name)
    codes, entries = pd.factorize(values, use_na_sentinel=True)
    found = _numbers(np.asarray(entries, dtype=object), reading, number_format)
    odd = np.isnan(found) & np.array([not means_missing(one) for one in entries], dtype=bool)
    if odd.any():
        entry = _shown(entries[odd][0])
        raise ValueError(f"expected {reading.kind}s in column {reading.name!r}, as in training, got {entry}; mend it.")
    return pd.Series(np.append(found, np.nan)[codes], index=values.index, name=values.name)


def _numbers(entries: NDArray[Any], reading: ColumnType, number_format: NumberFormat) -> NDArray[np.float64]:
    if reading.kind != DATE:
        return number_format.numbers(entries)
    if reading.form:
        return parse_days([str(one).strip() for one in entries], reading.form)
    return to_days(pd.Series(entries))


def _level(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def infer_types(
    table: pd.DataFrame, number_format: NumberFormat, *, wanted: Collection[str] = (), categorical: Collection[str] = ()
) -> list[ColumnType]:
    """Infer the type of every column of a table."""
    return [
        infer_type(table[name], number_format, wanted=name in wanted, categorical=name in categorical)
        for name in table.columns
    ]
