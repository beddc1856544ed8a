"""Report on a fitted model: one HTML page, a Markdown model card and JSON facts, rendered from templates."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from sklearn.utils.validation import check_is_fitted

from justitia._files import staged_file
from justitia._validate import check_choice
from justitia.curve import Tradeoff
from justitia.estimator import LagrangianDualClassifier
from justitia.exceptions import DeprecatedNameWarning
from justitia.metrics.means import NUMBER_METRICS
from justitia.metrics.measurement import Measurement
from justitia.privacy.durable_ledger import DurableLedger
from justitia.regressor import LagrangianDualRegressor
from justitia.report import charts, formatting
from justitia.report.contents import Contents, LedgerRun, SharedLedger, not_promised, read_contents
from justitia.report.facts import KIND, plain, report_facts
from justitia.report.inputs import EMPTY, About, Limits, PricePoint, read_curve, read_log, read_measurement
from justitia.report.verdict import WORDS, verdict_of
from justitia.report.wording import rate_words

#: Text by which an earlier report is recognised, so that no other file is overwritten.
PAGE, CARD, FACTS = '<meta name="generator" content="justitia ', "\nMade by justitia ", f'"kind": "{KIND}"'


@dataclass(frozen=True)
class Report:
    """Report on the model, its rates by group and its privacy guarantee, for people who have to sign it.

    Guarantee
    ---------
    * The report is a function of public facts and of what ``fit`` and ``measure`` released. It holds no exact number by
      group: where a certificate has no finite epsilon, numbers by group are left out.
    * The page loads nothing from elsewhere and runs no script but its own.
    """

    contents: Contents

    def html(self) -> str:
        """One self-contained page."""
        loader, pages = PackageLoader("justitia.report"), _pages()
        style, script = (loader.get_source(pages, name)[0] for name in ("style.css", "script.js"))
        style += page_footer(self.contents)
        policy = (
            f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        )
        return pages.get_template("page.html").render(
            report=self.contents,
            pictures=_pictures(self.contents),
            style=Markup(style),  # noqa: S704 - a file of this package
            script=Markup(script),  # noqa: S704 - a file of this package
            policy=policy,
            **_common(self.contents),
        )

    def markdown(self) -> str:
        """The model card: the same facts as Markdown."""
        return _cards().get_template("card.md").render(report=self.contents, **_common(self.contents))

    def facts(self) -> dict[str, Any]:
        """The facts of the page as plain data; ``registry`` holds a record for a registry of deployments."""
        found: dict[str, Any] = plain(report_facts(self.contents))
        return found

    def json(self) -> str:
        """The facts as JSON text."""
        return json.dumps(self.facts(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def write(self, target: Path | str, *, overwrite: bool = False) -> Path:
        """Write the page and, beside it under the same name, the card and the facts; returns the page's path.

        Parameters
        ----------
        target : path
            A name that ends in ``.html``, or a folder, which then gets ``report.html``, ``report.md`` and
            ``report.json``.
        overwrite : bool
            Replace an earlier report; other files are never replaced.

        Raises
        ------
        FileExistsError
            If one of the files exists and may not be replaced.
        """
        path = page_path(target)
        parts = {
            path.with_suffix(".json"): (FACTS, self.json()),
            path.with_suffix(".md"): (CARD, self.markdown()),
            path: (PAGE, self.html()),
        }
        for file, (mark, _) in parts.items():
            _check_free(file, mark, overwrite=overwrite)
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, (_, text) in parts.items():
            with staged_file(file) as stage:
                stage.write_text(text, encoding="utf-8", newline="\n")
        return path


def page_path(target: Path | str) -> Path:
    """Path of the page: a name that ends in ``.html``, or ``report.html`` in a folder."""
    path = Path(target)
    if path.suffix.lower() not in {".html", ".htm"}:
        if path.suffix and not path.is_dir():
            raise ValueError(
                f"expected a folder or a name that ends in .html, got {str(path)!r}; the card is written beside it."
            )
        return path / "report.html"
    if path.is_dir():
        raise ValueError(f"expected a file, but {str(path)!r} is a folder; choose another name.")
    return path


def build_report(
    model: LagrangianDualClassifier | LagrangianDualRegressor,
    *,
    measurement: Mapping[str, Any] | Measurement | None = None,
    curve: Mapping[str, Any] | Tradeoff | None = None,
    facts: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    measurement_log: Sequence[Mapping[str, Any]] | None = None,
    limit: float | None = None,
    limit_ratio: float | None = None,
    favorable: Any = None,
    ledger: DurableLedger | None = None,
    looks: Sequence[Mapping[str, Any]] | None = None,
) -> Report:
    """Build a report on a fitted or loaded model.

    Parameters
    ----------
    model : LagrangianDualClassifier or LagrangianDualRegressor
        Its certificate, history, multipliers, plan and other public attributes are read.
    measurement : mapping or Measurement, optional
        A private measurement on evaluation data, as :meth:`~justitia.Measurement.to_dict` gives it.
    curve : mapping or Tradeoff, optional
        ``{"points": [{"tolerance", "accuracy", "noisy_violation"}, ...], "chosen": index or None}``.
    facts : mapping, optional
        Public facts about the run. ``title``, ``accuracy`` (on training rows), ``command``, ``created`` and
        ``version`` have places of their own; the others are shown in a table.
    about : mapping, optional
        Statements of people: ``owner``, ``purpose``, ``population``, ``version``, ``monitoring_plan``,
        ``human_oversight``, ``positive_means``, ``title``, ``region``, ``sector``. An empty field is visibly empty.
        ``group_names`` maps groups to the words of the first sentence: ``{"F": "women", "M": "men"}``.
    measurement_log : sequence of mappings, optional
        Facts of the training and of every measurement, oldest first (:func:`justitia.report.inputs.read_log`). By
        default the training and ``measurement``.
    limit, limit_ratio : float, optional
        Policy limits that the page judges: the largest gap between two groups, in shares (0.05 is 5 points) or in units
        of the target, and the smallest impact ratio. By default those that the measurement was held to.
    favorable : label, optional
        The decision that people want; impact ratios are about it. By default that of the measurement.
    ledger : DurableLedger, optional
        The ledger that all work on these people shares. Without it the page says that it may not know of every
        measurement.
    looks : sequence of mappings, optional
        The old name of ``measurement_log``.

    Raises
    ------
    NotFittedError
        If the model is not fitted.
    TypeError, ValueError
        If an argument is not what is described above.
    """
    if not isinstance(model, LagrangianDualClassifier | LagrangianDualRegressor):
        raise TypeError(
            "expected a LagrangianDualClassifier or a LagrangianDualRegressor, got "
            f"{type(model).__name__!r}; pass a fitted one."
        )
    check_is_fitted(model, "plan_")
    if not isinstance(facts, Mapping | None):
        raise TypeError(f"expected facts to be a mapping, got {type(facts).__name__!r}; pass names with their values.")
    given = facts or {}
    if looks is not None:
        sentence = "looks is now called measurement_log; the old name works in this release and in no later one."
        warnings.warn(sentence, DeprecatedNameWarning, stacklevel=2)
        measurement_log = looks
    sources = _default_log(model, measurement, given) if measurement_log is None else measurement_log
    found, stated = read_measurement(measurement), About.from_mapping(about)
    for name in stated.group_names:
        check_choice("group of group_names", name, tuple(str(group) for group in model.dual_.index))
    kept = measurement.to_dict() if isinstance(measurement, Measurement) else measurement
    return Report(
        read_contents(
            *(model, found, read_curve(curve, model), given),
            stated=stated,
            measurement_log=read_log(sources),
            limits=Limits.from_facts(limit, limit_ratio, favorable, kept, dict(given) | getattr(model, "limits_", {})),
            ledger=None if ledger is None else shared_ledger(ledger),
        )
    )


def shared_ledger(ledger: DurableLedger) -> SharedLedger:
    """Everything on a ledger, releases of one run and purpose together, in the order in which they were first made."""
    facts = json.loads(ledger.to_json())
    found: dict[tuple[str, str], list[str]] = {}
    for entry in facts["entries"]:
        found.setdefault((str(entry["run"]), str(entry["purpose"])), []).append(str(entry["time"]))
    runs = (LedgerRun(times[0][:10], run[:8], purpose, len(times)) for (run, purpose), times in found.items())
    spent, budget = (
        math.inf if isinstance(one, str) else one for one in (facts["spent_epsilon"], facts["budget_epsilon"])
    )
    return SharedLedger(facts["ledger"], facts["dataset"], spent, budget, tuple(runs))


def _default_log(
    model: LagrangianDualClassifier | LagrangianDualRegressor, measurement: Any, facts: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Facts of the training and of the one measurement."""
    public = {name: facts.get(name) for name in ("created", "data", "rows")}
    training = {"name": "training", "certificate": model.certificate_.to_dict(), **public}
    if measurement is None:
        return [training]
    return [training, measurement.to_dict() if isinstance(measurement, Measurement) else measurement]


#: Sections of the page in their order, by their ids.
SECTIONS = {
    "about": "About this model",
    "accuracy": "Accuracy",
    "groups": "Rates by group",
    "gap": "Gap and limit",
    "impact": "Impact on groups",
    "prices": "Price list",
    "correction": "What the correction did",
    "log": "Measurement log",
    "privacy": "Privacy in plain words",
    "limits": "What is not promised",
    "sign": "Approval and signatures",
    "annex": "Technical annex",
}


def sections_of(contents: Contents) -> dict[str, str]:
    """Titles of the sections of this page."""
    found = dict(SECTIONS)
    if contents.task == "number":
        found["groups"] = "Means by group"
    if not contents.log_complete:
        found["log"] = "Measurements recorded in this folder"
    return found


def _common(contents: Contents) -> dict[str, Any]:
    """Variables of the templates that page and card share, besides the contents."""
    titles = sections_of(contents)
    order = list(titles)
    prices, columns = price_lines(contents)
    return {
        "verdict": verdict_of(contents),
        "words": WORDS,
        "sections": list(titles.items()),
        "numbered": lambda name: f"{order.index(name) + 1} {titles[name]}",
        "section_number": lambda name: order.index(name) + 1,
        "odds": formatting.odds_sentence(contents.certificate),
        "spent": formatting.privacy_sentence(contents.certificate),
        "record": json.dumps(report_facts(contents)["registry"], indent=2, ensure_ascii=False),
        "empty": EMPTY,
        "points": formatting.points,
        "percent": formatting.percent,
        "gap": gap_text,
        "gap_in_points": lambda report, notion: report.task != "number" or notion == "demographic_parity",
        "rate_text": _rate,
        "rate_bounds": _rate_bounds,
        "prices": prices,
        "price_columns": columns,
        "quality_name": "R2" if contents.task == "number" else "accuracy",
        "without_proxies": _without_proxies(contents),
        "rounded": formatting.rounded,
        "rounded_bounds": formatting.rounded_bounds,
        "rounded_count": formatting.rounded_count,
        "ratio_bounds": formatting.ratio_bounds,
        "shortfall": formatting.shortfall,
        "not_promised": not_promised(contents),
        "tolerance_verdict": _tolerance_verdict(contents),
        "infinity": math.inf,
        "number": formatting.number,
        "bounds": formatting.bounds,
        "short": formatting.short,
        "plain_name": formatting.plain_name,
        "said": formatting.said,
        "tolerance_name": charts.tolerance_name,
        "rate_name": formatting.rate_name,
        "rate_words": rate_words,
        "listed": formatting.listed,
    }


def gap_text(value: float | None, in_points: bool, limit: float | None = None) -> str:
    """A gap in a column that names its unit."""
    return formatting.points(value, limit, in_points=in_points).split(" ")[0]


def _rate(value: float | None, metric: str) -> str:
    return formatting.number(value) if metric in NUMBER_METRICS else formatting.percent(value)


def _rate_bounds(lower: float, upper: float, metric: str) -> str:
    write = formatting.bounds if metric in NUMBER_METRICS else formatting.percent_bounds
    return write(lower, upper)


@dataclass(frozen=True)
class PriceLine:
    """A line of the price list as it is shown, and the command that trains it."""

    point: PricePoint
    name: str
    quality: str
    gap: str
    error: str
    others: tuple[tuple[str, str], ...]
    command: str | None


def price_lines(contents: Contents) -> tuple[list[PriceLine], list[str]]:
    """Lines of the price list, and the names of their further columns."""
    columns = [
        name
        for name in (contents.prices[0].columns if contents.prices else {})
        if name not in ("accuracy", "r2") and all(name in one.columns for one in contents.prices)
    ]
    shares = {"positive_rate"}
    lines = []
    for one in contents.prices:
        others = tuple(
            (
                _column_name(name),
                formatting.percent(one.columns[name]) if name in shares else formatting.number(one.columns[name]),
            )
            for name in columns
        )
        command = None
        if one.tolerance is not None and contents.command is not None:
            command = with_options(contents.command, {"--tolerance": f"{one.tolerance:.4g}"}, f"{one.tolerance:.4g}")
        lines.append(
            PriceLine(
                one,
                charts.price_name(one),
                formatting.number(one.quality) if contents.task == "number" else formatting.percent(one.quality),
                formatting.points(one.violation, in_points=contents.in_points),
                gap_text(2 * one.stderr, contents.in_points) + (" points" if contents.in_points else ""),
                others,
                command,
            )
        )
    return lines, [_column_name(name) for name in columns]


def _column_name(name: str) -> str:
    return name.upper() if name in ("auc", "rmse") else formatting.plain_name(name)


def with_options(command: str, changes: Mapping[str, str], suffix: str) -> str | None:
    """A command of training with other options, which writes to another folder; None of another command.

    Parameters
    ----------
    suffix : str
        What is appended to the name of the folder.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if words[:2] != ["justitia", "train"]:
        return None
    kept: list[str] = []
    out, skipping = "model", False
    replaced = {*changes, "--ratio"} if "--tolerance" in changes else set(changes)
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if skipping:
            skipping = False
        elif name in {"--out", "-o"}:
            out, skipping = (value, False) if equals else ((words[place + 1 : place + 2] or [out])[0], True)
        elif name in replaced:
            skipping = not equals
        elif word not in {"--overwrite", "--json"}:
            kept.append(word)
    added = [part for pair in changes.items() for part in pair]
    return shlex.join([*kept, *added, "--out", f"{out.rstrip('/')}-{suffix}"])


def _without_proxies(contents: Contents) -> str | None:
    """The command that trains without the features that tell groups apart most clearly."""
    clear = [one.feature for one in contents.proxies if one.clear][:3]
    columns = {name for name, _ in contents.features}
    named = [next((name for name in columns if one == name or one.startswith(f"{name}_")), None) for one in clear]
    dropped = list(dict.fromkeys(one for one in named if one is not None and "," not in one))
    if not dropped or contents.command is None or "--drop" in contents.command or "--features" in contents.command:
        return None
    return with_options(contents.command, {"--drop": ",".join(dropped)}, "without")


def _tolerance_verdict(contents: Contents) -> str | None:
    """Sentences that compare each violation with the tolerance that training aimed at, where both are known."""
    measured = contents.measured
    sentences = []
    for one in () if measured is None else measured.violations:
        tolerance = contents.tolerances.get(one.notion)
        if tolerance is not None and measured is not None:
            least, most = (None, None) if one.estimate is None else (one.at_least, one.at_most)
            found = formatting.verdict(least, most, tolerance, one.groups, one.not_compared, measured.confidence)
            several = len(contents.tolerances) > 1
            sentences.append(f"{formatting.said(one.notion)}: {found}" if several else found)
    return " ".join(sentences) or None


def _pictures(contents: Contents) -> dict[str, Any]:
    """Charts of the page by name; None where there is nothing to draw."""
    names = ("hero", "hero_narrow", "rates", "violation", "impact", "gap_curve", "calibration", "prices")
    pictures: dict[str, Any] = dict.fromkeys(names)
    measured = contents.measured
    if measured is not None:
        pictures["hero"] = charts.before_after_chart(measured, wide=True)
        pictures["hero_narrow"] = charts.before_after_chart(measured, wide=False)
        if len(measured.overall) > charts.HERO_RATES:  # the chart at the top has the others
            pictures["rates"] = charts.rates_chart(measured)
        pictures["violation"] = charts.violation_chart(measured, contents.limits.gap, shares=contents.in_points)
        pictures["calibration"] = charts.calibration_chart(measured.public.get("calibration", ()))
        if measured.impact is not None and not contents.favorable_differs:
            pictures["impact"] = charts.impact_chart(measured.impact, measured.confidence)
        if measured.scores is not None:
            pictures["gap_curve"] = charts.gap_curve_chart(measured.scores["curve"], measured.confidence)
        if measured.distribution is not None:
            pictures["gap_curve"] = charts.gap_curve_chart(
                measured.distribution["curve"], measured.confidence, place="level"
            )
    name = "R2" if contents.task == "number" else "accuracy"
    new = None if measured is None else contents.worst_violation()
    quality = (
        None if measured is None else measured.public.get("r2") if contents.task == "number" else measured.accuracy
    )
    pictures["prices"] = charts.price_chart(
        contents.prices, contents.limits.gap, new, quality, shares=contents.in_points, name=name
    )
    return pictures | {
        "curve": None if contents.curve is None else charts.curve_chart(contents.curve),
        "history": charts.history_charts(contents.history, contents.columns),
        "multipliers": None if contents.multipliers is None else charts.multipliers_chart(contents.multipliers),
        "spending": charts.spending_chart(contents.spending),
    }


@cache
def _pages() -> Environment:
    return Environment(
        loader=PackageLoader("justitia.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _cards() -> Environment:
    """Templates of Markdown; every value passes through ``escaped``, as autoescaping does for HTML."""
    cards = Environment(
        loader=PackageLoader("justitia.report"),
        autoescape=False,  # noqa: S701 - not HTML; `finalize` escapes what Markdown and HTML would read
        finalize=formatting.escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    cards.filters["fenced"] = formatting.fenced
    return cards


def page_footer(contents: Contents) -> str:
    """Running footer of the printed page: digest of the model, and the number of the page."""
    digest = "".join(one for one in contents.digests[0][1] or "" if one in "0123456789abcdef")[:16]
    left = f"model {digest}" if digest else "model without a digest"
    number = 'content: "page " counter(page) " of " counter(pages);'
    ends = f'@bottom-left {{ content: "{left}"; }} @bottom-right {{ {number} }}'
    return f"@page {{ font: 8pt sans-serif; color: #444; {ends} }}\n"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _check_free(path: Path, mark: str, *, overwrite: bool) -> None:
    """Refuse to replace anything but an earlier report, and that only with ``overwrite``."""
    if not path.exists() and not path.is_symlink():
        return
    is_report = path.is_file() and not path.is_symlink() and mark in path.read_text(encoding="utf-8", errors="replace")
    if not is_report:
        raise FileExistsError(f"{str(path)!r} exists and is no report of this package; choose another name.")
    if not overwrite:
        raise FileExistsError(f"{str(path)!r} exists; pass overwrite=True to replace it, or choose another name.")
