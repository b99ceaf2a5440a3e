"""A Ray cluster: places are real, jobs do not see each other, and the end gives all of it back."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.core.job.messages import Place, Placed
from folkmoot.core.job.placement import Bundle
from folkmoot.unified.substrate import SubstrateError
from folkmoot.unified.substrate.open import open_substrate
from unified.master.job_run import left_on_ray
from unified.substrate.processes import wait_for_file, wait_gone
from unified.substrate.stand import Stand


@pytest.fixture
def two_jobs(ray_cluster: str, folder: Path) -> Iterator[dict[str, Stand]]:
    names = [f"test{secrets.token_hex(4)}" for _ in range(2)]
    made = [open_substrate("ray", name, folder, (), 60.0, ray_cluster) for name in names]
    for name in names:
        (folder / name).mkdir()
    yield {name: Stand(one, folder / name) for one, name in zip(made, names, strict=True)}
    for name in names:
        last = open_substrate("ray", name, folder / "run", (), 60.0, ray_cluster)
        last.open(2**40, lambda _: None)
        last.end()


def reserved(job: str) -> float:
    """Cores that the cluster keeps for a job."""
    from ray.util.placement_group import placement_group_table

    groups = [g for g in placement_group_table().values() if f"|{job}|" in g["name"]]
    made = [g["bundles"].values() for g in groups if g["state"] == "CREATED"]
    return sum(bundle["CPU"] for bundles in made for bundle in bundles)


def test_jobs_share_a_cluster_and_give_back_what_they_had(
    two_jobs: dict[str, Stand], ray_cluster: str
) -> None:
    (first, one), (_, other) = two_jobs.items()
    bundles = (Bundle(("a-0", "a-1"), {"cpu": 1.0}), Bundle(("a-2",), {"cpu": 0.5}))
    one.substrate.place(Place("a", "PACK", bundles, 2))
    nodes = one.wait(Placed).nodes
    assert nodes.keys() == {"a-0", "a-1", "a-2"}
    for actor in ("a-0", "a-1"):  # two in one bundle, each with half of it
        one.create(actor, "waits", node=nodes[actor], needs={"cpu": 0.5})
    pid = one.create("a-2", "has_children", node=nodes["a-2"], needs={"cpu": 0.5}).pid
    children = wait_for_file(one.said("a-2")).split()
    other.create("a-0", "waits")
    assert reserved(first) == 1.5
    one.substrate.end()
    for gone in (pid, *map(int, children)):
        wait_gone(gone)
    again = Stand(other.substrate, other.folder, epoch=2)
    assert [living.actor for living in again.found.living] == ["a-0"]
    assert not left_on_ray(ray_cluster, first)


def test_a_cluster_that_is_not_there_is_told_in_a_sentence(folder: Path) -> None:
    for address, told in (("", "needs a cluster that outlives"), ("local", "ray start")):
        with pytest.raises(SubstrateError, match=told):
            open_substrate("ray", "job", folder, (), 60.0, address).open(1, lambda _: None)
