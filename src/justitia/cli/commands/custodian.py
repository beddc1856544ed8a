"""``justitia custodian``: administration of the service that holds the attribute."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from justitia.cli import options
from justitia.cli.command import Commands
from justitia.cli.errors import Refusal, shown_path
from justitia.cli.files.attribute import Where, read_registered
from justitia.cli.files.databases import DUCKDB, open_database
from justitia.cli.files.reading import Table, open_table
from justitia.cli.output import fields_text, print_result

INIT = """
$ justitia custodian init holder --client trainer --key-file trainer.key \\
    --population staff
"""
REGISTER = """
$ justitia custodian init holder --client trainer --key-file trainer.key \\
    --population staff
$ justitia custodian register holder secret.csv --population staff \\
    --id id --sensitive sex --groups Female,Male --epsilon 3
"""
SERVE = """
$ justitia custodian init holder
$ justitia custodian serve holder --check
"""
RETIRE = """
$ justitia custodian init holder --client trainer --key-file trainer.key \\
    --population staff
$ justitia custodian retire holder --client trainer
"""
AUDIT = """
$ justitia custodian init holder
$ justitia custodian audit holder
"""
_client = options.together(
    click.option(
        "--client", metavar="NAME", help="A client; with --key-file it gets a new key, which replaces its old one."
    ),
    click.option("--key-file", type=options.FILE, help="File for its key, which is not printed."),
    click.option("--roles", type=options.names, show_default="train,measure", help="Of train, measure, read."),
    click.option("--client-epsilon", type=float, help="Its own budget, within that of each population."),
)


@click.group("custodian", cls=Commands)
def custodian() -> None:
    """Run a service that holds the attribute, answers noisy sums and keeps the ledger.

    Clients pass --custodian URL to train and measure, and never see the attribute (docs/custodian.md).
    """


@custodian.command("init", example=INIT)
@click.argument("folder", type=options.FILE)
@click.option("--name", default="custodian", show_default=True, help="Name of the custodian in certificates.")
@click.option("--tls-for", metavar="HOST", help="Make a self-signed TLS certificate for this name or address.")
@_client
@click.option(
    "--population",
    "populations",
    multiple=True,
    metavar="NAME",
    help="Population that the key may query; several times for several.",
)
@options.as_json
def init(folder: Path, name: str, tls_for: str | None, as_json: bool, **client: Any) -> None:
    """Make FOLDER with settings, records, and a first client if one is named.

    A key is for the populations that are named with --population, which may be registered later.
    """
    _check_extra()
    from justitia.custodian.settings import (  # noqa: PLC0415 - an extra
        CERTIFICATE,
        CONFIG,
        KEY,
        private_file,
        private_folder,
        settings_text,
    )

    if (folder / CONFIG).exists():
        raise Refusal(f"{shown_path(folder)} is a custodian's folder already; choose another one.")
    text = settings_text(name, tls=tls_for is not None)
    _check_client({}, **client)
    tls = [] if tls_for is None else _tls(tls_for)
    private_folder(folder)
    private_file(folder / CONFIG).write_text(text, encoding="utf-8")
    for place, content in zip((CERTIFICATE, KEY), tls, strict=False):
        private_file(folder / place).write_bytes(content)
    made = _put_client(folder, **client)
    shown = {"settings": folder / CONFIG, "client": made or "none yet; see 'justitia custodian register --help'"}
    if tls:
        shown["certificate"] = folder / CERTIFICATE
    print_result({"folder": folder, "client": made}, f"Made: {folder}\n{fields_text(_texts(shown))}", as_json=as_json)


@custodian.command("register", example=REGISTER)
@click.argument("folder", type=options.FILE)
@click.argument("file", type=options.FILE, required=False)
@click.option("--table", metavar="NAME", help="Table of FILE, if that is DuckDB; without FILE, of Postgres.")
@click.option(
    "--database-file", type=options.FILE, help="File with its connection string; or JUSTITIA_CUSTODIAN_DATABASE."
)
@click.option(
    "--population",
    "populations",
    multiple=True,
    metavar="NAME",
    help="Public name of the population; without FILE, of one that a key may query.",
)
@click.option("--id", "key", metavar="COLUMN", help="Column with the ids that clients send.")
@click.option("--sensitive", multiple=True, metavar="COLUMN", help="Sensitive column; several are crossed.")
@click.option("--groups", multiple=True, metavar="A,B", help="Public names of the groups, fixed from now on.")
@click.option("--bins", multiple=True, metavar="COLUMN=25,60", help="Public cut points of a numeric column.")
@click.option("--missing", metavar="TEXT", help="A text that means 'not given', besides an empty one.")
@click.option("--epsilon", type=float, help="Total budget of all queries about this population.")
@click.option(
    "--keep-until", type=click.DateTime(["%Y-%m-%d"]), help="Date after which the attribute is to be retired."
)
@options.delta
@_client
@options.reading
@options.as_json
def register(
    folder: Path,
    file: Path | None,
    table: str | None,
    database_file: Path | None,
    populations: tuple[str, ...],
    key: str | None,
    epsilon: float | None,
    keep_until: datetime | None,
    delta: float,
    as_json: bool,
    **given: Any,
) -> None:
    """Register a population (FILE: CSV, Parquet or DuckDB), or give a client a key, or both.

    The attribute is copied into FOLDER, which only you can open. Groups and budget are fixed from then on. A running
    service uses the new population and the new keys at once.

    A key may use the populations that are named when it is made, and no other; without any, a new key has those of
    the client's old one. --client without --key-file lets the client's present key use the named populations too.
    """
    _check(folder)
    from justitia.custodian.populations import register as register_population  # noqa: PLC0415 - an extra
    from justitia.privacy.register import Register  # noqa: PLC0415 - needs pyarrow

    client = {name: given.pop(name) for name in ("client", "key_file", "roles", "client_epsilon")}
    client["populations"] = populations
    if file is None and table is None and client["client"] is None:
        raise Refusal("expected a population or a client, got neither; pass FILE with --population, or --client.")
    records = _records(folder)
    _check_client({one.name: one for one in records.clients()}, **client)
    facts: dict[str, Any] = {}
    if file is not None or table is not None:
        if not populations or key is None or epsilon is None:
            raise Refusal("expected --population, --id and --epsilon beside FILE or --table, got fewer; name them.")
        if len(populations) > 1:
            raise Refusal("expected one --population beside FILE or --table, got several; register one at a time.")
        where = Where(**given)
        groups, ids, attribute = read_registered(_open_source(file, table, database_file, where), where, key)
        held = Register.from_rows(ids, attribute)
        stated = {
            "source": " ".join(([] if file is None else [file.name]) + ([] if table is None else [f"table {table}"])),
            "keep_until": "" if keep_until is None else keep_until.date().isoformat(),
        }
        made = register_population(
            folder, records, populations[0], held, groups=groups, epsilon=epsilon, delta=delta, **stated
        )
        facts = {"population": made.name, "people": made.people, "groups": list(made.groups), "epsilon": made.epsilon}
    facts["client"] = _put_client(folder, **client)
    if "population" in facts:
        facts["clients"] = [one.name for one in records.clients() if facts["population"] in one.populations]
    shown = {name: value for name, value in facts.items() if value is not None}
    if shown.get("clients") == []:
        shown["clients"] = "none may query this population yet; pass --client NAME --population NAME"
    print_result(facts, f"Registered in {folder}\n{fields_text(_texts(shown))}", as_json=as_json)


@custodian.command("serve", example=SERVE)
@click.argument("folder", type=options.FILE)
@click.option("--check", is_flag=True, help="Only check settings and ledgers, and print the address.")
@click.option(
    "--socket", type=options.FILE, help="Serve the status page at this Unix socket, which this user alone can open."
)
@options.as_json
def serve(folder: Path, check: bool, socket: Path | None, as_json: bool) -> None:
    """Answer clients until stopped; requests in progress are completed first."""
    settings = _check(folder)
    if socket is not None:
        settings = replace(settings, page_socket=str(socket))
    from justitia.custodian.server import serve as run  # noqa: PLC0415 - an extra

    _records(folder)  # refuses those of another version, in one sentence
    scheme = "https" if settings.tls_certificate else "http"
    page = f"http://127.0.0.1:{settings.page_port}" if settings.page_port else "none"
    page = f"Unix socket {settings.page_socket}" if settings.page_socket else page
    facts = {"address": f"{scheme}://{settings.host}:{settings.port}", "page": page}
    print_result(facts, f"Custodian {settings.name!r} in {folder}\n{fields_text(facts)}", as_json=as_json)
    if not check:
        run(folder, settings)


@custodian.command("retire", example=RETIRE)
@click.argument("folder", type=options.FILE)
@click.option("--population", metavar="NAME", help="Delete the attribute of this population; ledger and receipts stay.")
@click.option("--client", metavar="NAME", help="Delete this client's key.")
@options.as_json
def retire(folder: Path, population: str | None, client: str | None, as_json: bool) -> None:
    """Delete the attribute of a population, or a client's key, and keep the record of all queries.

    A running service forgets the attribute within a second. Files that a killed 'register' has left are deleted, too.
    """
    _check(folder)
    from justitia.custodian import populations as registered  # noqa: PLC0415 - an extra

    records = _records(folder)
    if (population is None) == (client is None):
        raise Refusal("expected one of --population and --client; name what is to be retired.")
    if client is not None:
        if client not in {one.name for one in records.clients()}:
            raise Refusal(f"there is no client {client!r} here; 'justitia custodian audit' lists them.")
        records.drop_clients([client])
    elif population is not None and not registered.retire(folder, records, registered.check_name(population)):
        raise Refusal(f"there is no population {population!r} here; 'justitia custodian audit' lists them.")
    what = f"client {client!r}" if population is None else f"population {population!r}"
    print_result({"population": population, "client": client}, f"Retired: {what}", as_json=as_json)


@custodian.command("audit", example=AUDIT)
@click.argument("folder", type=options.FILE)
@options.as_json
def audit(folder: Path, as_json: bool) -> None:
    """Check every ledger and chain of receipts, and list the debits of each client."""
    settings = _check(folder)
    from justitia.custodian.populations import ledger_file, unfinished  # noqa: PLC0415 - an extra
    from justitia.privacy.durable_ledger import DurableLedger  # noqa: PLC0415 - an extra

    records, found = _records(folder), []
    for one in records.populations():
        ledger = DurableLedger.open(ledger_file(folder, one.name))
        receipts = records.receipts(one.name)
        for receipt, _ in receipts:
            ledger.verify(receipt["ledger"])
        runs = [run for run, _ in ledger.releases_by_run()]
        by_client = {
            name: sum(run.rpartition("/")[0] == name for run in runs)
            for name in sorted({r.rpartition("/")[0] for r in runs})
        }
        facts = {"people": one.people, "retired": one.retired, "debits": len(runs), "receipts": len(receipts)}
        facts |= {"source": one.source, "keep_until": one.keep_until}
        spent = {"epsilon": one.epsilon, "delta": one.delta, "spent": ledger.epsilon()}
        found.append({"population": one.name, **facts, **spent, "debits_by_client": by_client})
    clients = [
        {
            "client": one.name,
            "roles": list(one.roles),
            "epsilon": one.epsilon,
            "populations": list(one.populations),
        }
        for one in records.clients()
    ]
    left = unfinished(folder, records)
    lines = [f"Custodian {settings.name!r}: ledgers and receipts are valid"]
    for one in found:
        who = ", ".join(f"{name} {count}" for name, count in one["debits_by_client"].items()) or "none"
        state = f"retired {one['retired']}" if one["retired"] else f"{one['people']:,} people"
        lines.append(
            f"  {one['population']}: {state}; epsilon {one['spent']:.4g} of {one['epsilon']:g} in {one['debits']} "
            f"debits (clients: {who}), {one['receipts']} receipts"
        )
    lines += [
        f"  client {one['client']}: {', '.join(one['roles'])}; populations: {', '.join(one['populations']) or 'none'}"
        for one in clients
    ]
    lines += [
        f"  {name}: files of a registration that did not finish; 'justitia custodian retire' deletes them"
        for name in left
    ]
    print_result({"populations": found, "clients": clients, "unfinished": left}, "\n".join(lines), as_json=as_json)


def _tls(host: str) -> tuple[bytes, bytes]:
    from justitia.custodian.settings import self_signed  # noqa: PLC0415 - an extra

    try:
        return self_signed(host)
    except ValueError:
        raise Refusal(f"expected --tls-for to be the name or the address of a host, got {host!r}.") from None


def _open_source(file: Path | None, table: str | None, database_file: Path | None, where: Where) -> Table:
    """The file or the table of a database with the attribute."""
    if file is None or table is not None or file.suffix.lower() in DUCKDB:
        return open_database(file, table, database_file)
    return open_table(file, where.separator, where.encoding)


def _texts(facts: dict[str, Any]) -> dict[str, str]:
    return {
        name: ", ".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in facts.items()
    }


def _check_extra() -> None:
    try:
        import msgspec  # noqa: F401, PLC0415 - an extra

        import justitia.custodian  # noqa: F401, PLC0415
    except ImportError:
        raise Refusal("a custodian needs more packages; run pip install 'justitia[custodian]'.") from None


def _check(folder: Path) -> Any:
    """The settings of this folder."""
    _check_extra()
    from justitia.custodian.settings import ServiceSettings  # noqa: PLC0415 - an extra

    return ServiceSettings.read(folder)


def _records(folder: Path) -> Any:
    from justitia.custodian.records import Records  # noqa: PLC0415 - an extra

    return Records(folder)


def _check_client(
    known: Mapping[str, Any],
    *,
    client: str | None,
    key_file: Path | None,
    roles: list[str] | None,
    client_epsilon: float | None,
    populations: tuple[str, ...],
) -> None:
    """Refuse wrong options of a client before anything is written."""
    from justitia.custodian.populations import check_name  # noqa: PLC0415 - an extra
    from justitia.custodian.records import ROLES  # noqa: PLC0415

    for name in populations:
        check_name(name)
    if client is None:
        if key_file is not None:
            raise Refusal("expected --client beside --key-file, got none; name the client whose key it is.")
        return
    if not client.isidentifier() and not all(letter.isalnum() or letter in "-_." for letter in client):
        raise Refusal(f"expected a name of letters, digits, '-', '_' and '.' for a client, got {client!r}.")
    if key_file is None:
        changed = roles is not None or client_epsilon is not None
        _check_allowed(client, known, populations, changed=changed)
        return
    strange = [role for role in roles or () if role not in ROLES]
    if strange or roles == []:
        raise Refusal(f"expected roles among {', '.join(ROLES)}, got {', '.join(strange) or 'none'}.")
    if client_epsilon is not None and not 0 < client_epsilon < math.inf:
        raise Refusal(f"expected --client-epsilon to be a positive number, got {client_epsilon!r}.")
    if not populations and (client not in known or not known[client].populations):
        raise Refusal(
            f"expected --population beside --client {client}, got none; a key is for named populations only: name "
            "them, also those that will be registered later."
        )


def _check_allowed(client: str, known: Mapping[str, Any], populations: tuple[str, ...], *, changed: bool) -> None:
    """Refuse changes that need a new key; without one only the list of populations can grow."""
    if client not in known:
        raise Refusal(f"expected --key-file beside --client {client}, who has no key yet; name a new file.")
    if not populations or changed:
        raise Refusal(
            "expected --key-file, or --population alone, beside a known --client, because without a new key only the "
            "list of populations can grow; name a new file for other roles or another budget."
        )


def _put_client(
    folder: Path,
    *,
    client: str | None,
    key_file: Path | None,
    roles: list[str] | None,
    client_epsilon: float | None,
    populations: tuple[str, ...],
) -> str | None:
    """Write a client's new key to a file that only this user can read; without a file, add populations to its key."""
    from justitia.custodian.records import Client  # noqa: PLC0415 - an extra
    from justitia.privacy.keys import key_hash, new_key  # noqa: PLC0415

    if client is None:
        return None
    records = _records(folder)
    known = {one.name: one for one in records.clients()}
    if key_file is None:
        records.allow(client, populations)
        return f"{client}, may now query {', '.join(populations)}, too"
    listed = populations or known[client].populations
    roles = ["train", "measure"] if roles is None else roles
    key = new_key()
    try:
        handle = os.open(key_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise Refusal(f"{shown_path(key_file)} exists; choose a new file for the key.") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(key + "\n")
    records.put_client(Client(client, tuple(roles), client_epsilon, key_hash(key), tuple(dict.fromkeys(listed))))
    return f"{client} ({', '.join(roles)}; may query {', '.join(listed)}), key in {key_file}"
