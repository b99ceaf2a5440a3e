"""A job that cannot be is refused before anything starts, with a sentence."""

import pytest

from folkmoot.core.config import ConfigError, all_broken, decode
from folkmoot.core.job import ClusterSize, JobSpec, Resource, RoleSpec

SPEC = """
name = "ppo"
colocate = [["actor", "rollout"]]

[roles.trainer]
entry = "ppo:Trainer"
backend = "trainer"

[roles.actor]
entry = "ppo:Actor"
backend = "elastic"
max = 4
min = 2
driver = false

[roles.rollout]
entry = "ppo:Rollout"
total = 8
per_group = 2
driver = false
resource = { cpu = 0.5, gpu = 0.25, custom = { sim = 1.0 } }
failure_domain = "dependents"
depends_on = ["actor"]
config = { env = "CartPole-v1", nested = { deep = [1, 2] } }
budget = { worker = 2 }
writes = ["samples"]

[channels.samples]
capacity = 64
"""


def spec_of(cluster: ClusterSize | None = None, **roles: RoleSpec) -> JobSpec:
    return JobSpec(name="job", roles=roles, cluster=cluster)


def reasons(spec: JobSpec) -> str:
    return "\n".join(f"{field}: {reason}" for field, reason in all_broken(spec))


def role(**named: object) -> RoleSpec:
    return RoleSpec(**{"entry": "m:C", **named})  # type: ignore[arg-type]


def test_a_file_becomes_one_spec() -> None:
    spec = decode(SPEC, JobSpec, "job.toml")
    actor, rollout = spec.roles["actor"], spec.roles["rollout"]
    assert (actor.size, actor.least, actor.most, actor.domain) == (4, 2, 4, "role")
    assert (actor.has_sub_master, rollout.has_sub_master) == (True, False)
    assert rollout.config["nested"] == {"deep": [1, 2]}
    assert [gang.name for gang in spec.gangs] == ["trainer", "actor+rollout"]
    bundle = spec.gangs[1].bundles[1]
    assert bundle.actors == ("actor-1", "rollout-2", "rollout-3")
    assert bundle.needs == {"cpu": 2.0, "gpu": 0.5, "sim": 2.0}


@pytest.mark.parametrize(
    ("line", "instead", "complaint"),
    [
        ("total = 8", "totall = 8", "did you mean 'total'?"),
        ('entry = "ppo:Trainer"', 'entry = "ppo.Trainer"', "write ppo:Trainer"),
        ('"actor", "rollout"', '"Actor", "rollout"', "'Actor', which is not there (did you mean"),
        ('["actor"]', '["critic"]', "depends on the role 'critic', which is not there"),
        ('["samples"]', '["sample"]', "uses the channel 'sample', which is not there (did you"),
        ("total = 8", "total = 6", "actor has 4, rollout has 3"),
        ("total = 8", "total = 7", "must divide the 7 workers"),
        ("min = 2", "min = 5", "is more than the 4 workers"),
        ("driver = false", 'driver = false\nplacement = "SPREAD"', "actor says SPREAD"),
        ("[roles.rollout]", '[roles."roll-out"]', "'roll-out' must be letters"),
        ('[["actor", "rollout"]]', '[["actor", "rollout"], ["actor", "trainer"]]', "stands twice"),
        ("gpu = 0.25", "gpu = 1.5", "must be a share of one, or a whole number"),
    ],
)
def test_what_cannot_be_is_refused(line: str, instead: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as error:
        decode(SPEC.replace(line, instead, 1), JobSpec, "job.toml")
    assert complaint in str(error.value)


def test_more_workers_than_the_cluster_holds_are_refused() -> None:
    big = role(total=1000, resource=Resource(cpu=0, gpu=1))
    cluster = ClusterSize(nodes=1, node=Resource(cpu=4, gpu=2))
    assert reasons(spec_of(cluster, train=big)) == "cluster: has 2 gpu in all; the roles need 1000"


def test_a_bundle_that_fits_no_node_is_refused() -> None:
    wide = role(total=4, per_group=4, resource=Resource(cpu=0, gpu=1))
    cluster = ClusterSize(nodes=4, node=Resource(gpu=2))
    assert "has 2 gpu on a node; train needs 4 on one" in reasons(spec_of(cluster, train=wide))


def test_more_bundles_than_nodes_cannot_be_strictly_apart() -> None:
    cluster = ClusterSize(nodes=2, node=Resource(cpu=64))
    apart = role(total=3, placement="STRICT_SPREAD")
    assert "is STRICT_SPREAD and needs 3" in reasons(spec_of(cluster, a=apart))


def test_roles_that_wait_for_each_other_are_refused() -> None:
    spec = spec_of(a=role(depends_on=("b",)), b=role(depends_on=("a",)))
    assert "in a circle: a -> b -> a" in reasons(spec)


def test_a_job_needs_a_driver_and_a_role() -> None:
    assert "need a driver" in reasons(spec_of(a=role(driver=False)))
    assert "at least one role" in reasons(spec_of())


def test_only_an_elastic_role_goes_on_with_fewer() -> None:
    assert "is for elastic roles" in reasons(spec_of(a=role(total=2, min=1)))


def test_a_good_spec_breaks_no_rule() -> None:
    assert reasons(decode(SPEC, JobSpec)) == ""
