"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from justitia.cli.bases import BASES, DEFAULT
from justitia.cli.command import Names, Numbers, OneOf
from justitia.cli.custodian_options import CustodianOptions
from justitia.cli.files.attribute import Where
from justitia.engines import OLD_NAMES, PLANS, POST_PROCESSING, renamed_sentence
from justitia.notions import FAIRLEARN_NAMES, NOTIONS

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Function], Function]

FILE = click.Path(path_type=Path)
NOTION = OneOf("notion", sorted(NOTIONS), FAIRLEARN_NAMES)
#: Names of version 0.1 are taken with a warning.
RENAMED = {old: (new, renamed_sentence(old)) for old, new in OLD_NAMES.items()}
ENGINE = OneOf("engine", list(PLANS), renamed=RENAMED)
BASE = OneOf("base", list(BASES))


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one decorator, shown in this order."""
    return lambda function: functools.reduce(lambda made, option: option(made), reversed(options), function)


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else to the standard output.")

reading = together(
    click.option("--separator", help="Between columns of a CSV; 'tab' for tabs. By default ',' or as in training."),
    click.option("--encoding", help="Of a CSV; by default utf-8 or as in training."),
)

#: How numbers and dates are written in a CSV; a model remembers what it was trained with.
formats = together(
    click.option("--decimal", metavar="MARK", help="Decimal mark of numbers in a CSV, '.' or ','."),
    click.option("--thousands", metavar="MARK", help="Mark between thousands: '.', ',', \"'\" or ' '."),
    click.option(
        "--date", "dates", multiple=True, metavar="COLUMN=%d/%m/%Y", help="How dates are written; they become numbers."
    ),
)

_place = together(
    click.option(
        "--sensitive", "sensitive", multiple=True, metavar="COLUMN", help="Sensitive column; several are crossed."
    ),
    click.option(
        "--sensitive-file", type=FILE, help="File that holds it, or folder of Parquet files, if it is not in DATA."
    ),
    click.option("--key", metavar="COLUMN", help="Column that joins the two files."),
    click.option(
        "--groups",
        multiple=True,
        metavar="A,B",
        help="Public names of the groups; COLUMN=A,B for several columns; 'infer' reads them off the data.",
    ),
    click.option("--bins", multiple=True, metavar="COLUMN=25,60", help="Public cut points of a numeric column."),
    click.option("--missing", metavar="TEXT", help="A text that means 'not given', besides an empty one."),
    click.option("--person", metavar="COLUMN", help="Public ids in DATA, where people have several rows."),
)
#: Gathered into one argument by `attribute`.
_WHERE = ("sensitive", "sensitive_file", "key", "groups", "bins", "missing", "person", "separator", "encoding")


def attribute(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say where the attribute is; the command gets them as one ``where``."""

    @functools.wraps(function)
    def gathered(**values: Any) -> Any:
        held = CustodianOptions.taken(values)
        where = Where(**{name: values.pop(name) for name in _WHERE}, custodian=held)
        return function(where=where, **values)

    decorated: Callable[..., Any] = together(_place, reading)(gathered)
    return decorated


#: Where the attribute is with its holder; `attribute` puts them into ``where``.
custodian = together(
    click.option("--custodian", metavar="URL", help="Ask the custodian at this address, who holds the attribute."),
    click.option("--population", metavar="NAME", help="Whom it holds; --key names the column with their ids."),
    click.option("--custodian-key", type=FILE, help="File with the key that it gave; or JUSTITIA_CUSTODIAN_KEY_FILE."),
    click.option("--custodian-ca", type=FILE, help="File with the authority that signed its certificate."),
    click.option("--custodian-certificate", type=FILE, help="PEM file with a certificate and key that it asks for."),
    click.option("--receipts", type=FILE, help="File that keeps its receipts, to notice a ledger that was put back."),
)
target = together(
    click.option("--target", metavar="COLUMN", help="Column to predict; it has two values."),
    click.option("--positive", metavar="VALUE", help="The target's positive value; by default the later in order."),
)
columns = together(
    click.option("--features", type=Names(), metavar="A,B", help="Columns to learn from; by default all others."),
    click.option("--drop", type=Names(), multiple=True, metavar="A,B", help="Columns to leave out."),
    click.option(
        "--categorical", type=Names(), multiple=True, metavar="A,B", help="Columns whose entries name levels."
    ),
    formats,
)
_NOTIONS = f"What is compared: {', '.join(sorted(NOTIONS))}."
notion = click.option(
    "--notion", type=NOTION, metavar="NAME", default="demographic_parity", show_default=True, help=_NOTIONS
)


def notions(default: str) -> Callable[[Any], Any]:
    """What a measurement compares."""
    told = f"Several may be given; by default {default}."
    return click.option("--notion", "notions", type=NOTION, metavar="NAME", multiple=True, help=told)


below = click.option(
    "--below",
    type=click.FloatRange(0, 1),
    metavar="FLOAT",
    help="Ask whether the violation is below this; exit code 4 if that is not shown.",
)
delta = click.option("--delta", type=float, default=1e-5, show_default=True, help="Of the guarantee; below 1/rows.")


def epsilon(default: float, what: str) -> Callable[[Any], Any]:
    """The privacy budget of this command."""
    return click.option("--epsilon", type=float, default=default, show_default=True, help=what)


reference = click.option(
    "--reference", metavar="GROUP", help="Group that ratios are taken to; by default that with the highest rate."
)
ledger = together(
    click.option("--ledger", type=FILE, help="File of a budget that outlives this command; see 'justitia budget'."),
    click.option("--ledger-name", metavar="NAME", help="Public name of these people; checked, or given to a new file."),
    click.option("--ledger-epsilon", type=float, help="Total budget of a ledger that is not there yet."),
)
settings = together(
    notion,
    epsilon(1.0, "Privacy budget; 'inf' trains without privacy, and says so."),
    delta,
    click.option(
        "--engine",
        type=ENGINE,
        metavar="NAME",
        help=f"One of {', '.join(PLANS)}; by default {POST_PROCESSING}, and moments where --hidden is given.",
    ),
    click.option("--seed", type=click.IntRange(min=0), help="Of public randomness; never of the noise."),
    click.option(
        "--small-groups",
        is_flag=True,
        help="Train even if groups are too small to be compared, and do not ask for their sizes first.",
    ),
    click.option("--plan", "plan_file", type=FILE, help="TOML file with settings of the engine."),
    click.option("--hidden", type=Numbers(whole=True), metavar="20,10", help="Widths of a network's hidden layers."),
)
#: What engine post-processing corrects, and where it decides.
deciding = together(
    click.option(
        "--base",
        type=BASE,
        metavar="NAME",
        help=f"Model of the target that is trained and corrected: {' or '.join(BASES)}; by default {DEFAULT}.",
    ),
    click.option(
        "--base-column",
        metavar="COLUMN",
        help="Probability of the positive answer by a model of yours: a column of DATA, public like every feature.",
    ),
    click.option(
        "--threshold", type=float, default=0.5, show_default=True, help="Decide for the positive answer above it."
    ),
)
stream = click.option(
    "--stream", is_flag=True, help="Read Parquet a few rows at a time; folders and patterns always are."
)
workers = click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that share the rows."
)
#: File and settings of a command that trains.
training = together(
    click.argument("data", type=FILE), target, attribute, custodian, columns, settings, deciding, stream
)
#: What is asked of one model; a curve has a grid of its own.
tolerance = click.option("--tolerance", type=float, help="Largest difference between two groups that is allowed.")
overwrite = click.option("--overwrite", is_flag=True, help="Replace what an earlier run wrote.")


def out(what: str) -> Callable[[Any], Any]:
    """The folder or file that this command writes."""
    return together(click.option("--out", type=FILE, required=True, help=what), overwrite)
