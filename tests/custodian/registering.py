"""Register people from two processes at once, and kill one in between: ``python registering.py FOLDER race|kill RUNS``.

Prints as JSON what was left in the folder each time.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from service_fixtures import DELTA, opened

from justitia import DurableLedger
from justitia.custodian import populations, records
from justitia.custodian.populations import attribute_file, ledger_file, register
from justitia.custodian.records import Records
from justitia.custodian.settings import private_folder
from justitia.privacy.attribute import Attribute
from justitia.privacy.register import Register

#: An entry of the attribute that is in no list of groups, and so in the attribute's own file alone.
MARK = "what somebody told about themselves"
SIZES = {1: 3000, 2: 2000}


def register_some(folder: Path, name: str, kind: int) -> None:
    """So many people that writing them takes a while; their number and budget say which call they are of."""
    labels = np.array([*(("a", MARK) * (SIZES[kind] // 2)), None], dtype=object)[:-1]
    taken = Register.from_rows([f"{kind}-{k}" for k in range(SIZES[kind])], Attribute(("sex",), [labels]))
    register(folder, Records(folder), name, taken, groups=["a", "b"], epsilon=float(kind), delta=DELTA)


def opened_gate(gate: tuple[int, int]) -> None:
    """Let the processes behind it go on, all at once."""
    for end in gate:
        os.close(end)


def forked(work: Callable[[], None], gate: tuple[int, int]) -> int:
    """A process that does it as soon as the gate is opened; it ends with 1 if its call was refused."""
    child = os.fork()
    if not child:
        try:
            os.close(gate[1])
            os.read(gate[0], 1)
            work()
            os._exit(0)
        except ValueError:
            os._exit(1)
        except BaseException as error:  # noqa: BLE001 - a fork must not go on in its parent's code
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(2)
    return child


def raced(folder: Path, names: tuple[str, str]) -> dict[str, Any]:
    """What two registrations at once leave."""
    private_folder(folder)
    Records(folder)
    gate = os.pipe()
    works = [lambda kind=kind, name=name: register_some(folder, name, kind) for kind, name in enumerate(names, 1)]
    children = [forked(work, gate) for work in works]
    opened_gate(gate)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    held = []
    for one in Records(folder).populations():
        kept = len(Register.read(attribute_file(folder, one.name)))
        budget = DurableLedger.open(ledger_file(folder, one.name)).budget_epsilon
        held.append([one.name, SIZES[int(one.epsilon)] == one.people == kept, budget == one.epsilon])
    return {"codes": codes, "held": held, "files": sorted(p.name for p in (folder / "populations").iterdir())}


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str) -> None:
    setattr(owner, name, die)


def after(owner: Any, name: str) -> None:
    kept = getattr(owner, name)

    def does_and_dies(*given: Any, **named: Any) -> None:
        kept(*given, **named)
        die()

    setattr(owner, name, does_and_dies)


#: Where a registration is killed, in the order of its steps.
STEPS: dict[str, Callable[[], None]] = {
    "before the claim": lambda: before(records.Records, "claim"),
    "after the claim": lambda: after(records.Records, "claim"),
    "after the attribute was written": lambda: after(Register, "write"),
    "after the attribute has its name": lambda: before(populations, "DurableLedger"),
    "after the ledger was made": lambda: after(populations, "DurableLedger"),
    "before the population exists": lambda: before(records.Records, "put_population"),
    "after the population exists": lambda: after(records.Records, "put_population"),
}


def marked(folder: Path) -> list[str]:
    """Files with an entry of the attribute in them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(folder)) for path in files if MARK.encode() in path.read_bytes())


def killed(folder: Path, step: str, cure: str) -> dict[str, Any]:
    """What a killed registration leaves, before and after something that should find it."""
    private_folder(folder)
    Records(folder)
    gate = os.pipe()

    def work() -> None:
        STEPS[step]()
        register_some(folder, "people", 1)

    child = forked(work, gate)
    opened_gate(gate)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left, known = marked(folder), [one.name for one in Records(folder).populations()]
    if cure == "retire":
        populations.retire(folder, Records(folder), "people")
    elif cure == "service":
        with opened(folder):
            pass
    elif not known:
        register_some(folder, "people", 2)
    found = {"code": code, "left": len(left), "known": known, "after": marked(folder)}
    return found | {"people": [one.people for one in Records(folder).populations()]}


if __name__ == "__main__":
    place, what, runs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if what == "race":
        same = [raced(place / f"same{k}", ("people", "people")) for k in range(runs)]
        other = [raced(place / f"other{k}", ("people", "others")) for k in range(runs)]
        print(json.dumps({"same": same, "other": other}))
    else:
        cures = ("retire", "service", "register")
        print(json.dumps({c: {s: killed(place / f"{c} {s}", s, c) for s in STEPS} for c in cures}))
