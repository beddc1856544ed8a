"""What may go wrong, one case each, and what is right: numbers within bounds, or a remark that says so in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.experiments import stress_data as hardships
from bench.experiments.stress_data import Hardship, Healthy, nothing

Bounds = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Case:
    """One way in which a fit may go wrong.

    Parameters
    ----------
    what : str
        In a few words.
    people : Healthy
        Before the hardship.
    hardship : callable
        What is done to the people to learn from.
    everybody : bool
        Whether it is done to people to come as well.
    notion, model : str
        What is held alike, and what is fitted: an engine, or the class of a rival.
    options : mapping
        Of the estimator.
    good : mapping
        Measures with their lowest and highest good value.
    says : str
        Words of a remark that is as good as good numbers.
    """

    what: str
    people: Healthy = field(default_factory=Healthy)
    hardship: Hardship = nothing
    everybody: bool = False
    notion: str = "demographic_parity"
    model: str = "plugin"
    options: Mapping[str, Any] = field(default_factory=dict)
    good: Bounds = field(default_factory=dict)
    says: str = ""

    def right(self, measures: Mapping[str, Any]) -> bool:
        """Whether the numbers are good, or a remark says that they are not."""
        good = bool(self.good) and all(low <= measures[name] <= high for name, (low, high) in self.good.items())
        return good or bool(self.says and re.search(self.says, str(measures["remarks"])))

    def wanted(self) -> str:
        """The expectation in words."""
        parts = [_bound(name, low, high) for name, (low, high) in self.good.items()]
        said = [f'a remark with "{self.says.replace("|", " or ")}"'] if self.says else []
        return ", or ".join([*([" and ".join(parts)] if parts else []), *said])


#: Measures in words.
WORDS = {
    "beyond": "violation beyond the tolerance",
    "lost": "accuracy lost",
    "over majority": "accuracy over the majority",
    "shown off": "error of the reported accuracy",
    "plain accuracy": "accuracy of the base",
    "other seed": "decisions changed by another seed",
    "other noise": "decisions changed by other noise",
}


def _bound(name: str, low: float, high: float) -> str:
    at = f"at most {high:g}" if high < 1 else f"at least {low:g}"
    return f"{WORDS.get(name, name)} {at}"


WIDE = Healthy(16_000, 100)
#: What is beyond the tolerance in force may be sampling error of 20,000 test rows, and noise.
HELD: Bounds = {"beyond": (-1, 0.03), "lost": (-1, 0.13)}
#: No worse than a constant, and close to the plain model.
LEARNS: Bounds = {"over majority": (-0.01, 1), "lost": (-1, 0.15)}

CASES: dict[str, Case] = {
    "healthy": Case("no problem", Healthy(10_000), good=HELD),
    "healthy, odds": Case("no problem, equalized odds", Healthy(10_000), notion="equalized_odds", good=HELD),
    "one threshold": Case(
        '89% positives, `at="scores"`',
        Healthy(20_000, shift=1.5, positives=0.89),
        options={"at": "scores"},
        good={"distance": (0, 0.06)},
    ),
    "constant": Case(
        "a model that accepts all rows",
        Healthy(4_000, shift=1.5, positives=0.89, signal=0.7),
        options={"tolerance": 0.0},
        says="the same decision",
    ),
    "100 features": Case(
        "100 features, tolerance 0.02",
        WIDE,
        notion="equalized_odds",
        options={"tolerance": 0.02},
        good=HELD,
    ),
    "100 features, network": Case(
        "100 features, a network",
        WIDE,
        model="moments",
        notion="equalized_odds",
        options={"tolerance": 0.05},
        good={"beyond": (-1, 0.03)},
        says="beyond the tolerance",
    ),
    "300 features": Case(
        "300 features and few rows",
        Healthy(4_000, 300),
        good={"over majority": (0.05, 1), "beyond": (-1, 0.03)},
        says="inputs for",
    ),
    "300 features, network": Case(
        "the same for a network",
        Healthy(4_000, 300),
        model="moments",
        good={"over majority": (0.05, 1), "beyond": (-1, 0.03)},
        says="inputs for",
    ),
    "small cells": Case(
        "1,000 rows, equalized odds, default tolerance",
        Healthy(1_000),
        notion="equalized_odds",
        good={"violation": (0, 0.1)},
        says="differences up to",
    ),
    "asked 0.05": Case(
        "tolerance 0.05",
        Healthy(20_000, shares=(0.8, 0.2), shift=1.5),
        options={"tolerance": 0.05},
        good={"violation": (0, 0.08), "lost": (-1, 0.1)},
    ),
    "shown, network": Case(
        "reported accuracy of a network",
        Healthy(4_000, 100),
        model="moments",
        good={"shown off": (0, 0.03)},
    ),
    "shown": Case("reported accuracy", Healthy(4_000, 100), good={"shown off": (0, 0.03)}),
    "absurd cells": Case(
        "two cells of 1e12", hardship=hardships.absurd_cells, good={"lost": (-1, 0.13), "plain accuracy": (0.75, 1)}
    ),
    "absurd cells, network": Case(
        "the same for a network", hardship=hardships.absurd_cells, model="moments", good={"lost": (-1, 0.13)}
    ),
    "silent positives": Case(
        "attribute not given for 80% of positives", Healthy(10_000), hardships.silent_positives, says="differs by label"
    ),
    "heavy weights": Case(
        "sample weights with infinite variance",
        Healthy(10_000),
        hardships.heavy_weights,
        good={"violation": (0, 0.1)},
    ),
    "arbitrary, wide": Case("stability of decisions", WIDE, good={"other seed": (0, 0.06), "other noise": (0, 0.06)}),
    "RaCO-DP, wide": Case("a rival on wide data", WIDE, model="HistogramClassifier", good=LEARNS),
    "DP-FERMI, wide": Case("a rival on wide data", WIDE, model="FermiClassifier", good=LEARNS),
    "rare positives": Case(
        "1% positives", Healthy(20_000, positives=0.01), good={"beyond": (-1, 0.03), "lost": (-1, 0.01)}
    ),
    "rare group": Case(
        "a group of 0.5%",
        Healthy(20_000, shares=(0.995, 0.005)),
        good=HELD,
        says="differences up to|noise in the rates",
    ),
    "20 groups": Case(
        "20 groups", Healthy(20_000, shares=(0.05,) * 20), good=HELD, says="differences up to|what was learned is lost"
    ),
    "80% missing": Case("attribute not given for 80% of rows", Healthy(20_000), hardships.mostly_missing, good=HELD),
    "proxy": Case("a feature equals the attribute", Healthy(10_000), hardships.proxy, everybody=True, good=HELD),
    "independent": Case(
        "attribute independent of X",
        Healthy(10_000, shift=0.0),
        good={"violation": (0, 0.04), "lost": (-1, 0.01)},
    ),
    "correlated": Case("41 nearly equal features", Healthy(10_000), hardships.correlated, everybody=True, good=HELD),
    "label noise": Case("20% of the labels are wrong", Healthy(10_000), hardships.noisy_labels, good=HELD),
    "300 rows": Case("300 rows", Healthy(300), good=HELD, says="differences up to|no smaller violation"),
}
