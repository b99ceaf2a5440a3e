"""Workers: the kinds of entry points, the hooks, what counts as success, who they know."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from folkmoot.core.job import Stage
from folkmoot.unified.current import (
    ActorInfo,
    CurrentWorker,
    JobInfo,
    World,
    as_worker,
    be_worker,
    current_worker,
)
from folkmoot.unified.entry import EntryError, load, make_worker, run
from folkmoot.unified.rpc.connection import RpcPeer
from folkmoot.unified.rpc.directory import AddressBook
from folkmoot.unified.rpc.methods import rpc
from folkmoot.unified.rpc.server import Server
from folkmoot.unified.worker import SubMaster, Worker

SECRET = b"only this job knows it"
ROLES = {"rollout": 2, "trainer": 1}


def member(
    name: str = "rollout-0", book: AddressBook | None = None, **config: Any
) -> CurrentWorker:
    role, _, rank = name.rpartition("-")
    actor = ActorInfo(
        name=name, role=role, rank=int(rank) if rank.isdecimal() else -1, config=config
    )
    job = JobInfo(name="ppo", config={"lr": 0.1}, roles=ROLES)
    return CurrentWorker(job, actor, directory=book or AddressBook(), secret=SECRET)


@pytest.fixture
def module(working_folder: Path) -> Path:
    return working_folder / "mine.py"


class Rollout(Worker):
    def __init__(self, scale: int = 1) -> None:
        self.scale = scale

    @rpc
    def generate(self, x: int) -> int:
        return self.scale * x

    @rpc
    def who(self) -> str:
        return current_worker().actor.name

    def start(self) -> int:
        return self.scale


def test_a_function(module: Path) -> None:
    module.write_text(
        "from folkmoot.unified.rpc.methods import rpc\n"
        "from folkmoot.unified.current import current_worker\n"
        "@rpc\ndef version(): return 3\n"
        "def train(lr): return {'lr': lr, 'who': current_worker().actor.name}\n"
    )
    current = member(lr=0.5)
    worker = make_worker("mine:train", current)
    assert current.methods.names() == ["status", "version"]
    with as_worker(current):
        outcome = run(worker.start)
    assert (outcome.ok, outcome.result) == (True, '{"lr": 0.5, "who": "rollout-0"}')


def test_a_worker_class_is_made_with_its_config_and_its_methods_are_exported() -> None:
    current = member(scale=3)
    worker = make_worker(f"{__name__}:Rollout", current)
    assert isinstance(worker, Rollout) or type(worker).__name__ == "Rollout"
    assert current.methods.names() == ["generate", "status", "who"]
    assert current.methods.find("generate").function(5) == 15
    assert run(worker.start).result == "3"
    assert worker.status() is Stage.INIT


def test_any_class_with_or_without_run(module: Path) -> None:
    module.write_text(
        "from folkmoot.unified.rpc.methods import rpc\n"
        "class Both:\n"
        "    @rpc()\n    def hello(self, name): return f'Hello, {name}!'\n"
        "    def run(self): return 'ran'\n"
        "class Serves:\n    stopped = False\n"
        "    def stop(self): Serves.stopped = True\n"
    )
    current = member()
    worker = make_worker("mine:Both", current)
    assert current.methods.find("hello").function("World") == "Hello, World!"
    assert run(worker.start).result == '"ran"'
    serves = make_worker("mine:Serves", member())
    serves.stop()
    assert run(serves.start).ok
    assert load("mine:Serves").stopped  # type: ignore[attr-defined]


def test_a_script_with_its_arguments(module: Path) -> None:
    module.write_text(
        "import sys, pathlib\n"
        "assert __name__ == '__main__'\n"
        "pathlib.Path('out').write_text(' '.join(sys.argv))\n"
        "sys.exit(int(sys.argv[-1]))\n"
    )
    argv = list(sys.argv)
    for entry in ("mine.py --steps", "python mine.py --steps", "python3.11 mine.py --steps"):
        assert run(make_worker(entry, member(), args=("0",)).start).ok
        assert Path("out").read_text() == "mine.py --steps 0"
    assert run(make_worker("-m mine --steps 0", member()).start).ok
    failed = run(make_worker("mine.py 4", member()).start)
    assert (failed.ok, failed.exit_code, failed.how) == (False, 4, "exit code 4")
    assert sys.argv == argv


def test_a_script_that_raises_shows_its_own_traceback(module: Path) -> None:
    module.write_text("def step():\n    raise ValueError('lost')\nstep()\n")
    outcome = run(make_worker("mine.py", member()).start)
    assert (outcome.ok, outcome.exit_code, outcome.how) == (False, 1, "ValueError: lost")
    assert "mine.py" in outcome.traceback
    assert "runpy" not in outcome.traceback
    assert "entry.py" not in outcome.traceback


@pytest.mark.parametrize(
    ("error", "ok", "code", "how"),
    [
        (SystemExit(0), True, 0, ""),
        (SystemExit(), True, 0, ""),
        (SystemExit(7), False, 7, "exit code 7"),
        (SystemExit("no data"), False, 1, "exit code no data"),
        (RuntimeError("broken"), False, 1, "RuntimeError: broken"),
        (KeyboardInterrupt(), False, 130, "KeyboardInterrupt"),
    ],
)
def test_what_counts_as_success(error: BaseException, ok: bool, code: int, how: str) -> None:
    def start() -> None:
        raise error

    outcome = run(start)
    assert (outcome.ok, outcome.exit_code, outcome.how) == (ok, code, how)
    assert bool(outcome.traceback) != ok


def test_results_are_told_as_json_or_as_they_look() -> None:
    assert run(lambda: {"loss": 0.5}).result == '{"loss": 0.5}'
    assert run(lambda: {1, 2}).result == "{1, 2}"
    assert run(lambda: None).result == ""


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("no.such.module:f", "there is no module 'no'"),
        ("json:dump_it", "json has no 'dump_it'"),
        ("json:__name__", "is no class and no function"),
        ("nowhere.py --x", "there is no script 'nowhere.py'"),
        ("python", "names no script"),
        ("-m", "names no script"),
        (f"{__name__}:Rollout", r"does not take the config of the role rollout \(seed\)"),
    ],
)
def test_an_entry_that_names_nothing_is_told(entry: str, complaint: str) -> None:
    with pytest.raises(EntryError, match=complaint):
        make_worker(entry, member(seed=3))


def test_a_module_that_imports_what_is_missing_is_not_taken_for_missing_itself(
    module: Path,
) -> None:
    module.write_text("import not_installed_anywhere\n")
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        make_worker("mine:main", member())


def test_a_worker_knows_its_job_and_itself() -> None:
    with as_worker(member("rollout-1")) as current:
        assert current_worker() is current
        worker = Rollout()
    assert (worker.name, worker.job.config) == ("rollout-1", {"lr": 0.1})
    assert (worker.rank, worker.size) == (1, 2), "others may call it before it starts"
    current.world = World(("rollout-0", "rollout-1", "rollout-2"), 4)
    assert (worker.rank, worker.size) == (1, 3)
    with pytest.raises(RuntimeError, match="there is no current worker"):
        current_worker()


def test_every_thread_of_a_workers_process_finds_it() -> None:
    seen = []
    be_worker(member())
    try:
        thread = threading.Thread(target=lambda: seen.append(current_worker().actor.name))
        thread.start()
        thread.join()
    finally:
        be_worker(None)
    assert seen == ["rollout-0"]


def test_a_worker_can_be_tried_without_a_job() -> None:
    worker = Rollout(scale=2)
    assert worker.generate(4) == 8
    assert worker.name == "worker-0"
    worker.progress(step=1)
    with pytest.raises(RuntimeError, match="has no channel 'samples'"):
        worker.channel("samples")


def test_the_default_work_is_to_answer_until_stopped() -> None:
    with as_worker(member()):
        worker = Worker()
    done = threading.Thread(target=worker.start)
    done.start()
    assert not worker.stopping
    worker.stop()
    done.join(60)
    assert not done.is_alive()
    assert worker.stopping


def test_a_channel_is_opened_once_and_progress_is_passed_on() -> None:
    told: list[dict[str, Any]] = []
    opened: list[str] = []
    current = CurrentWorker(
        JobInfo(name="j"),
        ActorInfo(name="a-0", role="a"),
        directory=AddressBook(),
        secret=SECRET,
        open_channel=lambda name: opened.append(name) or name.upper(),  # type: ignore[func-returns-value]
        on_progress=told.append,
    )
    assert current.channel("samples") == current.channel("samples") == "SAMPLES"
    current.progress(step=3)
    assert (opened, told) == (["samples"], [{"step": 3}])


class Pair:
    """Two rollouts that are served, and a worker who calls them."""

    def __init__(self, folder: Path) -> None:
        self.book = AddressBook()
        self.servers = []
        for rank in range(2):
            current = member(f"rollout-{rank}", self.book, scale=rank + 1)
            with as_worker(current):
                make_worker(f"{__name__}:Rollout", current)
                server = Server(RpcPeer.me(current.actor.name, 1), current.methods, SECRET)
            self.book.set(current.actor.name, server.listen(f"unix:{folder}/{rank}"))
            self.servers.append(server)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    for server in made.servers:
        server.close()


def test_workers_call_each_other_by_role_and_by_name(pair: Pair) -> None:
    trainer = member("trainer-0", pair.book)
    group = trainer.group("rollout", timeout=60)
    assert group.call(Rollout.generate, 10).result() == [10, 20]
    assert group.call("who").result() == ["rollout-0", "rollout-1"]
    assert trainer.worker("rollout-1").call("status").result(60) is Stage.INIT
    assert trainer.proxy("rollout-1", None, Rollout).generate(4) == 8
    trainer.close()


def test_roles_that_are_not_there(pair: Pair) -> None:
    trainer = member("trainer-0", pair.book)
    with pytest.raises(ValueError, match=r"no role 'rolout' \(did you mean 'rollout'\?\)"):
        trainer.group("rolout")
    with pytest.raises(ValueError, match="the role 'trainer' has no workers now"):
        trainer.group("trainer")
    assert len(trainer.group("critic", optional=True)) == 0


def test_a_sub_master_finds_who_is_not_fit(pair: Pair) -> None:
    with as_worker(member("rollout-master", pair.book)) as current:
        master = SubMaster()
    world = ("rollout-0", "rollout-1", "rollout-2")
    current.world = World(world, 1)
    assert [actor.name for actor in master.workers] == list(world)
    unfit = master.check_child(world)
    assert list(unfit) == ["rollout-2"]
    assert "nobody knows an address" in unfit["rollout-2"]
    current.close()
