"""Groups of workers: everyone, the first, one, and batches that are split and joined."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.unified.rpc.client import RpcClient
from folkmoot.unified.rpc.connection import RpcPeer
from folkmoot.unified.rpc.directory import AddressBook
from folkmoot.unified.rpc.errors import CallTimeout, RemoteError, RpcError, WorkerDied
from folkmoot.unified.rpc.group import Broadcast, RoleActor, RoleGroup, split
from folkmoot.unified.rpc.methods import EXPORTED, RemoteMethods, rpc
from folkmoot.unified.rpc.proxy import proxy
from folkmoot.unified.rpc.server import Server

SECRET = b"only this job knows it"


class Rollout:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.entered, self.release = threading.Event(), threading.Event()

    @rpc
    def where(self, *, plus: int = 0) -> int:
        return self.rank + plus

    @rpc()
    def generate(self, prompts: Sequence[str], suffix: str = "") -> list[str]:
        return [f"{self.rank}:{prompt}{suffix}" for prompt in prompts]

    @rpc
    def scale(self, values: Any, factors: Any) -> Any:
        return values * factors

    @rpc
    def lose_one(self, items: list[int]) -> list[int]:
        return items[1:]

    @rpc
    def fail_on(self, rank: int) -> int:
        if self.rank == rank:
            raise ValueError(f"rank {rank} does not want to")
        self.entered.set()
        self.release.wait(30)
        return self.rank

    @rpc("another_name")
    async def later(self, value: int) -> int:
        await asyncio.sleep(0)
        return value + self.rank

    def hidden(self) -> None: ...


class Role:
    """Workers with servers of their own, in this process."""

    def __init__(self, count: int, folder: Path) -> None:
        self.workers = [Rollout(rank) for rank in range(count)]
        self.servers = []
        book = AddressBook()
        for worker in self.workers:
            name = f"rollout-{worker.rank}"
            methods = RemoteMethods(name)
            methods.export_instance(worker)
            self.servers.append(Server(RpcPeer.me(name, 1), methods, SECRET))
            book.set(name, self.servers[-1].listen(f"unix:{folder}/{name}"))
        clients = [RpcClient(f"rollout-{k}", book, RpcPeer.me("me"), SECRET) for k in range(count)]
        self.group = RoleGroup("rollout", [RoleActor(c, k) for k, c in enumerate(clients)])

    def close(self) -> None:
        for worker, server in zip(self.workers, self.servers, strict=True):
            worker.release.set()
            server.close()


@pytest.fixture
def role(tmp_path: Path) -> Iterator[Role]:
    made = Role(4, tmp_path)
    yield made
    made.close()


def test_everyone_the_first_and_one(role: Role) -> None:
    group = role.group
    assert len(group) == 4
    assert group[0].name == "rollout-0"
    assert group.call("where").result(60) == [0, 1, 2, 3]
    assert group.call(Rollout.where, plus=10).result(60) == [10, 11, 12, 13]
    assert group.call_rank0(Rollout.where, plus=5).result(60) == 5
    assert group[2].call(Rollout.where).result(60) == 2
    assert group[-1].call("where").result(60) == 3
    assert [actor.rank for actor in group[1:3]] == [1, 2]
    assert group.call(Rollout.later, 1).result(60) == [1, 2, 3, 4]


def test_each_worker_can_have_its_own_arguments(role: Role) -> None:
    found = role.group.scatter("where", plus=[10, 20, 30, 40])
    assert found.result(60) == [10, 21, 32, 43]
    with pytest.raises(ValueError, match=r"plus= needs one element for each of <rollout: 4 work"):
        role.group.scatter("where", plus=[1, 2])


def test_five_items_on_four_workers(role: Role) -> None:
    """P9: lengths were [2, 2, 1, -1] and their sum 4."""
    found = role.group.call_batch(Rollout.generate, 5, list("abcde"))
    assert len(found) == 5
    assert repr(found) == "FutureSequence(lens=[2, 1, 1, 1])"
    assert found.result(60) == ["0:a", "0:b", "1:c", "2:d", "3:e"]
    assert list(found) == found.wait(60)


def test_an_index_counts_from_either_end(role: Role) -> None:
    """P10: [-1] was the last item of the first shard."""
    found = role.group.call_batch("generate", 5, list("abcde"))
    assert found[-1] == "3:e"
    assert found[-5] == found[0] == "0:a"
    assert found[1:4] == ["0:b", "1:c", "2:d"]
    assert found[::-2] == ["3:e", "1:c", "0:a"]
    for outside in (5, -6):
        with pytest.raises(IndexError):
            found[outside]


def test_keyword_sequences_are_split_too(role: Role) -> None:
    """P11: the length of the keyword's name was compared."""
    found = role.group.call_batch("generate", 4, prompts=("a", "b", "c", "d"), suffix="!")
    assert found.result(60) == ["0:a!", "1:b!", "2:c!", "3:d!"]
    with pytest.raises(ValueError, match="prompts= has 3 items, not 4"):
        role.group.call_batch("generate", 4, prompts=["a", "b", "c"])


def test_arrays_are_split_and_what_is_whole_is_not(role: Role) -> None:
    values = np.arange(6.0)
    found = role.group.call_batch("scale", 6, values, np.float64(2.0))
    assert found.result(60) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    with pytest.raises(ValueError, match="argument 2 has 1 items, not 6; wrap it in Broadcast"):
        role.group.call_batch("scale", 6, values, np.ones(1))
    whole = role.group.call_batch("scale", 6, values, Broadcast(np.ones(1)))
    assert whole.result(60) == list(values)


def test_fewer_items_than_workers_leave_some_alone(role: Role) -> None:
    found = role.group.call_batch("generate", 2, ["a", "b"])
    assert len(found.calls) == 2
    assert found.result(60) == ["0:a", "1:b"]
    assert role.group.call_batch("generate", 0, []).result(60) == []


def test_a_worker_that_returns_another_number_is_named(role: Role) -> None:
    found = role.group.call_batch("lose_one", 4, [1, 2, 3, 4])
    with pytest.raises(RpcError, match="lose_one of rollout-0 returned 0 results for 1 items"):
        found.result(60)


@given(st.integers(0, 1000), st.integers(1, 40))
def test_a_batch_is_split_evenly(size: int, workers: int) -> None:
    lens = split(size, workers)
    assert sum(lens) == size
    assert max(lens) - min(lens) <= 1
    assert lens == sorted(lens, reverse=True)


def test_the_whole_fails_as_soon_as_one_does_and_says_which(role: Role) -> None:
    with pytest.raises(RemoteError, match="fail_on of rollout-2 raised ValueError: rank 2 does"):
        role.group.call("fail_on", 2).result(60)

    async def scene() -> None:
        await role.group.call("fail_on", 3)

    for worker in role.workers:
        worker.release.set()
    with pytest.raises(RemoteError, match="rollout-3"):
        asyncio.run(scene())


def test_a_dead_worker_of_many_is_named_at_once(role: Role) -> None:
    calls = role.group.call("fail_on", 9)
    for actor in role.group:
        actor.call("where").done()
    role.servers[1].close()
    with pytest.raises(WorkerDied, match="rollout-1"):
        calls.result(60)


def test_those_that_hang_are_named_with_a_stack_of_the_first(role: Role) -> None:
    calls = role.group.call("fail_on", 9)
    for worker in role.workers:
        worker.entered.wait(60)
    with pytest.raises(CallTimeout) as caught:
        calls.result(0.2)
    assert "self.release.wait(30)" in str(caught.value)
    assert "Also without an answer: rollout-1, rollout-2, rollout-3" in str(caught.value)
    with pytest.raises(CallTimeout, match="fail_on of rollout-"):
        role.group.within(0.2).call("fail_on", 9).result()


def test_groups_can_be_awaited(role: Role) -> None:
    async def scene() -> tuple[list[int], list[str], int]:
        everyone = await role.group.call(Rollout.later, 5)
        batch = await role.group.call_batch(Rollout.generate, 3, ["a", "b", "c"])
        return everyone, batch, await role.group[1].call(Rollout.where)

    assert asyncio.run(scene()) == ([5, 6, 7, 8], ["0:a", "1:b", "2:c"], 1)


def test_a_role_without_workers_can_only_be_called_as_a_whole() -> None:
    empty = RoleGroup("critic", [])
    assert empty.call("step").result(60) == []
    for call in (lambda: empty.call_rank0("step"), lambda: empty.call_batch("step", 2, [1, 2])):
        with pytest.raises(ValueError, match="the role 'critic' has no workers to call"):
            call()


def test_a_proxy_is_used_like_the_object_itself(role: Role) -> None:
    remote = proxy(role.group[1].call, None, Rollout)
    assert remote.where(plus=1) == 2
    assert asyncio.run(_awaited(remote)) == 11
    with pytest.raises(AttributeError, match=r"no remote method 'were' \(did you mean 'where'\?\)"):
        remote.were  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="no remote method 'hidden'"):
        remote.hidden()


async def _awaited(remote: Rollout) -> int:
    return await remote.later(10)


def test_methods_are_named_marked_and_exported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EXPORTED, "_methods", {})

    @rpc(export=True)
    def version() -> str:
        return "1"

    def stub(x: int, y: int = 0) -> str: ...  # type: ignore[empty-body]

    @rpc(like=stub, export=True)
    def implementation(x: int, y: int = 0) -> str:
        return f"{x}-{y}"

    methods = RemoteMethods("rollout-0")
    methods.export_instance(Rollout(0), "env")
    assert methods.names() == [
        "env.another_name", "env.fail_on", "env.generate", "env.lose_one", "env.scale", "env.where",
        "stub", "version",
    ]  # fmt: skip
    assert methods.find("stub").function(1, y=2) == "1-2"
    with pytest.raises(ValueError, match=r"rollout-0 exports a method 'env\.where' already"):
        methods.export("env.where", version)
    with pytest.raises(LookupError, match="no remote method 'hidden'"):
        methods.find("hidden")
    with pytest.raises(TypeError, match="not callable"):
        methods.export("x", 5)  # type: ignore[arg-type]
