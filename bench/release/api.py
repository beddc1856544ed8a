"""The public API as text, and its record in ``tests/public_api.txt``: ``make api``.

The record has one line per public name: of Python the names and signatures below, of the command line every option. A
line that begins with ``+`` or ``-`` came or went since the last release. ``tests/test_public_api.py`` fails when the
record is not what the code has, and when a line that came or went is not named in the changelog's section "Unreleased".
``make api RELEASED=1`` drops the marks when a version is released.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from justitia.notions import FairnessNotion

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "tests" / "public_api.txt"
CHANGELOG = ROOT / "CHANGELOG.md"
HEADER = "# Public names since {version}; `make api` writes this file, docs/compatibility.md says what it means."
#: Modules whose names are public, and which; None for all that the module lists in ``__all__``.
PUBLIC: dict[str, tuple[str, ...] | None] = {
    "justitia": None,
    "justitia.audit": ("AuditResult", "audit"),
    "justitia.custodian": None,
    "justitia.datasets": None,
    "justitia.exceptions": (),  # every class; see below
    "justitia.metrics.displays": ("ImpactDisplay", "MeasurementDisplay", "TradeoffDisplay"),
    "justitia.metrics.exact": (),  # every function
    "justitia.metrics.scorer": ("private_scorer",),
    "justitia.monitor": ("MonitorEntry", "MonitorSettings"),
    "justitia.notions": (),  # every class
    "justitia.persistence.folder": ("saved_task",),
    "justitia.persistence.onnx": ("to_onnx",),
    "justitia.persistence.tracking": ("log_to_mlflow",),
    "justitia.report": None,
}
#: Modules of which every name is public that is not one of these.
NOT_PUBLIC = {"Diagnostic", "Metric", "Notice", "warn_of"}
#: Public names of ``justitia`` that ``__all__`` leaves out, since importing them needs torch.
PLANS = ("MomentsPlan", "PFLDAsPublishedPlan", "PFLDPlan")
_PLAN = ("calibrate", "costs", "epsilon", "releases")
_LEDGER = ("certificate", "check", "costs", "epsilon", "releases", "remaining")
#: Classes with members for other parts of the library: those that users may rely on.
MEMBERS: dict[str, tuple[str, ...]] = {
    "Custodian": ("facts", "groups"),
    "DurableLedger": (*_LEDGER, "close", "export", "open", "receipt", "verify"),
    "MomentsPlan": _PLAN,
    "PFLDAsPublishedPlan": _PLAN,
    "PFLDPlan": _PLAN,
    "PostProcessingPlan": _PLAN,
    "PrivacyLedger": _LEDGER,
    "RowFiles": ("features", "names", "open"),
    "SensitiveColumns": (),
}
#: Names of version 0.1 that still work, with a warning; they are not part of the record and go with version 1.1.
DEPRECATED = {"justitia.Tradeoff.spread"}
#: Classes that users get and do not make: attributes and methods are public, the constructor is not.
RESULTS = {
    *("AuditResult", "Certificate", "Dataset", "GroundTruth", "Measurement", "Monitor", "MonitorEntry"),
    *("MonitorSettings", "Report", "RowFiles", "SearchResult", "SyntheticDataset", "Tradeoff"),
    *("ImpactDisplay", "MeasurementDisplay", "TradeoffDisplay"),
}


def public_names(module: str) -> list[str]:
    """Names of a module that are public."""
    loaded, listed = import_module(module), PUBLIC[module]
    if listed:
        return sorted(listed)
    if listed is None:
        return sorted({*loaded.__all__, *(PLANS if module == "justitia" else ())})
    return sorted({*_defined(loaded)} - NOT_PUBLIC)


def _defined(module: Any) -> Iterator[str]:
    """Names of what a module defines: of notions and exceptions the classes, of metrics the functions."""
    kind = callable if module.__name__.endswith("exact") else inspect.isclass
    for name, value in vars(module).items():
        if not name.startswith("_") and kind(value) and getattr(value, "__module__", "") == module.__name__:
            yield name


def describe() -> list[str]:
    """Today's public API, one line per name."""
    lines: set[str] = set()
    for module in PUBLIC:
        loaded = import_module(module)
        for name in public_names(module):
            lines.update(_lines(f"{module}.{name}", getattr(loaded, name)))
    return sorted(lines - DEPRECATED) + sorted(_commands())


def _lines(name: str, value: Any) -> Iterator[str]:
    """A function with its parameters; a class with its constructor, methods and attributes; a constant by its name."""
    if not inspect.isclass(value):
        yield f"{name}({_parameters(value)})" if callable(value) else name
        return
    yield name if value.__name__ in RESULTS else f"{name}({_parameters(value)})"
    if issubclass(value, FairnessNotion) and value is not FairnessNotion:
        return  # its members are those of the interface
    members = _members(value)
    chosen = MEMBERS.get(value.__name__, sorted({*members, *_documented(value), *_stored(value)}))
    for one in chosen:
        yield from _member(f"{name}.{one}", members.get(one))


def _members(kind: type) -> dict[str, Any]:
    """Public members that our own classes define; those of scikit-learn and of Python are theirs."""
    found: dict[str, Any] = {}
    for parent in reversed(kind.__mro__):
        if parent.__module__.partition(".")[0] == "justitia":
            found |= {name: value for name, value in vars(parent).items() if not name.startswith("_")}
    for name in ("set_fit_request", "set_score_request"):  # scikit-learn's
        found.pop(name, None)
    return found


def _member(name: str, value: Any) -> Iterator[str]:
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if inspect.isfunction(function):
        yield f"{name}({_parameters(function, bound=not isinstance(value, staticmethod))})"
    else:
        yield name


def _stored(kind: type) -> list[str]:
    """Fields of a result; those of a class with a public constructor are in its signature."""
    named = fields(kind) if kind.__name__ in RESULTS and is_dataclass(kind) else ()
    return [one.name for one in named if not one.name.startswith("_")]


def _documented(kind: type) -> list[str]:
    """Attributes that the docstring lists, such as those that ``fit`` sets."""
    _, _, section = (inspect.getdoc(kind) or "").partition("Attributes\n----------\n")
    section = re.split(r"^\w[^\n]*\n---", section, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^(\w+) :", section, re.MULTILINE)


def _parameters(function: Any, *, bound: bool = False) -> str:
    """Names, kinds and defaults. Annotations are not part of the record: a more exact type breaks nobody."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[int(bound) :]
    except ValueError:  # a class whose constructor is written in C has no signature
        return "..."
    plain = [one.replace(annotation=inspect.Parameter.empty, default=_default(one.default)) for one in parameters]
    return str(inspect.Signature(plain))[1:-1]


class _Text:
    """A default as text that is the same in every process."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _default(value: Any) -> Any:
    if value is inspect.Parameter.empty or isinstance(value, int | float | str | tuple | None):
        return value
    return _Text("<factory>" if "FACTORY" in type(value).__name__ else f"<{type(value).__name__}>")


def _commands() -> Iterator[str]:
    from justitia.cli import cli  # noqa: PLC0415 - loads every command

    yield from _options("justitia", cli)


def _options(name: str, command: click.Command) -> Iterator[str]:
    """Every option and argument of a command, and those of its subcommands."""
    yield f"$ {name}"
    for one in command.params:
        is_argument = isinstance(one, click.Argument)
        shown = str(one.name).upper() if is_argument else "/".join([*one.opts, *one.secondary_opts])
        notes = ["required"] if one.required else []
        notes += ["repeated"] if getattr(one, "multiple", False) or one.nargs == -1 else []
        yield " ".join([f"$ {name} {shown}", *notes])
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name.rpartition(" ")[2])
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            if found is not None and not found.hidden:
                yield from _options(f"{name} {sub}", found)


# ------------------------------------------------------------------ the record


def read_record() -> tuple[str, list[str], list[str]]:
    """Version of the last release, today's lines, and lines with the marks of what came or went since."""
    header, *lines = RECORD.read_text(encoding="utf-8").splitlines()
    version = header.removeprefix("# Public names since ").partition(";")[0]
    today = [line[2:] for line in lines if line[0] in " +"]
    return version, today, [line for line in lines if line[0] in "+-"]


def write_record(*, released: bool, version: str) -> None:
    """Today's API; without ``released``, with marks against the API of the release that the file records."""
    today = describe()
    since, before = version, set(today)
    if not released and RECORD.exists():
        since, lines, marks = read_record()
        came = {line[2:] for line in marks if line[0] == "+"}
        before = (set(lines) - came) | {line[2:] for line in marks if line[0] == "-"}
    marked = [(line, "  " if line in before else "+ ") for line in today]
    marked += [(line, "- ") for line in before - set(today)]
    body = [mark + line for line, mark in sorted(marked)]
    RECORD.write_text("\n".join([HEADER.format(version=since), *body]) + "\n", encoding="utf-8")


def unreleased() -> str:
    """The changelog's section of what is not released yet; empty if there is none."""
    text = CHANGELOG.read_text(encoding="utf-8")
    found = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def short_name(line: str) -> str:
    """What a changelog has to name for a line of the record: the last name of Python, the option of a command."""
    if line.startswith("$ "):
        words = [word for word in line[2:].split() if word not in {"required", "repeated"}]
        return words[-1].partition("/")[0]
    return line.partition("(")[0].rpartition(".")[2]


def missing_from_changelog() -> list[str]:
    """Lines that came or went since the last release and that the changelog does not name."""
    text, (_, _, marks) = unreleased(), read_record()
    return [line for line in marks if not re.search(rf"`[^`\n]*{re.escape(short_name(line[2:]))}\b[^`\n]*`", text)]


def main() -> None:
    """Write the record, and say what the changelog does not name yet."""
    parser = argparse.ArgumentParser(description="Write tests/public_api.txt.")
    parser.add_argument("--released", action="store_true", help="A version is released: no marks.")
    version = import_module("justitia").__version__
    write_record(released=parser.parse_args().released, version=version)
    for line in missing_from_changelog():
        print(f"name it in CHANGELOG.md under [Unreleased]: {line}")


if __name__ == "__main__":
    main()
