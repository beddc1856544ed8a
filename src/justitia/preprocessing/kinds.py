"""How the columns of a public table are read: as numbers, categories or dates, or not at all.

Everything here is about public features. What cannot be told without guessing is not guessed: the reading then holds
a sentence that says what to pass, and a command that trains refuses before anything is spent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from justitia.preprocessing.written import (
    OTHERS_WRITTEN,
    PLAIN_DATES,
    UNSURE_DATE,
    Written,
    day_text,
    days,
    days_of,
    is_not_known,
)

NUMBER, CATEGORY, DATE, IDENTIFIER, TEXT, IGNORED = "number", "category", "date", "identifier", "text", "ignored"
KINDS = (NUMBER, CATEGORY, DATE, IDENTIFIER, TEXT, IGNORED)
#: More levels than that share one column (:class:`~justitia.preprocessing.encoding.TabularEncoder`).
MANY_LEVELS = 32
#: A column with more different entries per row than that tells rows apart instead of describing them.
NEARLY_UNIQUE = 0.5
#: A column of which so many entries are numbers, or dates, was meant to be one.
MOSTLY = 0.9
#: So few rows tell nothing about whether entries repeat.
FEW_ROWS = 20
#: Longer entries, in the mean, are sentences.
LONG_TEXT = 40
_IDENTIFIER = re.compile(r"(^|_)(id|ids|uuid|guid|ssn|iban|e?mail|phone|tel)(_|$)|(^|_)(number|nr|no|key)$")
_CODE = re.compile(r"(^|_)(zip|zipcode|postcode|postal|plz|code|zip_code)(_|$)")
_SIGNS = re.compile(r"^[€$£(\s]+|[€$£%)\s]+$")


@dataclass(frozen=True)
class Reading:
    """How one column is read.

    Attributes
    ----------
    name : str
    kind : str
        One of ``KINDS``; the first three are features.
    form : str
        Format of dates that are written as text.
    says : str
        What is in it, or why it is no feature.
    doubt : str
        What somebody should look at.
    refusal : str
        What has to be said before the column can be used: one sentence.
    """

    name: str
    kind: str
    form: str = ""
    says: str = ""
    doubt: str = ""
    refusal: str = ""

    @property
    def is_feature(self) -> bool:
        """Whether a model learns from it."""
        return self.kind in {NUMBER, CATEGORY, DATE} and not self.refusal

    def to_dict(self) -> dict[str, str]:
        """Plain data, for a model's facts."""
        return {key: value for key, value in asdict(self).items() if value or key in {"name", "kind"}}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Reading:
        """Inverse of :meth:`to_dict`."""
        known = {key: str(value) for key, value in facts.items() if key in cls.__dataclass_fields__}
        return cls(**known)


@dataclass(frozen=True, eq=False)
class _Column:
    """A column as its different entries and how often each occurs; missing ones are counted apart."""

    name: str
    entries: NDArray[Any]
    counts: NDArray[np.int64]
    rows: int

    @classmethod
    def of(cls, name: str, values: pd.Series) -> _Column:
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


def look_at(values: pd.Series, written: Written, *, wanted: bool = False, categorical: bool = False) -> Reading:
    """How a column should be read.

    Parameters
    ----------
    wanted : bool
        Whether the user named it as a feature: an identifier is then used, too.
    categorical : bool
        Whether the user says that its entries are names of levels, whatever they look like.
    """
    name = str(values.name)
    column = _Column.of(name, values)
    if all(isinstance(one, str) and not one.strip() for one in column.entries):
        return Reading(name, IGNORED, says="nothing is written in it", doubt=f"column {name!r} is empty: not used.")
    if len(column.entries) == 1 and column.given == column.rows:
        shown = _shown(column.entries[0])
        return Reading(name, IGNORED, says=f"{shown} in every row", doubt=f"column {name!r} is constant: not used.")
    if categorical:
        return _category(column)
    if pd.api.types.is_datetime64_any_dtype(values) or all(hasattr(one, "timetuple") for one in column.entries):
        return _dated(column, days_of(pd.Series(column.entries)), "")
    if pd.api.types.is_numeric_dtype(values) and name not in written.dates:
        return _numeric(column, np.asarray(column.entries, dtype=np.float64), wanted=wanted)
    return _textual(column, written, wanted=wanted)


def _shown(entry: Any) -> str:
    text = " ".join(str(entry).split())
    return repr(text if len(text) <= 20 else f"{text[:17]}...")


def _numeric(column: _Column, numbers: NDArray[np.float64], *, wanted: bool, doubt: str = "") -> Reading:
    if set(map(type, column.entries)) <= {bool, np.bool_}:
        return Reading(column.name, NUMBER, says=f"True or False, as 1 and 0{column.missing()}")
    if not np.isfinite(numbers).all():
        return _refused(column, "holds infinity; write a number, or nothing if it is not known, or pass --drop NAME.")
    whole = bool((numbers == np.floor(numbers)).all())
    if whole and not wanted and _numbers_rows(column, numbers):
        return _identifier(column)
    if whole and _CODE.search(snake_case(column.name)) and len(numbers) > MANY_LEVELS:
        doubt = f"column {column.name!r} is read as a number; if it holds codes, pass --categorical {column.name!r}."
    elif whole and len(numbers) > 1 and _like_dates(numbers):
        doubt = f"column {column.name!r} looks like dates: pass --date '{column.name}=%Y%m%d' to read them as such."
    says = f"{numbers.min():.6g} to {numbers.max():.6g}{column.missing()}"
    return Reading(column.name, NUMBER, says=says, doubt=doubt)


def _numbers_rows(column: _Column, numbers: NDArray[np.float64]) -> bool:
    """Whether whole numbers are names of rows: nearly all different, and called so or without gaps."""
    if not column.is_nearly_unique:
        return False
    counted = len(numbers) == column.rows and np.ptp(numbers) < 1.5 * column.rows
    return bool(counted or column.is_named_as_identifier)


def _like_dates(numbers: NDArray[np.float64]) -> bool:
    if numbers.min() < 19_000_101 or numbers.max() > 21_001_231:
        return False
    return not np.isnan(days([str(int(one)) for one in numbers], "%Y%m%d")).any()


def _identifier(column: _Column) -> Reading:
    return Reading(
        column.name,
        IDENTIFIER,
        says=f"{len(column.entries):,} different entries: no feature",
        doubt=f"column {column.name!r} has {len(column.entries):,} different entries in {column.rows:,} rows and is no "
        "feature; name it in --features to use it.",
    )


def _category(column: _Column) -> Reading:
    ranked = column.entries[np.argsort(-column.counts, kind="stable")]
    number = len(column.entries)
    listed = ", ".join(_shown(one)[1:-1] for one in ranked[:4]) + (", ..." if number > 4 else "")
    doubt = ""
    if number > MANY_LEVELS:
        doubt = f"column {column.name!r} has {number:,} levels; all but the {MANY_LEVELS - 1} most frequent share one."
    shown = "" if column.is_nearly_unique else f": {listed}"  # names of single rows are not repeated
    return Reading(column.name, CATEGORY, says=f"{number:,} levels{shown}{column.missing()}", doubt=doubt)


def _dated(column: _Column, found: NDArray[np.float64], form: str, doubt: str = "") -> Reading:
    says = f"{day_text(np.nanmin(found))} to {day_text(np.nanmax(found))}, in days{column.missing()}"
    return Reading(column.name, DATE, form=form, says=says, doubt=doubt)


def _textual(column: _Column, written: Written, *, wanted: bool) -> Reading:
    if all(isinstance(one, bool | np.bool_) for one in column.entries):
        return _numeric(column, np.asarray(column.entries, dtype=np.float64), wanted=wanted)
    unknown = np.array([is_not_known(one) for one in column.entries])
    told = column.without(unknown)
    if not told.given:
        return _category(column)
    doubt = ""
    if unknown.any():
        words = ", ".join(_shown(one) for one in column.entries[unknown][:3])
        gone = column.given - told.given
        doubt = f"column {column.name!r}: {words} in {gone:,} row{'s count' if gone > 1 else ' counts'} as missing."
    found = _as_dates(told, written, doubt) or _as_numbers(told, written, doubt, wanted=wanted)
    return found or _as_words(column, wanted=wanted)


def _as_numbers(column: _Column, written: Written, doubt: str, *, wanted: bool) -> Reading | None:
    if _has_leading_zeros(column.entries):
        return None
    numbers = written.numbers(column.entries)
    if not np.isnan(numbers).any():
        doubt = " ".join(filter(None, (doubt, thousands_doubt(column.name, column.entries, written))))
        return _numeric(column, numbers, wanted=wanted, doubt=doubt)
    readable = ~np.isnan(numbers)
    other, share = _best_written(column)
    # A few marked amounts among many small ones: 950, 1,500. What reads all of them beats what reads most of them.
    if column.share(readable) >= MOSTLY and share < 1:
        odd = _shown(column.entries[~readable][0])
        return _refused(
            column, f"holds numbers, but also {odd}; correct that, or pass --categorical NAME or --drop NAME."
        )
    if share >= MOSTLY:
        return _refused(column, _written_otherwise(column, other, written))
    bare = [_SIGNS.sub("", one) if isinstance(one, str) else one for one in column.entries]
    if any(column.share(~np.isnan(one.numbers(bare))) >= MOSTLY for one in (written, *OTHERS_WRITTEN)):
        odd = _shown(column.entries[np.isnan(numbers)][0])
        return _refused(column, f"holds numbers with signs, such as {odd}; write numbers alone.")
    return None


def _best_written(column: _Column) -> tuple[Written, float]:
    """The way of writing numbers that reads most rows of a column, and their share; the first of several alike."""
    shares = [column.share(~np.isnan(one.numbers(column.entries))) for one in OTHERS_WRITTEN]
    best = int(np.argmax(shares))
    return OTHERS_WRITTEN[best], shares[best]


def _written_otherwise(column: _Column, other: Written, written: Written) -> str:
    """What to pass for numbers that are not written as expected; both readings where the marks allow two."""
    readable = [one for one in column.entries if not np.isnan(other.numbers([one])[0])]
    seen = next((one for one in readable if np.isnan(written.numbers([one])[0])), readable[0])
    thousands = other.looks_like_thousands(readable)
    if thousands is not None:
        large, small = (one.numbers([seen])[0] for one in (thousands, other))
        return (
            f"holds numbers written as {_shown(seen)}, always with three digits after the {other.decimal!r}; pass"
            f"{thousands.options()} if that is {large:.10g}, {_passing(other)} if it is {small:.10g}, or pass "
            "--categorical NAME."
        )
    return f"holds numbers written as {_shown(seen)}; {_passing(other)}, or pass --categorical NAME."


def _passing(written: Written) -> str:
    return f"pass{written.options()}" if written.options() else "leave out --decimal and --thousands"


def _range(numbers: NDArray[np.float64]) -> str:
    return f"{np.nanmin(numbers):.10g} to {np.nanmax(numbers):.10g}"


def thousands_doubt(name: str, entries: Collection[Any], written: Written) -> str:
    """What to say of numbers whose decimal marks may stand between thousands; nothing where none do.

    Parameters
    ----------
    entries : collection
        As they stand in the file: text.
    """
    other = written.looks_like_thousands(entries)
    if other is None:
        return ""
    marked = next(one for one in entries if isinstance(one, str) and written.decimal in one)
    small, large = (_range(one.numbers(entries)) for one in (written, other))
    instead = f" instead of{written.options()}" if written.options() else ""
    return (
        f"column {name!r} is read as {small}, but every {written.decimal!r} in it has three digits after it, as in "
        f"{_shown(marked)}: if it stands between thousands, pass{other.options()}{instead} to read {large}."
    )


def _refused(column: _Column, what: str) -> Reading:
    sentence = f"column {column.name!r} {what.replace('NAME', repr(column.name))}"
    return Reading(column.name, TEXT, says="not read yet", refusal=sentence)


def _has_leading_zeros(entries: NDArray[Any]) -> bool:
    """Whether these are codes: no number is written 00501."""
    return any(isinstance(one, str) and re.fullmatch(r"0\d+", one.strip()) for one in entries)


def _as_dates(column: _Column, written: Written, doubt: str) -> Reading | None:
    named = written.dates.get(column.name)
    forms = (named,) if named else (*((written.dates[""],) if "" in written.dates else ()), *PLAIN_DATES)
    texts = [str(one).strip() for one in column.entries]
    for form in forms:
        found = days(texts, form)
        if not np.isnan(found).any():
            return _dated(column, found, form, doubt)
        if named or column.share(~np.isnan(found)) >= MOSTLY:
            odd = _shown(column.entries[np.isnan(found)][0])
            return _refused(column, f"holds dates as {form}, but also {odd}; correct that, or pass --drop NAME.")
    if column.share(np.array([bool(UNSURE_DATE.fullmatch(one)) for one in texts])) >= MOSTLY:
        shown = _shown(texts[0])
        return _refused(column, f"holds dates such as {shown}; say how with --date '{column.name}=%d/%m/%Y', say.")
    return None


def _as_words(column: _Column, *, wanted: bool) -> Reading:
    unlike = column.is_nearly_unique and len(column.entries) > MANY_LEVELS
    if wanted or not (unlike or (column.is_nearly_unique and column.is_named_as_identifier)):
        return _category(column)
    lengths = np.array([len(str(one)) for one in column.entries])
    if lengths.mean() <= LONG_TEXT:
        return _identifier(column)
    return Reading(
        column.name,
        TEXT,
        says=f"{lengths.mean():.0f} letters in the mean: no feature",
        doubt=f"column {column.name!r} holds text, which is not read; make features of it, or leave it out.",
    )


def converted(values: pd.Series, reading: Reading, written: Written) -> pd.Series:
    """The column as models read it: numbers, days, or text.

    Raises
    ------
    ValueError
        If an entry is neither what the reading says nor missing.
    """
    if reading.kind == CATEGORY:
        return values.map(_level, na_action="ignore").astype(object)
    if pd.api.types.is_bool_dtype(values) or pd.api.types.is_numeric_dtype(values):
        if not reading.form:
            return values
        values = values.map(_level, na_action="ignore")
    if pd.api.types.is_datetime64_any_dtype(values):
        return pd.Series(days_of(values), index=values.index, name=values.name)
    codes, entries = pd.factorize(values, use_na_sentinel=True)
    found = _numbers(np.asarray(entries, dtype=object), reading, written)
    odd = np.isnan(found) & np.array([not is_not_known(one) for one in entries], dtype=bool)
    if odd.any():
        entry = _shown(entries[odd][0])
        raise ValueError(f"expected {reading.kind}s in column {reading.name!r}, as in training, got {entry}; mend it.")
    return pd.Series(np.append(found, np.nan)[codes], index=values.index, name=values.name)


def _numbers(entries: NDArray[Any], reading: Reading, written: Written) -> NDArray[np.float64]:
    if reading.kind != DATE:
        return written.numbers(entries)
    if reading.form:
        return days([str(one).strip() for one in entries], reading.form)
    return days_of(pd.Series(entries))


def _level(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def look_at_all(
    table: pd.DataFrame, written: Written, *, wanted: Collection[str] = (), categorical: Collection[str] = ()
) -> list[Reading]:
    """How every column of a table should be read."""
    return [
        look_at(table[name], written, wanted=name in wanted, categorical=name in categorical) for name in table.columns
    ]
