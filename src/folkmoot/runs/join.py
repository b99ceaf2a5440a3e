"""Join a run: open its authority by url, meet its peers, build its model, and be a member."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from folkmoot.authority import Authority, DataServer
from folkmoot.authority.open import open_authority
from folkmoot.client import events
from folkmoot.client.learner import Learner
from folkmoot.client.member import Member, RunReconfigured
from folkmoot.client.places import Places
from folkmoot.client.served_data import SCHEME, ServedFile
from folkmoot.core.coordinator import Coordinator, Run
from folkmoot.core.coordinator.changes import changes
from folkmoot.core.coordinator.config import RUN_ID_RULE, is_run_id
from folkmoot.core.identity import gossip_topic
from folkmoot.exchange.bucket import open_object
from folkmoot.exchange.peer import Peer, PeerConfig
from folkmoot.host.event_log import EventLog, Record
from folkmoot.host.files import held_alone
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks
from folkmoot.host.tls import ClientTls
from folkmoot.learning.data import OpenUrl
from folkmoot.learning.data.source import Source
from folkmoot.runs.fingerprint import check_data
from folkmoot.runs.reachable import bind_towards, check_reach
from folkmoot.runs.trained_model import TrainedModel

# Seconds without an answer after which a client says that it waits.
SAY_AFTER = 2.0
_IN_USE = (
    "another client on this machine uses {key} just now. Every client needs a key of its own: use"
    " another --folder"
)


async def join_run(
    url: str,
    run_id: str,
    folder: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    bind: str | None = None,
    relays: Iterable[str] = (),
    store_gb: float = 4.0,
    tls: ClientTls | None = None,
    trust: Iterable[str] = (),
    places: Mapping[str, str] | None = None,
    tell: Callable[[Record], None] = lambda record: None,
) -> TrainedModel | None:
    """Train with the others until the run is finished. Cancelled, it tells the run and leaves.

    `url` is where the run is: host:port of a server, or store:tcp://…, store:etcd://…. `folder` is
    for this client's event log, downloads and, unless `key` names another file, its key. Peers
    reach it at `bind` (with none, at this machine's address on the way to the run), or through
    `relays`; `store_gb` is the most memory for what they fetch.

    The run names its data and where it keeps checkpoints. What is not in the current folder or
    below it, or is hidden there, is used only if `trust` names it or what it lies in ("all" for
    everything); `places` names other places to use instead, theirs to ours.

    `tell` is called with all that goes into the event log, as it happens.

    Gives the model, or None when the run ended before this client had learnt all of it: then the
    run's checkpoint has it.
    """
    if not is_run_id(run_id):
        raise ValueError(f"run_id {run_id!r}: it {RUN_ID_RULE}")
    home, allowed, relays = Path(folder), Places(trust, places), tuple(relays)
    identity = Identity.read(key) if key else Identity.load(home / "client.key")
    authority = open_authority(url, run_id, identity, tls, member=True)
    with ExitStack() as stack:
        held = Path(key or home / "client.key")
        stack.enter_context(held_alone(held, _IN_USE.format(key=held)))
        log = stack.enter_context(closing(EventLog(home / "events.jsonl")))

        def emit(record: Record) -> None:
            log.write(record)
            tell(record)

        try:
            shown = await _first_state(authority, url, emit)
            run, at = shown.run, bind_towards(url, bind, bool(relays))
            peers = PeerConfig(bind=at, relays=relays, store_bytes=round(store_gb * 1e9))
            build = partial(_build, allowed, data_opener(authority), emit)
            learner = await asyncio.to_thread(build, run)
            async with await Peer.open(identity.private, gossip_topic(run_id), peers) as peer:
                parameters = sum(p.numel() for p in learner.model.parameters())
                emit(events.Began(identity.public.hex(), run_id, parameters))
                begin = partial(
                    Member,
                    identity=identity.public,
                    authority=authority,
                    peer=peer,
                    folder=home,
                    emit=emit,
                    places=allowed,
                )
                checking = asyncio.create_task(check_reach(peer, shown, emit))
                try:
                    return await _attend(run, learner, begin, build)
                finally:
                    await end_tasks([checking])
        finally:
            await authority.close()


async def _first_state(
    authority: Authority, url: str, emit: Callable[[Record], None]
) -> Coordinator:
    """The state of the run, for which we wait as long as it takes, and say why."""
    first = asyncio.ensure_future(anext(authority.watch()))
    said = ""
    try:
        while not (await asyncio.wait([first], timeout=SAY_AFTER))[0]:
            waits = f"waits for {url}: {authority.last_error or 'no answer yet'}"
            if waits != said:
                emit(events.Doing(waits))
            said = waits
        return first.result()
    finally:
        await end_tasks([first])


def _build(allowed: Places, open_url: OpenUrl, emit: Callable[[Record], None], run: Run) -> Learner:
    """What trains for `run` on this machine; raises when it cannot."""
    local = allowed.localised(run)
    emit(events.Doing("opens the data and makes the model"))
    check_data(run, local, open_url)
    learner = Learner(local, open_url)
    emit(events.Doing("tries out a step; on a new machine it is compiled first, about a minute"))
    learner.rehearse()
    return learner


async def _attend(
    run: Run, learner: Learner, begin: Callable[..., Member], build: Callable[[Run], Learner]
) -> TrainedModel | None:
    """Be a member until the run is finished, also when its owner changes what it computes."""
    holds = b""
    while True:
        member = begin(run=run, learner=learner, holds=holds)
        try:
            agreed = (await _take_part(member)).model_hash
        except RunReconfigured as changed:
            differs = changes(run, changed.run)
            member.emit(events.RunChanged(tuple(map(str, differs))))
            run = changed.run
            learner, holds = await asyncio.to_thread(_built_on, partial(build, run), member)
            continue
        known = agreed == await asyncio.to_thread(learner.hash)
        return TrainedModel(learner.model, learner.tokenizer) if known else None


def _built_on(build: Callable[[], Learner], member: Member) -> tuple[Learner, bytes]:
    """A new learner, and the hash of the model that it has from a member, if it can have it."""
    learner = build()
    kept = bool(member.client.model_hash) and learner.take_over(member.learner)
    return learner, learner.hash() if kept else b""


async def _take_part(member: Member) -> Coordinator:
    working = asyncio.create_task(member.run())
    try:
        state = await asyncio.shield(working)
        member.emit(events.Ended("the run is finished"))
        return state
    except asyncio.CancelledError:
        await member.leave()
        await end_tasks([working])
        member.emit(events.Ended("left"))
        raise


def data_opener(authority: Authority) -> OpenUrl:
    """Opens a run's data by url, also what its authority hands out; for use in other threads."""
    loop = asyncio.get_running_loop()

    def open_url(url: str) -> Source:
        if not url.startswith(SCHEME):
            return open_object(url)
        if not isinstance(authority, DataServer):
            raise ValueError(f"{url}: only a run's server hands out data; name a file or a bucket")
        return ServedFile(authority, url.removeprefix(SCHEME), loop)

    return open_url
