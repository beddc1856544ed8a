import io
import math

import pandas as pd
import pytest

from justitia.datasets import NAMES, Dataset, load
from justitia.datasets.bank import BANDS, age_groups, parse_bank
from justitia.datasets.communities import parse_communities
from justitia.datasets.compas import parse_compas, parse_compas_score
from justitia.datasets.income import (
    _COLUMNS,
    OCCUPATIONS,
    VOCABULARY,
    encode_income,
    encode_occupation,
    parse_hours,
    parse_income,
    parse_occupation,
)

INCOME_ROWS = (
    b"39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, "
    b"40, United-States, <=50K\n"
    b"31, ?, 1, 11th, 7, Divorced, ?, Unmarried, Black, Female, 0, 0, 20, Cuba, <=50K\n"
    b"52, Private, 209642, 10th, 6, Married-civ-spouse, Sales, Wife, Black, Female, 0, 7, 45, Jamaica, >50K\n"
)

BANK_HEADER = (
    "age,job,marital,education,default,balance,housing,loan,contact,day,month,duration,campaign,pdays,previous,"
    "poutcome,deposit\n"
)


@pytest.fixture(scope="module")
def tables() -> dict[str, Dataset]:
    return {name: load(name, progress=False) for name in NAMES}


def shares(data: Dataset) -> dict[str, float]:
    percent = 100 * data.sensitive.value_counts(normalize=True)
    return {group: round(float(percent[group]), 1) for group in data.groups}


@pytest.mark.parametrize(
    ("name", "rows", "features", "positives"),
    [
        ("bank", 11162, 15, 5289),
        ("m_bank3", 11162, 15, 5289),
        ("m_bank5", 11162, 15, 5289),
        ("income", 45222, 50, 11208),
        ("compas", 6150, 9, 2867),
    ],
)
def test_load_every_name_has_the_documented_size(tables, name, rows, features, positives):
    data = tables[name]
    assert data.name == name
    assert data.X.shape == (rows, features)
    assert int(data.y.sum()) == positives
    assert data.y.dtype.kind == "i"
    assert not data.X.isna().any(axis=None)
    assert data.X.index.equals(data.sensitive.index)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bank", {"25-60": 92.0, "other": 8.0}),
        ("m_bank3", {"25-40": 53.0, "41-60": 39.0, "other": 8.0}),
        ("m_bank5", {"25-33": 28.3, "34-40": 24.6, "41-48": 18.5, "49-60": 20.6, "other": 8.0}),
        ("income", {"Female": 32.5, "Male": 67.5}),
        ("compas", {"Female": 19.8, "Male": 80.2}),
    ],
)
def test_load_every_name_has_the_documented_shares(tables, name, expected):
    assert shares(tables[name]) == expected


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("bank", {"age", "age_group", "deposit"}),
        ("m_bank3", {"age", "age_group", "deposit"}),
        ("m_bank5", {"age", "age_group", "deposit"}),
        ("income", {"sex", "race", "fnlwgt", "income"}),
        ("compas", {"sex", "is_recid", "two_year_recid", "name", "first", "last", "dob"}),
    ],
)
def test_load_every_name_leaves_out_sensitive_and_identifying_columns(tables, name, absent):
    data = tables[name]
    assert data.sensitive.name == ("age_group" if "bank" in name else "sex")
    assert not absent & set(data.X.columns)


@pytest.mark.parametrize(
    ("name", "rows", "features", "task"),
    [
        ("occupation", 45222, 32, "classes"),
        ("compas_score", 7214, 8, "classes"),
        ("communities", 1993, 95, "number"),
        ("hours", 45222, 49, "number"),
    ],
)
def test_load_classes_and_numbers_has_the_documented_size(tables, name, rows, features, task):
    data = tables[name]
    assert (data.name, data.task) == (name, task)
    assert data.X.shape == (rows, features)
    assert data.sensitive.name not in data.X
    assert data.y.name not in data.X
    assert not data.X.isna().any(axis=None)
    assert data.X.index.equals(data.sensitive.index)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("occupation", {"Female": 32.5, "Male": 67.5}),
        ("compas_score", {"African-American": 51.2, "Caucasian": 34.0, "other": 14.7}),
        ("communities", {"at most 0.06": 51.3, "more than 0.06": 48.7}),
        ("hours", {"Female": 32.5, "Male": 67.5}),
    ],
)
def test_load_classes_and_numbers_has_the_documented_shares(tables, name, expected):
    assert shares(tables[name]) == expected


def test_load_occupation_has_the_counts_of_its_six_classes(tables):
    assert tables["occupation"].y.value_counts().to_dict() == {
        "Manual": 14832,
        "Professional": 11992,
        "Clerical": 5540,
        "Sales": 5408,
        "Service": 5040,
        "Technical-protective": 2410,
    }


def test_load_compas_score_has_the_published_counts_of_its_levels(tables):
    assert tables["compas_score"].y.value_counts().to_dict() == {"Low": 3897, "Medium": 1914, "High": 1403}


def test_load_communities_leaves_out_names_states_and_shares_of_races(tables):
    columns = list(tables["communities"].X)
    assert not [name for name in columns if name.startswith(("race", "state_"))]
    assert not {"communityname", "fold", "high_crime", ">0.06black"} & set(columns)


def test_load_hours_has_the_people_of_income_without_their_hours(tables):
    hours, income = tables["hours"], tables["income"]
    assert hours.y.tolist() == income.X["hours_per_week"].tolist()
    pd.testing.assert_frame_equal(hours.X, income.X.drop(columns="hours_per_week"))


def test_load_compas_has_the_nine_documented_columns(tables):
    assert list(tables["compas"].X.columns) == [
        "age",
        "race",
        "juv_fel_count",
        "juv_misd_count",
        "juv_other_count",
        "decile_score",
        "priors_count",
        "c_charge_degree",
        "c_charge_desc",
    ]


def test_load_income_gives_each_row_one_level_of_every_category(tables):
    x = tables["income"].X
    for column, levels in VOCABULARY.items():
        assert (x[[f"{column}_{level}" for level in levels]].sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("adult_income", "income"), ("M-Bank3", "m_bank3"), ("Compass", "compas"), ("community", "communities")],
)
def test_load_unknown_name_suggests_the_nearest(name, nearest):
    with pytest.raises(ValueError, match=f"got '{name}'; did you mean '{nearest}'"):
        load(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bank", ["other", "25-60", "25-60", "25-60", "25-60", "25-60", "25-60", "25-60", "25-60", "other"]),
        (
            "m_bank3",
            ["other", "25-40", "25-40", "25-40", "25-40", "41-60", "41-60", "41-60", "41-60", "other"],
        ),
        (
            "m_bank5",
            ["other", "25-33", "25-33", "34-40", "34-40", "41-48", "41-48", "49-60", "49-60", "other"],
        ),
    ],
)
def test_age_groups_at_the_cut_offs_include_both_ends(name, expected):
    ages = pd.Series([24, 25, 33, 34, 40, 41, 48, 49, 60, 61])
    assert age_groups(ages, BANDS[name]).tolist() == expected


def test_parse_bank_two_rows_keeps_words_and_maps_the_label():
    rows = "59,admin.,married,secondary,no,2343,yes,no,unknown,5,may,1042,1,-1,0,unknown,yes\n"
    rows += "70,retired,single,primary,no,-5,no,no,cellular,6,jun,10,2,-1,0,unknown,no\n"
    data = parse_bank((BANK_HEADER + rows).encode(), "bank")
    assert data.X["job"].tolist() == ["admin.", "retired"]
    assert data.X["balance"].tolist() == [2343, -5]
    assert data.y.tolist() == [1, 0]
    assert data.sensitive.tolist() == ["25-60", "other"]


def test_parse_income_row_with_question_mark_is_dropped():
    data = parse_income(INCOME_ROWS)
    assert data.y.tolist() == [0, 1]
    assert data.sensitive.tolist() == ["Male", "Female"]


def test_parse_income_row_has_the_expected_fifty_numbers():
    row = parse_income(INCOME_ROWS).X.iloc[1]
    assert row[["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]].tolist() == [
        52,
        6,
        0,
        7,
        45,
    ]
    assert row["native_country_United-States"] == 0
    ones = {name for name in row.index[5:] if row[name] == 1}
    assert ones == {
        "workclass_Private",
        "education_High-school",
        "marital_status_Married-civ-spouse",
        "occupation_Sales",
        "relationship_Wife",
    }


def test_parse_occupation_row_has_the_expected_class_and_thirty_two_numbers():
    data = parse_occupation(INCOME_ROWS)
    assert data.y.tolist() == ["Clerical", "Sales"]
    assert data.sensitive.tolist() == ["Male", "Female"]
    row = data.X.iloc[1]
    assert len(row) == 32
    assert row[["age", "education_num", "hours_per_week", "log_capital_gain"]].tolist() == [52, 6, 45, 0]
    assert row["log_capital_loss"] == pytest.approx(math.log(8))
    assert {name for name in row.index[5:] if row[name] == 1} == {
        "income",
        "workclass_Private",
        "marital_status_Married-civ-spouse",
        "relationship_Wife",
        "race_Black",
    }


def test_occupations_cover_every_occupation_of_the_file_once():
    assert sorted(one for some in OCCUPATIONS.values() for one in some) == sorted(VOCABULARY["occupation"])


def test_parse_hours_has_hours_as_target_and_not_as_feature():
    data = parse_hours(INCOME_ROWS)
    assert data.y.tolist() == [40.0, 45.0]
    assert "hours_per_week" not in data.X


def test_parse_compas_score_keeps_every_race_and_cuts_the_deciles_as_published():
    header = (
        "sex,age,race,juv_fel_count,juv_misd_count,juv_other_count,decile_score,priors_count,c_charge_degree,"
        "c_charge_desc,two_year_recid"
    )
    deciles = [1, 4, 5, 7, 8, 10]
    races = ["African-American", "Caucasian", "Hispanic", "Asian", "Other", "Native American"]
    rows = [
        f"Male,3{i},{race},0,0,1,{decile},2,F,,1" for i, (race, decile) in enumerate(zip(races, deciles, strict=True))
    ]
    data = parse_compas_score("\n".join([header, *rows]).encode())
    assert data.y.tolist() == ["Low", "Low", "Medium", "Medium", "High", "High"]
    assert data.sensitive.tolist() == ["African-American", "Caucasian", *["other"] * 4]
    assert data.X.iloc[0].tolist() == [30, "Male", 0, 0, 1, 2, 1, 1]
    assert "decile_score" not in data.X


def test_parse_communities_takes_group_and_target_out_of_the_features():
    data = parse_communities(b"population,ViolentCrimesPerPop,>0.06black\n0.2,0.7,1\n0.1,0.05,0\n")
    assert data.X.to_dict("list") == {"population": [0.2, 0.1]}
    assert data.y.tolist() == [0.7, 0.05]
    assert data.sensitive.tolist() == ["more than 0.06", "at most 0.06"]


def test_encode_occupation_of_one_row_equals_that_row_of_the_whole():
    frame = pd.read_csv(io.BytesIO(INCOME_ROWS), names=list(_COLUMNS), skipinitialspace=True)
    pd.testing.assert_frame_equal(encode_occupation(frame.iloc[[1]]), encode_occupation(frame).iloc[[1]])


def test_encode_income_of_some_rows_equals_those_rows_of_the_whole():
    columns = ["education", "workclass", "marital_status", "occupation", "relationship", "native_country"]
    words = pd.DataFrame([["5th-6th", "Private", "Divorced", "Sales", "Wife", "Cuba"]] * 2, columns=columns)
    words.loc[1, ["education", "native_country"]] = ["Masters", "United-States"]
    numbers = pd.DataFrame({name: [17, 90] for name in ("age", "education_num", "capital_gain")})
    frame = pd.concat([words, numbers], axis=1).assign(capital_loss=0, hours_per_week=[1, 99])
    # A fitted encoder or scaler would make a row depend on the rows beside it.
    pd.testing.assert_frame_equal(encode_income(frame.iloc[[1]]), encode_income(frame).iloc[[1]])


@pytest.mark.parametrize("name", ["bank", "income", "compas"])
def test_parse_half_of_the_real_rows_equals_half_of_the_whole(tables, name):
    whole = tables[name]
    half = {"bank": _half_bank, "income": _half_income, "compas": _half_compas}[name]()
    assert 0 < len(half.X) < len(whole.X)
    pd.testing.assert_frame_equal(half.X, whole.X.iloc[: len(half.X)])


def _half(cached: str) -> bytes:
    from justitia.datasets import cache_folder

    lines = (cache_folder() / cached).read_bytes().splitlines(keepends=True)
    return b"".join(lines[: len(lines) // 2])


def _half_bank() -> Dataset:
    return parse_bank(_half("bank.csv"), "bank")


def _half_income() -> Dataset:
    return parse_income(_half("income.csv"))


def _half_compas() -> Dataset:
    return parse_compas(_half("compas.csv"))


def test_parse_compas_keeps_two_races_and_names_the_missing_charge():
    rows = io.StringIO(
        "sex,age,race,juv_fel_count,juv_misd_count,juv_other_count,decile_score,priors_count,c_charge_degree,"
        "c_charge_desc,two_year_recid\n"
        "Male,69,Other,0,0,0,1,0,F,Assault,0\n"
        "Female,34,African-American,0,0,0,3,2,F,,1\n"
        "Male,24,Caucasian,0,0,1,4,4,M,Battery,0\n"
    )
    data = parse_compas(rows.getvalue().encode())
    assert data.X["age"].tolist() == [34, 24]
    assert data.X["c_charge_desc"].tolist() == ["not recorded", "Battery"]
    assert data.sensitive.tolist() == ["Female", "Male"]
    assert data.y.tolist() == [1, 0]
