"""Census dataset: whether a person of the 1994 or 1995 survey earns more than 50,000 dollars; groups by sex or race."""

import io

import pandas as pd

from justitia.datasets.dataset import Dataset

GROUPS: dict[str, tuple[str, ...]] = {
    "sex": ("Female", "Male"),
    "race": ("Amer Indian Aleut or Eskimo", "Asian or Pacific Islander", "Black", "Other", "White"),
}
"""Group names of either attribute, as the file writes them."""

VARIANTS = {"census": "sex", "census_race": "race"}
"""Which column is the sensitive attribute."""

NUMBERS = (
    "age",
    "wage_per_hour",
    "capital_gains",
    "capital_losses",
    "dividends_from_stocks",
    "weeks_worked_in_year",
)

CODES = (
    "detailed_industry_code",
    "detailed_occupation_code",
    "size_of_employer_code",
    "own_business_or_self_employed_code",
    "veterans_benefits_code",
    "year",
)
"""Categories that the file writes as digits."""

_COLUMNS = (
    "age",
    "class_of_worker",
    "detailed_industry_code",
    "detailed_occupation_code",
    "education",
    "wage_per_hour",
    "enrolled_in_school_last_week",
    "marital_status",
    "major_industry",
    "major_occupation",
    "race",
    "hispanic_origin",
    "sex",
    "union_member",
    "reason_for_unemployment",
    "full_or_part_time",
    "capital_gains",
    "capital_losses",
    "dividends_from_stocks",
    "tax_filer_status",
    "region_of_previous_residence",
    "state_of_previous_residence",
    "detailed_household_status",
    "household_summary",
    "instance_weight",
    "migration_metropolitan_area",
    "migration_region",
    "migration_within_region",
    "same_house_one_year_ago",
    "migration_from_sunbelt",
    "size_of_employer_code",
    "parents_present_under_18",
    "country_of_birth_father",
    "country_of_birth_mother",
    "country_of_birth_self",
    "citizenship",
    "own_business_or_self_employed_code",
    "veterans_questionnaire",
    "veterans_benefits_code",
    "weeks_worked_in_year",
    "year",
    "income",
)

_LEFT_OUT = ("sex", "race", "income")

_DESCRIPTION = (
    "UCI Census-Income (KDD), training and test part, all 299,285 rows. 38 features: six numbers and 32 "
    "categories, with what is unknown or was not asked as levels; sex, race and the instance weight removed; "
    "label: income above 50,000 dollars; sensitive attribute: {attribute}."
)


def parse_census(data: bytes, name: str) -> Dataset:
    """Read the joined Census-Income file, with sex or race as the sensitive attribute.

    Every row of both parts is kept. The file says what was not asked ("Not in universe") and what is unknown
    ("?", and "NA" for the Hispanic origin); these are levels like any other, and nothing is missing. Digits that stand
    for an industry, an occupation, a size of employer, a yes or no, or the year are categories too. The 32 categories
    are pandas categoricals of words, which hold the table in 25 MB.

    Parameters
    ----------
    data : bytes
        Rows of census-income.data and census-income.test, no header.
    name : {"census", "census_race"}
        Whether sex or race is the sensitive attribute.

    Notes
    -----
    Of the 42 columns, the label, sex, race and ``instance_weight`` are no features: the weight says how many people
    a row stands for, and the survey computes it from sex and race among others. Sex and race are left out together,
    whichever of them is the sensitive attribute, so both variants have the same X.

    No column repeats either attribute. The best single one, ``detailed_household_status``, guesses the sex right for 66
    per cent of the rows (52 without it); ``country_of_birth_mother`` guesses the race for 86 per cent (84 without it),
    though some countries of birth all but reveal it for the few people born there. All of these stay in X, which the
    privacy promise counts as public.

    Some columns follow from others, fully or but for less than one row in a hundred: the major industry and occupation
    from the detailed codes, the household summary, the region of previous residence, and the same house one year ago.
    They stay, since `justitia.preprocessing.encoding.TabularEncoder` joins the rarest levels of long lists: with at
    most 32 levels per column the 38 features of all rows become 416 columns.

    6.2 per cent of the rows have the label 1 (women 2.5, men 10.2), so accuracy starts at 93.8 per cent. 52.0 per cent
    are women. By race, in the order of `GROUPS`: 1.2, 2.9, 10.2, 1.9 and 83.9 per cent.
    """
    frame = _read(data)
    attribute = VARIANTS[name]
    return Dataset(
        name=name,
        X=frame.drop(columns=list(_LEFT_OUT)),
        y=(frame["income"] == "50000+.").astype(int),
        sensitive=frame[attribute].astype(str),
        groups=GROUPS[attribute],
        description=_DESCRIPTION.format(attribute=attribute),
    )


def _read(data: bytes) -> pd.DataFrame:
    """All columns but the instance weight: numbers, and categoricals of words."""
    kept = [column for column in _COLUMNS if column != "instance_weight"]
    kinds = {column: "int64" if column in NUMBERS else "category" for column in kept}
    # "NA" is an answer here, so nothing may be read as missing.
    frame = pd.read_csv(io.BytesIO(data), names=list(_COLUMNS), usecols=kept, dtype=kinds, keep_default_na=False)
    return frame.assign(**{code: frame[code].cat.rename_categories(str) for code in CODES})
