"""What starts quickly: `import justitia` and the help of the command line leave the large libraries alone."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import justitia

#: None of them is needed to name a class or to list commands.
LARGE = {
    *("torch", "sympy", "numpy", "pandas", "sklearn", "scipy", "narwhals", "safetensors", "tqdm"),
    *("jinja2", "markupsafe", "mlflow", "onnx", "onnxscript", "fairlearn", "pyarrow", "matplotlib"),
}
HELP = """
from justitia.cli import cli
try:
    cli.main({words!r}, prog_name='justitia')
except SystemExit as end:
    assert end.code == 0
"""


def fresh(code: str, **environment: str) -> list[str]:
    """Names of all modules that a new interpreter holds after running this."""
    told = f"{code}\nimport json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", told],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(justitia.__file__).parents[1])} | environment,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "code",
    [
        "import justitia",
        "import justitia\ndir(justitia)",
        HELP.format(words=["--help"]),
        HELP.format(words=[]),
    ],
    ids=["import", "dir", "help", "no command"],
)
def test_start_without_a_command_imports_no_large_library(code: str) -> None:
    assert LARGE & {name.split(".")[0] for name in fresh(code)} == set()


def test_completion_of_the_first_word_imports_no_command_and_no_large_library() -> None:
    asked = {"_JUSTITIA_COMPLETE": "bash_complete", "COMP_WORDS": "justitia ", "COMP_CWORD": "1"}
    code = HELP.format(words=[])
    names = set(fresh(code, **asked))
    assert LARGE & {name.split(".")[0] for name in names} == set()
    assert "justitia.cli.commands.train" not in names


def test_help_of_a_command_imports_no_other_command_and_no_torch() -> None:
    names = set(fresh(HELP.format(words=["split", "--help"])))
    assert "justitia.cli.commands.split" in names
    assert not {"justitia.cli.commands.train", "justitia.cli.commands.audit", "justitia.report.build", "torch"} & names


def test_public_names_come_from_the_modules_that_type_checkers_read() -> None:
    tree = ast.parse(Path(justitia.__file__).read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    read = {alias.name: one.module for one in block.body if isinstance(one, ast.ImportFrom) for alias in one.names}
    assert {name: module for name, module in read.items() if not name.endswith("Plan")} == justitia._HOMES
    assert sorted([*justitia._HOMES, "PostProcessingPlan"]) == justitia.__all__
    for name, module in justitia._HOMES.items():
        assert getattr(justitia, name) is getattr(sys.modules[module], name)
        assert getattr(justitia, name).__module__ == module
    assert set(justitia.__all__) | set(justitia._PLANS) <= set(dir(justitia))


def test_star_import_and_a_fit_of_the_default_engine_do_not_import_torch() -> None:
    assert "torch" not in fresh(
        "from justitia import *\n"
        "from justitia.datasets import make_synthetic\n"
        "data = make_synthetic(400, random_state=0)\n"
        "model = LagrangianDualClassifier(groups=['a', 'b'], epsilon=8.0)\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "model.fit(data.X, data.y, sensitive_features=data.sensitive).predict(data.X)"
    )


def test_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'justitia' has no attribute 'Classifier'"):
        _ = justitia.Classifier  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", ["import justitia.curve", "from justitia.report import build_report"])
def test_name_of_a_function_and_a_module_is_the_function_whoever_comes_first(first: str) -> None:
    fresh(f"{first}\nfrom justitia import tradeoff\nassert callable(tradeoff)")


DEFAULT_FIT = """
import sys
class NoTorch:  # as where it is not installed
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, NoTorch())
import numpy as np
from justitia import LagrangianDualClassifier
rng = np.random.default_rng(0)
X, a = rng.normal(size=(400, 3)), rng.choice(["f", "m"], 400)
y = (X[:, 0] + 0.5 * (a == "f") > 0).astype(int)
def fit(**changes):
    model = LagrangianDualClassifier(groups=["f", "m"], random_state=0, noise_seed=0, epsilon=8.0, **changes)
    return model.fit(X, y, sensitive_features=a)
"""


def test_without_torch_the_default_engine_works_and_networks_say_what_to_install(tmp_path: Path) -> None:
    folder = str(tmp_path / "model")
    fresh(
        f"import warnings\nwarnings.simplefilter('ignore', UserWarning)\n{DEFAULT_FIT}\nmodel = fit()\n"
        f"model.save({folder!r})\nloaded = LagrangianDualClassifier.load({folder!r})\n"
        "assert np.array_equal(loaded.predict(X), model.predict(X))\n"
        "assert not [name for name in sys.modules if name.startswith('justitia.networks.')]\n"
        "for changes in ({'engine': 'moments'}, {'engine': 'pf-ld'}, {'module': (4,)}):\n"
        "    try:\n        fit(**changes)\n    except ImportError as error:\n"
        "        assert \"run pip install 'justitia[networks]'\" in str(error), error\n"
        "    else:\n        raise AssertionError(changes)"
    )
