"""A run in one process: a real server on loopback, real peers, real members, a tiny model.

    async with small_run(tmp_path, total_steps=6) as run:
        ana, bob = await run.join(2)
        await run.until(run.finished)

The fixture `small_run` gives this function once for each authority that may keep the run's state.

Nothing here sleeps: every wait is for something that was said, by the server or by a member. A
member misbehaves by a subclass of `Learner`, or by what `prepare` does to it before it begins.
"""

import asyncio
import functools
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
import torch

from folkmoot.authority.server.claims import ClaimPolicy, Claims
from folkmoot.client import events
from folkmoot.client.learner import Learner
from folkmoot.client.member import Member
from folkmoot.core.config import all_broken
from folkmoot.core.coordinator import Coordinator, Phase, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.core.data_config import TextFiles
from folkmoot.core.identity import gossip_topic, short
from folkmoot.core.method_config import DistroConfig
from folkmoot.core.model_config import GptConfig
from folkmoot.core.schedule import Constant
from folkmoot.exchange.peer import Limits, Peer, PeerConfig
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks
from folkmoot.runs.stored_checkpoint import check_stored
from support.authorities import OWNER, RunKeeper, ServerKeeper

E = TypeVar("E", bound=msgspec.Struct)

# A machine under load is slow, not wrong.
PATIENCE = 120.0
TINY = GptConfig(vocab_size=257, layers=1, heads=2, width=16, hidden=16, context=16)
QUICK = PeerConfig(stall=1.0, grace=0.2, gossip=Limits(quiet=0.05, patience=0.5))
TEXT = "".join(f"{n} times {n} is {n * n}; " for n in range(400))


def make_run(folder: Path, **changes: Any) -> Run:
    """A run of the tiny model; names of the config or of the model may be given."""
    corpus = folder / "corpus.txt"
    corpus.write_text(TEXT)
    config: dict[str, Any] = {
        "total_steps": 6,
        "min_clients": 2,
        "rounds_per_epoch": 3,
        "global_batch_size_start": 4,
        "warmup_time": PATIENCE,
        "max_round_train_time": PATIENCE,
        "round_witness_time": 2.0,
        "cooldown_time": PATIENCE,
        "health_check_timeout": PATIENCE,
    }
    model: dict[str, Any] = {
        "max_seq_len": 16,
        "architecture": TINY,
        "data": TextFiles((str(corpus),)),
        "method": DistroConfig(k=4, chunk=16),
        "lr": Constant(base_lr=1e-2),
    }
    for name, value in changes.items():
        (model if name in Model.__struct_fields__ else config)[name] = value
    run = Run(run_id="moot", config=CoordinatorConfig(**config), model=Model(**model))
    assert not list(all_broken(run))
    return run


@functools.cache
def compile_kernels(method: Any) -> None:
    """The first use of a kernel compiles it for seconds; done before anybody's time counts."""
    with tempfile.TemporaryDirectory() as folder:
        Learner(make_run(Path(folder), method=method)).rehearse()


class RunMember:
    """One member with everything it said."""

    def __init__(self, small_run: "SmallRun", identity: Identity) -> None:
        self.small_run, self.identity = small_run, identity
        self.said: list[msgspec.Struct] = []
        self.member: Any = None
        self.peer: Any = None
        self.authority: Any = None
        self.task: Any = None

    @property
    def id(self) -> bytes:
        return self.identity.public

    @property
    def name(self) -> str:
        return short(self.id)

    def emit(self, event: msgspec.Struct) -> None:
        self.said.append(event)
        self.small_run.heard(self, event)

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.said if isinstance(event, kind)]

    def hashes(self) -> dict[tuple[int, int], str]:
        """The hash of its model before each round, by epoch and height."""
        return {(e.epoch, e.height): e.hash for e in self.all(events.RoundLearnt)}

    def sources(self) -> list[str]:
        return [event.source for event in self.all(events.ModelLoaded)]

    async def begin(
        self,
        learner: type[Learner] = Learner,
        prepare: Callable[["RunMember"], None] = lambda who: None,
    ) -> None:
        run = self.small_run.run
        made = await asyncio.to_thread(learner, run)
        self.authority = self.small_run.keeper.open(self.identity)
        topic = gossip_topic(run.run_id)
        self.peer = await Peer.open(self.identity.private, topic, self.small_run.peers)
        folder = self.small_run.folder / self.name
        self.member = Member(run, self.id, self.authority, self.peer, made, folder, self.emit)
        prepare(self)
        self.task = asyncio.create_task(self.member.run())
        self.task.add_done_callback(lambda _: self.small_run.news.set())

    async def end(self) -> None:
        """Gone without a word, as after a power cut."""
        if self.task is None:
            return
        await end_tasks([self.task])
        await self.peer.close()
        await self.authority.close()
        self.task = None

    async def leave(self) -> None:
        await self.member.leave()
        await self.end()


class SmallRun:
    """The run, and everyone who ever attended it."""

    def __init__(self, run: Run, folder: Path, peers: PeerConfig) -> None:
        self.run, self.folder, self.peers = run, folder, peers
        self.keeper: RunKeeper
        self.effects: list[m.Effect] = []
        self.claims: list[msgspec.Struct] = []  # what became of checkpointers' claims
        self.times: list[int] = []  # of the effects, by the run's clock, in milliseconds
        self.members: list[RunMember] = []
        self.news = asyncio.Event()
        self.on_event: Callable[[RunMember, msgspec.Struct], None] = lambda who, event: None

    @property
    def state(self) -> Coordinator:
        return self.keeper.state

    def noted(self, effect: m.Effect, now: int) -> None:
        self.effects.append(effect)
        self.times.append(now)
        self.news.set()

    def told(self, event: msgspec.Struct) -> None:
        self.claims.append(event)
        self.news.set()

    def heard(self, who: RunMember, event: msgspec.Struct) -> None:
        self.on_event(who, event)
        self.news.set()

    async def join(self, count: int = 1, **how: Any) -> list[RunMember]:
        """New members with new keys; `how` is what `RunMember.begin` takes."""
        came = [RunMember(self, Identity.random()) for _ in range(count)]
        self.members += came
        await asyncio.gather(*(who.begin(**how) for who in came))
        return came

    async def until(self, done: Callable[[], Any]) -> Any:
        """Wait until `done()` is true; a member that dies ends the wait with its error."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not (result := done()):
                    self._raise_errors()
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            raise AssertionError(f"did not come about:\n{self.story()}") from None
        self._raise_errors()
        return result

    async def end_after(self, steps: int) -> None:
        """End a run that has many more steps to go after so many."""
        last = self.state.progress.step + steps
        config = msgspec.structs.replace(self.run.config, total_steps=last)
        owner = self.keeper.open(OWNER)
        changed = m.Update(msgspec.structs.replace(self.run, config=config))
        assert await owner.submit(changed) is None
        await owner.close()
        await self.until(self.finished)
        assert self.state.progress.step == last

    def _raise_errors(self) -> None:
        for who in self.members:
            if who.task is not None and who.task.done():
                who.task.result()

    def story(self) -> str:
        said = [f"{a.name}: {e}"[:200] for a in self.members for e in a.said[-12:]]
        return "\n".join([str(e)[:200] for e in self.effects[-30:]] + said)

    def all(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def finished(self) -> bool:
        """The run is over, for everyone who is still there."""
        here = [a for a in self.members if a.task is not None]
        return self.state.phase is Phase.Finished and all(a.task.done() for a in here)

    def in_phase(self, phase: Phase, epoch: int = 0) -> Callable[[], bool]:
        return lambda: self.state.phase is phase and self.state.epoch_number >= epoch

    def in_round(self, height: int, epoch: int = 0) -> Callable[[], bool]:
        return lambda: any(
            isinstance(e, m.RoundStarted) and e.epoch == epoch and e.height == height
            for e in self.effects
        )

    def lasted(self, phase: Phase) -> list[float]:
        """How long each visit of a phase lasted, in seconds."""
        moves = [
            (e, t)
            for e, t in zip(self.effects, self.times, strict=True)
            if isinstance(e, m.StateChanged)
        ]
        pairs = itertools.pairwise(moves)
        return [(end - begin) / 1000 for (e, begin), (_, end) in pairs if e.after is phase]

    def removed(self) -> list[tuple[bytes, str]]:
        return [(effect.id, effect.why) for effect in self.all(m.ClientRemoved)]


def agreement(members: list[RunMember]) -> dict[tuple[int, int], str]:
    """The one hash that all of them had before each round; fails when two differ."""
    hashes: dict[tuple[int, int], set[str]] = {}
    for who in members:
        for where, found in who.hashes().items():
            hashes.setdefault(where, set()).add(found)
    assert {len(found) for found in hashes.values()} == {1}, hashes
    return {where: found.pop() for where, found in hashes.items()}


def all_learnt(members: list[RunMember]) -> dict[tuple[int, int], str]:
    """As `agreement`, and all of them learnt in every round.

    A run may end while the last of them are at the last two: a quorum is enough.
    """
    agreed = agreement(members)
    wanted = set(sorted(agreed)[:-2])
    for who in members:
        assert wanted <= who.hashes().keys(), who.name
    return agreed


StartRun = Callable[..., AbstractAsyncContextManager[SmallRun]]
"""What `small_run` is, and its fixture."""


@asynccontextmanager
async def small_run(
    folder: Path,
    peers: PeerConfig = QUICK,
    policy: ClaimPolicy = ClaimPolicy.auto,
    authority: type[RunKeeper] = ServerKeeper,
    **changes: Any,
) -> AsyncIterator[SmallRun]:
    """A run that is kept while the block lasts; members that are left are ended."""
    torch.set_num_threads(1)
    run = msgspec.structs.replace(make_run(folder, **changes), run_id=f"moot-{uuid4().hex[:8]}")
    made = SmallRun(run, folder, peers)
    compile_kernels(made.run.model.method)
    claims = Claims(check_stored, policy, made.told)
    async with authority.keep(made.run, folder, made.noted, claims) as made.keeper:
        try:
            yield made
        finally:
            await asyncio.gather(*(who.end() for who in made.members))
