"""The helpers of ``test_architecture.py`` see what they are meant to see."""

import ast

from test_architecture import MAY_NAME, _own_words, runtime_nodes

BAD = ast.parse(
    "from justitia.privacy.groups import encode\n"
    "import torch\n"
    "class Vault:\n"
    "    def leak(self, sensitive_features):\n"
    "        return self.__codes + torch.randn(3)\n"
)


def test_identifiers_of_a_leaky_file_are_found() -> None:
    assert {"encode", "sensitive_features", "__codes", "randn"} <= _own_words(BAD)


def test_identifiers_in_text_and_methods_of_strings_are_not_found() -> None:
    harmless = ast.parse("'sensitive_features and reveal'\nname = 'x'.encode()\n")
    assert not _own_words(harmless) & set(MAY_NAME)


def test_imports_for_type_checkers_are_told_from_those_that_run() -> None:
    tree = ast.parse("if TYPE_CHECKING:\n    import a\nimport b\ndef f():\n    import c\n")

    def names(*, inside_functions: bool) -> set[str]:
        nodes = runtime_nodes(tree, inside_functions=inside_functions)
        return {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}

    assert (names(inside_functions=False), names(inside_functions=True)) == ({"b"}, {"c"})
