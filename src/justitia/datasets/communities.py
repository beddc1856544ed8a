"""Communities and Crime dataset: violent crimes per inhabitant of a community; groups by its share of black people."""

import io

import pandas as pd

from justitia.datasets.dataset import Dataset
from justitia.datasets.sources import COMMUNITIES_GROUP, COMMUNITIES_TARGET

GROUPS = ("at most 0.06", "more than 0.06")
"""Of the share of black people, which the publishers scaled to between 0 and 1 like every other column."""

_DESCRIPTION = (
    "UCI Communities and Crime, 1,993 communities of the United States. 95 features, each scaled to between 0 and 1 by "
    "its publishers; name, state and the shares of four races removed; target: violent crimes per inhabitant, scaled "
    "likewise; sensitive attribute: whether the scaled share of black people is at most or more than 0.06."
)


def parse_communities(data: bytes) -> Dataset:
    """Read the columns kept of the Communities and Crime file.

    Parameters
    ----------
    data : bytes
        The kept columns, comma separated with a header.

    Notes
    -----
    A row is a community, not a person. UCI's file has 1,994 rows and no header; the packaged copy lost the first of
    them and the columns with missing values. Four columns of incomes by race stay in X, which the privacy promise
    counts as public.
    """
    frame = pd.read_csv(io.BytesIO(data))
    above = frame[COMMUNITIES_GROUP] == 1
    return Dataset(
        name="communities",
        X=frame.drop(columns=[COMMUNITIES_GROUP, COMMUNITIES_TARGET]),
        y=frame[COMMUNITIES_TARGET].astype(float),
        sensitive=above.map({False: GROUPS[0], True: GROUPS[1]}).rename("black_share"),
        groups=GROUPS,
        description=_DESCRIPTION,
        task="number",
    )
