import io

import pandas as pd
import pytest

from justitia.datasets import NAMES, Dataset, load
from justitia.datasets.bank import BANDS, age_groups, parse_bank
from justitia.datasets.compas import parse_compas
from justitia.datasets.income import VOCABULARY, encode_income, parse_income

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
    ("name", "nearest"), [("adult_income", "income"), ("M-Bank3", "m_bank3"), ("Compass", "compas")]
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
