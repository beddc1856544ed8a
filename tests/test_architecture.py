"""The import order, and who may name the sensitive attribute, draw noise or read files: checked on the syntax tree."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "justitia"
FILES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))}

#: A module imports from its own level or from below. A new module says here where it belongs.
LEVELS = {
    "_validate": 0,
    "_files": 0,
    "exceptions": 0,
    "tasks": 0,
    "privacy": 1,
    "notions": 2,
    "goals": 2,
    "preprocessing": 2,
    "datasets": 2,
    "learners": 3,
    "tabular": 3,
    "rows": 4,
    "training": 5,
    "engines": 6,
    "postprocessing": 6,
    "metrics": 7,
    "persistence": 8,
    "networks": 8,
    "private_estimator": 8,
    "estimator": 8,
    "regressor": 8,
    "curve": 9,
    "monitor": 9,
    "search": 9,
    "audit": 10,
    "custodian": 10,
    "report": 10,
    "cli": 11,
    "__main__": 12,
    "__init__": 13,
}

#: Imports inside a function that go upward, each with its reason.
UPWARD_IN_FUNCTIONS: dict[tuple[str, str], str] = {}

#: Who may name what about the attribute. `sensitive_features` is a parameter on its way to the vault or the metrics;
#: `reveal` hands out the exact attribute and debits infinity; `encode` and `infer_groups` read it; `__codes` is it.
MAY_NAME = {
    "sensitive_features": {
        "privacy/vault.py",
        "estimator.py",
        "regressor.py",
        "curve.py",
        "search.py",
        "metrics/measure.py",
        "metrics/scorer.py",
        "metrics/exact.py",
        "monitor.py",
        "privacy/groups.py",
        # the command line: one file reads the attribute (cli/files/attribute.py), these hand it on
        "cli/commands/train.py",
        "cli/commands/tradeoff.py",
        "cli/commands/evaluate.py",
        "cli/commands/measure.py",
        "cli/commands/monitor.py",
        "cli/commands/compare.py",
        "cli/commands/audit.py",
        # the holder's own service measures in a vault that is open already
        "custodian/service.py",
        # audits read the attribute exactly, and their results are not private
        "audit/__init__.py",
        "audit/attacks.py",
        "audit/as_published.py",
        "audit/replay.py",
    },
    "reveal": {
        "privacy/vault.py",
        "networks/pf_ld_as_published/engine.py",
        "networks/moments/engine.py",
        "audit/replay.py",  # the auditor knows everybody's attribute; a ledger of its own is debited infinity
    },
    "encode": {"privacy/groups.py", "privacy/vault.py", "metrics/exact.py"},
    "infer_groups": {"privacy/groups.py", "privacy/vault.py", "metrics/exact.py"},
    "read_columns": {"privacy/groups.py", "privacy/vault.py", "metrics/exact.py"},
    # privacy/register.py keeps it by key for whoever holds it, and passes it on closed
    "reveal_entries": {"privacy/attribute.py", "privacy/groups.py", "privacy/register.py", "privacy/vault.py"},
    "MemoryCodes": {"privacy/vault.py"},
    "FileCodes": {"privacy/vault.py"},
    "FrameCodes": {"privacy/vault.py"},
    # the last one reads it where it is in files, beside the rows or joined by key, on its way into a vault
    "columns_of": {"privacy/columns.py", "privacy/attribute.py", "cli/files/reading.py", "privacy/joining.py"},
    "__codes": {"privacy/vault.py"},
    "_SensitiveVault__codes": set(),
    "_MemoryCodes__codes": set(),
}

#: Random numbers that could serve as noise, and the files that may draw them.
RANDOM = {
    *("randn", "randn_like", "rand", "rand_like", "randint_like", "normal", "normal_", "standard_normal"),
    *("laplace", "Laplace", "Normal", "bernoulli", "multinomial", "uniform_", "exponential_", "default_rng"),
    *("RandomState", "urandom", "token_bytes", "SystemRandom", "ndtri", "add_gaussian"),
}
MAY_DRAW = {
    "datasets/synthetic.py": {"default_rng", "standard_normal"},
    "audit/replay.py": {"add_gaussian"},  # a source without noise, for what the auditor knows
    "audit/as_published.py": {"add_gaussian"},  # the same, which keeps the scale
    "preprocessing/tables.py": {"RandomState"},  # the seed of public randomness when none is given
    "cli/commands/split.py": {"default_rng"},  # which rows of a file are kept for evaluation
    "networks/crossfitted.py": {"uniform_"},  # first weights of public networks
}


def module_of(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def level_of(module: str) -> int:
    return LEVELS[module.split(".", maxsplit=1)[0]]


def runtime_nodes(tree: ast.AST, *, inside_functions: bool) -> Iterator[ast.AST]:
    """Nodes that run on import, or those that run in functions; blocks for type checkers never run."""
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, in_function = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if in_function == inside_functions:
            yield node
        deeper = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        stack += [(child, deeper) for child in ast.iter_child_nodes(node)]


def own_imports(name: str, *, inside_functions: bool) -> set[str]:
    """Modules of ours that a file imports, without the leading package name."""
    found: set[str] = set()
    known = {module_of(other) for other in FILES}
    for node in runtime_nodes(FILES[name], inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "justitia"}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} uses a relative import; write the whole name."
            if (node.module or "").split(".")[0] == "justitia":
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                submodules = {full for full in inner if full.removeprefix("justitia.") in known}
                found |= submodules or {str(node.module)}
    return {module.removeprefix("justitia.") for module in found}


@cache
def identifiers(tree: ast.AST) -> frozenset[str]:
    """Every name that code uses: variables, attributes, parameters, keywords, imports and definitions; not text."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.add(name)
            case ast.keyword(arg=str(name)) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.alias(name=name):
                found |= {name.split(".")[-1]}
            case _:
                pass
    return frozenset(found)


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    return [call for last, call in _all_calls(tree) if last == name]


@cache
def _all_calls(tree: ast.AST) -> tuple[tuple[str, ast.Call], ...]:
    """Each call with the last part of what it calls."""
    found = (call for call in ast.walk(tree) if isinstance(call, ast.Call))
    return tuple((ast.unparse(call.func).split(".")[-1], call) for call in found)


def test_package_has_files_to_look_at() -> None:
    assert {"privacy/vault.py", "postprocessing/solver.py", "networks/pf_ld/engine.py", "estimator.py"} <= set(FILES)


def test_every_module_has_a_level() -> None:
    assert {module_of(name).split(".")[0] for name in FILES} <= set(LEVELS)


def test_privacy_imports_nothing_of_ours_outside_it_but_the_voice_of_its_errors() -> None:
    outside = {
        (name, module)
        for name in FILES
        if name.startswith("privacy/")
        for inside_functions in (False, True)
        for module in own_imports(name, inside_functions=inside_functions)
        if not module.startswith(("privacy", "exceptions"))
    }
    assert outside == {("privacy/vault.py", "_validate")}


def test_package_imports_nothing_of_bench_which_is_not_in_the_wheel() -> None:
    importing = {
        name
        for name, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in {getattr(node, "module", None) or "", *(alias.name for alias in node.names)}
        if module.split(".")[0] == "bench"
    }
    assert importing == set()


#: Files outside ``networks/`` that import torch: when they are imported, and inside functions.
NEEDS_TORCH = {
    "audit/as_published.py"
}  # audits of an engine that trains a network; imported when such an audit is asked for
#: Files that import an engine, which is not in requirements.lock; a data frame of that engine imports them.
NEEDS_ENGINE = {"rows/dask.py", "rows/ray.py", "rows/spark.py"}
NEEDS_TORCH_IN_FUNCTIONS = {"notions.py"}  # what a notion is for a network


def imports_torch(name: str, *, inside_functions: bool) -> bool:
    return any(
        module.split(".")[0] == "torch" or module == "safetensors.torch"
        for node in runtime_nodes(FILES[name], inside_functions=inside_functions)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)])
    )


@pytest.mark.parametrize(
    ("inside_functions", "allowed"), [(False, NEEDS_TORCH), (True, NEEDS_TORCH_IN_FUNCTIONS)], ids=["top", "functions"]
)
def test_torch_is_imported_by_networks_and_listed_files(inside_functions: bool, allowed: set[str]) -> None:
    importing = {name for name in FILES if imports_torch(name, inside_functions=inside_functions)}
    assert {name for name in importing if not name.startswith("networks/")} == allowed


def test_everything_but_networks_is_imported_without_torch() -> None:
    light = [name for name in FILES if not name.startswith("networks/") and name not in NEEDS_TORCH | NEEDS_ENGINE]
    modules = [f"justitia.{module_of(name)}" for name in light if module_of(name) not in {"__init__", "__main__"}]
    assert {"justitia.privacy.vault", "justitia.postprocessing.correction", "justitia.estimator"} <= set(modules)
    code = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_imports_go_downward() -> None:
    upward = {
        (name, module)
        for name in FILES
        for module in own_imports(name, inside_functions=False)
        if level_of(module) > level_of(module_of(name))
    }
    assert upward == set()


def test_imports_inside_functions_go_downward_but_for_the_listed_ones() -> None:
    upward = {
        (name, module)
        for name in FILES
        for module in own_imports(name, inside_functions=True)
        if level_of(module) > level_of(module_of(name))
    }
    assert upward == set(UPWARD_IN_FUNCTIONS)


#: Modules that a method asks for by name when it shows an object: the drawing is above what it draws. They take the
#: object, which holds released numbers only, and nothing else depends on what they return.
SHOWN_BY = {
    ("metrics/measurement.py", "justitia.metrics.displays"),
    ("metrics/impact.py", "justitia.metrics.displays"),
    *(
        (name, "justitia.report.notebook")
        for name in (
            *("curve.py", "private_estimator.py", "metrics/displays.py", "metrics/impact.py"),
            *("metrics/measurement.py", "privacy/certificate.py", "privacy/ledger.py"),
        )
    ),
}


def test_modules_asked_for_by_name_are_drawings_in_methods_that_show_an_object() -> None:
    found = set()
    for name, tree in FILES.items():
        for method in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            named = [call.args[0] for call in calls(method, "import_module")]
            texts = [one.value for one in named if isinstance(one, ast.Constant)]
            if own := {text for text in texts if str(text).startswith("justitia")}:
                found |= {(name, text) for text in own}
                assert method.name in {"plot", "_repr_html_", "_html_repr"}, (name, method.name)
    assert found == SHOWN_BY


def test_each_name_of_a_class_stands_for_one_class() -> None:
    places: dict[str, list[str]] = {}
    for name, tree in FILES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_imports_have_no_cycle() -> None:
    # imports inside functions count; the root package imports everything, so nothing may import it
    graph = {
        module_of(name): own_imports(name, inside_functions=False) | own_imports(name, inside_functions=True)
        for name in FILES
    }
    graph = {module: imports - {module} for module, imports in graph.items()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) >= len(FILES)


@pytest.mark.parametrize("word", list(MAY_NAME))
def test_sensitive_attribute_is_named_only_where_it_may_be(word: str) -> None:
    naming = {name for name, tree in FILES.items() if word in _own_words(tree)}
    assert naming <= MAY_NAME[word]


@cache
def _own_words(tree: ast.AST) -> frozenset[str]:
    """Identifiers, without methods of strings and encoders that happen to share a name with ours."""
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return identifiers(tree) - ({"encode"} - imported)


def test_vault_is_opened_by_training_private_measurement_and_audits_alone() -> None:
    assert {name for name, tree in FILES.items() if calls(tree, "SensitiveVault")} == {
        "privacy/vault.py",
        "audit/replay.py",
        "custodian/populations.py",  # the party that holds the attribute of a registered population
    }
    opening = {name for name, tree in FILES.items() if calls(tree, "open_vault")}
    assert opening == {"training/session.py", "metrics/measure.py", "audit/replay.py"}


def test_prediction_and_saving_never_name_the_attribute() -> None:
    for name in (
        "persistence/folder.py",
        "persistence/base.py",
        "persistence/rule.py",
        "learners/trees.py",
        "networks/default.py",
        "networks/multilayer.py",
        "networks/piecewise.py",
        "networks/crossfitted.py",
        "preprocessing/encoding.py",
        "persistence/onnx_base.py",
        "persistence/onnx_graph.py",
        "persistence/onnx_rules.py",
        "persistence/onnx.py",
        "persistence/tracking.py",
    ):
        words = identifiers(FILES[name])
        assert not words & {"sensitive_features", "SensitiveVault", "sensitive"}


def test_metrics_take_no_part_in_training() -> None:
    training = [
        name
        for name in FILES
        if name.startswith(("privacy/", "training/", "postprocessing/", "networks/", "rows/")) or name == "estimator.py"
    ]
    importing = {
        name
        for name in training
        for flag in (False, True)
        if "metrics.exact" in own_imports(name, inside_functions=flag)
    }
    assert importing == set()


#: What a report may be made from: released numbers, public facts, and the words for them. No vault, no metrics.
REPORT_IMPORTS = {
    *("estimator", "curve", "metrics.measurement", "networks.multilayer", "notions", "training.history"),
    *("engines", "privacy.accounting", "privacy.certificate", "privacy.ledger", "privacy.durable_ledger"),
    *("exceptions", "_files"),
    *("_validate", "preprocessing.encoding"),  # fields that people state; how public features were read
    "metrics.bounds",  # how a bound is written beside its threshold
    "metrics.drift",  # from which drift of public features on it is called large
    *("regressor", "tasks", "metrics.means"),  # kinds of target, and levels of a measured distribution
    "postprocessing.price",  # the price list in one sentence
}


def test_report_is_made_of_released_numbers_and_takes_no_attribute() -> None:
    files = [name for name in FILES if name.startswith("report/")]
    assert files
    imports = (own_imports(name, inside_functions=flag) for name in files for flag in (False, True))
    assert {module for one in imports for module in one if not module.startswith("report")} <= REPORT_IMPORTS
    words = {word for name in files for word in identifiers(FILES[name])}
    assert not words & {"sensitive_features", "sensitive", "SensitiveVault", "fit", "predict", "ledger_", "reveal"}


def test_tensors_are_loaded_as_data_never_as_code() -> None:
    loads = [
        (name, ast.unparse(call))
        for name, tree in FILES.items()
        for call in calls(tree, "load")
        if ast.unparse(call.func) == "torch.load"
        and not any(
            keyword.arg == "weights_only" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            for keyword in call.keywords
        )
    ]
    assert loads == []


def test_nothing_imports_a_module_that_runs_code_from_files() -> None:
    forbidden = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    importing = {
        (name, alias)
        for name, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in ({one.name for one in node.names} | {getattr(node, "module", None) or ""})
        if alias.split(".")[0] in forbidden
    }
    # messages of a process to the workers that it started, through pipes that nobody else can reach
    # and messages between a driver and the executors that Spark started for it, as Spark itself sends them
    assert importing == {("rows/processes.py", "pickle"), ("rows/spark.py", "pickle")}


def test_builtins_that_run_text_are_not_called() -> None:
    assert not [(name, word) for name, tree in FILES.items() for word in ("eval", "exec") if _bare_calls(tree, word)]


def _bare_calls(tree: ast.AST, name: str) -> list[ast.Call]:
    return [call for call in calls(tree, name) if isinstance(call.func, ast.Name)]


def test_noise_is_drawn_in_privacy_only() -> None:
    drawing = {
        (name, word)
        for name, tree in FILES.items()
        if not name.startswith("privacy/")
        for word in (identifiers(tree) & RANDOM) - MAY_DRAW.get(name, set())
    }
    assert drawing == set()


def test_global_random_module_is_not_imported() -> None:
    importing = {
        name
        for name, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) and {"random", "secrets"} & {alias.name for alias in node.names}
    }
    assert importing == set()


def test_public_order_of_rows_comes_from_a_generator_of_its_own() -> None:
    unseeded = [
        (name, ast.unparse(call))
        for name, tree in FILES.items()
        for word in ("randperm", "randint")
        for call in calls(tree, word)
        if ast.unparse(call.func).startswith("torch.") and "generator" not in {k.arg for k in call.keywords}
    ]
    assert unseeded == []


def test_every_file_has_a_docstring() -> None:
    assert [name for name, tree in FILES.items() if not ast.get_docstring(tree)] == []


def test_library_prints_nothing_but_from_the_command_line() -> None:
    printing = {name for name, tree in FILES.items() if _bare_calls(tree, "print")}
    assert printing == set()  # the command line has click's echo, in files below


def test_library_echoes_nothing_but_from_the_command_line() -> None:
    echoing = {name for name, tree in FILES.items() if calls(tree, "echo")}
    assert echoing
    assert all(name.startswith("cli/") for name in echoing)


def test_command_line_reads_the_attribute_in_one_file() -> None:
    reading = {name for name, tree in FILES.items() if calls(tree, "read_attribute")}
    assert reading == {"cli/files/rows.py", "cli/commands/measure.py"}  # by it, with features and without
    assert {name for name, tree in FILES.items() if calls(tree, "private")} == {"cli/files/attribute.py"}
    registering = {name for name, tree in FILES.items() if calls(tree, "read_registered")}
    assert registering == {"cli/commands/custodian.py"}
    defining = {name for name, tree in FILES.items() if "_joined_by_key" in identifiers(tree)}
    assert defining == {"cli/files/attribute.py"}


def test_no_module_is_called_utils() -> None:
    assert not [name for name in FILES if Path(name).stem in {"utils", "util", "helpers", "common", "misc"}]
