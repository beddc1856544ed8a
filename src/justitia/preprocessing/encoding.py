"""Tabular encoder, the estimator's default preprocessing: a table of public features becomes a matrix of numbers.

Numbers are clipped, imputed with the median and standardised; text and categories are one-hot encoded. The fitted state
is a handful of names and numbers that is saved as JSON, so that loading a model runs no code from its files.
"""

import datetime as dt
import decimal
import math
import numbers
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeAlias

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from justitia._validate import check_choice, check_int
from justitia.preprocessing.outliers import MAX_FLOAT32, clipping_range

Values: TypeAlias = NDArray[Any]
"""A column as read: float64 with NaN for missing, or objects that are str with None for missing."""

Matrix: TypeAlias = NDArray[np.float64]

_NESTED = (list, tuple, dict, set, frozenset, np.ndarray)
_DATES = (dt.date, dt.time, dt.timedelta, np.datetime64, np.timedelta64)
_NUMBERS = (numbers.Real, decimal.Decimal, np.bool_)
#: Numbers of so few rows are encoded all columns at once: by column, pandas takes longer than all else in a prediction.
FEW_ROWS = 64


@dataclass(frozen=True)
class NumberColumn:
    """Encoding of a numeric column: (value or median, clipped, - mean) / scale, and an indicator of missing values."""

    name: str
    median: float
    mean: float
    scale: float
    missing: bool
    low: float = -MAX_FLOAT32
    high: float = MAX_FLOAT32
    cut: int = 0

    @classmethod
    def fit(cls, name: str, values: Values) -> Self:
        """Learn from the training rows."""
        given = values[~np.isnan(values)]
        median = float(np.median(given)) if len(given) else 0.0
        low, high = clipping_range(given)
        filled = np.where(np.isnan(values), median, values.clip(low, high))
        cut = int(((given < low) | (given > high)).sum())
        # A constant column has scale 0 by definition: its computed deviation may be a rounding error.
        scale = float(filled.std()) if filled.min() < filled.max() else 0.0
        return cls(name, median, float(filled.mean()), scale, len(given) < len(values), low, high, cut)

    def encode(self, values: Values) -> Matrix:
        """Clip and standardise; append an indicator of missing values if the training rows had any."""
        if values.dtype == object:
            raise TypeError(f"column {self.name!r} held numbers in training but holds text now; pass numbers.")
        # In place: a column of a block then stays in the processor's cache.
        gone = np.isnan(values)
        centred = values.clip(self.low, self.high)
        if gone.any():
            centred[gone] = self.median
        centred -= self.mean
        if self.scale > 0:
            centred /= self.scale
        else:
            centred[:] = 0.0
        return np.column_stack([centred, gone]) if self.missing else centred[:, None]

    def names(self) -> list[str]:
        """Names of the encoded columns."""
        return [self.name, f"{self.name}=(missing)"] if self.missing else [self.name]


@dataclass(frozen=True)
class CategoryColumn:
    """One-hot encoding of a text column: one 0/1 column per level, for other levels, and for missing values."""

    name: str
    levels: tuple[str, ...]
    other: bool
    missing: bool

    @classmethod
    def fit(cls, name: str, values: Values, max_levels: int) -> Self:
        """Keep the most frequent levels; ties go by name, so that the order of the rows does not matter.

        Where there are too many, a level of a single row is not kept: it would be that row's name in a saved model.
        """
        codes, distinct = pd.factorize(values)  # the code of None is -1
        counts = dict(zip(distinct, np.bincount(codes[codes >= 0], minlength=len(distinct)).tolist(), strict=True))
        ranked = sorted(counts, key=lambda level: (-counts[level], level))
        other = len(ranked) > max_levels
        kept = tuple(level for level in ranked[: max_levels - 1] if counts[level] > 1) if other else tuple(ranked)
        return cls(name, kept, other, bool((codes < 0).any()))

    def encode(self, values: Values) -> Matrix:
        """One-hot; a level not seen in training is (other), or all zeros where training had no (other)."""
        text = values if values.dtype == object else _as_text(values, self.name)
        unseen = len(self.levels) if self.other else -1
        position: dict[str | None, int] = {level: i for i, level in enumerate(self.levels)}
        position[None] = len(self.levels) + self.other if self.missing else unseen
        given, distinct = pd.factorize(text)  # the code of None, -1, is that of the entry appended last
        codes = np.array([position.get(level, unseen) for level in (*distinct, None)], dtype=np.int64)[given]
        out = np.zeros((len(text), len(self.names())))
        seen = codes >= 0
        out[seen, codes[seen]] = 1
        return out

    def names(self) -> list[str]:
        """Names of the encoded columns."""
        extra = ["(other)"] * self.other + ["(missing)"] * self.missing
        return [f"{self.name}={level}" for level in [*self.levels, *extra]]


@dataclass(frozen=True)
class _RawTable:
    """Names of the columns, whether they are the user's own, the number of rows, and the values, column by column."""

    names: list[str]
    own_names: bool
    n_rows: int
    columns: Iterator[Values]


def _read(X: Any) -> _RawTable:
    if sparse.issparse(X):
        raise TypeError("expected X to be a dense table, got a sparse matrix; pass X.toarray().")
    native = nw.from_native(X, pass_through=True, allow_series=True)
    if isinstance(native, nw.DataFrame):
        names = list(map(str, native.columns))
        return _RawTable(names, names == native.columns, len(native), map(_from_series, native.iter_columns()))
    matrix = _as_matrix(X)
    names = [f"x{j}" for j in range(matrix.shape[1])]
    columns = (_from_array(matrix[:, j], name) for j, name in enumerate(names))
    return _RawTable(names, own_names=False, n_rows=len(matrix), columns=columns)


def _as_matrix(X: Any) -> NDArray[Any]:
    # A list is read as objects first: numpy would turn [1, "a"] into two strings.
    matrix = np.array(X, dtype=object) if isinstance(X, list | tuple) else np.asarray(X)
    if matrix.ndim == 2:
        return matrix
    raise ValueError(
        f"expected X to have 2 dimensions, rows and columns, got {matrix.ndim}: Reshape your data, "
        "with .reshape(-1, 1) if it is one column."
    )


def _from_series(series: "nw.Series[Any]") -> Values:
    name, dtype = str(series.name), series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        numbers = series.to_numpy() if series.implementation.is_pyarrow() else series.cast(nw.Float64).to_numpy()
        return _representable(numbers.astype(np.float64, copy=False), name)  # Arrow's cast refuses large integers
    entries = _objects(series.to_list())
    if dtype in (nw.Categorical, nw.Enum):
        return _as_text(entries, name)
    # A column without any value has no type in some libraries.
    if dtype in (nw.String, nw.Object) or all(entry is None for entry in entries):
        return _number_or_text(entries, name)
    raise TypeError(f"expected column {name!r} to hold numbers, text or categories, got {dtype}; convert or drop it.")


def _from_array(values: NDArray[Any], name: str) -> Values:
    if values.dtype.kind in "biuf":
        return _representable(values.astype(np.float64), name)
    if values.dtype.kind in "OUST":
        return _number_or_text(values.astype(object), name)
    if values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: column {name!r} holds it; pass two columns instead.")
    raise TypeError(f"expected column {name!r} to hold numbers or text, got {values.dtype}; convert or drop it.")


def _objects(entries: list[Any]) -> Values:
    return np.fromiter(entries, dtype=object, count=len(entries))


def _distinct(values: Values, name: str) -> tuple[NDArray[np.int64], list[Any]]:
    """Codes (-1 for missing) and distinct values of a column, refusing what is neither number nor text."""
    if any(issubclass(kind, _NESTED) for kind in set(map(type, values))):
        raise TypeError(f"expected single values in column {name!r}, got nested ones; put them into several columns.")
    codes, distinct = pd.factorize(values)
    if any(isinstance(value, _DATES) for value in distinct):
        raise TypeError(f"expected numbers or text in column {name!r}, got dates or times; convert them to numbers.")
    return codes, list(distinct)


def _number_or_text(values: Values, name: str) -> Values:
    """Objects that are all numbers become float64; anything else becomes text."""
    codes, distinct = _distinct(values, name)
    if not all(isinstance(value, _NUMBERS) for value in distinct):
        return _as_text(values, name)
    # The code of "missing" is -1: the entry appended last.
    return _representable(np.array([*map(_as_float, distinct), np.nan])[codes], name)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _as_text(values: Values, name: str) -> Values:
    codes, distinct = _distinct(values, name)
    return _objects([*map(_level, distinct), None])[codes]


def _level(value: Any) -> str:
    """Text of a level; 1.0 is written 1, because one missing value turns a column of ints into floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _representable(values: Values, name: str) -> Values:
    if (np.abs(values) > np.finfo(np.float32).max).any():
        raise ValueError(
            f"expected finite numbers in column {name!r}, got infinity or a value too large for float32; "
            "replace it, for example by a missing value."
        )
    return values


def _standardised(columns: list[Any], values: Matrix) -> tuple[Matrix, NDArray[np.bool_]]:
    """(m, k) encoded numbers and where they were missing, as :meth:`NumberColumn.encode` of each column."""
    facts = [(one.median, one.low, one.high, one.mean, one.scale) for one in columns]
    median, low, high, mean, scale = np.array(facts, dtype=np.float64).reshape(-1, 5).T
    gone = np.isnan(values)
    centred = np.where(gone, median, values.clip(low, high)) - mean
    scaled = np.where(scale > 0, centred / np.where(scale > 0, scale, 1.0), 0.0)
    return np.clip(scaled, -MAX_FLOAT32, MAX_FLOAT32), gone


class TabularEncoder(TransformerMixin, BaseEstimator):
    """Encode a mixed table as a float32 matrix, with everything learned from the training rows.

    * numbers and booleans: cells far out of range are clipped (``justitia.preprocessing.outliers``), missing
      values become the median, then mean 0 and deviation 1 (a constant column becomes 0); one more 0/1 column where the
      training rows had missing values;
    * text, categories and other objects: one 0/1 column per level, most frequent first; when there are more than
      `max_levels`, the rarest share "(other)", and so do levels of a single row; one more column where the
      training rows had missing values. A level not seen in training becomes "(other)", or all zeros where there
      is no such column.

    Columns are taken in order; the number of columns has to be that of the training rows.

    Parameters
    ----------
    max_levels : int
        Largest number of 0/1 columns for the levels of one column, "(other)" included.

    Attributes
    ----------
    columns_ : list of NumberColumn or CategoryColumn
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if the training table had names.
    """

    def __init__(self, max_levels: int = 32) -> None:
        self.max_levels = max_levels

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn medians, scales and levels.

        Parameters
        ----------
        X : DataFrame (pandas, polars, pyarrow), array or list of lists, of shape (n, d)
        y : ignored

        Raises
        ------
        TypeError
            If X is sparse, or a column holds dates or nested values.
        ValueError
            If X has no row or no column, or a number is infinite.
        """
        max_levels = check_int("max_levels", self.max_levels, at_least=2)
        table = _read(X)
        n, width = table.n_rows, len(table.names)
        if not width or not n:
            raise ValueError(
                f"expected X to have rows and columns, got {n} sample(s) and {width} feature(s) "
                f"(shape=({n}, {width})) while a minimum of 1 is required."
            )
        self._set_names(table.names if table.own_names else None, width)
        self.columns_: list[NumberColumn | CategoryColumn] = []
        for name, values in zip(table.names, table.columns, strict=True):
            if values.dtype == object:
                self.columns_.append(CategoryColumn.fit(name, values, max_levels))
            else:
                self.columns_.append(NumberColumn.fit(name, values))
        return self

    def _set_names(self, names: list[str] | None, n_features: int) -> None:
        self.n_features_in_ = n_features
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Encode rows with what the training rows taught.

        Returns
        -------
        ndarray of shape (n, number of encoded columns)
        """
        check_is_fitted(self, "columns_")
        if isinstance(X, pd.DataFrame) and 0 < len(X) <= FEW_ROWS and len(X.columns) == self.n_features_in_:
            few = self._encode_few(X)
            if few is not None:
                return few
        table = _read(X)
        if len(table.names) != self.n_features_in_:
            raise ValueError(
                f"X has {len(table.names)} features, but TabularEncoder is expecting {self.n_features_in_} "
                "features as input; pass the columns of the training table."
            )
        encoded = np.empty((table.n_rows, len(self.get_feature_names_out())), dtype=np.float32)
        largest, start = np.finfo(np.float32).max, 0
        for how, values in zip(self.columns_, table.columns, strict=True):
            block = how.encode(values)  # in double precision, one column at a time
            stop = start + block.shape[1]
            encoded[:, start:stop] = np.clip(block, -largest, largest, out=block)
            start = stop
        return encoded

    def _encode_few(self, table: pd.DataFrame) -> NDArray[np.float32] | None:
        """As :meth:`transform` of few rows; None where a number is too large, which :meth:`transform` refuses."""
        plain = [isinstance(one, np.dtype) and one.kind in "biuf" for one in table.dtypes.array]
        number = [how for how, is_plain in zip(self.columns_, plain, strict=True) if is_plain]
        if not all(isinstance(how, NumberColumn) for how in number):
            return None
        values = table.iloc[:, np.flatnonzero(plain)].to_numpy(dtype=np.float64)
        if (np.abs(values) > MAX_FLOAT32).any():
            return None
        scaled, gone = _standardised(number, values)
        parts: list[NDArray[Any]] = []
        place = 0
        for j, how in enumerate(self.columns_):
            if plain[j]:
                parts.append(scaled[:, place])
                if how.missing:
                    parts.append(gone[:, place])
                place += 1
            else:
                series = nw.from_native(table.iloc[:, j], series_only=True)
                parts += list(np.clip(how.encode(_from_series(series)), -MAX_FLOAT32, MAX_FLOAT32).T)
        return np.stack(parts, axis=1).astype(np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Names of the encoded columns."""
        check_is_fitted(self, "columns_")
        names: list[str] = []
        for how in self.columns_:
            names += how.names()
        return np.array(names, dtype=object)

    def to_state(self) -> dict[str, Any]:
        """Everything learned, as JSON-able values without NaN; :meth:`from_state` restores it exactly."""
        check_is_fitted(self, "columns_")
        names = getattr(self, "feature_names_in_", None)
        columns = []
        for column in self.columns_:
            state = {"kind": "number" if isinstance(column, NumberColumn) else "category", **asdict(column)}
            columns.append(state | {"levels": list(column.levels)} if isinstance(column, CategoryColumn) else state)
        return {
            "max_levels": int(self.max_levels),
            "feature_names": None if names is None else list(names),
            "columns": columns,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Rebuild a fitted encoder from :meth:`to_state`."""
        encoder = cls(max_levels=state["max_levels"])
        encoder.columns_ = [_column_from_state(column) for column in state["columns"]]
        encoder._set_names(state["feature_names"], len(encoder.columns_))
        return encoder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _column_from_state(state: dict[str, Any]) -> NumberColumn | CategoryColumn:
    fields = {key: value for key, value in state.items() if key != "kind"}
    kind = check_choice("kind", state["kind"], ("number", "category"))
    # A state may come from anybody: what is multiplied or compared later has the type that `to_state` writes.
    if not isinstance(fields["missing"], bool) or not isinstance(fields["name"], str):
        raise ValueError("expected the name of a column and whether entries were missing, got something else.")
    if kind == "number":
        numbers = [value for key, value in fields.items() if key not in {"name", "missing"}]
        if not all(isinstance(one, int | float) and math.isfinite(one) for one in numbers):
            raise ValueError("expected finite numbers of a column, got something else.")
        return NumberColumn(**fields)
    if not isinstance(fields["other"], bool) or not all(isinstance(level, str) for level in fields["levels"]):
        raise ValueError("expected levels of a column as text, got something else.")
    return CategoryColumn(**fields | {"levels": tuple(fields["levels"])})
