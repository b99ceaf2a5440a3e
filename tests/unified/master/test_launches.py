"""What an actor's process is born with."""

from pathlib import Path

from folkmoot.core.job import JobSpec, Resource, RoleSpec
from folkmoot.core.job.messages import Create
from folkmoot.unified.control import decode_birth
from folkmoot.unified.master.home import Home, JobSettings
from folkmoot.unified.master.launches import Launches

ROLE = RoleSpec(
    entry="m:f",
    sub_master="m:M",
    env={"COLOUR": "of the role"},
    resource=Resource(cpu=2.0, gpu=0.5),
)
SPEC = JobSpec(name="job", roles={"a": ROLE}, env={"COLOUR": "of the job", "SHAPE": "round"})


def launches(folder: Path) -> Launches:
    home = Home(folder / "job")
    home.create(SPEC, JobSettings())
    return Launches(home, SPEC, "unix:/master")


def test_what_a_role_sets_goes_before_what_the_job_sets(tmp_path: Path) -> None:
    launch = launches(tmp_path).of(Create("a-0", 3, "node"))
    assert launch.env == {"COLOUR": "of the role", "SHAPE": "round"}
    assert launch.needs == {"cpu": 2.0, "gpu": 0.5}
    birth = decode_birth(launch.argument)
    assert (birth.actor, birth.incarnation, birth.node) == ("a-0", 3, "node")


def test_a_sub_master_takes_nothing_of_the_workers_places(tmp_path: Path) -> None:
    assert launches(tmp_path).of(Create("a-master", 1, "")).needs == {}
