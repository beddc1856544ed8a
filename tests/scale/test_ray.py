"""Ray's TorchTrainer on a local cluster of two nodes, against torchrun on the same files. ``make ray-test`` runs it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from justitia import LagrangianDualClassifier
from justitia.datasets import make_synthetic

SCRIPT = Path(__file__).parents[2] / "examples" / "ray_cluster.py"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}  # no word to anybody's server


def run(folder: Path, out: str, *launcher: str) -> str:
    usual = ["people", "--target", "y", "--sensitive", "group", "--groups", "a,b", "--noise-seed", "3", "--out", out]
    command = [sys.executable, *launcher, str(SCRIPT), *usual]
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | QUIET | paths, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: make ray-test")
def test_trainer_of_ray_on_two_nodes_gives_the_model_of_torchrun_to_the_last_bit(tmp_path: Path) -> None:
    data = make_synthetic(36_000, random_state=0)  # more than a block, so that both workers have rows
    people = data.X.assign(y=data.y, group=data.sensitive)
    (tmp_path / "people").mkdir()
    for k, part in enumerate((people[:9000], people[9000:])):
        part.to_parquet(tmp_path / "people" / f"{k}.parquet", index=False)
    assert "2 workers on 2 nodes" in run(tmp_path, "by-ray")
    run(tmp_path, "by-torchrun", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    models = [LagrangianDualClassifier.load(tmp_path / name) for name in ("by-ray", "by-torchrun")]
    one, other = (model.decision_function(data.X) for model in models)
    assert np.array_equal(one, other)
    assert models[0].dual_.equals(models[1].dual_)
    facts = [json.loads((tmp_path / name / "model.json").read_text()) for name in ("by-ray", "by-torchrun")]
    assert facts[0] == facts[1]
