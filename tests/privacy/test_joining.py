"""Labels joined by key: everybody's entry as it is, whatever others have."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest

from justitia.privacy.joining import join

EAST = timezone(timedelta(hours=1))
#: Equal, and written differently.
TWINS = [
    (0.0, -0.0),
    (Decimal("1.0"), Decimal("1.00")),
    (datetime(2020, 1, 1, 1, tzinfo=EAST), datetime(2020, 1, 1, 0, tzinfo=UTC)),
]


def joined(entries: list[Any]) -> list[str]:
    keys = [f"p{row}" for row in range(len(entries))]
    own = pd.DataFrame({"id": keys})
    second = pd.DataFrame({"id": keys, "a": pd.Series(entries, dtype=object)})
    (labels,) = join(["a"], "id", len(keys), lambda: iter([own]), lambda: iter([second]))
    return [repr(one) for one in labels.take(slice(None))]


@pytest.mark.parametrize(("usual", "twin"), TWINS, ids=["zero", "decimal", "time zone"])
def test_entry_that_equals_others_and_is_written_differently_changes_nobody_elses(usual: Any, twin: Any) -> None:
    assert usual == twin
    plain, odd = joined([usual, usual, usual]), joined([twin, usual, usual])
    assert plain[1:] == odd[1:] == [repr(usual)] * 2
    assert odd[0] == repr(twin)


def test_entry_that_cannot_be_written_down_changes_nobody_elses() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise ValueError("no text")

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return hash("f")

    keys = ["p0", "p1"]
    second = pd.DataFrame({"id": keys, "a": pd.Series([Mute(), "f"], dtype=object)})
    (labels,) = join(["a"], "id", 2, lambda: iter([pd.DataFrame({"id": keys})]), lambda: iter([second]))
    assert list(labels.take(slice(1, None))) == ["f"]
