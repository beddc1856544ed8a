"""Compas: whether a defendant is charged again within two years, by sex, or the risk level of the score, by race."""

import io

import pandas as pd

from justitia.datasets.dataset import Dataset

GROUPS = ("Female", "Male")

RACES = ("African-American", "Caucasian")

OTHER = "other"

#: The published score text of each level, and its largest decile.
LEVELS = (("Low", 4), ("Medium", 7), ("High", 10))

NO_CHARGE = "not recorded"

_DESCRIPTION = (
    "ProPublica's two-year Compas file, the 6,150 rows of African-American and Caucasian defendants, no "
    "further filter. 9 features, categories as words; label: charged again within two years; "
    "sensitive attribute: sex."
)

_SCORE = (
    "ProPublica's two-year Compas file, all 7,214 rows. 8 features: age, sex, three juvenile counts, priors count, "
    "felony or not, charged again within two years or not; target: level of the Compas score, low, medium or high; "
    "sensitive attribute: race, African-American, Caucasian or other."
)


def parse_compas(data: bytes) -> Dataset:
    """Read the columns kept of the Compas file.

    Parameters
    ----------
    data : bytes
        The kept columns, comma separated with a header.

    Notes
    -----
    The paper counts ten features; the ten that fit are the nine here (age, race, three juvenile counts,
    decile score, priors count, degree and description of the charge) and ``is_recid``. That one says
    whether the person was *ever* charged again: alone it predicts the label with 96.8 per cent accuracy,
    so it is the label in other words, and the paper's accuracy of 0.683 cannot have used it. It is left out.

    The published file holds names and dates of birth. They are dropped before anything is written, and
    the file is never shipped. Where the description of a charge is missing it reads "not recorded".
    """
    frame = pd.read_csv(io.BytesIO(data))
    frame = frame[frame["race"].isin(RACES)].reset_index(drop=True)
    return Dataset(
        name="compas",
        X=frame.drop(columns=["sex", "two_year_recid"]).fillna({"c_charge_desc": NO_CHARGE}),
        y=frame["two_year_recid"],
        sensitive=frame["sex"],
        groups=GROUPS,
        description=_DESCRIPTION,
    )


def parse_compas_score(data: bytes) -> Dataset:
    """Read the columns kept of the Compas file, with the level of the score as the target and race as the attribute.

    Parameters
    ----------
    data : bytes
        The kept columns, comma separated with a header.

    Notes
    -----
    The published text of the score is a function of its decile in every row: 1 to 4 are "Low", 5 to 7 "Medium" and
    8 to 10 "High". So the file that is kept needs no column for it. The decile is not a feature.
    """
    frame = pd.read_csv(io.BytesIO(data))
    counts = ["juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]
    felony = (frame["c_charge_degree"] == "F").astype(int)
    levels = pd.cut(frame["decile_score"], [0, *(top for _, top in LEVELS)], labels=[name for name, _ in LEVELS])
    return Dataset(
        name="compas_score",
        X=frame[["age", "sex", *counts]].assign(felony=felony, two_year_recid=frame["two_year_recid"]),
        y=levels.astype(str).rename("score_text"),
        sensitive=frame["race"].where(frame["race"].isin(RACES), OTHER),
        groups=(*RACES, OTHER),
        description=_SCORE,
        task="classes",
    )
