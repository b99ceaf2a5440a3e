"""Members of a run in a store that are processes: killed, hurried, vandalised. The run goes on.

Every member prints the records it followed. However it went, all followed the same ones.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from authority.any_run import OWNER
from folkmoot.authority.access import Access
from folkmoot.authority.store import keys
from folkmoot.authority.store.create import create_run
from folkmoot.authority.store.kv.open import open_store
from folkmoot.core.coordinator import Run
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.host.processes import Processes
from support import light_member
from support.commands import FOLKMOOT
from support.etcd import Etcd
from support.stores import TcpServer

PATIENCE = 120.0
RECORD = re.compile(r"^record (\d+) (\w+) (\w+)$", re.MULTILINE)
TOML = """
run_id = "{run_id}"
[config]
total_steps = {steps}
"""


class Members(Processes):
    """Members of one run in a store."""

    def __init__(self, folder: Path, url: str, run_id: str, **config: Any) -> None:
        super().__init__(folder)
        self.url, self.members = url, list[str]()
        defaults = {"total_steps": 20, "rounds_per_epoch": 10, "min_clients": 2}
        times = {"round_witness_time": 0.5, "max_round_train_time": 2, "health_check_timeout": 4}
        settings = CoordinatorConfig(**{**defaults, **times, "delay": 0, **config})
        self.run = Run(run_id=run_id, config=settings, model=Model())
        self.store = open_store(self.url, run_id)
        create_run(self.store, self.run, Access(owners=frozenset({OWNER.public})), OWNER)

    def join(self, name: str, *options: str) -> None:
        where = [self.url, self.run.run_id]
        self.start(name, [sys.executable, light_member.__file__, *where, name, *options])
        if name not in self.members:
            self.members.append(name)

    def said(self, name: str) -> str:
        return (self.folder / name / "output.txt").read_text()

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert not (failed := self.failed()), self.output(failed[0])
            story = "\n".join(f"{name}: {self.output(name)}" for name in self.members)
            assert time.monotonic() < deadline, f"waited for {what} in vain:\n{story}"
            self.wait(0.05)

    def version(self, name: str) -> int:
        found = RECORD.findall(self.said(name))
        return int(found[-1][0]) if found else 0

    def has(self, name: str, version: int) -> bool:
        return self.version(name) >= version

    def trains(self, name: str) -> bool:
        return "RoundTrain" in self.said(name)

    def finish(self, *names: str) -> None:
        """These see the end, and all saw the same records."""
        self.reach_the_end(*names)
        self.agree()

    def reach_the_end(self, *names: str) -> None:
        self.until(lambda: all("finished at" in self.said(name) for name in names), "the end")
        for name in names:
            assert f"finished at step {self.run.config.total_steps}" in self.said(name)

    def agree(self) -> None:
        """All saw the same records."""
        followed: dict[int, set[str]] = {}
        for name in self.members:
            for version, digest, _ in RECORD.findall(self.said(name)):
                followed.setdefault(int(version), set()).add(digest)
        self._same(followed)

    def agree_in_the_end(self, version: int) -> None:
        """Up to there, all came to the same records, where lines parted for a moment too."""
        followed: dict[int, set[str]] = {}
        for name in self.members:
            last = {int(found[0]): found[1] for found in RECORD.findall(self.said(name))}
            for at in range(2, version):
                if at in last:
                    followed.setdefault(at, set()).add(last[at])
        self._same(followed)

    def _same(self, followed: dict[int, set[str]]) -> None:
        assert {len(digests) for digests in followed.values()} == {1}, followed


@contextmanager
def joined(folder: Path, run_id: str, url: str, *names: str, **config: Any) -> Iterator[Members]:
    with Members(folder, url, run_id, **config) as made:
        for name in names:
            made.join(name)
        try:
            yield made
        finally:
            made.store.close()


StartMembers = Callable[..., AbstractContextManager[Members]]


@pytest.fixture
def members_at(tmp_path: Path, store_prefix: str) -> StartMembers:
    """Members of this test's own run, in the store at a url."""
    return partial(joined, tmp_path, store_prefix)


@pytest.fixture
def members(members_at: StartMembers, tcp_store_url: str) -> StartMembers:
    return partial(members_at, tcp_store_url)


def test_a_member_is_killed_and_comes_back(members: StartMembers) -> None:
    with members("ana", "bob", "cyd", total_steps=30) as run:
        run.until(lambda: run.trains("ana"), "training")
        run.kill("ana")
        before = run.version("bob")
        run.until(lambda: run.version("bob") > before + 3, "records without it")
        run.join("ana")
        run.finish("ana", "bob", "cyd")


@pytest.mark.parametrize("operations", [0, 2])
def test_one_that_just_won_a_record_is_killed(members: StartMembers, operations: int) -> None:
    # One epoch, which begins when it is there, however late it starts.
    with members("bob", "cyd", init_min_clients=3, rounds_per_epoch=20) as run:
        run.join("ana", f"--die-after={operations}")
        run._known.add("ana")  # it is meant to die
        run.finish("bob", "cyd")
        assert run["ana"].wait(PATIENCE) == -9
        assert "killed" in run.said("ana")


def test_a_stranger_writes_garbage_and_deletes_the_register(members: StartMembers) -> None:
    with members("ana", "bob", "cyd", total_steps=100_000, rounds_per_epoch=1000) as run:
        run.until(lambda: run.trains("ana"), "training")
        spoils: list[Callable[[], object]] = [
            lambda: run.store.set(keys.RECORD, b"garbage"),
            lambda: run.store.delete(keys.RECORD),
            lambda: run.store.set(keys.CLAIMED, b"garbage"),
            lambda: run.store.set(keys.CLAIMED, b"999999999"),
            lambda: [run.store.add(keys.CLAIMED, 1) for _ in range(20)],
            lambda: run.store.set(keys.ready(run.version("ana") + 2), b"garbage"),
        ]
        for spoil in spoils:
            wanted = run.version("ana") + 3
            spoil()
            run.until(partial(run.has, "ana", wanted), f"record {wanted}")
        last = run.version("ana")
        run.until(lambda: all(run.has(name, last + 3) for name in run.members), "more for all")
        run.agree_in_the_end(last)
        assert sum(run.said(name).count("is put back") for name in run.members) <= 9


def test_a_store_that_comes_back_empty_is_filled_again(
    members_at: StartMembers, own_tcp_store: TcpServer
) -> None:
    with members_at(own_tcp_store.url, "ana", "bob", total_steps=30) as run:
        run.until(lambda: run.trains("ana"), "training")
        own_tcp_store.kill()
        run.until(lambda: "unreachable" in run.said("ana") + run.said("bob"), "a notice")
        own_tcp_store.restart()
        run.join("cyd")
        run.reach_the_end("ana", "bob", "cyd")
        # The last record before its death may have been seen by its winner alone: then the store
        # is filled with the one before, and the winner follows.
        run.agree_in_the_end(max(run.version(name) for name in run.members))


def test_a_wall_clock_that_is_an_hour_off_has_no_effect(members: StartMembers) -> None:
    with members("ana", "bob") as run:
        run.join("cyd", "--wall-clock=3600")
        run.join("dan", "--wall-clock=-3600")
        run.finish("ana", "bob", "cyd", "dan")
        assert not any("WARNING" in run.said(name) for name in run.members)


@pytest.mark.faults
def test_a_member_of_an_etcd_is_killed(members_at: StartMembers, three_members: Etcd) -> None:
    with members_at(three_members.url, "ana", "bob", total_steps=60) as run:
        run.until(lambda: run.trains("ana"), "training")
        three_members.kill(three_members.leader())
        run.join("cyd")
        run.finish("ana", "bob", "cyd")


def test_of_two_who_create_a_run_one_does_and_another_one_is_refused(
    tmp_path: Path, tcp_store_url: str, store_prefix: str
) -> None:
    for file, steps in (("run.toml", 5), ("other.toml", 6)):
        (tmp_path / file).write_text(TOML.format(run_id=store_prefix, steps=steps))
    create = [*FOLKMOOT, "create", f"--store={tcp_store_url}"]

    def creator(number: int, file: str) -> subprocess.Popen[str]:
        command = [*create, str(tmp_path / file), f"--folder={tmp_path / str(number)}"]
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, **both)  # type: ignore[call-overload, no-any-return]

    creators = [creator(number, "run.toml") for number in range(2)]
    said = [process.communicate(timeout=PATIENCE)[0] for process in creators]
    assert [process.returncode for process in creators] == [0, 0], said
    assert sorted("(created)" in words for words in said) == [False, True], said
    other = creator(2, "other.toml")
    words = other.communicate(timeout=PATIENCE)[0]
    assert other.returncode == 1
    assert f"has a run {store_prefix!r} already, with another configuration" in words
