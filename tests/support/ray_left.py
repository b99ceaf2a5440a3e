"""Prints what a job has on a Ray cluster: `python -m support.ray_left ADDRESS JOB`."""

import sys

import ray
from ray.util.placement_group import placement_group_table


def left(address: str, job: str) -> list[str]:
    ray.init(address=address, namespace="folkmoot", log_to_driver=False)
    actors = [name for name in ray.util.list_named_actors() if name.startswith(f"{job}/")]
    groups = [
        told["name"]
        for told in placement_group_table().values()
        if f"|{job}|" in told["name"] and told["state"] != "REMOVED"
    ]
    return [*actors, *groups]


if __name__ == "__main__":
    print(*left(*sys.argv[1:]))
