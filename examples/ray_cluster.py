"""A fit on Parquet files by Ray's TorchTrainer, and the same fit by torchrun: the same model.

On a cluster, with files that all of its nodes see:

    python ray_cluster.py people --target y --sensitive group --groups a,b --workers 4 --address auto --out model

Without ``--address`` a cluster of two nodes is started on this machine, to try it. Started by torchrun, the script fits
in the processes that it finds:

    torchrun --standalone --nproc-per-node 2 ray_cluster.py people --target y --sensitive group --groups a,b --out model
"""

import argparse
import os
from pathlib import Path
from typing import Any

import ray
import torch.distributed as dist
from ray.cluster_utils import Cluster
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from justitia import LagrangianDualClassifier


def fit(asked: dict[str, Any]) -> None:
    """What every process runs, in the process group that it finds; the first one saves."""
    model = LagrangianDualClassifier(
        epsilon=asked["epsilon"], groups=asked["groups"], random_state=0, noise_seed=asked["noise_seed"]
    )
    model.fit(asked["data"], asked["target"], sensitive_features=asked["sensitive"], checkpoint=asked["checkpoint"])
    if dist.get_rank() == 0:
        model.save(asked["out"])


def by_ray(asked: dict[str, Any]) -> None:
    """One worker per processor, spread over the nodes; where one is lost, all start again from the checkpoint."""
    cluster = None if asked["address"] else two_nodes(asked["workers"])
    ray.init(address=asked["address"] or cluster.address)
    restarts = 3 if asked["checkpoint"] else 0
    trainer = TorchTrainer(
        fit,
        train_loop_config=asked,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=asked["workers"], placement_strategy="SPREAD"),
        run_config=RunConfig(storage_path=f"{asked['out']}.ray", failure_config=FailureConfig(max_failures=restarts)),
    )
    trainer.fit()
    alive = [node for node in ray.nodes() if node["Alive"]]
    print(f"{asked['workers']} workers on {len(alive)} nodes: {asked['out']}")
    ray.shutdown()
    if cluster is not None:
        cluster.shutdown()


def two_nodes(workers: int) -> Any:
    """A cluster of two nodes on this machine."""
    each = {"num_cpus": -(-workers // 2), "object_store_memory": 10**8}
    cluster = Cluster(initialize_head=True, head_node_args={**each, "include_dashboard": False})
    cluster.add_node(**each)
    return cluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of Parquet files")
    parser.add_argument("--target", required=True)
    parser.add_argument("--sensitive", required=True)
    parser.add_argument("--groups", required=True, type=lambda text: text.split(","))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--address", help="of a Ray cluster, or 'auto'")
    parser.add_argument("--checkpoint", type=Path, help="folder that all nodes see")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--noise-seed", type=int, help="to compare two runs; such a model promises nothing")
    given = vars(parser.parse_args()).items()
    asked = {name: str(value.absolute()) if isinstance(value, Path) else value for name, value in given}
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        fit(asked)
        dist.destroy_process_group()
    else:
        by_ray(asked)


if __name__ == "__main__":
    main()
