"""A newcomer's hour: ``make newcomer``.

From the wheel to a report in the browser, for a reader of the README alone: an empty virtual environment, ``pip
install`` of the wheel, the example of the README, the four commands (split, train, evaluate, report) on a file that no
page of the documentation uses, and the report opened in Chromium. Prints minutes and megabytes, and fails above 10
minutes or 700 MB.

Only the standard library is imported here, so any Python can start it.
"""

from __future__ import annotations

import argparse
import csv
import html
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_MINUTES = 10.0
MOST_MEGABYTES = 700.0
FILE = "scholarships.csv"
COMMANDS = (
    f"justitia split {FILE} --test 0.4 --seed 1",
    "justitia train scholarships-train.csv --target granted --sensitive gender --groups female,male --out model",
    "justitia evaluate model scholarships-test.csv --epsilon 1",
    "justitia report model --limit 0.1 --out report.html",
)


class Environment:
    """A virtual environment with pip, in a folder of its own."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        if python == sys.executable:
            venv.create(folder, with_pip=True, symlinks=True)
        else:
            subprocess.run([python, "-m", "venv", str(folder)], check=True)

    def run(self, *words: str, cwd: Path, show: bool = False) -> str:
        """What a program of this environment prints; nothing of the outer one is on its path."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JUSTITIA", "COV"))}
        env["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
        done = subprocess.run(
            [str(self.folder / "bin" / words[0]), *words[1:]],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)[:200]} ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
        if show:
            print("".join(f"    {line}\n" for line in done.stdout.splitlines()), end="")
        return done.stdout

    def install(self, *words: str) -> None:
        """Install with pip as this machine has it configured."""
        self.run("python", "-m", "pip", "install", "--quiet", *words, cwd=self.folder)

    def megabytes(self) -> float:
        """Size of the whole environment."""
        files = (one for one in self.folder.rglob("*") if one.is_file() and not one.is_symlink())
        return sum(one.stat().st_size for one in files) / 1e6


class Clock:
    """Seconds of every step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what happens inside, and print it."""
        start = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - start
        print(f"{name}: {self.seconds[name]:.1f} s", flush=True)

    @property
    def minutes(self) -> float:
        """Of all steps."""
        return sum(self.seconds.values()) / 60


def example_of_readme() -> str:
    """The first block of Python of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit("expected a block of Python in README.md, found none.")
    return found[1]


def write_file(path: Path, rows: int = 9000) -> None:
    """Made-up applications for a scholarship, in the state in which an office would hand them over.

    There are dates, words and blank entries. Men are granted more often than women of
    the same school and income, since the committee counts a year abroad.
    """
    draw = random.Random(20261119)  # noqa: S311 - a made-up file, the same on every machine
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["applied on", "school", "grade", "household income", "abroad", "siblings", "gender", "granted"])
        for _ in range(rows):
            gender = "female" if draw.random() < 0.45 else "male"
            school = draw.choice(["grammar", "comprehensive", "vocational", "evening"])
            grade = min(max(draw.gauss(2.4 + 0.2 * (school == "evening"), 0.7), 1), 5)
            income = draw.lognormvariate(10.4, 0.5)
            abroad = draw.random() < (0.45 if gender == "male" else 0.2)
            score = 1.6 * abroad - 1.3 * (grade - 2.4) - 0.9 * (income / 40_000 - 1) + draw.gauss(0, 0.9)
            table.writerow(
                [
                    f"2026-{draw.randint(1, 6):02}-{draw.randint(1, 28):02}",
                    school if draw.random() > 0.02 else "",
                    f"{grade:.1f}",
                    f"{income:.0f}" if draw.random() > 0.05 else "",
                    "yes" if abroad else "no",
                    draw.randint(0, 4),
                    gender if draw.random() > 0.03 else "",
                    "yes" if score > 0.2 else "no",
                ]
            )


def chromium() -> str:
    """The browser of this machine."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise SystemExit("expected Chromium to open the report, found none; run `make browser`, or pass --no-browser.")
    return found


def open_report(page: Path) -> tuple[str, ...]:
    """Title and verdict of the report, read from the page that the browser made of it."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with tempfile.TemporaryDirectory() as profile:
        words = [chromium(), *flags, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    heading = re.search(r'<h2 id="verdict".*?</h2>', done.stdout, re.DOTALL)
    if done.returncode != 0 or title is None or heading is None:
        raise SystemExit(f"expected title and verdict of the report in the browser, got {done.stdout[:500]!r}.")
    return tuple(html.unescape(" ".join(re.sub(r"<[^>]+>", " ", one[0]).split())) for one in (title, heading))


def main() -> None:
    """Do all of it, print minutes and megabytes, and fail above the limits."""
    parser = argparse.ArgumentParser(description="From the wheel to a report in the browser.")
    parser.add_argument("wheel", type=Path, nargs="?", help="The wheel; by default that of dist/.")
    parser.add_argument("--python", default=sys.executable, help="Interpreter of the environment.")
    parser.add_argument("--no-browser", action="store_true", help="Do not open the report.")
    asked = parser.parse_args()
    wheel = asked.wheel or next(iter(sorted((ROOT / "dist").glob("*.whl"))), None)
    if wheel is None:
        raise SystemExit("expected a wheel in dist/, found none; run `make dist`.")
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as place:
        work = Path(place) / "work"
        work.mkdir()
        with clock.step("empty environment"):
            environment = Environment(Path(place) / "environment", asked.python)
        empty = environment.megabytes()
        with clock.step(f"pip install {wheel.name}"):
            environment.install(str(wheel.resolve()))
        with clock.step("example of the README"):
            environment.run("python", "-c", example_of_readme(), cwd=work, show=True)
        write_file(work / FILE)
        for command in COMMANDS:
            with clock.step(command):
                environment.run(*command.split(), cwd=work, show=True)
        if not asked.no_browser:
            with clock.step("report opened"):
                title, verdict = open_report(work / "report.html")
            print(f"    title: {title}\n    verdict: {verdict}")
        megabytes = environment.megabytes()
    print(f"\n{clock.minutes:.1f} minutes (limit {MOST_MINUTES:.0f})")
    print(f"{megabytes:.0f} MB (limit {MOST_MEGABYTES:.0f}), of which {empty:.0f} are pip, as in any empty environment")
    if clock.minutes > MOST_MINUTES or megabytes > MOST_MEGABYTES:
        raise SystemExit("expected less.")


if __name__ == "__main__":
    main()
