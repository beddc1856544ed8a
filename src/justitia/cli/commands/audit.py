"""``justitia audit``: empirical lower bound on epsilon from attacks on your own settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from justitia.audit import audit as run_attack
from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import NOT_SHOWN, OK, Refusal
from justitia.cli.files.streamed import StreamedRows
from justitia.cli.goal import GoalOptions
from justitia.cli.output import json_value, print_result, print_warnings, warn, wrap
from justitia.cli.training import make_estimator, read_training_rows

EXAMPLE = """
$ justitia audit people.csv --target y --sensitive group --groups a,b \\
    --epsilon 4 --runs 100
"""
ATTACKS = ("mechanism", "weights", "predictions", "one run")
NOT_PRIVATE = (
    "an audit reads the attribute exactly and its result is not private; run it on public or synthetic data, or keep "
    "the result confidential."
)


@click.command("audit", cls=Command, example=EXAMPLE)
@options.training
@click.option(
    "--attack", type=options.OneOf("attack", ATTACKS), default="mechanism", show_default=True, help="What is attacked."
)
@click.option("--runs", type=click.IntRange(min=8), default=1000, show_default=True, help="Of each neighbour.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the lower bound.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes.")
@options.as_json
def audit(
    data: Path,
    attack: str,
    runs: int,
    confidence: float,
    jobs: int,
    as_json: bool,
    **settings: Any,
) -> int:
    """Attack the attribute of one row and compare the result with the certificate.

    The settings are those of 'justitia train'; many models are trained with the attribute of one row changed. The
    result is NOT private, so use public or synthetic data. Exit code 4 if it exceeds what the certificate allows.
    """
    goal = GoalOptions.from_options(settings)
    if goal.stratum is not None:
        raise Refusal("an audit compares groups over all rows; leave out --stratum.")
    rows = read_training_rows(data, settings)
    if isinstance(rows, StreamedRows):
        raise Refusal("expected a file that is read at once, got one that is read a few rows at a time; audit a part.")
    if rows.person is not None:
        raise Refusal("an audit attacks the attribute of one row; leave out --person.")
    if rows.attribute.groups is None:
        raise Refusal("expected the public list of groups, got none; pass --groups.")
    warn(NOT_PRIVATE)
    with print_warnings() as warnings:
        found = run_attack(
            make_estimator(rows, settings, goal),
            rows.X,
            rows.labels,
            sensitive_features=rows.sensitive,
            proxy=rows.proxy,
            runs=runs,
            attack=attack,
            confidence=confidence,
            seed=settings["seed"],
            jobs=jobs,
        )
    facts = {"private": False, "lower": found.lower, "epsilon": found.epsilon, "verdict": found.verdict}
    facts |= {"exceeded": bool(found.exceeded), "runs": runs, "attack": attack, "warnings": warnings}
    print_result(json_value(facts), wrap(found.verdict), as_json=as_json)
    return NOT_SHOWN if found.exceeded else OK
