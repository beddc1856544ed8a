"""Contents of a report as plain data: public facts of a fitted model, and noisy numbers that were released.

:func:`read_contents` gathers everything that page, model card and JSON show; no function here takes an attribute.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from typing import Any

import pandas as pd

from justitia.engines import name_of
from justitia.notions import notion_name
from justitia.postprocessing.price import price_sentence
from justitia.preprocessing.encoding import CategoryColumn, NumberColumn
from justitia.privacy.accounting import GaussianCost, epsilon_spent
from justitia.privacy.certificate import ADJACENCY_WITHOUT_MISSING
from justitia.privacy.ledger import Certificate
from justitia.report.formatting import ENGINES, known, listed, plain_name, short
from justitia.report.inputs import (
    About,
    Curve,
    LargestDifference,
    Limits,
    LogEntry,
    MeasurementInput,
    PricePoint,
    log_sentences,
    read_prices,
)
from justitia.report.wording import (
    Model,
    decision_words,
    goal_rows,
    notion_words,
    notions_of,
    task_of,
    tolerance_words,
    tolerances_of,
    violation_words,
)
from justitia.training.history import Column, names_of

#: Rounds that a chart and its table show at most; a longer history is thinned evenly.
MOST_ROUNDS = 100
#: Gaps of the last round that are shown at most.
MOST_GAPS = 24
#: Features in the table of proxies; standard errors from which a difference among many features is clear.
MOST_PROXIES, CLEAR = 10, 3.5
#: Facts that are left out because they are read off the model; and facts that are exact without privacy.
READ_OFF_MODEL = frozenset({"columns", "groups", "classes", "positive", "base", "threshold", "tolerance"})
READ_OFF_MODEL |= {"task", "notion", "bounds", "limit", "limit_ratio", "favorable"}
NOISED = frozenset({"noisy_violation"})
#: Facts with a place of their own on the page, and the names under which they may be given.
OWN_PLACES = {
    "title": ("title",),
    "accuracy": ("accuracy", "training_accuracy"),
    "auc": ("auc", "training_auc"),
    "r2": ("r2", "training_r2"),
    "command": ("command",),
    "created": ("created",),
    "model_digest": ("model_digest",),
    "data_digest": ("data_digest",),
    "read_as": ("read_as",),
    "written": ("written",),
    "version": ("version", "justitia"),
}

#: Labels of facts that differ from their names.
FACT_NAMES = {
    "sensitive": "Sensitive attribute",
    "key": "Key that joins it",
    "person": "Ids of people",
    "noisy_violation": "Violation in training, noised",
}


@dataclass(frozen=True)
class Spending:
    """One kind of release: count, noise multiplier, and share of the budget."""

    purpose: str
    mechanism: str
    count: int
    noise_multiplier: float | None
    alone: float | None
    share: float | None


@dataclass(frozen=True)
class Proxy:
    """A feature, the group that differs most in it from all other rows, by how much, and its share for the base."""

    feature: str
    group: str
    difference: float
    stderr: float
    importance: float | None

    @property
    def clear(self) -> bool:
        """Whether the difference is larger than noise and sampling explain, among as many features."""
        return abs(self.difference) > CLEAR * self.stderr


@dataclass(frozen=True)
class LedgerRun:
    """Releases of one run with one purpose on the shared ledger: when the first was made, and how many."""

    date: str
    run: str
    purpose: str
    count: int


@dataclass(frozen=True)
class SharedLedger:
    """The ledger that pays for all work on these people: everything that was ever released is on it."""

    identity: str
    dataset: str
    spent: float
    budget: float
    runs: tuple[LedgerRun, ...]


@dataclass(frozen=True)
class Contents:
    """Everything that a report shows.

    Guarantee
    ---------
    * All of it is public, or was released by ``fit`` or ``measure``: no function here takes an attribute.
    * If the certificate has no finite epsilon, numbers by group of the training data are exact, and none is kept:
      ``multipliers``, ``curve``, remarks, the noisy violation and a ``tolerance`` made of group sizes are left out.
    * ``history`` and ``columns`` hold public and noisy columns only, by the status of each column.
    """

    title: str
    task: str
    notion: str
    notion_words: str
    violation_words: str
    tolerances: Mapping[str, float | None]
    groups: tuple[str, ...]
    events: tuple[str, ...]
    classes: tuple[str, ...]
    tolerance: float | None
    tolerance_given: bool
    ratio: float | None
    tolerance_words: str
    certificate: Certificate
    accuracy: float | None
    accuracy_source: str
    auc: float | None
    r2: float | None
    history: pd.DataFrame
    columns: tuple[Column, ...]
    rounds: int
    last_gaps: tuple[tuple[str, float], ...]
    multipliers: pd.DataFrame | None
    spending: tuple[Spending, ...]
    measured: MeasurementInput | None
    measured_exact: bool
    curve: Curve | None
    about: tuple[tuple[str, str], ...]
    stated: About
    measurement_log: tuple[LogEntry, ...]
    log_notes: tuple[str, ...]
    total_cost: tuple[str, ...]
    features: tuple[tuple[str, str], ...]
    digests: tuple[tuple[str, str | None], ...]
    settings: tuple[tuple[str, str], ...]
    limits: Limits
    prices: tuple[PricePoint, ...]
    proxies: tuple[Proxy, ...]
    ledger: SharedLedger | None
    snippet: str
    command: str | None
    created: str | None
    version: str

    @property
    def private(self) -> bool:
        """Whether training had a privacy guarantee."""
        return math.isfinite(self.certificate.epsilon)

    @property
    def outputs(self) -> str:
        """What the model gives: decisions, or predictions of a number."""
        return "predictions" if self.task == "number" else "decisions"

    @property
    def log_complete(self) -> bool:
        """Whether one ledger paid for the training and every measurement, so that none can be missing."""
        identity = None if self.ledger is None else self.ledger.identity
        return identity is not None and all(one.ledger == identity for one in self.measurement_log)

    @property
    def in_points(self) -> bool:
        """Whether gaps are differences of shares, in percentage points, and not in units of a number."""
        return self.task != "number" or self.notion == "demographic_parity"

    @property
    def positive_words(self) -> str | None:
        """What a positive decision means: as stated, or the label that stands for it."""
        if self.task != "binary":
            return None
        return self.stated.get("positive_means") or self.classes[1]

    @property
    def favorable(self) -> str:
        """Which decision people want: "positive" or "negative"."""
        named = self.limits.favorable
        if named is None:
            return "positive" if self.measured is None else self.measured.favorable
        return "negative" if self.task == "binary" and named == self.classes[0].strip() else "positive"

    @property
    def favorable_differs(self) -> bool:
        """Whether impact ratios were measured of the decision that people do not want."""
        return self.measured is not None and self.measured.favorable != self.favorable

    def worst_violation(self) -> LargestDifference | None:
        """Measured violation of the notions that the model was trained for: of several, that beyond its tolerance."""
        found = () if self.measured is None else self.measured.violations
        own = [one for one in found if one.notion in self.tolerances]

        def excess(one: LargestDifference) -> float:
            aim = 0.0 if self.limits.gap is not None else self.tolerances[one.notion] or 0.0
            return (one.upper if one.at_most is None else one.at_most) - aim

        return max(own, key=excess, default=None)


def read_contents(
    model: Model,
    measured: MeasurementInput | None,
    curve: Curve | None,
    facts: Mapping[str, Any],
    stated: About,
    measurement_log: tuple[LogEntry, ...],
    limits: Limits | None = None,
    ledger: SharedLedger | None = None,
) -> Contents:
    """Gather everything that a report on this model shows."""
    own, others = _sorted_facts(facts)
    private = math.isfinite(model.certificate_.epsilon)
    certificate = model.certificate_.without_exact_remarks()
    columns = tuple(column for column in model.history_columns_ if column.released)
    name, names, task = notion_name(model.notion), notions_of(model), task_of(model)
    accuracy, accuracy_source, auc, r2 = _training_quality(model, own)
    given = model.tolerance is not None
    tolerance = float(model.tolerance_) if given or private else None
    return Contents(
        title=str(stated.get("title") or own.get("title") or "Model report"),
        task=task.kind,
        notion=name,
        notion_words=notion_words(names, task),
        violation_words=violation_words(names, task),
        tolerances=tolerances_of(model, tolerance),
        groups=tuple(str(group) for group in model.dual_.index),
        events=tuple(str(event) for event in model.dual_.columns),
        classes=tuple(str(label) for label in task.classes),
        tolerance=None if getattr(model, "ratio", None) is not None else tolerance,
        tolerance_given=given,
        ratio=getattr(model, "ratio", None),
        tolerance_words=tolerance_words(model, tolerance, name_of(model.plan_)),
        certificate=certificate,
        accuracy=accuracy,
        accuracy_source=accuracy_source,
        auc=auc,
        r2=r2,
        history=_thinned(model.history_[names_of(columns)]),
        columns=columns,
        rounds=len(model.history_),
        last_gaps=_last_gaps(model.history_, columns),
        multipliers=model.dual_ if private else None,
        spending=spending(certificate),
        measured=measured if measured is None or measured.private else None,
        measured_exact=measured is not None and not measured.private,
        curve=curve if private else None,
        about=about(
            model, {n: v for n, v in others.items() if private or n not in NOISED}, stated.get("positive_means")
        ),
        stated=stated,
        measurement_log=measurement_log,
        log_notes=log_sentences(measurement_log, None if measured is None else measured.confidence),
        total_cost=measurement_log[-1].remarks if measurement_log and measurement_log[-1].name != "training" else (),
        features=features(model, own.get("read_as") or ()),
        digests=(
            ("Model", own.get("model_digest")),
            ("Public rows of the training", own.get("data_digest")),
            ("Plan", plan_digest(model)),
        ),
        settings=settings(model),
        limits=limits or Limits(),
        prices=read_prices(getattr(model, "price_", None)) if private else (),
        proxies=proxies(model) if private else (),
        ledger=ledger,
        snippet=snippet(model),
        command=None if own.get("command") is None else short(own["command"]),
        created=None if own.get("created") is None else short(own["created"]),
        version=str(own.get("version") or metadata.version("justitia")),
    )


def proxies(model: Model) -> tuple[Proxy, ...]:
    """The features in which a group differs most from all other rows, by the noisy sums of the training."""
    table = getattr(model, "feature_association_", None)
    if table is None:
        return ()
    table = table[table["difference"].notna()]
    try:
        importance = dict(zip(model.encoded_names(), model.feature_importances_, strict=True))
    except AttributeError:  # a base without importances
        importance = {}
    largest = table.loc[table["difference"].abs().groupby(level="feature").idxmax().dropna()]
    found = [
        Proxy(str(feature), str(group), float(line["difference"]), float(line["stderr"]), importance.get(str(feature)))
        for (feature, group), line in zip(largest.index, largest.to_dict("records"), strict=True)
    ]
    found.sort(key=lambda one: -abs(one.difference))
    return tuple(found[:MOST_PROXIES])


def _sorted_facts(facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts with a place of their own, and the others that are not empty."""
    own = {
        place: next(facts[name] for name in names if name in facts)
        for place, names in OWN_PLACES.items()
        if any(name in facts for name in names)
    }
    taken = {name for names in OWN_PLACES.values() for name in names}
    others = {str(name): value for name, value in facts.items() if name not in taken | READ_OFF_MODEL}
    return own, {name: value for name, value in others.items() if value is not None and value != []}


def _training_quality(model: Model, own: Mapping[str, Any]) -> tuple[float | None, str, float | None, float | None]:
    """Accuracy on training rows, which rows these are, AUC and R2: as stated, or of the last round of the history."""
    history, names = model.history_, ("accuracy", "auc", "r2")
    last = {name: float(history[name].iloc[-1]) for name in names if name in history and len(history)}
    stated = {
        name: float(own[name])
        for name in names
        if isinstance(own.get(name), int | float) and not isinstance(own[name], bool)
    }
    auc = stated.get("auc", last.get("auc"))
    auc, r2 = (one if known(one) else None for one in (auc, stated.get("r2", last.get("r2"))))
    if "accuracy" in stated and stated["accuracy"] != last.get("accuracy"):
        return stated["accuracy"], "on the training rows", auc, r2
    if "accuracy" not in last and r2 is None:
        return None, "not recorded", auc, r2
    source = "on the rows of the last training round"
    if hasattr(model, "rule_"):
        held_out = ", each scored by a model that was not fitted on it" if model.rule_.base.fits else ""
        source = f"on the training rows{held_out}"
    return last.get("accuracy"), source, auc, r2


def _thinned(history: pd.DataFrame) -> pd.DataFrame:
    """At most MOST_ROUNDS rows, first and last among them."""
    most, last = MOST_ROUNDS - 1, len(history) - 1
    return history if last <= most else history.iloc[[round(k * last / most) for k in range(MOST_ROUNDS)]]


def _last_gaps(history: pd.DataFrame, columns: Sequence[Column]) -> tuple[tuple[str, float], ...]:
    """Noisy gaps of the last round that has them, by group (and event, if there are several)."""
    of_groups = [column for column in columns if column.kind == "noisy_gap"]
    known = history[[column.name for column in of_groups]].dropna(how="all")
    if known.empty:
        return ()
    several = len({column.event for column in of_groups}) > 1
    found = [
        (f"{one.event}, {one.group}" if several else str(one.group), float(known[one.name].iloc[-1]))
        for one in of_groups
    ]
    if len(found) > MOST_GAPS:  # of many classes or levels, the largest
        found = sorted(found, key=lambda one: -abs(one[1]))[:MOST_GAPS]
    return tuple(found)


def spending(certificate: Certificate) -> tuple[Spending, ...]:
    """Budget by kind of release; shares of mu^2 if all releases are Gaussian.

    The costs 1/sigma^2 of Gaussian releases add up to mu^2, so their shares are exact. Other costs do not add up and
    have no share.
    """
    entries = certificate.releases
    gaussian = [one["mechanism"] == "gaussian" for one in entries]
    squares = [one["count"] / one["noise_multiplier"] ** 2 for one in entries] if all(gaussian) else []
    found = []
    for k, entry in enumerate(entries):
        alone = None  # epsilon of these releases without the others, where the certificate determines it
        if gaussian[k]:
            alone = epsilon_spent({GaussianCost(entry["noise_multiplier"]): entry["count"]}, certificate.delta)
        elif entry["mechanism"] == "randomized response":
            alone = float(entry["epsilon"] * entry["count"])
        elif entry["mechanism"] == "unprotected":
            alone = math.inf
        found.append(
            Spending(
                purpose=str(entry["purpose"]),
                mechanism=str(entry["mechanism"]),
                count=int(entry["count"]),
                noise_multiplier=entry["noise_multiplier"],
                alone=alone,
                share=float(squares[k] / sum(squares)) if squares else None,
            )
        )
    return tuple(found)


def about(model: Model, others: Mapping[str, Any], positive_means: str | None = None) -> tuple[tuple[str, str], ...]:
    """Table of public facts: those of the model, then those that came with it."""
    names, task = notions_of(model), task_of(model)
    rows = {
        "Prediction" if task.kind == "number" else "Decision": decision_words(model, positive_means),
        "Notion of fairness": f"{plain_name(notion_name(model.notion))}: {notion_words(names, task)}",
        "Groups": f"{listed(model.certificate_.groups)} ({model.certificate_.groups_source})",
        "Engine": ENGINES.get(name_of(model.plan_), ""),
        "Features": f"{model.n_features_in_}; the sensitive attribute is not among them",
        **goal_rows(model),
    }
    rule: Any = getattr(model, "rule_", None)
    if rule is not None:
        corrections = getattr(rule, "corrections", None)
        rows["Base"] = rule.base.describe()
        rows["Calibration of the base"] = rule.calibration.describe()
        if corrections is None:
            rows["Correction"] = rule.correction.describe()
        else:
            rows["Correction"] = corrections[0].describe() if corrections else "none: the base is within the tolerance"
        if task.kind == "binary":
            rows["Decides above"] = f"{rule.threshold:.4g}"
        if sentence := price_sentence(model):
            rows["Price of the correction"] = sentence
    else:
        rows["Network"] = _network(model)
    stated = []
    for name, value in others.items():
        label = FACT_NAMES.get(name, plain_name(name))
        text = short(value)
        if isinstance(value, float):
            text = f"{value:.3g}"
        elif name == "rows" and isinstance(value, int) and not isinstance(value, bool):
            text = f"{value:,}"
        stated.append((label[:1].upper() + label[1:], text))
    return (*rows.items(), *stated)


def features(model: Model, column_types: Sequence[Mapping[str, Any]] = ()) -> tuple[tuple[str, str], ...]:
    """Every public feature and its encoding; then the columns of the file that are not features.

    Parameters
    ----------
    column_types : sequence of mappings
        Name, kind and summary of each column of the file.
    """
    if not hasattr(model, "encoder_"):
        names = getattr(model, "feature_names_in_", [f"column {j + 1}" for j in range(model.n_features_in_)])
        return tuple((str(name), "a number, as it was given") for name in names)
    types = {str(one["name"]): ", ".join(filter(None, (one["kind"], one.get("says")))) for one in column_types}
    used = {str(one.name): _encoding_text(one, types.get(str(one.name), "number")) for one in model.encoder_.columns_}
    return tuple((used | {name: how for name, how in types.items() if name not in used}).items())


def _encoding_text(column: NumberColumn | CategoryColumn, number: str) -> str:
    missing = "; one more column says where it is missing" if column.missing else ""
    if isinstance(column, NumberColumn):
        filled = f", gaps filled with the median {column.median:.6g}" if column.missing else ""
        return f"{number}{filled}{missing}"
    rest = ", rarer ones together" if column.other else ""
    few = f" ({', '.join(column.levels)})" if len(column.levels) <= 8 else ""
    return f"category of {len(column.levels)} levels{few}{rest}{missing}"


def plan_digest(model: Model) -> str:
    """SHA-256 of the engine and the settings of the plan."""
    text = json.dumps([name_of(model.plan_), *settings(model)])
    return hashlib.sha256(text.encode()).hexdigest()


def _network(model: Model) -> str:
    from justitia.networks.multilayer import widths_of  # noqa: PLC0415 - needs torch, which a network has

    widths = widths_of(model.module_)
    weights = sum(parameter.numel() for parameter in model.module_.parameters())
    name = type(model.module_).__name__ if widths is None else "-".join(str(width) for width in widths)
    return f"{name}, {weights:,} weights"


def settings(model: Model) -> tuple[tuple[str, str], ...]:
    """Every setting of the plan; of noise, its multiplier."""
    values = {field.name: getattr(model.plan_, field.name) for field in fields(model.plan_)}
    return tuple((name, short(getattr(value, "noise_multiplier", value))) for name, value in values.items())


def snippet(model: Model) -> str:
    """Python code that fits such a model again; a base model of the user's own is shown as ``...``."""
    groups = model.groups
    if not (groups is None or isinstance(groups, str | Mapping)):
        groups = [group.item() if hasattr(group, "item") else group for group in groups]
    names, is_number = notions_of(model), task_of(model).kind == "number"
    options: dict[str, Any] = {
        "epsilon": float(model.epsilon),
        "delta": float(model.delta),
        "tolerance": model.tolerance,
        "groups": groups,
        **({} if is_number else {"engine": name_of(model.plan_)}),
        "random_state": model.random_state if isinstance(model.random_state, int) else None,
    }
    if hasattr(model, "rule_"):
        base = model.rule_.base
        if not getattr(base, "encoded", False):
            options["base"] = getattr(base, "name", ...)
        default = {"threshold": 0.5, "class_weight": None, "ratio": None, "quota": None, "costs": None, "bounds": None}
        for name, usual in default.items():
            given = getattr(model, name, usual)
            if given is not None and not (isinstance(given, float) and given == usual):
                options[name] = given.tolist() if hasattr(given, "tolist") else given
    arguments = "".join(f"    {name}={_python(value)},\n" for name, value in options.items())
    strata = ", strata=S" if "conditional_demographic_parity" in names else ""
    notion = names[0] if len(names) == 1 else list(names)
    return (
        f"model = {type(model).__name__}(\n    {notion!r},\n{arguments})\n"
        f"model.fit(X, y, sensitive_features=A{strata})  # {model.n_features_in_} public features; A is private"
    )


def _python(value: Any) -> str:
    if value is ...:
        return "..."
    return 'float("inf")' if isinstance(value, float) and math.isinf(value) else repr(value)


def not_promised(contents: Contents) -> tuple[str, ...]:
    """Limitations of the report, one sentence each: first of privacy, then of fairness."""
    certificate = contents.certificate
    found = [f"Privacy does not cover: {'; '.join(certificate.not_covered)}."] if certificate.not_covered else []
    if not contents.private:
        found = ["Privacy of the sensitive attribute: this model has no guarantee.", *found]
    if certificate.groups_source != "given":
        found += [f"The list of groups was {certificate.groups_source}."]
    if certificate.adjacency in ADJACENCY_WITHOUT_MISSING.values():
        found += [
            "Whoever trained the model stated that every row has one of the listed groups; an entry that is missing or "
            "not listed counts as the first group."
        ]
    if certificate.reproduction:
        found += [f"Noise: {certificate.noise}."]
    found += [
        "Fairness in another population: the rates are those of the population from which the measured rows were drawn "
        "and change when that population does.",
        "Fairness in another sense: the model may do worse by other notions, for other groups and for single persons; "
        "notions can contradict each other.",
        "That the tolerance is met: training aims at it on its own rows, and only a measurement on other data shows "
        "how close it came.",
        f"That {contents.outputs} are lawful or right: a small violation is no proof that nobody is discriminated "
        "against.",
    ]
    if contents.measured is not None:
        # Remarks of a measurement state its total cost with the training, if the training's certificate was given.
        found += [
            "Joint privacy of training and measurement, except for what the remarks of the measurement state under "
            "their conditions."
            if contents.measured.certificate.remarks
            else "Joint privacy of training and measurement, unless one ledger paid for both: costs add up for people "
            "who are in both, and this report does not know who they are."
        ]
    return tuple(found)
