"""What one measurement asks: public rows about public cells, and how the one noisy answer to them is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from justitia._validate import check_choice
from justitia.metrics.cells import Cells, cells_of
from justitia.metrics.intervals import Array, NoisyRates
from justitia.metrics.rates import METRICS, Rate, Rows, make_rows, notion_rates
from justitia.metrics.repeats import PersonRows
from justitia.metrics.score_bins import ScoreBins, ScoreFacts
from justitia.metrics.scores import NoisyScores
from justitia.notions import FairnessNotion, get_notion


@dataclass(frozen=True, eq=False)
class Question:
    """Which rates of which cells one release is about; everything in it is public.

    Attributes
    ----------
    cells : Cells
    rates : tuple of Rate
        Over the four cells of label and decision.
    asked : mapping
        Each notion or metric, with its rates.
    bins : ScoreBins or None
    compares : bool
        Whether the rates are asked of a second model's decisions as well.
    persons : PersonRows or None
        Which rows are one person's.
    """

    cells: Cells
    rates: tuple[Rate, ...]
    asked: Mapping[str, tuple[Rate, ...]]
    bins: ScoreBins | None = None
    compares: bool = False
    persons: PersonRows | None = None

    @classmethod
    def of(
        cls,
        asked: Mapping[str, tuple[Rate, ...]],
        truth: Any,
        decided: Any,
        before: Any,
        bins: ScoreBins | None,
        persons: PersonRows | None = None,
    ) -> Question:
        """The question about rows with these labels and decisions (0 or 1), and those of a second model.

        Raises
        ------
        ValueError
            If nobody is in the event of a rate.
        """
        cells = cells_of(truth, decided, before, None if bins is None else bins.bin)
        rates = tuple(dict.fromkeys(rate for one in asked.values() for rate in one))
        made = cls(cells, rates, asked, bins, before is not None, persons)
        for rate in made.rows_rates:
            if not np.dot(rate.member, cells.totals):
                name = rate.name
                raise ValueError(f"expected rows in the event of {name!r}, got none; leave it out or add such rows.")
        return made

    @cached_property
    def rows_rates(self) -> list[Rate]:
        """All rates over the cells: those asked for, of the second model, and of scores."""
        found = [self.cells.rate(one) for one in self.rates]
        found += [self.cells.rate_before(one) for one in self.rates] if self.compares else []
        return found + ([] if self.bins is None else self.bins.rates(self.cells))

    @cached_property
    def rows(self) -> Rows:
        """Which row each cell has."""
        return make_rows(self.rows_rates, self.cells.totals)

    @cached_property
    def facts(self) -> ScoreFacts | None:
        """Public facts about the scores."""
        return None if self.bins is None else self.bins.facts(self.cells, self.rows)

    @property
    def places(self) -> dict[str, tuple[int, ...]]:
        """Each notion or metric with the places of its rates."""
        return {name: tuple(self.rates.index(rate) for rate in one) for name, one in self.asked.items()}

    def values(self) -> Array:
        """(n, width): everybody's public row, of length at most 1."""
        width = len(self.rows.vectors)
        table = np.vstack([self.rows.vectors, np.zeros(width)])  # the last one is for cells that are not asked for
        vectors = table[self.rows.cell[self.cells.place]]
        return vectors if self.facts is None else self.facts.beside(vectors)

    def read(self, answer: Array, variance: float) -> tuple[NoisyRates, NoisyRates | None, NoisyScores | None]:
        """The rates, those of the second model, and the scores, from the noisy group sums of :meth:`values`.

        Parameters
        ----------
        variance : float
            Of the noise of one entry before the projection.
        """
        scores = None
        if self.facts is not None:
            answer, rest = answer[:, :-1], answer[:, -1]
            groups, share, reach = len(answer), self.facts.share, self.facts.reach
            after = variance * groups / (groups + 1)  # the projection
            answer, variance = answer / math.sqrt(1 - share), variance / (1 - share)
            unit = reach / math.sqrt(share) if share else 0.0
            scores = NoisyScores(self.rows.cells(answer, variance), self.facts, rest * unit, after * unit**2)
        noisy = self.rows.read(answer, variance)
        own = range(len(self.rates))
        before = noisy.only([len(own) + place for place in own]) if self.compares else None
        return self.with_repeats(noisy.only(list(own)), before, scores)

    def with_repeats(
        self, noisy: NoisyRates, before: NoisyRates | None, scores: NoisyScores | None
    ) -> tuple[NoisyRates, NoisyRates | None, NoisyScores | None]:
        """The same noisy answers, with the public numbers of rows by person, if there are ids."""
        if self.persons is None:
            return noisy, before, scores
        noisy = self._repeated(noisy, [self.cells.rate(one) for one in self.rates])
        if before is not None:
            before = self._repeated(before, [self.cells.rate_before(one) for one in self.rates])
        if scores is not None:
            own, rest = self.persons.repeats(np.ones(len(self.cells.place), dtype=np.bool_))
            scores = replace(scores, cells=replace(scores.cells, repeats=own, rest_repeats=rest))
        return noisy, before, scores

    def _repeated(self, noisy: NoisyRates, rates: Sequence[Rate]) -> NoisyRates:
        assert self.persons is not None  # noqa: S101 - checked by the caller
        found = [self.persons.repeats(np.array(one.member)[self.cells.place] > 0) for one in rates]
        own, rest = zip(*found, strict=True)
        return replace(noisy, repeats=own, rest_repeats=rest)


def asked_for(notion: Any, metrics: Any, *, always: Iterable[str] = ()) -> dict[str, tuple[Rate, ...]]:
    """Each notion or metric by its name, with its rates.

    Parameters
    ----------
    always : iterable of str
        Metrics to ask for besides, unless a notion has the same rate.
    """
    given = [] if metrics is None else _listed("metrics", metrics)
    chosen = _listed("notion", notion) if notion is not None else [] if given else ["demographic_parity"]
    found = [(one.name, notion_rates(one)) for one in map(get_notion, chosen)]
    found += [(name, (METRICS[name],)) for name in (check_choice("metrics", one, METRICS) for one in given)]
    questions = dict(found)
    if len(questions) < len(found):
        raise ValueError("expected each notion and metric once, got one twice; remove the repeated one.")
    known = {rate for rates in questions.values() for rate in rates}
    return questions | {name: (METRICS[name],) for name in always if METRICS[name] not in known}


def _listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | FairnessNotion) or not isinstance(values, Iterable):
        return [values]
    listed = list(values)
    if not listed:
        raise ValueError(f"expected at least one of {name}, got none; leave it out for the default.")
    return listed
