"""Options of a training, and printed text made comparable."""

import json
from typing import Any

TRAIN = ("--target", "income", "--sensitive", "sex", "--groups", "Female,Male", "--seed", "0")


def squeezed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def assert_narrow(text: str) -> None:
    assert max(map(len, text.splitlines())) <= 80


def parsed(result: Any) -> Any:
    assert result.exit_code in {0, 4}, result.output
    return json.loads(result.stdout)
