"""Join a run: open its authority by url, meet its peers, build its model, and be a member."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from folkmoot.authority import Authority, DataServer
from folkmoot.authority.open import open_authority
from folkmoot.client import events
from folkmoot.client.learner import Learner
from folkmoot.client.member import Member
from folkmoot.client.served_data import SCHEME, ServedFile
from folkmoot.core.coordinator import Coordinator
from folkmoot.core.identity import gossip_topic
from folkmoot.exchange.bucket import open_object
from folkmoot.exchange.peer import Peer, PeerConfig
from folkmoot.host.event_log import EventLog
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks
from folkmoot.host.tls import ClientTls
from folkmoot.learning.data import OpenUrl
from folkmoot.learning.data.source import Source
from folkmoot.runs.trained_model import TrainedModel


async def join_run(
    url: str,
    run_id: str,
    folder: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    bind: str = "127.0.0.1:0",
    relays: Iterable[str] = (),
    store_gb: float = 4.0,
    tls: ClientTls | None = None,
) -> TrainedModel | None:
    """Train with the others until the run is finished. Cancelled, it tells the run and leaves.

    `url` is where the run's state is kept: host:port of a server. `folder` is for this client's
    event log, downloads and, unless `key` names another file, its key. Peers reach it at `bind`,
    or through `relays`; `store_gb` is the most memory for what they fetch from it.

    Gives the model, or None when the run ended before this client had learnt all of it: then the
    run's checkpoint has it.
    """
    home = Path(folder)
    identity = Identity.load(key or home / "client.key")
    peers = PeerConfig(bind=bind, relays=tuple(relays), store_bytes=round(store_gb * 1e9))
    authority = open_authority(url, run_id, identity, tls)
    try:
        run = (await anext(authority.watch())).run
        learner = await asyncio.to_thread(Learner, run, data_opener(authority))
        await asyncio.to_thread(learner.rehearse)
        with closing(EventLog(home / "events.jsonl")) as log:
            async with await Peer.open(identity.private, gossip_topic(run_id), peers) as peer:
                parameters = sum(p.numel() for p in learner.model.parameters())
                log.write(events.Began(identity.public.hex(), run_id, parameters))
                member = Member(run, identity.public, authority, peer, learner, home, log.write)
                agreed = (await _take_part(member)).model_hash
        known = agreed == await asyncio.to_thread(learner.hash)
        return TrainedModel(learner.model, learner.tokenizer) if known else None
    finally:
        await authority.close()


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
