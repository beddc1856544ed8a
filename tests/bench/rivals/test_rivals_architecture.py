"""Rivals reach the attribute as the package does: through a vault, with noise from ``justitia.privacy`` alone."""

import ast
from pathlib import Path

import pytest

from test_architecture import MAY_NAME, RANDOM, _own_words, calls, identifiers

ROOT = Path(__file__).parents[3] / "bench" / "rivals"
FILES = {path.name: ast.parse(path.read_text("utf-8")) for path in sorted(ROOT.glob("*.py"))}
#: Methods without privacy, whose certificates say so; the last file has the bases of those for classes and numbers,
#: some of which read the attribute at prediction.
MAY_REVEAL = {"zafar.py", "agarwal.py", "fairgbm.py", "linear_post.py", "target_model.py"}


def test_exact_attribute_is_revealed_to_methods_without_privacy_alone() -> None:
    assert {name for name, tree in FILES.items() if "reveal" in _own_words(tree)} == MAY_REVEAL


@pytest.mark.parametrize("word", [one for one in MAY_NAME if one not in {"sensitive_features", "reveal"}])
def test_attribute_is_read_by_the_vault_alone(word: str) -> None:
    assert {name for name, tree in FILES.items() if word in _own_words(tree)} == set()


def test_vaults_are_opened_where_the_attribute_ends() -> None:
    assert not [name for name, tree in FILES.items() if calls(tree, "SensitiveVault")]


def test_noise_is_not_drawn_here() -> None:
    assert {(name, word) for name, tree in FILES.items() for word in identifiers(tree) & RANDOM} == set()
