"""``justitia completion``: shell completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from justitia.cli import options
from justitia.cli.command import Command
from justitia.cli.errors import Refusal
from justitia.cli.output import print_result

EXAMPLE = """
$ justitia completion zsh > _justitia
"""
SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_JUSTITIA_COMPLETE"


@click.command("completion", cls=Command, example=EXAMPLE)
@click.argument("shell", type=options.OneOf("shell", SHELLS))
@options.as_json
@click.pass_context
def completion(ctx: click.Context, shell: str, as_json: bool) -> None:
    """Print a script for SHELL (bash, zsh or fish) that completes commands and options.

    Write it where your shell looks for completions, or add the line eval "$(justitia completion bash)" to its start-up
    file.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise Refusal(f"this version of click cannot complete for {shell}; upgrade it.")
    script = kind.source_template % kind(ctx.find_root().command, {}, "justitia", VARIABLE).source_vars()
    print_result({"shell": shell, "script": script}, script, as_json=as_json)
