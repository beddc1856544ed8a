"""The command ``justitia`` and the table of its subcommands."""

from __future__ import annotations

import signal

import click

from justitia.cli.command import Root

EXAMPLE = """
$ justitia datasets write synthetic --rows 3000 --out people.csv
$ justitia split people.csv --test 0.3
$ justitia train people-train.csv --target y --sensitive group \\
    --groups a,b --out model
$ justitia evaluate model people-test.csv --epsilon 1
"""

#: Name and first sentence of every command, in the order in which they are used. The command ``name`` is the function
#: ``name`` of the module ``justitia.cli.commands.name``, which is imported when it is run or asked for its own help.
COMMANDS = {
    "plan": "Show the releases of a training run, their privacy cost, and how precisely gaps can be measured.",
    "datasets": "List example datasets, or write one as CSV.",
    "split": "Write DATA's rows to two files, NAME-train and NAME-test, at random.",
    "train": "Train a model on DATA (CSV or Parquet) that treats groups alike.",
    "predict": "Predict decisions for the rows of DATA with a saved MODEL.",
    "evaluate": "Measure how MODEL treats groups in DATA.",
    "measure": "Measure how decisions in DATA (CSV or Parquet) treat groups, whoever made them.",
    "report": "Write a report about MODEL (HTML), a model card (Markdown) and the facts (JSON).",
    "tradeoff": "Train models on DATA along a grid of tolerances, all for the price of one.",
    "compare": "Measure several saved MODELS, and methods trained now, on the same rows.",
    "monitor": "Measure one model over time against a limit, and alert.",
    "budget": "Manage a privacy budget in a file: the total for all queries about a dataset.",
    "custodian": "Run a service that holds the attribute, answers noisy sums and keeps the ledger.",
    "audit": "Attack the attribute of one row and compare the result with the certificate.",
    "reproduce": "Reproduce the table or figure NAME of the evaluation.",
    "completion": "Print a script for SHELL (bash, zsh or fish) that completes commands and options.",
}
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


@click.group(
    "justitia", cls=Root, table=COMMANDS, package="justitia.cli.commands", example=EXAMPLE, context_settings=SETTINGS
)
@click.version_option(package_name="justitia", message="justitia %(version)s")
def cli() -> None:
    """Models that treat groups alike, without anyone learning who is in which.

    Features, target and group names are public. Everything that these commands print and write protects the sensitive
    attribute by differential privacy, unless they say otherwise (an infinite epsilon, --engine pf-ld-as-published,
    --groups infer, evaluate --exact, audit).
    """


def main() -> None:
    """Run the command line; SIGTERM is handled like Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cli.main(prog_name="justitia")
