"""The same loop under the public implementation: `public_job.py FOLDER`, two workers on Ray."""

import os
import sys

import ray
from dlrover.python.unified.api.builder import DLJobBuilder
from dlrover.python.unified.api.runtime import current_worker


def steps() -> None:
    from plain_stepper import steps

    steps(os.environ["STEPS"], current_worker().actor_info.rank)


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    ray.init(
        address=os.environ["BENCH_RAY"],
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", here)}},
    )
    job = (
        DLJobBuilder()
        .node_num(1)
        .device_per_node(2)
        .device_type("CPU")
        .global_env({"STEPS": sys.argv[1]})
        .role("w")
        .run("public_job.steps")
        .total(2)
        .per_group(1)
        .resource(cpu=0.1)
        .end()
        .build()
    )
    job.submit("bench", master_cpu=1, master_memory=512)
