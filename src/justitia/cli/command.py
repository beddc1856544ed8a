"""Click classes of the command line: help with examples, errors as one sentence with an exit code, lazy commands."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from justitia.cli.errors import EXIT_CODES, INTERRUPTED, OK, TRACEBACK, UNEXPECTED, describe_error, no_such
from justitia.cli.output import show_progress, wrap

STOPPED = "Stopped. What the ledger was debited stays debited; no partial file is left."


class Command(click.Command):
    """A command with an example at the end of its help.

    Parameters
    ----------
    example : str
        Shell lines; each command in them begins with ``$ ``.
    """

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option that is given twice, because the last of two budgets would count silently."""
        order = [] if ctx.resilient_parsing else self.make_parser(ctx).parse_args(list(args))[2]
        for one in order:
            if order.count(one) > 1 and isinstance(one, click.Option) and not (one.multiple or one.is_flag):
                raise click.UsageError(f"expected {one.opts[0]} once, got it twice; leave one out.", ctx)
        return super().parse_args(ctx, args)

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example without wrapping it."""
        write_example(self.example, formatter)


def write_example(example: str, formatter: click.HelpFormatter) -> None:
    """Write shell lines under a heading."""
    formatter.write_paragraph()
    formatter.write("Example:\n")
    for line in example.strip().splitlines():
        formatter.write(f"  {line.rstrip()}\n")


class Commands(click.Group):
    """A group of commands; every exception that leaves one becomes a sentence and an exit code."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember the words of the command line, which a model's facts record."""
        ctx.meta.setdefault("justitia.words", list(args))
        return super().parse_args(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Names in the order in which commands were added."""
        return list(self.commands)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of each command, never cut."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=200)) for name, one in self.commands.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Suggest the nearest command for a name that is none."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise no_such("command", args[0], self.list_commands(ctx), place=ctx.command_path)
        return super().resolve_command(ctx, args)

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **options: Any
    ) -> Any:
        """Run the command and exit with its code."""
        options["standalone_mode"] = False
        try:
            code = super().main(args, prog_name, **options)
        except (KeyboardInterrupt, click.Abort):
            show_progress("")
            click.echo(STOPPED, err=True)
            code = INTERRUPTED
        except click.exceptions.NoArgsIsHelpError as asked:
            click.echo(asked.format_message())
            code = OK
        except BrokenPipeError:
            # The reader has closed the pipe; Python would fail once more when it flushes the standard output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = UNEXPECTED
        except Exception as error:  # noqa: BLE001 - the one place where all of them end
            if os.environ.get(TRACEBACK):
                traceback.print_exc()
            code, sentence = describe_error(error)
            show_progress("")
            click.echo(wrap(f"error: {sentence}", indent=7), err=True)
        sys.exit(code or 0)


class Root(Commands):
    """The command ``justitia`` itself; it imports a command when it is needed, and its help lists the exit codes.

    Parameters
    ----------
    table : mapping
        First sentence of each command's help by its name, so that the help of all imports none of their modules.
    package : str
        Package in which the command ``name`` is the function ``name`` of the module ``name``.
    example : str
        Shell lines, as for :class:`Command`.
    """

    group_class = Commands

    def __init__(self, *args: Any, table: Mapping[str, str], package: str, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table, self.package, self.example = table, package, example

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, whose module is imported on first use."""
        if cmd_name in self.table and cmd_name not in self.commands:
            words = set(ctx.meta.get("justitia.words", ()))
            if words and not words & {"-h", "--help"} and not ctx.resilient_parsing:
                show_progress("starting")
            self.add_command(getattr(import_module(f"{self.package}.{cmd_name}"), cmd_name))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names in the table, and options."""
        names = [CompletionItem(name, help=text) for name, text in self.table.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a first example and the exit codes."""
        write_example(self.example, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])
