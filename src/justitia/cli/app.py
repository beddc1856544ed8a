"""The command ``justitia`` and everything below it."""

from __future__ import annotations

import signal

import click

from justitia.cli.command import Root
from justitia.cli.commands.audit import audit
from justitia.cli.commands.budget import budget
from justitia.cli.commands.compare import compare
from justitia.cli.commands.completion import completion
from justitia.cli.commands.datasets import datasets
from justitia.cli.commands.evaluate import evaluate
from justitia.cli.commands.plan import plan
from justitia.cli.commands.predict import predict
from justitia.cli.commands.report import report
from justitia.cli.commands.reproduce import reproduce
from justitia.cli.commands.split import split
from justitia.cli.commands.tradeoff import tradeoff
from justitia.cli.commands.train import train
from justitia.cli.files.facts import version

EXAMPLE = """
$ justitia datasets write synthetic --rows 3000 --out people.csv
$ justitia split people.csv --test 0.3
$ justitia train people-train.csv --target y --sensitive group \\
    --groups a,b --out model
$ justitia evaluate model people-test.csv --epsilon 1
"""


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


@click.group("justitia", cls=Root, example=EXAMPLE, context_settings=SETTINGS)
@click.version_option(version(), message="justitia %(version)s")
def cli() -> None:
    """Classifiers that treat groups alike, without anyone learning who is in which.

    Features, target and group names are public. The sensitive attribute is protected by differential privacy in
    everything that these commands print and write, unless they say otherwise (an infinite epsilon, --engine
    printed, --groups infer, evaluate --exact, audit).
    """


#: In the order in which they are used.
COMMANDS = (
    *(plan, datasets, split, train, predict, evaluate, report),
    *(tradeoff, compare, budget, audit, reproduce, completion),
)
for _command in COMMANDS:
    cli.add_command(_command)


def main() -> None:
    """Entry point of the command line; whoever ends the process politely is answered as Ctrl-C is."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cli.main(prog_name="justitia")
