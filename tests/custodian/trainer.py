"""A trainer in a process of its own: ``python trainer.py URL DATA TXET``; prints whether its memory holds the text.

The text comes backwards, so that looking for it is not finding it.
"""

import re
import sys
from pathlib import Path

import pandas as pd

from justitia import LagrangianDualClassifier, PostProcessingPlan
from justitia.custodian import Custodian


def memory_holds(backwards: bytes) -> bool:
    pattern = re.compile(b"".join(b"[" + backwards[k : k + 1] + b"]" for k in reversed(range(len(backwards)))))
    with Path("/proc/self/maps").open() as maps, Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for line in maps:
            ends, rights = line.split()[:2]
            low, high = (int(one, 16) for one in ends.split("-"))
            if rights.startswith("rw") and high < 1 << 47:
                memory.seek(low)
                try:
                    found = memory.read(high - low)
                except OSError:
                    continue
                if pattern.search(found):
                    return True
    return False


if __name__ == "__main__":
    url, data, text = sys.argv[1:]
    table = pd.read_csv(data)
    X, y = table.drop(columns=["id", "y"]), table["y"]
    holder = Custodian(url, population="people", ids=table["id"])
    model = LagrangianDualClassifier(epsilon=1.0, groups=holder.groups, plan=PostProcessingPlan(checks=1))
    model.fit(X, y, sensitive_features=holder)
    print(len(model.certificate_.releases), memory_holds(text.encode()))
    kept = bytearray(text[::-1].encode())  # and the look finds what is there
    print(memory_holds(text.encode()), len(kept))
