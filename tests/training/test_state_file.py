"""Trees of plain values and arrays as bytes: the same tree comes back, and nothing in a file is run."""

import io
import pickle
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pytest

from justitia.training.state_file import from_bytes, to_bytes


def test_tree_comes_back_with_its_types_and_shapes() -> None:
    tree = {
        "arrays": [
            np.arange(6, dtype=np.float32).reshape(2, 3),
            np.zeros((0, 4)),
            np.array([True, False]),
            np.uint8([1, 2]),
        ],
        "pairs": ({0: "by number", "0": "by text"}, (1, None)),
        "numbers": [1, 0.1, True, float("inf"), -0.0],
        "dict": {"array": "array0", "tuple": [], "tree": {}},
    }
    again = from_bytes(to_bytes(tree))
    for one, other in zip(again.pop("arrays"), tree.pop("arrays"), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.array_equal(one, other)
    assert again == tree
    assert isinstance(again["pairs"], tuple)
    assert [type(one) for one in again["numbers"]] == [int, float, bool, float, float]


def test_number_of_numpy_comes_back_as_a_plain_one() -> None:
    assert from_bytes(to_bytes({"pace": np.float64(0.1), "draws": np.int64(3)})) == {"pace": 0.1, "draws": 3}


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", np.array(["text"]), np.array([None])], ids=lambda one: type(one).__name__
)
def test_anything_else_is_refused_in_one_sentence(value: Any) -> None:
    with pytest.raises(TypeError, match="in a checkpoint, got") as caught:
        to_bytes({"value": value})
    assert "\n" not in str(caught.value)


class Trap:
    """Fails the test if it is ever made from a pickle."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("a pickle was run",)


def test_pickle_in_a_file_is_not_run() -> None:
    content = io.BytesIO()
    np.savez(content, tree=np.frombuffer(b'{"array": "trap"}', dtype=np.uint8), trap=np.array([Trap()], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        from_bytes(content.getvalue())
    with pytest.raises(ValueError, match="pickled"):
        from_bytes(pickle.dumps(Trap()))


@pytest.mark.parametrize("content", [b"", b"text", to_bytes([1])[:-30]], ids=["empty", "text", "cut off"])
def test_bytes_that_are_something_else_raise_an_error(content: bytes) -> None:
    with pytest.raises((ValueError, EOFError, BadZipFile)):
        from_bytes(content)
