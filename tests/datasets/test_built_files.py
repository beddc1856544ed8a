import gzip

import pytest

from justitia.datasets import sources

PUBLISHED = b'"age";"job";"y"\n30;"a";"no"\n40;"b";"yes"\n50;"c";"no"\n'
BALANCED = b"age,job,deposit\n50,c,no\n40,b,yes\n"


@pytest.fixture
def two_rows(monkeypatch):
    monkeypatch.setattr(sources, "balanced_rows", lambda: [2, 1])


def test_balanced_rows_shipped_with_the_package_are_distinct_and_in_range():
    rows = sources.balanced_rows()
    assert len(rows) == len(set(rows)) == 11162
    assert (min(rows), max(rows)) == (1, 45208)


def test_balance_published_bank_picks_rows_in_the_listed_order(two_rows):
    assert sources.balance_published_bank(PUBLISHED) == BALANCED


def test_balance_packaged_bank_sorts_by_the_saved_row_number(two_rows):
    train = gzip.compress(b",age,job,deposit\n2,50,c,no\n0,30,a,no\n")
    test = gzip.compress(b",age,job,deposit\n1,40,b,yes\n")
    assert sources.balance_packaged_bank(train, test) == BALANCED


def test_unchanged_with_windows_line_ends_has_lf_line_ends():
    assert sources.unchanged(BALANCED.replace(b"\n", b"\r\n")) == BALANCED


def test_join_adult_drops_comment_blank_lines_and_full_stops():
    row = ", ".join("abcdefghijklmn")
    train = f"{row}, <=50K\n\n".encode()
    test = f"|1x3 Cross validator\n{row}, >50K.\n\n".encode()
    assert sources.join_adult(train, test) == f"{row}, <=50K\n{row}, >50K\n".encode()


def test_keep_compas_columns_drops_names_and_takes_first_of_twins():
    header = "id,name,dob,is_recid," + ",".join(sources.COMPAS_COLUMNS) + ",decile_score"
    row = '1,Jane Roe,1980-01-01,1,Female,34,Caucasian,0,0,0,3,2,F,"Theft, Grand",1,9'
    kept = sources.keep_compas_columns(f"{header}\r\n{row}\r\n".encode())
    assert kept.decode() == (
        "sex,age,race,juv_fel_count,juv_misd_count,juv_other_count,decile_score,priors_count,c_charge_degree,"
        'c_charge_desc,two_year_recid\nFemale,34,Caucasian,0,0,0,3,2,F,"Theft, Grand",1\n'
    )


def test_keep_communities_columns_drops_names_states_races_and_the_label():
    header = (
        "communityname,fold,population,racepctblack,PctBornSameState,ViolentCrimesPerPop,state_1,>0.06black,high_crime"
    )
    kept = sources.keep_communities_columns(f"{header}\nDovertown,1,0.2,0.1,0.5,0.7,0,1,True\n".encode())
    assert kept.decode() == "population,PctBornSameState,ViolentCrimesPerPop,>0.06black\n0.2,0.5,0.7,1\n"
