"""Commands whose help shows an example, and choices that suggest the nearest name."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from justitia.cli.errors import EXIT_CODES, INTERRUPTED, OK, TRACEBACK, UNEXPECTED, no_such, told
from justitia.cli.output import doing, filled, warn
from justitia.cli.workers import STARTED

STOPPED = "Stopped. What the ledger was debited stays debited; nothing half-written is left."


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
        """Refuse an option that is given twice: of two budgets the last one would count, silently."""
        order = [] if ctx.resilient_parsing else self.make_parser(ctx).parse_args(list(args))[2]
        for one in order:
            if order.count(one) > 1 and isinstance(one, click.Option) and not (one.multiple or one.is_flag):
                raise click.UsageError(f"expected {one.opts[0]} once, got it twice; leave one out.", ctx)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example as it is."""
        del ctx
        write_example(self.example, formatter)


def write_example(example: str, formatter: click.HelpFormatter) -> None:
    """Shell lines under a heading."""
    formatter.write_paragraph()
    formatter.write("Example:\n")
    for line in example.strip().splitlines():
        formatter.write(f"  {line.rstrip()}\n")


class Commands(click.Group):
    """The commands, with one way out: every exception becomes a sentence and an exit code."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember the words of the command line, to say in a model's facts how it was made."""
        ctx.meta.setdefault("justitia.words", list(args))
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """First sentences, never cut."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=200)) for name, one in self.commands.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Suggest the nearest command."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise no_such("command", args[0], self.list_commands(ctx), place=ctx.command_path)
        return super().resolve_command(ctx, args)

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **options: Any
    ) -> Any:
        """Run, and leave with an exit code."""
        options["standalone_mode"] = False
        try:
            code = super().main(args, prog_name, **options)
        except (KeyboardInterrupt, click.Abort):
            doing("")
            if STARTED not in os.environ:  # whoever started this process says so
                click.echo(STOPPED, err=True)
            code = INTERRUPTED
        except click.exceptions.NoArgsIsHelpError as asked:
            click.echo(asked.format_message())
            code = OK
        except BrokenPipeError:
            # Whoever reads has seen enough; nothing more may be written there.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = UNEXPECTED
        except Exception as error:  # noqa: BLE001 - the one place where all of them end
            if os.environ.get(TRACEBACK):
                traceback.print_exc()
            code, sentence = told(error)
            doing("")
            click.echo(filled(f"error: {sentence}", indent=7), err=True)
        sys.exit(code or 0)


class Root(Commands):
    """The command ``justitia`` itself: it imports a command when it is needed, and its help ends with the exit codes.

    Parameters
    ----------
    table : mapping
        First sentence of each command's help by its name: the help of all needs none of their modules.
    package : str
        Where the command ``name`` is the function ``name`` of the module ``name``.
    example : str
        Shell lines, as for :class:`Command`.
    """

    group_class = Commands

    def __init__(self, *args: Any, table: Mapping[str, str], package: str, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table, self.package, self.example = table, package, example

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        del ctx
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, whose module is imported now if it was not before."""
        if cmd_name in self.table and cmd_name not in self.commands:
            words = set(ctx.meta.get("justitia.words", ()))
            if words and not words & {"-h", "--help"} and not ctx.resilient_parsing:
                doing("starting")
            self.add_command(getattr(import_module(f"{self.package}.{cmd_name}"), cmd_name))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of the table, and options."""
        names = [CompletionItem(name, help=text) for name, text in self.table.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a first way through, and the exit codes."""
        del ctx
        write_example(self.example, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


class OneOf(click.Choice[str]):
    """A choice whose error suggests the nearest name.

    Parameters
    ----------
    kind : str
        What is chosen, for errors.
    choices : sequence of str
    also : mapping, optional
        Other names for choices.
    renamed : mapping, optional
        Old names: the choice that each stands for, and the warning that it gives.
    """

    def __init__(
        self,
        kind: str,
        choices: Sequence[str],
        also: Mapping[str, str] | None = None,
        renamed: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        super().__init__(list(choices))
        self.kind = kind
        self.also = also or {}
        self.renamed = renamed or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value, if it is one of the choices."""
        value = self.also.get(value, value)
        if value in self.renamed:
            value, sentence = self.renamed[value]
            warn(sentence)
        if value not in self.choices:
            raise no_such(self.kind, str(value), self.choices)
        return super().convert(value, param, ctx)


class Names(click.ParamType[Any]):
    """Names separated by commas."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A list of names."""
        del param, ctx
        return [one.strip() for one in value.split(",") if one.strip()] if isinstance(value, str) else value


class Numbers(click.ParamType[Any]):
    """Numbers separated by commas."""

    name = "numbers"

    def __init__(self, *, whole: bool = False) -> None:
        self.whole = whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A list of numbers."""
        if not isinstance(value, str):
            return value
        try:
            found = [int(one) if self.whole else float(one) for one in value.split(",")]
            if self.whole and min(found) < 1:
                raise ValueError
            return found
        except ValueError:
            kind = "whole numbers of at least 1, such as 20,10" if self.whole else "numbers, such as 0,0.05"
            return self.fail(f"expected {kind}, got {value!r}.", param, ctx)
