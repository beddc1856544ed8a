"""Software bill of materials of the wheel, as CycloneDX: ``make sbom``.

Installs the wheel in an empty environment with the versions of ``requirements.lock``, lets ``cyclonedx-py`` describe
what is there, and takes out pip and setuptools, which an environment brings and the wheel does not ask for. The file is
the same whenever it is made from the same wheel and lock, and is checked against the schema of CycloneDX.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from bench.newcomer import ROOT, Environment
from bench.release.dist import commit_time

#: What an empty virtual environment has already.
NOT_OURS = {"pip", "setuptools"}


def described(environment: Environment, target: Path) -> dict[str, object]:
    """What cyclonedx-py says of an environment; it checks its own output against the schema."""
    program = Path(sys.executable).parent / "cyclonedx-py"
    words = [str(program), "environment", "--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library"]
    words += ["--output-reproducible", "--validate", "-o", str(target), str(environment.folder / "bin" / "python")]
    subprocess.run(words, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": commit_time()})
    found: dict[str, object] = json.loads(target.read_text(encoding="utf-8"))
    return found


def without_tools(bill: dict[str, object], version: str) -> dict[str, object]:
    """The bill without what is not ours, the wheel under its version, and no reference to a file of this machine."""
    components = [one for one in bill["components"] if one["name"].lower() not in NOT_OURS]  # type: ignore[attr-defined]
    own = [one["bom-ref"] for one in components if one["name"] == "justitia"]
    kept = [one for one in components if one["name"] != "justitia"]
    for one in kept:
        one.pop("externalReferences", None)
    root = bill["metadata"]["component"]  # type: ignore[index]
    root |= {"version": version, "purl": f"pkg:pypi/justitia@{version}"}
    root.pop("externalReferences", None)
    references = {one["bom-ref"] for one in kept} | {root["bom-ref"]}
    links = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}  # type: ignore[attr-defined]
    needed = {name for old in [*own, root["bom-ref"]] for name in links.get(old, [])}
    links[root["bom-ref"]] = sorted(needed)
    bill["components"] = kept
    bill["dependencies"] = [
        {"ref": ref, "dependsOn": [one for one in links.get(ref, []) if one in references]}
        for ref in sorted(references)
    ]
    return bill


def main() -> None:
    """Write the bill of materials beside the wheel."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as place:
        environment = Environment(Path(place) / "environment", sys.executable)
        environment.install("-c", str(ROOT / "requirements.lock"), str(wheel))
        bill = without_tools(described(environment, Path(place) / "all.json"), version)
    target = ROOT / "dist" / f"justitia-{version}.cdx.json"
    text = json.dumps(bill, indent=2, ensure_ascii=False) + "\n"
    wrong = JsonStrictValidator(SchemaVersion.from_version(str(bill["specVersion"]))).validate_str(text)
    if wrong is not None:
        raise SystemExit(f"expected a bill of materials as CycloneDX describes it, got {wrong}.")
    target.write_text(text, encoding="utf-8")
    print(f"dist/{target.name}: {len(bill['components'])} components")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
