"""Keys for named populations, records of earlier and later versions, and what certificates say in whose name."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from service_fixtures import DATA, DELTA, IDS, KEYS, LABELS, Caller, make_folder, opened, served

from justitia import LagrangianDualClassifier
from justitia.cli import cli
from justitia.custodian import Custodian
from justitia.custodian.populations import register
from justitia.custodian.records import SCHEMA, Client, Records
from justitia.custodian.settings import ServiceSettings, settings_text
from justitia.privacy.attribute import Attribute
from justitia.privacy.keys import key_hash
from justitia.privacy.register import Register, digests_of

ROWS = np.ones((len(IDS), 2))


def add_others(folder: Path) -> None:
    people = Register.from_rows(IDS, Attribute(("sex",), [np.array([*LABELS, None], dtype=object)[:-1]]))
    register(folder, Records(folder), "others", people, groups=["a", "b"], epsilon=1.0, delta=DELTA)


def allow(folder: Path, *populations: str) -> None:
    every = ("train", "measure", "read")
    Records(folder).put_client(Client("trainer", every, None, key_hash(KEYS["trainer"]), populations))


def run(*words: Any) -> Any:
    return CliRunner().invoke(cli, [str(word) for word in words])


def said(found: Any) -> str:
    assert found.exit_code == 2, found.output
    return " ".join(found.output.split())


# -- keys


def test_population_that_a_key_is_not_for_looks_like_one_that_does_not_exist(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    add_others(folder)
    body = json.dumps({"ids": IDS}).encode()
    with opened(folder) as service:
        ask = Caller(service)
        allow(folder, "people", "others")
        cohort = ask("POST", "/v1/populations/others/cohorts", body).facts["cohort"]
        assert ask.sums(cohort, ROWS).status == 200
        allow(folder, "people")  # from now on
        for method, path in (("GET", ""), ("GET", "/ledger"), ("GET", "/certificate"), ("POST", "/cohorts")):
            asked = [
                ask(method, f"/v1/populations/{name}{path}", body if method == "POST" else b"")
                for name in ("others", "nobody")
            ]
            assert (asked[0].status, asked[0].body) == (404, asked[1].body) == (asked[1].status, asked[1].body)
        decided = json.dumps({"request": "m", "y_true": [1] * len(IDS), "y_pred": [1] * len(IDS)}).encode()
        assert ask.sums(cohort, ROWS).status == 404  # not even the answer that it was given
        assert ask("POST", f"/v1/cohorts/{cohort}/measure", decided).status == 404
        joined = json.dumps({"cohorts": [cohort]}).encode()
        assert ask("POST", "/v1/populations/people/cohorts", joined).status == 404
        assert ask("GET", "/v1/populations/people").status == 200
        assert list(service._populations._loaded) == ["others", "people"]


def test_client_without_a_list_may_use_no_population(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    Records(folder).put_client(Client("trainer", ("train",), None, key_hash(KEYS["trainer"])))
    with opened(folder) as service:
        assert Caller(service)("GET", "/v1/populations/people").status == 404


def test_commands_give_a_key_its_populations_keep_them_and_add_to_them(tmp_path: Path) -> None:
    folder, number = tmp_path / "holder", iter(range(99))

    def new_key() -> tuple[Any, ...]:
        return "--client", "trainer", "--key-file", tmp_path / f"{next(number)}.key"

    def held() -> tuple[str, ...]:
        (client,) = Records(folder).clients()
        return client.populations

    assert "expected --population beside --client trainer" in said(run("custodian", "init", folder, *new_key()))
    assert "expected a name of letters" in said(run("custodian", "init", folder, *new_key(), "--population", "a b"))
    assert not folder.exists()
    assert run("custodian", "init", folder, *new_key(), "--population", "staff").exit_code == 0
    first = Records(folder).clients()[0].hash
    assert held() == ("staff",)
    assert run("custodian", "register", folder, *new_key()).exit_code == 0  # another key, the same list
    second = Records(folder).clients()[0]
    assert (second.populations, second.roles, second.hash != first) == (("staff",), ("train", "measure"), True)
    more = ("custodian", "register", folder, "--client", "trainer", "--population", "guests")
    assert run(*more).exit_code == 0
    assert held() == ("staff", "guests")
    assert Records(folder).clients()[0].hash == second.hash
    assert "only the list of populations can grow" in said(run(*more, "--roles", "read"))
    assert "who has no key yet" in said(run("custodian", "register", folder, "--client", "x", "--population", "staff"))
    assert run("custodian", "register", folder, *new_key(), "--population", "guests").exit_code == 0
    assert held() == ("guests",)  # named ones replace the list
    assert "client trainer: train, measure; populations: guests" in run("custodian", "audit", folder).output


def test_registration_reports_which_clients_may_query_the_population(tmp_path: Path) -> None:
    folder, file = tmp_path / "holder", tmp_path / "attribute.csv"
    file.write_text("id,sex\n1,a\n2,b\n")
    people = ("--id", "id", "--sensitive", "sex", "--groups", "a,b", "--epsilon", 1)
    key = ("--client", "trainer", "--key-file", tmp_path / "key", "--population", "staff")
    assert run("custodian", "init", folder, *key).exit_code == 0
    result = run("custodian", "register", folder, file, *people, "--population", "staff", "--json")
    assert json.loads(result.stdout)["clients"] == ["trainer"]
    nobody = run("custodian", "register", folder, file, *people, "--population", "guests")
    assert "none may query this population yet" in " ".join(nobody.output.split())
    two = run("custodian", "register", folder, file, *people, "--population", "x", "--population", "y")
    assert "expected one --population beside FILE" in said(two)
    assert [one.name for one in Records(folder).populations()] == ["guests", "staff"]


# -- versions


def earlier(folder: Path, *, first: bool = False) -> None:
    """The records as a version without a number wrote them; as the very first one did."""
    with closing(sqlite3.connect(folder / "custodian.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("ALTER TABLE clients DROP COLUMN populations")
        connection.execute("DROP TABLE claims")
        connection.execute("DELETE FROM cohorts")
        if first:
            connection.execute("DROP INDEX requests_open")
            connection.execute("ALTER TABLE cohorts DROP COLUMN person")
        connection.execute("PRAGMA user_version = 0")


@pytest.mark.parametrize("first", [False, True])
def test_records_of_an_earlier_version_are_brought_to_this_one(first: bool, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    with opened(folder) as service:
        ask = Caller(service)
        answer = ask.sums(ask.cohort(), ROWS)
    earlier(folder, first=first)
    with opened(folder) as service:
        assert [one.populations for one in service.records.clients()] == [("people",)] * len(KEYS)
        ask = Caller(service)
        again = ask.sums(ask.cohort(), ROWS)
        assert (again.status, again.body) == (200, answer.body)  # answers are still there
        add_others(folder)
        assert ask("GET", "/v1/populations/others").status == 404  # keys are for those who were registered
    with closing(sqlite3.connect(folder / "custodian.sqlite")) as connection:
        assert connection.execute("PRAGMA user_version").fetchall() == [(SCHEMA,)]


def test_rows_that_an_earlier_version_deleted_are_overwritten_on_the_way(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    with opened(folder) as service:
        Caller(service).cohort()
    wanted = [bytes(one) for one in digests_of(IDS)]
    earlier(folder)
    assert any(one in (folder / "custodian.sqlite").read_bytes() for one in wanted)
    Records(folder)
    assert not any(one in (folder / "custodian.sqlite").read_bytes() for one in wanted)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("PRAGMA user_version = 99", "got version 99, which a newer justitia wrote; upgrade this one"),
        ("ALTER TABLE cohorts RENAME COLUMN people TO number", "got tables of no version of justitia"),
    ],
)
def test_records_of_another_version_are_refused_in_one_sentence(statement: str, sentence: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    (folder / "custodian.toml").write_text(settings_text("holder", tls=False))
    earlier(folder)
    with closing(sqlite3.connect(folder / "custodian.sqlite")) as connection:
        connection.execute(statement)
    before = (folder / "custodian.sqlite").read_bytes()
    for words in (("serve", folder, "--check"), ("audit", folder), ("retire", folder, "--population", "people")):
        assert sentence in said(run("custodian", *words))
    assert (folder / "custodian.sqlite").read_bytes() == before


def test_records_that_are_no_database_are_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "holder")
    (folder / "custodian.toml").write_text(settings_text("holder", tls=False))
    (folder / "custodian.sqlite").write_text("words " * 1000)
    assert "expected the records of a custodian" in said(run("custodian", "audit", folder))


# -- the custodian's name, and what is said in it


@pytest.mark.parametrize(
    "name", ["plain", 'it\'s "ours"', '"""', "'''", "back\\slash \\u0041", "Bürgeramt 東京 𝔘", "#=x"]
)
def test_name_of_a_custodian_is_read_as_it_was_given(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "holder"
    made = run("custodian", "init", folder, "--name", name)
    assert made.exit_code == 0, made.output
    assert ServiceSettings.read(folder).name == name
    assert run("custodian", "serve", folder, "--check").exit_code == 0


@pytest.mark.parametrize(
    "name", ["", "two\nlines", "bell\a", "delete\x7f", "escape\x1b[2J", "right\u202eleft", "\ud800"]
)
def test_name_with_control_characters_is_refused_before_anything_is_made(name: str, tmp_path: Path) -> None:
    found = run("custodian", "init", tmp_path / "holder", "--name", name)
    assert "without control characters" in said(found)
    assert not (tmp_path / "holder").exists()
    (tmp_path / "custodian.toml").write_text(f"name = {json.dumps(name)}", encoding="utf-8")
    with pytest.raises(ValueError, match="expected"):
        ServiceSettings.read(tmp_path)


def test_certificate_speaks_of_what_was_answered_and_quotes_the_client(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder")) as service:
        ask = Caller(service)
        ask.sums(ask.cohort(), ROWS)
        for subject, quoted in (
            ("This model, checked by the custodian,", "'This model, checked by the custodian,'"),
            ("a 'fair' model", "\"a 'fair' model\""),
        ):
            statement = ask("GET", "/v1/populations/people/certificate", subject=subject, planned=7).facts["statement"]
            assert statement.startswith("Everything that was answered about 'people' is (")
            assert statement.endswith(f"and what was made of them: {quoted}.")
            assert "states that 7 answers were planned before the first" in statement
        assert ask("GET", "/v1/populations/people/certificate", subject="x\x1b[2J\u202e").status == 422


@pytest.mark.filterwarnings("ignore::UserWarning")  # few people, large noise
def test_certificate_of_a_fit_says_who_states_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUSTITIA_CUSTODIAN_KEY", KEYS["trainer"])
    with served(make_folder(tmp_path / "holder")) as url:
        holder = Custodian(url, population="people", ids=IDS)
        model = LagrangianDualClassifier(epsilon=2.0, delta=DELTA, groups=["a", "b"], random_state=0)
        statement = model.fit(DATA.X, DATA.y, sensitive_features=holder).certificate_.statement
    assert statement.startswith("Everything that was answered about 'people'")
    assert statement.endswith("and what was made of them: 'Every output of training'.")


def test_facts_do_not_reveal_how_many_are_registered(tmp_path: Path) -> None:
    with opened(make_folder(tmp_path / "holder", LABELS[:123], ids=IDS[:123])) as service:
        facts = Caller(service)("GET", "/v1/populations/people").facts
    assert "people" not in facts
    assert 123 not in facts.values()
