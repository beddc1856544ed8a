"""A lender's file, made up: loans.csv as a German bank's system exports it, and genders.csv, which another desk keeps.

Whoever prepares features sees the first file only. The second is joined by the application's number, and about one in
twelve people did not say. Women earn less here and ask for smaller loans, and whether a loan is repaid follows from
both: so trees that never saw a gender approve fewer women.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

ROWS = 8000
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
draw = np.random.default_rng(7)

woman = draw.random(ROWS) < 0.45
income = np.exp(draw.normal(np.where(woman, 10.25, 10.5), 0.35))
amount = np.exp(draw.normal(np.where(woman, 9.0, 9.2), 0.5))
years = draw.integers(0, 25, ROWS)
purpose = draw.choice(["car", "kitchen", "education", "moving"], ROWS, p=[0.4, 0.25, 0.2, 0.15])
strength = (
    1.5 * np.log(income / 32_000) - 0.7 * np.log(amount / 9_500) + 0.04 * (years - 8) - 0.3 * (purpose == "moving")
)
repaid = draw.logistic(0.5, 0.45, ROWS) + strength > 0.4
applied = pd.Timestamp("2024-01-02") + pd.to_timedelta(draw.integers(0, 700, ROWS), unit="D")


def german(number: float) -> str:
    """1234.5 as 1.234,50."""
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


numbers = [f"A-{100_000 + 37 * row}" for row in range(ROWS)]
loans = pd.DataFrame(
    {
        "application": numbers,
        "applied": applied.strftime("%d.%m.%Y"),
        "amount": [german(one) for one in amount],
        "income": ["k.A." if draw.random() < 0.01 else german(one) for one in income],
        "years_at_job": years,
        "purpose": purpose,
        "postcode": [f"{draw.integers(1, 80) * 97:05d}" for _ in range(ROWS)],
        "currency": "EUR",
        "repaid": np.where(repaid, "yes", "no"),
    }
)
silent = draw.random(ROWS) < 0.08
genders = pd.DataFrame({"application": numbers, "gender": np.where(woman, "f", "m")})[~silent]
loans.to_csv(folder / "loans.csv", sep=";", index=False)
genders.sample(frac=1, random_state=0).to_csv(folder / "genders.csv", sep=";", index=False)
print(f"{ROWS:,} loans, {len(genders):,} genders")
