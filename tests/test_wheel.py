"""The wheel in an environment that holds its own requirements and nothing else: no torch, no extra, no network.

The environment gets links to what is already installed here: the distributions that the wheel's metadata asks for
without an extra, and those that they ask for. So a package that the core imports and does not declare is missing.
"""

import os
import re
import shlex
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from justitia.datasets import make_synthetic

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Megabytes that an installation of the core may take.
MOST = 600
IMPORT_ALL = """
import importlib, pkgutil, justitia
for one in pkgutil.walk_packages(justitia.__path__, "justitia.", onerror=lambda name: None):
    try:
        importlib.import_module(one.name)
    except ImportError as error:
        print(one.name, error.name)
"""
#: Each is refused; a line per piece of code says how.
ASK = """
import warnings
warnings.simplefilter("ignore")
from justitia import LagrangianDualClassifier
def fit(**options):
    model = LagrangianDualClassifier(groups=["a", "b"], **options)
    model.fit([[0.0]] * 4, [0, 1] * 2, sensitive_features=list("abab"))
for code in {codes!r}:
    try:
        exec(code)
    except ImportError as error:
        print(error)
    else:
        print("nothing")
"""
#: What would train a network, and its engine.
NETWORKS = {
    "fit(engine='moments')": "moments",
    "fit(engine='pf-ld')": "pf-ld",
    "fit(engine='gradients')": "pf-ld",
    "fit(engine='printed')": "pf-ld-as-published",
    "fit(module=(4,))": "moments",
    "from justitia import MomentsPlan": "moments",
    "from justitia import PrintedPlan": "pf-ld-as-published",
}


class Environment(NamedTuple):
    folder: Path
    megabytes: float

    def run(self, *words: str, cwd: Path, program: str = "python") -> subprocess.CompletedProcess[str]:
        """Run a program of this environment; nothing of the outer one is on its path."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JUSTITIA", "COV"))}
        return subprocess.run(
            [self.folder / "bin" / program, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False
        )


def required(names: list[str]) -> dict[str, metadata.Distribution]:
    """Installed distributions that these requirements ask for without extras, and what those ask for in turn."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        one = Requirement(waiting.pop())
        name = canonicalize_name(one.name)
        if name in found or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        found[name] = metadata.distribution(name)
        waiting += found[name].requires or []
    return found


def entries(distribution: metadata.Distribution) -> set[Path]:
    """Folders and files of a distribution that sit directly in site-packages."""
    files = distribution.files
    assert files is not None, distribution.name
    roots = {file.parts[0] for file in files} - {"..", "__pycache__"}
    return {Path(str(distribution.locate_file(root))) for root in roots}


def size(path: Path) -> int:
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) if path.is_dir() else path.stat().st_size


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run([sys.executable, "-m", *build], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("justitia-*.whl")
    return made


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    asked = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    total = 0
    for distribution in required(asked).values():
        for entry in entries(distribution):
            (packages / entry.name).symlink_to(entry)
            total += size(entry)
    # pip finds every requirement among the links, or fails: --no-index leaves it no other place.
    install = ["pip", "--python", str(folder / "bin/python"), "install", "--quiet", "--no-index", str(wheel)]
    done = subprocess.run([sys.executable, "-m", *install], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Environment(folder, (total + size(packages / "justitia")) / 1e6)


def test_wheel_holds_the_package_and_its_marks_but_no_tests_and_no_stored_help(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "justitia/py.typed" in names
    assert [one for one in names if one.startswith(("bench", "tests", "examples")) or one.endswith("help.json")] == []


def test_core_is_small_and_has_no_torch(core: Environment, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with capsys.disabled():
        print(f"\npip install . takes {core.megabytes:.0f} MB")
    assert core.megabytes < MOST
    assert "No module named 'torch'" in core.run("-c", "import torch", cwd=tmp_path).stderr


def test_core_imports_everything_but_networks_and_what_has_an_extra(core: Environment, tmp_path: Path) -> None:
    done = core.run("-c", IMPORT_ALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    failed = dict(line.split() for line in done.stdout.splitlines())
    torch = {module for module, missing in failed.items() if missing == "torch"}
    assert "justitia.networks.method" in torch
    assert [one for one in torch if not one.startswith("justitia.networks.")] == ["justitia.audit.as_published"]
    extras = {"pyarrow", "msgspec", "starlette", "urllib3", "uvicorn", "cryptography", "duckdb", "psycopg", "onnx"}
    extras |= {"dask", "ray", "pyspark"}  # each in the one module of its data frames
    assert set(failed.values()) - {"torch"} <= extras, failed


def test_core_runs_the_example_of_the_readme(core: Environment, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    done = core.run("-c", blocks[0], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "differentially private in the sensitive attribute" in done.stdout


def test_core_runs_the_four_commands_of_the_readme(core: Environment, tmp_path: Path) -> None:
    data = make_synthetic(3000, random_state=0)
    sex = ["Female" if group == "a" else "Male" for group in data.sensitive]
    data.X.assign(income=data.y, sex=sex).to_csv(tmp_path / "income.csv", index=False)
    lines = re.findall(r"^\$ justitia (.*)$", README, re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["split", "train", "evaluate", "report"]
    for line in lines:
        done = core.run(*shlex.split(line), cwd=tmp_path, program="justitia")
        assert done.returncode == 0, done.stderr
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_core_names_the_extra_where_a_network_would_be_trained(core: Environment, tmp_path: Path) -> None:
    done = core.run("-c", ASK.format(codes=list(NETWORKS)), cwd=tmp_path)
    assert dict(zip(NETWORKS, done.stdout.splitlines(), strict=True)) == {
        code: f"expected torch to be installed for engine {engine!r}, got none; run pip install "
        "'justitia[networks]', or leave engine and module out."
        for code, engine in NETWORKS.items()
    }, done.stderr


def test_core_names_the_extra_on_the_command_line(core: Environment, tmp_path: Path) -> None:
    done = core.run("plan", "--rows", "1000", "--engine", "gradients", cwd=tmp_path, program="justitia")
    said = " ".join(done.stderr.split())
    assert done.returncode == 2
    assert "warning: engine 'gradients' is now called 'pf-ld'" in said
    assert "error: expected torch to be installed for engine 'pf-ld'" in said
    assert "pip install 'justitia[networks]'" in said
