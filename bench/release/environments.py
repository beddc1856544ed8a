"""The wheel with the lowest and the newest dependencies that it accepts, and with other versions of Python.

``make lowest-test`` installs exactly the lower bounds of ``dependencies`` in ``pyproject.toml``, ``make newest-test``
what pip finds today, and ``make python3.12-test`` and ``make python3.13-test`` the same with those interpreters. Each
makes an empty environment in ``out/release/``, installs the wheel of ``dist/`` and pytest, prints what was installed,
runs the example of the README and the four commands, and then a selection of the tests against the installed package.
The whole suite runs with the versions of ``requirements.lock`` (``make test``).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tomllib
from pathlib import Path

from bench.newcomer import COMMANDS, FILE, ROOT, Clock, Environment, example_of_readme, write_file

OUT = ROOT / "out" / "release"
#: Tests that need neither torch nor an extra and together touch every library of ``dependencies``. They take a minute.
TESTS = (
    "tests/test_validate.py",
    "tests/test_regressor.py",
    "tests/learners/test_trees.py",
    "tests/metrics/test_composition.py",
    "tests/metrics/test_margins.py",
    "tests/metrics/test_quantiles.py",
    "tests/postprocessing/test_correction.py",
    "tests/postprocessing/test_dual.py",
    "tests/preprocessing/test_column_types.py",
    "tests/preprocessing/test_read_targets.py",
    "tests/privacy/test_journal.py",
    "tests/privacy/test_ledger.py",
    "tests/privacy/test_mechanisms.py",
    "tests/privacy/test_noise_grid.py",
)
#: LightGBM 4.6 warns of its own column names when it is given an array; 4.7 does not.
IGNORED = "ignore:X does not have valid feature names, but LGBM:UserWarning"


def lower_bounds() -> list[str]:
    """``name==bound`` for every requirement of the core."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = [requirement.split(">=") for requirement in project["dependencies"]]
    return [f"{name}=={bound}" for name, bound in bounds]


def main() -> None:
    """Make one environment and run everything in it."""
    parser = argparse.ArgumentParser(description="Test the wheel in an environment of its own.")
    parser.add_argument("name", choices=["lowest", "newest"], help="Which versions of the dependencies.")
    parser.add_argument("--python", default=sys.executable, help="Interpreter of the environment.")
    asked = parser.parse_args()
    (wheel,) = (ROOT / "dist").glob("*.whl")
    clock = Clock()
    folder = OUT / f"{asked.name}-{Path(asked.python).name}"
    shutil.rmtree(folder, ignore_errors=True)
    work = folder / "work"
    with clock.step("pip install"):
        environment = Environment(folder, asked.python)
        environment.install(str(wheel), "pytest", *(lower_bounds() if asked.name == "lowest" else []))
    work.mkdir()
    environment.run("python", "--version", cwd=work, show=True)
    environment.run("python", "-m", "pip", "freeze", "--exclude", "justitia", cwd=work, show=True)
    with clock.step("example of the README"):
        environment.run("python", "-W", "error", "-c", example_of_readme(), cwd=work)
    write_file(work / FILE)
    for command in COMMANDS:
        with clock.step(command):
            environment.run(*command.split(), cwd=work)
    with clock.step("tests"):
        environment.run("python", "-m", "pytest", "-W", IGNORED, *TESTS, cwd=ROOT, show=True)
    print(f"passed with the {asked.name} versions")


if __name__ == "__main__":
    main()
