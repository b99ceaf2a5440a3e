"""The fluent builders: what they say is what the spec says, and what cannot be is refused."""

from typing import Any

import pytest

from folkmoot.core.config import decode
from folkmoot.core.job import ClusterSize, JobSpec, Resource
from folkmoot.unified.api import BadJob, JobBuilder, RLJobBuilder
from folkmoot.unified.worker import Worker


class Rollout(Worker): ...


def six_roles() -> RLJobBuilder:
    builder = RLJobBuilder("ppo").node_num(2).device_per_node(4).config({"k1": "v1"})
    return (
        builder.global_env({"e0": "v0"})
        .trainer("m0:c0").end()
        .actor("m1:c1").total(4).per_group(2).env({"e1": "v1"}).end()
        .rollout("m2:c2").total(4).per_group(2).env({"e2": "v2"}).resource(cpu=0.0, gpu=0.0).end()
        .reward("m3:c3").total(4).per_group(2).env(e3="v3").resource(cpu=0.0).end()
        .reference("m4:c4").total(4).per_group(2).resource(cpu=0.0).end()
        .critic("m5:c5").total(2).per_group(2).end()
        .with_collocation("actor", "rollout")
    )  # fmt: skip


def test_six_roles_and_everything_that_was_said_of_them() -> None:
    job = six_roles().build()
    assert job.name == "ppo"
    assert list(job.roles) == ["trainer", "actor", "rollout", "reward", "reference", "critic"]
    assert [role.entry for role in job.roles.values()] == [
        "m0:c0", "m1:c1", "m2:c2", "m3:c3", "m4:c4", "m5:c5",
    ]  # fmt: skip
    actor = job.roles["actor"]
    assert (actor.total, actor.per_group, actor.env) == (4, 2, {"e1": "v1"})
    assert (job.config, job.env, job.colocate) == (
        {"k1": "v1"}, {"e0": "v0"}, (("actor", "rollout"),),
    )  # fmt: skip
    assert job.cluster == ClusterSize(nodes=2, node=Resource(cpu=4))
    assert [name for name, role in job.roles.items() if role.driver] == ["trainer"]
    assert [name for name, role in job.roles.items() if role.elastic] == ["actor", "critic"]


def test_the_same_job_as_toml() -> None:
    text = """
        name = "ppo"
        colocate = [["actor", "rollout"]]
        [channels.samples]
        capacity = 64
        [roles.trainer]
        entry = "ppo:Trainer"
        backend = "trainer"
        reads = ["samples"]
        [roles.actor]
        entry = "ppo:Actor"
        backend = "elastic"
        driver = false
        total = 2
        budget = { worker = 1 }
        [roles.rollout]
        entry = "ppo:Rollout"
        driver = false
        total = 2
        config = { env = "CartPole-v1", steps = 128 }
        writes = ["samples"]
        failure_domain = "worker"
        timeouts.hang = 60
    """
    built = (
        RLJobBuilder("ppo")
        .trainer("ppo:Trainer").reads("samples").end()
        .actor("ppo:Actor").total(2).budget(worker=1).end()
        .rollout("ppo:Rollout").total(2).config(env="CartPole-v1", steps=128).writes("samples")
        .failure_domain("worker").timeouts(hang=60).end()
        .with_collocation("actor", "rollout").channel("samples", capacity=64)
        .build()
    )  # fmt: skip
    assert decode(text, JobSpec, "job.toml") == built


def test_end_may_be_left_out() -> None:
    short = RLJobBuilder().trainer("a:T").actor("a:A").total(2).rollout("a:R").total(3).build()
    assert {name: role.size for name, role in short.roles.items()} == {
        "trainer": 1, "actor": 2, "rollout": 3,
    }  # fmt: skip


def test_a_class_can_be_given_itself_if_others_can_find_it() -> None:
    job = JobBuilder().role("rollout").run(Rollout).end().build()
    assert job.roles["rollout"].entry == f"{__name__}:Rollout"
    assert JobBuilder().workload("x", "a::b").build().roles["x"].entry == "a:b"
    for hidden in (lambda: None, type("Main", (), {"__module__": "__main__"})):
        with pytest.raises(ValueError, match="cannot be found by another process"):
            JobBuilder().role("x").run(hidden)


def test_elastic_training_by_nodes_and_processes_in_either_order() -> None:
    job = JobBuilder().node_num(2).device_per_node(2).train("t:main").nnodes(2).nproc_per_node(2)
    role = job.build().roles["elastic"]
    assert (role.backend, role.entry, role.total, role.per_group) == ("elastic", "t:main", 4, 2)
    assert role.least == 4
    other = JobBuilder().role("pre").train("train.py --x").nproc_per_node(2).nnodes("1:3").build()
    grown = other.roles["pre"]
    assert (grown.total, grown.min, grown.per_group) == (6, 2, 2)
    assert JobBuilder().role("a").run("a:b").elastic(2, 8).build().roles["a"].size == 8
    with pytest.raises(ValueError, match="nnodes is a number or least:most, not 'few'"):
        JobBuilder().train("t:main").nnodes("few")


def test_extra_flags() -> None:
    role = (
        JobBuilder().train("t:main").skip_node_check().on_error("fail").placement("SPREAD")
        .join_wait(3).sub_master("t:Master").env(None).env({"a": "b"}).driver()
        .build().roles["elastic"]
    )  # fmt: skip
    assert (role.check, role.on_error, role.placement) == (False, "fail", "SPREAD")
    assert (role.join_wait, role.sub_master, role.env) == (3.0, "t:Master", {"a": "b"})
    assert JobBuilder().workload("x", "s.py").args("--y").build().roles["x"].args == ("--y",)


def test_devices_are_shared_where_roles_are_placed_together() -> None:
    builder = (
        RLJobBuilder().node_num(2).device_per_node(6).device_type("GPU")
        .trainer("m:t").end()
        .actor("m:a").total(4).per_group(2).end()
        .rollout("m:o").total(4).per_group(2).end()
        .reference("m:f").total(12).per_group(6).end()
        .reward("m:w").total(4).per_group(2).end()
        .with_collocation("actor", "rollout").with_collocation("reward", "reference")
    )  # fmt: skip
    job = builder.build()
    gpus = {name: role.resource.gpu for name, role in job.roles.items()}
    assert gpus == {"trainer": 0, "actor": 0.5, "rollout": 0.5, "reference": 0.5, "reward": 0.5}
    three = (
        RLJobBuilder().device_type("GPU").trainer("m:t").actor("m:a").total(4).rollout("m:o")
        .total(4).reference("m:f").total(4).with_collocation_all().build()
    )  # fmt: skip
    assert {role.resource.gpu for name, role in three.roles.items() if name != "trainer"} == {0.33}
    alone = JobBuilder().device_type("GPU").workload("x", "a:b").build()
    assert alone.roles["x"].resource.gpu == 1


def test_all_roles_together_but_the_trainer_and_those_named() -> None:
    builder = RLJobBuilder().trainer("m:t").actor("m:a").rollout("m:o").reward("m:w").end()
    assert builder.with_collocation_all("reward").build().colocate == (("actor", "rollout"),)


def bad(builder: Any) -> str:
    with pytest.raises(BadJob) as caught:
        builder.build()
    return str(caught.value)


def test_what_is_missing_is_told_all_at_once() -> None:
    assert "roles: must hold at least one role" in bad(JobBuilder())
    assert "roles: trainer is missing: .trainer(entry)" in bad(RLJobBuilder())
    assert "actor is missing" not in bad(RLJobBuilder().actor("a:b"))
    assert "roles: actor is missing: .actor(entry)" in bad(RLJobBuilder().trainer("m0:c0"))
    told = bad(RLJobBuilder().trainer("").actor("a:b").total(3).per_group(2))
    assert told.startswith("the job job has 2 problems:\n")
    assert "roles.trainer.entry: must name what to run" in told
    assert "roles.actor.per_group: must divide the 3 workers" in told
    assert "device_type: must be CPU or GPU, not 'mem'" in bad(
        JobBuilder().device_type("mem").workload("a", "b:c")
    )
    assert "cluster: needs both" in bad(JobBuilder().node_num(1).workload("a", "b:c"))
    assert "write m0.x:c0" in bad(JobBuilder().workload("a", "m0.x.c0"))


def test_values_of_another_type_are_told_with_their_place() -> None:
    builder: Any = JobBuilder().workload("a", "b:c")
    assert "total: expected int, got str" in bad(builder.total("four"))


def test_roles_that_cannot_be_together() -> None:
    def rl() -> Any:
        return RLJobBuilder().trainer("m:t").actor("m:a").rollout("m:o").reward("m:w").end()

    twice = rl().with_collocation("actor", "rollout").with_collocation("actor", "reward")
    assert "'actor' stands twice" in bad(twice)
    told = bad(rl().with_collocation("actor", "critic"))
    assert "names the role 'critic', which is not there" in told
    uneven = RLJobBuilder().trainer("m:t").actor("m:a").total(4).rollout("m:o").total(2)
    assert "equally many groups" in bad(uneven.with_collocation("actor", "rollout"))


def test_roles_are_called_as_they_were_defined() -> None:
    """P12: with_collocation changed the case of the names that role() kept."""
    builder = JobBuilder().workload("actor", "a:b").workload("rollout", "a:c").end()
    assert builder.with_collocation("actor", "rollout").build().colocate[0] == ("actor", "rollout")
    upper = JobBuilder().workload("actor", "a:b").workload("rollout", "a:c").end()
    told = bad(upper.with_collocation("ACTOR", "rollout"))
    assert "'ACTOR', which is not there (did you mean 'actor'?)" in told


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_more_workers_than_the_cluster_holds_are_refused(device: str) -> None:
    """P13: 1000 instances were accepted on one node with two devices."""
    builder = JobBuilder().node_num(1).device_per_node(2).device_type(device)
    told = bad(builder.workload("a", "b:c").total(1000))
    assert f"cluster: has 2 {device.lower()} in all; the roles need 1000" in told
    exact = JobBuilder().cluster(2, cpu=4, gpu=1).workload("a", "b:c").total(2).resource(gpu=1)
    assert exact.build().cluster is not None
    assert "has 2 gpu in all; the roles need 4" in bad(exact.total(4))


def test_a_role_or_a_channel_is_defined_once() -> None:
    with pytest.raises(ValueError, match="the role 'a' is defined already"):
        JobBuilder().workload("a", "b:c").workload("a", "b:d")
    with pytest.raises(ValueError, match="the channel 'x' is defined already"):
        JobBuilder().channel("x").channel("x")


def test_a_misspelt_step_is_told_with_the_nearest() -> None:
    """P18, in Python."""
    with pytest.raises(AttributeError, match=r"'per_grup' \(did you mean 'per_group'\?\)"):
        JobBuilder().workload("a", "b:c").per_grup(2)
    with pytest.raises(TypeError, match="worke"):
        JobBuilder().workload("a", "b:c").budget(worke=2)


def test_a_torchrun_command_says_all_and_nothing_is_added() -> None:
    """P14: a configuration and an environment of a test were put in, and the CPU forced."""
    command = (
        "torchrun --nnodes=2:4 --nproc_per_node 2 --max-restarts=1 --rdzv-backend c10d"
        " --rdzv_endpoint=h:1 train.py --name 'two words' --nnodes 9"
    )
    job = JobBuilder().by_torchrun_cmd(command).build()
    role = job.roles["elastic"]
    assert role.entry == "train.py --name 'two words' --nnodes 9"
    assert (role.min, role.total, role.per_group) == (4, 8, 2)
    assert (role.budget.worker, role.budget.role) == (1, 1)
    assert (job.config, job.env, role.config, role.env, job.cluster) == ({}, {}, {}, {}, None)
    assert role.resource == Resource()
    module = JobBuilder().by_torchrun_cmd("python -m torch.distributed.run -m pkg.train --lr 1")
    assert module.build().roles["elastic"].entry == "-m pkg.train --lr 1"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("mpirun train.py", "is no torchrun command"),
        ("torchrun --nnodes 2", "names no script"),
        ("torchrun --nprocs-per-node 2 t.py", r"did you mean --nproc-per-node\?"),
        ("torchrun --nproc-per-node auto t.py", "say a number"),
        ("torchrun --no-python ./a.out", "--no-python is not taken over"),
        ("torchrun --nnodes", "needs a value"),
    ],
)
def test_a_torchrun_command_that_cannot_be_taken_over(command: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        JobBuilder().by_torchrun_cmd(command)
