"""Options that commands share, and what is made of them: the ledger, the plan and the base model.

An option is a decorator of a command. Commands take their options as one dictionary; the classes with ``from_options``
take theirs out of it, here and in :mod:`justitia.cli.files`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from justitia.cli.errors import Refusal, no_such, shown_path
from justitia.cli.output import warn
from justitia.engines import OLD_NAMES, PLANS, POST_PROCESSING, plan_class, renamed_sentence
from justitia.learners.base import CrossFitted
from justitia.metrics.means import NUMBER_NOTIONS
from justitia.notions import DEFAULT_ENGINE_NOTIONS, FAIRLEARN_NAMES, NOTIONS
from justitia.postprocessing.plan import PostProcessingPlan
from justitia.preprocessing.tables import TASKS
from justitia.privacy.durable_ledger import DurableLedger
from justitia.tasks import BINARY, Task
from justitia.training.plan import Plan

# -- Types of values


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
        Old names and the choice that each stands for, with a warning.
    """

    def __init__(
        self,
        kind: str,
        choices: Sequence[str],
        also: Mapping[str, str] | None = None,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(list(choices))
        self.kind = kind
        self.also = also or {}
        self.renamed = renamed or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value, if it is one of the choices."""
        value = self.also.get(value, value)
        if value in self.renamed:
            warn(renamed_sentence(value))
            value = self.renamed[value]
        if value not in self.choices:
            raise no_such(self.kind, str(value), self.choices)
        return super().convert(value, param, ctx)


def names(text: str) -> list[str]:
    """Names separated by commas."""
    return [one.strip() for one in text.split(",") if one.strip()]


def numbers(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(one) for one in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"expected numbers, such as 0,0.05, got {text!r}.") from None


def whole_numbers(text: str) -> list[int]:
    """Whole numbers of at least 1, separated by commas."""
    try:
        found = [int(one) for one in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise click.BadParameter(f"expected whole numbers of at least 1, such as 20,10, got {text!r}.")
    return found


FILE = click.Path(path_type=Path)
#: Notions that models are trained for, and those that are measured.
TRAINED_NOTIONS = sorted({*NOTIONS, *DEFAULT_ENGINE_NOTIONS, *NUMBER_NOTIONS})
MEASURED_NOTIONS = sorted({*NOTIONS, *NUMBER_NOTIONS})
NOTION = OneOf("notion", TRAINED_NOTIONS, FAIRLEARN_NAMES)
MEASURED_NOTION = OneOf("notion", MEASURED_NOTIONS, FAIRLEARN_NAMES)
#: Names of version 0.1 are accepted with a warning.
ENGINE = OneOf("engine", list(PLANS), renamed=OLD_NAMES)
#: Base models that a folder can keep without pickle; others are for Python, or are passed as a column of scores.
BASES = ("lightgbm", "logistic", "linear")


# -- Options


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one decorator; help shows them in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else to the standard output.")
verbose = click.option("--verbose", is_flag=True, help="List all columns, however many there are.")

reading = together(
    click.option("--separator", help="Between columns of a CSV; 'tab' for tabs. By default ',' or as in training."),
    click.option("--encoding", help="Of a CSV; by default utf-8 or as in training."),
)

#: How numbers and dates are written in a CSV; a model remembers what it was trained with.
formats = together(
    click.option("--decimal", metavar="MARK", help="Decimal mark of numbers in a CSV, '.' or ','."),
    click.option("--thousands", metavar="MARK", help="Mark between thousands: '.', ',', \"'\" or ' '."),
    click.option(
        "--date", "dates", multiple=True, metavar="COLUMN=%d/%m/%Y", help="Format of dates, which become numbers."
    ),
)

#: Where the attribute is in files; ``Where.from_options`` takes these and those of ``custodian``.
attribute = together(
    click.option("--sensitive", multiple=True, metavar="COLUMN", help="Sensitive column; several are crossed."),
    click.option(
        "--sensitive-file", type=FILE, help="File, or folder of Parquet files, with that column, if it is not in DATA."
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
    click.option("--person", metavar="COLUMN", help="Public ids in DATA, where individuals have several rows."),
    reading,
)
custodian = together(
    click.option("--custodian", metavar="URL", help="Address of the custodian that holds the attribute."),
    click.option("--population", metavar="NAME", help="Its population; --key names the column with their ids."),
    click.option("--custodian-key", type=FILE, help="File with this client's key; or JUSTITIA_CUSTODIAN_KEY_FILE."),
    click.option("--custodian-ca", type=FILE, help="File with the authority that signed its certificate."),
    click.option(
        "--custodian-certificate", type=FILE, help="PEM file with the client certificate and key it requires."
    ),
    click.option("--receipts", type=FILE, help="File that keeps its receipts, to detect an old copy of its ledger."),
)
target = together(
    click.option("--target", metavar="COLUMN", help="Column to predict: two values, up to 20 classes, or numbers."),
    click.option("--positive", metavar="VALUE", help="The target's positive value; by default the later in order."),
)
task = click.option(
    "--task",
    type=OneOf("task", TASKS),
    metavar="NAME",
    default=TASKS[0],
    show_default=True,
    help="What the target is: classes or number; auto decides by its values.",
)
#: Which columns are features and how they are read; ``FeatureColumns.from_options`` takes these.
columns = together(
    click.option("--features", type=names, metavar="A,B", help="Columns to learn from; by default all others."),
    click.option("--drop", type=names, multiple=True, metavar="A,B", help="Columns to leave out."),
    click.option("--categorical", type=names, multiple=True, metavar="A,B", help="Columns whose entries name levels."),
    formats,
)
proxy = click.option(
    "--proxy",
    multiple=True,
    metavar="COLUMN",
    help="Public column that estimates the group; it is no feature, and not needed later. Repeatable.",
)
notion = click.option(
    "--notion",
    type=NOTION,
    metavar="NAME",
    multiple=True,
    help=f"What is compared: {', '.join(TRAINED_NOTIONS)}; by default demographic_parity. Several may be given.",
)
#: What a model is held to besides notions and tolerances; ``GoalOptions.from_options`` takes these.
goal = together(
    click.option(
        "--ratio", type=float, help="Smallest rate of a group as a share of the largest, instead of a tolerance."
    ),
    click.option(
        "--quota", multiple=True, metavar="SHARE", help="Share of positive decisions; CLASS=SHARE of other classes."
    ),
    click.option("--stratum", metavar="COLUMN", help="Public column; groups are compared within each of its values."),
    click.option(
        "--costs", metavar="0,1;5,0", help="Costs by true class and decision, in the order of classes; or a CSV file."
    ),
    click.option("--bounds", type=numbers, metavar="LOW,HIGH", help="Public range of a numeric target."),
)
below = click.option(
    "--below",
    type=click.FloatRange(min=0),
    metavar="FLOAT",
    help="Test whether the violation is below this; exit code 4 if that is not shown.",
)
#: What a measured model has to show, which is kept with the model; ``LimitOptions.from_options`` takes these.
limits = together(
    click.option(
        "--limit",
        type=click.FloatRange(min=0),
        metavar="FLOAT",
        help="Policy limit: evaluate must show that the gap between two groups is below it.",
    ),
    click.option(
        "--limit-ratio",
        type=click.FloatRange(min=0, max=1),
        metavar="FLOAT",
        help="Policy limit: the smallest impact ratio that evaluate must show, such as 0.8.",
    ),
    click.option(
        "--favourable",
        "--favorable",
        "favorable",
        metavar="VALUE",
        help="The favourable value of the target; by default the positive one. Impact ratios are about its rate.",
    ),
)
delta = click.option("--delta", type=float, default=1e-5, show_default=True, help="Of the guarantee; below 1/rows.")
reference = click.option(
    "--reference", metavar="GROUP", help="Group that ratios are taken to; by default that with the highest rate."
)
#: ``LedgerOptions.from_options`` takes these.
ledger = together(
    click.option("--ledger", type=FILE, help="File with one budget for several commands; see 'justitia budget'."),
    click.option("--ledger-name", metavar="NAME", help="Public name of the dataset; checked, or given to a new file."),
    click.option("--ledger-epsilon", type=float, help="Total budget of a ledger that does not exist yet."),
)
stream = click.option(
    "--stream", is_flag=True, help="Read Parquet a few rows at a time; folders and patterns always are."
)
workers = click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that share the rows."
)
tolerance = click.option(
    "--tolerance",
    "tolerances",
    type=float,
    multiple=True,
    help="Largest allowed difference between two groups; once, or once for each --notion.",
)
overwrite = click.option("--overwrite", is_flag=True, help="Replace the output of an earlier run.")


def epsilon(default: float, text: str) -> Callable[[Any], Any]:
    """The privacy budget of this command."""
    return click.option("--epsilon", type=float, default=default, show_default=True, help=text)


def notions(default: str) -> Callable[[Any], Any]:
    """The notions that a measurement compares."""
    text = f"Several may be given; by default {default}."
    return click.option("--notion", "notions", type=MEASURED_NOTION, metavar="NAME", multiple=True, help=text)


def out(text: str) -> Callable[[Any], Any]:
    """The folder or file that this command writes."""
    return together(click.option("--out", type=FILE, required=True, help=text), overwrite)


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
        help="Train even if groups are too small to be compared, and skip the check of their sizes.",
    ),
    click.option("--plan", "plan_file", type=FILE, help="TOML file with settings of the engine."),
    click.option("--hidden", type=whole_numbers, metavar="20,10", help="Widths of a network's hidden layers."),
)
#: The base model that engine post-processing corrects, and its threshold.
base = together(
    click.option(
        "--base",
        type=OneOf("base", BASES),
        metavar="NAME",
        help="Model of the target that is trained and corrected: lightgbm (the default), logistic (classes) or linear "
        "(numbers).",
    ),
    click.option(
        "--base-column",
        "base_columns",
        multiple=True,
        metavar="COLUMN",
        help="Column of DATA with your own model's probability or predicted number, public like every feature. "
        "CLASS=COLUMN for each of several classes.",
    ),
    click.option(
        "--threshold",
        type=float,
        default=0.5,
        show_default=True,
        help="Probability above which the decision is positive.",
    ),
    click.option(
        "--randomize",
        type=float,
        default=0.0,
        show_default=True,
        metavar="WIDTH",
        help="Width of a band around the threshold with random decisions; 0 is none.",
    ),
)
no_missing = click.option(
    "--no-missing",
    is_flag=True,
    help="State publicly that every row has one of --groups: less noise. An entry that is missing or not listed counts "
    "as the first group.",
)
n_jobs = click.option(
    "--n-jobs", type=int, metavar="N", help="Models of the base that are learned at the same time; -1 is one per core."
)
#: File and settings of a command that trains.
training = together(
    *(click.argument("data", type=FILE), target, task, attribute, no_missing, custodian, columns, proxy),
    *(settings, goal, base, n_jobs, stream),
)


# -- From options to objects


@dataclass(frozen=True)
class LimitOptions:
    """Policy limits and the favorable decision, as far as they were given."""

    limit: float | None = None
    limit_ratio: float | None = None
    favorable: str | None = None

    @classmethod
    def from_options(cls, values: dict[str, Any]) -> LimitOptions:
        """Take them out of a command's options."""
        return cls(values.pop("limit"), values.pop("limit_ratio"), values.pop("favorable"))

    def or_those_of(self, facts: Mapping[str, Any]) -> LimitOptions:
        """These and, where one was not given, that of the training."""
        return LimitOptions(**{name: facts.get(name) if one is None else one for name, one in vars(self).items()})

    def to_dict(self) -> dict[str, Any]:
        """Fields of ``training.json`` and of measurements."""
        return dict(vars(self))

    def check(self, task: Task, *, in_units: bool) -> None:
        """Refuse limits that say nothing about this kind of target.

        Raises
        ------
        Refusal
            For the first of them.
        """
        if self.limit is not None and self.limit > 1 and not in_units:
            raise Refusal(f"expected a limit of at most 1, got {self.limit:g}; 5% is written 0.05.")
        if task.kind != "binary" and (self.limit_ratio is not None or self.favorable is not None):
            raise Refusal(
                f"expected no --limit-ratio and no --favourable because the target has {task.describe()}, got one; "
                "leave it out."
            )
        known = list(map(str.strip, map(str, task.classes)))
        if self.favorable is not None and self.favorable.strip() not in known:
            raise no_such("value of the target", self.favorable, known)

    def favorable_code(self, task: Task) -> int | None:
        """Code of the favorable value; None where none was named."""
        if self.favorable is None:
            return None
        return [str(one).strip() for one in task.classes].index(self.favorable.strip())


@dataclass(frozen=True)
class LedgerOptions:
    """File, name and total budget of a ledger, as far as they were given."""

    file: Path | None = None
    name: str | None = None
    epsilon: float | None = None

    @classmethod
    def from_options(cls, values: dict[str, Any]) -> LedgerOptions:
        """Take them out of a command's options."""
        return cls(values.pop("ledger"), values.pop("ledger_name"), values.pop("ledger_epsilon"))

    def open(self, delta: float) -> DurableLedger | None:
        """The ledger; None if no file was named.

        Raises
        ------
        Refusal
            If a new one would have no name or no budget.
        LedgerError
            If the file belongs to another dataset, or cannot be used.
        """
        if self.file is None:
            if self.name is not None or self.epsilon is not None:
                raise Refusal("expected --ledger FILE beside --ledger-name and --ledger-epsilon, got none.")
            return None
        name, total = self.name, self.epsilon
        if self.file.exists():
            known = DurableLedger.open(self.file)
            name = known.dataset if name is None else name
            total = known.budget_epsilon if total is None else total
        if name is None or total is None:
            raise Refusal(
                f"there is no ledger {shown_path(self.file)} yet; make it with 'justitia budget create', or pass "
                "--ledger-name and --ledger-epsilon."
            )
        return DurableLedger(self.file, dataset=name, epsilon=total, delta=delta)


#: Fields of plans that ``calibrate`` sets from the budget.
_CALIBRATED = {"noise_sizes", "noise_violations", "noise_gradients", "noise_moments", "noise_checks"}
_CALIBRATED |= {"sigma_p", "sigma_d", "claim"}


def command_plan(path: Path | None, engine: str, *, small_groups: bool) -> Plan:
    """The engine's plan with the settings of a TOML file, if there is one.

    Unlike Python's default, the plan of engine post-processing spends 5% of the budget on a check of the group sizes,
    because names of groups are mistyped on the command line; ``small_groups`` skips this check.

    Raises
    ------
    Refusal
        If the file is not TOML, or names a setting that the engine does not have.
    ValueError, TypeError
        If a setting has an impossible value.
    """
    plan = PostProcessingPlan(share_sizes=0.05) if engine == POST_PROCESSING else plan_class(engine)()
    if path is not None:
        try:
            given: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            raise Refusal(f"{shown_path(path)} is not TOML; expected lines such as 'checks = 2'.") from None
        known = [field.name for field in fields(plan) if field.name not in _CALIBRATED]
        for name in given:
            if name not in known:
                raise no_such("setting", name, known, place=f"the plan of engine {engine!r}")
        plan = replace(plan, **given)
    return replace(plan, share_sizes=0.0) if small_groups and isinstance(plan, PostProcessingPlan) else plan


def make_base(name: str | None, columns: Sequence[str], task: Task = BINARY, *, n_jobs: int | None = None) -> Any:
    """The estimator's ``base``: a model by its name, columns with scores, or None for the default.

    Raises
    ------
    Refusal
        If both are given, or a model is not one of this kind of target.
    """
    if name is not None and columns:
        raise Refusal(f"expected --base or --base-column, got both; leave out --base {name}.")
    if columns:
        return score_columns(columns, task)
    if name is None or name == BASES[0]:
        return None
    from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: PLC0415 - takes long

    if (name == "linear") != (task.kind == "number"):
        raise Refusal(f"expected --base linear for numbers and logistic for classes, got {name}; choose the other.")
    model = LinearRegression() if task.kind == "number" else LogisticRegression(max_iter=1000)
    return CrossFitted(model, task, encoded=True, n_jobs=n_jobs)


def score_columns(given: Sequence[str], task: Task) -> str | dict[Any, str]:
    """The column of scores or, of several classes, the column of each.

    Raises
    ------
    Refusal
        If there is not one column, or one for each class.
    """
    if task.kind != "classes":
        if len(given) > 1:
            raise Refusal(f"expected one --base-column because the target has {task.describe()}, got {len(given)}.")
        return given[0]
    named = dict(one.partition("=")[::2] for one in given)
    texts = {str(one).strip(): one for one in task.classes}
    if set(named) != set(texts) or not all(named.values()):
        raise Refusal(
            f"expected --base-column CLASS=COLUMN for each of the classes {', '.join(texts)}, got "
            f"{', '.join(given)}; name a column for each."
        )
    return {texts[name]: column for name, column in named.items()}
