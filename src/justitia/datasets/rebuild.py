"""From the files as published to the file we keep: pure functions from bytes to bytes."""

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from importlib import resources

COMPAS_COLUMNS = (
    "sex",
    "age",
    "race",
    "juv_fel_count",
    "juv_misd_count",
    "juv_other_count",
    "decile_score",
    "priors_count",
    "c_charge_degree",
    "c_charge_desc",
    "two_year_recid",
)
"""All that is ever kept of the Compas file: no names, no dates of birth, no case numbers."""


def unchanged(data: bytes) -> bytes:
    """Return a text file as it is, but with LF line ends."""
    return data.replace(b"\r\n", b"\n")


def join_adult(train: bytes, test: bytes) -> bytes:
    """Put UCI's two Adult files under each other.

    The test file opens with a comment line and ends each label with a full stop; both files end
    with an empty line.
    """
    lines = [line.rstrip(".") for part in (train, test) for line in part.decode().splitlines()]
    return _text(line for line in lines if line.count(",") == 14)


def join_census(train: bytes, test: bytes) -> bytes:
    """Put UCI's two Census-Income files under each other, without the blanks around their commas."""
    return b"".join(part.replace(b", ", b",").replace(b" ,", b",") for part in (train, test))


def balance_published_bank(full: bytes) -> bytes:
    """Pick the balanced rows out of UCI's own bank-full.csv (semicolons, quoted words)."""
    lines = full.decode().replace('"', "").replace(";", ",").splitlines()
    return _balanced(lines[0].removesuffix(",y") + ",deposit", lines[1:])


def balance_packaged_bank(train: bytes, test: bytes) -> bytes:
    """Pick the balanced rows out of a shuffled, split and gzipped copy of bank-full.

    Each row still starts with its row number in bank-full, so sorting by it restores the file.
    """
    header, *first = gzip.decompress(train).decode().splitlines()
    _, *second = gzip.decompress(test).decode().splitlines()
    numbered = [line.split(",", 1) for line in first + second]
    rows = [row for _, row in sorted(numbered, key=lambda pair: int(pair[0]))]
    return _balanced(header.removeprefix(","), rows)


def _balanced(header: str, rows: Sequence[str]) -> bytes:
    return _text([header, *(rows[i] for i in balanced_rows())])


def balanced_rows() -> list[int]:
    """Row numbers in bank-full of the 11,162 rows of the balanced file, in its order."""
    listing = resources.files("justitia.datasets").joinpath("bank_rows.txt").read_text(encoding="ascii")
    return [int(line) for line in listing.split()]


def keep_compas_columns(published: bytes) -> bytes:
    """Drop every column of ProPublica's file that no model uses, people's names first of all.

    Two columns occur twice there with equal entries; the first occurrence is taken.
    """
    header, *rows = csv.reader(io.StringIO(published.decode(), newline=""))
    places = [header.index(column) for column in COMPAS_COLUMNS]
    kept = io.StringIO(newline="")
    writer = csv.writer(kept, lineterminator="\n")
    writer.writerow(COMPAS_COLUMNS)
    writer.writerows([row[place] for place in places] for row in rows)
    return kept.getvalue().encode()


def _text(lines: Iterable[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()
